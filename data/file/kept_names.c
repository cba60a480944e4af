// kept_names.c: names that belong to other tools or the file system, not to data.
#include "kept_names.h"

#include <string.h>

bool dt_name_is_private(const char *path) {
    size_t n = strcspn(path, "/");
    if (!path[n]) n = strcspn(path, ".");
    return n >= 4 && memcmp(path, "__", 2) == 0 && memcmp(path + n - 2, "__", 2) == 0;
}

bool dt_name_is_lost_found(const char *name) {
    return strcmp(name, "lost+found") == 0;
}
