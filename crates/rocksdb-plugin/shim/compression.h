#pragma once

#include <rocksdb/utilities/object_registry.h>

namespace ziptier {

// Makes the compression manager known by its name and by the names in files.
void RegisterCompression(ROCKSDB_NAMESPACE::ObjectLibrary& library);

}  // namespace ziptier
