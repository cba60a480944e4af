// sim_job.c: one start of a job. See sim.h.
//
// Rank threads do what launch/wire.c does around the trainer; the launcher, the first thread, ends the job as mpirun
// does when a rank fails or is gone. The network is a small perceptron in place of the ResNet, the data are in memory.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim.h"
#include "unit/memory_data.h"

#include "base/failpoint.h"
#include "base/log.h"
#include "base/watch.h"
#include "checkpoint/ckpt.h"
#include "models/models.h"

#include <dlfcn.h>

sim_start *sim_world;
char sim_root[64];
const char *const sim_kind_names[SIM_N_KINDS] = {"none", "eio",       "enospc", "short", "hang",   "cut",
                                                 "kill", "kill-rank", "freeze", "part",  "signal", "bad-step"};

static const char yaml[] =
    "run: {name: sim, seed: 3, reproducible: elastic}\n"
    "device: {kind: cpu, threads: 1, replicas: 1}\n"
    "data: {path: none, fields: {left: {kind: image, channels: 1, size: [16, 16]},\n"
    "  right: {kind: image, channels: 3, size: [16, 16]}, who: {kind: class, classes: 5}}}\n"
    "model: {name: resnet}\n"
    "train: {global_batch: 8, micro_batch: 2, epochs: 4, precision: fp32, optimizer: {lr: 0.02}}\n"
    "eval: {every: 2 steps, best: loss}\n"
    "checkpoint: {every: 3 steps, keep: 2}\n"
    "metrics: {sinks: [jsonl]}\n"
    "comm: {timeout: 20}\n";
static const dt_watch_limits limits = {SIM_TIMEOUT_S, SIM_TIMEOUT_S, SIM_TIMEOUT_S};

void dt_model_build_resnet(dt_graph *g, const dt_model_args *a) { // in front of the library's
    dt_value x = dt_model_image(g, a, dt_model_image_field(a, 0));
    x = dt_reshape(g, x, dt_shape2(a->batch, H * W));
    x = dt_relu(g, dt_linear(g, "fc1", x, 8, true));
    dt_model_classify(g, a, "fc2", x, NULL);
}

// ---- data that take time ---------------------------------------------------------------------------
static dt_status get_later(dt_batch_source *s, int64_t step, int micro, const dt_batch **out, double *wait_s) {
    if (sim_rank() >= 0) sim_sleep(sim_uniform(0.005, 0.05));
    return get(s, step, micro, out, wait_s);
}

static dt_status open_slow_split(dt_dataset *d, const dt_source_request *r, dt_batch_source **out) {
    dt_status st = open_split(d, r, out);
    (*out)->get = get_later;
    return st;
}

static dt_status open_slow_data(void *ctx, const dt_config *c, const dt_batch_memory *memory, int workers,
                                const char *skip_log, const char *classes, dt_dataset **out) {
    DT_TRY(open_data(ctx, c, memory, workers, skip_log, classes, out));
    (*out)->open = open_slow_split;
    return DT_OK;
}

// ---- what the job says -----------------------------------------------------------------------------
static void say(dt_log_level level, const char *fmt, va_list ap) {
    char line[1024];
    vsnprintf(line, sizeof line, fmt, ap);
    if (sim_rank() < 0) return;
    sim_say("%s", line);
    if (level == DT_LOG_ERROR && !*sim_world->error) snprintf(sim_world->error, sizeof sim_world->error, "%s", line);
    if (level > DT_LOG_WARN || sim_world->n_text + strlen(line) + 2 > SIM_TEXT) return;
    sim_world->n_text += (size_t)sprintf(sim_world->text + sim_world->n_text, "%s\n", line);
}

void dt_log(dt_log_level level, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say(level, fmt, ap);
    va_end(ap);
}

void dt_log_urgent(dt_log_level level, bool disk_answers, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say(level, fmt, ap);
    va_end(ap);
}

static _Thread_local int64_t saving = -1; // of the rank's own thread

dt_status dt_ckpt_save_begin(dt_ckpt *c, int64_t step, const dt_ckpt_tensor *tensors, int n_tensors,
                             const char *state_json, bool best) {
    REAL(dt_ckpt_save_begin);
    saving = step;
    sim_say("save of step %d%s", (int)step, best ? ", the best" : "");
    return real(c, step, tensors, n_tensors, state_json, best);
}

dt_status dt_ckpt_save_wait(dt_ckpt *c, double *seconds) {
    REAL(dt_ckpt_save_wait);
    dt_status st = real(c, seconds);
    if (sim_rank() < 0 || saving < 0 || st != DT_OK) return st;
    sim_say("acknowledged: step %d", (int)saving);
    sim_world->acknowledged = saving;
    saving = -1;
    return st;
}

// ---- faults ----------------------------------------------------------------------------------------
static bool of_disk_only(sim_kind k) {
    return k == SIM_EIO || k == SIM_ENOSPC || k == SIM_SHORT || k == SIM_HANG;
}

static void strike(sim_fault *f) {
    switch (f->kind) {
    case SIM_CUT:
    case SIM_KILL:
        sim_world->cut = f->kind == SIM_CUT;
        sim_end(137);
    case SIM_KILL_RANK:
        sim_job_over(137, "killed");
        sim_bury(f->rank);
        break;
    case SIM_FREEZE:
        sim_freeze(f->rank, f->seconds);
        break;
    case SIM_PART:
        sim_net_part(f->rank, sim_now() + f->seconds);
        break;
    case SIM_SIGNAL:
        sim_signal_all();
        break;
    default:
        break;
    }
}

sim_fault *sim_event(bool of_disk, const char *what) {
    sim_fault *mine = NULL;
    sim_world->n_events++;
    if (of_disk) sim_say("%lld: %s", (long long)sim_world->n_events, what);
    for (int i = 0; i < SIM_FAULTS; i++) {
        sim_fault *f = &sim_world->faults[i];
        if (f->fired || f->kind == SIM_NONE || f->kind == SIM_BAD_STEP) continue;
        if (sim_world->n_events < f->at || (of_disk_only(f->kind) && (!of_disk || mine))) continue;
        f->fired = true;
        f->fired_s = sim_now();
        snprintf(f->target, sizeof f->target, "%s", what);
        sim_say("-- %s, rank %d, %g s", sim_kind_names[f->kind], f->rank, f->seconds);
        if (of_disk_only(f->kind))
            mine = f;
        else
            strike(f);
    }
    return mine;
}

// ---- ranks and their launcher ----------------------------------------------------------------------
static int job_code = -1, n_ended;
static char ended;

// A rank failed: the launcher ends the others, a little later. The first reason counts.
void sim_job_over(int code, const char *why) {
    if (job_code >= 0) return;
    job_code = code;
    sim_say("the job is over: %s, exit %d", why, code);
    sim_wake(&ended);
}

static void report(dt_status st) {
    if (st == DT_OK || !*dt_error_message()) return;
    dt_log(DT_LOG_ERROR, "%s", dt_error_message());
    dt_error_clear();
}

static dt_status run_rank(dt_comm *comm, dt_config *c) {
    FILE *results = tmpfile();
    dt_trainer_args a = {.config = c,
                         .comm = comm,
                         .version = "sim",
                         .results = results,
                         .build_graph = dt_model_graph,
                         .open_data = open_slow_data};
    dt_status st = dt_trainer_train(&a);
    rewind(results);
    if (st == DT_OK && sim_world->evaluate) st = dt_trainer_eval(&a, &(dt_eval_request){"latest", DT_SPLIT_VAL, NULL});
    if (st == DT_OK && sim_world->evaluate) st = dt_trainer_eval(&a, &(dt_eval_request){"best", DT_SPLIT_VAL, NULL});
    if (sim_world->evaluate && comm->rank == 0) {
        size_t n = (size_t)ftell(results);
        rewind(results);
        if (fread(sim_world->evaluations, 1, n, results) != n) sim_end(-1);
    }
    fclose(results);
    if (st != DT_OK && !comm->shared_failure && comm->world_size > 1) { // as in launch/wire.c
        if (comm->rank > 0) sim_sleep(0.5);
        report(st);
        comm->abort(comm, st);
    }
    if (st != DT_OK && comm->rank == 0) report(st);
    if (comm->shared_failure || st == DT_OK) {
        dt_status last = comm->finalize(comm);
        if (st == DT_OK) st = last;
    }
    return st;
}

static void *rank_main(void *arg) {
    char where[80];
    const char *overrides[] = {where, "checkpoint.async=false"};
    const int n = 1 + (sim_world->seed % 4 == 3);
    dt_config *c = NULL;
    snprintf(where, sizeof where, "run.dir=%s", sim_root);
    if (dt_config_parse(&c, "sim", yaml, strlen(yaml), overrides, n) != DT_OK) sim_end(-1);
    dt_watch_start(&limits);
    dt_comm *comm = sim_comm_create((int)(intptr_t)arg, sim_world->world_size);
    dt_status st = run_rank(comm, c);
    n_ended++;
    if (st != DT_OK) sim_job_over(st, dt_error_message());
    sim_wake(&ended);
    return NULL;
}

void sim_job(void) {
    sim_world->acknowledged = -1;
    sim_seed(sim_world->seed);
    for (int i = 0; i < SIM_FAULTS; i++)
        if (sim_world->faults[i].kind == SIM_BAD_STEP) bad_step = sim_world->faults[i].at;
    for (int r = 0; r < sim_world->world_size; r++) sim_spawn(r, rank_main, (void *)(intptr_t)r);
    // mpirun would wait for a rank that is stopped in its last call; by then the job has done its work
    while (n_ended + sim_n_lost() < sim_world->world_size && job_code < 0) sim_wait(&ended, INFINITY, "waitpid");
    if (job_code >= 0) sim_sleep(sim_uniform(0, 0.3)); // until all are ended
    sim_end(job_code < 0 ? 0 : job_code);
}

void sim_warm_up(const char *dir) {
    char where[80];
    const char *overrides[] = {where};
    snprintf(where, sizeof where, "run.dir=%s", dir);
    if (train_in_memory(yaml, overrides, 1) != DT_OK) fprintf(stderr, "%s\n", dt_error_message());
}
