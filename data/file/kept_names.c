// kept_names.c: names that are not those of data.
#include "kept_names.h"

#include <string.h>

bool dt_name_is_private(const char *name, size_t n) {
    return n >= 4 && memcmp(name, "__", 2) == 0 && memcmp(name + n - 2, "__", 2) == 0;
}

bool dt_name_is_lost_found(const char *name) {
    return strcmp(name, "lost+found") == 0;
}
