// batch_inputs.h: which inputs of an exec's graph a batch fills, by name:
//
//   <field>       the field's samples, as the loader left them
//   <field>.mix   the plan by which the network mixes them (mixup, CutMix), five numbers a sample
//   <field>.steps random changes that the network does to them (batch/pixel_steps.h)
//   weight        the samples' weights: 0 for the tail of an evaluation and for skipped records
//
// Names are looked up once, where the exec is made; a batch then costs an index each. Training on the CPU,
// evaluation and the input buffers of a device use the same table, so an input that is added here
// comes to all of them. A graph need not have them all: evaluation mixes nothing, and some losses
// take no weights. An input that the batch has no memory for is NULL, which only a graph without it may get.
//
// Nothing is copied or owned: a bound exec reads the batch until the next is bound.
#ifndef DT_RUN_BATCH_INPUTS_H
#define DT_RUN_BATCH_INPUTS_H

#include "backend/flat_buffer.h"
#include "base/core.h"
#include "batch/batch_source.h"
#include "batch/targets.h"
#include "comm/bucket.h"
#include "exec/exec.h"

enum { DT_BATCH_INPUTS = 3 * DT_MAX_FIELDS + 1 }; // fields, their plans, their steps, weights

typedef struct dt_batch_inputs {
    int index[DT_BATCH_INPUTS]; // of the graph's inputs; -1: not in the graph
} dt_batch_inputs;

void dt_batch_inputs_find(dt_batch_inputs *in, const dt_exec *e, const dt_field_info *fields, int n_fields);
// The exec reads the batch where it lies.
void dt_batch_inputs_bind(const dt_batch_inputs *in, dt_exec *e, const dt_batch *b);

// A batch in a device's memory. The loader's slots are pinned host memory; an exec on a device reads these copies
// instead. One object is one set of buffers: a trainer that copies the next batch while the current one is computed has
// two, which share an allocation, and rebinds its exec between them.
typedef struct dt_device_inputs {
    dt_backend *backend;
    dt_batch_inputs inputs;
    void *data[DT_BATCH_INPUTS];
    size_t n_bytes[DT_BATCH_INPUTS];
    dt_flat_buffer flat; // of the first set: the memory of all
} dt_device_inputs;

// n_sets of buffers for what of a batch is an input of the exec's graph. Fini after a failure too.
dt_status dt_device_inputs_init(dt_device_inputs *sets, int n_sets, dt_backend *b, const dt_exec *e,
                                const dt_field_info *fields, int n_fields);
void dt_device_inputs_fini(dt_device_inputs *sets, int n_sets);
void dt_device_inputs_bind(const dt_device_inputs *d, dt_exec *e);
// Queues the copies on a stream: the batch must stay until it has passed. NULL: waits for them.
void dt_device_inputs_copy(const dt_device_inputs *d, const dt_batch *batch, void *stream);

// Whether the numbers of a target that is no class are finite, under a cross-entropy shares of classes, in 0..1 and 1
// together, and under bce in 0..1. DT_E_DATA naming field and sample.
dt_status dt_target_check(const dt_target *t, const float *x, int64_t sample);
// dt_target_check of all samples of a batch whose weight is not 0. targets may be NULL.
dt_status dt_batch_check_targets(const dt_batch *b, const dt_targets *targets);
// Warns of targets far from 0: a network begins there and takes long to come to them.
void dt_targets_check_range(const dt_targets *targets);

// ---- replica plan -------------------------------------------------------------------------------------------------

// Which replica computes which micro-batch into which flat buffer, and how the buffers become one
// sum.
//
// Rank r of W has L replicas; replica r*L + l of W*L takes the micro-batches that dt_micro_begin gives it.
// resume, off: one buffer a replica, then a sum over replicas and an all-reduce.
// elastic: each replica follows its actions of the fixed tree (comm/tree.c): the local part in its own thread, then
// the transfers, which one thread a rank carries out. All ranks take them in the order of the tree, so blocking sends
// cannot deadlock. Afterwards the sum is in buffer 0 of rank 0. Where every replica and every rank has a whole node of the
// tree, buckets sum along it instead, while backward runs: on four hosts with links of 200 Mbit/s a step of ResNet-18
// took 3.5 s, and 8.8 s with transfers.
//
// A pure function: no communication.

typedef struct dt_replica_share {
    int micro_begin, micro_end;
    int first_flat;
    dt_tree_action *actions; // elastic: LEAF and ADD with flat buffers relative to first_flat
    int n_actions;
} dt_replica_share;

typedef struct dt_replica_plan {
    bool elastic;
    int rank, world_size, n_replicas, n_micro;
    int n_flats; // of this rank
    dt_replica_share *replicas;
    dt_tree_action *transfers; // elastic: ADD, SEND, RECV with flat buffers of the rank; peer: a rank
    int n_transfers;
    int *micros; // this rank's, in the order in which its replicas want them
    int n_rank_micros;
} dt_replica_plan;

// DT_E_USAGE when more ranks are there than micro-batches, naming what fits.
dt_status dt_replica_plan_check_ranks(int64_t world_size, int64_t n_micro);
// n_replicas is lowered to what n_micro allows (n_micro / world_size). DT_E_USAGE as check_ranks.
dt_status dt_replica_plan_create(dt_replica_plan **out, bool elastic, int rank, int world_size, int n_replicas,
                                 int n_micro);
// Whether gradients are summed by buckets. tree: the comm sums by the tree (dt_comm.sums_by_tree).
bool dt_replica_plan_has_buckets(const dt_replica_plan *p, bool tree);
// elastic, with buckets: what is left to add in this rank when its replicas have computed their last leaves. Heap; how many.
int dt_replica_plan_merges(const dt_replica_plan *p, dt_tree_merge **out);
void dt_replica_plan_destroy(dt_replica_plan *p);

#endif
