// dt_cli_hosts.c: dtrain launch hosts: ranks on hosts that ssh reaches.
//
// Every host is asked before each start (host_list.h). A host that has gone is done without where the bits do not
// depend on the number of ranks (run.reproducible: elastic) and the first of the others sees the run's checkpoints;
// else it is waited for.

#include "host_list.h"
#include "supervise.h"
#include "target.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOSTS, HOSTFILE, RESTARTS, WAIT, NET, AGENT, PROGRAM, PRINT };
static const dt_cli_option options[] = {
    [HOSTS] = {"--hosts", "a:8,b:8", "hosts and the ranks of each (1)"},
    [HOSTFILE] = {"--hostfile", "FILE", "the same, a line for each: a slots=8"},
    [RESTARTS] = {"--restarts", "N", "start again after a lost rank, host or a crash (0)"},
    [WAIT] = {"--wait", "SECONDS", "how long a lost host is waited for (600)"},
    [NET] = {"--net", "NET", "interfaces: eth0 or 10.0.0.0/24,… (those of the route)"},
    [AGENT] = {"--ssh", "COMMAND", "instead of ssh: gets HOST and COMMAND, as in 'ssh -p 2222'"},
    [PROGRAM] = {"--program", "PATH", "dtrain on the hosts (the path that it has here)"},
    [PRINT] = {"--print", NULL, "print the command; no host is asked"},
    {NULL}};

// Ahead of the job no terminal asks for passwords, and a host that is gone is noticed.
static const char ssh[] = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 "
                          "-o ServerAliveCountMax=3";

enum { POLL_S = 5 };
enum { PATIENCE_S = 3 }; // a host that has not answered by then is done without, where that can be

typedef struct job_on_hosts {
    dt_cli_hosts list;
    const dt_cli_host *first; // rank 0's in the last start
    const dt_cli_words *w;
    const dt_config *config;
    int wait_s;
    int n_ranks;            // of the last start
    bool warned;            // that a host that is back cannot run the job
    char *np, *where, *dir; // words of the command
    char **names;           // of variables, others
    size_t n_names;
} job_on_hosts;

// ---- the command -----------------------------------------------------------------------------------

static void set_both(const char *name4, const char *name5, const char *value, int overwrite) {
    setenv(name4, value, overwrite);
    setenv(name5, value, overwrite);
}

// For mpirun and its daemons; Open MPI 4 and 5.
static void set_environment(const job_on_hosts *j) {
    char *nets = j->w->options[NET] ? dt_xprintf("%s", j->w->options[NET]) : dt_cli_hosts_subnets(&j->list);
    set_both("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", j->list.agent, 1);
    if (nets) {
        setenv("OMPI_MCA_btl_tcp_if_include", nets, 1);
        set_both("OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include", nets, 1);
    }
    free(nets);
    // a lost host is noticed within about ten seconds; Open MPI has 300 + 9 probes of 20 s
    set_both("OMPI_MCA_oob_tcp_keepalive_time", "PRTE_MCA_oob_tcp_keepalive_time", "3", 0);
    set_both("OMPI_MCA_oob_tcp_keepalive_intvl", "PRTE_MCA_oob_tcp_keepalive_intvl", "1", 0);
    set_both("OMPI_MCA_oob_tcp_keepalive_probes", "PRTE_MCA_oob_tcp_keepalive_probes", "3", 0);
}

static void set_words(job_on_hosts *j) {
    char cwd[4096] = ".";
    if (!getcwd(cwd, sizeof cwd)) snprintf(cwd, sizeof cwd, ".");
    free(j->np);
    free(j->where);
    free(j->dir);
    j->n_ranks = dt_cli_hosts_ranks(&j->list);
    j->np = dt_xprintf("%d", j->n_ranks);
    j->dir = dt_xprintf("%s", cwd);
    j->where = dt_xprintf("%s", "");
    j->first = NULL;
    for (int i = 0; i < j->list.n; i++) {
        const dt_cli_host *host = &j->list.hosts[i];
        if (host->lost) continue;
        if (!j->first) j->first = host;
        for (int k = 0; k < host->slots; k++) dt_xappend(&j->where, "%s%s", *j->where ? "," : "", host->name);
    }
}

// Settings of the user's shell that the ranks elsewhere would not have.
static bool is_passed_on(const char *variable) {
    return strncmp(variable, "DTRAIN_", 7) == 0 || strncmp(variable, "OMP_", 4) == 0 ||
           strncmp(variable, "NCCL_", 5) == 0;
}

static const char **make_command(job_on_hosts *j) {
    extern char **environ;
    set_words(j);
    set_environment(j);
    // in the order of the list: by slot mpirun begins with its own host
    const char *const mpi[] = {"mpirun", "--map-by",  "seq",  "--host", j->where, "-np",
                               j->np,    "--bind-to", "none", "--wdir", j->dir};
    const char **train = dt_cli_train_words(j->w);
    size_t n = sizeof mpi / sizeof *mpi, n_words = 0, n_env = 0;
    while (train[n_words]) n_words++;
    while (environ[n_env]) n_env++;
    const char **argv = dt_xcalloc(n + 2 * n_env + n_words + 2, sizeof *argv);
    memcpy(argv, mpi, sizeof mpi);
    dt_io_free_list(j->names, j->n_names);
    j->names = dt_xcalloc(n_env + 1, sizeof *j->names);
    j->n_names = 0;
    for (size_t i = 0; i < n_env; i++) {
        // mpirun takes the value from its environment, which ps does not show
        const bool secret = strncmp(environ[i], "AWS_", 4) == 0;
        if (!secret && !is_passed_on(environ[i])) continue;
        char *name = dt_xprintf("%.*s", (int)strcspn(environ[i], "="), environ[i]);
        j->names[j->n_names++] = name;
        argv[n++] = "-x";
        argv[n++] = secret ? name : environ[i];
    }
    argv[n++] = j->list.program;
    memcpy(argv + n, train, n_words * sizeof *argv);
    free(train);
    return argv;
}

// ---- lost hosts ------------------------------------------------------------------------------------

static const dt_cli_host *find_lost(const dt_cli_hosts *l) {
    for (int i = 0; i < l->n; i++)
        if (l->hosts[i].lost) return &l->hosts[i];
    return NULL;
}

static dt_status fail_lost(const dt_cli_host *h, dt_status code) {
    int n;
    const char *line = dt_cli_host_reason(h, &n);
    if (n == 0) return dt_fail(code, "host %s does not answer: nothing came in %d s", h->name, LAUNCH_REACH_S);
    return dt_fail(code, "host %s does not answer: %.*s", h->name, n, line);
}

static int launch_hosts_reach(void *ctx, dt_cli_process *p, const char *const *argv) {
    const job_on_hosts *j = ctx;
    return dt_cli_host_run(&j->list, j->first, p, argv, LAUNCH_REACH_S);
}

// Whether the host that would be rank 0's sees a checkpoint of the run, which may have lain on the disk of another one.
static bool sees_run(const job_on_hosts *j, const dt_cli_host *host) {
    static const char script[] = "cd \"$1\" && cd \"$2/$3/checkpoints\" && ls -d step-*";
    const char *const argv[] = {"sh", "-c", script, "sh", j->dir, j->config->run.dir, j->config->run.name, NULL};
    dt_cli_process p;
    const bool sees = dt_cli_host_run(&j->list, host, &p, argv, LAUNCH_REACH_S) == 0 && p.code == 0;
    dt_cli_process_fini(&p);
    return sees;
}

static bool can_go_on(const job_on_hosts *j) {
    const dt_cli_host *first = NULL;
    for (int i = j->list.n - 1; i >= 0; i--)
        if (!j->list.hosts[i].lost) first = &j->list.hosts[i];
    return first && j->config->run.reproducible == DT_REPRODUCIBLE_elastic && (first == j->first || sees_run(j, first));
}

static dt_status wait_for_hosts(job_on_hosts *j, dt_cli_jobs *jobs) {
    const double begin_s = dt_clock_s();
    bool warned = false;
    for (;;) {
        dt_status judged; // a host may be back before its file systems are
        DT_TRY(dt_cli_hosts_ask(&j->list, j->config, j->w->words[0], false));
        bool all = dt_cli_hosts_wait(&j->list, PATIENCE_S, &judged), goes_on = can_go_on(j);
        if (!all && !goes_on) {
            dt_cli_hosts_wait(&j->list, INFINITY, &judged);
            goes_on = can_go_on(j);
        }
        const dt_cli_host *lost = find_lost(&j->list);
        if (!lost) return DT_OK;
        if (judged == DT_OK) (void)fail_lost(lost, DT_E_PEER);
        if (!goes_on && dt_clock_s() - begin_s >= j->wait_s)
            return dt_fail_context(judged == DT_OK ? DT_E_PEER : judged, "waited %d s (--wait)", j->wait_s);
        if (goes_on)
            dt_warn("%s: the job goes on with the %d ranks of the others, and takes it back at the "
                    "first checkpoint after its return",
                    dt_error_message(), dt_cli_hosts_ranks(&j->list));
        else if (!warned)
            dt_warn("%s: it is waited for, up to %d s%s", dt_error_message(), j->wait_s,
                    j->config->run.reproducible == DT_REPRODUCIBLE_elastic
                        ? " (the others do not see the run's folder)"
                        : " (run.reproducible: elastic would go on without it)");
        dt_error_clear();
        if (goes_on) return DT_OK;
        warned = true;
        if (!dt_cli_jobs_pause(jobs, POLL_S)) return DT_E_PREEMPTED;
    }
}

static char *explain(void *ctx) {
    const job_on_hosts *j = ctx;
    char *why = dt_cli_hosts_test_links(&j->list);
    return why ? why
               : dt_xprintf("ssh reaches all %d hosts; look for a firewall between them: mpirun's "
                            "daemons and ranks connect to ports of their own (--net chooses the "
                            "interfaces)",
                            j->list.n);
}

// What was lost is asked all the time while the job runs without it.
static bool launch_hosts_watch(void *ctx) {
    job_on_hosts *j = ctx;
    dt_status judged = DT_OK;
    const int before = dt_cli_hosts_ranks(&j->list);
    if (find_lost(&j->list) && dt_cli_hosts_wait(&j->list, 0, &judged) && find_lost(&j->list)) {
        if (judged != DT_OK && !j->warned) dt_warn("%s: it is not taken back", dt_error_message());
        j->warned |= judged != DT_OK;
        if (dt_cli_hosts_ask(&j->list, j->config, j->w->words[0], true) != DT_OK) dt_error_clear();
    }
    if (judged != DT_OK) dt_error_clear();
    const int now = dt_cli_hosts_ranks(&j->list);
    if (now > before) dt_info("a lost host answers again: from its next checkpoint the job goes on with %d ranks", now);
    return now > j->n_ranks;
}

static dt_status launch_hosts_command(void *ctx, dt_cli_jobs *jobs, bool again, const char ***argv) {
    job_on_hosts *j = ctx;
    if (again) DT_TRY(wait_for_hosts(j, jobs));
    *argv = make_command(j);
    return DT_OK;
}

// ---- the verb --------------------------------------------------------------------------------------

static dt_status launch_hosts_start(job_on_hosts *j, int restarts) {
    if (j->w->options[PRINT]) {
        const char **argv = make_command(j);
        dt_cli_print_command(argv, true);
        free(argv);
        return DT_OK;
    }
    dt_status judged;
    DT_TRY(dt_cli_hosts_ask(&j->list, j->config, j->w->words[0], false));
    dt_cli_hosts_wait(&j->list, INFINITY, &judged);
    DT_TRY(judged);
    const dt_cli_host *lost = find_lost(&j->list);
    if (lost) return fail_lost(lost, DT_E_USAGE);
    return dt_cli_supervise(&(dt_cli_supervised){.config = j->config,
                                                 .restarts = restarts,
                                                 .command = launch_hosts_command,
                                                 .reach = launch_hosts_reach,
                                                 .explain = explain,
                                                 .watch = launch_hosts_watch,
                                                 .ctx = j});
}

static dt_status launch_hosts_run(const dt_cli_words *w) {
    job_on_hosts j = {.w = w};
    dt_config *c = NULL;
    dt_run_length length;
    int restarts;
    DT_TRY(dt_cli_option_int(w, RESTARTS, 0, &restarts));
    DT_TRY(dt_cli_option_int(w, WAIT, 600, &j.wait_s));
    j.list.agent = w->options[AGENT] ? w->options[AGENT] : ssh;
    j.list.program = w->options[PROGRAM] ? w->options[PROGRAM] : dt_cli_program();
    dt_status st = dt_cli_hosts_parse(&j.list, w->options[HOSTS], w->options[HOSTFILE]);
    if (st == DT_OK) st = dt_cli_target_config(&c, "launch hosts", w);
    if (st == DT_OK) st = dt_cli_target_ranks(c, dt_cli_hosts_ranks(&j.list));
    if (st == DT_OK) st = dt_cli_target_check(c, true, 0, &length);
    j.config = c;
    if (st == DT_OK) st = launch_hosts_start(&j, restarts);
    dt_cli_hosts_free(&j.list);
    dt_config_destroy(c);
    dt_io_free_list(j.names, j.n_names);
    free(j.np);
    free(j.where);
    free(j.dir);
    return st;
}

const dt_cli_command dt_cli_on_hosts = {
    .options = options,
    .text = "Starts ranks on hosts that ssh reaches without a password, in the folder that this is,\n"
            "and exits with their code; signals are passed on as by launch local. First every host\n"
            "is asked: whether it answers, has this version of dtrain, the same config and data of\n"
            "the same size (of a folder: files of the same names; ranks compare the records before "
            "the\n"
            "first step). The host that does not is named, and nothing starts. With --restarts a\n"
            "lost host is waited for; with run.reproducible: elastic the job goes on without it,\n"
            "and takes it back at the first checkpoint after its return.\n\n"
            "  dtrain launch hosts --hosts node1:8,node2:8 configs/fusion.yaml\n"
            "  dtrain launch hosts --hostfile hosts.txt --restarts 5 configs/fusion.yaml\n",
    .run = launch_hosts_run};
