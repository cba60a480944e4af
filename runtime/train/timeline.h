// timeline.h: RUN/trace.json of some steps, on all ranks (metrics.trace.steps, or SIGUSR2): Chrome's trace format, which
// Perfetto (ui.perfetto.dev) and chrome://tracing show. A process is a rank; all are on rank 0's clock.
#ifndef DT_TRAIN_TIMELINE_H
#define DT_TRAIN_TIMELINE_H

#include "comm/comm.h"

typedef struct dt_timeline {
    int64_t begin, end; // traced are the steps from begin to end - 1, 0-based; end 0: none
    bool on;
} dt_timeline;

enum { DT_TIMELINE_STEPS = 10 }; // of a signal

// On all ranks in front of every step, and once at the end with step < 0: begins the trace, or ends it and writes it to
// RUN/trace.json on rank 0. That the file cannot be written is a warning. DT_E_PEER.
dt_status dt_timeline_step(dt_timeline *t, dt_comm *c, int64_t step, const char *run_dir);
// On all ranks at the same step: traces the next steps, unless a trace is under way.
void dt_timeline_ask(dt_timeline *t, int64_t step);

#endif
