// resize_avx2.c: the inner loops of a resize on AVX2.
//
// A weight of 22 bits is split into 11 high and 11 low ones, so that pairs of taps can be multiplied and
// added by vpmaddwd (16 x 16 bits into 32), which is exact: twice the work of one product, but half of what
// 32-bit multiplications cost, and two taps at a time. The sums are those of the plain loop to the bit.
//
// Across: four taps of one RGB pixel are 12 bytes. Shuffles spread them to (r0 r1 g0 g1 b0 b1 . .) and
// (r2 r3 …), beside weights packed in the same order; one output pixel a lane. All pixels take as many
// groups of four taps as the widest, so that no branch depends on a pixel. Down: bytes of two rows are interleaved, 16 columns at once.
#include "resize_rows.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include "backend/cpu/cpu_backend.h"

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))

enum { LOW_BITS = 11, LOW_MASK = (1 << LOW_BITS) - 1, GROUP = 4 }; // taps a group

// As many as the position with the most taps needs.
static int groups_of(const dt_resize_axis *a) {
    return (a->max_count + GROUP - 1) / GROUP;
}

// Where the weights of output i begin: pixels 0 and 2 of four, then 1 and 3, are a pair.
static size_t place_of(int i, int groups) {
    return ((size_t)(i / 4) * 2 + (size_t)(i & 1)) * (size_t)groups * 64 + (size_t)(i & 2) * 4;
}

// By pair of output pixels and group: four times 16 words, as two_pixels takes them.
static bool pack(dt_resize_axis *a) {
    int groups = groups_of(a), n_fours = (a->n_out + 3) / 4;
    size_t n = (size_t)n_fours * 2 * (size_t)groups * 64;
    int16_t *out = (int16_t *)dt_buffer_reserve(&a->packed, n * sizeof *out);
    const int32_t *weight = (const int32_t *)a->weight.data;
    if (!out || !dt_buffer_reserve(&a->offset, (size_t)n_fours * 4 * sizeof(int32_t))) return false;
    memset(out, 0, n * sizeof *out);
    for (int i = 0; i < a->n_out; i++, weight += a->n_taps)
        for (int k = 0; k < a->max_count && k < a->n_taps; k++) {
            int16_t *o = out + place_of(i, groups) + k / GROUP * 64 + k % GROUP / 2 * 32 + k % 2;
            for (int c = 0; c < 3; c++) {
                o[2 * c] = (int16_t)(weight[k] >> LOW_BITS);
                o[16 + 2 * c] = (int16_t)(weight[k] & LOW_MASK);
            }
        }
    return true;
}

// Rounded r, g, b of two output pixels, one a lane. A group's weights: [high, low] of taps 0 and 1 for both
// pixels, then of 2 and 3.
AVX2 static inline __attribute__((always_inline)) __m256i
two_pixels(const uint8_t *p, const uint8_t *q, const __m256i *w, int n_groups) {
#define Z -1
    const __m256i spread01 = _mm256_setr_epi8(0, Z, 3, Z, 1, Z, 4, Z, 2, Z, 5, Z, Z, Z, Z, Z, 0, Z,
                                              3, Z, 1, Z, 4, Z, 2, Z, 5, Z, Z, Z, Z, Z);
    const __m256i spread23 = _mm256_setr_epi8(6, Z, 9, Z, 7, Z, 10, Z, 8, Z, 11, Z, Z, Z, Z, Z, 6,
                                              Z, 9, Z, 7, Z, 10, Z, 8, Z, 11, Z, Z, Z, Z, Z);
#undef Z
    __m256i high = _mm256_setzero_si256(), low = _mm256_set1_epi32(1 << (DT_RESIZE_BITS - 1));
    for (int g = 0; g < n_groups; g++, p += 3 * GROUP, q += 3 * GROUP, w += 4) {
        __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p));
        v = _mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i *)q), 1);
        __m256i a = _mm256_shuffle_epi8(v, spread01), b = _mm256_shuffle_epi8(v, spread23);
        high = _mm256_add_epi32(high,
                                _mm256_add_epi32(_mm256_madd_epi16(a, _mm256_loadu_si256(w)),
                                                 _mm256_madd_epi16(b, _mm256_loadu_si256(w + 2))));
        low = _mm256_add_epi32(low,
                               _mm256_add_epi32(_mm256_madd_epi16(a, _mm256_loadu_si256(w + 1)),
                                                _mm256_madd_epi16(b, _mm256_loadu_si256(w + 3))));
    }
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low),
                             DT_RESIZE_BITS);
}

// Four pixels a turn; 16 bytes are stored, of which the last four are the next turn's.
AVX2 static inline __attribute__((always_inline)) void row_across(const uint8_t *src,
                                                                  const int32_t *at,
                                                                  const __m256i *w, int n_fours,
                                                                  uint8_t *dst, int n_groups) {
    const __m128i squeeze = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    for (int i = 0; i < n_fours; i++, at += 4, w += 8 * n_groups, dst += 12) {
        __m256i s = two_pixels(src + at[0], src + at[2], w, n_groups);
        __m256i t = two_pixels(src + at[1], src + at[3], w + 4 * n_groups, n_groups);
        s = _mm256_packs_epi32(s, t); // lanes: pixels 0 and 1, 2 and 3
        __m128i v = _mm_packus_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
        _mm_storeu_si128((__m128i *)dst, _mm_shuffle_epi8(v, squeeze));
    }
}

static void place(dt_resize_axis *a, int left) {
    const int *first = (const int *)a->first.data;
    int32_t *at = (int32_t *)a->offset.data;
    int n = (a->n_out + 3) / 4 * 4;
    for (int i = 0; i < n; i++) // those that are too many read where the last one does
        at[i] = 3 * (first[2 * (i < a->n_out ? i : a->n_out - 1)] - left);
}

AVX2 static void across(const dt_resize_axis *a, const uint8_t *src, uint8_t *dst) {
    const __m256i *w = (const __m256i *)a->packed.data;
    const int32_t *at = (const int32_t *)a->offset.data;
    int groups = groups_of(a), n_fours = (a->n_out + 3) / 4;
    if (groups == 1) // the usual ones, unrolled
        row_across(src, at, w, n_fours, dst, 1);
    else if (groups == 2)
        row_across(src, at, w, n_fours, dst, 2);
    else
        row_across(src, at, w, n_fours, dst, groups);
}

// 16 columns of n_pairs pairs of rows.
AVX2 static inline __attribute__((always_inline)) void columns(const uint8_t *rows, size_t n,
                                                               const __m256i (*w)[2], int n_taps,
                                                               int n_pairs, uint8_t *dst) {
    const __m256i half = _mm256_set1_epi32(1 << (DT_RESIZE_BITS - 1));
    __m256i h0 = _mm256_setzero_si256(), h1 = h0, l0 = half, l1 = half;
    for (int k = 0; k < n_pairs; k++) {
        const uint8_t *p = rows + 2 * (size_t)k * n;
        __m128i a = _mm_loadu_si128((const __m128i *)p);
        __m128i b = 2 * k + 1 < n_taps ? _mm_loadu_si128((const __m128i *)(p + n)) : a;
        __m256i v0 = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b));
        __m256i v1 = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
        h0 = _mm256_add_epi32(h0, _mm256_madd_epi16(v0, w[k][0]));
        h1 = _mm256_add_epi32(h1, _mm256_madd_epi16(v1, w[k][0]));
        l0 = _mm256_add_epi32(l0, _mm256_madd_epi16(v0, w[k][1]));
        l1 = _mm256_add_epi32(l1, _mm256_madd_epi16(v1, w[k][1]));
    }
    h0 = _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(h0, LOW_BITS), l0), DT_RESIZE_BITS);
    h1 = _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(h1, LOW_BITS), l1), DT_RESIZE_BITS);
    h0 = _mm256_packs_epi32(h0, h1); // lanes: columns 0-3 and 8-11, 4-7 and 12-15
    __m128i v = _mm_packus_epi16(_mm256_castsi256_si128(h0), _mm256_extracti128_si256(h0, 1));
    _mm_storeu_si128((__m128i *)dst, _mm_shuffle_epi32(v, _MM_SHUFFLE(3, 1, 2, 0)));
}

AVX2 static void down(const uint8_t *rows, const int32_t *weight, int n_taps, uint8_t *dst,
                      size_t n) {
    __m256i w[DT_RESIZE_MAX_PAIRS][2];
    int n_pairs = (n_taps + 1) / 2;
    for (int k = 0; k < n_pairs; k++) {
        int32_t a = weight[2 * k], b = 2 * k + 1 < n_taps ? weight[2 * k + 1] : 0;
        w[k][0] = _mm256_set1_epi32(a >> LOW_BITS | (b >> LOW_BITS) << 16);
        w[k][1] = _mm256_set1_epi32((a & LOW_MASK) | (b & LOW_MASK) << 16);
    }
    size_t x = 0;
    const __m256i(*v)[2] = (const __m256i(*)[2])w;
#define COLUMNS(n_pairs_)                                                                          \
    for (; x + 16 <= n; x += 16) columns(rows + x, n, v, n_taps, n_pairs_, dst + x)
    switch (n_pairs) { // the usual ones, their weights in registers
    case 1:
        COLUMNS(1);
        break;
    case 2:
        COLUMNS(2);
        break;
    case 3:
        COLUMNS(3);
        break;
    default:
        COLUMNS(n_pairs);
    }
#undef COLUMNS
    for (; x < n; x++) {
        int32_t s = 1 << (DT_RESIZE_BITS - 1);
        for (int k = 0; k < n_taps; k++) s += weight[k] * rows[(size_t)k * n + x];
        dst[x] = (uint8_t)(s >> DT_RESIZE_BITS);
    }
}

const dt_resize_rows *dt_resize_rows_avx2(void) {
    static const dt_resize_rows ROWS = {pack, place, across, down};
    return dt_cpu_isa_get() >= DT_CPU_AVX2 ? &ROWS : NULL;
}

#else
const dt_resize_rows *dt_resize_rows_avx2(void) {
    return NULL;
}
#endif
