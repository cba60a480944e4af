// saving.c: a run's checkpoints and evaluations, and which checkpoint is the best.
//
// When a save fails and another will follow, that is a warning, because the older checkpoint is still good. When the
// last save fails, that is an error.

#include "train/trainer_internal.h"

#include "base/log.h"

#include <math.h>
#include <string.h>

enum { MAX_FAILED_SAVES = 3 }; // in a row: then the run ends, its newest checkpoint is too old

// ---- saving ----------------------------------------------------------------------------------------

dt_status trainer_wait_for_save(trainer *t, bool must_hold) {
    if (!trainer_is_root(t)) return DT_OK;
    dt_status st = dt_ckpt_save_wait(t->ckpt, NULL);
    t->failed_saves = st == DT_OK ? 0 : t->failed_saves + 1;
    if (st == DT_OK || must_hold) return st;
    if (t->failed_saves >= MAX_FAILED_SAVES)
        return dt_fail_context(st, "%d saves in a row could not be written; the last one",
                               t->failed_saves);
    dt_warn("a checkpoint could not be written: %s; training goes on, the older one stays",
            dt_error_message());
    return DT_OK;
}

// Rank 0 may have to wait for the save before this one, and the others for rank 0. So all wait long now; record_step
// shortens the timeout again after the next step.
dt_status trainer_save(trainer *t, bool best) {
    t->saved_step = t->state.step;
    dt_session_set_deadline(&t->s, TRAINER_DISK_TIMEOUT_S);
    if (!trainer_is_root(t)) return DT_OK;
    DT_TRY(trainer_wait_for_save(t, false));
    dt_session_pull(&t->s);
    dt_metrics_phase(t->metrics, "saving");
    t->state.metrics_offset = dt_metrics_flush(t->metrics);
    dt_state_build(&t->state, &t->json);
    dt_status st = dt_ckpt_save_begin(t->ckpt, t->state.step, t->s.tensors, t->s.n_tensors,
                                      t->json.data, best);
    dt_metrics_phase(t->metrics, NULL);
    return st;
}

// ---- evaluation ------------------------------------------------------------------------------------

// The validation split. Its result goes to the history, to the metrics, and decides which checkpoint is the best.
dt_status trainer_evaluate(trainer *t, bool *is_best) {
    dt_session *s = &t->s;
    dt_eval_result r;
    DT_TRY(dt_session_make_evaluator(s));
    if (t->metrics) dt_metrics_phase(t->metrics, "evaluating");
    DT_TRY(dt_evaluator_run(s->evaluator, s->data, DT_SPLIT_VAL, &r));
    const char *metric = dt_metric_name(s->metrics.best);
    double value = dt_eval_result_get(&r, metric), best = t->state.best_value;
    bool lower = dt_metrics_table[s->metrics.best]->lower_is_better;
    *is_best = isfinite(value) && (t->state.best_step < 0 || (lower ? value < best : value > best));
    if (*is_best) {
        t->state.best_step = t->state.step;
        t->state.best_value = value;
    }
    if (isnan(value) && t->state.n_history == 0 && trainer_is_root(t))
        dt_warn("eval.best: %s has no value on this validation split, so no checkpoint is the best",
                metric);
    dt_state_add_eval(&t->state, t->state.step, value);
    if (t->metrics) {
        dt_metrics_phase(t->metrics, NULL);
        dt_metrics_eval(t->metrics, "val", t->state.step, r.values, r.n_values,
                        dt_eval_result_members(&r));
    }
    dt_eval_result_fini(&r);
    return DT_OK;
}

dt_status trainer_test(trainer *t, const char *weights, int64_t step) {
    dt_session *s = &t->s;
    dt_eval_result r;
    DT_TRY(dt_session_make_evaluator(s));
    if (t->metrics) dt_metrics_phase(t->metrics, "testing");
    DT_TRY(dt_evaluator_run(s->evaluator, s->data, DT_SPLIT_TEST, &r));
    if (t->metrics) {
        dt_metrics_phase(t->metrics, NULL);
        dt_metrics_eval(t->metrics, strcmp(weights, "best") == 0 ? "test_best" : "test", step,
                        r.values, r.n_values, dt_eval_result_members(&r));
        dt_eval_result_write(&r, "test", weights, step, &t->results);
    }
    dt_eval_result_fini(&r);
    return DT_OK;
}
