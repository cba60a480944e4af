// test_kernels_cuda.c: custom kernels called directly on the host, with grids that the backend would not choose.
// Covers what the op tests' rows do not reach: NaN must pass through, loops must iterate, numbers must be the CPU's.
#include "fake_cuda.h"
#include "fake_kernels.h"
#include "testing.h"

#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/all_kernels.h"
#include "base/rng.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

// Runs a kernel over its grid, threads in either order, after a look for races (fake_cuda_races).
#define RUN(kernel, args, n_blocks, n_threads)                                                                         \
    do {                                                                                                               \
        fake_fibers_look(DT_K_##kernel, (args), (dt_cuda_grid){(n_blocks), (n_threads)});                              \
        for (int64_t b_ = 0; b_ < (n_blocks); b_++)                                                                    \
            fake_kernels[DT_K_##kernel].run(                                                                           \
                (args), &(dt_host_block){                                                                              \
                            .block = b_, .grid = (n_blocks), .block_dim = (n_threads), .backwards = (int)(b_ & 1)});   \
    } while (0)

static void *aligned(size_t n) {
    void *p = NULL;
    if (posix_memalign(&p, 64, n + 64)) abort();
    memset(p, 0xff, n + 64);
    return p;
}

// Every quotient of every divisor that a shape may have, at the ends and around multiples.
TEST(test_quotients) {
    for (int64_t d = 1; d < 100000; d += d < 3000 ? 1 : 997) {
        const dt_quot q = dt_quot_of(d);
        const int64_t most = INT32_MAX, last = most / d * d;
        const int64_t n[] = {0, 1, d - 1, d, d + 1, 7 * d - 1, 7 * d, last - 1, last, most};
        for (size_t i = 0; i < sizeof n / sizeof *n; i++)
            if (n[i] <= most && dt_div(q, n[i]) != n[i] / d)
                fail_msg("%lld / %lld: %lld", (long long)n[i], (long long)d, (long long)dt_div(q, n[i]));
    }
}

// A grid that is too small for the tensor goes round, and the rest behind the last eight is there.
TEST(test_map_loop) {
    enum { N = 5003 };
    for (int type = DT_F32; type <= DT_F16; type++) {
        void *x = aligned(N * 4), *y = aligned(N * 4);
        for (int i = 0; i < N; i++) dt_put(x, type, i, (float)(i % 97 - 48));
        const dt_map_args a = {.x = x, .out = y, .n = N, .type = type, .alpha = 2.0f};
        RUN(scale_fwd, &a, 2, 64);
        for (int i = 0; i < N; i++) assert_true(dt_get(y, type, i) == 2.0f * (float)(i % 97 - 48));
        free(x), free(y);
    }
}

TEST(test_nan_elementwise) {
    for (int at = 0; at < 21; at++) {
        float *x = aligned(21 * 4), *y = aligned(21 * 4);
        for (int i = 0; i < 21; i++) x[i] = i == at ? NAN : -1.0f;
        const dt_map_args a = {.x = x, .out = y, .n = 21, .type = DT_F32};
        RUN(relu_fwd, &a, 1, 32);
        for (int i = 0; i < 21; i++) assert_true(i == at ? isnan(y[i]) : y[i] == 0.0f);
        RUN(gelu_fwd, &a, 1, 32);
        assert_true(isnan(y[at]) && !isnan(y[at ? 0 : 1]));
        free(x), free(y);
    }
}

// A NaN anywhere in a row reaches all of it; a row that is partly -inf does not become NaN.
TEST(test_nan_softmax) {
    enum { N = 75 };
    float *x = aligned(N * 4), *y = aligned(N * 4);
    const dt_softmax_args a = {.r = dt_rows_make(1, N), .ld = N, .x = x, .out = y};
    for (int at = 0; at < N; at++) {
        for (int i = 0; i < N; i++) x[i] = i == at ? NAN : i % 3 ? -INFINITY : (float)i;
        RUN(softmax_fwd, &a, 1, 256);
        for (int i = 0; i < N; i++) assert_true(isnan(y[i]));
        for (int i = 0; i < N; i++) x[i] = i == at ? 1.0f : -INFINITY;
        RUN(softmax_fwd, &a, 1, 256);
        for (int i = 0; i < N; i++) assert_true(y[i] == (i == at ? 1.0f : 0.0f));
    }
    free(x), free(y);
}

TEST(test_nan_pool) {
    enum { C = 8 };
    float *x = aligned(4 * C * 4), *y = aligned(C * 4);
    dt_pool_args a = {.c = dt_cols_make(1, C, 1, 1),
                      .x = x,
                      .out = y,
                      .type = DT_F32,
                      .max = 1,
                      .big_h = 2,
                      .big_w = 2,
                      .small_h = 1,
                      .small_w = 1,
                      .kernel = {2, 2},
                      .stride = {2, 2},
                      .across = dt_quot_of(1),
                      .down = dt_quot_of(1)};
    for (int p = 0; p < 4; p++) {
        for (int i = 0; i < 4 * C; i++) x[i] = (float)i;
        x[p * C + 3] = NAN;
        RUN(pool_fwd, &a, 1, 256);
        assert_true(isnan(y[3]) && y[4] == (float)(3 * C + 4));
    }
    free(x), free(y);
}

// Neither ReLU nor a pool's loser hides NaN statistics.
TEST(test_nan_batch_norm) {
    enum { C = 8, PIXELS = 4 };
    float *x = aligned(PIXELS * C * 4), *y = aligned(PIXELS * C * 4), *consts = aligned(5 * C * 4);
    uint8_t *argmax = aligned(C);
    for (int which = 0; which < 3; which++) {
        for (int i = 0; i < PIXELS * C; i++) x[i] = 0;
        for (int i = 0; i < 5 * C; i++) consts[i] = i == which * C + 3 ? NAN : 0;
        dt_bn_args a = {.c = dt_cols_make(PIXELS, C, 1, 1),
                        .x = x,
                        .out = y,
                        .argmax = argmax,
                        .consts = consts,
                        .type = DT_F32,
                        .relu = 1,
                        .height = 2,
                        .width = 2,
                        .across = dt_quot_of(1),
                        .down = dt_quot_of(1)};
        RUN(bn_apply, &a, 1, 256);
        for (int p = 0; p < PIXELS; p++) assert_true(isnan(y[p * C + 3]) && y[p * C + 4] == 0);
        a.c = dt_cols_make(1, C, 1, 1);
        RUN(bn_apply_pool, &a, 1, 256);
        assert_true(isnan(y[3]) && y[4] == 0);
    }
    free(x), free(y), free(consts), free(argmax);
}

// A class outside 0..K-1 makes the loss and its gradient NaN; with weight 0 nothing of the sample is read.
TEST(test_loss_edges) {
    enum { N = 4, K = 10 };
    float *x = aligned(N * K * 4), *dx = aligned(N * K * 4), loss = 0, sum = 0;
    const float weight[N] = {1, 0, 2, 0};
    double losses[N];
    const dt_step_block step = {.loss_scale = 4.0f};
    for (int i = 0; i < N * K; i++) x[i] = i / K % 2 ? NAN : (float)(i % 7);
    for (int bad = 0; bad < 2; bad++) {
        const int32_t classes[N] = {bad ? K : 3, -5, 2, 99};
        dt_loss_args a = {.r = dt_rows_make(N, K),
                          .x = x,
                          .weight = weight,
                          .classes = classes,
                          .losses = losses,
                          .loss = &loss,
                          .weight_sum = &sum,
                          .share = 1,
                          .step = &step};
        RUN(loss_rows, &a, dt_rows_grid(&a.r).blocks, 256);
        RUN(loss_finish, &a, 1, 1024);
        assert_true(bad ? isnan(loss) : loss > 0 && loss < 100);
        assert_true(sum == 3.0f);
        a.dx = dx;
        RUN(loss_bwd, &a, dt_rows_grid(&a.r).blocks, 256);
        assert_true(bad ? isnan(dx[0]) : !isnan(dx[0]));
        for (int i = 0; i < N * K; i++)
            if (i / K % 2) assert_true(dx[i] == 0.0f);
        assert_false(isnan(dx[2 * K + 1]));
    }
    free(x), free(dx);
}

// The mask in NHWC order and in pieces of eight is the CPU's, element by element.
TEST(test_dropout_bits) {
    enum { N = 3, C = 12, P = 35, ALL = N * C * P };
    float *x = aligned(ALL * 4), *y = aligned(ALL * 4);
    const dt_step_block step = {.seed = 0xfeedfacecafebeefu, .slot = 9, .step = 77};
    for (int i = 0; i < ALL; i++) x[i] = 1.0f;
    dt_dropout_args a = {.x = x,
                         .out = y,
                         .step = &step,
                         .samples = N,
                         .per_sample = C * P,
                         .tiles = 1,
                         .channels = C,
                         .pixels = P,
                         .draws = (P + 2) / 4 + 1,
                         .purpose = 123,
                         .type = DT_F32,
                         .p = 0.4f};
    for (int nhwc = 0; nhwc < 2; nhwc++) {
        if (nhwc)
            RUN(dropout_nhwc, &a, N, 256);
        else
            RUN(dropout, &a, N, 256);
        for (int i = 0; i < ALL; i++) {
            const int n = i / (C * P), e = i % (C * P);
            const dt_rng r = {step.seed, step.slot + (uint32_t)n, step.step, 123};
            const int at = nhwc ? n * C * P + e % P * C + e / P : i;
            const float want = dt_rng_uniform(&r, (uint32_t)e) >= 0.4f ? 1 / (1 - 0.4f) : 0;
            assert_true(y[at] == want);
        }
    }
    free(x), free(y);
}

// Values near 1000 and one pixel far away, which comes first and is the pivot of all: mean and variance are right
// to 1e-5 of the deviation.
TEST(test_outlier_first) {
    enum { C = 16, ROWS = 4096 };
    float *x = aligned(ROWS * C * 4);
    double mean = 0, var = 0;
    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < C; c++) x[i * C + c] = i ? 1000 + (float)(i * 7 % 5) / 8 : -1e6f;
    for (int i = 0; i < ROWS; i++) mean += (double)x[i * C] / ROWS;
    for (int i = 0; i < ROWS; i++) var += pow((double)x[i * C] - mean, 2) / ROWS;
    dt_bn_args a = {.c = dt_cols_make(ROWS, C, 512, 4), .x = x, .type = DT_F32};
    a.partial = aligned((size_t)(a.c.n_chunks * 2 * a.c.padded) * 4);
    a.consts = aligned((size_t)a.c.padded * 5 * 4);
    const float one[C] = {1}, zero[C] = {0};
    float saved[2][C];
    RUN(bn_stats, &a, a.c.n_chunks * a.c.tiles, 256);
    const dt_bn_finish_args f = {.c = a.c,
                                 .count = ROWS,
                                 .x = x,
                                 .partial = a.partial,
                                 .scale = one,
                                 .shift = zero,
                                 .consts = a.consts,
                                 .saved_mean = saved[0],
                                 .saved_invstd = saved[1],
                                 .type = DT_F32,
                                 .training = 1,
                                 .eps = 1e-5f};
    RUN(bn_finish, &f, 1, 1024);
    assert_true(fabs((double)saved[0][0] - mean) < 1e-5 * sqrt(var));
    assert_true(fabs(1 / ((double)saved[1][0] * (double)saved[1][0]) / var - 1) < 1e-5);
    free(x), free(a.partial), free(a.consts);
}

// Statistics from the sums that a convolution has made in f32, tiles of 128 pixels and then these one by one, against
// two passes in double, for means of 0 to 10 deviations: gain and mean are right to a quarter of what fp16 rounds
// (2^-11). A constant channel's variance is zero, not below.
TEST(test_sums_of_a_convolution) {
    enum { C = 24, ROWS = 20000 };
    uint16_t *x = aligned(ROWS * C * 2);
    float *sums = aligned(2 * C * 4), saved[2][C], scale[C], zero[C] = {0};
    memset(sums, 0, 2 * C * sizeof *sums);
    for (int c = 0; c < C; c++) {
        const dt_rng r = {.seed = 3, .slot = (uint32_t)c};
        scale[c] = 1;
        for (int i = 0; i < ROWS; i++) {
            const float u = 3.4641f * (dt_rng_uniform(&r, (uint32_t)i) - 0.5f); // deviation 1
            dt_put(x, DT_F16, i * C + c, c == C - 1 ? 0.1f : u + 0.45f * (float)c);
        }
    }
    for (int c = 0; c < C; c++)
        for (int tile = 0; tile < ROWS; tile += 128) {
            float sum = 0, square = 0;
            for (int i = tile; i < ROWS && i < tile + 128; i++) {
                const float y = dt_get(x, DT_F16, i * C + c);
                sum += y, square += y * y;
            }
            sums[c] += sum, sums[C + c] += square;
        }
    const dt_bn_finish_args f = {.count = ROWS,
                                 .x = x,
                                 .sums = sums,
                                 .scale = scale,
                                 .shift = zero,
                                 .saved_mean = saved[0],
                                 .saved_invstd = saved[1],
                                 .type = DT_F16,
                                 .training = 1,
                                 .eps = 1e-5f};
    dt_bn_once_args a = {.finish = f, .apply = {.x = x, .type = DT_F16}};
    a.apply.c = dt_cols_flow(ROWS, C, 16);
    a.apply.out = aligned(ROWS * C * 2);
    const int64_t blocks = a.apply.c.n_chunks * a.apply.c.tiles;
    assert_true(blocks > 4);
    RUN(bn_apply_sums, &a, blocks, 256);
    for (int c = 0; c < C; c++) {
        double mean = 0, var = 0;
        for (int i = 0; i < ROWS; i++) mean += (double)dt_get(x, DT_F16, i * C + c) / ROWS;
        for (int i = 0; i < ROWS; i++) var += pow((double)dt_get(x, DT_F16, i * C + c) - mean, 2) / ROWS;
        const double gain = 1 / sqrt(var + 1e-5), fp16 = 1.0 / 2048;
        if (c == C - 1) {
            assert_true(isfinite(saved[1][c]) && (double)saved[1][c] <= 1 / sqrt(1e-5) + 1e-3);
            continue;
        }
        if (!(fabs((double)saved[0][c] - mean) < fp16 / 4 * (sqrt(var) + fabs(mean))) ||
            !(fabs((double)saved[1][c] / gain - 1) < fp16 / 4))
            fail_msg("channel %d: %.9g and %.9g for %.9g and %.9g", c, (double)saved[0][c], (double)saved[1][c], mean,
                     gain);
        for (int i = 0; i < ROWS; i += 997) {
            const double want = ((double)dt_get(x, DT_F16, i * C + c) - mean) * gain;
            assert_true(fabs((double)dt_get(a.apply.out, DT_F16, i * C + c) - want) < 2 * fp16);
        }
    }
    free(x), free(sums), free(a.apply.out);
}

// Rows that end within a group of eight, of values at the edges: what arithmetic makes of the zeros behind a row, such as
// (0 - mean) / deviation, does not enter it.
static float at_the_edge(int kind, int i) {
    const float values[] = {i % 2 ? 1e4f : -1e4f, -1e4f, -1000 + sinf((float)i), 0x1p121f, 1e-40f * (float)(i % 5)};
    return values[kind];
}
TEST(test_ends_of_rows) {
    for (int n = 1; n <= 3 * 8 + 1; n++)
        for (int kind = 0; kind < 5; kind++) {
            float x[32], dy[32], scale[32], out[32], partial[64];
            double mean = 0, square = 0, max = -INFINITY, sum = 0, c1 = 0, c2 = 0, g[32];
            for (int i = 0; i < n; i++) {
                x[i] = at_the_edge(kind, i), dy[i] = cosf(2 * (float)i);
                scale[i] = 1 + 0.5f * sinf((float)i);
                mean += (double)x[i], max = fmax(max, (double)x[i]);
            }
            mean /= n;
            for (int i = 0; i < n; i++) {
                square += pow((double)x[i] - mean, 2) / n;
                sum += exp((double)x[i] - max);
            }
            const dt_softmax_args s = {.r = dt_rows_make(1, n), .ld = n, .x = x, .out = out};
            RUN(softmax_fwd, &s, 1, 256);
            for (int i = 0; i < n; i++) assert_true(fabs((double)out[i] - exp((double)x[i] - max) / sum) <= 1e-5);
            const double rstd = 1 / sqrt(square + 1e-6);
            for (int i = 0; i < n; i++) {
                g[i] = (double)dy[i] * (double)scale[i];
                c1 += g[i] / n, c2 += g[i] * ((double)x[i] - mean) * rstd / n;
            }
            const float mean32 = (float)mean, rstd32 = (float)rstd;
            const dt_layer_norm_args a = {.r = dt_rows_make(1, n),
                                          .x = x,
                                          .dy = dy,
                                          .scale = scale,
                                          .mean_in = &mean32,
                                          .invstd_in = &rstd32,
                                          .out = out,
                                          .partial = partial,
                                          .n_blocks = 1,
                                          .type = DT_F32};
            RUN(ln_bwd, &a, 1, 256);
            for (int i = 0; i < n; i++) {
                const double hat = ((double)x[i] - mean) * rstd, want = (g[i] - c1 - hat * c2) * rstd;
                if (!(fabs((double)out[i] - want) <= 1e-3 * rstd))
                    fail_msg("values %d, row of %d, element %d: %g, not %g", kind, n, i, (double)out[i], want);
            }
        }
}

// Gain and shift for a convolution that applies them as it reads, against the batch norm in double: channels with
// means of 0 to 10 deviations, and one that stands still at 1000, whose shift fp16 could not hold.
TEST(test_norm_that_is_left) {
    enum { C = 264 };
    static uint16_t gain[C], shift[C], x[C];
    static float sums[2 * C], scale[C], beta[C], saved[2][C];
    const double n = 4096;
    for (int c = 0; c < C; c++) {
        const double mean = c == C - 1 ? 1000 : 0.04 * c, var = c == C - 1 ? 0 : 0.5 + 0.01 * c;
        sums[c] = (float)(n * mean), sums[C + c] = (float)(n * (var + mean * mean));
        scale[c] = 0.5f + 0.005f * (float)c, beta[c] = 0.01f * (float)(c - 100);
    }
    const dt_bn_leave_args a = {.finish = {.c = {.cols = C},
                                           .count = (int64_t)n,
                                           .x = x,
                                           .sums = sums,
                                           .scale = scale,
                                           .shift = beta,
                                           .saved_mean = saved[0],
                                           .saved_invstd = saved[1],
                                           .type = DT_F16,
                                           .training = 1,
                                           .eps = 1e-5f},
                                .gain = gain,
                                .shift = shift};
    RUN(bn_leave, &a, 2, 256);
    for (int c = 0; c < C; c++) {
        const double g = (double)dt_get(gain, DT_F16, c), s = (double)dt_get(shift, DT_F16, c);
        const double mean = (double)saved[0][c], real = (double)scale[c] * (double)saved[1][c];
        assert_true(isfinite(g) && isfinite(s));
        if (c == C - 1) {
            assert_true(g == 0 && fabs(s - (double)beta[c]) < 1e-3);
            continue;
        }
        for (int k = -3; k <= 3; k++) { // deviations from the mean
            const double e = k / (double)saved[1][c], got = (mean + e) * g + s;
            const double most = (fabs(e) * real + fabs(s)) / 2048 + 1e-6;
            if (!(fabs(got - (e * real + (double)beta[c])) <= most))
                fail_msg("channel %d, %d deviations: %.9g", c, k, got);
        }
    }
}

// One kernel a direction gives what three give, for each way to mask, to 1e-5 of the largest.
static double worst(const float *a, const float *b, int n) {
    double largest = 0, most = 0;
    for (int i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)b[i]));
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    }
    return most / largest;
}
TEST(test_one_batch_norm_kernel) {
    enum { ROWS = 1203, C = 16, N = ROWS * C };
    const dt_cols three = dt_cols_make(ROWS, C, 512, 4), flow = dt_cols_flow(ROWS, C, 16);
    const dt_cols one = {
        .rows = ROWS, .cols = C, .chunk_rows = ROWS, .n_chunks = 1, .padded = C, .tiles = 1, .tx_log2 = 1, .whole = 1};
    float *x = aligned(N * 4), *dy = aligned(N * 4), *y[2], *dx[2], scale[C], shift[C];
    float *partial = aligned((size_t)(three.n_chunks * 2 * three.padded) * 4);
    float *consts = aligned((size_t)three.padded * 5 * 4), saved[2][2][C], grad[2][2][C];
    uint8_t *bits[2];
    float *dresidual = aligned(N * 4);
    for (int i = 0; i < 2; i++) y[i] = aligned(N * 4), dx[i] = aligned(N * 4), bits[i] = aligned(N / 8);
    for (int i = 0; i < N; i++) {
        const dt_rng r = {.seed = 4};
        x[i] = dt_rng_uniform(&r, (uint32_t)i), dy[i] = dt_rng_uniform(&r, (uint32_t)(N + i)) - 0.5f;
    }
    for (int c = 0; c < C; c++) scale[c] = c ? 1 + 0.1f * (float)c : -1, shift[c] = 0.05f * (float)c;
    for (int mask = DT_BN_NONE; mask <= DT_BN_BITS; mask++) {
        dt_bn_once_args all;
        for (int k = 0; k < 2; k++) { // 0: three kernels
            dt_bn_args s = {.c = k ? one : three,
                            .x = x,
                            .out = y[k],
                            .partial = partial,
                            .consts = consts,
                            .residual = mask == DT_BN_BITS ? dy : NULL,
                            .bits = bits[k],
                            .type = DT_F32,
                            .relu = mask != DT_BN_NONE};
            dt_bn_finish_args f = {.c = three,
                                   .count = ROWS,
                                   .x = x,
                                   .partial = partial,
                                   .consts = consts,
                                   .scale = scale,
                                   .shift = shift,
                                   .saved_mean = saved[k][0],
                                   .saved_invstd = saved[k][1],
                                   .type = DT_F32,
                                   .training = 1,
                                   .eps = 1e-5f};
            dt_bn_args last = s;
            last.c = k ? one : flow;
            all = (dt_bn_once_args){.sums = s, .apply = last, .finish = f};
            if (k) {
                RUN(bn_small, &all, 1, DT_BN_SMALL_THREADS);
            } else {
                RUN(bn_stats, &s, three.n_chunks * three.tiles, 256);
                RUN(bn_finish, &f, 1, 1024);
                RUN(bn_apply, &last, flow.n_chunks * flow.tiles, 256);
            }
            for (int i = 0; i < N && mask == DT_BN_BITS; i++)
                assert_int_equal(bits[k][i / 8] >> i % 8 & 1, y[k][i] > 0);
            s.dy = dy, s.bits_in = bits[k], s.out = dx[k], s.mask = mask;
            s.dresidual = mask == DT_BN_BITS ? dresidual : NULL;
            s.mean = f.mean_in = saved[k][0], s.invstd = f.var_in = saved[k][1];
            s.scale = scale, s.shift = shift;
            f.out1 = grad[k][0], f.out2 = grad[k][1];
            last = s;
            if (s.dresidual) last.dy = dresidual, last.mask = DT_BN_NONE;
            last.c = k ? one : flow;
            all.sums = s, all.apply = last, all.finish = f;
            if (k) {
                RUN(bn_bwd_small, &all, 1, DT_BN_SMALL_THREADS);
            } else {
                RUN(bn_bwd_sums, &s, three.n_chunks * three.tiles, 256);
                RUN(bn_bwd_finish, &f, 1, 1024);
                RUN(bn_bwd_apply, &last, flow.n_chunks * flow.tiles, 256);
            }
        }
        assert_true(worst(saved[1][1], saved[0][1], C) < 1e-5 && worst(y[1], y[0], N) < 1e-5);
        assert_true(worst(grad[1][0], grad[0][0], C) < 1e-5 && worst(grad[1][1], grad[0][1], C) < 1e-5);
        assert_true(worst(dx[1], dx[0], N) < 1e-5);
    }
    for (int i = 0; i < 2; i++) free(y[i]), free(dx[i]), free(bits[i]);
    free(x), free(dy), free(partial), free(consts), free(dresidual);
}

// Two gradients that the first pass adds have the bits of a kernel that adds and one that reads the sum.
TEST(test_two_gradients) {
    enum { ROWS = 700, C = 24, N = ROWS * C };
    for (int type = DT_F32; type <= DT_F16; type++) {
        const dt_cols cols = dt_cols_make(ROWS, C, 8, 4);
        const size_t n_partial = (size_t)(cols.n_chunks * 2 * cols.padded) * 4;
        void *in[3], *sum = aligned(N * 4), *out[2];
        float *partial[2], mean[C];
        uint8_t *bits = aligned(N / 8);
        for (int i = 0; i < 3; i++) {
            const dt_rng r = {.seed = (uint64_t)i};
            in[i] = aligned(N * 4);
            for (int k = 0; k < N; k++) dt_put(in[i], type, k, dt_rng_uniform(&r, (uint32_t)k) - 0.5f);
        }
        for (int k = 0; k < N / 8; k++) bits[k] = (uint8_t)(k * 37);
        for (int c = 0; c < C; c++) mean[c] = 0.01f * (float)c;
        for (int both = 0; both < 2; both++) {
            partial[both] = aligned(n_partial), out[both] = aligned(N * 4);
            const dt_map_args add = {.x = in[1], .d = in[2], .out = sum, .n = N, .type = type};
            RUN(add_same, &add, 3, 256);
            const dt_bn_args a = {.c = cols,
                                  .x = in[0],
                                  .dy = both ? in[1] : sum,
                                  .other = both ? in[2] : NULL,
                                  .bits_in = bits,
                                  .dresidual = out[both],
                                  .partial = partial[both],
                                  .mean = mean,
                                  .type = type,
                                  .mask = DT_BN_BITS};
            RUN(bn_bwd_sums, &a, cols.n_chunks * cols.tiles, 256);
        }
        assert_memory_equal(partial[0], partial[1], n_partial);
        assert_memory_equal(out[0], out[1], (size_t)(N * dt_elem_bytes(type)));
        for (int i = 0; i < 3; i++) free(in[i]);
        for (int i = 0; i < 2; i++) free(partial[i]), free(out[i]);
        free(sum), free(bits);
    }
}

// A convolution by the definition, of an NHWC image and a weight (k, taps, c); dw: dy's instead, the gradient of the weight.
typedef struct direct_conv {
    int n, h, w, c, k, rows, cols, stride, pad, out_h, out_w;
} direct_conv;
static void convolve(const direct_conv *d, const float *x, float *w, float *y, bool dw) {
    for (int i = 0; i < d->n * d->out_h * d->out_w * d->k * d->rows * d->cols * d->c; i++) {
        int at = i;
        const int c = at % d->c, col = (at /= d->c) % d->cols, row = (at /= d->cols) % d->rows,
                  k = (at /= d->rows) % d->k, q = (at /= d->k) % d->out_w, p = (at /= d->out_w) % d->out_h,
                  n = at / d->out_h;
        const int r = p * d->stride + row - d->pad, s = q * d->stride + col - d->pad;
        if (r < 0 || s < 0 || r >= d->h || s >= d->w) continue;
        float *weight = &w[((k * d->rows + row) * d->cols + col) * d->c + c];
        float *pixel = &y[((n * d->out_h + p) * d->out_w + q) * d->k + k];
        const float in = x[((n * d->h + r) * d->w + s) * d->c + c];
        *(dw ? weight : pixel) += in * (dw ? *pixel : *weight);
    }
}
// A convolution with a stride over few channels is one of stride 1 over folded pixels, and so is its weight's gradient.
TEST(test_folded_stride) {
    static const int forms[][4] = {{3, 7, 2, 3}, {3, 3, 2, 1}, {1, 5, 3, 2}, {3, 4, 4, 0}}; // c, window, stride, pad
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        const int c = forms[f][0], window = forms[f][1], stride = forms[f][2], pad = forms[f][3];
        const int size = 13, out = (size + 2 * pad - window) / stride + 1;
        const int taps = (window + stride - 1) / stride, wide = (stride * stride * c + 7) / 8 * 8;
        const direct_conv own = {2, size, size, c, 2, window, window, stride, pad, out, out};
        const direct_conv fold = {2, out + taps - 1, out + taps - 1, wide, 2, taps, taps, 1, 0, out, out};
        const int n_x = 2 * size * size * c, n_z = 2 * fold.h * fold.w * wide, n_y = 2 * out * out * 2;
        const int n_w = 2 * window * window * c, n_v = 2 * taps * taps * wide;
        float *x = aligned((size_t)n_x * 4), *z = aligned((size_t)n_z * 4), *w = aligned((size_t)n_w * 4),
              *v = aligned((size_t)n_v * 4), *y[2], *dw[3];
        for (int i = 0; i < 2; i++) y[i] = aligned((size_t)n_y * 4), memset(y[i], 0, (size_t)n_y * 4);
        for (int i = 0; i < 3; i++) dw[i] = aligned((size_t)n_v * 4), memset(dw[i], 0, (size_t)n_v * 4);
        for (int i = 0; i < n_x; i++) x[i] = (float)(i * 7 % 23 - 11);
        for (int i = 0; i < n_w; i++) w[i] = (float)(i * 5 % 17 - 8); // (k, c, taps)
        const dt_fold_args fold_args = {.x = x,
                                        .out = z,
                                        .n = n_z / 8,
                                        .height = size,
                                        .width = size,
                                        .c = c,
                                        .stride = stride,
                                        .pad_down = pad,
                                        .pad_across = pad,
                                        .groups = dt_quot_of(wide / 8),
                                        .across = dt_quot_of(fold.w),
                                        .down = dt_quot_of(fold.h),
                                        .by_c = dt_quot_of(c),
                                        .by_stride = dt_quot_of(stride),
                                        .type = DT_F32};
        RUN(fold_stride, &fold_args, 3, 256);
        const dt_tap_fold tap = {stride, c, window, window, taps};
        dt_pack_args pack = {
            .x = w, .out = v, .n_out = 2, .n_in = wide, .n_taps = taps * taps, .fold = tap, .type = DT_F32};
        RUN(pack_weight, &pack, 2, 256);
        convolve(&fold, z, v, y[1], false);
        pack = (dt_pack_args){.x = w, .out = v, .n_out = 2, .n_in = c, .n_taps = window * window, .type = DT_F32};
        RUN(pack_weight, &pack, 2, 256);
        convolve(&own, x, v, y[0], false);
        assert_memory_equal(y[0], y[1], (size_t)n_y * 4); // whole numbers
        convolve(&own, x, dw[0], y[0], true);
        convolve(&fold, z, dw[1], y[0], true);
        dt_weight_grad_args grad = {.packed = dw[1],
                                    .flat = dw[2],
                                    .n_out = 2,
                                    .n_in = wide,
                                    .n_taps = taps * taps,
                                    .by_out = dt_quot_of(wide * taps * taps),
                                    .by_taps = dt_quot_of(taps * taps),
                                    .fold = tap,
                                    .type = DT_F32};
        RUN(weight_grad, &grad, 2, 256);
        for (int i = 0; i < n_w; i++) { // (k, c, taps)
            const int k = i / (c * window * window), ch = i / (window * window) % c, at = i % (window * window);
            assert_true(dw[2][i] == dw[0][(k * window * window + at) * c + ch]);
        }
        for (int i = 0; i < 2; i++) free(y[i]);
        for (int i = 0; i < 3; i++) free(dw[i]);
        free(x), free(z), free(w), free(v);
    }
}

// A kernel without one of its barriers is seen to race, whichever it is.
static int status_without(const char *barrier, const dt_softmax_args *a) {
    const pid_t child = fork();
    int status = 0;
    if (child == 0) {
        assert_non_null(freopen("/dev/null", "w", stderr));
        setenv("FAKE_CUDA_NO_BARRIER", barrier, 1);
        fake_cuda_races(1);
        fake_fibers_look(DT_K_softmax_fwd, a, (dt_cuda_grid){1, 256});
        _exit(0);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}
TEST(test_races_are_seen) {
    enum { N = 4096 };
    float *x = aligned(N * 4), *y = aligned(N * 4);
    for (int i = 0; i < N; i++) x[i] = (float)(i % 7);
    const dt_softmax_args a = {.r = dt_rows_make(1, N), .ld = N, .x = x, .out = y};
    if (!fake_cuda_races(3)) skip(); // built with a sanitizer
    assert_int_equal(status_without("0", &a), 0);
    for (int barrier = 1; barrier <= 3; barrier++) {
        const char text[] = {(char)('0' + barrier), 0};
        const int status = status_without(text, &a);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
    free(x), free(y);
}

TEST_MAIN(fake_cuda_race, NULL)
