// ckpt_dir.c: which checkpoints a directory holds, and which is the best.
//
// The directories themselves are the list: no index file could disagree with them. A checkpoint is step-N;
// names that begin with a dot are being written or removed. Two places tell the best one: a flag in its
// manifest, which appears in the same rename as the checkpoint, and best.json, written after that for people
// and for a checkpoint that becomes the best later. A run's best only moves forward, so the newest of both that
// is intact is the best.
#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"
#include "ckpt_internal.h"
#include "store/s3.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BEST_BYTES = 4096 };

char *dt_ckpt_step_path(const char *dir, int64_t step) {
    return dt_xprintf("%s/step-%08" PRId64, dir, step);
}

static int ckpt_dir_by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

dt_status dt_ckpt_not_a_link(const char *path, dt_status code) {
    if (!dt_io_is_link(path)) return DT_OK;
    return dt_fail(code,
                   "%s: a symbolic link: inside a run none is followed; put a folder here, and "
                   "where another disk is meant, set run.dir",
                   path);
}

dt_status dt_ckpt_steps(const char *dir, int64_t **steps, int *n) {
    char **names;
    size_t n_names;
    *steps = NULL;
    *n = 0;
    if (dt_s3_is_url(dir)) return dt_ckpt_mirror_steps(dir, steps, n);
    DT_TRY(dt_ckpt_not_a_link(dir, DT_E_CKPT));
    if (!dt_io_exists(dir)) return DT_OK;
    DT_TRY(dt_io_list_dir(&names, &n_names, dir, DT_E_CKPT));
    *steps = dt_ckpt_steps_of_names(names, n_names, n);
    dt_io_free_list(names, n_names);
    return DT_OK;
}

int64_t *dt_ckpt_steps_of_names(char *const *names, size_t n_names, int *n) {
    int64_t *steps = dt_xcalloc(n_names + 1, sizeof *steps);
    *n = 0;
    for (size_t i = 0; i < n_names; i++)
        if (dt_ckpt_step_of_name(names[i], &steps[*n])) (*n)++;
    qsort(steps, (size_t)*n, sizeof *steps, ckpt_dir_by_value);
    return steps;
}

static int64_t read_best_file(const char *dir, dt_status *st) {
    char *path = dt_xprintf("%s/best.json", dir), *text = NULL;
    size_t n_bytes;
    json_t *root = NULL;
    *st = dt_ckpt_read_text(&text, &n_bytes, path, MAX_BEST_BYTES);
    if (*st == DT_OK) root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *step = json_object_get(root, "step");
    int64_t value = json_is_integer(step) ? json_integer_value(step) : -1;
    json_decref(root);
    free(text);
    free(path);
    return value;
}

dt_status dt_ckpt_best_step(const char *dir, const int64_t *steps, int n, dt_ckpt_depth depth, dt_ckpt_usable *usable,
                            bool say, int64_t *best) {
    dt_status st;
    const int64_t named = read_best_file(dir, &st);
    bool there = named < 0;
    *best = -1;
    for (int i = n - 1; *best < 0 && i >= 0 && st != DT_E_STORAGE; i--) {
        char *path = dt_ckpt_step_path(dir, steps[i]);
        bool was_best = steps[i] == named; // or its manifest says so
        there |= was_best;
        st = dt_ckpt_verify(path, depth, &was_best);
        if (st == DT_OK && was_best && usable) st = usable(path, steps[i]);
        if (st == DT_OK)
            *best = was_best ? steps[i] : -1;
        else if (say && st != DT_E_STORAGE && was_best && dt_io_exists(path)) // else a running training has removed it
            dt_warn("the best checkpoint, of step %" PRId64 ", is skipped: %s", steps[i], dt_error_message());
        free(path);
    }
    if (st == DT_E_STORAGE) return st;
    char *path = dt_ckpt_step_path(dir, named);
    if (say && !there && !dt_io_exists(path)) // else it is newer than the list
        dt_warn("the best checkpoint, of step %" PRId64 ", is gone from %s", named, dir);
    free(path);
    return DT_OK;
}

dt_status dt_ckpt_best_write(const char *dir, int64_t step) {
    char text[64], *path = dt_xprintf("%s/best.json", dir);
    int n = snprintf(text, sizeof text, "{\"step\":%" PRId64 "}\n", step);
    dt_status st = dt_io_write_file(path, text, (size_t)n);
    free(path);
    return st;
}
