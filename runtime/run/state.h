// state.h: all tensors that survive a step, as slices with names: weights, statistics of batch norms, their averages
// (train.ema), moments of the optimizer. The third of three rooms (run.h). Whoever saves, resumes, averages, imports,
// exports or compares ranks asks here. In the flat buffers themselves work the step and its commit, and observe.c and
// memory_report.c measure there. The cursor and the loss scaler are numbers of the run's record (run_state.h), which a
// checkpoint has beside the slices.
//
// The memory is that of dt_params (exec/params.h), laid out when networks were made. On a device a slice's `data` are a
// copy on the host, brought up to date where it is read; whatever changes slices here updates the device and the packed
// copies of kernels as well.
//
// With train.shard each rank has of moments and averages, and in bf16 of weights, the chunks that it updates (dt_params.own),
// and the host has no whole slice of them. A checkpoint has whole ones all the same: rank 0 saves and loads, and the chunks go to it and come
// from it, a MiB at a time.
//
// Functions that read or change data want the stepper drained. Collective where they say so.
#ifndef DT_TRAIN_STATE_H
#define DT_TRAIN_STATE_H

#include "run/nets.h"

typedef enum dt_role {
    DT_ROLE_WEIGHT,
    DT_ROLE_FIXED,             // weights that are never trained, where ranks have parts of the others
    DT_ROLE_STATISTIC,         // of batch norms
    DT_ROLE_AVERAGE,           // of a weight
    DT_ROLE_AVERAGE_STATISTIC, // of a statistic
    DT_ROLE_MOMENT
} dt_role;

typedef struct dt_state_slice {
    dt_ckpt_tensor tensor; // its name and file in a checkpoint, shape, data on the host; NULL: ranks have chunks of it
    dt_role role;
    int flat; // where it lies: number of the flat buffer, and element
    int64_t offset;
} dt_state_slice;

typedef struct dt_state {
    dt_open_run *run;
    dt_nets *nets;
    dt_state_slice *slices; // those of the model first: what evaluates and what model.safetensors has
    int n_slices, n_model;
    struct dt_state_flat *flats; // internal: the buffers in which they lie
    int n_flats, n_model_flats;
    int64_t *owners; // with train.shard: the rank that owns each chunk of the trained parameters; else NULL
} dt_state;

// Takes the memory of parameters and plans. Rank 0 first: its failure is that of all ranks. Collective. run and nets
// are borrowed.
dt_status dt_state_create(dt_state **out, dt_open_run *run, dt_nets *nets);
void dt_state_destroy(dt_state *s);
// Whether model.init or an encoder's init names a file of weights.
bool dt_state_has_file(const dt_config *c);
// First weights: from the seed, or from these files (read by rank 0). Collective.
dt_status dt_state_init(dt_state *s);
// The slices of the model, or all, from a checkpoint's folder that rank 0 reads. Collective.
dt_status dt_state_load(dt_state *s, const char *folder, bool all);
// The weights of train.teacher, which lie behind ours and are in no checkpoint; after init or load. *hash: of them, 0
// without a teacher. Collective.
dt_status dt_state_load_teacher(dt_state *s, uint64_t *hash);
// Whether all ranks still hold the same (run.verify_every). Every rank commits the same step on the same bits, so slices
// that every rank has are equal; a broken memory, CPU or GPU breaks that without a sound. Each rank hashes its slices,
// one small all-reduce tells whether the hashes differ, and only then they are exchanged. DT_E_INTERNAL on all ranks
// (agree.h), naming the first slice that differs and the rank that is alone with it. Collective. The failpoint "flip"
// flips a bit of this rank's first slice.
dt_status dt_state_compare_ranks(dt_state *s);
// Rank 0 begins the checkpoint of the run's record and all slices (dt_ckpt_save_begin); the others, whose ckpt is NULL,
// give it what they own. Collective with train.shard; otherwise the others have nothing to do.
dt_status dt_state_save(dt_state *s, dt_ckpt *ckpt, bool best);
// Exchanges weights and statistics with their averages, for an evaluation and back. Without train.ema nothing happens.
// Collective.
dt_status dt_state_swap_average(dt_state *s);
// Pulls the slices from the device; returns the name of the first that is not finite (borrowed). Collective.
const char *dt_state_find_bad(dt_state *s);
// The slices of the model, or all, as checkpoints take and give them; slice by slice of `slices`. The list is the caller's to free; names and data
// are borrowed.
dt_ckpt_tensor *dt_state_view(const dt_state *s, bool all, int *n);

#endif
