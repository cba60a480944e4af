// winograd.h: Winograd's convolution of 3x3 and stride 1 (Lavin & Gray 2016): forward, data gradient and weight gradient,
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
// The products are our own: the library's batched matmul is as fast (within 5 % at 32 to 512 channels) and wants other
// layouts. Fusing batch norm and ReLU into the transforms was rejected: batch norms are a fifth of the fusion network's
// step with AVX-512, most of that behind the first layers, which are direct, or pooling; a twentieth would be saved.
//
// Tiles are taken in blocks whose transformed patches stay in the cache. Bits do not depend on the number of threads:
// each thread has blocks of its own, or in a weight gradient positions of its own.
#ifndef DT_BACKEND_CPU_WINOGRAD_H
#define DT_BACKEND_CPU_WINOGRAD_H

#include "backend/cpu/dnnl_shim.h"

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

#endif
