// tree.h: the fixed binary tree that sums the gradients of a step's M micro-batches, so that the bits are
// the same for any world size.
//
// The leaves are micro-batches 0..M-1; a node of n leaves splits at the largest power of two below n.
// Replica r of W (over all ranks) computes micro-batches [rM/W, (r+1)M/W). It adds two children as soon as
// both are complete, like a binary counter. That takes log2(M/W)+1 flat buffers where its range is one node
// of the tree, and at most 2 log2(M/W)+1 otherwise. What remains are the largest nodes inside each range.
// They are added across replicas in tree order: the owner of the right child sends, the owner of the left
// child adds. The root's owner broadcasts.
//
// The functions are pure: they make a list of actions, which the trainer and the comm carry out.
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
