// cuda_backend.h: what the files of the CUDA backend share: its state, how an op's host side prepares and
// launches, the kernels' names. Plain C over cuda_api.h.
//
// Nothing that is queued can fail on the spot: run(), copies and waits remember the first error, with where
// it happened, and dt_device.synchronize and capture_end report it.
#ifndef DT_BACKEND_CUDA_BACKEND_H
#define DT_BACKEND_CUDA_BACKEND_H

#include "backend/backend.h"
#include "backend/cuda/cuda_api.h"
#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/nccl_api.h"

typedef struct dt_cuda {
    dt_cuda_api *api;
    int index; // of the device
    dt_cuda_device_info info;
    bool deterministic, tf32;
    int world_size;
    void *shared[4];             // memory that is NCCL's
    struct dt_cuda_plans *plans; // cuda_plans.h
    void *event;                 // of stream_wait
    int error;                   // the first, and what was being done
    char error_where[160];
    dt_device device;
    char text[512];
} dt_cuda;

// A backend on device `index` of the table's. The tables must outlive it; nccl may be NULL.
dt_status dt_cuda_backend_create(dt_backend **out, dt_cuda_api *api, const dt_nccl_api *nccl,
                                 int index, const dt_backend_opts *opts);
static inline dt_cuda *dt_cuda_self(const dt_backend *b) {
    return (dt_cuda *)b->self;
}
static inline dt_cuda *dt_cuda_of(const dt_site *s) {
    return dt_cuda_self(s->backend);
}
static inline dt_cuda_demands dt_cuda_demands_of(const dt_cuda *c) {
    return (dt_cuda_demands){.deterministic = c->deterministic, .tf32 = c->tf32};
}
// Remembers the first error (0 is none) with where it happened.
void dt_cuda_check(dt_cuda *c, int error, const char *where);
// The remembered error as a failure with what to do; forgets nothing.
dt_status dt_cuda_status(dt_cuda *c);

// ---- prepare ---------------------------------------------------------------------------------------
// Positions among a backward node's inputs: forward output i, gradient of forward output i.
static inline int dt_cuda_pos_out(const dt_site *s, int i) {
    return s->node->n_fwd_in + i;
}
static inline int dt_cuda_pos_grad(const dt_site *s, int i) {
    return s->node->n_fwd_in + s->node->n_fwd_out + i;
}
// Where values lie on CUDA: 4-d activations NHWC, all else DENSE.
static inline dt_layout dt_cuda_layout(const dt_value_info *v) {
    return v && v->kind == DT_V_TEMP && v->shape.n == 4 ? (dt_layout){DT_NHWC, 0} : dt_dense();
}
// All inputs and outputs as dt_cuda_layout says, no scratch, nothing in place; state of n_bytes (zeroed).
void *dt_cuda_prepare(dt_site *s, size_t n_state_bytes);
// The same with all of them DENSE.
void *dt_cuda_prepare_dense(dt_site *s, size_t n_state_bytes);
void dt_cuda_destroy(dt_site *s); // frees the state and the contexts of packed copies
// st; where it is a failure, the state is freed.
static inline dt_status dt_cuda_kept(dt_site *s, dt_status st) {
    if (st != DT_OK) dt_cuda_destroy(s);
    return st;
}
// Frees the state and fails as dt_site_fail: a refused site is not destroyed.
#define dt_cuda_fail(s, ...) (dt_cuda_destroy(s), dt_site_fail(s, __VA_ARGS__))
// The one float type (f32, bf16, f16) of values that must agree, into *type; NULL values are skipped.
#define dt_cuda_type(s, type, ...)                                                                 \
    dt_cuda_type_of(s, type, sizeof(const void *[]){__VA_ARGS__} / sizeof(void *),                 \
                    (const dt_value_info *[]){__VA_ARGS__})
dt_status dt_cuda_type_of(dt_site *s, int *type, int n, const dt_value_info *const *infos);

// ---- run -------------------------------------------------------------------------------------------
// Blocks of 256 threads for n elements, eight a thread and turn, at most what fills the device.
dt_cuda_grid dt_cuda_grid_flat(const dt_cuda *c, int64_t n);
void dt_cuda_launch(dt_cuda *c, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *stream);

void dt_cuda_reorder(dt_backend *b, int threads, const dt_shape *shape, const void *src,
                     dt_dtype src_type, dt_layout src_layout, void *dst, dt_dtype dst_type,
                     dt_layout dst_layout, void *stream);

// ---- slabs (see dt_device) -------------------------------------------------------------------------
void dt_cuda_slab_add(dt_backend *b, float *dst, const float *src, int64_t n, void *stream);
dt_status dt_cuda_commit_create(dt_backend *b, const dt_commit_args *a, void **commit);
void dt_cuda_commit_run(dt_backend *b, void *commit, const float *grad, void *stream);
void dt_cuda_commit_destroy(dt_backend *b, void *commit);

#define CUDA_KERNEL(op, forward, backward) extern const dt_kernel forward, backward;
#define CUDA_KERNEL_FORWARD(op, forward)   extern const dt_kernel forward;
#include "backend/cuda/cuda_kernels.def"
#undef CUDA_KERNEL
#undef CUDA_KERNEL_FORWARD

#endif
