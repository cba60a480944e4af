// commit.c: runs the phases of a commit (backend/commit.h), and what each of them is on the CPU: loops over flat
// buffers, divided over the team by chunks. Every rank does the same work on the same bits here, so that no rank has to
// ask another. With train.shard it does so for the chunks that it owns: sums of a chunk are added to the others' zeros,
// so that all ranks have all of them and decide alike, and then all get the weights from their owners.
//
// Norms are sums over fixed chunks in chunk order, in double: who computed a chunk never matters. The gradient is
// that of a sum over samples; dt_commit_decide (backend/commit.h) makes one factor of 1/weight and train.clip_norm, by
// which each optimizer multiplies the gradient while it reads it (grad_scale in backend/optimizers/). train.clip_agc
// is a phase of its own (flat_clip_agc).

#include "train/step.h"

#include "base/core.h"
#include "base/os.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static dt_status find_rules(struct dt_stepper *s) {
    const dt_graph *g = s->o.graph;
    dt_commit_rule *rules = dt_xcalloc((size_t)g->n_updates + 1, sizeof *rules); // + 1: never of 0 bytes
    s->commit.rules = rules;
    for (int i = 0; i < g->n_updates; i++) {
        const dt_buffer_update *u = &g->updates[i];
        int buffer = dt_params_find(s->o.params, g->values[u->buffer].name, true);
        int stat = dt_params_find_stat(s->o.params, g->values[u->stat].name);
        // a graph and a layout that do not belong together: a programming error that a user can still read
        if (buffer < 0 || stat < 0)
            return dt_fail(DT_E_INTERNAL, "graph '%s': no place for the running statistic '%s'", g->name,
                           g->values[u->buffer].name);
        rules[s->commit.n_rules++] = (dt_commit_rule){.buffer = s->o.params->buffers[buffer].offset,
                                                      .stat = s->o.params->stats[stat].offset,
                                                      .count = s->o.params->buffers[buffer].count,
                                                      .momentum = u->momentum};
    }
    return DT_OK;
}

static void fill_optimizer(struct dt_stepper *s) {
    const dt_params *p = s->o.params;
    dt_optimizer_args *o = &s->commit.optimizer;
    const bool norms = dt_optimizers[o->kind].norms;
    // decay and factors by tensor; several segments where groups differ
    o->segments = dt_params_segments(p, s->o.first_step, s->o.weight_decay, norms, s->o.always_adapt, &o->n_segments);
    if (norms) {
        // sums of squares of weights and of updates (LAMB, LARS)
        o->norms = dt_xcalloc((size_t)dt_optimizer_n_norms(o) + 1, 2 * sizeof *o->norms);
        o->ratios = dt_xcalloc((size_t)o->n_segments + 1, sizeof *o->ratios);
    }
    o->master = p->master;
    o->average = p->average;
    for (int i = 0; i < p->n_slots; i++) o->slots[i] = p->slots[i];
    if (dt_optimizers[o->kind].factored) {
        int64_t n_sums;
        o->factored = dt_params_factored(p, s->o.first_step, &o->n_factored, &n_sums);
        // scratch of Adafactor, by tensor
        o->column_sums = dt_xcalloc((size_t)n_sums + 1, sizeof *o->column_sums);
    }
    o->grad = p->grads[0]; // after the reduction the whole gradient is in buffer 0
    if (o->clip_agc > 0) o->tensors = dt_params_clip_tensors(p, &o->n_tensors);
}

dt_status dt_commit_init(struct dt_stepper *s) {
    const dt_params *p = s->o.params;
    const dt_graph *g = s->o.graph;
    const dt_stat_entry *loss = &p->stats[dt_params_find_stat(p, g->values[g->loss].name)];
    const dt_stat_entry *weight = &p->stats[dt_params_find_stat(p, g->values[g->loss_weight].name)];
    s->commit = (dt_commit_args){
        .optimizer = s->o.optimizer,
        .n_trained = p->n_trained,
        // offsets in the tail of the flat buffer, where sums of the step lie
        .limits = {.loss_at = loss->offset,
                   .weight_at = weight->offset,
                   // two elements of the gap behind the weight (dt_flat_extent)
                   .stop_at = weight->offset + weight->count,
                   .drop_at = weight->offset + weight->count + 1,
                   .clip_norm = s->o.clip_norm,
                   .growth_interval = s->o.loss_scaling ? GROWTH_INTERVAL : 0,
                   // a scale of 1 over the mean of a micro-batch
                   .least_scale = dt_commit_first_scale(s) / FIRST_SCALE},
        .buffer = p->buffer,
        .buffer_average = p->buffer_average,
        .n_micro = s->o.replicas->n_micro,
    };
    assert(s->commit.limits.drop_at < weight->offset + dt_flat_extent(weight->count));
    s->n_chunks = (p->n_trained + DT_CHUNK - 1) / DT_CHUNK;
    s->partial = dt_xcalloc((size_t)s->n_chunks + 1, sizeof *s->partial);
    fill_optimizer(s);
    return find_rules(s);
}

void dt_commit_fini(struct dt_stepper *s) {
    const dt_optimizer_args *o = &s->commit.optimizer;
    // const pointers of the arguments that commit allocated
    const void *const tables[] = {s->partial, o->segments,    o->tensors, o->factored,
                                  o->norms,   o->column_sums, o->ratios,  s->commit.rules};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) free((void *)(uintptr_t)tables[i]);
    s->partial = NULL;
    s->commit = (dt_commit_args){0};
}

dt_status dt_commit_run(struct dt_stepper *s) {
    s->commit_status = DT_OK;
    for (int p = 0; p < DT_N_COMMIT_PHASES; p++)
        if (!s->engine->phase(s, (dt_commit_phase)p)) break; // the phases that follow are left out
    return s->commit_status;
}

dt_step_result dt_commit_result(struct dt_stepper *s, const dt_step_numbers *n) {
    if (s->o.loss_scaling) s->scaler = (dt_scaler){n->next_scale, n->clean_steps, n->n_skipped};
    return (dt_step_result){.loss = n->loss / n->weight, // mean over the samples of all ranks
                            .grad_norm = n->grad_norm,
                            .finite = n->finite && !n->spoiled,
                            .spoiled = n->spoiled,
                            .skipped = !n->finite && !n->halted, // halted: the run ends, without loss scaling
                            .dropped = n->drop > 0 && !n->spoiled,
                            .stop = n->stop > 0,
                            .scaler = s->o.loss_scaling ? s->scaler : (dt_scaler){0}};
}

// ---- phases on the CPU -----------------------------------------------------------------------------

// Calls work(s, range) on the team for elements of ranges, each thread with its share of them: whole chunks, in order.
typedef void work_fn(struct dt_stepper *s, dt_own_range x);
typedef struct shares {
    struct dt_stepper *s;
    work_fn *work;
    const dt_own_range *ranges;
    int n;
} shares;

static void run_share(void *arg, int worker) {
    const shares *x = arg;
    const dt_own_range *last = &x->ranges[x->n - 1]; // at: compact position of the rank's own elements
    const int64_t n = last->at + last->end - last->begin, n_workers = dt_team_size(x->s->team);
    const int64_t chunks = (n + DT_CHUNK - 1) / DT_CHUNK;
    // whole chunks per thread: sums of a chunk have one author
    const int64_t from = chunks * worker / n_workers * DT_CHUNK;
    const int64_t to = chunks * (worker + 1) / n_workers * DT_CHUNK;
    for (int i = 0; i < x->n; i++) {
        dt_own_range r = x->ranges[i];
        // the thread's part of the range, by compact position
        const int64_t skipped = from > r.at ? from - r.at : 0;
        if (r.end - r.begin > to - r.at) r.end = r.begin + to - r.at;
        r.begin += skipped;
        r.at += skipped;
        if (r.begin < r.end) x->work(x->s, r);
    }
}

static void commit_divide(struct dt_stepper *s, const dt_own_range *ranges, int n, work_fn *work) {
    if (n) dt_team_run(s->team, run_share, &(shares){s, work, ranges, n});
}

static void divide_own(struct dt_stepper *s, work_fn *work) {
    commit_divide(s, s->o.params->own, s->o.params->n_own, work);
}

static void commit_add(struct dt_stepper *s, dt_own_range x) {
    s->backend->flat_add(s->backend, s->add_to, s->add_from, x.begin, x.end);
}

// s->add_to and add_from: the callback has no argument of its own
void dt_commit_add_flats(struct dt_stepper *s, float *to, const float *from) {
    s->add_to = to;
    s->add_from = from;
    commit_divide(s, &(dt_own_range){0, s->o.params->n_grad, 0}, 1, commit_add);
}

// Calls work for what this rank owns, which leaves sums of chunks in sums (n); then all ranks have all of them.
static bool sum_chunks(struct dt_stepper *s, work_fn *work, double *sums, int64_t n) {
    const bool sharded = s->o.params->sharded;
    // other ranks' chunks are zeros, so the sum over ranks is exact
    if (sharded) memset(sums, 0, (size_t)n * sizeof *sums);
    divide_own(s, work);
    if (sharded) s->commit_status = s->o.comm->all_reduce_f64(s->o.comm, sums, n);
    return s->commit_status == DT_OK;
}

// After the optimizer: every rank gets the weights from their owners, and hears whether all is finite.
static bool share_weights(struct dt_stepper *s) {
    const dt_params *p = s->o.params;
    dt_comm *c = s->o.comm;
    int64_t spoiled = s->spoiled; // one flag for all ranks
    if (!p->sharded) return true;
    const double begin = dt_clock_s();
    s->commit_status = dt_comm_all_gather_f32(c, p->master, p->n_trained);
    if (s->commit_status == DT_OK) s->commit_status = c->all_reduce_max_i64(c, &spoiled, 1);
    s->spoiled = spoiled > 0;
    s->share_s = dt_clock_s() - begin;
    return s->commit_status == DT_OK;
}

static void sum_squares(struct dt_stepper *s, dt_own_range x) {
    // by chunk: partial[k] has one writer
    s->backend->flat_sum_squares(s->backend, s->o.params->grads[0], s->o.params->n_trained, s->partial,
                                 x.begin / DT_CHUNK, (x.end + DT_CHUNK - 1) / DT_CHUNK);
}

static void clip_agc_rows(void *arg, int worker) {
    struct dt_stepper *s = arg;
    const dt_optimizer_args *o = &s->commit.optimizer;
    const dt_clip_tensor *last = &o->tensors[o->n_tensors - 1];
    // rows of all tensors, numbered through
    const int64_t n = last->first + last->n, n_workers = dt_team_size(s->team);
    s->backend->flat_clip_agc(s->backend, o, n * worker / n_workers, n * (worker + 1) / n_workers);
}

// Whole tensors, divided among the threads by their elements.
static void factor_part(void *arg, int worker) {
    struct dt_stepper *s = arg;
    const dt_optimizer_args *o = &s->commit.optimizer;
    const int64_t n = s->o.params->n_trained, n_workers = dt_team_size(s->team);
    for (int i = 0; i < o->n_factored; i++) {
        const dt_factored *t = &o->factored[i];
        // by the tensor's middle: each tensor has exactly one thread
        const int64_t middle = t->offset + t->rows * t->cols / 2;
        if (middle * n_workers / n != worker) continue;
        // several threads write true, none false
        if (!s->backend->flat_factor(s->backend, o, i, i + 1)) s->spoiled = true;
    }
}

// The optimizer's arguments for a range, whose state begins at its `at`.
static dt_optimizer_args commit_args_of(const struct dt_stepper *s, dt_own_range x) {
    dt_optimizer_args o = s->commit.optimizer;
    // moments are compact: slots begin with the range's own elements
    for (int i = 0; i < s->o.params->n_slots; i++) o.slots[i] += x.at;
    if (o.average) o.average += x.at;
    o.state_at = x.begin;
    return o;
}

static void commit_measure(struct dt_stepper *s, dt_own_range x) {
    const dt_optimizer_args o = commit_args_of(s, x);
    s->backend->flat_norms(s->backend, &o, x.begin, x.end);
}

static void optimize(struct dt_stepper *s, dt_own_range x) {
    const dt_optimizer_args o = commit_args_of(s, x);
    if (!s->backend->flat_optimize(s->backend, &o, x.begin, x.end))
        atomic_store_explicit(&s->spoiled, true, memory_order_relaxed); // relaxed: read after the team has joined
}

static void repack_part(void *arg, int worker) {
    struct dt_stepper *s = arg;
    dt_params_repack_part(s->o.params, worker, dt_team_size(s->team));
}

static void move_running_statistics(struct dt_stepper *s) {
    float inverse = 1.0f / (float)s->o.replicas->n_micro; // statistics are sums over micro-batches
    for (int i = 0; i < s->commit.n_rules; i++) {
        const dt_commit_rule *r = &s->commit.rules[i];
        float *buffer = s->o.params->buffer + r->buffer;
        const float *stat = s->o.params->grads[0] + r->stat;
        for (int64_t k = 0; k < r->count; k++)
            // PyTorch's batch norm: running = (1 - momentum) running + momentum batch
            buffer[k] = (1.0f - r->momentum) * buffer[k] + r->momentum * (stat[k] * inverse);
        for (int64_t k = 0; k < r->count; k++)
            if (!isfinite(buffer[k])) s->spoiled = true;
        float *average = s->o.params->buffer_average + r->buffer;
        for (int64_t k = 0; s->o.params->average && k < r->count; k++)
            average[k] += (buffer[k] - average[k]) * s->commit.optimizer.average_rate; // rate = 1 - train.ema
    }
}

bool dt_commit_add_statistics(const struct dt_stepper *s, double *sums) {
    int64_t first = s->commit.limits.drop_at; // where the sums of statistics begin in a flat buffer
    for (int i = 0; i < s->commit.n_rules; i++)
        if (s->commit.rules[i].stat < first) first = s->commit.rules[i].stat;
    const int64_t n = s->o.params->n_grad - first;
    const float *stats = s->o.params->grads[0] + first;
    float *pulled = NULL;
    // the tail alone, not the gradient
    if (s->backend->device) {
        pulled = dt_xcalloc((size_t)n, sizeof *pulled);
        s->backend->copy_to_host(s->backend, pulled, stats, (size_t)n * sizeof *pulled);
        stats = pulled;
    }
    for (int i = 0; i < s->commit.n_rules; i++) {
        const dt_commit_rule *r = &s->commit.rules[i];
        for (int64_t k = 0; k < r->count; k++)
            // double: means over many steps
            sums[r->buffer + k] += (double)stats[r->stat - first + k] / (double)s->o.replicas->n_micro;
    }
    // drop_at is behind the statistics, in the same copy
    const bool kept = stats[s->commit.limits.drop_at - first] == 0.0f;
    free(pulled);
    return kept;
}

void dt_commit_set_statistics(struct dt_stepper *s, const double *sums, double n_steps) {
    for (int i = 0; i < s->commit.n_rules; i++) {
        const dt_commit_rule *r = &s->commit.rules[i];
        float *to = s->o.params->buffer + r->buffer, *x = dt_xcalloc((size_t)r->count, sizeof *x);
        // rounded once, after the mean
        for (int64_t k = 0; k < r->count; k++) x[k] = (float)(sums[r->buffer + k] / n_steps);
        if (s->backend->device)
            s->backend->copy_to_device(s->backend, to, x, (size_t)r->count * sizeof *x);
        else
            memcpy(to, x, (size_t)r->count * sizeof *x);
        free(x);
    }
}

// ---- fp16, emulated --------------------------------------------------------------------------------
// The gradient of a micro-batch, on the average, is rounded to what fp16 holds; what follows from an overflow is
// dt_commit_decide's, as on a GPU.

// The power of two nearest to n, by their ratio.
static float power_near(int n) {
    return ldexpf(1.0f, (int)lroundf(log2f((float)n)));
}

float dt_commit_first_scale(const struct dt_stepper *s) {
    // PyTorch's scale is of a mean loss, ours of a sum (step.h)
    return s->o.loss_scaling ? FIRST_SCALE / power_near(s->o.micro_batch) : 1.0f;
}

float dt_commit_loss_scale(const struct dt_stepper *s) {
    return s->o.loss_scaling ? s->scaler.scale : 1.0f;
}

// Rounds x to the 11 bits of an fp16 number, fewer below 2^-14; from 65520 on it is infinite.
static float round_to_fp16(float x) {
    if (!(fabsf(x) < 65520.0f)) return x * INFINITY; // infinity keeps its sign; NaN stays NaN
    int exponent;
    (void)frexpf(x, &exponent);
    // the distance of neighbouring fp16 numbers; 2^-24 for subnormals
    const float unit = ldexpf(1.0f, (exponent < -13 ? -13 : exponent) - 11);
    return rintf(x / unit) * unit; // to even, as hardware rounds
}

static void round_gradient(struct dt_stepper *s, dt_own_range x) {
    float *grad = s->o.params->grads[0];
    const float n = power_near(s->o.replicas->n_micro); // a power of two: dividing loses no bits
    for (int64_t i = x.begin; i < x.end; i++) grad[i] = round_to_fp16(grad[i] / n) * n;
}

static bool train_commit_decide(struct dt_stepper *s) {
    // the CPU's state in the form that the device keeps
    dt_device_step now = {.block = {.loss_scale = dt_commit_loss_scale(s)},
                          .clean_steps = s->scaler.clean_steps,
                          .n_skipped = s->scaler.n_skipped};
    double squares = 0, factor;
    // in chunk order: the same on any number of threads
    for (int64_t c = 0; c < s->n_chunks; c++) squares += s->partial[c];
    const bool commit = dt_commit_decide(&s->commit.limits, s->o.params->grads[0], squares, &now, &s->numbers, &factor);
    s->commit.optimizer.grad_scale = (float)factor;
    s->commit.optimizer.t = s->step + 1;                 // 1-based, of the bias correction
    s->commit.optimizer.n_skipped = s->scaler.n_skipped; // skipped steps do not count there
    return commit;
}

bool dt_commit_phase_host(struct dt_stepper *s, dt_commit_phase phase) {
    const dt_optimizer_args *o = &s->commit.optimizer;
    switch (phase) {
    case DT_COMMIT_NORM:
        if (s->o.loss_scaling) divide_own(s, round_gradient); // before the norm: an overflow must show in it
        return sum_chunks(s, sum_squares, s->partial, s->n_chunks);
    case DT_COMMIT_DECIDE:
        return train_commit_decide(s);
    case DT_COMMIT_CLIP_AGC:
        if (o->n_tensors) dt_team_run(s->team, clip_agc_rows, s);
        return true;
    case DT_COMMIT_MEASURE:
        // tensors are whole on a rank: factored state is not sharded
        if (o->n_factored) dt_team_run(s->team, factor_part, s);
        if (!o->norms) return true;
        if (!sum_chunks(s, commit_measure, o->norms, 2 * dt_optimizer_n_norms(o))) return false;
        dt_optimizer_find_ratios(o);
        return true;
    case DT_COMMIT_OPTIMIZE:
        divide_own(s, optimize);
        return share_weights(s);
    case DT_COMMIT_STATISTICS:
        move_running_statistics(s);
        s->numbers.spoiled = s->spoiled;
        return !s->spoiled;
    case DT_COMMIT_PACK:
        dt_team_run(s->team, repack_part, s);
        return true;
    }
    return false;
}
