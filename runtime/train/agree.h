// agree.h: what ranks decide together before the first step, so that none goes on alone and none waits for
// another that has given up.
//
// All ranks enter these in the same order. `told` becomes true when a failure is known to all of them: each
// returns it, and nobody need end the job by force.
#ifndef DT_TRAIN_AGREE_H
#define DT_TRAIN_AGREE_H

#include "backend/backend.h"
#include "comm/comm.h"

// Rank 0's text on all ranks; *text is replaced on the others. NULL stays NULL.
dt_status dt_agree_text(dt_comm *c, char **text);

// Rank 0's outcome on all ranks: its status `st`, and its text where that is DT_OK, else its message. The
// others' `st` is not read.
dt_status dt_agree_result(dt_comm *c, dt_status st, char **text, bool *told);

// dt_backend_create, and where `kind` is auto one answer for all: the GPU where every rank has one, the CPU
// where none has, else DT_E_USAGE on all ranks, naming the first that has none, its host and why.
dt_status dt_agree_backend(dt_backend **out, dt_comm *c, const char *kind,
                           const dt_backend_opts *opts, bool *told);

#endif
