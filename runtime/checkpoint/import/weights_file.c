// weights_file.c: one way to read what two kinds of files hold.
#define _GNU_SOURCE // memfd_create
#include "weights_file.h"

#include "base/arena.h"
#include "base/endian.h"
#include "base/io.h"
#include "base/log.h"
#include "checkpoint/ckpt_internal.h"
#include "store/blob_url.h"
#include "torch_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct dt_weights {
    char *path;
    dt_safetensors *safetensors; // one of the two
    dt_torch_file *torch;
};

// ---- elements --------------------------------------------------------------------------------------
static float f32_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static float get_f32(const uint8_t *p) {
    return f32_of(dt_le32(p));
}

static float get_f64(const uint8_t *p) {
    uint64_t u = dt_le64(p);
    double d;
    memcpy(&d, &u, sizeof d);
    return (float)d;
}

static float get_bf16(const uint8_t *p) {
    return f32_of((uint32_t)dt_le16(p) << 16);
}

static float get_f16(const uint8_t *p) {
    uint32_t h = dt_le16(p), sign = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31) return f32_of(sign | 0x7f800000 | m << 13);
    if (e == 0) return f32_of(sign | 0x3f800000) * (float)m * 0x1p-24f;
    return f32_of(sign | (e + 112) << 23 | m << 13);
}

static float get_i64(const uint8_t *p) {
    return (float)(int64_t)dt_le64(p);
}

static float get_i32(const uint8_t *p) {
    return (float)(int32_t)dt_le32(p);
}

static float get_i16(const uint8_t *p) {
    return (float)(int16_t)dt_le16(p);
}

static float get_i8(const uint8_t *p) {
    return (float)(int8_t)*p;
}

static float get_u8(const uint8_t *p) {
    return (float)*p;
}

typedef struct element {
    const char *name;
    int n_bytes;
    float (*get)(const uint8_t *p);
} element;

static const element elements[] = {{"F32", 4, get_f32}, {"F64", 8, get_f64}, {"F16", 2, get_f16}, {"BF16", 2, get_bf16},
                                   {"I64", 8, get_i64}, {"I32", 4, get_i32}, {"I16", 2, get_i16}, {"I8", 1, get_i8},
                                   {"U8", 1, get_u8},   {"BOOL", 1, get_u8}};

static const element *element_of(const char *type) {
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        if (strcmp(elements[i].name, type) == 0) return &elements[i];
    return NULL;
}

int dt_weights_type_bytes(const char *type) {
    const element *e = element_of(type);
    return e ? e->n_bytes : 0;
}

// ---- the file --------------------------------------------------------------------------------------
// Copies an object into memory: a file whose only name is /proc/self/fd/*fd.
static dt_status weights_file_fetch(int *fd, const dt_blob *b) {
    enum { RANGE_BYTES = 16 << 20 }; // a request is repeated for a minute only (store/http.h)
    uint8_t *range = dt_xcalloc(1, RANGE_BYTES);
    dt_status st = DT_OK;
    dt_info("%s: %.1f MB are fetched", b->path, (double)b->n_bytes / 1e6);
    *fd = memfd_create("weights", MFD_CLOEXEC);
    if (*fd < 0) st = dt_fail(DT_E_CKPT, "%s: no file in memory: %s", b->path, strerror(errno));
    for (uint64_t at = 0; st == DT_OK && at < b->n_bytes; at += RANGE_BYTES) {
        const uint64_t left = b->n_bytes - at;
        const size_t n = left < RANGE_BYTES ? (size_t)left : RANGE_BYTES;
        st = dt_blob_read(b, at, range, n);
        if (st == DT_OK) st = dt_io_write(*fd, b->path, range, n);
    }
    free(range);
    return st;
}

dt_status dt_weights_open(dt_weights **out, const char *path, uint64_t max_bytes) {
    char head[9] = "", file[32];
    int fd = -1;
    dt_blob b;
    dt_weights *w = dt_xcalloc(1, sizeof *w);
    w->path = dt_xstrdup(path);
    dt_status st = dt_blob_open(&b, w->path);
    const size_t n = b.n_bytes < sizeof head ? (size_t)b.n_bytes : sizeof head;
    if (st == DT_OK) st = dt_blob_read(&b, 0, head, n);
    const bool torch = dt_torch_file_is(head, n), remote = dt_blob_is_url(path);
    if (st == DT_OK && remote && !torch && head[8] != '{') // before all of it is fetched
        st = dt_fail(DT_E_CKPT, "%s: neither a safetensors file nor PyTorch's (by its first bytes)", path);
    if (st == DT_OK && remote && b.n_bytes > max_bytes)
        st = dt_fail(DT_E_CKPT, "%s: %.1f MB, more than the %.1f MB that model.init_max lets be fetched", path,
                     (double)b.n_bytes / 1e6, (double)max_bytes / 1e6);
    if (st == DT_OK && remote) st = weights_file_fetch(&fd, &b);
    snprintf(file, sizeof file, "/proc/self/fd/%d", fd);
    const char *from = remote ? file : w->path;
    if (st == DT_OK)
        st = torch ? dt_torch_file_open(&w->torch, from, path)
                   : dt_safetensors_open_named(&w->safetensors, from, w->path);
    if (fd >= 0) close(fd); // the readers have their own
    dt_blob_close(&b);
    if (st != DT_OK) {
        dt_weights_close(w);
        w = NULL;
    }
    *out = w;
    return st == DT_E_DATA ? DT_E_CKPT : st; // as blobs call what cannot be read
}

void dt_weights_close(dt_weights *w) {
    if (!w) return;
    dt_safetensors_close(w->safetensors);
    dt_torch_file_close(w->torch);
    free(w->path);
    free(w);
}

int dt_weights_count(const dt_weights *w) {
    return w->torch ? dt_torch_file_count(w->torch) : dt_safetensors_count(w->safetensors);
}

const char *dt_weights_name(const dt_weights *w, int i) {
    return w->torch ? dt_torch_file_tensor(w->torch, i)->name : dt_safetensors_name(w->safetensors, i);
}

void dt_weights_shape(const dt_weights *w, int i, dt_shape *out) {
    if (w->torch)
        *out = dt_torch_file_tensor(w->torch, i)->shape;
    else
        dt_safetensors_shape(w->safetensors, i, out);
}

const char *dt_weights_metadata(const dt_weights *w, const char *key) {
    return w->safetensors ? dt_safetensors_metadata(w->safetensors, key) : NULL;
}

static const char *weights_file_type_of(const dt_weights *w, int i) {
    return w->torch ? dt_torch_file_tensor(w->torch, i)->type : dt_safetensors_type(w->safetensors, i);
}

dt_status dt_weights_check(const dt_weights *w, int i) {
    if (element_of(weights_file_type_of(w, i))) return DT_OK;
    return dt_fail(DT_E_CKPT, "%s: tensor '%s' is %s, which is not read", w->path, dt_weights_name(w, i),
                   weights_file_type_of(w, i));
}

// In the order of the logical elements; position is of the innermost.
static void read_strided(float *to, const uint8_t *data, const element *e, const dt_torch_tensor *t) {
    int64_t index[DT_MAX_DIMS] = {0}, position = t->offset;
    for (int64_t k = 0, n = dt_shape_elements(&t->shape); k < n; k++) {
        to[k] = e->get(data + position * e->n_bytes);
        for (int d = t->shape.n - 1; d >= 0; d--) {
            if (index[d] + 1 < t->shape.d[d]) {
                index[d]++;
                position += t->stride[d];
                break;
            }
            position -= index[d] * t->stride[d];
            index[d] = 0;
        }
    }
}

dt_status dt_weights_read(dt_weights *w, int i, float *to) {
    DT_TRY(dt_weights_check(w, i));
    const element *e = element_of(weights_file_type_of(w, i));
    const void *data;
    if (w->torch) {
        DT_TRY(dt_torch_file_storage(w->torch, i, &data));
        read_strided(to, data, e, dt_torch_file_tensor(w->torch, i));
        return DT_OK;
    }
    size_t n_bytes; // may lie at any byte
    data = dt_safetensors_data(w->safetensors, i, &n_bytes);
    for (size_t k = 0; k < n_bytes / (size_t)e->n_bytes; k++)
        to[k] = e->get((const uint8_t *)data + k * (size_t)e->n_bytes);
    return DT_OK;
}
