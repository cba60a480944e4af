// step.h: one optimizer step, as a transaction.
//
//   replicas compute micro-batches into flat buffers (a team of worker threads, one exec each)
//   the buffers become one sum on every rank, or with
//   train.shard on its owner                         (buckets while backward runs, or the fixed tree)
//   commit: norm, finite flag, clipping, optimizer, running statistics, packed weights
//
// Losses, weights and batch statistics are sums in the tail of the flat buffer. One spare element of the tail
// carries the ranks' wish to stop, so agreeing on a signal costs nothing. A step whose gradients are not
// finite commits nothing. What the commit writes is checked in the same pass: an update that is not finite has been
// written (undoing it would take a copy of all weights and moments), so the result says `spoiled`, and the caller ends
// the run without saving. Nothing is allocated, locked or logged in dt_stepper_run.
//
// On a device dt_stepper_run queues the whole step and returns while it still runs, with the numbers of the
// step before (step_device.c): dt_step_result.step says whose they are, and dt_stepper_drain waits for the rest.
//
// Threads: called from the thread that owns the comm, which is also worker 0.
#ifndef DT_TRAIN_STEP_H
#define DT_TRAIN_STEP_H

#include "base/thread.h"
#include "batch/batch_source.h"
#include "batch/targets.h"
#include "comm/bucket.h"
#include "comm/comm.h"
#include "exec/exec.h"
#include "run/batch_inputs.h"

#include <stdatomic.h>

typedef struct dt_stepper dt_stepper;

typedef struct dt_stepper_opts {
    dt_comm *comm;
    const dt_graph *graph;     // training graph
    const dt_targets *targets; // whose numbers are checked; NULL: none
    const dt_plan *plan;       // made for n_replicas execs of `replica_threads` each
    int64_t first_step;        // the first that runs: parameters that are frozen then are not updated
    dt_params *params;         // with replicas->n_flats gradient buffers
    const dt_replica_plan *replicas;
    int replica_threads; // OpenMP threads of a replica
    int team_threads;    // threads of this rank, >= n_replicas; all take part in the commit
    int micro_batch;
    uint64_t seed;
    float clip_norm; // 0: none
    float weight_decay;
    bool always_adapt;           // train.optimizer.always_adapt
    dt_optimizer_args optimizer; // kind and hyper; the rest is filled in
    int64_t bucket_bytes;
    bool sync_bn; // batch norms are collectives: one replica, as many micro-batches on each rank
    // Devices: the comm for their memory, NULL where this process is alone; scale the loss (fp16).
    dt_comm *device_comm;
    bool loss_scaling;
    bool bf16_gradients; // between ranks
    bool uncaptured;     // no graphs: every step is queued call by call
    // Asked before each micro-batch, from its replica: true gives the step up (run.grace is over). NULL: never.
    bool (*give_up)(void);
} dt_stepper_opts;

// Dynamic loss scaling: part of a checkpoint. Zeros: there is none.
typedef struct dt_scaler {
    float scale;
    int32_t clean_steps; // since it last changed
    int64_t n_skipped;   // steps that overflowed: they are not counted in the bias correction
} dt_scaler;

typedef struct dt_step_result {
    int64_t step; // whose numbers these are; -1: there are none yet
    double loss, grad_norm;
    bool finite;      // false: nothing was committed, unless spoiled
    bool spoiled;     // it left a weight, moment or statistic that is not finite; the figures mean nothing
    bool skipped;     // not finite, and the loss scale was lowered: go on
    bool dropped;     // a rank gave the step up: nothing was committed, the figures mean nothing
    bool stop;        // a rank wants to stop
    dt_scaler scaler; // after the step
    double data_s, compute_s, comm_s, total_s;
    double idle_s; // of compute_s: the host waited for its device
    // Parts of compute_s, as a mean over the worker groups, and the optimizer step; 0 on a device, which runs ahead.
    double forward_s, backward_s, optimizer_s;
} dt_step_result;

dt_status dt_stepper_create(dt_stepper **out, const dt_stepper_opts *opts);
void dt_stepper_destroy(dt_stepper *s);
// The training source; may be changed between steps.
dt_status dt_stepper_set_source(dt_stepper *s, dt_batch_source *source);
// step: 0-based, ascending. want_stop: this rank got a signal.
dt_status dt_stepper_run(dt_stepper *s, int64_t step, double lr, bool want_stop, dt_step_result *out);
// From `step` on the stepper runs another graph and plan on the same parameters, and updates those that are trained
// then. It must be drained, and goes on with its source and scaler.
dt_status dt_stepper_set_plan(dt_stepper *s, const dt_graph *graph, const dt_plan *plan, int64_t step);
// Waits for the last step that was run, to its end; out->step = -1 when its numbers are known already.
dt_status dt_stepper_drain(dt_stepper *s, dt_step_result *out);
// Sets the loss scaler to what a checkpoint says, before the first step. Without this call it starts at
// 2^16, divided by the power of two nearest to micro_batch: losses are sums.
dt_status dt_stepper_set_scaler(dt_stepper *s, const dt_scaler *scaler);
// Replays this rank's micro-batches of a bad step with checks: the micro-batch and the name of the first tensor that
// is not finite, or micro-batch -1. The source is sought back to `step`. Slow.
dt_status dt_stepper_find_bad(dt_stepper *s, int64_t step, int *micro, char *name, size_t cap);
// Batch norms' running statistics become the means over all micro-batches of the first n_steps steps, in training's
// mode, with the weights as they are (packed): torch.optim.swa_utils.update_bn. The source then goes on at `next`. Not on
// a device. DT_E_PREEMPTED: it was given up, and changed nothing.
dt_status dt_stepper_recalibrate(dt_stepper *s, int64_t n_steps, int64_t next);
// The team of threads, for evaluation.
struct dt_team *dt_stepper_team(dt_stepper *s);

// ---- step internal ------------------------------------------------------------------------------------------------

// What step.c, step.c with commit.c, and step_device.c share.

typedef struct dt_step_replica {
    struct dt_stepper *owner;
    int index;
    dt_exec *exec;
    dt_batch_inputs inputs;
    dt_run_ranks ranks; // of nodes that are collectives
    double wait_s;
    dt_status status;      // of this step
    dt_status node_status; // of the collectives that nodes are, in this micro-batch
    dt_error_kept why;
} dt_step_replica;

struct dt_stepper {
    dt_stepper_opts o;
    dt_backend *backend;
    dt_batch_source *source;
    dt_team *team;
    dt_buckets *buckets; // NULL: one replica on one rank, or the tree's transfers
    uint16_t *bf16;      // device memory through which gradients travel as bf16; NULL: they do not
    dt_step_replica *replicas;
    float **replica_grads; // resume, off: by replica
    dt_commit_args commit;
    double *partial; // sums of squares of the gradient, by chunk
    int64_t n_chunks;
    dt_step_numbers numbers; // of the newest commit on the CPU
    dt_scaler scaler;        // after the newest step that is known
    const struct dt_step_engine *engine;
    struct device_step *device; // of step_device
    // the step in flight
    int64_t step;
    bool want_stop;
    _Atomic bool spoiled;    // the commit wrote something that is not finite
    dt_status commit_status; // of its collectives
    double share_s;          // for the weights of other ranks
    float *add_to;
    const float *add_from;
};

// What runs a step: step.c or step_device.c. A function that may be NULL has nothing to do there.
typedef struct dt_step_engine {
    dt_status (*create)(struct dt_stepper *s); // called last; may be NULL
    void (*destroy)(struct dt_stepper *s);     // also of one that was not created; may be NULL
    dt_status (*set_source)(struct dt_stepper *s, dt_batch_source *source);
    dt_status (*set_scaler)(struct dt_stepper *s, const dt_scaler *scaler); // may be NULL
    dt_status (*run)(struct dt_stepper *s, double lr, dt_step_result *out); // s->step, s->want_stop
    // The flat buffer of s->step, summed over the ranks, without a commit
    dt_status (*compute)(struct dt_stepper *s);
    dt_status (*drain)(struct dt_stepper *s, dt_step_result *out); // may be NULL
    // Called in front of a replay: lets what is under way end; may be NULL
    dt_status (*rest)(struct dt_stepper *s);
    // One phase of the commit (backend/commit.h). false: the phases that follow are left out
    bool (*phase)(struct dt_stepper *s, dt_commit_phase phase);
    // Micro-batch `micro` of s->step again, with checks; a rank's come in their order
    dt_status (*replay)(struct dt_stepper *s, int micro, const char **bad);
} dt_step_engine;
extern const dt_step_engine step_host, step_device;

// Loss scaling (fp16): where it begins, as in PyTorch, and after how many finite steps it doubles. PyTorch scales a mean
// over a process's batch, dtrain a sum over a micro-batch: divided by the power of two nearest to its size, it is the
// same.
enum { FIRST_SCALE = 1 << 16, GROWTH_INTERVAL = 2000 };

// step.c
// dt_buckets_opts.grad_end; heap
int64_t *dt_step_grad_ends(const dt_graph *g, const dt_params *p);
size_t dt_step_bf16_bytes(const struct dt_stepper *s); // of dt_stepper.bf16
// dt_exec_args.on_grad and .poll, with a dt_step_replica as ctx
void dt_step_on_grad(void *ctx, int grad_index);
void dt_step_poll_buckets(void *ctx);
// dt_exec_args.ranks; NULL where no node is a collective. l->node_status becomes the first failure from now on.
const dt_run_ranks *dt_step_ranks(dt_step_replica *l);
float dt_step_stop_mark(const struct dt_stepper *s, int micro); // for stop_at
// The tree across ranks. add: flat buffer `to` += flat buffer `from`
typedef void step_add_fn(struct dt_stepper *s, float *to, const float *from);
dt_status dt_step_run_transfers(struct dt_stepper *s, dt_comm *c, step_add_fn *add);

// commit.c
dt_status dt_commit_init(struct dt_stepper *s);
void dt_commit_fini(struct dt_stepper *s);
float dt_commit_first_scale(const struct dt_stepper *s);                // 1 without loss scaling
float dt_commit_loss_scale(const struct dt_stepper *s);                 // the same
dt_status dt_commit_run(struct dt_stepper *s);                          // all phases, in their order
bool dt_commit_phase_host(struct dt_stepper *s, dt_commit_phase phase); // dt_step_engine.phase of the CPU
// What the numbers of a commit say to the caller of the stepper; takes over the loss scale.
dt_step_result dt_commit_result(struct dt_stepper *s, const dt_step_numbers *n);
// Adds the means over a step's micro-batches to sums (n_buffer); false: a rank gave the step up.
bool dt_commit_add_statistics(const struct dt_stepper *s, double *sums);
void dt_commit_set_statistics(struct dt_stepper *s, const double *sums, double n_steps);
// flat buffer `to` += flat buffer `from`, divided over the team.
void dt_commit_add_flats(struct dt_stepper *s, float *to, const float *from);

#endif
