// vectorize.h: loops that are worth the compiler's full effort, for the machine that runs them. The
// bits must be the same on every ISA, so: integers, or floats of which each is computed by itself and
// sums whose order the code fixes. Nothing contracts a*b+c into one rounding: what includes this is compiled
// with -ffp-contract=off (CMakeLists.txt).
#ifndef DT_BASE_VECTORIZE_H
#define DT_BASE_VECTORIZE_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VECTORIZED                                                                                 \
    __attribute__((optimize("O3"), target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VECTORIZED // the resolver of clones runs before a sanitizer is set up
#endif

#endif
