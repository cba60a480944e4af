// lion.h: Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"): a step of lr along the sign of
// an average of momentum and gradient, with decoupled decay. One slot.
#ifndef DT_BACKEND_OPTIMIZERS_LION_H
#define DT_BACKEND_OPTIMIZERS_LION_H

#include "backend/optimizers/optimizer_update.h"

enum { DT_LION_BETA1, DT_LION_BETA2 };

DT_OPTIMIZER(lion, 1, "moment1")

DT_UPDATE_FN void dt_lion_begin(dt_update *u, int64_t t) {}

DT_UPDATE_FN void dt_lion_update(dt_elements *p, dt_elements *slot, dt_elements g, const dt_update *u) {
    const float beta1 = u->hyper[DT_LION_BETA1], beta2 = u->hyper[DT_LION_BETA2];
    const float keep = (float)(1 - (double)u->lr * (double)u->decay);
    g = g * u->grad_scale;
    *p = *p * keep - dt_elements_sign(slot[0] * beta1 + g * (1.0f - beta1)) * u->lr;
    slot[0] = slot[0] + (g - slot[0]) * (1.0f - beta2);
}

#endif
