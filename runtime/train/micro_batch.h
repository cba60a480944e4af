// micro_batch.h: train.micro_batch: auto: the largest micro-batch whose plan fits the memory. train.global_batch stays, so
// neither the learning rate nor the number of steps changes. Nothing is tried out: plans know their sizes before they
// take memory. The checkpoint keeps the answer.
#ifndef DT_TRAIN_MICRO_BATCH_H
#define DT_TRAIN_MICRO_BATCH_H

#include "train/session.h"

// Sets s->micro_batch to the stored answer, or to the largest divisor of train.global_batch that fits train.memory and
// leaves each replica of each rank one micro-batch. Collective. DT_E_USAGE if not even one sample fits.
dt_status dt_micro_batch_choose(dt_session *s, const dt_resolved *stored);

#endif
