// norm_tails.c: where the parts of each tail lie, each at a multiple of 64 bytes.
#include "backend/cuda/norm_tails.h"

#include "base/core.h"

size_t dt_cuda_sums_at(dt_dtype t, const dt_shape *s) {
    return dt_align_up((size_t)dt_shape_elements(s) * dt_dtype_size(t), 64);
}

size_t dt_cuda_norm_at(dt_dtype t, const dt_shape *s, int which) {
    const size_t channels = (size_t)s->d[1];
    const size_t sums = dt_align_up(2 * channels * sizeof(float), 64);
    return dt_cuda_sums_at(t, s) + sums + (size_t)which * dt_align_up(channels * dt_dtype_size(t), 64);
}

static size_t norm_bytes(dt_dtype t, const dt_shape *s) {
    return dt_cuda_norm_at(t, s, 2);
}

// As large as with the batch norm's arrays, which may come to lie behind the sums in the same memory.
const dt_layout_tail dt_cuda_sums = {"nhwc+sums", norm_bytes};
const dt_layout_tail dt_cuda_norm = {"nhwc+norm", norm_bytes};
