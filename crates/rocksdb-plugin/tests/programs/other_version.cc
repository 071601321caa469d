// All that the loader asks of a RocksDB, by another version.

#include <string>

namespace rocksdb {

std::string GetRocksVersionAsString(bool) { return "9.2.1"; }

}  // namespace rocksdb
