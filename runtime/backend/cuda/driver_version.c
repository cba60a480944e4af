// driver_version.c: see driver_version.h. NVML would say it too, and is one more library to load.
#define _GNU_SOURCE // dlinfo
#include "backend/cuda/driver_version.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// "580.65.06", "535.104": digits in two groups or more.
static size_t version_length(const char *text) {
    static const char digits[] = "0123456789";
    size_t n = strspn(text, digits);
    int groups = n > 0;
    while (n && text[n] == '.' && strspn(text + n + 1, digits)) {
        n += 1 + strspn(text + n + 1, digits);
        groups++;
    }
    return groups > 1 ? n : 0;
}

bool dt_cuda_driver_version_of_text(const char *text, char *out, size_t cap) {
    const char *line = strstr(text, "NVRM version");
    out[0] = 0;
    for (const char *c = line ? line : text; *c && *c != '\n';) {
        c += strspn(c, " \t");
        const size_t n = strcspn(c, " \t\n");
        if (n && version_length(c) == n) {
            snprintf(out, cap, "%.*s", (int)n, c);
            return true;
        }
        c += n;
    }
    return false;
}

bool dt_cuda_driver_version_of_path(const char *path, char *out, size_t cap) {
    const char *end = strstr(path, ".so.");
    out[0] = 0;
    if (!end || !version_length(end + 4) || end[4 + version_length(end + 4)]) return false;
    snprintf(out, cap, "%s", end + 4);
    return true;
}

static bool of_library(char *out, size_t cap) {
    char path[PATH_MAX] = "";
    struct link_map *map = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return false;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) || !map || !realpath(map->l_name, path)) path[0] = 0;
    dlclose(library);
    return dt_cuda_driver_version_of_path(path, out, cap);
}

bool dt_cuda_driver_version(const char *proc, char *out, size_t cap) {
    char text[1024];
    out[0] = 0;
    FILE *f = fopen(proc, "r");
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        if (dt_cuda_driver_version_of_text(text, out, cap)) return true;
    }
    return of_library(out, cap);
}
