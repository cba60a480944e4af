// losses.h: every loss of config/losses.def: the arithmetic, which the
// kernels of the CPU and of CUDA share. All are the op `loss` (ops/loss.c).
//
// A loss over elements gives the value of a prediction x and its target t; a sample's loss is the mean over its
// elements. A loss over classes (softmax) gives a function of the sample's cross-entropy x (dt_loss_cross_entropy); t is
// 0. Both give the slope, the value's derivative by x. A rotation is of all elements together (rotation.h).
// p is the loss's parameter. Samples of weight 0 never get here.
//
// Training and evaluation take a sample's loss from the same functions: dt_loss_value of a cross-entropy, or
// dt_loss_of_elements.
#ifndef DT_GRAPH_LOSSES_H
#define DT_GRAPH_LOSSES_H

#include "batch/loss_row.h"
#include "batch/rotation.h"
#include "config/words.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifndef DT_LOSS_REAL // what the kernel computes in
#define DT_LOSS_REAL double
#endif
#ifdef __CUDACC__
#define DT_LOSS_INLINE static __device__ __forceinline__
#else
#define DT_LOSS_INLINE static inline __attribute__((unused))
#endif
#define DT_LOSS_FN   DT_LOSS_INLINE DT_LOSS_REAL
#define DT_LOSS_ARGS DT_LOSS_REAL x, DT_LOSS_REAL t, DT_LOSS_REAL p

// The cross-entropy of logits x (K) with the distribution w_k ((1-s) q_k + s/K) of the classes, which need not sum to 1:
// q the target, s the label smoothing, w the class weights (1 where there are none), as in
// torch.nn.CrossEntropyLoss. For a plain class y the sample's weight holds w_y already, so there w is divided by w_y.
typedef struct dt_loss_parts {
    double lse;   // log sum exp(x)
    double q, qx; // sums of w q and w q x: 1 and x_y of a class without weights
    double u, ux; // means of w and w x; ux counts only where s is not 0
} dt_loss_parts;

DT_LOSS_INLINE double dt_loss_cross_entropy(dt_loss_parts m, double s) {
    return (1 - s) * (m.lse * m.q - m.qx) + s * (m.lse * m.u - m.ux);
}
// The sum of the distribution: by x_k the slope is this times softmax_k, less the distribution's k.
DT_LOSS_INLINE double dt_loss_mass(dt_loss_parts m, double s) {
    return (1 - s) * m.q + s * m.u;
}

// ---- cross_entropy: as it is -----------------------------------------------------------------------
#define DT_LOSS_ROW_cross_entropy                                                                                      \
    .takes = DT_TARGET_CLASS | DT_TARGET_SHARES | DT_TARGET_VECTOR, .softmax = true, .by_class = true,                 \
    .best = DT_METRIC_accuracy
DT_LOSS_FN dt_cross_entropy_value(DT_LOSS_ARGS) {
    return x;
}
DT_LOSS_FN dt_cross_entropy_slope(DT_LOSS_ARGS) {
    return 1;
}

// ---- focal: x (1 - exp(-x))^p, exp(-x) being the probability of the class -------------------------
// Lin et al., "Focal loss for dense object detection", ICCV 2017. With shares of classes or smoothed labels
// exp(-x) is what stands for that probability.
#define DT_LOSS_ROW_focal                                                                                              \
    .takes = DT_TARGET_CLASS | DT_TARGET_SHARES, .softmax = true, .best = DT_METRIC_accuracy, .param_key = "focal_gamma"
DT_LOSS_FN dt_focal_value(DT_LOSS_ARGS) {
    x = x < 0 ? 0 : x; // rounding
    return x * pow(-expm1(-x), p);
}
DT_LOSS_FN dt_focal_slope(DT_LOSS_ARGS) {
    x = x < 0 ? 0 : x;
    return pow(-expm1(-x), p) * (1 + p * (x == 0 ? 1 : x / expm1(x)));
}

// ---- arcface: cross-entropy, behind the op arc_margin ----------------------------------------------
#define DT_LOSS_ROW_arcface                                                                                            \
    .takes = DT_TARGET_CLASS, .softmax = true, .angular = true, .best = DT_METRIC_accuracy,                            \
    .param_key = "arcface_margin"
DT_LOSS_FN dt_arcface_value(DT_LOSS_ARGS) {
    return x;
}
DT_LOSS_FN dt_arcface_slope(DT_LOSS_ARGS) {
    return 1;
}

// ---- bce: binary cross-entropy of a logit ----------------------------------------------------------
// p: the weight of a positive, as pos_weight of torch.nn.BCEWithLogitsLoss.
#define DT_LOSS_ROW_bce                                                                                                \
    .takes = DT_TARGET_VECTOR | DT_TARGET_NUMBER, .gives_labels = true, .best = DT_METRIC_loss, .param = 1
DT_LOSS_FN dt_bce_value(DT_LOSS_ARGS) {
    return (1 - t) * x + (1 + (p - 1) * t) * ((x < 0 ? -x : 0) + log1p(exp(-fabs(x))));
}
DT_LOSS_FN dt_bce_slope(DT_LOSS_ARGS) {
    return (1 - t) - (1 + (p - 1) * t) / (1 + exp(x));
}

// ---- mse: squared error ----------------------------------------------------------------------------
#define DT_LOSS_ROW_mse .takes = DT_TARGET_VECTOR | DT_TARGET_NUMBER, .gives_numbers = true, .best = DT_METRIC_mae
DT_LOSS_FN dt_mse_value(DT_LOSS_ARGS) {
    return (x - t) * (x - t);
}
DT_LOSS_FN dt_mse_slope(DT_LOSS_ARGS) {
    return 2 * (x - t);
}

// ---- smooth_l1: d²/2p for d = |x - t| below p, d - p/2 above ---------------------------------------
#define DT_LOSS_ROW_smooth_l1                                                                                          \
    .takes = DT_TARGET_VECTOR | DT_TARGET_NUMBER, .gives_numbers = true, .best = DT_METRIC_mae,                        \
    .param_key = "smooth_l1_beta"
DT_LOSS_FN dt_smooth_l1_value(DT_LOSS_ARGS) {
    const DT_LOSS_REAL d = fabs(x - t);
    return d < p ? d * d / (2 * p) : d - p / 2;
}
DT_LOSS_FN dt_smooth_l1_slope(DT_LOSS_ARGS) {
    const DT_LOSS_REAL d = x - t;
    if (fabs(d) < p) return d / p;
    return d > 0 ? 1 : d < 0 ? -1 : d; // d: 0 or NaN
}

// ---- l1: absolute error ----------------------------------------------------------------------------
#define DT_LOSS_ROW_l1 .takes = DT_TARGET_VECTOR | DT_TARGET_NUMBER, .gives_numbers = true, .best = DT_METRIC_mae
DT_LOSS_FN dt_l1_value(DT_LOSS_ARGS) {
    return fabs(x - t);
}
DT_LOSS_FN dt_l1_slope(DT_LOSS_ARGS) {
    const DT_LOSS_REAL d = x - t;
    return d > 0 ? 1 : d < 0 ? -1 : d; // d: 0 or NaN
}

// ---- huber: smooth_l1 times p ----------------------------------------------------------------------
#define DT_LOSS_ROW_huber                                                                                              \
    .takes = DT_TARGET_VECTOR | DT_TARGET_NUMBER, .gives_numbers = true, .best = DT_METRIC_mae,                        \
    .param_key = "huber_delta"
DT_LOSS_FN dt_huber_value(DT_LOSS_ARGS) {
    return p * dt_smooth_l1_value(x, t, p);
}
DT_LOSS_FN dt_huber_slope(DT_LOSS_ARGS) {
    return p * dt_smooth_l1_slope(x, t, p);
}

// ---- poisson: exp(x) - t x, as torch.nn.PoissonNLLLoss ---------------------------------------------
#define DT_LOSS_ROW_poisson                                                                                            \
    .takes = DT_TARGET_VECTOR | DT_TARGET_NUMBER, .gives_numbers = true, .exponent = true, .best = DT_METRIC_mae
DT_LOSS_FN dt_poisson_value(DT_LOSS_ARGS) {
    return exp(x) - t * x;
}
DT_LOSS_FN dt_poisson_slope(DT_LOSS_ARGS) {
    return exp(x) - t;
}

// ---- geodesic: the angle between two rotations (rotation.h) -----------------------------------------
#define DT_LOSS_ROW_geodesic                                                                                           \
    .takes = DT_TARGET_VECTOR, .rotation = true, .gives_numbers = true, .best = DT_METRIC_geodesic
DT_LOSS_FN dt_geodesic_value(DT_LOSS_ARGS) { // one element has none: dt_loss_of_elements
    return NAN;
}
DT_LOSS_FN dt_geodesic_slope(DT_LOSS_ARGS) {
    return NAN;
}

// ---- any of them -----------------------------------------------------------------------------------
DT_LOSS_FN dt_loss_value(int id, DT_LOSS_ARGS) {
    switch (id) {
#define WORD(id, ...)                                                                                                  \
    case DT_LOSS_##id:                                                                                                 \
        return dt_##id##_value(x, t, p);
#include "config/losses.def"
#undef WORD
    }
    return 0;
}
DT_LOSS_FN dt_loss_slope(int id, DT_LOSS_ARGS) {
    switch (id) {
#define WORD(id, ...)                                                                                                  \
    case DT_LOSS_##id:                                                                                                 \
        return dt_##id##_slope(x, t, p);
#include "config/losses.def"
#undef WORD
    }
    return 0;
}

#ifndef __CUDACC__ // a GPU's threads share the elements
// A sample's loss of n elements, not over classes. each: p of each element, or NULL.
DT_LOSS_INLINE double dt_loss_of_elements(dt_loss_id id, const float *x, const float *t, int64_t n, double p,
                                          const float *each) {
    double sum = 0;
    if (dt_losses[id].rotation) return dt_rotation_loss(x, t, (int)n, p, NULL);
    for (int64_t i = 0; i < n; i++)
        sum += (double)dt_loss_value(id, (DT_LOSS_REAL)x[i], (DT_LOSS_REAL)t[i],
                                     each ? (DT_LOSS_REAL)each[i] : (DT_LOSS_REAL)p);
    return sum / (double)n;
}
#endif

#endif
