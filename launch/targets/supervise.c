// supervise.c: see target.h.

#define _GNU_SOURCE // pipe2

#include "target.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "config/words.h"
#include "run/memory_report.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAST_WORDS_S  2.0 // how long what a job wrote is waited for after its end
#define FIRST_PAUSE_S 1.0 // between an end and the next start; doubled each time
#define MAX_PAUSE_S   60.0
#define WATCH_S       5.0   // between looks at what has come back
#define SILENT_S      60.0  // without a rank: a warning
#define START_S       300.0 // without a rank: the end
#define FLUSH_S       2.0   // metrics.jsonl lags behind by at most about this

// Open MPI's own code where it loses its daemon on a host. MPICH's mpirun ends with the number of the signal that ended a
// rank, and ors those of several: 6 and less are taken for a rank's code.
enum { MPIRUN_LOST_HOST = 205 };

// ---- exit codes ------------------------------------------------------------------------------------

dt_cli_exit dt_cli_exit_of(int code) {
    static const struct {
        int code;
        dt_cli_exit exit;
    } table[] = {{DT_OK, LAUNCH_DONE},           {DT_E_USAGE, LAUNCH_FINAL},   {DT_E_DATA, LAUNCH_FINAL},
                 {DT_E_CKPT, LAUNCH_FINAL},      {DT_E_STORAGE, LAUNCH_FINAL}, {DT_E_NUMERIC, LAUNCH_FINAL},
                 {DT_E_PREEMPTED, LAUNCH_SAVED}, {DT_E_PEER, LAUNCH_LOST},     {128 + SIGKILL, LAUNCH_KILLED},
                 {253, LAUNCH_KILLED}, // SIG_OOM of slurm.h
                 {128 + SIGUSR1, LAUNCH_EARLY},  {128 + SIGTERM, LAUNCH_EARLY}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == code) return table[i].exit;
    return LAUNCH_OTHER;
}

char *dt_cli_exit_codes(dt_cli_exit first, dt_cli_exit last, const char *between) {
    char *codes = NULL;
    for (int code = 0; code < 256; code++)
        if (dt_cli_exit_of(code) >= first && dt_cli_exit_of(code) <= last)
            dt_xappend(&codes, "%s%d", codes ? between : "", code);
    return codes;
}

// ---- streams ---------------------------------------------------------------------------------------

// A reader that has gone away is no reason for the job to end: what comes after is dropped. Signals of the terminal
// are for the job.
static void copy_to_end(int from, int to) {
    char bytes[16384];
    bool open = true;
    for (ssize_t n; (n = read(from, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR);)
        for (ssize_t at = 0; open && at < n;) {
            const ssize_t m = write(to, bytes + at, (size_t)(n - at));
            if (m > 0) at += m;
            open = m >= 0 || errno == EINTR;
        }
}

static bool is_pipe(int fd, struct stat *info) {
    return fstat(fd, info) == 0 && (S_ISFIFO(info->st_mode) || S_ISSOCK(info->st_mode));
}

// *fd: a pipe of ours to `to`, or `to` itself where that is no pipe. Who copies is a process of its own, so that the
// job's pipes outlive this program. 0: there is none.
static pid_t begin_relay(int to, int *fd) {
    struct stat info;
    int ends[2];
    *fd = to;
    if (!is_pipe(to, &info) || pipe2(ends, O_CLOEXEC) != 0) return 0;
    pid_t pid = fork(); // signals are blocked (dt_cli_jobs_init) and stay so
    if (pid == 0) {
        setpgid(0, 0); // Ctrl-C is for the job
        close(ends[1]);
        copy_to_end(ends[0], to);
        _exit(0);
    }
    close(ends[0]);
    if (pid > 0)
        *fd = ends[1];
    else
        close(ends[1]);
    return pid > 0 ? pid : 0;
}

// What was written is passed on before the end, unless somebody else keeps the pipe open.
static void end_relay(pid_t pid) {
    const double begin_s = dt_clock_s();
    while (pid && waitpid(pid, NULL, WNOHANG) == 0 && dt_clock_s() - begin_s < LAST_WORDS_S) usleep(5000);
}

// ---- how far it got --------------------------------------------------------------------------------

typedef struct progress {
    int64_t step, saved_step; // -1: none
    double lost_s, step_s;    // since saved_step; of the last step
    bool has_steps;           // else checkpoints alone say how far it got
} progress;

static void count_line(progress *p, const char *line) {
    json_t *o = json_loads(line, 0, NULL);
    const json_t *step = json_object_get(o, "step");
    const json_t *s = json_object_get(json_object_get(o, "seconds"), "step");
    if (json_is_integer(step) && s) {
        p->step = json_integer_value(step);
        p->step_s = json_number_value(s);
        if (p->step > p->saved_step) p->lost_s += p->step_s;
    }
    json_decref(o);
}

// "step-00000012" -> 12.
static void count_checkpoint(progress *p, const char *line) {
    long long step;
    if (sscanf(line, "step-%lld", &step) == 1 && step > p->saved_step) p->saved_step = step;
}

// Runs SCRIPT in the run's folder, where rank 0 ran. true: it ended with 0; *out (heap): what it wrote.
static bool run_in_run(const dt_cli_supervised *s, const char *script, char **out) {
    const char *run_dir = s->config->run.dir;
    char cwd[4096] = "";
    if (*run_dir != '/' && !getcwd(cwd, sizeof cwd - 1)) return false;
    char *run = dt_xprintf("%s%s%s/%s", cwd, *cwd ? "/" : "", run_dir, s->config->run.name);
    char *whole = dt_xprintf("cd \"$1\" && %s", script);
    const char *const argv[] = {"sh", "-c", whole, "sh", run, NULL};
    dt_cli_process p;
    const int e = s->reach ? s->reach(s->ctx, &p, argv) : dt_cli_process_run(&p, argv, -1, true, LAUNCH_REACH_S);
    *out = dt_xstrdup(p.out.text);
    const bool good = e == 0 && p.code == 0;
    dt_cli_process_fini(&p);
    free(whole);
    free(run);
    return good;
}

// Open MPI 5's mpirun ends with 0 where it loses a host.
static bool is_finished(const dt_cli_supervised *s) {
    char *nothing = NULL;
    const bool finished = run_in_run(s, "test -e result.json", &nothing); // written at the very end of a run
    free(nothing);
    return finished;
}

// From the names of the checkpoints and, with `steps`, the end of metrics.jsonl, which has every step.
static progress read_progress(const dt_cli_supervised *s, bool steps) {
    char *text = NULL;
    progress p = {.step = -1, .saved_step = -1};
    p.has_steps = steps && dt_words_have(&s->config->metrics.sinks, DT_SINK_jsonl);
    run_in_run(s, steps ? "{ ls checkpoints; tail -c 4000000 metrics.jsonl; }" : "ls checkpoints", &text);
    for (char *line, *rest = text; rest && (line = strsep(&rest, "\n"));) {
        count_checkpoint(&p, line);
        count_line(&p, line);
    }
    if (p.step < p.saved_step) p.step = p.saved_step;
    free(text);
    return p;
}

// About: metrics.jsonl may lag behind the run by FLUSH_S.
static bool same_step(const progress *a, const progress *b) {
    const double apart_s = fabs((double)(a->step - b->step)) * fmax(a->step_s, b->step_s);
    return a->has_steps && a->saved_step == b->saved_step && apart_s <= FLUSH_S;
}

// ---- one start -------------------------------------------------------------------------------------

// false: it is sure that none of the job's ranks runs where rank 0 does.
static bool has_ranks(const dt_cli_supervised *s) {
    static const char script[] =
        "for p in /proc/[0-9]*; do tr \"\\0\" \"\\n\" <$p/environ | grep -x "
        "\"OMPI_COMM_WORLD_RANK=.*\\|MPI_LOCALRANKID=.*\\|"
        "DTRAIN_JOB=$1\" | grep -c . | grep -qx 2 && echo yes && break; done 2>/dev/null; echo end";
    const char *const argv[] = {"sh", "-c", script, "sh", getenv("DTRAIN_JOB"), NULL};
    dt_cli_process p;
    const int e = s->reach ? s->reach(s->ctx, &p, argv) : dt_cli_process_run(&p, argv, -1, true, LAUNCH_REACH_S);
    const bool sure = e == 0 && p.code == 0 && p.out.text && strcmp(p.out.text, "end\n") == 0;
    dt_cli_process_fini(&p);
    return !sure;
}

// Of a job whose ranks mpirun starts.
typedef struct rank_watch {
    double begin_s;
    bool started, warned;
    int n_without; // looks since a signal that found no rank
} rank_watch;

// true: the job was ended.
static bool look_for_ranks(const dt_cli_supervised *s, const dt_cli_jobs *jobs, rank_watch *w) {
    const double silent_s = dt_clock_s() - w->begin_s;
    if (jobs->asked) {
        w->n_without = has_ranks(s) ? 0 : w->n_without + 1;
        if (w->n_without >= 2) dt_cli_jobs_end(jobs, w->n_without == 2 ? SIGTERM : SIGKILL);
        return w->n_without >= 2;
    }
    if (w->started || silent_s < (w->warned ? START_S : SILENT_S)) return false;
    w->started = has_ranks(s);
    if (w->started) return false;
    char *why = s->explain ? s->explain(s->ctx) : NULL;
    dt_log(w->warned ? DT_LOG_ERROR : DT_LOG_WARN, "mpirun has started no rank for %.0f s%s: %s", silent_s,
           w->warned ? ": ended" : "",
           why ? why : "look for mpirun's daemons on the hosts, and for a firewall between them");
    free(why);
    if (w->warned) dt_cli_jobs_end(jobs, SIGKILL);
    const bool ends = w->warned;
    w->warned = true;
    return ends;
}

// Waits for the end of the job. true: it was asked to save and end, to go on with more hosts. It is asked only when a
// new checkpoint has come since the host did, so that a host that comes and goes costs at most one start a
// checkpoint.
static bool wait_for_end(const dt_cli_supervised *s, dt_cli_jobs *jobs, bool mpi, int *code) {
    // what run.stop_at ends with 75 is not to be started again
    const bool watched = s->watch && s->restarts > 0 && !s->config->run.stop_at.has;
    bool waits = false, asked = false, ended = false;
    rank_watch ranks = {.begin_s = dt_clock_s()};
    int64_t saved_step = 0;
    int slot;
    while (!dt_cli_jobs_wait_for(jobs, watched || mpi ? WATCH_S : INFINITY, &slot, code)) {
        if (mpi) ended |= look_for_ranks(s, jobs, &ranks);
        if (!watched || asked || jobs->asked) continue;
        const bool waited = waits;
        waits = s->watch(s->ctx);
        if (!waits) continue;
        const progress p = read_progress(s, false);
        if (waited && p.saved_step > saved_step) {
            asked = true;
            dt_cli_jobs_save(jobs);
        }
        if (!waited) saved_step = p.saved_step;
    }
    // mpirun may still give the code of a rank, as of a save that failed; its own say nothing
    const dt_cli_exit left = dt_cli_exit_of(*code);
    if (ended && left != LAUNCH_FINAL && left != LAUNCH_LOST) *code = jobs->asked ? DT_E_PREEMPTED : DT_E_PEER;
    return asked;
}

static dt_status supervise_run_once(const dt_cli_supervised *s, dt_cli_jobs *jobs, const char *const *argv, int *code,
                                    bool *more) {
    struct stat a, b;
    int out, err, slot;
    pid_t relays[2] = {begin_relay(1, &out), 0};
    const bool same = is_pipe(1, &a) && is_pipe(2, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    err = out; // 2>&1 keeps the order of lines
    if (!same) relays[1] = begin_relay(2, &err);
    dt_status st = dt_cli_jobs_start(jobs, argv, out, err, &slot);
    if (out != 1) close(out);
    if (err != 2 && err != out) close(err);
    const bool mpi = strcmp(argv[0], dt_cli_program()) != 0; // else a single rank
    *more = st == DT_OK && wait_for_end(s, jobs, mpi, code);
    end_relay(relays[0]);
    end_relay(relays[1]);
    // the signal came before mpirun, or a rank, could take it: nothing had begun
    if (st == DT_OK && (jobs->asked || *more) && dt_cli_exit_of(*code) == LAUNCH_EARLY) *code = DT_E_PREEMPTED;
    if (*code == MPIRUN_LOST_HOST) *code = DT_E_PEER;
    if (!mpi || dt_cli_mpi() != DT_MPI_MPICH) return st;
    if (*code > DT_E_NUMERIC && *code <= SIGSYS) *code += 128;
    // after a signal it may lose the ranks' code
    if (*code == DT_OK && jobs->asked && !is_finished(s)) *code = DT_E_PREEMPTED;
    return st;
}

// ---- again -----------------------------------------------------------------------------------------

static bool may_start_again(const dt_cli_supervised *s, const dt_cli_jobs *jobs, int code) {
    if (jobs->asked || s->restarts == 0) return false;
    const dt_cli_exit end = dt_cli_exit_of(code);
    return end == LAUNCH_SAVED ? !s->config->run.stop_at.has : end > LAUNCH_SAVED;
}

static void supervise_describe(char *out, size_t cap, const progress *p, int code) {
    if (code == DT_E_PEER)
        snprintf(out, cap, "a rank was lost (code %d)", code);
    else if (code == DT_E_PREEMPTED)
        snprintf(out, cap, "a rank received a stop signal (code %d)", code);
    else if (code > 128 && code < 128 + NSIG)
        snprintf(out, cap, "a rank ended by signal %d, %s (code %d)", code - 128, strsignal(code - 128), code);
    else
        snprintf(out, cap, "the job ended with code %d", code);
    const size_t n = strlen(out);
    if (p->has_steps) snprintf(out + n, cap - n, " after step %lld", (long long)(p->step > 0 ? p->step : 0));
}

static void say_again(const progress *p, int code, int n, int restarts, double pause_s) {
    char what[160], lost[64] = "what was done", since[64] = "";
    supervise_describe(what, sizeof what, p, code);
    const long long saved = (long long)p->saved_step, first = saved > 0 ? saved : 0;
    if (p->has_steps)
        snprintf(lost, sizeof lost, "about %lld steps (%.1f s)", p->step > first ? (long long)p->step - first : 0,
                 p->lost_s);
    if (saved >= 0) snprintf(since, sizeof since, " since the checkpoint of step %lld", saved);
    dt_warn("%s; %s%s %s lost%s; start %d of %d again in %.0f s", what, lost, since, p->has_steps ? "are" : "is",
            saved < 0 ? ": no checkpoint yet" : "", n, restarts, pause_s);
}

static dt_status supervise_give_up(const progress *p, int code, const char *why) {
    char what[160];
    supervise_describe(what, sizeof what, p, code);
    return dt_fail((dt_status)code, "%s, %s", what, why);
}

// A rank that the kernel killed cannot say so.
static void log_kills(const dt_memory *before) {
    dt_memory now;
    dt_memory_read(&now);
    if (now.n_kills <= before->n_kills) return;
    dt_warn("the kernel killed a process for want of memory: oom_kill %llu of the cgroup's "
            "memory.events, or of this host, was %llu at the start; the limit is %.0f "
            "MiB. " DT_MEMORY_ADVICE,
            (unsigned long long)now.n_kills, (unsigned long long)before->n_kills, (double)now.total_bytes / 1048576.0);
}

static dt_status supervise_run_all(const dt_cli_supervised *s, dt_cli_jobs *jobs) {
    progress before = {0};
    int last_code = 0, n = 0;
    double pause_s = FIRST_PAUSE_S;
    for (bool again = false;; again = true) {
        const char **argv = NULL;
        int code = 0;
        bool more = false;
        dt_memory memory;
        dt_memory_read(&memory);
        DT_TRY(s->command(s->ctx, jobs, again, &argv));
        dt_status st = supervise_run_once(s, jobs, argv, &code, &more);
        free(argv);
        DT_TRY(st);
        if (code != DT_OK) log_kills(&memory);
        if (code == DT_OK && s->reach && !is_finished(s)) code = DT_E_PEER;
        if (more && code == DT_E_PREEMPTED && !jobs->asked) continue; // nothing was lost
        if (!may_start_again(s, jobs, code)) return (dt_status)code;
        const progress now = read_progress(s, true);
        if (n > 0 && code == last_code && same_step(&now, &before))
            return supervise_give_up(&now, code, "as before: not started again");
        if (n == s->restarts) return supervise_give_up(&now, code, "and --restarts is used up");
        if (now.saved_step > before.saved_step) pause_s = FIRST_PAUSE_S; // it got further: the loss was a single one
        say_again(&now, code, ++n, s->restarts, pause_s);
        if (!dt_cli_jobs_pause(jobs, pause_s)) return DT_E_PREEMPTED;
        pause_s = fmin(2 * pause_s, MAX_PAUSE_S);
        before = now;
        last_code = code;
    }
}

dt_status dt_cli_supervise(const dt_cli_supervised *s) {
    dt_cli_jobs jobs;
    dt_cli_remove_leftovers();
    char *name = dt_xprintf("%d.%.0f", (int)getpid(), 1e6 * dt_clock_s());
    setenv("DTRAIN_JOB", name, 1); // by which has_ranks knows them
    free(name);
    dt_cli_jobs_init(&jobs, 1);
    signal(SIGPIPE, SIG_IGN); // our messages may go into a pipe that has closed
    dt_status st = supervise_run_all(s, &jobs);
    dt_cli_jobs_fini(&jobs);
    return st;
}
