/* Turns ziptier's compression, log and block cache on for a database of RocksDB's C API, which knows none of them: by
 * one option string.
 *
 *   all_of_it DIR CACHE_DIR
 *
 * writes durable records, closes and opens the database again, reads every record twice, and prints what was done. */

#include <rocksdb/c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ziptier_rocksdb.h"

enum { RECORDS = 50000, SYNCED_EVERY = 1000 };

static void check(const char *what, char *error) {
  if (error != NULL) {
    fprintf(stderr, "%s: %s\n", what, error);
    exit(1);
  }
}

static size_t key_of(int i, char *key) { return (size_t)sprintf(key, "key:%012d", i); }

static size_t value_of(int i, char *value) {
  return (size_t)sprintf(value, "{\"user\":%lld,\"state\":\"%s\"}", i * 7919LL % 100003,
                         i % 3 ? "active" : "suspended");
}

static rocksdb_options_t *options_for(const char *cache_dir) {
  char text[4096];
  const int bytes = snprintf(text, sizeof text,
                             "create_if_missing=true;compression_manager={id=ziptier;format=token};"
                             "compression=kCustomCompression80;env=ziptier;"
                             "block_based_table_factory={block_cache={id=ziptier://;memory=256K;path=%s;"
                             "capacity=64M;admission=all}}",
                             cache_dir);
  if (bytes < 0 || (size_t)bytes >= sizeof text) {
    fprintf(stderr, "the folder of the cache has too long a name\n");
    exit(1);
  }
  rocksdb_options_t *base = rocksdb_options_create();
  rocksdb_options_t *options = rocksdb_options_create();
  char *error = NULL;
  /* What other functions set has to be set in `base`: a table factory that is set later takes the cache away. */
  rocksdb_get_options_from_string(base, text, options, &error);
  check("options", error);
  rocksdb_options_destroy(base);
  return options;
}

static rocksdb_t *opened(const rocksdb_options_t *options, const char *dir) {
  char *error = NULL;
  rocksdb_t *db = rocksdb_open(options, dir, &error);
  check("open", error);
  return db;
}

static void write_records(rocksdb_t *db) {
  rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
  char key[32], value[128], *error = NULL;
  for (int i = 0; i < RECORDS; ++i) {
    rocksdb_writeoptions_set_sync(write, i % SYNCED_EVERY == 0);
    rocksdb_put(db, write, key, key_of(i, key), value, value_of(i, value), &error);
    check("put", error);
  }
  rocksdb_writeoptions_destroy(write);
  rocksdb_compact_range(db, NULL, 0, NULL, 0);
}

static void read_records(rocksdb_t *db) {
  rocksdb_readoptions_t *read = rocksdb_readoptions_create();
  char key[32], value[128], *error = NULL;
  for (int i = 0; i < RECORDS; ++i) {
    size_t bytes = 0;
    char *found = rocksdb_get(db, read, key, key_of(i, key), &bytes, &error);
    check("get", error);
    if (found == NULL || bytes != value_of(i, value) || memcmp(found, value, bytes) != 0) {
      fprintf(stderr, "record %d has another value\n", i);
      exit(1);
    }
    rocksdb_free(found);
  }
  rocksdb_readoptions_destroy(read);
}

/* The C API drops an unknown name in an option string without a word, so that what was done has to tell. */
static void check_counters(void) {
  char counters[8192];
  ziptier_rocksdb_counters(counters, sizeof counters);
  printf("%s", counters);
  const char *expected[] = {"packed_token_blocks ", "wal_durable_by ", "cache_hits "};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; ++i) {
    if (strstr(counters, expected[i]) == NULL) {
      fprintf(stderr, "an option did not take: the counters have no %s\n", expected[i]);
      exit(1);
    }
  }
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: all_of_it DIR CACHE_DIR\n");
    return 2;
  }
  char message[256];
  if (ziptier_rocksdb_load(message, sizeof message) != 0) {
    fprintf(stderr, "%s\n", message);
    return 1;
  }
  rocksdb_options_t *options = options_for(argv[2]);
  rocksdb_t *db = opened(options, argv[1]);
  write_records(db);
  rocksdb_close(db);

  db = opened(options, argv[1]);
  read_records(db);
  read_records(db);
  check_counters(); /* while the cache is open: its counters go with it */
  rocksdb_close(db);
  rocksdb_options_destroy(options);
  return 0;
}
