// Records that programs of the log's tests put and expect again, by their number.
#pragma once

#include <dlfcn.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "checks.h"

inline std::string KeyOf(uint64_t i) {
  char key[24];
  std::snprintf(key, sizeof key, "key:%012llu", static_cast<unsigned long long>(i));
  return key;
}

// Mostly some hundred bytes, now and then several blocks of the log; and ends in zeros, which must not be taken for its
// end.
inline std::string ValueOf(uint64_t i) {
  const uint64_t hash = (i + 1) * 0x9e3779b97f4a7c15ULL;
  const size_t bytes = hash % 97 == 0 ? 90000 + hash % 50000 : 20 + (hash >> 20) % 900;
  std::string value(bytes, static_cast<char>('a' + hash % 26));
  value += std::to_string(i);
  value.append(hash % 5, '\0');
  return value;
}

// The number of records of the database. They must be those from 0 on, without a wrong one, or the process ends.
inline uint64_t CountRecords(rocksdb::DB* db) {
  uint64_t found = 0;
  std::unique_ptr<rocksdb::Iterator> records(db->NewIterator(rocksdb::ReadOptions()));
  for (records->SeekToFirst(); records->Valid(); records->Next(), ++found) {
    if (records->key() != KeyOf(found) || records->value() != ValueOf(found)) {
      Fail("record " + std::to_string(found) + " is " + records->key().ToString());
    }
  }
  Check(records->status(), "iterate");
  return found;
}

// The environment whose log is ziptier's, as long as the process lives.
inline rocksdb::Env* ZiptierEnv() {
  static std::shared_ptr<rocksdb::Env> guard;
  rocksdb::Env* env = rocksdb::Env::Default();
  Check(rocksdb::Env::CreateFromUri(rocksdb::ConfigOptions(), "", "ziptier", &env, &guard), "the file system");
  return env;
}

// Prints the counters of the preloaded plugin.
inline void PrintCounters() {
  auto* counters = reinterpret_cast<size_t (*)(char*, size_t)>(dlsym(RTLD_DEFAULT, "ziptier_rocksdb_counters"));
  char text[4096] = "";
  if (counters != nullptr) {
    counters(text, sizeof text);
  }
  std::printf("%s", text);
  std::fflush(stdout);
}
