// watch.h: notices what does not come back. One thread a process, every fifth of a second, looks at
//
//   files    each thread's file operation that is under way (io.c and log.c register them). One that takes longer than
//            5 s is named in a warning (a request to a server: by http.c), and again after 10, 20, 40 s …; one that
//            takes limits.io_s ends the process with DT_E_STORAGE. So a disk that hangs, or a server that is away, is waited for, but not for ever.
//   peers    a call into MPI that may wait for other ranks (start, finalize): DT_E_PEER after limits.start_s.
//   heartbeats  the comm's exchange with other ranks, which finds a rank whose own watch does not respond: it was
//            stopped, or its host is gone. A rank that computes, or waits for its disk, does respond.
//   progress a count of work that is done. Heartbeats add up the ranks' counts; a wait for a rank that is alive is given
//            up when nothing at all was done for the deadline (dt_watch_quiet_s). A file operation that is under way is
//            progress: it has its own limit.
//
// The thread takes no lock that a hanging disk may hold. It ends the process by itself, because the thread that it
// would notify is the one that hangs. Time in which the process was suspended does not count (dt_clock_waited_s).
//
// A call of MPI that never returns holds the lock that heartbeats need, or is the heartbeat itself. So a second thread,
// which takes no lock and calls nothing that may wait, looks at the first: a heartbeat that does not return for
// limits.lost_s ends the process with DT_E_PEER. It also ends a process that hangs on its way out (dt_watch_leave).
// Rejected: SIGALRM (interrupts no disk wait, and no thread that computes may take a signal: signals.c); a file that
// each rank touches (the disk is what hangs); sockets beside MPI (a second way to find hosts and interfaces).
#ifndef DT_BASE_WATCH_H
#define DT_BASE_WATCH_H

#include "core.h"

typedef struct dt_watch_limits {
    double io_s;    // one file operation
    double start_s; // until all ranks have started, or have finalized
    double lost_s;  // a rank without heartbeat
} dt_watch_limits;

// Starts the thread. Before that, and in a program that never calls it, nothing below has an effect.
void dt_watch_start(const dt_watch_limits *limits);
const dt_watch_limits *dt_watch_get_limits(void);

// Around a file operation of this thread, or a call that waits for other ranks (path NULL). Not nested. The path is
// copied; `operation` must stay. Neither locks nor allocates.
void dt_watch_begin(const char *path, const char *operation);
void dt_watch_end(void); // counts as progress

void dt_watch_tick(void); // progress: one more
// How long no rank made progress, here and on other ranks that send heartbeats; infinite where nothing is watched.
double dt_watch_quiet_s(void);

// How many steps the run has done, for messages. < 0, as at the start: there are none yet.
void dt_watch_set_step(int64_t step);
int64_t dt_watch_get_step(void);

// How to reach the other ranks. heartbeat: called by the thread, must not block; *ticks: this rank's count, becomes the
// sum of all ranks'. abort: ends the job. NULL: none any more, and none is running when this returns.
typedef struct dt_watch_peers {
    dt_status (*heartbeat)(void *ctx, uint64_t *ticks);
    void (*abort)(void *ctx, int exit_code);
    void *ctx;
} dt_watch_peers;
void dt_watch_set_peers(const dt_watch_peers *peers);

// The caller ends the process now, with this code (> 0). Where it hangs on the way, as in MPI_Abort or in another handler
// of the signal, the process ends after that time. The first call counts. Signal handlers may call it.
#define DT_WATCH_LEAVE_S 5.0
void dt_watch_leave(int code, double within_s);

// Who is told that the thread ends the process, from yet another thread, which gets two seconds: what it waits for may
// be what hangs. NULL: nobody any more, and nobody is being told when this returns.
typedef void dt_watch_on_end(void *ctx, dt_status st, const char *message);
void dt_watch_set_on_end(dt_watch_on_end *on_end, void *ctx);

#endif
