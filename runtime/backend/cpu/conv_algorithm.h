// conv_algorithm.h: what is chosen by timing for each convolution: in fp32 direct or Winograd (Lavin & Gray 2016,
// F(4x4,3x3)) for each direction; in bf16, where there is AMX, the layout.
//
// Winograd needs a quarter of the multiplications and moves more memory, so it is faster for some shapes only. Its
// relative error is a few times that of the direct algorithm and grows with the channels that are added up. It is
// offered up to 256 of them, where it is seven times as large (tests/ops/test_winograd.c).
//
// The library uses AMX for channels last (NHWC) only, and custom kernels want BLOCKED: the reorders between them count.
//
// Both ways are timed on as many images as make half a GFLOP a thread, at most the micro-batch's: that takes a few
// milliseconds, and the rates of more images are the same.
#ifndef DT_BACKEND_CPU_CONV_ALGORITHM_H
#define DT_BACKEND_CPU_CONV_ALGORITHM_H

#include "backend/cpu/dnnl_shim.h"

// Whether shape, type and layouts (BLOCKED) allow it. The library may still refuse.
bool dt_conv_may_use_winograd(dt_dnnl_direction dir, const dt_dnnl_conv *conv);
// Whether this convolution is to use Winograd, as s->backend's choices say; times it where they do not.
bool dt_conv_wants_winograd(const dt_kernel_instance *s, dt_dnnl_direction dir,
                            const dt_dnnl_conv *conv);

// Whether this convolution, forward and backward, is to have NHWC activations.
bool dt_conv_wants_nhwc(const dt_kernel_instance *s, const dt_dnnl_conv *conv);

#endif
