// ckpt_load.c: finds the checkpoint to continue from, and loads it.
//
// The manifest's own hash and every file's size and hash are checked before a byte is used. "latest" walks
// back through the steps to the first intact one and warns about each damaged one; "best" does so among those
// that were the best when they were saved. The default is the best, or the latest where none is. A number means only that checkpoint. Beside a running training a
// checkpoint may go while it is read: then the search begins anew. Loading checks all names, shapes and types
// before it copies anything, so a checkpoint
// of another model changes nothing.
#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"
#include "ckpt_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dt_status dt_ckpt_check(const dt_ckpt *c, const char *path, int64_t step, dt_ckpt_depth depth) {
    DT_TRY(dt_ckpt_verify(path, depth, NULL));
    return c->usable ? c->usable(path, step) : DT_OK;
}

static dt_status find_latest(const dt_ckpt *c, const int64_t *steps, int n, int64_t *step, char **path) {
    const char *dir = c->dir;
    for (int i = n - 1; i >= 0; i--) {
        *path = dt_ckpt_step_path(dir, steps[i]);
        const dt_status st = dt_ckpt_check(c, *path, steps[i], DT_CKPT_HASHES);
        if (st == DT_OK) {
            *step = steps[i];
            return DT_OK;
        }
        if (st != DT_E_STORAGE && dt_io_exists(*path)) // else a running training has removed it
            dt_warn("checkpoint step %" PRId64 " is skipped: %s", steps[i], dt_error_message());
        free(*path);
        *path = NULL;
        if (st == DT_E_STORAGE) return st; // the machine's fault, not the file's
    }
    if (n == 0) return DT_OK;
    char *why = dt_xstrdup(dt_error_message());
    dt_fail(DT_E_CKPT, "%s: none of %d checkpoints loads (%s); start anew with another run.name, or remove them", dir,
            n, why);
    free(why);
    return DT_E_CKPT;
}

static dt_status no_such_step(const char *dir, const char *which, const int64_t *steps, int n) {
    char there[256] = "none";
    size_t at = 0;
    for (int i = n > 12 ? n - 12 : 0; i < n && at < sizeof there; i++)
        at += (size_t)snprintf(there + at, sizeof there - at, "%s%" PRId64, at ? ", " : "", steps[i]);
    return dt_fail(DT_E_CKPT, "%s: no checkpoint '%s'; there are latest and steps %s", dir, which, there);
}

// `which` is none: the best, if there is one.
static dt_status find_one(const dt_ckpt *c, const char *which, const int64_t *steps, int n, int64_t *step,
                          char **path) {
    char *end;
    const char *dir = c->dir;
    bool found = false;
    const bool best = !which || strcmp(which, "best") == 0;
    int64_t wanted;
    if (best)
        DT_TRY(dt_ckpt_best_step(dir, steps, n, DT_CKPT_HASHES, c->usable, true, &wanted));
    else
        wanted = (int64_t)strtoll(which, &end, 10);
    if (!which && wanted < 0) return find_latest(c, steps, n, step, path);
    if (!best && (end == which || *end))
        return dt_fail(DT_E_USAGE, "checkpoint '%s': expected latest, best or a step number", which);
    for (int i = 0; i < n; i++) found |= steps[i] == wanted;
    if (!found) return no_such_step(dir, which, steps, n);
    char *p = dt_ckpt_step_path(dir, wanted);
    dt_status st = best ? DT_OK : dt_ckpt_check(c, p, wanted, DT_CKPT_HASHES);
    if (st != DT_OK) {
        free(p);
        return dt_fail_context(st, "checkpoint '%s' does not load", which);
    }
    *step = wanted;
    *path = p;
    return DT_OK;
}

// Whether a running training has removed one meanwhile: then there is a newer one.
static bool some_are_gone(const char *dir, const int64_t *steps, int n) {
    bool gone = false;
    for (int i = 0; i < n && !gone; i++) {
        char *path = dt_ckpt_step_path(dir, steps[i]);
        gone = !dt_io_exists(path);
        free(path);
    }
    return gone;
}

dt_status dt_ckpt_find(dt_ckpt *c, const char *which, int64_t *step, char **path) {
    bool again;
    dt_status st;
    do {
        int64_t *steps;
        int n;
        *step = -1;
        *path = NULL;
        DT_TRY(dt_ckpt_steps(c->dir, &steps, &n));
        st = which && strcmp(which, "latest") == 0 ? find_latest(c, steps, n, step, path)
                                                   : find_one(c, which, steps, n, step, path);
        again = st == DT_E_CKPT && some_are_gone(c->dir, steps, n);
        free(steps);
    } while (again);
    return st;
}

dt_status dt_ckpt_best(dt_ckpt *c, int64_t *step) {
    int64_t *steps, best = -1;
    int n;
    dt_status st = dt_ckpt_steps(c->dir, &steps, &n);
    if (st == DT_OK) st = dt_ckpt_best_step(c->dir, steps, n, DT_CKPT_HASHES, c->usable, true, &best);
    free(steps);
    if (st != DT_E_STORAGE) c->best_step = best;
    *step = c->best_step;
    return st == DT_E_STORAGE ? st : DT_OK;
}

dt_status dt_ckpt_find_in_run(const char *run, const char *which, int64_t *step, char **path) {
    char *dir = dt_xprintf("%s/checkpoints", run);
    dt_ckpt *c = NULL;
    *path = NULL;
    dt_status st = dt_io_is_dir(dir) ? dt_ckpt_open(&c, &(dt_ckpt_opts){.dir = dir}, true)
                                     : dt_fail(DT_E_CKPT, "%s: no run: it has no checkpoints", run);
    if (st == DT_OK) st = dt_ckpt_find(c, which, step, path);
    if (st == DT_OK && *step < 0) st = dt_fail(DT_E_CKPT, "%s has no checkpoint yet", run);
    if (c) dt_ckpt_close(c);
    free(dir);
    return st;
}

// -- loading -------------------------------------------------------------------------------------
typedef struct part { // an open file
    const char *file; // "model"
    dt_safetensors *s;
} part;

static dt_safetensors *ckpt_load_part_of(const part *parts, int n, const char *file) {
    for (int i = 0; i < n; i++)
        if (strcmp(parts[i].file, file) == 0) return parts[i].s;
    return NULL;
}

static dt_status ckpt_load_open_parts(part *parts, int *n_parts, const char *path, const dt_ckpt_manifest *m,
                                      const dt_ckpt_tensor *tensors, int n_tensors) {
    for (int i = 0; i < n_tensors; i++) {
        if (ckpt_load_part_of(parts, *n_parts, tensors[i].file)) continue;
        char *name = dt_xprintf("%s.safetensors", tensors[i].file);
        char *file = dt_xprintf("%s/%s", path, name);
        dt_safetensors *s = NULL;
        dt_status st = dt_ckpt_manifest_find(m, name) ? dt_safetensors_open(&s, file)
                                                      : dt_fail(DT_E_CKPT, "%s: the checkpoint has no %s", path, name);
        free(name);
        free(file);
        DT_TRY(st);
        parts[(*n_parts)++] = (part){tensors[i].file, s};
    }
    return DT_OK;
}

static dt_status ckpt_load_check_tensor(const dt_safetensors *s, const dt_ckpt_tensor *t, const char *path) {
    char want[96], have[96];
    dt_shape shape;
    int k = dt_safetensors_find(s, t->name);
    if (k < 0) return dt_fail(DT_E_CKPT, "%s: %s has no tensor '%s': saved by another model?", path, t->file, t->name);
    dt_safetensors_shape(s, k, &shape);
    if (!dt_shape_equal(&shape, &t->shape))
        return dt_fail(DT_E_CKPT, "%s: %s tensor '%s' is %s, this model wants %s", path, t->file, t->name,
                       dt_shape_print(&shape, have, sizeof have), dt_shape_print(&t->shape, want, sizeof want));
    if (dt_safetensors_dtype(s, k) != DT_F32)
        return dt_fail(DT_E_CKPT, "%s: %s tensor '%s' is not F32", path, t->file, t->name);
    return DT_OK;
}

static dt_status load_tensors(const char *path, const dt_ckpt_manifest *m, const dt_ckpt_tensor *tensors, int n_tensors,
                              dt_ckpt_take *take, void *ctx) {
    const float **values = dt_xcalloc((size_t)n_tensors + 1, sizeof *values);
    part *parts = dt_xcalloc((size_t)n_tensors + 1, sizeof *parts);
    int n_parts = 0;
    dt_status st = ckpt_load_open_parts(parts, &n_parts, path, m, tensors, n_tensors);
    for (int i = 0; st == DT_OK && i < n_tensors; i++)
        st = ckpt_load_check_tensor(ckpt_load_part_of(parts, n_parts, tensors[i].file), &tensors[i], path);
    for (int i = 0; st == DT_OK && i < n_tensors; i++) {
        const dt_safetensors *s = ckpt_load_part_of(parts, n_parts, tensors[i].file);
        size_t n_bytes;
        values[i] = dt_safetensors_data(s, dt_safetensors_find(s, tensors[i].name), &n_bytes);
    }
    if (st == DT_OK) st = take(ctx, values);
    for (int i = 0; i < n_parts; i++) dt_safetensors_close(parts[i].s);
    free(parts);
    free(values);
    return st;
}

dt_status dt_ckpt_load_with(const char *path, const dt_ckpt_tensor *tensors, int n_tensors, dt_ckpt_take *take,
                            void *ctx) {
    dt_ckpt_manifest m;
    dt_status st = dt_ckpt_read_verified(&m, path, DT_CKPT_HASHES);
    if (st == DT_OK) st = load_tensors(path, &m, tensors, n_tensors, take, ctx);
    dt_ckpt_manifest_fini(&m);
    return st;
}

typedef struct wanted {
    dt_ckpt_tensor *tensors;
    int n;
} wanted;

static dt_status copy_values(void *ctx, const float *const *values) {
    const wanted *w = ctx;
    for (int i = 0; i < w->n; i++) {
        const dt_ckpt_tensor *t = &w->tensors[i];
        const size_t n_bytes = (size_t)dt_shape_elements(&t->shape) * sizeof *t->data;
        if (n_bytes) memcpy(t->data, values[i], n_bytes);
    }
    return DT_OK;
}

dt_status dt_ckpt_load(const char *path, dt_ckpt_tensor *tensors, int n_tensors, char **state_json) {
    dt_ckpt_manifest m;
    size_t n_bytes;
    if (state_json) *state_json = NULL;
    dt_status st = dt_ckpt_read_verified(&m, path, DT_CKPT_HASHES);
    if (st == DT_OK) st = load_tensors(path, &m, tensors, n_tensors, copy_values, &(wanted){tensors, n_tensors});
    if (st == DT_OK && state_json) {
        char *file = dt_xprintf("%s/state.json", path);
        st = dt_ckpt_manifest_find(&m, "state.json")
                 ? dt_io_read_own(state_json, &n_bytes, file, DT_CKPT_STATE_BYTES, DT_E_CKPT)
                 : dt_fail(DT_E_CKPT, "%s: the checkpoint has no state.json", path);
        free(file);
    }
    dt_ckpt_manifest_fini(&m);
    return st;
}
