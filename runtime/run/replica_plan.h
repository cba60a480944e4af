// replica_plan.h: which replica computes which micro-batch into which flat buffer, and how the buffers become one
// sum.
//
// Rank r of W has L replicas; replica r*L + l of W*L takes the micro-batches that dt_micro_begin gives it.
// resume, off: one buffer a replica, then a sum over replicas and an all-reduce.
// elastic: each replica follows its actions of the fixed tree (comm/tree.h): the local part in its own thread, then
// the transfers, which one thread a rank carries out. All ranks take them in the order of the tree, so blocking sends
// cannot deadlock. Afterwards the sum is in buffer 0 of rank 0. Where every replica and every rank has a whole node of the
// tree, buckets sum along it instead, while backward runs: on four hosts with links of 200 Mbit/s a step of ResNet-18
// took 3.5 s, and 8.8 s with transfers.
//
// A pure function: no communication.
#ifndef DT_TRAIN_REPLICA_PLAN_H
#define DT_TRAIN_REPLICA_PLAN_H

#include "base/status.h"
#include "comm/tree.h"

#include <stdbool.h>

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
