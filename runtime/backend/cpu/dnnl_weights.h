// dnnl_weights.h: moves parameters between the flat buffers (dense f32) and the formats of oneDNN's primitives.
//
// Forward and backward-data read packed copies. dt_weight_pack_create fills a request whose pack function
// reorders the dense f32 weight, optionally with a batch norm folded in, into the primitive's format and dtype, or
// transforms it for Winograd's convolution.
// A primitive writes weight gradients in its own format to scratch; dt_weight_grad moves them into the flat
// buffer, overwriting or adding.
#ifndef DT_BACKEND_CPU_DNNL_WEIGHTS_H
#define DT_BACKEND_CPU_DNNL_WEIGHTS_H

#include "backend/cpu/own_conv.h"
#include "backend/fold.h"

#include <math.h>

static inline float dt_fold_gain(const float *scale, const float *var, int64_t i, float eps) {
    return scale[i] / sqrtf(var[i] + eps);
}

typedef struct dt_weight_pack dt_weight_pack; // the context of a pack request

// `dense` describes the f32 master (outermost dimension(s) = output channels), `md` the wanted
// format, NULL: BLOCKED. winograd, if not NULL, says it instead, and outlives the request.
dt_status dt_weight_pack_create(dt_weight_pack **out, const dt_kernel_instance *s, dt_pack_request *r, dt_value weight,
                                const dt_dnnl_tensor *dense, dt_dnnl_md md, const dt_winograd_conv *winograd,
                                const dt_fold *fold);
// The folded bias, f32 dense (n channels); bias DT_NONE counts as zero.
dt_status dt_bias_pack_create(dt_weight_pack **out, const dt_kernel_instance *s, dt_pack_request *r, dt_value bias,
                              int64_t n, const dt_fold *fold);
void dt_weight_pack_destroy(dt_weight_pack *p);

// Moves a weight gradient from `md` (what the primitive writes) to the flat buffer (dense f32).
typedef struct dt_weight_grad {
    dt_dnnl_op *put, *add;
    bool same; // the primitive writes dense f32, so it can overwrite the flat buffer directly
    size_t packed_bytes;
    size_t scratch_bytes; // of put and add
} dt_weight_grad;
dt_status dt_weight_grad_init(dt_weight_grad *g, const dt_dnnl_env *e, dt_dnnl_md md, const dt_dnnl_tensor *dense);
void dt_weight_grad_fini(dt_weight_grad *g);
// Where the primitive should write: to the flat buffer or to the scratch of packed_bytes.
static inline void *dt_weight_grad_target(const dt_weight_grad *g, float *flat, void *packed, bool accumulate) {
    return g->same && !accumulate ? (void *)flat : packed;
}
// After the primitive has run.
void dt_weight_grad_store(const dt_weight_grad *g, int replica, float *flat, const void *packed, bool accumulate,
                          void *scratch);

void *dt_cpu_alloc64(size_t n); // for a cache line's alignment, until free(); aborts without memory

// flat buffer = x or flat buffer += x, on the calling thread (biases).
void dt_cpu_store_sum(float *flat, const float *x, int64_t n, bool accumulate);

#endif
