// slow_rank.h: names the rank that all others wait for.
//
// Each rank keeps what its own part of the last 20 steps took: waiting for data, and computing. Then ranks gather the
// medians over these steps, so that a single long step names nobody. A rank whose own part is 1.3 times that of the
// median rank is named once a run. With an even number of ranks the lower of the two middle ones is the median: of two
// ranks the faster. On GPUs computing includes the wait for the other ranks' gradients, so there only data tell.
#ifndef DT_TRAIN_SLOW_RANK_H
#define DT_TRAIN_SLOW_RANK_H

#include "comm/comm.h"

enum { DT_SLOW_STEPS = 20 };

// What a rank tells: seconds of a step.
typedef struct dt_own_times {
    double data_s, compute_s;
    char host[64];
    bool asks;
} dt_own_times;

typedef struct dt_slow_rank {
    double data_s[DT_SLOW_STEPS], compute_s[DT_SLOW_STEPS]; // of this rank
    int n;
    bool asks; // kept until ranks exchange words
    dt_own_times *all;
    bool *named;
} dt_slow_rank;

// A rank that is slow: times the median, and the phase in which it loses most.
typedef struct dt_slow_finding {
    int rank; // -1: none
    double times;
    const char *phase; // "data", "compute"
    const char *host;  // borrowed
} dt_slow_finding;

// Called after every step, on all ranks: every DT_SLOW_STEPS they exchange a few words. fini frees.
// *ask: this rank wants something of all (a timeline); becomes whether any rank did, at the same step on all.
dt_status dt_slow_rank_step(dt_slow_rank *s, dt_comm *c, double data_s, double compute_s, bool *ask,
                            dt_slow_finding *out);
void dt_slow_rank_fini(dt_slow_rank *s);

#endif
