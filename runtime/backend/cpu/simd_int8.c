// simd_int8.c: f32 to 8 bits and back, and maxima of bytes (see simd.h).
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

// Nearest, ties to even: the sum's last bit is worth 1.
static const float ROUND = 12582912.0f; // 1.5 * 2^23

INLINE vi rounded(vf x, float inverse, float low, float high) {
    const vf l = vset1(low), h = vset1(high);
    x *= inverse;
    x = vsel(vm_gt(l, x), l, x);
    x = vsel(vm_gt(x, h), h, x) + ROUND; // clamped first, so that the sum stays in range
    vi bits;
    memcpy(&bits, &x, sizeof bits);
    return bits; // the low byte holds the integer
}

static void quantize(void *y, const float *x, float inverse, bool negative, int64_t n) {
    const float low = negative ? -127.0f : 0.0f, high = negative ? 127.0f : 255.0f; // -128 is never used: symmetric
    uint8_t *to = y;
    int64_t i = 0;
    for (; i + VW <= n; i += VW) vst_u8(to + i, rounded(vld(x + i), inverse, low, high) & 0xff);
    for (; i < n; i++) to[i] = (uint8_t)rounded(vset1(x[i]), inverse, low, high)[0];
}

static void dequantize(float *y, const void *x, float scale, bool negative, int64_t n) {
    const uint8_t *u = x;
    const int8_t *s = x;
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        const vi wide = vld_u8(u + i);
        vst(y + i, vi_to_f(negative ? wide << 24 >> 24 : wide) * scale); // exact: 8 bits fit an f32
    }
    for (; i < n; i++) y[i] = (float)(negative ? s[i] : u[i]) * scale;
}

static void max_u8(void *y, const void *x, int64_t n) {
    uint8_t *a = y;
    const uint8_t *b = x;
    for (int64_t i = 0; i < n; i++) a[i] = a[i] > b[i] ? a[i] : b[i]; // the compiler vectorizes these loops
}

static void max_i8(void *y, const void *x, int64_t n) {
    int8_t *a = y;
    const int8_t *b = x;
    for (int64_t i = 0; i < n; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
}

const dt_simd_int8 DT_SIMD(dt_simd_int8) = {
    .quantize = quantize,
    .dequantize = dequantize,
    .max = {max_u8, max_i8},
};
