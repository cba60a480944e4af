// bench_step.c: a model's micro-batch (forward and backward) alone: no data, no optimizer, no ranks.
//
//   bench_step CONFIG [key=value …]
//
// Runs one replica a core (device.threads threads each, 1 when auto) at the same time on random inputs and
// prints, for replica 0, the time of each step of the plan that matters and the sum by op; then one JSON
// line: median seconds a micro-batch, samples/s over all replicas, bytes of one replica's flat buffer.

#include "bench_config.h"
#include "bench_short.h"

#include "backend/cpu/cpu_backend.h"
#include "base/os.h"
#include "base/thread.h"
#include "exec/exec.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_STEPS = 4096, MAX_REPLICAS = 64, RUNS = 12 };

typedef struct replica {
    dt_exec *exec;
    dt_params *params;
    int index, threads;
    double run_s[RUNS];
    double step_s[MAX_STEPS]; // best of the runs
    double last;
    int at;
} replica;

static void on_step(void *ctx) {
    replica *l = ctx;
    double now = dt_clock_work_s(l->threads), s = now - l->last;
    if (l->step_s[l->at] == 0 || s < l->step_s[l->at]) l->step_s[l->at] = s;
    l->last = now;
    l->at++;
}

static void run_replica(void *arg, int worker) {
    replica *l = (replica *)arg + worker;
    omp_set_num_threads(l->threads);
    for (int i = 0; i < bench_count(RUNS, 2); i++) {
        dt_exec_args a = {.step = {.seed = 1, .step = (uint32_t)i, .loss_scale = 1},
                          .grad = l->params->grads[worker],
                          .accumulate = i > 0,
                          .poll = on_step,
                          .ctx = l};
        double t = dt_clock_work_s(l->threads);
        l->last = t;
        l->at = 0;
        dt_exec_run(l->exec, &a);
        l->run_s[i] = dt_clock_work_s(l->threads) - t;
    }
}

static void bind_random(const dt_graph *g, dt_exec *e) {
    for (dt_value v = 0; v < g->n_values; v++) {
        const dt_value_info *i = &g->values[v];
        if (i->kind != DT_V_INPUT) continue;
        int64_t n = dt_shape_elements(&i->shape);
        char *data = calloc((size_t)n + 64, dt_dtype_size(i->dtype));
        for (int64_t k = 0; k < n; k++) {
            if (i->dtype == DT_U8) data[k] = (char)rand();
            if (i->dtype == DT_F32) ((float *)data)[k] = 1;
        }
        dt_exec_bind(e, i->name, data);
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_profile(const dt_plan *plan, const replica *l) {
    dt_plan_report r;
    dt_plan_report_get(plan, &r);
    double total = 0, by_op[2 * DT_OP_COUNT] = {0}, reorder = 0;
    for (int k = 0; k < r.n_instructions; k++) total += l->step_s[k];
    for (int k = 0; k < r.n_instructions; k++) {
        const char *name = dt_plan_instruction_name(plan, k);
        if (l->step_s[k] > 0.005 * total)
            fprintf(stderr, "%9.3f ms %5.1f %%  %s\n", l->step_s[k] * 1e3, 100 * l->step_s[k] / total, name);
        if (strcmp(name, "reorder") == 0) reorder += l->step_s[k];
        for (int op = 0; op < DT_OP_COUNT; op++) {
            size_t n = strlen(dt_op_name((dt_op)op));
            if (strncmp(name, dt_op_name((dt_op)op), n) != 0) continue;
            if (name[n] == ' ') by_op[2 * op] += l->step_s[k];
            if (name[n] == '.') by_op[2 * op + 1] += l->step_s[k];
        }
    }
    fprintf(stderr, "by op:\n");
    for (int i = 0; i < 2 * DT_OP_COUNT; i++)
        if (by_op[i] > 0)
            fprintf(stderr, "%9.3f ms %5.1f %%  %s%s\n", by_op[i] * 1e3, 100 * by_op[i] / total,
                    dt_op_name((dt_op)(i / 2)), i % 2 ? ".bwd" : "");
    if (reorder > 0) fprintf(stderr, "%9.3f ms %5.1f %%  reorder\n", reorder * 1e3, 100 * reorder / total);
}

static dt_status bench(int argc, char **argv) {
    dt_config *c = NULL;
    DT_TRY(dt_config_load(&c, argv[1], (const char *const *)argv + 2, (size_t)(argc - 2)));
    dt_field_info fields[16];
    dt_model_args a = {.config = c,
                       .fields = fields,
                       .n_fields = bench_config_fields(c, fields),
                       .batch = (int)dt_answer(c->train.micro_batch),
                       .training = true};
    const dt_dtype type = bench_config_precision(c);
    int threads = c->device.threads.is_auto ? 1 : (int)dt_answer(c->device.threads);
    int n_replicas = dt_usable_cores() / threads;
    if (n_replicas < 1) n_replicas = 1;
    if (n_replicas > MAX_REPLICAS) n_replicas = MAX_REPLICAS;
    dt_graph *g = NULL;
    dt_backend *b = NULL;
    dt_params *p = NULL;
    dt_plan *plan = NULL;
    dt_team *team = NULL;
    DT_TRY(dt_model_graph(&g, &a, type));
    DT_TRY(dt_backend_create(
        &b, DT_DEVICE_cpu,
        &(dt_backend_opts){
            .threads = threads, .deterministic = true, .timed = true, .winograd = bench_config_winograd(c)}));
    DT_TRY(dt_params_create(&p, g, b, 0, n_replicas));
    DT_TRY(dt_plan_create(&plan, g, p, &(dt_plan_opts){.threads = threads, .n_replicas = n_replicas}));
    dt_params_init(p, 1);
    dt_params_repack(p);
    static replica replicas[MAX_REPLICAS];
    for (int i = 0; i < n_replicas; i++) {
        replicas[i] = (replica){.params = p, .index = i, .threads = threads};
        DT_TRY(dt_exec_create(&replicas[i].exec, plan, i));
        bind_random(g, replicas[i].exec);
    }
    DT_TRY(dt_team_create(&team, n_replicas, "replica"));
    dt_team_run(team, run_replica, replicas);
    if (getenv("BENCH_PLAN")) dt_plan_print(plan, stderr);
    print_profile(plan, &replicas[0]);
    qsort(replicas[0].run_s, (size_t)bench_count(RUNS, 2), sizeof(double), by_value);
    dt_plan_report r;
    dt_plan_report_get(plan, &r);
    double median = replicas[0].run_s[bench_count(RUNS, 2) / 2];
    printf("{\"backend\": \"%s\", \"precision\": \"%s\", \"micro_batch\": %d, \"replicas\": %d, "
           "\"median_s\": %.5f, "
           "\"samples_per_s\": %.2f, \"flat_mib\": %.1f}\n",
           b->describe(b), type == DT_BF16 ? "bf16" : "fp32", a.batch, n_replicas, median,
           a.batch * n_replicas / median, (double)(r.activation_bytes + r.scratch_bytes) / 1048576);
    return DT_OK;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_step CONFIG [key=value …]\n");
        return 2;
    }
    dt_status st = bench(argc, argv);
    if (st != DT_OK) fprintf(stderr, "bench_step: %s\n", dt_error_message());
    return (int)st;
}
