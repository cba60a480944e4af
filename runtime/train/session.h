// session.h: what training, evaluating and checking set up in the same way: backend, data set, graphs,
// plans, parameters, replicas. For the files of runtime/train.
//
// dt_session_open answers the autos, makes the backend and opens the data; dt_session_build makes
// graphs, parameters and plans; dt_session_make_evaluator the evaluation side, when it is first needed.
#ifndef DT_TRAIN_SESSION_H
#define DT_TRAIN_SESSION_H

#include "ckpt/ckpt.h"
#include "train/evaluate.h"
#include "train/int8_file.h"
#include "train/phases.h"
#include "train/state.h"
#include "train/step.h"
#include "train/teacher.h"
#include "train/trainer.h"

// A flat buffer of the parameters. `tensors` point into host: the same memory, or a copy of a device's.
typedef struct dt_session_flat {
    float *flat, *host;
    int64_t n;
} dt_session_flat;

typedef struct dt_session {
    dt_trainer_args a;
    dt_config *config;
    dt_comm *comm;
    dt_comm *device_comm; // several ranks on devices: for their memory
    bool agreed;          // the run ended in the same way on all ranks: close() may talk to them
    bool told;            // a failure that every rank has and knows the others to have
    char *given;          // config as given, autos unresolved
    char *classes; // of the run (class_names.h); NULL until the data are opened: they will say
    dt_resolved resolved;
    const dt_train_state
        *origin; // of the run that is not trained but asked; in front of open, or NULL
    bool elastic;
    bool drops;          // evaluation with dropout: set in front of open
    bool raw;            // likewise: with train.ema the trained weights instead of their average
    const char *weights; // asked: which checkpoint was, and what the default came to
    int micro_batch, global_batch, n_micro, eval_batch;
    dt_backend *backend;
    dt_dataset *data;
    const dt_field_info *described; // of data that is not there: set in front of open
    int n_described;
    dt_replica_plan *replicas;
    bool replicas_open; // may still become fewer, for want of memory
    size_t least_room;  // of a rank: bytes
    dt_targets targets; // of training, once graphs are made
    dt_param_groups groups;
    dt_scales scales;
    dt_teacher teacher; // of training
    int64_t total_steps, steps_per_epoch,
        first_step;                 // of the run; the first that this process does
    dt_phase phases[DT_MAX_PHASES]; // outside training one, for evaluation
    int n_phases;
    dt_graph *graph,
        *eval_graph; // of the last phase, which trains the most; eval: of the evaluator, once there is one
    dt_plan *plan, *eval_plan;
    dt_int8 *int8; // of a run that computes in int8 (model.int8); NULL: it does not
    dt_params *params;
    dt_stepper *stepper;      // NULL outside training
    dt_team *own_team;        // where there is no stepper
    dt_metric_choice metrics; // once graphs are made
    dt_evaluator *evaluator;
    dt_ckpt_tensor *tensors; // model's first, with train.ema those trained, then the optimizer's
    int n_tensors, n_model_tensors;
    dt_session_flat flats[4 + DT_MAX_SLOTS]; // of the tensors, in their order
    int n_flats;
} dt_session;

// Checks keys that depend on each other; opens nothing. DT_E_USAGE.
dt_status dt_session_init(dt_session *s, const dt_trainer_args *a);
// n_micro and eval_batch follow.
void dt_session_set_micro_batch(dt_session *s, int n);
// Fewer replicas of more threads (elastic: of as many), before plans are made.
void dt_session_set_replicas(dt_session *s, int n);
// What training takes of a rank's memory with this micro_batch: plans are made and dropped, nothing is taken.
dt_status dt_session_plan_bytes(dt_session *s, const dt_field_info *fields, int n_fields,
                                size_t *n_bytes);
// stored: state of the checkpoint that is resumed, or NULL. data NULL in `a`: no data set.
// s->classes, if set, numbers its classes.
dt_status dt_session_open(dt_session *s, const dt_train_state *stored, const char *skip_log);
// The run's length, from the data; before build. DT_E_USAGE if the training split is smaller than a step.
dt_status dt_session_measure(dt_session *s);
// Graphs, parameters and plans. training: with gradients, moments and a stepper.
dt_status dt_session_build(dt_session *s, const dt_field_info *fields, int n_fields, bool training);
// For weights that `done` steps have made.
dt_status dt_session_make_evaluator(dt_session *s, int64_t done);
// The graph that evaluates weights which `step` steps have made, of the layers that q has in int8 (NULL: none).
dt_status dt_session_eval_graph(dt_session *s, const dt_field_info *fields, int n_fields,
                                int64_t step, const dt_int8 *q, dt_graph **out);
// For who asks the network without training: the session's graph, plan, threads. progress: see infer.h.
dt_status dt_session_infer_opts(dt_session *s, const char *progress, dt_infer_opts *out);
// Opens a run without training it: `which` checkpoint, data of which `split` has samples, plans and weights.
dt_status dt_session_open_run(dt_session *s, const char *which, dt_split split, int64_t *step);
// Whether other parameters are trained from `step` on; then, with the stepper drained, begins that phase.
bool dt_session_phase_begins(const dt_session *s, int64_t step);
dt_status dt_session_begin_phase(dt_session *s, int64_t step);
// Before the first micro-batch: is there room for what libraries allocate then (dt_memory_room)?
dt_status dt_session_check_room(const dt_session *s);
bool dt_session_bf16_gradients(const dt_session *s); // between ranks
// Once parameters are taken; what lists them frees them too. For session.c.
void dt_session_list_tensors(dt_session *s);
void dt_session_free_tensors(dt_session *s);
// Brings `tensors` up to date with the device, in front of a save. The stepper must be drained.
void dt_session_pull(dt_session *s);
// comm.timeout, or `otherwise` where that is auto.
double dt_session_timeout_s(const dt_config *c, double otherwise);
// Pulls; the name of the first tensor that is not finite (borrowed).
const char *dt_session_find_bad(dt_session *s);
// How long other ranks are waited for.
void dt_session_set_deadline(dt_session *s, double seconds);
// Backend, library and ISA or kind of device: the same on all ranks, however many. Heap.
char *dt_session_environment(const dt_session *s);
// The backend's chosen engines as text (heap); NULL when it chooses none.
char *dt_session_engines(const dt_session *s);
// First weights: from the seed, or of the file that model.init names (read by rank 0), on all ranks.
dt_status dt_session_init_weights(dt_session *s);
// Weights (and moments, with_optimizer) of a checkpoint directory, read by rank 0, on all ranks.
dt_status dt_session_load(dt_session *s, const char *path, bool with_optimizer);
// train.teacher's weights, read by rank 0, on all ranks, after ours; *hash: theirs, 0 where there is no teacher.
dt_status dt_session_load_teacher(dt_session *s, uint64_t *hash);
// With train.ema: exchanges the weights and their average, for an evaluation and back. The stepper must be drained.
void dt_session_swap_average(dt_session *s);
void dt_session_close(dt_session *s);

#endif
