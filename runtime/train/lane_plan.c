// lane_plan.c: shares of leaves, and the one order of transfers.
//
// The simulation walks all lanes in rounds. A merge inside a lane is taken when it is that lane's next
// action; a transfer when it is the next action of both its lanes. Each rank keeps the entries that
// touch its lanes, in the simulated order: of all transfers not yet done, the first in that order
// always has both ranks waiting for it.

#include "train/lane_plan.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>

typedef struct simulated_lane {
    dt_tree_action *actions;
    int n_actions, next, n_slabs;
} simulated_lane;

static void emit_transfer(dt_lane_plan *p, dt_transfer t) {
    p->transfers = dt_xrealloc(p->transfers, sizeof t * (size_t)(p->n_transfers + 1));
    p->transfers[p->n_transfers++] = t;
}

static bool is_mine(const dt_lane_plan *p, int lane) {
    return lane / p->n_lanes == p->rank;
}

static int slab_of(const dt_lane_plan *p, int lane, int slab) {
    return p->lanes[lane % p->n_lanes].first_slab + slab;
}

static void emit_add(dt_lane_plan *p, int lane, const dt_tree_action *a) {
    if (is_mine(p, lane))
        emit_transfer(p, (dt_transfer){.kind = DT_TRANSFER_ADD,
                                       .a = slab_of(p, lane, a->a),
                                       .b = slab_of(p, lane, a->b)});
}

static void emit_pair(dt_lane_plan *p, int from, const dt_tree_action *send, int to,
                      const dt_tree_action *recv) {
    bool sends = is_mine(p, from), receives = is_mine(p, to);
    if (sends && receives)
        emit_transfer(p, (dt_transfer){.kind = DT_TRANSFER_ADD,
                                       .a = slab_of(p, to, recv->a),
                                       .b = slab_of(p, from, send->a)});
    else if (sends)
        emit_transfer(p, (dt_transfer){.kind = DT_TRANSFER_SEND,
                                       .a = slab_of(p, from, send->a),
                                       .peer = to / p->n_lanes});
    else if (receives)
        emit_transfer(p, (dt_transfer){.kind = DT_TRANSFER_RECV,
                                       .a = slab_of(p, to, recv->a),
                                       .b = slab_of(p, to, recv->b),
                                       .peer = from / p->n_lanes});
}

// One lane's turn: returns whether anything could be done.
static bool advance(dt_lane_plan *p, simulated_lane *lanes, int lane) {
    simulated_lane *l = &lanes[lane];
    if (l->next == l->n_actions) return false;
    const dt_tree_action *a = &l->actions[l->next];
    if (a->kind == DT_TREE_ADD) {
        emit_add(p, lane, a);
        l->next++;
        return true;
    }
    if (a->kind != DT_TREE_SEND) return false;
    simulated_lane *peer = &lanes[a->peer];
    if (peer->next == peer->n_actions) return false;
    const dt_tree_action *b = &peer->actions[peer->next];
    if (b->kind != DT_TREE_RECV || b->peer != lane) return false;
    emit_pair(p, lane, a, a->peer, b);
    l->next++;
    peer->next++;
    return true;
}

static int local_prefix(const simulated_lane *l) {
    int n = 0;
    while (n < l->n_actions && l->actions[n].kind != DT_TREE_SEND &&
           l->actions[n].kind != DT_TREE_RECV)
        n++;
    return n;
}

static dt_status plan_tree(dt_lane_plan *p) {
    int n = p->world_size * p->n_lanes;
    simulated_lane *lanes = dt_xcalloc((size_t)n, sizeof *lanes);
    dt_status st = DT_OK;
    for (int i = 0; st == DT_OK && i < n; i++) {
        st = dt_tree_plan(&lanes[i].actions, &lanes[i].n_actions, &lanes[i].n_slabs, i, n,
                          p->n_leaves);
        if (st != DT_OK) break;
        lanes[i].next = local_prefix(&lanes[i]);
        if (!is_mine(p, i)) continue;
        dt_lane_share *mine = &p->lanes[i % p->n_lanes];
        mine->first_slab = p->n_slabs;
        p->n_slabs += lanes[i].n_slabs;
        mine->n_actions = lanes[i].next;
    }
    bool moved = st == DT_OK;
    while (moved) {
        moved = false;
        for (int i = 0; i < n; i++)
            while (advance(p, lanes, i)) moved = true;
    }
    for (int i = 0; i < n; i++) {
        assert(st != DT_OK || lanes[i].next == lanes[i].n_actions);
        if (is_mine(p, i))
            p->lanes[i % p->n_lanes].actions = lanes[i].actions;
        else
            free(lanes[i].actions);
    }
    free(lanes);
    return st;
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
