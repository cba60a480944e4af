// ckpt_internal.h: what the files of runtime/ckpt share. Not for others.
#ifndef DT_CKPT_CKPT_INTERNAL_H
#define DT_CKPT_CKPT_INTERNAL_H

#include "base/hash.h"
#include "base/json.h"
#include "ckpt.h"

#include <pthread.h>

// ---- writing one file (ckpt.c) ----------------------------------------------------------------
// Collects small writes into large ones and hashes everything. After an error the file is only closed.
typedef struct dt_ckpt_writer {
    int fd;
    const char *path; // borrowed
    char *stage;
    size_t n_staged;
    uint64_t n_bytes; // put so far
    dt_hash_stream *hash;
} dt_ckpt_writer;

dt_status dt_ckpt_writer_open(dt_ckpt_writer *w, const char *path); // replaces
dt_status dt_ckpt_writer_put(dt_ckpt_writer *w, const void *data, size_t n_bytes);
// Ends what open began. `st` is what the puts returned: after an error the file is only closed. Otherwise
// writes what is staged, fsyncs and closes; *hash is XXH3-64 of the whole file.
dt_status dt_ckpt_writer_finish(dt_ckpt_writer *w, dt_status st, uint64_t *hash);

// ---- manifest (ckpt_manifest.c) --------------------------------------------------------------------
typedef struct dt_ckpt_range {
    char *name; // of the tensor
    uint64_t offset, n_bytes, hash;
} dt_ckpt_range;

typedef struct dt_ckpt_file {
    char *name; // plain file name inside the checkpoint
    uint64_t n_bytes, hash;
    dt_ckpt_range *ranges;
    int n_ranges;
} dt_ckpt_file;

typedef struct dt_ckpt_manifest {
    int64_t step;
    bool best; // was the best one when it was saved
    dt_ckpt_file *files;
    int n_files;
} dt_ckpt_manifest;

void dt_ckpt_manifest_fini(dt_ckpt_manifest *m);
dt_ckpt_file *dt_ckpt_manifest_add(dt_ckpt_manifest *m, const char *name);
const dt_ckpt_file *dt_ckpt_manifest_find(const dt_ckpt_manifest *m, const char *name);
void dt_ckpt_manifest_print(const dt_ckpt_manifest *m, dt_json *out); // text of manifest.json
// From memory; `where` stands for the file in messages. DT_E_CKPT.
dt_status dt_ckpt_manifest_parse(dt_ckpt_manifest *m, const char *text, size_t n_bytes, const char *where);
enum { DT_CKPT_STATE_BYTES = 256 << 20 }; // that a state.json has at most
// A small file of a checkpoint, or object of a mirror: as dt_io_read_own. DT_E_CKPT.
dt_status dt_ckpt_read_text(char **text, size_t *n_bytes, const char *path, size_t max_bytes);
// What follows takes a checkpoint's directory, or its URL in a mirror.
// Reads `path`/manifest.json and checks that its step is the directory's. DT_E_CKPT.
dt_status dt_ckpt_manifest_read(dt_ckpt_manifest *m, const char *path);

typedef enum dt_ckpt_depth {
    DT_CKPT_SIZES,     // every file exists and has its size
    DT_CKPT_HASHES,    // and its hash, and tensors are finite
    DT_CKPT_FROM_DISK, // the same, after dropping cached pages
} dt_ckpt_depth;
// One file of the checkpoint in `dir`. DT_E_CKPT.
dt_status dt_ckpt_verify_file(const char *dir, const dt_ckpt_file *f, dt_ckpt_depth depth);
// Reads and verifies. After an error a missing `path` means that the checkpoint was removed, which is no damage:
// removing one renames it first. Always ends with dt_ckpt_manifest_fini.
dt_status dt_ckpt_read_verified(dt_ckpt_manifest *m, const char *path, dt_ckpt_depth depth);
// The same. *best (may be NULL) becomes true if the manifest can be read and has the flag.
dt_status dt_ckpt_verify(const char *path, dt_ckpt_depth depth, bool *best);

// ---- names and the best one (ckpt.c) -----------------------------------------------------------
char *dt_ckpt_step_path(const char *dir, int64_t step); // DIR/step-00000123, heap
// An error with `code` where `path`, a folder inside a run, is a symbolic link. The run's own folder may be one.
dt_status dt_ckpt_not_a_link(const char *path, dt_status code);
// Steps in `dir`, which may be a mirror's, ascending, heap; a missing directory has none.
dt_status dt_ckpt_steps(const char *dir, int64_t **steps, int *n);
int64_t *dt_ckpt_steps_of_names(char *const *names, size_t n_names, int *n); // ascending, heap
// dt_ckpt_verify, and that it is usable.
dt_status dt_ckpt_check(const dt_ckpt *c, const char *path, int64_t step, dt_ckpt_depth depth);
// The best step: the newest intact one that best.json names or a manifest flags; -1 if none. DT_E_STORAGE: a file cannot
// be read now, or a mirror does not respond. say: one line for each that was the best and is damaged or gone.
dt_status dt_ckpt_best_step(const char *dir, const int64_t *steps, int n, dt_ckpt_depth depth, dt_ckpt_usable *usable,
                            bool say, int64_t *best);
dt_status dt_ckpt_best_write(const char *dir, int64_t step);

// ---- the mirror (ckpt_mirror.c) --------------------------------------------------------------------
dt_status dt_ckpt_mirror_steps(const char *dir, int64_t **steps, int *n); // as dt_ckpt_steps
// By the writer: c->step is saved. written: anew. Waits for the upload where the caller requested it.
dt_status dt_ckpt_mirror_saved(dt_ckpt *c, bool written);
bool dt_ckpt_mirror_sends(const dt_ckpt *c, int64_t step); // and so it must not be removed
void dt_ckpt_mirror_close(dt_ckpt *c);                     // gives an upload up

// ---- saving (ckpt_save.c) --------------------------------------------------------------------------
// The temporary directory becomes the checkpoint of `step`, in the place of another one of that step; st is how it was
// made: after an error it is removed. Returns the first error.
dt_status dt_ckpt_put_in_place(dt_ckpt *c, int64_t step, const char *temp, dt_status st);
void dt_ckpt_prune(dt_ckpt *c); // once more: what a mirror held back

// The looks of checkpoints that the last pruning found intact, heap: the next one does not read these again.
typedef struct dt_ckpt_known {
    uint64_t *looks;
    int n;
} dt_ckpt_known;
bool dt_ckpt_is_known(const dt_ckpt_known *k, uint64_t look);
uint64_t dt_ckpt_look(const char *path); // of a folder's path, and names, sizes and times of its files

// ---- safetensors -----------------------------------------------------------------------------------
// From memory that outlives the object; `where` stands for the file in messages.
dt_status dt_safetensors_open_memory(dt_safetensors **out, const void *data, size_t n_bytes, const char *where);
// From a file; `where` (NULL: path) stands for it in messages and outlives the object.
dt_status dt_safetensors_open_named(dt_safetensors **out, const char *path, const char *where);

// The order and header of a file of f32 tensors; depends on names and shapes only.
typedef struct dt_safetensors_layout {
    char *head; // length, JSON, padding
    size_t head_bytes;
    const dt_ckpt_tensor **sorted; // by name, into the array given to build
    int n;
} dt_safetensors_layout;
// Of the tensors whose `file` is `file` (NULL: all).
dt_status dt_safetensors_layout_build(dt_safetensors_layout *l, const dt_ckpt_tensor *tensors, int n_tensors,
                                      const char *file, const char *const *metadata);
void dt_safetensors_layout_fini(dt_safetensors_layout *l);
// Writes and fsyncs; fills size, hash and ranges of `file` when it is not NULL.
dt_status dt_safetensors_layout_write(const dt_safetensors_layout *l, const char *path, dt_ckpt_file *file);

// ---- the object ------------------------------------------------------------------------------------
typedef struct dt_ckpt_part { // one safetensors file of this run's checkpoints
    char *name;               // "model.safetensors"
    dt_safetensors_layout layout;
} dt_ckpt_part;

struct dt_ckpt {
    char *dir, *beside;
    dt_ckpt_usable *usable;
    int keep;
    bool async, read_only;
    char *lock_path;
    int lock_fd;

    // snapshot: the tensors are the same every time, so buffers, headers and order are made once
    dt_ckpt_tensor *tensors; // own names; data points into flat buffer (async) or at the caller's (sync)
    int n_tensors;
    float *flat;
    dt_ckpt_part *parts;
    int n_parts;

    // the current or last save; the writer owns these while `busy`
    int64_t step;
    // Its checkpoint is written anew: the directory's fsync failed behind the rename, or it lacks something; -1: none.
    int64_t unsure_step;
    int64_t best_step; // intact when it was last looked at: never removed; -1: none
    dt_ckpt_known intact;
    bool no_space; // why the last save failed
    char *state_json, *classes;
    bool best;
    double begin_s;
    struct dt_ckpt_mirror *mirror; // NULL: none

    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t mutex; // guards what follows
    pthread_cond_t changed;
    bool busy, quit, unreported;
    dt_status status;
    char error[1024];
    double seconds;
    void (*on_saved)(void *ctx, int64_t step, double seconds, bool saved);
    void *saved_ctx;
};

void dt_ckpt_snapshot_free(dt_ckpt *c);
void dt_ckpt_writer_stop(dt_ckpt *c); // waits for a running save and ends the thread

#endif
