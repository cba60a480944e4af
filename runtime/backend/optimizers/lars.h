// lars.h: LARS (You et al. 2017, "Large Batch Training of Convolutional Networks"): SGD with momentum whose gradient
// plus decay is scaled for each tensor by trust |weights| / (|gradient| + decay |weights|), as in timm.
#ifndef DT_BACKEND_OPTIMIZERS_LARS_H
#define DT_BACKEND_OPTIMIZERS_LARS_H

#include "backend/optimizers/optimizer_update.h"

enum { DT_LARS_MOMENTUM, DT_LARS_NESTEROV, DT_LARS_TRUST };

DT_OPTIMIZER_WITH_NORMS(lars, 1, "moment1")

DT_UPDATE_FN void dt_lars_begin(dt_update *u, int64_t t) {}

DT_UPDATE_FN dt_elements dt_lars_direction(dt_elements p, dt_elements *slot, dt_elements g, const dt_update *u) {
    return g * u->grad_scale;
}

DT_UPDATE_FN float dt_lars_ratio(double weights, double direction, const dt_update *u) {
    if (!(weights > 0 && direction > 0)) return 1.0f;
    const double w = sqrt(weights);
    return (float)((double)u->hyper[DT_LARS_TRUST] * w / (sqrt(direction) + w * (double)u->decay + 1e-8));
}

DT_UPDATE_FN void dt_lars_update(dt_elements *p, dt_elements *slot, dt_elements g, const dt_update *u) {
    const float momentum = u->hyper[DT_LARS_MOMENTUM];
    g = (g * u->grad_scale + *p * u->decay) * u->ratio;
    slot[0] = u->first ? g : slot[0] * momentum + g;
    g = u->hyper[DT_LARS_NESTEROV] != 0.0f ? g + slot[0] * momentum : slot[0];
    *p = *p - g * u->lr;
}

#endif
