// simd_vec.h: the vector of one ISA, for simd_*.c only. VW is its number of f32 elements: 16 with AVX-512, 4 with NEON,
// else 8: a vector is one register, since GCC keeps wider ones in memory and compares them element by element. VW is also
// the channel block of BLOCKED tensors. Arithmetic uses GCC's vector operators; only what those
// express badly (masks, narrowing, widening) is written per ISA.
//
// bf16 is rounded to nearest even with integer arithmetic on every ISA: VCVTNEPS2BF16 flushes denormals, and
// memory, not these four instructions, limits stores. NaN becomes 0x7fc0.
//
// Type arguments (`bf16`) are literals in every call, so no branch is left after inlining.
#ifndef DT_BACKEND_CPU_SIMD_VEC_H
#define DT_BACKEND_CPU_SIMD_VEC_H

#include <stdint.h>
#include <string.h>
#if defined(DT_ISA_avx512) || defined(DT_ISA_avx2)
#include <immintrin.h>
#endif

#pragma GCC diagnostic ignored "-Wpsabi"

#define DT_SIMD_CAT2(name, isa) name##_##isa
#define DT_SIMD_CAT(name, isa)  DT_SIMD_CAT2(name, isa)
#define DT_SIMD(name)           DT_SIMD_CAT(name, DT_ISA)
#define INLINE                  static inline __attribute__((always_inline))

#if defined(DT_ISA_avx512)
enum { VW = 16 };
#elif defined(DT_ISA_neon)
enum { VW = 4 };
#else
enum { VW = 8 };
#endif

typedef float vf __attribute__((vector_size(VW * 4)));
typedef int32_t vi __attribute__((vector_size(VW * 4)));
typedef uint32_t vu __attribute__((vector_size(VW * 4)));
typedef uint16_t vh __attribute__((vector_size(VW * 2)));
typedef uint8_t vb __attribute__((vector_size(VW)));
typedef double vd __attribute__((vector_size(VW * 8)));
typedef uint8_t vb8 __attribute__((vector_size(8)));
typedef uint16_t vh8 __attribute__((vector_size(16)));

INLINE vf vset1(float x) {
    return x - (vf){0};
}
INLINE vi vseti(int32_t x) {
    return x - (vi){0};
}
INLINE vf vld(const float *p) {
    vf v;
    memcpy(&v, p, sizeof(v));
    return v;
}
INLINE void vst(float *p, vf v) {
    memcpy(p, &v, sizeof(v));
}
INLINE vd vdld(const double *p) {
    vd v;
    memcpy(&v, p, sizeof(v));
    return v;
}
INLINE void vdst(double *p, vd v) {
    memcpy(p, &v, sizeof(v));
}

// ---- masks -----------------------------------------------------------------------------------------
#ifdef DT_ISA_avx512
typedef __mmask16 vm;
INLINE vm vm_gt(vf a, vf b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
}
INLINE vm vm_ge(vf a, vf b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ);
}
INLINE vm vm_le(vf a, vf b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ);
}
INLINE vm vm_nan(vf a) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q);
}
INLINE vm vm_eqi(vi a, vi b) {
    return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b);
}
INLINE vm vm_or(vm a, vm b) {
    return (vm)(a | b);
}
INLINE vf vsel(vm m, vf a, vf b) {
    return (vf)_mm512_mask_blend_ps(m, (__m512)b, (__m512)a);
}
INLINE vf vkeep(vm m, vf a) {
    return (vf)_mm512_maskz_mov_ps(m, (__m512)a);
}
INLINE vi vseli(vm m, vi a, vi b) {
    return (vi)_mm512_mask_blend_epi32(m, (__m512i)b, (__m512i)a);
}
#else
typedef vi vm;
INLINE vm vm_gt(vf a, vf b) {
    return (vm)(a > b);
}
INLINE vm vm_ge(vf a, vf b) {
    return (vm)(a >= b);
}
INLINE vm vm_le(vf a, vf b) {
    return (vm)(a <= b);
}
INLINE vm vm_nan(vf a) {
    return (vm)(a != a);
}
INLINE vm vm_eqi(vi a, vi b) {
    return (vm)(a == b);
}
INLINE vm vm_or(vm a, vm b) {
    return a | b;
}
INLINE vf vsel(vm m, vf a, vf b) {
    return (vf)(((vi)a & m) | ((vi)b & ~m));
}
INLINE vf vkeep(vm m, vf a) {
    return (vf)((vi)a & m);
}
INLINE vi vseli(vm m, vi a, vi b) {
    return (a & m) | (b & ~m);
}
#endif

// max(v, floor), but NaN stays: ReLU with floor 0, nothing with floor -inf. (The x86 instruction
// returns its second operand when either is NaN.)
INLINE vf vfloor(vf v, vf floor) {
#ifdef DT_ISA_avx512
    return (vf)_mm512_max_ps((__m512)floor, (__m512)v);
#elif defined(DT_ISA_avx2)
    return (vf)_mm256_max_ps((__m256)floor, (__m256)v);
#else
    return vsel(vm_le(v, floor), floor, v);
#endif
}

// ---- memory with conversion ------------------------------------------------------------------------
INLINE vf vld_bf16(const uint16_t *p) {
#ifdef DT_ISA_avx512
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return (vf)_mm512_slli_epi32(w, 16);
#elif defined(DT_ISA_avx2)
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return (vf)_mm256_slli_epi32(w, 16);
#else
    vh h;
    memcpy(&h, p, sizeof(h));
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

// The nearest bf16 in the upper half; what is below it is no part of it.
INLINE vu vround_bf16(vf v) {
    vu u = (vu)v;
    vi r = (vi)(u + 0x7fffu + ((u >> 16) & 1u));
    return (vu)vseli(vm_nan(v), vseti(0x7fc00000), r);
}
INLINE void vst_bf16(uint16_t *p, vf v) {
    vi r = (vi)(vround_bf16(v) >> 16);
#ifdef DT_ISA_avx512
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)r));
#elif defined(DT_ISA_avx2)
    __m256i w = (__m256i)r;
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
#else
    vh h = __builtin_convertvector((vu)r, vh);
    memcpy(p, &h, sizeof(h));
#endif
}

INLINE vf vload(const void *base, int64_t i, int bf16) {
    return bf16 ? vld_bf16((const uint16_t *)base + i) : vld((const float *)base + i);
}
INLINE void vstore(void *base, int64_t i, vf v, int bf16) {
    if (bf16)
        vst_bf16((uint16_t *)base + i, v);
    else
        vst((float *)base + i, v);
}
INLINE const void *vat(const void *base, int64_t i, int bf16) {
    return (const char *)base + i * (bf16 ? 2 : 4);
}
INLINE void *vat_mut(void *base, int64_t i, int bf16) {
    return (char *)base + i * (bf16 ? 2 : 4);
}

// The last n < VW elements: lanes behind them are zero when loaded, not written when stored.
#ifdef DT_ISA_avx512
INLINE vf vload_part(const void *base, int64_t i, int n, int bf16) {
    const __mmask16 m = (__mmask16)((1u << n) - 1);
    if (!bf16) return (vf)_mm512_maskz_loadu_ps(m, (const float *)base + i);
    const __m256i h = _mm256_maskz_loadu_epi16(m, (const uint16_t *)base + i);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
}
INLINE void vstore_part(void *base, int64_t i, int n, vf v, int bf16) {
    const __mmask16 m = (__mmask16)((1u << n) - 1);
    if (bf16)
        _mm256_mask_storeu_epi16((uint16_t *)base + i, m, _mm512_cvtepi32_epi16((__m512i)(vround_bf16(v) >> 16)));
    else
        _mm512_mask_storeu_ps((float *)base + i, m, (__m512)v);
}
#else
INLINE vf vload_part(const void *base, int64_t i, int n, int bf16) {
    if (bf16) {
        uint16_t t[VW] = {0};
        memcpy(t, (const uint16_t *)base + i, (size_t)n * 2);
        return vld_bf16(t);
    }
    float t[VW] = {0};
    memcpy(t, (const float *)base + i, (size_t)n * 4);
    return vld(t);
}
INLINE void vstore_part(void *base, int64_t i, int n, vf v, int bf16) {
    if (bf16) {
        uint16_t t[VW];
        vst_bf16(t, v);
        memcpy((uint16_t *)base + i, t, (size_t)n * 2);
    } else {
        float t[VW];
        vst(t, v);
        memcpy((float *)base + i, t, (size_t)n * 4);
    }
}
#endif

INLINE vi vld_u8(const uint8_t *p) {
#ifdef DT_ISA_avx512
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif defined(DT_ISA_avx2)
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
#elif defined(DT_ISA_neon) // no vectors of 4 bytes
    vb8 b = {0};
    memcpy(&b, p, VW);
    const vh8 h = __builtin_convertvector(b, vh8);
    return (vi) __builtin_convertvector(__builtin_shufflevector(h, h, 0, 1, 2, 3), vu);
#else
    vb b;
    memcpy(&b, p, sizeof(b));
    return (vi) __builtin_convertvector(b, vu);
#endif
}
INLINE void vst_u8(uint8_t *p, vi v) {
#ifdef DT_ISA_avx512
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(DT_ISA_avx2)
    __m128i lo = _mm256_castsi256_si128((__m256i)v), hi = _mm256_extracti128_si256((__m256i)v, 1);
    __m128i w = _mm_packus_epi32(lo, hi);
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(w, w));
#elif defined(DT_ISA_neon)
    const vh h = __builtin_convertvector((vu)v, vh);
    const vb8 b = __builtin_convertvector(__builtin_shufflevector(h, h, 0, 1, 2, 3, 4, 5, 6, 7), vb8);
    memcpy(p, &b, VW);
#else
    vb b = __builtin_convertvector((vu)v, vb);
    memcpy(p, &b, sizeof(b));
#endif
}

// ---- small maths -----------------------------------------------------------------------------------
INLINE vf vi_to_f(vi v) {
    return __builtin_convertvector(v, vf);
}
INLINE vd vf_to_d(vf v) {
    return __builtin_convertvector(v, vd);
}
INLINE double vd_sum(vd v) {
    double s = 0;
    for (int i = 0; i < VW; i++) s += v[i];
    return s;
}
INLINE vf vsqrt(vf v) {
#ifdef DT_ISA_avx512
    return (vf)_mm512_sqrt_ps((__m512)v);
#elif defined(DT_ISA_avx2)
    return (vf)_mm256_sqrt_ps((__m256)v);
#else
    for (int i = 0; i < VW; i++) v[i] = __builtin_sqrtf(v[i]);
    return v;
#endif
}

// e^x to about 1 ulp. Below -87.3 the result is 0; above 88.7 infinity; NaN stays.
INLINE vf vexp(vf x) {
#ifdef DT_ISA_avx512
    const __mmask16 above = _mm512_cmp_ps_mask((__m512)x, (__m512)vset1(-87.33f), _CMP_NLE_UQ); // or NaN
    const vf c = (vf)_mm512_min_ps((__m512)vset1(89.0f), (__m512)x);
    const vf k = (vf)_mm512_roundscale_ps((__m512)(c * vset1(1.44269504f)), 0);
#else
    const vf magic = vset1(12582912.0f); // 1.5 * 2^23: adding it rounds to an integer
    vm low = vm_le(x, vset1(-87.33f)), high = vm_ge(x, vset1(88.72f));
    vf c = vsel(low, vset1(-87.33f), vsel(high, vset1(88.0f), x));
    vf k = c * vset1(1.44269504f) + magic;
    vi n = (vi)k - (vi)magic;
    k = k - magic;
#endif
    vf r = c - k * vset1(0.693359375f); // ln 2 in two pieces, the first exact in 9 bits
    r = r + k * vset1(2.12194440e-4f);
    // 1 + r + r^2/2 + …: Taylor to r^7 on |r| <= ln2/2, remainder below 2^-27
    vf p = vset1(1.0f / 5040) * r + vset1(1.0f / 720);
    p = p * r + vset1(1.0f / 120);
    p = p * r + vset1(1.0f / 24);
    p = p * r + vset1(1.0f / 6);
    p = p * r + vset1(0.5f);
    p = (p * r) * r + r + 1.0f;
#ifdef DT_ISA_avx512
    return (vf)_mm512_maskz_scalef_ps(above, (__m512)p, (__m512)k);
#else
    vf y = (vf)((vi)p + (n << 23));
    return vsel(low, vset1(0.0f), vsel(high, vset1(__builtin_inff()), y));
#endif
}

#endif
