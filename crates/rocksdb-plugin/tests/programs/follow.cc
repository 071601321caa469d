// Reads a database while another process writes it.
//
//   follow secondary DIR WAL_DIR FILE_SYSTEM OPTIONS OWN_DIR   a secondary instance: for each count of records on
//                                                              stdin, catches up until it has them, and prints how many
//                                                              it has, or what went wrong; it is ended if that takes
//                                                              minutes
//   follow glance DIR WAL_DIR FILE_SYSTEM OPTIONS              opens read-only, and prints how many records it has, or
//                                                              what went wrong, and how long the logs are said to be
//
// FILE_SYSTEM is `stock` or `ziptier`, OPTIONS a string of RocksDB's.

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "log_records.h"

namespace {

using namespace rocksdb;

// A reader that never comes back is a failure, too.
constexpr unsigned kSecondsToAnswer = 120;

Options OptionsFor(char** arguments) {
  Options options;
  options.wal_dir = arguments[1];
  options.max_open_files = -1;
  if (std::string(arguments[2]) == "ziptier") {
    options.env = ZiptierEnv();
  }
  const std::string others = arguments[3];
  Check(GetOptionsFromString(ConfigOptions(), options, others, &options), "options " + others);
  return options;
}

// The number of records without a gap, from the first one on.
uint64_t CountWithoutGap(DB* db) {
  uint64_t found = 0;
  std::unique_ptr<Iterator> records(db->NewIterator(ReadOptions()));
  for (records->SeekToFirst(); records->Valid() && records->key() == KeyOf(found); records->Next(), ++found) {
    if (records->value() != ValueOf(found)) {
      Fail("record " + std::to_string(found) + " has another value");
    }
  }
  Check(records->status(), "iterate");
  return found;
}

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int Follow(char** arguments) {
  const Options options = OptionsFor(arguments);
  alarm(kSecondsToAnswer);
  std::unique_ptr<DB> db;
  Status status = DB::OpenAsSecondary(options, arguments[0], arguments[4], &db);
  if (!status.ok()) {
    Say("open: " + status.ToString());
    return 0;
  }
  Say(std::to_string(CountWithoutGap(db.get())));
  alarm(0);
  uint64_t count;
  while (std::cin >> count) {
    alarm(kSecondsToAnswer);
    uint64_t found = 0;
    // A log that is flushed and removed between a secondary's look at the manifest and at the logs is missing until it
    // looks again.
    for (int tries = 0; found < count && status.ok(); ++tries) {
      if (tries > 1) {
        usleep(1000);
      }
      status = db->TryCatchUpWithPrimary();
      found = CountWithoutGap(db.get());
    }
    Say(status.ok() ? std::to_string(found) : status.ToString());
    status = Status::OK();
    // The time between an answer and the next question is not limited.
    alarm(0);
  }
  return 0;
}

int Glance(char** arguments) {
  const Options options = OptionsFor(arguments);
  alarm(kSecondsToAnswer);
  std::unique_ptr<DB> db;
  const Status status = DB::OpenForReadOnly(options, arguments[0], &db);
  Say(status.ok() ? std::to_string(CountWithoutGap(db.get())) : status.ToString());
  std::vector<Env::FileAttributes> files;
  Check(options.env->GetChildrenFileAttributes(options.wal_dir, &files), "list " + options.wal_dir);
  for (const auto& file : files) {
    uint64_t bytes = 0;
    if (file.name.ends_with(".log") && options.env->GetFileSize(options.wal_dir + "/" + file.name, &bytes).ok()) {
      Say(file.name + " " + std::to_string(file.size_bytes) + " " + std::to_string(bytes));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string work = argc > 1 ? argv[1] : "";
  if (work == "secondary" && argc == 7) {
    return Follow(argv + 2);
  }
  if (work == "glance" && argc == 6) {
    return Glance(argv + 2);
  }
  std::fprintf(stderr, "usage: see the source\n");
  return 2;
}
