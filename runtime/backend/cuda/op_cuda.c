// op_cuda.c: what the <op>_cuda.c files share (see cuda_backend.h), and reorders.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/shape_kernels.h"
#include "backend/cuda/norm_tails.h"
#include "base/core.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static void *op_cuda_prepare(dt_kernel_instance *s, size_t n_state_bytes) {
    s->scratch_bytes = 0;
    s->inplace_in = -1; // nothing in place
    s->same_memory = false;
    s->n_packs = 0;
    return s->state = dt_xcalloc(1, n_state_bytes ? n_state_bytes : 1); // a state in any case: NULL means not prepared
}

void *dt_cuda_prepare(dt_kernel_instance *s, size_t n_state_bytes) {
    // 4 dimensions: NHWC, else DENSE
    for (int i = 0; i < s->node->n_in; i++) s->in_layout[i] = dt_cuda_layout(dt_instance_in(s, i));
    for (int i = 0; i < s->node->n_out; i++) s->out_layout[i] = dt_cuda_layout(dt_instance_out(s, i));
    return op_cuda_prepare(s, n_state_bytes);
}

void *dt_cuda_prepare_dense(dt_kernel_instance *s, size_t n_state_bytes) {
    for (int i = 0; i < s->node->n_in; i++) s->in_layout[i] = dt_dense();
    for (int i = 0; i < s->node->n_out; i++) s->out_layout[i] = dt_dense();
    return op_cuda_prepare(s, n_state_bytes);
}

void dt_cuda_destroy(dt_kernel_instance *s) {
    for (int i = 0; i < s->n_packs; i++) free((void *)s->packs[i].ctx); // contexts of packs are this node's
    s->n_packs = 0;
    free(s->state);
    s->state = NULL;
}

dt_status dt_cuda_type_of(dt_kernel_instance *s, int *type, int n, const dt_value_info *const *infos) {
    *type = -1; // -1: no operand seen
    for (int i = 0; i < n; i++) {
        if (!infos[i]) continue;
        if (!dt_dtype_is_float(infos[i]->dtype) || (*type >= 0 && (int)infos[i]->dtype != *type))
            return dt_cuda_fail(s, "%s is %s here: only tensors that are all f32, bf16 or f16", infos[i]->name,
                                dt_dtype_name(infos[i]->dtype));
        *type = infos[i]->dtype;
    }
    return DT_OK;
}

dt_cuda_grid dt_cuda_grid_flat(const dt_cuda *c, int64_t n) {
    // 8 blocks of 256 threads per multiprocessor, 8 elements per thread
    const int64_t most = (int64_t)c->info.n_sm * 8, want = (n + 2047) / 2048;
    return (dt_cuda_grid){.blocks = want < 1 ? 1 : want < most ? want : most, .threads = 256};
}

const char *const dt_cuda_kernel_names[] = {
#define CUDA_CUSTOM_KERNEL(name, args_t) #name,
#include "backend/cuda/cuda_custom_kernels.def"
#undef CUDA_CUSTOM_KERNEL
};

void dt_cuda_launch(dt_cuda *c, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *stream) {
    const int e = c->api->launch(c->api, k, g, args, stream);
    if (!e) return;
    char where[96];
    snprintf(where, sizeof where, "launching kernel %s (%lld blocks of %d)", dt_cuda_kernel_names[k],
             (long long)g.blocks, g.threads);
    dt_cuda_check(c, e, where);
}

void dt_cuda_reorder(dt_backend *b, int threads, const dt_shape *shape, const void *src, dt_dtype src_type,
                     dt_layout src_layout, void *dst, dt_dtype dst_type, dt_layout dst_layout, void *stream) {
    dt_cuda *c = dt_cuda_self(b);
    dt_reorder_args a = {.src = src, .dst = dst, .src_type = src_type, .dst_type = dst_type};
    const int64_t n = dt_shape_elements(shape);
    assert(src_layout.tail != &dt_cuda_norm); // x's memory holds gain and shift: nobody may reorder it
    src_layout.tail = NULL;                   // a tail stays behind
    if (dt_layout_equal(src_layout, dst_layout) || shape->n < 3) { // vectors have one order
        if (src_type == dst_type)
            dt_cuda_copy(c, dst, src, n * (int64_t)dt_dtype_size(src_type), stream);
        else
            dt_cuda_convert(c, dst, dst_type, src, src_type, n, stream);
        return;
    }
    const int64_t channels = shape->d[1], pixels = n / (shape->d[0] * channels);
    a.n = shape->d[0];
    a.n_rows = src_layout.kind == DT_DENSE ? channels : pixels; // a transposition per image
    a.n_cols = src_layout.kind == DT_DENSE ? pixels : channels;
    const int64_t tiles = // tiles of the plane
        ((a.n_rows + DT_REORDER_TILE - 1) / DT_REORDER_TILE) * ((a.n_cols + DT_REORDER_TILE - 1) / DT_REORDER_TILE);
    dt_cuda_launch(c, DT_K_reorder_planes, (dt_cuda_grid){.blocks = a.n * tiles, .threads = DT_REORDER_THREADS}, &a,
                   stream);
}
