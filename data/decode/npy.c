// npy.c: the header of a NumPy array file, and its elements.
//
// A magic number, a version, the header's length, and a Python dictionary as text: {'descr': '<f4',
// 'fortran_order': False, 'shape': (3, 4), }. The parser accepts just that: three keys in any order, a type of
// one letter and a size, a tuple of whole numbers. Python objects (pickles), records and text are refused. All
// elements must be there, so that reading them needs no further check.
// Format: NumPy Enhancement Proposal 1 and numpy.lib.format, versions 1.0, 2.0 and 3.0.
#include "array.h"

#include "base/endian.h"
#include "base/stated.h"

#include <string.h>

typedef struct cursor {
    const char *p, *end;
} cursor;

static dt_status npy_broken(const char *what) {
    return dt_fail(DT_E_DATA, "NPY: %s", what);
}

static void npy_skip_space(cursor *c) {
    while (c->p < c->end && strchr(" \t\r\n", *c->p) && *c->p) c->p++;
}

static bool npy_take(cursor *c, char wanted) {
    npy_skip_space(c);
    if (c->p == c->end || *c->p != wanted) return false;
    c->p++;
    return true;
}

// 'text' or "text" -> a copy.
static bool npy_take_text(cursor *c, char *out, size_t cap) {
    npy_skip_space(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"')) return false;
    char quote = *c->p++;
    size_t n = 0;
    while (c->p < c->end && *c->p != quote && n + 1 < cap) out[n++] = *c->p++;
    out[n] = '\0';
    return npy_take(c, quote);
}

static bool take_number(cursor *c, int64_t *out) {
    npy_skip_space(c);
    const char *begin = c->p;
    int64_t v = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9' && v < (int64_t)1 << 48; c->p++) v = v * 10 + (*c->p - '0');
    *out = v;
    return c->p > begin;
}

static bool take_shape(cursor *c, dt_npy *a) {
    if (!npy_take(c, '(')) return false;
    a->n_axes = 0;
    while (!npy_take(c, ')')) {
        if (a->n_axes == DT_NPY_MAX_AXES || !take_number(c, &a->shape[a->n_axes])) return false;
        a->n_axes++;
        if (!npy_take(c, ',')) return npy_take(c, ')');
    }
    return true;
}

static bool take_word(cursor *c, const char *word) {
    size_t n = strlen(word);
    npy_skip_space(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0) return false;
    c->p += n;
    return true;
}

// '<f4', '|u1', …
static dt_status read_type(dt_npy *a, const char *t) {
    bool order = strchr("<>|=", t[0]) && t[0], sized = order && t[1] && t[2] && !t[3];
    a->kind = order ? t[1] : t[0];
    a->size = sized ? t[2] - '0' : 0;
    a->swapped = t[0] == '>' && a->size > 1;
    if (a->kind == 'O') return npy_broken("Python objects (pickle) are never read; save numbers");
    bool whole = a->kind == 'i' || a->kind == 'u';
    bool known = (whole && (a->size == 1 || a->size == 2 || a->size == 4 || a->size == 8)) ||
                 (a->kind == 'f' && (a->size == 4 || a->size == 8)) || (a->kind == 'b' && a->size == 1);
    return known ? DT_OK
                 : dt_fail(DT_E_DATA,
                           "NPY: elements of type '%s': expected bool, i1 to i8, u1 to "
                           "u8, f4 or f8",
                           t);
}

static dt_status read_dictionary(cursor *c, dt_npy *a, bool *fortran) {
    char key[32], type[32];
    unsigned seen = 0;
    if (!npy_take(c, '{')) return npy_broken("its header is no dictionary");
    while (!npy_take(c, '}')) {
        if (!npy_take_text(c, key, sizeof key) || !npy_take(c, ':')) return npy_broken("a damaged header");
        if (strcmp(key, "descr") == 0) {
            npy_skip_space(c);
            if (c->p < c->end && *c->p == '[')
                return npy_broken("an array of records; save its columns as arrays of numbers");
            if (!npy_take_text(c, type, sizeof type)) return npy_broken("a damaged type in the header");
            DT_TRY(read_type(a, type));
            seen |= 1;
        } else if (strcmp(key, "fortran_order") == 0) {
            *fortran = take_word(c, "True");
            if (!*fortran && !take_word(c, "False")) return npy_broken("a damaged order in the header");
            seen |= 2;
        } else if (strcmp(key, "shape") == 0) {
            if (!take_shape(c, a)) return npy_broken("a damaged shape in the header");
            seen |= 4;
        } else {
            return dt_fail(DT_E_DATA, "NPY: unknown key '%s' in the header", key);
        }
        if (!npy_take(c, ',')) {
            if (!npy_take(c, '}')) return npy_broken("a damaged header");
            break;
        }
    }
    return seen == 7 ? DT_OK : npy_broken("its header lacks descr, fortran_order or shape");
}

static dt_status set_strides(dt_npy *a, bool fortran, size_t n_bytes) {
    for (int k = 0; k < a->n_axes; k++)
        if (a->shape[k] == 0) return npy_broken("an array without elements: its shape has a 0");
    size_t n = 1;
    bool whole = dt_stated_size(1, (uint64_t)a->size, n_bytes, &n); // of a scalar
    n = 1;
    for (int k = 0; k < a->n_axes && whole; k++) {
        int axis = fortran ? k : a->n_axes - 1 - k;
        a->stride[axis] = (int64_t)n;
        whole = dt_stated_size(n, (uint64_t)a->shape[axis], n_bytes / (size_t)a->size, &n);
    }
    a->n = (int64_t)n;
    return whole ? DT_OK : npy_broken("cut: its elements are not all there");
}

bool dt_npy_is(dt_span s) {
    return s.n_bytes >= 6 && memcmp(s.data, "\x93NUMPY", 6) == 0;
}

dt_status dt_npy_read(dt_span s, dt_npy *out) {
    *out = (dt_npy){.kind = 0};
    if (!dt_npy_is(s) || s.n_bytes < 12) return npy_broken("cut in its header");
    int version = s.data[6];
    if (version < 1 || version > 3) return dt_fail(DT_E_DATA, "NPY: version %d.%d is not known", version, s.data[7]);
    size_t at = version == 1 ? 10 : 12;
    size_t n = version == 1 ? dt_le16(s.data + 8) : dt_le32(s.data + 8);
    if (n > s.n_bytes - at) return npy_broken("cut in its header");
    const char *text = (const char *)s.data + at;
    cursor c = {text, text + n};
    bool fortran = false;
    DT_TRY(read_dictionary(&c, out, &fortran));
    out->data = s.data + at + n;
    return set_strides(out, fortran, s.n_bytes - at - n);
}

double dt_npy_get(const dt_npy *a, int64_t at) {
    const uint8_t *p = a->data + at * a->size;
    uint64_t v = 0;
    float f;
    double d;
    for (int i = 0; i < a->size; i++) v |= (uint64_t)p[a->swapped ? a->size - 1 - i : i] << 8 * i;
    if (a->kind == 'f' && a->size == 4) {
        uint32_t bits = (uint32_t)v;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
    if (a->kind == 'f') {
        memcpy(&d, &v, sizeof d);
        return d;
    }
    int shift = 64 - 8 * a->size; // sign
    return a->kind == 'i' ? (double)((int64_t)(v << shift) >> shift) : (double)v;
}
