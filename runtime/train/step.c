// step.c: lanes compute, slabs are reduced; commit.c does the rest.
//
// A lane binds a batch, runs its exec, releases the batch: leaf after leaf. In `resume` and `off` it
// adds all of them into its one slab, and tells the buckets which gradients are ready on its last leaf;
// the calling thread is lane 0 and also moves the all-reduces on, between its nodes. In `elastic` it
// follows its actions of the tree, and the calling thread carries out the transfers afterwards.
//
// Stopping: the spare element behind the sum of weights is 1 in the slab of this rank's first leaf if
// this rank got a signal, 0 in all others, so after the reduction it counts the ranks that want to stop.
// The element behind it says in the same way that a lane gave the step up: then nobody commits.

#include "train/step_internal.h"

#include "base/arena.h"
#include "base/clock.h"
#include "comm/comm_nccl.h"

#include <assert.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- one leaf --------------------------------------------------------------------------------------

static void on_grad(void *ctx, int grad_index) {
    step_lane *l = ctx;
    dt_buckets_ready(l->owner->buckets, l->index, grad_index);
}

static void poll_buckets(void *ctx) {
    struct dt_stepper *s = ((step_lane *)ctx)->owner;
    if (s->poll_status == DT_OK)
        s->poll_status = dt_buckets_poll(s->buckets); // the first message counts
}

static dt_status compute_leaf(step_lane *l, int leaf, float *slab, bool accumulate, bool last,
                              const char **bad) {
    struct dt_stepper *s = l->owner;
    const dt_batch *b = NULL;
    double wait_s = 0.0;
    DT_TRY(s->source->get(s->source, s->step, leaf, &b, &wait_s));
    l->wait_s += wait_s;
    dt_batch_inputs_bind(&l->inputs, l->exec, b);
    if (!accumulate) { // before the exec: the tail's bucket may leave during the same leaf
        bool first = leaf == s->o.lanes->lanes[0].leaf_begin;
        slab[s->stop_at] = first && s->want_stop ? 1.0f : 0.0f;
        slab[s->drop_at] = 0.0f;
    }
    bool overlaps = last && s->buckets && !bad;
    dt_exec_args args = {.step = {.seed = s->o.seed,
                                  .step = (uint32_t)s->step,
                                  .slot = (uint32_t)leaf * (uint32_t)s->o.micro_batch,
                                  .loss_scale = 1.0f},
                         .grad = slab,
                         .accumulate = accumulate,
                         .on_grad = overlaps ? on_grad : NULL,
                         .poll = overlaps && l->index == 0 ? poll_buckets : NULL,
                         .ctx = l};
    if (bad)
        *bad = dt_exec_run_checked(l->exec, &args);
    else
        dt_exec_run(l->exec, &args);
    s->source->release(s->source, b);
    return DT_OK;
}

// ---- a lane's share --------------------------------------------------------------------------------

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
    if (l->status != DT_OK) snprintf(l->message, sizeof l->message, "%s", dt_error_message());
}

static dt_status first_lane_error(struct dt_stepper *s) {
    for (int i = 0; i < s->o.lanes->n_lanes; i++)
        if (s->lanes[i].status != DT_OK)
            return dt_fail(s->lanes[i].status, "%s", s->lanes[i].message);
    return s->poll_status;
}

// ---- reduction -------------------------------------------------------------------------------------

static dt_status run_transfers(struct dt_stepper *s) {
    const dt_lane_plan *p = s->o.lanes;
    float **slabs = s->o.params->grads;
    int64_t n = s->o.params->n_grad;
    dt_comm *c = s->o.comm;
    for (int i = 0; i < p->n_transfers; i++) {
        const dt_transfer *t = &p->transfers[i];
        switch (t->kind) {
        case DT_TRANSFER_SEND:
            DT_TRY(c->send_f32(c, slabs[t->a], n, t->peer));
            break;
        case DT_TRANSFER_RECV:
            DT_TRY(c->recv_f32(c, slabs[t->b], n, t->peer));
            commit_add_slabs(s, slabs[t->a], slabs[t->b]);
            break;
        case DT_TRANSFER_ADD:
            commit_add_slabs(s, slabs[t->a], slabs[t->b]);
            break;
        }
    }
    if (p->world_size > 1) DT_TRY(c->broadcast_bytes(c, slabs[0], (size_t)n * sizeof(float), 0));
    return DT_OK;
}

static dt_status reduce(struct dt_stepper *s, double *comm_s) {
    double begin = dt_clock_s();
    dt_status st = DT_OK;
    if (s->o.lanes->elastic) {
        st = run_transfers(s);
        *comm_s = dt_clock_s() - begin;
    } else if (s->buckets) {
        st = dt_buckets_finish(s->buckets, comm_s);
    }
    return st;
}

dt_status dt_stepper_run(dt_stepper *s, int64_t step, double lr, bool want_stop,
                         dt_step_result *out) {
    if (s->device) return device_step_run(s->device, step, lr, want_stop, out);
    *out = (dt_step_result){.step = step};
    double begin = dt_clock_s();
    s->step = step;
    s->want_stop = want_stop;
    s->poll_status = DT_OK;
    if (s->buckets) dt_buckets_begin(s->buckets, s->lane_slabs);
    dt_team_run(s->team, run_lane, s);
    double computed = dt_clock_s();
    DT_TRY(first_lane_error(s));
    DT_TRY(reduce(s, &out->comm_s));
    double reduced = dt_clock_s();
    commit_run(s, lr, out);
    double end = dt_clock_s();
    for (int i = 0; i < s->o.lanes->n_lanes; i++)
        if (s->lanes[i].wait_s > out->data_s) out->data_s = s->lanes[i].wait_s;
    out->compute_s = computed - begin - out->data_s;
    out->commit_s = end - reduced;
    out->total_s = end - begin;
    return DT_OK;
}

dt_status dt_stepper_drain(dt_stepper *s, dt_step_result *out) {
    *out = (dt_step_result){.step = -1};
    return s->device ? device_step_drain(s->device, out) : DT_OK;
}

dt_status dt_stepper_set_scaler(dt_stepper *s, const dt_scaler *scaler) {
    return s->device ? device_step_set_scaler(s->device, scaler) : DT_OK;
}

dt_status dt_stepper_find_bad(dt_stepper *s, int64_t step, int *leaf, char *name, size_t cap) {
    *leaf = -1;
    if (s->device) return device_step_find_bad(s->device, step, leaf, name, cap);
    s->step = step;
    s->want_stop = false;
    DT_TRY(s->source->seek(s->source, step));
    omp_set_num_threads(s->o.leaf_threads);
    // in the order in which the source delivers; the first in leaf order is reported
    for (int i = 0; i < s->o.lanes->n_rank_leaves; i++) {
        const char *bad = NULL;
        int at = s->o.lanes->leaves[i];
        DT_TRY(compute_leaf(&s->lanes[0], at, s->o.params->grads[0], false, false, &bad));
        if (bad && (*leaf < 0 || at < *leaf)) {
            *leaf = at;
            snprintf(name, cap, "%s", bad);
        }
    }
    return DT_OK;
}

// ---- life ------------------------------------------------------------------------------------------

static void add_slab_range(void *ctx, float *dst, const float *src, int64_t begin, int64_t end) {
    dt_backend *b = ctx;
    b->slab_add(b, dst, src, begin, end);
}

size_t dt_step_low_bytes(const struct dt_stepper *s) {
    return (size_t)s->o.params->n_trained * sizeof *s->low;
}

static dt_status take_low(struct dt_stepper *s) {
    dt_backend *b = s->backend;
    const bool shared = b->device && b->device->alloc_shared;
    return (shared ? b->device->alloc_shared : b->alloc)(b, (void **)&s->low, dt_step_low_bytes(s),
                                                         "gradients in bf16");
}

static void drop_low(struct dt_stepper *s) {
    if (!s->low) return;
    if (s->o.device_comm) dt_comm_nccl_forget(s->o.device_comm, s->low);
    s->backend->free(s->backend, s->low, dt_step_low_bytes(s));
}

static dt_status create_buckets(struct dt_stepper *s) {
    const dt_graph *g = s->o.graph;
    if (s->o.lanes->elastic || s->o.comm->world_size * s->o.lanes->n_lanes == 1) return DT_OK;
    int64_t *grad_end = dt_xcalloc((size_t)g->n_grads + 1, sizeof *grad_end);
    for (int i = 0; i < g->n_grads; i++) {
        dt_value param = g->values[g->grads[i]].param;
        const dt_param_entry *e =
            &s->o.params->entries[dt_params_find(s->o.params, g->values[param].name, false)];
        grad_end[i] = e->offset + (e->count + 15) / 16 * 16; // as params.h lays them out
    }
    if (s->o.bf16_gradients) {
        const dt_status st = take_low(s);
        if (st != DT_OK) {
            free(grad_end);
            return st;
        }
    }
    dt_buckets_opts o = {.grad_end = grad_end,
                         .n_grads = g->n_grads,
                         .n_elements = s->o.params->n_grad,
                         .first_bytes = s->o.first_bucket_bytes,
                         .bucket_bytes = s->o.bucket_bytes,
                         .low = s->low,
                         .n_lanes = s->o.lanes->n_lanes,
                         .thread = s->o.comm_thread && !s->backend->device,
                         .add = add_slab_range,
                         .add_ctx = s->backend};
    dt_comm *c = s->backend->device ? s->o.device_comm : s->o.comm;
    dt_status st = dt_buckets_create(&s->buckets, c, &o);
    free(grad_end);
    return st;
}

static dt_status find_stats(struct dt_stepper *s) {
    const dt_graph *g = s->o.graph;
    const dt_params *p = s->o.params;
    if (g->loss == DT_NONE || g->loss_weight == DT_NONE)
        return dt_fail(DT_E_USAGE, "model '%s' has no loss to train on", g->name);
    const dt_stat_entry *loss = &p->stats[dt_params_find_stat(p, g->values[g->loss].name)];
    const dt_stat_entry *weight = &p->stats[dt_params_find_stat(p, g->values[g->loss_weight].name)];
    s->loss_at = loss->offset;
    s->weight_at = weight->offset;
    s->stop_at = weight->offset + weight->count; // entries are padded to 16: this one is a gap
    s->drop_at = s->stop_at + 1;
    assert(s->drop_at < p->n_grad);
    return DT_OK;
}

dt_status dt_stepper_create(dt_stepper **out, const dt_stepper_opts *opts) {
    dt_stepper *s = dt_xcalloc(1, sizeof *s);
    s->o = *opts;
    s->backend = opts->params->backend;
    int n_lanes = opts->lanes->n_lanes;
    s->lanes = dt_xcalloc((size_t)n_lanes, sizeof *s->lanes);
    s->lane_slabs = dt_xcalloc((size_t)n_lanes, sizeof *s->lane_slabs);
    dt_status st = find_stats(s);
    if (st == DT_OK) st = dt_team_create(&s->team, opts->team_threads, "lane");
    for (int i = 0; st == DT_OK && i < n_lanes; i++) {
        s->lanes[i] = (step_lane){.owner = s, .index = i};
        s->lane_slabs[i] = opts->params->grads[opts->lanes->lanes[i].first_slab];
        st = dt_exec_create(&s->lanes[i].exec, opts->plan, i);
    }
    if (st == DT_OK) st = create_buckets(s);
    if (st == DT_OK) st = commit_init(s);
    if (st == DT_OK && s->backend->device) st = device_step_create(s);
    if (st != DT_OK) {
        dt_stepper_destroy(s);
        return st;
    }
    *out = s;
    return DT_OK;
}

void dt_stepper_destroy(dt_stepper *s) {
    if (!s) return;
    device_step_destroy(s->device);
    dt_buckets_destroy(s->buckets);
    drop_low(s);
    for (int i = 0; i < s->o.lanes->n_lanes; i++) dt_exec_destroy(s->lanes[i].exec);
    dt_team_destroy(s->team);
    commit_fini(s);
    free(s->lanes);
    free(s->lane_slabs);
    free(s);
}

dt_status dt_stepper_set_source(dt_stepper *s, dt_batch_source *source) {
    if (s->device) return device_step_set_source(s->device, source);
    s->source = source;
    for (int i = 0; source && i < s->o.lanes->n_lanes; i++) {
        step_lane *l = &s->lanes[i];
        dt_batch_inputs_find(&l->inputs, l->exec, source->fields, source->n_fields);
    }
    return DT_OK;
}

dt_team *dt_stepper_team(dt_stepper *s) {
    return s->team;
}
