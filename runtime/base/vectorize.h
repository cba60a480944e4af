// vectorize.h: marks loops that the compiler vectorizes for several ISAs; the one for this CPU is picked at
// load time. Bits must be the same on every ISA, so it is for integers, for floats that are computed
// elementwise, and for sums in an order that the code fixes. Files that include this are compiled with
// -ffp-contract=off (CMakeLists.txt), so a*b+c is never fused.
#ifndef DT_BASE_VECTORIZE_H
#define DT_BASE_VECTORIZE_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
    !defined(__SANITIZE_THREAD__)
#define VECTORIZED __attribute__((optimize("O3"), target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VECTORIZED // ifunc resolvers would run before a sanitizer is initialized
#endif

#endif
