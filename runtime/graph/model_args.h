// model_args.h: what a network is built for. The trainer fills it in, models/ reads it.
#ifndef DT_GRAPH_MODEL_ARGS_H
#define DT_GRAPH_MODEL_ARGS_H

#include "batch/targets.h"
#include "config/param_groups.h"

typedef struct dt_model_args {
    const dt_config *config;
    const dt_field_info *fields;
    int n_fields;
    int batch; // N: samples of a micro-batch
    bool training;
    const dt_param_groups *groups; // NULL: every parameter is trained
    int64_t step;                  // parameters that are frozen then get no gradient, scales that join later no part
    const dt_targets *targets;     // of builders; NULL until dt_model_graph has read them
    bool drops;                    // dropout is active without training, too
    bool adds_branches;            // dt_graph.adds_branches
    int64_t total_steps, steps_per_epoch; // of the run
    const struct dt_model_args *teacher;  // training: config, step and length of the run that teaches this one, or NULL
} dt_model_args;

#endif
