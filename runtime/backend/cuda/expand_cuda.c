// expand_cuda.c: host side of expand and sum (graph/ops/expand.c; kernels/expand_kernels.h), DENSE.
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/copy_kernels.h"
#include "backend/cuda/kernels/expand_kernels.h"

// The larger tensor's dimensions: those that are kept, those that are repeated, and all with their steps in the smaller.
typedef struct expand_state {
    dt_places kept, summed; // steps of the larger tensor
    dt_permute_args all;
    int type;
} expand_state;

static void add_place(dt_places *p, int64_t size, int64_t step) {
    p->size[p->n] = size, p->step[p->n++] = step;
    p->count *= size;
}

static dt_status expand_cuda_prepare(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    expand_state *st = dt_cuda_prepare_dense(s, sizeof *st);
    DT_TRY(dt_cuda_type(s, &st->type, x, y));
    const bool sum = s->node->op == DT_OP_sum;
    const dt_shape *big = sum ? &x->shape : &y->shape, *small = sum ? &y->shape : &x->shape;
    int64_t step[DT_MAX_DIMS], small_step[DT_MAX_DIMS], at = 1, small_at = 1;
    for (int i = big->n - 1; i >= 0; i--) {
        step[i] = at, at *= big->d[i];
        small_step[i] = small->d[i] == big->d[i] ? small_at : 0, small_at *= small->d[i];
    }
    st->kept.count = st->summed.count = 1;
    st->all = (dt_permute_args){.n = big->n, .unit = (int)dt_dtype_size(x->dtype), .count = dt_shape_elements(big)};
    for (int i = 0; i < big->n; i++) {
        add_place(small->d[i] == big->d[i] ? &st->kept : &st->summed, big->d[i], step[i]);
        st->all.size[i] = big->d[i], st->all.step[i] = small_step[i];
    }
    return DT_OK;
}

static void expand_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    const expand_state *st = s->state;
    dt_permute_args a = st->all;
    a.x = r->in[0], a.out = r->out[0];
    const int64_t blocks = (a.count + 256 * DT_JOIN_EACH - 1) / (256 * DT_JOIN_EACH);
    dt_cuda_launch(dt_cuda_of(s), DT_K_permute, (dt_cuda_grid){.blocks = blocks, .threads = 256}, &a, r->stream);
}

static void expand_cuda_run_sum(const dt_kernel_instance *s, const dt_run *r) {
    const expand_state *st = s->state;
    dt_sum_args a = {
        .x = r->in[0], .out = r->out[0], .kept = st->kept, .summed = st->summed, .group = 1, .type = st->type};
    while (a.group < 256 && a.group * 8 < a.summed.count) a.group *= 2;
    const int64_t each = 256 / a.group, blocks = (a.kept.count + each - 1) / each;
    dt_cuda_launch(dt_cuda_of(s), DT_K_sum_dims, (dt_cuda_grid){.blocks = blocks, .threads = 256}, &a, r->stream);
}

const dt_kernel dt_cuda_expand = {expand_cuda_prepare, expand_cuda_run, dt_cuda_destroy};
const dt_kernel dt_cuda_sum = {expand_cuda_prepare, expand_cuda_run_sum, dt_cuda_destroy};
