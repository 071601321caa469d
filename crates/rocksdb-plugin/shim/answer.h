// Answers of functions that Rust calls: 0, or 1 and the reason in words.
#pragma once

#include <rocksdb/status.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <string>

namespace ziptier {

// The bytes that `answer` takes as a C string, of which `message` gets as many as there is room for.
inline size_t Tell(const std::string& answer, char* message, size_t room) {
  if (room > 0) {
    const size_t length = answer.size() < room ? answer.size() : room - 1;
    std::memcpy(message, answer.data(), length);
    message[length] = 0;
  }
  return answer.size() + 1;
}

// Runs `work`, which may write to a string, and tells what it wrote, or why it failed. No exception of the
// application's classes goes through Rust's frames, which would end the process. `needed` gets the bytes of the whole
// answer, unless it is null.
template <typename Work>
int Answer(char* message, size_t room, size_t* needed, Work work) {
  std::string answer;
  bool is_ok = false;
  try {
    const ROCKSDB_NAMESPACE::Status status = work(&answer);
    is_ok = status.ok();
    if (!is_ok) {
      const bool is_invalid = status.IsInvalidArgument() && status.getState() != nullptr;
      answer = is_invalid ? status.getState() : status.ToString();
    }
  } catch (const std::exception& thrown) {
    answer = std::string("a class of the application threw: ") + thrown.what();
  } catch (...) {
    answer = "a class of the application threw";
  }
  const size_t bytes = Tell(answer, message, room);
  if (needed != nullptr) {
    *needed = bytes;
  }
  return is_ok ? 0 : 1;
}

}  // namespace ziptier
