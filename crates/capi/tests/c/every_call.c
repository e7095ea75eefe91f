/* Calls every function of thermocline.h, with what it is for and with what it must refuse. Takes a
 * directory that is not there; the library and the header come from the tests. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thermocline.h>

#include "checks.h"

static char home[4096], copy[4096], settings[8192];

/* The database has `value` under `key`. */
static int has(thermocline_db *db, const char *key, const char *value) {
    char *found = NULL, *why = NULL;
    size_t len = 0;
    int same = thermocline_db_get(db, key, strlen(key), &found, &len, &why) == THERMOCLINE_OK
               && len == strlen(value) && memcmp(found, value, len + 1) == 0;
    thermocline_free(found);
    thermocline_free(why);
    return same;
}

static void put(thermocline_db *db, const char *key, const char *value) {
    OK(thermocline_db_put(db, key, strlen(key), value, strlen(value), &why));
}

/* The keys of a scan, which it closes, each with a space behind. */
static const char *keys_of(thermocline_scan *scan) {
    static char keys[256];
    thermocline_record record;
    size_t len = 0;
    while (thermocline_scan_next(scan, &record, NULL) == THERMOCLINE_OK)
        len += (size_t)snprintf(keys + len, sizeof keys - len, "%.*s ", (int)record.key_len,
                                record.key);
    keys[len] = 0;
    NOT_FOUND(thermocline_scan_next(scan, &record, &why));
    CHECK(record.key == NULL && record.key_len == 0 && record.value == NULL);
    thermocline_scan_close(scan);
    return keys;
}

static thermocline_db *opening(void) {
    thermocline_db *db = (thermocline_db *)home, *second;
    CHECK(thermocline_abi_version() == THERMOCLINE_ABI_VERSION);
    ANSWERS(THERMOCLINE_NOT_FOUND, 1, thermocline_db_open(home, NULL, &db, &why));
    CHECK(db == NULL);
    ANSWERS(THERMOCLINE_NOT_FOUND, 1, thermocline_db_open_read_only(home, NULL, &db, &why));
    INVALID(thermocline_db_open(NULL, settings, &db, &why));
    INVALID(thermocline_db_open(home, settings, NULL, &why));
    INVALID(thermocline_db_open(home, "memory = 7 pounds", &db, &why));
    INVALID(thermocline_db_open(home, "\xff", &db, &why));
    CHECK(thermocline_db_open(home, "\xff", &db, NULL) == THERMOCLINE_INVALID);
    OK(thermocline_db_open(home, settings, &db, &why));
    ANSWERS(THERMOCLINE_LOCKED, 1, thermocline_db_open(home, settings, &second, &why));
    return db;
}

static void records(thermocline_db *db) {
    char *value;
    size_t len;
    put(db, "a", "one");
    CHECK(has(db, "a", "one"));
    OK(thermocline_db_get(db, "a", 1, NULL, &len, &why));
    CHECK(len == 3);
    OK(thermocline_db_get(db, "a", 1, NULL, NULL, &why));
    value = settings, len = 7;
    NOT_FOUND(thermocline_db_get(db, "b", 1, &value, &len, &why));
    CHECK(value == NULL && len == 0);
    CHECK(thermocline_db_get(db, "b", 1, NULL, NULL, NULL) == THERMOCLINE_NOT_FOUND);

    /* No bytes: of a value, and of a key. */
    OK(thermocline_db_put(db, "empty", 5, NULL, 0, &why));
    OK(thermocline_db_get(db, "empty", 5, &value, &len, &why));
    CHECK(value != NULL && len == 0 && value[0] == 0);
    thermocline_free(value);
    OK(thermocline_db_put(db, NULL, 0, "of no key", 9, &why));
    CHECK(has(db, "", "of no key"));
    OK(thermocline_db_delete(db, "", 0, &why));
    NOT_FOUND(thermocline_db_get(db, NULL, 0, NULL, NULL, &why));

    INVALID(thermocline_db_put(db, NULL, 1, "v", 1, &why));
    INVALID(thermocline_db_put(db, "k", 1, NULL, 1, &why));
    INVALID(thermocline_db_put(db, home, 65537, "v", 1, &why));
    INVALID(thermocline_db_put(NULL, "k", 1, "v", 1, &why));
    INVALID(thermocline_db_get(NULL, "k", 1, &value, &len, &why));
    CHECK(value == NULL && len == 0);
    INVALID(thermocline_db_get(db, NULL, 1, NULL, NULL, &why));
    INVALID(thermocline_db_delete(db, NULL, 1, &why));
    INVALID(thermocline_db_delete(NULL, "k", 1, &why));

    OK(thermocline_db_delete(db, "empty", 5, &why));
    OK(thermocline_db_delete(db, "empty", 5, &why));
    NOT_FOUND(thermocline_db_get(db, "empty", 5, NULL, NULL, &why));
}

static void many_records(thermocline_db *db, thermocline_snapshot *snapshot) {
    const void *keys[3] = {"a", "none", ""}, *no_key[1] = {NULL};
    size_t key_lens[3] = {1, 4, 0}, no_key_len[1] = {4};
    char *values[3] = {home, home, home};
    size_t value_lens[3] = {7, 7, 7};
    OK(thermocline_db_multi_get(db, 3, keys, key_lens, values, value_lens, &why));
    CHECK(value_lens[0] == 3 && memcmp(values[0], "one", 4) == 0);
    CHECK(values[1] == NULL && value_lens[1] == 0 && values[2] == NULL);
    thermocline_free(values[0]);
    OK(thermocline_db_multi_get(db, 0, NULL, NULL, NULL, NULL, &why));
    INVALID(thermocline_db_multi_get(db, 3, NULL, key_lens, values, value_lens, &why));
    CHECK(values[0] == NULL && value_lens[0] == 0);
    INVALID(thermocline_db_multi_get(db, 3, keys, NULL, values, value_lens, &why));
    INVALID(thermocline_db_multi_get(db, 3, keys, key_lens, NULL, value_lens, &why));
    INVALID(thermocline_db_multi_get(db, 3, keys, key_lens, values, NULL, &why));
    INVALID(thermocline_db_multi_get(db, 1, no_key, no_key_len, values, value_lens, &why));
    INVALID(thermocline_db_multi_get(NULL, 3, keys, key_lens, values, value_lens, &why));

    OK(thermocline_snapshot_multi_get(snapshot, 3, keys, key_lens, values, value_lens, &why));
    CHECK(value_lens[0] == 3 && values[1] == NULL);
    thermocline_free(values[0]);
    INVALID(thermocline_snapshot_multi_get(NULL, 3, keys, key_lens, values, value_lens, &why));
    INVALID(thermocline_snapshot_multi_get(snapshot, 1, keys, NULL, values, value_lens, &why));
}

static void batches(thermocline_db *db) {
    static char long_key[65537];
    thermocline_batch *batch = thermocline_batch_create();
    thermocline_write_options buffered = {sizeof buffered, THERMOCLINE_DURABILITY_BUFFERED};
    thermocline_write_options synced = {sizeof synced, THERMOCLINE_DURABILITY_SYNC};
    thermocline_write_options unknown = {sizeof unknown, 77}, sizeless = {0, 0};
    struct { thermocline_write_options known; uint64_t later; } newer = {buffered, 0};
    CHECK(batch != NULL);
    OK(thermocline_db_write(db, batch, NULL, &why));
    OK(thermocline_batch_put(batch, "b", 1, "two", 3, &why));
    OK(thermocline_batch_put(batch, "c", 1, "three", 5, &why));
    OK(thermocline_batch_delete(batch, "c", 1, &why));
    NOT_FOUND(thermocline_db_get(db, "b", 1, NULL, NULL, &why));
    OK(thermocline_db_write(db, batch, &buffered, &why));
    CHECK(has(db, "b", "two"));
    NOT_FOUND(thermocline_db_get(db, "c", 1, NULL, NULL, &why));

    /* It is as it was, and can be written again. */
    OK(thermocline_db_delete(db, "b", 1, &why));
    OK(thermocline_db_write(db, batch, &synced, &why));
    CHECK(has(db, "b", "two"));
    newer.known.size = sizeof newer;
    OK(thermocline_db_write(db, batch, &newer.known, &why));
    newer.later = 1;
    INVALID(thermocline_db_write(db, batch, &newer.known, &why));
    INVALID(thermocline_db_write(db, batch, &unknown, &why));
    INVALID(thermocline_db_write(db, batch, &sizeless, &why));
    INVALID(thermocline_db_write(db, NULL, NULL, &why));
    INVALID(thermocline_db_write(NULL, batch, NULL, &why));

    OK(thermocline_batch_clear(batch, &why));
    OK(thermocline_batch_put(batch, "c", 1, "three", 5, &why));
    OK(thermocline_batch_put(batch, NULL, 0, NULL, 0, &why));
    OK(thermocline_batch_delete(batch, NULL, 0, &why));
    INVALID(thermocline_batch_put(batch, NULL, 1, "v", 1, &why));
    INVALID(thermocline_batch_put(batch, "k", 1, NULL, 1, &why));
    INVALID(thermocline_batch_put(NULL, "k", 1, "v", 1, &why));
    INVALID(thermocline_batch_delete(batch, NULL, 1, &why));
    INVALID(thermocline_batch_delete(NULL, "k", 1, &why));
    INVALID(thermocline_batch_clear(NULL, &why));
    OK(thermocline_db_write(db, batch, NULL, &why));
    CHECK(has(db, "c", "three"));

    /* One that refused a write is refused as a whole. */
    INVALID(thermocline_batch_put(batch, long_key, sizeof long_key, "v", 1, &why));
    INVALID(thermocline_batch_delete(batch, "a", 1, &why));
    INVALID(thermocline_db_write(db, batch, NULL, &why));
    CHECK(has(db, "a", "one"));
    OK(thermocline_batch_clear(batch, &why));
    OK(thermocline_db_write(db, batch, NULL, &why));
    thermocline_batch_close(batch);
    thermocline_batch_close(NULL);
}

static void scans(thermocline_db *db) {
    thermocline_scan_options reverse = {sizeof reverse, 1, 2}, sizeless = {0, 0, 0};
    thermocline_record record = {home, 1, home, 1};
    thermocline_scan *scan = thermocline_db_scan(db, NULL, 0, NULL, 0);
    CHECK(strcmp(keys_of(scan), "a b c ") == 0);
    CHECK(strcmp(keys_of(thermocline_db_scan(db, "b", 1, NULL, 0)), "b c ") == 0);
    CHECK(strcmp(keys_of(thermocline_db_scan(db, NULL, 0, "c", 1)), "a b ") == 0);
    CHECK(strcmp(keys_of(thermocline_db_scan(db, "b", 1, "c", 1)), "b ") == 0);
    CHECK(strcmp(keys_of(thermocline_db_scan(db, "c", 1, "b", 1)), "") == 0);
    /* A key of no bytes is a bound, where NULL is none. */
    CHECK(strcmp(keys_of(thermocline_db_scan(db, "", 0, "", 0)), "") == 0);
    scan = thermocline_db_scan_with(db, NULL, 0, NULL, 0, NULL);
    CHECK(strcmp(keys_of(scan), "a b c ") == 0);
    scan = thermocline_db_scan_with(db, NULL, 0, NULL, 0, &reverse);
    CHECK(strcmp(keys_of(scan), "c b ") == 0);

    scan = thermocline_db_scan(db, NULL, 0, NULL, 0);
    OK(thermocline_db_delete(db, "c", 1, &why));
    OK(thermocline_scan_next(scan, &record, &why));
    CHECK(record.value_len == 3 && memcmp(record.value, "one", 3) == 0);
    INVALID(thermocline_scan_next(scan, NULL, &why));
    CHECK(strcmp(keys_of(scan), "b c ") == 0);
    put(db, "c", "three");

    scan = thermocline_db_scan(db, NULL, 1, NULL, 0);
    INVALID(thermocline_scan_next(scan, &record, &why));
    INVALID(thermocline_scan_next(scan, &record, &why));
    thermocline_scan_close(scan);
    scan = thermocline_db_scan_with(db, NULL, 0, NULL, 0, &sizeless);
    INVALID(thermocline_scan_next(scan, &record, &why));
    thermocline_scan_close(scan);
    scan = thermocline_db_scan(NULL, NULL, 0, NULL, 0);
    CHECK(scan != NULL);
    INVALID(thermocline_scan_next(scan, &record, &why));
    CHECK(record.key == NULL && record.value_len == 0);
    thermocline_scan_close(scan);
    INVALID(thermocline_scan_next(NULL, &record, &why));
    thermocline_scan_close(NULL);
}

static void snapshots(thermocline_db *db) {
    thermocline_snapshot *snapshot = NULL;
    thermocline_scan *scan;
    thermocline_record record;
    char *value;
    size_t len;
    OK(thermocline_db_snapshot(db, &snapshot, &why));
    put(db, "a", "later");
    OK(thermocline_snapshot_get(snapshot, "a", 1, &value, &len, &why));
    CHECK(len == 3 && memcmp(value, "one", 4) == 0);
    thermocline_free(value);
    NOT_FOUND(thermocline_snapshot_get(snapshot, "d", 1, &value, &len, &why));
    INVALID(thermocline_snapshot_get(snapshot, NULL, 1, &value, &len, &why));
    INVALID(thermocline_snapshot_get(NULL, "a", 1, &value, &len, &why));
    put(db, "a", "one");
    many_records(db, snapshot);

    put(db, "d", "later");
    scan = thermocline_snapshot_scan(snapshot, NULL, 0, NULL, 0, NULL);
    CHECK(strcmp(keys_of(scan), "a b c ") == 0);
    OK(thermocline_db_delete(db, "d", 1, &why));
    scan = thermocline_snapshot_scan(NULL, NULL, 0, NULL, 0, NULL);
    INVALID(thermocline_scan_next(scan, &record, &why));
    thermocline_scan_close(scan);
    thermocline_snapshot_close(snapshot);
    thermocline_snapshot_close(NULL);
    INVALID(thermocline_db_snapshot(db, NULL, &why));
    INVALID(thermocline_db_snapshot(NULL, &snapshot, &why));
    CHECK(snapshot == NULL);
}

static void upkeep(thermocline_db *db) {
    thermocline_db *of_copy;
    char *json = NULL;
    OK(thermocline_db_sync(db, &why));
    OK(thermocline_db_flush(db, &why));
    OK(thermocline_db_checkpoint(db, copy, &why));
    ANSWERS(THERMOCLINE_ALREADY_EXISTS, 1, thermocline_db_checkpoint(db, copy, &why));
    INVALID(thermocline_db_checkpoint(db, NULL, &why));
    INVALID(thermocline_db_checkpoint(NULL, copy, &why));
    OK(thermocline_db_open_read_only(copy, NULL, &of_copy, &why));
    CHECK(has(of_copy, "b", "two"));
    ANSWERS(THERMOCLINE_READ_ONLY, 1, thermocline_db_put(of_copy, "k", 1, "v", 1, &why));
    OK(thermocline_db_close(of_copy, &why));
    OK(thermocline_db_open_read_only(copy, "memory = \"8 MiB\"", &of_copy, &why));
    OK(thermocline_db_close(of_copy, &why));

    OK(thermocline_db_stats(db, &json, &why));
    CHECK(json != NULL && json[0] == '{' && strstr(json, "\"tiers\"") != NULL);
    thermocline_free(json);
    INVALID(thermocline_db_stats(db, NULL, &why));
    INVALID(thermocline_db_stats(NULL, &json, &why));
    CHECK(json == NULL);
    INVALID(thermocline_db_sync(NULL, &why));
    INVALID(thermocline_db_flush(NULL, &why));
    thermocline_free(NULL);
}

/* Threads share the handle. */
static void *worker(void *argument) {
    thermocline_db *db = argument;
    char key[32];
    int number;
    for (number = 0; number < 50; number++) {
        snprintf(key, sizeof key, "thread-%d", number);
        if (thermocline_db_put(db, key, strlen(key), key, strlen(key), NULL) != THERMOCLINE_OK
            || !has(db, key, key))
            return argument;
    }
    return NULL;
}

static void threads(thermocline_db *db) {
    pthread_t threads[3];
    void *failed;
    size_t at;
    for (at = 0; at < 3; at++) CHECK(pthread_create(&threads[at], NULL, worker, db) == 0);
    for (at = 0; at < 3; at++) {
        CHECK(pthread_join(threads[at], &failed) == 0);
        CHECK(failed == NULL);
    }
}

static void closing(thermocline_db *db) {
    thermocline_scan *scan = thermocline_db_scan(db, "a", 1, "b", 1);
    /* A scan that is left keeps the lock, and is still the caller's. */
    ANSWERS(THERMOCLINE_LOCKED, 1, thermocline_db_close(db, &why));
    CHECK(strcmp(keys_of(scan), "a ") == 0);
    OK(thermocline_db_close(NULL, &why));
    OK(thermocline_db_open(home, NULL, &db, &why));
    CHECK(has(db, "b", "two"));
    CHECK(thermocline_db_close(db, NULL) == THERMOCLINE_OK);
    OK(thermocline_db_open(home, "memory = \"16 MiB\"", &db, &why));
    OK(thermocline_db_close(db, &why));
}

int main(int count, char **arguments) {
    thermocline_db *db;
    if (count != 2) return fprintf(stderr, "usage: every_call DIR\n"), 2;
    snprintf(home, sizeof home, "%s/home", arguments[1]);
    snprintf(copy, sizeof copy, "%s/copy", arguments[1]);
    snprintf(settings, sizeof settings,
             "memory = \"16 MiB\"\ndurability = \"buffered\"\n"
             "[[tiers]]\npath = \"%s/fast\"\ncapacity = \"64 MiB\"\n"
             "[[tiers]]\npath = \"%s/slow\"\ncapacity = \"1 GiB\"\n",
             arguments[1], arguments[1]);
    db = opening();
    if (db == NULL) return fprintf(stderr, "no database to go on with\n"), 1;
    records(db);
    batches(db);
    scans(db);
    snapshots(db);
    upkeep(db);
    threads(db);
    closing(db);
    if (failures == 0) printf("all calls answered as they must\n");
    return failures != 0;
}
