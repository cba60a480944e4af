// cuda_backend.h: what the files of the CUDA backend share: its state, and how an op's host side prepares and
// launches. Plain C over cuda_api.h.
//
// Queued work cannot report a failure at once. run(), copies and waits therefore remember the first error and where it
// happened; dt_device.synchronize and capture_end report it.
#ifndef DT_BACKEND_CUDA_BACKEND_H
#define DT_BACKEND_CUDA_BACKEND_H

#include "backend/backend.h"
#include "backend/cuda/cuda_api.h"
#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/nccl_api.h"

enum { DT_ATTENTION_BYTES = 32 << 20 };

typedef struct dt_cuda {
    dt_cuda_api *api;
    int index; // of the device
    dt_cuda_device_info info;
    bool deterministic, tf32, unsummed;
    int world_size;
    int64_t attention_bytes;           // of scores at a time without cuDNN (sdpa_cuda.c); a test lowers it
    void *shared[4];                   // memory allocated by NCCL
    struct dt_cuda_plans *plans;       // cuda_plans.h
    struct dt_cuda_plans *timed_plans; // while `plans` are for sizes alone (dt_device.size_only)
    void *event;                       // of stream_wait
    int error;                         // the first error, and what was being done
    char error_where[160];
    dt_device device;
    char text[512];
} dt_cuda;

// Creates a backend on device `index` of the table. The tables must outlive it; nccl may be NULL.
dt_status dt_cuda_backend_create(dt_backend **out, dt_cuda_api *api, const dt_nccl_api *nccl, int index,
                                 const dt_backend_opts *opts);
static inline dt_cuda *dt_cuda_self(const dt_backend *b) {
    return (dt_cuda *)b->self;
}
static inline dt_cuda *dt_cuda_of(const dt_kernel_instance *s) {
    return dt_cuda_self(s->backend);
}
static inline dt_cuda_demands dt_cuda_demands_of(const dt_cuda *c) {
    return (dt_cuda_demands){.deterministic = c->deterministic, .tf32 = c->tf32, .unsummed = c->unsummed};
}
// Remembers the first error (0 is none) with where it happened.
void dt_cuda_check(dt_cuda *c, int error, const char *where);

// ---- prepare ---------------------------------------------------------------------------------------
// Positions among a backward node's inputs: forward output i, gradient of forward output i.
static inline int dt_cuda_pos_out(const dt_kernel_instance *s, int i) {
    return s->node->n_fwd_in + i;
}
static inline int dt_cuda_pos_grad(const dt_kernel_instance *s, int i) {
    return s->node->n_fwd_in + s->node->n_fwd_out + i;
}
// The preferred layout of a value: 4-d activations NHWC, everything else DENSE.
static inline dt_layout dt_cuda_layout(const dt_value_info *v) {
    return v && v->kind == DT_V_TEMP && v->shape.n == 4 ? (dt_layout){.kind = DT_NHWC} : dt_dense();
}
// Sets all layouts to those of dt_cuda_layout, no scratch, nothing in place; allocates a zeroed state of n_bytes.
void *dt_cuda_prepare(dt_kernel_instance *s, size_t n_state_bytes);
// The same with all layouts DENSE.
void *dt_cuda_prepare_dense(dt_kernel_instance *s, size_t n_state_bytes);
void dt_cuda_destroy(dt_kernel_instance *s); // frees the state and the contexts of packed copies
// Returns st. If it is a failure, frees the state first.
static inline dt_status dt_cuda_kept(dt_kernel_instance *s, dt_status st) {
    if (st != DT_OK) dt_cuda_destroy(s);
    return st;
}
// Frees the state and fails as dt_instance_fail does: the plan does not destroy a kernel instance that was refused.
#define dt_cuda_fail(s, ...) (dt_cuda_destroy(s), dt_instance_fail(s, __VA_ARGS__))
// Stores in *type the one float type (f32, bf16, f16) that all values must have. NULL values are skipped.
#define dt_cuda_type(s, type, ...)                                                                                     \
    dt_cuda_type_of(s, type, sizeof(const void *[]){__VA_ARGS__} / sizeof(void *),                                     \
                    (const dt_value_info *[]){__VA_ARGS__})
dt_status dt_cuda_type_of(dt_kernel_instance *s, int *type, int n, const dt_value_info *const *infos);

// Blocks of 256 threads for n elements, eight per thread and iteration, at most as many as fill the device.
dt_cuda_grid dt_cuda_grid_flat(const dt_cuda *c, int64_t n);
void dt_cuda_launch(dt_cuda *c, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *stream);

void dt_cuda_reorder(dt_backend *b, int threads, const dt_shape *shape, const void *src, dt_dtype src_type,
                     dt_layout src_layout, void *dst, dt_dtype dst_type, dt_layout dst_layout, void *stream);

// ---- dt_device.count, rates (count_cuda.c) -----------------------------------------------------------
void dt_cuda_count(dt_backend *b, dt_cost_counter *c);
dt_device_rates dt_cuda_rates(const dt_cuda_device_info *d);

// ---- flat buffers (see dt_device) -------------------------------------------------------------------------
void dt_cuda_flat_swap(dt_backend *b, float *x, float *y, int64_t n, void *stream);
void dt_cuda_flat_add(dt_backend *b, float *dst, const float *src, int64_t n, void *stream);
dt_status dt_cuda_commit_create(dt_backend *b, const dt_commit_args *a, void **commit);
void dt_cuda_commit_phase(dt_backend *b, void *commit, dt_commit_phase phase, const float *grad, void *stream);
double *dt_cuda_commit_sums(dt_backend *b, void *commit, dt_commit_phase phase, int64_t *n);
void dt_cuda_commit_destroy(dt_backend *b, void *commit);

#define OP(id, min_in, max_in, n_out, amp, cpu, cuda) DT_KERNEL_DECLARE_##cuda(dt_cuda_##id)
#include "graph/ops.def"
#undef OP

#endif
