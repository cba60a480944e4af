// own_conv.h: custom convolutions, and the choice among them and oneDNN's.
#ifndef DT_BACKEND_CPU_OWN_CONV_H
#define DT_BACKEND_CPU_OWN_CONV_H

#include "backend/cpu/dnnl_shim.h"

// ---- winograd -----------------------------------------------------------------------------------------------------

// Winograd's convolution of 3x3 and stride 1 (Lavin & Gray 2016): forward, data gradient and weight gradient,
// on BLOCKED tensors in fp32 or bf16, with AVX2 and AVX-512. It computes in fp32, and takes filters in it: of tensors in
// bf16 only the result is rounded. With AVX512_BF16 the products may be in bf16: of F(2x2) only, as F(4x4) would be off by
// a hundredth.
//
// F(m x m, 3x3) computes a tile of m x m outputs from a patch of (m + 2)^2 inputs. Patch and filter are transformed
// (simd_winograd.c); then each of the (m + 2)^2 positions is a product of matrices over channels, and its result is
// transformed back. m = 4 needs a quarter of the direct algorithm's multiplications, m = 2 four ninths.
//
//   forward, data gradient   (tiles, channels in) x (channels in, channels out), filters transformed when packed
//   weight gradient          (channels in, tiles) x (tiles, channels out), where tiles of dy are transformed
//
// A data gradient is a forward convolution of dy with the filters turned by half a turn, so it shares that code.
//
// Products are custom code: the library's batched matmul is as fast (within 5 % at 32 to 512 channels) but wants other
// layouts. Fusing batch norm and ReLU into the transforms was rejected: batch norms are a fifth of the fusion network's
// step with AVX-512, most of that behind the first layers, which are direct, or pooling; a twentieth would be saved.
//
// Tiles are taken in blocks whose transformed patches stay in the cache. Bits do not depend on the number of threads:
// each thread has blocks of its own, or in a weight gradient positions of its own.

typedef struct dt_winograd_conv dt_winograd_conv; // immutable

// Whether shape, type, layouts, activation and ISA allow it. A weight gradient with a bias has none.
bool dt_winograd_fits(dt_dnnl_direction dir, const dt_dnnl_conv *conv);
// F(2x2) or F(4x4) in fp32, or F(2x2) with transformed patches and filters, and so the products, in bf16.
typedef enum dt_winograd_way { DT_WINOGRAD_NONE, DT_WINOGRAD_2, DT_WINOGRAD_4, DT_WINOGRAD_2_BF16 } dt_winograd_way;
// The convolution must fit; for products in bf16, tensors must be in it, and dt_cpu_has_bf16.
dt_winograd_conv *dt_winograd_create(dt_winograd_way way, dt_dnnl_direction dir, const dt_dnnl_conv *conv, int threads);
void dt_winograd_destroy(dt_winograd_conv *w); // NULL is fine

size_t dt_winograd_scratch_bytes(const dt_winograd_conv *w);
size_t dt_winograd_packed_bytes(const dt_winograd_conv *w); // of transformed filters
// Of what pack makes of a weight, for sharing it.
uint64_t dt_winograd_pack_hash(const dt_winograd_conv *w);
// dense: (O,C,3,3)
void dt_winograd_pack(const dt_winograd_conv *w, const float *dense, float *packed, int threads);

// Forward: x to y; bias may be NULL. Data gradient: dy to dx.
void dt_winograd_run(const dt_winograd_conv *w, const void *x, const float *packed, const float *bias, void *y,
                     void *scratch);
// dw is dense. accumulate: adds to it.
void dt_winograd_run_weights(const dt_winograd_conv *w, const void *x, const void *dy, float *dw, bool accumulate,
                             void *scratch);

// ---- depthwise ----------------------------------------------------------------------------------------------------

// Depthwise convolutions of 3, 5 or 7 columns and stride 1 or 2, fp32 and bf16, with AVX2 and AVX-512, where
// that is faster than the library: forward and data gradient, except bf16 of 3 columns, where widening and rounding take
// as long as the products; and weight gradients of 5 and 7 columns, for which oneDNN 2.6 has no vectors.
//
// Tensors are BLOCKED; a thread takes channel blocks of images (simd_depthwise.c). A data gradient of stride 1 is a
// convolution with the weights turned. Of stride 2 it is one for each remainder of row and column, with every second
// tap. Both read the weights of the forward direction backwards, so all share one packed copy, in fp32.

typedef struct dt_depthwise_conv {
    int64_t n, channels, in[2], out[2]; // rows, columns
    int64_t kernel[2], stride[2], pad[2];
    int type; // row type of x, y and their gradients
    int threads;
    bool relu;
} dt_depthwise_conv;

// Returns for which directions it is to be used, bit 1 << direction; 0: not a shape that this computes.
unsigned dt_depthwise_init(dt_depthwise_conv *d, const dt_dnnl_conv *conv, int threads);

// packed: (blocks, rows, columns, vector), the weights as a BLOCKED tensor of one image.
// Forward: x to y; bias may be NULL. Data gradient: dy to dx.
void dt_depthwise_run(const dt_depthwise_conv *d, dt_dnnl_direction dir, const void *from, const float *packed,
                      const float *bias, void *to);
// dw (channels, rows, columns) and db are dense; either may be NULL. Bits of accumulate: as in dt_run, dw is output 1, db 2.
void dt_depthwise_run_weights(const dt_depthwise_conv *d, const void *x, const void *dy, float *dw, float *db,
                              uint64_t accumulate);

// ---- conv algorithm -----------------------------------------------------------------------------------------------

// What is chosen by timing for each convolution: the library's direct kernel or Winograd's algorithm
// for each direction; in bf16, where there is AMX, the layout.
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

// One direction of a convolution: the library's primitive or a custom kernel.
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
