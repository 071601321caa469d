#include <cstddef>
#include <cstring>
#include <string>

// Calls `rocksdb::GetRocksVersionAsString(true)`, whose address is given, and writes what it returns as a C string.
extern "C" void zt_rocksdb_version(void* function, char* out, size_t out_bytes) {
  const std::string version = reinterpret_cast<std::string (*)(bool)>(function)(true);
  const size_t length = version.size() < out_bytes ? version.size() : out_bytes - 1;
  std::memcpy(out, version.data(), length);
  out[length] = 0;
}
