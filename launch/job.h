// job.h: dtrain as child processes of this one, each on one rank or under mpirun.
//
// A job is out of the terminal's foreground, so Ctrl-C reaches this program alone. It passes SIGINT, SIGTERM, SIGHUP and
// SIGUSR1 on as SIGUSR1, which mpirun hands to the ranks: they save and exit 75. A second SIGINT, two seconds or
// more after the first, ends the jobs without saving. If this program dies, its jobs get SIGUSR1 as well.
#ifndef DT_LAUNCH_JOB_H
#define DT_LAUNCH_JOB_H

#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

enum { LAUNCH_MAX_JOBS = 64 };

typedef struct launch_jobs {
    int n_slots;                 // how many run at a time; each gets its share of the cores
    pid_t pids[LAUNCH_MAX_JOBS]; // by slot; 0: free
    int run[LAUNCH_MAX_JOBS];    // the caller's
    bool asked;                  // a signal asked for the end: start nothing more
    double asked_s;
    sigset_t awaited, before;
} launch_jobs;

// Until launch_jobs_fini the signals are taken by launch_jobs_wait.
void launch_jobs_init(launch_jobs *j, int n_slots);
void launch_jobs_fini(launch_jobs *j);
// Starts `dtrain words…` (words end with NULL) on n_ranks ranks of this machine, in a free slot. output: where
// stdout and stderr go; NULL: stdout is dropped and stderr is ours. *slot: its slot.
dt_status launch_jobs_start(launch_jobs *j, int n_ranks, const char *const *words,
                            const char *output, int *slot);
// Waits until a job ends. *slot: which one, -1 if none runs; *code: its exit code, 128 + number for a signal.
void launch_jobs_wait(launch_jobs *j, int *slot, int *code);
// Whether this process was started by mpirun or the like as one of several ranks.
bool launch_is_rank(void);

#endif
