/* Calls every function of thermocline_tiers.h, with what it is for and with what it must refuse.
 * Takes a directory that is not there; the library and the headers come from the tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <thermocline_tiers.h>
#include <unistd.h>

#include "checks.h"

static char root[4096], text[8192];

/* A path below the directory of this run. */
static const char *at(const char *name) {
    static char paths[4][8192];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static const char *uri_of(const char *settings) {
    snprintf(text, sizeof text, "thermocline://?tier=%s/fast:1GiB&tier=home:1GiB%s", root, settings);
    return text;
}

static char *place_of(thermocline_file *file) {
    char *place = NULL;
    OK(thermocline_file_place(file, &place, &why));
    return place;
}

static void write_file(const char *path, const char *content) {
    FILE *out = fopen(path, "w");
    CHECK(out != NULL && fputs(content, out) >= 0);
    if (out) fclose(out);
}

static int holds(const char *path, const char *content) {
    char found[64] = "";
    FILE *in = fopen(path, "r");
    size_t len = in ? fread(found, 1, sizeof found - 1, in) : 0;
    if (in) fclose(in);
    return in && len == strlen(content) && memcmp(found, content, len) == 0;
}

static thermocline_new_file table(int level) {
    thermocline_new_file file = {sizeof file, THERMOCLINE_HOLDS_BY_NAME, level,
                                 THERMOCLINE_ORIGIN_COMPACTION, THERMOCLINE_HEAT_NOT_SAID};
    return file;
}

/* Makes a table of a level, with its name as its bytes. */
static thermocline_file *put(thermocline_tiers *tiers, const char *name, int level) {
    thermocline_new_file new_file = table(level);
    thermocline_file *file = NULL;
    OK(thermocline_tiers_create_file(tiers, at(name), &new_file, &file, &why));
    CHECK(file != NULL);
    char *place = place_of(file);
    write_file(place, name);
    thermocline_free(place);
    OK(thermocline_file_synced(file, &why));
    return file;
}

static size_t count_of(thermocline_tiers *tiers, const char *directory) {
    thermocline_entries *entries = NULL;
    OK(thermocline_tiers_list(tiers, at(directory), &entries, &why));
    size_t count = thermocline_entries_count(entries);
    for (size_t i = 0; i < count; i++) {
        thermocline_entry entry = thermocline_entries_get(entries, i);
        CHECK(entry.name != NULL && entry.len > 0);
    }
    CHECK(thermocline_entries_get(entries, count).name == NULL);
    thermocline_entries_close(entries);
    return count;
}

static void openings(void) {
    thermocline_tiers *tiers = (thermocline_tiers *)&tiers;
    INVALID(thermocline_tiers_open(NULL, &tiers, &why));
    CHECK(tiers == NULL);
    INVALID(thermocline_tiers_open("thermocline://?tier=home", &tiers, &why));
    INVALID(thermocline_tiers_open(uri_of(""), NULL, &why));
    INVALID(thermocline_tiers_open(uri_of("&placement=bandwidth"), &tiers, &why));
    OK(thermocline_tiers_close(NULL, &why));
    INVALID(thermocline_tiers_delete(NULL, at("db/1.sst"), &why));
    thermocline_file_close(NULL);
    thermocline_entries_close(NULL);
    CHECK(thermocline_entries_count(NULL) == 0);
}

static void files(thermocline_tiers *tiers) {
    thermocline_file *file = put(tiers, "db/1.sst", 0), *other = NULL;
    char *place = place_of(file), *moved = NULL;
    CHECK(strncmp(place, at("fast"), strlen(at("fast"))) == 0);
    OK(thermocline_file_place_to_read(file, &moved, &why));
    CHECK(strcmp(place, moved) == 0);
    thermocline_free(moved);
    CHECK(holds(at("db/1.sst"), "db/1.sst"));
    OK(thermocline_tiers_open_file(tiers, at("db/1.sst"), &other, &why));
    CHECK(other != NULL);
    thermocline_file_was_read(other);
    thermocline_file_was_read_times(other, 2);
    thermocline_wanted wanted = {1, 1, 1};
    uint64_t epoch = thermocline_file_epoch(other);
    char bytes[8];
    /* None are asked for in the URI. */
    CHECK(!thermocline_file_keeps_extents(other));
    CHECK(thermocline_file_read_cached(other, epoch, 0, bytes, sizeof bytes, &wanted) == -1);
    CHECK(wanted.len == 0);
    thermocline_file_fill(other, epoch, &wanted, bytes, sizeof bytes);
    CHECK(*thermocline_file_epoch_address(other) == epoch);
    size_t unit = thermocline_file_direct_unit(other);
    CHECK(unit >= 512 && (unit & (unit - 1)) == 0);
    /* No tier is emulated. */
    CHECK(!thermocline_file_is_emulated(other));
    CHECK(thermocline_file_book(other, THERMOCLINE_USE_READ, 0, 4096) == 0);
    CHECK(thermocline_file_book(other, -1, 0, 4096) == 0);
    thermocline_file_wait(other, 0);
    INVALID(thermocline_file_continue_elsewhere(other, 4, &why));
    thermocline_file_close(other);
    OK(thermocline_tiers_open_file_to_write(tiers, at("db/1.sst"), &other, &why));
    CHECK(other != NULL);
    thermocline_file_close(other);
    OK(thermocline_tiers_open_file_to_write(tiers, at("db/CURRENT"), &other, &why));
    CHECK(other == NULL);
    ANSWERS(THERMOCLINE_NOT_FOUND, 1,
            thermocline_tiers_open_file_to_write(tiers, at("db/2.sst"), &other, &why));
    INVALID(thermocline_tiers_open_file_to_write(tiers, at("db/1.sst"), NULL, &why));
    OK(thermocline_tiers_open_file(tiers, at("db/CURRENT"), &other, &why));
    CHECK(other == NULL);
    ANSWERS(THERMOCLINE_NOT_FOUND, 1,
            thermocline_tiers_open_file(tiers, at("db/2.sst"), &other, &why));
    OK(thermocline_tiers_create_file(tiers, at("db/CURRENT"), NULL, &other, &why));
    CHECK(other == NULL);
    thermocline_new_file wrong = table(300);
    INVALID(thermocline_tiers_create_file(tiers, at("db/2.sst"), &wrong, &other, &why));
    wrong = table(0);
    wrong.size = 4;
    INVALID(thermocline_tiers_create_file(tiers, at("db/2.sst"), &wrong, &other, &why));
    other = (thermocline_file *)&wrong;
    INVALID(thermocline_tiers_create_file(tiers, NULL, NULL, &other, &why));
    CHECK(other == NULL);
    other = (thermocline_file *)&wrong;
    INVALID(thermocline_tiers_open_file(tiers, NULL, &other, &why));
    CHECK(other == NULL);
    INVALID(thermocline_tiers_create_file(tiers, at("db/2.sst"), NULL, NULL, &why));

    CHECK(thermocline_file_epoch(file) == 0);
    OK(thermocline_file_continue_elsewhere(file, 4, &why));
    CHECK(thermocline_file_epoch(file) == 1);
    CHECK(*thermocline_file_epoch_address(file) == 1);
    moved = place_of(file);
    CHECK(strcmp(place, moved) != 0 && holds(moved, "db/1"));
    thermocline_free(place);
    thermocline_free(moved);
    thermocline_file_close(file);
}

static void names(thermocline_tiers *tiers) {
    mkdir(at("other"), 0777);
    OK(thermocline_tiers_rename(tiers, at("db/1.sst"), at("db/2.sst"), &why));
    OK(thermocline_tiers_link(tiers, at("db/2.sst"), at("other/3.sst"), &why));
    ANSWERS(THERMOCLINE_ALREADY_EXISTS, 1,
            thermocline_tiers_link(tiers, at("db/2.sst"), at("other/3.sst"), &why));
    OK(thermocline_tiers_sync_directory(tiers, at("db"), &why));
    OK(thermocline_tiers_truncate(tiers, at("db/2.sst"), 2, &why));
    CHECK(holds(at("db/2.sst"), "db"));
    CHECK(count_of(tiers, "db") == 1 && count_of(tiers, "other") == 1);
    OK(thermocline_tiers_set_level(tiers, at("db/2.sst"), 3, &why));
    OK(thermocline_tiers_set_level(tiers, at("db/CURRENT"), 3, &why));
    INVALID(thermocline_tiers_set_level(tiers, at("db/2.sst"), -1, &why));
    uint64_t bytes = 0;
    OK(thermocline_tiers_free_space(tiers, at("db"), &bytes, &why));
    CHECK(bytes > 0 && bytes <= 2ull << 30);
    char *json = NULL;
    OK(thermocline_tiers_stats(tiers, &json, &why));
    CHECK(json != NULL && json[0] == '[' && strstr(json, "overflowed\":1") != NULL);
    thermocline_free(json);
    ANSWERS(THERMOCLINE_INVALID, 1, thermocline_tiers_remove_directory(tiers, at("other"), &why));
    OK(thermocline_tiers_delete(tiers, at("other/3.sst"), &why));
    ANSWERS(THERMOCLINE_NOT_FOUND, 1, thermocline_tiers_delete(tiers, at("other/3.sst"), &why));
    OK(thermocline_tiers_remove_directory(tiers, at("other"), &why));
    CHECK(access(at("other"), F_OK) != 0);
}

/* Two users of one directory: the first change takes the lock, a release gives it back. */
static void locks(thermocline_tiers *tiers) {
    thermocline_tiers *second = NULL;
    OK(thermocline_tiers_open(uri_of(""), &second, &why));
    ANSWERS(THERMOCLINE_LOCKED, 1, thermocline_tiers_delete(second, at("db/2.sst"), &why));
    OK(thermocline_tiers_release_directory(tiers, at("db"), &why));
    OK(thermocline_tiers_delete(second, at("db/2.sst"), &why));
    OK(thermocline_tiers_close(second, &why));
}

int main(int argc, char **argv) {
    if (argc != 2 || mkdir(argv[1], 0777) != 0) return 2;
    snprintf(root, sizeof root, "%s", argv[1]);
    mkdir(at("db"), 0777);
    mkdir(at("fast"), 0777);
    openings();
    thermocline_tiers *tiers = NULL;
    OK(thermocline_tiers_open(uri_of("&placement=room"), &tiers, &why));
    files(tiers);
    names(tiers);
    locks(tiers);
    OK(thermocline_tiers_close(tiers, &why));
    if (failures == 0) puts("all calls answered as they must");
    return failures != 0;
}
