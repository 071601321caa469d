// How the programs of the tests end when something is wrong: with a sentence, and not with 0.
#pragma once

#include <rocksdb/status.h>

#include <cstdio>
#include <cstdlib>
#include <string>

[[noreturn]] inline void Fail(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::exit(1);
}

[[noreturn]] inline void Fail(const std::string& what, const std::string& why) { Fail(what + ": " + why); }

inline void Check(const rocksdb::Status& status, const std::string& what) {
  if (!status.ok()) {
    Fail(what, status.ToString());
  }
}
