// lamb.h: LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning"): Adam's bias-corrected update
// plus decay, scaled for each tensor by |weights| / |update|, or by 1 where one of them is 0.
#ifndef DT_BACKEND_OPTIMIZERS_LAMB_H
#define DT_BACKEND_OPTIMIZERS_LAMB_H

#include "backend/optimizers/optimizer_update.h"

enum { DT_LAMB_BETA1, DT_LAMB_BETA2, DT_LAMB_EPS };

DT_OPTIMIZER_WITH_NORMS(lamb, 2, "moment1", "moment2")

DT_UPDATE_FN void dt_lamb_begin(dt_update *u, int64_t t) {
    dt_adam_bias(u, u->hyper[DT_LAMB_BETA1], u->hyper[DT_LAMB_BETA2], t);
}

DT_UPDATE_FN dt_elements dt_lamb_direction(dt_elements p, dt_elements *slot, dt_elements g, const dt_update *u) {
    const float inv_bias = (float)(1 / u->bias[0]), inv_root = (float)u->bias[1];
    dt_adam_moments(slot, g * u->grad_scale, u->hyper[DT_LAMB_BETA1], u->hyper[DT_LAMB_BETA2]);
    return (slot[0] * inv_bias) / (dt_elements_sqrt(slot[1]) * inv_root + u->hyper[DT_LAMB_EPS]) + p * u->decay;
}

DT_UPDATE_FN float dt_lamb_ratio(double weights, double direction, const dt_update *u) {
    return weights > 0 && direction > 0 ? (float)sqrt(weights / direction) : 1.0f;
}

DT_UPDATE_FN void dt_lamb_update(dt_elements *p, dt_elements *slot, dt_elements g, const dt_update *u) {
    const dt_elements direction = dt_lamb_direction(*p, slot, g, u);
    *p = *p - direction * (u->lr * u->ratio);
}

#endif
