// numbers.c: a member's bytes as a vector of numbers.
//
// Three forms; the bytes say which: an NPY array; text, if every byte may be part of a number or a
// separator; else raw little-endian floats, exactly n of them. 4 n bytes that look like text are text: raw
// floats would have to look like digits in every byte to be mistaken for it.
#include "array.h"

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
    return dt_fail(DT_E_DATA, "%lld number%s wanted, %lld%s found", (long long)n, n == 1 ? "" : "s",
                   (long long)has, more);
}

static dt_status read_text(dt_span s, int64_t n, float *out, dt_buffer *scratch) {
    char *text = (char *)dt_buffer_reserve(scratch, s.n_bytes + 1), *end;
    if (!text) return dt_fail(DT_E_INTERNAL, "out of memory");
    memcpy(text, s.data, s.n_bytes);
    text[s.n_bytes] = '\0';
    for (int64_t i = 0;; i++) {
        text += strspn(text, BETWEEN);
        if (!*text) return i == n ? DT_OK : count_differs(n, i, "");
        if (i == n) return count_differs(n, i, " and more");
        out[i] = strtof(text, &end);
        if (end == text || (*end && !strchr(BETWEEN, *end)))
            return dt_fail(DT_E_DATA, "'%.20s' is no number", text);
        text = end;
    }
}

static dt_status read_npy(dt_span s, int64_t n, float *out) {
    dt_npy a;
    int64_t at[DT_NPY_MAX_AXES] = {0};
    DT_TRY(dt_npy_read(s, &a));
    if (a.n != n) return count_differs(n, a.n, " in an NPY array");
    for (int64_t i = 0; i < n; i++) {
        int64_t place = 0;
        for (int k = 0; k < a.n_axes; k++) place += at[k] * a.stride[k];
        out[i] = (float)dt_npy_get(&a, place);
        for (int k = a.n_axes - 1; k >= 0 && ++at[k] == a.shape[k]; k--) at[k] = 0;
    }
    return DT_OK;
}

bool dt_numbers_are_raw(dt_span bytes, size_t n_head, const float *v) {
    size_t n_bytes = bytes.n_bytes - n_head;
    if (n_head == 0)
        return !dt_npy_is((dt_span){(const uint8_t *)v, n_bytes}) &&
               !is_text((dt_span){(const uint8_t *)v, n_bytes});
    dt_npy a;
    if (dt_npy_read(bytes, &a) != DT_OK || a.data != bytes.data + n_head || a.kind != 'f' ||
        a.size != 4 || a.swapped || (size_t)a.n * sizeof(float) != n_bytes)
        return false;
    int64_t dense = 1;
    for (int k = a.n_axes - 1; k >= 0; k--) {
        if (a.shape[k] > 1 && a.stride[k] != dense) return false;
        dense *= a.shape[k];
    }
    return true;
}

dt_status dt_decode_numbers(dt_span bytes, int64_t n, float *out, dt_buffer *scratch) {
    if (dt_npy_is(bytes)) return read_npy(bytes, n, out);
    if (is_text(bytes)) return read_text(bytes, n, out, scratch);
    if (bytes.n_bytes != (size_t)n * sizeof(float))
        return dt_fail(DT_E_DATA,
                       "neither NPY nor numbers as text, and %zu bytes are not %lld raw floats",
                       bytes.n_bytes, (long long)n);
    memcpy(out, bytes.data, bytes.n_bytes);
    return DT_OK;
}
