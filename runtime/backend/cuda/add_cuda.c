// add_cuda.c: host side of y = a + b. If b has a's shape, any layout works, in place. Otherwise b lacks leading
// dimensions and is added to each of the `outer` slices of a (DENSE). b may be f32 beside a narrower a: a parameter.
// The backward pass sums dy over the leading dimensions to get b's gradient (kernels/add_kernels.h).
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/add_kernels.h"

enum { SUM_BLOCKS = 512, SUM_ROWS = 4, FLOW_ROWS = 8 };

typedef struct add_state {
    dt_map_state map; // same shape
    bool same;
    int type, row_type;
    dt_cols c;
} add_state;

// Returns whether b has the trailing dimensions of a. Leading dimensions of length 1 in b are ignored.
static bool add_cuda_trailing(const dt_shape *a, const dt_shape *b) {
    int skip = 0;
    while (skip < b->n && b->d[skip] == 1) skip++;
    const int n = b->n - skip;
    if (n > a->n) return false;
    for (int i = 0; i < n; i++)
        if (b->d[skip + i] != a->d[a->n - n + i]) return false;
    return true;
}

static dt_status add_cuda_prepare_forward(dt_kernel_instance *s) {
    const dt_layout layout = s->in_layout[0];
    const dt_value_info *a = dt_instance_in(s, 0), *b = dt_instance_in(s, 1);
    add_state *st = dt_cuda_prepare(s, sizeof *st);
    DT_TRY(dt_cuda_type(s, &st->type, a, dt_instance_out(s, 0)));
    st->row_type = b->dtype;
    if (b->dtype != DT_F32 && b->dtype != a->dtype)
        return dt_cuda_fail(s, "cannot add %s to %s: insert a cast", dt_dtype_name(b->dtype), dt_dtype_name(a->dtype));
    s->inplace_in = 0;
    st->same = dt_shape_equal(&a->shape, &b->shape) && b->kind == DT_V_TEMP && b->dtype == a->dtype;
    if (st->same) {
        st->map = (dt_map_state){.type = st->type, .d_at = 1, .n = dt_shape_elements(&a->shape)};
        s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = layout;
        return DT_OK;
    }
    if (!add_cuda_trailing(&a->shape, &b->shape))
        return dt_cuda_fail(s, "the second shape is not the end of the first");
    const int64_t inner = dt_shape_elements(&b->shape);
    st->c = dt_cols_flow(inner ? dt_shape_elements(&a->shape) / inner : 0, inner, FLOW_ROWS);
    s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = dt_dense();
    return DT_OK;
}

static void add_cuda_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const add_state *st = s->state; // its first member is what dt_map_run reads
    if (st->same) {
        dt_map_run(s, r, DT_K_add_same);
        return;
    }
    const dt_add_args a = {
        .c = st->c, .x = r->in[0], .row = r->in[1], .out = r->out[0], .type = st->type, .row_type = st->row_type};
    dt_cuda_launch(dt_cuda_of(s), DT_K_add_row, dt_cols_grid(&a.c), &a, r->stream);
}

static dt_status add_cuda_prepare_backward(dt_kernel_instance *s) {
    const dt_value_info *dy = dt_instance_in(s, dt_cuda_pos_grad(s, 0)), *db = dt_instance_out(s, 1);
    add_state *st = dt_cuda_prepare(s, sizeof *st);
    DT_TRY(dt_cuda_type(s, &st->type, dy, NULL));
    s->in_layout[dt_cuda_pos_grad(s, 0)] = s->out_layout[1] = dt_dense();
    if (!dt_dtype_is_float(db->dtype) || !add_cuda_trailing(&dy->shape, &db->shape))
        return dt_cuda_fail(s, "the second gradient is not the end of the first, in floats");
    const int64_t inner = dt_shape_elements(&db->shape);
    st->c = dt_cols_make(inner ? dt_shape_elements(&dy->shape) / inner : 0, inner, SUM_BLOCKS, SUM_ROWS);
    st->row_type = db->dtype;
    if (st->c.n_chunks > 1) s->scratch_bytes = (size_t)(st->c.n_chunks * st->c.padded) * sizeof(float);
    return DT_OK;
}

static void add_cuda_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const add_state *st = s->state;
    dt_cuda *c = dt_cuda_of(s);
    const dt_add_args a = {.c = st->c,
                           .x = r->in[dt_cuda_pos_grad(s, 0)],
                           .out = r->out[1],
                           .partial = st->c.n_chunks > 1 ? r->scratch : NULL,
                           .type = st->type,
                           .row_type = st->row_type,
                           .accumulate = r->accumulate >> 1 & 1};
    dt_cuda_launch(c, DT_K_sum_rows, dt_cols_grid(&a.c), &a, r->stream);
    if (!a.partial) return;
    const dt_cuda_grid g = {.blocks = (st->c.cols + 31) / 32, .threads = 1024};
    dt_cuda_launch(c, DT_K_sum_chunks, g, &a, r->stream);
}

const dt_kernel dt_cuda_add = {add_cuda_prepare_forward, add_cuda_run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_add_bwd = {add_cuda_prepare_backward, add_cuda_run_backward, dt_cuda_destroy};
