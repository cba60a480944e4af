// evaluate.h: metrics of a split, with the weights as they are.
//
// The network runs over the split (infer.h); rank 0 collects what the metrics ask for in a table in the order of the
// split, computes each sample's loss from its outputs in double, and lets the metrics report (metric.h). The values,
// not the table, go to the other ranks. So nothing depends on the world size.
#ifndef DT_EVAL_EVALUATE_H
#define DT_EVAL_EVALUATE_H

#include "metrics/metric.h"
#include "run/infer.h"
#include "run/state.h"

typedef struct dt_evaluator dt_evaluator;

// The outputs and wants_field of `o` are not set: they follow from the targets, whose logits the graph gives, and from the
// metrics, which may want its "embedding". targets, metrics: borrowed.
//
// A prediction that is not finite is left out of all of it and counted (n_not_finite), with a warning.
//
// Where train.targets names the targets, values are "<field>.accuracy" and so on, and "loss" is the weighted sum.
dt_status dt_evaluator_create(dt_evaluator **out, const dt_infer_opts *o, const dt_targets *targets,
                              const dt_metric_choice *metrics);
void dt_evaluator_destroy(dt_evaluator *e);
// eval.threshold: f1 is chosen on the validation part, whose evaluation uses and reports it ("thresholds": {"odd": 0.31,
// …}); an evaluation of another part runs over the validation part first. Where the data have none, as another data set,
// rank 0 gives the thresholds beforehand: (n_out) of target k.
void dt_evaluator_set_thresholds(dt_evaluator *e, int k, const double *thresholds);
// From now on f gives the outputs (n_out) of target k that count for a sample, from the network's x, on rank 0; NaN: there
// are none. `prepare` is called on all ranks before samples [begin, begin + most).
typedef struct dt_evaluator_combine {
    void (*f)(void *ctx, int64_t sample, int k, const float *x, float *out);
    dt_status (*prepare)(void *ctx, int64_t begin);
    int64_t most;
    void *ctx;
} dt_evaluator_combine;
void dt_evaluator_set_combine(dt_evaluator *e, const dt_evaluator_combine *c);
// Evaluations from now on also add each target's report (eval_report.h) to the array that j is in, on rank 0; NULL: none.
void dt_evaluator_keep_report(dt_evaluator *e, dt_json *j);
// Collective; all ranks get the values, and rank 0 what is no single number. Fini the result afterwards. DT_E_DATA:
// no record of the split could be read.
//
// whole: with what takes longer, for evaluations that end something (eval.by, eval.bootstrap).
dt_status dt_evaluator_run(dt_evaluator *e, dt_dataset *data, dt_split split, bool whole, dt_eval_result *out);

// ---- inference session ----------------------------------------------------------------------------------------------

// A run whose network predicts, instead of being trained: what dtrain eval, predict, quantize and
// eval --calibrate begin with.

typedef struct dt_session {
    dt_open_run run;
    dt_nets nets; // for evaluation
    dt_state *state;
    dt_team *team;
    double begin_s;
} dt_session;

// A checkpoint of the run, its data, the network that evaluates it, and its weights. `use` of the request is set here.
// Collective. dt_session_close also after a failure; st: how it all ended.
dt_status dt_session_open(dt_session *a, const dt_trainer_args *args, const dt_run_request *q);
void dt_session_close(dt_session *a, dt_status st);
// For dt_infer_create: a network, NULL: the one that evaluates. progress: see infer.h.
dt_infer_opts dt_session_infer_opts(const dt_session *a, const dt_net *net, const char *progress);

// Evaluates such a network. Where the data have no validation part, the thresholds of eval.threshold: f1 are those of
// RUN/calibration.json; DT_E_USAGE where it has none. Collective.
dt_status dt_session_evaluator(const dt_session *a, const dt_net *net, const char *progress, dt_evaluator **out);
// Prints what an evaluation gave, on rank 0; csv: a file for it, too, or NULL.
dt_status dt_session_print(const dt_session *a, const char *csv, const dt_eval_result *result);

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
