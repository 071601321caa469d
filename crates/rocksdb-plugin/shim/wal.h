// What the file system calls: functions of `src/ffi/wal.rs`.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct ZtLog;
struct ZtLength;

// 0; or 2 if the disk is full, or 1 for any other failure, with a message as a C string cut to `error_bytes`.
int zt_wal_begin(const char* path, ZtLog**, char* error, size_t error_bytes);
int zt_wal_append(const ZtLog*, const char* bytes, size_t length, char* error, size_t error_bytes);
int zt_wal_sync(const ZtLog*, char* error, size_t error_bytes);
int zt_wal_truncate(const ZtLog*, uint64_t length, char* error, size_t error_bytes);
int zt_wal_close(ZtLog*, char* error, size_t error_bytes);

uint64_t zt_wal_bytes(const ZtLog*);

// The length of the log that this process writes at a path, which the caller must close; null if it writes none there.
ZtLength* zt_length_of(const char* path);
uint64_t zt_length_bytes(const ZtLength*);
void zt_length_close(ZtLength*);
}
