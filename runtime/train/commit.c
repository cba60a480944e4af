// commit.c: the end of a step on the CPU. From here on every rank does the same work on the same bits, so there is
// nothing to agree on.
//
// Norms are sums over fixed chunks in chunk order, in double: who computed a chunk never matters. The gradient is
// that of a sum over samples; the optimizer applies 1/weight and clipping as one factor while it reads it.

#include "train/step_internal.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

static dt_status find_rules(struct dt_stepper *s) {
    const dt_graph *g = s->o.graph;
    s->rules = dt_xcalloc((size_t)g->n_updates + 1, sizeof *s->rules);
    for (int i = 0; i < g->n_updates; i++) {
        const dt_buffer_update *u = &g->updates[i];
        int buffer = dt_params_find(s->o.params, g->values[u->buffer].name, true);
        int stat = dt_params_find_stat(s->o.params, g->values[u->stat].name);
        if (buffer < 0 || stat < 0)
            return dt_fail(DT_E_INTERNAL, "graph '%s': no place for the running statistic '%s'",
                           g->name, g->values[u->buffer].name);
        s->rules[s->n_rules++] = (dt_commit_rule){.buffer = s->o.params->buffers[buffer].offset,
                                                  .stat = s->o.params->stats[stat].offset,
                                                  .count = s->o.params->buffers[buffer].count,
                                                  .momentum = u->momentum};
    }
    return DT_OK;
}

dt_status commit_init(struct dt_stepper *s) {
    const dt_params *p = s->o.params;
    s->n_chunks = (p->n_trained + DT_CHUNK - 1) / DT_CHUNK;
    s->partial = dt_xcalloc((size_t)s->n_chunks + 1, sizeof *s->partial);
    dt_optimizer_args *o = &s->optimizer;
    *o = s->o.optimizer;
    const bool norms = dt_optimizers[o->kind].norms;
    o->segments = s->segments =
        dt_params_segments(p, s->o.first_step, s->o.weight_decay, norms, &o->n_segments);
    if (norms) {
        o->norms = dt_xcalloc((size_t)dt_optimizer_n_norms(o) + 1, 2 * sizeof *o->norms);
        o->ratios = dt_xcalloc((size_t)o->n_segments + 1, sizeof *o->ratios);
    }
    o->master = p->master;
    o->average = p->average;
    for (int i = 0; i < p->n_slots; i++) o->slots[i] = p->slots[i];
    if (dt_optimizers[o->kind].factored) {
        int64_t n_sums;
        o->factored = dt_params_factored(p, s->o.first_step, &o->n_factored, &n_sums);
        o->column_sums = dt_xcalloc((size_t)n_sums + 1, sizeof *o->column_sums);
    }
    o->grad = p->grads[0];
    if (o->clip_agc > 0) o->tensors = dt_params_clip_tensors(p, &o->n_tensors);
    return find_rules(s);
}

void commit_fini(struct dt_stepper *s) {
    free(s->partial);
    free(s->segments);
    free((void *)(uintptr_t)s->optimizer.tensors);
    free((void *)(uintptr_t)s->optimizer.factored);
    free(s->optimizer.column_sums);
    free(s->optimizer.norms);
    free(s->optimizer.ratios);
    free(s->rules);
    s->partial = NULL;
    s->segments = NULL;
    s->rules = NULL;
    s->n_rules = 0;
    s->optimizer = (dt_optimizer_args){0};
}

// Calls work(s, begin, end) on the team, each thread with its share of n elements: whole chunks, in order.
typedef void work_fn(struct dt_stepper *s, int64_t begin, int64_t end);
typedef struct shares {
    struct dt_stepper *s;
    work_fn *work;
    int64_t n;
} shares;

static void run_share(void *arg, int worker) {
    const shares *x = arg;
    const int64_t chunks = (x->n + DT_CHUNK - 1) / DT_CHUNK, n_workers = dt_team_size(x->s->team);
    int64_t begin = chunks * worker / n_workers * DT_CHUNK;
    int64_t end = chunks * (worker + 1) / n_workers * DT_CHUNK;
    if (end > x->n) end = x->n;
    if (begin < end) x->work(x->s, begin, end);
}

static void divide(struct dt_stepper *s, int64_t n, work_fn *work) {
    dt_team_run(s->team, run_share, &(shares){s, work, n});
}

static void add(struct dt_stepper *s, int64_t begin, int64_t end) {
    s->backend->flat_add(s->backend, s->add_to, s->add_from, begin, end);
}

void commit_add_flats(struct dt_stepper *s, float *to, const float *from) {
    s->add_to = to;
    s->add_from = from;
    divide(s, s->o.params->n_grad, add);
}

static void sum_squares(struct dt_stepper *s, int64_t begin, int64_t end) {
    s->backend->flat_sum_squares(s->backend, s->o.params->grads[0], s->o.params->n_trained,
                                 s->partial, begin / DT_CHUNK, (end + DT_CHUNK - 1) / DT_CHUNK);
}

static void clip_rows(void *arg, int worker) {
    struct dt_stepper *s = arg;
    const dt_optimizer_args *o = &s->optimizer;
    const dt_clip_tensor *last = &o->tensors[o->n_tensors - 1];
    const int64_t n = last->first + last->n, n_workers = dt_team_size(s->team);
    s->backend->flat_clip(s->backend, o, n * worker / n_workers, n * (worker + 1) / n_workers);
}

// Whole tensors, divided among the threads by their elements.
static void factor_part(void *arg, int worker) {
    struct dt_stepper *s = arg;
    const dt_optimizer_args *o = &s->optimizer;
    const int64_t n = s->o.params->n_trained, n_workers = dt_team_size(s->team);
    for (int i = 0; i < o->n_factored; i++) {
        const dt_factored *t = &o->factored[i];
        const int64_t middle = t->offset + t->rows * t->cols / 2;
        if (middle * n_workers / n != worker) continue;
        if (!s->backend->flat_factor(s->backend, o, i, i + 1)) s->spoiled = true;
    }
}

static void measure(struct dt_stepper *s, int64_t begin, int64_t end) {
    s->backend->flat_norms(s->backend, &s->optimizer, begin, end);
}

static void optimize(struct dt_stepper *s, int64_t begin, int64_t end) {
    if (!s->backend->flat_optimize(s->backend, &s->optimizer, begin, end))
        atomic_store_explicit(&s->spoiled, true, memory_order_relaxed);
}

static void repack_part(void *arg, int worker) {
    struct dt_stepper *s = arg;
    dt_params_repack_part(s->o.params, worker, dt_team_size(s->team));
}

static void move_running_statistics(struct dt_stepper *s) {
    float inverse = 1.0f / (float)s->o.replicas->n_micro;
    for (int i = 0; i < s->n_rules; i++) {
        const dt_commit_rule *r = &s->rules[i];
        float *buffer = s->o.params->buffer + r->buffer;
        const float *stat = s->o.params->grads[0] + r->stat;
        for (int64_t k = 0; k < r->count; k++)
            buffer[k] = (1.0f - r->momentum) * buffer[k] + r->momentum * (stat[k] * inverse);
        for (int64_t k = 0; k < r->count; k++)
            if (!isfinite(buffer[k])) s->spoiled = true;
        float *average = s->o.params->buffer_average + r->buffer;
        for (int64_t k = 0; s->o.params->average && k < r->count; k++)
            average[k] += (buffer[k] - average[k]) * s->optimizer.average_rate;
    }
}

bool commit_add_statistics(const struct dt_stepper *s, double *sums) {
    const float *flat = s->o.params->grads[0];
    for (int i = 0; i < s->n_rules; i++) {
        const dt_commit_rule *r = &s->rules[i];
        for (int64_t k = 0; k < r->count; k++)
            sums[r->buffer + k] += (double)flat[r->stat + k] / (double)s->o.replicas->n_micro;
    }
    return flat[s->drop_at] == 0.0f;
}

void commit_set_statistics(struct dt_stepper *s, const double *sums, double n_steps) {
    for (int i = 0; i < s->n_rules; i++) {
        const dt_commit_rule *r = &s->rules[i];
        for (int64_t k = r->buffer; k < r->buffer + r->count; k++)
            s->o.params->buffer[k] = (float)(sums[k] / n_steps);
    }
}

// ---- fp16, imitated --------------------------------------------------------------------------------
// The gradient is rounded to what fp16 holds, and everything that follows from an overflow is as on a GPU
// (cuda/kernels/commit_kernels.h): the step is skipped and the scale halved; after GROWTH_INTERVAL finite steps it doubles.

float commit_loss_scale(const struct dt_stepper *s) {
    return s->o.loss_scaling ? s->scaler.scale : 1.0f;
}

// To 11 bits, fewer below 2^-14; from 65520 on infinite.
static float round_to_fp16(float x) {
    if (!(fabsf(x) < 65520.0f)) return x * INFINITY;
    int exponent;
    (void)frexpf(x, &exponent);
    const float unit = ldexpf(1.0f, (exponent < -13 ? -13 : exponent) - 11);
    return rintf(x / unit) * unit;
}

static void round_gradient(struct dt_stepper *s, int64_t begin, int64_t end) {
    float *grad = s->o.params->grads[0];
    for (int64_t i = begin; i < end; i++) grad[i] = round_to_fp16(grad[i]);
}

static void back_off(struct dt_stepper *s, dt_step_result *out) {
    if (!s->o.loss_scaling || s->scaler.scale <= 1.0f) return;
    s->scaler.scale *= 0.5f;
    s->scaler.clean_steps = 0;
    s->scaler.n_skipped++;
    out->skipped = true;
}

static void grow(struct dt_stepper *s) {
    if (!s->o.loss_scaling || ++s->scaler.clean_steps < GROWTH_INTERVAL) return;
    s->scaler.clean_steps = 0;
    if (s->scaler.scale < (float)MOST_SCALE) s->scaler.scale *= 2.0f;
}

void commit_run(struct dt_stepper *s, double lr, dt_step_result *out) {
    const float *flat = s->o.params->grads[0];
    out->stop = flat[s->stop_at] != 0.0f;
    out->dropped = flat[s->drop_at] != 0.0f;
    if (out->dropped) return;
    if (s->o.loss_scaling) divide(s, s->o.params->n_trained, round_gradient);
    divide(s, s->o.params->n_trained, sum_squares);
    double sum = 0.0;
    for (int64_t c = 0; c < s->n_chunks; c++) sum += s->partial[c];
    const double weight = (double)flat[s->weight_at], scale = (double)commit_loss_scale(s);
    out->loss = (double)flat[s->loss_at] / weight;
    out->grad_norm = sqrt(sum) / (weight * scale);
    out->finite = isfinite(out->loss) && isfinite(out->grad_norm);
    if (!out->finite) back_off(s, out);
    out->scaler = s->scaler;
    if (!out->finite) return;
    double clip = 1.0;
    if (s->o.clip_norm > 0.0f && out->grad_norm > (double)s->o.clip_norm)
        clip = (double)s->o.clip_norm / (out->grad_norm + 1e-6);
    s->optimizer.grad_scale = (float)(clip / (weight * scale));
    s->optimizer.lr = (float)lr;
    s->optimizer.t = s->step + 1;
    s->optimizer.n_skipped = s->scaler.n_skipped;
    if (s->optimizer.n_tensors) dt_team_run(s->team, clip_rows, s);
    if (s->optimizer.n_factored) dt_team_run(s->team, factor_part, s);
    if (s->optimizer.norms) {
        divide(s, s->o.params->n_trained, measure);
        dt_optimizer_find_ratios(&s->optimizer);
    }
    divide(s, s->o.params->n_trained, optimize);
    move_running_statistics(s);
    if (s->spoiled) {
        out->spoiled = true;
        out->finite = false;
        return;
    }
    grow(s);
    out->scaler = s->scaler;
    dt_team_run(s->team, repack_part, s);
}
