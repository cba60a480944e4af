// embedding_cpu.c: rows of a table (V,D) by ids, and the table's gradient.
//
// The gradient of a row is the sum of the rows of dy at the id's places, in their order, which is then added to
// what is there. CUDA uses the same order, so f32 has the same bits there, and accumulating two gradients gives
// the bits of adding them. One thread. The places of an id are a linked list, built in two passes over the ids,
// whatever the size of the table. An id outside the table gives zeros and no gradient: a step cannot fail, and
// the loader checks ids.
#include "backend/cpu/custom_kernel.h"

#include <string.h>

typedef struct embedding_state {
    int type; // of y, dy
    int64_t n_ids, n_rows, width;
    const dt_simd_elementwise *simd;
} embedding_state;

static dt_status read(dt_kernel_instance *s, embedding_state *st, const dt_value_info *ids,
                      const dt_value_info *table, const dt_value_info *y) {
    if (!ids || !table || !y || ids->dtype != DT_I32 || table->dtype != DT_F32 ||
        table->shape.n != 2)
        return dt_custom_fail(s, "wants i32 ids and an f32 table (V,D)");
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){y}, 1));
    st->n_ids = dt_shape_elements(&ids->shape);
    st->n_rows = table->shape.d[0];
    st->width = table->shape.d[1];
    st->simd = dt_simd_get()->elementwise;
    return DT_OK;
}

static bool is_row(const embedding_state *st, int32_t id) {
    return id >= 0 && id < st->n_rows;
}

static dt_status prepare_forward(dt_kernel_instance *s) {
    embedding_state *st = dt_custom_prepare(s, sizeof(*st));
    return read(s, st, dt_instance_in(s, 0), dt_instance_in(s, 1), dt_instance_out(s, 0));
}

static void run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const embedding_state *st = s->state;
    const int32_t *ids = r->in[0];
    const float *table = r->in[1];
    size_t row_bytes = (size_t)st->width * dt_row_size(st->type);
    for (int64_t i = 0; i < st->n_ids; i++) {
        char *y = (char *)r->out[0] + (size_t)i * row_bytes;
        const float *row = table + ids[i] * st->width;
        if (!is_row(st, ids[i]))
            memset(y, 0, row_bytes);
        else if (st->type == DT_ROW_F32)
            memcpy(y, row, row_bytes);
        else
            st->simd->to_bf16(y, row, st->width);
    }
}

static dt_status prepare_backward(dt_kernel_instance *s) {
    embedding_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(read(s, st, dt_instance_in(s, 0), dt_instance_out(s, 1),
                dt_instance_in(s, dt_pos_grad(s, 0))));
    if (st->n_ids > INT32_MAX) return dt_custom_fail(s, "has more places than an i32 counts");
    s->scratch_bytes = (size_t)st->width * sizeof(float) +
                       (size_t)(st->n_rows + st->n_ids) * sizeof(int32_t); // sum, first, next
    return DT_OK;
}

// first[id]: the id's first place; next[i]: the next place with the id of place i; -1: none. `first` is set
// only for ids that occur, because a table may have many more rows than there are places.
static void list_places(const embedding_state *st, const int32_t *ids, int32_t *first,
                        int32_t *next) {
    for (int64_t i = 0; i < st->n_ids; i++)
        if (is_row(st, ids[i])) first[ids[i]] = -1;
    for (int64_t i = st->n_ids - 1; i >= 0; i--) {
        if (!is_row(st, ids[i])) continue;
        next[i] = first[ids[i]];
        first[ids[i]] = (int32_t)i;
    }
}

static void run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const embedding_state *st = s->state;
    const int32_t *ids = r->in[0];
    const void *dy = r->in[dt_pos_grad(s, 0)];
    float *table = r->out[1];
    float *sum = r->scratch;
    int32_t *first = (int32_t *)(sum + st->width), *next = first + st->n_rows;
    if (!(r->accumulate >> 1 & 1))
        memset(table, 0, (size_t)(st->n_rows * st->width) * sizeof(float));
    list_places(st, ids, first, next);
    for (int64_t at = 0; at < st->n_ids; at++) {
        if (!is_row(st, ids[at]) || first[ids[at]] != at) continue;
        memset(sum, 0, (size_t)st->width * sizeof(float));
        for (int32_t i = (int32_t)at; i >= 0; i = next[i])
            st->simd->accumulate[st->type](sum, dt_row_at(st->type, dy, i * st->width), st->width);
        st->simd->accumulate[DT_ROW_F32](table + ids[at] * st->width, sum, st->width);
    }
}

const dt_kernel dt_cpu_embedding = {prepare_forward, run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_embedding_bwd = {prepare_backward, run_backward, dt_custom_destroy};
