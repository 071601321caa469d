// RocksDB with its log on persistent memory, in a machine that is killed.
//
//   wal_guest write DIR          puts records, each durable, by the file system `ziptier` until it is killed; says how many, now and then
//   wal_guest check DIR COUNT    opens with RocksDB's own file system: the first COUNT records at least are there, and no wrong one

#include <dlfcn.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "checks.h"

namespace {

using namespace rocksdb;

std::string KeyOf(uint64_t i) {
  char key[24];
  std::snprintf(key, sizeof key, "key:%012llu", static_cast<unsigned long long>(i));
  return key;
}

std::string ValueOf(uint64_t i) {
  const uint64_t hash = (i + 1) * 0x9e3779b97f4a7c15ULL;
  return std::string(20 + (hash >> 20) % 400, static_cast<char>('a' + hash % 26)) + std::to_string(i);
}

// Logs are used again, and memtables written, on the way.
Options OptionsFor(const std::string& dir) {
  Options options;
  options.create_if_missing = true;
  options.wal_dir = dir + "/wal";
  options.write_buffer_size = 256 << 10;
  options.recycle_log_file_num = 2;
  return options;
}

void PrintCounters() {
  auto* counters = reinterpret_cast<size_t (*)(char*, size_t)>(dlsym(RTLD_DEFAULT, "ziptier_rocksdb_counters"));
  char text[4096] = "";
  if (counters != nullptr) {
    counters(text, sizeof text);
  }
  std::printf("%s", text);
}

void Write(const std::string& dir) {
  Options options = OptionsFor(dir);
  std::shared_ptr<Env> guard;
  Check(Env::CreateFromUri(ConfigOptions(), "", "ziptier", &options.env, &guard), "the file system");
  std::unique_ptr<DB> db;
  Check(DB::Open(options, dir, &db), "open");
  WriteOptions durable;
  durable.sync = true;
  for (uint64_t i = 0;; ++i) {
    if (i == 1000) {
      PrintCounters();
    }
    Check(db->Put(durable, KeyOf(i), ValueOf(i)), "put");
    if ((i + 1) % 100 == 0) {
      std::printf("PUT %llu\n", static_cast<unsigned long long>(i + 1));
      std::fflush(stdout);
    }
  }
}

void CheckRecords(const std::string& dir, uint64_t count) {
  Options options = OptionsFor(dir);
  options.create_if_missing = false;
  std::unique_ptr<DB> db;
  Check(DB::Open(options, dir, &db), "open");
  uint64_t found = 0;
  std::unique_ptr<Iterator> records(db->NewIterator(ReadOptions()));
  for (records->SeekToFirst(); records->Valid(); records->Next(), ++found) {
    if (records->key() != KeyOf(found) || records->value() != ValueOf(found)) {
      Fail("record " + std::to_string(found) + " is another");
    }
  }
  Check(records->status(), "iterate");
  std::printf("%llu puts found\n", static_cast<unsigned long long>(found));
  if (found < count) {
    Fail("fewer puts than " + std::to_string(count));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "write" && argc == 3) {
    Write(argv[2]);
  } else if (command == "check" && argc == 4) {
    CheckRecords(argv[2], std::strtoull(argv[3], nullptr, 10));
  } else {
    std::fprintf(stderr, "usage: see the source\n");
    return 2;
  }
  return 0;
}
