// A program that knows RocksDB and nothing of ziptier. Whether the plugin is there is decided by who starts it.
//
//   database fill DIR OPTIONS RECORDS      puts records, flushes now and then, compacts
//   database read DIR OPTIONS RECORDS      opens the database, reads every record in both ways, verifies checksums
//   database reopen DIR - RECORDS          the same with the options that the database wrote down
//   database work DIR OPTIONS RECORDS      puts, compacts, reads, and prints the plugin's counters
//   database switch DIR OPTIONS RECORDS CHANGES   half of the records, `SetOptions`, the other half, and reads them
//   database load DIR OPTIONS RECORDS      writes one file beside the database, and has it taken in
//   database families DIR OPTIONS N        makes N column families of long names, with a file each
//   database describe DIR OPTIONS -        how each file is compressed
//   database buffered DIR OPTIONS MIB      puts noise, compacts it, and prints the most bytes that this took from the
//                                          heap

#include <dlfcn.h>
#include <malloc.h>
#include <rocksdb/compaction_filter.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table_properties.h>
#include <rocksdb/utilities/options_util.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "checks.h"

namespace {

using namespace rocksdb;

std::string KeyOf(int i) {
  char key[32];
  std::snprintf(key, sizeof key, "key:%012d", i);
  return key;
}

// Mostly lines of a log; some noise, some long values, some empty ones.
std::string ValueOf(int i) {
  if (i % 97 == 0) {
    return "";
  }
  std::string value;
  const int lines = i % 101 == 0 ? 400 : 1 + i % 5;
  unsigned seed = static_cast<unsigned>(i) * 2654435761U + 1;
  for (int line = 0; line < lines; ++line) {
    seed = seed * 1664525U + 1013904223U;
    if (i % 13 == 0) {
      for (int k = 0; k < 60; ++k) {
        seed = seed * 1664525U + 1013904223U;
        value.push_back(static_cast<char>(seed >> 24));
      }
    } else {
      value += "2026-03-" + std::to_string(1 + seed % 28) + " INFO worker-" + std::to_string(seed % 17) +
               " finished request " + std::to_string(i * 31 + line) + " in " + std::to_string(seed % 5000) + " us\n";
    }
  }
  return value;
}

Options Parse(const char* text) {
  Options options;
  options.create_if_missing = true;
  // Of the usual records these make four memtables and two files.
  options.write_buffer_size = 2 << 20;
  options.target_file_size_base = 1 << 20;
  ConfigOptions config;
  config.ignore_unsupported_options = false;
  Check(GetOptionsFromString(config, options, text, &options), "options");
  return options;
}

std::unique_ptr<DB> Open(const Options& options, const std::string& dir) {
  std::unique_ptr<DB> db;
  Check(DB::Open(options, dir, &db), "open");
  return db;
}

void Put(DB& db, int from, int to) {
  for (int i = from; i < to; ++i) {
    // Not in the order of the keys, so that compactions have work.
    const int k = from + static_cast<int>((static_cast<long long>(i - from) * 7919) % (to - from));
    Check(db.Put(WriteOptions(), KeyOf(k), ValueOf(k)), "put");
  }
  Check(db.Flush(FlushOptions()), "flush");
}

void Load(DB& db, const Options& options, const std::string& file, int records) {
  SstFileWriter writer(EnvOptions(), options);
  Check(writer.Open(file), "open a file");
  for (int i = 0; i < records; ++i) {
    Check(writer.Put(KeyOf(i), ValueOf(i)), "put into a file");
  }
  Check(writer.Finish(), "finish a file");
  Check(db.IngestExternalFile({file}, IngestExternalFileOptions()), "take a file in");
}

void Compact(DB& db) {
  CompactRangeOptions compact;
  compact.bottommost_level_compaction = BottommostLevelCompaction::kForce;
  Check(db.CompactRange(compact, nullptr, nullptr), "compact");
}

void Read(DB& db, int records) {
  for (int i = 0; i < records; ++i) {
    std::string value;
    Check(db.Get(ReadOptions(), KeyOf(i), &value), "get");
    if (value != ValueOf(i)) {
      Fail("get", "another value of " + KeyOf(i));
    }
  }
  std::unique_ptr<Iterator> it(db.NewIterator(ReadOptions()));
  int seen = 0;
  for (it->SeekToFirst(); it->Valid(); it->Next(), ++seen) {
    if (it->key() != KeyOf(seen) || it->value() != ValueOf(seen)) {
      Fail("iterate", "another record at " + std::to_string(seen));
    }
  }
  Check(it->status(), "iterate");
  if (seen != records) {
    Fail("iterate", std::to_string(seen) + " records of " + std::to_string(records));
  }
  Check(db.VerifyChecksum(), "verify checksums");
}

void MakeFamilies(DB& db, const Options& options, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    names.push_back(std::to_string(i) + std::string(240, 'f'));
  }
  std::vector<ColumnFamilyHandle*> families;
  Check(db.CreateColumnFamilies(options, names, &families), "create column families");
  for (ColumnFamilyHandle* family : families) {
    Check(db.Put(WriteOptions(), family, KeyOf(1), ValueOf(1)), "put");
  }
  Check(db.Flush(FlushOptions(), families), "flush");
  for (ColumnFamilyHandle* family : families) {
    Check(db.DestroyColumnFamilyHandle(family), "let go of a column family");
  }
}

// Looks at the heap while a compaction goes on.
class Measuring : public CompactionFilter {
 public:
  static uint64_t HeapBytes() {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  }
  const char* Name() const override { return "Measuring"; }
  bool Filter(int, const Slice&, const Slice&, std::string*, bool*) const override {
    if (++records_ % 64 == 0) {
      most_bytes_ = std::max<uint64_t>(most_bytes_, HeapBytes());
    }
    return false;
  }
  uint64_t most_bytes() const { return most_bytes_; }

 private:
  mutable std::atomic<uint64_t> records_{0};
  mutable std::atomic<uint64_t> most_bytes_{0};
};

void Buffered(Options options, const std::string& dir, int mib) {
  // Files of before the plugin: the compaction is the first to ask for samples.
  Options plain = options;
  plain.compression_manager = nullptr;
  plain.compression = kNoCompression;
  auto db = Open(plain, dir);
  uint64_t state = 1;
  for (int i = 0; i < mib * 256; ++i) {
    std::string value;
    while (value.size() < 4000) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      value.append(reinterpret_cast<const char*>(&state) + 4, 4);
    }
    Check(db->Put(WriteOptions(), KeyOf(i), value), "put");
  }
  Check(db->Flush(FlushOptions()), "flush");
  db.reset();
  Measuring measuring;
  options.compaction_filter = &measuring;
  db = Open(options, dir);
  const uint64_t before = Measuring::HeapBytes();
  Compact(*db);
  std::printf("%llu\n", static_cast<unsigned long long>(std::max(before, measuring.most_bytes()) - before));
}

void PrintCounters() {
  using Function = size_t (*)(char*, size_t);
  const auto counters = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "ziptier_rocksdb_counters"));
  char text[8192] = "";
  if (counters != nullptr) {
    counters(text, sizeof text);
  }
  std::printf("%s", text);
}

void Describe(DB& db) {
  TablePropertiesCollection files;
  Check(db.GetPropertiesOfAllTables(&files), "properties");
  for (const auto& [name, properties] : files) {
    std::printf("%s %llu\n", properties->compression_name.c_str(),
                static_cast<unsigned long long>(properties->data_size));
  }
}

std::unordered_map<std::string, std::string> MapOf(const char* text) {
  std::unordered_map<std::string, std::string> map;
  Check(StringToMap(text, &map), "changes");
  return map;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    Fail("usage", "database COMMAND DIR OPTIONS RECORDS [CHANGES]");
  }
  const std::string command = argv[1];
  const std::string dir = argv[2];
  const int records = std::atoi(argv[4]);
  if (command == "reopen") {
    DBOptions db_options;
    std::vector<ColumnFamilyDescriptor> families;
    ConfigOptions config;
    config.ignore_unsupported_options = false;
    Check(LoadLatestOptions(config, dir, &db_options, &families), "load options");
    auto db = Open(Options(db_options, families[0].options), dir);
    Put(*db, 0, records);
    Read(*db, records);
    Describe(*db);
    return 0;
  }
  const Options options = Parse(argv[3]);
  if (command == "buffered") {
    Buffered(options, dir, records);
    return 0;
  }
  auto db = Open(options, dir);
  if (command == "hold") {
    std::puts("open");
    std::fflush(stdout);
    // Until standard input ends.
    while (std::getchar() != EOF) {
    }
    return 0;
  }
  if (command == "fill") {
    Put(*db, 0, records);
    Compact(*db);
  } else if (command == "load") {
    Load(*db, options, dir + "-loaded.sst", records);
    Read(*db, records);
  } else if (command == "read") {
    Read(*db, records);
  } else if (command == "work") {
    Put(*db, 0, records);
    Compact(*db);
    Read(*db, records);
    PrintCounters();
    return 0;
  } else if (command == "families") {
    MakeFamilies(*db, Parse(argv[3]), records);
    return 0;
  } else if (command == "switch") {
    Put(*db, 0, records / 2);
    Check(db->SetOptions(MapOf(argv[5])), "set options");
    Put(*db, records / 2, records);
    Read(*db, records);
  }
  Describe(*db);
  return 0;
}
