// sgd.h: SGD with momentum as torch.optim.SGD has it: decay is added to the gradient, and the first step sets
// the momentum buffer.
#ifndef DT_BACKEND_OPTIMIZERS_SGD_H
#define DT_BACKEND_OPTIMIZERS_SGD_H

#include "backend/optimizers/optimizer_update.h"

enum { DT_SGD_MOMENTUM, DT_SGD_NESTEROV };

DT_OPTIMIZER(sgd, 1, "moment1")

DT_UPDATE_FN void dt_sgd_begin(dt_update *u, int64_t t) {}

DT_UPDATE_FN void dt_sgd_update(dt_elements *p, dt_elements *slot, dt_elements g, const dt_update *u) {
    const float momentum = u->hyper[DT_SGD_MOMENTUM];
    g = g * u->grad_scale + *p * u->decay;
    if (momentum != 0.0f) {
        slot[0] = u->first ? g : slot[0] * momentum + g;
        g = u->hyper[DT_SGD_NESTEROV] != 0.0f ? g + slot[0] * momentum : slot[0];
    }
    *p = *p - g * u->lr;
}

#endif
