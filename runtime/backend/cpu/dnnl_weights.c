// dnnl_weights.c: packing of parameters and placing of weight gradients (see dnnl_weights.h).
//
// The key of a packed copy hashes the parameters' names, how the dense weight is read, oneDNN's descriptor and
// what is folded. So forward and backward-data, training and evaluation share a copy wherever the format is the
// same. How the weight is read is part of the key: forward and backward of a square linear layer want the same
// descriptor, one for the matrix and one for its transpose. Everything that packing needs (reorder, folded
// copy, scratchpad) is made with the request. A pack function runs on one thread at a time and allocates
// nothing.
#include "backend/cpu/dnnl_weights.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/simd.h"
#include "base/core.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

struct dt_weight_pack {
    dt_dnnl_op *reorder;              // NULL: winograd or pairs
    const dt_winograd_conv *winograd; // instead of reorder
    bool pairs;                       // likewise: pack_pairs of whole columns of blocks
    int64_t n_out, n_per_out;         // weight as (n_out, n_per_out)
    bool fold, has_bias;              // fold: scale rows by the batch norm's gain first
    float eps;
    float *folded; // n_out * n_per_out
    void *scratch;
};

// dense: how the weight is read, or NULL
static uint64_t dnnl_weights_pack_key(const dt_kernel_instance *s, const dt_pack_request *r,
                                      const dt_dnnl_tensor *dense, uint64_t md, bool fold, float eps) {
    uint64_t h[10] = {md, (uint64_t)fold, (uint64_t)r->n_params, 0}; // md, fold, n_params, eps, and up to six names
    memcpy(&h[3], &eps, sizeof eps);
    if (dense && dense->format == DT_DNNL_STRIDED) // a transposed view has the same descriptor
        h[0] ^= dt_hash64(dense->stride, (size_t)dense->n * sizeof *dense->stride);
    for (int i = 0; i < r->n_params; i++) {
        const char *name = s->graph->values[r->params[i]].name; // names, not values: copied graphs number values anew
        h[4 + i] = dt_hash64(name, strlen(name));
    }
    return dt_hash64(h, sizeof h);
}

void *dt_cpu_alloc64(size_t n) {
    void *p = NULL;
    if (posix_memalign(&p, 64, n ? dt_align_up(n, 64) : 64)) abort(); // 64: cache lines; no memory: the process ends
    return p;
}

// Twice as fast as oneDNN's reorder of the same matrix.
static void run_pairs(const dt_weight_pack *p, const float *w, uint16_t *to, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < p->n_per_out; i += 64) // 64 columns at a time: a column of blocks
        dt_simd_get()->rows->pack_pairs(to + i * p->n_out, w + i, p->n_out, p->n_per_out);
}

// Whether the matrix is read as it lies, and the format is that of pack_pairs without padding.
static bool is_pairs(const dt_dnnl_tensor *dense, dt_dnnl_md md) {
    dt_dnnl_tensor t = dt_dnnl_any(DT_BF16, dense->n, dense->d);
    t.format = DT_DNNL_PAIRS;
    // no transpose; blocks of 32 x 64 (DT_DNNL_PAIRS)
    return dense->n == 2 && dense->format == DT_DNNL_LAYOUT && dense->d[0] % 32 == 0 && dense->d[1] % 64 == 0 &&
           dt_dnnl_md_is(md, &t);
}

// dense: weight, or weight, scale, var
static void dnnl_weights_pack_weight(const void *ctx, const float *const *dense, void *packed, int threads,
                                     void *stream) {
    const dt_weight_pack *p = ctx;
    const float *w = dense[0];
    if (p->fold) {
        for (int64_t o = 0; o < p->n_out; o++) { // gain = scale / sqrt(var + eps), one per output channel
            const float gain = dt_fold_gain(dense[1], dense[2], o, p->eps);
            const float *from = w + o * p->n_per_out;
            float *to = p->folded + o * p->n_per_out;
            // fp32 products, before any rounding to bf16
            for (int64_t i = 0; i < p->n_per_out; i++) to[i] = from[i] * gain;
        }
        w = p->folded;
    }
    if (p->winograd)
        dt_winograd_pack(p->winograd, w, packed, threads);
    else if (p->pairs)
        run_pairs(p, w, packed, threads);
    else
        // worker group 0: packing is never concurrent
        dt_dnnl_op_run_threads(p->reorder, 0, threads, (const void *[]){w, packed}, p->scratch);
}

// dense: scale, shift, mean, var[, bias]
static void dnnl_weights_pack_bias(const void *ctx, const float *const *dense, void *packed, int threads,
                                   void *stream) {
    const dt_weight_pack *p = ctx;
    float *to = packed;
    for (int64_t o = 0; o < p->n_out; o++) {
        const float bias = p->has_bias ? dense[4][o] : 0.0f;
        // (bias - mean) * gain + shift
        to[o] = (bias - dense[2][o]) * dt_fold_gain(dense[0], dense[3], o, p->eps) + dense[1][o];
    }
}

dt_status dt_weight_pack_create(dt_weight_pack **out, const dt_kernel_instance *s, dt_pack_request *r, dt_value weight,
                                const dt_dnnl_tensor *dense, dt_dnnl_md md, const dt_winograd_conv *winograd,
                                const dt_fold *fold) {
    const dt_value_info *w = &s->graph->values[weight];
    if (w->kind != DT_V_PARAM || w->dtype != DT_F32) {
        return dt_instance_fail(s, "the weight '%s' must be an f32 parameter", w->name);
    }
    dt_weight_pack *p = dt_xcalloc(1, sizeof *p);
    *out = p;
    p->n_out = w->shape.d[0]; // output channels first, for convolution and linear alike
    p->n_per_out = dt_shape_elements(&w->shape) / p->n_out;
    p->winograd = winograd;
    *r = (dt_pack_request){.n_params = 1, .params = {weight}};
    if (winograd) {
        r->n_bytes = dt_winograd_packed_bytes(winograd);
    } else if (!fold->on && is_pairs(dense, md)) {
        p->pairs = true;
        r->n_bytes = dt_dnnl_md_bytes(md);
    } else {
        const dt_shape shape = dt_shape4(dense->d[0], dense->d[1], dense->d[2], dense->d[3]);
        // BLOCKED: custom depthwise kernels
        const dt_dnnl_tensor dst = md ? dt_dnnl_like(md) : dt_dnnl_laid_out(DT_F32, &shape, dt_blocked(dt_cpu_block()));
        // one memory object: packs run on one thread at a time
        const dt_dnnl_env env = {.threads = s->threads, .n_replicas = 1};
        DT_TRY(dt_dnnl_op_create_reorder(&p->reorder, &env, dense, &dst, false));
        p->scratch = dt_cpu_alloc64(dt_dnnl_op_scratch_bytes(p->reorder));
        md = dt_dnnl_op_md(p->reorder, 1);
        r->n_bytes = dt_dnnl_md_bytes(md);
    }
    if (fold->on) {
        p->fold = true;
        p->eps = fold->eps;
        p->folded = dt_cpu_alloc64((size_t)(p->n_out * p->n_per_out) * sizeof(float));
        // the pack depends on these, too: repacked when a statistic moves
        r->params[r->n_params++] = fold->scale;
        r->params[r->n_params++] = fold->var;
    }
    // the same key: one copy in memory
    r->key = dnnl_weights_pack_key(s, r, dense, winograd ? dt_winograd_pack_hash(winograd) : dt_dnnl_md_hash(md),
                                   p->fold, p->eps);
    r->pack = dnnl_weights_pack_weight;
    r->ctx = p;
    return DT_OK;
}

dt_status dt_bias_pack_create(dt_weight_pack **out, const dt_kernel_instance *s, dt_pack_request *r, dt_value bias,
                              int64_t n, const dt_fold *fold) {
    dt_weight_pack *p = dt_xcalloc(1, sizeof *p);
    *out = p;
    p->n_out = n;
    p->fold = true;
    p->has_bias = bias != DT_NONE;
    p->eps = fold->eps;
    *r = (dt_pack_request){.n_params = 4 + p->has_bias,
                           // in the order that the pack function reads
                           .params = {fold->scale, fold->shift, fold->mean, fold->var, bias},
                           .n_bytes = (size_t)n * sizeof(float)};
    // any constant that no descriptor hashes to
    r->key = dnnl_weights_pack_key(s, r, NULL, 0x62696173 /* "bias": no descriptor */, true, p->eps);
    r->pack = dnnl_weights_pack_bias;
    r->ctx = p;
    return DT_OK;
}

void dt_weight_pack_destroy(dt_weight_pack *p) {
    if (!p) return;
    dt_dnnl_op_destroy(p->reorder);
    free(p->folded);
    free(p->scratch);
    free(p);
}

dt_status dt_weight_grad_init(dt_weight_grad *g, const dt_dnnl_env *e, dt_dnnl_md md, const dt_dnnl_tensor *dense) {
    dt_dnnl_tensor src = dt_dnnl_like(md);
    // same: dense f32, so the primitive may write the flat buffer
    *g = (dt_weight_grad){.same = dt_dnnl_md_is(md, dense), .packed_bytes = dt_align_up(dt_dnnl_md_bytes(md), 64)};
    DT_TRY(dt_dnnl_op_create_reorder(&g->put, e, &src, dense, false));
    DT_TRY(dt_dnnl_op_create_reorder(&g->add, e, &src, dense, true));
    // put and add never run at once
    const size_t a = dt_dnnl_op_scratch_bytes(g->put), b = dt_dnnl_op_scratch_bytes(g->add);
    g->scratch_bytes = a > b ? a : b;
    return DT_OK;
}

void dt_weight_grad_fini(dt_weight_grad *g) {
    dt_dnnl_op_destroy(g->put);
    dt_dnnl_op_destroy(g->add);
}

void dt_weight_grad_store(const dt_weight_grad *g, int replica, float *flat, const void *packed, bool accumulate,
                          void *scratch) {
    if (g->same && !accumulate) return; // the primitive has written there
    dt_dnnl_op_run(accumulate ? g->add : g->put, replica, (const void *[]){packed, flat}, scratch);
}

void dt_cpu_store_sum(float *flat, const float *x, int64_t n, bool accumulate) {
    if (!accumulate) {
        memcpy(flat, x, (size_t)n * sizeof *flat);
        return;
    }
    for (int64_t i = 0; i < n; i++) flat[i] += x[i]; // one thread: a bias is short
}
