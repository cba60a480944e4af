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

#include "batch/batch_source.h"
#include "comm/comm.h"
#include "config/config.h"
#include "exec/exec.h"
#include "graph/model_args.h"

#include <stdio.h>

typedef struct dt_trainer_args {
    dt_config *config; // its autos are replaced by the answers
    dt_comm *comm;
    const char *version; // of dtrain
    FILE *results;       // JSON lines for programs (stdout)
    // Builds the model's graph, ready for a plan, with activations of `type`.
    dt_status (*build_graph)(dt_graph **out, const dt_model_args *a, dt_dtype type);
    // Opens the data set of the config. workers: loader threads; skip_log, classes: see dt_data_open_as.
    dt_status (*open_data)(void *ctx, const dt_config *c, const dt_batch_memory *memory, int workers,
                           const char *skip_log, const char *classes, dt_dataset **out);
    void *ctx;
} dt_trainer_args;

// Trains, or resumes. DT_OK: finished, now or earlier. DT_E_PREEMPTED: stopped after saving; run it again.
dt_status dt_trainer_train(const dt_trainer_args *a);
// Makes the run and saves its initial weights as the checkpoint of step 0. DT_E_USAGE where it has checkpoints.
dt_status dt_trainer_init(const dt_trainer_args *a);

typedef struct dt_eval_request {
    const char *which; // checkpoint (dt_ckpt_find)
    dt_split split;
    const char *csv;                // file for the same figures as a table, or NULL
    bool raw;                       // with train.ema: the trained weights, not their average
    bool own_data;                  // dt_run_request
    const dt_trainer_args *members; // of an ensemble, as for dt_trainer_predict; the first is `a`
    int n_members;                  // 0 or 1: a alone
} dt_eval_request;

// Metrics of a checkpoint, or of the mean of several runs' predictions, as a line of JSON.
dt_status dt_trainer_eval(const dt_trainer_args *a, const dt_eval_request *r);

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
