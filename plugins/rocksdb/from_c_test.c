/* A program in C over tiers, which links the host alone: the shim brings the plugin.
 *
 *   from_c_test fill DIR URI         writes, compacts and reads records
 *   from_c_test expect DIR [URI]     compares them by direct reads; without a URI by the host alone
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

/* Without a block cache each read comes to the files. */
static rocksdb_options_t *options_over(const char *uri, int is_direct) {
  rocksdb_options_t *const options = rocksdb_options_create();
  rocksdb_block_based_table_options_t *const tables = rocksdb_block_based_options_create();
  rocksdb_block_based_options_set_no_block_cache(tables, 1);
  rocksdb_options_set_block_based_table_factory(options, tables);
  rocksdb_block_based_options_destroy(tables);
  rocksdb_options_set_use_direct_reads(options, (unsigned char)is_direct);
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

/* `records` is the column family that all of them are in. */
static rocksdb_t *open_database(const char *directory, const char *uri, int is_direct,
                                rocksdb_column_family_handle_t **records) {
  char *why = NULL;
  const char *const name = "default";
  const rocksdb_options_t *const options = options_over(uri, is_direct);
  rocksdb_t *const db =
      rocksdb_open_column_families(options, directory, 1, &name, &options, records, &why);
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

static void expect_value(const char *found, size_t found_len, unsigned number) {
  char value[TEXT];
  const size_t len = value_of(number, 1, value);
  expect(found_len == len && memcmp(found, value, len) == 0, "a record is another one");
}

/* Blocks of many tables, which the host reads by one call for each table. */
static void expect_several(rocksdb_t *db, rocksdb_column_family_handle_t *records,
                           const rocksdb_readoptions_t *options, unsigned first) {
  enum { MANY = 64 };
  char texts[MANY][16], *whys[MANY];
  const char *keys[MANY];
  size_t key_lens[MANY];
  rocksdb_pinnableslice_t *values[MANY];
  const unsigned apart = (RECORDS - 1 - first) / MANY;
  for (unsigned at = 0; at < MANY; at++) {
    key_lens[at] = key_of(first + at * apart, texts[at]);
    keys[at] = texts[at];
  }
  rocksdb_batched_multi_get_cf(db, options, records, MANY, keys, key_lens, values, whys, 1);
  for (unsigned at = 0; at < MANY; at++) {
    expect_ok(whys[at]);
    expect(values[at] != NULL, "one of several records is missing");
    size_t len = 0;
    const char *const found = rocksdb_pinnableslice_value(values[at], &len);
    expect_value(found, len, first + at * apart);
    rocksdb_pinnableslice_destroy(values[at]);
  }
}

/* By keys, by an iterator, and several at once. */
static void expect_all(rocksdb_t *db, rocksdb_column_family_handle_t *records) {
  for (unsigned number = 0; number < RECORDS; number++) expect_record(db, number, 1);
  rocksdb_readoptions_t *const options = rocksdb_readoptions_create();
  for (unsigned first = 0; first < 200; first++) expect_several(db, records, options, first);
  rocksdb_readoptions_set_readahead_size(options, 1 << 16);
  rocksdb_iterator_t *const all = rocksdb_create_iterator(db, options);
  unsigned count = 0;
  for (rocksdb_iter_seek_to_first(all); rocksdb_iter_valid(all); rocksdb_iter_next(all)) {
    size_t len = 0;
    const char *const found = rocksdb_iter_value(all, &len);
    expect_value(found, len, count++);
  }
  char *why = NULL;
  rocksdb_iter_get_error(all, &why);
  expect_ok(why);
  expect(count == RECORDS, "an iterator met another number of records");
  rocksdb_iter_destroy(all);
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
    rocksdb_destroy_db(options_over(uri, 0), arguments[2], &why);
    expect_ok(why);
    return 0;
  }
  const int is_compared = strcmp(what, "expect") == 0;
  rocksdb_column_family_handle_t *records = NULL;
  rocksdb_t *const db = open_database(arguments[2], uri, is_compared, &records);
  if (strcmp(what, "fill") == 0) fill(db);
  if (strcmp(what, "fill") == 0 || is_compared) {
    expect_all(db, records);
    printf("from_c_test: %d records\n", RECORDS);
  } else if (strcmp(what, "write") == 0) {
    write_until_killed(db);
  } else {
    expect(strcmp(what, "verify") == 0 && count > 4, "say verify DIR URI N");
    const unsigned records = (unsigned)strtoul(arguments[4], NULL, 10);
    for (unsigned number = 0; number < records; number++) expect_record(db, number, 7);
  }
  rocksdb_column_family_handle_destroy(records);
  rocksdb_close(db);
  return 0;
}
