// The file system `ziptier`: RocksDB's own, but for the write-ahead log, whose files `ziptier_rocksdb` writes.
//
// A log that is being written is shorter than its file, so everybody who reads it, or asks how long it is, is told of what is
// the log and no more. That is known for files that this process writes; a log that a killed process left ends where its zeros begin,
// which RocksDB's reader knows.

#include "file_system.h"

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <algorithm>
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

struct CloseLength {
  void operator()(ZtLength* length) const { zt_length_close(length); }
};
using LengthPtr = std::unique_ptr<ZtLength, CloseLength>;

bool IsLog(const std::string& path) {
  constexpr std::string_view kEnd = ".log";
  return path.size() > kEnd.size() && path.compare(path.size() - kEnd.size(), kEnd.size(), kEnd) == 0;
}

// The length of a log that is being written, or null.
LengthPtr LengthOf(const std::string& path) { return LengthPtr(IsLog(path) ? zt_length_of(path.c_str()) : nullptr); }

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

// Reads a log while it is written.
class LogRandomAccessFile : public FSRandomAccessFile {
 public:
  LogRandomAccessFile(std::unique_ptr<FSRandomAccessFile> file, LengthPtr length)
      : file_(std::move(file)), length_(std::move(length)) {}

  IOStatus Read(uint64_t offset, size_t count, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* context) const override {
    const uint64_t end = zt_length_bytes(length_.get());
    if (offset >= end) {
      *result = Slice(scratch, 0);
      return IOStatus::OK();
    }
    count = static_cast<size_t>(std::min<uint64_t>(count, end - offset));
    return file_->Read(offset, count, options, result, scratch, context);
  }

  IOStatus GetFileSize(uint64_t* size) override {
    *size = zt_length_bytes(length_.get());
    return IOStatus::OK();
  }

 private:
  std::unique_ptr<FSRandomAccessFile> file_;
  LengthPtr length_;
};

// The same from front to back. RocksDB's own reads ahead into a buffer of C's library, where zeros would stay that the log
// has overwritten since.
class LogSequentialFile : public FSSequentialFile {
 public:
  explicit LogSequentialFile(std::unique_ptr<FSRandomAccessFile> file) : file_(std::move(file)) {}

  IOStatus Read(size_t count, const IOOptions& options, Slice* result, char* scratch, IODebugContext* context) override {
    IOStatus status = file_->Read(offset_, count, options, result, scratch, context);
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
  std::unique_ptr<FSRandomAccessFile> file_;
  uint64_t offset_ = 0;
};

class ZiptierFileSystem : public FileSystemWrapper {
 public:
  explicit ZiptierFileSystem(const std::shared_ptr<FileSystem>& target) : FileSystemWrapper(target) {}

  const char* Name() const override { return kName; }

  // `fallocate_with_keep_size` tells the log's files from others of their name, such as copies of them: with it a file may
  // not become longer than what is written to it, and RocksDB sets it for everything. It stays set, and the log RocksDB's own, where
  // recovery goes by the end of the file: in the one mode that knows a record torn by a power cut by it (RocksDB itself does not use
  // log files again in that mode, for the same reason), and where each log names the length of the one before, for a log that was
  // open in a killed process has its room behind it.
  FileOptions OptimizeForLogWrite(const FileOptions& options, const DBOptions& db_options) const override {
    FileOptions optimized = target_->OptimizeForLogWrite(options, db_options);
    optimized.fallocate_with_keep_size =
        db_options.wal_recovery_mode == WALRecoveryMode::kTolerateCorruptedTailRecords || db_options.track_and_verify_wals;
    return optimized;
  }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options, std::unique_ptr<FSWritableFile>* result,
                           IODebugContext* context) override {
    return Begin(path, options, result, target_->NewWritableFile(path, options, result, context));
  }

  IOStatus ReuseWritableFile(const std::string& path, const std::string& former, const FileOptions& options,
                             std::unique_ptr<FSWritableFile>* result, IODebugContext* context) override {
    return Begin(path, options, result, target_->ReuseWritableFile(path, former, options, result, context));
  }

  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<FSWritableFile>* result, IODebugContext* context) override {
    if (LengthOf(path) != nullptr) {
      return IOStatus::Busy("this log is being written", path);
    }
    return target_->ReopenWritableFile(path, options, result, context);
  }

  IOStatus Truncate(const std::string& path, size_t size, const IOOptions& options, IODebugContext* context) override {
    if (LengthOf(path) != nullptr) {
      return IOStatus::Busy("this log is being written", path);
    }
    return target_->Truncate(path, size, options, context);
  }

  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* result, IODebugContext* context) override {
    LengthPtr length = LengthOf(path);
    if (length == nullptr) {
      return target_->NewRandomAccessFile(path, options, result, context);
    }
    FileOptions plain = options;
    plain.use_direct_reads = false;
    plain.use_mmap_reads = false;
    std::unique_ptr<FSRandomAccessFile> file;
    IOStatus status = target_->NewRandomAccessFile(path, plain, &file, context);
    if (status.ok()) {
      *result = std::make_unique<LogRandomAccessFile>(std::move(file), std::move(length));
    }
    return status;
  }

  IOStatus NewSequentialFile(const std::string& path, const FileOptions& options,
                             std::unique_ptr<FSSequentialFile>* result, IODebugContext* context) override {
    if (LengthOf(path) == nullptr) {
      return target_->NewSequentialFile(path, options, result, context);
    }
    std::unique_ptr<FSRandomAccessFile> file;
    IOStatus status = NewRandomAccessFile(path, options, &file, context);
    if (status.ok()) {
      *result = std::make_unique<LogSequentialFile>(std::move(file));
    }
    return status;
  }

  IOStatus GetFileSize(const std::string& path, const IOOptions& options, uint64_t* size,
                       IODebugContext* context) override {
    if (LengthPtr length = LengthOf(path); length != nullptr) {
      *size = zt_length_bytes(length.get());
      return IOStatus::OK();
    }
    return target_->GetFileSize(path, options, size, context);
  }

  IOStatus GetChildrenFileAttributes(const std::string& folder, const IOOptions& options,
                                     std::vector<FileAttributes>* result, IODebugContext* context) override {
    IOStatus status = target_->GetChildrenFileAttributes(folder, options, result, context);
    for (FileAttributes& file : *result) {
      if (LengthPtr length = LengthOf(folder + "/" + file.name); length != nullptr) {
        file.size_bytes = zt_length_bytes(length.get());
      }
    }
    return status;
  }

 private:
  // Takes over the file that the target has made, if it is a log's.
  IOStatus Begin(const std::string& path, const FileOptions& options, std::unique_ptr<FSWritableFile>* result,
                 IOStatus made) {
    if (!made.ok() || !IsLog(path) || options.fallocate_with_keep_size) {
      return made;
    }
    IOStatus status = (*result)->Close(IOOptions(), nullptr);
    result->reset();
    ZtLog* log = nullptr;
    if (status.ok()) {
      status = Run(zt_wal_begin, path.c_str(), &log);
    }
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
