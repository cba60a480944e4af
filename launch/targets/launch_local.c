// launch_local.c: dtrain launch local: ranks on this machine.

#include "target.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RANKS, RESTARTS, PRINT };
static const dt_cli_option options[] = {
    [RANKS] = {"-n", "N", "ranks (default: one per GPU; 1 without GPUs)"},
    [RESTARTS] = {"--restarts", "N", "restarts after a lost rank, a hang or a crash (default 0)"},
    [PRINT] = {"--print", NULL, "print the command"},
    {NULL}};

typedef struct local {
    const char **words; // train CONFIG key=value …
    int n_ranks;
} local;

static dt_status launch_local_command(void *ctx, dt_cli_jobs *jobs, bool again, const char ***argv) {
    const local *l = ctx;
    *argv = dt_cli_rank_words(l->n_ranks, l->words);
    return DT_OK;
}

static dt_status launch_local_start(const dt_cli_words *w, const dt_config *c, int n_ranks, int restarts) {
    local l = {.words = dt_cli_train_words(w), .n_ranks = n_ranks};
    dt_status st = DT_OK;
    if (w->options[PRINT]) {
        const char **argv = dt_cli_rank_words(n_ranks, l.words);
        dt_cli_print_command(argv, n_ranks > 1);
        free(argv);
    } else {
        st = dt_cli_supervise(
            &(dt_cli_supervised){.config = c, .restarts = restarts, .command = launch_local_command, .ctx = &l});
    }
    free(l.words);
    return st;
}

static dt_status launch_local_run(const dt_cli_words *w) {
    int n_ranks, restarts;
    dt_config *c = NULL;
    DT_TRY(dt_cli_option_int(w, RESTARTS, 0, &restarts));
    DT_TRY(dt_cli_target_config(&c, "launch local", w));
    dt_status st = dt_cli_option_ranks(w, RANKS, "this machine", dt_cli_count_gpus(c), &n_ranks);
    dt_run_length length;
    if (st == DT_OK) st = dt_cli_target_ranks(c, n_ranks);
    if (st == DT_OK) st = dt_cli_target_check(c, false, 0, &length);
    if (st == DT_OK) st = launch_local_start(w, c, n_ranks, restarts);
    dt_config_destroy(c);
    return st;
}

const dt_cli_command dt_cli_on_local = {
    .options = options,
    .text = "Starts ranks on this machine by mpirun, with the settings that Open MPI, MPICH or Intel MPI needs, and "
            "exits with the job's "
            "exit code. Ctrl-C and SIGTERM save a checkpoint and exit with 75; a second Ctrl-C after two seconds ends "
            "the job without saving. With --restarts the job restarts from the newest checkpoint after a lost rank, a "
            "hang or a crash; two failures at the same step end it.\n\n"
            "  dtrain launch local -n 8 configs/fusion.yaml\n"
            "  dtrain launch local -n 8 --restarts 3 configs/fusion.yaml run.name=long\n",
    .run = launch_local_run};

// ---- leftovers ----------------------------------------------------------------------------------------------------

// Dt_cli_remove_leftovers (target.h). Open MPI removes its files when a job ends, but not when the
// job is killed: 4 MB of shared memory for each rank, and a folder of sessions with the id of its mpirun or its
// daemon.
//
// Only what is this user's and has this host's name is touched: another container may share /dev/shm and not our
// processes.

enum { SETTLED_S = 2 }; // a segment is mapped as soon as it was made

// What the name is of behind `prefix` and this host's name (with or without its domain), or NULL.
static const char *behind_host(const char *name, const char *prefix, char separator) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = 0; // with or without its domain
    const size_t n = strlen(prefix), n_host = strlen(host);
    if (strncmp(name, prefix, n) != 0 || strncmp(name + n, host, n_host) != 0) return NULL;
    return name[n + n_host] == separator ? name + n + n_host + 1 : NULL;
}

static bool is_mine(const char *path, bool settled) {
    struct stat info;
    return lstat(path, &info) == 0 && info.st_uid == geteuid() && (!settled || time(NULL) - info.st_mtime >= SETTLED_S);
}

// Whether /proc/PID/FILE of some process has a line with `text` in it.
static bool is_in_some(const char *file, const char *text) {
    char **pids = NULL, *line = NULL;
    size_t n = 0, cap = 0;
    bool found = false;
    if (dt_io_list_dir(&pids, &n, "/proc", DT_E_STORAGE) != DT_OK) return true; // unknown: nothing is removed
    for (size_t i = 0; i < n && !found; i++) {
        if (!isdigit((unsigned char)pids[i][0])) continue;
        char *path = dt_xprintf("/proc/%s/%s", pids[i], file);
        FILE *f = fopen(path, "re");
        for (ssize_t n_line; f && !found && (n_line = getline(&line, &cap, f)) > 0;)
            found = memmem(line, (size_t)n_line, text, strlen(text)) != NULL;
        if (f) fclose(f);
        free(path);
    }
    free(line);
    dt_io_free_list(pids, n);
    return found;
}

static bool is_mapped(const char *path) {
    char *end_of_line = dt_xprintf("%s\n", path);
    const bool found = is_in_some("maps", end_of_line);
    free(end_of_line);
    return found;
}

// Open MPI's own variables, of 4 and of 5, may name another folder than /dev/shm.
static const char *segments_dir(void) {
    const char *dir = getenv("OMPI_MCA_btl_vader_backing_directory");
    if (!dir) dir = getenv("OMPI_MCA_btl_sm_backing_directory");
    return dir && *dir ? dir : "/dev/shm";
}

static int remove_segments(void) {
    const char *dir = segments_dir();
    char **names = NULL;
    size_t n = 0;
    int n_removed = 0;
    if (dt_io_list_dir(&names, &n, dir, DT_E_STORAGE) != DT_OK) return 0;
    for (size_t i = 0; i < n; i++) {
        if (!behind_host(names[i], "vader_segment.", '.') && !behind_host(names[i], "sm_segment.", '.')) continue;
        char *path = dt_xprintf("%s/%s", dir, names[i]);
        if (is_mine(path, true) && !is_mapped(path)) n_removed += unlink(path) == 0;
        free(path);
    }
    dt_io_free_list(names, n);
    return n_removed;
}

static bool is_gone(const char *pid) {
    return pid && atoi(pid) > 0 && kill(atoi(pid), 0) != 0 && errno == ESRCH; // EPERM: another user's lives
}

// Open MPI 4: ompi.HOST.UID/pid.PID of mpirun, and jf.NUMBER of a daemon, whose command line has the number; 5:
// prterun.HOST.PID.UID and prted.HOST.PID.UID.
static bool is_left(const char *name, const char *prefix) {
    if (prefix) return is_gone(behind_host(name, prefix, '.'));
    if (strncmp(name, "pid.", 4) == 0) return is_gone(name + 4);
    const unsigned family = strncmp(name, "jf.", 3) == 0 ? (unsigned)atoi(name + 3) : 0;
    char *job = dt_xprintf("%u", family << 16); // the job's id: its family and job 0
    const bool left = family > 0 && !is_in_some("cmdline", job);
    free(job);
    return left;
}

static int remove_sessions_in(const char *dir, const char *prefix) {
    char **names = NULL;
    size_t n = 0;
    int n_removed = 0;
    if (dt_io_list_dir(&names, &n, dir, DT_E_STORAGE) != DT_OK) return 0;
    for (size_t i = 0; i < n; i++) {
        char *path = dt_xprintf("%s/%s", dir, names[i]);
        if (is_left(names[i], prefix) && is_mine(path, false)) n_removed += dt_io_remove_tree(path) == DT_OK;
        free(path);
    }
    dt_io_free_list(names, n);
    return n_removed;
}

// Open MPI 4 with PMIx 5 keeps pmix-gds-shmem.HOST-JOB.NAME.PID beside its folders.
static bool is_left_share(const char *name) {
    const char *job = behind_host(name, "pmix-gds-shmem.", '-');
    return job && job[strspn(job, "0123456789")] == '.' && is_gone(strrchr(job, '.') + 1);
}

static int remove_sessions(void) {
    const char *tmp = getenv("TMPDIR");
    char **names = NULL;
    size_t n = 0;
    if (!tmp || !*tmp) tmp = "/tmp";
    int n_removed = remove_sessions_in(tmp, "prterun.") + remove_sessions_in(tmp, "prted.");
    if (dt_io_list_dir(&names, &n, tmp, DT_E_STORAGE) != DT_OK) return n_removed;
    for (size_t i = 0; i < n; i++) {
        const bool ompi = behind_host(names[i], "ompi.", '.') != NULL;
        if (!ompi && !is_left_share(names[i])) continue;
        char *path = dt_xprintf("%s/%s", tmp, names[i]);
        const int n_in = !is_mine(path, false) ? 0 : ompi ? remove_sessions_in(path, NULL) : unlink(path) == 0;
        if (ompi && n_in) rmdir(path); // else another mpirun may just have made it
        n_removed += n_in;
        free(path);
    }
    dt_io_free_list(names, n);
    return n_removed;
}

void dt_cli_remove_leftovers(void) {
    const int n = remove_segments() + remove_sessions();
    dt_error_clear(); // what cannot be read or removed stays
    if (n > 0) dt_info("removed %d files and folders that killed jobs left behind", n);
}
