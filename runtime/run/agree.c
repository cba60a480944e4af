// agree.c: how ranks exchange errors, and how autos are resolved on all of them.

#include "run/agree.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "config/config.h"
#include "metrics/metric.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- agree --------------------------------------------------------------------------------------------------------

// See agree.h. A job with GPUs on some ranks only would be as slow as the slowest, with bits that nobody
// can repeat: that is an error.

// Rank 0's text on all ranks; *text is replaced on the others. NULL stays NULL.
static dt_status agree_text(dt_comm *c, char **text) {
    if (c->world_size == 1) return DT_OK;
    int64_t n = c->rank == 0 && *text ? (int64_t)strlen(*text) : -1; // -1: rank 0 has no text
    DT_TRY(c->broadcast_bytes(c, &n, sizeof n, 0));
    if (n < 0) return DT_OK;
    if (c->rank != 0) {
        free(*text);
        *text = dt_xcalloc((size_t)n + 1, 1);
    }
    // an empty text is not sent: a broadcast of 0 bytes
    return n > 0 ? c->broadcast_bytes(c, *text, (size_t)n, 0) : DT_OK;
}

dt_status dt_agree_result(dt_comm *c, dt_status st, char **text) {
    if (c->world_size == 1) return st;
    int64_t code = st; // the size of an enum is the compiler's: a fixed one travels
    // copied before the broadcast, which may replace the thread's message
    char *message = c->rank == 0 && st != DT_OK ? dt_xstrdup(dt_error_message()) : NULL;
    dt_status sent = c->broadcast_bytes(c, &code, sizeof code, 0);
    if (sent == DT_OK) sent = agree_text(c, code == DT_OK ? text : &message);
    // all ranks know of the failure only if the broadcast reached them
    c->shared_failure |= sent == DT_OK && code != DT_OK;
    // rank 0's own failure stands even where the broadcast failed, too
    if ((sent == DT_OK || c->rank == 0) && code != DT_OK)
        sent = dt_fail((dt_status)code, "%s%s", c->rank == 0 ? "" : "rank 0: ", message ? message : "");
    free(message);
    return sent;
}

// ---- device.kind: auto -----------------------------------------------------------------------------
// One per rank, gathered as bytes: no pointers.
typedef struct gpu_answer {
    bool yes;
    char host[64], why[400];
} gpu_answer;

static gpu_answer agree_ask(dt_backend **out, const dt_backend_opts *opts) {
    static const char prefix[] = "device.kind: cuda: ";
    gpu_answer a = {.yes = dt_backend_create(out, DT_DEVICE_cuda, opts) == DT_OK};
    const char *why = a.yes ? "" : dt_error_message();
    // the prefix comes again in the message of all ranks
    if (strncmp(why, prefix, sizeof prefix - 1) == 0) why += sizeof prefix - 1;
    snprintf(a.why, sizeof a.why, "%s", why);
    gethostname(a.host, sizeof a.host - 1);
    if (!a.yes) dt_error_clear(); // without a GPU is an outcome here, not an error
    return a;
}

dt_status dt_agree_backend(dt_backend **out, dt_comm *c, dt_device_kind kind, const dt_backend_opts *opts) {
    *out = NULL;
    // nothing to exchange: the config decides, or this rank alone
    if (c->world_size == 1 || kind != DT_DEVICE_auto) return dt_backend_create(out, kind, opts);
    dt_backend *mine = NULL;
    const gpu_answer answer = agree_ask(&mine, opts);
    gpu_answer *all = dt_xcalloc((size_t)c->world_size, sizeof *all); // (world_size) by rank
    dt_status st = c->all_gather_bytes(c, &answer, sizeof answer, all);
    int n = 0, without = 0;
    for (int r = 0; r < c->world_size; r++) n += all[r].yes;
    if (st == DT_OK && n > 0 && n < c->world_size) { // mixed: some ranks have a GPU
        while (all[without].yes) without++;
        c->shared_failure = true;
        st = dt_fail(DT_E_USAGE,
                     "device.kind: auto: %d of %d ranks have a GPU; rank %d on %s has none: %s. "
                     "Start ranks only where GPUs are, or use device.kind=cpu",
                     n, c->world_size, without, all[without].host, all[without].why);
    }
    free(all);
    if (st == DT_OK && n == c->world_size) {
        *out = mine;
        return DT_OK;
    }
    // all or none: a lone GPU backend goes before the error, or before the CPU's
    if (mine) mine->destroy(mine);
    DT_TRY(st);
    // a driver without a usable GPU is rarely meant
    if (dt_backend_has_driver())
        dt_warn("device.kind: auto: the CPU is used, though there is an NVIDIA driver: %s", answer.why);
    return dt_backend_create(out, DT_DEVICE_cpu, opts);
}

// ---- equal configs ---------------------------------------------------------------------------------
typedef struct config_answer {
    dt_status st;
    char host[64], key[128], mine[128], root[128]; // key: empty where the configs are the same
} config_answer;

// Compares this rank's config with rank 0's config, whose text is `root`.
static dt_status agree_compare_config(config_answer *a, const char *root, const dt_config *given) {
    dt_config *x = NULL;
    DT_TRY(dt_config_parse(&x, "rank 0's config", root, strlen(root), NULL, 0));
    const char *of_root = "", *of_mine = "";
    const int flags = DT_KEY_NUMERIC | DT_KEY_EXCHANGED; // EXCHANGED: keys that decide which messages ranks exchange
    const char *key = dt_config_first_difference(x, given, flags, &of_root, &of_mine);
    if (!key) // a key that is auto in the second config never differs
        key = dt_config_first_difference(given, x, flags, &of_mine, &of_root);
    // rank 0 reads the teacher, and its path may be another here; whether there is one decides what ranks exchange
    if (!key && !x->train.teacher != !given->train.teacher) {
        key = "train.teacher";
        of_root = x->train.teacher ? x->train.teacher : "none";
        of_mine = given->train.teacher ? given->train.teacher : "none";
    }
    snprintf(a->key, sizeof a->key, "%s", key ? key : "");
    snprintf(a->mine, sizeof a->mine, "%s", of_mine);
    snprintf(a->root, sizeof a->root, "%s", of_root);
    dt_config_destroy(x);
    return DT_OK;
}

dt_status dt_agree_config(dt_comm *c, const dt_config *given) {
    if (c->world_size == 1) return DT_OK;
    config_answer mine = {0}, *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    char *root = c->rank == 0 ? dt_config_dump(given) : NULL; // with autos: each rank resolves them alike later
    gethostname(mine.host, sizeof mine.host - 1);
    dt_status st = agree_text(c, &root);
    if (st == DT_OK) mine.st = agree_compare_config(&mine, root, given);
    if (st == DT_OK) st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    for (int r = 1; st == DT_OK && r < c->world_size; r++) { // the first rank that differs is named
        if (all[r].st == DT_OK && !all[r].key[0]) continue;
        c->shared_failure = true;
        st = all[r].key[0] ? dt_fail(DT_E_USAGE,
                                     "%s is %s on rank %d (%s) and %s on rank 0: start all ranks with the "
                                     "same config and the same data",
                                     all[r].key, all[r].mine, r, all[r].host, all[r].root)
                           : dt_fail(all[r].st, "rank %d (%s) cannot read rank 0's config", r, all[r].host);
    }
    free(root);
    free(all);
    return st;
}

// ---- equal bits ------------------------------------------------------------------------------------
typedef struct surroundings {
    char host[64], text[512]; // the text says what bits depend on, cut off at 511 bytes on all ranks alike
} surroundings;

static dt_status compare_surroundings(dt_comm *c, const surroundings *all, bool must) {
    const int n = c->world_size;
    char ranks[256] = "";
    size_t used = 0;
    int first = 0; // that differs from rank 0, and those like it
    for (int r = 1; r < n; r++) {
        const bool like_first = strcmp(all[r].text, all[first].text) == 0;
        // before any rank differs: skip those like rank 0; after: count those like the first that differs
        if (like_first == (first == 0)) continue;
        if (!first) first = r;
        if (used < sizeof ranks - 90) // 90: room for one more "rank N on HOST"
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%srank %d on %s", used ? ", " : "", r,
                                     all[r].host);
    }
    if (!first) return DT_OK;
    if (!must) {
        dt_warn_alike("rank 0 on %s computes with '%s', but %s with '%s': bits depend on which "
                      "rank computes what",
                      all[0].host, all[0].text, ranks, all[first].text);
        return DT_OK;
    }
    c->shared_failure = true;
    return dt_fail(DT_E_USAGE,
                   "rank 0 on %s computes with '%s', but %s with '%s', and "
                   "run.reproducible=elastic promises equal bits on any ranks: start all ranks "
                   "with the same build, libraries and instruction set (ONEDNN_MAX_CPU_ISA), or "
                   "use run.reproducible=resume",
                   all[0].host, all[0].text, ranks, all[first].text);
}

dt_status dt_agree_environment(dt_comm *c, const char *text, bool must) {
    surroundings mine = {0}, *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.text, sizeof mine.text, "%s", text);
    dt_status st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    if (st == DT_OK) st = compare_surroundings(c, all, must);
    free(all);
    return st;
}

// ---- memory ----------------------------------------------------------------------------------------
typedef struct memory_answer {
    dt_status st;
    char text[1000];
} memory_answer;

dt_status dt_agree_memory(dt_comm *c, const dt_backend *b, dt_status st) {
    // shared: all have heard of it already, and none comes here
    if (c->world_size == 1 || !b->device || (st != DT_OK && (c->shared_failure || !b->out_of_memory))) return st;
    memory_answer mine = {.st = st}, *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    if (st != DT_OK) snprintf(mine.text, sizeof mine.text, "%s", dt_error_message());
    st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    for (int r = 0; st == DT_OK && r < c->world_size; r++) {
        if (all[r].st == DT_OK) continue;
        c->shared_failure = true;
        st = dt_fail(all[r].st, "rank %d: %s", r, all[r].text);
    }
    free(all);
    return st;
}

// ---- equal data ------------------------------------------------------------------------------------
typedef struct data_card {
    uint64_t fingerprint;
    char host[64], text[512];
} data_card;

static dt_status compare_data(const data_card *all, int n) {
    int r = 1;
    while (r < n && all[r].fingerprint == all[0].fingerprint) r++;
    if (r == n) return DT_OK;
    // the same description: only the fingerprint tells them apart
    const bool alike = strcmp(all[r].text, all[0].text) == 0;
    return dt_fail(DT_E_USAGE,
                   "rank %d on %s has other data than rank 0 on %s: %s%s%s: copy the data set to "
                   "every host, or share its folder",
                   r, all[r].host, all[0].host, all[r].text,
                   alike ? "" : "; rank 0: ", alike ? ", but records of other names, sizes or contents" : all[0].text);
}

dt_status dt_agree_data(dt_comm *c, const dt_dataset *d) {
    if (c->world_size == 1) return DT_OK;
    data_card mine = {.fingerprint = d->fingerprint}, *all;
    all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    gethostname(mine.host, sizeof mine.host - 1);
    snprintf(mine.text, sizeof mine.text, "%s", d->describe(d));
    dt_status st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    if (st == DT_OK) st = dt_agree_shared(c, compare_data(all, c->world_size));
    free(all);
    return st;
}

// ---- one device a rank -----------------------------------------------------------------------------
typedef struct device_card {
    char machine[64]; // this boot of it: containers of one machine have other host names
    char host[64], bus[32], visible[64];
    bool nccl;
} device_card;

static device_card make_card(const dt_backend *b) {
    device_card card = {.nccl = b->device->nccl != NULL};
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    gethostname(card.host, sizeof card.host - 1);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!f || !fgets(card.machine, sizeof card.machine, f)) memcpy(card.machine, card.host, sizeof card.machine);
    if (f) fclose(f);
    // PCI address; empty: unknown, and equal to none
    snprintf(card.bus, sizeof card.bus, "%s", b->device->bus ? b->device->bus : "");
    snprintf(card.visible, sizeof card.visible, "%s%s", visible ? " CUDA_VISIBLE_DEVICES=" : "",
             visible ? visible : "");
    return card;
}

// NCCL_MULTI_RANK_GPU_ENABLE=1, of NCCL 2.30 on, lets ranks share a GPU: real NCCL is tested on a single one that way.
static bool same_device(const device_card *a, const device_card *b) {
    const char *shared = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    if (shared && strcmp(shared, "1") == 0) return false;
    return a->bus[0] && strcmp(a->bus, b->bus) == 0 && strcmp(a->machine, b->machine) == 0;
}

static dt_status check_cards(const device_card *all, int n) {
    for (int r = 0; r < n; r++) {
        if (!all[r].nccl)
            return dt_fail(DT_E_USAGE,
                           "%d ranks with a GPU each need NCCL, and libnccl.so.2 does not load for "
                           "rank %d on %s: install libnccl2 or put its folder into "
                           "LD_LIBRARY_PATH, or run one rank",
                           n, r, all[r].host);
        for (int q = 0; q < r; q++) // world sizes are small: all pairs
            if (same_device(&all[q], &all[r]))
                return dt_fail(DT_E_USAGE,
                               "ranks %d and %d on %s have the same GPU (PCI %s)%s%s: start one rank per GPU, and let "
                               "each see all of them or its own only. NCCL 2.30 and later joins ranks of one GPU, MIG "
                               "instances among them, with NCCL_MULTI_RANK_GPU_ENABLE=1: for tests",
                               q, r, all[r].host, all[r].bus, all[r].visible[0] ? ";" : "", all[r].visible);
    }
    return DT_OK;
}

dt_status dt_agree_devices(dt_comm *c, const dt_backend *b) {
    const device_card mine = make_card(b);
    device_card *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    dt_status st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    if (st == DT_OK) st = dt_agree_shared(c, check_cards(all, c->world_size));
    free(all);
    return st;
}

// ---- resolve ------------------------------------------------------------------------------------------------------

// How many threads a rank has, and what they do.
//
// A rank may use the cores of its affinity mask, up to the quota of its cgroup. Ranks of a host whose masks overlap
// share these cores. All ranks exchange their masks once, so it does not matter whether the launcher binds ranks.

typedef struct rank_cores {
    cpu_set_t mask; // up to CPU_SETSIZE (1024) cores
    uint64_t host;  // hash of the host's name
} rank_cores;

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
    // the call fails on machines of more cores than a cpu_set_t has: one core is assumed
    if (sched_getaffinity(0, sizeof mine.mask, &mine.mask) != 0) CPU_SET(0, &mine.mask);
    rank_cores *all = dt_xcalloc((size_t)comm->world_size, sizeof *all);
    dt_status st = comm->all_gather_bytes(comm, &mine, sizeof mine, all);
    int sharing = 0;
    for (int r = 0; r < comm->world_size; r++) {
        cpu_set_t both;
        CPU_AND(&both, &mine.mask, &all[r].mask);
        sharing += mine.host == all[r].host && CPU_COUNT(&both) > 0; // with itself: at least 1
    }
    free(all);
    DT_TRY(st);
    if (sharing < 1) sharing = 1;
    int cores = dt_usable_cores(); // affinity and cgroup quota
    *out = cores / sharing > 0 ? cores / sharing : 1;
    bool sure;
    // bound by a launcher's default rather than by the user's wish: the rank would run one thread
    if (comm->rank == 0 && dt_launcher_rank() >= 0 && CPU_COUNT(&mine.mask) == 1 && sysconf(_SC_NPROCESSORS_ONLN) > 1)
        dt_warn("this rank is bound to one core of %ld: %s gives it more", sysconf(_SC_NPROCESSORS_ONLN),
                is_by_srun()                            ? "srun --cpus-per-task=N"
                : dt_launcher_mpi(&sure) == DT_MPI_OPEN ? "mpirun --bind-to none (or --map-by slot:PE=N)"
                                                        : "I_MPI_PIN=off mpirun (MPICH: -bind-to none)");
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
    int most = at_least_one(n_micro / world_size); // at most a replica per micro-batch of this rank
    if (replicas_given) r->replicas = (int)dt_answer(c->device.replicas);
    // elastic: bits depend on replica_threads, which therefore never follows the machine
    if (is_elastic(c)) {
        r->replica_threads = stored                            ? stored->replica_threads
                             : replicas_given && threads_given ? at_least_one(r->threads / r->replicas)
                                                               : 1;
        if (!replicas_given) r->replicas = at_least_one(r->threads / r->replica_threads);
        if (r->replicas > most) r->replicas = most;
        return;
    }
    // sync_bn: one replica, whose batch statistics are exchanged with other ranks
    if (!replicas_given) r->replicas = c->model.sync_bn ? 1 : r->threads;
    if (r->replicas > most) r->replicas = most;
    r->replica_threads = at_least_one(r->threads / r->replicas);
}

const char *dt_resolve_find_bad(const dt_resolved *r, const dt_config *c) {
    const bool replicas_given = !c->device.replicas.is_auto;
    // a member's name, as state.json spells it
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

// Whether the stored values are those to this config, which run.resume=force may have changed.
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
    r.device = stored ? stored->device : c->device.kind; // until dt_resolve_precision knows the backend
    // of another number of ranks, or elastic: only what bits depend on is kept
    const bool same = stored && !is_elastic(c) && stored_world_size == comm->world_size;
    r.threads = !c->device.threads.is_auto ? (int)dt_answer(c->device.threads) : same ? stored->threads : share;
    if (same && answers_of(stored, c, at_least_one(n_micro / comm->world_size))) {
        r.replicas = stored->replicas;
        r.replica_threads = stored->replica_threads;
    } else {
        dt_resolve_divide(&r, c, n_micro, comm->world_size, stored);
    }
    if (c->data.workers.is_auto) // by default at most 8
        r.workers = r.threads < 8 ? r.threads : 8;
    else
        r.workers = (int)dt_answer(c->data.workers);
    // hosts may differ in cores: rank 0's answer holds everywhere
    DT_TRY(comm->broadcast_bytes(comm, &r, sizeof r, 0));
    r.micro_batch = out->micro_batch; // resolved elsewhere, so not part of the exchange
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
        why = "has nothing to shard with this optimizer, whose state is one row and one column of each tensor: use "
              "another optimizer";
    return why ? dt_config_fail(c, "train.shard", "train.shard: optimizer %s", why) : DT_OK;
}

dt_status dt_resolve_check_training(const dt_config *c, const dt_backend *b) {
    DT_TRY(check_shard(c));
    if (c->comm.gradient_dtype == DT_GRADIENT_DTYPE_bf16 && is_elastic(c))
        return dt_config_fail(c, "comm.gradient_dtype",
                              "sums in bf16 depend on how many ranks add them: with "
                              "run.reproducible=elastic comm.gradient_dtype must be fp32");
    return DT_OK;
}

dt_status dt_resolve_precision(dt_resolved *out, const dt_config *c, dt_comm *comm, const dt_backend *b,
                               const dt_resolved *stored, bool inference) {
    const bool computes_bf16 = b->computes_dtype(b, DT_BF16);
    dt_precision p = c->train.precision;
    // stored, so that a resumed run computes as before; else bf16 where it is native; auto stays where the backend
    // times it
    if (p == DT_PRECISION_auto)
        p = stored                          ? stored->precision
            : b->supports_dtype(b, DT_BF16) ? b->choose_precision ? DT_PRECISION_auto : DT_PRECISION_bf16
                                            : DT_PRECISION_fp32;
    if (p == DT_PRECISION_fp16 && !b->device)
        dt_warn("train.precision: fp16 is emulated on the CPU, for trying out its loss scaling: it "
                "computes in fp32 and rounds each step's gradient to fp16");
    // auto was bf16 where the run began
    if (p == DT_PRECISION_bf16 && !computes_bf16 && (inference || c->train.precision == DT_PRECISION_auto)) {
        dt_warn("train.precision: this run computed in bf16, which needs a CPU with AVX-512 or a GPU; this is %s: fp32 "
                "here, so numbers differ in their last digits",
                b->describe(b));
        p = DT_PRECISION_fp32;
    }
    out->precision = p;
    // ranks without bf16 units follow rank 0
    DT_TRY(comm->broadcast_bytes(comm, &out->precision, sizeof out->precision, 0));
    if (out->precision == DT_PRECISION_bf16 && !computes_bf16)
        return dt_config_fail(c, "train.precision",
                              "bf16 needs a CPU with AVX-512 or a GPU; this is %s: use fp32 or auto", b->describe(b));
    if (out->precision == DT_PRECISION_bf16 && !b->supports_dtype(b, DT_BF16))
        dt_warn("train.precision: bf16 is not native here (%s): it will be slow", b->describe(b));
    out->device = b->device ? DT_DEVICE_cuda : DT_DEVICE_cpu;
    return DT_OK;
}

dt_dtype dt_resolved_dtype(const dt_resolved *r) {
    return r->precision == DT_PRECISION_bf16                                 ? DT_BF16
           : r->precision == DT_PRECISION_fp16 && r->device != DT_DEVICE_cpu ? DT_F16
                                                                             // fp16 on the CPU is emulated in fp32
                                                                             : DT_F32;
}

// The resolved values, and their keys. best is the last: it may not be there yet.
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
    return dt_metric_of_best(r->best) == DT_METRIC_AUTO ? 6 : 7; // best is not resolved before the networks are made
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
        // elastic: bits depend on replica_threads, and not on these
        const dt_key free_keys[] = {DT_KEY(device.threads), DT_KEY(device.replicas)};
        for (int i = 0; i < 2; i++) {
            dt_config_set_text(old, free_keys[i], "auto");
            dt_config_set_text(given, free_keys[i], "auto");
        }
    }
    // normalize: auto in one config takes the other's numbers, so that measured moments are no difference
    dt_config_take_moments(old, given, true);
    dt_config_take_moments(given, old, true);
    answer all[7];
    const int n = list_answers(r, all);
    for (int i = 0; i < n; i++)
        // a resolved value in the given config must equal what auto gave the old one
        if (dt_config_is_auto(old, all[i].key) && !dt_config_is_auto(given, all[i].key)) set_answer(old, &all[i]);
}
