// session.c: the order in which a run is put together. Everything that depends on a later part gets it
// from an earlier one: threads -> backend -> precision, data -> graph -> replicas -> params -> plans ->
// packed weights. OpenMP's thread count of this thread is set before the plans are made, because the
// library fixes the division of a primitive's work when it is created.

#include "train/session.h"

#include "base/arena.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/machine.h"
#include "comm/comm_nccl.h"
#include "train/agree.h"
#include "train/class_names.h"
#include "train/memory_report.h"
#include "train/micro_batch.h"
#include "train/resolve.h"
#include "train/schedule.h"
#include "train/signals.h"

#include <assert.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

// ---- config ----------------------------------------------------------------------------------------

void dt_session_set_micro_batch(dt_session *s, int n) {
    const dt_config *c = s->config;
    s->resolved.micro_batch = s->micro_batch = n;
    s->n_micro = s->global_batch / n;
    s->eval_batch = c->eval.batch.is_auto ? n : (int)dt_answer(c->eval.batch);
}

dt_status dt_session_init(dt_session *s, const dt_trainer_args *a) {
    *s = (dt_session){.a = *a, .config = a->config, .comm = a->comm};
    const dt_config *c = a->config;
    s->global_batch = (int)c->train.global_batch;
    const bool open =
        c->train.micro_batch.is_auto; // until session_open: replicas as many as may be
    dt_session_set_micro_batch(s, open ? 1 : (int)dt_answer(c->train.micro_batch));
    if (s->global_batch % s->micro_batch != 0)
        return dt_config_fail(c, "train.global_batch",
                              "%d is not a multiple of train.micro_batch (%d): for example use "
                              "train.global_batch=%d",
                              s->global_batch, s->micro_batch,
                              (s->global_batch / s->micro_batch + 1) * s->micro_batch);
    s->elastic = c->run.reproducible == DT_REPRODUCIBLE_elastic;
    s->given = dt_config_dump(c);
    s->total_steps = s->steps_per_epoch = 1;
    DT_TRY(dt_scales_read(&s->scales, c));
    return dt_param_groups_read(&s->groups, c);
}

// What begins or ends at a step of the run must find it there.
static dt_status check_within(const dt_session *s) {
    static const char bn[] = "eval.recalibrate_bn";
    if (dt_value_or(s->config->eval.recalibrate_bn, 0) > s->total_steps)
        return dt_config_fail(s->config, bn,
                              "%s takes the run's first steps, of which there are %lld", bn,
                              (long long)s->total_steps);
    for (int i = 0; i < s->scales.n; i++) {
        const dt_scale_item *x = &s->scales.items[i];
        const int64_t from = dt_amount_steps(x->from, s->total_steps, s->steps_per_epoch);
        if (x->joins && from >= s->total_steps)
            return dt_config_fail(s->config, "model.scales",
                                  "model.scales: %d joins at step %lld, and the run has %lld",
                                  x->side, (long long)from, (long long)s->total_steps);
    }
    return DT_OK;
}

dt_status dt_session_measure(dt_session *s) {
    const dt_config *c = s->config;
    const int64_t n = s->data->n_samples(s->data, DT_SPLIT_TRAIN);
    s->steps_per_epoch = n / s->global_batch;
    if (n == 0) return dt_config_fail(c, "data.split", "the split leaves no sample to train on");
    if (s->steps_per_epoch == 0)
        return dt_fail(DT_E_USAGE,
                       "the training split has %lld samples, fewer than train.global_batch (%d): "
                       "lower it",
                       (long long)n, s->global_batch);
    s->total_steps = s->steps_per_epoch * c->train.epochs;
    if (c->train.max_steps.has && c->train.max_steps.value < s->total_steps)
        s->total_steps = c->train.max_steps.value;
    DT_TRY(check_within(s));
    if (s->data->n_samples(s->data, DT_SPLIT_VAL) == 0 && c->train.early_stop.patience.has)
        return dt_config_fail(c, "train.early_stop.patience",
                              "train.early_stop follows evaluations, and there is no validation "
                              "part: set data.split.val");
    if (s->data->n_samples(s->data, DT_SPLIT_VAL) > 0 ||
        !dt_schedules[c->train.schedule.name]->follows_evaluations)
        return DT_OK;
    return dt_config_fail(c, "train.schedule.name",
                          "%s follows evaluations, and there is no validation part: set "
                          "data.split.val",
                          dt_config_text(c, DT_KEY(train.schedule.name)));
}

// ---- parts -----------------------------------------------------------------------------------------

// A device divides its own work, and needs a comm for its memory.
static dt_status open_device(dt_session *s) {
    if (!s->backend->device) return DT_OK;
    if (!s->config->device.replicas.is_auto && dt_answer(s->config->device.replicas) > 1)
        return dt_config_fail(s->config, "device.replicas",
                              "a GPU computes one micro-batch at a time: "
                              "use auto or 1");
    s->resolved.replicas = 1;
    if (s->comm->world_size == 1) return DT_OK;
    DT_TRY(dt_agree_devices(s->comm, s->backend, &s->told));
    return dt_comm_create_nccl(&s->device_comm, s->backend, s->comm,
                               !s->elastic && s->config->device.capture,
                               dt_session_timeout_s(s->config, DT_START_TIMEOUT_S));
}

// Where chosen engines are kept for the next run: beside data.cache_dir's default. Heap; NULL: nowhere.
static char *engine_folder(const dt_config *c) {
    if (c->data.cache_dir) return dt_xstrdup(c->data.cache_dir);
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && *xdg) return dt_xprintf("%s/dtrain", xdg);
    return home && *home ? dt_xprintf("%s/.cache/dtrain", home) : NULL;
}

static bool chooses(const dt_session *s) {
    return s->backend->choices != NULL;
}

char *dt_session_engines(const dt_session *s) {
    return chooses(s) ? s->backend->choices(s->backend) : NULL;
}

// The same numbers are other engines to another version of the library.
static void take_stored_engines(dt_session *s, const dt_train_state *stored) {
    if (!stored || !stored->engines || !chooses(s)) return;
    if (dt_state_same_environment(stored, s->backend->describe(s->backend)))
        s->backend->take_choices(s->backend, stored->engines);
}

// auto takes the value that the run began with.
static bool allows_winograd(const dt_config *c, const dt_train_state *stored) {
    dt_config *old = NULL;
    bool off = c->device.winograd == DT_WINOGRAD_off;
    if (!stored || off) return !off;
    if (dt_config_parse(&old, "config", stored->config, strlen(stored->config), NULL, 0) == DT_OK)
        off = old->device.winograd == DT_WINOGRAD_off;
    dt_config_destroy(old);
    return !off;
}

static dt_status resolve_threads(dt_session *s, const dt_train_state *stored) {
    DT_TRY(dt_resolve_threads(&s->resolved, s->config, s->comm, s->n_micro,
                              stored ? &stored->resolved : NULL, stored ? stored->world_size : 0));
    omp_set_num_threads(s->resolved.replica_threads);
    return DT_OK;
}

// Every rank computes other samples, and commits by itself.
static dt_status compare_ranks(dt_session *s) {
    (void)dt_failpoint("choices");
    if (s->config->run.reproducible == DT_REPRODUCIBLE_off) return DT_OK;
    char *environment = dt_session_environment(s);
    char *text = dt_xprintf("%s, dtrain %s", environment, s->a.version);
    dt_status st = dt_agree_environment(s->comm, text, s->elastic, &s->told);
    free(text);
    free(environment);
    return st;
}

static dt_status open_data(dt_session *s, const char *skip_log) {
    if (!s->a.open_data) return DT_OK;
    DT_TRY(s->a.open_data(s->a.ctx, s->config, s->backend, s->resolved.workers, skip_log,
                          s->classes, &s->data));
    if (!s->classes) s->classes = dt_class_names_text(s->data->fields, s->data->n_fields);
    for (int i = 0; i < s->data->n_fields; i++) {
        const dt_field_info *f = &s->data->fields[i];
        if (f->normalize_auto)
            dt_config_set_moments(s->config, i, f->mean, f->std,
                                  (int)dt_shape_elements(&f->sample_shape));
    }
    return DT_OK;
}

// Whether micro-batches are divided as in the checkpoint, whose bits depend on it.
static bool keeps_replicas(const dt_session *s, const dt_train_state *stored) {
    return stored && stored->world_size == s->comm->world_size &&
           stored->resolved.replicas == s->resolved.replicas &&
           stored->resolved.replica_threads == s->resolved.replica_threads;
}

dt_status dt_session_open(dt_session *s, const dt_train_state *stored, const char *skip_log) {
    const dt_resolved *answers = stored ? &stored->resolved : NULL;
    s->comm->set_deadline(s->comm, dt_session_timeout_s(s->config, DT_START_TIMEOUT_S));
    DT_TRY(dt_agree_config(s->comm, s->given, &s->told));
    if (!s->origin) DT_TRY(dt_teacher_open(&s->teacher, s->config, s->comm, &s->told));
    DT_TRY(resolve_threads(s, stored));
    char *cache = engine_folder(s->config);
    dt_backend_opts opts = {.threads = s->resolved.replica_threads,
                            .local_rank = s->comm->local_rank,
                            .local_size = s->comm->local_size,
                            .world_size = s->comm->world_size,
                            .deterministic = s->config->run.reproducible != DT_REPRODUCIBLE_off,
                            .winograd = allows_winograd(s->config, stored ? stored : s->origin),
                            .tf32 = s->config->device.tf32,
                            .timed = s->config->device.time_engines,
                            .cache_folder = cache};
    dt_status created = dt_agree_backend(&s->backend, s->comm, s->resolved.device, &opts, &s->told);
    free(cache);
    DT_TRY(created);
    if (s->backend->device)
        DT_TRY(resolve_threads(s, stored)); // it may have bound us to some cores
    DT_TRY(compare_ranks(s));
    take_stored_engines(s, stored ? stored : s->origin);
    if (s->origin &&
        s->backend->supports_dtype(s->backend, dt_resolved_dtype(&s->origin->resolved)))
        answers = &s->origin->resolved; // as the run evaluates itself
    DT_TRY(open_device(s));
    DT_TRY(dt_resolve_precision(&s->resolved, s->config, s->comm, s->backend, answers));
    s->replicas_open = s->backend->set_threads && s->config->device.replicas.is_auto &&
                       (s->elastic || !keeps_replicas(s, stored));
    if (s->config->train.micro_batch.is_auto) {
        DT_TRY(open_data(s, skip_log));
        DT_TRY(dt_micro_batch_choose(s, answers));
    }
    DT_TRY(dt_replica_plan_create(&s->replicas, s->elastic, s->comm->rank, s->comm->world_size,
                                  s->resolved.replicas, s->n_micro));
    s->resolved.replicas = s->replicas->n_replicas;
    dt_resolve_write(s->config, &s->resolved);
    return s->data ? DT_OK : open_data(s, skip_log);
}

static const dt_optimizer *optimizer_of(const dt_config *c) {
    return &dt_optimizers[c->train.optimizer.name];
}

double dt_session_timeout_s(const dt_config *c, double otherwise) {
    return c->comm.timeout.is_auto ? otherwise : dt_answer(c->comm.timeout);
}

void dt_session_set_deadline(dt_session *s, double seconds) {
    s->comm->set_deadline(s->comm, seconds);
    if (s->device_comm) s->device_comm->set_deadline(s->device_comm, seconds);
}

static dt_status build_graph(dt_session *s, const dt_field_info *fields, int n_fields, int batch,
                             bool training, int64_t step, dt_graph **out) {
    const dt_model_args teacher = {.config = s->teacher.config,
                                   .step = s->teacher.step,
                                   .total_steps = s->teacher.total_steps,
                                   .steps_per_epoch = s->teacher.steps_per_epoch};
    dt_model_args a = {.config = s->config,
                       .fields = fields,
                       .n_fields = n_fields,
                       .batch = batch,
                       .training = training,
                       .drops = s->drops,
                       .teacher = training && s->teacher.config ? &teacher : NULL,
                       .groups = &s->groups,
                       .step = step,
                       .total_steps = s->total_steps,
                       .steps_per_epoch = s->steps_per_epoch};
    return s->a.build_graph(out, &a, dt_resolved_dtype(&s->resolved));
}

dt_status dt_session_eval_graph(dt_session *s, const dt_field_info *fields, int n_fields,
                                int64_t step, const dt_int8 *q, dt_graph **out) {
    dt_graph *g = NULL;
    if (q && s->backend->device)
        return dt_config_fail(s->config, "model.int8",
                              "model.int8 is for the CPU: use "
                              "device.kind=cpu, or model.int8=false");
    if (q && s->resolved.precision != DT_PRECISION_fp32)
        return dt_config_fail(
            s->config, "model.int8",
            "with model.int8 the other layers are fp32: use train.precision=fp32");
    DT_TRY(build_graph(s, fields, n_fields, s->eval_batch, false, step, &g));
    dt_status st = q ? dt_pass_fuse_residual(g) : DT_OK;
    if (st == DT_OK && q) st = dt_pass_int8(g, q);
    if (st != DT_OK) st = dt_fail_context(st, "int8.json");
    if (st == DT_OK)
        *out = g;
    else
        dt_graph_destroy(g);
    return st;
}

static bool averages(const dt_config *c) {
    return c->train.ema.has && c->train.ema.value > 0;
}

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
    if (averages(c)) o.average_rate = (float)(1 - c->train.ema.value);
    return o;
}

static int team_threads(const dt_session *s) {
    return s->resolved.threads > s->replicas->n_replicas ? s->resolved.threads
                                                         : s->replicas->n_replicas;
}

bool dt_session_bf16_gradients(const dt_session *s) {
    return s->comm->world_size > 1 && s->config->comm.gradient_dtype == DT_GRADIENT_DTYPE_bf16;
}

static dt_status make_stepper(dt_session *s) {
    const dt_config *c = s->config;
    const dt_phase *phase = dt_phases_at(s->phases, s->n_phases, s->first_step);
    const bool sync = c->model.sync_bn;
    const int64_t bucket = !c->comm.bucket.is_auto ? dt_answer(c->comm.bucket) << 10
                           : s->backend->device    ? 25 << 20
                                                   : 1 << 20;
    dt_stepper_opts o = {.comm = s->comm,
                         .device_comm = s->device_comm,
                         .loss_scaling = s->resolved.precision == DT_PRECISION_fp16,
                         .bf16_gradients = dt_session_bf16_gradients(s),
                         .uncaptured = !c->device.capture,
                         .hold_input = c->device.hold_input,
                         .graph = phase->graph,
                         .plan = phase->plan,
                         .first_step = s->first_step,
                         .targets = &s->targets,
                         .params = s->params,
                         .replicas = s->replicas,
                         .replica_threads = s->resolved.replica_threads,
                         .team_threads = team_threads(s),
                         .micro_batch = s->micro_batch,
                         .seed = (uint64_t)c->run.seed,
                         .clip_norm = c->train.clip_norm.has ? (float)c->train.clip_norm.value : 0,
                         .weight_decay = (float)c->train.optimizer.weight_decay,
                         .optimizer = read_optimizer(c),
                         .bucket_bytes = bucket,
                         .sync_bn = sync,
                         .give_up = sync ? NULL : dt_signals_grace_is_over}; // others would wait
    return dt_stepper_create(&s->stepper, &o);
}

// All sizes are known: what does not fit is an error before anything is allocated.
static dt_status take_memory(dt_session *s) {
    DT_TRY(dt_memory_check(s));
    DT_TRY(dt_params_take(s->params));
    for (int i = 0; i < s->n_phases; i++) {
        if (s->phases[i].plan) DT_TRY(dt_plan_take(s->phases[i].plan));
        if (s->phases[i].eval_plan) DT_TRY(dt_plan_take(s->phases[i].eval_plan));
    }
    dt_session_list_tensors(s);
    return DT_OK;
}

// For the code that a library generates, and for what else it allocates.
enum { LIBRARY_MIB = 64 };

// What is taken beside the memory that the report lists; saves: with a copy of what a checkpoint keeps.
static uint64_t outside_bytes(const dt_session *s, bool saves) {
    const dt_params *p = s->params;
    const uint64_t n_threads =
        (uint64_t)(s->replicas->n_replicas * s->resolved.replica_threads) + 2; // disk, data
    const int64_t copied = p->n_master + p->n_average + p->n_slot[0] + p->n_slot[1];
    return ((uint64_t)LIBRARY_MIB << 20) + n_threads * dt_memory_stack_bytes() +
           (saves ? 4 * (uint64_t)copied : 0);
}

dt_status dt_session_check_room(const dt_session *s) {
    if (s->backend->device) return DT_OK;
    const bool saves = s->stepper && s->comm->rank == 0 && s->config->checkpoint.async;
    return dt_memory_room(outside_bytes(s, saves),
                          saves ? "kernels, the stacks of threads and a checkpoint's copy"
                                : "kernels and the stacks of threads");
}

// The run as it goes on, or as it was when it made the weights that are asked.
static void list_phases(dt_session *s, bool training) {
    if (training) {
        s->n_phases =
            dt_phases_list(s->phases, &s->groups, &s->scales, s->total_steps, s->steps_per_epoch);
        return;
    }
    s->n_phases = 1;
    s->phases[0] = (dt_phase){.joins = true};
    if (!s->origin) return;
    s->phases[0].begin = s->origin->step > 0 ? s->origin->step - 1 : 0;
    s->total_steps = s->origin->total_steps;
    s->steps_per_epoch = s->origin->steps_per_epoch;
}

static dt_status build_eval_graphs(dt_session *s, const dt_field_info *fields, int n_fields) {
    for (int i = 0; i < s->n_phases; i++) {
        dt_phase *p = &s->phases[i];
        if (!p->joins) continue;
        DT_TRY(dt_session_eval_graph(s, fields, n_fields, p->begin, s->int8, &p->eval_graph));
        s->eval_graph = p->eval_graph;
    }
    return DT_OK;
}

static dt_status build_train_graphs(dt_session *s, const dt_field_info *fields, int n_fields) {
    for (int i = 0; i < s->n_phases; i++)
        DT_TRY(build_graph(s, fields, n_fields, s->micro_batch, true, s->phases[i].begin,
                           &s->phases[i].graph));
    s->graph = s->phases[s->n_phases - 1].graph;
    return DT_OK;
}

static dt_status choose_metrics(dt_session *s) {
    dt_classes classes[DT_MAX_TARGETS] = {DT_CLASSES_EVEN};
    for (int i = 0; s->data && s->data->classes && i < s->targets.n; i++)
        if (s->targets.items[i].field->n_classes > 0)
            classes[i] = s->data->classes(s->data, s->targets.items[i].index);
    DT_TRY(dt_metric_choose(&s->metrics, s->config, s->eval_graph, &s->targets, classes));
    if (s->data) DT_TRY(dt_metric_choose_positive(&s->metrics, s->config, &s->targets));
    s->resolved.best = 1 + (int)s->metrics.best;
    dt_resolve_write(s->config, &s->resolved);
    return DT_OK;
}

static dt_status make_plans(dt_session *s, const dt_field_info *fields, int n_fields,
                            bool training) {
    if (!s->backend->device) DT_TRY(dt_memory_room((uint64_t)LIBRARY_MIB << 20, "kernels"));
    list_phases(s, training);
    DT_TRY(build_eval_graphs(s, fields, n_fields));
    dt_status st = choose_metrics(s);
    if (st == DT_OK && training) st = dt_phases_check(&s->groups, s->eval_graph);
    s->told = st != DT_OK; // a function of what all ranks know
    DT_TRY(st);
    if (training) DT_TRY(build_train_graphs(s, fields, n_fields));
    DT_TRY(dt_params_lay_out(&s->params, training ? s->graph : s->eval_graph, s->backend,
                             training ? optimizer_of(s->config)->n_slots : 0,
                             s->replicas->n_flats));
    if (training && averages(s->config)) dt_params_add_average(s->params);
    if (training && optimizer_of(s->config)->factored) dt_params_add_factored(s->params);
    if (s->raw && !averages(s->config))
        return dt_fail(DT_E_USAGE, "--raw is for a run with train.ema: this one has its trained "
                                   "weights and no average of them");
    dt_plan_opts opts = {.threads = s->resolved.replica_threads,
                         .n_replicas = s->replicas->n_replicas};
    dt_plan_opts train_opts = opts;
    train_opts.packs_at_use =
        !s->backend->device && s->replicas->n_rank_micros == 1 && s->n_phases == 1;
    dt_phases_apply(&s->groups, s->params);
    for (int i = 0; i < s->n_phases && training; i++)
        DT_TRY(dt_plan_create(&s->phases[i].plan, s->phases[i].graph, s->params, &train_opts));
    if (training) s->plan = s->phases[s->n_phases - 1].plan;
    for (int i = 0; i < s->n_phases; i++) {
        dt_phase *p = &s->phases[i];
        if (!p->joins) continue;
        DT_TRY(dt_plan_create(&p->eval_plan, p->eval_graph, s->params, &opts));
        s->eval_plan = p->eval_plan;
    }
    return DT_OK;
}

// Packed copies belong to params, their recipes to plans: params first.
static void drop_plans(dt_session *s) {
    dt_params_destroy(s->params);
    for (int i = 0; i < s->n_phases; i++) {
        dt_phase *p = &s->phases[i];
        dt_plan_destroy(p->plan);
        dt_plan_destroy(p->eval_plan);
        dt_graph_destroy(p->graph);
        dt_graph_destroy(p->eval_graph);
    }
    s->n_phases = 0;
    s->params = NULL;
    s->plan = s->eval_plan = NULL;
    s->graph = s->eval_graph = NULL;
}

dt_status dt_session_plan_bytes(dt_session *s, const dt_field_info *fields, int n_fields,
                                size_t *n_bytes) {
    DT_TRY(dt_replica_plan_create(&s->replicas, s->elastic, s->comm->rank, s->comm->world_size,
                                  s->resolved.replicas, s->n_micro));
    const dt_status st = make_plans(s, fields, n_fields, true);
    if (st == DT_OK) *n_bytes = dt_memory_bytes(s);
    drop_plans(s);
    dt_replica_plan_destroy(s->replicas);
    s->replicas = NULL;
    return st;
}

void dt_session_set_replicas(dt_session *s, int n) {
    s->resolved.replicas = n;
    if (s->elastic) return; // its bits depend on replica_threads
    s->resolved.replica_threads = s->resolved.threads / n;
    s->backend->set_threads(s->backend, s->resolved.replica_threads);
    omp_set_num_threads(s->resolved.replica_threads);
}

static dt_status replan_replicas(dt_session *s, int n) {
    dt_session_set_replicas(s, n);
    dt_replica_plan_destroy(s->replicas);
    s->replicas = NULL;
    dt_resolve_write(s->config, &s->resolved);
    return dt_replica_plan_create(&s->replicas, s->elastic, s->comm->rank, s->comm->world_size, n,
                                  s->n_micro);
}

// device.replicas: auto is a replica a thread, as it is the fastest, but no more than have room.
static dt_status leave_room(dt_session *s, const dt_field_info *fields, int n_fields,
                            bool training) {
    const int most = s->replicas->n_replicas;
    const bool saves = training && s->config->checkpoint.async;
    while (s->replicas_open && s->replicas->n_replicas > 1 &&
           dt_memory_bytes(s) + outside_bytes(s, saves) > s->least_room) {
        drop_plans(s);
        DT_TRY(replan_replicas(s, s->replicas->n_replicas / 2));
        DT_TRY(make_plans(s, fields, n_fields, training));
    }
    if (s->replicas->n_replicas < most && dt_memory_fits(s))
        dt_info("device.replicas: auto: %d of %d threads: %d would take more memory than there is",
                s->replicas->n_replicas, s->resolved.replica_threads, most);
    s->replicas_open = false;
    return DT_OK;
}

// The least that a rank may use.
static dt_status find_least_room(dt_session *s) {
    size_t *all = dt_xcalloc((size_t)s->comm->world_size, sizeof *all);
    const size_t mine = dt_memory_free_bytes(s);
    const dt_status st = s->comm->all_gather_bytes(s->comm, &mine, sizeof mine, all);
    s->least_room = mine;
    for (int r = 0; r < s->comm->world_size && st == DT_OK; r++)
        if (all[r] < s->least_room) s->least_room = all[r];
    free(all);
    return st;
}

// The fastest engines may want much memory: a network that does not fit because of that is planned again with
// smaller ones.
static dt_status build_plans(dt_session *s, const dt_field_info *fields, int n_fields,
                             bool training) {
    DT_TRY(make_plans(s, fields, n_fields, training));
    DT_TRY(leave_room(s, fields, n_fields, training));
    const bool large = s->backend->device && s->backend->device->shrink && !dt_memory_fits(s);
    const int n = large ? s->backend->device->shrink(s->backend) : 0;
    if (n) {
        dt_info("cuda: %d engines are chosen again, with less workspace: the network would not fit",
                n);
        drop_plans(s);
        DT_TRY(make_plans(s, fields, n_fields, training));
    }
    return take_memory(s);
}

// Engines are chosen while plans are made. Engines differ in the order of their sums, so all ranks take rank 0's:
// it makes its plans while the others wait, then broadcasts its choices, or its failure.
static dt_status build_after_rank_0(dt_session *s, const dt_field_info *fields, int n_fields,
                                    bool training) {
    char *text = NULL;
    dt_status st = DT_OK;
    if (s->comm->rank == 0) {
        st = build_plans(s, fields, n_fields, training);
        if (st == DT_OK) text = s->backend->choices(s->backend); // keeps them on disk too
    }
    st = dt_agree_result(s->comm, st, &text, &s->told);
    int replicas = s->resolved.replicas;
    if (st == DT_OK) st = s->comm->broadcast_bytes(s->comm, &replicas, sizeof replicas, 0);
    if (st == DT_OK && replicas != s->resolved.replicas) st = replan_replicas(s, replicas);
    s->replicas_open = false;
    if (st == DT_OK && s->comm->rank > 0) {
        if (text) s->backend->take_choices(s->backend, text);
        st = build_plans(s, fields, n_fields, training);
    }
    free(text);
    return st;
}

// train.precision: auto where a backend measures it. Rank 0 does, on the graph that will run; what does not fit in fp32
// takes bf16.
static dt_status choose_precision(dt_session *s, const dt_field_info *fields, int n_fields,
                                  bool training) {
    static const dt_precision precisions[2] = {DT_PRECISION_fp32, DT_PRECISION_bf16};
    dt_graph *g[2] = {NULL, NULL};
    char *word = NULL;
    int faster = 0;
    dt_status st = DT_OK;
    for (int i = 0; s->comm->rank == 0 && i < 2 && st == DT_OK; i++) {
        s->resolved.precision = precisions[i];
        st = build_graph(s, fields, n_fields, training ? s->micro_batch : s->eval_batch, training,
                         s->total_steps, &g[i]);
    }
    if (s->comm->rank == 0 && st == DT_OK) {
        faster = 1;
        if (dt_memory_may_fit(s, g[0]))
            st = s->backend->choose_precision(s->backend, g[0], g[1], s->replicas->n_replicas,
                                              &faster);
    }
    for (int i = 0; i < 2; i++)
        if (g[i]) dt_graph_destroy(g[i]);
    if (s->comm->rank == 0 && st == DT_OK)
        word = dt_xstrdup(DT_WORD_OF(DT_PRECISION_WORDS, precisions[faster]));
    st = dt_agree_result(s->comm, st, &word, &s->told);
    if (st == DT_OK)
        s->resolved.precision = (dt_precision)dt_word_index(DT_WORDS(DT_PRECISION_WORDS), word);
    free(word);
    if (st == DT_OK) dt_resolve_write(s->config, &s->resolved);
    return st;
}

// The batch norms of a micro-batch wait for those of the other ranks.
static dt_status check_sync_bn(const dt_session *s) {
    static const char key[] = "model.sync_bn";
    if (!s->config->model.sync_bn) return DT_OK;
    if (s->elastic)
        return dt_config_fail(
            s->config, key,
            "%s makes results depend on the number of ranks, and run.reproducible "
            "is elastic: take a larger train.micro_batch, or "
            "run.reproducible=resume",
            key);
    if (s->backend->device)
        return dt_config_fail(s->config, key,
                              "%s runs on the CPU only: take a larger train.micro_batch", key);
    if (s->replicas->n_replicas > 1)
        return dt_config_fail(s->config, key,
                              "%s is between ranks of one replica each: leave device.replicas out",
                              key);
    if (s->n_micro % s->comm->world_size)
        return dt_config_fail(s->config, key,
                              "%s wants as many micro-batches on each rank: %d ranks do not divide "
                              "the step's %d",
                              key, s->comm->world_size, s->n_micro);
    return DT_OK;
}

dt_status dt_session_build(dt_session *s, const dt_field_info *fields, int n_fields,
                           bool training) {
    if (training) DT_TRY(dt_resolve_check_training(s->config, s->backend));
    if (training && s->config->model.int8)
        return dt_config_fail(
            s->config, "model.int8",
            "model.int8 is set by dtrain quantize, of a run that was trained without");
    dt_status st = training ? check_sync_bn(s) : DT_OK;
    s->told |= st != DT_OK;
    DT_TRY(st);
    st = dt_targets_read(&s->targets, s->config, fields, n_fields, training);
    s->told |= st != DT_OK; // a function of what all ranks know
    DT_TRY(st);
    if (s->resolved.precision == DT_PRECISION_auto && s->backend->choose_precision)
        DT_TRY(choose_precision(s, fields, n_fields, training));
    if (s->replicas_open) DT_TRY(find_least_room(s));
    if (chooses(s) && s->comm->world_size > 1)
        DT_TRY(build_after_rank_0(s, fields, n_fields, training));
    else
        DT_TRY(build_plans(s, fields, n_fields, training));
    if (training) DT_TRY(make_stepper(s));
    return DT_OK;
}

bool dt_session_phase_begins(const dt_session *s, int64_t step) {
    return step > 0 && dt_phases_at(s->phases, s->n_phases, step)->begin == step;
}

dt_status dt_session_begin_phase(dt_session *s, int64_t step) {
    const dt_phase *phase = dt_phases_at(s->phases, s->n_phases, step);
    dt_params_repack_step(s->params); // copies that only this phase's steps read
    if (s->comm->rank == 0 && phase->joins)
        dt_info("step %lld: a scale of model.scales joins", (long long)step);
    else if (s->comm->rank == 0)
        dt_info("step %lld: train.groups thaws tensors, %d of %d are trained now", (long long)step,
                phase->graph->n_grads, s->params->n_entries);
    return dt_stepper_set_plan(s->stepper, phase->graph, phase->plan, step);
}

dt_status dt_session_infer_opts(dt_session *s, const char *progress, dt_infer_opts *out) {
    if (!s->stepper) DT_TRY(dt_session_check_room(s));
    if (!s->stepper && !s->own_team)
        DT_TRY(dt_team_create(&s->own_team, team_threads(s), "replica"));
    *out = (dt_infer_opts){.comm = s->comm,
                           .graph = s->eval_graph,
                           .plan = s->eval_plan,
                           .params = s->params,
                           .team = s->stepper ? dt_stepper_team(s->stepper) : s->own_team,
                           .n_replicas = s->replicas->n_replicas,
                           .replica_threads = s->resolved.replica_threads,
                           .batch = s->eval_batch,
                           .fields = s->data->fields,
                           .n_fields = s->data->n_fields,
                           .progress = s->stepper ? NULL : progress,
                           .give_up = s->stepper ? dt_signals_grace_is_over : NULL};
    return DT_OK;
}

dt_status dt_session_make_evaluator(dt_session *s, int64_t done) {
    const dt_phase *phase = dt_phases_evaluated(s->phases, s->n_phases, done);
    dt_infer_opts o;
    if (s->evaluator && s->eval_plan == phase->eval_plan) return DT_OK;
    dt_evaluator_destroy(s->evaluator);
    s->evaluator = NULL;
    s->eval_graph = phase->eval_graph;
    s->eval_plan = phase->eval_plan;
    DT_TRY(dt_session_infer_opts(s, "eval", &o));
    return dt_evaluator_create(&s->evaluator, &o, &s->targets, &s->metrics);
}

char *dt_session_environment(const dt_session *s) {
    return dt_state_environment(s->backend->describe(s->backend));
}

// The run's outcome stands: a failure here is logged and leaves the run's own message alone.
static void finalize_device(dt_session *s) {
    const dt_error_kept first = dt_error_keep();
    if (s->device_comm->finalize(s->device_comm) != DT_OK)
        dt_warn("at the end of the run: %s", dt_error_message());
    dt_error_restore(&first);
}

void dt_session_close(dt_session *s) {
    dt_evaluator_destroy(s->evaluator);
    dt_stepper_destroy(s->stepper);
    dt_team_destroy(s->own_team);
    if (s->data) s->data->close(s->data);
    dt_session_free_tensors(s);
    if (s->device_comm && s->agreed) finalize_device(s);
    dt_comm_destroy_nccl(s->device_comm);
    drop_plans(s);
    dt_replica_plan_destroy(s->replicas);
    if (s->backend) s->backend->destroy(s->backend);
    dt_param_groups_fini(&s->groups);
    dt_teacher_close(&s->teacher);
    dt_int8_destroy(s->int8);
    free(s->given);
    free(s->classes);
}
