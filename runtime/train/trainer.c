// trainer.c: a run from beginning to end.
//
//   open    the run (run.h), its networks (nets.h), its state (state.h), which is new or of the newest checkpoint
//   loop    step, record it, evaluate and save when that is due, stop when asked
//   finish  last evaluation, last checkpoint, the test split with the last and with the best weights
//
// What is due depends on the step alone, so ranks need not agree on it. What depends on rank 0's disk is broadcast.
// saving.c saves and evaluates.

#include "train/trainer_internal.h"

#include "base/core.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "base/log.h"
#include "base/nvml.h"
#include "base/os.h"
#include "base/rank_report.h"
#include "base/watch.h"
#include "config/words.h"
#include "observe/result_file.h"
#include "run/agree.h"
#include "run/batch_inputs.h"
#include "run/memory_report.h"
#include "run/signals.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// How long this rank waits for another one that does not get on.
static void set_timeout(trainer *t) {
    // the first step plans, loads kernels and fills caches
    const double least_s = t->slowest_step_s > 0 ? DT_LOST_TIMEOUT_S : DT_START_TIMEOUT_S;
    const double step_s = fmax(10.0 * t->slowest_step_s, least_s); // ten of the slowest steps so far
    dt_run_set_deadline(&t->run, dt_run_timeout_s(t->run.config, step_s));
}

// ---- opening ---------------------------------------------------------------------------------------

static dt_optimizer_args read_optimizer(const dt_config *c) {
    dt_optimizer_args o = {.kind = c->train.optimizer.name};
    const dt_config_key *k;
    for (int i = 0; (k = dt_config_owned(c, DT_KEY(train.optimizer.name), i)); i++) {
        double v = 0;
        assert(i < DT_MAX_HYPER);
        dt_config_number(c, k->path, &v);
        o.hyper[i] = (float)v;
    }
    if (c->train.clip_value.has) o.clip_value = (float)c->train.clip_value.value;
    if (c->train.clip_agc.has) o.clip_agc = (float)c->train.clip_agc.value;
    // 1 - decay: the share of the new weights
    if (dt_value_or(c->train.ema, 0) > 0) o.average_rate = (float)(1 - c->train.ema.value);
    return o;
}

dt_status dt_trainer_make_stepper(trainer *t) {
    const dt_open_run *r = &t->run;
    const dt_config *c = r->config;
    const dt_net net = dt_nets_phase_at(&t->nets, r->record.step)->train; // the phase in which the run goes on
    const bool sync = c->model.sync_bn;
    const dt_stepper_opts o = {.comm = r->comm,
                               .device_comm = r->device_comm,
                               .loss_scaling = r->resolved.precision == DT_PRECISION_fp16,
                               .bf16_gradients = dt_run_has_bf16_gradients(r),
                               .uncaptured = !c->device.capture,
                               .graph = net.graph,
                               .plan = net.plan,
                               .first_step = r->record.step,
                               .targets = &t->nets.targets,
                               .params = t->nets.params,
                               .replicas = r->replicas,
                               .replica_threads = r->resolved.replica_threads,
                               .team_threads = dt_run_team_threads(r),
                               .micro_batch = r->resolved.micro_batch,
                               .seed = (uint64_t)c->run.seed,
                               // 0: no clipping
                               .clip_norm = c->train.clip_norm.has ? (float)c->train.clip_norm.value : 0,
                               .weight_decay = (float)c->train.optimizer.weight_decay,
                               .always_adapt = c->train.optimizer.always_adapt,
                               .optimizer = read_optimizer(c),
                               .bucket_bytes = dt_run_bucket_bytes(r, r->backend->device != NULL),
                               .sync_bn = sync,
                               .give_up = sync ? NULL : dt_signals_grace_is_over}; // others would wait
    return dt_stepper_create(&t->stepper, &o);
}

// Sets at which steps evaluations, saves, checks of ranks and the timeline are due.
static void plan_ahead(trainer *t) {
    const dt_config *c = t->run.config;
    const int64_t total = t->run.record.total_steps, per_epoch = t->run.record.steps_per_epoch;
    t->eval_every = dt_amount_steps(c->eval.every, total, per_epoch);
    t->save_every = dt_amount_steps(c->checkpoint.every, total, per_epoch);
    if (c->run.verify_every.unit != DT_UNIT_NONE)
        t->verify_every = dt_amount_steps(c->run.verify_every, total, per_epoch); // unset: never
    (void)dt_config_trace_steps(c, &t->timeline.begin, &t->timeline.end);         // checked with the config
    if (t->timeline.begin >= total && trainer_is_root(t))
        dt_warn("metrics.trace.steps is %s, and the run ends at step %lld: there is no trace.json",
                c->metrics.trace.steps, (long long)total);
    if (t->run.data->n_samples(t->run.data, DT_SPLIT_VAL) > 0) return; // with a validation split
    if (t->eval_every > 0 && trainer_is_root(t))
        dt_warn("no validation split (data.split.val): no evaluation during training and no best checkpoint");
    t->eval_every = 0;
}

static dt_status load_teacher(trainer *t) {
    const dt_open_run *r = &t->run;
    uint64_t hash;
    DT_TRY(dt_state_load_teacher(t->state, &hash));
    // the record's hash is that of the first start
    if (r->resumed && hash != r->record.teacher) {
        if (r->config->run.resume != DT_RESUME_force)
            return dt_config_fail(
                r->config, "train.teacher",
                "train.teacher has other weights than when this run began: name its step (runs/a@120), start another "
                "run (run.name=…), or continue anyway (run.resume=force)");
        if (trainer_is_root(t)) dt_warn("resuming with a teacher that changed (run.resume=force)");
    }
    t->run.record.teacher = hash;
    return DT_OK;
}

// The status of writing a file that the next start makes again: a full disk is no reason to end. The first save frees
// some space.
static dt_status forgive_no_space(dt_status st) {
    if (st != DT_E_STORAGE || !dt_io_out_of_space()) return st; // other storage errors end the run
    dt_warn("%s. Training continues without it", dt_error_message());
    dt_error_clear();
    return DT_OK;
}

static void note_saved(void *metrics, int64_t step, double seconds, bool saved) {
    dt_metrics_checkpoint(metrics, step, seconds, saved);
}

// What is known of a run before it has opened data and networks.
static dt_metrics_opts describe_metrics(const dt_open_run *r) {
    const dt_config *c = r->config;
    const int64_t total = r->record.total_steps, per_epoch = r->record.steps_per_epoch;
    // in steps; an amount may be a share of the run or epochs
    const int64_t every = dt_amount_steps(c->metrics.every, total, per_epoch);
    return (dt_metrics_opts){.run_dir = r->dir,
                             .run_name = c->run.name,
                             .mlflow_uri = c->metrics.mlflow.uri,
                             .mlflow_experiment = c->metrics.mlflow.experiment,
                             .mlflow_model = c->metrics.mlflow.model,
                             .is_stopped = dt_signals_again,
                             .config = r->config,
                             .version = r->args.version,
                             .world_size = r->comm->world_size,
                             .first_step = r->record.step,
                             .every_steps = every > 0 ? (int)every : 1,
                             .total_steps = total,
                             .steps_per_epoch = per_epoch,
                             .n_epochs = (int)c->train.epochs};
}

// Rank 0: what the run directory holds besides checkpoints.
static dt_status open_reports(trainer *t) {
    const dt_open_run *r = &t->run;
    const dt_config *c = r->config;
    if (!trainer_is_root(t)) return DT_OK;
    char *path = dt_xprintf("%s/result.json", r->dir);
    remove(path); // of a run that goes on longer now
    free(path);
    path = dt_xprintf("%s/split.csv", r->dir);
    dt_status st = r->data->write_split ? r->data->write_split(r->data, path) : DT_OK;
    free(path);
    DT_TRY(forgive_no_space(st));
    dt_metrics_opts o = describe_metrics(r);
    o.listen_text = c->metrics.listen;
    o.textfile = c->metrics.textfile;
    o.file_sd = c->metrics.file_sd;
    o.linger_s = c->metrics.linger;
    o.machine = r->backend->describe(r->backend);
    o.data = r->data->describe(r->data);
    o.given = r->given;
    o.threads = r->backend->device ? 0 : r->resolved.threads;
    o.chosen_by = t->eval_every > 0 ? t->nets.metrics.best_name : NULL;
    o.lower_is_better = dt_metrics_table[t->nets.metrics.best]->lower_is_better;
    o.truncate_to = r->resumed ? r->record.metrics_offset : -1; // -1: a new file
    for (int i = 0; i < DT_N_SINKS; i++) o.sinks |= (unsigned)dt_words_have(&c->metrics.sinks, i) << i; // bit i: sink i
    for (int i = 0; i < 3; i++) o.n_samples[i] = r->data->n_samples(r->data, (dt_split)i);
    st = dt_listen_read(&o.listen, c);
    if (st == DT_OK) st = dt_metrics_open(&t->metrics, &o);
    if (st == DT_OK) dt_ckpt_on_saved(r->ckpt, note_saved, t->metrics);
    // flushes the run's directory too, which has metrics.jsonl now
    char *text = dt_config_dump(c);
    path = dt_xprintf("%s/config.yaml", r->dir);
    if (st == DT_OK) st = forgive_no_space(dt_io_update_file(path, text, strlen(text)));
    free(text);
    free(path);
    return st;
}

dt_status dt_trainer_open_source(trainer *t) {
    const dt_open_run *r = &t->run;
    const dt_source_request q = {.split = DT_SPLIT_TRAIN,
                                 .augment = true,
                                 .global_batch = dt_run_global_batch(r),
                                 .micro_batch = r->resolved.micro_batch,
                                 .micros = r->replicas->micros,
                                 .n_micro = r->replicas->n_rank_micros,
                                 .start_step = r->record.step,
                                 .end_step = r->record.total_steps};
    DT_TRY(r->data->open(r->data, &q, &t->source));
    return dt_stepper_set_source(t->stepper, t->source);
}

static void describe_run(const trainer *t) {
    const dt_open_run *r = &t->run;
    const dt_run_state *s = &r->record;
    const char *note = dt_nets_trained(&t->nets).graph->note;
    if (!trainer_is_root(t)) return;
    dt_info("%s: %d rank%s, %d worker group%s of %d thread%s, %s, %s", r->dir, r->comm->world_size,
            r->comm->world_size == 1 ? "" : "s", r->replicas->n_replicas, r->replicas->n_replicas == 1 ? "" : "s",
            r->resolved.replica_threads, r->resolved.replica_threads == 1 ? "" : "s",
            DT_WORD_OF(DT_PRECISION_WORDS, r->resolved.precision), r->backend->describe(r->backend));
    dt_info("data: %s", r->data->describe(r->data));
    dt_targets_check_range(&t->nets.targets);
    if (note) dt_info("%s", note);
    if (r->resumed)
        dt_info("resuming at step %lld of %lld", (long long)s->step, (long long)s->total_steps);
    else
        dt_info("training %lld steps, %lld per epoch%s%s", (long long)s->total_steps, (long long)s->steps_per_epoch,
                t->eval_every > 0 ? "; the best checkpoint is that of " : "",
                t->eval_every > 0 ? t->nets.metrics.best_name : "");
}

static dt_status open_training(trainer *t) {
    dt_open_run *r = &t->run;
    plan_ahead(t);
    DT_TRY(dt_nets_make(&t->nets, r, true));
    if (r->backend->device) t->free_bytes = dt_memory_free_bytes(r);
    // before the stepper: it takes its buffers from the state
    DT_TRY(dt_state_create(&t->state, r, &t->nets));
    dt_status st = dt_trainer_make_stepper(t);
    // a device's memory is taken before the first step
    if (st == DT_OK && r->backend->device) st = dt_trainer_make_evaluator(t, r->record.step);
    DT_TRY(dt_agree_memory(r->comm, r->backend, st));
    dt_schedule_init(&t->schedule, r->config, r->record.total_steps, r->record.steps_per_epoch,
                     dt_metrics_table[t->nets.metrics.best]->lower_is_better);
    if (r->backend->device) dt_gpu_watch_begin(r->backend->device->bus);
    DT_TRY(r->resumed ? dt_state_load(t->state, r->checkpoint, true) : dt_state_init(t->state));
    DT_TRY(load_teacher(t));
    const dt_scaler scaler = {(float)r->record.loss_scale, (int32_t)r->record.clean_steps, r->record.n_skipped};
    if (r->resumed) DT_TRY(dt_stepper_set_scaler(t->stepper, &scaler)); // as the checkpoint has it
    dt_run_fill_state(r); // after loading: it has the classes and moments of the data
    DT_TRY(open_reports(t));
    describe_run(t);
    DT_TRY(dt_trainer_open_source(t));
    return dt_memory_check_room(&t->nets, r);
}

// ---- the loop --------------------------------------------------------------------------------------

// run.stop_at, or -1.
static int64_t stop_at(const trainer *t) {
    return dt_value_or(t->run.config->run.stop_at, -1); // -1: never
}

// What each rank has found out about a bad step.
typedef struct bad_report {
    int32_t micro;
    char name[252];
} bad_report;

static dt_status report_bad_step(trainer *t, const dt_step_result *step) {
    dt_comm *c = t->run.comm;
    if (step->spoiled) {
        c->shared_failure = true; // the commit is the same on all ranks, so each finds the same tensor
        return dt_fail(DT_E_NUMERIC,
                       "step %lld: its gradients were finite, but its update is not: '%s' holds NaN or "
                       "infinity now. It is not saved; the newest checkpoint is intact. Try a lower "
                       "train.optimizer.lr, a warm-up or train.clip_norm",
                       (long long)step->step, dt_state_find_bad(t->state));
    }
    bad_report mine = {.micro = -1};
    int micro = -1;
    // each rank looks at its own micro-batches
    dt_status st = dt_stepper_find_bad(t->stepper, t->run.record.step, &micro, mine.name, sizeof mine.name);
    if (st != DT_OK)
        return dt_fail_context(st, "step %lld: loss %g, gradient norm %g; looking for the tensor",
                               (long long)t->run.record.step, step->loss, step->grad_norm);
    mine.micro = micro;
    bad_report *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    const bad_report *first = NULL;
    int rank = 0;
    for (int r = 0; r < c->world_size; r++) {
        if (all[r].micro < 0 || (first && first->micro <= all[r].micro)) continue; // the lowest micro-batch of any rank
        first = &all[r];
        rank = r;
    }
    if (st == DT_OK) {
        c->shared_failure = true; // every rank has all reports
        if (first)
            st = dt_fail(
                DT_E_NUMERIC,
                "step %lld: loss %g, gradient norm %g; the first tensor that is not finite is '%s' (micro-batch %d, "
                "rank %d). The step was not applied; try a lower train.optimizer.lr, a warm-up or train.clip_norm",
                (long long)t->run.record.step, step->loss, step->grad_norm, first->name, first->micro, rank);
        else
            st = dt_fail(DT_E_NUMERIC,
                         "step %lld: loss %g, gradient norm %g, though every tensor of the step is finite: the sum "
                         "overflows. The step was not applied; try a lower train.optimizer.lr",
                         (long long)t->run.record.step, step->loss, step->grad_norm);
    }
    free(all);
    return st;
}

static void record_step(trainer *t, const dt_step_result *r, double lr, double step_s) {
    if (step_s > t->slowest_step_s) t->slowest_step_s = step_s; // bounds the wait for other ranks
    set_timeout(t);
    dt_rank_at("after the step", "");
    dt_rank_set_times(r->data_s, r->compute_s);
    if (!t->metrics) return;
    int64_t done = t->run.record.step;
    dt_source_stats source;
    t->source->stats(t->source, &source);
    double other = step_s - r->data_s - r->compute_s - r->comm_s; // what is neither data, computing nor communication
    dt_step_line record = {.step = done,
                           .epoch = (double)done / (double)t->run.record.steps_per_epoch,
                           .samples = done * dt_run_global_batch(&t->run),
                           .loss = r->loss,
                           .lr = lr,
                           .grad_norm = r->grad_norm,
                           .step_s = step_s,
                           .data_s = r->data_s,
                           .compute_s = r->compute_s,
                           .comm_s = r->comm_s,
                           .other_s = other > 0.0 ? other : 0.0,
                           .idle_s = r->idle_s,
                           .forward_s = r->forward_s,
                           .backward_s = r->backward_s,
                           .optimizer_s = r->optimizer_s,
                           .queue = source.batches.depth,
                           .queue_slots = source.batches.capacity,
                           .global_batch = dt_run_global_batch(&t->run),
                           .skipped = r->skipped,
                           .loss_scale = (double)r->scaler.scale};
    dt_metrics_step(t->metrics, &record);
}

static dt_status name_slow_rank(trainer *t, const dt_step_result *r) {
    dt_slow_finding f;
    bool trace = dt_signals_take_trace(); // SIGUSR2 on this rank
    DT_TRY(dt_slow_rank_step(&t->slow, t->run.comm, r->data_s, r->compute_s, &trace, &f));
    if (trace) // a device may have begun the next
        dt_timeline_ask(&t->timeline, t->run.record.step + 1);
    if (f.rank < 0 || !trainer_is_root(t)) return DT_OK; // every rank knows, rank 0 reports
    dt_warn("rank %d on %s takes %.1f times as long as the median rank, most of it for %s, in the "
            "last %d steps: all ranks wait for it",
            f.rank, f.host, f.times, f.phase, (int)DT_SLOW_STEPS);
    dt_metrics_slow_rank(t->metrics, t->run.record.step, f.rank, f.host, f.phase, f.times);
    return DT_OK;
}

static int64_t last_evaluated(const trainer *t) {
    return t->run.record.n_history ? t->run.record.history[t->run.record.n_history - 1].step : -1;
}

// train.early_stop: whether eval.best has not improved by more than min_delta in the last `patience` evaluations, the
// newest of which is of s->step. A function of the history, so a resumed run ends where the undisturbed one does. *since: the
// step of the last improvement; may be NULL.
static bool has_stopped_improving(const dt_config *c, const dt_run_state *s, bool lower_is_better, int64_t *since) {
    if (!c->train.early_stop.patience.has) return false;
    const double delta = c->train.early_stop.min_delta;
    int best = -1; // index in the history; -1: none yet
    for (int i = 0; i < s->n_history; i++) {
        const double value = s->history[i].value;
        if (dt_eval_is_better(value, best >= 0, best < 0 ? 0 : s->history[best].value, lower_is_better, delta))
            best = i;
    }
    if (since && best >= 0) *since = s->history[best].step;
    // only an evaluation of this very step may end the run: a resumed one has it in its history
    return s->n_history > 0 && s->history[s->n_history - 1].step == s->step &&
           s->n_history - 1 - best >= c->train.early_stop.patience.value;
}

// Nothing is left to train.
static bool is_over(const trainer *t, int64_t *since) {
    const bool lower = dt_metrics_table[t->nets.metrics.best]->lower_is_better;
    return t->run.record.step >= t->run.record.total_steps ||
           has_stopped_improving(t->run.config, &t->run.record, lower, since);
}

// At the start of a run that ended early and may have been given more steps.
static void log_early_end(const trainer *t) {
    int64_t since = 0;
    if (!trainer_is_root(t) || t->run.record.step >= t->run.record.total_steps || !is_over(t, &since)) return;
    dt_info("train.early_stop ended this run at step %lld, as %s had not improved since step %lld: it does not resume. "
            "A higher train.early_stop.patience with run.resume=force continues it",
            (long long)t->run.record.step, t->nets.metrics.best_name, (long long)since);
}

dt_status dt_trainer_verify(trainer *t) {
    const dt_status st = dt_state_compare_ranks(t->state);
    return st == DT_OK ? DT_OK : dt_fail_context(st, "after step %lld", (long long)t->run.record.step);
}

// What is due after a step. *stop: the loop ends with DT_E_PREEMPTED.
static dt_status after_step(trainer *t, bool stop_wanted, bool *stop) {
    int64_t done = t->run.record.step;
    bool last = done == t->run.record.total_steps, best = false;
    *stop = !last && (stop_wanted || done == stop_at(t)); // stop_at counts steps that are done
    if (last) return DT_OK;                               // finish() does the rest
    if (dt_amount_due(t->verify_every, done)) DT_TRY(dt_trainer_verify(t));
    dt_status st = dt_amount_due(t->eval_every, done) ? dt_trainer_evaluate(t, &best) : DT_OK;
    *stop |= st == DT_E_PREEMPTED; // an evaluation that was dropped: the run saves and leaves
    if (st != DT_E_PREEMPTED) DT_TRY(st);
    int64_t since = 0;
    if (!last && is_over(t, &since)) {
        if (trainer_is_root(t))
            dt_info("train.early_stop: %s has not improved since step %lld", t->nets.metrics.best_name,
                    (long long)since);
        *stop = false; // finish() saves
    }
    // one save, whatever it is due for
    if (best || *stop || dt_amount_due(t->save_every, done)) DT_TRY(dt_trainer_save(t, best));
    return DT_OK;
}

// Ends a run that has saved and can be continued.
static dt_status trainer_leave(trainer *t) {
    DT_TRY(dt_timeline_step(&t->timeline, t->run.comm, -1, t->run.dir)); // -1: writes the timeline that is open
    DT_TRY(dt_trainer_settle_save(t, true));
    t->run.comm->shared_failure = true; // every rank leaves here
    const char *name = dt_signals_name();
    return dt_fail(DT_E_PREEMPTED, "stopped after step %lld of %lld%s%s; saved: the same command resumes",
                   (long long)t->run.record.step, (long long)t->run.record.total_steps, *name ? " by " : "", name);
}

// A rank gave up the step because run.grace was over. The next run does it again.
static dt_status stop_without_step(trainer *t) {
    if (trainer_is_root(t)) dt_warn("step %lld was dropped: it outlasted run.grace", (long long)t->run.record.step);
    dt_step_result behind; // a step that was queued behind it changed nothing
    DT_TRY(dt_stepper_drain(t->stepper, &behind));
    // the step's checkpoint may be there already
    if (t->saved_step != t->run.record.step) DT_TRY(dt_trainer_save(t, false));
    return trainer_leave(t);
}

// While the run goes on, the tuner adapts the loader's threads. At the end data_verdict says what was slow.
static void watch_source(trainer *t) {
    if (t->n_steps++ == 0) { // first: counters after the first step, which opens files and fills caches
        dt_pipeline_facts facts = {0};
        if (t->run.data->facts) t->run.data->facts(t->run.data, &facts);
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
    // only here: the measurement takes a moment
    if (t->tuner.facts.decoded_bytes > 0) t->tuner.facts.copy_byte_s = dt_memory_time_copy();
    dt_bottleneck_find(&b, &t->first, &now, &t->tuner.facts);
    char change[192] = "";
    if (*b.change && b.predicted > 0)
        snprintf(change, sizeof change, "; %s: about %.0f samples/s per rank instead of %.0f", b.change, b.predicted,
                 b.rate);
    snprintf(text, cap, "%s: %s%s%s%s", b.bound, b.what, *b.advice ? "; " : "", b.advice, change);
}

static double rate_at(const trainer *t, int64_t step) {
    return dt_schedule_lr(&t->schedule, step, t->run.record.history, t->run.record.n_history);
}

// Whether other parameters or scales are trained from `step` on.
static bool phase_begins(const trainer *t, int64_t step) {
    return step > 0 && dt_nets_phase_at(&t->nets, step)->begin == step;
}

// The stepper is drained.
static dt_status trainer_begin_phase(trainer *t) {
    const int64_t step = t->run.record.step;
    const dt_phase *phase = dt_nets_phase_at(&t->nets, step);
    const dt_graph *g = phase->train.graph;
    dt_params_repack_step(t->nets.params); // copies that only this phase's steps read
    if (trainer_is_root(t) && phase->joins)
        dt_info("step %lld: a scale of model.scales joins", (long long)step);
    else if (trainer_is_root(t))
        dt_info("step %lld: train.groups unfreezes tensors: %d of %d are trained now", (long long)step, g->n_grads,
                t->nets.params->n_entries);
    return dt_stepper_set_plan(t->stepper, g, phase->train.plan, step);
}

// Whether what follows the first `done` steps needs their numbers and an idle device.
static bool is_due(const trainer *t, int64_t done) {
    return done == t->run.record.total_steps || done == stop_at(t) || phase_begins(t, done) ||
           dt_amount_due(t->eval_every, done) || dt_amount_due(t->verify_every, done) ||
           dt_amount_due(t->save_every, done);
}

// Takes the numbers of the oldest step that has none yet: state.step counts steps whose numbers are known. *finished:
// r had such numbers, and the state now includes that step.
static dt_status trainer_take_numbers(trainer *t, const dt_step_result *r, double step_s, bool *finished) {
    *finished = r->step >= 0 && (r->finite || r->skipped); // a device's first call has none
    if (!*finished) return DT_OK;
    t->run.record.step = r->step + 1;
    dt_watch_set_step(t->run.record.step);
    if (!r->skipped) t->run.record.loss = r->loss; // the last loss of a step that counted
    t->run.record.loss_scale = (double)r->scaler.scale;
    t->run.record.clean_steps = r->scaler.clean_steps;
    t->run.record.n_skipped = r->scaler.n_skipped;
    if (r->skipped && trainer_is_root(t))
        dt_info("step %lld overflowed in fp16 and was skipped; the loss scale is %g now", (long long)r->step,
                (double)r->scaler.scale);
    record_step(t, r, rate_at(t, r->step), step_s);
    DT_TRY(name_slow_rank(t, r));
    watch_source(t);
    (void)dt_failpoint("step");
    return DT_OK;
}

// On the CPU a step's numbers are known when it has run. A device is one step ahead of its numbers. When something is
// due, the loop first waits for the steps that are under way.
static dt_status run_steps(trainer *t) {
    bool stop_wanted = false; // some rank wants to stop
    dt_signals_started();     // signals no longer end the process
    set_timeout(t);
    // the last run left after saving, before this evaluation was made
    if (t->run.resumed && dt_amount_due(t->eval_every, t->run.record.step) &&
        last_evaluated(t) != t->run.record.step) { // it was dropped
        DT_TRY(after_step(t, false, &stop_wanted));
        if (stop_wanted) return trainer_leave(t);
    } else if (t->run.resumed) {
        log_early_end(t);
    }
    double begin = dt_clock_s();
    int64_t queued = t->run.record.step;
    while (!is_over(t, NULL)) {
        dt_step_result r;
        const bool traced = t->timeline.on;
        DT_TRY(dt_timeline_step(&t->timeline, t->run.comm, queued, t->run.dir));
        if (traced && !t->timeline.on) begin = dt_clock_s(); // writing it is no part of a step
        // a device's steps run ahead: what is due needs the numbers of all
        bool settle = queued > t->run.record.step && (stop_wanted || is_due(t, queued));
        if (settle)
            DT_TRY(dt_stepper_drain(t->stepper, &r));
        else
            DT_TRY(dt_stepper_run(t->stepper, queued, rate_at(t, queued), dt_signals_pending(), &r));
        queued += !settle; // a drain queues nothing
        if (r.step >= 0 && r.dropped) return stop_without_step(t);
        if (r.step >= 0 && !r.finite && !r.skipped) return report_bad_step(t, &r);
        double end = dt_clock_s();
        bool finished = false;
        DT_TRY(trainer_take_numbers(t, &r, end - begin, &finished));
        begin = end;
        if (finished && t->free_bytes) {
            dt_memory_compare(&t->nets, &t->run, t->free_bytes);
            t->free_bytes = 0;
        }
        stop_wanted |= finished && r.stop;
        if (!finished || t->run.record.step < queued) continue; // numbers of the newest step are still to come
        bool stop = false, busy = t->eval_every || t->save_every || t->verify_every;
        DT_TRY(after_step(t, stop_wanted, &stop));
        if (stop) return trainer_leave(t);
        if (!is_over(t, NULL) && phase_begins(t, t->run.record.step)) DT_TRY(trainer_begin_phase(t));
        if (busy) begin = dt_clock_s(); // evaluating and saving are not part of a step
    }
    return dt_timeline_step(&t->timeline, t->run.comm, -1, t->run.dir);
}

// ---- the end ---------------------------------------------------------------------------------------

static dt_status test_with_best(trainer *t) {
    char *path = NULL;
    int64_t step = -1;
    if (trainer_is_root(t) && t->run.record.best_step >= 0) {
        if (dt_ckpt_find(t->run.ckpt, "best", &step, &path) != DT_OK)
            dt_warn("%s; there is no test with the best weights", dt_error_message());
        if (step == t->run.record.step) step = -1; // tested as the last
    }
    DT_TRY(t->run.comm->broadcast_bytes(t->run.comm, &step, sizeof step, 0));
    // path is rank 0's; the others receive the values
    dt_status st = step < 0 ? DT_OK : dt_state_load(t->state, path, false);
    free(path);
    if (st != DT_OK || step < 0) return st;
    return dt_trainer_test(t, DT_TEST_BEST, "best", step);
}

// DT_E_PREEMPTED: an evaluation was dropped.
static dt_status evaluate_at_end(trainer *t) {
    bool best = false;
    // a resumed run may have it
    if (t->eval_every > 0 && last_evaluated(t) != t->run.record.step) DT_TRY(dt_trainer_evaluate(t, &best));
    if (t->saved_step != t->run.record.step || best) DT_TRY(dt_trainer_save(t, best));
    DT_TRY(dt_trainer_report(t));
    if (t->run.data->n_samples(t->run.data, DT_SPLIT_TEST) > 0) {
        DT_TRY(dt_trainer_test(t, dt_split_name(DT_SPLIT_TEST),
                               t->run.record.best_step == t->run.record.step ? "best and last" : "last",
                               t->run.record.step));
        DT_TRY(dt_trainer_settle_save(t, true)); // the best checkpoint is loaded next: the last must be on disk
        DT_TRY(test_with_best(t));
    }
    return dt_trainer_settle_save(t, true);
}

static dt_status trainer_finish(trainer *t) {
    dt_status st = evaluate_at_end(t);
    if (st == DT_E_PREEMPTED) {
        // the evaluation is made after resuming
        if (t->saved_step != t->run.record.step) DT_TRY(dt_trainer_save(t, false));
        return trainer_leave(t);
    }
    DT_TRY(st);
    if (!trainer_is_root(t)) return DT_OK;
    DT_TRY(dt_ckpt_check_lock(t->run.ckpt));
    // a run that has results is finished: what it measured is on disk before
    dt_metrics_flush(t->metrics);
    char *path = dt_xprintf("%s/metrics.jsonl", t->run.dir);
    if (dt_words_have(&t->run.config->metrics.sinks, DT_SINK_jsonl) && dt_io_sync_file(path) != DT_OK)
        dt_warn("%s: a power cut may lose the end of it", dt_error_message());
    free(path);
    json_t *records = dt_result_of_lines(t->results.data);
    st = dt_result_write(t->run.dir, records); // last of all: its existence says that the run is finished
    char verdict[768] = "";
    if (st == DT_OK && t->n_steps > 1) data_verdict(t, verdict, sizeof verdict);
    if (st == DT_OK) dt_metrics_summary(t->metrics, *verdict ? verdict : NULL);
    if (st == DT_OK) dt_result_print(records, t->run.config->metrics.print_confusion, t->run.args.results);
    json_decref(records);
    return st;
}

static dt_status train(trainer *t) {
    const int64_t step = t->run.record.step, at = stop_at(t);
    t->saved_step = t->run.resumed ? step : -1; // a resumed run has the checkpoint that it began with
    if (at >= 0 && step >= at && step < t->run.record.total_steps) {
        t->run.comm->shared_failure = true;
        return dt_fail(DT_E_PREEMPTED,
                       "run.stop_at=%lld: %lld steps are done: the same command without this key resumes",
                       (long long)at, (long long)step);
    }
    DT_TRY(open_training(t));
    dt_watch_set_step(t->run.record.step);
    dt_status st = run_steps(t);
    if (st == DT_OK) st = trainer_finish(t);
    if (st == DT_E_PEER) st = dt_fail_context(st, "after step %lld", (long long)t->run.record.step);
    return st;
}

// dtrain init: the checkpoint of step 0.
static dt_status save_first(trainer *t) {
    if (t->run.resumed)
        return dt_fail(DT_E_USAGE, "%s/%s has checkpoints already: take another run", t->run.config->run.dir,
                       t->run.config->run.name);
    DT_TRY(open_training(t));
    DT_TRY(dt_trainer_save(t, false));
    DT_TRY(dt_trainer_settle_save(t, true));
    if (trainer_is_root(t)) dt_info("%s: saved at step 0; nothing is trained yet", t->run.dir);
    return DT_OK;
}

// A failure in here is logged, and leaves the message of a failed run in place.
static void close_trainer(trainer *t, dt_status st) {
    const dt_error_kept first = dt_error_keep();
    dt_gpu_watch_end();
    // a device may still be reading from the source
    if (t->stepper && dt_stepper_set_source(t->stepper, NULL) != DT_OK) // waits for the device
        dt_warn("at the end of the run: %s", dt_error_message());
    if (t->source) t->source->close(t->source);
    if (t->run.ckpt) dt_ckpt_on_saved(t->run.ckpt, NULL, NULL); // metrics close before the checkpoint writer
    dt_signals_saved(st == DT_E_PREEMPTED);
    // with the outcome, for MLflow and Prometheus
    if (t->metrics) dt_metrics_close(t->metrics, &(dt_run_end){t->run.record.step, st, first.message});
    dt_evaluator_destroy(t->evaluator);
    dt_stepper_destroy(t->stepper);
    dt_state_destroy(t->state);
    dt_nets_drop(&t->nets);
    dt_run_close(&t->run, st);
    dt_json_fini(&t->results);
    if (t->last_step >= 0) dt_eval_result_fini(&t->last);
    dt_slow_rank_fini(&t->slow);
    dt_error_restore(&first);
}

// Sends MLflow the lines of a finished run that it has not got.
static void send_rest(const dt_open_run *r) {
    if (!dt_run_is_root(r) || !dt_words_have(&r->config->metrics.sinks, DT_SINK_mlflow)) return;
    dt_metrics_opts o = describe_metrics(r);
    o.sinks = 1u << DT_SINK_mlflow;
    o.truncate_to = INT64_MAX; // the whole file stays
    dt_metrics *m;
    dt_signals_started();
    dt_signals_saved(false);
    if (dt_metrics_open(&m, &o) == DT_OK) dt_metrics_close(m, &(dt_run_end){r->record.step, DT_OK, ""});
}

// Whether another process's memory was in the way, before the first step, and recomputed activations may do without.
// Collective where ranks share the failure; where they do not, the run ends.
static bool may_recompute(const trainer *t, dt_status st) {
    dt_comm *c = t->run.comm;
    const dt_backend *b = t->run.backend;
    const dt_cnode *given = t->run.config ? t->run.config->train.recompute : NULL;
    int64_t taken = b && b->out_of_memory;
    if (st == DT_OK || t->source || !given || dt_cnode_size(given) != 1 ||
        strcmp(dt_cnode_str(dt_cnode_item(given, 0)), "none") != 0)
        return false;
    if (c->world_size == 1) return taken;
    const dt_error_kept why = dt_error_keep();
    const bool again = c->shared_failure && c->all_reduce_max_i64(c, &taken, 1) == DT_OK && taken;
    dt_error_restore(&why);
    return again;
}

// *again: the same once more, whose config it has changed.
static dt_status run_once(const dt_trainer_args *a, dt_status (*body)(trainer *t), bool *again) {
    trainer t = {.last_step = -1};
    dt_signals_install();
    dt_crash_install(a->comm->world_size > 1 ? a->comm->rank : -1);
    dt_signals_set_grace(a->config->run.grace);
    dt_json_init(&t.results);
    dt_status st = dt_run_open(&t.run, a, &(dt_run_request){.use = DT_RUN_TRAINED});
    if (st == DT_OK && !t.run.finished) st = body(&t);
    if (st == DT_OK && t.run.finished) send_rest(&t.run);
    *again = may_recompute(&t, st);
    close_trainer(&t, st);
    return st;
}

// The micro-batch stays: what it gives depends on its size.
static dt_status run_trainer(const dt_trainer_args *a, dt_status (*body)(trainer *t)) {
    bool again;
    const dt_status st = run_once(a, body, &again);
    if (!again) return st;
    dt_warn_alike("%s: once more with train.recompute=auto", dt_error_message());
    dt_error_clear();
    a->comm->shared_failure = false;
    dt_config_set_text(a->config, DT_KEY(train.recompute), "auto");
    return run_once(a, body, &again);
}

dt_status dt_trainer_train(const dt_trainer_args *a) {
    return run_trainer(a, train);
}

dt_status dt_trainer_init(const dt_trainer_args *a) {
    return run_trainer(a, save_first);
}
