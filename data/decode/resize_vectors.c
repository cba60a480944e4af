// resize_vectors.c: the inner loops of a resize in GCC's vectors of 16 bytes, for arm64. (x86 without AVX2 has neither the
// shuffle nor the product: there the plain loops take a seventh of the time.)
//
// Sums are those of the plain loops, 32 bits each, four at once. Across, a vector is r, g, b of one output pixel and a lane
// that nobody reads: four taps are 12 bytes, one load, which shuffles spread. Two rows share the loads of weights. Down, 16
// columns are four vectors. NEON multiplies and adds 32 bits in one instruction, so splitting weights, as AVX2's loops
// do, would gain nothing.
#include "resize_rows.h"

#include <string.h>

#if defined(__aarch64__) && defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define INLINED static inline __attribute__((always_inline))

enum { FOUR = 4, COLUMNS = 16 }; // taps a load, columns a turn
typedef int32_t v4i __attribute__((vector_size(16)));
typedef uint16_t v8h __attribute__((vector_size(16)));
typedef uint8_t v16b __attribute__((vector_size(16)));

INLINED v16b load_bytes(const uint8_t *p) {
    v16b v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINED v4i half(void) { // rounds
    return (v4i){0} + (1 << (DT_RESIZE_BITS - 1));
}

// A sum to 0..255.
INLINED v4i clip_sum(v4i v) {
    v >>= DT_RESIZE_BITS;
    v &= v > 0;
    return v | ((v > 255) & 255); // only its low byte counts
}

// Weights by output pixel, 0 behind the last tap.
static bool resize_vectors_pack(dt_resize_axis *a) {
    const size_t taps = (size_t)(a->max_count + FOUR - 1) / FOUR * FOUR, n = (size_t)a->n_out;
    int32_t *out = (int32_t *)dt_buffer_reserve(&a->packed, n * taps * sizeof *out);
    if (!out || !dt_buffer_reserve(&a->offset, n * sizeof(int32_t))) return false;
    memset(out, 0, n * taps * sizeof *out);
    const int32_t *weight = (const int32_t *)a->weight.data;
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * taps, weight + i * (size_t)a->n_taps, (size_t)a->max_count * sizeof *out);
    return true;
}

static void resize_vectors_place(dt_resize_axis *a, int left) {
    const int *first = (const int *)a->first.data;
    int32_t *at = (int32_t *)a->offset.data;
    for (int i = 0; i < a->n_out; i++) at[i] = 3 * (first[2 * i] - left);
}

INLINED v4i add_taps(v4i sum, const uint8_t *p, v4i w) {
    const v16b v = load_bytes(p), zero = {0};
#define TAP(j)                                                                                                         \
    sum += w[j] * (v4i)__builtin_shufflevector(v, zero, 3 * (j), 16, 16, 16, 3 * (j) + 1, 16, 16, 16, 3 * (j) + 2, 16, \
                                               16, 16, 16, 16, 16, 16)
    TAP(0);
    TAP(1);
    TAP(2);
    TAP(3);
#undef TAP
    return sum;
}

// Four bytes are written, of which the last is the next pixel's.
INLINED void store_pixel(uint8_t *to, v4i sum) {
    const v16b v = (v16b)clip_sum(sum);
    const v16b b = __builtin_shufflevector(v, v, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    memcpy(to, &b, 4);
}

static void resize_vectors_across(const dt_resize_axis *a, const uint8_t *const src[2], uint8_t *const dst[2]) {
    const int32_t *at = (const int32_t *)a->offset.data, *weight = (const int32_t *)a->packed.data;
    for (int i = 0; i < a->n_out; i++) {
        v4i s = half(), t = s;
        for (int k = 0; k < a->max_count; k += FOUR, weight += FOUR) {
            v4i w;
            memcpy(&w, weight, sizeof w);
            s = add_taps(s, src[0] + at[i] + 3 * k, w);
            t = add_taps(t, src[1] + at[i] + 3 * k, w);
        }
        store_pixel(dst[0] + 3 * i, s);
        store_pixel(dst[1] + 3 * i, t);
    }
}

INLINED void resize_vectors_columns(const uint8_t *rows, size_t stride, const int32_t *weight, int n_taps,
                                    uint8_t *dst) {
    v4i a = half(), b = a, c = a, d = a;
    for (int k = 0; k < n_taps; k++, rows += stride) {
        const v16b v = load_bytes(rows), zero = {0};
        const v8h none = {0};
        const v8h low = (v8h)__builtin_shufflevector(v, zero, 0, 16, 1, 16, 2, 16, 3, 16, 4, 16, 5, 16, 6, 16, 7, 16);
        const v8h high =
            (v8h)__builtin_shufflevector(v, zero, 8, 16, 9, 16, 10, 16, 11, 16, 12, 16, 13, 16, 14, 16, 15, 16);
        a += weight[k] * (v4i)__builtin_shufflevector(low, none, 0, 8, 1, 8, 2, 8, 3, 8);
        b += weight[k] * (v4i)__builtin_shufflevector(low, none, 4, 8, 5, 8, 6, 8, 7, 8);
        c += weight[k] * (v4i)__builtin_shufflevector(high, none, 0, 8, 1, 8, 2, 8, 3, 8);
        d += weight[k] * (v4i)__builtin_shufflevector(high, none, 4, 8, 5, 8, 6, 8, 7, 8);
    }
    const v8h low = __builtin_shufflevector((v8h)clip_sum(a), (v8h)clip_sum(b), 0, 2, 4, 6, 8, 10, 12, 14);
    const v8h high = __builtin_shufflevector((v8h)clip_sum(c), (v8h)clip_sum(d), 0, 2, 4, 6, 8, 10, 12, 14);
    const v16b all =
        __builtin_shufflevector((v16b)low, (v16b)high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    memcpy(dst, &all, sizeof all);
}

// The last turn begins where 16 columns are left: some are made twice.
static void resize_vectors_down(const uint8_t *rows, size_t stride, const int32_t *weight, int n_taps, uint8_t *dst,
                                size_t n) {
    for (size_t x = 0; x < n; x += COLUMNS) {
        const size_t at = x + COLUMNS <= n ? x : n - COLUMNS;
        resize_vectors_columns(rows + at, stride, weight, n_taps, dst + at);
    }
}

const dt_resize_rows *dt_resize_rows_vectors(void) {
    static const dt_resize_rows ROWS = {resize_vectors_pack, resize_vectors_place, resize_vectors_across,
                                        resize_vectors_down};
    return &ROWS;
}

#else
const dt_resize_rows *dt_resize_rows_vectors(void) {
    return NULL;
}
#endif
