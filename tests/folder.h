// folder.h: an empty folder for the tests of a program or for each of them (folder_make and folder_remove are cmocka's
// fixtures), and paths in it.
#ifndef DT_TESTS_FOLDER_H
#define DT_TESTS_FOLDER_H

#include "base/core.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>

static char folder_path[256];
static dt_arena folder_arena;

static inline int folder_make(void **state) {
    const char *tmp = getenv("TMPDIR");
    snprintf(folder_path, sizeof folder_path, "%s/dtrain-test-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(folder_path));
    dt_arena_init(&folder_arena);
    return 0;
}

static inline int folder_remove(void **state) {
    dt_failpoint_set(NULL);
    must(dt_io_remove_tree(folder_path));
    dt_arena_fini(&folder_arena);
    return 0;
}

// A path in the folder; lives until folder_remove.
__attribute__((format(printf, 1, 2))) static inline const char *in_folder(const char *format, ...) {
    char name[512];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return dt_arena_printf(&folder_arena, "%s/%s", folder_path, name);
}

#endif
