// test_tree.c: for every M <= 40 and W <= min(M, 12) the lanes' lists, run with blocking sends and
// receives, give the bits of one lane, never deadlock, keep every slab's life in order and stay
// within the promised number of slabs.
#include "base/rng.h"
#include "comm/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_LEAVES = 40, MAX_LANES = 12, MAX_SLABS = 16 };

typedef struct lane {
    dt_tree_action *actions;
    int n_actions, n_slabs, at, next_leaf;
    bool full[MAX_SLABS];
    float slab[MAX_SLABS];
} lane;

// Values whose sums round, so that another order of additions gives other bits.
static float leaf_value(int leaf) {
    dt_rng r = {.seed = 7, .purpose = 1};
    float magnitude = leaf % 5 == 0 ? 1e6f : leaf % 3 == 0 ? 1e-3f : 1.0f;
    return (dt_rng_uniform(&r, (uint32_t)leaf) - 0.4f) * magnitude;
}

// The tree written down as its definition says, by recursion.
static float reference(int lo, int hi) {
    if (hi - lo == 1) return leaf_value(lo);
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

static void run_local(lane *l, const dt_tree_action *a, int n_leaves) {
    if (a->kind == DT_TREE_LEAF) {
        assert_int_equal(a->leaf, l->next_leaf++);
        assert_true(a->leaf < n_leaves);
        assert_false(l->full[a->a]);
        l->full[a->a] = true;
        l->slab[a->a] = leaf_value(a->leaf);
    } else {
        assert_true(a->a != a->b && l->full[a->a] && l->full[a->b]);
        volatile float sum = l->slab[a->a] + l->slab[a->b];
        l->slab[a->a] = sum;
        l->full[a->b] = false;
    }
    l->at++;
}

// A transfer happens only when both partners stand at it: the strictest meaning of blocking.
static bool try_transfer(lane *lanes, int sender, const dt_tree_action *a) {
    lane *from = &lanes[sender], *to = &lanes[a->peer];
    if (to->at == to->n_actions) return false;
    const dt_tree_action *r = &to->actions[to->at];
    if (r->kind != DT_TREE_RECV || r->peer != sender) return false;
    assert_true(from->full[a->a] && to->full[r->a] && !to->full[r->b] && r->a != r->b);
    from->full[a->a] = false;
    volatile float sum = to->slab[r->a] + from->slab[a->a];
    to->slab[r->a] = sum;
    from->at++;
    to->at++;
    return true;
}

static float simulate(lane *lanes, int n_lanes, int n_leaves) {
    bool moved = true;
    while (moved) {
        moved = false;
        for (int i = 0; i < n_lanes; i++) {
            lane *l = &lanes[i];
            if (l->at == l->n_actions) continue;
            const dt_tree_action *a = &l->actions[l->at];
            if (a->kind == DT_TREE_LEAF || a->kind == DT_TREE_ADD) {
                run_local(l, a, n_leaves);
                moved = true;
            } else if (a->kind == DT_TREE_SEND) {
                moved |= try_transfer(lanes, i, a);
            }
        }
    }
    for (int i = 0; i < n_lanes; i++) {
        if (lanes[i].at != lanes[i].n_actions)
            fail_msg("M=%d W=%d: lane %d is stuck at action %d of %d", n_leaves, n_lanes, i,
                     lanes[i].at, lanes[i].n_actions);
        for (int s = 0; s < MAX_SLABS; s++) assert_int_equal(lanes[i].full[s], i == 0 && s == 0);
    }
    return lanes[0].slab[0];
}

static void check_slabs(const lane *l, int i, int n_lanes, int n_leaves) {
    int begin = dt_leaf_begin(i, n_lanes, n_leaves), k = dt_leaf_begin(i + 1, n_lanes, n_leaves);
    k -= begin;
    int most = 2 * floor_log2(k) + 1;
    if (k == 1) most = 2;
    // a power of two of leaves, aligned: a node of its own
    bool aligned = (k & (k - 1)) == 0 && begin % k == 0;
    if (aligned && k > 1) most = floor_log2(k) + 1;
    if (l->n_slabs < 1 || l->n_slabs > most)
        fail_msg("M=%d W=%d lane %d: %d slabs, promised at most %d", n_leaves, n_lanes, i,
                 l->n_slabs, most);
    for (int a = 0; a < l->n_actions; a++) {
        assert_in_range(l->actions[a].a, 0, l->n_slabs - 1);
        if (l->actions[a].kind == DT_TREE_ADD || l->actions[a].kind == DT_TREE_RECV)
            assert_in_range(l->actions[a].b, 0, l->n_slabs - 1);
    }
}

static void one_case(int n_lanes, int n_leaves) {
    static lane lanes[MAX_LANES];
    memset(lanes, 0, sizeof lanes);
    for (int i = 0; i < n_lanes; i++) {
        lane *l = &lanes[i];
        assert_int_equal(
            dt_tree_plan(&l->actions, &l->n_actions, &l->n_slabs, i, n_lanes, n_leaves), DT_OK);
        l->next_leaf = dt_leaf_begin(i, n_lanes, n_leaves);
        check_slabs(l, i, n_lanes, n_leaves);
    }
    float sum = simulate(lanes, n_lanes, n_leaves), expected = reference(0, n_leaves);
    if (memcmp(&sum, &expected, sizeof sum) != 0)
        fail_msg("M=%d W=%d: %.9g, the tree says %.9g", n_leaves, n_lanes, (double)sum,
                 (double)expected);
    for (int i = 0; i < n_lanes; i++) {
        assert_int_equal(lanes[i].next_leaf, dt_leaf_begin(i + 1, n_lanes, n_leaves));
        free(lanes[i].actions);
    }
}

static void test_all_worlds_same_bits(void **state) {
    for (int m = 1; m <= MAX_LEAVES; m++)
        for (int w = 1; w <= m && w <= MAX_LANES; w++) one_case(w, m);
}

// No lane waits for another while it still has leaves to compute.
static void test_computes_before_communicating(void **state) {
    for (int w = 1; w <= 5; w++) {
        for (int i = 0; i < w; i++) {
            dt_tree_action *a;
            int n, slabs;
            assert_int_equal(dt_tree_plan(&a, &n, &slabs, i, w, 13), DT_OK);
            bool talked = false;
            for (int k = 0; k < n; k++) {
                talked |= a[k].kind == DT_TREE_SEND || a[k].kind == DT_TREE_RECV;
                assert_false(talked && a[k].kind == DT_TREE_LEAF);
            }
            free(a);
        }
    }
}

static void test_too_many_lanes(void **state) {
    dt_tree_action *a;
    int n, slabs;
    assert_int_equal(dt_tree_plan(&a, &n, &slabs, 0, 5, 4), DT_E_USAGE);
    assert_non_null(strstr(dt_error_message(), "4 micro-batches"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_worlds_same_bits),
        cmocka_unit_test(test_computes_before_communicating),
        cmocka_unit_test(test_too_many_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
