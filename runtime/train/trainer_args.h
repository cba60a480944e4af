// trainer_args.h: what launch/ hands over to the trainer.
#ifndef DT_TRAIN_TRAINER_ARGS_H
#define DT_TRAIN_TRAINER_ARGS_H

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

#endif
