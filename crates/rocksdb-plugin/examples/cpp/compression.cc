// Turns ziptier's compression on for a database, by an option string:
//
//   compression DIR "compression_manager={id=ziptier;format=token};compression=kCustomCompression80"
//
// writes records, compacts them, closes and opens the database again, reads every record, and tells how the files are
// packed.

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/table_properties.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "ziptier_rocksdb.h"

namespace {

using namespace rocksdb;

constexpr int kRecords = 200000;

std::string KeyOf(int i) {
  char key[17];
  std::snprintf(key, sizeof key, "key:%012d", i);
  return key;
}

std::string ValueOf(int i) {
  return "{\"user\":" + std::to_string(i * 7919LL % 100003) + ",\"state\":\"" + (i % 3 ? "active" : "suspended") +
         "\",\"visits\":" + std::to_string(i % 977) + ",\"comment\":\"written by the example\"}";
}

void Check(const Status& status, const char* what) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
    std::exit(1);
  }
}

std::unique_ptr<DB> Open(const Options& options, const std::string& dir) {
  std::unique_ptr<DB> db;
  Check(DB::Open(options, dir, &db), "open");
  return db;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: compression DIR OPTIONS\n");
    return 2;
  }
  char message[256];
  if (ziptier_rocksdb_load(message, sizeof message) != 0) {
    std::fprintf(stderr, "%s\n", message);
    return 1;
  }

  Options options;
  options.create_if_missing = true;
  ConfigOptions config;
  config.ignore_unsupported_options = false;  // an unknown manager is an error, not silence
  Check(GetOptionsFromString(config, options, argv[2], &options), "options");

  auto db = Open(options, argv[1]);
  for (int i = 0; i < kRecords; ++i) {
    Check(db->Put(WriteOptions(), KeyOf(i), ValueOf(i)), "put");
  }
  CompactRangeOptions compact;
  compact.bottommost_level_compaction = BottommostLevelCompaction::kForce;
  Check(db->CompactRange(compact, nullptr, nullptr), "compact");
  db.reset();

  db = Open(options, argv[1]);
  for (int i = 0; i < kRecords; ++i) {
    std::string value;
    Check(db->Get(ReadOptions(), KeyOf(i), &value), "get");
    if (value != ValueOf(i)) {
      std::fprintf(stderr, "record %d has another value\n", i);
      return 1;
    }
  }
  TablePropertiesCollection files;
  Check(db->GetPropertiesOfAllTables(&files), "properties");
  for (const auto& [name, properties] : files) {
    std::printf("%s: %s, %llu bytes of data, %llu raw\n", name.c_str() + name.rfind('/') + 1,
                properties->compression_name.c_str(), static_cast<unsigned long long>(properties->data_size),
                static_cast<unsigned long long>(properties->uncompressed_data_size));
  }
  char counters[4096];
  ziptier_rocksdb_counters(counters, sizeof counters);
  std::printf("%s", counters);
  return 0;
}
