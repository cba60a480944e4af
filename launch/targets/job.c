// job.c: see job.h.
#define _GNU_SOURCE // CPU sets

#include "job.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define IMPATIENT_S 2.0

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

void dt_cli_jobs_init(dt_cli_jobs *j, int n_slots) {
    *j = (dt_cli_jobs){.n_slots = n_slots};
    sigemptyset(&j->awaited);
    sigaddset(&j->awaited, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) sigaddset(&j->awaited, passed_on[i]);
    sigprocmask(SIG_BLOCK, &j->awaited, &j->before);
}

void dt_cli_jobs_fini(dt_cli_jobs *j) {
    sigprocmask(SIG_SETMASK, &j->before, NULL);
}

// ---- start -----------------------------------------------------------------------------------------

// Jobs that run side by side must not compute on each other's cores.
static void take_share_of_cores(int slot, int n_slots) {
    cpu_set_t all, mine;
    if (n_slots < 2 || sched_getaffinity(0, sizeof all, &all) != 0) return;
    int n = CPU_COUNT(&all), seen = 0;
    CPU_ZERO(&mine);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && seen++ * n_slots / n == slot) CPU_SET(cpu, &mine);
    if (CPU_COUNT(&mine) > 0) sched_setaffinity(0, sizeof mine, &mine);
}

// Each rank takes one of the devices that its job sees. They are divided among the slots, in turn where there are too few.
static void take_share_of_gpus(const dt_cli_jobs *j, int slot) {
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    char *mine = NULL;
    for (int r = 0; r < j->n_ranks && r < j->n_gpus && j->n_gpus > 1; r++) {
        const int device = (slot * j->n_ranks + r) % j->n_gpus;
        const char *name = given && *given ? given : NULL;
        for (int i = 0; name && i < device; i++) name = strchr(name, ',') + 1;
        dt_xappend(&mine, mine ? "," : "");
        if (name)
            dt_xappend(&mine, "%.*s", (int)strcspn(name, ","), name);
        else
            dt_xappend(&mine, "%d", device);
    }
    if (mine) setenv("CUDA_VISIBLE_DEVICES", mine, 1);
    free(mine);
}

void dt_cli_set_mpi_environment(void) {
    // in a job of Slurm mpirun would take the job's nodes for those that it was given; Open MPI 4, 5
    static const char *const names[] = {"OMPI_MCA_ras", "OMPI_MCA_plm", "PRTE_MCA_ras", "PRTE_MCA_plm"};
    for (int i = 0; i < 4 && getenv("SLURM_JOB_ID"); i++) setenv(names[i], "^slurm", 0);
    dt_launcher_leave();
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
}

static void become_job(const dt_cli_jobs *j, int slot, char *const *argv, int out, int err) {
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    setpgid(0, 0);
    take_share_of_cores(slot, j->n_slots);
    take_share_of_gpus(j, slot);
    sigprocmask(SIG_SETMASK, &j->before, NULL);
    signal(SIGPIPE, SIG_DFL);
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(in, 0);
    // either may be the other's number
    out = fcntl(out, F_DUPFD_CLOEXEC, 3);
    err = fcntl(err, F_DUPFD_CLOEXEC, 3);
    dup2(out, 1);
    dup2(err, 2);
    execvp(argv[0], argv);
    fprintf(stderr, "dtrain: %s cannot be started: %s\n", argv[0], strerror(errno));
    _exit(127);
}

const char *dt_cli_program(void) {
    static char self[4096];
    if (!*self && readlink("/proc/self/exe", self, sizeof self - 1) < 0) return "dtrain";
    return self;
}

const char **dt_cli_rank_words(int n_ranks, const char *const *words) {
    static char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", n_ranks);
    // binding a rank to one core would leave it one thread; dtrain divides the cores itself
    const char *const mpi[] = {"mpirun", "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none", "-np", ranks};
    const size_t n_mpi = n_ranks > 1 ? sizeof mpi / sizeof *mpi : 0;
    size_t n_words = 0;
    while (words[n_words]) n_words++;
    const char **argv = dt_xcalloc(n_mpi + n_words + 2, sizeof *argv);
    memcpy(argv, mpi, n_mpi * sizeof *argv);
    argv[n_mpi] = dt_cli_program();
    memcpy(argv + n_mpi + 1, words, n_words * sizeof *argv);
    return argv;
}

dt_status dt_cli_jobs_start(dt_cli_jobs *j, const char *const *argv, int out, int err, int *slot) {
    for (*slot = 0; j->pids[*slot]; ++*slot) continue;
    dt_cli_set_mpi_environment();
    pid_t pid = fork();
    if (pid == 0) become_job(j, *slot, (char *const *)argv, out, err);
    if (pid < 0) return dt_fail(DT_E_STORAGE, "a process cannot be started: %s", strerror(errno));
    j->pids[*slot] = pid;
    return DT_OK;
}

// ---- wait ------------------------------------------------------------------------------------------

static void pass_on(dt_cli_jobs *j, int signal) {
    bool impatient = j->asked && signal == SIGINT && dt_clock_s() - j->asked_s >= IMPATIENT_S;
    for (int i = 0; i < j->n_slots; i++)
        if (j->pids[i]) kill(j->pids[i], impatient ? SIGTERM : SIGUSR1);
    if (!j->asked) j->asked_s = dt_clock_s();
    j->asked = true;
}

static bool job_collect(dt_cli_jobs *j, int *slot, int *code) {
    for (int i = 0; i < j->n_slots; i++) {
        int status = 0;
        if (!j->pids[i] || waitpid(j->pids[i], &status, WNOHANG) != j->pids[i]) continue;
        j->pids[i] = 0;
        *slot = i;
        *code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        return true;
    }
    return false;
}

// Takes one signal of those awaited, at most so long, and passes it on.
static void take_signal(dt_cli_jobs *j, double seconds) {
    seconds = fmin(seconds, 1e6);
    const struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - floor(seconds)))};
    const int signal = sigtimedwait(&j->awaited, NULL, &t);
    if (signal > 0 && signal != SIGCHLD) pass_on(j, signal);
}

bool dt_cli_jobs_wait_for(dt_cli_jobs *j, double seconds, int *slot, int *code) {
    const double end_s = dt_clock_s() + seconds;
    int n_running = 0;
    for (int i = 0; i < j->n_slots; i++) n_running += j->pids[i] != 0;
    *slot = -1;
    while (n_running > 0 && !job_collect(j, slot, code)) {
        const double left_s = end_s - dt_clock_s();
        if (left_s <= 0) return false;
        take_signal(j, left_s);
    }
    return true;
}

void dt_cli_jobs_wait(dt_cli_jobs *j, int *slot, int *code) {
    dt_cli_jobs_wait_for(j, INFINITY, slot, code);
}

void dt_cli_jobs_end(const dt_cli_jobs *j, int signal) {
    for (int i = 0; i < j->n_slots; i++)
        if (j->pids[i]) kill(j->pids[i], signal);
}

void dt_cli_jobs_save(const dt_cli_jobs *j) {
    dt_cli_jobs_end(j, SIGUSR1);
}

bool dt_cli_jobs_pause(dt_cli_jobs *j, double seconds) {
    const double end_s = dt_clock_s() + seconds;
    for (double left_s = seconds; left_s > 0 && !j->asked; left_s = end_s - dt_clock_s()) take_signal(j, left_s);
    return !j->asked;
}
