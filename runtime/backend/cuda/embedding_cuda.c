// embedding_cuda.c: host side of embedding lookup and of the table's gradient (kernels/embedding_kernels.h).
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/embedding_kernels.h"

typedef struct embedding_state {
    int type; // of y, dy
    int64_t n_ids, n_rows, width;
} embedding_state;

static dt_status read(dt_kernel_instance *s, const dt_value_info *table, const dt_value_info *y) {
    const dt_value_info *ids = dt_instance_in(s, 0);
    embedding_state *st = dt_cuda_prepare_dense(s, sizeof *st);
    if (!ids || !table || !y || ids->dtype != DT_I32 || table->dtype != DT_F32 ||
        table->shape.n != 2)
        return dt_cuda_fail(s, "wants i32 ids and an f32 table (V,D)");
    DT_TRY(dt_cuda_type(s, &st->type, y));
    st->n_ids = dt_shape_elements(&ids->shape);
    st->n_rows = table->shape.d[0];
    st->width = table->shape.d[1];
    return DT_OK;
}
static dt_status prepare_forward(dt_kernel_instance *s) {
    return read(s, dt_instance_in(s, 1), dt_instance_out(s, 0));
}
static dt_status prepare_backward(dt_kernel_instance *s) {
    return read(s, dt_instance_out(s, 1), dt_instance_in(s, dt_cuda_pos_grad(s, 0)));
}

static dt_embedding_args args_of(const dt_kernel_instance *s, const dt_run *r) {
    const embedding_state *st = s->state;
    return (dt_embedding_args){.ids = r->in[0],
                               .n_ids = st->n_ids,
                               .n_rows = st->n_rows,
                               .width = st->width,
                               .type = st->type};
}
static void run_forward(const dt_kernel_instance *s, const dt_run *r) {
    dt_embedding_args a = args_of(s, r);
    a.table = r->in[1], a.out = r->out[0];
    const dt_cuda_grid g = {.blocks = a.n_ids, .threads = a.width <= 64 ? 64 : 256};
    if (a.n_ids) dt_cuda_launch(dt_cuda_of(s), DT_K_embed_fwd, g, &a, r->stream);
}
static void run_backward(const dt_kernel_instance *s, const dt_run *r) {
    dt_cuda *c = dt_cuda_of(s);
    dt_embedding_args a = args_of(s, r);
    a.dy = r->in[dt_cuda_pos_grad(s, 0)], a.out = r->out[1];
    if (!(r->accumulate >> 1 & 1))
        dt_cuda_check(
            c, c->api->zero(c->api, a.out, (size_t)(a.n_rows * a.width) * sizeof(float), r->stream),
            "clearing a table's gradient");
    const dt_cuda_grid g = {.blocks = a.n_ids, .threads = DT_EMBED_THREADS};
    if (a.n_ids) dt_cuda_launch(c, DT_K_embed_bwd, g, &a, r->stream);
}

const dt_kernel dt_cuda_embedding = {prepare_forward, run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_embedding_bwd = {prepare_backward, run_backward, dt_cuda_destroy};
