// evaluate.h: metrics of a split, with the weights as they are.
//
// An inference graph (batch norms folded), with a plan and one exec per replica of its own, shares the parameters
// with training. Batch b of the split holds samples [bE, (b+1)E). Batches go round robin to the W*L replicas; the
// tail is padded with weight 0. Results are kept by batch or sample and added in that order, so metrics never
// depend on the world size.
#ifndef DT_TRAIN_EVALUATE_H
#define DT_TRAIN_EVALUATE_H

#include "base/thread.h"
#include "batch/batch_source.h"
#include "comm/comm.h"
#include "exec/exec.h"
#include "train/metric.h"

typedef struct dt_evaluator dt_evaluator;

typedef struct dt_evaluator_opts {
    dt_comm *comm;
    const dt_graph *graph; // inference graph with outputs "logits" and perhaps "embedding"
    const dt_plan *plan;   // for n_replicas execs
    dt_params *params;     // with at least n_replicas gradient buffers (the loss goes there)
    dt_team *team;         // of at least n_replicas
    int n_replicas, replica_threads;
    int batch;                   // samples of a batch
    const dt_field_info *fields; // of the data set: on a device their memory is taken at the start
    int n_fields;
    const dt_metric_choice *metrics;
} dt_evaluator_opts;

dt_status dt_evaluator_create(dt_evaluator **out, const dt_evaluator_opts *opts);
void dt_evaluator_destroy(dt_evaluator *e);
// Brings the packed weights up to date first. Collective; all ranks get the values. Fini the result afterwards.
dt_status dt_evaluator_run(dt_evaluator *e, dt_dataset *data, dt_split split, dt_eval_result *out);

#endif
