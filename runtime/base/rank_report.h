// rank_report.h: where a rank is, and its stack when it crashes.
#ifndef DT_BASE_RANK_REPORT_H
#define DT_BASE_RANK_REPORT_H

#include "base/nvml.h"

#include <stdint.h>

// ---- rank report --------------------------------------------------------------------------------------------------

// Where each rank is in its step, and what its steps cost it.
//
// The training's thread reports its position (dt_rank_at), the watch's thread (watch.h) looks at that five times a
// second, and heartbeats carry it to rank 0 (comm_mpi_heartbeat.c): no collective, and nothing that a step waits for.
// Rank 0 shows the ranks' own times in metrics.jsonl, and when a job hangs, it logs where everybody is before the
// deadline ends it.

typedef struct dt_rank_report {
    int64_t step;             // done; < 0: nothing is known of this rank
    double data_s, compute_s; // of a step, its own part: mean over about 20 steps
    uint64_t rss_bytes;
    bool has_gpu;
    double gpu[DT_N_GPU];  // its GPU (nvml.h)
    double since_s;        // how long it has been
    char at[96], file[96]; // there; the file operation that is under way, if it takes long
    double file_s;         // for so long
    char host[48];
    // On rank 0: when it was heard of last, dt_clock_s; as dt_rank_hear gets it: how long ago that was, where others passed
    // it on.
    double heard_s;
} dt_rank_report;

// The calling thread is the one whose steps these are; dt_watch_start makes this call.
void dt_rank_begin(void);
// "node", "conv1": copied; on other threads it does nothing. Some nanoseconds.
void dt_rank_at(const char *what, const char *name);
void dt_rank_set_times(double data_s, double compute_s); // of one step
void dt_rank_set_deadline(double seconds);               // how long ranks wait for one another

// For the watch's thread. path: of a file operation that has taken file_s, or NULL.
void dt_rank_look(const char *path, double file_s, double now_s);
// No progress of any rank for quiet_s: at half of the deadline, once, rank 0 logs where all ranks are.
void dt_rank_quiet(double quiet_s);
// Between the report and heartbeats. hear: from the thread that has `own`.
void dt_rank_own(dt_rank_report *out);
void dt_rank_hear(int rank, const dt_rank_report *r);
// One rank's place as text: "node conv1, for 3 s; reading /data/a.tar for 2 s". Returns `out`.
enum { DT_RANK_TEXT = 320 };
const char *dt_rank_text(char out[DT_RANK_TEXT], const dt_rank_report *r);

// Of n ranks what is known here, by rank; any thread. Rank 0 knows of all, a fifth of a second late for each level of the
// tree of heartbeats, and later where a rank has more reports to pass on than a message holds.
void dt_rank_list(dt_rank_report *out, int n);

// ---- crash --------------------------------------------------------------------------------------------------------

// One line of a process that crashes: which rank, on which host, after which step.
//
// What took the signal before goes on then: Open MPI's handler prints a stack, a sanitizer its report, the system ends
// the process. So exit codes stay (139 of a segmentation fault). A handler is the exception to signals.c's rule that no
// computing thread may run one: it comes when nothing can be saved any more.

// Once, behind MPI_Init. rank < 0: alone.
void dt_crash_install(int rank);

#endif
