// kernel_math.h: what custom kernels compute with, identical on device and host: elements of f32, bf16 and f16, eight
// at a time in 16-byte accesses, and Philox.
//
// An element type is a run-time number. The branch is the same for all threads of a launch, and with eight elements
// per branch it costs nothing beside the memory access. Arithmetic is in f32. Conversions round to nearest even and
// keep NaN; on a device each is one instruction.
#ifndef DT_KERNEL_MATH_H
#define DT_KERNEL_MATH_H

#include "backend/cuda/kernel.h"
#include "backend/step_block.h"
#include "base/core.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

// ---- bits ------------------------------------------------------------------------------------------
DT_FN uint32_t dt_bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
DT_FN float dt_of_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

DT_FN float dt_bf16_to_f32(uint16_t h) {
    return dt_of_bits((uint32_t)h << 16); // bf16: upper half of an f32
}
DT_FN uint16_t dt_f32_to_bf16(float f) {
#ifdef __CUDACC__
    return __bfloat16_as_ushort(__float2bfloat16_rn(f)); // one instruction, nearest even
#else
    const uint32_t u = dt_bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;    // a quiet NaN, without sign
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16); // ties to even: adds the kept part's last bit
#endif
}

DT_FN float dt_f16_to_f32(uint16_t h) {
#ifdef __CUDACC__
    return __half2float(__ushort_as_half(h));
#else
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, body = h & 0x7fff; // 5 exponent bits, 10 of mantissa
    // infinity and NaN keep their mantissa
    if (body >= 0x7c00) return dt_of_bits(sign | 0x7f800000u | (body & 0x3ff) << 13);
    // 2^112 adjusts the exponent's bias and makes subnormals right
    const float f = dt_of_bits(body << 13) * 0x1p112f; // 112 = 127 - 15
    return dt_of_bits(sign | dt_bits_of(f));
#endif
}
DT_FN uint16_t dt_f32_to_f16(float f) {
#ifdef __CUDACC__
    return __half_as_ushort(__float2half_rn(f));
#else
    const uint32_t u = dt_bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return 0x7fff;                     // NaN
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); // 65520 and more: infinity
    // 2^-14: f16's least normal
    if (a < 0x38800000u) // subnormal: adding 0.5 rounds at the bit that is worth 2^-24
        return (uint16_t)(sign | (dt_bits_of(dt_of_bits(a) + 0.5f) - 0x3f000000u));
    // exponent bias 127 to 15, ties to even
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfff + (a >> 13 & 1)) >> 13));
#endif
}

// ---- elements --------------------------------------------------------------------------------------
DT_FN int dt_elem_bytes(int type) {
    return type == DT_F32 || type == DT_I32 ? 4 : type == DT_U8 ? 1 : 2; // u8: 1; bf16, f16: 2
}
DT_FN float dt_get(const void *p, int type, int64_t i) {
    if (type == DT_F32) return ((const float *)p)[i];
    const uint16_t h = ((const uint16_t *)p)[i];
    return type == DT_BF16 ? dt_bf16_to_f32(h) : dt_f16_to_f32(h);
}
DT_FN void dt_put(void *p, int type, int64_t i, float x) {
    if (type == DT_F32)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = type == DT_BF16 ? dt_f32_to_bf16(x) : dt_f32_to_f16(x);
}
// x rounded to the type, as if it were written and read again: no addition takes up the multiplication that made it.
DT_FN float dt_rounded(int type, float x) {
#ifdef __CUDACC__
    asm("" : "+f"(x)); // opaque to the compiler: no contraction to fma
#endif
    return type == DT_F32 ? x : type == DT_BF16 ? dt_bf16_to_f32(dt_f32_to_bf16(x)) : dt_f16_to_f32(dt_f32_to_f16(x));
}

// Sixteen bytes of global memory at once; p must be 16-byte aligned.
typedef struct dt_vec16 {
    uint32_t w[4];
} dt_vec16;
DT_FN dt_vec16 dt_load16(const void *p) {
    dt_vec16 v;
#ifdef __CUDACC__
    const uint4 u = *(const uint4 *)p;
    v.w[0] = u.x, v.w[1] = u.y, v.w[2] = u.z, v.w[3] = u.w;
#else // may alias any type
    memcpy(&v, __builtin_assume_aligned(p, 16), 16);
#endif
    return v;
}
DT_FN void dt_store16(void *p, dt_vec16 v) {
#ifdef __CUDACC__
    __stwb((uint4 *)p, make_uint4(v.w[0], v.w[1], v.w[2], v.w[3])); // an assignment may be split up
#else
    memcpy(__builtin_assume_aligned(p, 16), &v, 16);
#endif
}

// Elements i .. i+7; i is a multiple of 8 and p is 16-byte aligned.
DT_FN void dt_get8(const void *p, int type, int64_t i, float x[8]) {
    if (type == DT_F32) {
        const dt_vec16 a = dt_load16((const float *)p + i), b = dt_load16((const float *)p + i + 4);
        for (int k = 0; k < 4; k++) x[k] = dt_of_bits(a.w[k]), x[4 + k] = dt_of_bits(b.w[k]);
        return;
    }
    const dt_vec16 a = dt_load16((const uint16_t *)p + i);
    if (type == DT_BF16) {
        for (int k = 0; k < 4; k++) {
            x[2 * k] = dt_of_bits(a.w[k] << 16);
            x[2 * k + 1] = dt_of_bits(a.w[k] & 0xffff0000u); // little-endian: element 2k + 1 is the upper half
        }
    } else {
        for (int k = 0; k < 4; k++) {
            x[2 * k] = dt_f16_to_f32((uint16_t)a.w[k]);
            x[2 * k + 1] = dt_f16_to_f32((uint16_t)(a.w[k] >> 16));
        }
    }
}
DT_FN void dt_put8(void *p, int type, int64_t i, const float x[8]) {
    dt_vec16 a, b;
    if (type == DT_F32) {
        for (int k = 0; k < 4; k++) a.w[k] = dt_bits_of(x[k]), b.w[k] = dt_bits_of(x[4 + k]);
        dt_store16((float *)p + i, a);
        dt_store16((float *)p + i + 4, b);
        return;
    }
    for (int k = 0; k < 4; k++) {
        a.w[k] = type == DT_BF16 ? (uint32_t)dt_f32_to_bf16(x[2 * k]) | (uint32_t)dt_f32_to_bf16(x[2 * k + 1]) << 16
                                 : (uint32_t)dt_f32_to_f16(x[2 * k]) | (uint32_t)dt_f32_to_f16(x[2 * k + 1]) << 16;
    }
    dt_store16((uint16_t *)p + i, a);
}

// Elements [i, i + 8) of n. What lies behind n is not touched and reads as `fill`.
DT_FN void dt_get8_part(const void *p, int type, int64_t i, int64_t n, float fill, float x[8]) {
    if (i + 8 <= n) {
        dt_get8(p, type, i, x);
        return;
    }
    for (int k = 0; k < 8; k++) x[k] = i + k < n ? dt_get(p, type, i + k) : fill; // the end of a tensor
}
DT_FN void dt_put8_part(void *p, int type, int64_t i, int64_t n, const float x[8]) {
    if (i + 8 <= n) {
        dt_put8(p, type, i, x);
        return;
    }
    for (int k = 0; k < 8 && i + k < n; k++) dt_put(p, type, i + k, x[k]);
}
// The same for elements [i, i + 4) of n; i is a multiple of 4.
DT_FN void dt_put4_part(void *p, int type, int64_t i, int64_t n, const float x[4]) {
    if (i + 4 <= n && type != DT_F32) {
        uint32_t h[4];
        for (int k = 0; k < 4; k++) h[k] = type == DT_BF16 ? dt_f32_to_bf16(x[k]) : dt_f32_to_f16(x[k]);
        const uint64_t all = (uint64_t)(h[2] | h[3] << 16) << 32 | h[0] | h[1] << 16; // little-endian: element 0 lowest
#ifdef __CUDACC__
        __stwb((unsigned long long *)((uint16_t *)p + i), (unsigned long long)all);
#else
        memcpy((uint16_t *)p + i, &all, 8);
#endif
        return;
    }
    for (int k = 0; k < 4 && i + k < n; k++) dt_put(p, type, i + k, x[k]);
}

// ---- of f32, to within 2^-21: enough for results of 16 bits ------------------------------------------
DT_FN float dt_exp2(float x) {
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}
DT_FN float dt_inverse(float x) {
#ifdef __CUDACC__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1.0f / x;
#endif
}

// ---- integer sums, which no order changes, into shared memory, from any threads ---------------------
DT_FN void dt_add_whole32(uint32_t *sum, uint32_t v) {
#if defined __CUDACC__ || defined DT_HOST_FIBERS
    atomicAdd(sum, v);
#else
    *sum += v;
#endif
}
DT_FN void dt_add_whole64(uint64_t *sum, uint64_t v) {
#if defined __CUDACC__ || defined DT_HOST_FIBERS
    atomicAdd((unsigned long long *)sum, (unsigned long long)v);
#else
    *sum += v;
#endif
}

// ---- Philox4x32-10, the bits of base/rng.h --------------------------------------------------------
DT_FN uint32_t dt_mul_high(uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32); // multiplier of c0
}
DT_FN void dt_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint32_t h0 = dt_mul_high(0xD2511F53u, c0), l0 = 0xD2511F53u * c0; // constants of Random123
        const uint32_t h1 = dt_mul_high(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0, c2 = h0 ^ c3 ^ k1;
        c1 = l1, c3 = l0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u; // Weyl sequence: the key of each round
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}
// Uniform numbers in [0, 1) for elements 4 * quad .. 4 * quad + 3 of a sample (see dt_rng).
DT_FN void dt_uniform4(uint64_t seed, uint32_t slot, uint32_t step, uint32_t purpose, uint32_t quad, float u[4]) {
    uint32_t w[4];
    dt_philox(seed, quad, slot, step, purpose, w);
    for (int k = 0; k < 4; k++) u[k] = (float)(w[k] >> 8) * 0x1p-24f; // 24 bits: exact in f32
}

#endif
