// rows_pool.h: max, average and global pooling.
#ifndef DT_TESTS_OPS_ROWS_POOL_H
#define DT_TESTS_OPS_ROWS_POOL_H

#include "custom_rows.h"

#include "graph/resize_taps.h"

// Not looked at by sanitizers, where it took two fifths of the time: the kernels are what is tested.
__attribute__((no_sanitize("address"), no_sanitize("undefined"))) static void
ref_pool(const custom_case *c, double *const *in, double *const *out) {
    const dt_shape *s = &c->in_shape[0], *o = &c->out_shape[0];
    const dt_window *w = &c->attrs.pool.win;
    bool max = c->op == DT_OP_max_pool;
    for (int64_t p = 0; p < o->d[0] * o->d[1]; p++)
        for (int64_t r = 0; r < o->d[2]; r++)
            for (int64_t q = 0; q < o->d[3]; q++) {
                double best = -INFINITY, sum = 0;
                int inside = 0, padded = 0;
                for (int a = 0; a < w->kernel[0]; a++)
                    for (int b = 0; b < w->kernel[1]; b++) {
                        int64_t y = r * w->stride[0] - w->pad_begin[0] + a;
                        int64_t x = q * w->stride[1] - w->pad_begin[1] + b;
                        padded += y < s->d[2] + w->pad_end[0] && x < s->d[3] + w->pad_end[1];
                        if (y < 0 || x < 0 || y >= s->d[2] || x >= s->d[3]) continue;
                        double v = in[0][(p * s->d[2] + y) * s->d[3] + x];
                        best = fmax(best, v), sum += v, inside++;
                    }
                out[0][(p * o->d[2] + r) * o->d[3] + q] =
                    max ? best : sum / (c->attrs.pool.count_include_pad ? padded : inside);
            }
}
static void ref_global(const custom_case *c, double *const *in, double *const *out) {
    int64_t plane = c->in_shape[0].d[2] * c->in_shape[0].d[3];
    for (int64_t p = 0; p < count(&c->out_shape[0]); p++) {
        double sum = 0;
        for (int64_t i = 0; i < plane; i++) sum += in[0][p * plane + i];
        out[0][p] = sum / (double)plane;
    }
}

// Distinct within each plane of 9x11, and exact in bf16: a tie has no gradient.
static bool fill_distinct(const custom_case *c, int i, double *x) {
    for (int64_t k = 0; k < count(&c->in_shape[0]); k++) x[k] = (double)(k * 37 % 99 - 49) / 16;
    return true;
}

static void run_pool_of(dt_op op, dt_shape x, dt_window w, bool include_pad) {
    dt_shape y = x;
    for (int i = 0; i < 2; i++)
        y.d[2 + i] = (x.d[2 + i] + w.pad_begin[i] + w.pad_end[i] - w.kernel[i]) / w.stride[i] + 1;
    custom_case c = {.name = op == DT_OP_max_pool ? "max_pool" : "avg_pool",
                     .op = op,
                     .n_in = 1,
                     .n_out = op == DT_OP_max_pool ? 2 : 1,
                     .in_shape = {x},
                     .out_shape = {y, y},
                     .out_type = {[1] = DT_U8},
                     .follow_in = 1,
                     .follow_out = 1,
                     .compare_out = 1,
                     .grad_in = 1,
                     .save_out = op == DT_OP_max_pool ? 2 : 0,
                     .fill = fill_distinct,
                     .reference = ref_pool};
    c.attrs.pool.win = w;
    c.attrs.pool.count_include_pad = include_pad;
    custom_case_run(&c);
}

static void run_pool(dt_op op, int64_t channels, dt_window w, bool include_pad) {
    run_pool_of(op, S4(2, channels, 9, 11), w, include_pad);
}

TEST(test_pool) {
    const dt_window windows[] = {WINDOW(2, 2, 2, 2, 0, 0, 0, 0), WINDOW(3, 3, 2, 2, 1, 1, 1, 1),
                                 WINDOW(3, 2, 1, 1, 1, 0, 0, 1), WINDOW(9, 11, 1, 1, 0, 0, 0, 0),
                                 WINDOW(5, 3, 3, 2, 2, 1, 1, 0)};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        run_pool(DT_OP_max_pool, 20, windows[i], false);
        run_pool(DT_OP_avg_pool, 20, windows[i], false);
        run_pool(DT_OP_avg_pool, 20, windows[i], true);
        run_pool(DT_OP_max_pool, 16, windows[i], false);
        run_pool(DT_OP_avg_pool, 16, windows[i], false);
    }
    const dt_window along = WINDOW(62, 1, 1, 1, 0, 0, 0, 0); // audio_cnn's, of ten seconds
    run_pool_of(DT_OP_max_pool, S4(2, 20, 99, 1), along, false);
    run_pool_of(DT_OP_avg_pool, S4(2, 20, 99, 1), along, false);
}

static void ref_resize(const custom_case *c, double *const *in, double *const *out) {
    const dt_shape *x = &c->in_shape[0], *y = &c->out_shape[0];
    for (int64_t i = 0; i < count(y); i++) {
        const int64_t plane = i / (y->d[2] * y->d[3]);
        const int at[2] = {(int)(i / y->d[3] % y->d[2]), (int)(i % y->d[3])};
        dt_taps t[2];
        for (int d = 0; d < 2; d++)
            t[d] = dt_resize_taps((int)c->attrs.resize.mode, c->attrs.resize.step[d], at[d], (int)x->d[2 + d]);
        out[0][i] = 0;
        for (int k = 0; k < 4; k++)
            out[0][i] += (double)t[0].weight[k / 2] * (double)t[1].weight[k % 2] *
                         in[0][(plane * x->d[2] + t[0].at[k / 2]) * x->d[3] + t[1].at[k % 2]];
    }
}
TEST(test_resize) {
    const struct {
        dt_resize_mode mode;
        int64_t from[2], to[2];
    } rows[] = {{DT_RESIZE_NEAREST, {5, 7}, {10, 14}},        {DT_RESIZE_NEAREST, {9, 7}, {4, 5}},
                {DT_RESIZE_NEAREST_EXACT, {5, 7}, {3, 40}},   {DT_RESIZE_BILINEAR, {5, 7}, {10, 9}},
                {DT_RESIZE_BILINEAR, {12, 1}, {3, 6}},        {DT_RESIZE_BILINEAR_CORNERS, {5, 7}, {9, 3}},
                {DT_RESIZE_BILINEAR_CORNERS, {5, 7}, {1, 30}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t *from = rows[i].from, *to = rows[i].to;
        custom_case c = one_to_one((custom_case){.name = "resize",
                                                 .op = DT_OP_resize,
                                                 .in_shape = {S4(2, 20, from[0], from[1])},
                                                 .out_shape = {S4(2, 20, to[0], to[1])},
                                                 .attrs = {.resize = {rows[i].mode, {to[0], to[1]}, {0}}},
                                                 .grad_in = 1,
                                                 .reference = ref_resize});
        for (int d = 0; d < 2; d++)
            c.attrs.resize.step[d] = rows[i].mode != DT_RESIZE_BILINEAR_CORNERS ? (float)from[d] / (float)to[d]
                                     : to[d] > 1 ? (float)(from[d] - 1) / (float)(to[d] - 1)
                                                 : 0;
        custom_case_run(&c);
    }
}

TEST(test_global_pool) {
    custom_case c = one_to_one((custom_case){.name = "global_pool",
                                             .op = DT_OP_global_pool,
                                             .in_shape = {S4(3, 20, 5, 7)},
                                             .out_shape = {S2(3, 20)},
                                             .grad_in = 1,
                                             .reference = ref_global});
    custom_case_run(&c);
    c.in_shape[0] = S4(2, 32, 12, 13), c.out_shape[0] = S2(2, 32);
    custom_case_run(&c);
}

#endif
