// The older interface of a cache on files, `BlockBasedTableOptions::persistent_cache`, over the same cache files. It
// holds blocks as they are in the SST file, packed and with RocksDB's checksum. No option string reaches this
// interface, so a function makes the cache.

#include <rocksdb/convenience.h>
#include <rocksdb/persistent_cache.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <utility>

#include "answer.h"
#include "cache_options.h"
#include "rust.h"

namespace ziptier {
namespace {

using namespace ROCKSDB_NAMESPACE;

// RocksDB uses the same key for a block as it is in the file and as it is in memory, and a folder may hold both.
// RocksDB does not check the length of the returned block.
class Key {
 public:
  explicit Key(const Slice& key) : bytes_(key.data(), key.size()) { bytes_.push_back('s'); }
  const char* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  std::string bytes_;
};

// A copy for RocksDB, which owns it.
struct Copy {
  std::unique_ptr<char[]> bytes;
  size_t size = 0;

  static void Take(void* state, const char* block, size_t length, uint8_t, uint8_t) {
    auto* copy = static_cast<Copy*>(state);
    // Rust calls this, and no exception may go through its frames.
    copy->bytes.reset(new (std::nothrow) char[length]);
    if (copy->bytes != nullptr) {
      std::memcpy(copy->bytes.get(), block, length);
      copy->size = length;
    }
  }
};

class ZiptierPersistentCache : public PersistentCache {
 public:
  ZiptierPersistentCache(CacheOptions options, CachePtr cache)
      : options_(std::move(options)), cache_(std::move(cache)) {}

  Status Insert(const Slice& block, const char* data, const size_t size) override {
    constexpr uint8_t kUnknownRole = 255;
    const Key key(block);
    if (zt_cache_wants(cache_.get(), key.data(), key.size(), false)) {
      zt_cache_put(cache_.get(), key.data(), key.size(), 0, 0, kUnknownRole, data, size);
    }
    return Status::OK();
  }

  Status Lookup(const Slice& block, std::unique_ptr<char[]>* data, size_t* size) override {
    const Key key(block);
    Copy copy;
    if (!zt_cache_get(cache_.get(), key.data(), key.size(), Copy::Take, &copy) || copy.bytes == nullptr) {
      return Status::NotFound();
    }
    *data = std::move(copy.bytes);
    *size = copy.size;
    return Status::OK();
  }

  bool IsCompressed() override { return true; }

  // The counters of all caches of the process.
  StatsType Stats() override {
    std::string text(zt_counters(nullptr, 0), 0);
    zt_counters(text.data(), text.size());
    std::istringstream lines(text.c_str());
    std::map<std::string, double> stats;
    std::string name, value;
    while (lines >> name && std::getline(lines, value)) {
      if (name.rfind("cache_", 0) == 0) {
        stats[name] = std::atof(value.c_str());
      }
    }
    return {stats};
  }

  std::string GetPrintableOptions() const override {
    return "    ziptier: path=" + options_.path + ";capacity=" + std::to_string(options_.capacity) +
           ";codec=" + options_.codec + ";admission=" + options_.admission + "\n";
  }

  uint64_t NewId() override { return next_id_.fetch_add(1, std::memory_order_relaxed); }

 private:
  CacheOptions options_;
  CachePtr cache_;
  std::atomic<uint64_t> next_id_{1};
};

Status Make(const char* text, std::shared_ptr<PersistentCache>* cache) {
  ConfigOptions config;
  config.ignore_unknown_options = false;
  std::unordered_map<std::string, std::string> names;
  CacheOptions options;
  // Blocks of an SST file are packed already.
  options.codec = "none";
  Status status = StringToMap(text, &names);
  if (status.ok()) {
    status = OptionTypeInfo::ParseType(config, names, CacheOptionTypes(), &options, nullptr);
  }
  CachePtr opened;
  if (status.ok()) {
    status = OpenCache(options, &opened);
  }
  if (status.ok()) {
    *cache = std::make_shared<ZiptierPersistentCache>(std::move(options), std::move(opened));
  }
  return status;
}

}  // namespace
}  // namespace ziptier

// Puts a cache into the `std::shared_ptr<PersistentCache>` at `cache`. 0, or 1 and the reason in `message`, a C string
// cut to `room` bytes.
extern "C" int zt_persistent_cache(const char* options, void* cache, char* message, size_t room) {
  return ziptier::Answer(message, room, nullptr, [&](std::string*) {
    return ziptier::Make(options, static_cast<std::shared_ptr<ROCKSDB_NAMESPACE::PersistentCache>*>(cache));
  });
}
