// optimizer_update.h: what the arithmetic of an optimizer is written with. An optimizer is one header here,
// optimizers/<id>.h, and one line in config/optimizers.def. The header is compiled three times: for the vectors
// of the CPU (cpu/simd_optimizer.c, once an ISA), for a GPU's kernel (cuda/kernels/commit_kernels.h) and, as the
// same kernel, for the tests' host. It holds, in this order:
//
//   enum { DT_<ID>_<KEY>, … };     the keys of its line in optimizers.def, in that order: indices of hyper
//   DT_OPTIMIZER(id, n, "name", …) how many state slots each parameter has, and their names in a checkpoint
//   dt_<id>_begin(u, t)            once a step: what follows from the step's number alone
//   dt_<id>_update(p, slot, g, u)  a parameter, its slots and its gradient
//
// dt_elements is a float in a kernel and a vector of floats on the CPU; +, -, * and / take both, and scalars.
//
// An optimizer that scales its update by norms of each tensor (LAMB) defines DT_OPTIMIZER_WITH_NORMS and has two
// functions more. dt_<id>_direction gives the vector whose norm counts: what it does to the slots is thrown
// away. dt_<id>_ratio gives u->ratio for the update, from the sums of squares of weights and direction, which
// are sums over chunks (DT_CHUNK) in their order: no rank or thread enters them. Tensors that weights decay
// does not touch (norms, biases) keep the ratio 1.
//
// DT_OPTIMIZER_FACTORED names two slots whose shapes are not the parameter's (Adafactor): a tensor of two or more
// dimensions is a matrix, of its first dimension by the others; slot 0 has a value for each row, slot 1 one for each
// column. Of a vector slot 0 is as long as it is, and there is no slot 1. dt_backend.flat_factor keeps them and leaves
// the step in the gradient's place.
#ifndef DT_BACKEND_OPTIMIZER_UPDATE_H
#define DT_BACKEND_OPTIMIZER_UPDATE_H

#include <math.h>
#include <stdint.h>

enum { DT_MAX_SLOTS = 2, DT_MAX_HYPER = 4 };

typedef struct dt_update {
    float hyper[DT_MAX_HYPER]; // values of the optimizer's keys
    float grad_scale;          // 1/weight, 1/loss scale and clipping; g is multiplied by it first
    float clip;                // g comes clipped to it
    float lr, decay;           // of this segment
    float ratio;               // of this tensor
    int first;                 // the first step: slots start
    double bias[2];            // for dt_<id>_begin to fill
} dt_update;

#ifdef __CUDACC__
#define DT_UPDATE_FN static __device__ __forceinline__
#else
#define DT_UPDATE_FN static inline __attribute__((unused, always_inline))
#endif
#ifdef DT_UPDATE_VECTORS // simd_vec.h is included
typedef vf dt_elements;
#define dt_elements_sqrt    vsqrt
#define dt_elements_sign(x) __builtin_convertvector((vi)((x) < 0) - (vi)((x) > 0), vf)
#else
typedef float dt_elements;
#define dt_elements_sqrt sqrtf
DT_UPDATE_FN float dt_elements_sign(float x) {
    return (float)((x > 0) - (x < 0));
}
#endif

#define DT_OPTIMIZER_NAMES(id, n_slots, norms, factored, ...)                                                          \
    enum { dt_##id##_n_slots = n_slots, dt_##id##_norms = norms, dt_##id##_factored = factored };                      \
    static const char *const dt_##id##_slots[DT_MAX_SLOTS] __attribute__((unused)) = {__VA_ARGS__};
#define DT_OPTIMIZER_WITH_NORMS(id, n_slots, ...) DT_OPTIMIZER_NAMES(id, n_slots, 1, 0, __VA_ARGS__)
#define DT_OPTIMIZER(id, n_slots, ...)            DT_OPTIMIZER_NAMES(id, n_slots, 0, 0, __VA_ARGS__) DT_OPTIMIZER_WITHOUT_NORMS(id)
#define DT_OPTIMIZER_FACTORED(id, ...)            DT_OPTIMIZER_NAMES(id, 0, 0, 1, __VA_ARGS__) DT_OPTIMIZER_WITHOUT_NORMS(id)
#define DT_OPTIMIZER_WITHOUT_NORMS(id)                                                                                 \
    DT_UPDATE_FN dt_elements dt_##id##_direction(dt_elements p, dt_elements *slot, dt_elements g,                      \
                                                 const dt_update *u) {                                                 \
        return g;                                                                                                      \
    }                                                                                                                  \
    DT_UPDATE_FN float dt_##id##_ratio(double weights, double direction, const dt_update *u) {                         \
        return 1;                                                                                                      \
    }

// The bias corrections of Adam's two moments: 1 - beta1^t and 1 / sqrt(1 - beta2^t).
DT_UPDATE_FN void dt_adam_bias(dt_update *u, float beta1, float beta2, int64_t t) {
    u->bias[0] = 1 - pow((double)beta1, (double)t);
    u->bias[1] = 1 / sqrt(1 - pow((double)beta2, (double)t));
}

// Adam's two moments, of the gradient and of its square.
DT_UPDATE_FN void dt_adam_moments(dt_elements *slot, dt_elements g, float beta1, float beta2) {
    slot[0] = slot[0] + (g - slot[0]) * (1.0f - beta1);
    slot[1] = slot[1] * beta2 + (g * g) * (1.0f - beta2);
}

#endif
