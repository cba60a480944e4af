// trainer.h: from a config to a trained network: the loop around the step.
//
// launch/ hands over a config, a comm and two callbacks (train/ knows neither models/ nor data/); the
// trainer makes everything else and takes it down again. Every function here is collective.
//
// A run directory, run.dir/run.name, on rank 0: config.yaml (resolved), log, metrics.jsonl, tfevents,
// checkpoints/, result.json once the run is finished.
//
// Errors: a dt_status with a message on the rank that failed. `agreed` in the outcome says that all
// ranks know of it and leave in the usual way; without it the caller must abort the comm.
#ifndef DT_TRAIN_TRAINER_H
#define DT_TRAIN_TRAINER_H

#include "comm/comm.h"
#include "config/config.h"
#include "exec/exec.h"
#include "train/batch_source.h"

#include <stdio.h>

typedef struct dt_graph_request {
    const dt_config *config;
    const dt_field_info *fields;
    int n_fields;
    int batch; // samples of a micro-batch
    bool training;
    dt_dtype low; // precision of activations
} dt_graph_request;

typedef struct dt_trainer_args {
    dt_config *config; // autos are resolved in place
    dt_comm *comm;
    const char *version; // of dtrain
    FILE *results;       // JSON lines for programs (stdout)
    // Builds the model's graph, ready for a plan.
    dt_status (*build_graph)(void *ctx, const dt_graph_request *r, dt_graph **out);
    // Opens the data set of the config. workers: loader threads; skip_log: see dt_data_open.
    dt_status (*open_data)(void *ctx, const dt_config *c, dt_backend *b, int workers,
                           const char *skip_log, dt_dataset **out);
    void *ctx;
} dt_trainer_args;

typedef struct dt_trainer_outcome {
    bool agreed; // every rank got this status
} dt_trainer_outcome;

// Trains or resumes. DT_OK: finished (or was finished already). DT_E_PREEMPTED: saved, run again.
dt_status dt_trainer_train(const dt_trainer_args *a, dt_trainer_outcome *out);

// Metrics of a checkpoint. which: "latest", "best" or a step number.
dt_status dt_trainer_eval(const dt_trainer_args *a, const char *which, dt_split split,
                          dt_trainer_outcome *out);

// Makes graph and plans and reports parameters and memory to `out`; no run directory, no training.
// print_graph: the graph and the plan too. fields: used when there is no data set (open_data NULL).
dt_status dt_trainer_check(const dt_trainer_args *a, const dt_field_info *fields, int n_fields,
                           bool print_graph, FILE *out);

#endif
