// A cache of `ziptier_rocksdb` on files, as option strings describe it.
#pragma once

#include <rocksdb/status.h>
#include <rocksdb/utilities/options_type.h>

#include <array>
#include <memory>
#include <string>
#include <unordered_map>

#include "options.h"
#include "rust.h"

namespace ziptier {

struct CloseCache {
  void operator()(ZtCache* cache) const { zt_cache_close(cache); }
};
using CachePtr = std::unique_ptr<ZtCache, CloseCache>;

struct CacheOptions {
  std::string path;
  std::string codec = "lz4";
  std::string admission = "ghost";
  uint64_t capacity = 0;
  uint64_t buffer = 16 << 20;
  uint64_t memory = 32 << 20;
  bool direct = false;
};

// All but `memory`.
inline const std::unordered_map<std::string, ROCKSDB_NAMESPACE::OptionTypeInfo>& CacheOptionTypes() {
  using ROCKSDB_NAMESPACE::OptionType;
  // Never destroyed: threads of RocksDB may still read it while the process ends.
  static const auto& kTypes = *new std::unordered_map<std::string, ROCKSDB_NAMESPACE::OptionTypeInfo>{
      {"path", Option(&CacheOptions::path, OptionType::kString)},
      {"codec", Option(&CacheOptions::codec, OptionType::kString)},
      {"admission", Option(&CacheOptions::admission, OptionType::kString)},
      {"capacity", Option(&CacheOptions::capacity, OptionType::kUInt64T)},
      {"buffer", Option(&CacheOptions::buffer, OptionType::kUInt64T)},
      {"direct", Option(&CacheOptions::direct, OptionType::kBoolean)},
  };
  return kTypes;
}

inline ROCKSDB_NAMESPACE::Status OpenCache(const CacheOptions& options, CachePtr* cache) {
  std::array<char, 512> error{};
  cache->reset(zt_cache_open(options.path.c_str(), options.capacity, options.codec.c_str(), options.admission.c_str(),
                             options.direct, options.buffer, error.data(), error.size()));
  return *cache != nullptr ? ROCKSDB_NAMESPACE::Status::OK() : ROCKSDB_NAMESPACE::Status::IOError(error.data());
}

}  // namespace ziptier
