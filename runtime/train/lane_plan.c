// lane_plan.c: which micro-batches a replica takes, and the order of a rank's transfers.
//
// The merges across replicas of all ranks have one order, that of the tree (comm/tree.h). A rank carries out those that
// touch its replicas in that order. So of all transfers that are not yet done, both ranks of the first one wait for it:
// sends that block cannot deadlock.

#include "train/lane_plan.h"

#include "base/arena.h"

#include <stdlib.h>

static int by_order(const void *x, const void *y) {
    const dt_tree_action *a = x, *b = y;
    return a->order != b->order ? (a->order > b->order) - (a->order < b->order)
                                : (int)a->kind - (int)b->kind;
}

// The actions of one replica. Those up to its last leaf are its own; the others become transfers of the rank.
static dt_status plan_lane(dt_lane_plan *p, int lane) {
    dt_lane_share *share = &p->lanes[lane];
    int n = 0, n_slabs = 0;
    DT_TRY(dt_tree_plan(&share->actions, &n, &n_slabs, p->rank * p->n_lanes + lane,
                        p->world_size * p->n_lanes, p->n_leaves));
    share->first_slab = p->n_slabs;
    p->n_slabs += n_slabs;
    p->transfers = dt_xrealloc(p->transfers, sizeof(dt_tree_action) * (size_t)(p->n_transfers + n));
    for (int i = 0; i < n; i++) {
        dt_tree_action a = share->actions[i];
        if (a.order == 0) {
            share->n_actions = i + 1;
            continue;
        }
        a.a += share->first_slab;
        a.b += share->first_slab;
        p->transfers[p->n_transfers++] = a;
    }
    return DT_OK;
}

static dt_status plan_tree(dt_lane_plan *p) {
    for (int l = 0; l < p->n_lanes; l++) DT_TRY(plan_lane(p, l));
    qsort(p->transfers, (size_t)p->n_transfers, sizeof *p->transfers, by_order);
    int n = 0;
    for (int i = 0; i < p->n_transfers; i++) {
        dt_tree_action a = p->transfers[i];
        const dt_tree_action *next = i + 1 < p->n_transfers ? &p->transfers[i + 1] : NULL;
        a.peer /= p->n_lanes;
        if (next && next->order == a.order) { // send and receive between replicas of this rank
            a = (dt_tree_action){DT_TREE_ADD, -1, next->a, a.a, -1, a.order};
            i++;
        }
        p->transfers[n++] = a;
    }
    p->n_transfers = n;
    return DT_OK;
}

// Round j: the j-th leaf of each lane.
static void order_leaves(dt_lane_plan *p) {
    int first = p->lanes[0].leaf_begin, last = p->lanes[p->n_lanes - 1].leaf_end;
    p->leaves = dt_xcalloc((size_t)(last - first) + 1, sizeof(int));
    for (int j = 0; p->n_rank_leaves < last - first; j++)
        for (int l = 0; l < p->n_lanes; l++)
            if (p->lanes[l].leaf_begin + j < p->lanes[l].leaf_end)
                p->leaves[p->n_rank_leaves++] = p->lanes[l].leaf_begin + j;
}

dt_status dt_lane_plan_create(dt_lane_plan **out, bool elastic, int rank, int world_size,
                              int n_lanes, int n_leaves) {
    if (world_size > n_leaves)
        return dt_fail(DT_E_USAGE,
                       "%d ranks cannot share the %d micro-batches of a step "
                       "(train.global_batch / train.micro_batch): start at most %d ranks, or lower "
                       "train.micro_batch",
                       world_size, n_leaves, n_leaves);
    if (n_lanes > n_leaves / world_size) n_lanes = n_leaves / world_size;
    if (n_lanes < 1) n_lanes = 1;
    dt_lane_plan *p = dt_xcalloc(1, sizeof *p);
    *p = (dt_lane_plan){.elastic = elastic,
                        .rank = rank,
                        .world_size = world_size,
                        .n_lanes = n_lanes,
                        .n_leaves = n_leaves};
    p->lanes = dt_xcalloc((size_t)n_lanes, sizeof *p->lanes);
    for (int l = 0; l < n_lanes; l++) {
        int lane = rank * n_lanes + l;
        p->lanes[l].leaf_begin = dt_leaf_begin(lane, world_size * n_lanes, n_leaves);
        p->lanes[l].leaf_end = dt_leaf_begin(lane + 1, world_size * n_lanes, n_leaves);
        p->lanes[l].first_slab = l;
    }
    dt_status st = DT_OK;
    if (elastic)
        st = plan_tree(p);
    else
        p->n_slabs = n_lanes;
    order_leaves(p);
    if (st != DT_OK) {
        dt_lane_plan_destroy(p);
        return st;
    }
    *out = p;
    return DT_OK;
}

void dt_lane_plan_destroy(dt_lane_plan *p) {
    if (!p) return;
    for (int l = 0; l < p->n_lanes; l++) free(p->lanes[l].actions);
    free(p->lanes);
    free(p->transfers);
    free(p->leaves);
    free(p);
}
