// decode_mat.c: matrices of MATLAB files (version 5, what save writes up to -v7) as series.
//
// A header of 128 bytes, then elements: a type, a size, bytes padded to 8; small ones lie in their own tag. A variable is
// an element of elements (flags, axes, name, numbers by column), mostly packed by zlib. Numbers may have a smaller type
// than their class. The variable is taken by name, else the only matrix of numbers; a row is a series of one channel.
// Rejected: libmatio, which opens files by path only, and brings HDF5, libcurl and OpenSSL into the process.
// Format: MATLAB's "MAT-File Format", R2023a.
#include "array.h"

#include "base/bits.h"
#include "base/core.h"
#include "base/stated.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

// PEEK: bytes that hold the head of a matrix, of up to MAX_NAME
enum { HEAD = 128, MAX_BYTES = 1 << 30, PEEK = 256, MAX_NAME = 63, MATRIX = 14, PACKED = 15, COMPLEX = 0x800 };

typedef struct mat_reader {
    dt_span s;
    size_t at;
    bool swapped; // the file is big-endian
} mat_reader;

bool dt_mat_is(dt_span s) {
    return s.n_bytes >= HEAD && memcmp(s.data, "MATLAB ", 7) == 0 &&
           (memcmp(s.data + 126, "IM", 2) == 0 || memcmp(s.data + 126, "MI", 2) == 0);
}

static uint32_t mat_u32(const mat_reader *m, const uint8_t *p) {
    return m->swapped ? dt_be32(p) : dt_le32(p);
}

static bool take_element(mat_reader *m, uint32_t *type, dt_span *out) {
    const uint8_t *p = m->s.data + m->at;
    const size_t left = m->s.n_bytes - m->at;
    if (left < 8) return false;
    const uint32_t head = mat_u32(m, p), small = head >> 16; // so many bytes lie in the tag
    *type = head & 0xffff;
    *out = (dt_span){p + (small ? 4 : 8), small ? small : mat_u32(m, p + 4)};
    if (out->n_bytes > (small ? 4 : left - 8)) return false;
    const size_t n = 8 + (small ? 0 : *type == PACKED ? out->n_bytes : dt_align_up(out->n_bytes, 8));
    m->at += n < left ? n : left;
    return true;
}

// The element that is packed in `in`: *out is in scratch, of which the first `most` bytes are there.
static dt_status unpack_element(const mat_reader *m, dt_span in, size_t most, dt_span *out, dt_buffer *scratch) {
    uint8_t tag[8];
    z_stream z = {
        .next_in = (uint8_t *)(uintptr_t)in.data, .avail_in = (uInt)in.n_bytes, .next_out = tag, .avail_out = 8};
    if (inflateInit(&z) != Z_OK) return dt_fail(DT_E_INTERNAL, "zlib: out of memory");
    int r = inflate(&z, Z_SYNC_FLUSH);
    const size_t n = (size_t)mat_u32(m, tag + 4) + 8;
    // zlib makes at most 1032 bytes of one
    uint8_t *p = z.avail_out == 0 && n <= MAX_BYTES && n / 1032 <= in.n_bytes ? dt_buffer_reserve(scratch, n) : NULL;
    if (p) {
        memcpy(p, tag, 8);
        z.next_out = p + 8, z.avail_out = (uInt)((n < most ? n : most) - 8);
        r = inflate(&z, n <= most ? Z_FINISH : Z_SYNC_FLUSH);
    }
    const bool whole = p && (n > most || r == Z_STREAM_END) && z.avail_out == 0;
    inflateEnd(&z);
    *out = (dt_span){p, n};
    return whole ? DT_OK : dt_fail(DT_E_DATA, "MAT: a variable is cut, damaged or too large");
}

// A matrix of numbers with two axes: *out; else out->n is 0. `name` has 64 characters.
static dt_status read_matrix(mat_reader m, dt_npy *out, char name[64], bool *is_complex) {
    static const struct {
        char kind;
        int size;
    } TYPES[] = {[1] = {'i', 1}, {'u', 1}, {'i', 2},       {'u', 2},        {'i', 4},
                 {'u', 4},       {'f', 4}, [9] = {'f', 8}, [12] = {'i', 8}, {'u', 8}};
    uint32_t type;
    dt_span flags, axes, text, v;
    size_t n = 0;
    *out = (dt_npy){.n = 0};
    // each is short, so that the next begins within PEEK bytes
    if (!take_element(&m, &type, &flags) || flags.n_bytes != 8 || !take_element(&m, &type, &axes) ||
        axes.n_bytes > MAX_NAME || !take_element(&m, &type, &text) || text.n_bytes > MAX_NAME ||
        !take_element(&m, &type, &v))
        return DT_OK; // empty, or no matrix
    const uint32_t class = mat_u32(&m, flags.data) & 255;
    *is_complex = mat_u32(&m, flags.data) & COMPLEX;
    snprintf(name, MAX_NAME + 1, "%.*s", (int)text.n_bytes, (const char *)text.data);
    if (class < 6 || class > 15 || axes.n_bytes != 8) return DT_OK; // 6: double, 15: uint64
    const int64_t rows = mat_u32(&m, axes.data), columns = mat_u32(&m, axes.data + 4);
    if (type >= sizeof TYPES / sizeof *TYPES || !TYPES[type].size ||
        !dt_stated_size((uint64_t)rows, (uint64_t)columns, v.n_bytes / (size_t)TYPES[type].size, &n))
        return dt_fail(DT_E_DATA, "MAT: variable '%s' is cut or damaged", name);
    *out = (dt_npy){.kind = TYPES[type].kind,
                    .size = TYPES[type].size,
                    .swapped = m.swapped,
                    .n_axes = 2,
                    .shape = {rows, columns},
                    .stride = {1, rows},
                    .n = (int64_t)n,
                    .data = v.data};
    if (rows == 1) out->shape[0] = columns, out->shape[1] = 1;
    return DT_OK;
}

// The variable at m->at, of which `most` bytes are unpacked, and moves behind it. out->n is 0 if it is no matrix.
static dt_status read_variable(mat_reader *m, size_t most, dt_npy *out, char name[64], bool *is_complex,
                               dt_buffer *scratch) {
    const size_t at = m->at;
    mat_reader inner = *m;
    uint32_t type;
    *name = '\0';
    *out = (dt_npy){.n = 0};
    bool ok = take_element(m, &type, &inner.s);
    inner.at = 0;
    if (ok && type == PACKED) {
        DT_TRY(unpack_element(m, inner.s, most, &inner.s, scratch));
        ok = take_element(&inner, &type, &inner.s);
        inner.at = 0;
    }
    if (!ok) return dt_fail(DT_E_DATA, "MAT: cut or damaged at byte %zu", at);
    return type == MATRIX ? read_matrix(inner, out, name, is_complex) : DT_OK;
}

dt_status dt_mat_read(dt_span s, const dt_series_names *names, dt_npy *out, dt_buffer *scratch) {
    mat_reader m = {s, HEAD, s.data[126] == 'M'};
    char name[64], first[64] = "";
    size_t found = 0;
    bool is_complex = false;
    if (memcmp(s.data, "MATLAB 7.3", 10) == 0) return dt_fail(DT_E_DATA, "MAT: version 7.3 is HDF5: save with -v7");
    if (names->n > 1) return dt_fail(DT_E_DATA, "MAT: `variable` takes one name, here are %d", names->n);
    for (size_t at = HEAD; at < s.n_bytes; at = m.at) {
        DT_TRY(read_variable(&m, PEEK, out, name, &is_complex, scratch));
        if (names->n ? strcmp(name, names->name[0]) != 0 : out->n < 2) continue; // a single number is no series
        if (found && !names->n)
            return dt_fail(DT_E_DATA, "MAT: '%s' and '%s' are matrices: choose (variable)", first, name);
        found = at;
        memcpy(first, name, sizeof first);
    }
    if (!found)
        return names->n ? dt_fail(DT_E_DATA, "MAT: no variable '%s'", names->name[0])
                        : dt_fail(DT_E_DATA, "MAT: no variable is a matrix of numbers");
    m.at = found;
    DT_TRY(read_variable(&m, SIZE_MAX, out, name, &is_complex, scratch));
    return out->n > 0 && !is_complex ? DT_OK
                                     : dt_fail(DT_E_DATA, "MAT: variable '%s' is %s", first,
                                               is_complex ? "complex" : "no matrix of numbers with two axes");
}
