// simd_pair.h: two pixels of bf16 at a time, for simd_*.c only.
//
// A register holds twice as many bf16 as f32, so one load brings 2 VW consecutive values: two pixels of a channel
// block. To widen them in order costs a shuffle per half, and narrowing another. Instead even elements are
// widened by a shift and odd ones by a mask, and narrowing is a blend: no element moves. So a `pair` is
//
//   even   channels 0, 2, 4, … of the first pixel, then of the second
//   odd    channels 1, 3, 5, … likewise
//
// and pair_constants arranges channel constants likewise. bf16 values are compared and selected as 16-bit
// elements (`vs`), before widening.
//
// In NHWC a register holds 2 VW channels of one pixel, and even and odd are its channels.
//
// pair_narrow rounds to nearest even as vst_bf16 does, but does not check for NaN. Rounding would overflow only
// for a NaN whose upper mantissa bits are all ones and whose lower half is not zero. Values widened from bf16
// have a zero lower half, arithmetic makes the default NaN, and pair_constants turns every other NaN into that
// one. Loops that use nothing else are safe.
#ifndef DT_BACKEND_CPU_SIMD_PAIR_H
#define DT_BACKEND_CPU_SIMD_PAIR_H

#include "backend/cpu/simd_vec.h"

typedef int16_t vs __attribute__((vector_size(VW * 4)));
typedef struct pair {
    vf even, odd;
} pair;

// ---- 16-bit lanes ----------------------------------------------------------------------------------
INLINE vs vs_set1(int16_t x) {
    return x - (vs){0};
}
// Half a register: one pixel. Memory that is written by halves must not be read whole: the load would wait for
// the stores.
#ifdef DT_ISA_avx512
typedef __m256i vs_half;
INLINE vs vs_of_halves(vs_half a, vs_half b) {
    return (vs)_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
INLINE vs_half vs_lower(vs v) {
    return _mm512_castsi512_si256((__m512i)v);
}
#elif defined(DT_ISA_avx2)
typedef __m128i vs_half;
INLINE vs vs_of_halves(vs_half a, vs_half b) {
    return (vs)_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}
INLINE vs_half vs_lower(vs v) {
    return _mm256_castsi256_si128((__m256i)v);
}
#else
typedef int16_t vs_half __attribute__((vector_size(VW * 2)));
INLINE vs vs_of_halves(vs_half a, vs_half b) {
#ifdef DT_ISA_neon
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
#else
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#endif
}
INLINE vs_half vs_lower(vs v) {
#ifdef DT_ISA_neon
    return __builtin_shufflevector(v, v, 0, 1, 2, 3);
#else
    return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
#endif
}
#endif
INLINE vs_half vs_load_half(const void *base, int64_t i) {
    vs_half h;
    memcpy(&h, (const uint16_t *)base + i, sizeof h);
    return h;
}

// Two pixels from element i on, or (one = 1, literal) one pixel and zeros.
INLINE vs vs_load(const void *base, int64_t i, int one) {
    if (one) return vs_of_halves(vs_load_half(base, i), (vs_half){0});
    vs v;
    memcpy(&v, (const uint16_t *)base + i, sizeof v);
    return v;
}
INLINE void vs_store(void *base, int64_t i, vs v, int one) {
    vs_half h = vs_lower(v);
    if (one)
        memcpy((uint16_t *)base + i, &h, sizeof h);
    else
        memcpy((uint16_t *)base + i, &v, sizeof v);
}
// The pixels at elements i and j, or (one) that at i and zeros.
INLINE vs vs_join(const void *base, int64_t i, int64_t j, int one) {
    return vs_of_halves(vs_load_half(base, i), one ? (vs_half){0} : vs_load_half(base, j));
}

#ifdef DT_ISA_avx512
typedef __mmask32 vsm;
INLINE vsm vsm_gt(vs a, vs b) {
    return _mm512_cmpgt_epi16_mask((__m512i)a, (__m512i)b);
}
INLINE vsm vsm_eq(vs a, vs b) {
    return _mm512_cmpeq_epi16_mask((__m512i)a, (__m512i)b);
}
INLINE vs vs_keep(vsm m, vs a) {
    return (vs)_mm512_maskz_mov_epi16(m, (__m512i)a);
}
INLINE vs vs_drop(vsm m, vs a) {
    return (vs)_mm512_maskz_mov_epi16((vsm)~m, (__m512i)a);
}
INLINE vs vs_sel(vsm m, vs a, vs b) {
    return (vs)_mm512_mask_blend_epi16(m, (__m512i)b, (__m512i)a);
}
INLINE vs vs_max(vs a, vs b) {
    return (vs)_mm512_max_epi16((__m512i)a, (__m512i)b);
}
#else
typedef vs vsm;
INLINE vsm vsm_gt(vs a, vs b) {
    return (vsm)(a > b);
}
INLINE vsm vsm_eq(vs a, vs b) {
    return (vsm)(a == b);
}
INLINE vs vs_keep(vsm m, vs a) {
    return a & m;
}
INLINE vs vs_drop(vsm m, vs a) {
    return a & ~m;
}
INLINE vs vs_sel(vsm m, vs a, vs b) {
#ifdef DT_ISA_avx2
    return (vs)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)m);
#else
    return (a & m) | (b & ~m);
#endif
}
INLINE vs vs_max(vs a, vs b) {
#ifdef DT_ISA_avx2
    return (vs)_mm256_max_epi16((__m256i)a, (__m256i)b);
#else
    return vs_sel(vsm_gt(a, b), a, b);
#endif
}
#endif

// Bytes of two pixels (one: of one and zeros), and those of one pixel for both.
#ifdef DT_ISA_avx512
INLINE vs vs_load_u8(const uint8_t *p, int one) {
    __m128i a = _mm_loadu_si128((const __m128i *)p);
    return (vs)_mm512_cvtepu8_epi16(one ? _mm256_zextsi128_si256(a) : _mm256_loadu_si256((const __m256i *)p));
}
INLINE vs vs_double_u8(const uint8_t *p) {
    return (vs)_mm512_cvtepu8_epi16(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)));
}
INLINE void vs_store_u8(uint8_t *p, vs v, int one) { // values 0..255
    __m256i b = _mm512_cvtepi16_epi8((__m512i)v);
    if (one)
        _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(b));
    else
        _mm256_storeu_si256((__m256i *)p, b);
}
#elif defined(DT_ISA_avx2)
INLINE vs vs_load_u8(const uint8_t *p, int one) {
    return (vs)_mm256_cvtepu8_epi16(one ? _mm_loadl_epi64((const __m128i *)p) : _mm_loadu_si128((const __m128i *)p));
}
INLINE vs vs_double_u8(const uint8_t *p) {
    __m128i a = _mm_loadl_epi64((const __m128i *)p);
    return (vs)_mm256_cvtepu8_epi16(_mm_unpacklo_epi64(a, a));
}
INLINE void vs_store_u8(uint8_t *p, vs v, int one) {
    __m128i lo = _mm256_castsi256_si128((__m256i)v), hi = _mm256_extracti128_si256((__m256i)v, 1);
    __m128i b = _mm_packus_epi16(lo, hi);
    if (one)
        _mm_storel_epi64((__m128i *)p, b);
    else
        _mm_storeu_si128((__m128i *)p, b);
}
#else
INLINE vs vs_load_u8(const uint8_t *p, int one) {
    vs v = {0};
    for (int k = 0; k < (one ? VW : 2 * VW); k++) v[k] = p[k];
    return v;
}
INLINE vs vs_double_u8(const uint8_t *p) {
    vs v;
    for (int k = 0; k < 2 * VW; k++) v[k] = p[k % VW];
    return v;
}
INLINE void vs_store_u8(uint8_t *p, vs v, int one) {
    for (int k = 0; k < (one ? VW : 2 * VW); k++) p[k] = (uint8_t)v[k];
}
#endif

// ---- pairs -----------------------------------------------------------------------------------------
INLINE pair pair_widen(vs v) {
    vu u = (vu)v;
    return (pair){(vf)(u << 16), (vf)(u & 0xffff0000u)};
}
INLINE vs pair_narrow(pair p) {
    vu e = (vu)p.even, o = (vu)p.odd;
    e = (e + 0x7fffu + ((e >> 16) & 1u)) >> 16;
    o = o + 0x7fffu + ((o >> 16) & 1u);
#ifdef DT_ISA_avx512
    return (vs)_mm512_mask_blend_epi16(0xaaaaaaaau, (__m512i)e, (__m512i)o);
#elif defined(DT_ISA_avx2)
    return (vs)_mm256_blend_epi16((__m256i)e, (__m256i)o, 0xaa);
#else
    return (vs)(e | (o & 0xffff0000u));
#endif
}

#ifdef DT_ISA_avx512
#define PAIR_EVEN(v)          __builtin_shufflevector(v, v, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14)
#define PAIR_ODD(v)           __builtin_shufflevector(v, v, 1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15)
#define PAIR_SWAP(v)          __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define PAIR_ZIP(a, b)        __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PAIR_ZIP_HIGH(a, b)   __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define PAIR_UNZIP_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define PAIR_UNZIP_ODD(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#elif defined(DT_ISA_neon)
#define PAIR_EVEN(v)          __builtin_shufflevector(v, v, 0, 2, 0, 2)
#define PAIR_ODD(v)           __builtin_shufflevector(v, v, 1, 3, 1, 3)
#define PAIR_SWAP(v)          __builtin_shufflevector(v, v, 2, 3, 0, 1)
#define PAIR_ZIP(a, b)        __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define PAIR_ZIP_HIGH(a, b)   __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define PAIR_UNZIP_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define PAIR_UNZIP_ODD(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7)
#else
#define PAIR_EVEN(v)          __builtin_shufflevector(v, v, 0, 2, 4, 6, 0, 2, 4, 6)
#define PAIR_ODD(v)           __builtin_shufflevector(v, v, 1, 3, 5, 7, 1, 3, 5, 7)
#define PAIR_SWAP(v)          __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3)
#define PAIR_ZIP(a, b)        __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define PAIR_ZIP_HIGH(a, b)   __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define PAIR_UNZIP_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define PAIR_UNZIP_ODD(a, b)  __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#endif

// Constants of VW channels, for both pixels.
INLINE vf pair_constant(const float *c) {
    vf v = vld(c);
    return vsel(vm_nan(v), (vf)vseti(0x7fc00000), v);
}
INLINE pair pair_constants(const float *c) {
    vf v = pair_constant(c);
    return (pair){PAIR_EVEN(v), PAIR_ODD(v)};
}
// Constants of 2 VW channels of one pixel.
INLINE pair pair_constants_wide(const float *c) {
    vf a = pair_constant(c), b = pair_constant(c + VW);
    return (pair){PAIR_UNZIP_EVEN(a, b), PAIR_UNZIP_ODD(a, b)};
}
// By channel: the sum over the two pixels.
INLINE vf pair_fold(pair p) {
    vf even = p.even + PAIR_SWAP(p.even), odd = p.odd + PAIR_SWAP(p.odd);
    return PAIR_ZIP(even, odd);
}
INLINE pair pair_first(pair p) { // the second pixel becomes zero
    vi keep;
    for (int k = 0; k < VW; k++) keep[k] = k < VW / 2 ? -1 : 0;
    return (pair){(vf)((vi)p.even & keep), (vf)((vi)p.odd & keep)};
}
INLINE pair pair_add(pair a, pair b) {
    return (pair){a.even + b.even, a.odd + b.odd};
}
INLINE pair pair_sub(pair a, pair b) {
    return (pair){a.even - b.even, a.odd - b.odd};
}
INLINE pair pair_mul_add(pair a, pair b, pair c) { // a b + c
    return (pair){a.even * b.even + c.even, a.odd * b.odd + c.odd};
}
INLINE pair pair_mul_sub(pair a, pair b, pair c) { // a b - c
    return (pair){a.even * b.even - c.even, a.odd * b.odd - c.odd};
}
INLINE pair pair_floor(pair p, vf floor) {
    return (pair){vfloor(p.even, floor), vfloor(p.odd, floor)};
}

#endif
