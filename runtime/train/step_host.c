// step_host.c: a step on the CPU: replicas compute, their gradients are summed; commit.c does the rest.
//
// A worker thread binds a batch, runs its exec and releases the batch: micro-batch after micro-batch. In
// `resume` and `off` it adds all of them into its one flat buffer, and tells the buckets which gradients are
// ready on its last micro-batch; the calling thread is worker 0 and also moves the all-reduces on, between its
// nodes. In `elastic` it follows its actions of the tree, and the calling thread carries out the transfers
// afterwards.

#include "train/step_internal.h"

#include "base/clock.h"

#include <omp.h>

// ---- one micro-batch -------------------------------------------------------------------------------

static dt_status compute_leaf(step_lane *l, int leaf, float *slab, bool accumulate, bool last,
                              const char **bad) {
    struct dt_stepper *s = l->owner;
    const dt_batch *b = NULL;
    double wait_s = 0.0;
    DT_TRY(s->source->get(s->source, s->step, leaf, &b, &wait_s));
    l->wait_s += wait_s;
    dt_batch_inputs_bind(&l->inputs, l->exec, b);
    if (!accumulate) { // before the exec: the tail's bucket may leave during the same leaf
        slab[s->stop_at] = step_stop_mark(s, leaf);
        slab[s->drop_at] = 0.0f;
    }
    bool overlaps = last && s->buckets && !bad;
    dt_exec_args args = {.step = {.seed = s->o.seed,
                                  .step = (uint32_t)s->step,
                                  .slot = (uint32_t)leaf * (uint32_t)s->o.micro_batch,
                                  .loss_scale = 1.0f},
                         .grad = slab,
                         .accumulate = accumulate,
                         .on_grad = overlaps ? step_on_grad : NULL,
                         .poll = overlaps && l->index == 0 ? step_poll_buckets : NULL,
                         .ctx = l};
    if (bad)
        *bad = dt_exec_run_checked(l->exec, &args);
    else
        dt_exec_run(l->exec, &args);
    s->source->release(s->source, b);
    return DT_OK;
}

// ---- a worker's share -------------------------------------------------------------------------------

// Instead of a leaf: the slab says that its content is void, and is reduced all the same.
static bool give_up(struct dt_stepper *s, float *slab) {
    if (!s->o.give_up || !s->o.give_up()) return false;
    slab[s->stop_at] = 1.0f;
    slab[s->drop_at] = 1.0f;
    return true;
}

static dt_status run_leaves(step_lane *l) {
    struct dt_stepper *s = l->owner;
    const dt_lane_share *share = &s->o.lanes->lanes[l->index];
    for (int leaf = share->leaf_begin; leaf < share->leaf_end; leaf++) {
        if (give_up(s, s->lane_slabs[l->index])) return DT_OK;
        DT_TRY(compute_leaf(l, leaf, s->lane_slabs[l->index], leaf > share->leaf_begin,
                            leaf + 1 == share->leaf_end, NULL));
    }
    return DT_OK;
}

static dt_status run_actions(step_lane *l) {
    struct dt_stepper *s = l->owner;
    const dt_lane_share *share = &s->o.lanes->lanes[l->index];
    float **slabs = s->o.params->grads + share->first_slab;
    for (int i = 0; i < share->n_actions; i++) {
        const dt_tree_action *a = &share->actions[i];
        if (a->kind == DT_TREE_LEAF) {
            if (!give_up(s, slabs[a->a]))
                DT_TRY(compute_leaf(l, a->leaf, slabs[a->a], false, false, NULL));
        } else {
            s->backend->slab_add(s->backend, slabs[a->a], slabs[a->b], 0, s->o.params->n_grad);
        }
    }
    return DT_OK;
}

static void run_lane(void *arg, int worker) {
    struct dt_stepper *s = arg;
    if (worker >= s->o.lanes->n_lanes) return;
    step_lane *l = &s->lanes[worker];
    omp_set_num_threads(s->o.leaf_threads);
    l->wait_s = 0.0;
    l->status = s->o.lanes->elastic ? run_actions(l) : run_leaves(l);
    if (l->status != DT_OK) l->why = dt_error_keep();
}

static dt_status first_lane_error(struct dt_stepper *s) {
    for (int i = 0; i < s->o.lanes->n_lanes; i++) {
        if (s->lanes[i].status == DT_OK) continue;
        dt_error_restore(&s->lanes[i].why);
        return s->lanes[i].status;
    }
    return s->poll_status;
}

// ---- a step ----------------------------------------------------------------------------------------

static dt_status reduce(struct dt_stepper *s, double *comm_s) {
    double begin = dt_clock_s();
    dt_status st = DT_OK;
    if (s->o.lanes->elastic) {
        st = step_run_transfers(s, s->o.comm, commit_add_slabs);
        *comm_s = dt_clock_s() - begin;
    } else if (s->buckets) {
        st = dt_buckets_finish(s->buckets, comm_s);
    }
    return st;
}

static dt_status run(struct dt_stepper *s, double lr, dt_step_result *out) {
    *out = (dt_step_result){.step = s->step};
    double begin = dt_clock_s();
    if (s->buckets) dt_buckets_begin(s->buckets, s->lane_slabs);
    dt_team_run(s->team, run_lane, s);
    double computed = dt_clock_s();
    DT_TRY(first_lane_error(s));
    DT_TRY(reduce(s, &out->comm_s));
    commit_run(s, lr, out);
    double end = dt_clock_s();
    for (int i = 0; i < s->o.lanes->n_lanes; i++)
        if (s->lanes[i].wait_s > out->data_s) out->data_s = s->lanes[i].wait_s;
    out->compute_s = computed - begin - out->data_s;
    out->total_s = end - begin;
    return DT_OK;
}

static dt_status replay(struct dt_stepper *s, int64_t i, int leaf, const char **bad) {
    (void)i;
    omp_set_num_threads(s->o.leaf_threads);
    return compute_leaf(&s->lanes[0], leaf, s->o.params->grads[0], false, false, bad);
}

static dt_status set_source(struct dt_stepper *s, dt_batch_source *source) {
    s->source = source;
    for (int i = 0; source && i < s->o.lanes->n_lanes; i++) {
        step_lane *l = &s->lanes[i];
        dt_batch_inputs_find(&l->inputs, l->exec, source->fields, source->n_fields);
    }
    return DT_OK;
}

const step_engine step_host = {.set_source = set_source, .run = run, .replay = replay};
