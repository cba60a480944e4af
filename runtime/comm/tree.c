// tree.c: turns the fixed reduction tree into a list of actions for each replica.
//
// The tree, and with it the order of additions, depends only on the number of leaves. That makes the bits
// of a step independent of the world size. A node belongs to the owner of its first leaf.
//
// A replica's list has two parts. First come all its leaves in order, each followed by the local additions
// that it completes (nodes inside the replica's range). Then come the additions across replicas, in
// post-order of the whole tree. Computing before communicating costs a few buffers when the range straddles
// a large node, but no replica waits while it still has work: a send in the middle would block until the
// left neighbour has finished its own leaves.
//
// There is no deadlock, even if send and receive block until the other side is ready. Every transfer belongs
// to one node, and all replicas walk their nodes in the same post-order, so the first pending transfer in
// that order always has both partners ready.
//
// Buffers: a replica of k leaves needs at most 2 * floor(log2 k) + 1 (two for k = 1), and
// floor(log2 k) + 1 where its range is one node of the tree, as when M/W is a power of two.
#include "base/core.h"
#include "comm/bucket.h"

#include <assert.h>
#include <stdlib.h>

enum { MAX_FLATS = 128 }; // twice the bits of an int, and more than enough

typedef struct planner {
    dt_tree_action *actions;
    int n_actions, cap_actions;
    int replica, n_replicas, n_micro;
    int begin, end; // leaves of this replica
    bool busy[MAX_FLATS];
    int n_flats;
    int *flat_of; // by first leaf - begin: flat buffer of the largest finished node that starts there
} planner;

static int take_flat(planner *p) {
    int s = 0;
    while (p->busy[s]) s++; // lowest first: buffer 0 ends with the sum
    assert(s < MAX_FLATS - 1);
    p->busy[s] = true;
    if (s + 1 > p->n_flats) p->n_flats = s + 1;
    return s;
}

static void tree_emit(planner *p, dt_tree_action action) {
    if (p->n_actions == p->cap_actions) {
        p->cap_actions = p->cap_actions ? 2 * p->cap_actions : 16;
        p->actions = dt_xrealloc(p->actions, (size_t)p->cap_actions * sizeof *p->actions);
    }
    p->actions[p->n_actions++] = action;
}

// The replica l with begin(l) <= leaf < begin(l + 1).
static int owner(const planner *p, int micro) {
    // an estimate from below, as rounding may put it one too low
    int replica = (int)((int64_t)micro * p->n_replicas / p->n_micro);
    while (replica + 1 < p->n_replicas && dt_micro_begin(replica + 1, p->n_replicas, p->n_micro) <= micro) replica++;
    return replica;
}

static bool inside(const planner *p, int lo, int hi) {
    return lo >= p->begin && hi <= p->end;
}

static void merge_own(planner *p, int lo, int mid, int64_t order) {
    int a = p->flat_of[lo - p->begin], b = p->flat_of[mid - p->begin];
    tree_emit(p, (dt_tree_action){DT_TREE_ADD, -1, a, b, -1, order}); // -1: no peer
    p->busy[b] = false;                                               // b's sum is in a
}

// Part one: leaves of this replica and the nodes inside its range.
static void plan_local(planner *p, int lo, int hi) {
    if (hi <= p->begin || lo >= p->end) return;
    if (hi - lo == 1) {
        int a = take_flat(p);
        p->flat_of[lo - p->begin] = a; // the leaf is a finished node of its own
        tree_emit(p, (dt_tree_action){.kind = DT_TREE_LEAF, .micro = lo, .a = a, .b = -1, .peer = -1});
        return;
    }
    int mid = lo + dt_tree_split(hi - lo);
    plan_local(p, lo, mid);
    plan_local(p, mid, hi);
    if (inside(p, lo, hi)) merge_own(p, lo, mid, 0); // both children were finished by the calls above
}

// Part two: nodes that reach over the end of the range, in post-order.
static void plan_cross(planner *p, int lo, int hi) {
    if (hi <= p->begin || lo >= p->end || inside(p, lo, hi)) return; // no overlap, or done in part one
    int mid = lo + dt_tree_split(hi - lo);
    plan_cross(p, lo, mid);
    plan_cross(p, mid, hi);
    int left = owner(p, lo), right = owner(p, mid); // owners of the children's first leaves
    int64_t order = (int64_t)hi << 32 | (hi - lo);  // post-order: by end, the smaller node first
    if (left == p->replica && right == p->replica) {
        merge_own(p, lo, mid, order);
    } else if (left == p->replica) {
        int a = p->flat_of[lo - p->begin], b = take_flat(p); // b holds what arrives only during the addition
        tree_emit(p, (dt_tree_action){DT_TREE_RECV, -1, a, b, right, order});
        p->busy[b] = false;
    } else if (right == p->replica) {
        int a = p->flat_of[mid - p->begin];
        tree_emit(p, (dt_tree_action){DT_TREE_SEND, -1, a, -1, left, order});
        p->busy[a] = false; // sent: the left owner has the sum from here on
    }
}

dt_status dt_tree_plan(dt_tree_action **actions, int *n_actions, int *n_flats, int replica, int n_replicas,
                       int n_micro) {
    if (n_replicas < 1 || n_micro < n_replicas || replica < 0 || replica >= n_replicas)
        return dt_fail(DT_E_USAGE,
                       "worker group %d of %d cannot share %d micro-batches: use at most %d ranks times "
                       "device.replicas, or a smaller train.micro_batch",
                       replica, n_replicas, n_micro, n_micro > 0 ? n_micro : 0);
    planner p = {.replica = replica, .n_replicas = n_replicas, .n_micro = n_micro};
    p.begin = dt_micro_begin(replica, n_replicas, n_micro);
    p.end = dt_micro_begin(replica + 1, n_replicas, n_micro);
    p.flat_of = dt_xcalloc((size_t)(p.end - p.begin), sizeof *p.flat_of); // one entry per own leaf
    plan_local(&p, 0, n_micro);
    plan_cross(&p, 0, n_micro);
    free(p.flat_of);
    *actions = p.actions;
    *n_actions = p.n_actions;
    *n_flats = p.n_flats;
    return DT_OK;
}
