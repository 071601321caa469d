#include <rocksdb/version.h>
static_assert(ROCKSDB_MAJOR == 11 && ROCKSDB_MINOR == 8 && ROCKSDB_PATCH == 1, "made for RocksDB 11.8.1");
