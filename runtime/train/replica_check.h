// replica_check.h: whether all ranks still hold the same weights and optimizer state (run.verify_every).
//
// Every rank commits the same step on the same bits, so all tensors of a checkpoint are equal on all ranks. A broken
// memory, CPU or GPU breaks that without a sound, and the loss shows it late or never. Each rank hashes its tensors; one
// small all-reduce tells whether the hashes differ, and only then they are exchanged.
#ifndef DT_TRAIN_REPLICA_CHECK_H
#define DT_TRAIN_REPLICA_CHECK_H

#include "train/session.h"

// On all ranks, with the stepper drained. DT_E_INTERNAL on all of them where tensors differ, naming the first one and
// the rank that is alone with it; *told: they all know. The failpoint "flip" flips a bit of this rank's first tensor.
dt_status dt_verify_ranks(dt_session *s, bool *told);

#endif
