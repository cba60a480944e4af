// bench_conv.c: the CPU's convolution kernels, layer by layer and direction by direction: the library's direct one,
// in fp32 Winograd's (backend/cpu/own_conv.h), and our own of depthwise layers (backend/cpu/own_conv.h), in turn on the
// same memory.
//
//   bench_conv [threads [micro_batch [WORD]]]      layers of the fusion network, of ResNet-18 and of those with depthwise
//                                                  convolutions; WORD: in their name
//
// Prints effective GFLOP/s (of the direct algorithm's operations), the best of several runs, and milliseconds of
// transforming the filters, once a step; of depthwise layers GB/s of their activations (by our own), beside those of a copy.
// ONEDNN_MAX_CPU_ISA=AVX2 asks for kernels without AVX-512.
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/own_conv.h"
#include "base/core.h"
#include "base/os.h"
#include "bench_short.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIRECT, F2, F4, F2_BF16, OWN, N_WAYS };
static const dt_winograd_way ways[] = {DT_WINOGRAD_NONE, DT_WINOGRAD_2, DT_WINOGRAD_4, DT_WINOGRAD_2_BF16,
                                       DT_WINOGRAD_NONE};
static const char *const names[] = {"direct", "F(2x2)", "F(4x4)", "F(2x2) bf16", "own"};

typedef struct layer {
    const char *name;
    int c, h, w, out, kernel, stride;
} layer;

static const layer layers[] = {
    {"fingerprint.0", 1, 103, 96, 32, 3, 1},    {"iris.0", 3, 240, 320, 32, 3, 1},
    {"fingerprint.4", 32, 51, 48, 64, 3, 1},    {"iris.4", 32, 120, 160, 64, 3, 1},
    {"fingerprint.8", 64, 25, 24, 128, 3, 1},   {"iris.8", 64, 60, 80, 128, 3, 1},
    {"fingerprint.12", 128, 12, 12, 256, 3, 1}, {"iris.12", 128, 30, 40, 256, 3, 1},
    {"resnet.conv1", 3, 224, 224, 64, 7, 2},    {"resnet.layer1", 64, 56, 56, 64, 3, 1},
    {"resnet.layer2.0", 64, 56, 56, 128, 3, 2}, {"resnet.layer2", 128, 28, 28, 128, 3, 1},
    {"resnet.layer3", 256, 14, 14, 256, 3, 1},  {"resnet.layer4", 512, 7, 7, 512, 3, 1},
    {"depthwise3.112", 64, 112, 112, 64, 3, 2}, {"depthwise3.56", 96, 56, 56, 96, 3, 1},
    {"depthwise5.28", 240, 28, 28, 240, 5, 1},  {"depthwise5.14", 672, 14, 14, 672, 5, 1},
    {"depthwise7.56", 96, 56, 56, 96, 7, 1},    {"depthwise7.14", 384, 14, 14, 384, 7, 1},
};

static bool is_depthwise(const layer *l) {
    return l->name[0] == 'd';
}

static dt_dnnl_conv describe(const layer *l, int batch, dt_dnnl_direction dir, dt_dtype t) {
    const int pad = l->kernel / 2;
    const int h = (l->h + 2 * pad - l->kernel) / l->stride + 1, w = (l->w + 2 * pad - l->kernel) / l->stride + 1;
    const dt_shape x = dt_shape4(batch, l->c, l->h, l->w), y = dt_shape4(batch, l->out, h, w);
    const dt_dtype tw = dir == DT_DNNL_BACKWARD_WEIGHTS ? DT_F32 : t;
    const int64_t each[] = {l->c, 1, 1, l->kernel, l->kernel}, dense[] = {l->out, l->c, l->kernel, l->kernel};
    return (dt_dnnl_conv){.src = dt_dnnl_laid_out(t, &x, dt_cpu_conv_layout(l->c)),
                          .weights = is_depthwise(l) ? dt_dnnl_any(tw, 5, each) : dt_dnnl_any(tw, 4, dense),
                          .dst = dt_dnnl_laid_out(t, &y, dt_blocked(dt_cpu_block())),
                          .stride = {l->stride, l->stride},
                          .dilation = {1, 1},
                          .pad_begin = {pad, pad},
                          .pad_end = {pad, pad}};
}

static float *filled(size_t n_bytes) {
    float *p = aligned_alloc(64, dt_align_up(n_bytes + 64, 64));
    for (size_t i = 0; i < n_bytes / sizeof *p; i++) p[i] = (float)(i * 37 % 101) * 0.01f - 0.5f;
    return p;
}

static double time_pack(const dt_conv_kernel *k, const layer *l, float *packed) {
    float *dense = filled((size_t)(l->out * l->c * 9) * sizeof *dense);
    double least = 1e9;
    for (int i = 0; i < 4; i++) {
        const double begin = dt_clock_work_s(1);
        dt_winograd_pack(k->winograd, dense, packed, 1);
        const double took = dt_clock_work_s(1) - begin;
        if (took < least) least = took;
    }
    free(dense);
    return least;
}

// Bytes that memcpy reads and writes a second.
static double copy_rate(size_t n_bytes) {
    float *from = filled(n_bytes), *to = filled(n_bytes);
    double least = 1e9;
    for (int i = 0; i < 20; i++) {
        const double begin = dt_clock_work_s(1);
        memcpy(to, from, n_bytes);
        const double took = dt_clock_work_s(1) - begin;
        if (took < least) least = took;
    }
    free(from);
    free(to);
    return 2 * (double)n_bytes / least;
}

static void run_own(const dt_depthwise_conv *d, dt_dnnl_direction dir, void *x, void *weights, void *y) {
    if (dir == DT_DNNL_FORWARD)
        dt_depthwise_run(d, dir, x, weights, NULL, y);
    else if (dir == DT_DNNL_BACKWARD_DATA)
        dt_depthwise_run(d, dir, y, weights, NULL, x);
    else
        dt_depthwise_run_weights(d, x, y, weights, NULL, 0);
}

static void bench(const layer *l, dt_dnnl_direction dir, int threads, int batch, dt_dtype t) {
    static const char *const directions[] = {"forward", "data gradient", "weight gradient"};
    const dt_dnnl_env env = {.threads = threads, .n_replicas = 1};
    dt_conv_kernel k[N_WAYS] = {{.library = NULL}};
    void *weights[N_WAYS] = {NULL}, *scratch[N_WAYS] = {NULL};
    double least[N_WAYS] = {0}, pack = 0;
    dt_dnnl_conv c = describe(l, batch, dir, t);
    const double flop =
        2.0 * batch * l->out * c.dst.d[2] * c.dst.d[3] * (is_depthwise(l) ? 1 : l->c) * l->kernel * l->kernel;
    dt_depthwise_conv own;
    const bool has_own = dt_depthwise_init(&own, &c, threads) >> dir & 1;
    size_t n_bytes = 0;
    void *x = NULL, *y = NULL;
    for (int i = 0; i < N_WAYS; i++) {
        if (i == OWN && has_own) {
            weights[i] = filled((size_t)(l->out * l->kernel * l->kernel + 64) * 4);
            scratch[i] = filled(0);
        }
        if (i == OWN || (ways[i] && !dt_winograd_fits(dir, &c))) continue;
        if (ways[i] == DT_WINOGRAD_2_BF16 && (t != DT_BF16 || !dt_cpu_has_bf16())) continue;
        if (dt_conv_kernel_create(&k[i], &env, dir, &c, ways[i]) != DT_OK) {
            k[i].library = NULL;
            dt_error_clear();
            continue;
        }
        if (!x) {
            x = filled(dt_conv_kernel_bytes(&k[i], &c, DT_CONV_SRC));
            y = filled(dt_conv_kernel_bytes(&k[i], &c, DT_CONV_DST));
            n_bytes = dt_conv_kernel_bytes(&k[i], &c, DT_CONV_SRC) + dt_conv_kernel_bytes(&k[i], &c, DT_CONV_DST);
        }
        weights[i] = filled(dt_conv_kernel_bytes(&k[i], &c, DT_CONV_WEIGHTS));
        scratch[i] = filled(dt_conv_kernel_scratch_bytes(&k[i]));
        if (ways[i] && dir != DT_DNNL_BACKWARD_WEIGHTS) pack = time_pack(&k[i], l, weights[i]);
    }
    const double begin = dt_clock_work_s(threads), enough = bench_most(0.6, 0);
    for (int round = 0; round < bench_count(3, 1) || dt_clock_work_s(threads) - begin < enough; round++)
        for (int i = 0; i < N_WAYS; i++) {
            if (!scratch[i] || least[i] > 0.1) continue; // the library has no vectors for some
            const double from = dt_clock_work_s(threads);
            if (i == OWN)
                run_own(&own, dir, x, weights[i], y);
            else
                dt_conv_kernel_run(&k[i], 0, (const void *[]){x, weights[i], y}, scratch[i]);
            const double took = dt_clock_work_s(threads) - from;
            if (!round || took < least[i]) least[i] = took;
        }
    printf("%-15s %-4s %-15s", l->name, dt_dtype_name(t), directions[dir]);
    for (int i = 0; i < N_WAYS; i++) {
        if (scratch[i]) printf("  %s %6.1f", names[i], flop / least[i] / 1e9);
        dt_conv_kernel_fini(&k[i]);
        free(weights[i]);
        free(scratch[i]);
    }
    if (pack > 0) printf("  pack %.3f ms of %.3f", pack * 1e3, least[F4] * 1e3);
    if (is_depthwise(l))
        printf("  %.1f GB/s, a copy %.1f", (double)n_bytes / least[has_own ? OWN : DIRECT] / 1e9,
               copy_rate(n_bytes / 2) / 1e9);
    printf("\n");
    fflush(stdout);
    free(x);
    free(y);
}

int main(int argc, char **argv) {
    const int threads = argc > 1 ? atoi(argv[1]) : 1, batch = argc > 2 ? atoi(argv[2]) : 4;
    const char *word = argc > 3 ? argv[3] : "";
    printf("%s, oneDNN %s, %d threads, micro-batch %d: GFLOP/s\n", dt_dnnl_isa_name(), dt_dnnl_version(), threads,
           batch);
    for (int t = 0; t <= dt_cpu_has_bf16(); t++)
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
            for (int dir = 0; dir < 3; dir++)
                if (strstr(layers[i].name, word) && (layers[i].c > 4 || dir != DT_DNNL_BACKWARD_DATA))
                    bench(&layers[i], (dt_dnnl_direction)dir, threads, batch, t ? DT_BF16 : DT_F32);
    return 0;
}
