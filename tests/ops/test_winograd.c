// test_winograd.c: Winograd's convolutions (backend/cpu/own_conv.h) against fp64, in all three directions and with both
// tiles, on tensors in fp32 and, with AVX-512, in bf16, once an ISA that the machine has: odd sizes, paddings and numbers
// of channels, with scratch full of NaN, and the same bits from two threads. Then the relative errors (root of the mean
// square) on shapes of real networks, beside those of the library's direct convolution: the tables that
// docs/explanation/kernels.md quotes. They must stay below ten times the direct one's in fp32; in bf16 below what rounding
// a result makes, or twice that where products are in bf16.

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/own_conv.h"
#include "base/core.h"
#include "each_isa.h"

#include <math.h>
#include <string.h>

enum { SAMPLES = 200 };
static const dt_dtype types[] = {DT_F32, DT_BF16};
static const double MOST = 10, MOST_ODD = 2e-5, MOST_BF16[] = {2.5e-3, 6e-3};
static const char *const directions[] = {"forward", "data gradient", "weight gradient"};

typedef struct shape {
    int n, c, h, w, out;
    int pad[2]; // in front and behind
} shape;

static const shape odd[] = {
    {1, 16, 1, 1, 16, {1, 1}}, {2, 5, 2, 3, 7, {1, 1}},    {3, 8, 7, 5, 24, {1, 1}},
    {1, 20, 4, 4, 33, {1, 1}}, {2, 17, 17, 23, 9, {1, 1}}, {1, 40, 9, 8, 48, {0, 0}},
    {3, 16, 6, 11, 8, {2, 2}}, {1, 9, 10, 5, 16, {0, 1}},  {2, 130, 5, 6, 150, {1, 1}},
};

typedef struct named {
    const char *name;
    shape s;
} named;
static const named real[] = {
    {"32 to 64 at 51x48", {2, 32, 51, 48, 64, {1, 1}}},     {"64 to 64 at 28x28", {2, 64, 28, 28, 64, {1, 1}}},
    {"128 to 256 at 12x12", {1, 128, 12, 12, 256, {1, 1}}}, {"256 to 256 at 14x14", {1, 256, 14, 14, 256, {1, 1}}},
    {"512 to 512 at 7x7", {1, 512, 7, 7, 512, {1, 1}}},
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
    memset(p, 0xff, n_bytes); // NaN
    return p;
}

static void need(dt_status st) {
    if (st == DT_OK) return;
    fprintf(stderr, "%s\n", dt_error_message());
    exit(1);
}

// x (after a ReLU), w (as He initialises), dy; dense.
typedef struct tensors {
    shape s;
    dt_dtype type;
    int64_t oh, ow, n[3]; // elements of x, w, y
    float *x, *w, *y;
} tensors;

static float rounded(double v, dt_dtype type) {
    float f = (float)v;
    if (type == DT_BF16) {
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        bits &= 0xffff0000u;
        memcpy(&f, &bits, sizeof f);
    }
    return f;
}

static void fill(tensors *t, shape s, dt_dtype type) {
    *t = (tensors){.s = s, .type = type, .oh = s.h + s.pad[0] + s.pad[1] - 2, .ow = s.w + s.pad[0] + s.pad[1] - 2};
    t->n[0] = (int64_t)s.n * s.c * s.h * s.w;
    t->n[1] = (int64_t)s.out * s.c * 9;
    t->n[2] = (int64_t)s.n * s.out * t->oh * t->ow;
    t->x = memory(sizeof(float) * (size_t)t->n[0]);
    t->w = memory(sizeof(float) * (size_t)t->n[1]);
    t->y = memory(sizeof(float) * (size_t)t->n[2]);
    for (int64_t i = 0; i < t->n[0]; i++) t->x[i] = rounded(fmax(normal(), 0), type);
    for (int64_t i = 0; i < t->n[1]; i++) t->w[i] = (float)(normal() * sqrt(2.0 / (9.0 * s.c)));
    for (int64_t i = 0; i < t->n[2]; i++) t->y[i] = rounded(normal(), type);
}

static void empty(tensors *t) {
    free(t->x);
    free(t->w);
    free(t->y);
}

// ---- fp64 ------------------------------------------------------------------------------------------
static double x_at(const tensors *t, int64_t n, int64_t c, int64_t h, int64_t w) {
    const shape *s = &t->s;
    if (h < 0 || h >= s->h || w < 0 || w >= s->w) return 0;
    return t->x[((n * s->c + c) * s->h + h) * s->w + w];
}

static double dy_at(const tensors *t, int64_t n, int64_t k, int64_t h, int64_t w) {
    if (h < 0 || h >= t->oh || w < 0 || w >= t->ow) return 0;
    return t->y[((n * t->s.out + k) * t->oh + h) * t->ow + w];
}

static double want_y(const tensors *t, int64_t i) {
    const shape *s = &t->s;
    const int64_t hw = t->oh * t->ow, n = i / hw / s->out, k = i / hw % s->out;
    const int64_t h = i % hw / t->ow - s->pad[0], q = i % t->ow - s->pad[0];
    double sum = 0;
    for (int64_t c = 0; c < s->c; c++)
        for (int64_t r = 0; r < 9; r++) sum += x_at(t, n, c, h + r / 3, q + r % 3) * t->w[(k * s->c + c) * 9 + r];
    return sum;
}

static double want_dx(const tensors *t, int64_t i) {
    const shape *s = &t->s;
    const int64_t hw = (int64_t)s->h * s->w, n = i / hw / s->c, c = i / hw % s->c;
    const int64_t h = i % hw / s->w + s->pad[0], q = i % s->w + s->pad[0];
    double sum = 0;
    for (int64_t k = 0; k < s->out; k++)
        for (int64_t r = 0; r < 9; r++) sum += dy_at(t, n, k, h - r / 3, q - r % 3) * t->w[(k * s->c + c) * 9 + r];
    return sum;
}

static double want_dw(const tensors *t, int64_t i) {
    const shape *s = &t->s;
    const int64_t k = i / 9 / s->c, c = i / 9 % s->c, r = i % 9;
    double sum = 0;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t h = 0; h < t->oh; h++)
            for (int64_t q = 0; q < t->ow; q++)
                sum += x_at(t, n, c, h + r / 3 - s->pad[0], q + r % 3 - s->pad[0]) * dy_at(t, n, k, h, q);
    return sum;
}

// ---- kernels ---------------------------------------------------------------------------------------
static void convert(const dt_dnnl_tensor *from, const dt_dnnl_tensor *to, const void *src, void *dst) {
    const dt_dnnl_env env = {.threads = 1, .n_replicas = 1};
    dt_dnnl_op *op = NULL;
    need(dt_dnnl_op_create_reorder(&op, &env, from, to, false));
    void *scratch = memory(dt_dnnl_op_scratch_bytes(op));
    dt_dnnl_op_run(op, 0, (const void *[]){src, dst}, scratch);
    free(scratch);
    dt_dnnl_op_destroy(op);
}

static dt_dnnl_conv conv_of(const tensors *t, dt_dnnl_direction dir) {
    const shape *s = &t->s;
    const dt_shape x = dt_shape4(s->n, s->c, s->h, s->w), y = dt_shape4(s->n, s->out, t->oh, t->ow);
    const dt_layout l = dt_blocked(dt_cpu_block());
    const dt_dtype w = dir == DT_DNNL_BACKWARD_WEIGHTS ? DT_F32 : t->type;
    return (dt_dnnl_conv){.src = dt_dnnl_laid_out(t->type, &x, l),
                          .weights = dt_dnnl_any(w, 4, (int64_t[]){s->out, s->c, 3, 3}),
                          .dst = dt_dnnl_laid_out(t->type, &y, l),
                          .stride = {1, 1},
                          .dilation = {1, 1},
                          .pad_begin = {s->pad[0], s->pad[0]},
                          .pad_end = {s->pad[1], s->pad[1]}};
}

// How argument i lies in memory.
static dt_dnnl_tensor format_of(const dt_conv_kernel *k, const dt_dnnl_conv *conv, int i) {
    if (k->library) return dt_dnnl_like(dt_dnnl_op_md(k->library, i));
    return i == 0 ? conv->src : i == 2 ? conv->dst : dt_dnnl_dense(DT_F32, 4, conv->weights.d);
}

// Runs one direction into `out`, dense.
static void compute(const tensors *t, dt_dnnl_direction dir, dt_winograd_way way, int threads, float *out) {
    const dt_dnnl_env env = {.threads = threads, .n_replicas = 1};
    const dt_dnnl_conv conv = conv_of(t, dir);
    dt_conv_kernel k;
    need(dt_conv_kernel_create(&k, &env, dir, &conv, way));
    const dt_dnnl_tensor dense[3] = {dt_dnnl_dense(DT_F32, 4, conv.src.d), dt_dnnl_dense(DT_F32, 4, conv.weights.d),
                                     dt_dnnl_dense(DT_F32, 4, conv.dst.d)};
    const float *from[3] = {t->x, t->w, t->y};
    void *arg[3], *scratch = memory(dt_conv_kernel_scratch_bytes(&k));
    const int result = dir == DT_DNNL_FORWARD ? 2 : dir == DT_DNNL_BACKWARD_DATA ? 0 : 1;
    for (int i = 0; i < 3; i++) {
        const dt_dnnl_tensor to = format_of(&k, &conv, i);
        arg[i] = memory(dt_conv_kernel_bytes(&k, &conv, (dt_conv_arg)i));
        if (i == result) continue;
        if (i == 1 && k.winograd)
            dt_winograd_pack(k.winograd, t->w, arg[i], threads);
        else
            convert(&dense[i], &to, from[i], arg[i]);
    }
    dt_conv_kernel_run(&k, 0, (const void *const *)arg, scratch);
    const dt_dnnl_tensor as = format_of(&k, &conv, result);
    convert(&as, &dense[result], arg[result], out);
    for (int i = 0; i < 3; i++) free(arg[i]);
    free(scratch);
    dt_conv_kernel_fini(&k);
}

static int64_t n_results(const tensors *t, dt_dnnl_direction dir) {
    return t->n[dir == DT_DNNL_FORWARD ? 2 : dir == DT_DNNL_BACKWARD_DATA ? 0 : 1];
}

// Relative errors with each tile, over the same sampled elements.
static void errors_of(const tensors *t, dt_dnnl_direction dir, const dt_winograd_way *way, int n_ways, double *error) {
    static double (*const reference[])(const tensors *, int64_t) = {want_y, want_dx, want_dw};
    const int64_t n = n_results(t, dir);
    const int samples = n < SAMPLES ? (int)n : SAMPLES;
    double want[SAMPLES], sum = 0;
    float *out = memory(sizeof(float) * (size_t)n);
    for (int i = 0; i < samples; i++) {
        want[i] = reference[dir](t, (n * i + i % 7) / samples);
        sum += want[i] * want[i];
    }
    for (int k = 0; k < n_ways; k++) {
        compute(t, dir, way[k], 1, out);
        double wrong = 0;
        for (int i = 0; i < samples; i++) wrong += pow(out[(n * i + i % 7) / samples] - want[i], 2);
        error[k] = sqrt(wrong / sum);
    }
    free(out);
}

// ---- tests -----------------------------------------------------------------------------------------
static bool same_with_two_threads(const tensors *t, dt_dnnl_direction dir, dt_winograd_way way) {
    const size_t n_bytes = sizeof(float) * (size_t)n_results(t, dir);
    float *one = memory(n_bytes), *two = memory(n_bytes);
    compute(t, dir, way, 1, one);
    compute(t, dir, way, 2, two);
    const bool same = memcmp(one, two, n_bytes) == 0;
    free(one);
    free(two);
    return same;
}

// Behind the library's: how many there are for tensors of this type.
static const dt_winograd_way ways[] = {DT_WINOGRAD_NONE, DT_WINOGRAD_2, DT_WINOGRAD_4, DT_WINOGRAD_2_BF16};
static const char *const names[] = {"direct", "F(2x2)", "F(4x4)", "F(2x2), bf16"};
enum { MOST_WAYS = sizeof ways / sizeof *ways };

static bool is_good(int type, int k, double error, double limit) {
    return error < (types[type] == DT_BF16 ? MOST_BF16[ways[k] == DT_WINOGRAD_2_BF16] : limit);
}

static int n_ways(int type) {
    return types[type] == DT_BF16 && dt_cpu_has_bf16() ? MOST_WAYS : 3;
}

static int check_odd(int type) {
    int failed = 0;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        tensors t;
        fill(&t, odd[i], types[type]);
        for (int dir = 0; dir < 3; dir++) {
            double error[MOST_WAYS];
            errors_of(&t, (dt_dnnl_direction)dir, ways + 1, n_ways(type) - 1, error + 1);
            for (int k = 1; k < n_ways(type); k++) {
                const bool same = same_with_two_threads(&t, (dt_dnnl_direction)dir, ways[k]);
                if (same && is_good(type, k, error[k], MOST_ODD)) continue;
                printf("FAILED: %dx%dx%dx%d to %d, pad %d, %s, %s: error %.1e%s\n", odd[i].n, odd[i].c, odd[i].h,
                       odd[i].w, odd[i].out, odd[i].pad[0], directions[dir], names[k], error[k],
                       same ? "" : ", other bits with two threads");
                failed++;
            }
        }
        empty(&t);
    }
    return failed;
}

static int check_real(int type) {
    int failed = 0;
    printf("| convolution of 3x3, %s | direction |", dt_dtype_name(types[type]));
    for (int k = 0; k < n_ways(type); k++) printf(" %s |", names[k]);
    printf("\n|---|---|");
    for (int k = 0; k < n_ways(type); k++) printf("---|");
    printf("\n");
    for (size_t i = 0; i < sizeof real / sizeof *real; i++) {
        tensors t;
        fill(&t, real[i].s, types[type]);
        for (int dir = 0; dir < 3; dir++) {
            double error[MOST_WAYS];
            errors_of(&t, (dt_dnnl_direction)dir, ways, n_ways(type), error);
            printf("| %s | %s | %.1e |", real[i].name, directions[dir], error[0]);
            for (int k = 1; k < n_ways(type); k++) {
                printf(" %.1e, %.1f |", error[k], error[k] / error[0]);
                failed += !is_good(type, k, error[k], MOST * error[0]);
            }
            printf("\n");
        }
        empty(&t);
    }
    if (failed) printf("FAILED: %d are too far off\n", failed);
    return failed;
}

TEST(errors_are_small) {
    tensors t;
    fill(&t, odd[0], DT_F32);
    const dt_dnnl_conv conv = conv_of(&t, DT_DNNL_FORWARD);
    empty(&t);
    if (!dt_winograd_fits(DT_DNNL_FORWARD, &conv)) {
        assert_int_equal(dt_cpu_isa_get(), DT_CPU_GENERIC);
        return;
    }
    int failed = 0;
    for (int type = 0; type < 1 + (dt_cpu_isa_get() == DT_CPU_AVX512); type++)
        failed += check_odd(type) + check_real(type);
    assert_int_equal(failed, 0);
}

int main(void) {
    return run_isas(false);
}
