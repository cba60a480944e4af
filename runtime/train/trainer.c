// trainer.c: a run from beginning to end.
//
//   open    rank 0 finds the newest checkpoint and broadcasts its state; all ranks make their session (backend, data,
//           graphs, plans) and take the weights from the seed or the checkpoint
//   loop    step, record it, evaluate and save when that is due, stop when asked
//   finish  last evaluation, last checkpoint, the test split with the last and with the best weights
//
// What is due depends on the step alone, so ranks need not agree on it. What depends on rank 0's disk is broadcast.
// saving.c saves and evaluates.

#include "train/trainer_internal.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/rank_report.h"
#include "base/watch.h"
#include "config/sink_words.h"
#include "train/agree.h"
#include "train/length.h"
#include "train/replica_check.h"
#include "train/resolve.h"
#include "train/signals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// How long this rank waits for another one that does not get on.
static void set_timeout(trainer *t) {
    const double least_s = t->slowest_step_s > 0 ? DT_LOST_TIMEOUT_S : DT_START_TIMEOUT_S;
    const double step_s = fmax(10.0 * t->slowest_step_s, least_s);
    dt_session_set_deadline(&t->s, dt_session_timeout_s(t->s.config, step_s));
}

// ---- opening and resuming --------------------------------------------------------------------------

static dt_status open_run_dir(trainer *t) {
    const dt_config *c = t->s.config;
    t->run_dir = dt_xprintf("%s/%s", c->run.dir, c->run.name);
    t->checkpoint_dir = dt_xprintf("%s/checkpoints", t->run_dir);
    if (dt_words_have(&c->metrics.sinks, DT_SINK_jsonl))
        t->metrics_path = dt_xprintf("%s/metrics.jsonl", t->run_dir);
    if (!trainer_is_root(t)) return DT_OK;
    DT_TRY(dt_io_mkdir_all(t->run_dir));
    dt_ckpt_opts o = {.dir = t->checkpoint_dir,
                      .keep = (int)c->checkpoint.keep,
                      .async = c->checkpoint.async,
                      .beside = t->metrics_path,
                      .usable = dt_state_check};
    return dt_ckpt_open(&t->ckpt, &o, false);
}

static dt_status compare_config(trainer *t) {
    dt_config *old = NULL;
    DT_TRY(dt_config_parse(&old, "checkpoint's config", t->state.config, strlen(t->state.config),
                           NULL, 0));
    dt_config *given = NULL;
    dt_status st = dt_config_parse(&given, "config", t->s.given, strlen(t->s.given), NULL, 0);
    if (st == DT_OK) dt_resolve_align(old, given, &t->state.resolved);
    const char *was = NULL, *is = NULL;
    const char *key =
        st == DT_OK ? dt_config_first_numeric_difference(old, given, &was, &is) : NULL;
    const bool longer =
        key && (strcmp(key, "train.epochs") == 0 || strcmp(key, "train.max_steps") == 0);
    if (longer && dt_length_may_grow(old, given, &t->state)) {
        t->forced = true;
        dt_info("%s was %s and is %s now: the run goes on; its steps so far are those that the "
                "longer run would have "
                "had",
                key, was, is);
    } else if (key && t->s.config->run.resume == DT_RESUME_force) {
        t->forced = true;
        dt_warn("resuming although %s changed from %s to %s (run.resume=force)", key, was, is);
    } else if (key) {
        st = dt_fail(DT_E_USAGE,
                     "%s was %s when this run began and is %s now: results would mix both%s. Start "
                     "another run (run.name=…), restore the value, or go on anyway "
                     "(run.resume=force)",
                     key, was, is,
                     longer
                         ? ", as with the new length the steps that are done would have had other "
                           "learning rates, or other groups or scales"
                         : "");
    }
    dt_config_destroy(old);
    dt_config_destroy(given);
    return st;
}

// Rank 0: finds the newest checkpoint that loads and reads its state.
static dt_status find_checkpoint(trainer *t, char **state_json) {
    int64_t step = -1;
    *state_json = NULL;
    DT_TRY(dt_ckpt_find(t->ckpt, "latest", &step, &t->resume_path));
    if (step < 0) return DT_OK;
    if (t->s.config->run.resume == DT_RESUME_never)
        return dt_fail(DT_E_USAGE,
                       "%s has a checkpoint of step %lld and run.resume is never: take another "
                       "run.name, or run.resume=auto",
                       t->run_dir, (long long)step);
    DT_TRY(dt_state_read(&t->state, t->resume_path, step, state_json));
    trainer_take_best(t);
    return compare_config(t);
}

static dt_status read_state(trainer *t) {
    char *text = NULL;
    dt_status st = trainer_is_root(t) ? find_checkpoint(t, &text) : DT_OK;
    if (st == DT_OK) st = dt_agree_text(t->s.comm, &text);
    if (st == DT_OK && text && !trainer_is_root(t))
        st = dt_state_parse(&t->state, "state.json", text);
    t->resumed = st == DT_OK && text != NULL;
    free(text);
    return st;
}

static dt_status compare_environment(trainer *t) {
    char *now = dt_session_environment(&t->s);
    dt_status st = DT_OK;
    const char *was = t->state.environment;
    const bool same = dt_state_same_environment(&t->state, t->s.backend->describe(t->s.backend));
    if (!same && t->s.elastic)
        st =
            dt_fail(DT_E_USAGE,
                    "this run began on '%s', here is '%s': run.reproducible=elastic promises equal "
                    "bits, which these do not give. Go on there, or start another run with "
                    "run.reproducible=resume",
                    was, now);
    else if (!same && trainer_is_root(t))
        dt_warn("this run began on '%s' and goes on with '%s': bits will differ%s", was, now,
                t->state.engines && *t->state.engines ? ", and engines are chosen anew" : "");
    if (st == DT_OK && t->state.world_size != t->s.comm->world_size && !t->s.elastic &&
        trainer_is_root(t))
        dt_warn("this run had %d ranks and goes on with %d: bits will differ "
                "(run.reproducible=elastic would keep them)",
                t->state.world_size, t->s.comm->world_size);
    else if (st == DT_OK && t->state.spread != t->s.comm->host_layout_hash && !t->s.elastic &&
             trainer_is_root(t))
        dt_warn("this run's ranks were spread over hosts in another way: sums are added in another "
                "order, so bits will differ (run.reproducible=elastic would keep them)");
    free(t->state.environment);
    t->state.environment = now;
    return st;
}

static dt_status check_resumed(trainer *t) {
    DT_TRY(compare_environment(t));
    if (t->state.data_fingerprint != t->s.data->fingerprint) {
        if (t->s.config->run.resume != DT_RESUME_force)
            return dt_fail(DT_E_USAGE,
                           "the data set is not the one this run began with (records, view or "
                           "split changed): restore it, start another run (run.name=…), or go on "
                           "anyway (run.resume=force)");
        if (trainer_is_root(t)) dt_warn("resuming on a data set that changed (run.resume=force)");
    }
    return DT_OK;
}

static void go_without_validation(trainer *t) {
    if (t->eval_every > 0 && trainer_is_root(t))
        dt_warn(
            "no validation part (data.split.val): nothing is evaluated while training, and there "
            "is no best checkpoint");
    t->eval_every = 0;
}

static dt_status plan_length(trainer *t) {
    const dt_config *c = t->s.config;
    DT_TRY(dt_session_measure(&t->s));
    t->n_epochs = (int)c->train.epochs;
    const int64_t total = t->state.total_steps = t->s.total_steps;
    const int64_t spe = t->state.steps_per_epoch = t->s.steps_per_epoch;
    t->s.first_step = t->state.step;
    t->eval_every = dt_amount_steps(c->eval.every, total, spe);
    t->save_every = dt_amount_steps(c->checkpoint.every, total, spe);
    if (c->run.verify_every.unit != DT_UNIT_NONE)
        t->verify_every = dt_amount_steps(c->run.verify_every, total, spe);
    if (c->metrics.trace.steps) {
        long long from, to; // config_check.c has seen that they are there
        sscanf(c->metrics.trace.steps, "%lld..%lld", &from, &to);
        t->timeline = (dt_timeline){from, to, false};
    }
    t->stop_at = c->run.stop_at.has ? c->run.stop_at.value : -1;
    if (t->s.data->n_samples(t->s.data, DT_SPLIT_VAL) == 0) go_without_validation(t);
    return DT_OK;
}

static dt_status load_teacher(trainer *t) {
    uint64_t hash;
    DT_TRY(dt_session_load_teacher(&t->s, &hash));
    if (t->resumed && hash != t->state.teacher) {
        if (t->s.config->run.resume != DT_RESUME_force)
            return dt_config_fail(t->s.config, "train.teacher",
                                  "train.teacher has other weights than when this run began: name "
                                  "its step (runs/a@120), start another run (run.name=…), or go on "
                                  "anyway (run.resume=force)");
        if (trainer_is_root(t)) dt_warn("resuming with a teacher that changed (run.resume=force)");
    }
    t->state.teacher = hash;
    return DT_OK;
}

static dt_status load_weights(trainer *t) {
    dt_session *s = &t->s;
    DT_TRY(t->resumed ? dt_session_load(s, t->resume_path, true) : dt_session_init_weights(s));
    DT_TRY(load_teacher(t));
    if (t->resumed) {
        dt_scaler scaler = {(float)t->state.loss_scale, (int32_t)t->state.clean_steps,
                            t->state.n_skipped};
        return dt_stepper_set_scaler(s->stepper, &scaler);
    }
    return DT_OK;
}

static void fill_state(trainer *t) {
    dt_session *s = &t->s;
    dt_train_state *st = &t->state;
    st->seed = (uint64_t)s->config->run.seed;
    st->world_size = s->comm->world_size;
    st->spread = s->comm->host_layout_hash;
    free(st->config);
    st->config = dt_xstrdup(s->given);
    free(st->version);
    st->version = dt_xstrdup(s->a.version);
    free(st->classes);
    st->classes = dt_xstrdup(s->classes);
    if (t->ckpt) dt_ckpt_set_classes(t->ckpt, s->classes);
    if (!st->environment) st->environment = dt_session_environment(s);
    free(st->engines);
    st->engines = dt_session_engines(s);
    st->data_fingerprint = s->data->fingerprint;
    st->resolved = s->resolved;
}

// Of a file that the next start makes again: no space for it is no reason to end. The first save frees some.
static dt_status forgive_no_space(dt_status st) {
    if (st != DT_E_STORAGE || !dt_io_out_of_space()) return st;
    dt_warn("%s. Training goes on without it", dt_error_message());
    dt_error_clear();
    return DT_OK;
}

static void note_saved(void *metrics, int64_t step, double seconds, bool saved) {
    dt_metrics_checkpoint(metrics, step, seconds, saved);
}

// Rank 0: what the run directory holds besides checkpoints.
static dt_status open_reports(trainer *t) {
    if (!trainer_is_root(t)) return DT_OK;
    const dt_config *c = t->s.config;
    char *path = dt_xprintf("%s/result.json", t->run_dir);
    remove(path); // of a run that goes on longer now
    free(path);
    path = dt_xprintf("%s/split.csv", t->run_dir);
    dt_status st = t->s.data->write_split ? t->s.data->write_split(t->s.data, path) : DT_OK;
    free(path);
    DT_TRY(forgive_no_space(st));
    int64_t every =
        dt_amount_steps(c->metrics.every, t->state.total_steps, t->state.steps_per_epoch);
    dt_metrics_opts o = {.run_dir = t->run_dir,
                         .run_name = c->run.name,
                         .listen_text = c->metrics.listen,
                         .textfile = c->metrics.textfile,
                         .linger_s = c->metrics.linger,
                         .version = t->s.a.version,
                         .machine = t->s.backend->describe(t->s.backend),
                         .data = t->s.data->describe(t->s.data),
                         .chosen_by = t->eval_every > 0 ? t->s.metrics.best_name : NULL,
                         .lower_is_better = dt_metrics_table[t->s.metrics.best]->lower_is_better,
                         .world_size = t->s.comm->world_size,
                         .first_step = t->state.step,
                         .every_steps = every > 0 ? (int)every : 1,
                         .total_steps = t->state.total_steps,
                         .steps_per_epoch = t->state.steps_per_epoch,
                         .n_epochs = t->n_epochs,
                         .truncate_to = t->resumed ? t->state.metrics_offset : -1};
    for (int i = 0; i < DT_N_SINKS; i++)
        o.sinks |= (unsigned)dt_words_have(&c->metrics.sinks, i) << i;
    for (int i = 0; i < 3; i++) o.n_samples[i] = t->s.data->n_samples(t->s.data, (dt_split)i);
    DT_TRY(dt_listen_read(&o.listen, c));
    DT_TRY(dt_metrics_open(&t->metrics, &o));
    dt_ckpt_on_saved(t->ckpt, note_saved, t->metrics);
    // flushes the run's directory too, which has metrics.jsonl now
    path = dt_xprintf("%s/config.yaml", t->run_dir);
    char *text = dt_config_dump(c);
    st = dt_io_update_file(path, text, strlen(text));
    free(text);
    free(path);
    return forgive_no_space(st);
}

static dt_status open_source(trainer *t) {
    dt_source_request r = {.split = DT_SPLIT_TRAIN,
                           .augment = true,
                           .global_batch = t->s.global_batch,
                           .micro_batch = t->s.micro_batch,
                           .micros = t->s.replicas->micros,
                           .n_micro = t->s.replicas->n_rank_micros,
                           .start_step = t->state.step,
                           .end_step = t->state.total_steps};
    DT_TRY(t->s.data->open(t->s.data, &r, &t->source));
    return dt_stepper_set_source(t->s.stepper, t->source);
}

// A network begins near 0 and takes long to come to numbers that lie far from it.
static void judge_targets(const dt_targets *targets) {
    enum { MOST = 10 };
    for (int i = 0; i < targets->n; i++) {
        const dt_field_info *f = targets->items[i].field;
        if (f->n_classes == 0 && f->spread > MOST)
            dt_warn("data.fields.%s: the training part's mean or deviation is %.3g, and a network "
                    "begins near 0: add  normalize: auto  to the field",
                    f->name, f->spread);
    }
}

static void describe_run(const trainer *t) {
    const dt_session *s = &t->s;
    if (!trainer_is_root(t)) return;
    dt_info("%s: %d rank%s, %d replica%s of %d thread%s, %s, %s", t->run_dir, s->comm->world_size,
            s->comm->world_size == 1 ? "" : "s", s->replicas->n_replicas,
            s->replicas->n_replicas == 1 ? "" : "s", s->resolved.replica_threads,
            s->resolved.replica_threads == 1 ? "" : "s",
            DT_WORD_OF(DT_PRECISION_WORDS, s->resolved.precision),
            s->backend->describe(s->backend));
    dt_info("data: %s", s->data->describe(s->data));
    judge_targets(&s->targets);
    if (s->graph->note) dt_info("%s", s->graph->note);
    if (t->resumed)
        dt_info("resuming at step %lld of %lld", (long long)t->state.step,
                (long long)t->state.total_steps);
    else
        dt_info("training %lld steps, %lld an epoch%s%s", (long long)t->state.total_steps,
                (long long)t->state.steps_per_epoch,
                t->eval_every > 0 ? "; the best checkpoint is that of " : "",
                t->eval_every > 0 ? s->metrics.best_name : "");
}

static dt_status open_training(trainer *t) {
    dt_session *s = &t->s;
    if (t->resumed) s->classes = dt_xstrdup(t->state.classes);
    char *skip_log = dt_xprintf("%s/skipped.rank%d", t->run_dir, s->comm->rank);
    dt_status st = dt_session_open(s, t->resumed ? &t->state : NULL, skip_log);
    free(skip_log);
    DT_TRY(st);
    if (t->resumed) DT_TRY(check_resumed(t));
    DT_TRY(plan_length(t));
    DT_TRY(dt_session_build(s, s->data->fields, s->data->n_fields, true));
    dt_schedule_init(&t->schedule, s->config, t->state.total_steps, t->state.steps_per_epoch,
                     dt_metrics_table[s->metrics.best]->lower_is_better);
    if (s->backend->device)
        DT_TRY(dt_session_make_evaluator(s, t->state.step)); // its memory too, before step 0
    DT_TRY(load_weights(t));
    fill_state(t);
    DT_TRY(open_reports(t));
    describe_run(t);
    DT_TRY(open_source(t));
    return dt_session_check_room(s);
}

// ---- the loop --------------------------------------------------------------------------------------

// What each rank has found out about a bad step.
typedef struct bad_report {
    int32_t micro;
    char name[252];
} bad_report;

// The commit is the same on all ranks, so each finds the same tensor.
static dt_status report_spoiled(trainer *t, int64_t step) {
    *t->agreed = true;
    return dt_fail(DT_E_NUMERIC,
                   "step %lld: its gradients were finite, but its update is not: '%s' holds NaN or "
                   "infinity now. It is not saved; the newest checkpoint is intact. Try a lower "
                   "train.optimizer.lr, a warm-up or train.clip_norm",
                   (long long)step, dt_session_find_bad(&t->s));
}

static dt_status report_bad_step(trainer *t, const dt_step_result *step) {
    if (step->spoiled) return report_spoiled(t, step->step);
    dt_comm *c = t->s.comm;
    bad_report mine = {.micro = -1};
    int micro = -1;
    dt_status st =
        dt_stepper_find_bad(t->s.stepper, t->state.step, &micro, mine.name, sizeof mine.name);
    if (st != DT_OK)
        return dt_fail_context(st, "step %lld: loss %g, gradient norm %g; looking for the tensor",
                               (long long)t->state.step, step->loss, step->grad_norm);
    mine.micro = micro;
    bad_report *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    const bad_report *first = NULL;
    int rank = 0;
    for (int r = 0; r < c->world_size; r++) {
        if (all[r].micro < 0 || (first && first->micro <= all[r].micro)) continue;
        first = &all[r];
        rank = r;
    }
    if (st == DT_OK) {
        *t->agreed = true;
        if (first)
            st =
                dt_fail(DT_E_NUMERIC,
                        "step %lld: loss %g, gradient norm %g; the first tensor that is not finite "
                        "is '%s' (micro-batch %d, rank %d). Nothing was committed; try a lower "
                        "train.optimizer.lr, a warm-up or train.clip_norm",
                        (long long)t->state.step, step->loss, step->grad_norm, first->name,
                        first->micro, rank);
        else
            st = dt_fail(DT_E_NUMERIC,
                         "step %lld: loss %g, gradient norm %g, though every tensor of the step is "
                         "finite: the sum overflows. Nothing was committed; try a lower "
                         "train.optimizer.lr",
                         (long long)t->state.step, step->loss, step->grad_norm);
    }
    free(all);
    return st;
}

static void record_step(trainer *t, const dt_step_result *r, double lr, double step_s) {
    if (step_s > t->slowest_step_s) t->slowest_step_s = step_s;
    set_timeout(t);
    dt_rank_at("after the step", "");
    dt_rank_set_times(r->data_s, r->compute_s);
    if (!t->metrics) return;
    int64_t done = t->state.step;
    double other = step_s - r->data_s - r->compute_s - r->comm_s;
    dt_step_record record = {.step = done,
                             .epoch = (double)done / (double)t->state.steps_per_epoch,
                             .samples = done * t->s.global_batch,
                             .loss = r->loss,
                             .lr = lr,
                             .grad_norm = r->grad_norm,
                             .step_s = step_s,
                             .data_s = r->data_s,
                             .compute_s = r->compute_s,
                             .comm_s = r->comm_s,
                             .other_s = other > 0.0 ? other : 0.0,
                             .idle_s = r->idle_s,
                             .global_batch = t->s.global_batch,
                             .skipped = r->skipped,
                             .loss_scale = (double)r->scaler.scale};
    dt_metrics_step(t->metrics, &record);
}

static dt_status name_slow_rank(trainer *t, const dt_step_result *r) {
    dt_slow_finding f;
    bool trace = dt_signals_take_trace();
    DT_TRY(dt_slow_rank_step(&t->slow, t->s.comm, r->data_s, r->compute_s, &trace, &f));
    if (trace) dt_timeline_ask(&t->timeline, t->state.step + 1); // a device may have begun the next
    if (f.rank < 0 || !trainer_is_root(t)) return DT_OK;
    dt_warn("rank %d on %s takes %.1f times as long as the median rank, most of it for %s, in the "
            "last %d steps: all ranks wait for it",
            f.rank, f.host, f.times, f.phase, (int)DT_SLOW_STEPS);
    dt_metrics_slow_rank(t->metrics, t->state.step, f.rank, f.host, f.phase, f.times);
    return DT_OK;
}

static int64_t last_evaluated(const trainer *t) {
    return t->state.n_history ? t->state.history[t->state.n_history - 1].step : -1;
}

// Nothing is left to train.
static bool is_over(const trainer *t) {
    const bool lower = dt_metrics_table[t->s.metrics.best]->lower_is_better;
    return t->state.step >= t->state.total_steps ||
           dt_length_is_enough(t->s.config, &t->state, lower);
}

dt_status trainer_verify(trainer *t) {
    dt_status st = dt_verify_ranks(&t->s, t->agreed);
    return st == DT_OK ? DT_OK : dt_fail_context(st, "after step %lld", (long long)t->state.step);
}

// What is due after a step. *stop: the loop ends with DT_E_PREEMPTED.
static dt_status after_step(trainer *t, bool asked, bool *stop) {
    int64_t done = t->state.step;
    bool last = done == t->state.total_steps, best = false;
    *stop = !last && (asked || done == t->stop_at);
    if (last) return DT_OK; // finish() does the rest
    if (dt_amount_due(t->verify_every, done)) DT_TRY(trainer_verify(t));
    dt_status st = dt_amount_due(t->eval_every, done) ? trainer_evaluate(t, &best) : DT_OK;
    *stop |= st == DT_E_PREEMPTED;
    if (st != DT_E_PREEMPTED) DT_TRY(st);
    if (!last && is_over(t)) {
        if (trainer_is_root(t))
            dt_info("train.early_stop: %s has not improved since step %lld", t->s.metrics.best_name,
                    (long long)t->state.best_step);
        *stop = false; // finish() saves
    }
    if (best || *stop || dt_amount_due(t->save_every, done)) DT_TRY(trainer_save(t, best));
    return DT_OK;
}

// Ends a run that has saved and can be continued.
static dt_status leave(trainer *t) {
    DT_TRY(dt_timeline_step(&t->timeline, t->s.comm, -1, t->run_dir));
    DT_TRY(trainer_settle_save(t, true));
    *t->agreed = true;
    const char *name = dt_signals_name();
    return dt_fail(
        DT_E_PREEMPTED, "stopped after step %lld of %lld%s%s; saved: the same command goes on",
        (long long)t->state.step, (long long)t->state.total_steps, *name ? " by " : "", name);
}

// A rank gave up the step because run.grace was over. The next run does it again.
static dt_status stop_without_step(trainer *t) {
    if (trainer_is_root(t))
        dt_warn("step %lld was dropped: it outlasted run.grace", (long long)t->state.step);
    dt_step_result behind; // a step that was queued behind it changed nothing
    DT_TRY(dt_stepper_drain(t->s.stepper, &behind));
    if (t->saved_step != t->state.step) DT_TRY(trainer_save(t, false));
    return leave(t);
}

// While the run goes on, the tuner adapts the loader's threads. At the end data_verdict says what was slow.
static void watch_source(trainer *t) {
    if (t->n_steps++ == 0) {
        dt_pipeline_facts facts = {0};
        if (t->s.data->facts) t->s.data->facts(t->s.data, &facts);
        dt_tuner_init(&t->tuner, t->source, &facts);
        t->source->stats(t->source, &t->first);
    } else {
        dt_tuner_tick(&t->tuner);
    }
}

static void data_verdict(trainer *t, char *text, size_t cap) {
    dt_source_stats now;
    dt_bottleneck b;
    t->source->stats(t->source, &now);
    if (t->tuner.facts.decoded_bytes > 0) t->tuner.facts.copy_byte_s = dt_memory_time_copy();
    dt_bottleneck_find(&b, &t->first, &now, &t->tuner.facts);
    char change[192] = "";
    if (*b.change && b.predicted > 0)
        snprintf(change, sizeof change, "; %s: about %.0f samples/s a rank instead of %.0f",
                 b.change, b.predicted, b.rate);
    snprintf(text, cap, "%s: %s%s%s%s", b.bound, b.what, *b.advice ? "; " : "", b.advice, change);
}

static double rate_at(const trainer *t, int64_t step) {
    return dt_schedule_lr(&t->schedule, step, t->state.history, t->state.n_history);
}

// Whether what follows the first `done` steps needs their numbers and an idle device.
static bool is_due(const trainer *t, int64_t done) {
    return done == t->state.total_steps || done == t->stop_at ||
           dt_session_phase_begins(&t->s, done) || dt_amount_due(t->eval_every, done) ||
           dt_amount_due(t->verify_every, done) || dt_amount_due(t->save_every, done);
}

static void note_skipped(trainer *t, const dt_step_result *r) {
    if (trainer_is_root(t))
        dt_info("step %lld overflowed in fp16 and was skipped; the loss scale is %g now",
                (long long)r->step, (double)r->scaler.scale);
}

// Takes the numbers of the oldest step that has none yet: state.step counts steps whose numbers are known. *finished:
// r had such numbers, and the state now includes that step.
static dt_status take_numbers(trainer *t, const dt_step_result *r, double step_s, bool *finished) {
    *finished = r->step >= 0 && (r->finite || r->skipped);
    if (!*finished) return DT_OK;
    t->state.step = r->step + 1;
    dt_watch_set_step(t->state.step);
    if (!r->skipped) t->state.loss = r->loss;
    t->state.loss_scale = (double)r->scaler.scale;
    t->state.clean_steps = r->scaler.clean_steps;
    t->state.n_skipped = r->scaler.n_skipped;
    if (r->skipped) note_skipped(t, r);
    record_step(t, r, rate_at(t, r->step), step_s);
    DT_TRY(name_slow_rank(t, r));
    watch_source(t);
    (void)dt_failpoint("step");
    return DT_OK;
}

// On the CPU a step's numbers are known when it has run. A device is one step ahead of its numbers. When something is
// due, the loop first waits for the steps that are under way.
static dt_status run_steps(trainer *t) {
    bool asked = false; // some rank wants to stop
    dt_signals_started();
    set_timeout(t);
    if (t->resumed && dt_amount_due(t->eval_every, t->state.step) &&
        last_evaluated(t) != t->state.step) { // it was dropped
        DT_TRY(after_step(t, false, &asked));
        if (asked) return leave(t);
    }
    double begin = dt_clock_s();
    int64_t queued = t->state.step;
    while (!is_over(t)) {
        dt_step_result r;
        const bool traced = t->timeline.on;
        DT_TRY(dt_timeline_step(&t->timeline, t->s.comm, queued, t->run_dir));
        if (traced && !t->timeline.on) begin = dt_clock_s(); // writing it is no part of a step
        bool settle = queued > t->state.step && (asked || is_due(t, queued));
        if (settle)
            DT_TRY(dt_stepper_drain(t->s.stepper, &r));
        else
            DT_TRY(
                dt_stepper_run(t->s.stepper, queued, rate_at(t, queued), dt_signals_pending(), &r));
        queued += !settle;
        if (r.step >= 0 && r.dropped) return stop_without_step(t);
        if (r.step >= 0 && !r.finite && !r.skipped) return report_bad_step(t, &r);
        double end = dt_clock_s();
        bool finished = false;
        DT_TRY(take_numbers(t, &r, end - begin, &finished));
        begin = end;
        asked |= finished && r.stop;
        if (!finished || t->state.step < queued) continue;
        bool stop = false, busy = t->eval_every || t->save_every || t->verify_every;
        DT_TRY(after_step(t, asked, &stop));
        if (stop) return leave(t);
        if (!is_over(t) && dt_session_phase_begins(&t->s, t->state.step))
            DT_TRY(dt_session_begin_phase(&t->s, t->state.step));
        if (busy) begin = dt_clock_s(); // evaluating and saving are not part of a step
    }
    return dt_timeline_step(&t->timeline, t->s.comm, -1, t->run_dir);
}

// ---- the end ---------------------------------------------------------------------------------------

static dt_status test_with_best(trainer *t) {
    char *path = NULL;
    int64_t step = -1;
    if (trainer_is_root(t) && t->state.best_step >= 0) {
        if (dt_ckpt_find(t->ckpt, "best", &step, &path) != DT_OK)
            dt_warn("%s; there is no test with the best weights", dt_error_message());
        if (step == t->state.step) step = -1; // tested as the last
    }
    DT_TRY(t->s.comm->broadcast_bytes(t->s.comm, &step, sizeof step, 0));
    dt_status st = step < 0 ? DT_OK : dt_session_load(&t->s, path, false);
    free(path);
    if (st != DT_OK || step < 0) return st;
    return trainer_test(t, "best", step);
}

// DT_E_PREEMPTED: an evaluation was dropped.
static dt_status evaluate_at_end(trainer *t) {
    bool best = false;
    if (t->eval_every > 0 && last_evaluated(t) != t->state.step) DT_TRY(trainer_evaluate(t, &best));
    if (t->saved_step != t->state.step || best) DT_TRY(trainer_save(t, best));
    DT_TRY(trainer_report(t));
    if (t->s.data->n_samples(t->s.data, DT_SPLIT_TEST) > 0) {
        DT_TRY(trainer_test(t, t->state.best_step == t->state.step ? "best and last" : "last",
                            t->state.step));
        DT_TRY(trainer_settle_save(t, true));
        DT_TRY(test_with_best(t));
    }
    return trainer_settle_save(t, true);
}

static void print_results(const trainer *t, const char *lines) {
    dt_eval_result_print(lines, t->s.config->metrics.print_confusion, t->s.a.results);
}

static dt_status finish(trainer *t) {
    dt_status st = evaluate_at_end(t);
    if (st == DT_E_PREEMPTED) {
        if (t->saved_step != t->state.step) DT_TRY(trainer_save(t, false));
        return leave(t);
    }
    DT_TRY(st);
    if (!trainer_is_root(t)) return DT_OK;
    DT_TRY(dt_ckpt_check_lock(t->ckpt));
    // a run that has results is finished: what it measured is on disk before
    dt_metrics_flush(t->metrics);
    if (t->metrics_path && dt_io_sync_file(t->metrics_path) != DT_OK)
        dt_warn("%s: a power cut may lose the end of it", dt_error_message());
    char *path = dt_xprintf("%s/result.json", t->run_dir);
    st = dt_io_write_file(path, t->results.data, t->results.n_bytes);
    free(path);
    DT_TRY(st);
    char verdict[768] = "";
    if (t->n_steps > 1) data_verdict(t, verdict, sizeof verdict);
    dt_metrics_summary(t->metrics, *verdict ? verdict : NULL);
    print_results(t, t->results.data);
    return DT_OK;
}

// The step that the results are of, on their first line; -1: there is none.
static int64_t step_of_results(const char *text) {
    const char *at = strstr(text, "\"step\":");
    return at ? strtoll(at + 7, NULL, 10) : -1;
}

// Whether results of the last step are on disk already; then prints them again. A run that goes on with other keys is
// never finished, because train.epochs may be among them.
static bool is_finished(trainer *t) {
    int64_t finished = 0;
    if (trainer_is_root(t) && t->resumed && !t->forced) {
        char *path = dt_xprintf("%s/result.json", t->run_dir), *text = NULL;
        size_t n = 0;
        if (dt_io_exists(path) && dt_io_read_file(&text, &n, path, 0, DT_E_CKPT) == DT_OK &&
            step_of_results(text) == t->state.step) {
            finished = 1;
            dt_info("%s is finished: %lld steps. Another run: run.name=…", t->run_dir,
                    (long long)t->state.step);
            print_results(t, text);
        }
        free(text);
        free(path);
    }
    return t->s.comm->all_reduce_max_i64(t->s.comm, &finished, 1) == DT_OK && finished;
}

static dt_status train(trainer *t) {
    DT_TRY(open_run_dir(t));
    if (trainer_is_root(t)) {
        char *path = dt_xprintf("%s/log", t->run_dir);
        dt_status st = dt_log_open(path);
        free(path);
        DT_TRY(st);
    }
    DT_TRY(read_state(t));
    if (is_finished(t)) {
        *t->agreed = true;
        return DT_OK;
    }
    if (!t->resumed) t->saved_step = -1;
    dt_status st = open_training(t);
    *t->agreed = t->s.told;
    DT_TRY(st);
    if (t->resumed) t->saved_step = t->state.step;
    dt_watch_set_step(t->state.step);
    st = run_steps(t);
    if (st == DT_OK) st = finish(t);
    if (st == DT_E_PEER) return dt_fail_context(st, "after step %lld", (long long)t->state.step);
    DT_TRY(st);
    *t->agreed = true;
    return DT_OK;
}

// What fails here is logged, and leaves the message of a run that has failed alone.
static void close_trainer(trainer *t, dt_status st) {
    const dt_error_kept first = dt_error_keep();
    t->s.agreed = *t->agreed;
    // a device may still be reading from the source
    if (t->s.stepper && dt_stepper_set_source(t->s.stepper, NULL) != DT_OK)
        dt_warn("at the end of the run: %s", dt_error_message());
    if (t->source) t->source->close(t->source);
    if (t->ckpt) dt_ckpt_on_saved(t->ckpt, NULL, NULL);
    if (t->metrics) dt_metrics_close(t->metrics, &(dt_run_end){t->state.step, st, first.message});
    if (t->ckpt) dt_ckpt_close(t->ckpt);
    dt_session_close(&t->s);
    dt_state_fini(&t->state);
    dt_json_fini(&t->json);
    dt_json_fini(&t->results);
    if (t->last_step >= 0) dt_eval_result_fini(&t->last);
    dt_slow_rank_fini(&t->slow);
    free(t->resume_path);
    free(t->run_dir);
    free(t->metrics_path);
    free(t->checkpoint_dir);
    dt_error_restore(&first);
}

dt_status dt_trainer_train(const dt_trainer_args *a, bool *agreed) {
    trainer t = {.agreed = agreed, .last_step = -1};
    *agreed = false;
    dt_signals_install();
    dt_crash_install(a->comm->world_size > 1 ? a->comm->rank : -1);
    dt_signals_set_grace(a->config->run.grace);
    dt_state_init(&t.state);
    dt_json_init(&t.json);
    dt_json_init(&t.results);
    dt_status st = dt_session_init(&t.s, a);
    if (st == DT_OK) {
        // more ranks than micro-batches is an error before anything is created
        dt_replica_plan *probe = NULL;
        st = dt_replica_plan_create(&probe, false, a->comm->rank, a->comm->world_size, 1,
                                    t.s.n_micro);
        dt_replica_plan_destroy(probe);
    }
    if (st != DT_OK)
        *agreed = true; // a function of the config and the world size
    else
        st = train(&t);
    close_trainer(&t, st);
    return st;
}
