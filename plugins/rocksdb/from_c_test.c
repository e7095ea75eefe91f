/* A program in C over tiers, which links the host alone: the shim brings the plugin.
 *
 *   from_c_test fill DIR URI         writes, compacts and reads records
 *   from_c_test expect DIR [URI]     compares them by direct reads; without a URI by the host alone
 *   from_c_test calls DIR URI        checkpoint, backup, ingestion; ends with nothing left
 *   from_c_test moves DIR URI        files move while they are open: reads follow, old ones close
 *   from_c_test extents DIR URI      records read again come from parts on a faster tier
 *   from_c_test room DIR URI FAST    the devices of both tiers fill up, and have room again
 *   from_c_test write DIR URI        synced batches until it is killed; prints their records
 *   from_c_test verify DIR URI N     the first N of those are there
 *
 * Exit status 0 when all passed. `cargo xtask plugins test` runs it with Speedb.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rocksdb/c.h"

enum { RECORDS = 30000, INGESTED = 500, BATCH = 50, TEXT = 400, PATH = 4096, TENTH_US = 100000 };

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

static void put_one(rocksdb_t *db, unsigned number, unsigned round) {
  char *why = NULL;
  rocksdb_writeoptions_t *const writes = rocksdb_writeoptions_create();
  rocksdb_writebatch_t *const batch = rocksdb_writebatch_create();
  put(batch, number, round);
  rocksdb_write(db, writes, batch, &why);
  expect_ok(why);
  rocksdb_writebatch_destroy(batch);
  rocksdb_writeoptions_destroy(writes);
}

static void flush(rocksdb_t *db) {
  char *why = NULL;
  rocksdb_flushoptions_t *const options = rocksdb_flushoptions_create();
  rocksdb_flush(db, options, &why);
  expect_ok(why);
  rocksdb_flushoptions_destroy(options);
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

/* Ends with tables of the deepest level, and with one of level 0. */
static void fill(rocksdb_t *db) {
  for (unsigned round = 0; round < 2; round++) {
    for (unsigned at = 0; at < RECORDS; at++) {
      put_one(db, (unsigned)((unsigned long)at * 7919 % RECORDS), round);
    }
    flush(db);
    rocksdb_compact_range(db, NULL, 0, NULL, 0);
  }
  for (unsigned number = 0; number < RECORDS / 100; number++) put_one(db, number, 1);
  flush(db);
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

static void close_database(rocksdb_t *db, rocksdb_column_family_handle_t *records) {
  rocksdb_column_family_handle_destroy(records);
  rocksdb_close(db);
}

static void destroy(const char *directory, const char *uri) {
  char *why = NULL;
  rocksdb_destroy_db(options_over(uri, 0), directory, &why);
  expect_ok(why);
}

/* A copy has all records, and what it changes is its own. */
static void try_copy(const char *directory, const char *uri) {
  rocksdb_column_family_handle_t *records = NULL;
  rocksdb_t *const copy = open_database(directory, uri, 0, &records);
  expect_all(copy, records);
  put_one(copy, 0, 9);
  rocksdb_compact_range(copy, NULL, 0, NULL, 0);
  close_database(copy, records);
  destroy(directory, uri);
}

static void try_checkpoint(rocksdb_t *db, const char *directory, const char *uri) {
  char *why = NULL, path[PATH];
  snprintf(path, sizeof(path), "%s-checkpoint", directory);
  rocksdb_checkpoint_t *const checkpoint = rocksdb_checkpoint_object_create(db, &why);
  expect_ok(why);
  rocksdb_checkpoint_create(checkpoint, path, 0, &why);
  expect_ok(why);
  rocksdb_checkpoint_object_destroy(checkpoint);
  try_copy(path, uri);
}

static void try_backup(rocksdb_t *db, const char *directory, const char *uri) {
  char *why = NULL, backups[PATH], restored[PATH];
  snprintf(backups, sizeof(backups), "%s-backups", directory);
  snprintf(restored, sizeof(restored), "%s-restored", directory);
  rocksdb_backup_engine_t *const engine =
      rocksdb_backup_engine_open(options_over(uri, 0), backups, &why);
  expect_ok(why);
  rocksdb_backup_engine_create_new_backup_flush(engine, db, 1, &why);
  expect_ok(why);
  rocksdb_backup_engine_verify_backup(engine, 1, &why);
  expect_ok(why);
  rocksdb_restore_options_t *const options = rocksdb_restore_options_create();
  rocksdb_backup_engine_restore_db_from_latest_backup(engine, restored, restored, options, &why);
  expect_ok(why);
  rocksdb_restore_options_destroy(options);
  rocksdb_backup_engine_purge_old_backups(engine, 0, &why);
  expect_ok(why);
  rocksdb_backup_engine_close(engine);
  try_copy(restored, uri);
}

/* A table that another writer made, in a directory of its own. */
static void ingest(rocksdb_t *db, const char *table, const char *uri, unsigned first, int moves) {
  char *why = NULL;
  rocksdb_envoptions_t *const files = rocksdb_envoptions_create();
  rocksdb_sstfilewriter_t *const writer =
      rocksdb_sstfilewriter_create(files, options_over(uri, 0));
  rocksdb_sstfilewriter_open(writer, table, &why);
  expect_ok(why);
  for (unsigned number = first; number < first + INGESTED; number++) {
    char key[16], value[TEXT];
    const size_t key_len = key_of(number, key);
    rocksdb_sstfilewriter_put(writer, key, key_len, value, value_of(number, 1, value), &why);
    expect_ok(why);
  }
  rocksdb_sstfilewriter_finish(writer, &why);
  expect_ok(why);
  rocksdb_sstfilewriter_destroy(writer);
  rocksdb_envoptions_destroy(files);
  rocksdb_ingestexternalfileoptions_t *const how = rocksdb_ingestexternalfileoptions_create();
  rocksdb_ingestexternalfileoptions_set_move_files(how, (unsigned char)moves);
  rocksdb_ingest_external_file(db, &table, 1, how, &why);
  expect_ok(why);
  rocksdb_ingestexternalfileoptions_destroy(how);
}

static void try_ingestion(rocksdb_t *db, const char *directory, const char *uri) {
  char others[PATH - 16], table[PATH];
  snprintf(others, sizeof(others), "%s-ingested", directory);
  expect(mkdir(others, 0777) == 0, "a directory for other tables");
  for (int moves = 0; moves < 2; moves++) {
    snprintf(table, sizeof(table), "%s/%06d.sst", others, moves + 1);
    const unsigned first = RECORDS + (unsigned)moves * INGESTED;
    ingest(db, table, uri, first, moves);
    for (unsigned at = 0; at < INGESTED; at++) expect_record(db, first + at, 1);
  }
  destroy(others, uri);
  for (unsigned at = 0; at < 2 * INGESTED; at++) expect_record(db, RECORDS + at, 1);
}

static void calls(const char *directory, const char *uri) {
  rocksdb_column_family_handle_t *records = NULL;
  rocksdb_t *db = open_database(directory, uri, 0, &records);
  fill(db);
  try_checkpoint(db, directory, uri);
  expect_all(db, records);
  try_backup(db, directory, uri);
  expect_all(db, records);
  try_ingestion(db, directory, uri);
  rocksdb_compact_range(db, NULL, 0, NULL, 0);
  close_database(db, records);
  db = open_database(directory, uri, 0, &records);
  for (unsigned number = 0; number < RECORDS + 2 * INGESTED; number++) expect_record(db, number, 1);
  close_database(db, records);
  destroy(directory, uri);
  puts("from_c_test: checkpoint and backup: opened, changed, destroyed; ingestion by copying and by "
       "moving; reopened, destroyed");
}

/* A figure of what happened, -1 where there is none. */
static int figure_of(const char *uri, const char *name) {
  char *(*stats_of)(const char *) = NULL;
  *(void **)&stats_of = dlsym(RTLD_DEFAULT, "thermocline_rocksdb_stats");
  expect(stats_of != NULL, "the plugin has no figures");
  char quoted[64];
  snprintf(quoted, sizeof(quoted), "\"%s\":", name);
  char *const json = stats_of(uri);
  const char *const found = json != NULL ? strstr(json, quoted) : NULL;
  const int figure = found != NULL ? atoi(found + strlen(quoted)) : -1;
  rocksdb_free(json);
  return figure;
}

/* Files beside `directory` that are open here and have no name any more. */
static int deleted_files_open(const char *directory) {
  int count = 0;
  const size_t parent_len = (size_t)(strrchr(directory, '/') - directory);
  DIR *const open = opendir("/proc/self/fd");
  expect(open != NULL, "/proc/self/fd");
  for (const struct dirent *entry = readdir(open); entry != NULL; entry = readdir(open)) {
    char target[PATH] = "";
    const ssize_t len = readlinkat(dirfd(open), entry->d_name, target, sizeof(target) - 1);
    const int is_ours = len > 0 && strncmp(target, directory, parent_len) == 0;
    if (is_ours && strstr(target, "(deleted)") != NULL) count++;
  }
  closedir(open);
  return count;
}

/* Records in order make tables that go down level by level without being written again. */
static void moves(const char *directory, const char *uri) {
  rocksdb_column_family_handle_t *records = NULL;
  rocksdb_t *const db = open_database(directory, uri, 0, &records);
  for (unsigned number = 0; number < RECORDS; number++) {
    put_one(db, number, 1);
    /* Every table is open before it moves. */
    for (unsigned at = 0; at < 1000 && number % 1000 == 999; at++) {
      expect_record(db, number - at, 1);
    }
  }
  flush(db);
  /* The first moves, and then until there were none for a second; a minute at most. */
  int moved = 0, same = 0;
  for (int round = 0; round < 600 && same < 10; round++) {
    usleep(TENTH_US);
    const int now = figure_of(uri, "moved_by_level");
    same = now > 0 && now == moved ? same + 1 : 0;
    moved = now;
  }
  expect(moved > 0, "no file moved");
  /* Tables that are not read follow before the next file is made. */
  put_one(db, 0, 1);
  flush(db);
  expect(deleted_files_open(directory) == 0, "files that moved are still open");
  expect_all(db, records);
  close_database(db, records);
  printf("from_c_test: %d files moved while they were open; readers followed\n", moved);
}

/* All tables are at home, and read by several requests at once; again by direct reads, which begin
 * with what the first ones left. */
static void extents(const char *directory, const char *uri) {
  for (int is_direct = 0; is_direct < 2; is_direct++) {
    rocksdb_column_family_handle_t *records = NULL;
    rocksdb_t *const db = open_database(directory, uri, is_direct, &records);
    if (!is_direct) {
      fill(db);
      rocksdb_compact_range(db, NULL, 0, NULL, 0);
    }
    rocksdb_readoptions_t *const options = rocksdb_readoptions_create();
    /* A file's extents count once it was left alone for a second; a minute at most. */
    int hits = 0;
    for (int round = 0; round < 600 && hits < 1000; round++) {
      usleep(TENTH_US);
      for (unsigned first = 0; first < 8; first++) expect_several(db, records, options, first);
      hits = figure_of(uri, "hits");
    }
    expect(hits >= 1000, "hits of extents");
    expect(!is_direct || figure_of(uri, "adopted") > 0, "extents of the opening before");
    rocksdb_readoptions_destroy(options);
    expect_all(db, records);
    close_database(db, records);
    printf("from_c_test: %d hits of extents%s\n", hits, is_direct ? ", by direct reads" : "");
  }
  destroy(directory, uri);
}

static void write_ballast(const char *folder, char path[PATH]) {
  static char bytes[6 << 20];
  snprintf(path, PATH, "%s/ballast", folder);
  FILE *const file = fopen(path, "wb");
  expect(file != NULL && fwrite(bytes, sizeof(bytes), 1, file) == 1, path);
  expect(fclose(file) == 0, path);
}

/* Why the record could not be written, which goes back to rocksdb_free. */
static char *try_put(rocksdb_t *db, unsigned number) {
  char key[16], value[TEXT], *why = NULL;
  const size_t key_len = key_of(number, key);
  rocksdb_writeoptions_t *const writes = rocksdb_writeoptions_create();
  rocksdb_put(db, writes, key, key_len, value, value_of(number, 1, value), &why);
  rocksdb_writeoptions_destroy(writes);
  return why;
}

/* What others have on both devices goes when the database found them full. */
static void room(const char *directory, const char *uri, const char *fast) {
  rocksdb_column_family_handle_t *records = NULL;
  rocksdb_t *db = open_database(directory, uri, 0, &records);
  char ballast[2][PATH];
  write_ballast(fast, ballast[0]);
  write_ballast(directory, ballast[1]);
  unsigned number = 0;
  char *why = NULL;
  while (number < 1000000 && why == NULL) {
    why = try_put(db, number);
    if (why == NULL) number++;
  }
  expect(why != NULL && strstr(why, "No space left") != NULL, "full devices were not told");
  for (int at = 0; at < 2; at++) unlink(ballast[at]);
  /* The host looks for room every five seconds; a minute at most. */
  for (int round = 0; round < 600 && why != NULL; round++) {
    rocksdb_free(why);
    usleep(TENTH_US);
    why = try_put(db, number);
  }
  expect_ok(why);
  flush(db);
  for (unsigned at = 0; at <= number; at++) expect_record(db, at, 1);
  close_database(db, records);
  db = open_database(directory, uri, 0, &records);
  for (unsigned at = 0; at <= number; at++) expect_record(db, at, 1);
  close_database(db, records);
  printf("from_c_test: full after %u records; went on by itself once there was room\n", number);
}

/* What the program does with records that it opens a database for. */
static void with_database(const char *what, const char *directory, const char *uri,
                          const char *limit) {
  const int is_compared = strcmp(what, "expect") == 0;
  rocksdb_column_family_handle_t *records = NULL;
  rocksdb_t *const db = open_database(directory, uri, is_compared, &records);
  if (strcmp(what, "fill") == 0) fill(db);
  if (strcmp(what, "fill") == 0 || is_compared) {
    expect_all(db, records);
    printf("from_c_test: %d records\n", RECORDS);
  } else if (strcmp(what, "write") == 0) {
    write_until_killed(db);
  } else {
    expect(strcmp(what, "verify") == 0 && limit != NULL, "say verify DIR URI N");
    const unsigned end = (unsigned)strtoul(limit, NULL, 10);
    for (unsigned number = 0; number < end; number++) expect_record(db, number, 7);
  }
  close_database(db, records);
}

int main(int count, char **arguments) {
  expect(count >= 3, "from_c_test fill|expect|calls|moves|extents|room|write|verify DIR [URI [..]]");
  const char *const what = arguments[1], *const directory = arguments[2];
  const char *const uri = count > 3 ? arguments[3] : NULL;
  const char *const more = count > 4 ? arguments[4] : NULL;
  if (strcmp(what, "calls") == 0) {
    calls(directory, uri);
  } else if (strcmp(what, "moves") == 0) {
    moves(directory, uri);
  } else if (strcmp(what, "extents") == 0) {
    extents(directory, uri);
  } else if (strcmp(what, "room") == 0 && more != NULL) {
    room(directory, uri, more);
  } else {
    with_database(what, directory, uri, more);
  }
  return 0;
}
