// rows_shapes.h: what only moves elements: transpose, reshape, concat, slice.
#ifndef DT_TESTS_OPS_ROWS_SHAPES_H
#define DT_TESTS_OPS_ROWS_SHAPES_H

#include "custom_rows.h"

// Index of element i of `s` after permuting by perm: y index -> x index.
static void ref_transpose(const custom_case *c, double *const *in, double *const *out) {
    const dt_shape *x = &c->in_shape[0], *y = &c->out_shape[0];
    for (int64_t i = 0; i < count(y); i++) {
        int64_t at[DT_MAX_DIMS], rest = i, from = 0;
        for (int d = y->n - 1; d >= 0; d--) at[c->attrs.transpose.perm[d]] = rest % y->d[d], rest /= y->d[d];
        for (int d = 0; d < x->n; d++) from = from * x->d[d] + at[d];
        out[0][i] = in[0][from];
    }
}
static void ref_slice(const custom_case *c, double *const *in, double *const *out) {
    const dt_shape *x = &c->in_shape[0];
    int axis = c->attrs.slice.axis;
    int64_t inner = 1, n = 0;
    for (int d = axis + 1; d < x->n; d++) inner *= x->d[d];
    for (int64_t i = 0; i < count(x); i++) {
        int64_t a = i / inner % x->d[axis];
        if (a >= c->attrs.slice.begin && a < c->attrs.slice.end) out[0][n++] = in[0][i];
    }
}
static void ref_concat(const custom_case *c, double *const *in, double *const *out) {
    int axis = c->attrs.concat.axis;
    const dt_shape *y = &c->out_shape[0];
    int64_t outer = 1, n = 0;
    for (int d = 0; d < axis; d++) outer *= y->d[d];
    for (int64_t o = 0; o < outer; o++)
        for (int k = 0; k < c->n_in; k++) {
            int64_t run = count(&c->in_shape[k]) / outer;
            for (int64_t i = 0; i < run; i++) out[0][n++] = in[k][o * run + i];
        }
}

TEST(test_transpose) {
    const struct {
        dt_shape x;
        int perm[4];
    } rows[] = {
        {S4(2, 9, 3, 16), {0, 2, 1, 3}},
        {S4(2, 3, 9, 20), {0, 1, 3, 2}},
        {S4(2, 3, 4, 5), {3, 1, 0, 2}},
        {S4(2, 3, 4, 5), {0, 1, 2, 3}},
        {S2(33, 17), {1, 0}},
        {S4(2, 20, 5, 7), {0, 2, 3, 1}},
        {S4(3, 1, 1, 20), {3, 2, 1, 0}},
        {S4(2, 3, 32, 8), {2, 0, 1, 3}},
        {S3(3, 40, 70), {0, 2, 1}},
        {S3(3, 6, 70), {2, 1, 0}},
        {S4(2, 5, 7, 20), {0, 3, 1, 2}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        custom_case c = one_to_one((custom_case){.name = "transpose",
                                                 .op = DT_OP_transpose,
                                                 .in_shape = {rows[i].x},
                                                 .out_shape = {rows[i].x},
                                                 .reference = ref_transpose});
        for (int d = 0; d < rows[i].x.n; d++) {
            c.attrs.transpose.perm[d] = rows[i].perm[d];
            c.out_shape[0].d[d] = rows[i].x.d[rows[i].perm[d]];
        }
        custom_case_run(&c);
    }
}
TEST(test_reshape) {
    custom_case c = one_to_one((custom_case){.name = "reshape",
                                             .op = DT_OP_reshape,
                                             .in_shape = {S4(2, 20, 5, 7)},
                                             .out_shape = {S2(2, 700)},
                                             .reference = ref_copy});
    custom_case_run(&c);
    c.out_shape[0] = S3(2, 20, 35);
    custom_case_run(&c);
    c.in_shape[0] = S3(2, 20, 35), c.out_shape[0] = S4(2, 20, 7, 5);
    custom_case_run(&c);
    c.in_shape[0] = S4(5, 7, 1, 1), c.out_shape[0] = S2(5, 7);
    custom_case_run(&c);
}
TEST(test_concat_slice) {
    custom_case c = {.name = "concat",
                     .op = DT_OP_concat,
                     .n_in = 3,
                     .n_out = 1,
                     .follow_in = 7,
                     .follow_out = 1,
                     .compare_out = 1,
                     .reference = ref_concat};
    c.attrs.concat.axis = 1;
    c.in_shape[0] = S4(2, 16, 3, 5), c.in_shape[1] = S4(2, 32, 3, 5), c.in_shape[2] = S4(2, 16, 3, 5);
    c.out_shape[0] = S4(2, 64, 3, 5);
    custom_case_run(&c);
    c.in_shape[1] = S4(2, 7, 3, 5), c.out_shape[0] = S4(2, 39, 3, 5);
    custom_case_run(&c);
    c.n_in = 2, c.attrs.concat.axis = 0;
    c.in_shape[0] = S3(2, 3, 5), c.in_shape[1] = S3(4, 3, 5), c.out_shape[0] = S3(6, 3, 5);
    custom_case_run(&c);

    const struct {
        dt_shape x;
        int axis;
        int64_t begin, end;
    } rows[] = {
        {S4(2, 48, 3, 5), 1, 16, 32}, {S4(2, 20, 3, 5), 1, 3, 9}, {S4(4, 32, 3, 5), 0, 1, 3},
        {S2(3, 10), 1, 0, 10},        {S3(3, 4, 5), 2, 4, 5},     {S4(2, 20, 6, 5), 2, 1, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        custom_case s = one_to_one((custom_case){.name = "slice",
                                                 .op = DT_OP_slice,
                                                 .in_shape = {rows[i].x},
                                                 .out_shape = {rows[i].x},
                                                 .grad_in = 1,
                                                 .reference = ref_slice});
        s.attrs.slice.axis = rows[i].axis;
        s.attrs.slice.begin = rows[i].begin, s.attrs.slice.end = rows[i].end;
        s.out_shape[0].d[rows[i].axis] = rows[i].end - rows[i].begin;
        custom_case_run(&s);
    }
}

// The place in the smaller shape of element i of the larger one.
static int64_t repeated_at(const dt_shape *big, const dt_shape *small, int64_t i) {
    int64_t at = 0, step = 1;
    for (int d = big->n - 1; d >= 0; d--) {
        at += (small->d[d] == 1 ? 0 : i % big->d[d]) * step;
        i /= big->d[d], step *= small->d[d];
    }
    return at;
}
static void ref_expand(const custom_case *c, double *const *in, double *const *out) {
    for (int64_t i = 0; i < count(&c->out_shape[0]); i++)
        out[0][i] = in[0][repeated_at(&c->out_shape[0], &c->in_shape[0], i)];
}
static void ref_sum(const custom_case *c, double *const *in, double *const *out) {
    for (int64_t i = 0; i < count(&c->out_shape[0]); i++) out[0][i] = 0;
    for (int64_t i = 0; i < count(&c->in_shape[0]); i++)
        out[0][repeated_at(&c->in_shape[0], &c->out_shape[0], i)] += in[0][i];
}
TEST(test_expand_sum) {
    const struct {
        dt_shape big, small;
    } rows[] = {
        {S4(2, 20, 5, 7), S4(1, 20, 1, 1)},
        {S4(2, 20, 5, 7), S4(2, 1, 5, 1)},
        {S4(2, 20, 5, 7), S4(1, 1, 1, 1)},
        {S3(3, 40, 130), S3(1, 1, 130)},
        {S3(3, 40, 130), S3(3, 40, 1)},
        {S3(3, 40, 130), S3(3, 1, 130)},
        {S2(1, 7), S2(1, 7)},
        {S2(700, 3), S2(1, 3)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        custom_case c = one_to_one((custom_case){.name = "expand",
                                                 .op = DT_OP_expand,
                                                 .in_shape = {rows[i].small},
                                                 .out_shape = {rows[i].big},
                                                 .reference = ref_expand});
        custom_case_run(&c);
        c.name = "sum", c.op = DT_OP_sum, c.reference = ref_sum;
        c.in_shape[0] = rows[i].big, c.out_shape[0] = rows[i].small;
        custom_case_run(&c);
    }
}

#endif
