// ckpt_import.c: weights from a safetensors file that another program wrote, such as a state dict of
// torchvision saved with safetensors.torch.save_file.
//
// Names and shapes must match the model's exactly: a half-loaded network trains badly, and nobody sees why. A
// tensor that is missing, or has another shape or a non-float type, is an error that names it, unless the user
// said that it keeps its initial values (the head, for another number of classes). A warning names extra
// tensors, except PyTorch's num_batches_tracked. Everything is checked before anything is copied.
//
// Rejected: guessing (prefixes such as "module.", transposed weights, positions of another image size). A
// converter says what it does; a guess does not.
#include "base/arena.h"
#include "base/log.h"
#include "ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMED = 4 };

// The first few names, and how many there are.
typedef struct name_list {
    char text[512];
    int n;
} name_list;

static void list_name(name_list *l, const char *name) {
    size_t at = strlen(l->text);
    if (l->n++ < MAX_NAMED)
        snprintf(l->text + at, sizeof l->text - at, "%s%.100s", at ? ", " : "", name);
}

static const char *list_text(name_list *l) {
    size_t at = strlen(l->text);
    if (l->n > MAX_NAMED)
        snprintf(l->text + at, sizeof l->text - at, " and %d more", l->n - MAX_NAMED);
    return l->text;
}

// Whether `name` is `prefix` or a tensor of the module `prefix`.
static bool belongs_to(const char *name, const char *prefix) {
    size_t n = strlen(prefix);
    return n > 0 && strncmp(name, prefix, n) == 0 &&
           (name[n] == 0 || name[n] == '.' || prefix[n - 1] == '.');
}

static bool is_kept(const dt_ckpt_import_opts *o, const char *name) {
    for (int i = 0; i < o->n_keep; i++)
        if (belongs_to(name, o->keep[i])) return true;
    return false;
}

static dt_status check_keep(const dt_ckpt_import_opts *o, const dt_ckpt_tensor *tensors, int n) {
    for (int i = 0; i < o->n_keep; i++) {
        bool used = false;
        for (int k = 0; k < n; k++) used |= belongs_to(tensors[k].name, o->keep[i]);
        if (!used)
            return dt_fail(DT_E_USAGE, "model.init_keep: this model has no tensor %s or %s.…",
                           o->keep[i], o->keep[i]);
    }
    return DT_OK;
}

// The module of a tensor, which a user would name to keep it.
static const char *module_of(const char *name, char *buf, size_t cap) {
    const char *dot = strrchr(name, '.');
    snprintf(buf, cap, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
    return buf;
}

static bool is_float(dt_dtype t) {
    return t == DT_F32 || t == DT_BF16 || t == DT_F16;
}

static dt_status check_tensors(const dt_safetensors *s, const char *path,
                               const dt_ckpt_import_opts *o, const dt_ckpt_tensor *tensors, int n) {
    name_list missing = {.n = 0};
    char module[128] = "", want[96], have[96];
    for (int i = 0; i < n; i++) {
        const dt_ckpt_tensor *t = &tensors[i];
        int k = dt_safetensors_find(s, t->name);
        if (is_kept(o, t->name)) continue;
        if (k < 0) {
            if (missing.n == 0) module_of(t->name, module, sizeof module);
            list_name(&missing, t->name);
            continue;
        }
        dt_shape shape;
        dt_safetensors_shape(s, k, &shape);
        if (!dt_shape_equal(&shape, &t->shape))
            return dt_fail(DT_E_CKPT,
                           "%s: tensor '%s' is %s, this model wants %s; model.init_keep=%s leaves "
                           "the initial values there",
                           path, t->name, dt_shape_print(&shape, have, sizeof have),
                           dt_shape_print(&t->shape, want, sizeof want),
                           module_of(t->name, module, sizeof module));
        if (!is_float(dt_safetensors_dtype(s, k)))
            return dt_fail(DT_E_CKPT, "%s: tensor '%s' is not F32, BF16 or F16", path, t->name);
    }
    if (missing.n > 0)
        return dt_fail(DT_E_CKPT,
                       "%s: of this model's %d tensors %d are not there: %s; another model, or "
                       "model.init_keep=%s leaves the initial values",
                       path, n, missing.n, list_text(&missing), module);
    return DT_OK;
}

static void warn_of_extra(const dt_safetensors *s, const char *path, const dt_ckpt_tensor *tensors,
                          int n) {
    name_list extra = {.n = 0};
    for (int k = 0; k < dt_safetensors_count(s); k++) {
        const char *name = dt_safetensors_name(s, k), *dot = strrchr(name, '.');
        bool known = dot && strcmp(dot, ".num_batches_tracked") == 0;
        for (int i = 0; i < n && !known; i++) known = strcmp(tensors[i].name, name) == 0;
        if (!known) list_name(&extra, name);
    }
    if (extra.n > 0) dt_warn("%s: not of this model, and left out: %s", path, list_text(&extra));
}

static float from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31) return from_bits(sign | 0x7f800000 | m << 13);
    if (e == 0) return from_bits(sign | 0x3f800000) * (float)m * 0x1p-24f;
    return from_bits(sign | (e + 112) << 23 | m << 13);
}

// The file's data may lie at any byte.
static void copy_tensor(float *to, const void *from, dt_dtype type, int64_t n) {
    const char *p = from;
    if (type == DT_F32) {
        if (n > 0) memcpy(to, from, (size_t)n * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        to[i] = type == DT_BF16 ? from_bits((uint32_t)h << 16) : f16_to_f32(h);
    }
}

dt_status dt_ckpt_import(const char *path, const dt_ckpt_import_opts *o, dt_ckpt_tensor *tensors,
                         int n_tensors, int *n_taken) {
    dt_safetensors *s = NULL;
    *n_taken = 0;
    DT_TRY(check_keep(o, tensors, n_tensors));
    DT_TRY(dt_safetensors_open(&s, path));
    dt_status st = check_tensors(s, path, o, tensors, n_tensors);
    if (st == DT_OK) warn_of_extra(s, path, tensors, n_tensors);
    for (int i = 0; st == DT_OK && i < n_tensors; i++) {
        size_t n_bytes;
        int k = dt_safetensors_find(s, tensors[i].name);
        if (is_kept(o, tensors[i].name)) continue;
        copy_tensor(tensors[i].data, dt_safetensors_data(s, k, &n_bytes),
                    dt_safetensors_dtype(s, k), dt_shape_elements(&tensors[i].shape));
        ++*n_taken;
    }
    dt_safetensors_close(s);
    return st;
}
