/* A program in C over tiers, which links the host alone: the shim brings the plugin.
 *
 *   from_c_test fill DIR URI         writes, compacts and reads records
 *   from_c_test expect DIR [URI]     compares them; without a URI by the host alone
 *   from_c_test write DIR URI        synced batches until it is killed; prints their records
 *   from_c_test verify DIR URI N     the first N of those are there
 *   from_c_test destroy DIR URI      removes the database
 *
 * Exit status 0 when all passed. `cargo xtask plugins test` runs it with Speedb.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rocksdb/c.h"

enum { RECORDS = 30000, BATCH = 50, TEXT = 400 };

static void expect(int holds, const char *what) {
  if (holds) return;
  fprintf(stderr, "from_c_test: %s\n", what);
  exit(1);
}

static void expect_ok(char *why) { expect(why == NULL, why); }

static size_t key_of(unsigned number, char key[16]) { return (size_t)sprintf(key, "%08u", number); }

static size_t value_of(unsigned number, unsigned round, char value[TEXT]) {
  memset(value, 'a' + (int)(number % 26), TEXT);
  const int len = sprintf(value, "value %u of round %u", number, round);
  value[len] = '.';
  return TEXT - number % 100;
}

static rocksdb_options_t *options_over(const char *uri) {
  rocksdb_options_t *const options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_compression(options, rocksdb_no_compression);
  rocksdb_options_set_write_buffer_size(options, 1 << 20);
  rocksdb_options_set_target_file_size_base(options, 1 << 20);
  rocksdb_options_set_max_bytes_for_level_base(options, 4 << 20);
  rocksdb_options_set_max_bytes_for_level_multiplier(options, 4);
  if (uri == NULL) return options;
  rocksdb_env_t *(*env_of)(const char *) = NULL;
  *(void **)&env_of = dlsym(RTLD_DEFAULT, "thermocline_rocksdb_env");
  expect(env_of != NULL, "the shim opened no plugin");
  rocksdb_env_t *const env = env_of(uri);
  expect(env != NULL, "the URI is refused");
  rocksdb_options_set_env(options, env);
  return options;
}

static rocksdb_t *open_database(const char *directory, const char *uri) {
  char *why = NULL;
  rocksdb_t *const db = rocksdb_open(options_over(uri), directory, &why);
  expect_ok(why);
  return db;
}

static void put(rocksdb_writebatch_t *batch, unsigned number, unsigned round) {
  char key[16], value[TEXT];
  const size_t key_len = key_of(number, key);
  rocksdb_writebatch_put(batch, key, key_len, value, value_of(number, round, value));
}

static void expect_record(rocksdb_t *db, unsigned number, unsigned round) {
  char key[16], value[TEXT];
  char *why = NULL;
  size_t found_len = 0;
  const size_t len = value_of(number, round, value);
  rocksdb_readoptions_t *const options = rocksdb_readoptions_create();
  char *const found = rocksdb_get(db, options, key, key_of(number, key), &found_len, &why);
  expect_ok(why);
  const int is_same = found != NULL && found_len == len && memcmp(found, value, len) == 0;
  expect(is_same, "a record is missing or another one");
  rocksdb_free(found);
  rocksdb_readoptions_destroy(options);
}

static void fill(rocksdb_t *db) {
  char *why = NULL;
  rocksdb_writeoptions_t *const writes = rocksdb_writeoptions_create();
  rocksdb_flushoptions_t *const flush = rocksdb_flushoptions_create();
  for (unsigned round = 0; round < 2; round++) {
    for (unsigned at = 0; at < RECORDS; at++) {
      rocksdb_writebatch_t *const batch = rocksdb_writebatch_create();
      put(batch, (unsigned)((unsigned long)at * 7919 % RECORDS), round);
      rocksdb_write(db, writes, batch, &why);
      expect_ok(why);
      rocksdb_writebatch_destroy(batch);
    }
    rocksdb_flush(db, flush, &why);
    expect_ok(why);
    if (round == 0) rocksdb_compact_range(db, NULL, 0, NULL, 0);
  }
  rocksdb_flushoptions_destroy(flush);
  rocksdb_writeoptions_destroy(writes);
}

/* By keys, by an iterator, and several at once. */
static void expect_all(rocksdb_t *db) {
  for (unsigned number = 0; number < RECORDS; number++) expect_record(db, number, 1);
  rocksdb_readoptions_t *const options = rocksdb_readoptions_create();
  rocksdb_readoptions_set_readahead_size(options, 1 << 16);
  rocksdb_iterator_t *const all = rocksdb_create_iterator(db, options);
  unsigned count = 0;
  for (rocksdb_iter_seek_to_first(all); rocksdb_iter_valid(all); rocksdb_iter_next(all)) count++;
  expect(count == RECORDS, "an iterator met another number of records");
  rocksdb_iter_destroy(all);
  enum { MANY = 32 };
  char texts[MANY][16], *values[MANY], *whys[MANY];
  const char *keys[MANY];
  size_t key_lens[MANY], value_lens[MANY];
  for (unsigned at = 0; at < MANY; at++) {
    key_lens[at] = key_of(at * 900, texts[at]);
    keys[at] = texts[at];
  }
  rocksdb_multi_get(db, options, MANY, keys, key_lens, values, value_lens, whys);
  for (unsigned at = 0; at < MANY; at++) {
    char value[TEXT];
    expect_ok(whys[at]);
    const size_t len = value_of(at * 900, 1, value);
    const int is_same = value_lens[at] == len && memcmp(values[at], value, len) == 0;
    expect(is_same, "one of several records is another one");
    rocksdb_free(values[at]);
  }
  rocksdb_readoptions_destroy(options);
}

static void write_until_killed(rocksdb_t *db) {
  char *why = NULL;
  rocksdb_writeoptions_t *const synced = rocksdb_writeoptions_create();
  rocksdb_writeoptions_set_sync(synced, 1);
  unsigned first = 0;
  char key[16];
  size_t len = 0;
  rocksdb_readoptions_t *const reads = rocksdb_readoptions_create();
  /* Goes on where the life before ended. */
  for (;; first += BATCH) {
    char *const found = rocksdb_get(db, reads, key, key_of(first, key), &len, &why);
    expect_ok(why);
    if (found == NULL) break;
    rocksdb_free(found);
  }
  for (;; first += BATCH) {
    rocksdb_writebatch_t *const batch = rocksdb_writebatch_create();
    for (unsigned at = 0; at < BATCH; at++) put(batch, first + at, 7);
    rocksdb_write(db, synced, batch, &why);
    expect_ok(why);
    rocksdb_writebatch_destroy(batch);
    printf("%u\n", first + BATCH);
    fflush(stdout);
  }
}

int main(int count, char **arguments) {
  expect(count >= 3, "from_c_test fill|expect|write|verify|destroy DIR [URI [N]]");
  const char *const what = arguments[1];
  const char *const uri = count > 3 ? arguments[3] : NULL;
  if (strcmp(what, "destroy") == 0) {
    char *why = NULL;
    rocksdb_destroy_db(options_over(uri), arguments[2], &why);
    expect_ok(why);
    return 0;
  }
  rocksdb_t *const db = open_database(arguments[2], uri);
  if (strcmp(what, "fill") == 0) fill(db);
  if (strcmp(what, "fill") == 0 || strcmp(what, "expect") == 0) {
    expect_all(db);
    printf("from_c_test: %d records\n", RECORDS);
  } else if (strcmp(what, "write") == 0) {
    write_until_killed(db);
  } else {
    expect(strcmp(what, "verify") == 0 && count > 4, "say verify DIR URI N");
    const unsigned records = (unsigned)strtoul(arguments[4], NULL, 10);
    for (unsigned number = 0; number < records; number++) expect_record(db, number, 7);
  }
  rocksdb_close(db);
  return 0;
}
