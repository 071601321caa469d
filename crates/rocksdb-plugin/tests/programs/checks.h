// Ends the programs of the tests after a failure: with a sentence and a status other than 0.
#pragma once

#include <rocksdb/status.h>

#include <cstdio>
#include <cstdlib>
#include <string>

// No destructor runs: a database may be open, whose threads go on, and RocksDB's own would crash beside them now and
// then.
[[noreturn]] inline void Fail(const std::string& sentence) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::_Exit(1);
}

[[noreturn]] inline void Fail(const std::string& what, const std::string& why) { Fail(what + ": " + why); }

inline void Check(const rocksdb::Status& status, const std::string& what) {
  if (!status.ok()) {
    Fail(what, status.ToString());
  }
}
