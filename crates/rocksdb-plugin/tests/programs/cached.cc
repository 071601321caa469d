// Reads a database through a small block cache, and what falls out of it through a cache on files.
//
//   cached COMMAND DIR [name=value ...]
//
//   fill     puts the records and compacts them, without any cache
//   read     reads every record in random order, `passes` times, and tells how
//   hold     keeps the cache open until its input ends
//
//   cache=OPTIONS     what `SecondaryCache::CreateFromString` takes; without it there is the block cache alone
//   block_cache=OPTIONS   instead: an option string of a block cache, set through the C interface
//   persistent=OPTIONS    also: a cache on files of blocks as they are in SST files, in front of these
//   records=N  value_bytes=N  block_bytes=N  memory_bytes=N  threads=N  passes=N  reads=N (of each pass,
//                     instead of all)
//   corpus=FILE       values are cut from it
//   direct=1          SST files are read past the page cache
//   warm=1            before the passes, reads all until everything is in the cache
//   blob=1            values lie in blob files, which have a block cache
//   end=kill          the process kills itself, once everything is in files

#include <dlfcn.h>
#include <rocksdb/c.h>
#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/persistent_cache.h>
#include <rocksdb/secondary_cache.h>
#include <rocksdb/statistics.h>
#include <rocksdb/table.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checks.h"

namespace {

using namespace rocksdb;

std::map<std::string, std::string> settings;
std::string corpus;

uint64_t Number(const char* name, uint64_t otherwise) {
  const auto found = settings.find(name);
  return found == settings.end() ? otherwise : std::stoull(found->second);
}

uint64_t Mixed(uint64_t i) {
  i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9ULL;
  i = (i ^ (i >> 27)) * 0x94d049bb133111ebULL;
  return i ^ (i >> 31);
}

std::string KeyOf(uint64_t i) {
  char key[32];
  std::snprintf(key, sizeof key, "%016llu", static_cast<unsigned long long>(i));
  return key;
}

// Of the corpus, or lines of a log.
std::string ValueOf(uint64_t i) {
  const uint64_t bytes = Number("value_bytes", 256);
  if (!corpus.empty()) {
    return corpus.substr(Mixed(i) % (corpus.size() - bytes), bytes);
  }
  std::string value;
  for (uint64_t line = 0; value.size() < bytes; ++line) {
    value += "worker-" + std::to_string(Mixed(i + line * 7) % 17) + " finished request " +
             std::to_string(Mixed(i * 31 + line)) + "\n";
  }
  value.resize(bytes);
  return value;
}

std::string Counters() {
  using Function = size_t (*)(char*, size_t);
  const auto counters = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "ziptier_rocksdb_counters"));
  char text[8192] = "";
  if (counters != nullptr) {
    counters(text, sizeof text);
  }
  return text;
}

uint64_t Counter(const std::string& name) {
  const std::string all = "\n" + Counters();
  const auto at = all.find("\n" + name + " ");
  return at == std::string::npos ? 0 : std::stoull(all.substr(at + name.size() + 2));
}

double CpuSeconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + time.tv_usec / 1e6; };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

Options DatabaseOptions() {
  Options options;
  options.create_if_missing = true;
  options.compression = kZSTD;
  options.max_open_files = -1;
  options.use_direct_reads = Number("direct", 0) != 0;
  options.statistics = CreateDBStatistics();
  if (Number("blob", 0) != 0) {
    options.enable_blob_files = true;
    options.min_blob_size = 0;
  }
  return options;
}

std::shared_ptr<SecondaryCache> OpenSecondary() {
  std::shared_ptr<SecondaryCache> secondary;
  ConfigOptions config;
  config.ignore_unsupported_options = false;
  Check(SecondaryCache::CreateFromString(config, settings["cache"], &secondary), "cache");
  return secondary;
}

// A block cache in memory and, if there is to be one, the cache on files behind it.
std::shared_ptr<Cache> OpenCache() {
  LRUCacheOptions memory;
  memory.capacity = Number("memory_bytes", 256 << 10);
  memory.num_shard_bits = Number("threads", 1) > 1 ? 4 : 0;
  if (settings.contains("cache")) {
    memory.secondary_cache = OpenSecondary();
  }
  return memory.MakeSharedCache();
}

std::shared_ptr<PersistentCache> OpenPersistent() {
  using Function = int (*)(const char*, std::shared_ptr<PersistentCache>*, char*, size_t);
  const auto make = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "ziptier_rocksdb_persistent_cache"));
  std::shared_ptr<PersistentCache> cache;
  char message[1024] = "the plugin is not there";
  if (make == nullptr || make(settings["persistent"].c_str(), &cache, message, sizeof message) != 0) {
    Fail("persistent cache", message);
  }
  return cache;
}

Options WithCache(Options options) {
  if (settings.contains("block_cache")) {
    // The C interface has options, and nothing for a secondary cache; its strings are the same as in C++.
    char* error = nullptr;
    rocksdb_options_t* base = rocksdb_options_create();
    rocksdb_options_t* set = rocksdb_options_create();
    const std::string text = "block_based_table_factory={block_size=" + std::to_string(Number("block_bytes", 4096)) +
                             ";block_cache={" + settings["block_cache"] + "}}";
    rocksdb_get_options_from_string(base, text.c_str(), set, &error);
    if (error != nullptr) {
      Fail("options", error);
    }
    rocksdb_options_destroy(base);
    rocksdb_options_destroy(set);
    ConfigOptions config;
    config.ignore_unsupported_options = false;
    Check(GetOptionsFromString(config, options, text, &options), "options");
    return options;
  }
  BlockBasedTableOptions table;
  table.block_size = Number("block_bytes", 4096);
  table.block_cache = OpenCache();
  if (Number("blob", 0) != 0) {
    options.blob_cache = table.block_cache;
  }
  if (settings.contains("persistent")) {
    table.persistent_cache = OpenPersistent();
  }
  options.table_factory.reset(NewBlockBasedTableFactory(table));
  return options;
}

std::unique_ptr<DB> Open(const Options& options, const std::string& dir) {
  std::unique_ptr<DB> db;
  Check(DB::Open(options, dir, &db), "open");
  return db;
}

void Fill(const std::string& dir) {
  BlockBasedTableOptions table;
  table.block_size = Number("block_bytes", 4096);
  Options options = DatabaseOptions();
  options.table_factory.reset(NewBlockBasedTableFactory(table));
  auto db = Open(options, dir);
  for (uint64_t i = 0; i < Number("records", 20000); ++i) {
    Check(db->Put(WriteOptions(), KeyOf(i), ValueOf(i)), "put");
  }
  CompactRangeOptions compact;
  compact.bottommost_level_compaction = BottommostLevelCompaction::kForce;
  Check(db->CompactRange(compact, nullptr, nullptr), "compact");
}

void ReadPart(DB* db, uint64_t seed, uint64_t reads) {
  const uint64_t records = Number("records", 20000);
  const bool checks = Number("check", 1) != 0;
  std::string value;
  for (uint64_t i = 0; i < reads; ++i) {
    // All of them once, by a step that has no divisor in common with their number; or any.
    const uint64_t at = settings.contains("reads") ? Mixed(seed * 1000003 + i) % records : (seed + i * 7919) % records;
    Check(db->Get(ReadOptions(), KeyOf(at), &value), "get");
    if (checks && value != ValueOf(at)) {
      Fail("read", "record " + std::to_string(at) + " has another value");
    }
  }
}

void Pass(DB* db, Statistics* statistics, uint64_t pass) {
  const uint64_t threads = Number("threads", 1);
  const uint64_t reads = Number("reads", Number("records", 20000));
  Check(statistics->Reset(), "statistics");
  const double cpu = CpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> readers;
  for (uint64_t thread = 0; thread < threads; ++thread) {
    readers.emplace_back(ReadPart, db, pass * 1000 + thread, reads / threads);
  }
  for (auto& reader : readers) {
    reader.join();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const uint64_t hits = statistics->getTickerCount(SECONDARY_CACHE_HITS);
  // Blocks that were in neither cache were read from SST files.
  const uint64_t from_files = statistics->getTickerCount(BLOCK_CACHE_MISS);
  std::printf("pass %llu operations_per_second %.0f cpu_us_per_operation %.2f hits %llu from_sst %llu\n",
              static_cast<unsigned long long>(pass), static_cast<double>(reads) / seconds,
              (CpuSeconds() - cpu) * 1e6 / static_cast<double>(reads), static_cast<unsigned long long>(hits),
              static_cast<unsigned long long>(from_files));
  std::printf("pass %llu persistent_hits %llu persistent_misses %llu\n", static_cast<unsigned long long>(pass),
              static_cast<unsigned long long>(statistics->getTickerCount(PERSISTENT_CACHE_HIT)),
              static_cast<unsigned long long>(statistics->getTickerCount(PERSISTENT_CACHE_MISS)));
}

void AwaitFiles() {
  while (Counter("cache_buffered_bytes") > 0) {
    usleep(10000);
  }
}

// A disk that is slow for a moment keeps blocks out of the cache, and admission turns some away at first. So does a
// cache whose next segment has not begun yet. A later pass brings them into the cache. The last pass is the one that
// adds none and leaves none out.
void Warm(DB* db) {
  constexpr int kPassesOfAdmission = 4;
  for (uint64_t dropped = 0, stored = 0, pass = 1;; ++pass) {
    ReadPart(db, 0, Number("records", 20000));
    AwaitFiles();
    const uint64_t stored_before = std::exchange(stored, Counter("cache_stored"));
    const uint64_t dropped_before = std::exchange(dropped, Counter("cache_dropped"));
    if (stored == stored_before && dropped == dropped_before && pass >= kPassesOfAdmission) {
      return;
    }
  }
}

void Read(const std::string& dir) {
  const auto start = std::chrono::steady_clock::now();
  Options options = WithCache(DatabaseOptions());
  std::printf("open_cache_ms %.1f\n",
              std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  auto db = Open(options, dir);
  if (Number("warm", 0) != 0) {
    Warm(db.get());
  }
  for (uint64_t pass = 1; pass <= Number("passes", 1); ++pass) {
    Pass(db.get(), options.statistics.get(), pass);
  }
  std::printf("%s", Counters().c_str());
  if (settings.contains("persistent")) {
    const auto cache = options.table_factory->GetOptions<BlockBasedTableOptions>()->persistent_cache;
    std::printf("stats_hits %.0f\n%s", cache->Stats()[0]["cache_hits"], cache->GetPrintableOptions().c_str());
  }
  std::fflush(stdout);
  if (settings["end"] == "kill") {
    AwaitFiles();
    kill(getpid(), SIGKILL);
  }
}

void Hold() {
  const auto cache = OpenSecondary();
  std::printf("open\n");
  std::fflush(stdout);
  std::getchar();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: cached fill|read|hold DIR [name=value ...]\n");
    return 2;
  }
  const std::string command = argv[1], dir = argv[2];
  for (int i = 3; i < argc; ++i) {
    const std::string setting = argv[i];
    const auto at = setting.find('=');
    settings[setting.substr(0, at)] = setting.substr(at + 1);
  }
  if (settings.contains("corpus")) {
    std::ifstream file(settings["corpus"], std::ios::binary);
    corpus.assign(std::istreambuf_iterator<char>(file), {});
  }
  if (command == "fill") {
    Fill(dir);
  } else if (command == "read") {
    Read(dir);
  } else {
    Hold();
  }
  return 0;
}
