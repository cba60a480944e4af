// fake_math.h: what the fake device computes in place of cuDNN and cuBLASLt: naive loops, f32 sums in a fixed order,
// results rounded once to the tensor's type.
#ifndef DT_TESTS_CUDA_FAKE_MATH_H
#define DT_TESTS_CUDA_FAKE_MATH_H

#include "backend/cuda/cuda_api.h"

typedef struct fake_plan {
    dt_dnn_desc dnn;
    dt_gemm_desc gemm;
    int choice;
    bool add; // of a run
} fake_plan;

const char *fake_dnn_name(const fake_plan *p);
void fake_dnn_run(const fake_plan *p, void *const *ptr);
const char *fake_gemm_name(dt_gemm_epilogue e); // "gemm", "gemm bgrad"
// ptr: A, B, D, bias, aux
void fake_gemm_run(const fake_plan *p, void *const *ptr);

#endif
