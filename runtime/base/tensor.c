// tensor.c: sizes and names of element types and shapes. Pure functions.
#include "base/tensor.h"

#include <inttypes.h>
#include <stdio.h>

static const struct {
    const char *name;
    size_t n_bytes;
} dtypes[DT_DTYPE_COUNT] = {
    [DT_F32] = {"f32", 4}, [DT_BF16] = {"bf16", 2}, [DT_F16] = {"f16", 2},
    [DT_I32] = {"i32", 4}, [DT_U8] = {"u8", 1},     [DT_I8] = {"i8", 1},
};

size_t dt_dtype_size(dt_dtype t) {
    return dtypes[t].n_bytes;
}

const char *dt_dtype_name(dt_dtype t) {
    return dtypes[t].name;
}

bool dt_dtype_is_float(dt_dtype t) {
    return t == DT_F32 || t == DT_BF16 || t == DT_F16;
}

int64_t dt_shape_elements(const dt_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->n; i++) n *= s->d[i];
    return n;
}

bool dt_shape_is_sound(const dt_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->n; i++) {
        const int64_t d = s->d[i];
        if (d < 0 || d > DT_MAX_SIZE || (d > 0 && n > DT_MAX_ELEMENTS / d)) return false;
        n *= d;
    }
    return true;
}

bool dt_shape_equal(const dt_shape *a, const dt_shape *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++) {
        if (a->d[i] != b->d[i]) return false;
    }
    return true;
}

const char *dt_shape_print(const dt_shape *s, char *buf, size_t cap) {
    size_t at = (size_t)snprintf(buf, cap, "(");
    for (int i = 0; i < s->n && at < cap; i++) {
        at += (size_t)snprintf(buf + at, cap - at, "%s%" PRId64, i ? "," : "", s->d[i]);
    }
    if (at < cap) snprintf(buf + at, cap - at, ")");
    return buf;
}
