// step.c: what a step has in common wherever it runs: its life, where the losses and marks lie, how buckets and
// the tree's transfers are driven. step_host.c and step_device.c compute it, each behind a table.
//
// Stopping: the spare element behind the sum of weights is 1 in the flat buffer of this rank's first micro-batch
// if this rank got a signal, 0 in all others, so after the reduction it counts the ranks that want to stop. The
// element behind it says in the same way that the step was given up: then nobody commits.

#include "train/step_internal.h"

#include "base/arena.h"

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

static dt_comm *comm_of(const struct dt_stepper *s) {
    return s->backend->device ? s->o.device_comm : s->o.comm;
}

static void step_all_reduce(void *ctx, double *x, int64_t n) {
    dt_step_replica *l = ctx;
    dt_comm *c = comm_of(l->owner);
    if (l->node_status == DT_OK) l->node_status = c->all_reduce_f64(c, x, n);
}
const dt_run_ranks *dt_step_ranks(dt_step_replica *l) {
    const struct dt_stepper *s = l->owner;
    l->node_status = DT_OK;
    l->ranks = (dt_run_ranks){step_all_reduce, l, s->o.comm->world_size};
    return s->o.sync_bn && s->o.comm->world_size > 1 ? &l->ranks : NULL;
}

float dt_step_stop_mark(const struct dt_stepper *s, int micro) {
    return micro == s->o.replicas->replicas[0].micro_begin && s->want_stop ? 1.0f : 0.0f;
}

dt_status dt_step_run_transfers(struct dt_stepper *s, dt_comm *c, step_add_fn *add) {
    const dt_replica_plan *p = s->o.replicas;
    float **flats = s->o.params->grads;
    int64_t n = s->o.params->n_grad;
    for (int i = 0; i < p->n_transfers; i++) {
        const dt_tree_action *t = &p->transfers[i];
        if (t->kind == DT_TREE_SEND) DT_TRY(c->send_f32(c, flats[t->a], n, t->peer));
        if (t->kind == DT_TREE_RECV) DT_TRY(c->recv_f32(c, flats[t->b], n, t->peer));
        if (t->kind != DT_TREE_SEND) add(s, flats[t->a], flats[t->b]);
    }
    if (p->world_size > 1) DT_TRY(c->broadcast_bytes(c, flats[0], (size_t)n * sizeof(float), 0));
    return DT_OK;
}

// ---- a step -----------------------------------------------------------------------------------------

dt_status dt_stepper_run(dt_stepper *s, int64_t step, double lr, bool want_stop, dt_step_result *out) {
    s->step = step;
    s->want_stop = want_stop;
    return s->engine->run(s, lr, out);
}

dt_status dt_stepper_drain(dt_stepper *s, dt_step_result *out) {
    *out = (dt_step_result){.step = -1};
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
    if (!s->o.hold_input) DT_TRY(s->source->seek(s->source, step));
    // in the order in which the source delivers; the first micro-batch is reported
    for (int i = 0; i < s->o.replicas->n_rank_micros; i++) {
        const char *bad = NULL;
        int at = s->o.replicas->micros[i];
        DT_TRY(s->engine->replay(s, i, at, &bad));
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
        s->step = i;
        st = s->engine->compute(s);
        if (st == DT_OK && !dt_commit_add_statistics(s, sums))
            st = dt_fail(DT_E_PREEMPTED, "eval.recalibrate_bn outlasted run.grace");
    }
    if (st == DT_OK) dt_commit_set_statistics(s, sums, (double)n_steps);
    free(sums);
    const dt_status back = s->source->seek(s->source, next);
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

static dt_status take_bf16(struct dt_stepper *s) {
    dt_backend *b = s->backend;
    const bool shared = b->device && b->device->alloc_shared;
    return (shared ? b->device->alloc_shared : b->alloc)(b, (void **)&s->bf16, dt_step_bf16_bytes(s),
                                                         "gradients in bf16");
}

static void drop_bf16(struct dt_stepper *s) {
    if (!s->bf16) return;
    if (s->o.device_comm) s->o.device_comm->device->take_back(s->o.device_comm, s->bf16);
    s->backend->free(s->backend, s->bf16, dt_step_bf16_bytes(s));
    s->bf16 = NULL;
}

int64_t *dt_step_grad_ends(const dt_graph *g, const dt_params *p) {
    int64_t *ends = dt_xcalloc((size_t)g->n_grads + 1, sizeof *ends);
    for (int i = 0; i < g->n_grads; i++) {
        const dt_value param = g->values[g->grads[i]].param;
        const dt_param_entry *e = &p->entries[dt_params_find(p, g->values[param].name, false)];
        ends[i] = e->offset + dt_flat_extent(e->count);
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
    if (s->o.bf16_gradients) {
        const dt_status st = take_bf16(s);
        if (st != DT_OK) {
            free(grad_end);
            return st;
        }
    }
    dt_buckets_opts o = {.grad_end = grad_end,
                         .n_grads = g->n_grads,
                         .n_elements = s->o.params->n_grad,
                         .sums_at = s->o.params->n_trained,
                         .bucket_bytes = s->o.bucket_bytes,
                         .bf16 = s->bf16,
                         .scatter = s->o.params->sharded,
                         .n_replicas = p->n_replicas,
                         .tree = p->elastic,
                         .n_merges = p->elastic ? dt_replica_plan_merges(p, &merges) : 0,
                         .n_flats = p->n_flats,
                         .helper = !s->backend->device && s->o.comm->world_size > s->o.comm->local_size,
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
    dt_params_begin(s->o.params, s->o.first_step);
    for (int i = 0; i < s->o.replicas->n_replicas; i++) {
        s->replicas[i] = (dt_step_replica){.owner = s, .index = i};
        DT_TRY(dt_exec_create(&s->replicas[i].exec, s->o.plan, i));
    }
    DT_TRY(create_buckets(s));
    DT_TRY(dt_commit_init(s));
    return s->engine->create ? s->engine->create(s) : DT_OK;
}

static void step_drop(struct dt_stepper *s) {
    if (s->engine->destroy) s->engine->destroy(s);
    dt_buckets_destroy(s->buckets);
    s->buckets = NULL;
    drop_bf16(s);
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
    int n_replicas = opts->replicas->n_replicas;
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
    DT_TRY(dt_stepper_set_source(s, NULL));
    step_drop(s);
    s->o.graph = graph;
    s->o.plan = plan;
    s->o.first_step = step;
    DT_TRY(step_build(s));
    DT_TRY(dt_stepper_set_scaler(s, &scaler));
    return source ? dt_stepper_set_source(s, source) : DT_OK;
}

dt_status dt_stepper_set_source(dt_stepper *s, dt_batch_source *source) {
    return s->engine->set_source(s, source);
}

dt_team *dt_stepper_team(dt_stepper *s) {
    return s->team;
}
