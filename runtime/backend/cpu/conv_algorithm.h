// conv_algorithm.h: what is chosen by timing for each convolution: the library's direct kernel or Winograd's algorithm
// (winograd.h) for each direction; in bf16, where there is AMX, the layout.
//
// Winograd needs a quarter of the multiplications and moves more memory, so it is faster for some shapes only. Which tile
// competes in fp32 follows from the shape (dt_conv_ways); there its relative error is at most five times that of the direct
// algorithm (tests/ops/test_winograd.c). In training, where filters are transformed once a step, that counts as part of
// what is timed.
//
// The library uses AMX for channels last (NHWC) only. Batch norms and pools take that where the channels are pairs of
// blocks; elsewhere they want BLOCKED, and the reorders between them count.
//
// Candidates are timed on as many images as make a quarter of a GFLOP a thread and 4096 pixels, the micro-batch's at
// most: that takes a few milliseconds, and more images would have the same rates.
#ifndef DT_BACKEND_CPU_CONV_ALGORITHM_H
#define DT_BACKEND_CPU_CONV_ALGORITHM_H

#include "backend/cpu/dnnl_shim.h"
#include "backend/cpu/winograd.h"

// One direction of a convolution: the library's primitive or our own.
typedef struct dt_conv_kernel {
    dt_dnnl_direction dir;
    bool has_bias;
    dt_dnnl_op *library;
    dt_winograd_conv *winograd; // or this
} dt_conv_kernel;

// DT_WINOGRAD_NONE: the library's.
dt_status dt_conv_kernel_create(dt_conv_kernel *k, const dt_dnnl_env *env, dt_dnnl_direction dir,
                                const dt_dnnl_conv *conv, dt_winograd_way way);
void dt_conv_kernel_fini(dt_conv_kernel *k); // a zeroed one is fine
size_t dt_conv_kernel_scratch_bytes(const dt_conv_kernel *k);
const char *dt_conv_kernel_name(const dt_conv_kernel *k);
typedef enum dt_conv_arg { DT_CONV_SRC, DT_CONV_WEIGHTS, DT_CONV_DST, DT_N_CONV_ARGS } dt_conv_arg;
// Bytes of an argument of `conv`, the weights as this kernel wants them.
size_t dt_conv_kernel_bytes(const dt_conv_kernel *k, const dt_dnnl_conv *conv, dt_conv_arg arg);
// Pointers as for the library (dnnl_shim.h). Winograd's weight gradient is dense.
void dt_conv_kernel_run(const dt_conv_kernel *k, int replica, const void *const *ptr, void *scratch);

enum { DT_CONV_MOST_WAYS = 3 };
// What is offered to the choice: the library's first. Returns how many.
int dt_conv_ways(dt_dnnl_direction dir, const dt_dnnl_conv *conv, dt_winograd_way way[DT_CONV_MOST_WAYS]);
// The way that s->backend's choices name for this convolution; where they name none, the ways are timed.
dt_winograd_way dt_conv_chosen_way(const dt_kernel_instance *s, dt_dnnl_direction dir, const dt_dnnl_conv *conv);

// Whether this convolution, forward and backward, is to have NHWC activations.
bool dt_conv_wants_nhwc(const dt_kernel_instance *s, const dt_dnnl_conv *conv);

#endif
