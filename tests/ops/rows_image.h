// rows_image.h: image_normalize, plain and with the mixing of samples that the loader left to it.
#ifndef DT_TESTS_OPS_ROWS_IMAGE_H
#define DT_TESTS_OPS_ROWS_IMAGE_H

#include "custom_rows.h"

#include "batch/mix_plan.h"

static void ref_normalize(const custom_case *c, double *const *in, double *const *out) {
    const dt_shape *s = &c->in_shape[0];
    int64_t plane = s->d[1] * s->d[2], ch = s->d[3];
    for (int64_t n = 0; n < s->d[0]; n++)
        for (int64_t p = 0; p < plane; p++)
            for (int64_t k = 0; k < ch; k++)
                out[0][(n * ch + k) * plane + p] =
                    (in[0][(n * plane + p) * ch + k] / (c->in_type[0] == DT_U8 ? 255 : 1) -
                     (double)c->attrs.image_normalize.mean[k]) /
                    (double)c->attrs.image_normalize.std[k];
}

// What the loader did to a batch before it was the network's: in place, bytes in whole numbers, floats in
// single precision. Row j of the plan: see fill_mix.
static double mixed_value(const custom_case *c, const double *x, const dt_mix_row *m, int64_t j, int64_t pixel,
                          int64_t k) {
    const dt_shape *s = &c->in_shape[0];
    int64_t w = s->d[2], ch = s->d[3], next = j + 1 < s->d[0] ? j + 1 : 0;
    int64_t sample = s->d[1] * w * ch, at = pixel * ch + k, row = pixel / w, col = pixel % w;
    double a = x[j * sample + at], b = x[next * sample + at];
    if (row >= m->y0 && row < m->y1 && col >= m->x0 && col < m->x1) return b;
    if (m->own == 65536) return a;
    if (c->in_type[0] == DT_U8)
        return (double)(((uint32_t)a * (uint32_t)m->own + (uint32_t)b * (65536 - (uint32_t)m->own) + 32768) >> 16);
    volatile float own = (float)m->own / 65536, mine = (float)a * own,
                   other = (float)b * (1 - own); // each rounded
    return (double)(mine + other);
}
static dt_mix_row plan_row(const double *plan, int64_t j) {
    const double *p = plan + j * DT_MIX_COLUMNS;
    return (dt_mix_row){(int32_t)p[0], (int32_t)p[1], (int32_t)p[2], (int32_t)p[3], (int32_t)p[4]};
}
static void ref_normalize_mixed(const custom_case *c, double *const *in, double *const *out) {
    const dt_shape *s = &c->in_shape[0];
    int64_t plane = s->d[1] * s->d[2], ch = s->d[3];
    double *x = malloc((size_t)count(s) * sizeof *x), *mixed[] = {x};
    for (int64_t n = 0; n < s->d[0]; n++) {
        dt_mix_row m = plan_row(in[1], n);
        for (int64_t p = 0; p < plane; p++)
            for (int64_t k = 0; k < ch; k++) x[(n * plane + p) * ch + k] = mixed_value(c, in[0], &m, n, p, k);
    }
    ref_normalize(c, mixed, out);
    free(x);
}
// As it is, blended, a rectangle, a blend with a rectangle within, all of the next, a rectangle of everything;
// the last one takes the first.
static bool fill_mix(const custom_case *c, int i, double *x) {
    const int32_t h = (int32_t)c->in_shape[0].d[1], w = (int32_t)c->in_shape[0].d[2];
    const dt_mix_row rows[] = {{65536, 0, 0, 0, 0}, {40001, 0, 0, 0, 0}, {65536, h / 4, h, 3, w - 2}, {123, 1, 2, 0, w},
                               {0, 0, 0, 0, 0},     {65536, 0, h, 0, w}, {32768, 5, 5, 2, 9}};
    for (int64_t j = 0; i == 1 && j < c->in_shape[1].d[0]; j++) {
        const dt_mix_row *m = &rows[j % 7];
        const int32_t v[] = {m->own, m->y0, m->y1, m->x0, m->x1};
        for (int k = 0; k < DT_MIX_COLUMNS; k++) x[j * DT_MIX_COLUMNS + k] = v[k];
    }
    return i == 1;
}

TEST(test_normalize) {
    const int channels[] = {1, 3, 4};
    for (int i = 0; i < 3; i++) {
        int64_t ch = channels[i];
        custom_case c = {.name = "normalize",
                         .op = DT_OP_image_normalize,
                         .n_in = 1,
                         .n_out = 1,
                         .in_shape = {S4(2, 37, 29, ch)},
                         .out_shape = {S4(2, ch, 37, 29)},
                         .in_type = {DT_U8},
                         .follow_out = 1,
                         .compare_out = 1,
                         .low = 0,
                         .high = 255,
                         .reference = ref_normalize};
        for (int k = 0; k < 4; k++) {
            c.attrs.image_normalize.mean[k] = 0.4f + 0.05f * (float)k;
            c.attrs.image_normalize.std[k] = 0.2f + 0.03f * (float)k;
        }
        custom_case_run(&c);
        c.in_type[0] = DT_F32; // raw values, far from zero
        for (int k = 0; k < 4; k++) c.attrs.image_normalize.mean[k] = 1000 + (float)k;
        c.low = 990, c.high = 1010;
        custom_case_run(&c);
    }
}
// The same bits as from pixels that were mixed before: the two runs differ in nothing but where.
static void expect_mixed_bits(const custom_case *c) {
    custom_case plain = *c;
    case_data d = {0}, e = {0};
    const dt_kernel *k = custom_case_kernel(c, false);
    const dt_shape *s = &c->in_shape[0];
    const int64_t plane = s->d[1] * s->d[2], ch = s->d[3], n = count(s);
    plain.n_in = 1;
    for (int t = 0; t < CUSTOM_CASE_TYPES; t++) {
        case_call mixed = {0}, before = {0};
        case_fill(c, &d, (dt_dtype)t);
        case_fill(&plain, &e, (dt_dtype)t);
        for (int64_t i = 0; i < n; i++) {
            dt_mix_row m = plan_row(d.in[1], i / (plane * ch));
            e.in[0][i] = mixed_value(c, d.in[0], &m, i / (plane * ch), i / ch % plane, i % ch);
        }
        case_build_forward(c, &d, &mixed);
        case_build_forward(&plain, &e, &before);
        case_run_kernel(&mixed, c, k, 2, false, d.in, 0);
        case_run_kernel(&before, &plain, k, 1, false, e.in, 0);
        assert_memory_equal(mixed.out[0], before.out[0], (size_t)n * dt_dtype_size(d.out_type[0]));
        case_call_end(&mixed, k);
        case_call_end(&before, k);
        dt_graph_destroy(mixed.graph);
        dt_graph_destroy(before.graph);
        case_data_free(&d);
        case_data_free(&e);
        d = e = (case_data){0};
    }
}
TEST(test_normalize_mixed) {
    // whole and odd pieces of eight elements; more than a part, a buffer and a block
    const dt_shape shapes[] = {S4(7, 9, 16, 3), S4(7, 37, 29, 3),   S4(7, 13, 11, 1),
                               S4(1, 8, 8, 4),  S4(2, 140, 131, 3), S4(7, 12, 10, 5)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const dt_shape *s = &shapes[i];
        custom_case c = {.name = "normalize mixed",
                         .op = DT_OP_image_normalize,
                         .n_in = 2,
                         .n_out = 1,
                         .in_shape = {*s, S2(s->d[0], DT_MIX_COLUMNS)},
                         .out_shape = {S4(s->d[0], s->d[3], s->d[1], s->d[2])},
                         .in_type = {DT_U8, DT_I32},
                         .follow_out = 1,
                         .compare_out = 1,
                         .low = 0,
                         .high = 255.99,
                         .fill = fill_mix,
                         .reference = ref_normalize_mixed};
        for (int k = 0; k < 5; k++) {
            c.attrs.image_normalize.mean[k] = 0.4f + 0.05f * (float)k;
            c.attrs.image_normalize.std[k] = 0.2f + 0.03f * (float)k;
        }
        custom_case_run(&c);
        expect_mixed_bits(&c);
        c.in_type[0] = DT_F32;
        c.low = -30, c.high = 20;
        custom_case_run(&c);
        expect_mixed_bits(&c);
    }
}

#endif
