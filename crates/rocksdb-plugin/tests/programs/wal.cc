// The programs that the tests of the log run in separate processes.
//
//   wal write DIR WAL_DIR FILE_SYSTEM OPTIONS FROM   puts records until it is killed or fails, and acknowledges each on
//                                                    stdout; flushes after each FLUSH_EVERY records, which is in the
//                                                    environment
//   wal check DIR WAL_DIR OPTIONS COUNT              opens with RocksDB's own file system: the first COUNT records must
//                                                    be there
//   wal tail DIR                                     reads the log while it is written, and copies a database that is
//                                                    open
//
// FILE_SYSTEM is `stock` or `ziptier`, OPTIONS a string of RocksDB's.

#include <fcntl.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/transaction_log.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "log_records.h"

namespace {

using namespace rocksdb;

Options OptionsFor(const std::string& wal_dir, const std::string& others = "") {
  Options options;
  options.create_if_missing = true;
  options.wal_dir = wal_dir;
  options.write_buffer_size = 1 << 20;
  options.compression = kNoCompression;
  Check(GetOptionsFromString(ConfigOptions(), options, others, &options), "options " + others);
  return options;
}

std::unique_ptr<DB> Open(const Options& options, const std::string& dir) {
  std::unique_ptr<DB> db;
  Check(DB::Open(options, dir, &db), "open " + dir);
  return db;
}

int Write(char** arguments) {
  // Whoever reads the acknowledgements is never far behind.
  fcntl(STDOUT_FILENO, F_SETPIPE_SZ, 4096);
  Options options = OptionsFor(arguments[1], arguments[3]);
  if (std::string(arguments[2]) == "ziptier") {
    options.env = ZiptierEnv();
  }
  auto db = Open(options, arguments[0]);
  const char* const every = std::getenv("FLUSH_EVERY");
  const uint64_t flush_every = every == nullptr ? 0 : std::strtoull(every, nullptr, 10);
  for (uint64_t i = std::strtoull(arguments[4], nullptr, 10);; ++i) {
    WriteOptions write;
    // Records that are not synced outlive the process just as well; runs of both, for the log goes different ways with
    // them.
    write.sync = i % 100 < 60;
    const Status status = db->Put(write, KeyOf(i), ValueOf(i));
    if (!status.ok()) {
      std::printf("refused %s\n", status.ToString().c_str());
      PrintCounters();
      return status.IsNoSpace() ? 0 : 1;
    }
    std::printf("%llu\n", static_cast<unsigned long long>(i));
    std::fflush(stdout);
    // The next log begins here, and not when RocksDB finds the time.
    if (flush_every > 0 && i % flush_every == flush_every - 1) {
      Check(db->Flush(FlushOptions()), "flush");
    }
  }
}

int CheckRecords(char** arguments) {
  Options options = OptionsFor(arguments[1], arguments[2]);
  options.create_if_missing = false;
  std::unique_ptr<DB> db;
  const Status opened = DB::Open(options, arguments[0], &db);
  if (!opened.ok()) {
    std::printf("refused %s\n", opened.ToString().c_str());
    return 3;
  }
  const uint64_t count = std::strtoull(arguments[3], nullptr, 10);
  // The record behind the last one that was acknowledged may have been on its way; nothing else is there.
  const uint64_t found = CountRecords(db.get());
  if (found < count || found > count + 1) {
    Fail(std::to_string(found) + " records are there, " + std::to_string(count) + " were acknowledged");
  }
  std::printf("%llu\n", static_cast<unsigned long long>(found));
  return 0;
}

constexpr uint64_t kTailed = 6000;

// Follows the log until it has every record.
void Follow(DB* db) {
  uint64_t next = 0;
  while (next < kTailed) {
    if (db->GetLatestSequenceNumber() <= next) {
      std::this_thread::yield();
      continue;
    }
    std::unique_ptr<TransactionLogIterator> updates;
    Check(db->GetUpdatesSince(next + 1, &updates), "updates");
    // The iterator is asked again at the end of the log, where it must find what has come since.
    for (int misses = 0; misses < 3 && next < kTailed;) {
      if (!updates->Valid()) {
        ++misses;
        updates->Next();
        continue;
      }
      BatchResult batch = updates->GetBatch();
      if (batch.sequence != next + 1) {
        Fail("update " + std::to_string(batch.sequence) + " came instead of " + std::to_string(next + 1));
      }
      next += batch.writeBatchPtr->Count();
      updates->Next();
    }
    if (!updates->status().ok() && !updates->status().IsTryAgain()) {
      Check(updates->status(), "follow");
    }
  }
}

uint64_t BytesOfLogs(const std::string& dir) {
  std::vector<Env::FileAttributes> files;
  Check(Env::Default()->GetChildrenFileAttributes(dir, &files), "list " + dir);
  uint64_t bytes = 0;
  for (const auto& file : files) {
    if (file.name.size() > 4 && file.name.substr(file.name.size() - 4) == ".log") {
      bytes += file.size_bytes;
    }
  }
  return bytes;
}

// Opens a copy with RocksDB's own file system; it has at least `count` records and no wrong one.
void CheckCopy(const std::string& dir, uint64_t count) {
  Options options;
  auto db = Open(options, dir);
  std::string value;
  for (uint64_t i = 0; i < count; ++i) {
    Check(db->Get(ReadOptions(), KeyOf(i), &value), "get from " + dir);
    if (value != ValueOf(i)) {
      Fail("record " + std::to_string(i) + " of " + dir + " has another value");
    }
  }
}

int Tail(char** arguments) {
  Options options = OptionsFor("");
  // By name, as the C API does it.
  ConfigOptions config;
  config.ignore_unknown_options = false;
  Check(GetOptionsFromString(config, options, "env=ziptier;WAL_ttl_seconds=3600", &options), "options");
  if (options.env == Env::Default()) {
    Fail("the option string gave the default environment");
  }
  const std::string dir = arguments[0];
  auto db = Open(options, dir);
  std::thread follower([&] { Follow(db.get()); });
  for (uint64_t i = 0; i < kTailed; ++i) {
    WriteOptions write;
    write.sync = i % 100 < 50;
    Check(db->Put(write, KeyOf(i), ValueOf(i)), "put");
  }
  follower.join();

  // Some records are in the log alone, and the log is what copies take.
  Check(db->Flush(FlushOptions()), "flush");
  for (uint64_t i = kTailed; i < kTailed + 100; ++i) {
    WriteOptions write;
    write.sync = i + 1 < kTailed + 100;  // so that the log has room, and is longer than what is durable
    Check(db->Put(write, KeyOf(i), ValueOf(i)), "put");
  }
  std::unique_ptr<WalFile> current;
  Check(db->GetCurrentWalFile(&current), "current log");
  Checkpoint* checkpoint = nullptr;
  Check(Checkpoint::Create(db.get(), &checkpoint), "checkpoint");
  Check(checkpoint->CreateCheckpoint(dir + "-checkpoint", 1ULL << 40), "checkpoint");
  delete checkpoint;
  BackupEngine* backup = nullptr;
  Check(BackupEngine::Open(BackupEngineOptions(dir + "-backup"), options.env, &backup), "backup");
  Check(backup->CreateNewBackup(db.get(), false), "backup");
  delete backup;

  BackupEngine* restore = nullptr;
  Check(BackupEngine::Open(BackupEngineOptions(dir + "-backup"), Env::Default(), &restore), "restore");
  Check(restore->RestoreDBFromLatestBackup(dir + "-restored", dir + "-restored"), "restore");
  delete restore;
  const uint64_t copied = BytesOfLogs(dir + "-checkpoint"), restored = BytesOfLogs(dir + "-restored");
  if (copied != current->SizeFileBytes() || restored != copied || copied == 0) {
    Fail("the log has " + std::to_string(current->SizeFileBytes()) + " bytes, in the checkpoint " +
         std::to_string(copied) + ", restored " + std::to_string(restored));
  }
  if (BytesOfLogs(dir) <= copied) {
    Fail("the file that is being written has no room behind the log");
  }
  CheckCopy(dir + "-checkpoint", kTailed + 100);
  CheckCopy(dir + "-restored", kTailed + 100);
  db.reset();
  if (BytesOfLogs(dir) != copied) {
    Fail("a database that is closed has logs of " + std::to_string(BytesOfLogs(dir)) + " bytes");
  }
  CheckCopy(dir, kTailed + 100);
  PrintCounters();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string work = argc > 1 ? argv[1] : "";
  if (work == "write" && argc == 7) {
    return Write(argv + 2);
  }
  if (work == "check" && argc == 6) {
    return CheckRecords(argv + 2);
  }
  if (work == "tail" && argc == 3) {
    return Tail(argv + 2);
  }
  std::fprintf(stderr, "usage: see the source\n");
  return 2;
}
