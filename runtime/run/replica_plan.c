// replica_plan.c: which micro-batches a replica takes, and the order of a rank's transfers.
//
// The merges across replicas of all ranks have one order, that of the tree (comm/tree.h). A rank carries out those that
// touch its replicas in that order. So both ranks of the first transfer that is not done yet are waiting for it, and sends
// that block cannot deadlock.

#include "run/replica_plan.h"

#include "base/arena.h"

#include <stdlib.h>

static int by_order(const void *x, const void *y) {
    const dt_tree_action *a = x, *b = y;
    return a->order != b->order ? (a->order > b->order) - (a->order < b->order) : (int)a->kind - (int)b->kind;
}

// The actions of one replica. Those up to its last micro-batch are its own; the others become transfers of the rank.
static dt_status plan_replica(dt_replica_plan *p, int replica) {
    dt_replica_share *share = &p->replicas[replica];
    int n = 0, n_flats = 0;
    DT_TRY(dt_tree_plan(&share->actions, &n, &n_flats, p->rank * p->n_replicas + replica, p->world_size * p->n_replicas,
                        p->n_micro));
    share->first_flat = p->n_flats;
    p->n_flats += n_flats;
    p->transfers = dt_xrealloc(p->transfers, sizeof(dt_tree_action) * (size_t)(p->n_transfers + n));
    for (int i = 0; i < n; i++) {
        dt_tree_action a = share->actions[i];
        if (a.order == 0) {
            share->n_actions = i + 1;
            continue;
        }
        a.a += share->first_flat;
        a.b += share->first_flat;
        p->transfers[p->n_transfers++] = a;
    }
    return DT_OK;
}

static dt_status plan_tree(dt_replica_plan *p) {
    for (int l = 0; l < p->n_replicas; l++) DT_TRY(plan_replica(p, l));
    qsort(p->transfers, (size_t)p->n_transfers, sizeof *p->transfers, by_order);
    int n = 0;
    for (int i = 0; i < p->n_transfers; i++) {
        dt_tree_action a = p->transfers[i];
        const dt_tree_action *next = i + 1 < p->n_transfers ? &p->transfers[i + 1] : NULL;
        a.peer /= p->n_replicas;
        if (next && next->order == a.order) { // send and receive between replicas of this rank
            a = (dt_tree_action){DT_TREE_ADD, -1, next->a, a.a, -1, a.order};
            i++;
        }
        p->transfers[n++] = a;
    }
    p->n_transfers = n;
    return DT_OK;
}

// Round j: the j-th micro-batch of each replica.
static void order_micros(dt_replica_plan *p) {
    int first = p->replicas[0].micro_begin, last = p->replicas[p->n_replicas - 1].micro_end;
    p->micros = dt_xcalloc((size_t)(last - first) + 1, sizeof(int));
    for (int j = 0; p->n_rank_micros < last - first; j++)
        for (int l = 0; l < p->n_replicas; l++)
            if (p->replicas[l].micro_begin + j < p->replicas[l].micro_end)
                p->micros[p->n_rank_micros++] = p->replicas[l].micro_begin + j;
}

dt_status dt_replica_plan_check_ranks(int64_t world_size, int64_t n_micro) {
    if (world_size <= n_micro) return DT_OK;
    return dt_fail(DT_E_USAGE,
                   "%lld ranks cannot share the %lld micro-batches of a step (train.global_batch / "
                   "train.micro_batch): start at most %lld ranks, or lower train.micro_batch",
                   (long long)world_size, (long long)n_micro, (long long)n_micro);
}

dt_status dt_replica_plan_create(dt_replica_plan **out, bool elastic, int rank, int world_size, int n_replicas,
                                 int n_micro) {
    DT_TRY(dt_replica_plan_check_ranks(world_size, n_micro));
    if (n_replicas > n_micro / world_size) n_replicas = n_micro / world_size;
    if (n_replicas < 1) n_replicas = 1;
    dt_replica_plan *p = dt_xcalloc(1, sizeof *p);
    *p = (dt_replica_plan){
        .elastic = elastic, .rank = rank, .world_size = world_size, .n_replicas = n_replicas, .n_micro = n_micro};
    p->replicas = dt_xcalloc((size_t)n_replicas, sizeof *p->replicas);
    for (int l = 0; l < n_replicas; l++) {
        int replica = rank * n_replicas + l;
        p->replicas[l].micro_begin = dt_micro_begin(replica, world_size * n_replicas, n_micro);
        p->replicas[l].micro_end = dt_micro_begin(replica + 1, world_size * n_replicas, n_micro);
        p->replicas[l].first_flat = l;
    }
    dt_status st = DT_OK;
    if (elastic)
        st = plan_tree(p);
    else
        p->n_flats = n_replicas;
    order_micros(p);
    if (st != DT_OK) {
        dt_replica_plan_destroy(p);
        return st;
    }
    *out = p;
    return DT_OK;
}

bool dt_replica_plan_has_buckets(const dt_replica_plan *p, bool tree) {
    const int each = p->n_micro / p->world_size;
    if (p->world_size * p->n_replicas == 1) return false;
    return !p->elastic || (tree && p->world_size > 1 && p->n_micro % p->world_size == 0 && (each & (each - 1)) == 0 &&
                           each % p->n_replicas == 0);
}

int dt_replica_plan_merges(const dt_replica_plan *p, dt_tree_merge **out) {
    int n = 0;
    *out = dt_xcalloc((size_t)(p->n_flats + 1), sizeof **out);
    for (int l = 0; l < p->n_replicas; l++) {
        const dt_replica_share *share = &p->replicas[l];
        int i = share->n_actions;
        while (share->actions[i - 1].kind == DT_TREE_ADD) i--;
        for (; i < share->n_actions; i++)
            (*out)[n++] =
                (dt_tree_merge){share->first_flat + share->actions[i].a, share->first_flat + share->actions[i].b};
    }
    for (int k = 1; k < p->n_replicas; k *= 2)
        for (int l = 0; l < p->n_replicas; l += 2 * k)
            (*out)[n++] = (dt_tree_merge){p->replicas[l].first_flat, p->replicas[l + k].first_flat};
    return n;
}

void dt_replica_plan_destroy(dt_replica_plan *p) {
    if (!p) return;
    for (int l = 0; l < p->n_replicas; l++) free(p->replicas[l].actions);
    free(p->replicas);
    free(p->transfers);
    free(p->micros);
    free(p);
}
