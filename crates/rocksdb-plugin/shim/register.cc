// Makes everything in this folder known to RocksDB, by the names that option strings use.

#include <rocksdb/utilities/object_registry.h>
#include <rocksdb/version.h>

#include <mutex>

#include "compression.h"
#include "file_system.h"
#include "secondary_cache.h"

static_assert(ROCKSDB_MAJOR == 11 && ROCKSDB_MINOR == 8 && ROCKSDB_PATCH == 1, "made for RocksDB 11.8.1");

extern "C" void zt_register() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto& library = *ROCKSDB_NAMESPACE::ObjectLibrary::Default();
    ziptier::RegisterCompression(library);
    ziptier::RegisterFileSystem(library);
    ziptier::RegisterSecondaryCache(library);
  });
}
