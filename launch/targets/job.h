// job.h: dtrain as child processes of this one, each on one rank or under mpirun.
//
// A job is out of the terminal's foreground, so Ctrl-C reaches this program alone. It passes SIGINT, SIGTERM, SIGHUP
// and SIGUSR1 on as SIGUSR1, which mpirun hands to the ranks: they save and exit 75. A second SIGINT, two seconds or
// more after the first, ends the jobs without saving. If this program dies, its jobs get SIGUSR1 as well.
#ifndef DT_LAUNCH_JOB_H
#define DT_LAUNCH_JOB_H

#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

enum { LAUNCH_MAX_JOBS = 64 };

typedef struct dt_cli_jobs {
    int n_slots;                 // how many run at a time; each gets its share of the cores
    int n_ranks, n_gpus;         // of a job; of all (0: jobs use none, or choose)
    pid_t pids[LAUNCH_MAX_JOBS]; // by slot; 0: free
    int run[LAUNCH_MAX_JOBS];    // the caller's
    bool asked;                  // a signal asked for the end: start nothing more
    double asked_s;
    sigset_t awaited, before;
} dt_cli_jobs;

// Until dt_cli_jobs_fini the signals are taken by dt_cli_jobs_wait.
void dt_cli_jobs_init(dt_cli_jobs *j, int n_slots);
void dt_cli_jobs_fini(dt_cli_jobs *j);
// `dtrain words…` (ended by NULL) on n_ranks ranks of this machine: with mpirun in front where there are several. The
// array is the caller's to free, its words are borrowed.
const char **dt_cli_rank_words(int n_ranks, const char *const *words);
// The path of this program; borrowed.
const char *dt_cli_program(void);
// Starts a command (argv ends with NULL) in a free slot, with the descriptors out and err as stdout and stderr.
// *slot: its slot.
dt_status dt_cli_jobs_start(dt_cli_jobs *j, const char *const *argv, int out, int err, int *slot);
// Waits until a job ends. *slot: which one, -1 if none runs; *code: its exit code, 128 + number for a signal.
void dt_cli_jobs_wait(dt_cli_jobs *j, int *slot, int *code);
// dt_cli_jobs_wait, at most so long: false if none ended.
bool dt_cli_jobs_wait_for(dt_cli_jobs *j, double seconds, int *slot, int *code);
// Asks all jobs to save and end, as a signal would, but not this program.
void dt_cli_jobs_save(const dt_cli_jobs *j);
// Ends all jobs without saving: mpirun and what it started.
void dt_cli_jobs_end(const dt_cli_jobs *j, int signal);
// Waits so long; false: a signal asked for the end. No job runs.
bool dt_cli_jobs_pause(dt_cli_jobs *j, double seconds);
// What Open MPI reads of the environment, for programs that are started from now on. Its second from TERM to KILL stays
// as it is: TERM reaches us and not mpirun, and a longer one delays the end of every job that does not end with 0.
void dt_cli_set_mpi_environment(void);

#endif
