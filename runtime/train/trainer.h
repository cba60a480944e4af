// trainer.h: from a config to a trained network.
//
// launch/ hands over a config, a comm and two callbacks, because train/ knows neither models/ nor data/. The trainer
// makes everything else and takes it down again. Every function here is collective.
//
// Rank 0 writes the run's directory, run.dir/run.name: config.yaml (resolved), log, metrics.jsonl, tfevents,
// checkpoints/, and result.json when the run is finished.
//
// Errors: a dt_status with a message on the rank that failed. Where all ranks got this status they leave in the usual
// way (dt_comm.shared_failure); otherwise the caller must abort the comm.
#ifndef DT_TRAIN_TRAINER_H
#define DT_TRAIN_TRAINER_H

#include "run/run.h"

// Trains, or resumes. DT_OK: finished, now or earlier. DT_E_PREEMPTED: stopped after saving; run it again.
dt_status dt_trainer_train(const dt_trainer_args *a);
// Makes the run and saves its initial weights as the checkpoint of step 0. DT_E_USAGE where it has checkpoints.
dt_status dt_trainer_init(const dt_trainer_args *a);

// How much a whole run computes, zeros where there is no data set; and what a rank takes.
typedef struct dt_run_length {
    int64_t n_trained, n_evaluated; // samples
    size_t rank_bytes;              // memory, of all kinds that are reported
} dt_run_length;

// What dt_trainer_check adds to parameters and memory.
typedef struct dt_check_prints {
    bool graph;                 // and its costs and the plan
    bool kernels;               // what was chosen by timing, and how fast each kernel is
    const char *dot;            // a file for Graphviz, or NULL
    struct dt_scaling *scaling; // what is to be predicted of more ranks (scaling.h), or NULL
} dt_check_prints;

// Makes graph and plans without training, and prints parameters and memory to `out`, and what `prints` adds. fields:
// instead of those of a data set, where open_data is NULL.
dt_status dt_trainer_check(const dt_trainer_args *a, const dt_field_info *fields, int n_fields,
                           const dt_check_prints *prints, FILE *out, dt_run_length *length);

#endif
