#pragma once

#include <rocksdb/utilities/object_registry.h>

namespace ziptier {

// Makes the secondary cache `ziptier` known, and the block cache `ziptier://`, which is an LRU cache in front of one.
void RegisterSecondaryCache(ROCKSDB_NAMESPACE::ObjectLibrary& library);

}  // namespace ziptier
