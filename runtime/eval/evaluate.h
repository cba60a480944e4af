// evaluate.h: metrics of a split, with the weights as they are.
//
// The network runs over the split (infer.h); rank 0 collects what the metrics ask for in a table in the order of the
// split, computes each sample's loss from its outputs in double, and lets the metrics report (metric.h). The values,
// not the table, go to the other ranks. So nothing depends on the world size.
#ifndef DT_TRAIN_EVALUATE_H
#define DT_TRAIN_EVALUATE_H

#include "metrics/metric.h"
#include "run/infer.h"

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
// are none.
typedef void (*dt_evaluator_combine)(void *ctx, int64_t sample, int k, const float *x, float *out);
void dt_evaluator_set_combine(dt_evaluator *e, dt_evaluator_combine f, void *ctx);
// Evaluations from now on also add each target's evidence (evidence.h) to the array that j is in, on rank 0; NULL: none.
void dt_evaluator_keep_evidence(dt_evaluator *e, dt_json *j);
// Collective; all ranks get the values, and rank 0 what is no single number. Fini the result afterwards. DT_E_DATA:
// no record of the split could be read.
//
// whole: with what takes longer, for evaluations that end something (eval.by, eval.bootstrap).
dt_status dt_evaluator_run(dt_evaluator *e, dt_dataset *data, dt_split split, bool whole, dt_eval_result *out);

#endif
