// run_state.h: state.json of a checkpoint: everything besides tensors that a run needs to go on.
#ifndef DT_RUN_RUN_STATE_H
#define DT_RUN_RUN_STATE_H

#include "base/core.h"
#include "base/json.h"
#include "batch/field_info.h"
#include "config/config.h"

#include <math.h>

// Every `auto` that was answered.
typedef struct dt_resolved {
    int threads;         // CPU threads of a rank
    int replicas;        // micro-batches at once in a rank
    int replica_threads; // threads of one micro-batch
    int workers;         // loader threads (changes no numbers)
    int micro_batch;
    dt_precision precision;
    dt_device_kind device;
    int best; // the word of eval.best (metric.h); auto: not answered yet
} dt_resolved;

typedef struct dt_eval_point {
    int64_t step;
    double value; // of eval.best; NaN allowed
} dt_eval_point;
// Whether an evaluation's value is better than the best so far by more than min_delta: a number always is, where there is no
// best yet; NaN and infinity never are.
static inline bool dt_eval_is_better(double value, bool has_best, double best, bool lower_is_better, double min_delta) {
    return isfinite(value) && (!has_best || (lower_is_better ? best - value : value - best) > min_delta);
}

// What the words of a config's network mean: 0, before they had a number; 1, the defaults of model.layers are PyTorch's.
enum { DT_NETWORKS = 1 };

typedef struct dt_run_state {
    int networks; // DT_NETWORKS when it was written
    int64_t step; // optimizer steps done; also the data cursor and the t of AdamW
    int64_t total_steps, steps_per_epoch;
    uint64_t seed;
    int world_size;
    uint64_t host_layout_hash; // dt_comm.host_layout_hash
    char *nccl_algo;           // NCCL_ALGO of ranks with a GPU each; NULL: unset, or no such ranks
    dt_config *config;         // as given, normalize answered: what a resume is compared with
    char *environment;         // backend, ISA, library
    char *engines;             // chosen by timing (dt_backend.choices); NULL: the backend chooses none
    char *version;             // of dtrain
    char *classes;             // JSON: by class field, the names in the order of their labels
    double loss;               // of the last step that was not skipped
    uint64_t data_fingerprint;
    uint64_t teacher; // hash of the weights of train.teacher; 0: there is none
    int64_t metrics_offset;
    dt_resolved resolved;
    // Loss scaling (fp16): the scale, finite steps since it changed, steps skipped. Scale 0: none.
    double loss_scale;
    int64_t clean_steps, n_skipped;
    dt_eval_point *history;
    int n_history;
    int64_t best_step; // -1: none
    double best_value;
} dt_run_state;

void dt_run_state_init(dt_run_state *s);
void dt_run_state_fini(dt_run_state *s);
void dt_run_state_add_eval(dt_run_state *s, int64_t step, double value);
void dt_run_state_build(const dt_run_state *s, dt_json *j); // resets j
// DT_E_CKPT naming `where` and the member that is missing or wrong.
dt_status dt_run_state_parse(dt_run_state *s, const char *where, const char *text);
// Reads the record of the checkpoint in `folder`, which is of `step`. *text is the file; heap.
dt_status dt_run_state_read(dt_run_state *s, const char *folder, int64_t step, char **text);
dt_status dt_run_state_check(const char *folder,
                             int64_t step); // whether it can be read: dt_ckpt_opts.usable
// The part of a backend's description that a run's bits depend on: not the number of threads, not which device a
// rank has. Heap.
char *dt_run_state_environment(const char *described);
// Whether a backend of this description gives the bits of the run in s; if not, its engines mean nothing.
bool dt_run_state_same_environment(const dt_run_state *s, const char *described);

// ---- class names --------------------------------------------------------------------------------------------------

// Which number each class has belongs to the run: the network's outputs are in that order. It is kept as
// JSON, a member for each class field, in state.json and in the metadata of model.safetensors:
//
//   {"label": ["cat", "dog"], "camera": 3}     3: the values of the data are the numbers 0, 1, 2
//
// Every later data set is opened with it (dt_data_open_as), so its classes get these numbers, whichever of them it has.

// The names of the classes of all class fields as JSON; heap. "{}" where there is no class field.
char *dt_class_names_text(const dt_field_info *fields, int n_fields);

// Warns where weights that were trained with the classes `theirs` meet as many classes of other names: their outputs
// mean something else here. `from`: what they come from. Members that are not in both are no matter.
void dt_class_names_compare(const char *theirs, const char *ours, const char *from);

// Whether train.teacher, whose classes are `theirs`, numbers the same classes of a field as we do: DT_E_USAGE if not.
dt_status dt_class_names_check(const char *theirs, const char *ours, const char *field);

#endif
