// resize_avx2.c: the inner loops of a resize on AVX2.
//
// A weight of 22 bits is split into w = high * 2^16 + low, -2^15 <= low < 2^15, so that pairs of taps can be
// multiplied and added by vpmaddwd (16 x 16 bits into 32), which is exact. With H and L the sums of both
// parts, a byte is (H + (L >> 16) + 32) >> 6: the plain loop's to the bit, as what falls off L is less than
// the rounding looks at. H + (L >> 16) is below 2^14, so both parts meet as 16-bit words (what H carries
// beyond them cancels), and one vpmulhrsw by 2^9 rounds twice as many as 32-bit shifts would.
//
// Across: four taps of one RGB pixel are 12 bytes. Shuffles widen them to (r0 r1 g0 g1 b0 b1 . .) and (r2 r3
// ...), beside weights packed in the same order; each 128-bit lane makes one output pixel, pixels i and i + 4
// of eight together. All pixels use as many pairs of taps as the widest, so that no branch depends on a pixel.
// Two rows go at once, as loading weights costs as much as using them. Down: bytes of two rows are interleaved,
// 32 columns at once; the high parts are so small that vpmaddubsw takes the bytes as they are.
#include "resize_rows.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include "base/os.h"

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

enum { EIGHT = 8, WORDS = 32 }; // pixels a turn; words of a pair of taps for two pixels

static int pairs_of(const dt_resize_axis *a) {
    return (a->max_count + 1) / 2;
}

static int high_of(int32_t w) {
    return (w + (1 << 15)) >> 16;
}

static int low_of(int32_t w) {
    return w - high_of(w) * (1 << 16);
}

static int32_t two_words(int first, int second) {
    return (int32_t)((uint32_t)(uint16_t)first | (uint32_t)(uint16_t)second << 16);
}

// The words for r, g, b of one pixel: a pair three times.
AVX2 static void store_pair(int16_t *to, int first, int second) {
    __m128i v = _mm_cvtsi32_si128(two_words(first, second));
    _mm_storeu_si128((__m128i *)to, _mm_shuffle_epi32(v, _MM_SHUFFLE(1, 0, 0, 0)));
}

// Weights by two output pixels and pair of taps: 16 high words, then 16 low ones, as two_pixels takes them.
AVX2 static bool resize_avx2_pack(dt_resize_axis *a) {
    int n_pairs = pairs_of(a), n = (a->n_out + EIGHT - 1) / EIGHT * EIGHT;
    size_t n_words = (size_t)n / 2 * (size_t)n_pairs * WORDS;
    int16_t *out = (int16_t *)dt_buffer_reserve(&a->packed, n_words * sizeof *out);
    const int32_t *weight = (const int32_t *)a->weight.data;
    if (!out || !dt_buffer_reserve(&a->offset, (size_t)n * sizeof(int32_t))) return false;
    for (int i = 0; i < n; i++, weight += a->n_taps) {
        size_t place = (size_t)(i / EIGHT * 4 + i % 4) * (size_t)n_pairs;
        int16_t *o = out + place * WORDS + i / 4 % 2 * 8;
        for (int k = 0; k < 2 * n_pairs; k += 2, o += WORDS) {
            int32_t first = i < a->n_out ? weight[k] : 0;
            int32_t second = i < a->n_out && k + 1 < a->n_taps ? weight[k + 1] : 0;
            store_pair(o, high_of(first), high_of(second));
            store_pair(o + WORDS / 2, low_of(first), low_of(second));
        }
    }
    return true;
}

#define INLINED static inline __attribute__((always_inline))

typedef struct sums {
    __m256i high, low;
} sums;

AVX2 INLINED void add_pair(sums *s, __m256i pixels, __m256i high, __m256i low) {
    s->high = _mm256_add_epi32(s->high, _mm256_madd_epi16(pixels, high));
    s->low = _mm256_add_epi32(s->low, _mm256_madd_epi16(pixels, low));
}

// Keeps v in a register: the compiler would load it again for every use.
AVX2 INLINED __m256i load_weights(const __m256i *w) {
    __m256i v = _mm256_loadu_si256(w);
    __asm__("" : "+x"(v));
    return v;
}

AVX2 INLINED __m256i load_two(const uint8_t *p, const uint8_t *q) {
    __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return _mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i *)q), 1);
}

// r, g, b of two output pixels, one a lane, of two rows.
AVX2 INLINED void two_pixels(const uint8_t *src, const uint8_t *below, int p, int q, const __m256i *w, int n_pairs,
                             sums out[2]) {
#define Z -1
    const __m256i spread01 = _mm256_setr_epi8(0, Z, 3, Z, 1, Z, 4, Z, 2, Z, 5, Z, Z, Z, Z, Z, 0, Z, 3, Z, 1, Z, 4, Z, 2,
                                              Z, 5, Z, Z, Z, Z, Z);
    const __m256i spread23 = _mm256_setr_epi8(6, Z, 9, Z, 7, Z, 10, Z, 8, Z, 11, Z, Z, Z, Z, Z, 6, Z, 9, Z, 7, Z, 10, Z,
                                              8, Z, 11, Z, Z, Z, Z, Z);
#undef Z
    sums s = {_mm256_setzero_si256(), _mm256_setzero_si256()}, t = s;
    for (int k = 0; k < n_pairs; k += 2, p += 12, q += 12, w += 4) {
        __m256i v = load_two(src + p, src + q), u = load_two(below + p, below + q);
        __m256i high = load_weights(w), low = load_weights(w + 1);
        add_pair(&s, _mm256_shuffle_epi8(v, spread01), high, low);
        add_pair(&t, _mm256_shuffle_epi8(u, spread01), high, low);
        if (k + 1 == n_pairs) break;
        high = load_weights(w + 2), low = load_weights(w + 3);
        add_pair(&s, _mm256_shuffle_epi8(v, spread23), high, low);
        add_pair(&t, _mm256_shuffle_epi8(u, spread23), high, low);
    }
    out[0] = s;
    out[1] = t;
}

// H + (L >> 16) to a byte, as a word.
AVX2 INLINED __m256i rounded(__m256i v) {
    return _mm256_mulhrs_epi16(v, _mm256_set1_epi16(1 << 9));
}

// Words in turn: one of s, one of t.
AVX2 INLINED __m256i resize_avx2_join(sums s, sums t) {
    __m256i high = _mm256_blend_epi16(s.high, _mm256_slli_epi32(t.high, 16), 0xaa);
    __m256i low = _mm256_blend_epi16(_mm256_srli_epi32(s.low, 16), t.low, 0xaa);
    return rounded(_mm256_add_epi16(high, low));
}

// Pixels at[0], at[4] and at[1], at[5] of both rows.
AVX2 INLINED void four_pixels(const uint8_t *src, const uint8_t *below, const int32_t *at, const __m256i *w,
                              int n_pairs, __m256i out[2]) {
    sums s[2], t[2];
    two_pixels(src, below, at[0], at[4], w, n_pairs, s);
    two_pixels(src, below, at[1], at[5], w + 2 * n_pairs, n_pairs, t);
    out[0] = resize_avx2_join(s[0], t[0]);
    out[1] = resize_avx2_join(s[1], t[1]);
}

// 28 bytes are written, of which the last four are the next turn's.
AVX2 INLINED void store_eight(uint8_t *dst, __m256i a, __m256i b) {
    const __m256i squeeze = _mm256_setr_epi8(0, 2, 4, 1, 3, 5, 8, 10, 12, 9, 11, 13, -1, -1, -1, -1, 0, 2, 4, 1, 3, 5,
                                             8, 10, 12, 9, 11, 13, -1, -1, -1, -1);
    a = _mm256_shuffle_epi8(_mm256_packus_epi16(a, b), squeeze);
    _mm_storeu_si128((__m128i *)dst, _mm256_castsi256_si128(a));
    _mm_storeu_si128((__m128i *)(dst + 12), _mm256_extracti128_si256(a, 1));
}

AVX2 INLINED void two_rows(const dt_resize_axis *a, const uint8_t *const src[2], uint8_t *const dst[2], int n_pairs) {
    const __m256i *w = (const __m256i *)a->packed.data;
    const int32_t *at = (const int32_t *)a->offset.data;
    const uint8_t *row = src[0], *below = src[1];
    uint8_t *to = dst[0], *to_below = dst[1];
    for (int i = 0, n = a->n_out; i < n; i += EIGHT, at += EIGHT, w += 8 * n_pairs) {
        __m256i v[2], u[2];
        four_pixels(row, below, at, w, n_pairs, v);
        four_pixels(row, below, at + 2, w + 4 * n_pairs, n_pairs, u);
        store_eight(to + 3 * i, v[0], u[0]);
        store_eight(to_below + 3 * i, v[1], u[1]);
    }
}

static void resize_avx2_place(dt_resize_axis *a, int left) {
    const int *first = (const int *)a->first.data;
    int32_t *at = (int32_t *)a->offset.data;
    int n = (a->n_out + EIGHT - 1) / EIGHT * EIGHT;
    for (int i = 0; i < n; i++) // those that are too many read where the last one does
        at[i] = 3 * (first[2 * (i < a->n_out ? i : a->n_out - 1)] - left);
}

AVX2 static void across(const dt_resize_axis *a, const uint8_t *const src[2], uint8_t *const dst[2]) {
    switch (pairs_of(a)) { // the usual ones, unrolled
    case 1:
        two_rows(a, src, dst, 1);
        break;
    case 2:
        two_rows(a, src, dst, 2);
        break;
    case 3:
        two_rows(a, src, dst, 3);
        break;
    default:
        two_rows(a, src, dst, pairs_of(a));
    }
}

// 32 columns of n_pairs pairs of rows.
AVX2 INLINED void columns(const uint8_t *rows, size_t stride, const __m256i (*w)[2], int n_taps, int n_pairs,
                          uint8_t *dst) {
    const __m256i zero = _mm256_setzero_si256();
    __m256i h0 = zero, h1 = zero, l0 = zero, l1 = zero, l2 = zero, l3 = zero;
    for (int k = 0; k < n_pairs; k++) {
        const uint8_t *p = rows + 2 * (size_t)k * stride;
        __m256i a = _mm256_loadu_si256((const __m256i *)p);
        __m256i b = 2 * k + 1 < n_taps ? _mm256_loadu_si256((const __m256i *)(p + stride)) : a;
        __m256i v = _mm256_unpacklo_epi8(a, b), u = _mm256_unpackhi_epi8(a, b);
        h0 = _mm256_add_epi16(h0, _mm256_maddubs_epi16(v, w[k][0]));
        h1 = _mm256_add_epi16(h1, _mm256_maddubs_epi16(u, w[k][0]));
        l0 = _mm256_add_epi32(l0, _mm256_madd_epi16(_mm256_unpacklo_epi8(v, zero), w[k][1]));
        l1 = _mm256_add_epi32(l1, _mm256_madd_epi16(_mm256_unpackhi_epi8(v, zero), w[k][1]));
        l2 = _mm256_add_epi32(l2, _mm256_madd_epi16(_mm256_unpacklo_epi8(u, zero), w[k][1]));
        l3 = _mm256_add_epi32(l3, _mm256_madd_epi16(_mm256_unpackhi_epi8(u, zero), w[k][1]));
    }
    l0 = _mm256_packs_epi32(_mm256_srai_epi32(l0, 16), _mm256_srai_epi32(l1, 16));
    l2 = _mm256_packs_epi32(_mm256_srai_epi32(l2, 16), _mm256_srai_epi32(l3, 16));
    h0 = rounded(_mm256_add_epi16(h0, l0));
    h1 = rounded(_mm256_add_epi16(h1, l2));
    _mm256_storeu_si256((__m256i *)dst, _mm256_packus_epi16(h0, h1));
}

// The last turn begins where 32 columns are left: some are made twice.
AVX2 INLINED void all_columns(const uint8_t *rows, size_t stride, const __m256i (*w)[2], int n_taps, int n_pairs,
                              uint8_t *dst, size_t n) {
    for (size_t x = 0; x < n; x += DT_RESIZE_COLUMNS) {
        size_t at = x + DT_RESIZE_COLUMNS <= n ? x : n - DT_RESIZE_COLUMNS;
        columns(rows + at, stride, w, n_taps, n_pairs, dst + at);
    }
}

AVX2 static void down(const uint8_t *rows, size_t stride, const int32_t *weight, int n_taps, uint8_t *dst, size_t n) {
    __m256i w[DT_RESIZE_MAX_PAIRS][2];
    int n_pairs = (n_taps + 1) / 2;
    for (int k = 0; k < n_pairs; k++) {
        int32_t a = weight[2 * k], b = 2 * k + 1 < n_taps ? weight[2 * k + 1] : 0;
        w[k][0] = _mm256_set1_epi16((short)(high_of(a) | high_of(b) << 8));
        w[k][1] = _mm256_set1_epi32(two_words(low_of(a), low_of(b)));
    }
    const __m256i(*v)[2] = (const __m256i(*)[2])w;
    switch (n_pairs) { // the usual ones, their weights in registers
    case 1:
        all_columns(rows, stride, v, n_taps, 1, dst, n);
        break;
    case 2:
        all_columns(rows, stride, v, n_taps, 2, dst, n);
        break;
    case 3:
        all_columns(rows, stride, v, n_taps, 3, dst, n);
        break;
    default:
        all_columns(rows, stride, v, n_taps, n_pairs, dst, n);
    }
}

const dt_resize_rows *dt_resize_rows_avx2(void) {
    static const dt_resize_rows ROWS = {resize_avx2_pack, resize_avx2_place, across, down};
    return dt_cpu_isa_get() >= DT_CPU_AVX2 ? &ROWS : NULL;
}

#else
const dt_resize_rows *dt_resize_rows_avx2(void) {
    return NULL;
}
#endif
