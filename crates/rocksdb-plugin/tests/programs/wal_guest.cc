// RocksDB with its log on persistent memory, in a machine that is killed.
//
//   wal_guest write DIR          puts records, each durable, by the file system `ziptier` until it is killed; says
//                                how many, now and then
//   wal_guest check DIR COUNT    opens with RocksDB's own file system: the first COUNT records at least are there, and
//                                no wrong one

#include <rocksdb/db.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "log_records.h"

namespace {

using namespace rocksdb;

// Logs are used again, and memtables written, on the way.
Options OptionsFor(const std::string& dir) {
  Options options;
  options.create_if_missing = true;
  options.wal_dir = dir + "/wal";
  options.write_buffer_size = 256 << 10;
  options.recycle_log_file_num = 2;
  return options;
}

void Write(const std::string& dir) {
  Options options = OptionsFor(dir);
  options.env = ZiptierEnv();
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
  const uint64_t found = CountRecords(db.get());
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
