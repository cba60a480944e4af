// step_internal.h: what step.c, step_host.c with commit.c, and step_device.c share.
#ifndef DT_TRAIN_STEP_INTERNAL_H
#define DT_TRAIN_STEP_INTERNAL_H

#include "base/thread.h"
#include "comm/bucket.h"
#include "run/batch_inputs.h"
#include "train/step.h"

#include <stdatomic.h>

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

// What runs a step: step_host.c or step_device.c. A function that may be NULL has nothing to do there.
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
    // Micro-batch `micro` of s->step again, with checks; the i-th of this rank's, in their order
    dt_status (*replay)(struct dt_stepper *s, int64_t i, int micro, const char **bad);
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
