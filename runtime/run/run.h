// run.h: what a process does with a config: the config with its autos answered, the ranks, the backend, the data set,
// and on rank 0 the run's directory. The first of three rooms; networks are made for a run (nets.h), and tensors that
// survive a step are kept for both (state.h).
//
//   train              dt_run_open, dt_nets_make, dt_state_create, dt_state_init or dt_state_load, then steps
//   check              the same without steps
//   eval, predict, …   dt_session_open (evaluate.h), which is the same for a run that predicts instead of training
//
// dt_run_open resolves every auto that machine, data and checkpoint can resolve, on all ranks alike. What only a plan
// can tell (the faster precision, how many replicas have room, engines) dt_nets_make resolves in the run: making plans
// is the longest part of a start, and it is done once.
//
// Threads: one thread a process opens, uses and closes a run. Collective, unless said otherwise. Failures: agree.h.
#ifndef DT_TRAIN_RUN_H
#define DT_TRAIN_RUN_H

#include "batch/batch_source.h"
#include "checkpoint/ckpt.h"
#include "comm/comm.h"
#include "config/config.h"
#include "config/param_groups.h"
#include "exec/exec.h"
#include "graph/model_args.h"
#include "run/batch_inputs.h"
#include "run/int8_file.h"
#include "run/run_state.h"

#include <stdio.h>

typedef struct dt_trainer_args {
    dt_config *config; // its autos are replaced by the resolved values
    dt_comm *comm;
    const char *version; // of dtrain
    FILE *results;       // JSON lines for programs (stdout)
    // Builds the model's graph, ready for a plan, with activations of `type`.
    dt_status (*build_graph)(dt_graph **out, const dt_model_args *a, dt_dtype type);
    // Opens the data set of the config. workers: loader threads; skip_log, classes: see dt_data_open_as.
    dt_status (*open_data)(void *ctx, const dt_config *c, const dt_batch_memory *memory, int workers,
                           const char *skip_log, const char *classes, dt_dataset **out);
    void *ctx;
} dt_trainer_args;

typedef enum dt_run_use { DT_RUN_TRAINED, DT_RUN_CHECKED, DT_RUN_INFERENCE } dt_run_use;

// Why a run is opened.
typedef struct dt_run_request {
    dt_run_use use;
    // Of an inference session:
    const char *which; // checkpoint (dt_ckpt_find)
    dt_split split;    // of the data; must have samples
    bool own_data;     // those that the run trained on: then a warning where they changed
    bool raw;          // with train.ema: the trained weights, not their average
    bool drops;        // dropout is active
    // Of a run that is checked before its data exist: the fields that the data will have; else NULL.
    const dt_field_info *fields;
    int n_fields;
} dt_run_request;

// The run that teaches this one (train.teacher): its config and classes, from a checkpoint. What its network does in the
// training graph: models/distil.c. Its weights: dt_state_load_teacher.
typedef struct dt_teacher {
    dt_config *config;                          // of the teacher's run; NULL: there is no teacher
    char *classes;                              // of its run, as run_state.h has them
    char *folder;                               // of its checkpoint; on rank 0
    int64_t step, total_steps, steps_per_epoch; // its last step, and the length of its run
} dt_teacher;

typedef struct dt_open_run {
    dt_trainer_args args;
    dt_run_request request;
    dt_config *config; // args.config, with its autos answered
    dt_config *given;  // the same as the user gave it
    dt_comm *comm;
    dt_comm *device_comm; // for the memory of devices; NULL: the host's, or this rank is alone
    dt_backend *backend;
    dt_dataset *data;            // NULL: there is none (dt_trainer_args.open_data)
    const dt_field_info *fields; // of the data set, or of the request
    int n_fields;
    dt_resolved resolved;
    // The record (cursor, length, loss scaler, history of evaluations, classes) of the checkpoint that the run goes on
    // from or that is evaluated; in a new run, the record that its first checkpoint will have.
    dt_run_state record;
    bool resumed;     // the run goes on from a checkpoint
    bool extended;    // and numeric keys differ, with the user's consent
    char *moved;      // keys of paths that changed since; rank 0; NULL: none
    bool finished;    // its results are there, and nothing is left to do: nothing else was opened
    char *dir;        // run.dir/run.name
    char *checkpoint; // rank 0: folder of the checkpoint that `record` is of; NULL: a new run
    dt_ckpt *ckpt;    // rank 0 of a run that is trained
    dt_replica_plan *replicas;
    bool replicas_open; // device.replicas: auto may still become fewer, for want of memory
    dt_param_groups groups;
    dt_scales scales;
    dt_teacher teacher; // of a run that is trained or checked
    dt_int8 *int8;      // of a run that computes in int8 (model.int8); NULL: it does not
} dt_open_run;

static inline bool dt_run_is_root(const dt_open_run *r) {
    return r->comm->rank == 0;
}
static inline bool dt_run_is_elastic(const dt_open_run *r) {
    return r->config->run.reproducible == DT_REPRODUCIBLE_elastic;
}
static inline int dt_run_global_batch(const dt_open_run *r) {
    return (int)r->config->train.global_batch;
}
// Micro-batches of a step.
int dt_run_n_micro(const dt_open_run *r);
// Samples of a batch of an evaluation.
int dt_run_eval_batch(const dt_open_run *r);
bool dt_run_has_bf16_gradients(const dt_open_run *r); // between ranks
bool dt_run_shards(const dt_open_run *r);
// Whether each of n_ranks has the f32 weights of its chunks alone (dt_params.own_masters). Not on a CPU, whose kernels
// may pack weights from f32 at their use.
bool dt_run_owns_masters(const dt_open_run *r, int n_ranks); // train.shard, and there are ranks to divide among
// The comm over the memory that flat buffers are in.
dt_comm *dt_run_flat_comm(const dt_open_run *r);
// Which checkpoint was asked for, and what the default came to: "best", "latest" or a step.
const char *dt_run_which(const dt_open_run *r);

// What all opening begins with: checks keys that depend on each other, and opens nothing. DT_E_USAGE. dt_run_close
// frees it, after a failure too.
dt_status dt_run_init(dt_open_run *r, const dt_trainer_args *a, const dt_run_request *q);
// dt_run_init, then directory and record, ranks, threads, backend, data, the run's length. After a failure too
// dt_run_close is to be called.
dt_status dt_run_open(dt_open_run *r, const dt_trainer_args *a, const dt_run_request *q);
// st: how the run ended. Where that is alike on all ranks their devices part in peace.
void dt_run_close(dt_open_run *r, dt_status st);

// Fewer replicas of more threads (elastic: of as many), before plans are made; not collective.
dt_status dt_run_set_replicas(dt_open_run *r, int n);
// Writes the resolved values into the config; not collective.
void dt_run_answer(dt_open_run *r);
// How long other ranks are waited for; not collective.
void dt_run_set_deadline(dt_open_run *r, double seconds);
// Steps of a run: train.epochs, or fewer where train.max_steps says so.
int64_t dt_run_steps(const dt_config *c, int64_t steps_per_epoch);
// comm.timeout, or `otherwise` where that is auto.
double dt_run_timeout_s(const dt_config *c, double otherwise);
int64_t dt_run_bucket_bytes(const dt_open_run *r, bool device); // comm.bucket
// The threads of a rank that commit or evaluate.
int dt_run_team_threads(const dt_open_run *r);

// ---- run_resume.c: directory and record ------------------------------------------------------------

// Of a run that is trained or evaluated: finds the checkpoint that it goes on from, or that is evaluated, on rank 0, and gives
// all ranks its record.
dt_status dt_run_read_state(dt_open_run *r);
// Rank 0 of an inference session: finds its checkpoint again, where a training beside has removed the one found before.
dt_status dt_run_find_again(dt_open_run *r);
// Whether a resumed run goes on with the bits and the data that it began with: DT_E_USAGE or a warning where not.
dt_status dt_run_check_resumed(dt_open_run *r);
// Reads train.teacher of a run that is trained or checked: rank 0 finds the checkpoint, and all get what it says.
dt_status dt_run_read_teacher(dt_open_run *r);
// What the record of the next checkpoint says besides cursor and history; once networks are made.
void dt_run_fill_state(dt_open_run *r);
// Rank 0: the best is the best checkpoint that is on disk and intact. Says so where the record knows of a later one. As
// dt_ckpt_best.
dt_status dt_run_take_best(dt_open_run *r);

#endif
