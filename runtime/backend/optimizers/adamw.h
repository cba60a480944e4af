// adamw.h: AdamW as torch.optim.AdamW has it: decay first and apart from the gradient, eps outside of the
// bias-corrected root.
#ifndef DT_BACKEND_OPTIMIZERS_ADAMW_H
#define DT_BACKEND_OPTIMIZERS_ADAMW_H

#include "backend/optimizers/optimizer_update.h"

enum { DT_ADAMW_BETA1, DT_ADAMW_BETA2, DT_ADAMW_EPS };

DT_OPTIMIZER(adamw, 2, "moment1", "moment2")

DT_UPDATE_FN void dt_adamw_begin(dt_update *u, int64_t t) {
    dt_adam_bias(u, u->hyper[DT_ADAMW_BETA1], u->hyper[DT_ADAMW_BETA2], t);
}

DT_UPDATE_FN void dt_adamw_update(dt_elements *p, dt_elements *slot, dt_elements g, const dt_update *u) {
    const float keep = (float)(1 - (double)u->lr * (double)u->decay);
    const float step_size = (float)((double)u->lr / u->bias[0]), inv_root = (float)u->bias[1];
    dt_adam_moments(slot, g * u->grad_scale, u->hyper[DT_ADAMW_BETA1], u->hyper[DT_ADAMW_BETA2]);
    *p = *p * keep - (slot[0] * step_size) / (dt_elements_sqrt(slot[1]) * inv_root + u->hyper[DT_ADAMW_EPS]);
}

#endif
