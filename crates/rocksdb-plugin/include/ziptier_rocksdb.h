/* ziptier for RocksDB 11.8.1: link with libziptier_rocksdb.so, beside which libziptier_rocksdb_plugin.so lies. */
#ifndef ZIPTIER_ROCKSDB_H
#define ZIPTIER_ROCKSDB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Registers the compression manager `ziptier` with the RocksDB of this process. Returns 0; or 1, and one sentence in
 * `message`, a C string of at most `room` bytes (`message` may be NULL). It does so by itself when the library is
 * loaded after RocksDB; calling it tells whether that went well. */
int ziptier_rocksdb_load(char *message, size_t room);

/* Writes what was done so far in this process, one `name value` to a line, as a C string cut to `room` bytes. Returns
 * the bytes that the whole takes, the final zero included; 0 if the plugin is not loaded. */
size_t ziptier_rocksdb_counters(char *target, size_t room);

/* Rewrites the database in the folder `dir`, which nobody has open, so that it needs no plugin: with RocksDB's own
 * `compression` (such as "kZSTD") where the private format was asked for. Returns 0, or 1 and the reason in `message`
 * (`room` is at least 1). A database that needs no plugin stays as it is: 0, and `message` says so. */
int ziptier_rocksdb_migrate_off(const char *dir, const char *compression, char *message, size_t room);

/* Rewrites the database in the folder `dir`, which nobody has open, by `options` of a column family that name a
 * compression manager and a compression, such as
 * "compression_manager={id=ziptier;format=token};compression=kCustomCompression80". The application that opens the
 * database then sets the same options. Returns 0, or 1 and the reason in `message` (`room` is at least 1). */
int ziptier_rocksdb_migrate_on(const char *dir, const char *options, char *message, size_t room);

/* How the files of the database in `dir` are packed, in `message`: a line for each column family and compression, with
 * their names, files, bytes of data, raw bytes of keys and values, and bytes of the files, separated by tabs. Returns
 * 0, or 1 and the reason (`room` is at least 1). `needed`, unless it is NULL or the plugin is not loaded, gets the
 * bytes that the whole takes, the final zero included: where they are more than `room`, the lines are cut, and the call
 * can be made again. */
int ziptier_rocksdb_inspect(const char *dir, char *message, size_t room, size_t *needed);

/* What other formats would make of the database in `dir`, from a sample of about `sample_bytes` of its records, in
 * `message`. Its first line has the bytes of all files, and those of the blocks that were sampled. The other lines have
 * a format, the bytes of the files in it, and the nanoseconds of CPU time to compress and to decompress the sample,
 * separated by tabs. The database is only read, and may be in use. `tell` is called now and then with `state`, how much
 * of the work is done, and how much there is. For the rest see `ziptier_rocksdb_inspect`. */
int ziptier_rocksdb_estimate(const char *dir, uint64_t sample_bytes,
                             void (*tell)(void *state, uint64_t done, uint64_t all), void *state, char *message,
                             size_t room, size_t *needed);

#ifdef __cplusplus
}

#include <memory>

namespace rocksdb {
class PersistentCache;
}

/* Makes a cache for `BlockBasedTableOptions::persistent_cache`, which no option string reaches: blocks as they are in
 * SST files, on files over restarts. `options` are those of the secondary cache `ziptier`
 * ("path=DIR;capacity=1073741824"); `codec` is none if it is not named. Returns 0, or 1 and the reason in `message`
 * (`room` is at least 1). */
extern "C" int ziptier_rocksdb_persistent_cache(const char *options, std::shared_ptr<rocksdb::PersistentCache> *cache,
                                                char *message, size_t room);
#endif

#endif
