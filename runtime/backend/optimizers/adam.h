// adam.h: Adam as torch.optim.Adam has it: decay is added to the gradient, so it enters both moments.
#ifndef DT_BACKEND_OPTIMIZERS_ADAM_H
#define DT_BACKEND_OPTIMIZERS_ADAM_H

#include "backend/optimizers/optimizer_update.h"

enum { DT_ADAM_BETA1, DT_ADAM_BETA2, DT_ADAM_EPS };

DT_OPTIMIZER(adam, 2, "moment1", "moment2")

DT_UPDATE_FN void dt_adam_begin(dt_update *u, int64_t t) {
    dt_adam_bias(u, u->hyper[DT_ADAM_BETA1], u->hyper[DT_ADAM_BETA2], t);
}

DT_UPDATE_FN void dt_adam_update(dt_elements *p, dt_elements *slot, dt_elements g, const dt_update *u) {
    const float step_size = (float)((double)u->lr / u->bias[0]), inv_root = (float)u->bias[1];
    dt_adam_moments(slot, g * u->grad_scale + *p * u->decay, u->hyper[DT_ADAM_BETA1], u->hyper[DT_ADAM_BETA2]);
    *p = *p - (slot[0] * step_size) / (dt_elements_sqrt(slot[1]) * inv_root + u->hyper[DT_ADAM_EPS]);
}

#endif
