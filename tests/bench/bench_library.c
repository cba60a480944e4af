// bench_library.c: what the convolutions and matmuls of a model's training step take when
// the library runs them alone: the limit that a step is measured against.
//
//   bench_library CONFIG [key=value …]
//
// Builds the training graph of the config for one micro-batch, takes its conv2d and linear nodes,
// and times each one's forward, data-gradient and weight-gradient primitive in the library's own
// choice of formats, best of several, on `device.threads` threads (1 when auto), on repeatedly used
// memory; for convolutions Winograd's where it is faster. Prints one JSON object: seconds a micro-batch by
// direction, and samples/s on all cores if nothing else had to be done (cores/threads micro-batches at once).

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/own_conv.h"
#include "base/os.h"
#include "base/thread.h"
#include "bench_config.h"
#include "bench_short.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPLICAS = 64, MAX_RUNS = 64 };

typedef struct timing {
    const dt_conv_kernel *kernel; // or a matmul
    size_t n_bytes[3];
    double median[MAX_REPLICAS];
} timing;

static dt_team *team; // one worker a replica
static bool winograd; // is a candidate

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void *touched(size_t n_bytes) {
    void *p = aligned_alloc(64, (n_bytes + 4096) / 64 * 64);
    memset(p, 0, n_bytes);
    return p;
}

static void time_replica(void *arg, int replica) {
    timing *t = arg;
    const void *ptr[3];
    for (int i = 0; i < 3; i++) ptr[i] = touched(t->n_bytes[i]);
    void *scratch = touched(dt_conv_kernel_scratch_bytes(t->kernel) + 64);
    double runs[MAX_RUNS], begin = dt_clock_s(), seconds = bench_most(0.2, 0);
    int n = 0;
    while (n < MAX_RUNS && (n < bench_count(5, 1) || dt_clock_s() - begin < seconds)) {
        double s = dt_clock_s();
        dt_conv_kernel_run(t->kernel, replica, ptr, scratch);
        runs[n++] = dt_clock_s() - s;
    }
    qsort(runs, (size_t)n, sizeof *runs, by_value);
    t->median[replica] = runs[n / 2];
    for (int i = 0; i < 3; i++) free((void *)ptr[i]);
    free(scratch);
}

// Seconds of the kernel while every replica runs it: mean over replicas of each one's median.
static double time_kernel(const dt_conv_kernel *k, const dt_dnnl_conv *conv) {
    timing t = {.kernel = k};
    for (int i = 0; i < 3; i++)
        t.n_bytes[i] =
            conv ? dt_conv_kernel_bytes(k, conv, (dt_conv_arg)i) : dt_dnnl_md_bytes(dt_dnnl_op_md(k->library, i));
    dt_team_run(team, time_replica, &t);
    double sum = 0;
    for (int i = 0; i < dt_team_size(team); i++) sum += t.median[i];
    return sum / dt_team_size(team);
}

static double time_conv(const dt_graph *g, const dt_node *n, dt_dnnl_direction dir, dt_dtype type,
                        const dt_dnnl_env *env) {
    const dt_value_info *x = &g->values[n->in[0]], *w = &g->values[n->in[1]], *y = &g->values[n->out[0]];
    dt_dtype diff_weights = dir == DT_DNNL_BACKWARD_WEIGHTS ? DT_F32 : type;
    dt_dnnl_conv c = {.src = x->shape.d[1] <= 4 ? dt_dnnl_dense(type, 4, x->shape.d) : dt_dnnl_any(type, 4, x->shape.d),
                      .weights = dt_dnnl_any(diff_weights, 4, w->shape.d),
                      .dst = dt_dnnl_any(type, 4, y->shape.d)};
    const dt_window *win = &n->attrs.conv2d.win;
    for (int i = 0; i < 2; i++) {
        c.stride[i] = win->stride[i];
        c.dilation[i] = win->dilation[i];
        c.pad_begin[i] = win->pad_begin[i];
        c.pad_end[i] = win->pad_end[i];
    }
    dt_conv_kernel k;
    if (dt_conv_kernel_create(&k, env, dir, &c, 0) != DT_OK) return 0;
    double best = time_kernel(&k, &c);
    dt_conv_kernel_fini(&k);
    c.src = dt_dnnl_laid_out(type, &x->shape, dt_cpu_conv_layout(x->shape.d[1]));
    c.dst = dt_dnnl_laid_out(type, &y->shape, dt_blocked(dt_cpu_block()));
    dt_winograd_way way[DT_CONV_MOST_WAYS];
    const int n_ways = winograd ? dt_conv_ways(dir, &c, way) : 1;
    for (int i = 1; i < n_ways && dt_conv_kernel_create(&k, env, dir, &c, way[i]) == DT_OK; i++) {
        const double s = time_kernel(&k, &c);
        dt_conv_kernel_fini(&k);
        if (s < best) best = s;
    }
    return best;
}

// y = x W^T, dx = dy W, dW = dy^T x: products of (rows, k) and (k, n).
static double time_linear(const dt_graph *g, const dt_node *n, dt_dnnl_direction dir, dt_dtype type,
                          const dt_dnnl_env *env) {
    const dt_value_info *x = &g->values[n->in[0]], *w = &g->values[n->in[1]];
    int64_t in = w->shape.d[1], out = w->shape.d[0], rows = dt_shape_elements(&x->shape) / in;
    int64_t m = rows, k = in, cols = out;
    if (dir == DT_DNNL_BACKWARD_DATA) k = out, cols = in;
    if (dir == DT_DNNL_BACKWARD_WEIGHTS) m = out, k = rows, cols = in;
    dt_dnnl_matmul c = {.a = dt_dnnl_dense(type, 2, (int64_t[]){m, k}),
                        .b = dt_dnnl_any(type, 2, (int64_t[]){k, cols}),
                        .dst = dt_dnnl_dense(dir == DT_DNNL_BACKWARD_WEIGHTS ? DT_F32 : type, 2, (int64_t[]){m, cols}),
                        .alpha = 1};
    dt_conv_kernel product = {.library = NULL};
    if (dt_dnnl_op_create_matmul(&product.library, env, &c) != DT_OK) return 0;
    double s = time_kernel(&product, NULL);
    dt_conv_kernel_fini(&product);
    return s;
}

int main(int argc, char **argv) {
    dt_config *c = NULL;
    dt_graph *g = NULL;
    if (argc < 2 || dt_config_load(&c, argv[1], (const char *const *)argv + 2, (size_t)(argc - 2)) != DT_OK) {
        fprintf(stderr, "usage: bench_library CONFIG [key=value …]: %s\n", dt_error_message());
        return 2;
    }
    dt_field_info fields[16];
    dt_model_args a = {.config = c,
                       .fields = fields,
                       .n_fields = bench_config_fields(c, fields),
                       .batch = (int)dt_answer(c->train.micro_batch),
                       .training = true};
    const dt_dtype type = bench_config_precision(c);
    winograd = bench_config_winograd(c);
    if (dt_model_graph(&g, &a, type) != DT_OK) {
        fprintf(stderr, "bench_library: %s\n", dt_error_message());
        return 2;
    }
    int threads = c->device.threads.is_auto ? 1 : (int)dt_answer(c->device.threads);
    int at_once = dt_usable_cores() / threads;
    at_once = at_once < 1 ? 1 : at_once > MAX_REPLICAS ? MAX_REPLICAS : at_once;
    dt_dnnl_env env = {.threads = threads, .n_replicas = at_once};
    if (dt_team_create(&team, at_once, "replica") != DT_OK) return 70;
    double seconds[3] = {0};
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        if (n->dead || n->backward || (n->op != DT_OP_conv2d && n->op != DT_OP_linear)) continue;
        bool first = n->op == DT_OP_conv2d && g->values[n->in[0]].shape.d[1] <= 4; // needs no data gradient
        for (int dir = 0; dir < 3; dir++) {
            if (first && dir == DT_DNNL_BACKWARD_DATA) continue;
            seconds[dir] += n->op == DT_OP_conv2d ? time_conv(g, n, (dt_dnnl_direction)dir, type, &env)
                                                  : time_linear(g, n, (dt_dnnl_direction)dir, type, &env);
        }
    }
    double total = seconds[0] + seconds[1] + seconds[2];
    printf("{\"library\": \"oneDNN %s %s\", \"precision\": \"%s\", \"micro_batch\": %d, "
           "\"threads\": %d, \"replicas\": %d, "
           "\"forward_s\": %.5f, \"backward_data_s\": %.5f, \"backward_weights_s\": %.5f, "
           "\"samples_per_s\": %.2f}\n",
           dt_dnnl_version(), dt_dnnl_isa_name(), dt_dtype_name(type), a.batch, threads, at_once, seconds[0],
           seconds[1], seconds[2], a.batch / total * at_once);
    dt_graph_destroy(g);
    dt_config_destroy(c);
    return 0;
}
