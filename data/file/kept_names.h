// kept_names.h: names that belong to other tools or the file system, not to data.
#ifndef DT_DATA_KEPT_NAMES_H
#define DT_DATA_KEPT_NAMES_H

#include <stdbool.h>
#include <string.h>

// Of a member or a key: "__x__/…" and "__x__.…", what WebDataset's tools keep for themselves.
static inline bool dt_name_is_private(const char *path) {
    size_t n = strcspn(path, "/");
    if (!path[n]) n = strcspn(path, ".");
    return n >= 4 && memcmp(path, "__", 2) == 0 && memcmp(path + n - 2, "__", 2) == 0;
}

// "lost+found" at the root of a disk, which only root may enter. It holds no data, so a folder is fine even if this
// one cannot be listed.
static inline bool dt_name_is_lost_found(const char *name) {
    return strcmp(name, "lost+found") == 0;
}

#endif
