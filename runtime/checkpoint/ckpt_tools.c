// ckpt_tools.c: `dtrain ckpt ls|show|diff`. Only reads, and takes no lock, so it works during training.
#include "base/arena.h"
#include "base/io.h"
#include "base/text.h"
#include "ckpt_internal.h"
#include "store/s3.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// -- list ------------------------------------------------------------------------------------------
// !*there: a running training has removed it meanwhile. DT_E_STORAGE: nothing is known of it.
static dt_status fill_info(dt_ckpt_info *info, const char *dir, int64_t step, bool verify, bool *there) {
    dt_ckpt_manifest m;
    char *path = dt_ckpt_step_path(dir, step);
    info->step = step;
    snprintf(info->path, sizeof info->path, "%s", path);
    dt_status st = dt_ckpt_read_verified(&m, path, verify ? DT_CKPT_HASHES : DT_CKPT_SIZES);
    for (int i = 0; st == DT_OK && i < m.n_files; i++) info->n_bytes += m.files[i].n_bytes;
    dt_ckpt_manifest_fini(&m);
    info->valid = st == DT_OK;
    if (st != DT_OK) snprintf(info->why, sizeof info->why, "%.500s", dt_error_message());
    *there = st == DT_OK || dt_s3_is_url(path) || dt_io_exists(path);
    free(path);
    return st == DT_E_STORAGE ? st : DT_OK;
}

dt_status dt_ckpt_list(const char *dir, bool verify, dt_ckpt_info **infos, int *n) {
    int n_steps;
    *infos = NULL;
    do {
        int64_t *steps;
        *n = 0;
        free(*infos);
        *infos = NULL;
        int64_t best;
        DT_TRY(dt_ckpt_steps(dir, &steps, &n_steps));
        dt_status st =
            dt_ckpt_best_step(dir, steps, n_steps, verify ? DT_CKPT_HASHES : DT_CKPT_SIZES, NULL, false, &best);
        if (st != DT_OK) {
            free(steps);
            return st;
        }
        *infos = dt_xcalloc((size_t)n_steps + 1, sizeof **infos);
        for (int i = 0; i < n_steps && st == DT_OK; i++) {
            dt_ckpt_info *info = &(*infos)[*n];
            bool there;
            *info = (dt_ckpt_info){.best = steps[i] == best};
            st = fill_info(info, dir, steps[i], verify, &there);
            *n += there;
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
    dt_text_print(out, path);
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
    while (n && state[n - 1] == '\n') n--;
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
    dt_json_raw(&j, "state", state);
    dt_json_end_object(&j);
    dt_json_newline(&j);
    fwrite(j.data, 1, j.n_bytes, out);
    dt_json_fini(&j);
}

dt_status dt_ckpt_show(const char *path, bool json, FILE *out) {
    dt_ckpt_manifest m = {0};
    char *file = dt_xprintf("%s/state.json", path), *state = NULL;
    size_t n_bytes;
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
static double largest_difference(const char *a, const char *b, size_t n_bytes) {
    double most = 0;
    for (size_t at = 0; at < n_bytes; at += sizeof(float)) {
        float x, y;
        if (memcmp(a + at, b + at, sizeof x) == 0) continue;
        memcpy(&x, a + at, sizeof x);
        memcpy(&y, b + at, sizeof y);
        double d = fabs((double)x - (double)y);
        if (isnan(d)) return NAN;
        if (d > most) most = d;
    }
    return most;
}

static void diff_tensor(pair *p, int i, int k) {
    const char *name = dt_safetensors_name(p->a, i);
    char one[96], other[96];
    dt_shape x, y;
    size_t n, n_other;
    const void *a = dt_safetensors_data(p->a, i, &n), *b = dt_safetensors_data(p->b, k, &n_other);
    dt_safetensors_shape(p->a, i, &x);
    dt_safetensors_shape(p->b, k, &y);
    dt_dtype type = dt_safetensors_dtype(p->a, i);
    bool same = dt_shape_equal(&x, &y) && type == dt_safetensors_dtype(p->b, k) && n == n_other;
    if (same && memcmp(a, b, n) == 0) return;
    p->differ = true;
    if (!same)
        dt_text_printf(p->out, "%s %s: shape or type differ: %s and %s\n", p->file, name,
                       dt_shape_print(&x, one, sizeof one), dt_shape_print(&y, other, sizeof other));
    else if (type == DT_F32)
        dt_text_printf(p->out, "%s %s: largest difference %.9g\n", p->file, name, largest_difference(a, b, n));
    else
        dt_text_printf(p->out, "%s %s: bytes differ\n", p->file, name);
}

static void only_in(pair *p, const char *name, const char *which) {
    dt_text_printf(p->out, "%s %s: only in the %s\n", p->file, name, which);
    p->differ = true;
}

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
    char *pa = dt_xprintf("%s/%s", a, name), *pb = dt_xprintf("%s/%s", b, name);
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
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".safetensors") == 0;
}

dt_status dt_ckpt_diff(const char *a, const char *b, FILE *out, bool *differ) {
    dt_ckpt_manifest ma, mb = {0};
    *differ = false;
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
