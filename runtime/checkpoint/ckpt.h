// ckpt.h: checkpoints that survive anything. Why they are as they are:
// docs/explanation/checkpoints.md. The files: docs/reference/checkpoint-files.md.
//
// A checkpoint is a directory RUN/checkpoints/step-00000123/ with
//   model.safetensors      parameters and buffers, names as torchvision/timm; metadata: the names of
//                          the classes, but neither time, host nor world size: equal training gives
//                          equal bytes
//   raw.safetensors        with train.ema: the trained weights; model.safetensors is their average
//   optimizer.safetensors  moments ("moment1.<name>", "moment2.<name>")
//   state.json             cursor, schedule and evaluation history, scaler, resolved choices,
//                          environment fingerprint, offset of metrics.jsonl
//   manifest.json          version, step, files with sizes and XXH3 of each; written last
// A save writes and fsyncs each file in a temporary directory ".tmp-step-…", then the manifest, then fsyncs the
// directory, renames it (renameat2, NOREPLACE) and fsyncs the parent. Only then is it acknowledged. Failed
// writes remove the temporary; leftover temporaries are removed at start. Once the new checkpoint is verified,
// older ones beyond `keep` are removed, except the best. After a save that lacked space they are removed before the
// next one, but never the last that is intact.
//
// dt_ckpt_save_begin copies the flat buffers into a snapshot (allocated once) and returns. A writer thread does
// the rest, and dt_ckpt_save_wait waits for it. One save at a time.
#ifndef DT_CKPT_CKPT_H
#define DT_CKPT_CKPT_H

#include "base/core.h"

#include <stdio.h>

struct dt_graph;

// One named tensor as the checkpoint sees it: dense f32 memory.
typedef struct dt_ckpt_tensor {
    const char *name; // in its file
    const char *file; // "model", "raw" or "optimizer"
    dt_shape shape;
    float *data; // save: read from here, NULL: dt_ckpt_save_room; load: written here
} dt_ckpt_tensor;

typedef struct dt_ckpt dt_ckpt; // the checkpoints of one run directory

// Whether the checkpoint at `path`, whose hashes are right, is one that its reader can use.
typedef dt_status dt_ckpt_usable(const char *path, int64_t step);

typedef struct dt_ckpt_opts {
    const char *dir; // RUN/checkpoints, created
    int keep;
    bool async;
    const char *beside;     // a file whose length state.json names: flushed before a manifest; NULL: none
    dt_ckpt_usable *usable; // others count as damaged; NULL: all are
} dt_ckpt_opts;

// Takes the run lock (an OFD lock on RUN/lock) and removes leftover temporaries; read_only: does neither.
// DT_E_STORAGE naming the holder if the lock is taken.
dt_status dt_ckpt_open(dt_ckpt **out, const dt_ckpt_opts *opts, bool read_only);
void dt_ckpt_close(dt_ckpt *c); // waits for a running save
// Whether a process holds the lock of the run in this directory.
bool dt_ckpt_is_held(const char *run);
// DT_E_STORAGE if RUN/lock is no longer the file that was locked: the folder was removed or replaced, and another
// process may work there. Then no save is begun either.
dt_status dt_ckpt_check_lock(const dt_ckpt *c);

// The classes in model.safetensors' metadata (run/run_state.h). Before the first save.
void dt_ckpt_set_classes(dt_ckpt *c, const char *json);

// Called with the outcome of each save, by the thread that wrote; seconds: since its begin. It must not call back.
// NULL: fn is not called any more, and no call of it is under way when this returns.
void dt_ckpt_on_saved(dt_ckpt *c, void (*fn)(void *ctx, int64_t step, double seconds, bool saved), void *ctx);
// Before dt_ckpt_save_begin of the same tensors: the snapshot's list, where those without data have memory for the
// caller to fill. Waits for a running save. Borrowed.
dt_status dt_ckpt_save_room(dt_ckpt *c, const dt_ckpt_tensor *tensors, int n_tensors, const dt_ckpt_tensor **room);
// Takes the snapshot and starts writing. state_json: text of state.json. best: it becomes the best checkpoint.
// dt_ckpt_save_wait, not this, reports an earlier save that failed in the background.
dt_status dt_ckpt_save_begin(dt_ckpt *c, int64_t step, const dt_ckpt_tensor *tensors, int n_tensors,
                             const char *state_json, bool best);
// The next save of this step replaces the checkpoint that it has, instead of leaving one that is intact as it is. No save
// may be running.
void dt_ckpt_save_anew(dt_ckpt *c, int64_t step);
// Waits. DT_OK if the last save is acknowledged, or none was begun. seconds may be NULL.
dt_status dt_ckpt_save_wait(dt_ckpt *c, double *seconds);
// After dt_ckpt_save_wait: writes the snapshot of a save that failed once more, and waits. Without `async`
// dt_ckpt_save_begin has done so already.
dt_status dt_ckpt_save_again(dt_ckpt *c);
// The step of the best checkpoint that is on disk and intact; -1: none. One line for each that was the best and is
// damaged or gone. DT_E_STORAGE: the files cannot be read now; the best is then what it was. No save may be running.
dt_status dt_ckpt_best(dt_ckpt *c, int64_t *step);

// which: "latest", "best" or a step number; NULL: the best, or the latest where none is. Verifies hashes and `usable`. "latest" and "best" fall back to older checkpoints,
// with one line each saying why; without any checkpoint "latest" returns DT_OK and *step = -1. DT_E_CKPT if none
// loads.
dt_status dt_ckpt_find(dt_ckpt *c, const char *which, int64_t *step, char **path);
// The same of RUN/checkpoints, without opening it; that there is no checkpoint is an error.
dt_status dt_ckpt_find_in_run(const char *run, const char *which, int64_t *step, char **path);
// Fills tensors by name. All must be found, in their shapes. *state_json is on the heap; the caller frees it.
dt_status dt_ckpt_load(const char *path, dt_ckpt_tensor *tensors, int n_tensors, char **state_json);
// The same, but calls take, once, with the values of each tensor, mapped from the files.
typedef dt_status dt_ckpt_take(void *ctx, const float *const *values);
dt_status dt_ckpt_load_with(const char *path, const dt_ckpt_tensor *tensors, int n_tensors, dt_ckpt_take *take,
                            void *ctx);

// ---- a mirror in a bucket --------------------------------------------------------------------------------
// URL/ in a bucket (s3://BUCKET/KEY) is as RUN/ on the disk: checkpoints/step-N/…, and the files of the run. `lock` there
// names the process that writes to it, which is the last that began to. A step-N without manifest.json is none: it is
// being sent or removed. Errors of the server are DT_E_STORAGE.
typedef struct dt_ckpt_from {
    const char *url;
    int64_t only; // this step; < 0: the newest that is whole, and the best
    int64_t here; // the newest step that is here and intact: older ones are not fetched; < 0: none
    // Whether the checkpoint in `folder`, of which only state.json may be there yet, is of this run; NULL: it is.
    dt_status (*belongs)(void *ctx, const char *folder, int64_t step);
    void *ctx;
} dt_ckpt_from;
// Fetches what is newer than what is here, and then the files of the run, which replace those here; and the best checkpoint
// where none is here. RUN is locked by c.
// *step: what was fetched; -1: nothing was newer. `belongs` checks the newest intact checkpoint also where
// nothing is fetched. DT_E_CKPT: no checkpoint there loads, and none is here.
dt_status dt_ckpt_fetch(dt_ckpt *c, const dt_ckpt_from *from, int64_t *step);
// From now on the mirror follows: after each save a thread sends what it lacks of the newest and the best checkpoint
// and of the run's files, and removes there what dt_ckpt_opts.keep does not keep. Where the network is slower than
// the saves, those between are left out. What fails is a warning, and is sent with the next save. wait: the save
// itself sends, and is not acknowledged before; what fails then is a save that failed. newest: the step that is here
// already; < 0: none.
dt_status dt_ckpt_mirror_begin(dt_ckpt *c, const char *url, bool wait, int64_t newest);
// Sends what is left, as the files of the run at its end, and waits. What fails is a warning. Does nothing without a mirror.
void dt_ckpt_mirror_end(dt_ckpt *c);
double dt_ckpt_mirror_seconds(const dt_ckpt *c); // what sending the last new checkpoint took; 0: none was

// ---- weights of another run or program ------------------------------------------------------------------
typedef struct dt_ckpt_import_opts {
    const char *key;   // for messages: "model.encoders.iris.init"
    const char *scope; // "iris." of this encoder, whose tensors' names come without it; NULL: both are model.init's
    const char *const *keep; // tensors or modules that keep their values (model.init_keep)
    int n_keep;
    const char *const *heads; // modules that give the network's outputs
    int n_heads;
    bool renew_heads;             // heads keep their values where the file has none, or of another shape
    const char *prefix;           // of the file's names, "teacher."; NULL: where most tensors are found
    const struct dt_graph *graph; // whose tensors they are, which knows timm's names; NULL: no other names
    uint64_t max_bytes;           // of an object by URL
    int grid[2];                  // rows and columns of patches, to which position embeddings are resized
    char **classes;               // if a head is taken: its classes by the file; heap, or NULL
} dt_ckpt_import_opts;
// Fills tensors by name from `path`: a safetensors file, PyTorch's .pth or .pt, the URL of one of these, or a run:
// RUN (its best checkpoint, or the latest where none is), RUN@latest, RUN@STEP. Names are torchvision's or timm's. All
// tensors must be there, in their shapes, except as `o` says: otherwise DT_E_CKPT names what is not, and nothing
// changes. DT_E_USAGE if the model has nothing of a name to keep. Logs what was taken, kept, resized and left out;
// *n_taken is how many were taken.
dt_status dt_ckpt_import(const char *path, const dt_ckpt_import_opts *o, dt_ckpt_tensor *tensors, int n_tensors,
                         int *n_taken);
// Bicubic with antialiasing, as timm resizes position embeddings: `from` (from_h,from_w,dim) to (to_h,to_w,dim).
void dt_ckpt_resize_positions(float *to, int to_h, int to_w, const float *from, int from_h, int from_w, int dim);

// ---- for `dtrain ckpt` ---------------------------------------------------------------------------
typedef struct dt_ckpt_info {
    int64_t step;
    char path[4096];
    uint64_t n_bytes;
    bool best, valid;
    char why[512]; // when not valid
} dt_ckpt_info;
// Whether `name` is a step's directory name, such as step-00000123.
bool dt_ckpt_step_of_name(const char *name, int64_t *step);
dt_status dt_ckpt_list(const char *dir, bool verify, dt_ckpt_info **infos, int *n); // oldest first
dt_status dt_ckpt_show(const char *path, bool json, FILE *out);
// Prints the tensors that differ, with their largest absolute difference. *differ: whether any does.
dt_status dt_ckpt_diff(const char *a, const char *b, FILE *out, bool *differ);

// ---- safetensors, also for import and export -------------------------------------------------------
typedef struct dt_safetensors dt_safetensors; // an opened, validated file (mapped read-only)
dt_status dt_safetensors_open(dt_safetensors **out, const char *path);
void dt_safetensors_close(dt_safetensors *s);
int dt_safetensors_count(const dt_safetensors *s);
const char *dt_safetensors_name(const dt_safetensors *s, int i);
dt_dtype dt_safetensors_dtype(const dt_safetensors *s, int i);
const char *dt_safetensors_type(const dt_safetensors *s, int i); // by the file: "F32"
void dt_safetensors_shape(const dt_safetensors *s, int i, dt_shape *out);
const void *dt_safetensors_data(const dt_safetensors *s, int i, size_t *n_bytes); // mapped
const char *dt_safetensors_metadata(const dt_safetensors *s, const char *key);    // or NULL
int dt_safetensors_find(const dt_safetensors *s, const char *name);               // or -1
// Writes the tensors, sorted by name. metadata: names and values in turn, ended by NULL, or NULL.
dt_status dt_safetensors_write(const char *path, const dt_ckpt_tensor *tensors, int n_tensors,
                               const char *const *metadata);

#endif
