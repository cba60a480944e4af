// simd_elementwise.c: elementwise kernels over contiguous memory (see simd.h: dt_simd_elementwise).
//
// All use MAP: a loop over whole vectors, then one partial vector through a padded copy. Its body sees the
// index `i` and sets `out` from LD(array).
//
// Exact GELU is x Phi(x), with Phi from erfcx(t) fitted as a polynomial in u = 2/(2+t) (relative error 3.5e-7 in
// f32 for all t >= 0). So the tail below zero keeps its relative accuracy, and the gradient shares the
// exponential.
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"
#include "graph/activation_words.h"

#define LD(p) (part ? vload_part(p, i, part, bf16) : vload(p, i, bf16))
#define MAP(y, n, ...)                                                                                                 \
    do {                                                                                                               \
        int64_t i = 0;                                                                                                 \
        for (; i + VW <= (n); i += VW) {                                                                               \
            enum { part = 0 };                                                                                         \
            vf out;                                                                                                    \
            __VA_ARGS__;                                                                                               \
            vstore(y, i, out, bf16);                                                                                   \
        }                                                                                                              \
        int part = (int)((n)-i);                                                                                       \
        if (part) {                                                                                                    \
            vf out;                                                                                                    \
            __VA_ARGS__;                                                                                               \
            vstore_part(y, i, part, out, bf16);                                                                        \
        }                                                                                                              \
    } while (0)

// Defines name_f32 and name_bf16 from the inline function `name` whose last argument is the type.
#define BOTH(name, params, ...)                                                                                        \
    static void name##_f32 params {                                                                                    \
        name(__VA_ARGS__, 0);                                                                                          \
    }                                                                                                                  \
    static void name##_bf16 params {                                                                                   \
        name(__VA_ARGS__, 1);                                                                                          \
    }

// ---- conversion ------------------------------------------------------------------------------------
static void to_bf16(void *y, const void *x, int64_t n) {
    const int bf16 = 1;
    const float *f = x;
    MAP(y, n, out = part ? vload_part(f, i, part, 0) : vld(f + i));
}

static void to_f32(void *y, const void *x, int64_t n) {
    const int bf16 = 0;
    const uint16_t *h = x;
    MAP(y, n, out = part ? vload_part(h, i, part, 1) : vld_bf16(h + i));
}

// ---- activations -----------------------------------------------------------------------------------
// Both types of an activation, and of its slope times dy. ReLU's slope reads y for x; few read the number.
#define UNARY(name) BOTH(name, (void *y, const void *x, float number, int64_t n), y, x, number, n)
#define BINARY(name)                                                                                                   \
    BOTH(name, (void *dx, const void *x, const void *dy, float number, int64_t n), dx, x, dy, number, n)
INLINE void map_relu(void *y, const void *x, float number, int64_t n, int bf16) {
    MAP(y, n, out = vfloor(LD(x), vset1(0)));
}
UNARY(map_relu)

INLINE void map_relu_bwd(void *dx, const void *y, const void *dy, float number, int64_t n, int bf16) {
    MAP(dx, n, out = vkeep(vm_gt(LD(y), vset1(0)), LD(dy))); // y > 0 exactly where x > 0
}
BINARY(map_relu_bwd)

// phi = density, returns Phi: both of the standard normal distribution.
INLINE vf normal_cdf(vf x, vf *phi) {
    vf t = x * vset1(0.707106781f);      // 1 / sqrt(2)
    t = vsel(vm_gt(vset1(0), t), -t, t); // |t|
    vf u = vset1(2.0f) / (t + 2.0f);
    vf e = vexp(-(t * t));
    vf q = vset1(-0.05595113378929079f) * u + 0.26845941263963297f; // Horner, degree 9 in u
    q = q * u + -0.45137567847880744f;
    q = q * u + 0.23325805253820792f;
    q = q * u + 0.008011044537409594f;
    q = q * u + 0.18558856170821342f;
    q = q * u + 0.24847540322081219f;
    q = q * u + 0.2813429456877475f;
    q = q * u + 0.2821962827086326f;
    q = q * u + -4.925993986286525e-06f;
    vf tail = q * e * 0.5f;
    *phi = e * 0.398942280f;                            // 1 / sqrt(2 pi)
    return vsel(vm_gt(x, vset1(0)), 1.0f - tail, tail); // Phi(x) = 1 - tail for x > 0
}

INLINE vf gelu_of(vf x) {
    vf phi;
    return x * normal_cdf(x, &phi);
}
INLINE vf gelu_slope(vf x) {
    vf phi, cdf = normal_cdf(x, &phi);
    return cdf + x * phi;
}

INLINE void map_gelu(void *y, const void *x, float number, int64_t n, int bf16) {
    MAP(y, n, out = gelu_of(LD(x)));
}
UNARY(map_gelu)

INLINE void map_gelu_bwd(void *dx, const void *x, const void *dy, float number, int64_t n, int bf16) {
    MAP(dx, n, out = gelu_slope(LD(x)) * LD(dy));
}
BINARY(map_gelu_bwd)

// The tanh form: (1 + tanh u) / 2 = 1 / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).
INLINE vf gelu_gate(vf x) {
    vf u = x * (x * x * 0.044715f + 1.0f);                         // without sqrt(2/pi), which the next line has
    return vset1(1.0f) / (vexp(u * -1.59576912160573071f) + 1.0f); // 2 sqrt(2/pi)
}
INLINE vf gelu_tanh_slope(vf x) {
    vf s = gelu_gate(x);
    return s + x * s * (1.0f - s) * ((x * x * 0.134145f + 1.0f) * 1.59576912160573071f); // 3 * 0.044715
}

INLINE void map_gelu_tanh(void *y, const void *x, float number, int64_t n, int bf16) {
    MAP(y, n, vf v = LD(x); out = v * gelu_gate(v));
}
UNARY(map_gelu_tanh)

INLINE void map_gelu_tanh_bwd(void *dx, const void *x, const void *dy, float number, int64_t n, int bf16) {
    MAP(dx, n, out = gelu_tanh_slope(LD(x)) * LD(dy));
}
BINARY(map_gelu_tanh_bwd)

// ---- the op activation: value and slope of each kind ------------------------------------------------
INLINE vf clamped(vf x, float top) {
    x = vsel(vm_gt(vset1(0), x), vset1(0), x); // vm_gt(0, x): false for NaN, so NaN passes
    return vsel(vm_gt(x, vset1(top)), vset1(top), x);
}
INLINE vf sigmoid_of(vf x) {
    return vset1(1.0f) / (vexp(-x) + 1.0f);
}
INLINE vf sigmoid_slope(vf x) {
    vf s = sigmoid_of(x);
    return s * (1.0f - s);
}
INLINE vf hardsigmoid_of(vf x) {
    return clamped(x + 3.0f, 6.0f) * 0.166666667f; // ReLU6(x + 3) / 6
}
// 1 where -3 < x < 3
INLINE vf between(vf x, float low, float high, vf in) {
    return vsel(vm_gt(x, vset1(low)), vsel(vm_gt(vset1(high), x), in, vset1(0)), vset1(0));
}
INLINE vf hardsigmoid_slope(vf x) {
    return between(x, -3.0f, 3.0f, vset1(0.166666667f));
}
INLINE vf silu_of(vf x) {
    return x * sigmoid_of(x);
}
INLINE vf silu_slope(vf x) {
    vf s = sigmoid_of(x);
    return s + x * s * (1.0f - s);
}
INLINE vf hardswish_of(vf x) {
    return x * hardsigmoid_of(x);
}
INLINE vf hardswish_slope(vf x) {
    vf in = between(x, -3.0f, 3.0f, x * 0.333333333f + 0.5f); // slope x / 3 + 1/2 between -3 and 3
    return vsel(vm_gt(vset1(3.0f), x), in, vset1(1.0f));
}
INLINE vf relu6_of(vf x) {
    return clamped(x, 6.0f);
}
INLINE vf relu6_slope(vf x) {
    return between(x, 0.0f, 6.0f, vset1(1.0f));
}

// tanh of x near 0 by its series: 1 - exp would cancel.
INLINE vf tanh_of(vf x) {
    vf a = vsel(vm_gt(vset1(0), x), -x, x), s = x * x, e = vexp(a * -2.0f);
    // Taylor up to x^9
    vf near = x * (s * (s * (s * (s * 0.0218694885f - 0.0539682540f) + 0.133333333f) - 0.333333333f) + 1.0f);
    vf far = (1.0f - e) / (1.0f + e);
    far = vsel(vm_gt(vset1(0), x), -far, far);
    return vsel(vm_gt(vset1(0.3f), a), near,
                // beyond 9 tanh is 1 in f32
                vsel(vm_gt(a, vset1(9.0f)), vsel(vm_gt(x, vset1(0)), vset1(1), vset1(-1)), far));
}
INLINE vf tanh_slope(vf x) {
    vf t = tanh_of(x);
    return 1.0f - t * t;
}
// max(x, 0) + log(1 + e), e = exp(-|x|): with s = e / (2 + e), which is at most 1/3, that is 2 atanh(s).
INLINE vf softplus_of(vf x) {
    vf top = vsel(vm_gt(x, vset1(0)), x, vset1(0)), e = vexp(x - top * 2.0f), s = e / (e + 2.0f), q = s * s;
    vf series = q * 0.0769230769f + 0.0909090909f;
    series = series * q + 0.111111111f;
    series = series * q + 0.142857143f;
    series = series * q + 0.2f;
    series = series * q + 0.333333333f;
    return top + s * (series * q + 1.0f) * 2.0f;
}
INLINE vf softplus_slope(vf x) {
    return sigmoid_of(x);
}
INLINE vf erf_of(vf x) {
    vf phi, s = x * x;
    // Taylor up to x^9 near 0
    vf near = s * (s * (s * (s * 0.00522397763f - 0.0268661706f) + 0.112837917f) - 0.376126389f);
    vf far = normal_cdf(x * 1.41421356f, &phi) * 2.0f - 1.0f;
    return vsel(vm_gt(vset1(0.16f), s), x * (near + 1.12837917f), far);
}
INLINE vf erf_slope(vf x) {
    return vexp(-(x * x)) * 1.12837917f; // 2 / sqrt(pi) exp(-x^2)
}
INLINE vf heaviside_of(vf x) {
    return vsel(vm_gt(x, vset1(0)), vset1(1), vset1(0));
}
INLINE vf heaviside_slope(vf x) {
    return vset1(0);
}
INLINE vf leaky_relu_of(vf x, float slope) {
    return vsel(vm_gt(x, vset1(0)), x, x * slope);
}
INLINE vf leaky_relu_slope(vf x, float slope) {
    return vsel(vm_gt(x, vset1(0)), vset1(1), vset1(slope));
}
// exp(x) - 1 as tanh(x / 2) (exp(x) + 1), which does not cancel
INLINE vf elu_of(vf x, float alpha) {
    return vsel(vm_gt(x, vset1(0)), x, tanh_of(x * 0.5f) * (vexp(x) + 1.0f) * alpha);
}
INLINE vf elu_slope(vf x, float alpha) {
    return vsel(vm_gt(x, vset1(0)), vset1(1), vexp(x) * alpha);
}

#define MAPS(name, ...)                                                                                                \
    INLINE void map_##name(void *y, const void *x, float number, int64_t n, int bf16) {                                \
        MAP(y, n, out = name##_of(__VA_ARGS__));                                                                       \
    }                                                                                                                  \
    UNARY(map_##name)                                                                                                  \
    INLINE void map_##name##_bwd(void *dx, const void *x, const void *dy, float number, int64_t n, int bf16) {         \
        MAP(dx, n, out = name##_slope(__VA_ARGS__) * LD(dy));                                                          \
    }                                                                                                                  \
    BINARY(map_##name##_bwd)
#define MAPS_activation(name) MAPS(name, LD(x))
#define MAPS_relu(name)       // above
#define MAPS_gelu(name)
#define ACTIVATION(id, op, at_zero, help)     MAPS_##op(id)
#define ACTIVATION_WITH(id, key, unset, help) MAPS(id, LD(x), number)
#include "graph/activations.def"
#undef ACTIVATION

// ---- products ---------------------------------------------------------------------------------------
INLINE void mul(void *y, const void *a, const void *b, int64_t n, int bf16) {
    MAP(y, n, out = LD(a) * LD(b));
}
BOTH(mul, (void *y, const void *a, const void *b, int64_t n), y, a, b, n)

INLINE void mul_rows(void *y, const void *x, const float *factor, int64_t rows, int64_t cols, int bf16) {
    for (int64_t r = 0; r < rows; r++) {
        void *to = vat_mut(y, r * cols, bf16);
        const void *from = vat(x, r * cols, bf16);
        MAP(to, cols, out = LD(from) * (part ? vload_part(factor, i, part, 0) : vld(factor + i)));
    }
}
BOTH(mul_rows, (void *y, const void *x, const float *f, int64_t rows, int64_t cols), y, x, f, rows, cols)

INLINE void mul_rows_sum(float *sum, const void *a, const void *b, int64_t rows, int64_t cols, int in_bf16) {
    const int bf16 = 0;
    if (cols == VW) {
        vf s = vld(sum);
        // one register holds the sums
        for (int64_t r = 0; r < rows; r++) s = s + vload(a, r * VW, in_bf16) * vload(b, r * VW, in_bf16);
        vstore(sum, 0, s, 0);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const void *p = vat(a, r * cols, in_bf16), *q = vat(b, r * cols, in_bf16);
        MAP(sum, cols,
            out = (part ? vload_part(p, i, part, in_bf16) * vload_part(q, i, part, in_bf16)
                        : vload(p, i, in_bf16) * vload(q, i, in_bf16)) +
                  (part ? vload_part(sum, i, part, 0) : vld(sum + i)));
    }
}
BOTH(mul_rows_sum, (float *sum, const void *a, const void *b, int64_t rows, int64_t cols), sum, a, b, rows, cols)

// ---- sums ------------------------------------------------------------------------------------------
INLINE void add(void *y, const void *a, const void *b, int64_t n, int bf16) {
    MAP(y, n, out = LD(a) + LD(b));
}
BOTH(add, (void *y, const void *a, const void *b, int64_t n), y, a, b, n)

INLINE void add_wide(void *y, const void *a, const float *b, int64_t n, int bf16) {
    MAP(y, n, out = LD(a) + (part ? vload_part(b, i, part, 0) : vld(b + i)));
}
BOTH(add_wide, (void *y, const void *a, const float *b, int64_t n), y, a, b, n)

INLINE void accumulate(float *sum, const void *x, int64_t n, int x_bf16) {
    const int bf16 = 0;
    MAP(sum, n,
        out = (part ? vload_part(x, i, part, x_bf16) : vload(x, i, x_bf16)) +
              (part ? vload_part(sum, i, part, 0) : vld(sum + i)));
}
BOTH(accumulate, (float *sum, const void *x, int64_t n), sum, x, n)

INLINE void scale(void *y, const void *x, float alpha, int64_t n, int bf16) {
    vf k = vset1(alpha);
    MAP(y, n, out = LD(x) * k);
}
BOTH(scale, (void *y, const void *x, float alpha, int64_t n), y, x, alpha, n)

// ---- dropout ---------------------------------------------------------------------------------------
enum { DROP = VW * 4 }; // numbers a call of philox: VW blocks of 4

// Uniforms of elements [4 block, 4 block + DROP), as dt_rng_uniform gives them.
INLINE void philox(float *uniform, const dt_rng *r, uint32_t block) {
    uint32_t c[4][VW], key0 = (uint32_t)r->seed, key1 = (uint32_t)(r->seed >> 32);
    for (int l = 0; l < VW; l++) {
        c[0][l] = block + (uint32_t)l;
        c[1][l] = r->slot; // slot and step: see base/rng.h
        c[2][l] = r->step;
        c[3][l] = r->purpose;
    }
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < VW; l++) {
            uint64_t a = (uint64_t)c[0][l] * 0xD2511F53u, b = (uint64_t)c[2][l] * 0xCD9E8D57u;
            uint32_t c1 = c[1][l], c3 = c[3][l];
            c[0][l] = (uint32_t)(b >> 32) ^ c1 ^ key0;
            c[1][l] = (uint32_t)b;
            c[2][l] = (uint32_t)(a >> 32) ^ c3 ^ key1;
            c[3][l] = (uint32_t)a;
        }
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    for (int l = 0; l < VW; l++)
        for (int w = 0; w < 4; w++) uniform[4 * l + w] = (float)(int32_t)(c[w][l] >> 8) * 0x1p-24f; // 24 bits, [0, 1)
}

INLINE void dropout(void *y, const void *x, const dt_rng *r, float p, uint32_t first, int64_t n, int bf16) {
    vf keep = vset1(1.0f / (1.0f - p)), limit = vset1(p);
    for (int64_t start = 0; start < n; start += DROP) {
        float uniform[DROP];
        philox(uniform, r, (first + (uint32_t)start) / 4); // `first` is a multiple of 4
        int64_t m = n - start < DROP ? n - start : DROP;
        const void *from = vat(x, start, bf16);
        void *to = vat_mut(y, start, bf16);
        MAP(to, m, out = vkeep(vm_ge(vld(uniform + i), limit), LD(from) * keep));
    }
}
BOTH(dropout, (void *y, const void *x, const dt_rng *r, float p, uint32_t first, int64_t n), y, x, r, p, first, n)

// ---- images ----------------------------------------------------------------------------------------
// Bytes of one channel -> contiguous, in chunks that stay in the first-level cache.
INLINE void u8_plane(void *y, const uint8_t *x, int channels, int c, float a, float b, int64_t n, int bf16) {
    enum { CHUNK = 512 };
    uint8_t plane[CHUNK + VW]; // + VW: loads of whole vectors behind the last byte
    memset(plane, 0, sizeof(plane));
    for (int64_t start = 0; start < n; start += CHUNK) {
        int64_t m = n - start < CHUNK ? n - start : CHUNK;
        const uint8_t *from = x + start * channels + c;
        if (channels == 1)
            memcpy(plane, from, (size_t)m);
        else
            for (int64_t k = 0; k < m; k++) plane[k] = from[k * channels]; // gathers a channel of interleaved pixels
        void *to = vat_mut(y, start, bf16);
        MAP(to, m, out = vi_to_f(vld_u8(plane + i)) * a + b);
    }
}
BOTH(u8_plane, (void *y, const uint8_t *x, int channels, int c, float a, float b, int64_t n), y, x, channels, c, a, b,
     n)

INLINE void f32_plane(void *y, const float *x, int channels, int c, float mean, float k, int64_t n, int bf16) {
    enum { CHUNK = 512 };
    float plane[CHUNK + VW];
    memset(plane, 0, sizeof(plane));
    for (int64_t start = 0; start < n; start += CHUNK) {
        int64_t m = n - start < CHUNK ? n - start : CHUNK;
        const float *from = x + start * channels + c;
        if (channels == 1)
            memcpy(plane, from, (size_t)m * sizeof *plane);
        else
            for (int64_t i = 0; i < m; i++) plane[i] = from[i * channels];
        void *to = vat_mut(y, start, bf16);
        MAP(to, m, out = (vld(plane + i) - mean) * k);
    }
}
BOTH(f32_plane, (void *y, const float *x, int channels, int c, float mean, float k, int64_t n), y, x, channels, c, mean,
     k, n)

INLINE void u8_rgb(void *y, int64_t plane, const uint8_t *x, const float *scale3, const float *shift3, int64_t n_pixels,
                   int bf16) {
    enum { CHUNK = 512 };
    uint8_t planes[3][CHUNK + VW]; // R, G, B
    memset(planes, 0, sizeof(planes));
    for (int64_t start = 0; start < n_pixels; start += CHUNK) {
        int64_t m = n_pixels - start < CHUNK ? n_pixels - start : CHUNK, k = 0;
        const uint8_t *from = x + 3 * start;
#if defined(DT_ISA_avx512) || defined(DT_ISA_avx2)
        // 16 pixels: each channel picks its bytes out of three registers
        for (; k + 16 <= m; k += 16) {
            const __m128i *q = (const __m128i *)(from + 3 * k);
            __m128i v0 = _mm_loadu_si128(q), v1 = _mm_loadu_si128(q + 1), v2 = _mm_loadu_si128(q + 2);
#define Z -1
#define PICK(s0, s1, s2)                                                                                               \
    _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(v0, s0), _mm_shuffle_epi8(v1, s1)), _mm_shuffle_epi8(v2, s2))
            _mm_storeu_si128((__m128i *)(planes[0] + k),
                             PICK(_mm_setr_epi8(0, 3, 6, 9, 12, 15, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z),
                                  _mm_setr_epi8(Z, Z, Z, Z, Z, Z, 2, 5, 8, 11, 14, Z, Z, Z, Z, Z),
                                  _mm_setr_epi8(Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 1, 4, 7, 10, 13)));
            _mm_storeu_si128((__m128i *)(planes[1] + k),
                             PICK(_mm_setr_epi8(1, 4, 7, 10, 13, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z),
                                  _mm_setr_epi8(Z, Z, Z, Z, Z, 0, 3, 6, 9, 12, 15, Z, Z, Z, Z, Z),
                                  _mm_setr_epi8(Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 2, 5, 8, 11, 14)));
            _mm_storeu_si128((__m128i *)(planes[2] + k),
                             PICK(_mm_setr_epi8(2, 5, 8, 11, 14, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, Z),
                                  _mm_setr_epi8(Z, Z, Z, Z, Z, 1, 4, 7, 10, 13, Z, Z, Z, Z, Z, Z),
                                  _mm_setr_epi8(Z, Z, Z, Z, Z, Z, Z, Z, Z, Z, 0, 3, 6, 9, 12, 15)));
#undef PICK
#undef Z
        }
#endif
        for (; k < m; k++) // the rest, pixel by pixel
            for (int c = 0; c < 3; c++) planes[c][k] = from[3 * k + c];
        for (int c = 0; c < 3; c++) {
            void *to = vat_mut(y, c * plane + start, bf16);
            const uint8_t *bytes = planes[c];
            float a = scale3[c], b = shift3[c];
            MAP(to, m, out = vi_to_f(vld_u8(bytes + i)) * a + b);
        }
    }
}
BOTH(u8_rgb, (void *y, int64_t plane, const uint8_t *x, const float *a, const float *b, int64_t n), y, plane, x, a, b,
     n)

#define PAIR(name)                                                                                                     \
    { name##_f32, name##_bf16 }
// {f32, bf16} of each activation, by id
static const dt_activation_fn activations[DT_N_ACTIVATIONS][DT_ROW_TYPES] = {
#define ACTIVATION(id, op, at_zero, help) [DT_ACTIVATION_##id] = PAIR(map_##id),
#include "graph/activations.def"
#undef ACTIVATION
};
static const dt_activation_slope_fn activation_slopes[DT_N_ACTIVATIONS][DT_ROW_TYPES] = {
#define ACTIVATION(id, op, at_zero, help) [DT_ACTIVATION_##id] = PAIR(map_##id##_bwd),
#include "graph/activations.def"
#undef ACTIVATION
};
const dt_simd_elementwise DT_SIMD(dt_simd_elementwise) = {
    .to_bf16 = to_bf16,
    .to_f32 = to_f32,
    .activation = activations,
    .activation_bwd = activation_slopes,
    .mul = PAIR(mul),
    .mul_rows = PAIR(mul_rows),
    .mul_rows_sum = PAIR(mul_rows_sum),
    .add = PAIR(add),
    .add_wide = PAIR(add_wide),
    .accumulate = PAIR(accumulate),
    .scale = PAIR(scale),
    .dropout = PAIR(dropout),
    .u8_plane = PAIR(u8_plane),
    .f32_plane = PAIR(f32_plane),
    .u8_rgb = PAIR(u8_rgb),
};
