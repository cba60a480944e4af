// asked.h: a run that is asked what its network says, instead of trained: what dtrain eval, predict, quantize and
// eval --calibrate begin with.
#ifndef DT_TRAIN_ASKED_H
#define DT_TRAIN_ASKED_H

#include "eval/evaluate.h"
#include "run/state.h"

typedef struct dt_asked {
    dt_open_run run;
    dt_nets nets; // for evaluation
    dt_state *state;
    dt_team *team;
} dt_asked;

// A checkpoint of the run, its data, the network that evaluates it, and its weights. `use` of the request is set here.
// Collective. dt_asked_close also after a failure; st: how it all ended.
dt_status dt_asked_open(dt_asked *a, const dt_trainer_args *args, const dt_run_request *q);
void dt_asked_close(dt_asked *a, dt_status st);
// For dt_infer_create: a network, NULL: the one that evaluates. progress: see infer.h.
dt_infer_opts dt_asked_infer_opts(const dt_asked *a, const dt_net *net, const char *progress);

// Evaluates such a network. Where the data have no validation part, the thresholds of eval.threshold: f1 are those of
// RUN/calibration.json; DT_E_USAGE where it has none. Collective.
dt_status dt_asked_evaluator(const dt_asked *a, const dt_net *net, const char *progress, dt_evaluator **out);
// Prints what an evaluation gave, on rank 0; csv: a file for it, too, or NULL.
dt_status dt_asked_print(const dt_asked *a, const char *csv, const dt_eval_result *result);

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

#endif
