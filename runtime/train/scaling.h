// scaling.h: how long a step would take on more ranks than are here: dtrain check --ranks.
//
// The plan of the config's network runs a few micro-batches here, so that each of its instructions has a time, and a step
// is committed. Where a rate is given instead, nothing runs, and instructions share the micro-batch's time by what they
// compute and move. Then a rank's step is played for each number of ranks on a clock of its own: instructions pass one
// after the other, the gradients that the plan says are finished report to the buckets of comm/bucket.h, and these are
// reduced over the fabric (comm/comm_model.h).
//
// A host's ranks share its cores: where they want more than there are, everything takes longer in proportion, decoding
// included. On a GPU fabric each rank has a GPU. The batch is train.global_batch, or a micro-batch a rank where that is more.
//
// Not in it: ranks that are late, disks and links that others use, evaluations (hours count them).
#ifndef DT_TRAIN_SCALING_H
#define DT_TRAIN_SCALING_H

#include "comm/comm_model.h"
#include "config/words.h"
#include "run/state.h"
#include "train/trainer.h"

enum { DT_SCALING_ROWS = 96, DT_SCALING_FABRICS = 6 };

typedef struct dt_scaling_row {
    int world_size, fabric; // the caller's
    int n_hosts;
    int64_t batch;
    double compute_s, exposed_s, commit_s,
        step_s; // exposed: communication that backward does not hide
    double samples_s;
    size_t rank_bytes;
    double start_s,
        save_s; // until the first step: of a rank's own; until a checkpoint is on rank 0's disk
} dt_scaling_row;

typedef struct dt_scaling {
    dt_fabric fabrics[DT_SCALING_FABRICS]; // what is 0 there is measured
    double rate; // samples a second of one rank alone, without communication; 0: measured here
    dt_scaling_row rows[DT_SCALING_ROWS];
    int n;
    // What was measured: CPU seconds of a micro-batch, a commit, a micro-batch's data; the disk, 0 where run.dir is not there
    double micro_s, commit_s, load_s, disk_bytes_s;
    int micro_batch;
    int64_t n_samples; // to train on; 0: not known
} dt_scaling;

// The largest batch at which training of the optimizer is known to have kept its accuracy, and where that stands.
int64_t dt_scaling_safe_batch(dt_optimizer_id kind, const char **source);

// ---- scaling internal ---------------------------------------------------------------------------------------------

// For check.c, which has the room, nets and state that a prediction needs.

// Fills the rows. The state gets first weights, and the steps that are measured change them.
dt_status dt_scaling_predict(dt_scaling *s, dt_open_run *r, dt_nets *nets, dt_state *state);

#endif
