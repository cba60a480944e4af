// params.h: the parameters of a model, in flat buffers, and their packed copies.
//
// One offset table serves master weights, gradients and moments: entry i owns elements
// [offset, offset + count) of each, dense, in the order in which backward finishes (graph->grads),
// so that a bucket of the all-reduce is a slice. Entry i + 1 starts dt_flat_extent(count)
// behind entry i; the gaps are zero and stay zero. Behind the trained elements of a gradient buffer lie the STAT
// values, and behind those of the master the parameters that are never trained:
//
//   master                          : [ p0 | p1 | … | pn | f0 | f1 | … ]
//   the optimizer's slots           : [ s0 | s1 | … | sn ]   (train.shard: of this rank's chunks)
//   gradient buffer k               : [ g0 | g1 | … | gn | stat0 | stat1 | … ]
//   buffers                         : [ b0 | b1 | … ]   (batch-norm running statistics)
//
// Where parameters are frozen for a while (train.groups), the layout is that of the graph that trains all of them, and
// a plan for each set of trained parameters runs on it. Gradients that a plan does not write keep their initial zeros.
//
// Plans refer to parameters by entry id; several plans (training, evaluation, other image sizes) share one
// dt_params. Packed copies are updated between steps, never within one. A commit updates the copies that a graph with
// gradients reads; on a device the optimizer writes most of these itself (dt_params_take_copies), without train.shard.
// The other copies, such as weights with a batch norm folded in, wait for the next evaluation, which begins with
// dt_params_repack.
//
// Owned masters (train.shard on GPUs in bf16; dt_params_own_masters): a rank has the f32 weights of its chunks alone.
// Kernels read `working`, bf16 in the layout of the trained weights, which the optimizer writes and ranks gather; packed
// copies in the same order lie there. What is read in f32, such as a batch norm's gain, is in `dense`:
//
//   master                          : of this rank's chunks, as the optimizer's slots
//   working                         : [ p0 | p1 | … | pn ]   in bf16
//   dense                           : [ those of p0 … pn that are read in f32 | f0 | f1 | … ]
//
// Copies of several parameters (an evaluation's) and the first values are made of all masters, which ranks gather in the
// first gradient buffer: between steps nothing else is there.
//
// All flat buffers are one allocation, and the packed copies of the plans made before it are another. On a device both
// are device memory, which the host reaches through the backend's copies only.
//
// Ownership: backend and graphs borrowed. Threads: read-only in a step except gradient buffers;
// commit and repack from one thread (or a team dividing chunks) while no exec runs.
#ifndef DT_EXEC_PARAMS_H
#define DT_EXEC_PARAMS_H

#include "backend/flat_buffer.h"

// A slot of the optimizer's state of one parameter.
typedef struct dt_slot_entry {
    dt_shape shape; // n < 0: it has none
    int64_t offset; // in the flat buffer of the slot
} dt_slot_entry;

typedef struct dt_param_entry {
    const char *name;
    dt_shape shape;
    int64_t offset, count;             // elements in its flat buffer
    dt_slot_entry slots[DT_MAX_SLOTS]; // where the parameter is trained
    bool decay;
    dt_init init;
    const float *data; // of DT_INIT_DATA, borrowed from the graph; NULL: zeros
    // For the caller to change before the first step: factors of the optimizer's rate and decay, and the step from
    // which the parameter is trained.
    float lr_scale, decay_scale;
    int64_t thaw;
    bool dense;       // some kernel reads it in f32, or packs it into another type than bf16 for a step
    bool expands;     // some copy of it for a step has another order
    int64_t dense_at; // dense, or never trained: its place in dt_params.dense
} dt_param_entry;

// Elements [begin, end) of the flat buffers that this rank updates, whole chunks (DT_CHUNK) where they do not end with
// the trained ones. Their moments and averages begin at element `at` of this rank's.
typedef struct dt_own_range {
    int64_t begin, end, at;
} dt_own_range;

typedef struct dt_stat_entry {
    const char *name;
    int64_t offset, count; // in a gradient buffer
} dt_stat_entry;

typedef struct dt_params {
    dt_backend *backend;
    dt_param_entry *entries; // in flat buffer order: the trained ones come first
    int n_entries, n_trained_entries;
    dt_param_entry *buffers;
    int n_buffers;
    int n_teacher_entries,
        n_teacher_buffers; // of a teacher, behind the n_entries and n_buffers of the network
    dt_stat_entry *stats;
    int n_stats;
    int64_t n_owned;   // elements of this rank's ranges: of the slots, average and master that ranks divide
    int64_t n_average; // elements of average: 0, n_master or, sharded, those that this rank owns
    int64_t n_master;  // elements of master (padded)
    int64_t n_trained; // elements of trained parameters, and so of the moments
    int64_t n_grad;    // elements of a gradient buffer (trained + stats, padded)
    int64_t n_buffer;  // elements of the buffer flat buffer
    float *master, *buffer;
    float *slots[DT_MAX_SLOTS];      // the optimizer's state
    int64_t n_slot[DT_MAX_SLOTS];    // elements of each (padded)
    float *average, *buffer_average; // of master and buffer (dt_params_add_average); NULL: none
    dt_own_range *own;               // ascending
    int n_own;
    bool sharded;     // there are other ranks that own the rest: slots and average have this rank's elements alone
    bool own_masters; // master, too
    uint16_t *working;
    float *dense, *own_dense; // own_dense: of the trained ones what this rank owns, else -0, so that ranks can add it
    int64_t n_dense;          // trained elements of dense
    // Owned masters: sends what every rank owns of x (n_trained) to all, on a device behind its stream, and waits for it.
    dt_status (*gather)(void *ctx, float *x, int64_t n);
    void *gather_ctx;
    float **grads; // gradient buffers
    int n_grads, n_slots;
    dt_flat_buffer *work; // activations and scratch, one for each replica: all plans share them
    size_t work_bytes;    // of each, by the largest plan
    int n_work;
    dt_flat_buffer flat;           // holds all buffers above
    bool taken;                    // `flat` has memory
    struct dt_params_packs *packs; // internal
    dt_arena arena;
} dt_params;

// From the differentiated training graph (or an inference graph: then no gradients or slots).
// n_slots: of the optimizer (dt_optimizer); n_grad_buffers: how many gradient buffers. own_masters: no master,
// dt_params_own_masters will add it. DT_E_USAGE where the flat buffers alone do not fit a device.
//
// lay_out takes no memory: plans can be made of it, and the sizes of all be known (dt_params_packed_bytes,
// dt_plan_report) before anything is taken. take then gives memory to the flat buffers and to the packed copies of all
// plans. create is both.
dt_status dt_params_lay_out(dt_params **out, const dt_graph *g, dt_backend *b, int n_slots, int n_grad_buffers,
                            bool own_masters);
dt_status dt_params_take(dt_params *p);
// A plan needs n_bytes of activations and scratch for each of n_replicas. Networks run one after another (a step, then an
// evaluation), so one buffer a replica serves all of them.
void dt_params_plan_work(dt_params *p, size_t n_bytes, int n_replicas);
// The buffer of a replica, which its first caller allocates; NULL where a later plan needs more than it has. Borrowed.
dt_status dt_params_take_work(dt_params *p, size_t n_bytes, int replica, char **out);
// Between lay_out (with n_slots 0) and take, before add_average: slots for the ranges that this rank owns, which are
// copied; `at` is filled in.
void dt_params_add_sharded(dt_params *p, int n_slots, const dt_own_range *own, int n_own);
// Of sharded parameters, when all plans are made: masters of what this rank owns, and what kernels read instead.
void dt_params_own_masters(dt_params *p, dt_status (*gather)(void *ctx, float *x, int64_t n), void *ctx);
// Bytes of the masters and of what kernels read of them, if n_ranks own them; *packed: of the copies besides.
size_t dt_params_owned_bytes(const dt_params *p, int n_ranks, size_t *packed);
// A plan reads the parameter at this offset in f32.
void dt_params_read_dense(dt_params *p, int64_t offset);
// Where kernels read the parameter at this offset in f32; NULL: they read `working`.
float *dt_params_dense(const dt_params *p, int64_t offset);
// Owned masters, behind the optimizer, which has written what this rank owns of `working` and own_dense: ranks gather
// `working`, and add own_dense in `dense`, where queue_dense copies it; then queue_expand makes f32 of what is packed in
// another order, in the gradient's place.
void dt_params_queue_dense(dt_params *p, void *stream);
void dt_params_queue_expand(dt_params *p, void *stream);
// Between lay_out and take: flat buffers for averages of the weights and buffers (train.ema).
void dt_params_add_average(dt_params *p);
// Between lay_out (with n_slots 0) and take: the two slots of a factored optimizer.
void dt_params_add_factored(dt_params *p);
dt_status dt_params_create(dt_params **out, const dt_graph *g, dt_backend *b, int n_slots, int n_grad_buffers);
void dt_params_destroy(dt_params *p);
// Initial values from seed and names alone (Philox), into fresh memory.
void dt_params_init(dt_params *p, uint64_t seed);
// Entry id of a PARAM (buffer = false) or BUFFER by name, or -1.
int dt_params_find(const dt_params *p, const char *name, bool buffer);
int dt_params_find_stat(const dt_params *p, const char *name);
// Registers (or finds) a packed copy; returns its id. Called while a plan is made, which ends with place_packs: it
// gives memory to new copies if the parameters have memory.
dt_status dt_params_register_pack(dt_params *p, const dt_graph *g, const dt_pack_request *r, int *id);
dt_status dt_params_place_packs(dt_params *p);
void *dt_params_packed(const dt_params *p, int id);
// Brings all packed copies up to date with master and buffers. On a device: waits until they are. Collective with owned
// masters.
void dt_params_repack(dt_params *p);
// Brings the packed copies that a graph with gradients reads up to date. Collective with owned masters.
void dt_params_repack_step(dt_params *p);
// After a commit, queued on a stream of the device: the copies that training reads and the optimizer did not write.
void dt_params_repack_queue(dt_params *p, void *stream);
// The packed copies that a device's optimizer can write, one a parameter; from now on dt_params_repack_queue
// leaves these copies to the optimizer. Heap, caller frees.
dt_commit_copy *dt_params_take_copies(dt_params *p, int *n);
// After a commit on the CPU: share `part` of n_parts of the copies that training reads, on the calling thread.
void dt_params_repack_part(dt_params *p, int part, int n_parts);
// Segments of the optimizer at a step: adjacent entries that are updated alike are merged; with `norms` (dt_optimizer)
// each entry that dt_optimizer_scales is a scaled segment of its own. Heap, caller frees.
dt_segment *dt_params_segments(const dt_params *p, int64_t step, float weight_decay, bool norms, bool always, int *n);
// The tensors of a factored optimizer at a step, heap; *n_sums: how many column_sums they need.
dt_factored *dt_params_factored(const dt_params *p, int64_t step, int *n, int64_t *n_sums);
// The rows of the trained tensors (dt_optimizer_args.tensors). Heap, caller frees.
dt_clip_tensor *dt_params_clip_tensors(const dt_params *p, int *n);
// From this step on a commit updates the packed copies of the parameters that are trained then, and no others.
void dt_params_begin(dt_params *p, int64_t step);
size_t dt_params_packed_bytes(const dt_params *p);

#endif
