// depthwise.h: depthwise convolutions of 3, 5 or 7 columns and stride 1 or 2, fp32 and bf16, with AVX2 and AVX-512, where
// that is faster than the library: forward and data gradient, except bf16 of 3 columns, where widening and rounding take
// as long as the products; and weight gradients of 5 and 7 columns, for which oneDNN 2.6 has no vectors.
//
// Tensors are BLOCKED; a thread takes channel blocks of images (simd_depthwise.c). A data gradient of stride 1 is a
// convolution with the weights turned. Of stride 2 it is one for each remainder of row and column, with every second
// tap. Both read the weights of the forward direction backwards, so all share one packed copy, in fp32.
#ifndef DT_BACKEND_CPU_DEPTHWISE_H
#define DT_BACKEND_CPU_DEPTHWISE_H

#include "backend/cpu/dnnl_shim.h"

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

#endif
