// The file system `ziptier`: RocksDB's own, but for the write-ahead log, whose files `ziptier_rocksdb` writes.
//
// A log that this or another process is writing is shorter than its file. So this file system shows readers only the
// log, and returns its length. A log of a killed process is all of its file. Such a log ends where its zeros begin,
// which RocksDB's reader knows.

#include "file_system.h"

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "wal.h"

namespace ziptier {
namespace {

using namespace ROCKSDB_NAMESPACE;

constexpr const char* kName = "ziptier";

struct CloseReader {
  void operator()(ZtReader* reader) const { zt_reader_close(reader); }
};
using ReaderPtr = std::unique_ptr<ZtReader, CloseReader>;

bool IsLog(const std::string& path) {
  constexpr std::string_view kEnd = ".log";
  return path.size() > kEnd.size() && path.compare(path.size() - kEnd.size(), kEnd.size(), kEnd) == 0;
}

// The log at a path, or null.
ReaderPtr ReaderOf(const std::string& path) { return ReaderPtr(IsLog(path) ? zt_reader_open(path.c_str()) : nullptr); }

bool IsWrittenHere(const std::string& path) { return IsLog(path) && zt_wal_is_written(path.c_str()); }

// Runs one of the functions that tell of a failure in words.
template <typename Function, typename... Args>
IOStatus Run(Function function, Args... args) {
  std::array<char, 512> error{};
  switch (function(args..., error.data(), error.size())) {
    case 0:
      return IOStatus::OK();
    case 2:
      return IOStatus::NoSpace(error.data());
    default:
      return IOStatus::IOError(error.data());
  }
}

class LogWritableFile : public FSWritableFile {
 public:
  LogWritableFile(ZtLog* log, const FileOptions& options) : FSWritableFile(options), log_(log) {}

  ~LogWritableFile() override { LogWritableFile::Close(IOOptions(), nullptr).PermitUncheckedError(); }

  using FSWritableFile::Append;
  IOStatus Append(const Slice& data, const IOOptions&, IODebugContext*) override {
    return Run(zt_wal_append, log_, data.data(), data.size());
  }

  IOStatus Truncate(uint64_t size, const IOOptions&, IODebugContext*) override {
    return Run(zt_wal_truncate, log_, size);
  }

  IOStatus Close(const IOOptions&, IODebugContext*) override {
    ZtLog* log = std::exchange(log_, nullptr);
    return log == nullptr ? IOStatus::OK() : Run(zt_wal_close, log);
  }

  IOStatus Flush(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  IOStatus Sync(const IOOptions&, IODebugContext*) override { return Run(zt_wal_sync, log_); }
  bool IsSyncThreadSafe() const override { return true; }
  uint64_t GetFileSize(const IOOptions&, IODebugContext*) override { return zt_wal_bytes(log_); }

  // There is room already, and what is written is on its way.
  void PrepareWrite(size_t, size_t, const IOOptions&, IODebugContext*) override {}
  IOStatus RangeSync(uint64_t, uint64_t, const IOOptions& options, IODebugContext* context) override {
    return strict_bytes_per_sync_ ? Sync(options, context) : IOStatus::OK();
  }

 private:
  ZtLog* log_;
};

// Reads a log, also while it is written.
class LogRandomAccessFile : public FSRandomAccessFile {
 public:
  explicit LogRandomAccessFile(ReaderPtr reader) : reader_(std::move(reader)) {}

  IOStatus Read(uint64_t offset, size_t count, const IOOptions&, Slice* result, char* scratch,
                IODebugContext*) const override {
    size_t found = 0;
    IOStatus status = Run(zt_reader_read, reader_.get(), offset, scratch, count, &found);
    *result = Slice(scratch, found);
    return status;
  }

  IOStatus GetFileSize(uint64_t* size) override { return Run(zt_reader_bytes, reader_.get(), size); }

 private:
  ReaderPtr reader_;
};

// The same from front to back. RocksDB's own reads ahead into a buffer of C's library, where zeros would stay that the
// log has overwritten since.
class LogSequentialFile : public FSSequentialFile {
 public:
  explicit LogSequentialFile(ReaderPtr reader) : file_(std::move(reader)) {}

  IOStatus Read(size_t count, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* context) override {
    IOStatus status = file_.Read(offset_, count, options, result, scratch, context);
    if (status.ok()) {
      offset_ += result->size();
    }
    return status;
  }

  IOStatus Skip(uint64_t count) override {
    offset_ += count;
    return IOStatus::OK();
  }

 private:
  LogRandomAccessFile file_;
  uint64_t offset_ = 0;
};

class ZiptierFileSystem : public FileSystemWrapper {
 public:
  explicit ZiptierFileSystem(const std::shared_ptr<FileSystem>& target) : FileSystemWrapper(target) {}

  const char* Name() const override { return kName; }

  // `fallocate_with_keep_size` tells the log's files from other files of such a name, for instance copies. With this
  // flag a file may not become longer than its written bytes. RocksDB sets it for all files, and this function clears
  // it for logs. The flag stays set, and the log stays RocksDB's own, in two cases in which recovery depends on the end
  // of the file. In `kTolerateCorruptedTailRecords`, recovery knows a torn record by the end of the file; for the same
  // reason RocksDB does not reuse log files in that mode. With `track_and_verify_wals`, each log names the length of
  // the one before. A log that was open in a killed process still has room behind its records.
  FileOptions OptimizeForLogWrite(const FileOptions& options, const DBOptions& db_options) const override {
    FileOptions optimized = target_->OptimizeForLogWrite(options, db_options);
    optimized.fallocate_with_keep_size =
        db_options.wal_recovery_mode == WALRecoveryMode::kTolerateCorruptedTailRecords ||
        db_options.track_and_verify_wals;
    return optimized;
  }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options, std::unique_ptr<FSWritableFile>* result,
                           IODebugContext* context) override {
    IOStatus status = target_->NewWritableFile(path, options, result, context);
    if (!status.ok() || !IsLogToWrite(path, options)) {
      return status;
    }
    status = (*result)->Close(IOOptions(), nullptr);
    result->reset();
    return status.ok() ? Begin(options, result, zt_wal_begin, path.c_str()) : status;
  }

  IOStatus ReuseWritableFile(const std::string& path, const std::string& former, const FileOptions& options,
                             std::unique_ptr<FSWritableFile>* result, IODebugContext* context) override {
    if (!IsLogToWrite(path, options)) {
      return target_->ReuseWritableFile(path, former, options, result, context);
    }
    return Begin(options, result, zt_wal_reuse, former.c_str(), path.c_str());
  }

  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result, IODebugContext* context) override {
    if (IsWrittenHere(path)) {
      return IOStatus::Busy("this log is being written", path);
    }
    return target_->ReopenWritableFile(path, options, result, context);
  }

  IOStatus Truncate(const std::string& path, size_t size, const IOOptions& options, IODebugContext* context) override {
    if (IsWrittenHere(path)) {
      return IOStatus::Busy("this log is being written", path);
    }
    return target_->Truncate(path, size, options, context);
  }

  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* result, IODebugContext* context) override {
    ReaderPtr reader = ReaderOf(path);
    if (reader == nullptr) {
      return target_->NewRandomAccessFile(path, options, result, context);
    }
    *result = std::make_unique<LogRandomAccessFile>(std::move(reader));
    return IOStatus::OK();
  }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* result, IODebugContext* context) override {
    ReaderPtr reader = ReaderOf(path);
    if (reader == nullptr) {
      return target_->NewSequentialFile(path, options, result, context);
    }
    *result = std::make_unique<LogSequentialFile>(std::move(reader));
    return IOStatus::OK();
  }

  // A process that followed a log and now recovers it itself must see what is torn.
  IOStatus LockFile(const std::string& path, const IOOptions& options, FileLock** lock,
                    IODebugContext* context) override {
    IOStatus status = target_->LockFile(path, options, lock, context);
    if (status.ok()) {
      const size_t end = path.rfind('/');
      zt_reader_stop_following(end == std::string::npos ? "." : path.substr(0, end + 1).c_str());
    }
    return status;
  }

  IOStatus GetFileSize(const std::string& path, const IOOptions& options, uint64_t* size,
                       IODebugContext* context) override {
    if (ReaderPtr reader = ReaderOf(path); reader != nullptr) {
      return Run(zt_reader_bytes, reader.get(), size);
    }
    return target_->GetFileSize(path, options, size, context);
  }

  IOStatus GetChildrenFileAttributes(const std::string& folder, const IOOptions& options,
                                     std::vector<FileAttributes>* result, IODebugContext* context) override {
    IOStatus status = target_->GetChildrenFileAttributes(folder, options, result, context);
    for (FileAttributes& file : *result) {
      if (ReaderPtr reader = ReaderOf(folder + "/" + file.name); reader != nullptr && status.ok()) {
        status = Run(zt_reader_bytes, reader.get(), &file.size_bytes);
      }
    }
    return status;
  }

 private:
  static bool IsLogToWrite(const std::string& path, const FileOptions& options) {
    return IsLog(path) && !options.fallocate_with_keep_size;
  }

  template <typename Function, typename... Paths>
  static IOStatus Begin(const FileOptions& options, std::unique_ptr<FSWritableFile>* result, Function begin,
                        Paths... paths) {
    ZtLog* log = nullptr;
    IOStatus status = Run(begin, paths..., &log);
    if (status.ok()) {
      *result = std::make_unique<LogWritableFile>(log, options);
    }
    return status;
  }
};

// RocksDB wants an environment from an option string to live as long as the process.
Env* Environment() {
  static Env* const kEnvironment =
      NewCompositeEnv(std::make_shared<ZiptierFileSystem>(FileSystem::Default())).release();
  return kEnvironment;
}

}  // namespace

void RegisterFileSystem(ObjectLibrary& library) {
  library.AddFactory<FileSystem>(kName, [](const std::string&, std::unique_ptr<FileSystem>* guard, std::string*) {
    guard->reset(new ZiptierFileSystem(FileSystem::Default()));
    return guard->get();
  });
  library.AddFactory<Env>(kName, [](const std::string&, std::unique_ptr<Env>*, std::string*) { return Environment(); });
}

}  // namespace ziptier
