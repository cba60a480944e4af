// run.c: see run.h. Everything that depends on a later part gets it from an earlier one: record -> threads -> backend
// -> precision, data -> micro-batch -> replicas. OpenMP's thread count of this thread is set before plans are made,
// because the library fixes the division of a primitive's work when it is created.
#include "run/run.h"

#include "base/core.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "comm/comm_nccl.h"
#include "run/agree.h"
#include "run/nets.h"
#include "run/run_state.h"
#include "run/schedule.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

int dt_run_n_micro(const dt_open_run *r) {
    const int n = dt_run_global_batch(r) / r->resolved.micro_batch;
    const bool more = r->request.use == DT_RUN_INFERENCE && n < r->comm->world_size; // there are no steps
    return more ? r->comm->world_size : n;
}

int dt_run_eval_batch(const dt_open_run *r) {
    const dt_config *c = r->config;
    return c->eval.batch.is_auto ? r->resolved.micro_batch : (int)dt_answer(c->eval.batch);
}

bool dt_run_has_bf16_gradients(const dt_open_run *r) {
    // ranks sum in bf16; within a rank sums stay fp32
    return r->comm->world_size > 1 && r->config->comm.gradient_dtype == DT_GRADIENT_DTYPE_bf16;
}

bool dt_run_shards(const dt_open_run *r) {
    return r->comm->world_size > 1 && r->config->train.shard == DT_SHARD_optimizer;
}

bool dt_run_owns_masters(const dt_open_run *r, int n_ranks) {
    return n_ranks > 1 && r->config->train.shard == DT_SHARD_optimizer && r->resolved.precision == DT_PRECISION_bf16 &&
           r->backend->device;
}

dt_comm *dt_run_flat_comm(const dt_open_run *r) {
    return r->device_comm ? r->device_comm : r->comm;
}

const char *dt_run_which(const dt_open_run *r) {
    // "best" by default only where the newest is the best
    return r->request.which ? r->request.which : r->record.best_step == r->record.step ? "best" : "latest";
}

int64_t dt_run_bucket_bytes(const dt_open_run *r, bool device) {
    const dt_config *c = r->config;
    if (!c->comm.bucket.is_auto) return dt_answer(c->comm.bucket) << 10; // KiB
    return device ? 25 << 20 : 1 << 20; // bytes: 25 MiB on devices as in PyTorch's DDP, 1 MiB over MPI
}

double dt_run_timeout_s(const dt_config *c, double otherwise) {
    return c->comm.timeout.is_auto ? otherwise : dt_answer(c->comm.timeout);
}

int64_t dt_run_steps(const dt_config *c, int64_t steps_per_epoch) {
    const int64_t n = steps_per_epoch * c->train.epochs;
    const int64_t most = c->train.max_steps.has ? c->train.max_steps.value : n;
    return most < n ? most : n;
}

void dt_run_set_deadline(dt_open_run *r, double seconds) {
    r->comm->set_deadline(r->comm, seconds);
    if (r->device_comm) r->device_comm->set_deadline(r->device_comm, seconds); // both comms time out alike
}

void dt_run_answer(dt_open_run *r) {
    dt_resolve_write(r->config, &r->resolved);
}

int dt_run_team_threads(const dt_open_run *r) {
    const int threads = r->resolved.threads, replicas = r->replicas->n_replicas;
    return threads > replicas ? threads : replicas; // a thread per replica at least
}

// ---- before anything is opened ---------------------------------------------------------------------

dt_status dt_run_init(dt_open_run *r, const dt_trainer_args *a, const dt_run_request *q) {
    const dt_config *c = a->config;
    const bool open = c->train.micro_batch.is_auto; // until dt_run_open: replicas as many as may be
    *r = (dt_open_run){.args = *a,
                       .request = *q,
                       .config = a->config,
                       .given = dt_config_copy(c),
                       .comm = a->comm,
                       .fields = q->fields,
                       .n_fields = q->n_fields,
                       .dir = dt_xprintf("%s/%s", c->run.dir, c->run.name),
                       .resolved.micro_batch = open ? 1 : (int)dt_answer(c->train.micro_batch)};
    dt_run_state_init(&r->record);
    r->record.total_steps = r->record.steps_per_epoch = 1; // until run_measure: a check without data
    const int global = dt_run_global_batch(r), micro = r->resolved.micro_batch;
    if (global % micro != 0)
        return dt_config_fail(c, "train.global_batch",
                              "%d is not a multiple of train.micro_batch (%d): for example use "
                              "train.global_batch=%d",
                              global, micro, (global / micro + 1) * micro);
    DT_TRY(dt_scales_read(&r->scales, c));
    DT_TRY(dt_param_groups_read(&r->groups, c));
    if (q->use != DT_RUN_TRAINED) return DT_OK;
    // made and dropped: only its error counts
    dt_replica_plan *probe = NULL; // more ranks than micro-batches
    const dt_status st =
        dt_replica_plan_create(&probe, false, r->comm->rank, r->comm->world_size, 1, dt_run_n_micro(r));
    dt_replica_plan_destroy(probe);
    return st;
}

// ---- ranks, backend, data --------------------------------------------------------------------------

static dt_status resolve_threads(dt_open_run *r) {
    const dt_resolved *stored = r->resumed ? &r->record.resolved : NULL;
    DT_TRY(dt_resolve_threads(&r->resolved, r->config, r->comm, dt_run_n_micro(r), stored, r->record.world_size));
    omp_set_num_threads(r->resolved.replica_threads); // of this thread; replicas set theirs
    return DT_OK;
}

// device.winograd: auto takes the value that the run began with.
static bool allows_winograd(const dt_open_run *r) {
    const dt_config *old = r->record.config;
    return r->config->device.winograd != DT_WINOGRAD_off && !(old && old->device.winograd == DT_WINOGRAD_off);
}

// A device divides its own work, and needs a comm for its memory.
static dt_status open_device(dt_open_run *r) {
    const dt_config *c = r->config;
    if (!r->backend->device) return DT_OK;
    if (!c->device.replicas.is_auto && dt_answer(c->device.replicas) > 1)
        return dt_config_fail(c, "device.replicas",
                              "a GPU computes one micro-batch at a time: "
                              "use auto or 1");
    r->resolved.replicas = 1;
    if (r->comm->world_size == 1) return DT_OK;
    DT_TRY(dt_agree_devices(r->comm, r->backend));
    if (c->run.reproducible != DT_REPRODUCIBLE_off && dt_run_is_root(r)) {
        const char *algo = getenv("NCCL_ALGO");
        if (!dt_nccl_repeats())
            dt_warn(
                "NCCL_ALGO=%s lets NCCL add in NVSwitches (NVLS), whose sums do not repeat their bits: unset it, take "
                "NCCL_ALGO=" DT_NCCL_REPEATING ", or run.reproducible=off",
                algo ? algo : "");
        else if (algo && strcmp(algo, DT_NCCL_REPEATING) == 0)
            dt_info("NCCL_ALGO=%s: sums in NVSwitches do not repeat their bits (run.reproducible=off allows them)",
                    algo);
    }
    return dt_comm_create_nccl(&r->device_comm, r->backend, r->comm, !dt_run_is_elastic(r) && c->device.capture,
                               dt_run_shards(r), dt_run_bucket_bytes(r, true), dt_run_timeout_s(c, DT_START_TIMEOUT_S));
}

// Builds of the same version differ: of what runs here, in 32 bits. 0: it cannot be read.
static unsigned hash_program(void) {
    enum { MOST_PROGRAM = 1 << 30 };
    char *program = NULL;
    size_t n = 0; // 0: an unreadable program compares equal to another such rank's
    // the file is this process's own
    if (dt_io_read_file(&program, &n, "/proc/self/exe", MOST_PROGRAM, DT_E_STORAGE) != DT_OK) dt_error_clear();
    const uint64_t hash = program ? dt_hash64(program, n) : 0;
    free(program);
    return (unsigned)hash;
}

// Every rank computes other samples, and commits by itself.
static dt_status compare_ranks(dt_open_run *r) {
    (void)dt_failpoint("choices");
    if (r->comm->world_size == 1) return DT_OK;
    const bool off = r->config->run.reproducible == DT_REPRODUCIBLE_off;
    // off: bits are not promised, so only versions are compared
    char *environment =
        off ? dt_xstrdup("any environment") : dt_run_state_environment(r->backend->describe(r->backend));
    char *text = dt_xprintf("%s, dtrain %s (build %08x)", environment, r->args.version, hash_program());
    const dt_status st = dt_agree_environment(r->comm, text, dt_run_is_elastic(r));
    free(text);
    free(environment);
    return st;
}

static dt_status open_backend(dt_open_run *r) {
    const dt_config *c = r->config;
    const char *described;
    char *cache = dt_io_cache_folder(c->data.cache_dir, ""); // of engines, for the next run
    const dt_backend_opts opts = {.threads = r->resolved.replica_threads,
                                  .local_rank = r->comm->local_rank,
                                  .local_size = r->comm->local_size,
                                  .world_size = r->comm->world_size,
                                  .deterministic = c->run.reproducible != DT_REPRODUCIBLE_off,
                                  .winograd = allows_winograd(r), // changes bits: taken from the checkpoint
                                  .tf32 = c->device.tf32,
                                  .unsummed = !c->device.fp16_sums,
                                  .uncaptured = !c->device.capture,
                                  .timed = c->device.time_engines,
                                  .cache_folder = cache};
    // before the module loads NCCL
    if (opts.deterministic && opts.world_size > 1 && r->resolved.device != DT_DEVICE_cpu && !dt_nccl_repeats())
        setenv("NCCL_ALGO", DT_NCCL_REPEATING, 0);
    const dt_status st = dt_agree_backend(&r->backend, r->comm, r->resolved.device, &opts);
    free(cache);
    DT_TRY(st);
    // a device may have bound this process to some cores
    if (r->backend->device) DT_TRY(resolve_threads(r));
    DT_TRY(compare_ranks(r));
    // with another version of the library the numbers of engines mean other engines
    described = r->backend->describe(r->backend);
    if (r->record.engines && r->backend->choices && dt_run_state_same_environment(&r->record, described))
        r->backend->take_choices(r->backend, r->record.engines);
    return open_device(r);
}

// normalize: auto, which each rank has measured by itself.
static dt_status compare_moments(const dt_open_run *r) {
    dt_config *c = dt_config_copy(r->given);
    dt_config_take_moments(c, r->config, true);
    const dt_status st = dt_agree_config(r->comm, c);
    dt_config_destroy(c);
    return st == DT_E_USAGE ? dt_fail_context(st, "the ranks do not read the same data") : st;
}

static dt_status run_open_data(dt_open_run *r) {
    if (!r->args.open_data || r->data) return DT_OK;
    const bool inference = r->request.use == DT_RUN_INFERENCE;
    // measured moments of the first start, unless the user gives numbers
    if (r->record.config) dt_config_take_moments(r->config, r->record.config, inference);
    const bool logs = r->request.use == DT_RUN_TRAINED; // only training writes RUN/skipped.*
    const dt_batch_memory memory = dt_backend_batch_memory(r->backend);
    // one file per rank: no lock between them
    char *skip_log = logs ? dt_xprintf("%s/skipped.rank%d", r->dir, r->comm->rank) : NULL;
    const dt_status st =
        r->args.open_data(r->args.ctx, r->config, &memory, r->resolved.workers, skip_log, r->record.classes, &r->data);
    free(skip_log);
    DT_TRY(st);
    DT_TRY(dt_agree_data(r->comm, r->data));
    r->fields = r->data->fields;
    r->n_fields = r->data->n_fields;
    bool measured = false;
    for (int i = 0; i < r->n_fields; i++) {
        const dt_field_info *f = &r->fields[i];
        measured |= f->normalize_auto;
        if (f->normalize_auto)
            // into the resolved config, as numbers
            dt_config_set_moments(r->config, i, f->mean, f->std, (int)dt_shape_elements(&f->sample_shape));
    }
    if (measured) DT_TRY(compare_moments(r));
    // the numbering of classes belongs to the run from its first start
    if (!r->record.classes) r->record.classes = dt_class_names_text(r->fields, r->n_fields);
    return DT_OK;
}

// Whether micro-batches are divided as in the checkpoint, whose bits depend on it.
static bool keeps_replicas(const dt_open_run *r) {
    const dt_resolved *was = &r->record.resolved;
    return r->resumed && r->record.world_size == r->comm->world_size && was->replicas == r->resolved.replicas &&
           was->replica_threads == r->resolved.replica_threads;
}

static dt_status make_replicas(dt_open_run *r, int n) {
    dt_replica_plan_destroy(r->replicas);
    r->replicas = NULL;
    DT_TRY(dt_replica_plan_create(&r->replicas, dt_run_is_elastic(r), r->comm->rank, r->comm->world_size, n,
                                  dt_run_n_micro(r)));
    r->resolved.replicas = r->replicas->n_replicas;
    return DT_OK;
}

dt_status dt_run_set_replicas(dt_open_run *r, int n) {
    // elastic runs keep replica_threads, which decide their bits
    if (r->backend->set_threads && !dt_run_is_elastic(r) && n != r->resolved.replicas) {
        r->resolved.replica_threads = r->resolved.threads / n; // elastic: bits depend on them
        r->backend->set_threads(r->backend, r->resolved.replica_threads);
        omp_set_num_threads(r->resolved.replica_threads);
    }
    return make_replicas(r, n);
}

// A run's own config.yaml has numbers where its config had auto: they are those of the machine and the ranks that it
// trained on. An inference resolves its threads anew, as does a training on another number of ranks; what the command line
// says counts.
static void forget_threads(dt_open_run *r) {
    const dt_key keys[] = {DT_KEY(device.threads), DT_KEY(device.replicas), DT_KEY(data.workers)};
    const bool inference = r->request.use == DT_RUN_INFERENCE;
    const bool moved = r->resumed && r->record.world_size != r->comm->world_size; // the number of ranks changed
    for (int i = 0; i < 3; i++) {
        const bool free = inference || (moved && dt_config_is_auto(r->record.config, keys[i]));
        // keys of the command line stay as the user wrote them
        if (!free || strcmp(dt_config_where(r->config, keys[i]), "command line") == 0) continue;
        dt_config_set_text(r->config, keys[i], "auto");
        dt_config_set_text(r->given, keys[i], "auto");
    }
}

// Opens backend and data, and resolves all autos that need no plan.
static dt_status run_open_parts(dt_open_run *r) {
    const dt_config *c = r->config;
    const dt_resolved *was = r->resumed ? &r->record.resolved : NULL;
    if (r->request.use != DT_RUN_INFERENCE) DT_TRY(dt_run_read_teacher(r));
    forget_threads(r);
    DT_TRY(resolve_threads(r));
    DT_TRY(open_backend(r));
    if (r->request.use == DT_RUN_INFERENCE &&
        r->backend->supports_dtype(r->backend, dt_resolved_dtype(&r->record.resolved)))
        was = &r->record.resolved; // as the run evaluates itself
    DT_TRY(dt_resolve_precision(&r->resolved, c, r->comm, r->backend, was, r->request.use == DT_RUN_INFERENCE));
    // kept replicas are those of the checkpoint: memory was enough then
    r->replicas_open =
        r->backend->set_threads && c->device.replicas.is_auto && (dt_run_is_elastic(r) || !keeps_replicas(r));
    if (c->train.micro_batch.is_auto) {
        // The one question that a run asks of its nets: replicas, batches and the record below are of this size, and
        // only plans tell what fits.
        DT_TRY(run_open_data(r)); // whose shapes a plan needs
        DT_TRY(dt_nets_choose_micro_batch(r, was));
    }
    DT_TRY(make_replicas(r, r->resolved.replicas));
    dt_run_answer(r);
    return run_open_data(r);
}

// ---- the run's length ------------------------------------------------------------------------------

// Keys that name a step (a scale's begin, a group's freeze_until) must name one that the run has.
static dt_status check_within(const dt_open_run *r) {
    static const char bn[] = "eval.recalibrate_bn";
    const int64_t total = r->record.total_steps;
    if (dt_value_or(r->config->eval.recalibrate_bn, 0) > total)
        return dt_config_fail(r->config, bn, "%s takes the run's first steps, of which there are %lld", bn,
                              (long long)total);
    for (int i = 0; i < r->scales.n; i++) {
        const dt_scale_item *x = &r->scales.items[i];
        const int64_t from = dt_amount_steps(x->from, total, r->record.steps_per_epoch);
        if (x->joins && from >= total) // never reached: its scale would not train
            return dt_config_fail(r->config, "model.scales",
                                  "model.scales: %d joins at step %lld, and the run has %lld", x->side, (long long)from,
                                  (long long)total);
    }
    return DT_OK;
}

#define FAR_BYTES "images of bytes have values in 0..1 here, as ToTensor makes them: divide mean and std by 255"

// What a training that begins is refused for, and one that began before is not.
static dt_status run_check_fields(const dt_open_run *r) {
    // runs that began before the check was made may go on
    const bool begins = r->request.use != DT_RUN_INFERENCE && !r->resumed;
    for (int i = 0; i < r->n_fields; i++) {
        const dt_field_info *f = &r->fields[i];
        const char *one = f->n_classes == 1 ? dt_field_name_of(f, 0) : NULL; // one: its only class
        bool far = false;
        // means and deviations are in the unit of 0..1: larger ones are of bytes 0..255
        for (int64_t k = 0; f->is_image && f->dtype == DT_U8 && k < f->sample_shape.d[2]; k++)
            far |= dt_field_mean(f, k) > 1 || dt_field_std(f, k) > 16;
        char key[128];
        snprintf(key, sizeof key, "data.fields.%s.normalize", f->name);
        if (far && begins) return dt_config_fail(r->config, key, "%s: " FAR_BYTES, key);
        if (far) dt_warn_alike("%s: " FAR_BYTES, key);
        if (begins && f->n_classes == 1)
            return dt_fail(DT_E_USAGE, "field %s has only the class '%s'%s: there is nothing to learn", f->name,
                           one ? one : "0", r->config->data.where ? " in the records of data.where" : "");
    }
    return DT_OK;
}

// Steps of an epoch and of the run. DT_E_USAGE where the training split is smaller than a step, or lacks what the
// config wants to do with it.
static dt_status run_measure(dt_open_run *r) {
    const dt_config *c = r->config;
    const int64_t n = r->data->n_samples(r->data, DT_SPLIT_TRAIN);
    const bool validates = r->data->n_samples(r->data, DT_SPLIT_VAL) > 0;
    // the incomplete last step of an epoch is dropped
    const int64_t per_epoch = r->record.steps_per_epoch = n / dt_run_global_batch(r);
    if (n == 0) return dt_config_fail(c, "data.split", "the split leaves no sample to train on");
    if (per_epoch == 0)
        return dt_fail(DT_E_USAGE,
                       "the training split has %lld samples, fewer than train.global_batch (%d): "
                       "lower it",
                       (long long)n, dt_run_global_batch(r));
    r->record.total_steps = dt_run_steps(c, per_epoch); // both bounds apply: epochs and max_steps
    DT_TRY(check_within(r));
    if (!validates && c->train.early_stop.patience.has)
        return dt_config_fail(
            c, "train.early_stop.patience",
            "train.early_stop follows evaluations, and there is no validation split: set data.split.val");
    if (!validates && c->eval.threshold.is_auto)
        return dt_config_fail(
            c, "eval.threshold",
            "eval.threshold: f1 chooses on the validation split, and there is none: set data.split.val");
    if (validates || !dt_schedules[c->train.schedule.name]->follows_evaluations) return DT_OK;
    return dt_config_fail(c, "train.schedule.name",
                          "%s follows evaluations, and there is no validation split: set data.split.val",
                          dt_config_text(c, DT_KEY(train.schedule.name)));
}

// ---- life ------------------------------------------------------------------------------------------

dt_status dt_run_open(dt_open_run *r, const dt_trainer_args *a, const dt_run_request *q) {
    const dt_status st = dt_run_init(r, a, q); // of the config and the world size
    r->comm->set_deadline(r->comm, dt_run_timeout_s(r->config, DT_START_TIMEOUT_S));
    // config first: with other configs ranks would fail at different places
    DT_TRY(dt_agree_config(r->comm, r->given));
    DT_TRY(dt_agree_shared(r->comm, st));
    if (q->use != DT_RUN_CHECKED) DT_TRY(dt_run_read_state(r));
    if (r->finished) return DT_OK; // only the stored results are printed
    DT_TRY(run_open_parts(r));
    // checked with data and backend open: fingerprint and environment are theirs
    if (r->resumed) DT_TRY(dt_run_check_resumed(r));
    if (r->data) DT_TRY(run_check_fields(r));
    if (q->use != DT_RUN_INFERENCE) return r->data ? run_measure(r) : DT_OK;
    if (r->data->n_samples(r->data, q->split) > 0) return DT_OK;
    return dt_fail(DT_E_USAGE, "the %s split has no samples: choose another with --split, or set data.split.%s",
                   dt_split_name(q->split), dt_split_name(q->split));
}

void dt_run_close(dt_open_run *r, dt_status st) {
    const dt_error_kept first = dt_error_keep(); // the outcome stands; a failure here is logged
    // the mirror may still copy: waits for it
    if (r->ckpt && st != DT_E_PEER) dt_ckpt_mirror_end(r->ckpt); // else the network may be at fault
    if (r->ckpt) dt_ckpt_close(r->ckpt);
    if (r->data) r->data->close(r->data);
    // finalize is collective: only where all ranks end alike
    if (r->device_comm && (st == DT_OK || r->comm->shared_failure) && r->device_comm->finalize(r->device_comm) != DT_OK)
        dt_warn("at the end of the run: %s", dt_error_message());
    dt_comm_destroy_nccl(r->device_comm);
    dt_replica_plan_destroy(r->replicas);
    if (r->backend) r->backend->destroy(r->backend);
    dt_param_groups_fini(&r->groups);
    dt_config_destroy(r->teacher.config);
    free(r->teacher.classes);
    free(r->teacher.folder);
    dt_int8_destroy(r->int8);
    dt_run_state_fini(&r->record);
    dt_config_destroy(r->given);
    free(r->checkpoint);
    free(r->moved);
    free(r->dir);
    dt_error_restore(&first);
}
