// The functions of `src/ffi/` that the classes of this folder call. Each states its arguments and its result.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct ZtCodec;
struct ZtGeneration;

// A message is written to `error` as a C string, cut to `error_bytes`.
ZtCodec* zt_codec_open(const char* format, const char* path, const char* huffman, int level, bool verify,
                       const char* model, char* error, size_t error_bytes);
void zt_codec_close(ZtCodec*);
// RocksDB's type that blocks get, or -1 if they are left to RocksDB.
int zt_codec_takes(const ZtCodec*, uint8_t preferred, bool force);
bool zt_codec_unpacks_standard(const ZtCodec*, uint8_t type);
// Either a generation, which the caller must close, or the bytes of samples that are asked for, or neither. None are
// asked for where the file may not be sampled.
ZtGeneration* zt_codec_guidance(const ZtCodec*, bool may_sample, size_t* sample_bytes);
// Takes the generation of a file for new files, too, if there is none yet.
void zt_codec_adopt(const ZtCodec*, const ZtGeneration*);
ZtGeneration* zt_codec_train(const ZtCodec*, const char* samples, const size_t* lengths, size_t count);

bool zt_generation_is_one(const char* bytes, size_t length);
// Null where it fails: then `is_damaged` tells whether the bytes are at fault.
ZtGeneration* zt_generation_load(const char* bytes, size_t length, bool* is_damaged, char* error, size_t error_bytes);
void zt_generation_close(ZtGeneration*);
const char* zt_generation_bytes(const ZtGeneration*, size_t* length);

// The type of the packed block, with its length in `*out_bytes` (which says how much there is room for), or -1:
// declined.
int zt_pack(const ZtCodec*, const ZtGeneration*, uint8_t type, const char* raw, size_t raw_bytes, char* out,
            size_t* out_bytes);
// The most bytes that a block holds by what follows its length.
size_t zt_raw_bytes_max(uint8_t type, const char* packed, size_t packed_bytes);
// 0, or 1: the block is damaged, or 2: it may be sound, and could not be unpacked.
int zt_unpack(const ZtCodec*, const ZtGeneration*, uint8_t type, const char* packed, size_t packed_bytes,
               char* out, size_t out_bytes, char* error, size_t error_bytes);

struct ZtCache;

ZtCache* zt_cache_open(const char* path, uint64_t capacity, const char* codec, const char* admission, bool direct,
                       size_t buffer_bytes, char* error, size_t error_bytes);
void zt_cache_close(ZtCache*);
// Whether a block should be put: it is not there, and is forced or came before.
bool zt_cache_wants(const ZtCache*, const char* key, size_t key_bytes, bool force);
bool zt_cache_put(const ZtCache*, const char* key, size_t key_bytes, uint8_t compression, uint8_t tier, uint8_t role,
                  const char* block, size_t block_bytes);
// Lets `take` have the block, which is gone when that returns; whether there is one.
bool zt_cache_get(const ZtCache*, const char* key, size_t key_bytes,
                  void (*take)(void* state, const char* block, size_t block_bytes, uint8_t compression, uint8_t tier),
                  void* state);
// The counters of this process as a C string cut to `room`; the bytes they take.
size_t zt_counters(char* target, size_t room);
void zt_cache_remove(const ZtCache*, const char* key, size_t key_bytes);
}
