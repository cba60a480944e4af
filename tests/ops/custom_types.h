// custom_types.h: f16 for the op tests' harnesses, through doubles and not with the backend's own code.
#ifndef DT_TESTS_OPS_CUSTOM_TYPES_H
#define DT_TESTS_OPS_CUSTOM_TYPES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline double test_f16_to_f64(uint16_t h) {
    const int e = h >> 10 & 31, m = h & 1023;
    const double x = e == 31 ? (m ? NAN : INFINITY) : e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);
    return h >> 15 ? -x : x;
}

static inline uint16_t test_f64_to_f16(double v) {
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    const double x = fabs(v);
    int e;
    if (isnan(v)) return 0x7e00;
    if (x >= 65520) return (uint16_t)(sign | 0x7c00);
    if (x == 0) return sign;
    frexp(x, &e);                                                   // x = 0.5..1 * 2^e
    const int scale = e < -13 ? 24 : 11 - e;                        // subnormals count in 2^-24
    const int m = (int)nearbyint(ldexp(x, scale));                  // to even
    return (uint16_t)(sign | (e < -13 ? m : ((e + 13) << 10) + m)); // a carry goes into the exponent
}

static inline uint64_t case_next(uint64_t *s) { // splitmix64
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint16_t case_to_bf16(double v) {
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, 4);
    if (f != f) return 0x7fc0;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif
