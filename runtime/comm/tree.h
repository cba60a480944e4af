// tree.h: the fixed binary tree over the M micro-batches of a step: same bits for any world size.
//
// Leaves 0..M-1; a node of n leaves splits at the largest power of two below n. Lane l of W lanes
// (ranks, or lanes of a rank) computes leaves [lM/W, (l+1)M/W). Locally, leaves are merged as soon as
// both children of a tree node are complete (a binary counter: log2(M/W)+1 slabs where the range is a
// node of the tree, at most 2 log2(M/W)+1 otherwise); what remains are the largest tree nodes inside
// the range, combined across lanes in tree order: the owner of the right child sends, the owner of the
// left child adds. The root's owner broadcasts.
//
// Everything here is pure: it makes lists of merges; the trainer and the comm carry them out.
#ifndef DT_COMM_TREE_H
#define DT_COMM_TREE_H

#include "base/status.h"

#include <stdint.h>

static inline int dt_leaf_begin(int lane, int n_lanes, int n_leaves) {
    return (int)((int64_t)lane * n_leaves / n_lanes);
}

// One action of a lane, in order.
typedef enum dt_tree_kind {
    DT_TREE_LEAF, // compute leaf `leaf` into slab `a` (overwriting)
    DT_TREE_ADD,  // slab a += slab b; b is free afterwards
    DT_TREE_SEND, // send slab a to lane `peer`; a is free afterwards
    DT_TREE_RECV  // receive from lane `peer` into slab b, then slab a += slab b
} dt_tree_kind;
typedef struct dt_tree_action {
    dt_tree_kind kind;
    int leaf, a, b, peer;
    int64_t order; // behind the leaves: of all merges across lanes, the same on all of them
} dt_tree_action;

// The actions of `lane`; after them the sum is in slab 0 of lane 0 (the owner of leaf 0).
// Heap array, caller frees. n_slabs: how many slabs the lane needs (>= 1).
dt_status dt_tree_plan(dt_tree_action **actions, int *n_actions, int *n_slabs, int lane,
                       int n_lanes, int n_leaves);

#endif
