// module.c: see module.h. Only two folders that belong to the program are searched, because a module runs
// with the program's rights.
#include "base/module.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

dt_status dt_module_exe_dir(char *dir, size_t cap) {
    const ssize_t n = readlink("/proc/self/exe", dir, cap - 1);
    if (n <= 0) return dt_fail(DT_E_INTERNAL, "/proc/self/exe cannot be read: is /proc mounted?");
    dir[n] = 0;
    char *slash = strrchr(dir, '/');
    if (slash) *slash = 0;
    return DT_OK;
}

dt_status dt_module_find(const char *name, char *path, size_t cap) {
    static const char *const places[] = {"", "/../lib/dtrain"};
    char dir[PATH_MAX];
    path[0] = 0;
    DT_TRY(dt_module_exe_dir(dir, sizeof dir));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, cap, "%s%s/%s", dir, places[i], name);
        if (access(path, R_OK) == 0) return DT_OK;
    }
    path[0] = 0;
    return DT_OK;
}
