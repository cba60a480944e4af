// dnnl_shim.h: the part of oneDNN that dtrain uses, as one small API over its versions 2.6 and 3.x.
//
// The versions differ in how descriptors are made (structs or opaque handles, op descriptors or one call per
// primitive), so no other file includes dnnl.h. The API has one object:
//
//   dt_dnnl_op   a primitive, its descriptor, and for each replica (`replica`) a stream and a memory object per
//                argument. A run updates the data pointers that changed and executes. It allocates
//                nothing; oneDNN itself mallocs a few small blocks per call.
//
// Tensors are described by value (dt_dnnl_tensor): dims, type, and a format, which is a dt_layout, explicit
// strides, ANY (the primitive chooses) or LIKE (a descriptor that another op chose).
//
// Threads: oneDNN divides the work when it makes a primitive, by the calling thread's number of OpenMP threads.
// Creation and execution both set that to the op's `threads`. Several replicas may run one op at the same
// time. The caller provides scratchpads (dt_dnnl_op_scratch_bytes, 64-byte aligned).
#ifndef DT_BACKEND_CPU_DNNL_SHIM_H
#define DT_BACKEND_CPU_DNNL_SHIM_H

#include "backend/backend.h"

typedef struct dt_dnnl_op dt_dnnl_op;
typedef const void *dt_dnnl_md; // a borrowed descriptor; lives as long as the op it came from

typedef enum dt_dnnl_format {
    DT_DNNL_ABSENT, // no such tensor (a zeroed dt_dnnl_tensor)
    DT_DNNL_ANY,
    DT_DNNL_LAYOUT,
    DT_DNNL_STRIDED,
    DT_DNNL_LIKE,
    DT_DNNL_PAIRS // a matmul's weights in bf16 as AVX-512 wants them (BA16a64b2a)
} dt_dnnl_format;

typedef struct dt_dnnl_tensor {
    dt_dnnl_format format;
    dt_dtype type;
    int n;
    int64_t d[DT_MAX_DIMS];
    dt_layout layout;            // LAYOUT
    int64_t stride[DT_MAX_DIMS]; // STRIDED, in elements
    dt_dnnl_md like;             // LIKE
} dt_dnnl_tensor;

dt_dnnl_tensor dt_dnnl_any(dt_dtype type, int n, const int64_t *d);
dt_dnnl_tensor dt_dnnl_dense(dt_dtype type, int n, const int64_t *d);
// (rows, cols) in row-major order; and (rows, cols) as the transpose of a row-major (cols, rows).
dt_dnnl_tensor dt_dnnl_matrix(dt_dtype type, int64_t rows, int64_t cols);
dt_dnnl_tensor dt_dnnl_transposed(dt_dtype type, int64_t rows, int64_t cols);
dt_dnnl_tensor dt_dnnl_laid_out(dt_dtype type, const dt_shape *s, dt_layout l);
dt_dnnl_tensor dt_dnnl_like(dt_dnnl_md md);

typedef struct dt_dnnl_env {
    int threads, n_replicas;
} dt_dnnl_env;

typedef enum dt_dnnl_direction { DT_DNNL_FORWARD, DT_DNNL_BACKWARD_DATA, DT_DNNL_BACKWARD_WEIGHTS } dt_dnnl_direction;

// What becomes of the sums of a convolution or matmul, in this order; zeroed: nothing.
typedef struct dt_dnnl_after {
    const float *scales; // int8: a factor for each output channel (n_scales of them), copied; NULL: none
    int64_t n_scales;
    float add; // adds this times what dst holds, which is of type add_type
    dt_dtype add_type;
    dt_activation act;
    float times; // 0: 1
} dt_dnnl_after;
// Whether `scales` also scale the bias (oneDNN 2): then the caller divides the bias by them.
bool dt_dnnl_scales_bias(void);

// Convolution. Weights are (O,C,R,S), or (G,O/G,C/G,R,S) with groups.
// Arguments, in the order of run's pointers (bias where present):
//   FORWARD          src, weights, bias, dst
//   BACKWARD_DATA    diff_src, weights, diff_dst
//   BACKWARD_WEIGHTS src, diff_weights, diff_bias, diff_dst
typedef struct dt_dnnl_conv {
    dt_dnnl_tensor src, weights, bias, dst;
    int64_t stride[2], dilation[2], pad_begin[2], pad_end[2]; // dilation 1 = none
    dt_dnnl_after after;                                      // FORWARD
} dt_dnnl_conv;
dt_status dt_dnnl_op_create_conv(dt_dnnl_op **out, const dt_dnnl_env *e, dt_dnnl_direction dir, const dt_dnnl_conv *c);

// Matrix multiplication over leading batch dims: dst = after(alpha * a b + bias).
// Arguments: a, b, bias (where present; (1,…,N)), dst.
typedef struct dt_dnnl_matmul {
    dt_dnnl_tensor a, b, bias, dst;
    float alpha;
    dt_dnnl_after after;
} dt_dnnl_matmul;
dt_status dt_dnnl_op_create_matmul(dt_dnnl_op **out, const dt_dnnl_env *e, const dt_dnnl_matmul *c);

// Copy between formats and types; accumulate: dst += src. Arguments: src, dst.
dt_status dt_dnnl_op_create_reorder(dt_dnnl_op **out, const dt_dnnl_env *e, const dt_dnnl_tensor *src,
                                    const dt_dnnl_tensor *dst, bool accumulate);

void dt_dnnl_op_destroy(dt_dnnl_op *op); // NULL is fine
// Pointers in the order of the arguments; scratch 64-byte aligned (may be NULL when it needs none).
void dt_dnnl_op_run(const dt_dnnl_op *op, int replica, const void *const *ptr, void *scratch);
// dt_dnnl_op_run with fewer threads than the op was made for. For reorders, whose bits do not depend on threads.
void dt_dnnl_op_run_threads(const dt_dnnl_op *op, int replica, int threads, const void *const *ptr, void *scratch);

size_t dt_dnnl_op_scratch_bytes(const dt_dnnl_op *op);
dt_dnnl_md dt_dnnl_op_md(const dt_dnnl_op *op, int arg); // what the primitive chose or was given
const char *dt_dnnl_op_impl(const dt_dnnl_op *op);       // "jit:avx512_core", "ref:any", …
bool dt_dnnl_op_is_slow(const dt_dnnl_op *op);           // a reference implementation

size_t dt_dnnl_md_bytes(dt_dnnl_md md);
bool dt_dnnl_md_is(dt_dnnl_md md, const dt_dnnl_tensor *t); // same format, type and dims
uint64_t dt_dnnl_md_hash(dt_dnnl_md md);

const char *dt_dnnl_version(void); // "2.6.3"
int dt_dnnl_isa_level(void);       // as a dt_cpu_isa; tests hold the two side by side
bool dt_dnnl_isa_bf16(void);
bool dt_dnnl_isa_vnni(void);        // 8-bit products are added in 32 bits; without it, two of them in 16
const char *dt_dnnl_isa_name(void); // "avx512_core_bf16"

#endif
