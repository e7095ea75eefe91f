#include <stdio.h>
#include <thermocline.h>

static int fail(char *why) { fprintf(stderr, "%s\n", why); thermocline_free(why); return 1; }

int main(void) {
    const char *settings = "[[tiers]]\npath = \"/mnt/fast/db\"\ncapacity = \"10 GiB\"\n"
                           "[[tiers]]\npath = \"/mnt/slow/db\"\ncapacity = \"200 GiB\"\n";
    char *why = NULL, *value = NULL;
    size_t len = 0;
    thermocline_db *db = NULL;
    if (thermocline_db_open("/mnt/slow/home", settings, &db, &why)) return fail(why);
    if (thermocline_db_put(db, "key", 3, "value", 5, &why)) return fail(why);

    thermocline_status found = thermocline_db_get(db, "key", 3, &value, &len, &why);
    if (found == THERMOCLINE_OK) printf("%.*s\n", (int)len, value);
    else if (found != THERMOCLINE_NOT_FOUND) return fail(why);
    thermocline_free(value);

    thermocline_scan *scan = thermocline_db_scan(db, "k", 1, NULL, 0);
    thermocline_record record;
    while ((found = thermocline_scan_next(scan, &record, &why)) == THERMOCLINE_OK)
        printf("%.*s\n", (int)record.key_len, record.key);
    thermocline_scan_close(scan);
    if (found != THERMOCLINE_NOT_FOUND) return fail(why);
    return thermocline_db_close(db, &why) ? fail(why) : 0;
}
