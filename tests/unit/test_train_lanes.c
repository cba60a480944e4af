// The lane plan: every leaf once, transfers that cannot deadlock, and one sum whose order of additions
// is the same for any number of ranks and lanes. Slabs hold the text of the expression that made them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "train/lane_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 16 };

typedef struct ranks {
    dt_lane_plan *plan[MAX_RANKS];
    char **slab[MAX_RANKS];
    int next[MAX_RANKS]; // transfer
    int n;
} ranks;

static void set(char **slab, char *text) {
    free(*slab);
    *slab = text;
}

static void add(char **a, char **b) {
    assert_non_null(*a);
    assert_non_null(*b);
    set(a, dt_xprintf("(%s+%s)", *a, *b));
    set(b, NULL);
}

static void run_local(ranks *w, int rank, int *seen) {
    const dt_lane_plan *p = w->plan[rank];
    for (int l = 0; l < p->n_lanes; l++) {
        char **slab = w->slab[rank] + p->lanes[l].first_slab;
        for (int i = 0; i < p->lanes[l].n_actions; i++) {
            const dt_tree_action *a = &p->lanes[l].actions[i];
            if (a->kind == DT_TREE_ADD) {
                add(&slab[a->a], &slab[a->b]);
                continue;
            }
            assert_int_equal(a->kind, DT_TREE_LEAF);
            assert_null(slab[a->a]);
            seen[a->leaf]++;
            set(&slab[a->a], dt_xprintf("%d", a->leaf));
        }
    }
}

// One round of blocking transfers; false when nobody could move.
static bool run_transfers(ranks *w) {
    bool moved = false;
    for (int r = 0; r < w->n; r++) {
        const dt_lane_plan *p = w->plan[r];
        if (w->next[r] == p->n_transfers) continue;
        const dt_tree_action *t = &p->transfers[w->next[r]];
        if (t->kind == DT_TREE_ADD) {
            add(&w->slab[r][t->a], &w->slab[r][t->b]);
        } else if (t->kind == DT_TREE_SEND) {
            const dt_lane_plan *q = w->plan[t->peer];
            if (w->next[t->peer] == q->n_transfers) continue;
            const dt_tree_action *u = &q->transfers[w->next[t->peer]];
            if (u->kind != DT_TREE_RECV || u->peer != r) continue;
            set(&w->slab[t->peer][u->b], w->slab[r][t->a]);
            w->slab[r][t->a] = NULL;
            add(&w->slab[t->peer][u->a], &w->slab[t->peer][u->b]);
            w->next[t->peer]++;
        } else {
            continue;
        }
        w->next[r]++;
        moved = true;
    }
    return moved;
}

// The expression of the whole step.
static char *sum_of(int n_ranks, int n_lanes, int n_leaves) {
    ranks w = {.n = n_ranks};
    int *seen = calloc((size_t)n_leaves, sizeof *seen), n_rank_leaves = 0;
    for (int r = 0; r < n_ranks; r++) {
        assert_int_equal(dt_lane_plan_create(&w.plan[r], true, r, n_ranks, n_lanes, n_leaves),
                         DT_OK);
        w.slab[r] = calloc((size_t)w.plan[r]->n_slabs, sizeof(char *));
        n_rank_leaves += w.plan[r]->n_rank_leaves;
        run_local(&w, r, seen);
    }
    assert_int_equal(n_rank_leaves, n_leaves);
    for (int i = 0; i < n_leaves; i++) assert_int_equal(seen[i], 1);
    while (run_transfers(&w)) {
    }
    for (int r = 0; r < n_ranks; r++) assert_int_equal(w.next[r], w.plan[r]->n_transfers);
    char *sum = w.slab[0][0];
    w.slab[0][0] = NULL;
    assert_non_null(sum);
    for (int r = 0; r < n_ranks; r++) {
        for (int i = 0; i < w.plan[r]->n_slabs; i++) assert_null(w.slab[r][i]);
        free(w.slab[r]);
        dt_lane_plan_destroy(w.plan[r]);
    }
    free(seen);
    return sum;
}

static void test_one_order(void **state) {
    static const int leaves[] = {1, 2, 3, 5, 8, 12, 13, 16};
    for (size_t k = 0; k < sizeof leaves / sizeof *leaves; k++) {
        int m = leaves[k];
        char *reference = sum_of(1, 1, m);
        for (int w = 1; w <= m; w++)
            for (int l = 1; l <= 4; l++) {
                char *sum = sum_of(w, l, m);
                assert_string_equal(sum, reference);
                free(sum);
            }
        free(reference);
    }
}

static void test_tree_shape(void **state) {
    char *sum = sum_of(3, 1, 5);
    assert_string_equal(sum, "(((0+1)+(2+3))+4)");
    free(sum);
}

static void test_lanes_fit(void **state) {
    dt_lane_plan *p = NULL;
    assert_int_equal(dt_lane_plan_create(&p, false, 2, 3, 100, 8), DT_OK);
    assert_int_equal(p->n_lanes, 2); // 8 / 3
    assert_int_equal(p->n_slabs, 2);
    assert_int_equal(p->lanes[0].leaf_begin, 5);
    assert_int_equal(p->lanes[1].leaf_end, 8);
    assert_int_equal(p->n_rank_leaves, 3);
    assert_int_equal(p->leaves[0], 5); // first leaves of both lanes first
    assert_int_equal(p->leaves[1], 6);
    assert_int_equal(p->leaves[2], 7);
    dt_lane_plan_destroy(p);
    assert_int_equal(dt_lane_plan_create(&p, true, 0, 9, 1, 8), DT_E_USAGE);
    assert_non_null(strstr(dt_error_message(), "at most 8 ranks"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_order),
                                       cmocka_unit_test(test_tree_shape),
                                       cmocka_unit_test(test_lanes_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
