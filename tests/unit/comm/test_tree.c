// test_tree.c: for every M <= 40 and W <= min(M, 12) the replicas' lists, run with blocking sends and
// receives, give the bits of one replica, never deadlock, keep every flat buffer's life in order and stay
// within the promised number of flat buffers.
#include "base/rng.h"
#include "comm/bucket.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

enum { MAX_N_MICRO = 40, MAX_REPLICAS = 12, MAX_FLATS = 16 };

typedef struct replica {
    dt_tree_action *actions;
    int n_actions, n_flats, at, next_micro;
    bool full[MAX_FLATS];
    float flat[MAX_FLATS];
} replica;

// Values whose sums round, so that another order of additions gives other bits.
static float micro_value(int micro) {
    dt_rng r = {.seed = 7, .purpose = 1};
    float magnitude = micro % 5 == 0 ? 1e6f : micro % 3 == 0 ? 1e-3f : 1.0f;
    return (dt_rng_uniform(&r, (uint32_t)micro) - 0.4f) * magnitude;
}

// The tree written down as its definition says, by recursion.
static float reference(int lo, int hi) {
    if (hi - lo == 1) return micro_value(lo);
    int left = 1;
    while (left * 2 < hi - lo) left *= 2;
    volatile float a = reference(lo, lo + left), b = reference(lo + left, hi);
    return a + b;
}

static int floor_log2(int n) {
    int e = 0;
    while (n >> (e + 1)) e++;
    return e;
}

static void run_local(replica *l, const dt_tree_action *a, int n_micro) {
    if (a->kind == DT_TREE_LEAF) {
        assert_int_equal(a->micro, l->next_micro++);
        assert_true(a->micro < n_micro);
        assert_false(l->full[a->a]);
        l->full[a->a] = true;
        l->flat[a->a] = micro_value(a->micro);
    } else {
        assert_true(a->a != a->b && l->full[a->a] && l->full[a->b]);
        volatile float sum = l->flat[a->a] + l->flat[a->b];
        l->flat[a->a] = sum;
        l->full[a->b] = false;
    }
    l->at++;
}

// A transfer happens only when both partners stand at it: the strictest meaning of blocking.
static bool try_transfer(replica *replicas, int sender, const dt_tree_action *a) {
    replica *from = &replicas[sender], *to = &replicas[a->peer];
    if (to->at == to->n_actions) return false;
    const dt_tree_action *r = &to->actions[to->at];
    if (r->kind != DT_TREE_RECV || r->peer != sender) return false;
    assert_true(from->full[a->a] && to->full[r->a] && !to->full[r->b] && r->a != r->b);
    from->full[a->a] = false;
    volatile float sum = to->flat[r->a] + from->flat[a->a];
    to->flat[r->a] = sum;
    from->at++;
    to->at++;
    return true;
}

static float simulate(replica *replicas, int n_replicas, int n_micro) {
    bool moved = true;
    while (moved) {
        moved = false;
        for (int i = 0; i < n_replicas; i++) {
            replica *l = &replicas[i];
            if (l->at == l->n_actions) continue;
            const dt_tree_action *a = &l->actions[l->at];
            if (a->kind == DT_TREE_LEAF || a->kind == DT_TREE_ADD) {
                run_local(l, a, n_micro);
                moved = true;
            } else if (a->kind == DT_TREE_SEND) {
                moved |= try_transfer(replicas, i, a);
            }
        }
    }
    for (int i = 0; i < n_replicas; i++) {
        if (replicas[i].at != replicas[i].n_actions)
            fail_msg("M=%d W=%d: replica %d is stuck at action %d of %d", n_micro, n_replicas, i, replicas[i].at,
                     replicas[i].n_actions);
        for (int s = 0; s < MAX_FLATS; s++) assert_int_equal(replicas[i].full[s], i == 0 && s == 0);
    }
    return replicas[0].flat[0];
}

static void check_flats(const replica *l, int i, int n_replicas, int n_micro) {
    int begin = dt_micro_begin(i, n_replicas, n_micro), k = dt_micro_begin(i + 1, n_replicas, n_micro);
    k -= begin;
    int most = 2 * floor_log2(k) + 1;
    if (k == 1) most = 2;
    // a power of two of leaves, aligned: a node of its own
    bool aligned = (k & (k - 1)) == 0 && begin % k == 0;
    if (aligned && k > 1) most = floor_log2(k) + 1;
    if (l->n_flats < 1 || l->n_flats > most)
        fail_msg("M=%d W=%d replica %d: %d flat buffers, promised at most %d", n_micro, n_replicas, i, l->n_flats,
                 most);
    for (int a = 0; a < l->n_actions; a++) {
        assert_in_range(l->actions[a].a, 0, l->n_flats - 1);
        if (l->actions[a].kind == DT_TREE_ADD || l->actions[a].kind == DT_TREE_RECV)
            assert_in_range(l->actions[a].b, 0, l->n_flats - 1);
    }
}

static void one_case(int n_replicas, int n_micro) {
    static replica replicas[MAX_REPLICAS];
    memset(replicas, 0, sizeof replicas);
    for (int i = 0; i < n_replicas; i++) {
        replica *l = &replicas[i];
        must(dt_tree_plan(&l->actions, &l->n_actions, &l->n_flats, i, n_replicas, n_micro));
        l->next_micro = dt_micro_begin(i, n_replicas, n_micro);
        check_flats(l, i, n_replicas, n_micro);
    }
    float sum = simulate(replicas, n_replicas, n_micro), expected = reference(0, n_micro);
    if (memcmp(&sum, &expected, sizeof sum) != 0)
        fail_msg("M=%d W=%d: %.9g, the tree says %.9g", n_micro, n_replicas, (double)sum, (double)expected);
    for (int i = 0; i < n_replicas; i++) {
        assert_int_equal(replicas[i].next_micro, dt_micro_begin(i + 1, n_replicas, n_micro));
        free(replicas[i].actions);
    }
}

TEST(test_all_worlds_same_bits) {
    for (int m = 1; m <= MAX_N_MICRO; m++)
        for (int w = 1; w <= m && w <= MAX_REPLICAS; w++) one_case(w, m);
}

// No replica waits for another while it still has leaves to compute.
TEST(test_computes_before_communicating) {
    for (int w = 1; w <= 5; w++) {
        for (int i = 0; i < w; i++) {
            dt_tree_action *a;
            int n, flats;
            must(dt_tree_plan(&a, &n, &flats, i, w, 13));
            bool talked = false;
            for (int k = 0; k < n; k++) {
                talked |= a[k].kind == DT_TREE_SEND || a[k].kind == DT_TREE_RECV;
                assert_false(talked && a[k].kind == DT_TREE_LEAF);
            }
            free(a);
        }
    }
}

TEST(test_too_many_replicas) {
    dt_tree_action *a;
    int n, flats;
    must_fail(DT_E_USAGE, "4 micro-batches", dt_tree_plan(&a, &n, &flats, 0, 5, 4));
}

TEST_MAIN(NULL, NULL)
