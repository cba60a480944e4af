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

static inline int dt_micro_begin(int replica, int n_replicas, int n_micro) {
    return (int)((int64_t)replica * n_micro / n_replicas);
}

// Of a node's n leaves the left child takes the largest power of two below n.
static inline int dt_tree_split(int n) {
    int left = 1;
    while (2 * left < n) left *= 2;
    return left;
}

// One action of a replica, in order.
typedef enum dt_tree_kind {
    DT_TREE_LEAF, // compute leaf `leaf` into flat buffer `a` (overwriting)
    DT_TREE_ADD,  // flat buffer a += flat buffer b; b is free afterwards
    DT_TREE_SEND, // send flat buffer a to replica `peer`; a is free afterwards
    DT_TREE_RECV  // receive from replica `peer` into flat buffer b, then flat buffer a += flat buffer b
} dt_tree_kind;
typedef struct dt_tree_action {
    dt_tree_kind kind;
    int micro, a, b, peer;
    int64_t order; // behind the leaves: of all merges across replicas, the same on all of them
} dt_tree_action;

// Flat buffer `to` += flat buffer `from`.
typedef struct dt_tree_merge {
    int to, from;
} dt_tree_merge;

// The actions of `replica`; after them the sum is in flat buffer 0 of replica 0 (the owner of leaf 0).
// Heap array, caller frees. n_flats: how many flat buffers the replica needs (>= 1).
dt_status dt_tree_plan(dt_tree_action **actions, int *n_actions, int *n_flats, int replica, int n_replicas,
                       int n_micro);

#endif
