// scaling.c: see scaling.h.
#include "train/scaling.h"

#include "base/io.h"
#include "base/os.h"
#include "base/sort.h"
#include "base/thread.h"
#include "base/watch.h"
#include "run/agree.h"
#include "run/memory_report.h"
#include "train/step.h"
#include "train/trainer_internal.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// STEPS: of commit and loader; LEAST_RUNS, MOST_RUNS: of the plan
enum { STEPS = 4, LEAST_RUNS = 5, MOST_RUNS = 40, DISK_BYTES = 32 << 20 };

// What a rank computes, in seconds of its core at full speed.
typedef struct profile {
    const dt_open_run *run;
    const dt_nets *nets;
    double *node_s; // by instruction of the plan, of a micro-batch
    double micro_s; // their sum
    double load_s;  // of the loader, a micro-batch
    double commit_s;
    int threads; // of the replica that was measured
} profile;

static int count_instructions(const dt_plan *p) {
    dt_plan_report report;
    dt_plan_report_get(p, &report);
    return report.n_instructions;
}

// ---- measuring -------------------------------------------------------------------------------------

typedef struct node_times {
    dt_exec *exec;
    double (*run_s)[MOST_RUNS]; // by instruction
    int threads, run, at;       // run: index of the run; at: next instruction
    double last_s;
} node_times;

static void on_instruction(void *ctx) {
    node_times *t = ctx;
    const double now_s = dt_clock_work_s(t->threads); // CPU time, which does not count waiting for a core
    t->run_s[t->at++][t->run] = now_s - t->last_s;
    t->last_s = now_s;
}

typedef struct node_bench {
    const dt_open_run *run;
    const dt_nets *nets;
    node_times *replicas;
    bool again; // overwrite gradients in the first run, add from then on
} node_bench;

static void scaling_run_micro(void *arg, int worker) {
    const node_bench *b = arg;
    node_times *t = &b->replicas[worker];
    if (worker >= b->run->replicas->n_replicas) return; // workers beyond the replicas
    omp_set_num_threads(t->threads);
    t->at = 0;
    t->last_s = dt_clock_work_s(t->threads);
    dt_exec_run(t->exec, &(dt_exec_args){.step = {.loss_scale = 1},
                                         .grad = b->nets->params->grads[worker],
                                         .accumulate = b->again,
                                         .poll = on_instruction,
                                         .ctx = t});
}

// All replicas at once, as in a step: each instruction's time is the mean of their medians.
static dt_status time_nodes(profile *p, const dt_batch *batch) {
    const dt_open_run *r = p->run;
    const dt_plan *plan = dt_nets_trained(p->nets).plan;
    const int n = r->replicas->n_replicas, n_instructions = count_instructions(plan);
    node_bench b = {r, p->nets, dt_xcalloc((size_t)n, sizeof *b.replicas), false};
    dt_team *team = NULL;
    dt_status st = dt_team_create(&team, n, "replica");
    for (int i = 0; i < n && st == DT_OK; i++) {
        node_times *t = &b.replicas[i];
        dt_batch_inputs inputs;
        t->threads = r->resolved.replica_threads;
        t->run_s = dt_xcalloc((size_t)n_instructions, sizeof *t->run_s);
        st = dt_exec_create(&t->exec, plan, i);
        if (st != DT_OK) break;
        dt_batch_inputs_find(&inputs, t->exec, r->fields, r->n_fields);
        dt_batch_inputs_bind(&inputs, t->exec, batch);
    }
    int n_runs = 0;
    const double begin_s = dt_clock_s();
    // up to 40 runs, or 3 s
    for (int i = -1; i < MOST_RUNS && st == DT_OK; i++) { // -1: warms up
        for (int k = 0; k < n; k++) b.replicas[k].run = i < 0 ? 0 : i;
        dt_team_run(team, scaling_run_micro, &b);
        b.again = true;
        n_runs = i + 1;
        // at least five, for the median
        if (n_runs >= LEAST_RUNS && dt_clock_s() - begin_s > 3) break;
    }
    for (int k = 0; k < n_instructions && st == DT_OK; k++)
        for (int i = 0; i < n; i++) {
            double *runs = b.replicas[i].run_s[k];
            qsort(runs, (size_t)n_runs, sizeof *runs, dt_sort_reals);
            p->node_s[k] += runs[n_runs / 2] / n; // the median: other load on the machine lengthens some runs
        }
    for (int i = 0; i < n; i++) {
        dt_exec_destroy(b.replicas[i].exec);
        free(b.replicas[i].run_s);
    }
    free(b.replicas);
    dt_team_destroy(team);
    return st;
}

static double busy_s(const dt_source_stats *s) {
    double sum = 0;
    for (int i = 0; i < DT_N_STAGES; i++) sum += s->stage[i].busy_s; // of all workers
    return sum;
}

// Steps of a rank that has as many micro-batches as replicas: what the commit and the loader take, then nodes.
static dt_status scaling_measure(profile *p, trainer *t) {
    const int n = t->run.replicas->n_replicas, n_micro = dt_run_n_micro(&t->run); // n: replicas
    dt_replica_plan *whole = t->run.replicas;
    dt_source_stats first, last;
    const dt_batch *batch = NULL;
    double wait_s, commit[STEPS];
    // a world of n_micro / n ranks, of which this is rank 0
    DT_TRY(dt_replica_plan_create(&t->run.replicas, false, 0, n_micro / n, n, n_micro));
    // so that the source has enough steps, whatever the config says
    if (t->run.record.total_steps < STEPS + 2) t->run.record.total_steps = STEPS + 2;
    dt_status st = dt_trainer_make_stepper(t);
    if (st == DT_OK) st = dt_trainer_open_source(t);
    for (int i = -1; i < STEPS && st == DT_OK; i++) { // -1: warms up
        dt_step_result x;
        st = dt_stepper_run(t->stepper, i + 1, 1e-6, false, &x); // a rate that leaves the weights almost as they are
        if (i < 0) t->source->stats(t->source, &first);
        // what is left after data, computing and communication
        if (i >= 0) commit[i] = x.total_s - x.data_s - x.compute_s - x.comm_s;
        dt_watch_tick();
    }
    if (st == DT_OK) {
        t->source->stats(t->source, &last);
        qsort(commit, STEPS, sizeof *commit, dt_sort_reals);
        p->commit_s = commit[0] * dt_run_team_threads(&t->run); // the least: other work on the machine only lengthens
        const double n_samples = (double)(last.n_samples - first.n_samples);
        // seconds of a worker per micro-batch
        if (n_samples > 0) p->load_s = (busy_s(&last) - busy_s(&first)) / n_samples * t->run.resolved.micro_batch;
        dt_stepper_destroy(t->stepper);
        t->stepper = NULL;
        // a batch of its own for the plan alone
        st = t->source->get(t->source, STEPS + 1, t->run.replicas->micros[0], &batch, &wait_s);
    }
    if (st == DT_OK) st = time_nodes(p, batch);
    if (batch) t->source->release(t->source, batch);
    dt_stepper_destroy(t->stepper);
    if (t->source) t->source->close(t->source);
    dt_replica_plan_destroy(t->run.replicas);
    t->run.replicas = whole;
    return st;
}

// Bytes a second of a file that is on disk, beside the run's directory.
static dt_status measure_disk(const dt_open_run *r, double *out) {
    // in run.dir, where the run would save
    char *path = dt_xprintf("%s/dtrain-check-%d", r->config->run.dir, (int)getpid());
    const bool there = dt_io_is_dir(r->config->run.dir);
    char *data = dt_xcalloc(1, DISK_BYTES);
    const double begin_s = dt_clock_s();
    dt_status st = there ? dt_io_write_file(path, data, DISK_BYTES) : DT_OK;
    if (st == DT_OK && there) *out = DISK_BYTES / (dt_clock_s() - begin_s);
    if (there) remove(path);
    free(data);
    free(path);
    return st;
}

// ---- from a rate -----------------------------------------------------------------------------------

// Operations that a GPU does while it moves a byte: an H200 computed ResNet-50's convolutions in 17 of 31 ms, and moved
// 85 GB (docs/benchmarks.md).
#define FLOPS_A_BYTE 150.0

static double moved_bytes(const dt_graph *g, const dt_value *v, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (v[i] != DT_NONE) sum += 2.0 * (double)dt_shape_elements(&g->values[v[i]].shape); // 2 bytes an element: bf16
    return sum;
}

static void divide_rate(profile *p, double rate) {
    const dt_net net = dt_nets_trained(p->nets);
    const int n = count_instructions(net.plan);
    double sum = 0;
    for (int k = 0; k < n; k++) {
        const dt_node *node = dt_plan_instruction_node(net.plan, k);
        if (!node) continue; // takes no time
        // in bytes; only the shares of their sum mean something
        p->node_s[k] = dt_node_flops(net.graph, node) / FLOPS_A_BYTE + moved_bytes(net.graph, node->in, node->n_in) +
                       moved_bytes(net.graph, node->out, node->n_out);
        sum += p->node_s[k];
    }
    // scaled so that a micro-batch takes micro_batch / rate
    for (int k = 0; k < n; k++) p->node_s[k] *= p->run->resolved.micro_batch / rate / sum;
}

// ---- a step ----------------------------------------------------------------------------------------

typedef struct player {
    const profile *p;
    const dt_fabric *f;
    dt_comm *comm;
    dt_resolved threads; // of a rank
    int replicas;
    double slow, now_s; // slow: how much slower than measured; now_s: the model's clock
} player;

static void add_replica(void *ctx, float *dst, const float *src, int64_t begin, int64_t end) {
    player *y = ctx;
    // reads two floats, writes one: 12 bytes an element
    y->now_s += y->slow * 12.0 * (double)(end - begin) / y->f->copy_bytes_s;
}

// The last micro-batch: gradients become ready, and their all-reduces get on.
static dt_status play_backward(player *y, dt_buckets *b) {
    const dt_net net = dt_nets_trained(y->p->nets);
    // a progress thread, as in training across hosts
    const bool helped = !y->f->gpus && y->comm->world_size > y->comm->local_size;
    // sync_bn: reductions of buckets wait for the end, as in step.c
    const bool overlaps = b && !y->p->run->config->model.sync_bn;
    // measured with p->threads, run with replica_threads
    const double threads = (double)y->p->threads / y->threads.replica_threads;
    for (int k = 0, n = count_instructions(net.plan); k < n; k++) {
        const dt_node *node = dt_plan_instruction_node(net.plan, k);
        const int *grads, n_grads = dt_plan_instruction_grads(net.plan, k, &grads);
        double left_s = y->p->node_s[k] * threads * y->slow;
        while (helped && b && left_s > DT_BUCKETS_PROGRESS_S) { // the model's comm progresses when it is polled
            y->now_s += DT_BUCKETS_PROGRESS_S;
            left_s -= DT_BUCKETS_PROGRESS_S;
            y->comm->progress(y->comm);
        }
        y->now_s += left_s;
        if (node && node->op == DT_OP_sync_batch_norm) {
            const dt_value out = node->out[0];
            const int64_t channels = out == DT_NONE ? 1 : net.graph->values[out].shape.d[1];
            DT_TRY(y->comm->all_reduce_f64(y->comm, NULL, 2 * channels)); // mean and mean square, by channel
        }
        // gradients in the order in which backward finishes them
        for (int i = 0; i < n_grads && overlaps; i++)
            for (int l = 0; l < y->replicas; l++) dt_buckets_ready(b, l, grads[i]);
        if (overlaps) dt_buckets_poll(b);
    }
    // all at once behind backward
    for (int i = 0; i < net.graph->n_grads && b && !overlaps; i++)
        for (int l = 0; l < y->replicas; l++) dt_buckets_ready(b, l, i);
    return DT_OK;
}

static bool shards(const player *y) {
    return y->comm->world_size > 1 && y->p->run->config->train.shard == DT_SHARD_optimizer;
}

static dt_status scaling_make_buckets(player *y, const trainer *t, const dt_replica_plan *plan, dt_buckets **out) {
    const dt_graph *g = dt_nets_trained(y->p->nets).graph;
    const dt_params *params = y->p->nets->params;
    const dt_config *c = t->run.config;
    int64_t *ends = dt_step_grad_ends(g, params);
    // never read: the model moves no data
    static uint16_t bf16;
    dt_tree_merge *merges = NULL;
    const int n_merges = plan->elastic ? dt_replica_plan_merges(plan, &merges) : 0;
    const dt_buckets_opts o = {.grad_end = ends,
                               .n_grads = g->n_grads,
                               .n_elements = params->n_grad,
                               .sums_at = params->n_trained,
                               .bucket_bytes = dt_run_bucket_bytes(&t->run, y->f->gpus),
                               .bf16 = c->comm.gradient_dtype == DT_GRADIENT_DTYPE_bf16 ? &bf16 : NULL,
                               .scatter = shards(y),
                               .n_replicas = y->replicas,
                               .tree = plan->elastic,
                               .merges = merges,
                               .n_merges = n_merges,
                               .n_flats = plan->n_flats,
                               .add = add_replica,
                               .add_ctx = y};
    const dt_status st = dt_buckets_create(out, y->comm, &o);
    free(merges);
    free(ends);
    return st;
}

// The fixed tree: rank 0 is on its longest way.
static dt_status play_tree(player *y, const trainer *t, const dt_replica_plan *plan) {
    const int64_t n = t->nets.params->n_grad;
    for (int i = 0; i < plan->n_transfers; i++) {
        const dt_tree_action *a = &plan->transfers[i];
        if (a->kind == DT_TREE_RECV) (void)y->comm->recv_f32(y->comm, NULL, n, a->peer);
        add_replica(y, NULL, NULL, 0, n); // dst and src are not touched: the model counts time
    }
    return y->comm->broadcast_bytes(y->comm, NULL, (size_t)n * sizeof(float), 0);
}

// The commit. With train.shard a rank updates its part, and then all get the weights, which nothing hides.
static dt_status play_commit(player *y, const trainer *t, dt_scaling_row *row) {
    // ZeRO-1: weights of all owners
    static uint16_t bf16; // never read
    const bool halves = dt_run_owns_masters(&t->run, y->comm->world_size);
    const dt_reduction all = {.steps = DT_ALL_GATHER, .n = t->nets.params->n_trained, .bf16 = halves ? &bf16 : NULL};
    dt_request r;
    row->commit_s = y->p->commit_s / y->threads.threads * y->slow;
    if (shards(y)) row->commit_s /= y->comm->world_size; // a rank commits the chunks that it owns
    y->now_s += row->commit_s;
    if (!shards(y)) return DT_OK;
    DT_TRY(y->comm->reduce_start(y->comm, &all, &r));
    return y->comm->wait(y->comm, &r);
}

static dt_status play_step(player *y, const trainer *t, int n_micro, dt_scaling_row *row) {
    const int w = y->comm->world_size, rank_micros = (n_micro + w - 1) / w; // of rank 0, which has the most
    const double threads = (double)y->p->threads / y->threads.replica_threads;
    dt_replica_plan *plan;
    dt_buckets *b = NULL;
    double unused_s;
    DT_TRY(dt_replica_plan_create(&plan, dt_run_is_elastic(&t->run), 0, w, y->replicas, n_micro));
    y->replicas = plan->n_replicas;
    // rounds of micro-batches: each replica takes one at a time
    const int turns = (rank_micros + y->replicas - 1) / y->replicas;
    float **flats = dt_xcalloc((size_t)plan->n_flats, sizeof *flats);
    dt_status st = DT_OK;
    for (int i = 0; i < plan->n_flats; i++) flats[i] = t->nets.params->grads[0]; // never read
    if (dt_replica_plan_has_buckets(plan, y->comm->sums_by_tree)) st = scaling_make_buckets(y, t, plan, &b);
    y->now_s = (turns - 1) * y->p->micro_s * threads * y->slow; // rounds before the last one: nothing to reduce yet
    if (b) dt_buckets_begin(b, flats);
    if (st == DT_OK) st = play_backward(y, b);
    row->compute_s = y->now_s;
    if (st == DT_OK && b) st = dt_buckets_finish(b, &unused_s);
    if (st == DT_OK && plan->elastic && !b && w > 1) st = play_tree(y, t, plan);
    if (st == DT_OK) st = play_commit(y, t, row);
    row->step_s = y->now_s;
    row->exposed_s = row->step_s - row->compute_s - row->commit_s; // what backward did not hide
    dt_buckets_destroy(b);
    dt_replica_plan_destroy(plan);
    free(flats);
    return st;
}

// A core's work takes longer where the ranks of a host have more threads than it has cores; loaders want some, too.
static double slow_down(const player *y, int ranks) {
    const double busy = ranks * y->replicas * y->threads.replica_threads; // threads that compute
    const double load = 1 + y->p->load_s / y->p->micro_s;
    return y->f->gpus ? 1 : fmax(1, busy * load / y->f->cores);
}

static dt_status predict_row(const profile *p, const trainer *t, double disk_bytes_s, double start_s,
                             const dt_fabric *f, dt_scaling_row *row) {
    const dt_open_run *r = &t->run;
    const int w = row->world_size, micro = r->resolved.micro_batch;
    const int ranks = f->ranks_per_host > 0 && f->ranks_per_host < w ? f->ranks_per_host : w;
    player y = {.p = p, .f = f, .threads = r->resolved};
    row->n_hosts = (w + ranks - 1) / ranks;
    // a step has at least one micro-batch per rank
    row->batch = dt_run_global_batch(r) > (int64_t)w * micro ? dt_run_global_batch(r) : (int64_t)w * micro;
    const int n_micro = (int)(row->batch / micro);
    y.threads.threads = !r->given->device.threads.is_auto ? (int)dt_answer(r->given->device.threads)
                                                          : (int)fmax(1, floor(f->cores / ranks)); // of a rank
    dt_resolve_divide(&y.threads, r->given, n_micro, w, NULL);
    // a GPU computes one micro-batch at a time
    if (f->gpus) y.threads.replicas = 1, y.threads.replica_threads = p->threads;
    y.replicas = y.threads.replicas;
    y.slow = slow_down(&y, ranks);
    DT_TRY(dt_comm_create_model(&y.comm, f, w, y.slow, &y.now_s));
    dt_status st = play_step(&y, t, n_micro, row);
    row->samples_s = (double)row->batch / row->step_s;
    row->rank_bytes = dt_memory_bytes_of(&t->nets, r, y.replicas, w);
    const dt_params *params = t->nets.params;
    const double kept = // bytes of a checkpoint
        4.0 * (double)(params->n_master + params->n_buffer + params->n_average + params->n_slot[0] + params->n_slot[1]);
    row->save_s = kept / f->copy_bytes_s + (disk_bytes_s > 0 ? kept / disk_bytes_s : 0); // the snapshot, then the disk
    y.now_s = 0;
    // the first weights, from rank 0
    (void)y.comm->broadcast_bytes(y.comm, NULL, (size_t)(4 * params->n_master), 0);
    row->start_s = start_s * y.slow + y.now_s;
    (void)y.comm->finalize(y.comm);
    dt_comm_destroy(y.comm);
    return st;
}

dt_status dt_scaling_predict(dt_scaling *s, dt_open_run *r, dt_nets *nets, dt_state *state) {
    trainer t = {.run = *r, .nets = *nets, .state = state};
    const dt_net net = dt_nets_trained(nets);
    profile p = {.run = &t.run, .nets = nets, .threads = r->resolved.replica_threads};
    const double start_s = dt_clock_process_s(), copy_s = dt_memory_time_copy();
    if (!r->data && s->rate <= 0)
        return dt_fail(
            DT_E_USAGE,
            "--ranks: without the data set a step cannot be measured here: give --rate, the samples/s of one rank");
    if (r->backend->device && s->rate <= 0)
        return dt_fail(DT_E_USAGE, "--ranks: on a GPU a step is not measured here: give --rate, the samples/s of one "
                                   "GPU or a run that measured them");
    for (dt_fabric *f = s->fabrics; f < s->fabrics + DT_SCALING_FABRICS; f++) {
        if (f->cores <= 0) f->cores = dt_usable_cores();
        // bytes/s; 1e10 where it cannot be measured
        if (f->copy_bytes_s <= 0) f->copy_bytes_s = copy_s > 0 ? 1 / copy_s : 1e10;
    }
    const int n_instructions = count_instructions(net.plan);
    p.node_s = dt_xcalloc((size_t)n_instructions, sizeof *p.node_s);
    dt_status st = DT_OK;
    if (r->data) s->n_samples = r->data->n_samples(r->data, DT_SPLIT_TRAIN);
    if (s->rate > 0)
        divide_rate(&p, s->rate);
    else
        st = dt_state_init(state);
    if (st == DT_OK && s->rate <= 0) st = scaling_measure(&p, &t); // weights: kernels are timed on real values
    for (int k = 0; k < n_instructions; k++) p.micro_s += p.node_s[k];
    if (st == DT_OK) st = measure_disk(r, &s->disk_bytes_s);
    for (int i = 0; i < s->n && st == DT_OK; i++)
        st = predict_row(&p, &t, s->disk_bytes_s, start_s, &s->fabrics[s->rows[i].fabric], &s->rows[i]);
    s->micro_s = p.micro_s;
    s->commit_s = p.commit_s;
    s->load_s = p.load_s;
    s->micro_batch = r->resolved.micro_batch;
    free(p.node_s);
    return st;
}

int64_t dt_scaling_safe_batch(dt_optimizer_id kind, const char **source) {
    // the largest batches of published runs that kept their accuracy
    switch (kind) {
    case DT_OPTIMIZER_sgd:
        *source = "Goyal et al. 2017, arXiv:1706.02677: ResNet-50 on ImageNet, lr in proportion, "
                  "warm-up";
        return 8192;
    case DT_OPTIMIZER_lars:
        *source = "You et al. 2017, arXiv:1708.03888: ResNet-50 on ImageNet";
        return 32768;
    case DT_OPTIMIZER_lamb:
        *source = "You et al. 2019, arXiv:1904.00962: ResNet-50 on ImageNet";
        return 32768;
    case DT_OPTIMIZER_adamw:
    case DT_OPTIMIZER_adam:
    case DT_OPTIMIZER_lion:
    case DT_OPTIMIZER_adafactor:
    case DT_N_OPTIMIZERS:
        *source = "Dosovitskiy et al. 2020, arXiv:2010.11929: ViT by Adam";
        break;
    }
    return 4096;
}
