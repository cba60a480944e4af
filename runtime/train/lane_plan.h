// lane_plan.h: which replica computes which micro-batch into which flat buffer, and how the buffers become one
// sum.
//
// Rank r of W has L replicas; replica r*L + l of W*L takes the micro-batches that dt_leaf_begin gives it.
// resume, off: one buffer a replica, then a sum over replicas and an all-reduce.
// elastic: each replica follows its actions of the fixed tree (comm/tree.h): the local part in its own thread, then
// the transfers, which one thread a rank carries out. All ranks take them in the order of the tree, so blocking sends
// cannot deadlock. Afterwards the sum is in buffer 0 of rank 0.
//
// A pure function: no communication.
#ifndef DT_TRAIN_LANE_PLAN_H
#define DT_TRAIN_LANE_PLAN_H

#include "base/status.h"
#include "comm/tree.h"

#include <stdbool.h>

typedef struct dt_lane_share {
    int leaf_begin, leaf_end;
    int first_slab;
    dt_tree_action *actions; // elastic: LEAF and ADD with slabs relative to first_slab
    int n_actions;
} dt_lane_share;

typedef struct dt_lane_plan {
    bool elastic;
    int rank, world_size, n_lanes, n_leaves;
    int n_slabs; // of this rank
    dt_lane_share *lanes;
    dt_tree_action *transfers; // elastic: ADD, SEND, RECV with slabs of the rank; peer: a rank
    int n_transfers;
    int *leaves; // this rank's, in the order in which its lanes want them
    int n_rank_leaves;
} dt_lane_plan;

// n_lanes is lowered to what n_leaves allows (n_leaves / world_size). DT_E_USAGE when
// world_size > n_leaves, naming what fits.
dt_status dt_lane_plan_create(dt_lane_plan **out, bool elastic, int rank, int world_size,
                              int n_lanes, int n_leaves);
void dt_lane_plan_destroy(dt_lane_plan *p);

#endif
