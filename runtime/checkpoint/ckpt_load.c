// ckpt_load.c: finds the checkpoint to continue from, and loads it.
//
// The manifest's own hash and every file's size and hash are checked before a byte is used. "latest" walks
// back through the steps to the first intact one and warns about each damaged one; "best" does so among those
// that were the best when they were saved. The default is the best, or the latest where none is. A number means only that checkpoint. Beside a running training a
// checkpoint may go while it is read: then the search begins anew. Loading checks all names, shapes and types
// before it copies anything, so a checkpoint
// of another model changes nothing.

#include "ckpt_internal.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "store/s3.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dt_status dt_ckpt_check(const dt_ckpt *c, const char *path, int64_t step, dt_ckpt_depth depth) {
    DT_TRY(dt_ckpt_verify(path, depth, NULL));
    return c->usable ? c->usable(path, step) : DT_OK; // integrity first: `usable` reads state.json
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
        const bool ends =
            st == DT_E_STORAGE || st == DT_E_USAGE; // the machine's fault, or the file is of a newer dtrain
        if (!ends && dt_io_exists(*path))           // else a running training has removed it
            dt_warn("checkpoint step %" PRId64 " is skipped: %s", steps[i], dt_error_message());
        free(*path);
        *path = NULL;
        if (ends) return st;
    }
    if (n == 0) return DT_OK;                   // a new run: *step stays -1
    char *why = dt_xstrdup(dt_error_message()); // dt_fail writes to the buffer that `why` would alias
    dt_fail(DT_E_CKPT, "%s: none of %d checkpoints loads (%s); start anew with another run.name, or remove them", dir,
            n, why);
    free(why);
    return DT_E_CKPT;
}

// `which` is none: the best, if there is one.
static dt_status find_one(const dt_ckpt *c, const char *which, const int64_t *steps, int n, int64_t *step,
                          char **path) {
    char *end; // set by strtoll, tested for a number below
    const char *dir = c->dir;
    bool found = false;
    const bool best = !which || strcmp(which, "best") == 0; // NULL: best, or latest
    int64_t wanted;
    if (best)
        // verified and usable already
        DT_TRY(dt_ckpt_best_step(dir, steps, n, DT_CKPT_HASHES, c->usable, true, &wanted));
    else
        wanted = (int64_t)strtoll(which, &end, 10);
    if (!which && wanted < 0) return find_latest(c, steps, n, step, path); // no evaluation so far, so no best
    if (!best && (end == which || *end))
        return dt_fail(DT_E_USAGE, "checkpoint '%s': expected latest, best or a step number", which);
    for (int i = 0; i < n; i++) found |= steps[i] == wanted; // a best of -1 is in no list
    if (!found) {
        char there[256] = "none";
        size_t at = 0;
        for (int i = n > 12 ? n - 12 : 0; i < n && at < sizeof there; i++) // the last 12 at most
            at += (size_t)snprintf(there + at, sizeof there - at, "%s%" PRId64, at ? ", " : "", steps[i]);
        return dt_fail(DT_E_CKPT, "%s: no checkpoint '%s'; there are latest and steps %s", dir, which, there);
    }
    char *p = dt_ckpt_step_path(dir, wanted);
    // a given number: no walk back to another step
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
    dt_status st; // whether the list changed during the search
    do {
        int64_t *steps;
        int n;
        *step = -1;
        *path = NULL;
        DT_TRY(dt_ckpt_steps(c->dir, &steps, &n));
        // latest, best, a step, or NULL
        st = which && strcmp(which, "latest") == 0 ? find_latest(c, steps, n, step, path)
                                                   : find_one(c, which, steps, n, step, path);
        again = st == DT_E_CKPT && some_are_gone(c->dir, steps, n); // the list is read again
        free(steps);
    } while (again);
    return st;
}

dt_status dt_ckpt_best(dt_ckpt *c, int64_t *step) {
    int64_t *steps, best = -1;
    int n;
    dt_status st = dt_ckpt_steps(c->dir, &steps, &n);
    // with warnings: the caller starts a run
    if (st == DT_OK) st = dt_ckpt_best_step(c->dir, steps, n, DT_CKPT_HASHES, c->usable, true, &best);
    free(steps);
    if (st != DT_E_STORAGE) c->best_step = best; // a storage error leaves the last known best protected from pruning
    *step = c->best_step;
    return st == DT_E_STORAGE ? st : DT_OK;
}

dt_status dt_ckpt_find_in_run(const char *run, const char *which, int64_t *step, char **path) {
    char *dir = dt_xprintf("%s/checkpoints", run); // read-only: a finished or a running run, without its lock
    dt_ckpt *c = NULL;
    *path = NULL;
    // keep and async do not matter to a reader
    dt_status st =
        dt_io_is_dir(dir)
            ? dt_ckpt_open(&c, &(dt_ckpt_opts){.dir = dir}, true)
            : dt_fail(DT_E_CKPT, "%s: no run: it has no checkpoints/ (give RUN, not RUN/checkpoints/step-N)", run);
    if (st == DT_OK) st = dt_ckpt_find(c, which, step, path);
    if (st == DT_OK && *step < 0) st = dt_fail(DT_E_CKPT, "%s has no checkpoint yet", run);
    if (c) dt_ckpt_close(c);
    free(dir);
    return st;
}

// -- loading -------------------------------------------------------------------------------------
typedef struct part { // an open file
    const char *file; // "model"
    // mapped read-only until load_tensors closes
    dt_safetensors *s;
} part;

static dt_safetensors *ckpt_load_part_of(const part *parts, int n, const char *file) {
    for (int i = 0; i < n; i++) // two or three files: a linear search
        if (strcmp(parts[i].file, file) == 0) return parts[i].s;
    return NULL;
}

static dt_status ckpt_load_open_parts(part *parts, int *n_parts, const char *path, const dt_ckpt_manifest *m,
                                      const dt_ckpt_tensor *tensors, int n_tensors) {
    for (int i = 0; i < n_tensors; i++) {
        if (ckpt_load_part_of(parts, *n_parts, tensors[i].file)) continue; // opened for an earlier tensor
        char *name = dt_xprintf("%s.safetensors", tensors[i].file);
        char *file = dt_xprintf("%s/%s", path, name);
        dt_safetensors *s = NULL;
        // only files that the manifest hashes are opened
        dt_status st = dt_ckpt_manifest_find(m, name) ? dt_safetensors_open(&s, file)
                                                      : dt_fail(DT_E_CKPT, "%s: the checkpoint has no %s", path, name);
        free(name);
        free(file);
        DT_TRY(st);
        parts[(*n_parts)++] = (part){tensors[i].file, s}; // borrowed name
    }
    return DT_OK;
}

static dt_status ckpt_load_check_tensor(const dt_safetensors *s, const dt_ckpt_tensor *t, const char *path) {
    char want[96], have[96]; // shapes as text, such as "(64, 3, 7, 7)"
    dt_shape shape;
    int k = dt_safetensors_find(s, t->name);
    // k: index in the file, sorted by name
    if (k < 0) return dt_fail(DT_E_CKPT, "%s: %s has no tensor '%s': saved by another model?", path, t->file, t->name);
    dt_safetensors_shape(s, k, &shape);
    if (!dt_shape_equal(&shape, &t->shape))
        return dt_fail(DT_E_CKPT, "%s: %s tensor '%s' is %s, this model expects %s", path, t->file, t->name,
                       dt_shape_print(&shape, have, sizeof have), dt_shape_print(&t->shape, want, sizeof want));
    if (dt_safetensors_dtype(s, k) != DT_F32) // this program writes F32 only; imports convert
        return dt_fail(DT_E_CKPT, "%s: %s tensor '%s' is not F32", path, t->file, t->name);
    return DT_OK;
}

static dt_status load_tensors(const char *path, const dt_ckpt_manifest *m, const dt_ckpt_tensor *tensors, int n_tensors,
                              dt_ckpt_take *take, void *ctx) {
    // pointers into the mapped files, in the order of `tensors`
    const float **values = dt_xcalloc((size_t)n_tensors + 1, sizeof *values);
    part *parts = dt_xcalloc((size_t)n_tensors + 1, sizeof *parts);
    int n_parts = 0;
    dt_status st = ckpt_load_open_parts(parts, &n_parts, path, m, tensors, n_tensors);
    for (int i = 0; st == DT_OK && i < n_tensors; i++) // all checks before any copy: a wrong checkpoint changes nothing
        st = ckpt_load_check_tensor(ckpt_load_part_of(parts, n_parts, tensors[i].file), &tensors[i], path);
    for (int i = 0; st == DT_OK && i < n_tensors; i++) {
        const dt_safetensors *s = ckpt_load_part_of(parts, n_parts, tensors[i].file);
        size_t n_bytes;
        values[i] = dt_safetensors_data(s, dt_safetensors_find(s, tensors[i].name), &n_bytes);
    }
    if (st == DT_OK) st = take(ctx, values); // `take` copies; the mapping ends below
    for (int i = 0; i < n_parts; i++) dt_safetensors_close(parts[i].s);
    free(parts);
    free(values);
    return st;
}

dt_status dt_ckpt_load_with(const char *path, const dt_ckpt_tensor *tensors, int n_tensors, dt_ckpt_take *take,
                            void *ctx) {
    dt_ckpt_manifest m;
    dt_status st = dt_ckpt_read_verified(&m, path, DT_CKPT_HASHES); // HASHES also rejects tensors with NaN or infinity
    if (st == DT_OK) st = load_tensors(path, &m, tensors, n_tensors, take, ctx);
    dt_ckpt_manifest_fini(&m);
    return st;
}

typedef struct wanted {
    dt_ckpt_tensor *tensors;
    int n;
} wanted;

static dt_status copy_values(void *ctx, const float *const *values) {
    // sizes were compared by ckpt_load_check_tensor
    const wanted *w = ctx;
    for (int i = 0; i < w->n; i++) {
        const dt_ckpt_tensor *t = &w->tensors[i];
        const size_t n_bytes = (size_t)dt_shape_elements(&t->shape) * sizeof *t->data;
        if (n_bytes) memcpy(t->data, values[i], n_bytes); // memcpy from a mapped file: alignment does not matter
    }
    return DT_OK;
}

dt_status dt_ckpt_load(const char *path, dt_ckpt_tensor *tensors, int n_tensors, char **state_json) {
    dt_ckpt_manifest m;
    size_t n_bytes;
    if (state_json) *state_json = NULL;
    dt_status st = dt_ckpt_read_verified(&m, path, DT_CKPT_HASHES); // tensors and state from one verified manifest
    if (st == DT_OK) st = load_tensors(path, &m, tensors, n_tensors, copy_values, &(wanted){tensors, n_tensors});
    if (st == DT_OK && state_json) {
        char *file = dt_xprintf("%s/state.json", path);
        st = dt_ckpt_manifest_find(&m, "state.json")
                 // limited before it is allocated
                 ? dt_io_read_own(state_json, &n_bytes, file, DT_CKPT_STATE_BYTES, DT_E_CKPT)
                 : dt_fail(DT_E_CKPT, "%s: the checkpoint has no state.json", path);
        free(file);
    }
    dt_ckpt_manifest_fini(&m);
    return st;
}

// ---- ckpt tools ---------------------------------------------------------------------------------------------------

// `dtrain ckpt ls|show|diff`. Only reads, and takes no lock, so it works during training.

// -- list ------------------------------------------------------------------------------------------
// !*there: a running training has removed it meanwhile. DT_E_STORAGE: nothing is known of it.
static dt_status fill_info(dt_ckpt_info *info, const char *dir, int64_t step, bool verify, bool *there) {
    dt_ckpt_manifest m;
    char *path = dt_ckpt_step_path(dir, step);
    info->step = step;
    snprintf(info->path, sizeof info->path, "%s", path);
    // sizes only without --verify: a list of large checkpoints stays quick
    dt_status st = dt_ckpt_read_verified(&m, path, verify ? DT_CKPT_HASHES : DT_CKPT_SIZES);
    for (int i = 0; st == DT_OK && i < m.n_files; i++) info->n_bytes += m.files[i].n_bytes;
    dt_ckpt_manifest_fini(&m);
    info->valid = st == DT_OK;
    // precision: the array's size, and a cut message is better than none
    if (st != DT_OK) snprintf(info->why, sizeof info->why, "%.500s", dt_error_message());
    // a URL counts as there: the manifest's error is listed
    *there = st == DT_OK || dt_s3_is_url(path) || dt_io_exists(path);
    free(path);
    return st == DT_E_STORAGE ? st : DT_OK;
}

dt_status dt_ckpt_list(const char *dir, bool verify, dt_ckpt_info **infos, int *n) {
    int n_steps;
    *infos = NULL;
    do {
        int64_t *steps;
        // each turn lists anew, since a training may remove steps
        *n = 0;
        free(*infos);
        *infos = NULL;
        int64_t best;
        DT_TRY(dt_ckpt_steps(dir, &steps, &n_steps));
        dt_status st =
            // no warnings: the table prints what is damaged
            dt_ckpt_best_step(dir, steps, n_steps, verify ? DT_CKPT_HASHES : DT_CKPT_SIZES, NULL, false, &best);
        if (st != DT_OK) {
            free(steps);
            return st;
        }
        *infos = dt_xcalloc((size_t)n_steps + 1, sizeof **infos);
        for (int i = 0; i < n_steps && st == DT_OK; i++) {
            dt_ckpt_info *info = &(*infos)[*n];
            bool there;
            // info->valid and why are filled below
            *info = (dt_ckpt_info){.best = steps[i] == best};
            st = fill_info(info, dir, steps[i], verify, &there);
            *n += there; // an entry that vanished is overwritten by the next
        }
        free(steps);
        if (st != DT_OK) {
            free(*infos);
            *infos = NULL;
            return st;
        }
    } while (*n == 0 && n_steps > 0); // all gone: newer ones are there
    return DT_OK;
}

// -- show ------------------------------------------------------------------------------------------
static void show_text(const dt_ckpt_manifest *m, const char *path, const char *state, FILE *out) {
    char hex[17];
    dt_text_print(out, path); // names may hold control characters: cleaned before a terminal gets them
    fprintf(out, "\n  step %" PRId64 "%s\n", m->step, m->best ? " (best when saved)" : "");
    for (int i = 0; i < m->n_files; i++) {
        const dt_ckpt_file *f = &m->files[i];
        dt_hash_hex(f->hash, hex);
        char name[64];
        dt_text_clean(name, sizeof name, f->name);
        dt_text_printf(out, "  %-24s %12" PRIu64 " bytes  xxh3 %s", name, f->n_bytes, hex);
        if (f->n_ranges) fprintf(out, "  %d tensors", f->n_ranges);
        fputc('\n', out);
    }
    size_t n = strlen(state);
    while (n && state[n - 1] == '\n') n--; // the file ends with a newline, the line below too
    // 4: an escaped byte takes four characters
    char *shown = dt_xcalloc(4, n + 1), *line = dt_xprintf("%.*s", (int)n, state);
    dt_text_clean(shown, 4 * (n + 1), line);
    dt_text_printf(out, "  state: %s\n", shown);
    free(line);
    free(shown);
}

static void show_json(const dt_ckpt_manifest *m, const char *path, const char *state, FILE *out) {
    char hex[17];
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    dt_json_string(&j, "path", path);
    dt_json_int(&j, "step", m->step);
    dt_json_bool(&j, "best", m->best);
    dt_json_begin_array(&j, "files");
    for (int i = 0; i < m->n_files; i++) {
        const dt_ckpt_file *f = &m->files[i];
        dt_hash_hex(f->hash, hex);
        dt_json_begin_object(&j, NULL);
        dt_json_string(&j, "name", f->name);
        dt_json_int(&j, "bytes", (int64_t)f->n_bytes);
        dt_json_string(&j, "xxh3", hex);
        dt_json_int(&j, "tensors", f->n_ranges);
        dt_json_end_object(&j);
    }
    dt_json_end_array(&j);
    dt_json_raw(&j, "state", state); // state is JSON already
    dt_json_end_object(&j);
    dt_json_newline(&j);
    fwrite(j.data, 1, j.n_bytes, out);
    dt_json_fini(&j);
}

dt_status dt_ckpt_show(const char *path, bool json, FILE *out) {
    dt_ckpt_manifest m = {0};
    char *file = dt_xprintf("%s/state.json", path), *state = NULL;
    size_t n_bytes;
    // a mirror's tensors are not downloaded for a listing
    const dt_ckpt_depth depth = dt_s3_is_url(path) ? DT_CKPT_SIZES : DT_CKPT_HASHES;
    dt_status st = dt_ckpt_read_verified(&m, path, depth);
    if (st == DT_OK) st = dt_ckpt_read_text(&state, &n_bytes, file, DT_CKPT_STATE_BYTES);
    if (st == DT_OK) (json ? show_json : show_text)(&m, path, state, out);
    dt_ckpt_manifest_fini(&m);
    free(state);
    free(file);
    return st;
}

// -- diff ------------------------------------------------------------------------------------------
typedef struct pair {
    const char *file;
    const dt_safetensors *a, *b;
    FILE *out;
    bool differ;
} pair;

// Largest |a - b| of F32 data; NaN if a NaN is among the values that differ.
// data are unaligned in a mapped file: bytes are copied out
static double largest_difference(const char *a, const char *b, size_t n_bytes) {
    double most = 0;
    for (size_t at = 0; at < n_bytes; at += sizeof(float)) {
        float x, y;
        if (memcmp(a + at, b + at, sizeof x) == 0) continue; // equal bits, equal NaNs included
        memcpy(&x, a + at, sizeof x);
        memcpy(&y, b + at, sizeof y);
        double d = fabs((double)x - (double)y); // in double: the difference of two floats may overflow
        if (isnan(d)) return NAN;
        if (d > most) most = d;
    }
    return most;
}

static void diff_tensor(pair *p, int i, int k) {
    // a and b are borrowed from the mapped files
    const char *name = dt_safetensors_name(p->a, i);
    char one[96], other[96];
    dt_shape x, y;
    size_t n, n_other;
    const void *a = dt_safetensors_data(p->a, i, &n), *b = dt_safetensors_data(p->b, k, &n_other);
    dt_safetensors_shape(p->a, i, &x);
    dt_safetensors_shape(p->b, k, &y);
    dt_dtype type = dt_safetensors_dtype(p->a, i);
    bool same = dt_shape_equal(&x, &y) && type == dt_safetensors_dtype(p->b, k) && n == n_other;
    if (same && memcmp(a, b, n) == 0) return; // bits, so -0 and 0 differ
    p->differ = true;
    if (!same)
        dt_text_printf(p->out, "%s %s: shape or type differ: %s and %s\n", p->file, name,
                       dt_shape_print(&x, one, sizeof one), dt_shape_print(&y, other, sizeof other));
    else if (type == DT_F32)
        // 9 digits identify a float
        dt_text_printf(p->out, "%s %s: largest difference %.9g\n", p->file, name, largest_difference(a, b, n));
    else
        dt_text_printf(p->out, "%s %s: bytes differ\n", p->file, name);
}

static void only_in(pair *p, const char *name, const char *which) {
    dt_text_printf(p->out, "%s %s: only in the %s\n", p->file, name, which);
    p->differ = true;
}

// names are sorted, but sets may differ: each side is searched in the other
static void diff_tensors(pair *p) {
    for (int i = 0; i < dt_safetensors_count(p->a); i++) {
        int k = dt_safetensors_find(p->b, dt_safetensors_name(p->a, i));
        if (k < 0)
            only_in(p, dt_safetensors_name(p->a, i), "first");
        else
            diff_tensor(p, i, k);
    }
    for (int i = 0; i < dt_safetensors_count(p->b); i++)
        if (dt_safetensors_find(p->a, dt_safetensors_name(p->b, i)) < 0)
            only_in(p, dt_safetensors_name(p->b, i), "second");
}

static dt_status diff_file(const char *a, const char *b, const char *name, FILE *out, bool *differ) {
    char *pa = dt_xprintf("%s/%s", a, name), *pb = dt_xprintf("%s/%s", b, name); // both folders were verified
    dt_safetensors *sa = NULL, *sb = NULL;
    dt_status st = dt_safetensors_open(&sa, pa);
    if (st == DT_OK) st = dt_safetensors_open(&sb, pb);
    if (st == DT_OK) {
        pair p = {name, sa, sb, out, false};
        diff_tensors(&p);
        *differ |= p.differ;
    }
    dt_safetensors_close(sa);
    dt_safetensors_close(sb);
    free(pa);
    free(pb);
    return st;
}

static bool holds_tensors(const char *name) {
    const char *dot = strrchr(name, '.'); // tensors only: states of two runs always differ
    return dot && strcmp(dot, ".safetensors") == 0;
}

dt_status dt_ckpt_diff(const char *a, const char *b, FILE *out, bool *differ) {
    dt_ckpt_manifest ma, mb = {0};
    *differ = false; // becomes the exit code
    dt_status st = dt_ckpt_read_verified(&ma, a, DT_CKPT_HASHES);
    if (st == DT_OK) st = dt_ckpt_read_verified(&mb, b, DT_CKPT_HASHES);
    for (int i = 0; st == DT_OK && i < ma.n_files; i++) {
        const char *name = ma.files[i].name;
        if (!holds_tensors(name)) continue;
        if (dt_ckpt_manifest_find(&mb, name)) {
            st = diff_file(a, b, name, out, differ);
        } else {
            dt_text_printf(out, "%s: only in the first\n", name);
            *differ = true;
        }
    }
    for (int i = 0; st == DT_OK && i < mb.n_files; i++)
        if (holds_tensors(mb.files[i].name) && !dt_ckpt_manifest_find(&ma, mb.files[i].name)) {
            dt_text_printf(out, "%s: only in the second\n", mb.files[i].name);
            *differ = true;
        }
    dt_ckpt_manifest_fini(&ma);
    dt_ckpt_manifest_fini(&mb);
    return st;
}
