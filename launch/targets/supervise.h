// supervise.h: a job on its ranks, watched until it ends, and started again from its newest checkpoint where a rank, a
// host or a process was lost.
//
// What the job writes into a pipe goes through one of ours: Open MPI's mpirun crashes where `| head -1` closes it.
// Signals are passed on as job.h says, so the exit code is the ranks': 75 after a signal.
//
// mpirun may wait in silence for a quarter of an hour where a link to a host loses long packets, and may lock up. So the
// ranks are looked for where rank 0 is to run: none after a minute is a warning, none after five minutes ends the start.
// After a signal mpirun is ended when there is none any more.
//
// Started again, at most `restarts` times, is what ended with a code that may be another one next time: a lost peer, a
// signal, an internal error, mpirun's own codes. Not what a signal or run.stop_at asked for, nor errors of config,
// data, checkpoints, storage or numbers. Two such ends in a row at the same step with the same code are a bug, not
// bad luck.
#ifndef DT_LAUNCH_SUPERVISE_H
#define DT_LAUNCH_SUPERVISE_H

#include "job.h"
#include "process.h"

#include "config/config.h"

typedef struct dt_cli_supervised {
    const dt_config *config;
    int restarts;
    // The command (heap array, freed here) of the first start, or of another one: then it may wait, with
    // dt_cli_jobs_pause, for what was lost.
    dt_status (*command)(void *ctx, dt_cli_jobs *jobs, bool again, const char ***argv);
    // Runs argv to its end where rank 0 ran, on whose disk the run may lie. 0, or an errno. NULL: this machine.
    int (*reach)(void *ctx, dt_cli_process *p, const char *const *argv);
    // Before the start is given up, and ahead of its warning: what may be wrong with the hosts (heap), or NULL. May be NULL.
    char *(*explain)(void *ctx);
    // Looked at every few seconds while the job runs: whether it is to save and start again, with more hosts. NULL:
    // never.
    bool (*watch)(void *ctx);
    void *ctx;
} dt_cli_supervised;

// The status is the job's exit code, without a message where the job has said why.
dt_status dt_cli_supervise(const dt_cli_supervised *s);
// Removes what killed jobs of this user left on this machine: segments in /dev/shm and folders of sessions of Open MPI
// whose processes are gone. Each host's first rank does it too, ahead of MPI.
void dt_cli_remove_leftovers(void);

#endif
