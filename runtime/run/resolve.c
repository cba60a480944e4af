// resolve.c: how many threads a rank has, and what they do.
//
// A rank may use the cores of its affinity mask, up to the quota of its cgroup. Ranks of a host whose masks overlap
// share these cores. All ranks exchange their masks once, so it does not matter whether the launcher binds ranks.

#define _GNU_SOURCE // CPU sets
#include "run/resolve.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/launcher.h"
#include "base/log.h"
#include "base/thread.h"
#include "metrics/metric.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct rank_cores {
    cpu_set_t mask;
    uint64_t host;
} rank_cores;

static bool overlaps(const rank_cores *a, const rank_cores *b) {
    cpu_set_t both;
    CPU_AND(&both, &a->mask, &b->mask);
    return a->host == b->host && CPU_COUNT(&both) > 0;
}

// Ranks that mpirun starts in a job of Slurm have Slurm's variables, too, but not its namespace.
static bool is_by_srun(void) {
    const char *space = getenv("PMIX_NAMESPACE");
    return space && strncmp(space, "slurm.", 6) == 0;
}

// The usable cores, divided by the number of ranks that share them.
static dt_status share_of_cores(dt_comm *comm, int *out) {
    rank_cores mine = {0};
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    mine.host = dt_hash64(host, strlen(host));
    if (sched_getaffinity(0, sizeof mine.mask, &mine.mask) != 0) CPU_SET(0, &mine.mask);
    rank_cores *all = dt_xcalloc((size_t)comm->world_size, sizeof *all);
    dt_status st = comm->all_gather_bytes(comm, &mine, sizeof mine, all);
    int sharing = 0;
    for (int r = 0; r < comm->world_size; r++) sharing += overlaps(&mine, &all[r]);
    free(all);
    DT_TRY(st);
    if (sharing < 1) sharing = 1;
    int cores = dt_usable_cores();
    *out = cores / sharing > 0 ? cores / sharing : 1;
    if (comm->rank == 0 && dt_launcher_rank() >= 0 && CPU_COUNT(&mine.mask) == 1 && sysconf(_SC_NPROCESSORS_ONLN) > 1)
        dt_warn("this rank is bound to one core of %ld: %s gives it more", sysconf(_SC_NPROCESSORS_ONLN),
                is_by_srun() ? "srun --cpus-per-task=N" : "mpirun --bind-to none (or --map-by slot:PE=N)");
    return DT_OK;
}

static bool is_elastic(const dt_config *c) {
    return c->run.reproducible == DT_REPRODUCIBLE_elastic;
}

static int at_least_one(int n) {
    return n > 0 ? n : 1;
}

void dt_resolve_divide(dt_resolved *r, const dt_config *c, int n_micro, int world_size, const dt_resolved *stored) {
    bool replicas_given = !c->device.replicas.is_auto;
    bool threads_given = !c->device.threads.is_auto;
    int most = at_least_one(n_micro / world_size);
    if (replicas_given) r->replicas = (int)dt_answer(c->device.replicas);
    if (is_elastic(c)) {
        r->replica_threads = stored                            ? stored->replica_threads
                             : replicas_given && threads_given ? at_least_one(r->threads / r->replicas)
                                                               : 1;
        if (!replicas_given) r->replicas = at_least_one(r->threads / r->replica_threads);
        if (r->replicas > most) r->replicas = most;
        return;
    }
    if (!replicas_given) r->replicas = c->model.sync_bn ? 1 : r->threads;
    if (r->replicas > most) r->replicas = most;
    r->replica_threads = at_least_one(r->threads / r->replicas);
}

const char *dt_resolve_find_bad(const dt_resolved *r, const dt_config *c) {
    const bool replicas_given = !c->device.replicas.is_auto;
    if (!c->device.threads.is_auto && r->threads != dt_answer(c->device.threads)) return "threads";
    if (r->replicas > (replicas_given ? dt_answer(c->device.replicas) : r->threads)) return "replicas";
    // an elastic run keeps replica_threads on a machine of fewer threads
    const bool kept = is_elastic(c) && (replicas_given || r->replicas == 1);
    const int64_t global = c->train.global_batch;
    if (r->micro_batch < 1 || global % r->micro_batch ||
        (!c->train.micro_batch.is_auto && r->micro_batch != dt_answer(c->train.micro_batch)))
        return "micro_batch";
    return !kept && r->replica_threads > at_least_one(r->threads / r->replicas) ? "replica_threads" : NULL;
}

// Whether the stored answers are those to this config, which run.resume=force may have changed.
static bool answers_of(const dt_resolved *stored, const dt_config *c, int most) {
    if (dt_resolve_find_bad(stored, c)) return false;
    if (c->device.replicas.is_auto) return true;
    const int64_t given = dt_answer(c->device.replicas);
    return stored->replicas == (given < most ? given : most);
}

dt_status dt_resolve_threads(dt_resolved *out, const dt_config *c, dt_comm *comm, int n_micro,
                             const dt_resolved *stored, int stored_world_size) {
    dt_resolved r = {0};
    int share = 1;
    DT_TRY(share_of_cores(comm, &share));
    r.device = stored ? stored->device : c->device.kind;
    const bool same = stored && !is_elastic(c) && stored_world_size == comm->world_size;
    r.threads = !c->device.threads.is_auto ? (int)dt_answer(c->device.threads) : same ? stored->threads : share;
    if (same && answers_of(stored, c, at_least_one(n_micro / comm->world_size))) {
        r.replicas = stored->replicas;
        r.replica_threads = stored->replica_threads;
    } else {
        dt_resolve_divide(&r, c, n_micro, comm->world_size, stored);
    }
    if (c->data.workers.is_auto)
        r.workers = r.threads < 8 ? r.threads : 8;
    else
        r.workers = (int)dt_answer(c->data.workers);
    DT_TRY(comm->broadcast_bytes(comm, &r, sizeof r, 0));
    r.micro_batch = out->micro_batch;
    *out = r;
    return DT_OK;
}

static dt_status check_shard(const dt_config *c) {
    const char *why = NULL;
    if (c->train.shard == DT_SHARD_none) return DT_OK;
    if (is_elastic(c)) why = "is for run.reproducible: resume or off, not elastic";
    if (dt_value_or(c->train.clip_agc, 0) > 0)
        why = "cannot clip by train.clip_agc, as a row may have several owners; train.clip_norm and "
              "train.clip_value it can";
    if (dt_optimizers[c->train.optimizer.name].factored)
        why = "has nothing to divide with this optimizer, whose state is a row and a column of each "
              "tensor; the others keep moments";
    return why ? dt_config_fail(c, "train.shard", "train.shard: optimizer %s", why) : DT_OK;
}

dt_status dt_resolve_check_training(const dt_config *c, const dt_backend *b) {
    DT_TRY(check_shard(c));
    if (c->device.hold_input && !b->device)
        return dt_config_fail(c, "device.hold_input",
                              "device.hold_input keeps a GPU's input buffers; the CPU reads a batch "
                              "where the loader left it: leave the key out, or train on a GPU");
    if (c->comm.gradient_dtype == DT_GRADIENT_DTYPE_bf16 && is_elastic(c))
        return dt_config_fail(c, "comm.gradient_dtype",
                              "sums in bf16 depend on how many ranks add them: with "
                              "run.reproducible=elastic comm.gradient_dtype must be fp32");
    return DT_OK;
}

dt_status dt_resolve_precision(dt_resolved *out, const dt_config *c, dt_comm *comm, const dt_backend *b,
                               const dt_resolved *stored) {
    dt_precision p = c->train.precision;
    if (p == DT_PRECISION_auto)
        p = stored                          ? stored->precision
            : b->supports_dtype(b, DT_BF16) ? b->choose_precision ? DT_PRECISION_auto : DT_PRECISION_bf16
                                            : DT_PRECISION_fp32;
    if (p == DT_PRECISION_fp16 && !b->device)
        dt_warn("train.precision: fp16 is imitated on the CPU, for trying out its loss scaling: it "
                "computes in fp32 and rounds each step's gradient to fp16");
    if (p == DT_PRECISION_bf16 && !b->computes_dtype(b, DT_BF16))
        return dt_config_fail(c, "train.precision",
                              "bf16 needs a CPU with AVX-512 or a GPU; this is %s: use fp32 or auto", b->describe(b));
    out->precision = p;
    DT_TRY(comm->broadcast_bytes(comm, &out->precision, sizeof out->precision, 0));
    if (out->precision == DT_PRECISION_bf16 && !b->supports_dtype(b, DT_BF16))
        dt_warn("train.precision: bf16 is not native here (%s): it will be slow", b->describe(b));
    out->device = b->device ? DT_DEVICE_cuda : DT_DEVICE_cpu;
    return DT_OK;
}

dt_dtype dt_resolved_dtype(const dt_resolved *r) {
    return r->precision == DT_PRECISION_bf16                                 ? DT_BF16
           : r->precision == DT_PRECISION_fp16 && r->device != DT_DEVICE_cpu ? DT_F16
                                                                             : DT_F32;
}

// The answers, and their keys. best is the last: it may not be there yet.
typedef struct answer {
    dt_key key;
    bool word; // number is a word's constant
    int number;
} answer;
static int list_answers(const dt_resolved *r, answer out[7]) {
    const answer all[7] = {{DT_KEY(device.kind), true, (int)r->device},
                           {DT_KEY(device.threads), false, r->threads},
                           {DT_KEY(device.replicas), false, r->replicas},
                           {DT_KEY(data.workers), false, r->workers},
                           {DT_KEY(train.micro_batch), false, r->micro_batch},
                           {DT_KEY(train.precision), true, (int)r->precision},
                           {DT_KEY(eval.best), true, r->best}};
    memcpy(out, all, sizeof all);
    return dt_metric_of_best(r->best) == DT_METRIC_AUTO ? 6 : 7;
}

static void set_answer(dt_config *c, const answer *a) {
    if (a->word)
        dt_config_set_word(c, a->key, a->number);
    else
        dt_config_set_int(c, a->key, a->number);
}

void dt_resolve_write(dt_config *c, const dt_resolved *r) {
    answer all[7];
    const int n = list_answers(r, all);
    for (int i = 0; i < n; i++) set_answer(c, &all[i]);
}

void dt_resolve_align(dt_config *old, dt_config *given, const dt_resolved *r) {
    if (is_elastic(given)) {
        const dt_key free_keys[] = {DT_KEY(device.threads), DT_KEY(device.replicas)};
        for (int i = 0; i < 2; i++) {
            dt_config_set_text(old, free_keys[i], "auto");
            dt_config_set_text(given, free_keys[i], "auto");
        }
    }
    dt_config_take_moments(old, given, true);
    dt_config_take_moments(given, old, true);
    answer all[7];
    const int n = list_answers(r, all);
    for (int i = 0; i < n; i++)
        if (dt_config_is_auto(old, all[i].key) && !dt_config_is_auto(given, all[i].key)) set_answer(old, &all[i]);
}
