// trainer_args.h: what launch/ hands over to the trainer.
#ifndef DT_TRAIN_TRAINER_ARGS_H
#define DT_TRAIN_TRAINER_ARGS_H

#include "batch/batch_source.h"
#include "comm/comm.h"
#include "config/config.h"
#include "exec/exec.h"

#include <stdio.h>

typedef struct dt_trainer_args {
    dt_config *config; // autos are resolved in place
    dt_comm *comm;
    const char *version; // of dtrain
    FILE *results;       // JSON lines for programs (stdout)
    // Builds the model's graph, ready for a plan; `low`: precision of activations.
    dt_status (*build_graph)(dt_graph **out, const dt_model_args *a, dt_dtype low);
    // Opens the data set of the config. workers: loader threads; skip_log: see dt_data_open.
    dt_status (*open_data)(void *ctx, const dt_config *c, dt_backend *b, int workers,
                           const char *skip_log, dt_dataset **out);
    void *ctx;
} dt_trainer_args;

#endif
