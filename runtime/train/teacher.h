// teacher.h: the run that teaches this one (train.teacher): its config and classes, from a checkpoint of it, and its
// weights. What its network does in the training graph: models/distil.c.
//
// Its weights lie in the flat buffers behind ours, and are no part of a checkpoint: resuming reads them again, and
// compares their hash with that of the run's beginning.
#ifndef DT_TRAIN_TEACHER_H
#define DT_TRAIN_TEACHER_H

#include "comm/comm.h"
#include "exec/params.h"
#include "graph/targets.h"

typedef struct dt_teacher {
    dt_config *config;                          // of its run; NULL: there is no teacher
    char *classes;                              // its, as class_names.h has them
    char *folder;                               // of its checkpoint; on rank 0
    int64_t step, total_steps, steps_per_epoch; // its last step, and the length that it had
} dt_teacher;

// Rank 0 finds the checkpoint that `config` names, and all get what it says. Without train.teacher nothing happens.
dt_status dt_teacher_open(dt_teacher *t, const dt_config *config, dt_comm *comm, bool *told);
void dt_teacher_close(dt_teacher *t);
// Rank 0: its weights into the host's copies of master and buffer. DT_E_USAGE where its classes are not those of `classes`
// (NULL: unknown).
dt_status dt_teacher_read(const dt_teacher *t, const dt_params *p, const dt_targets *targets,
                          const char *classes, float *master, float *buffer);
// Of those weights.
uint64_t dt_teacher_hash(const dt_params *p, const float *master, const float *buffer);

#endif
