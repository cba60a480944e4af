// bench_forward.c: how fast a network is evaluated: its evaluation graph alone, on pixels in memory, without loader or
// start.
//
//   bench_forward fp32|bf16|int8 CONFIG [key=value …]
//
// eval.batch images, device.threads threads (all cores when auto), weights as at the start. int8: all convolutions and
// linear layers, with scales of that input. Prints one JSON object: samples/s of the median run.

#include "base/os.h"
#include "base/thread.h"
#include "bench_config.h"
#include "bench_short.h"
#include "eval/int8_observer.h"
#include "exec/exec.h"
#include "graph/passes/passes.h"

#include <omp.h>

enum { MAX_RUNS = 400 };

typedef struct bench {
    dt_model_args args;
    dt_graph *g;
    dt_params *params;
    dt_plan *plan;
    dt_exec *exec;
    dt_batch batch;
    dt_observer *observer;
} bench;

static void need(dt_status st) {
    if (st == DT_OK) return;
    fprintf(stderr, "bench_forward: %s\n", dt_error_message());
    exit(2);
}

static void open_network(bench *b, dt_backend *backend, int threads, dt_dtype low, const dt_int8 *q) {
    need(dt_model_graph(&b->g, &b->args, low));
    if (q) need(dt_pass_fuse_residual(b->g));
    if (q) need(dt_pass_int8(b->g, q));
    need(dt_params_create(&b->params, b->g, backend, 0, 1));
    need(dt_plan_create(&b->plan, b->g, b->params, &(dt_plan_opts){.threads = threads}));
    need(dt_exec_create(&b->exec, b->plan, 0));
    dt_params_init(b->params, 1);
    dt_params_repack(b->params);
    for (dt_value v = 0; v < b->g->n_values; v++) {
        const dt_value_info *info = &b->g->values[v];
        if (info->kind != DT_V_INPUT) continue;
        const int64_t n = dt_shape_elements(&info->shape);
        uint8_t *x = dt_xcalloc((size_t)n + 16, 4);
        for (int64_t i = 0; i < n && info->dtype == DT_U8; i++) x[i] = (uint8_t)(i * 2654435761u >> 13);
        dt_exec_bind(b->exec, info->name, x);
    }
}

static void look(void *ctx, dt_value v, const float *x) {
    const bench *b = ctx;
    dt_observer_look(b->observer, &b->batch, v, x);
}

// From the same network in fp32.
static dt_int8 make_scales(bench *b, const dt_exec_args *args) {
    dt_int8 q = {.layers = dt_xcalloc((size_t)b->g->n_nodes + 1, sizeof *q.layers)};
    float *weight = dt_xcalloc((size_t)b->args.batch, sizeof *weight);
    for (int i = 0; i < b->args.batch; i++) weight[i] = 1;
    b->batch = (dt_batch){.n = b->args.batch, .weight = weight};
    b->observer = dt_observer_create(b->g);
    dt_exec_run_shown(b->exec, args, look, b);
    need(dt_observer_begin_bins(b->observer));
    q.n_values = dt_observer_scales(b->observer, DT_OBSERVE_minmax, 100, &q.values);
    for (int i = 0; i < b->g->n_nodes; i++) {
        const dt_node *n = &b->g->nodes[i];
        if (!dt_int8_is_layer(b->g, n)) continue;
        q.layers[q.n_layers++] = (dt_int8_layer){
            .name = n->name, .n = b->g->values[n->in[1]].shape.d[0], .weight = dt_observe_weights(b->params, b->g, n)};
    }
    return q;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    const int precision = argc > 2 ? dt_word_index("fp32|bf16|int8", argv[1]) : -1;
    dt_config *c = NULL;
    if (precision < 0 || dt_config_load(&c, argv[2], (const char *const *)argv + 3, (size_t)(argc - 3)) != DT_OK) {
        fprintf(stderr, "usage: bench_forward fp32|bf16|int8 CONFIG [key=value …]: %s\n", dt_error_message());
        return 2;
    }
    dt_field_info fields[16];
    const bool by_itself = c->device.threads.is_auto;
    const int threads = by_itself ? dt_usable_cores() : (int)dt_answer(c->device.threads);
    bench b = {.args = {.config = c,
                        .fields = fields,
                        .n_fields = bench_config_fields(c, fields),
                        .batch = (int)dt_answer(c->eval.batch)}};
    dt_backend *backend = NULL;
    const dt_backend_opts opts = {.threads = threads, .winograd = bench_config_winograd(c), .timed = true};
    omp_set_num_threads(threads);
    need(dt_backend_create_cpu(&backend, &opts));
    open_network(&b, backend, threads, precision == 1 ? DT_BF16 : DT_F32, NULL);
    const dt_exec_args args = {.step = {.loss_scale = 1}, .grad = b.params->grads[0]};
    bench int8 = {.args = b.args};
    if (precision == 2) {
        const dt_int8 q = make_scales(&b, &args);
        open_network(&int8, backend, threads, DT_F32, &q);
        b = int8;
    }
    const dt_exec_args timed = {.step = {.loss_scale = 1}, .grad = b.params->grads[0]};
    double runs[MAX_RUNS], seconds = bench_most(4, 0);
    int n = 0;
    dt_exec_run(b.exec, &timed);
    for (const double begin = dt_clock_s(); n < MAX_RUNS && (n < bench_count(5, 1) || dt_clock_s() - begin < seconds);
         n++) {
        const double s = dt_clock_s();
        dt_exec_run(b.exec, &timed);
        runs[n] = dt_clock_s() - s;
    }
    qsort(runs, (size_t)n, sizeof *runs, by_value);
    printf("{\"precision\": \"%s\", \"batch\": %d, \"threads\": %d, \"runs\": %d, \"rate\": %.3f, "
           "\"most\": %.3f}\n",
           argv[1], b.args.batch, threads, n, b.args.batch / runs[n / 2], b.args.batch / runs[0]);
    return 0;
}
