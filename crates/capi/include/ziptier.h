// ziptier: compression codecs, and a key-value store that compresses what it keeps. The page docs/c.md explains how to
// build with it, and lists the options.
//
// cbindgen makes this file of crates/capi. Change the comments there, and run `make header`.
//
// Ownership: a function that makes an object stores its address in the last argument, and names the function that
// frees it. Nothing of the caller's is used after a call has returned.
//
// Threads: codecs, dictionaries, tokens, analytics and stores serve any number of threads at once. Batches, iterators
// and buffers belong to one thread at a time. While a call works, no thread changes an input or uses an output.
//
// Errors: a function that can fail returns a ziptier_status. Below 0 it is an error, and ziptier_last_error() says in a
// sentence what was tried, what was found and what to do. Each function names the errors that it has by the ends of
// their names: DAMAGED is ZIPTIER_DAMAGED. Every function that returns a status may also return ZIPTIER_PANIC.
//
// The caller promises of every pointer that as many bytes or items as its length says may be read, or written where the
// argument is for output. A null pointer is allowed where a comment says so, and where the length is 0. Elsewhere it is
// the error INVALID_ARGUMENT.


#ifndef ZIPTIER_H
#define ZIPTIER_H

#include <stddef.h>
#include <stdint.h>

// The major version of this header. The library's soname has the same number.
#define ZIPTIER_VERSION_MAJOR 0

// The minor version of this header. A version with more functions has a greater one.
#define ZIPTIER_VERSION_MINOR 2

// The patch version of this header.
#define ZIPTIER_VERSION_PATCH 0

// Operation: a bit for each element, 1 if the element is at least first and at most last.
#define ZIPTIER_SCAN 0

// Operation: the elements from index first to index last, both included.
#define ZIPTIER_EXTRACT 1

// Operation: the elements whose bit of the mask is set. The mask has a bit for each element.
#define ZIPTIER_SELECT 2

// Operation: an element for each bit of the mask, the column's next one for a set bit and 0 for any other.
#define ZIPTIER_EXPAND 3

// Flag: the column is one raw DEFLATE stream with a window of at most 4 KiB.
#define ZIPTIER_DEFLATED 1

// Flag: elements of the column fill each byte from its high bit, and are big-endian.
#define ZIPTIER_BIG_ENDIAN 2

// Flag: the same of the mask.
#define ZIPTIER_MASK_BIG_ENDIAN 4

// Flag: the same of the output.
#define ZIPTIER_OUTPUT_BIG_ENDIAN 8

// Flag of a scan: every bit is inverted.
#define ZIPTIER_NEGATE 16

// The outcome of a call. The numbers never change. 0 and more are answers; below 0 are errors, and
// ziptier_last_error() has the sentence.
typedef enum {
  // The call did what it says.
  ZIPTIER_OK = 0,
  // There is no such key, or no further record.
  ZIPTIER_NOT_FOUND = 1,
  // The output does not fit into the capacity. Nothing was written behind it.
  ZIPTIER_TOO_SMALL = 2,
  // A condition of a batch does not hold. Nothing has changed.
  ZIPTIER_NOT_WRITTEN = 3,
  // An argument is null, too long, out of range, or no UTF-8.
  ZIPTIER_INVALID_ARGUMENT = -1,
  // An option has an unknown name or a wrong value, or options contradict each other.
  ZIPTIER_INVALID_OPTION = -2,
  // The bytes are damaged, or were made with another format or dictionary.
  ZIPTIER_DAMAGED = -3,
  // The store is at its memory limit and has refused a write. Nothing has changed.
  ZIPTIER_NO_ROOM = -4,
  // An engine or a device cannot work, or gets no memory. This says nothing against the data.
  ZIPTIER_UNAVAILABLE = -5,
  // A file, the log, or the system has failed.
  ZIPTIER_IO = -6,
  // A fault of ziptier itself: please report the sentence.
  ZIPTIER_PANIC = -7,
} ziptier_status;

// Answers questions to packed integers. One serves all threads.
typedef struct ziptier_analytics ziptier_analytics;

// Writes that are made together, in the order in which they were added.
typedef struct ziptier_batch ziptier_batch;

// Compresses and decompresses blocks. One codec serves all threads.
typedef struct ziptier_codec ziptier_codec;

// Bytes that blocks of one format share. A block can only be read with the dictionary that it was made with.
typedef struct ziptier_dictionary ziptier_dictionary;

// Walks through records in key order. It is no snapshot: a key that is present throughout comes exactly once, one that
// is written meanwhile at most once.
typedef struct ziptier_iterator ziptier_iterator;

// A compressed, ordered key-value store. One serves all threads.
typedef struct ziptier_store ziptier_store;

// A token dictionary, ready to encode and decode values. One serves all threads.
typedef struct ziptier_tokens ziptier_tokens;

// Bytes that the library allocates. It begins as {NULL, 0, 0}. Each call that fills a buffer replaces its contents
// and reuses its memory. Only the library changes the fields.
typedef struct {
  // The first byte; null if the library has allocated nothing.
  uint8_t *data;
  // How many bytes there are.
  size_t len;
  // Bytes that are allocated.
  size_t capacity;
} ziptier_buffer;

// An option: name and value are C strings in UTF-8.
typedef struct {
  // The name.
  const char *name;
  // The value.
  const char *value;
} ziptier_option;

// Bytes of the caller, or of the library where a function gives them.
typedef struct {
  // The first byte; may be null if there is none.
  const void *data;
  // How many bytes there are.
  size_t len;
} ziptier_slice;

// One operation on a column of packed unsigned integers. Fields that an operation does not need are 0.
typedef struct {
  // ZIPTIER_SCAN, ZIPTIER_EXTRACT, ZIPTIER_SELECT or ZIPTIER_EXPAND.
  uint32_t operation;
  // Any of the flags, or 0: an element of the column then fills each byte from its low bit.
  uint32_t flags;
  // The elements, packed without gaps.
  ziptier_slice column;
  // Bits of an element, 1 to 32.
  uint32_t width;
  // Elements of the column.
  uint32_t count;
  // Of a scan the smallest element of the range, of an extraction the index of the first element.
  uint32_t first;
  // Of a scan the largest element of the range, of an extraction the index of the last element.
  uint32_t last;
  // The bits of a selection or an expansion.
  ziptier_slice mask;
  // Bits of the mask.
  uint32_t mask_count;
  // Bits of an element of the output: 8, 16 or 32, or 0 for those of the column. A scan has one bit for each element
  // by 0, and the indices of the ones by any other width. So has any other operation on a column of one bit.
  uint32_t output_width;
  // Memory for the output.
  void *output;
  // Bytes of that memory.
  size_t output_capacity;
} ziptier_analytics_job;

// The answer to a job.
typedef struct {
  // How the job ended. All that follows is 0 unless it is ZIPTIER_OK, but for output_len of ZIPTIER_TOO_SMALL.
  ziptier_status status;
  // Bits, integers or indices of the output.
  uint32_t count;
  // Bytes of the output. If the status is ZIPTIER_TOO_SMALL, a capacity that is enough.
  size_t output_len;
  // The smallest integer of the output, or the index of the first one of its bits; 0 if there is none.
  uint32_t min;
  // The largest integer of the output, or the index of the last one of its bits; 0 if there is none.
  uint32_t max;
  // The sum of the integers of the output modulo 2^32, or the number of ones of its bits.
  uint32_t sum;
} ziptier_analytics_answer;

// What a key carries beside its value.
typedef struct {
  // Bytes of the value.
  uint64_t len;
  // When the key ceases to exist, in milliseconds since the Unix epoch; 0 for never.
  uint64_t expires_at_ms;
  // As given when the value was put.
  uint32_t flags;
} ziptier_meta;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The sentence of the last error of the calling thread. It says what was tried, what was found and what to do. Empty
// if no call of this thread has failed. A call that succeeds leaves it as it is.
//
// Ownership: the string is the library's. It lasts until a call of the same thread fails, or the thread ends.
// Threads: any; each has a sentence of its own.
// Errors: none.
const char *ziptier_last_error(void);

// The version of the library that is loaded, such as "0.2.0".
//
// Ownership: the string is the library's, and constant.
// Threads: any.
// Errors: none.
const char *ziptier_version(void);

// Frees the memory of a buffer. The buffer is empty then and may be filled again.
//
// Ownership: the buffer itself stays the caller's. Null is allowed.
// Threads: one at a time for each buffer.
// Errors: none.
void ziptier_buffer_free(ziptier_buffer *buffer);

// Opens a codec for the options and, unless it is null, with the dictionary. The page docs/c.md lists the options:
// format (none, token, lz4, zstd, deflate), level, huffman, split, engine, path, model, frame. Format token needs a
// dictionary.
//
// With "frame" = "yes" a block begins with its format, length and checksum. Then damage and a wrong dictionary are
// always found, and no block grows by more than 9 bytes. Without, a block is the plain format.
//
// Ownership: the caller closes the codec with ziptier_codec_close. The codec keeps a share of the dictionary, so the
// caller may free its own.
// Threads: any.
// Errors: INVALID_OPTION, INVALID_ARGUMENT; UNAVAILABLE if the engine or a device is missing. *codec is null then.
ziptier_status ziptier_codec_open(const ziptier_option *options,
                                  size_t options_len,
                                  const ziptier_dictionary *dictionary,
                                  ziptier_codec **codec);

// Closes a codec and frees its contexts.
//
// Ownership: the codec is gone after the call. Null is allowed.
// Threads: no other call may use the codec any more.
// Errors: none.
void ziptier_codec_close(ziptier_codec *codec);

// Who does the work: "cpu", "software", "hardware", or "modelled" for a model of a device in software.
//
// Ownership: the string lasts as long as the codec.
// Threads: any.
// Errors: null if the codec is null.
const char *ziptier_codec_worker(const ziptier_codec *codec);

// The counters of a codec as text, one "name value" to a line: calls, bytes, nanoseconds, fallbacks from a device to
// the CPU, faults. It begins with format, engine and worker. Later versions may add lines.
//
// Ownership: the caller frees the buffer with ziptier_buffer_free.
// Threads: any; the buffer belongs to one call at a time.
// Errors: INVALID_ARGUMENT.
ziptier_status ziptier_codec_counters(const ziptier_codec *codec,
                                      ziptier_buffer *text);

// The most bytes that ziptier_compress makes of raw_len bytes. With such a capacity every block fits.
//
// Ownership: nothing changes hands.
// Threads: any.
// Errors: 0 if the codec is null.
size_t ziptier_compress_bound(const ziptier_codec *codec, size_t raw_len);

// Compresses the block raw into packed, and sets *packed_len to the bytes written.
//
// TOO_SMALL says that the block does not fit, or fills all but the last 16 bytes of the capacity; store it raw then,
// or give ziptier_compress_bound bytes. The contents of packed are undefined then.
//
// Ownership: all memory stays the caller's, and none is used after the call. raw and packed must not overlap.
// Threads: any number at once. The first call of a thread that meets no free context allocates one.
// Errors: TOO_SMALL, INVALID_ARGUMENT; UNAVAILABLE if a device fails on path hardware. *packed_len is 0 then.
ziptier_status ziptier_compress(const ziptier_codec *codec,
                                const void *raw,
                                size_t raw_len,
                                void *packed,
                                size_t packed_capacity,
                                size_t *packed_len);

// Decompresses a block whose length the caller does not know, and sets *raw_len to its length.
//
// TOO_SMALL says that the block has more bytes than the capacity. *raw_len is the capacity that it needs if the block
// says so, as blocks with "frame" do, and 0 otherwise. Prefer ziptier_decompress_exact where the length is known:
// without a frame, damage can make a block shorter, and only the length reveals that.
//
// Ownership: all memory stays the caller's, and none is used after the call. packed and raw must not overlap.
// Threads: any number at once.
// Errors: TOO_SMALL, DAMAGED, INVALID_ARGUMENT; UNAVAILABLE on path hardware if a device fails, or if the engine must
// know the length. The contents of raw are undefined then, also within the capacity.
ziptier_status ziptier_decompress(const ziptier_codec *codec,
                                  const void *packed,
                                  size_t packed_len,
                                  void *raw,
                                  size_t raw_capacity,
                                  size_t *raw_len);

// Decompresses a block of exactly raw_len bytes. A block of another length is damaged.
//
// Ownership: all memory stays the caller's, and none is used after the call. packed and raw must not overlap.
// Threads: any number at once.
// Errors: DAMAGED, INVALID_ARGUMENT; UNAVAILABLE on path hardware if a device fails. The contents of raw are undefined
// then.
ziptier_status ziptier_decompress_exact(const ziptier_codec *codec,
                                        const void *packed,
                                        size_t packed_len,
                                        void *raw,
                                        size_t raw_len);

// Trains a dictionary of at most max_bytes for blocks of a format (token, lz4, zstd, deflate). The samples should look
// like the blocks to come, and have 20 to 100 times max_bytes together. generation is the caller's number for it.
//
// Ownership: the caller frees the dictionary with ziptier_dictionary_free.
// Threads: any. A training takes 20 to 90 ms for each MiB of samples.
// Errors: INVALID_ARGUMENT, also for samples that have nothing in common. *dictionary is null then.
ziptier_status ziptier_dictionary_train(const char *format,
                                        const ziptier_slice *samples,
                                        size_t samples_len,
                                        size_t max_bytes,
                                        uint32_t generation,
                                        ziptier_dictionary **dictionary);

// Loads a dictionary from the bytes that ziptier_dictionary_save gave. Any bytes may be passed.
//
// Ownership: the caller frees the dictionary with ziptier_dictionary_free. The bytes are copied.
// Threads: any.
// Errors: DAMAGED, INVALID_ARGUMENT. *dictionary is null then.
ziptier_status ziptier_dictionary_load(const void *saved, size_t saved_len, ziptier_dictionary **dictionary);

// Gives a dictionary as bytes with a checksum, to be stored.
//
// Ownership: the caller frees the buffer with ziptier_buffer_free.
// Threads: any; the buffer belongs to one call at a time.
// Errors: INVALID_ARGUMENT.
ziptier_status ziptier_dictionary_save(const ziptier_dictionary *dictionary, ziptier_buffer *saved);

// Frees the caller's share of a dictionary. Codecs that use it keep theirs.
//
// Ownership: the dictionary is gone for the caller after the call. Null is allowed.
// Threads: no other call may use this pointer any more.
// Errors: none.
void ziptier_dictionary_free(ziptier_dictionary *dictionary);

// Trains tokens of bits bits (10 to 16; 12 is usual for small values) on samples, which should look like the values
// to come. 1 to 4 MB of them are plenty. generation is the caller's number for it.
//
// Ownership: the caller frees the tokens with ziptier_tokens_free.
// Threads: any. A training takes 60 to 200 ms for each MB of samples.
// Errors: INVALID_ARGUMENT. *tokens is null then.
ziptier_status ziptier_tokens_train(const ziptier_slice *samples,
                                    size_t samples_len,
                                    uint32_t bits,
                                    uint32_t generation,
                                    ziptier_tokens **tokens);

// Loads tokens from the bytes that ziptier_tokens_save gave. Any bytes may be passed.
//
// Ownership: the caller frees the tokens with ziptier_tokens_free. The bytes are copied.
// Threads: any.
// Errors: DAMAGED, INVALID_ARGUMENT. *tokens is null then.
ziptier_status ziptier_tokens_load(const void *saved, size_t saved_len, ziptier_tokens **tokens);

// Gives tokens as bytes with a checksum, to be stored.
//
// Ownership: the caller frees the buffer with ziptier_buffer_free.
// Threads: any; the buffer belongs to one call at a time.
// Errors: INVALID_ARGUMENT.
ziptier_status ziptier_tokens_save(const ziptier_tokens *tokens, ziptier_buffer *saved);

// Frees tokens.
//
// Ownership: the tokens are gone after the call. Null is allowed.
// Threads: no other call may use the tokens any more.
// Errors: none.
void ziptier_tokens_free(ziptier_tokens *tokens);

// The most bytes that ziptier_tokens_encode makes of a value of value_len bytes.
//
// Ownership: nothing changes hands.
// Threads: any.
// Errors: 0 if the tokens are null.
size_t ziptier_tokens_bound(const ziptier_tokens *tokens, size_t value_len);

// Encodes a value, and sets *coded_len to the bytes that it takes. Values that repeat nothing grow, to twice their
// length and two bytes at most: compare the lengths, and keep such a value as it is.
//
// Ownership: all memory stays the caller's, and none is used after the call. value and coded must not overlap.
// Threads: any number at once.
// Errors: TOO_SMALL, where *coded_len is the capacity needed; INVALID_ARGUMENT.
ziptier_status ziptier_tokens_encode(const ziptier_tokens *tokens,
                                     const void *value,
                                     size_t value_len,
                                     void *coded,
                                     size_t coded_capacity,
                                     size_t *coded_len);

// Decodes a value, and sets *value_len to its length. All bytes within the capacity may change, also after an error.
// It is fastest with a capacity of 16 bytes for each token.
//
// Ownership: all memory stays the caller's, and none is used after the call. coded and value must not overlap.
// Threads: any number at once.
// Errors: TOO_SMALL, where *value_len is the capacity needed; DAMAGED, INVALID_ARGUMENT.
ziptier_status ziptier_tokens_decode(const ziptier_tokens *tokens,
                                     const void *coded,
                                     size_t coded_len,
                                     void *value,
                                     size_t value_capacity,
                                     size_t *value_len);

// Encodes several values, as ziptier_tokens_encode does each, without gaps. ends gets the end of each in coded, and
// *coded_len the bytes of all.
//
// Ownership: all memory stays the caller's; ends has room for values_len numbers. values and coded must not overlap.
// Threads: any number at once.
// Errors: TOO_SMALL, where *coded_len is the capacity needed and ends is undefined; INVALID_ARGUMENT.
ziptier_status ziptier_tokens_encode_group(const ziptier_tokens *tokens,
                                           const ziptier_slice *values,
                                           size_t values_len,
                                           void *coded,
                                           size_t coded_capacity,
                                           size_t *coded_len,
                                           size_t *ends);

// Decodes what ziptier_tokens_encode_group gave, without gaps. value_ends gets the end of each value in values, and
// *values_len the bytes of all.
//
// Ownership: all memory stays the caller's; value_ends has room for count numbers. coded and values must not overlap,
// nor must ends and value_ends.
// Threads: any number at once.
// Errors: TOO_SMALL, where *values_len is the capacity needed and value_ends is undefined; DAMAGED, INVALID_ARGUMENT.
ziptier_status ziptier_tokens_decode_group(const ziptier_tokens *tokens,
                                           const void *coded,
                                           size_t coded_len,
                                           const size_t *ends,
                                           size_t count,
                                           void *values,
                                           size_t values_capacity,
                                           size_t *values_len,
                                           size_t *value_ends);

// Opens analytics on packed integers. The options are path (auto, hardware, software) and model, as of a codec. By
// default a device does the work if the machine has one. On path auto the CPU does the jobs that a device cannot do.
//
// Ownership: the caller closes the analytics with ziptier_analytics_close.
// Threads: any.
// Errors: INVALID_OPTION, INVALID_ARGUMENT; UNAVAILABLE on path hardware without a device. *analytics is null then.
ziptier_status ziptier_analytics_open(const ziptier_option *options,
                                      size_t options_len,
                                      ziptier_analytics **analytics);

// Closes analytics.
//
// Ownership: the analytics are gone after the call. Null is allowed.
// Threads: no other call may use the analytics any more.
// Errors: none.
void ziptier_analytics_close(ziptier_analytics *analytics);

// Who does the work: "cpu", "hardware", or "modelled" for a model of a device in software.
//
// Ownership: the string lasts as long as the analytics.
// Threads: any.
// Errors: null if the analytics are null.
const char *ziptier_analytics_worker(const ziptier_analytics *analytics);

// Jobs that a device should have done until now, and the CPU did.
//
// Ownership: nothing changes hands.
// Threads: any.
// Errors: 0 if the analytics are null.
uint64_t ziptier_analytics_fallbacks(const ziptier_analytics *analytics);

// Runs jobs that do not depend on each other; a device works on several at a time. Each job writes its output into its
// own memory, and its answer into answers. The other jobs run if one of them fails.
//
// Returns OK if all jobs succeed, and else the status of the first job that does not. ziptier_last_error then names
// that job by its index. If a pointer, a flag, an operation or an output_width is wrong, or if an output overlaps its
// own column or mask, no job runs and all answers have INVALID_ARGUMENT.
//
// Ownership: all memory stays the caller's, and none is used after the call; answers has room for jobs_len answers. An
// output must not overlap a column, a mask or another output.
// Threads: any number at once.
// Errors: TOO_SMALL, where output_len of the answer is a capacity that is enough; DAMAGED for a column that is no
// DEFLATE or too short, unless the job has no output; UNAVAILABLE if a device fails on path hardware;
// INVALID_ARGUMENT, also for integers or indices that do not fit output_width. The output of a job that fails is
// unchanged.
ziptier_status ziptier_analytics_run(const ziptier_analytics *analytics,
                                     const ziptier_analytics_job *jobs,
                                     size_t jobs_len,
                                     ziptier_analytics_answer *answers);

// Opens a store with options, which have the names of `ziptier serve`; the page docs/c.md lists them. Without options
// the store lies in memory, has no limit, and ends with ziptier_close. With "dir" it is kept in that folder.
//
// Ownership: the caller closes the store with ziptier_close.
// Threads: any. The store starts threads of its own, so open it after the last fork().
// Errors: INVALID_OPTION, INVALID_ARGUMENT, DAMAGED, UNAVAILABLE, IO. *store is null then.
ziptier_status ziptier_open(const ziptier_option *options,
                            size_t options_len,
                            ziptier_store **store);

// Closes a store. OK says that everything is as durable as its option "durability" promises.
//
// Ownership: the store is gone after the call, also after an error, with one exception: while iterators of the store
// are not freed, the call returns INVALID_ARGUMENT and the store stays open. Null is allowed.
// Threads: no other call may use the store any more.
// Errors: INVALID_ARGUMENT, IO.
ziptier_status ziptier_close(ziptier_store *store);

// Copies the value of a key into value, and sets *value_len to its length. *meta gets what the key carries beside it;
// meta may be null.
//
// Ownership: all memory stays the caller's, and none is used after the call.
// Threads: any number at once.
// Errors: NOT_FOUND; TOO_SMALL, where *value_len is the capacity needed; INVALID_ARGUMENT, DAMAGED, IO. *value_len is
// 0 but for OK and TOO_SMALL.
ziptier_status ziptier_get(const ziptier_store *store,
                           const void *key,
                           size_t key_len,
                           void *value,
                           size_t value_capacity,
                           size_t *value_len,
                           ziptier_meta *meta);

// As ziptier_get, into a buffer of the library, which grows as the value needs. It is empty but for OK.
//
// Ownership: the caller frees the buffer with ziptier_buffer_free. A buffer that is used again allocates seldom.
// Threads: any number at once, each with a buffer of its own.
// Errors: NOT_FOUND; INVALID_ARGUMENT, DAMAGED, IO.
ziptier_status ziptier_get_buffer(const ziptier_store *store,
                                  const void *key,
                                  size_t key_len,
                                  ziptier_buffer *value,
                                  ziptier_meta *meta);

// Tells what a key carries, without its value.
//
// Ownership: all memory stays the caller's.
// Threads: any number at once.
// Errors: NOT_FOUND; INVALID_ARGUMENT, DAMAGED, IO. *meta is zero then.
ziptier_status ziptier_get_meta(const ziptier_store *store,
                                const void *key,
                                size_t key_len,
                                ziptier_meta *meta);

// Puts a value of at most 512 MiB under a key of 1 to 65,536 bytes, with an expiry (milliseconds since the Unix epoch;
// 0 for never) and flags of the caller.
//
// Ownership: key and value are copied.
// Threads: any number at once.
// Errors: INVALID_ARGUMENT, NO_ROOM, IO. Nothing has changed then, but for a failed log: see docs/c.md.
ziptier_status ziptier_put(const ziptier_store *store,
                           const void *key,
                           size_t key_len,
                           const void *value,
                           size_t value_len,
                           uint64_t expires_at_ms,
                           uint32_t flags);

// Gives a key another expiry (milliseconds since the Unix epoch; 0 for never), and leaves its value alone.
//
// Ownership: the key is copied.
// Threads: any number at once.
// Errors: NOT_FOUND; INVALID_ARGUMENT, NO_ROOM, DAMAGED, IO.
ziptier_status ziptier_set_expiry(const ziptier_store *store,
                                  const void *key,
                                  size_t key_len,
                                  uint64_t expires_at_ms);

// Deletes a key.
//
// Ownership: the key is copied.
// Threads: any number at once.
// Errors: NOT_FOUND if there was no such key; INVALID_ARGUMENT, IO; DAMAGED if the SSD cannot be read.
ziptier_status ziptier_delete(const ziptier_store *store, const void *key, size_t key_len);

// Writes what has changed since the last checkpoint to the store's folder, so that the next start is quick. The store
// does so by itself when its log has grown. Without a folder nothing happens.
//
// Ownership: nothing changes hands.
// Threads: any; other calls go on meanwhile.
// Errors: INVALID_ARGUMENT, IO. Nothing is lost then.
ziptier_status ziptier_checkpoint(const ziptier_store *store);

// Brings every record to its final, compressed form at once. The background does so by and by.
//
// Ownership: nothing changes hands.
// Threads: any; other calls go on meanwhile.
// Errors: INVALID_ARGUMENT.
ziptier_status ziptier_settle(const ziptier_store *store);

// The statistics of a store as text, one "name value" to a line: keys, memory, work, far memory, SSD, log, recovery.
// While many writes are unsettled, keys counts the settled ones alone. A store that was opened with "salvage" has a
// line "skipped" for each damage. Later versions may add lines.
//
// Ownership: the caller frees the buffer with ziptier_buffer_free.
// Threads: any number at once, each with a buffer of its own.
// Errors: INVALID_ARGUMENT.
ziptier_status ziptier_stats(const ziptier_store *store,
                             ziptier_buffer *text);

// Makes a batch of nothing.
//
// Ownership: the caller frees the batch with ziptier_batch_free.
// Threads: any; a batch belongs to one thread at a time.
// Errors: INVALID_ARGUMENT.
ziptier_status ziptier_batch_new(ziptier_batch **batch);

// Adds a put, as ziptier_put.
//
// Ownership: key and value are copied.
// Threads: one at a time for each batch.
// Errors: INVALID_ARGUMENT. ziptier_write tells of keys and values out of range.
ziptier_status ziptier_batch_put(ziptier_batch *batch,
                                 const void *key,
                                 size_t key_len,
                                 const void *value,
                                 size_t value_len,
                                 uint64_t expires_at_ms,
                                 uint32_t flags);

// Adds a delete.
//
// Ownership: the key is copied.
// Threads: one at a time for each batch.
// Errors: INVALID_ARGUMENT.
ziptier_status ziptier_batch_delete(ziptier_batch *batch, const void *key, size_t key_len);

// Adds the condition that a key exists, if exists is not 0, or else that the key does not exist. Conditions are about
// the time before the batch, wherever in the batch they stand.
//
// Ownership: the key is copied.
// Threads: one at a time for each batch.
// Errors: INVALID_ARGUMENT.
ziptier_status ziptier_batch_require(ziptier_batch *batch,
                                     const void *key,
                                     size_t key_len,
                                     int32_t exists);

// Adds the condition that a key has this value before the batch, as for a compare-and-set.
//
// Ownership: key and value are copied.
// Threads: one at a time for each batch.
// Errors: INVALID_ARGUMENT.
ziptier_status ziptier_batch_require_value(ziptier_batch *batch,
                                           const void *key,
                                           size_t key_len,
                                           const void *value,
                                           size_t value_len);

// Makes all writes of a batch, or none. The batch stays as it is and may be written again.
//
// Ownership: the batch stays the caller's.
// Threads: any number at once, each with a batch of its own.
// Errors: NOT_WRITTEN if a condition does not hold; INVALID_ARGUMENT, NO_ROOM, DAMAGED, IO. Nothing has changed then,
// but for a failed log: see docs/c.md.
ziptier_status ziptier_write(const ziptier_store *store,
                             const ziptier_batch *batch);

// Frees a batch.
//
// Ownership: the batch is gone after the call. Null is allowed.
// Threads: no other call may use the batch any more.
// Errors: none.
void ziptier_batch_free(ziptier_batch *batch);

// Opens an iterator over the keys from `from` on and below `to`. Null for `from` begins with the first key, null for
// `to` goes on to the last one.
//
// Ownership: the caller frees the iterator with ziptier_iterator_free, before it closes the store.
// Threads: any; an iterator belongs to one thread at a time.
// Errors: INVALID_ARGUMENT. *iterator is null then.
ziptier_status ziptier_range(const ziptier_store *store,
                             const void *from,
                             size_t from_len,
                             const void *to,
                             size_t to_len,
                             ziptier_iterator **iterator);

// Opens an iterator over the keys that begin with prefix.
//
// Ownership: the caller frees the iterator with ziptier_iterator_free, before it closes the store.
// Threads: any; an iterator belongs to one thread at a time.
// Errors: INVALID_ARGUMENT. *iterator is null then.
ziptier_status ziptier_prefix(const ziptier_store *store,
                              const void *prefix,
                              size_t prefix_len,
                              ziptier_iterator **iterator);

// Gives the next record in key order.
//
// Ownership: key and value are the iterator's. They last until the next call with it.
// Threads: one at a time for each iterator.
// Errors: NOT_FOUND if there is no further record; INVALID_ARGUMENT, where no record is taken; DAMAGED, IO.
ziptier_status ziptier_next(ziptier_iterator *iterator, ziptier_slice *key, ziptier_slice *value);

// Gives the last record that has not been given. Calls of ziptier_next and of this function meet in the middle.
//
// Ownership: key and value are the iterator's. They last until the next call with it.
// Threads: one at a time for each iterator.
// Errors: NOT_FOUND if there is no further record; INVALID_ARGUMENT, where no record is taken; DAMAGED, IO.
ziptier_status ziptier_next_back(ziptier_iterator *iterator,
                                 ziptier_slice *key,
                                 ziptier_slice *value);

// Frees an iterator, and the record that it has given.
//
// Ownership: the iterator is gone after the call. Null is allowed.
// Threads: no other call may use the iterator any more.
// Errors: none.
void ziptier_iterator_free(ziptier_iterator *iterator);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ZIPTIER_H */
