// Measures the cost of a put that is durable on return: `durable_puts DIR FILE_SYSTEM PUTS THREADS VALUE_BYTES SYNC
// [OPTIONS]`. The program makes a database in DIR and puts records with keys of 16 bytes. It prints the CPU
// microseconds of the process per put and the puts per second.
//
// FILE_SYSTEM is `stock` or `ziptier`, SYNC 1 or 0, OPTIONS those of a RocksDB, as `enable_pipelined_write=true`.

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ziptier_rocksdb.h"

namespace {

using namespace rocksdb;

void Check(const Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }
}

double CpuMicroseconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

void Put(DB* db, int first, int count, size_t value_bytes, bool sync) {
  WriteOptions options;
  options.sync = sync;
  std::string value(value_bytes, ' ');
  for (int i = first; i < first + count; ++i) {
    char key[17];
    std::snprintf(key, sizeof key, "%016u", static_cast<unsigned>(i) * 2654435761U);
    for (size_t at = 0; at < value_bytes; at += 8) {
      value[at] = static_cast<char>(i + static_cast<int>(at));
    }
    Check(db->Put(options, key, value));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 && argc != 8) {
    std::fprintf(stderr, "usage: durable_puts DIR stock|ziptier PUTS THREADS VALUE_BYTES SYNC [OPTIONS]\n");
    return 2;
  }
  char message[256];
  if (ziptier_rocksdb_load(message, sizeof message) != 0) {
    std::fprintf(stderr, "%s\n", message);
    return 1;
  }
  Options options;
  Check(GetOptionsFromString(ConfigOptions(), Options(), argc == 8 ? argv[7] : "", &options));
  options.create_if_missing = true;
  std::shared_ptr<Env> guard;
  if (std::string(argv[2]) == "ziptier") {
    Check(Env::CreateFromUri(ConfigOptions(), "", "ziptier", &options.env, &guard));
  }
  std::unique_ptr<DB> db;
  Check(DB::Open(options, argv[1], &db));
  const int threads = std::atoi(argv[4]);
  const int each = std::atoi(argv[3]) / threads;
  const auto value_bytes = static_cast<size_t>(std::atoi(argv[5]));
  const bool sync = std::atoi(argv[6]) != 0;

  const double cpu = CpuMicroseconds();
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> writers;
  for (int writer = 0; writer < threads; ++writer) {
    writers.emplace_back(Put, db.get(), writer * each, each, value_bytes, sync);
  }
  for (auto& writer : writers) {
    writer.join();
  }
  const double puts = static_cast<double>(each) * threads;
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  std::printf("%.3f %.0f\n", (CpuMicroseconds() - cpu) / puts, puts / wall.count());
  if (std::getenv("COUNTERS") != nullptr) {
    char counters[4096];
    ziptier_rocksdb_counters(counters, sizeof counters);
    std::fprintf(stderr, "%s", counters);
  }
}
