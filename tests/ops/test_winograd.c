// test_winograd.c: the relative error (root of the mean square, against fp64) of oneDNN's direct and Winograd
// convolutions in fp32: forward, data gradient, weight gradient, on shapes of real networks. Prints the table that
// docs/explanation/kernels.md quotes. Where Winograd is offered to the choice by timing (backend/cpu/conv_algorithm.h),
// its error must stay below ten times the direct one's.
//
//   test_winograd [image scale]     4: pictures of four times the side
#include "backend/cpu/conv_algorithm.h"
#include "backend/cpu/cpu_backend.h"
#include "base/arena.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 200 };
static const double MOST = 10;

typedef struct shape {
    const char *name;
    int n, c, h, w, out;
} shape;
static const shape shapes[] = {
    {"16 to 16 at 24x24", 2, 16, 24, 24, 16},     {"32 to 64 at 51x48", 2, 32, 51, 48, 64},
    {"64 to 64 at 28x28", 2, 64, 28, 28, 64},     {"64 to 128 at 40x30", 1, 64, 40, 30, 128},
    {"128 to 128 at 28x28", 1, 128, 28, 28, 128}, {"128 to 256 at 12x12", 1, 128, 12, 12, 256},
    {"256 to 256 at 14x14", 1, 256, 14, 14, 256}, {"512 to 512 at 7x7", 1, 512, 7, 7, 512},
};

static double normal(void) {
    static uint64_t state = 1;
    double sum = 0; // of twelve uniform numbers
    for (int i = 0; i < 12; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        sum += (double)(state >> 11) * 0x1p-53;
    }
    return sum - 6;
}

static void *memory(size_t n_bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 64, dt_align_up(n_bytes + 1, 64))) abort();
    memset(p, 0, n_bytes);
    return p;
}

static void need(dt_status st) {
    if (st == DT_OK) return;
    fprintf(stderr, "%s\n", dt_error_message());
    exit(1);
}

// x (after a ReLU), w (as He initialises), dy, dense.
typedef struct tensors {
    shape s;
    float *x, *w, *y;
    int64_t n_x, n_w, n_y;
} tensors;

static void fill(tensors *t) {
    const shape *s = &t->s;
    t->n_x = (int64_t)s->n * s->c * s->h * s->w;
    t->n_y = (int64_t)s->n * s->out * s->h * s->w;
    t->n_w = (int64_t)s->out * s->c * 9;
    t->x = memory(sizeof(float) * (size_t)t->n_x);
    t->w = memory(sizeof(float) * (size_t)t->n_w);
    t->y = memory(sizeof(float) * (size_t)t->n_y);
    for (int64_t i = 0; i < t->n_x; i++) t->x[i] = (float)fmax(normal(), 0);
    for (int64_t i = 0; i < t->n_w; i++) t->w[i] = (float)(normal() * sqrt(2.0 / (9.0 * s->c)));
    for (int64_t i = 0; i < t->n_y; i++) t->y[i] = (float)normal();
}

// ---- fp64 ------------------------------------------------------------------------------------------
static double y_at(const tensors *t, int64_t i) {
    const shape *s = &t->s;
    const int64_t hw = (int64_t)s->h * s->w, n = i / hw / s->out, k = i / hw % s->out;
    const int64_t h = i % hw / s->w, q = i % s->w;
    double sum = 0;
    for (int64_t c = 0; c < s->c; c++)
        for (int64_t r = 0; r < 9; r++) {
            const int64_t u = h + r / 3 - 1, v = q + r % 3 - 1;
            if (u < 0 || u >= s->h || v < 0 || v >= s->w) continue;
            sum +=
                (double)t->x[((n * s->c + c) * s->h + u) * s->w + v] * t->w[(k * s->c + c) * 9 + r];
        }
    return sum;
}

static double dx_at(const tensors *t, int64_t i) {
    const shape *s = &t->s;
    const int64_t hw = (int64_t)s->h * s->w, n = i / hw / s->c, c = i / hw % s->c;
    const int64_t h = i % hw / s->w, q = i % s->w;
    double sum = 0;
    for (int64_t k = 0; k < s->out; k++)
        for (int64_t r = 0; r < 9; r++) {
            const int64_t u = h - r / 3 + 1, v = q - r % 3 + 1;
            if (u < 0 || u >= s->h || v < 0 || v >= s->w) continue;
            sum += (double)t->y[((n * s->out + k) * s->h + u) * s->w + v] *
                   t->w[(k * s->c + c) * 9 + r];
        }
    return sum;
}

static double dw_at(const tensors *t, int64_t i) {
    const shape *s = &t->s;
    const int64_t k = i / 9 / s->c, c = i / 9 % s->c, r = i % 9;
    double sum = 0;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t h = 0; h < s->h; h++)
            for (int64_t q = 0; q < s->w; q++) {
                const int64_t u = h + r / 3 - 1, v = q + r % 3 - 1;
                if (u < 0 || u >= s->h || v < 0 || v >= s->w) continue;
                sum += (double)t->x[((n * s->c + c) * s->h + u) * s->w + v] *
                       t->y[((n * s->out + k) * s->h + h) * s->w + q];
            }
    return sum;
}

// ---- the library -----------------------------------------------------------------------------------
// Copies a dense tensor into an argument's format, or back.
static void convert(const dt_dnnl_tensor *from, const dt_dnnl_tensor *to, const void *src,
                    void *dst) {
    const dt_dnnl_env env = {.threads = 1, .n_replicas = 1};
    dt_dnnl_op *op = NULL;
    need(dt_dnnl_op_create_reorder(&op, &env, from, to, false));
    void *scratch = memory(dt_dnnl_op_scratch_bytes(op));
    dt_dnnl_op_run(op, 0, (const void *[]){src, dst}, scratch);
    free(scratch);
    dt_dnnl_op_destroy(op);
}

static dt_dnnl_conv conv_of(const shape *s, bool winograd) {
    const dt_shape x = dt_shape4(s->n, s->c, s->h, s->w), y = dt_shape4(s->n, s->out, s->h, s->w);
    const dt_layout l = dt_blocked(dt_cpu_block());
    return (dt_dnnl_conv){.src = dt_dnnl_laid_out(DT_F32, &x, l),
                          .weights = dt_dnnl_any(DT_F32, 4, (int64_t[]){s->out, s->c, 3, 3}),
                          .dst = dt_dnnl_laid_out(DT_F32, &y, l),
                          .stride = {1, 1},
                          .dilation = {1, 1},
                          .pad_begin = {1, 1},
                          .pad_end = {1, 1},
                          .winograd = winograd};
}

// Runs one direction; out: its dense result. False: the library has no such convolution.
static bool compute(const tensors *t, dt_dnnl_direction dir, bool winograd, float *out) {
    const dt_dnnl_env env = {.threads = 1, .n_replicas = 1};
    const dt_dnnl_conv conv = conv_of(&t->s, winograd);
    dt_dnnl_op *op = NULL;
    if (dt_dnnl_op_create_conv(&op, &env, dir, &conv) != DT_OK) return false;
    const dt_dnnl_tensor dense[3] = {dt_dnnl_dense(DT_F32, 4, conv.src.d),
                                     dt_dnnl_dense(DT_F32, 4, conv.weights.d),
                                     dt_dnnl_dense(DT_F32, 4, conv.dst.d)};
    const float *from[3] = {t->x, t->w, t->y};
    void *arg[3], *scratch = memory(dt_dnnl_op_scratch_bytes(op));
    const int result = dir == DT_DNNL_FORWARD ? 2 : dir == DT_DNNL_BACKWARD_DATA ? 0 : 1;
    for (int i = 0; i < 3; i++) {
        const dt_dnnl_tensor to = dt_dnnl_like(dt_dnnl_op_md(op, i));
        arg[i] = memory(dt_dnnl_md_bytes(dt_dnnl_op_md(op, i)));
        if (i != result) convert(&dense[i], &to, from[i], arg[i]);
    }
    dt_dnnl_op_run(op, 0, (const void *const *)arg, scratch);
    const dt_dnnl_tensor like = dt_dnnl_like(dt_dnnl_op_md(op, result));
    convert(&like, &dense[result], arg[result], out);
    for (int i = 0; i < 3; i++) free(arg[i]);
    free(scratch);
    dt_dnnl_op_destroy(op);
    return true;
}

// Relative error of each algorithm, over the same sampled elements. False: there is no Winograd.
static bool errors_of(const tensors *t, dt_dnnl_direction dir, double error[2]) {
    static double (*const reference[])(const tensors *, int64_t) = {y_at, dx_at, dw_at};
    const int64_t n = dir == DT_DNNL_FORWARD         ? t->n_y
                      : dir == DT_DNNL_BACKWARD_DATA ? t->n_x
                                                     : t->n_w;
    double want[SAMPLES], sum = 0;
    float *out = memory(sizeof(float) * (size_t)n);
    for (int i = 0; i < SAMPLES; i++) {
        want[i] = reference[dir](t, n * i / SAMPLES + i % 7);
        sum += want[i] * want[i];
    }
    bool there = true;
    for (int k = 0; k < 2 && there; k++) {
        there = compute(t, dir, k == 1, out);
        double wrong = 0;
        for (int i = 0; i < SAMPLES; i++) wrong += pow(out[n * i / SAMPLES + i % 7] - want[i], 2);
        error[k] = sqrt(wrong / sum);
    }
    free(out);
    return there;
}

int main(int argc, char **argv) {
    const int scale = argc > 1 ? atoi(argv[1]) : 1;
    static const char *const directions[] = {"forward", "data gradient", "weight gradient"};
    int failed = 0;
    printf(
        "| convolution of 3x3 | direction | direct | Winograd | ratio |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        tensors t = {.s = shapes[i]};
        t.s.h *= scale;
        t.s.w *= scale;
        fill(&t);
        for (int dir = 0; dir < 3; dir++) {
            double error[2];
            if (!errors_of(&t, (dt_dnnl_direction)dir, error)) {
                printf("skipped: this library has no Winograd here (%s): %s\n", dt_dnnl_isa_name(),
                       dt_error_message());
                return i == 0 && dir == 0 ? 77 : 1;
            }
            const dt_dnnl_conv conv = conv_of(&t.s, true);
            const bool offered = dt_conv_may_use_winograd((dt_dnnl_direction)dir, &conv);
            printf("| %s | %s | %.1e | %.1e | %.1f%s |\n", t.s.name, directions[dir], error[0],
                   error[1], error[1] / error[0], offered ? "" : ", not offered");
            failed += offered && !(error[1] < MOST * error[0]);
        }
        free(t.x);
        free(t.w);
        free(t.y);
    }
    if (failed) printf("FAILED: %d are %g times as far off as direct, or more\n", failed, MOST);
    return failed != 0;
}
