// golden.h: run a small graph on a backend with values from a safetensors file and compare what
// comes out with what PyTorch computed. For tests only.
#ifndef DT_TESTS_GOLDEN_H
#define DT_TESTS_GOLDEN_H

#include "backend/backend.h"
#include "base/core.h"
#include "checkpoint/ckpt.h"
#include "exec/exec.h"
#include "graph/autodiff.h"
#include "graph/build.h"
#include "graph/passes/passes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

static inline dt_safetensors *golden_open(const char *file) {
    char path[4096];
    const char *source = getenv("SOURCE");
    snprintf(path, sizeof path, "%s/tests/golden/%s", source ? source : ".", file);
    dt_safetensors *s = NULL;
    must(dt_safetensors_open(&s, path));
    return s;
}

// Tensor "<prefix>/<name>", or NULL when the file has none.
static inline const float *golden_find(const dt_safetensors *s, const char *prefix, const char *name, int64_t *n) {
    char key[256];
    snprintf(key, sizeof key, "%s/%s", prefix, name);
    int i = dt_safetensors_find(s, key);
    if (i < 0) return NULL;
    size_t n_bytes = 0;
    const float *data = dt_safetensors_data(s, i, &n_bytes);
    if (n) *n = (int64_t)(n_bytes / sizeof(float));
    return data;
}

static inline dt_shape golden_shape(const dt_safetensors *s, const char *prefix, const char *name) {
    char key[256];
    snprintf(key, sizeof key, "%s/%s", prefix, name);
    int i = dt_safetensors_find(s, key);
    if (i < 0) fail_msg("no golden tensor %s", key);
    dt_shape shape;
    dt_safetensors_shape(s, i, &shape);
    return shape;
}

// Largest difference relative to the largest golden magnitude; fails above tol.
static inline void golden_compare(const char *what, const float *got, const float *want, int64_t n, double tol) {
    double worst = 0, scale = 1e-6;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        scale = fmax(scale, fabs((double)want[i]));
        double d = fabs((double)got[i] - (double)want[i]);
        if (!(d <= worst)) { // also catches NaN
            worst = d;
            at = i;
        }
    }
    if (!(worst <= tol * scale))
        fail_msg("%s: element %lld is %g, golden %g (error %.3g of the largest, allowed %.3g)", what, (long long)at,
                 (double)got[at], (double)want[at], worst / scale, tol);
}

#endif
