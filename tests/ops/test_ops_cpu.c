// test_ops_cpu.c: what the CPU's vector code does outside of any op's row: flat buffer arithmetic and values at
// the edges (rounding to bf16, NaN), once an ISA that the machine has.
#include "custom_types.h"
#include "each_isa.h"
#include "testing.h"

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/simd.h"
#include "backend/optimizers/sgd.h"
#include "config/words.h"
#include "graph/activation_words.h"

#include <math.h>
#include <string.h>

// ---- flat buffers -----------------------------------------------------------------------------------------
enum { FLAT = 131 };

static void init_flat(float *p, float *m, float *v, float *g) {
    for (int i = 0; i < FLAT; i++) {
        p[i] = sinf((float)i), g[i] = cosf(3 * (float)i);
        m[i] = 0.1f * sinf(5 * (float)i), v[i] = 0.01f * (float)(i % 7);
    }
}

// What an update writes is judged, wherever it lies: a weight, a moment, the last element of a vector or of a rest; not
// what is frozen.
TEST(test_update_not_finite) {
    static const float HUGE[] = {3e38f, 1e25f}; // the step overflows a weight; its square the second moment
    const dt_segment segments[] = {{0, 40, 1, 0, false}, {48, 37, 0.5f, 0.1f, false}, {85, 46, 1, 0.1f, true}};
    for (int kind = 0; kind < DT_N_OPTIMIZERS; kind++)
        for (int i = -1; i < FLAT; i++) {
            float p[FLAT], m[FLAT], v[FLAT], g[FLAT], ratios[3] = {1, 1, 1};
            const bool linear = kind == DT_OPTIMIZER_sgd || kind == DT_OPTIMIZER_lars;
            init_flat(p, m, v, g);
            if (i >= 0) g[i] = HUGE[!linear];
            if (i >= 0 && (kind == DT_OPTIMIZER_lion || dt_optimizers[kind].factored))
                g[i] = INFINITY; // no step is longer than lr
            const dt_optimizer_args a = {.kind = (dt_optimizer_id)kind,
                                         .segments = segments,
                                         .n_segments = 3,
                                         .master = p,
                                         .slots = {m, v},
                                         .grad = g,
                                         .ratios = ratios,
                                         .grad_scale = 1,
                                         .lr = linear ? 10 : 0.01f,
                                         .hyper = {0.9f, 0.999f, 1e-8f},
                                         .t = 3};
            const bool trained = (i >= 0 && i < 40) || (i >= 48 && i < 85);
            bool finite = dt_cpu_flat_optimize(NULL, &a, 0, 60);
            finite &= dt_cpu_flat_optimize(NULL, &a, 60, FLAT);
            assert_true(finite == !trained);
        }
}

// t = 3 of torch.optim.AdamW and SGD, written out in double; segment 2 is frozen, 0 does not decay.
TEST(test_optimizers) {
    const dt_segment segments[] = {{0, 40, 1, 0, false}, {48, 37, 0.5f, 0.1f, false}, {85, 46, 1, 0.1f, true}};
    for (int kind = 0; kind < 4; kind++) {
        float p[FLAT], m[FLAT], v[FLAT], g[FLAT], p0[FLAT], m0[FLAT], v0[FLAT];
        init_flat(p, m, v, g);
        init_flat(p0, m0, v0, g);
        dt_optimizer_args a = {.kind = kind ? DT_OPTIMIZER_sgd : DT_OPTIMIZER_adamw,
                               .segments = segments,
                               .n_segments = 3,
                               .master = p,
                               .slots = {m, v},
                               .grad = g,
                               .grad_scale = 0.25f,
                               .lr = 0.01f,
                               .hyper = {0.9f, 0.999f, 1e-8f},
                               .t = 3};
        if (kind) a.hyper[DT_SGD_MOMENTUM] = kind == 3 ? 0 : 0.9f;
        if (kind) a.hyper[DT_SGD_NESTEROV] = kind == 2;
        dt_cpu_flat_optimize(NULL, &a, 0, 60); // two shares, cut inside a segment
        dt_cpu_flat_optimize(NULL, &a, 60, FLAT);
        for (int i = 0; i < FLAT; i++) {
            const dt_segment *s = i < 40 ? &segments[0] : i >= 48 && i < 85 ? &segments[1] : NULL;
            double x = p0[i], gr = 0.25 * g[i], mm = m0[i], vv = v0[i];
            if (s && kind == 0) {
                double lr = 0.01 * (double)s->lr_scale;
                x -= lr * (double)s->decay * x;
                mm = 0.9 * mm + 0.1 * gr, vv = 0.999 * vv + 0.001 * gr * gr;
                x -= lr * (mm / (1 - pow(0.9, 3))) / (sqrt(vv / (1 - pow(0.999, 3))) + 1e-8);
            } else if (s) {
                gr += (double)s->decay * x;
                if (kind != 3) mm = 0.9 * mm + gr, gr = kind == 2 ? gr + 0.9 * mm : mm;
                x -= 0.01 * (double)s->lr_scale * gr;
            }
            assert_true(fabs(x - p[i]) < 1e-6);
            assert_true(fabs(mm - m[i]) < 1e-6);
            assert_true(fabs(vv - v[i]) < 1e-6);
        }
    }
}

// LAMB as its paper has it, in double, over tensors that begin and end within chunks; the last one is zero.
enum { LAMB_N = 2 * DT_CHUNK + 600 };
static const dt_segment lamb_segments[] = {{0, 100, 1, 0.1f, false, true},
                                           {112, 50, 1, 0, false, false},
                                           {176, DT_CHUNK + 1001, 0.5f, 0.1f, false, true},
                                           {2 * DT_CHUNK - 16, 500, 1, 0.1f, false, true}};

static void lamb_reference(double *p, double *m, double *v, const float *g, int t) {
    for (int s = 0; s < 4; s++) {
        const dt_segment *seg = &lamb_segments[s];
        double weights = 0, updates = 0, *u = calloc(LAMB_N, sizeof *u);
        for (int64_t i = seg->offset; i < seg->offset + seg->length; i++) {
            const double gr = 0.25 * (double)g[i];
            m[i] = 0.9 * m[i] + 0.1 * gr;
            v[i] = 0.999 * v[i] + 0.001 * gr * gr;
            u[i] = m[i] / (1 - pow(0.9, t)) / (sqrt(v[i] / (1 - pow(0.999, t))) + 1e-6);
            u[i] += (double)seg->decay * p[i];
            weights += p[i] * p[i], updates += u[i] * u[i];
        }
        const bool scales = seg->scaled && weights > 0 && updates > 0;
        const double lr = 0.01 * (double)seg->lr_scale * (scales ? sqrt(weights / updates) : 1);
        for (int64_t i = seg->offset; i < seg->offset + seg->length; i++) p[i] -= lr * u[i];
        free(u);
    }
}

// The range in `n_shares` shares of whole chunks, the last one first.
static void lamb_steps(float *x[4], int n_steps, int n_shares) {
    double norms[2 * 6];
    float ratios[4];
    dt_optimizer_args a = {.kind = DT_OPTIMIZER_lamb,
                           .segments = lamb_segments,
                           .n_segments = 4,
                           .master = x[0],
                           .slots = {x[1], x[2]},
                           .grad = x[3],
                           .norms = norms,
                           .ratios = ratios,
                           .grad_scale = 0.25f,
                           .lr = 0.01f,
                           .hyper = {0.9f, 0.999f, 1e-6f}};
    assert_int_equal(dt_optimizer_n_norms(&a), 5);
    for (a.t = 1; a.t <= n_steps; a.t++)
        for (int phase = 0; phase < 2; phase++) {
            for (int i = n_shares - 1; i >= 0; i--) {
                const int64_t begin = 3 * i / n_shares * DT_CHUNK;
                int64_t end = 3 * (i + 1) / n_shares * (int64_t)DT_CHUNK;
                if (end > LAMB_N) end = LAMB_N;
                if (phase)
                    dt_cpu_flat_optimize(NULL, &a, begin, end);
                else
                    dt_cpu_flat_norms(NULL, &a, begin, end);
            }
            if (phase == 0) dt_optimizer_find_ratios(&a);
        }
}

TEST(test_lamb) {
    float *x[4], *y[4];
    double *want[3];
    for (int k = 0; k < 4; k++) {
        x[k] = calloc(LAMB_N, sizeof(float)), y[k] = calloc(LAMB_N, sizeof(float));
        if (k < 3) want[k] = calloc(LAMB_N, sizeof(double));
    }
    for (int i = 0; i < LAMB_N; i++) {
        x[0][i] = y[0][i] = i < 2 * DT_CHUNK - 16 ? sinf((float)i) : 0;
        x[3][i] = y[3][i] = cosf(3 * (float)i);
        want[0][i] = (double)x[0][i];
    }
    for (int t = 1; t <= 3; t++) lamb_reference(want[0], want[1], want[2], x[3], t);
    lamb_steps(x, 3, 1);
    lamb_steps(y, 3, 3);
    for (int k = 0; k < 3; k++) {
        assert_memory_equal(x[k], y[k],
                            LAMB_N * sizeof(float)); // who adds a chunk up never matters
        for (int i = 0; i < LAMB_N; i++)
            if (fabs(want[k][i] - (double)x[k][i]) >= 2e-6)
                fail_msg("flat buffer %d, element %d: %.9g, not %.9g", k, i, (double)x[k][i], want[k][i]);
    }
    for (int k = 0; k < 4; k++) free(x[k]), free(y[k]);
    for (int k = 0; k < 3; k++) free(want[k]);
}

TEST(test_sums) {
    enum { N = DT_CHUNK + 1000 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    double want[2] = {0, 0}, got[2];
    for (int i = 0; i < N; i++) {
        x[i] = sinf((float)i), y[i] = (float)i;
        want[i / DT_CHUNK] += (double)x[i] * x[i];
    }
    dt_cpu_flat_sum_squares(NULL, x, N, got, 0, 2);
    for (int c = 0; c < 2; c++) assert_true(fabs(got[c] / want[c] - 1) < 1e-12);
    dt_cpu_flat_add(NULL, y, x, 5, N - 3);
    for (int i = 0; i < N; i++) assert_true(y[i] == (i >= 5 && i < N - 3 ? (float)i + x[i] : (float)i));
    x[DT_CHUNK + 7] = NAN;
    dt_cpu_flat_sum_squares(NULL, x, N, got, 0, 2);
    assert_true(!isnan(got[0]) && isnan(got[1]));
    free(x);
    free(y);
}

// ---- values at the edges ---------------------------------------------------------------------------
static float from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

// Exactly nearest even, denormals and infinities included; NaN stays NaN; back is exact.
TEST(test_bf16_rounding) {
    enum { N = 4096 + 5 };
    static float x[N], back[N];
    static uint16_t h[N];
    uint64_t seed = 3;
    for (int i = 0; i < N; i++) x[i] = from_bits((uint32_t)case_next(&seed));
    for (int i = 0; i < 256; i++) // ties, up and down, and both zeros
        x[i] = from_bits((uint32_t)i << 24 | 0x8000u | (i & 1 ? 0x10000u : 0));
    x[256] = INFINITY, x[257] = -INFINITY, x[258] = 0.0f, x[259] = -0.0f, x[260] = 1e-45f;
    x[261] = from_bits(0x7f7fffff), x[262] = from_bits(0x7fffffff), x[263] = from_bits(0xff800001);
    dt_simd_get()->elementwise->to_bf16(h, x, N);
    dt_simd_get()->elementwise->to_f32(back, h, N);
    for (int i = 0; i < N; i++) {
        uint32_t u = (uint32_t)h[i] << 16;
        if (isnan(x[i])) {
            assert_true(isnan(back[i]));
            continue;
        }
        assert_int_equal(h[i], case_to_bf16((double)x[i]));
        assert_memory_equal(&u, &back[i], 4);
    }
}

// e^x is 0 from -87.33 on, infinite from 88.73 on.
TEST(test_exp_ends) {
    static const float x[] = {-INFINITY, -3e38f, -88, 88.7f, 88.73f, 3e38f, INFINITY};
    for (int i = 0; i < 7; i++) {
        const float e = dt_simd_get()->flat->row_sum_exp(&x[i], 0, 1);
        assert_true(i < 3 ? e == 0 : i == 3 ? e > 3e38f && isfinite(e) : e == INFINITY);
    }
}

// A NaN must reach the loss, or a diverged run goes on unseen.
TEST(test_nan) {
    const dt_simd *simd = dt_simd_get();
    for (int at = 0; at < 21; at++) {
        float x[21] = {0}, y[21];
        x[at] = NAN;
        simd->elementwise->activation[DT_ACTIVATION_relu][0](y, x, 0, 21);
        assert_true(isnan(y[at]));
        simd->elementwise->activation[DT_ACTIVATION_gelu][0](y, x, 0, 21);
        assert_true(isnan(y[at]));
        simd->elementwise->activation[DT_ACTIVATION_gelu_tanh][0](y, x, 0, 21);
        assert_true(isnan(y[at]));
        assert_true(isnan(simd->flat->row_max(x, 21)));
        assert_true(isnan(simd->flat->row_sum_exp(x, 0, 21)));
    }
    float x[4 * DT_SIMD_MAX_WIDTH] = {0}, y[DT_SIMD_MAX_WIDTH];
    const dt_window w = {.kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}};
    for (int k = 0; k < 4; k++) {
        dt_pool_image p = {.in_h = 2,
                           .in_w = 2,
                           .out_h = 1,
                           .out_w = 1,
                           .n_blocks = 1,
                           .pixel = simd->width,
                           .win = &w,
                           .x = x,
                           .y = y};
        x[k * simd->width + 3] = NAN;
        simd->pool->max[0](&p);
        assert_true(isnan(y[3]) && y[4] == 0);
        x[k * simd->width + 3] = 0;
    }
}

// bf16 batch norm rounds without looking for NaN: those that reach it, even with all mantissa bits set,
// must not wrap round to zero. Neither a pool's loser nor ReLU may hide the statistics' NaN.
TEST(test_nan_batch_norm) {
    const dt_simd *simd = dt_simd_get();
    const uint32_t all_ones = 0xffffffffu;
    float constant[DT_SIMD_MAX_WIDTH] = {0}, zero[DT_SIMD_MAX_WIDTH] = {0};
    uint16_t x[4 * DT_SIMD_MAX_WIDTH] = {0}, y[4 * DT_SIMD_MAX_WIDTH];
    uint8_t argmax[DT_SIMD_MAX_WIDTH];
    memcpy(&constant[3], &all_ones, 4);
    for (int pool = 0; pool < 2; pool++)
        for (int which = 0; which < 3; which++) {
            dt_bn_chunk p = {.n_rows = 2, .width = 2, .relu = true, .pool = pool, .x = x, .y = y};
            p.argmax = argmax;
            p.mean = which == 0 ? constant : zero, p.gain = which == 1 ? constant : zero;
            p.shift = which == 2 ? constant : zero;
            simd->bn[DT_ROW_BF16]->forward(&p);
            for (int k = 0; k < (pool ? 1 : 4); k++) {
                assert_true((y[k * simd->width + 3] & 0x7fff) > 0x7f80);
                assert_true(y[k * simd->width + 4] == 0);
            }
            p.dy = x, p.dx = y, p.k1 = p.k2 = p.shift;
            simd->bn[DT_ROW_BF16]->backward(&p);
            for (int k = 0; k < 4; k++) assert_true((y[k * simd->width + 3] & 0x7fff) > 0x7f80);
        }
}

// ---- rows that end within a vector -----------------------------------------------------------------
// Values at the edges. What the kernels make of the zeros behind a row must not enter it: exp(0 - lse) is infinite where
// all scores are far below 0, (0 - mean) / deviation where the deviation is tiny.
enum { LONGEST_ROW = 3 * DT_SIMD_MAX_WIDTH + 1, EXTREMES = 8 };

static float extreme(int kind, int i, int n) {
    switch (kind) {
    case 0:
        return i % 2 ? 1e4f : -1e4f;
    case 1:
        return -1e4f; // constant: no variance
    case 2:
        return -1000 + sinf((float)i);
    case 3:
        return i == n / 2 ? 1e10f : sinf((float)i); // one huge value
    case 4:
        return 1e-40f * (float)(i % 5); // denormal
    case 5:
        return i == n - 1 ? -3e4f : -INFINITY; // attention: all are masked but one
    case 6:
        return 0x1p121f; // its mean times 1/sqrt(eps) overflows
    default:
        return 3 * sinf((float)i);
    }
}

static void store(void *p, int type, int i, double v) {
    if (type == DT_ROW_BF16)
        ((uint16_t *)p)[i] = case_to_bf16(v);
    else
        ((float *)p)[i] = (float)v;
}

static double value(const void *p, int type, int i) {
    const uint32_t u = type == DT_ROW_BF16 ? (uint32_t)((const uint16_t *)p)[i] << 16 : 0;
    float f;
    memcpy(&f, type == DT_ROW_BF16 ? (const void *)&u : (const char *)p + 4 * i, 4);
    return (double)f;
}

static void expect_near(const void *got, int type, const double *want, int n, const char *what, int kind, double most) {
    for (int i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
    const double limit = (type == DT_ROW_BF16 ? 0.01 : 1e-3) * most;
    for (int i = 0; i < n; i++)
        if (!(fabs(value(got, type, i) - want[i]) <= limit))
            fail_msg("%s, values %d, row of %d, element %d: %g, not %g", what, kind, n, i, value(got, type, i),
                     want[i]);
}

// p = softmax(s), log of the sum, and ds = p (dp - sum(p dp)), in double.
static double softmax_reference(const double *s, const double *dp, int n, double *p, double *ds) {
    double max = s[0], sum = 0, dot = 0;
    for (int i = 1; i < n; i++) max = fmax(max, s[i]);
    for (int i = 0; i < n; i++) sum += p[i] = exp(s[i] - max);
    for (int i = 0; i < n; i++) dot += (p[i] /= sum) * dp[i];
    for (int i = 0; i < n; i++) ds[i] = p[i] * (dp[i] - dot);
    return max + log(sum);
}

static void check_softmax(int type, int kind, int n) {
    const dt_simd_rows *rows = dt_simd_get()->rows;
    float s[LONGEST_ROW], dp[LONGEST_ROW];
    uint32_t x[LONGEST_ROW], y[LONGEST_ROW], dy[LONGEST_ROW], p[LONGEST_ROW], dx[LONGEST_ROW];
    double s64[LONGEST_ROW], d64[LONGEST_ROW], p64[LONGEST_ROW], ds64[LONGEST_ROW];
    for (int i = 0; i < n; i++) {
        store(x, type, i, (double)extreme(kind, i, n));
        store(dy, type, i, cos(2 * i));
        s64[i] = s[i] = (float)value(x, type, i);
        d64[i] = dp[i] = (float)value(dy, type, i);
    }
    const double lse = softmax_reference(s64, d64, n, p64, ds64);
    rows->softmax[type](y, x, n);
    expect_near(y, type, p64, n, "softmax", kind, 1e-30);
    rows->softmax_bwd[type](dx, y, dy, n);
    expect_near(dx, type, ds64, n, "its gradient", kind, 1e-30);
    const float got = rows->attend[type](p, s, n);
    expect_near(p, type, p64, n, "attention", kind, 1e-30);
    assert_true(fabs((double)got - lse) <= 1e-5 * (1 + fabs(lse)));
    for (int i = 0; i < n; i++) s[i] = (float)s64[i];
    rows->attend_bwd[type](p, dx, s, dp, got, n);
    if (kind != 0 && kind != 1 && kind != 3 && kind != 6) // lse has too few digits for the others
        expect_near(dx, type, ds64, n, "its gradient", kind, 1e-30);
    for (int i = 0; i < n; i++) assert_true(isfinite(value(dx, type, i)));
}

static void check_norm(int type, int kind, int n) {
    const dt_simd_rows *rows = dt_simd_get()->rows;
    uint32_t x[LONGEST_ROW], y[LONGEST_ROW], dy[LONGEST_ROW];
    float scale[LONGEST_ROW], shift[LONGEST_ROW], dscale[LONGEST_ROW] = {0}, dshift[LONGEST_ROW] = {0};
    for (int i = 0; i < n; i++) {
        store(x, type, i, (double)extreme(kind, i, n));
        store(dy, type, i, cos(2 * i));
        scale[i] = 1 + 0.5f * sinf((float)i), shift[i] = 0.1f;
    }
    dt_norm_row r = {.n = n,
                     .x = x,
                     .y = y,
                     .dy = dy,
                     .scale = scale,
                     .shift = shift,
                     .eps = 1e-6f,
                     .dscale = dscale,
                     .dshift = dshift};
    rows->norm[type](&r);
    double mean = 0, square = 0, c1 = 0, c2 = 0, want[LONGEST_ROW], g[LONGEST_ROW];
    for (int i = 0; i < n; i++) mean += value(x, type, i);
    mean /= n;
    for (int i = 0; i < n; i++) square += pow(value(x, type, i) - mean, 2) / n;
    const double rstd = 1 / sqrt(square + 1e-6);
    for (int i = 0; i < n; i++) {
        const double xhat = (value(x, type, i) - mean) * rstd;
        want[i] = xhat * (double)scale[i] + (double)shift[i];
        g[i] = value(dy, type, i) * (double)scale[i];
        c1 += g[i] / n, c2 += g[i] * xhat / n;
    }
    if (kind != 6) expect_near(y, type, want, n, "layer norm", kind, 1e-30); // there the mean is off by an ulp
    r.mean = (float)mean, r.rstd = (float)rstd;
    rows->norm_bwd[type](&r);
    for (int i = 0; i < n; i++) want[i] = (g[i] - c1 - (value(x, type, i) - mean) * rstd * c2) * rstd;
    expect_near(y, type, want, n, "its gradient", kind, rstd); // of terms that cancel
}

TEST(test_ends_of_rows) {
    for (int type = 0; type < DT_ROW_TYPES; type++)
        for (int n = 1; n <= 3 * dt_simd_get()->width + 1; n++)
            for (int kind = 0; kind < EXTREMES; kind++) {
                check_softmax(type, kind, n);
                if (kind != 5) check_norm(type, kind, n);
            }
}

int main(void) {
    return run_isas(false);
}
