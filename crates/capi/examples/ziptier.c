/* The C interface of ziptier in one program: a codec with a dictionary, tokens, and a store in a folder.
 * Usage: ziptier FOLDER. It compiles as C11 and as C++, and every call is checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ziptier.h>

#define RECORDS 4000
#define RECORD_BYTES 64

static char records[RECORDS][RECORD_BYTES];
static ziptier_slice samples[RECORDS];

/* Ends the program with the library's sentence unless a call did what it says. */
static void must(ziptier_status status, const char *what) {
  if (status != ZIPTIER_OK) {
    fprintf(stderr, "%s: status %d: %s\n", what, (int)status, ziptier_last_error());
    exit(1);
  }
}

static void make_records(void) {
  for (int i = 0; i < RECORDS; i++) {
    int length = snprintf(records[i], RECORD_BYTES, "{\"user\":%d,\"state\":\"%s\"}", i, i % 3 ? "active" : "away");
    samples[i].data = records[i];
    samples[i].len = (size_t)length;
  }
}

/* Blocks of format zstd with a dictionary, each with its checksum. */
static void compress_blocks(void) {
  const ziptier_option options[] = {{"format", "zstd"}, {"level", "3"}, {"frame", "yes"}};
  ziptier_dictionary *dictionary;
  ziptier_codec *codec;
  must(ziptier_dictionary_train("zstd", samples, RECORDS, 4096, 1, &dictionary), "train a dictionary");
  must(ziptier_codec_open(options, 3, dictionary, &codec), "open a codec");
  ziptier_dictionary_free(dictionary); /* The codec keeps its share. */

  char raw[40 * RECORD_BYTES], unpacked[sizeof raw];
  size_t raw_len = 0;
  for (int i = 0; i < 40; i++) {
    memcpy(raw + raw_len, records[i], samples[i].len);
    raw_len += samples[i].len;
  }
  size_t capacity = ziptier_compress_bound(codec, raw_len), packed_len, unpacked_len;
  char *packed = (char *)malloc(capacity);
  must(ziptier_compress(codec, raw, raw_len, packed, capacity, &packed_len), "compress");
  must(ziptier_decompress(codec, packed, packed_len, unpacked, sizeof unpacked, &unpacked_len), "decompress");
  if (unpacked_len != raw_len || memcmp(raw, unpacked, raw_len) != 0) {
    fprintf(stderr, "other bytes came back\n");
    exit(1);
  }
  printf("block: %zu bytes of %zu, by %s\n", packed_len, raw_len, ziptier_codec_worker(codec));

  /* Where the output does not fit, nothing is written behind it. */
  size_t few = packed_len / 2;
  if (ziptier_compress(codec, raw, raw_len, packed, few, &packed_len) != ZIPTIER_TOO_SMALL) exit(1);

  ziptier_buffer counters = {NULL, 0, 0};
  must(ziptier_codec_counters(codec, &counters), "read the counters");
  printf("%.*s", (int)counters.len, (const char *)counters.data);
  ziptier_buffer_free(&counters);
  free(packed);
  ziptier_codec_close(codec);
}

/* Single values by tokens: each is read without its neighbours. */
static void encode_values(void) {
  ziptier_tokens *tokens;
  must(ziptier_tokens_train(samples, RECORDS, 12, 1, &tokens), "train tokens");
  char coded[2 * RECORD_BYTES], value[16 * RECORD_BYTES];
  size_t coded_len, value_len;
  must(ziptier_tokens_encode(tokens, samples[7].data, samples[7].len, coded, sizeof coded, &coded_len), "encode");
  must(ziptier_tokens_decode(tokens, coded, coded_len, value, sizeof value, &value_len), "decode");
  printf("value: %zu bytes of %zu: %.*s\n", coded_len, value_len, (int)value_len, value);
  ziptier_tokens_free(tokens);
}

/* A store in a folder. What was put is there when the store is opened again. */
static void keep_records(const char *folder) {
  const ziptier_option options[] = {{"dir", folder}, {"durability", "everysec"}, {"memory", "256MiB"}};
  ziptier_store *store;
  must(ziptier_open(options, 3, &store), "open the store");
  for (int i = 0; i < RECORDS; i++) {
    char key[16];
    int key_len = snprintf(key, sizeof key, "user:%05d", i);
    must(ziptier_put(store, key, (size_t)key_len, samples[i].data, samples[i].len, 0, 0), "put");
  }
  ziptier_batch *batch;
  must(ziptier_batch_new(&batch), "make a batch");
  must(ziptier_batch_put(batch, "count", 5, "4000", 4, 0, 7), "add a put");
  must(ziptier_batch_delete(batch, "user:00000", 10), "add a delete");
  must(ziptier_write(store, batch), "write the batch");
  ziptier_batch_free(batch);
  must(ziptier_close(store), "close the store");

  must(ziptier_open(options, 3, &store), "open the store again");
  char value[RECORD_BYTES];
  size_t value_len;
  ziptier_meta meta;
  if (ziptier_get(store, "user:00000", 10, value, sizeof value, &value_len, NULL) != ZIPTIER_NOT_FOUND) exit(1);
  if (ziptier_get(store, "user:00001", 10, value, 3, &value_len, NULL) != ZIPTIER_TOO_SMALL) exit(1);
  must(ziptier_get(store, "count", 5, value, sizeof value, &value_len, &meta), "get");
  printf("count: %.*s, flags %u\n", (int)value_len, value, (unsigned)meta.flags);

  ziptier_iterator *iterator;
  ziptier_slice key, record;
  int found = 0;
  must(ziptier_prefix(store, "user:", 5, &iterator), "open an iterator");
  while (ziptier_next(iterator, &key, &record) == ZIPTIER_OK) found++;
  ziptier_iterator_free(iterator);
  printf("users: %d\n", found);

  must(ziptier_checkpoint(store), "make a checkpoint");
  must(ziptier_close(store), "close the store");
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  printf("ziptier %s\n", ziptier_version());
  make_records();
  compress_blocks();
  encode_values();
  keep_records(argv[1]);

  /* A wrong option is named. */
  const ziptier_option wrong[] = {{"format", "lz5"}};
  ziptier_codec *codec;
  if (ziptier_codec_open(wrong, 1, NULL, &codec) != ZIPTIER_INVALID_OPTION) return 1;
  printf("%s\n", ziptier_last_error());
  return 0;
}
