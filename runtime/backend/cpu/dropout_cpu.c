// dropout_cpu.c: y = keep ? x / (1 - p) : 0. Backward applies the same function to dy. The mask is a pure
// function of (seed, step, slot, forward node's name, logical element within the sample), so backward computes
// it again. DENSE, so that memory order is the logical order.
#include "backend/cpu/custom_kernel.h"

#include "base/hash.h"

typedef struct dropout_state {
    int type, in_at, whole;
    float p;
    uint32_t purpose;
    int64_t per_sample, n;
    const dt_simd_elementwise *simd;
} dropout_state;

static dt_status dropout_cpu_prepare(dt_kernel_instance *s) {
    const dt_node *node = s->node;
    const int in_at = node->backward ? dt_pos_grad(s, 0) : 0;
    const dt_value_info *x = dt_instance_in(s, in_at);
    dropout_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, dt_instance_out(s, 0)}, 2));
    st->in_at = in_at;
    st->p = node->attrs.dropout.p;
    st->whole = node->attrs.dropout.whole;
    st->purpose = dt_hash32(dt_graph_origin(s->graph, node)->name);
    st->n = dt_shape_elements(&x->shape);
    st->per_sample = x->shape.n ? st->n / x->shape.d[0] : 1;
    st->simd = dt_simd_get()->elementwise;
    s->inplace_in = in_at;
    return DT_OK;
}

typedef struct dropout_call {
    const dropout_state *st;
    const dt_step_block *step;
    void *y;
    const void *x;
} dropout_call;

static void dropout_cpu_range(const void *ctx, int64_t begin, int64_t end) {
    const dropout_call *c = ctx;
    const dropout_state *st = c->st;
    while (begin < end) {
        int64_t sample = begin / st->per_sample, at = begin % st->per_sample;
        int64_t n = st->per_sample - at, lead = at % 4;
        if (n > end - begin) n = end - begin;
        dt_rng rng = {c->step->seed, c->step->slot + (uint32_t)sample, c->step->step, st->purpose};
        const void *x = dt_row_at(st->type, c->x, begin);
        void *y = dt_row_at_mut(st->type, c->y, begin);
        if (st->whole) {
            const bool keep = dt_rng_uniform(&rng, 0) >= st->p;
            st->simd->scale[st->type](y, x, keep ? 1.0f / (1.0f - st->p) : 0.0f, n);
        } else if (lead) { // starts inside a block of four numbers: go to its end
            if (n > 4 - lead) n = 4 - lead;
            for (int64_t i = 0; i < n; i++) {
                bool keep = dt_rng_uniform(&rng, (uint32_t)(at + i)) >= st->p;
                st->simd->scale[st->type](dt_row_at_mut(st->type, y, i), dt_row_at(st->type, x, i),
                                          keep ? 1.0f / (1.0f - st->p) : 0.0f, 1);
            }
        } else
            st->simd->dropout[st->type](y, x, &rng, st->p, (uint32_t)at, n);
        begin += n;
    }
}

static void dropout_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const dropout_state *st = s->state;
    dropout_call c = {st, r->step, r->out[0], r->in[st->in_at]};
    dt_custom_ranges(s->threads, st->n, dropout_cpu_range, &c);
}

const dt_kernel dt_cpu_dropout = {dropout_cpu_prepare, dropout_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_dropout_bwd = {dropout_cpu_prepare, dropout_cpu_run, dt_custom_destroy};
