// weights_cuda.c: see weights_cuda.h. Kernels in kernels/weights_kernels.h.
//
// The key of a packed copy hashes the parameters' names, the type and what was folded in. Forward and backward,
// training and evaluation therefore share a copy.
#include "backend/cuda/weights_cuda.h"

#include "base/core.h"
#include "base/hash.h"

#include <string.h>

struct dt_cuda_pack {
    dt_cuda *c;
    int64_t n_out, n_in, n_taps; // (O, I/g, R*S)
    bool fold, has_bias;
    dt_tap_fold tap_fold;
    float eps; // of the folded batch norm
    int type;
};

// Output channels, input channels of a group and taps of a weight (O,I) or (O,I,R,S).
static void weights_cuda_divide(const dt_shape *s, int64_t *n_out, int64_t *n_in, int64_t *n_taps) {
    *n_out = s->d[0];
    *n_in = s->d[1];
    *n_taps = s->n > 2 ? s->d[2] * s->d[3] : 1;
}

dt_tap_fold dt_cuda_tap_fold(const dt_shape *s, int stride) {
    const int rows = (int)s->d[2], cols = (int)s->d[3];
    // rows and columns of the weight; folded taps per row
    return (dt_tap_fold){stride, (int)s->d[1], rows, cols, (cols + stride - 1) / stride};
}

// As `divide` does, of the folded weight.
static void divide_folded(const dt_shape *s, const dt_tap_fold *f, int64_t *n_out, int64_t *n_in, int64_t *n_taps) {
    *n_out = s->d[0];
    *n_in = (f->stride * f->stride * f->n_in + 7) / 8 * 8;            // channels of a folded pixel, padded to 8
    *n_taps = (f->rows + f->stride - 1) / f->stride * f->taps_across; // folded taps
}

static uint64_t weights_cuda_key_of(const dt_kernel_instance *s, const dt_pack_request *r, const dt_cuda_pack *p,
                                    uint64_t form) {
    // what the bytes depend on, besides the parameters' values
    uint64_t h[12] = {form, (uint64_t)p->type, p->fold, (uint64_t)r->n_params | (uint64_t)p->tap_fold.stride << 32, 0};
    memcpy(&h[4], &p->eps, sizeof p->eps);
    for (int i = 0; i < r->n_params; i++) {
        const char *name = s->graph->values[r->params[i]].name;
        h[5 + i] = dt_hash64(name, strlen(name)); // at most five names
    }
    return dt_hash64(h, sizeof h);
}

static dt_cuda_pack *new_pack(const dt_kernel_instance *s, dt_dtype type, const dt_fold *fold) {
    dt_cuda_pack *p = dt_xcalloc(1, sizeof *p);
    p->c = dt_cuda_of(s);
    p->type = type;
    p->fold = fold && fold->on; // NULL: nothing is folded
    p->eps = p->fold ? fold->eps : 0.0f;
    return p;
}

// dense: weight, or weight, scale, var
static void weights_cuda_pack_weight(const void *ctx, const float *const *dense, void *packed, int threads,
                                     void *stream) {
    const dt_cuda_pack *p = ctx;
    dt_pack_args a = {.x = dense[0],
                      // KRSC: taps, then input channels
                      .out = packed,
                      .n_out = p->n_out,
                      .n_in = p->n_in,
                      .n_taps = p->n_taps,
                      .fold = p->tap_fold,
                      .eps = p->eps,
                      .type = p->type};
    if (p->fold) {
        a.scale = dense[1];
        a.var = dense[2];
    }
    dt_cuda_launch(p->c, DT_K_pack_weight, dt_cuda_grid_flat(p->c, p->n_out * p->n_in * p->n_taps), &a, stream);
}

// dense: bias, or scale, shift, mean, var[, bias]
static void weights_cuda_pack_bias(const void *ctx, const float *const *dense, void *packed, int threads,
                                   void *stream) {
    const dt_cuda_pack *p = ctx;
    dt_pack_args a = {.out = packed, .n_out = p->n_out, .eps = p->eps, .type = p->type};
    if (p->fold) {
        a.scale = dense[0];
        a.shift = dense[1];
        a.mean = dense[2];
        a.var = dense[3];
    }
    if (p->has_bias) a.x = dense[p->fold ? 4 : 0];
    dt_cuda_launch(p->c, DT_K_pack_bias, dt_cuda_grid_flat(p->c, p->n_out), &a, stream);
}

dt_cuda_pack *dt_cuda_pack_weight(dt_kernel_instance *s, dt_value weight, dt_dtype type, const dt_fold *fold,
                                  const dt_tap_fold *tap_fold) {
    const dt_shape *shape = &s->graph->values[weight].shape;
    dt_cuda_pack *p = new_pack(s, type, fold);
    dt_pack_request *r = &s->packs[s->n_packs++];
    weights_cuda_divide(shape, &p->n_out, &p->n_in, &p->n_taps);
    if (tap_fold) {
        p->tap_fold = *tap_fold;
        divide_folded(shape, tap_fold, &p->n_out, &p->n_in, &p->n_taps);
    }
    *r = (dt_pack_request){.n_params = 1,
                           .params = {weight},
                           .n_bytes = (size_t)(p->n_out * p->n_in * p->n_taps) * dt_dtype_size(type),
                           .pack = weights_cuda_pack_weight,
                           .ctx = p};
    if (p->fold) {
        r->params[r->n_params++] = fold->scale; // repacked when the statistics move
        r->params[r->n_params++] = fold->var;
    } else if (!tap_fold) {
        // a plain form: the optimizer's kernel writes it (commit_cuda.c)
        r->form = (dt_pack_form){type, (uint32_t)p->n_in, (uint32_t)p->n_taps};
    }
    r->key = weights_cuda_key_of(s, r, p, 0x6b727363 /* "krsc" */);
    return p;
}

dt_cuda_pack *dt_cuda_pack_bias(dt_kernel_instance *s, dt_value bias, int64_t n, dt_dtype type, const dt_fold *fold) {
    dt_cuda_pack *p = new_pack(s, type, fold);
    dt_pack_request *r = &s->packs[s->n_packs++];
    p->n_out = n;
    p->has_bias = bias != DT_NONE;
    *r = (dt_pack_request){.n_bytes = (size_t)n * dt_dtype_size(type), .pack = weights_cuda_pack_bias, .ctx = p};
    if (p->fold) {
        const dt_value params[4] = {fold->scale, fold->shift, fold->mean, fold->var};
        for (int i = 0; i < 4; i++) r->params[r->n_params++] = params[i];
    }
    if (p->has_bias) r->params[r->n_params++] = bias;
    if (p->has_bias && !p->fold) r->form = (dt_pack_form){type, 1, 1};
    r->key = weights_cuda_key_of(s, r, p, 0x62696173 /* "bias" */);
    return p;
}

bool dt_cuda_pack_is_copy(const dt_value_info *weight, dt_dtype type) {
    int64_t n_out, n_in, n_taps;
    weights_cuda_divide(&weight->shape, &n_out, &n_in, &n_taps);
    return type == DT_F32 && (n_in == 1 || n_taps == 1); // KRSC equals KCRS, and f32 needs no copy
}

void dt_cuda_store_weight_grad(dt_cuda *c, const dt_shape *weight, const dt_tap_fold *tap_fold, const void *packed,
                               dt_dtype type, float *flat, bool add, void *stream) {
    dt_weight_grad_args a = {.packed = packed, .flat = flat, .type = type, .add = add};
    weights_cuda_divide(weight, &a.n_out, &a.n_in, &a.n_taps);
    if (tap_fold) {
        a.fold = *tap_fold;
        divide_folded(weight, tap_fold, &a.n_out, &a.n_in, &a.n_taps);
    }
    a.by_out = dt_quot_of(a.n_in * a.n_taps); // divisions by multiplication
    a.by_taps = dt_quot_of(a.n_taps);
    // an element for each thread: most weights are small, and all of the time is latency
    const dt_cuda_grid g = {.blocks = (a.n_out * a.n_in * a.n_taps + 255) / 256, .threads = 256};
    dt_cuda_launch(c, DT_K_weight_grad, g, &a, stream);
}

// ---- sums over rows --------------------------------------------------------------------------------
enum { LEAST_ROWS_A_RUN = 64, MOST_RUNS = 512 }; // rows per partial sum; partial sums at most

static int64_t rows_a_run(int64_t n_rows) {
    const int64_t rows = (n_rows + MOST_RUNS - 1) / MOST_RUNS;
    // depends on the number of rows alone: fixed order of additions
    return rows < LEAST_ROWS_A_RUN ? LEAST_ROWS_A_RUN : rows;
}

size_t dt_cuda_column_bytes(int64_t n_rows, int64_t n_cols) {
    const int64_t rows = rows_a_run(n_rows);
    return dt_cuda_align((size_t)((n_rows + rows - 1) / rows * n_cols) * sizeof(float));
}

void dt_cuda_sum_columns(dt_cuda *c, const void *x, dt_dtype type, int64_t n_rows, int64_t n_cols, float *out, bool add,
                         void *scratch, void *stream) {
    dt_column_sum_args a = {.x = x,
                            .partial = scratch,
                            .out = out,
                            .n_rows = n_rows,
                            .n_cols = n_cols,
                            .rows_a_run = rows_a_run(n_rows),
                            .type = type,
                            .add = add};
    a.n_runs = (n_rows + a.rows_a_run - 1) / a.rows_a_run; // partial sums per column
    const int64_t tiles = (n_cols + DT_COLUMNS - 1) / DT_COLUMNS;
    dt_cuda_launch(c, DT_K_column_sum_runs, (dt_cuda_grid){.blocks = a.n_runs * tiles, .threads = DT_COLUMN_THREADS},
                   &a, stream);
    // adds the runs in order
    dt_cuda_launch(c, DT_K_column_sum, (dt_cuda_grid){.blocks = (n_cols + 127) / 128, .threads = 128}, &a, stream);
}

// ---- plans -----------------------------------------------------------------------------------------
void dt_cuda_run_dnn(const dt_kernel_instance *s, const dt_cuda_plan *p, void *const *ptr, const dt_run *r) {
    dt_cuda *c = dt_cuda_of(s);
    // errors surface later: see cuda_backend.h
    dt_cuda_check(c, c->api->dnn_run(c->api, p->plan, ptr, r->scratch, r->stream),
                  s->node->op == DT_OP_sdpa ? "running attention" : "running a convolution");
}

void dt_cuda_run_gemm(const dt_kernel_instance *s, const dt_cuda_plan *p, const void *a, const void *b, void *d,
                      bool add, const void *bias, void *aux, const dt_run *r) {
    dt_cuda *c = dt_cuda_of(s);
    dt_cuda_check(c, c->api->gemm_run(c->api, p->plan, a, b, d, add, (void *)bias, aux, r->scratch, r->stream),
                  "running a matmul");
}
