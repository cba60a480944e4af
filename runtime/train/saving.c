// saving.c: a run's checkpoints and evaluations, and which checkpoint is the best.
//
// Rank 0 saves while training goes on, and looks at the outcome when it needs it: before the next evaluation is
// compared with the best, before the next save, and at the end. A save that failed is then tried once more, from the
// snapshot. If it fails again and another will follow, that is a warning, because the older checkpoint is still good;
// when the last save fails, that is an error. If the failed save was to be the best, the best is again the best
// one on disk; rank 0 sees which, and the others hear it at the next evaluation.

#include "train/trainer_internal.h"

#include "base/core.h"
#include "base/formats.h"
#include "base/io.h"
#include "base/log.h"
#include "base/trace.h"
#include "config/words.h"
#include "run/signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FAILED_SAVES = 3 }; // in a row: then the run ends, its newest checkpoint is too old

// ---- saving ----------------------------------------------------------------------------------------

static dt_status give_save_up(trainer *t, dt_status st, bool must_hold) {
    if (must_hold) return st;
    if (++t->failed_saves >= MAX_FAILED_SAVES)
        return dt_fail_context(st, "%d saves in a row could not be written; the last one", t->failed_saves);
    dt_warn("a checkpoint could not be written: %s; training continues, the older one stays", dt_error_message());
    t->saved_step = -1; // no save counts: the next due one is made even at this step
    // the save that failed may have been the record's best
    if (dt_run_take_best(&t->run) != DT_OK) {
        dt_warn("which checkpoint is the best cannot be seen now: %s", dt_error_message());
        dt_error_clear();
    }
    return DT_OK;
}

dt_status dt_trainer_settle_save(trainer *t, bool must_hold) {
    if (!t->save_is_open) return DT_OK;
    t->save_is_open = false; // whatever the outcome, it is looked at once
    const dt_activity before = dt_metrics_activity(t->metrics, DT_ACTIVITY_waiting);
    const double traced = dt_trace_begin();
    dt_status st = dt_ckpt_save_wait(t->run.ckpt, NULL);
    // the wait is a span of the timeline
    dt_trace_end("checkpoint", "wait for the writer", traced);
    if (st != DT_OK) {
        // another process may have taken over the run's folder
        DT_TRY(dt_ckpt_check_lock(t->run.ckpt));
        st = dt_ckpt_save_again(t->run.ckpt); // from the same snapshot, which is still in memory
    }
    dt_metrics_activity(t->metrics, before);
    if (st != DT_OK) return give_save_up(t, st, must_hold);
    t->failed_saves = 0;
    return DT_OK;
}

// Rank 0 may have to wait for the save before this one, and the others for rank 0. So all wait long now; record_step
// shortens the timeout again after the next step.
dt_status dt_trainer_save(trainer *t, bool best) {
    dt_run_state *record = &t->run.record;
    // before anything is written: a checkpoint of broken weights would be resumed from
    if (t->verify_every > 0) DT_TRY(dt_trainer_verify(t));
    if (trainer_is_root(t)) {
        DT_TRY(dt_ckpt_check_lock(t->run.ckpt));
        DT_TRY(dt_trainer_settle_save(t, false)); // may say that nothing is saved
    }
    t->saved_step = record->step; // the same on all ranks
    if (!trainer_is_root(t)) return dt_state_save(t->state, NULL, best);
    const dt_activity before = dt_metrics_activity(t->metrics, DT_ACTIVITY_saving);
    const double traced = dt_trace_begin();
    // rows behind this offset are cut off when the run resumes here
    record->metrics_offset = dt_metrics_flush(t->metrics);
    const dt_status st = dt_state_save(t->state, t->run.ckpt, best);
    dt_trace_end("checkpoint", "begin a save", traced);
    t->save_is_open = st == DT_OK; // the writer thread goes on; dt_trainer_settle_save looks at its outcome
    // what a signal leaves for the step also has to hold the upload
    dt_signals_set_grace(fmax(0, t->run.config->run.grace - dt_ckpt_mirror_seconds(t->run.ckpt)));
    dt_metrics_activity(t->metrics, before);
    return st;
}

// ---- evaluation ------------------------------------------------------------------------------------

dt_status dt_trainer_make_evaluator(trainer *t, int64_t done) {
    const dt_net net = dt_nets_evaluated(&t->nets, done);
    if (t->evaluator && t->evaluated.plan == net.plan) return DT_OK; // the same network: buffers and threads are kept
    dt_evaluator_destroy(t->evaluator);
    t->evaluator = NULL;
    t->evaluated = net;
    dt_infer_opts o = dt_nets_infer_opts(&t->nets, &t->run, net, dt_stepper_team(t->stepper));
    o.give_up = dt_signals_grace_is_over; // checked before each batch, on every rank
    return dt_evaluator_create(&t->evaluator, &o, &t->nets.targets, &t->nets.metrics);
}

static void note_evaluation(trainer *t, double value, bool *is_best) {
    dt_run_state *s = &t->run.record;
    const bool least = dt_metrics_table[t->nets.metrics.best]->lower_is_better;
    // min_delta is for early stopping alone
    *is_best = dt_eval_is_better(value, s->best_step >= 0, s->best_value, least, 0);
    if (*is_best) {
        s->best_step = s->step;
        s->best_value = value;
    }
    // once, and not where non-finite predictions were reported already
    if (isnan(value) && s->n_history == 0 && !t->last.n_not_finite && trainer_is_root(t))
        dt_warn("eval.best: %s has no value on this validation split, so no checkpoint is the best",
                t->nets.metrics.best_name);
    dt_run_state_add_eval(s, s->step, value);
}

// Rank 0 alone sees which checkpoint on disk is the best, and where one becomes it all ranks save.
static dt_status share_best(trainer *t, bool *is_best) {
    dt_run_state *s = &t->run.record;
    struct {
        int64_t step;
        double value;
        int64_t is_best;
    } best = {s->best_step, s->best_value, *is_best};
    DT_TRY(t->run.comm->broadcast_bytes(t->run.comm, &best, sizeof best, 0));
    s->best_step = best.step;
    s->best_value = best.value;
    *is_best = best.is_best;
    return DT_OK;
}

// evaluation-<name>.json, for report.html. A disk that refuses it ends nothing.
static void write_eval_report(const trainer *t, const char *name, dt_json *j) {
    char *path = dt_xprintf("%s/evaluation-%s.json", t->run.dir, name);
    dt_json_end_array(j);
    dt_json_end_object(j);
    dt_json_newline(j);
    if (dt_io_write_file(path, j->data, j->n_bytes) != DT_OK) {
        dt_warn("%s: report.html shows no samples of it", dt_error_message());
        // the sink that shows it is optional, so its failure is not the run's
        dt_error_clear();
    }
    free(path);
}

// Evaluates a split with the weights after `step` steps, or with their average. First recalibrates the statistics of
// batch norms, unless the weights are a checkpoint's (the best ones, tested at the end): a checkpoint has recalibrated
// statistics. name: of the evaluation in metrics.jsonl.
static dt_status saving_evaluate(trainer *t, dt_split split, const char *name, int64_t step, dt_activity activity,
                                 dt_eval_result *r) {
    const dt_run_state *s = &t->run.record;
    const int64_t n_steps = dt_value_or(t->run.config->eval.recalibrate_bn, 0);
    DT_TRY(dt_trainer_make_evaluator(t, step));
    // the activity that goodput accounts for
    const dt_activity before = t->metrics ? dt_metrics_activity(t->metrics, activity) : activity;
    dt_status st = dt_state_swap_average(t->state);
    // only of the weights that train now
    if (st == DT_OK && step == s->step && n_steps > 0) st = dt_stepper_recalibrate(t->stepper, n_steps, s->step);
    dt_json report;
    // rank 0 has the table of samples
    const bool keeps = trainer_is_root(t) && dt_words_have(&t->run.config->metrics.sinks, DT_SINK_report);
    dt_json_init(&report);
    dt_json_begin_object(&report, NULL);
    dt_json_int(&report, "schema", DT_FORMAT_EVALUATION);
    dt_json_int(&report, "step", step);
    dt_json_begin_array(&report, "targets");
    dt_evaluator_keep_report(t->evaluator, keeps ? &report : NULL);
    // whole: by column and bootstrap, for the test alone
    if (st == DT_OK) st = dt_evaluator_run(t->evaluator, t->run.data, split, split == DT_SPLIT_TEST, r);
    dt_evaluator_keep_report(t->evaluator, NULL);
    if (st == DT_OK && keeps) write_eval_report(t, name, &report);
    dt_json_fini(&report);
    // weights and averages change places back: collective
    if (st == DT_OK || st == DT_E_PREEMPTED) { // else the run ends, perhaps on this rank alone
        const dt_status back = dt_state_swap_average(t->state);
        if (back != DT_OK) st = back;
    }
    if (t->metrics) dt_metrics_activity(t->metrics, before);
    if (st == DT_E_PREEMPTED && trainer_is_root(t)) // every rank returns it, one reports it
        dt_warn("an evaluation outlasted run.grace and was dropped: it is done after resuming");
    return st;
}

static dt_status run_validation(trainer *t) {
    const int64_t step = t->run.record.step;
    if (t->last_step >= 0) dt_eval_result_fini(&t->last); // -1: none, also while the new one is made
    t->last_step = -1;
    DT_TRY(saving_evaluate(t, DT_SPLIT_VAL, dt_split_name(DT_SPLIT_VAL), step, DT_ACTIVITY_evaluating, &t->last));
    t->last_step = step;
    return DT_OK;
}

dt_status dt_trainer_evaluate(trainer *t, bool *is_best) {
    dt_eval_result *r = &t->last;
    DT_TRY(run_validation(t));
    // a value of fewer samples cannot be compared with those of other checkpoints
    // NAN: never the best
    const double value = r->n_not_finite ? NAN : dt_eval_result_get(r, t->nets.metrics.best_name);
    if (t->metrics)
        dt_metrics_eval(t->metrics, dt_split_name(DT_SPLIT_VAL), t->run.record.step, r->values, r->n_values,
                        dt_eval_result_members(r));
    DT_TRY(dt_trainer_settle_save(t, false));
    note_evaluation(t, value, is_best);
    // a run that goes on has the step's checkpoint, without this evaluation and what it recalibrated
    // the step's save came before the evaluation: the next save replaces it
    if (t->saved_step == t->run.record.step) {
        t->saved_step = -1;
        if (trainer_is_root(t)) dt_ckpt_save_anew(t->run.ckpt, t->run.record.step);
    }
    return share_best(t, is_best);
}

// A run that went on from its last checkpoint has the evaluation of that step in its history, but only its value.
dt_status dt_trainer_report(trainer *t) {
    const dt_run_state *s = &t->run.record;
    dt_json *j = &t->results;
    const bool evaluates = t->eval_every > 0;
    // resumed at the end: metrics are measured again
    if (evaluates && t->last_step != s->step) DT_TRY(run_validation(t));
    if (!trainer_is_root(t)) return DT_OK;
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "split", dt_split_name(DT_SPLIT_TRAIN));
    dt_json_string(j, "weights", "last");
    dt_json_int(j, "step", s->step);
    dt_json_int(j, "samples", s->step * dt_run_global_batch(&t->run)); // with repetition: every sample of every step
    dt_json_real(j, "loss", s->loss);
    dt_json_string(j, "chosen_by", t->nets.metrics.best_name);
    dt_json_end_object(j);
    dt_json_newline(j);
    if (!evaluates) return DT_OK;
    dt_eval_result_write(&t->last, dt_split_name(DT_SPLIT_VAL), s->best_step == s->step ? "best and last" : "last",
                         s->step, j);
    // the best is another checkpoint, of which only the value is known
    if (s->best_step >= 0 && s->best_step != s->step) {
        dt_json_begin_object(j, NULL);
        dt_json_string(j, "split", dt_split_name(DT_SPLIT_VAL));
        dt_json_string(j, "weights", "best");
        dt_json_int(j, "step", s->best_step);
        dt_json_real(j, t->nets.metrics.best_name, s->best_value);
        dt_json_end_object(j);
        dt_json_newline(j);
    }
    return DT_OK;
}

dt_status dt_trainer_test(trainer *t, const char *name, const char *weights, int64_t step) {
    dt_eval_result r;
    DT_TRY(saving_evaluate(t, DT_SPLIT_TEST, name, step, DT_ACTIVITY_testing, &r));
    if (t->metrics) {
        dt_metrics_eval(t->metrics, name, step, r.values, r.n_values, dt_eval_result_members(&r));
        dt_eval_result_write(&r, dt_split_name(DT_SPLIT_TEST), weights, step, &t->results);
    }
    dt_eval_result_fini(&r);
    return DT_OK;
}
