#pragma once

#include <rocksdb/utilities/object_registry.h>

namespace ziptier {

// Makes the file system known as `ziptier`, and an environment of the same name that uses it.
void RegisterFileSystem(ROCKSDB_NAMESPACE::ObjectLibrary& library);

}  // namespace ziptier
