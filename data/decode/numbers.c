// numbers.c: a member's bytes as a vector of numbers, or as a series: rows of numbers.
//
// Three forms; the bytes say which: an NPY array; text, if every byte may be part of a number or a
// separator; else raw little-endian floats, exactly n of them. 4 n bytes that look like text are text: raw
// floats would have to look like digits in every byte to be mistaken for it.
#include "array.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

static const char BETWEEN[] = " \t\r\n,;[]";

static bool is_text(dt_span s) {
    static const char NUMBER[] = "0123456789+-.eEnaifNAIF";
    for (size_t i = 0; i < s.n_bytes; i++)
        if (!s.data[i] || (!strchr(NUMBER, s.data[i]) && !strchr(BETWEEN, s.data[i]))) return false;
    return true;
}

static dt_status count_differs(int64_t n, int64_t has, const char *more) {
    return dt_fail(DT_E_DATA, "%lld number%s wanted, %lld%s found", (long long)n, n == 1 ? "" : "s", (long long)has,
                   more);
}

// Rows of numbers: lines, or where there are brackets the innermost of them. *columns -1: not all rows have as many.
static void measure_rows(const char *p, int64_t *rows, int64_t *columns) {
    const char end = strchr(p, '[') ? ']' : '\n';
    int64_t n = 0;
    *rows = *columns = 0;
    for (;; p++) {
        const size_t n_chars = strcspn(p, BETWEEN);
        n += n_chars > 0;
        p += n_chars;
        if (*p && *p != end) continue;
        if (n > 0) *columns = (*rows)++ == 0 || *columns == n ? n : -1;
        n = 0;
        if (!*p) return;
    }
}

static dt_status refuse_rows(int64_t rows, int64_t columns) {
    return dt_fail(DT_E_DATA,
                   "%lld rows of %lld numbers are no vector, which would glue them together: "
                   "kind: audio takes series (rows are samples, columns channels), kind: image "
                   "arrays of (height, width)",
                   (long long)rows, (long long)columns);
}

static dt_status numbers_read_text(dt_span s, int64_t n, double *out, dt_buffer *scratch) {
    char *text = (char *)dt_buffer_reserve(scratch, s.n_bytes + 1), *end;
    int64_t rows, columns;
    if (!text) return dt_fail(DT_E_INTERNAL, "out of memory");
    memcpy(text, s.data, s.n_bytes);
    text[s.n_bytes] = '\0';
    measure_rows(text, &rows, &columns);
    if (rows > 1 && columns > 1) return refuse_rows(rows, columns);
    for (int64_t i = 0;; i++) {
        text += strspn(text, BETWEEN);
        if (!*text) return i == n ? DT_OK : count_differs(n, i, "");
        if (i == n) return count_differs(n, i, " and more");
        out[i] = strtod(text, &end);
        if (end == text || (*end && !strchr(BETWEEN, *end))) return dt_fail(DT_E_DATA, "'%.20s' is no number", text);
        text = end;
    }
}

static int64_t longest_axis(const dt_npy *a) {
    int64_t n = 1;
    for (int k = 0; k < a->n_axes; k++) n = a->shape[k] > n ? a->shape[k] : n;
    return n;
}

static dt_status read_npy(dt_span s, int64_t n, double *out) {
    dt_npy a;
    int64_t at[DT_NPY_MAX_AXES] = {0};
    DT_TRY(dt_npy_read(s, &a));
    const int64_t longest = longest_axis(&a);
    if (a.n > longest) return refuse_rows(a.n / longest, longest);
    if (a.n != n) return count_differs(n, a.n, " in an NPY array");
    for (int64_t i = 0; i < n; i++) {
        int64_t place = 0;
        for (int k = 0; k < a.n_axes; k++) place += at[k] * a.stride[k];
        out[i] = dt_npy_get(&a, place);
        for (int k = a.n_axes - 1; k >= 0 && ++at[k] == a.shape[k]; k--) at[k] = 0;
    }
    return DT_OK;
}

bool dt_numbers_are_raw(dt_span bytes, size_t n_head, const float *v) {
    size_t n_bytes = bytes.n_bytes - n_head;
    if (n_head == 0)
        return !dt_npy_is((dt_span){(const uint8_t *)v, n_bytes}) && !is_text((dt_span){(const uint8_t *)v, n_bytes});
    dt_npy a;
    if (dt_npy_read(bytes, &a) != DT_OK || a.data != bytes.data + n_head || a.kind != 'f' || a.size != 4 || a.swapped ||
        (size_t)a.n * sizeof(float) != n_bytes)
        return false;
    return a.n == longest_axis(&a);
}

dt_status dt_decode_numbers(dt_span bytes, int64_t n, double *out, dt_buffer *scratch) {
    if (dt_npy_is(bytes)) return read_npy(bytes, n, out);
    if (is_text(bytes)) return numbers_read_text(bytes, n, out, scratch);
    if (bytes.n_bytes != (size_t)n * sizeof(float))
        return dt_fail(DT_E_DATA, "neither NPY nor numbers as text, and %zu bytes are not %lld raw floats",
                       bytes.n_bytes, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        float v;
        memcpy(&v, bytes.data + sizeof v * (size_t)i, sizeof v);
        out[i] = (double)v;
    }
    return DT_OK;
}

bool dt_series_is(dt_span bytes) {
    return dt_npy_is(bytes) || (bytes.n_bytes > 0 && is_text(bytes));
}

static dt_status numbers_read_rows(dt_span s, dt_npy *out, dt_buffer *scratch) {
    const size_t n_text = dt_align_up(s.n_bytes + 1, sizeof(double));
    // a number takes two bytes, the last one of a text one
    char *text = (char *)dt_buffer_reserve(scratch, n_text + (s.n_bytes / 2 + 1) * sizeof(double)), *end;
    int64_t rows, columns, n = 0;
    if (!text) return dt_fail(DT_E_INTERNAL, "out of memory");
    double *number = (double *)(void *)(text + n_text);
    memcpy(text, s.data, s.n_bytes);
    text[s.n_bytes] = '\0';
    measure_rows(text, &rows, &columns);
    if (columns < 1)
        return dt_fail(DT_E_DATA, "a series whose %lld rows have not all as many numbers", (long long)rows);
    for (;; text = end) {
        text += strspn(text, BETWEEN);
        if (!*text) break;
        number[n++] = strtod(text, &end);
        if (end == text || (*end && !strchr(BETWEEN, *end))) return dt_fail(DT_E_DATA, "'%.20s' is no number", text);
    }
    *out = (dt_npy){.kind = 'f',
                    .size = sizeof *number,
                    .n_axes = 2,
                    .shape = {rows, columns},
                    .stride = {columns, 1},
                    .n = n,
                    .data = (const uint8_t *)number};
    return DT_OK;
}

dt_status dt_series_read(dt_span bytes, dt_npy *out, dt_buffer *scratch) {
    if (!dt_npy_is(bytes)) return numbers_read_rows(bytes, out, scratch);
    DT_TRY(dt_npy_read(bytes, out));
    if (out->n_axes == 1) out->shape[out->n_axes++] = 1;
    return out->n_axes == 2
               ? DT_OK
               : dt_fail(DT_E_DATA, "an array of %d axes is no series, which has samples and channels: (T, C)",
                         out->n_axes);
}
