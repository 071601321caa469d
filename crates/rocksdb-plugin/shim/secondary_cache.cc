// The secondary cache `ziptier` keeps blocks that leave the block cache, in files that survive restarts. A cache of
// `ziptier_rocksdb` does all the work.
//
// Blocks stay here when they are found, so that nothing is written twice: no forced erasing, and every hit says "kept".

#include "secondary_cache.h"

#include <rocksdb/cache.h>
#include <rocksdb/secondary_cache.h>
#include <rocksdb/utilities/options_type.h>

#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache_options.h"
#include "options.h"
#include "rust.h"

namespace ziptier {
namespace {

using namespace ROCKSDB_NAMESPACE;

constexpr const char* kName = "ziptier";
constexpr const char* kBlockCacheName = "ziptier://";

const std::unordered_map<std::string, OptionTypeInfo>& BlockCacheOptionTypes() {
  // Never destroyed: threads of RocksDB may still read it while the process ends.
  static const auto& kTypes = *[] {
    auto* types = new std::unordered_map<std::string, OptionTypeInfo>(CacheOptionTypes());
    types->emplace("memory", Option(&CacheOptions::memory, OptionType::kUInt64T));
    return types;
  }();
  return kTypes;
}

// A block that was found, ready at once.
class Found : public SecondaryCacheResultHandle {
 public:
  Found(Cache::ObjectPtr object, size_t charge) : object_(object), charge_(charge) {}
  bool IsReady() override { return true; }
  void Wait() override {}
  Cache::ObjectPtr Value() override { return object_; }
  size_t Size() override { return charge_; }

 private:
  Cache::ObjectPtr object_;
  size_t charge_;
};

// Makes RocksDB's object of the bytes that were found.
struct Maker {
  const Cache::CacheItemHelper* helper;
  Cache::CreateContext* context;
  Cache::ObjectPtr object = nullptr;
  size_t charge = 0;
  bool is_damaged = false;

  static void Take(void* state, const char* bytes, size_t length, uint8_t compression, uint8_t tier) {
    auto* maker = static_cast<Maker*>(state);
    // Rust calls this function, and no exception may cross Rust's frames. Without memory for a block, the cache misses,
    // and RocksDB reads the file.
    try {
      const Status status = maker->helper->create_cb(
          Slice(bytes, length), static_cast<CompressionType>(compression), static_cast<CacheTier>(tier), maker->context,
          /*allocator=*/nullptr, &maker->object, &maker->charge);
      maker->is_damaged = !status.ok();
    } catch (...) {
      maker->object = nullptr;
    }
    if (maker->is_damaged) {
      maker->object = nullptr;
    }
  }
};

class ZiptierSecondaryCache : public SecondaryCache {
 public:
  explicit ZiptierSecondaryCache(CacheOptions options = {}) : options_(std::move(options)) {
    RegisterOptions("ZiptierCacheOptions", &options_, &CacheOptionTypes());
  }

  const char* Name() const override { return kName; }

  Status PrepareOptions(const ConfigOptions& config) override {
    const Status status = Open();
    return status.ok() ? Customizable::PrepareOptions(config) : status;
  }

  Status Open() { return cache_ != nullptr ? Status::OK() : OpenCache(options_, &cache_); }

  Status Insert(const Slice& key, Cache::ObjectPtr object, const Cache::CacheItemHelper* helper, bool force) override {
    // The keys of values in blob files begin with what RocksDB draws at each opening: no later process would find them.
    if (helper->role == CacheEntryRole::kBlobValue || !Wants(key, force)) {
      return Status::OK();
    }
    const size_t length = helper->size_cb(object);
    const std::unique_ptr<char[]> bytes(new (std::nothrow) char[length]);
    if (bytes == nullptr) {
      return Status::MemoryLimit("the cache has no memory for a block");
    }
    const Status status = helper->saveto_cb(object, 0, length, bytes.get());
    if (status.ok()) {
      Put(key, Slice(bytes.get(), length), kNoCompression, CacheTier::kVolatileTier,
          static_cast<uint8_t>(helper->role));
    }
    return status;
  }

  Status InsertSaved(const Slice& key, const Slice& saved, CompressionType type, CacheTier source) override {
    constexpr uint8_t kUnknownRole = 255;
    if (Wants(key, false)) {
      Put(key, saved, type, source, kUnknownRole);
    }
    return Status::OK();
  }

  std::unique_ptr<SecondaryCacheResultHandle> Lookup(const Slice& key, const Cache::CacheItemHelper* helper,
                                                     Cache::CreateContext* context, bool, bool, Statistics*,
                                                     bool& kept) override {
    Maker maker{helper, context};
    kept = true;
    if (cache_ == nullptr || !zt_cache_get(cache_.get(), key.data(), key.size(), Maker::Take, &maker)) {
      return nullptr;
    }
    if (maker.is_damaged) {
      Erase(key);
    }
    if (maker.object == nullptr) {
      return nullptr;
    }
    return std::make_unique<Found>(maker.object, maker.charge);
  }

  bool SupportForceErase() const override { return false; }

  void Erase(const Slice& key) override {
    if (cache_ != nullptr) {
      zt_cache_remove(cache_.get(), key.data(), key.size());
    }
  }

  void WaitAll(std::vector<SecondaryCacheResultHandle*>) override {}

  Status GetCapacity(size_t& capacity) override {
    capacity = options_.capacity;
    return Status::OK();
  }

 private:
  bool Wants(const Slice& key, bool force) const {
    return cache_ != nullptr && zt_cache_wants(cache_.get(), key.data(), key.size(), force);
  }

  void Put(const Slice& key, const Slice& bytes, CompressionType type, CacheTier tier, uint8_t role) {
    zt_cache_put(cache_.get(), key.data(), key.size(), static_cast<uint8_t>(type), static_cast<uint8_t>(tier), role,
                 bytes.data(), bytes.size());
  }

  CacheOptions options_;
  CachePtr cache_;
};

// `block_cache={id=ziptier://;memory=...;path=...;capacity=...}`: for interfaces where a block cache is set by a string
// and a secondary cache cannot be. A folder that cannot be used leaves the cache in memory alone.
class ZiptierBlockCache : public CacheWrapper {
 public:
  ZiptierBlockCache() : CacheWrapper(NewLRUCache(CacheOptions().memory)) {
    RegisterOptions("ZiptierBlockCacheOptions", &options_, &BlockCacheOptionTypes());
  }

  const char* Name() const override { return kBlockCacheName; }

  // If a cache is an option within others, RocksDB prepares neither the cache nor its parts.
  Status ConfigureOptions(const ConfigOptions& config, const std::unordered_map<std::string, std::string>& options,
                          std::unordered_map<std::string, std::string>* unused) override {
    const Status status = CacheWrapper::ConfigureOptions(config, options, unused);
    if (status.ok()) {
      Open();
    }
    return status;
  }

 private:
  void Open() {
    LRUCacheOptions memory;
    memory.capacity = options_.memory;
    auto secondary = std::make_shared<ZiptierSecondaryCache>(options_);
    const Status status = secondary->Open();
    if (status.ok()) {
      memory.secondary_cache = std::move(secondary);
    } else {
      std::fprintf(stderr, "ziptier: the block cache is in memory alone: %s\n", status.getState());
    }
    target_ = memory.MakeSharedCache();
  }

  CacheOptions options_;
};

}  // namespace

void RegisterSecondaryCache(ObjectLibrary& library) {
  library.AddFactory<SecondaryCache>(
      kName, [](const std::string&, std::unique_ptr<SecondaryCache>* guard, std::string*) {
        guard->reset(new ZiptierSecondaryCache());
        return guard->get();
      });
  library.AddFactory<Cache>(kBlockCacheName, [](const std::string&, std::unique_ptr<Cache>* guard, std::string*) {
    guard->reset(new ZiptierBlockCache());
    return guard->get();
  });
}

}  // namespace ziptier
