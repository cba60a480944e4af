// whole_optimizer.h: all phases of an optimizer over n elements, on the calling thread. Whether what it wrote is finite.
#ifndef WHOLE_OPTIMIZER_H
#define WHOLE_OPTIMIZER_H

#include "backend/backend.h"

#include <stdlib.h>

static inline bool whole_optimizer(dt_backend *cpu, dt_optimizer_args o, int64_t n) {
    if (dt_optimizers[o.kind].norms) {
        o.norms = calloc((size_t)dt_optimizer_n_norms(&o) + 1, 2 * sizeof *o.norms);
        o.ratios = calloc((size_t)o.n_segments + 1, sizeof *o.ratios);
        cpu->flat_norms(cpu, &o, 0, n);
        dt_optimizer_find_ratios(&o);
    }
    bool finite = o.n_factored == 0 || cpu->flat_factor(cpu, &o, 0, o.n_factored);
    finite &= cpu->flat_optimize(cpu, &o, 0, n);
    free(o.norms);
    free(o.ratios);
    return finite;
}

#endif
