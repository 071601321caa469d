// Uses the plugin's classes by their options, also while the process ends and its static objects are destroyed. A
// thread that RocksDB left running may do that.
//
//   late DIR

#include <rocksdb/advanced_compression.h>
#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/secondary_cache.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "checks.h"

namespace {

using namespace rocksdb;

std::string files;

Status Use() {
  ConfigOptions config;
  config.ignore_unsupported_options = false;
  std::shared_ptr<CompressionManager> manager;
  Status status = CompressionManager::CreateFromString(config, "id=ziptier;format=deflate;level=2", &manager);
  std::shared_ptr<SecondaryCache> secondary;
  if (status.ok()) {
    status = SecondaryCache::CreateFromString(config, "id=ziptier;capacity=8388608;path=" + files, &secondary);
  }
  secondary.reset();
  std::shared_ptr<Cache> cache;
  if (status.ok()) {
    status = Cache::CreateFromString(config, "id=ziptier://;memory=1000000;capacity=8388608;path=" + files, &cache);
  }
  return status;
}

void UseAtExit() {
  const Status status = Use();
  if (!status.ok()) {
    std::fprintf(stderr, "at exit: %s\n", status.ToString().c_str());
    std::_Exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    Fail("usage", "late DIR");
  }
  files = argv[1];
  // Objects that RocksDB itself needs are made before, and so outlive this one.
  const auto builtin = GetBuiltinV2CompressionManager();
  std::atexit(UseAtExit);
  Check(Use(), "use");
  return 0;
}
