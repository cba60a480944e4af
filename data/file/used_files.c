// used_files.c: see used_files.h. Who uses a file touches it.
#include "used_files.h"

#include "base/arena.h"
#include "base/io.h"

#include <stdlib.h>
#include <sys/stat.h>

static int compare_used(const void *pa, const void *pb) {
    const dt_used_file *a = pa, *b = pb;
    if (a->used.tv_sec != b->used.tv_sec) return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    return (a->used.tv_nsec > b->used.tv_nsec) - (a->used.tv_nsec < b->used.tv_nsec);
}

dt_status dt_used_files_list(dt_used_file **out, size_t *n, const char *folder) {
    char **names;
    size_t n_names;
    *out = NULL;
    *n = 0;
    DT_TRY(dt_io_list_dir(&names, &n_names, folder, DT_E_STORAGE));
    for (size_t i = 0; i < n_names; i++) {
        char *path = dt_xprintf("%s/%s", folder, names[i]);
        struct stat s;
        if (lstat(path, &s) != 0 || !S_ISREG(s.st_mode)) {
            free(path);
            continue;
        }
        *out = dt_xgrow(*out, *n, sizeof **out);
        (*out)[(*n)++] = (dt_used_file){path, (uint64_t)s.st_size, s.st_mtim};
    }
    dt_io_free_list(names, n_names);
    if (*n > 0) qsort(*out, *n, sizeof **out, compare_used);
    return DT_OK;
}

void dt_used_files_free(dt_used_file *files, size_t n) {
    for (size_t i = 0; i < n; i++) free(files[i].path);
    free(files);
}
