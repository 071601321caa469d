// The functions of `src/ffi/wal.rs` that the file system calls.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct ZtLog;
struct ZtReader;

// Most functions return 0. They return 2 if the disk is full and 1 for any other failure, with a message as a C string
// cut to `error_bytes`.
int zt_wal_begin(const char* path, ZtLog**, char* error, size_t error_bytes);
// Renames the file of a former log and begins one in it.
int zt_wal_reuse(const char* former, const char* path, ZtLog**, char* error, size_t error_bytes);
int zt_wal_append(const ZtLog*, const char* bytes, size_t length, char* error, size_t error_bytes);
int zt_wal_sync(const ZtLog*, char* error, size_t error_bytes);
int zt_wal_truncate(const ZtLog*, uint64_t length, char* error, size_t error_bytes);
int zt_wal_close(ZtLog*, char* error, size_t error_bytes);

uint64_t zt_wal_bytes(const ZtLog*);
bool zt_wal_is_written(const char* path);  // by this process

// A log that any process may be writing; null if the file cannot be opened, or if ziptier does not know it as a log.
ZtReader* zt_reader_open(const char* path);
int zt_reader_read(const ZtReader*, uint64_t offset, char* target, size_t count, size_t* found, char* error,
                   size_t error_bytes);
int zt_reader_bytes(const ZtReader*, uint64_t* found, char* error, size_t error_bytes);
void zt_reader_close(ZtReader*);
// For readers that are opened from now on, logs without a writer are all of their files again.
void zt_reader_stop_following(const char* dir);
}
