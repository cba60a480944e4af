// evaluate.h: metrics of a split with the weights as they are.
//
// An inference graph (batch norms folded) with a plan and one exec a lane of its own shares the
// parameters with training. Batch b of the split holds samples [bE, (b+1)E); batches go round robin to
// the W*L lanes, the tail is padded with weight 0. What lanes find is kept by batch or sample and
// summed in that order, so metrics never depend on the world size.
#ifndef DT_TRAIN_EVALUATE_H
#define DT_TRAIN_EVALUATE_H

#include "base/json.h"
#include "base/thread.h"
#include "batch/batch_source.h"
#include "comm/comm.h"
#include "exec/exec.h"
#include "metrics/metrics.h"

typedef struct dt_evaluator dt_evaluator;

typedef struct dt_evaluator_opts {
    dt_comm *comm;
    const dt_graph *graph; // inference graph with outputs "logits" and perhaps "embedding"
    const dt_plan *plan;   // for n_lanes execs
    dt_params *params;     // with at least n_lanes gradient slabs (the loss goes there)
    dt_team *team;         // of at least n_lanes
    int n_lanes, leaf_threads;
    int batch;                   // samples of a batch
    const dt_field_info *fields; // of the data set: on a device their memory is taken at the start
    int n_fields;
    bool verify;    // eer and auc from all pairs of embeddings
    bool confusion; // matrix[label][predicted]
    bool errors;    // the logits are numbers: mae and rmse, in the field's units
} dt_evaluator_opts;

enum { DT_MAX_METRICS = 8 };
typedef struct dt_eval_result {
    dt_metric_value values[DT_MAX_METRICS]; // names are literals
    int n_values;
    int64_t n_samples;
    dt_json extra; // members as raw JSON ("\"confusion\":[[…]]"), may be empty; rank 0
} dt_eval_result;

dt_status dt_evaluator_create(dt_evaluator **out, const dt_evaluator_opts *opts);
void dt_evaluator_destroy(dt_evaluator *e);
// Brings the packed weights up to date first. Collective; all ranks get the values. Fini the result afterwards.
dt_status dt_evaluator_run(dt_evaluator *e, dt_dataset *data, dt_split split, dt_eval_result *out);
void dt_eval_result_fini(dt_eval_result *r);
double dt_eval_result_get(const dt_eval_result *r, const char *name); // NaN when it is not there

#endif
