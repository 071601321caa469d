// A program that knows nothing of RocksDB: it loads what it is told, and prints what the loader of ziptier says to each
// function.
//
//   loader LIBRARY [ROCKSDB...]

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace {

void* Open(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  return handle;
}

template <typename Function>
Function Find(void* handle, const char* name) {
  const auto function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) {
    std::fprintf(stderr, "%s is missing\n", name);
    std::exit(1);
  }
  return function;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    Open(argv[i]);
  }
  void* library = Open(argv[1]);
  char message[1024] = "";
  const auto load = Find<int (*)(char*, size_t)>(library, "ziptier_rocksdb_load");
  int status = load(message, sizeof message);
  std::printf("%d %s\n", status, message);
  // As often as one likes, and with as little room as there is.
  load(nullptr, 0);
  char little[8] = "";
  load(little, sizeof little);
  std::printf("%s\n", little);
  status = Find<int (*)(const char*, char*, size_t, size_t*)>(library, "ziptier_rocksdb_inspect")(
      "/nowhere", message, sizeof message, nullptr);
  std::printf("%d %s\n", status, message);
  status = Find<int (*)(const char*, const char*, char*, size_t)>(library, "ziptier_rocksdb_migrate_off")(
      "/nowhere", "kZSTD", message, sizeof message);
  std::printf("%d %s\n", status, message);
  std::printf("%zu\n", Find<size_t (*)(char*, size_t)>(library, "ziptier_rocksdb_counters")(message, sizeof message));
  // Whether others see what was loaded privately.
  const bool is_visible = dlsym(RTLD_DEFAULT, "_ZN7rocksdb23GetRocksVersionAsStringB5cxx11Eb") != nullptr;
  std::printf("%s\n", is_visible ? "visible" : "private");
  return 0;
}
