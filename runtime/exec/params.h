// params.h: the parameters of a model, in flat slabs, and their packed copies.
//
// One offset table serves master weights, gradients and moments: entry i owns elements
// [offset, offset + count) of each, dense, in the order in which backward finishes (graph->grads),
// so that a bucket of the all-reduce is a slice. Each entry starts at a multiple of 16 elements;
// the gaps are zero and stay zero. Behind the trained elements of a gradient slab lie the STAT
// values:
//
//   master, the optimizer's slots : [ p0 | p1 | … | pn ]
//   gradient slab k               : [ g0 | g1 | … | gn | stat0 | stat1 | … ]
//   buffers                       : [ b0 | b1 | … ]   (batch-norm running statistics)
//
// Plans refer to parameters by entry id. Several plans (training, evaluation, other image sizes)
// share one dt_params; it takes the entries by name. Packed copies are brought up to date between steps,
// never in one. Behind a commit that is those which a graph with gradients reads, a device's optimizer
// writing most of them itself (dt_params_take_copies); the others, such as weights with a batch norm
// folded in, wait for the next evaluation, which begins with dt_params_repack.
//
// All of these lie in one allocation, and the packed copies of the plans that were made before it in another. On a device they are its
// memory: the host reads and writes them through the backend's copies only.
//
// Ownership: backend and graphs borrowed. Threads: read-only in a step except gradient slabs;
// commit and repack from one thread (or a team dividing chunks) while no exec runs.
#ifndef DT_EXEC_PARAMS_H
#define DT_EXEC_PARAMS_H

#include "backend/slab.h"

typedef struct dt_param_entry {
    const char *name;
    dt_shape shape;
    int64_t offset, count; // elements in its slab
    bool decay;
    dt_init init;
} dt_param_entry;

typedef struct dt_stat_entry {
    const char *name;
    int64_t offset, count; // in a gradient slab
} dt_stat_entry;

typedef struct dt_params {
    dt_backend *backend;
    dt_param_entry *entries; // trained, in slab order
    int n_entries;
    dt_param_entry *buffers;
    int n_buffers;
    dt_stat_entry *stats;
    int n_stats;
    int64_t n_trained; // elements of master, moments (padded)
    int64_t n_grad;    // elements of a gradient slab (trained + stats, padded)
    int64_t n_buffer;  // elements of the buffer slab
    float *master, *buffer;
    float *slots[DT_MAX_SLOTS]; // the optimizer's state
    float **grads;              // gradient slabs
    int n_grads, n_slots;
    dt_slab slab;                  // where all of them lie
    bool taken;                    // it has memory
    struct dt_params_packs *packs; // internal
    dt_arena arena;
} dt_params;

// From the differentiated training graph (or an inference graph: then no gradients or slots).
// n_slots: of the optimizer (dt_optimizer); n_grad_slabs: how many gradient slabs. On a device DT_E_USAGE where they alone do not fit.
//
// lay_out takes no memory: plans can be made of it, and what all need together be known (dt_params_bytes,
// dt_plan_report) before anything is taken. take then gives memory to the slabs and to the packed copies of all
// plans. create is both.
dt_status dt_params_lay_out(dt_params **out, const dt_graph *g, dt_backend *b, int n_slots,
                            int n_grad_slabs);
dt_status dt_params_take(dt_params *p);
dt_status dt_params_create(dt_params **out, const dt_graph *g, dt_backend *b, int n_slots,
                           int n_grad_slabs);
void dt_params_destroy(dt_params *p);
// Initial values from seed and names alone (Philox); the optimizer's slots zero.
void dt_params_init(dt_params *p, uint64_t seed);
// Entry id of a PARAM (buffer = false) or BUFFER by name, or -1.
int dt_params_find(const dt_params *p, const char *name, bool buffer);
int dt_params_find_stat(const dt_params *p, const char *name);
// Registers (or finds) a packed copy; returns its id. Called when plans are made, and at the end of a plan
// place_packs, which gives memory to those that have none yet, where the slabs have theirs.
dt_status dt_params_register_pack(dt_params *p, const dt_graph *g, const dt_pack_request *r,
                                  int *id);
dt_status dt_params_place_packs(dt_params *p);
void *dt_params_packed(const dt_params *p, int id);
// Brings all packed copies up to date with master and buffers. On a device: waits until they are.
void dt_params_repack(dt_params *p, int threads);
// Behind a commit, queued on a stream of the device: those that training reads and the optimizer has not
// written.
void dt_params_repack_queue(dt_params *p, void *stream);
// The packed copies that a device's optimizer can write, one a parameter, as dt_commit_args wants them; from
// now on dt_params_repack_queue leaves them to it. Heap, caller frees.
dt_commit_copy *dt_params_take_copies(dt_params *p, int *n);
// Behind a commit on the CPU, so that a team can divide it (one thread each): the share `part` of n_parts of those
// that training reads.
void dt_params_repack_part(dt_params *p, int part, int n_parts);
// Segments of the optimizer: adjacent entries with the same decay merged; with `norms` (dt_optimizer) each
// entry that decays is one of its own, and scaled. Heap, caller frees.
dt_segment *dt_params_segments(const dt_params *p, float weight_decay, bool norms, int *n);
typedef struct dt_params_memory { // bytes
    size_t master, moments, gradients, buffers, packed;
} dt_params_memory;
dt_params_memory dt_params_bytes(const dt_params *p);

#endif
