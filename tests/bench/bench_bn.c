// bench_bn.c: batch norm (+ ReLU + 2x2 max-pool) of the CPU backend against the machine's copy rate.
//   bench_bn [threads] [repetitions]
// Traffic counts what a pass over memory cannot avoid when nothing stays in a cache:
//   forward   x twice, y and argmax once           backward  x, dy, argmax (or y) twice, dx once
// so a rate above that of memcpy means that the second pass found its data in the cache.
#include "backend/cpu/cpu_backend.h"
#include "base/clock.h"
#include "bench_short.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEAT = 20 };

static double now(void) {
    return omp_get_wtime();
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct bench {
    dt_graph *graph;
    dt_kernel_instance instance;
    dt_layout in_layout[20], out_layout[8];
    void *in[20], *out[8], *scratch;
} bench;

static void *memory(const dt_value_info *v, dt_layout l) {
    if (!v) return NULL;
    size_t n = dt_layout_bytes(l, v->dtype, &v->shape);
    char *p = aligned_alloc(64, (n + 63) / 64 * 64);
    memset(p, 0, n);
    for (size_t i = 0; v->dtype == DT_F32 && i < n / 4; i++)
        ((float *)p)[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    for (size_t i = 0; v->dtype == DT_BF16 && i < n / 2; i++)
        ((uint16_t *)p)[i] = (uint16_t)(0x3f00 + rand() % 256 + (rand() % 2 << 15));
    return p;
}

static dt_value value(dt_graph *g, dt_value_kind kind, dt_dtype t, dt_shape s) {
    char name[16];
    snprintf(name, sizeof name, "v%d", g->n_values);
    return dt_graph_add_value(g, kind, name, t, &s);
}

static void prepare(bench *b, const dt_kernel *k, int node, int threads) {
    const dt_node *n = &b->graph->nodes[node];
    b->instance = (dt_kernel_instance){.graph = b->graph,
                                       .node = n,
                                       .threads = threads,
                                       .in_layout = b->in_layout,
                                       .out_layout = b->out_layout};
    if (k->prepare(&b->instance) != DT_OK) {
        fprintf(stderr, "%s\n", dt_error_message());
        exit(1);
    }
    for (int i = 0; i < n->n_in; i++)
        if (!b->in[i]) b->in[i] = memory(dt_instance_in(&b->instance, i), b->in_layout[i]);
    for (int i = 0; i < n->n_out; i++)
        if (!b->out[i]) b->out[i] = memory(dt_instance_out(&b->instance, i), b->out_layout[i]);
    b->scratch = aligned_alloc(64, (b->instance.scratch_bytes + 127) / 64 * 64);
}

static double measure(bench *b, const dt_kernel *k, int repeat) {
    double t[1000];
    dt_step_block step = {1, 1, 1, 1};
    dt_run r = {.in = (const void *const *)b->in,
                .out = (void *const *)b->out,
                .scratch = b->scratch,
                .step = &step};
    for (int i = 0; i < repeat + 2; i++) {
        double start = now();
        k->run(&b->instance, &r);
        if (i >= 2) t[i - 2] = now() - start;
    }
    qsort(t, (size_t)repeat, sizeof *t, compare);
    return t[repeat / 2];
}

static void bench_shape(int threads, int repeat, dt_dtype type, dt_shape x, bool pool,
                        double copy) {
    dt_graph *g = dt_graph_create("bench", true);
    dt_shape y = x, c = dt_shape1(x.d[1]);
    if (pool) y.d[2] /= 2, y.d[3] /= 2;
    dt_value in[5] = {value(g, DT_V_TEMP, type, x)}, out[6];
    for (int i = 1; i < 5; i++) in[i] = value(g, DT_V_PARAM, DT_F32, c);
    out[0] = value(g, DT_V_TEMP, type, y);
    out[3] = pool ? value(g, DT_V_TEMP, DT_U8, y) : DT_NONE;
    out[1] = value(g, DT_V_TEMP, DT_F32, c), out[2] = value(g, DT_V_TEMP, DT_F32, c);
    out[4] = value(g, DT_V_STAT, DT_F32, c), out[5] = value(g, DT_V_STAT, DT_F32, c);
    dt_attrs a = {.batch_norm = {.eps = 1e-5f, .training = 1, .relu = 1, .pool = pool}};
    a.batch_norm.win = (dt_window){{2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}};
    dt_node *n = dt_graph_add_node(g, DT_OP_batch_norm, "bn", in, 5, 6, &a);
    memcpy(n->out, out, sizeof out);
    dt_value bin[17], bout[6] = {DT_NONE, DT_NONE, DT_NONE, DT_NONE, DT_NONE, DT_NONE};
    for (int i = 0; i < 17; i++) bin[i] = DT_NONE;
    bin[0] = in[0], bin[1] = in[1];
    bin[5] = pool ? DT_NONE : out[0], bin[6] = out[1], bin[7] = out[2], bin[8] = out[3];
    bin[11] = value(g, DT_V_TEMP, type, y);
    bout[0] = value(g, DT_V_TEMP, type, x);
    bout[1] = value(g, DT_V_GRAD, DT_F32, c), bout[2] = value(g, DT_V_GRAD, DT_F32, c);
    n = dt_graph_add_node(g, DT_OP_batch_norm, "bn.bwd", bin, 17, 6, &a);
    memcpy(n->out, bout, sizeof bout);
    n->backward = true, n->n_fwd_in = 5, n->n_fwd_out = 6, n->forward = 0;

    bench f = {.graph = g}, b = {.graph = g};
    prepare(&f, &dt_cpu_batch_norm, 0, threads);
    double fwd = measure(&f, &dt_cpu_batch_norm, repeat);
    b.in[0] = f.in[0], b.in[1] = f.in[1];
    for (int i = 0; i < 4; i++) b.in[5 + i] = f.out[i];
    prepare(&b, &dt_cpu_batch_norm_bwd, 1, threads);
    double bwd = measure(&b, &dt_cpu_batch_norm_bwd, repeat);
    b.out[0] = f.in[0]; // last: it overwrites x
    double place = measure(&b, &dt_cpu_batch_norm_bwd, repeat);

    double xs = (double)dt_shape_elements(&x) * (double)dt_dtype_size(type);
    double ys = (double)dt_shape_elements(&y) * (double)dt_dtype_size(type);
    double masks = pool ? (double)dt_shape_elements(&y) : 0;
    double fb = 2 * xs + ys + masks, bb = 3 * xs + 2 * ys + 2 * (pool ? masks : ys);
    printf("%-4s %4ldx%ldx%ldx%ld %-4s  forward %7.3f ms %6.1f GB/s (%.2f of copy)  backward %7.3f "
           "ms %6.1f GB/s (%.2f)  in place %7.3f ms\n",
           dt_dtype_name(type), (long)x.d[0], (long)x.d[1], (long)x.d[2], (long)x.d[3],
           pool ? "pool" : "", fwd * 1e3, fb / fwd * 1e-9, fb / fwd / copy, bwd * 1e3,
           bb / bwd * 1e-9, bb / bwd / copy, place * 1e3);
    dt_graph_destroy(g); // the process ends soon: kernels' memory is left
}

// Bytes read and written by memcpy of 64 MB, all threads together.
static double copy_rate(int threads) {
    size_t n = 64u << 20;
    char *a = malloc(n), *b = malloc(n);
    memset(a, 1, n), memset(b, 2, n);
    double best = 0;
    for (int i = 0; i < 5; i++) {
        double start = now();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int t = 0; t < threads; t++)
            memcpy(b + n / (size_t)threads * (size_t)t, a + n / (size_t)threads * (size_t)t,
                   n / (size_t)threads);
        double rate = 2 * (double)n / (now() - start);
        if (rate > best) best = rate;
    }
    free(a), free(b);
    return best;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1, repeat = argc > 2 ? atoi(argv[2]) : REPEAT;
    if (repeat > 1000) repeat = 1000;
    repeat = bench_count(repeat, 1);
    double copy = copy_rate(threads);
    printf("%d threads, block %d, memcpy %.1f GB/s (read + written)\n", threads, dt_cpu_block(),
           copy * 1e-9);
    const dt_shape shapes[] = {dt_shape4(4, 32, 240, 320), dt_shape4(4, 64, 120, 160),
                               dt_shape4(4, 128, 60, 80), dt_shape4(4, 256, 30, 40)};
    for (int t = 0; t < 2; t++)
        for (int pool = 1; pool >= 0; pool--)
            for (int i = bench_count(4, 1) == 1 ? 3 : 0; i < 4; i++)
                bench_shape(threads, repeat, t ? DT_BF16 : DT_F32, shapes[i], pool, copy);
    return 0;
}
