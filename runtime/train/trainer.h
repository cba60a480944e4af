// trainer.h: from a config to a trained network: the loop around the step.
//
// launch/ hands over a config, a comm and two callbacks (train/ knows neither models/ nor data/); the
// trainer makes everything else and takes it down again. Every function here is collective.
//
// A run directory, run.dir/run.name, on rank 0: config.yaml (resolved), log, metrics.jsonl, tfevents,
// checkpoints/, result.json once the run is finished.
//
// Errors: a dt_status with a message on the rank that failed. *agreed: all ranks got this status and leave in the
// usual way. Without it the caller must abort the comm.
#ifndef DT_TRAIN_TRAINER_H
#define DT_TRAIN_TRAINER_H

#include "train/trainer_args.h"

// Trains or resumes. DT_OK: finished (or was finished already). DT_E_PREEMPTED: saved, run again.
dt_status dt_trainer_train(const dt_trainer_args *a, bool *agreed);

// Metrics of a checkpoint. which: "latest", "best" or a step number.
dt_status dt_trainer_eval(const dt_trainer_args *a, const char *which, dt_split split,
                          bool *agreed);

// Makes graph and plans and reports parameters and memory to `out`; no run directory, no training.
// print_graph: the graph and the plan too. fields: used when there is no data set (open_data NULL).
dt_status dt_trainer_check(const dt_trainer_args *a, const dt_field_info *fields, int n_fields,
                           bool print_graph, FILE *out);

#endif
