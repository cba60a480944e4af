// neighbour.c: whose a catalog is.
//
// A catalog's name is what is before the number in its set's: a.tar, a-%03d.tar and a_{0..3}.tar all come to
// a.catalog.sqlite. A pack that took a name's being free for granted would replace another set's catalog, with or
// without --overwrite, which speaks of OUT. So it is asked:
//
//   what the catalog names   data that is there and is no file of ours: another set's, never replaced
//   what is under way        *.partial/publish of another pack names the catalog: its files come to
//                            their places one by one, the catalog before the data, so for a moment, or since a
//                            kill, a catalog is there without any data
//   neither                  what it names is gone: nobody's. It is replaced, and that is said, as a data
//                            file may also be on a disk that is not mounted
//
// It is asked twice: before the work, and once more when this pack's own list is on the disk. Of two packs that
// end at the same time at least one then sees the other's list.
//
// Rejected: catalogs with the whole pattern in their names. Readers find a catalog from a data file's
// name alone (dt_catalog_db_find), and a set keeps its catalog when shards are added.
#include "neighbour.h"

#include "data/catalog/catalog_db.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static const char PARTIAL[] = ".partial";

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool dt_neighbour_is_named(const char *list, size_t n_list, const char *name) {
    for (size_t at = 0; at < n_list; at += strlen(list + at) + 1)
        if (strcmp(list + at, name) == 0) return true;
    return false;
}

static dt_status check_publisher(const dt_plan *p, const char *partial) {
    char *path = dt_xprintf("%s/%s/publish", p->folder, partial), *list = NULL;
    size_t n = 0;
    dt_status st = DT_OK;
    if (dt_io_exists(path)) st = dt_io_read_file(&list, &n, path, 0, DT_E_STORAGE);
    if (st == DT_OK && dt_neighbour_is_named(list, n, base_of(p->catalog)))
        st = dt_fail(DT_E_USAGE,
                     "%s: another set's pack is putting its files in place, or was stopped at it "
                     "(%s/%s is there): let it end or run it again, or choose another OUT",
                     p->catalog, p->folder, partial);
    free(list);
    free(path);
    return st;
}

static dt_status check_publishers(const dt_plan *p) {
    char **names;
    size_t n;
    if (!dt_io_is_dir(p->folder)) return DT_OK;
    DT_TRY(dt_io_list_dir(&names, &n, p->folder, DT_E_STORAGE));
    dt_status st = DT_OK;
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        size_t length = strlen(names[i]), tail = sizeof PARTIAL - 1;
        if (length > tail && strcmp(names[i] + length - tail, PARTIAL) == 0 &&
            strcmp(names[i], base_of(p->partial)) != 0)
            st = check_publisher(p, names[i]);
    }
    dt_io_free_list(names, n);
    return st;
}

dt_status dt_neighbour_check(const dt_plan *p, const char *list, size_t n_list, bool *unreadable) {
    char **names;
    size_t n, n_there;
    *unreadable = false;
    if (p->format->one_file) return DT_OK; // a folder of its own
    DT_TRY(check_publishers(p));
    if (!dt_io_exists(p->catalog)) return DT_OK;
    if (dt_catalog_db_list_data(p->catalog, &names, &n, &n_there) != DT_OK) {
        *unreadable = true;
        dt_error_clear();
        return DT_OK;
    }
    dt_status st = DT_OK;
    for (size_t i = 0; i < n_there && st == DT_OK; i++)
        if (!dt_plan_belongs(p, names[i]) && !dt_neighbour_is_named(list, n_list, names[i]))
            st = dt_fail(DT_E_USAGE,
                         "%s is the catalog of another set, to which %s belongs, and %s would "
                         "replace it: choose another OUT, or remove that set first",
                         p->catalog, names[i], p->out);
    dt_io_free_list(names, n);
    return st;
}

void dt_neighbour_say_replaced(const dt_plan *p) {
    char **names;
    size_t n, n_there;
    if (!dt_io_exists(p->catalog)) return;
    if (dt_catalog_db_list_data(p->catalog, &names, &n, &n_there) != DT_OK) {
        dt_warn("%s; it is replaced", dt_error_message());
        dt_error_clear();
        return;
    }
    if (n > 0 && n_there == 0)
        dt_warn("%s is replaced: of the %zu data files that it names, the first %s, none is there",
                p->catalog, n, names[0]);
    dt_io_free_list(names, n);
}
