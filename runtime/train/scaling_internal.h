// scaling_internal.h: for check.c, which has the room, nets and state that a prediction needs.
#ifndef DT_TRAIN_SCALING_INTERNAL_H
#define DT_TRAIN_SCALING_INTERNAL_H

#include "run/state.h"
#include "train/scaling.h"

// Fills the rows. The state gets first weights, and the steps that are measured change them.
dt_status dt_scaling_predict(dt_scaling *s, dt_open_run *r, dt_nets *nets, dt_state *state);

#endif
