// step_host.c: a step on the CPU: replicas compute, their gradients are summed; commit.c does the rest.
//
// A worker thread binds a batch, runs its exec and releases the batch: micro-batch after micro-batch. In
// `resume` and `off` it adds all of them into its one flat buffer, and tells the buckets which gradients are
// ready on its last micro-batch; the calling thread is worker 0 and also moves the all-reduces on, between its
// nodes. In `elastic` it follows its actions of the tree. Where these are whole nodes, buckets do the rest in the same way;
// otherwise the calling thread carries out the transfers afterwards.

#include "train/step_internal.h"

#include "base/clock.h"
#include "base/rank_report.h"
#include "base/trace.h"

#include <omp.h>

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
    l->wait_s += wait_s;
    const dt_status st = dt_batch_check_targets(b, s->o.targets);
    if (st != DT_OK) {
        s->source->release(s->source, b);
        return st;
    }
    dt_batch_inputs_bind(&l->inputs, l->exec, b);
    if (!accumulate) { // before the exec: the tail's bucket may leave during the same micro-batch
        flat[s->commit.stop_at] = dt_step_stop_mark(s, micro);
        flat[s->commit.drop_at] = 0.0f;
    }
    // collectives of nodes and of buckets must not mix
    const bool reduces = last && s->buckets && !bad, overlaps = reduces && !s->o.sync_bn;
    dt_exec_args args = {.step = {.seed = s->o.seed,
                                  .step = (uint32_t)s->step,
                                  .slot = (uint32_t)micro * (uint32_t)s->o.micro_batch,
                                  .loss_scale = dt_commit_loss_scale(s)},
                         .grad = flat,
                         .accumulate = accumulate,
                         .on_grad = overlaps ? dt_step_on_grad : NULL,
                         .poll = overlaps && l->index == 0 ? dt_step_poll_buckets : NULL,
                         .ctx = l,
                         .ranks = dt_step_ranks(l)};
    if (bad)
        *bad = dt_exec_run_checked(l->exec, &args);
    else
        dt_exec_run(l->exec, &args);
    for (int i = 0; reduces && !overlaps && i < s->o.graph->n_grads; i++) dt_step_on_grad(l, i);
    s->source->release(s->source, b);
    return l->node_status;
}

// ---- a worker's share -------------------------------------------------------------------------------

// Takes the place of a micro-batch that is given up: the flat buffer says that its content is void, and is reduced all the same.
static bool step_host_give_up(struct dt_stepper *s, float *flat) {
    if (!s->o.give_up || !s->o.give_up()) return false;
    flat[s->commit.stop_at] = 1.0f;
    flat[s->commit.drop_at] = 1.0f;
    return true;
}

static dt_status step_host_run_micros(dt_step_replica *l) {
    struct dt_stepper *s = l->owner;
    const dt_replica_share *share = &s->o.replicas->replicas[l->index];
    for (int micro = share->micro_begin; micro < share->micro_end; micro++) {
        if (step_host_give_up(s, s->replica_grads[l->index])) return DT_OK;
        DT_TRY(compute_micro(l, micro, s->replica_grads[l->index], micro > share->micro_begin,
                             micro + 1 == share->micro_end, NULL));
    }
    return DT_OK;
}

static dt_status step_host_run_actions(dt_step_replica *l) {
    struct dt_stepper *s = l->owner;
    const dt_replica_share *share = &s->o.replicas->replicas[l->index];
    float **flats = s->o.params->grads + share->first_flat;
    for (int i = 0; i < share->n_actions; i++) {
        const dt_tree_action *a = &share->actions[i];
        if (a->kind == DT_TREE_LEAF) {
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
    omp_set_num_threads(s->o.replica_threads);
    l->wait_s = 0.0;
    l->status = s->o.replicas->elastic ? step_host_run_actions(l) : step_host_run_micros(l);
    if (l->status != DT_OK) l->why = dt_error_keep();
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
    DT_TRY(first_replica_error(s));
    if (s->buckets) return dt_buckets_finish(s->buckets, comm_s);
    if (!s->o.replicas->elastic) return DT_OK;
    const dt_status st = dt_step_run_transfers(s, s->o.comm, dt_commit_add_flats);
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
    const double traced = dt_trace_begin();
    s->share_s = 0;
    DT_TRY(dt_commit_run(s));
    dt_trace_end("commit", "commit", traced);
    for (int i = 0; i < s->o.replicas->n_replicas; i++)
        if (s->replicas[i].wait_s > data_s) data_s = s->replicas[i].wait_s;
    *out = dt_commit_result(s, &s->numbers);
    out->step = s->step;
    out->data_s = data_s;
    out->compute_s = computed_s - begin - data_s;
    out->comm_s = comm_s + s->share_s;
    out->total_s = dt_clock_s() - begin;
    return DT_OK;
}

static dt_status step_host_replay(struct dt_stepper *s, int64_t i, int micro, const char **bad) {
    omp_set_num_threads(s->o.replica_threads);
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
