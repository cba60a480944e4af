// test_sim.c: jobs that are broken by a seed, and what must hold of them. See sim.h; CONTRIBUTING.md says how to
// replay a seed.
//
//   test_sim                  every fault of the disk at every call of a run, and SEEDS seeds (200; FULL=1: 10000)
//   test_sim seed 17          one seed, with everything that happens
//   test_sim fault eio 42 1   one fault at one event of a job of one rank
//
// A history is up to three starts that are disturbed, then calm ones until the job is finished. Then it must have given
// what an undisturbed job gives: weights, metrics.jsonl, result.json, `eval` of latest and best. In between no
// acknowledged checkpoint is lost, every start ends by its deadline, and who fails says why.
#define _GNU_SOURCE
#include "sim.h"

#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "ckpt/ckpt.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_STARTS = 8, TIMEOUT_S = 20 }; // comm.timeout

typedef struct outcome { // of a finished job; heap
    char *weights, *moments, *metrics, *result, *evals;
    size_t n_weights, n_moments, n_metrics;
} outcome;

static outcome calm;
static double calm_s;
static int64_t calm_events;
static char problem[4096]; // of the history under way
static bool verbose;

static bool wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static bool wrong(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (!*problem) vsnprintf(problem, sizeof problem, fmt, ap);
    va_end(ap);
    return false;
}

// ---- one start -------------------------------------------------------------------------------------
static bool run_start(void) {
    sim_world->code = -2;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) sim_job();
    int status = 0;
    waitpid(pid, &status, 0);
    if (sim_world->code == -2)
        return wrong("the program broke (signal %d, exit %d)", WTERMSIG(status),
                     WEXITSTATUS(status));
    if (sim_world->code == -1) return wrong("%s", sim_world->violation);
    return true;
}

static char *read_run(const char *file, size_t *n) {
    char path[256], *text = NULL;
    size_t m = 0;
    snprintf(path, sizeof path, "%s/sim/%s", sim_root, file);
    if (dt_io_read_file(&text, &m, path, 0, DT_E_CKPT) != DT_OK) text = strdup(""), m = 0;
    if (n) *n = m;
    return text;
}

// metrics.jsonl without what differs from run to run: times and memory.
static void cut_times(char *text) {
    char *to = text;
    for (char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        char *times = strstr(line, ",\"samples_per_s\"");
        size_t n = (size_t)((times && times < end ? times : end - 1) - line);
        memmove(to, line, n);
        to += n;
        *to++ = '\n';
    }
    *to = '\0';
}

static bool take_outcome(outcome *o) {
    o->weights = read_run("checkpoints/step-00000012/model.safetensors", &o->n_weights);
    o->moments = read_run("checkpoints/step-00000012/optimizer.safetensors", &o->n_moments);
    o->metrics = read_run("metrics.jsonl", &o->n_metrics);
    o->result = read_run("result.json", NULL);
    cut_times(o->metrics);
    *sim_world = (sim_start){
        .seed = 1, .world_size = 1, .limit_s = 600, .verbose = verbose, .evaluate = true};
    if (!run_start()) return false;
    if (sim_world->code != 0)
        return wrong("eval ends with %d: %s", sim_world->code, sim_world->error);
    o->evals = strdup(sim_world->text);
    return true;
}

static void free_outcome(outcome *o) {
    free(o->weights);
    free(o->moments);
    free(o->metrics);
    free(o->result);
    free(o->evals);
}

static bool begin_history(void) {
    *problem = '\0';
    if (dt_io_remove_tree(sim_root) != DT_OK || dt_io_mkdir(sim_root) != DT_OK)
        return wrong("%s", dt_error_message());
    sim_disk_settle();
    return true;
}

// ---- what must hold --------------------------------------------------------------------------------
static int64_t newest_on_disk(void) {
    char dir[128], *path = NULL;
    int64_t step = -1;
    dt_ckpt *c = NULL;
    snprintf(dir, sizeof dir, "%s/sim/checkpoints", sim_root);
    dt_ckpt_opts o = {.dir = dir, .keep = 1};
    if (dt_ckpt_open(&c, &o, true) != DT_OK) return -1;
    if (dt_ckpt_find(c, "latest", &step, &path) != DT_OK) step = -1;
    free(path);
    dt_ckpt_close(c);
    return step;
}

static const char *reason_of(sim_kind k) {
    return k == SIM_EIO ? "Input/output error" : "No space left";
}

// Who failed says why: the first fault's words are in the message, and a fault that did not end the job was told.
static bool check_words(void) {
    const int code = sim_world->code;
    const sim_fault *bad = NULL, *io = NULL;
    int n_other = 0;
    for (int i = 0; i < SIM_FAULTS; i++) {
        const sim_fault *f = &sim_world->faults[i];
        if (f->kind == SIM_BAD_STEP)
            bad = f;
        else if (f->fired && (f->kind == SIM_EIO || f->kind == SIM_ENOSPC || f->kind == SIM_SHORT))
            io = f;
        else
            n_other += f->fired;
    }
    if (code == 0 || code == 137) return true;
    if (!*sim_world->error && code != 75) return wrong("exit %d without a word", code);
    if (code == 6 && (!bad || !strstr(sim_world->error, "the first tensor that is not finite")))
        return wrong("exit 6: %s", sim_world->error);
    if (bad && !n_other && !io && code != 6)
        return wrong("a bad step gives %d: %s", code, sim_world->error);
    if ((code == 5 || code == 4) && !n_other &&
        !(io && strstr(sim_world->error, reason_of(io->kind))))
        return wrong("exit %d, and not for %s (%s): %s", code, io ? reason_of(io->kind) : "nothing",
                     io ? io->target : "", sim_world->error);
    if (code == 240 && n_other + (io != NULL) == 0) return wrong("exit 240: %s", sim_world->error);
    if (code == 2 || code == 3 || (code >= 70 && code != 75 && code != 240))
        return wrong("exit %d: %s", code, sim_world->error);
    return true;
}

// A start that was disturbed.
static bool run_disturbed(int64_t *acknowledged) {
    if (!run_start() || !check_words()) return false;
    if (sim_world->cut) sim_disk_cut(sim_world->seed);
    for (int i = 0; i < sim_world->n_acknowledged; i++)
        if (sim_world->acknowledged[i] > *acknowledged) *acknowledged = sim_world->acknowledged[i];
    int64_t newest = newest_on_disk();
    if (newest < *acknowledged)
        return wrong("step %" PRId64 " was acknowledged, the newest on disk is %" PRId64,
                     *acknowledged, newest);
    return true;
}

static bool is_same(const char *what, const char *a, size_t n, const char *b, size_t m) {
    if (n == m && memcmp(a, b, n) == 0) return true;
    return wrong("other %s than undisturbed:\n%.1500s\ninstead of\n%.1500s", what,
                 strcmp(what, "weights") ? b : "", strcmp(what, "weights") ? a : "");
}

static bool finish_history(void) {
    int n = 0;
    do {
        *sim_world = (sim_start){.seed = 77 + (uint64_t)n,
                                 .world_size = 1 + n % 2,
                                 .limit_s = calm_s + 600,
                                 .verbose = verbose};
        if (!run_start()) return false;
    } while (sim_world->code != 0 && ++n < 2);
    if (sim_world->code != 0)
        return wrong("undisturbed it ends with %d: %s", sim_world->code, sim_world->error);
    outcome o = {0};
    bool good =
        take_outcome(&o) &&
        is_same("weights", calm.weights, calm.n_weights, o.weights, o.n_weights) &&
        is_same("weights", calm.moments, calm.n_moments, o.moments, o.n_moments) &&
        is_same("result.json", calm.result, strlen(calm.result), o.result, strlen(o.result)) &&
        is_same("evaluations", calm.evals, strlen(calm.evals), o.evals, strlen(o.evals)) &&
        is_same("metrics.jsonl", calm.metrics, strlen(calm.metrics), o.metrics, strlen(o.metrics));
    free_outcome(&o);
    return good;
}

// ---- histories -------------------------------------------------------------------------------------
static double pick_seconds(void) {
    switch (sim_random() % 3) {
    case 0:
        return sim_uniform(0, 4);
    case 1:
        return sim_uniform(4, 60);
    default:
        return INFINITY;
    }
}

static bool of_ranks(sim_kind k) {
    return k == SIM_KILL_RANK || k == SIM_FREEZE || k == SIM_PART;
}

static void plan_start(sim_start *s, uint64_t seed) {
    *s = (sim_start){
        .seed = seed, .verbose = verbose, .world_size = 1 + (int)(sim_random() % SIM_RANKS)};
    s->limit_s = 2 * calm_s + 5 * TIMEOUT_S;
    int n = 1 + (int)(sim_random() % SIM_FAULTS);
    for (int i = 0; i < n; i++) {
        sim_fault *f = &s->faults[i];
        f->kind = (sim_kind)(1 + sim_random() % (SIM_N_KINDS - 1));
        if (s->world_size == 1 && of_ranks(f->kind)) f->kind = SIM_CUT;
        f->rank = (int)(sim_random() % (uint64_t)s->world_size);
        f->at = 1 + (int64_t)(sim_random() % (uint64_t)(calm_events * s->world_size));
        if (f->kind == SIM_BAD_STEP) f->at = (int64_t)(sim_random() % 12);
        f->seconds = pick_seconds();
        if (!isinf(f->seconds)) s->limit_s += f->seconds;
    }
}

static bool run_seed(uint64_t seed) {
    int64_t acknowledged = -1;
    if (!begin_history()) return false;
    sim_seed(seed);
    for (int i = 0; i < 1 + (int)(seed % 3); i++) {
        plan_start(sim_world, seed * 1000 + (uint64_t)i);
        if (!run_disturbed(&acknowledged)) return false;
    }
    return finish_history();
}

static bool run_fault(sim_kind kind, int64_t at, int world_size) {
    int64_t acknowledged = -1;
    if (!begin_history()) return false;
    *sim_world =
        (sim_start){.seed = (uint64_t)at,
                    .world_size = world_size,
                    .verbose = verbose,
                    .limit_s = 2 * calm_s + 5 * TIMEOUT_S,
                    .faults = {{.kind = kind,
                                .at = at,
                                .rank = world_size - 1,
                                .seconds = kind == SIM_HANG || of_ranks(kind) ? INFINITY : 0.001}}};
    return run_disturbed(&acknowledged) && finish_history();
}

static void make_root(int worker) {
    sim_world =
        mmap(NULL, sizeof *sim_world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sim_disk_share();
    const char *where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(sim_root, sizeof sim_root, "%s/dtrain-sim-%d-%d", where, (int)getpid(), worker);
}

static bool run_calm(void) {
    if (!begin_history()) return false;
    sim_warm_up(sim_root);
    if (!begin_history()) return false;
    *sim_world = (sim_start){.seed = 1, .world_size = 1, .limit_s = 3600, .verbose = verbose};
    if (!run_start()) return false;
    if (sim_world->code != 0)
        return wrong("undisturbed: exit %d: %s", sim_world->code, sim_world->error);
    calm_s = sim_world->end_s;
    calm_events = sim_world->n_events;
    return take_outcome(&calm);
}

// ---- all of them -----------------------------------------------------------------------------------
static const sim_kind kinds[] = {SIM_EIO, SIM_ENOSPC, SIM_SHORT, SIM_HANG, SIM_CUT, SIM_KILL};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int run_share(int worker, int n_workers, int64_t n_seeds) {
    int n_bad = 0;
    make_root(worker);
    for (int64_t i = worker; i < N_KINDS * calm_events; i += n_workers) {
        sim_kind kind = kinds[i % N_KINDS];
        int64_t at = 1 + i / N_KINDS;
        if (run_fault(kind, at, 1)) continue;
        n_bad++;
        printf("FAILED: %s\n  again: test_sim fault %s %" PRId64 " 1\n", problem,
               sim_kind_names[kind], at);
    }
    for (int64_t seed = 1 + worker; seed <= n_seeds; seed += n_workers) {
        if (run_seed((uint64_t)seed)) continue;
        n_bad++;
        printf("FAILED: %s\n  again: test_sim seed %" PRId64 "\n", problem, seed);
    }
    dt_io_remove_tree(sim_root);
    fflush(stdout);
    return n_bad;
}

static int run_all(void) {
    const char *given = getenv("SEEDS"), *full = getenv("FULL");
    int64_t n_seeds = given ? atoll(given) : full && *full == '1' ? 10000 : 200;
    int n_workers = dt_usable_cores(), n_failed = 0;
    for (int w = 0; w < n_workers; w++)
        if (fork() == 0) exit(run_share(w, n_workers, n_seeds) > 0);
    for (int status; wait(&status) > 0;) n_failed += status != 0;
    printf("%" PRId64 " seeds; %" PRId64 " events in a calm run of %.1f s\n", n_seeds, calm_events,
           calm_s);
    return n_failed > 0;
}

int main(int n, char **words) {
    dt_log_set_level(DT_LOG_ERROR);
    make_root(0);
    if (!run_calm()) {
        printf("FAILED: %s\n", problem);
        return 1;
    }
    printf("calm: %" PRId64 " events, %.1f s\n", calm_events, calm_s);
    if (n == 1) return run_all();
    verbose = true;
    bool good = true;
    if (n == 3 && strcmp(words[1], "seed") == 0) good = run_seed(strtoull(words[2], NULL, 10));
    for (int k = 1; n == 5 && k < SIM_N_KINDS; k++)
        if (strcmp(words[2], sim_kind_names[k]) == 0)
            good = run_fault((sim_kind)k, atoll(words[3]), atoi(words[4]));
    printf("%s%s\n", good ? "good" : "FAILED: ", problem);
    return !good;
}
