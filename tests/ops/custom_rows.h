// custom_rows.h: what rows of custom kernels share (rows_*.h, which test_ops_custom.c puts together).
#ifndef DT_TESTS_OPS_CUSTOM_ROWS_H
#define DT_TESTS_OPS_CUSTOM_ROWS_H

#include "custom_case.h"

#define S0() ((dt_shape){.n = 0})
#define S1   dt_shape1
#define S2   dt_shape2
#define S3   dt_shape3
#define S4   dt_shape4
#define ABSENT                                                                                                         \
    { .n = -1 }
#define WINDOW(kh, kw, sh, sw, p0, p1, q0, q1)                                                                         \
    {                                                                                                                  \
        .kernel = {kh, kw}, .stride = {sh, sw}, .dilation = {1, 1}, .pad_begin = {p0, p1}, .pad_end = { q0, q1 }       \
    }

static int64_t count(const dt_shape *s) {
    return dt_shape_elements(s);
}

// A row of one input and one output, of the type under test.
static custom_case one_to_one(custom_case c) {
    c.n_in = c.n_out = 1;
    c.follow_in = c.follow_out = c.compare_out = 1;
    return c;
}

// The output is the input.
static void ref_copy(const custom_case *c, double *const *in, double *const *out) {
    memcpy(out[0], in[0], (size_t)count(&c->in_shape[0]) * sizeof(double));
}

#endif
