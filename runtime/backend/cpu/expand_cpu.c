// expand_cpu.c: expand and sum (graph/ops/expand.c), DENSE. The larger tensor's dimensions, neighbours of a kind merged,
// are kept or repeated in turn. A thread has whole strips of the result, so sums have a fixed order; they are of f64.
#include "backend/cpu/custom_kernel.h"

#include <string.h>

enum { STRIP = 64 }; // elements of a row that are summed at once

typedef struct expand_state {
    int type, n;
    int64_t size[DT_MAX_DIMS]; // of the larger tensor
    int64_t step[DT_MAX_DIMS]; // elements in the smaller one for one along each; 0: repeated
    int64_t inner;             // of the last dimension
    int64_t n_rows, n_strips;  // of the result: rows, and strips of a row
} expand_state;

static dt_status expand_cpu_prepare(dt_kernel_instance *s) {
    const bool sum = s->node->op == DT_OP_sum;
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    const dt_shape *big = sum ? &x->shape : &y->shape, *small = sum ? &y->shape : &x->shape;
    expand_state *st = dt_custom_prepare(s, sizeof *st);
    int64_t at = 1;
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    for (int i = 0; i < big->n; i++) {
        const bool repeated = small->d[i] != big->d[i], last = st->n > 0 && st->step[st->n - 1] == 0;
        if (big->d[i] == 1) continue;
        if (st->n > 0 && repeated == last) {
            st->size[st->n - 1] *= big->d[i];
            continue;
        }
        st->step[st->n] = repeated ? 0 : 1;
        st->size[st->n++] = big->d[i];
    }
    if (st->n == 0) st->n = 1, st->size[0] = st->step[0] = 1;
    for (int i = st->n - 1; i >= 0; i--)
        if (st->step[i]) st->step[i] = at, at *= st->size[i];
    st->inner = st->size[st->n - 1];
    st->n_rows = st->n_strips = 1;
    for (int i = 0; i < st->n - 1; i++)
        if (!sum || st->step[i]) st->n_rows *= st->size[i];
    if (sum && st->step[st->n - 1]) st->n_strips = (st->inner + STRIP - 1) / STRIP;
    return DT_OK;
}

static void expand_cpu_put(const expand_state *st, void *y, int64_t i, const float *v, int64_t n) {
    if (st->type == DT_ROW_BF16)
        dt_simd_get()->elementwise->to_bf16((uint16_t *)y + i, v, n);
    else
        memcpy((float *)y + i, v, (size_t)n * sizeof *v);
}

// ---- expand: row `row` of y --------------------------------------------------------------------------
static void expand_row(const void *ctx, int64_t row, int64_t end) {
    const dt_one_to_one *c = ctx;
    const expand_state *st = c->state;
    const size_t each = dt_row_size(st->type);
    int64_t from = 0;
    for (int64_t d = st->n - 2, rest = row; d >= 0; rest /= st->size[d--]) from += rest % st->size[d] * st->step[d];
    char *to = dt_row_at_mut(st->type, c->y, row * st->inner);
    const char *x = dt_row_at(st->type, c->x, from);
    if (st->step[st->n - 1] == 1) {
        memcpy(to, x, (size_t)st->inner * each);
        return;
    }
    for (int64_t i = 0; i < st->inner; i++) memcpy(to + (size_t)i * each, x, each);
}

static void expand_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const expand_state *st = s->state;
    dt_custom_items(s->threads, st->n_rows, expand_row, &(dt_one_to_one){st, r->out[0], r->in[0]});
}

// ---- sum: a strip of a row of y ----------------------------------------------------------------------
static inline void expand_cpu_add_up(double *sum, const void *x, int64_t n, bool keeps, int type) {
    for (int64_t i = 0; i < n; i++) sum[keeps ? i : i % STRIP] += (double)dt_row_get(type, x, i);
}

static void sum_strip(const void *ctx, int64_t item, int64_t end) {
    const dt_one_to_one *c = ctx;
    const expand_state *st = c->state;
    const int last = st->n - 1;
    const bool keeps = st->step[last] == 1;
    const int64_t first = keeps ? item % st->n_strips * STRIP : 0;
    const int64_t n = keeps && st->inner - first > STRIP ? STRIP : st->inner - first;
    double sum[STRIP] = {0};
    float out[STRIP];
    int64_t place[DT_MAX_DIMS] = {0}, to = 0;
    for (int64_t d = last - 1, rest = item / st->n_strips; d >= 0; d--)
        if (st->step[d]) {
            place[d] = rest % st->size[d], rest /= st->size[d];
            to += place[d] * st->step[d];
        }
    for (int d = 0; d >= 0;) { // over all places of the repeated dimensions
        int64_t from = 0;
        for (int k = 0; k < last; k++) from = from * st->size[k] + place[k];
        const void *x = dt_row_at(st->type, c->x, from * st->inner + first);
        if (st->type == DT_ROW_BF16)
            expand_cpu_add_up(sum, x, n, keeps, DT_ROW_BF16);
        else
            expand_cpu_add_up(sum, x, n, keeps, DT_ROW_F32);
        for (d = last - 1; d >= 0; d--) {
            if (st->step[d]) continue;
            if (++place[d] < st->size[d]) break;
            place[d] = 0;
        }
    }
    for (int i = 1; !keeps && i < STRIP; i++) sum[0] += sum[i];
    for (int64_t i = 0; i < (keeps ? n : 1); i++) out[i] = (float)sum[i];
    expand_cpu_put(st, c->y, to + first, out, keeps ? n : 1);
}

static void expand_cpu_run_sum(const dt_kernel_instance *s, const dt_run *r) {
    const expand_state *st = s->state;
    dt_custom_items(s->threads, st->n_rows * st->n_strips, sum_strip, &(dt_one_to_one){st, r->out[0], r->in[0]});
}

const dt_kernel dt_cpu_expand = {expand_cpu_prepare, expand_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_sum = {expand_cpu_prepare, expand_cpu_run_sum, dt_custom_destroy};
