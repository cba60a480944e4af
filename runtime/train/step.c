// step.c: a training step: setup and teardown, offsets of losses and flags, buckets and the tree's transfers. Its second
// half computes the step on the CPU; step_device.c computes it on a device. Each is a table of functions.
//
// Stopping: the spare element behind the sum of weights is 1 in the flat buffer of this rank's first micro-batch
// if this rank got a signal, 0 in all others, so after the reduction it counts the ranks that want to stop. The
// element behind it says in the same way that the step was given up: then nobody commits.

#include "train/step.h"

#include "base/core.h"
#include "base/os.h"
#include "base/rank_report.h"
#include "base/trace.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

// ---- for both ---------------------------------------------------------------------------------------

void dt_step_on_grad(void *ctx, int grad_index) {
    dt_step_replica *l = ctx;
    dt_buckets_ready(l->owner->buckets, l->index, grad_index);
}

void dt_step_poll_buckets(void *ctx) {
    dt_buckets_poll(((dt_step_replica *)ctx)->owner->buckets);
}

// Of sums between ranks in the memory that buffers lie in.
static dt_comm *comm_of(const struct dt_stepper *s) {
    return s->backend->device ? s->o.device_comm : s->o.comm;
}

static void step_all_reduce(void *ctx, double *x, int64_t n) {
    dt_step_replica *l = ctx;
    dt_comm *c = comm_of(l->owner);
    if (l->node_status == DT_OK) l->node_status = c->all_reduce_f64(c, x, n); // the first failure stays
}
const dt_run_ranks *dt_step_ranks(dt_step_replica *l) {
    const struct dt_stepper *s = l->owner;
    l->node_status = DT_OK;
    l->ranks = (dt_run_ranks){step_all_reduce, l, s->o.comm->world_size}; // how a node calls back
    return s->o.sync_bn && s->o.comm->world_size > 1 ? &l->ranks : NULL;
}

// one rank adds 1 at most, so that the sum counts ranks
float dt_step_stop_mark(const struct dt_stepper *s, int micro) {
    return micro == s->o.replicas->replicas[0].micro_begin && s->want_stop ? 1.0f : 0.0f;
}

dt_status dt_step_run_transfers(struct dt_stepper *s, dt_comm *c, step_add_fn *add) {
    const dt_replica_plan *p = s->o.replicas;
    float **flats = s->o.params->grads;
    int64_t n = s->o.params->n_grad;
    // all ranks have the same order, so sends and receives meet
    for (int i = 0; i < p->n_transfers; i++) {
        const dt_tree_action *t = &p->transfers[i];
        if (t->kind == DT_TREE_SEND) DT_TRY(c->send_f32(c, flats[t->a], n, t->peer));
        if (t->kind == DT_TREE_RECV) DT_TRY(c->recv_f32(c, flats[t->b], n, t->peer));
        if (t->kind != DT_TREE_SEND) add(s, flats[t->a], flats[t->b]);
    }
    // the sum is in buffer 0 of rank 0
    if (p->world_size > 1) DT_TRY(c->broadcast_bytes(c, flats[0], (size_t)n * sizeof(float), 0));
    return DT_OK;
}

// ---- a step -----------------------------------------------------------------------------------------

dt_status dt_stepper_run(dt_stepper *s, int64_t step, double lr, bool want_stop, dt_step_result *out) {
    s->step = step; // read by replicas through s
    s->want_stop = want_stop;
    return s->engine->run(s, lr, out);
}

dt_status dt_stepper_drain(dt_stepper *s, dt_step_result *out) {
    *out = (dt_step_result){.step = -1}; // -1: nothing was under way
    return s->engine->drain ? s->engine->drain(s, out) : DT_OK;
}

dt_status dt_stepper_set_scaler(dt_stepper *s, const dt_scaler *scaler) {
    s->scaler = *scaler;
    return s->engine->set_scaler ? s->engine->set_scaler(s, scaler) : DT_OK;
}

dt_status dt_stepper_find_bad(dt_stepper *s, int64_t step, int *micro, char *name, size_t cap) {
    *micro = -1;
    s->step = step;
    s->want_stop = false;
    if (s->engine->rest) DT_TRY(s->engine->rest(s));
    // delivered already: the loader reads those samples again
    DT_TRY(s->source->seek(s->source, step));
    // in the order in which the source delivers; the first micro-batch is reported
    for (int i = 0; i < s->o.replicas->n_rank_micros; i++) {
        const char *bad = NULL;
        int at = s->o.replicas->micros[i]; // global number
        DT_TRY(s->engine->replay(s, at, &bad));
        if (!bad || (*micro >= 0 && *micro < at)) continue;
        *micro = at;
        snprintf(name, cap, "%s", bad);
    }
    return DT_OK;
}

dt_status dt_stepper_recalibrate(dt_stepper *s, int64_t n_steps, int64_t next) {
    double *sums = dt_xcalloc((size_t)s->o.params->n_buffer + 1, sizeof *sums);
    dt_status st = s->source->seek(s->source, 0);
    s->want_stop = false;
    for (int64_t i = 0; i < n_steps && st == DT_OK; i++) {
        s->step = i; // in the order of the epoch, from its beginning
        st = s->engine->compute(s);
        // statistics of the step are in the tail of the flat buffer
        if (st == DT_OK && !dt_commit_add_statistics(s, sums))
            st = dt_fail(DT_E_PREEMPTED, "eval.recalibrate_bn outlasted run.grace");
    }
    if (st == DT_OK) dt_commit_set_statistics(s, sums, (double)n_steps);
    free(sums);
    const dt_status back = s->source->seek(s->source, next); // back, after a failure too
    return st == DT_OK ? back : st;
}

// ---- life ------------------------------------------------------------------------------------------

static void add_flat_range(void *ctx, float *dst, const float *src, int64_t begin, int64_t end) {
    dt_backend *b = ctx;
    b->flat_add(b, dst, src, begin, end);
}

size_t dt_step_bf16_bytes(const struct dt_stepper *s) {
    return (size_t)s->o.params->n_trained * sizeof *s->bf16;
}

int64_t *dt_step_grad_ends(const dt_graph *g, const dt_params *p) {
    int64_t *ends = dt_xcalloc((size_t)g->n_grads + 1, sizeof *ends); // by order of backward: graph->grads
    for (int i = 0; i < g->n_grads; i++) {
        const dt_value param = g->values[g->grads[i]].param;
        const dt_param_entry *e = &p->entries[dt_params_find(p, g->values[param].name, false)];
        ends[i] = e->offset + dt_flat_extent(e->count); // the parameter's end with its padding
    }
    return ends;
}

static dt_status create_buckets(struct dt_stepper *s) {
    const dt_graph *g = s->o.graph;
    const dt_replica_plan *p = s->o.replicas;
    dt_comm *c = comm_of(s);
    dt_tree_merge *merges = NULL;
    if (!dt_replica_plan_has_buckets(p, c && c->sums_by_tree)) return DT_OK;
    int64_t *grad_end = dt_step_grad_ends(g, s->o.params);
    if (s->o.bf16_gradients) { // compressed all-reduce: gradients travel as bf16
        dt_backend *b = s->backend;
        const bool shared = b->device && b->device->alloc_shared; // memory that NCCL uses without copies
        const dt_status st = (shared ? b->device->alloc_shared : b->alloc)(b, (void **)&s->bf16, dt_step_bf16_bytes(s),
                                                                           "gradients in bf16");
        if (st != DT_OK) {
            free(grad_end);
            return st;
        }
    }
    dt_buckets_opts o = {.grad_end = grad_end,
                         .n_grads = g->n_grads,
                         .n_elements = s->o.params->n_grad,
                         .sums_at = s->o.params->n_trained, // the tail (losses, weights, statistics) stays f32
                         .bucket_bytes = s->o.bucket_bytes,
                         .bf16 = s->bf16,
                         .scatter = s->o.params->sharded,
                         .n_replicas = p->n_replicas,
                         .tree = p->elastic,
                         .n_merges = p->elastic ? dt_replica_plan_merges(p, &merges) : 0,
                         .n_flats = p->n_flats,
                         // a progress thread pays between hosts, on the CPU alone
                         .progress_thread = !s->backend->device && s->o.comm->world_size > s->o.comm->local_size,
                         .add = add_flat_range,
                         .add_ctx = s->backend};
    o.merges = merges;
    dt_status st = dt_buckets_create(&s->buckets, c, &o);
    free(merges);
    free(grad_end);
    return st;
}

// What depends on graph and plan.
static dt_status step_build(struct dt_stepper *s) {
    const dt_graph *g = s->o.graph;
    if (g->loss == DT_NONE || g->loss_weight == DT_NONE)
        return dt_fail(DT_E_USAGE, "model '%s' has no loss to train on", g->name);
    dt_params_begin(s->o.params, s->o.first_step); // frozen tensors of this phase get no update
    for (int i = 0; i < s->o.replicas->n_replicas; i++) {
        s->replicas[i] = (dt_step_replica){.owner = s, .index = i};
        DT_TRY(dt_exec_create(&s->replicas[i].exec, s->o.plan, i));
    }
    DT_TRY(create_buckets(s));
    DT_TRY(dt_commit_init(s));
    // the device's part comes last: it captures what is made above
    return s->engine->create ? s->engine->create(s) : DT_OK;
}

static void step_drop(struct dt_stepper *s) {
    if (s->engine->destroy) s->engine->destroy(s);
    dt_buckets_destroy(s->buckets);
    s->buckets = NULL;
    if (s->bf16 && s->o.device_comm) // deregister before freeing
        s->o.device_comm->device->deregister_memory(s->o.device_comm, s->bf16);
    if (s->bf16) s->backend->free(s->backend, s->bf16, dt_step_bf16_bytes(s));
    s->bf16 = NULL;
    for (int i = 0; i < s->o.replicas->n_replicas; i++) {
        dt_exec_destroy(s->replicas[i].exec);
        s->replicas[i].exec = NULL;
    }
    dt_commit_fini(s);
}

dt_status dt_stepper_create(dt_stepper **out, const dt_stepper_opts *opts) {
    dt_stepper *s = dt_xcalloc(1, sizeof *s);
    s->o = *opts;
    s->backend = opts->params->backend;
    s->engine = s->backend->device ? &step_device : &step_host;
    int n_replicas = opts->replicas->n_replicas; // as the run was divided; fixed for the stepper's life
    s->replicas = dt_xcalloc((size_t)n_replicas, sizeof *s->replicas);
    s->replica_grads = dt_xcalloc((size_t)n_replicas, sizeof *s->replica_grads);
    for (int i = 0; i < n_replicas; i++)
        s->replica_grads[i] = opts->params->grads[opts->replicas->replicas[i].first_flat];
    dt_status st = dt_team_create(&s->team, opts->team_threads, "replica");
    if (st == DT_OK) st = step_build(s);
    if (st != DT_OK) {
        dt_stepper_destroy(s);
        return st;
    }
    *out = s;
    return DT_OK;
}

void dt_stepper_destroy(dt_stepper *s) {
    if (!s) return;
    step_drop(s);
    dt_team_destroy(s->team);
    free(s->replicas);
    free(s->replica_grads);
    free(s);
}

dt_status dt_stepper_set_plan(dt_stepper *s, const dt_graph *graph, const dt_plan *plan, int64_t step) {
    dt_batch_source *source = s->source;
    const dt_scaler scaler = s->scaler;
    DT_TRY(dt_stepper_set_source(s, NULL)); // its batches go back to the loader before the exec is dropped
    step_drop(s);
    s->o.graph = graph;
    s->o.plan = plan;
    s->o.first_step = step;
    DT_TRY(step_build(s));
    DT_TRY(dt_stepper_set_scaler(s, &scaler)); // the device's copy is made anew with the parts
    return source ? dt_stepper_set_source(s, source) : DT_OK;
}

dt_status dt_stepper_set_source(dt_stepper *s, dt_batch_source *source) {
    return s->engine->set_source(s, source);
}

dt_team *dt_stepper_team(dt_stepper *s) {
    return s->team;
}

// ---- step host ----------------------------------------------------------------------------------------------------

// A step on the CPU: replicas compute, their gradients are summed; commit.c does the rest.
//
// A worker thread binds a batch, runs its exec and releases the batch: micro-batch after micro-batch. In
// `resume` and `off` it adds all of them into its one flat buffer, and tells the buckets which gradients are
// ready on its last micro-batch; the calling thread is worker 0 and also moves the all-reduces on, between its
// nodes. In `elastic` it follows its actions of the tree. Where these are whole nodes, buckets do the rest in the same way;
// otherwise the calling thread carries out the transfers afterwards.

// ---- one micro-batch -------------------------------------------------------------------------------

static dt_status compute_micro(dt_step_replica *l, int micro, float *flat, bool accumulate, bool last,
                               const char **bad) {
    struct dt_stepper *s = l->owner;
    const dt_batch *b = NULL;
    double wait_s = 0.0;
    dt_rank_at("waiting for a batch", "");
    double traced = dt_trace_begin();
    DT_TRY(s->source->get(s->source, s->step, micro, &b, &wait_s));
    dt_trace_end("data", "wait for a batch", traced);
    l->wait_s += wait_s; // seconds; this thread's own counter
    const dt_status st = dt_batch_check_targets(b, s->o.targets);
    if (st != DT_OK) {
        s->source->release(s->source, b);
        return st;
    }
    dt_batch_inputs_bind(&l->inputs, l->exec, b);
    // only the first micro-batch of a flat buffer writes them: later ones add gradients
    if (!accumulate) { // before the exec: the tail's bucket may leave during the same micro-batch
        flat[s->commit.limits.stop_at] = dt_step_stop_mark(s, micro);
        flat[s->commit.limits.drop_at] = 0.0f;
    }
    // collectives of nodes and of buckets must not mix
    const bool reduces = last && s->buckets && !bad, overlaps = reduces && !s->o.sync_bn;
    dt_exec_args args = {.step = {.seed = s->o.seed,
                                  // counters of Philox: dropout masks follow seed, step and sample
                                  .step = (uint32_t)s->step,
                                  // slot: number of the micro-batch's first sample in the step
                                  .slot = (uint32_t)micro * (uint32_t)s->o.micro_batch,
                                  .loss_scale = dt_commit_loss_scale(s)},
                         .grad = flat,
                         .accumulate = accumulate,
                         .on_grad = overlaps ? dt_step_on_grad : NULL,
                         .poll = overlaps && l->index == 0 ? dt_step_poll_buckets : NULL, // worker 0 owns the comm
                         .ctx = l,
                         .ranks = dt_step_ranks(l)};
    if (bad)
        *bad = dt_exec_run_checked(l->exec, &args); // finds the first tensor that is not finite
    else
        dt_exec_run(l->exec, &args);
    // sync_bn: all at the end, while no node communicates
    for (int i = 0; reduces && !overlaps && i < s->o.graph->n_grads; i++) dt_step_on_grad(l, i);
    s->source->release(s->source, b);
    return l->node_status;
}

// ---- a worker's share -------------------------------------------------------------------------------

// Takes the place of a micro-batch that is given up: the flat buffer says that its content is void, and is reduced all the same.
static bool step_host_give_up(struct dt_stepper *s, float *flat) {
    if (!s->o.give_up || !s->o.give_up()) return false;
    flat[s->commit.limits.stop_at] = 1.0f;
    flat[s->commit.limits.drop_at] = 1.0f; // the sum over ranks counts
    return true;
}

static dt_status step_host_run_micros(dt_step_replica *l) {
    struct dt_stepper *s = l->owner;
    const dt_replica_share *share = &s->o.replicas->replicas[l->index];
    for (int micro = share->micro_begin; micro < share->micro_end; micro++) {
        // before every micro-batch: at most one outlasts the grace period
        if (step_host_give_up(s, s->replica_grads[l->index])) return DT_OK;
        DT_TRY(compute_micro(l, micro, s->replica_grads[l->index], micro > share->micro_begin,
                             micro + 1 == share->micro_end, NULL));
    }
    return DT_OK;
}

static dt_status step_host_run_actions(dt_step_replica *l) {
    struct dt_stepper *s = l->owner;
    const dt_replica_share *share = &s->o.replicas->replicas[l->index];
    float **flats = s->o.params->grads + share->first_flat; // actions count from the replica's first buffer
    for (int i = 0; i < share->n_actions; i++) {
        const dt_tree_action *a = &share->actions[i];
        if (a->kind == DT_TREE_LEAF) {
            // the last leaf: buckets wait for this replica's gradients
            const bool last = a->micro + 1 == share->micro_end;
            if (!step_host_give_up(s, flats[a->a])) DT_TRY(compute_micro(l, a->micro, flats[a->a], false, last, NULL));
            if (last && s->buckets) return DT_OK; // which add up the rest
        } else {
            s->backend->flat_add(s->backend, flats[a->a], flats[a->b], 0, s->o.params->n_grad);
        }
    }
    return DT_OK;
}

static void step_host_run_replica(void *arg, int worker) {
    struct dt_stepper *s = arg;
    if (worker >= s->o.replicas->n_replicas) return;
    dt_step_replica *l = &s->replicas[worker];
    omp_set_num_threads(s->o.replica_threads); // thread-local
    l->wait_s = 0.0;
    l->status = s->o.replicas->elastic ? step_host_run_actions(l) : step_host_run_micros(l);
    if (l->status != DT_OK) l->why = dt_error_keep(); // messages belong to a thread
}

static dt_status first_replica_error(struct dt_stepper *s) {
    for (int i = 0; i < s->o.replicas->n_replicas; i++) {
        if (s->replicas[i].status == DT_OK) continue;
        dt_error_restore(&s->replicas[i].why);
        return s->replicas[i].status;
    }
    return DT_OK;
}

// ---- a step ----------------------------------------------------------------------------------------

// Micro-batches and their sum over the ranks. *computed_s: when the replicas had finished.
static dt_status sum_gradients(struct dt_stepper *s, double *computed_s, double *comm_s) {
    *comm_s = 0;
    if (s->buckets) dt_buckets_begin(s->buckets, s->o.replicas->elastic ? s->o.params->grads : s->replica_grads);
    dt_team_run(s->team, step_host_run_replica, s);
    *computed_s = dt_clock_s();
    // before any collective: the other ranks time out on a lost peer
    DT_TRY(first_replica_error(s));
    if (s->buckets) return dt_buckets_finish(s->buckets, comm_s);
    if (!s->o.replicas->elastic) return DT_OK;
    const dt_status st = dt_step_run_transfers(s, s->o.comm, dt_commit_add_flats);
    // transfers come after computing: nothing hides them
    *comm_s = dt_clock_s() - *computed_s;
    return st;
}

static dt_status step_host_compute(struct dt_stepper *s) {
    double computed_s, comm_s;
    return sum_gradients(s, &computed_s, &comm_s);
}

static dt_status step_host_run(struct dt_stepper *s, double lr, dt_step_result *out) {
    const double begin = dt_clock_s();
    double computed_s, comm_s, data_s = 0;
    *out = (dt_step_result){.step = s->step};
    DT_TRY(sum_gradients(s, &computed_s, &comm_s));
    s->commit.optimizer.lr = (float)lr;
    dt_rank_at("commit", "");
    const double traced = dt_trace_begin(), commit_s = dt_clock_s();
    s->share_s = 0;
    DT_TRY(dt_commit_run(s));
    const double optimizer_s = dt_clock_s() - commit_s - s->share_s;
    dt_trace_end("commit", "commit", traced);
    // the slowest replica decides
    for (int i = 0; i < s->o.replicas->n_replicas; i++)
        if (s->replicas[i].wait_s > data_s) data_s = s->replicas[i].wait_s;
    *out = dt_commit_result(s, &s->numbers);
    out->step = s->step;
    out->data_s = data_s;
    out->compute_s = computed_s - begin - data_s; // of this rank; waiting for other ranks is comm_s
    out->comm_s = comm_s + s->share_s;
    for (int i = 0; i < s->o.replicas->n_replicas; i++)
        dt_exec_take_times(s->replicas[i].exec, &out->forward_s, &out->backward_s);
    out->forward_s /= s->o.replicas->n_replicas;
    out->backward_s /= s->o.replicas->n_replicas;
    out->optimizer_s = optimizer_s;
    out->total_s = dt_clock_s() - begin;
    return DT_OK;
}

static dt_status step_host_replay(struct dt_stepper *s, int micro, const char **bad) {
    omp_set_num_threads(s->o.replica_threads); // the calling thread alone
    // buffer 0 is free: the bad step was not committed
    return compute_micro(&s->replicas[0], micro, s->o.params->grads[0], false, false, bad);
}

static dt_status step_host_set_source(struct dt_stepper *s, dt_batch_source *source) {
    s->source = source;
    for (int i = 0; source && i < s->o.replicas->n_replicas; i++) {
        dt_step_replica *l = &s->replicas[i];
        dt_batch_inputs_find(&l->inputs, l->exec, source->fields, source->n_fields);
    }
    return DT_OK;
}

static dt_status step_host_set_scaler(struct dt_stepper *s, const dt_scaler *scaler) {
    // a new run, or a checkpoint without a scaler
    if (s->o.loss_scaling && scaler->scale == 0) s->scaler.scale = dt_commit_first_scale(s);
    return DT_OK;
}

static dt_status step_host_create(struct dt_stepper *s) {
    return step_host_set_scaler(s, &s->scaler);
}

const dt_step_engine step_host = {.create = step_host_create,
                                  .set_source = step_host_set_source,
                                  .set_scaler = step_host_set_scaler,
                                  .run = step_host_run,
                                  .compute = step_host_compute,
                                  .phase = dt_commit_phase_host,
                                  .replay = step_host_replay};
