// adafactor.h: Adafactor (Shazeer & Stern 2018) as torch.optim.Adafactor has it by default: no momentum, relative step
// sizes of at most lr, and of a matrix the second moment's rows and columns only (backend/optimizer.h). Factoring comes first and
// leaves the step itself in the gradient's place; what is left to do for each element is decay and that step.
#ifndef DT_BACKEND_OPTIMIZERS_ADAFACTOR_H
#define DT_BACKEND_OPTIMIZERS_ADAFACTOR_H

#include "backend/optimizers/optimizer_update.h"

DT_OPTIMIZER_FACTORED(adafactor, "variance_row", "variance_column")

DT_UPDATE_FN void dt_adafactor_begin(dt_update *u, int64_t t) {
    u->bias[0] = (double)t; // for a GPU's factoring
}

DT_UPDATE_FN void dt_adafactor_update(dt_elements *p, dt_elements *slot, dt_elements g, const dt_update *u) {
    const float keep = (float)(1 - (double)u->lr * (double)u->decay);
    *p = *p * keep - g;
}

#endif
