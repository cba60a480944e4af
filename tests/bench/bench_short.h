// bench_short.h: SHORT in the environment makes a bench do little of everything and measure nothing: that it still
// runs is what tests/bench/test_benches.sh wants to know.
#ifndef BENCH_SHORT_H
#define BENCH_SHORT_H

#include <stdlib.h>

// `n`, or `few` in a short run where that is less.
static inline double bench_most(double n, double few) {
    return getenv("SHORT") && n > few ? few : n;
}

static inline int bench_count(int n, int few) {
    return (int)bench_most(n, few);
}

#endif
