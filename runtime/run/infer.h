// infer.h: a network's outputs for the samples of a split, each exactly once, in their order, on rank 0.
//
// An inference graph (batch norms folded), with a plan and one exec per replica of its own, shares the parameters with
// training. Batch b holds samples [bE, (b+1)E). Batches go round robin to the W*L replicas of all ranks; the last is
// padded, and what was padded is dropped. A few steps make a chunk: the replicas fill rows of what was asked for, the
// other ranks send theirs to rank 0 step by step, and rank 0 hands all to the caller, sample by sample, so a split of any
// size and any number of ranks take the memory of a chunk and a step. What is delivered depends on neither ranks nor replicas.
//
// Whoever evaluates, predicts or calibrates differs only in what it asks for and in what it does with a sample.
//
// defines: dt_infer_all_finite, dt_infer_create, dt_infer_destroy, dt_infer_output_size, dt_infer_run,
// dt_infer_set_range
#ifndef DT_TRAIN_INFER_H
#define DT_TRAIN_INFER_H

#include "base/thread.h"
#include "batch/batch_source.h"
#include "comm/comm.h"
#include "exec/exec.h"

#include <math.h>

enum { DT_INFER_OUTPUTS = 12 };

typedef struct dt_infer dt_infer;

typedef struct dt_infer_opts {
    dt_comm *comm;
    const dt_graph *graph; // inference graph
    const dt_plan *plan;   // for n_replicas execs
    dt_params *params;     // with at least n_replicas gradient buffers (a loss goes there)
    dt_team *team;         // of at least n_replicas
    int n_replicas, replica_threads;
    int batch;                   // samples of a batch
    const dt_field_info *fields; // of the data set: on a device their memory is taken at the start
    int n_fields;
    const char *outputs[DT_INFER_OUTPUTS]; // the graph's outputs that are delivered, f32
    int n_outputs;
    bool wants_field[DT_MAX_FIELDS]; // fields that are delivered, of elements of 4 bytes
    bool augment;                    // samples are changed as data.augment says
    uint64_t seed;                   // of dropout, where the graph drops: the mask of a sample follows from it,
                                     // from the sample's index and from how many runs were before
    const char *progress;            // rank 0 shows a line of this name that moves; NULL: none
    int64_t limit;                   // at most so many samples of the split, the first; 0: all
    // Shown what the network computes of each batch (dt_exec_run_shown), from its replica's thread; NULL: nobody.
    void (*look)(void *ctx, const dt_batch *b, dt_value v, const float *x);
    void *look_ctx;
    // Asked before each batch, from its replica: true on any rank gives the run up. NULL: never. The same on all ranks.
    bool (*give_up)(void);
} dt_infer_opts;

// Valid until the next one.
typedef struct dt_infer_sample {
    int64_t index;   // in the split
    const char *why; // it could not be read: then there is nothing else; NULL: it was
    const float *output[DT_INFER_OUTPUTS];
    const void *field[DT_MAX_FIELDS]; // as in a batch; NULL: not asked for
} dt_infer_sample;

// Whoever takes samples leaves out those whose prediction is not finite, and says so.
static inline bool dt_infer_all_finite(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

dt_status dt_infer_create(dt_infer **out, const dt_infer_opts *opts);
void dt_infer_destroy(dt_infer *f);
int64_t dt_infer_output_size(const dt_infer *f, int output); // elements a sample

// From now on only samples [begin, begin + n) of the split are delivered, and the batches run that have some of them.
void dt_infer_set_range(dt_infer *f, int64_t begin, int64_t n);

// Brings the packed weights up to date and runs. Collective; rank 0 calls take() for each sample, in order.
// DT_E_PREEMPTED on all ranks: it was given up.
dt_status dt_infer_run(dt_infer *f, dt_dataset *data, dt_split split,
                       dt_status (*take)(void *ctx, const dt_infer_sample *s), void *ctx);

#endif
