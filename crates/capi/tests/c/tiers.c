#include <stdio.h>
#include <thermocline_tiers.h>
#include <unistd.h>

static int fail(char *why) { fprintf(stderr, "%s\n", why); thermocline_free(why); return 1; }

int main(void) {
    const thermocline_new_file flushed = {sizeof flushed, THERMOCLINE_HOLDS_TABLE, 0,
                                          THERMOCLINE_ORIGIN_FLUSH, THERMOCLINE_HEAT_NOT_SAID};
    const char *uri = "thermocline://?tier=/mnt/fast:1GiB&tier=home:10GiB";
    const char *path = "/mnt/slow/000012.sst";
    char *why = NULL, *place = NULL, found[32] = "";
    thermocline_tiers *tiers = NULL;
    thermocline_file *file = NULL;
    if (thermocline_tiers_open(uri, &tiers, &why)) return fail(why);
    if (thermocline_tiers_create_file(tiers, path, &flushed, &file, &why)) return fail(why);

    if (thermocline_file_place(file, &place, &why)) return fail(why);
    FILE *table = fopen(place, "wb");
    thermocline_free(place);
    if (table == NULL || fputs("bytes of the host", table) < 0) return perror(path), 1;
    if (fflush(table) || fsync(fileno(table)) || fclose(table)) return perror(path), 1;
    if (thermocline_file_synced(file, &why)) return fail(why);
    thermocline_file_close(file);

    table = fopen(path, "rb");
    if (table == NULL || fgets(found, sizeof found, table) == NULL) return perror(path), 1;
    printf("%s\n", found);
    fclose(table);
    return thermocline_tiers_close(tiers, &why) ? fail(why) : 0;
}
