// test_sim.c: jobs that are broken by a seed, and what must hold of them. See sim.h; CONTRIBUTING.md says how to
// replay a seed.
//
//   test_sim                    every fault at every event of a small job, or every STRIDE-th of these pairs (11; FULL=1:
//                               all), then SEEDS seeds (100; FULL=1: 10000)
//   test_sim seed 17            one seed, with everything that happens
//   test_sim fault eio 42 7     one fault, at event 42 of a job of one rank; step 7 is not finite (-1: none is)
//   test_sim cuts 1 1000        power cuts: the histories of seeds from 1 on, until there were 1000 cuts
//
// A history is up to three starts that are disturbed, then calm ones until the job is finished. Then it must have given
// what an undisturbed job gives: weights, metrics.jsonl, result.json, `eval` of latest and best. In between no
// acknowledged checkpoint is lost, every start ends by its deadline, and who fails says why.
#define _GNU_SOURCE
#include "sim.h"

#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "checkpoint/ckpt.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct text {
    char *data;
    size_t n;
} text;
typedef struct outcome { // of a finished job
    text weights, moments, metrics, result, evals;
} outcome;

static outcome calm;
static double calm_s;
static int64_t calm_events;

// The history under way.
static char problem[4096];
static struct { // losses that the job itself told of
    bool best, metrics;
} told;
static bool verbose;

static bool wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static bool wrong(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (!*problem) vsnprintf(problem, sizeof problem, fmt, ap);
    va_end(ap);
    return false;
}

// ---- starts ----------------------------------------------------------------------------------------
static bool run_start(void) {
    sim_world->code = -2;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) sim_job();
    int status = 0;
    waitpid(pid, &status, 0);
    if (sim_world->code == -2) return wrong("the program broke: wait status %d", status);
    if (sim_world->code == -1) return wrong("%s", sim_world->violation);
    told.best |= strstr(sim_world->text, "was the best and is not on disk") != NULL;
    told.metrics |=
        strstr(sim_world->text, "metrics are lost") || strstr(sim_world->text, "a power cut may lose the end of it");
    return true;
}

static void plan_calm(int world_size) {
    *sim_world =
        (sim_start){.seed = 1, .world_size = world_size, .limit_s = calm_s + SIM_PATIENCE_S, .verbose = verbose};
}

static bool run_calm(int world_size) {
    plan_calm(world_size);
    sim_world->evaluate = true;
    if (!run_start()) return false;
    if (sim_world->code == 0) return true;
    return wrong("undisturbed: exit %d: %s", sim_world->code, sim_world->error);
}

static text read_run(const char *file) {
    char path[256];
    text t = {0};
    snprintf(path, sizeof path, "%s/sim/%s", sim_root, file);
    if (dt_io_read_file(&t.data, &t.n, path, 0, DT_E_CKPT) != DT_OK) t.data = strdup("");
    return t;
}

// metrics.jsonl without what differs from run to run: times, memory, and all lines but those of steps and evaluations.
static void cut_times(text *t) {
    char *to = t->data;
    for (char *line = t->data, *end; *line; line = end) {
        end = strchrnul(line, '\n');
        const bool is_step = strncmp(line, "{\"kind\":\"step\"", 14) == 0;
        char *times = strstr(line, is_step ? ",\"samples_per_s\"" : ",\"time\"");
        size_t n = (size_t)((times && times < end ? times : end) - line);
        if (!is_step && strncmp(line, "{\"kind\":\"eval\"", 14) != 0) {
            end += *end == '\n';
            continue;
        }
        memmove(to, line, n);
        to += n;
        if (*end) *to++ = *end++;
    }
    *to = '\0';
    t->n = (size_t)(to - t->data);
}

static void take_outcome(outcome *o) {
    o->weights = read_run("checkpoints/step-00000012/model.safetensors");
    o->moments = read_run("checkpoints/step-00000012/optimizer.safetensors");
    o->metrics = read_run("metrics.jsonl");
    o->result = read_run("result.json");
    o->evals = (text){strdup(sim_world->evaluations), strlen(sim_world->evaluations)};
    cut_times(&o->metrics);
}

static void free_outcome(outcome *o) {
    free(o->weights.data);
    free(o->moments.data);
    free(o->metrics.data);
    free(o->result.data);
    free(o->evals.data);
}

static bool begin_history(void) {
    *problem = '\0';
    told.best = told.metrics = false;
    if (dt_io_remove_tree(sim_root) != DT_OK || dt_io_mkdir(sim_root) != DT_OK) return wrong("%s", dt_error_message());
    sim_disk_settle();
    return true;
}

// ---- what must hold of a disturbed start -----------------------------------------------------------
static const char *words_of(sim_kind k) {
    return k == SIM_EIO                        ? "Input/output error"
           : k == SIM_ENOSPC || k == SIM_SHORT ? "No space left"
           : k == SIM_HANG                     ? "no response"
                                               : NULL;
}

// Who fails says why: the first thing that went wrong, and not what followed from it.
static bool check_words(void) {
    const int code = sim_world->code;
    const char *said = sim_world->error;
    const sim_fault *first = NULL;
    int n_fired = 0;
    bool bad_step = false;
    for (int i = 0; i < SIM_FAULTS; i++) {
        const sim_fault *f = &sim_world->faults[i];
        bad_step |= f->kind == SIM_BAD_STEP;
        if (!f->fired) continue;
        if (!first || f->fired_s < first->fired_s) first = f;
        n_fired++;
    }
    if (code == 0 || code == 137) return true;
    if (!*said) return wrong("exit %d without a word", code);
    if (code == 6 && !strstr(said, "the first tensor that is not finite")) return wrong("exit 6: %s", said);
    if (code == 75 && !strstr(said, "SIGUSR1")) return wrong("exit 75: %s", said);
    if (code == 6 ? !bad_step : code != 75 && n_fired == 0) return wrong("exit %d: %s", code, said);
    if (code != 4 && code != 5 && code != 6 && code != 75 && code != 240) return wrong("exit %d: %s", code, said);
    const char *words = n_fired == 1 && (code == 4 || code == 5) ? words_of(first->kind) : NULL;
    if (words && !strstr(said, words)) return wrong("%s (%s) is said to be: %s", words, first->target, said);
    return true;
}

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

static bool run_disturbed(int64_t *acknowledged) {
    if (!run_start() || !check_words()) return false;
    if (sim_world->cut) sim_disk_cut(sim_world->seed);
    if (sim_world->acknowledged > *acknowledged) *acknowledged = sim_world->acknowledged;
    int64_t newest = newest_on_disk();
    return newest >= *acknowledged ||
           wrong("step %" PRId64 " was acknowledged, the newest on disk is %" PRId64, *acknowledged, newest);
}

// ---- what must hold in the end ---------------------------------------------------------------------
static bool is_same(const char *what, const text *want, const text *got) {
    if (want->n == got->n && memcmp(want->data, got->data, want->n) == 0) return true;
    if (strcmp(what, "weights") == 0) return wrong("other weights than undisturbed");
    return wrong("other %s than undisturbed:\n%.1500s\ninstead of\n%.1500s", what, got->data, want->data);
}

// The lines of `some` are lines of `all`, in that order.
static bool has_lines(const char *all, const char *some) {
    for (const char *line = some, *end; *line; line = end) {
        end = strchrnul(line, '\n');
        end += *end == '\n';
        while (*all && strncmp(all, line, (size_t)(end - line)) != 0) all = strchrnul(all, '\n') + 1;
        if (!*all) return wrong("metrics.jsonl differs by a line: %.*s", (int)(end - line), line);
    }
    return true;
}

// Where the best could not be saved, another one is, and what was tested is what is there.
static bool best_agrees(const outcome *o) {
    const char *there = strstr(o->evals.data, "\"best\""), *tested = strstr(o->result.data, "\"best");
    int64_t a = -1, b = -2;
    if (there) sscanf(there, "\"best\",\"step\":%" SCNd64, &a);
    if (tested) sscanf(strchr(tested, ','), ",\"step\":%" SCNd64, &b);
    return a == b || wrong("the best on disk is of step %" PRId64 ", tested was %" PRId64, a, b);
}

static bool nothing_left(const char *folder) {
    char path[256], **names = NULL;
    size_t n = 0;
    bool good = true;
    snprintf(path, sizeof path, "%s/%s", sim_root, folder);
    if (dt_io_list_dir(&names, &n, path, DT_E_STORAGE) != DT_OK) return wrong("%s", dt_error_message());
    for (size_t i = 0; i < n; i++)
        if (strstr(names[i], "tmp")) good = wrong("left behind: %s/%s", folder, names[i]);
    dt_io_free_list(names, n);
    return good;
}

// Up to the test with the best weights, which ends the file; heap.
static char *before_best(const text *metrics) {
    const char *best = strstr(metrics->data, "{\"kind\":\"eval\",\"split\":\"test_best\"");
    return best ? strndup(metrics->data, (size_t)(best - metrics->data)) : strdup(metrics->data);
}

// What the job told that it lost may be missing.
static bool same_results(const outcome *o) {
    if (!told.best)
        return is_same("result.json", &calm.result, &o->result) && is_same("evaluations", &calm.evals, &o->evals) &&
               (told.metrics ? has_lines(calm.metrics.data, o->metrics.data)
                             : is_same("metrics.jsonl", &calm.metrics, &o->metrics));
    char *want = before_best(&calm.metrics), *got = before_best(&o->metrics);
    bool good = best_agrees(o) && has_lines(want, got) && (told.metrics || has_lines(got, want));
    free(want);
    free(got);
    return good;
}

static bool finish_history(void) {
    outcome o;
    if (!run_calm(1 + (int)(sim_world->seed % 2))) return false;
    take_outcome(&o);
    bool good = nothing_left("sim") && nothing_left("sim/checkpoints") &&
                is_same("weights", &calm.weights, &o.weights) && is_same("weights", &calm.moments, &o.moments) &&
                same_results(&o);
    free_outcome(&o);
    return good;
}

// ---- histories -------------------------------------------------------------------------------------
static void plan_fault(sim_start *s, sim_fault *f) {
    const double lengths[] = {sim_uniform(0, 1), sim_uniform(1, 60), INFINITY};
    f->kind = (sim_kind)(1 + sim_random() % (SIM_N_KINDS - 1));
    f->rank = (int)(sim_random() % (uint64_t)s->world_size);
    f->at = 1 + (int64_t)(sim_random() % (uint64_t)(calm_events * s->world_size));
    f->seconds = lengths[sim_random() % 3];
    if (f->kind == SIM_BAD_STEP) f->at = (int64_t)(sim_random() % 12);
    if (f->kind == SIM_PART && s->world_size == 1) f->kind = SIM_NONE;
    if (f->kind == SIM_FREEZE && s->world_size == 1) f->kind = SIM_CUT; // nobody could notice
    if (!isinf(f->seconds)) s->limit_s += f->seconds;
}

static bool run_seed(uint64_t seed) {
    int64_t acknowledged = -1;
    if (!begin_history()) return false;
    for (uint64_t i = 0; i <= seed % 3; i++) {
        sim_seed(seed * 3 + i);
        plan_calm(1 + (int)(sim_random() % SIM_RANKS));
        sim_world->seed = seed * 3 + i;
        sim_world->limit_s += calm_s;
        for (uint64_t k = 0; k <= (seed + i) % SIM_FAULTS; k++) plan_fault(sim_world, &sim_world->faults[k]);
        if (!run_disturbed(&acknowledged)) return false;
    }
    return finish_history();
}

static bool run_fault(sim_kind kind, int64_t at, int64_t bad_step) {
    int64_t acknowledged = -1;
    if (!begin_history()) return false;
    plan_calm(1);
    sim_world->seed = (uint64_t)at;
    sim_world->limit_s += calm_s;
    // a disk that is full for a while fails a save and the second try of it
    const double seconds = kind == SIM_HANG ? INFINITY : kind == SIM_ENOSPC ? 0.3 : 0;
    sim_world->faults[0] = (sim_fault){.kind = kind, .at = at, .seconds = seconds};
    if (bad_step >= 0) sim_world->faults[1] = (sim_fault){.kind = SIM_BAD_STEP, .at = bad_step};
    return run_disturbed(&acknowledged) && finish_history();
}

// Starts that each end by a power cut, until one of them is spared; then calm ones. Adds how many there were.
static bool run_cuts(uint64_t seed, int64_t *n_cuts) {
    int64_t acknowledged = -1;
    if (!begin_history()) return false;
    for (uint64_t i = 0; i == 0 || sim_world->cut; i++) {
        sim_seed(seed << 20 | i);
        plan_calm(1 + (int)(sim_random() % SIM_RANKS));
        sim_world->seed = seed << 20 | i;
        sim_world->limit_s += calm_s;
        const int64_t at = 1 + (int64_t)(sim_random() % (uint64_t)(calm_events / 3 * sim_world->world_size));
        sim_world->faults[0] = (sim_fault){.kind = SIM_CUT, .rank = (int)(at % sim_world->world_size), .at = at};
        if (!run_disturbed(&acknowledged)) return false;
        *n_cuts += sim_world->cut;
    }
    return finish_history();
}

// ---- all of them -----------------------------------------------------------------------------------
static const struct {
    sim_kind kind;
    int64_t bad_step;
} everywhere[] = {{SIM_EIO, -1}, {SIM_ENOSPC, -1}, {SIM_SHORT, -1}, {SIM_HANG, -1},
                  {SIM_CUT, -1}, {SIM_KILL, -1},   {SIM_EIO, 11},   {SIM_SIGNAL, -1}};
enum { N_EVERYWHERE = sizeof everywhere / sizeof *everywhere };

static void open_world(int worker) {
    const char *where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; // calls matter, not the disk
    sim_world = mmap(NULL, sizeof *sim_world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sim_disk_share();
    snprintf(sim_root, sizeof sim_root, "%s/dtrain-sim-%d-%d", where, (int)getpid(), worker);
}

static bool learn_calm(void) {
    if (!begin_history()) return false;
    sim_warm_up(sim_root);
    if (!begin_history() || !run_calm(1)) return false;
    calm_s = sim_world->end_s;
    calm_events = sim_world->n_events;
    take_outcome(&calm);
    return true;
}

static int run_share(int worker, int n_workers, int64_t n_seeds, int stride) {
    int n_bad = 0;
    open_world(worker);
    for (int64_t i = worker * stride; i < N_EVERYWHERE * calm_events; i += n_workers * stride) {
        const sim_kind kind = everywhere[i % N_EVERYWHERE].kind;
        const int64_t at = 1 + i / N_EVERYWHERE, bad = everywhere[i % N_EVERYWHERE].bad_step;
        if (run_fault(kind, at, bad)) continue;
        n_bad++;
        printf("FAILED: %s\n  again: test_sim fault %s %" PRId64 " %" PRId64 "\n", problem, sim_kind_names[kind], at,
               bad);
    }
    for (int64_t seed = 1 + worker; seed <= n_seeds; seed += n_workers) {
        if (run_seed((uint64_t)seed)) continue;
        n_bad++;
        printf("FAILED: %s\n  again: test_sim seed %" PRId64 "\n", problem, seed);
    }
    dt_io_remove_tree(sim_root);
    return n_bad > 0;
}

static bool run_campaign(uint64_t seed, int64_t n) {
    int64_t n_cuts = 0;
    bool good = true;
    for (; good && n_cuts < n; seed++) good = run_cuts(seed, &n_cuts);
    printf("%" PRId64 " cuts, next seed %" PRIu64 "\n", n_cuts, seed);
    return good;
}

static int run_all(void) {
    const char *given = getenv("SEEDS"), *full = getenv("FULL"), *stride = getenv("STRIDE");
    const bool all = full && *full == '1';
    const int64_t n_seeds = given ? atoll(given) : all ? 10000 : 100;
    const int every = stride ? atoi(stride) : all ? 1 : 11;
    int n_workers = dt_usable_cores(), n_bad = 0;
    printf("%" PRId64 " events, %d faults at each, %" PRId64 " seeds\n", calm_events, (int)N_EVERYWHERE, n_seeds);
    fflush(stdout);
    for (int w = 0; w < n_workers; w++)
        if (fork() == 0) exit(run_share(w, n_workers, n_seeds, every));
    for (int status; wait(&status) > 0;) n_bad += status != 0;
    return n_bad > 0;
}

int main(int n, char **words) {
    dt_log_set_level(DT_LOG_ERROR);
    open_world(0);
    bool good = learn_calm();
    verbose = n > 1 && strcmp(words[1], "cuts") != 0;
    if (good && n == 1) good = run_all() == 0;
    if (good && n == 3) good = run_seed(strtoull(words[2], NULL, 10));
    if (good && n == 4) good = run_campaign(strtoull(words[2], NULL, 10), atoll(words[3]));
    for (int k = 1; good && n == 5 && k < SIM_N_KINDS; k++)
        if (strcmp(words[2], sim_kind_names[k]) == 0) good = run_fault((sim_kind)k, atoll(words[3]), atoll(words[4]));
    dt_io_remove_tree(sim_root);
    printf("%s%s\n", good ? "good" : "FAILED: ", problem);
    return !good;
}
