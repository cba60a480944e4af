// The replica plan: every micro-batch once, transfers that cannot deadlock, and one sum whose order of additions
// is the same for any number of ranks and replicas. Flat buffers hold the text of the expression that made them.
#include "base/core.h"
#include "run/batch_inputs.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 16 };

typedef struct ranks {
    dt_replica_plan *plan[MAX_RANKS];
    char **flat[MAX_RANKS];
    int next[MAX_RANKS]; // transfer
    int n;
} ranks;

static void set(char **flat, char *text) {
    free(*flat);
    *flat = text;
}

static void add(char **a, char **b) {
    assert_non_null(*a);
    assert_non_null(*b);
    set(a, dt_xprintf("(%s+%s)", *a, *b));
    set(b, NULL);
}

static void run_local(ranks *w, int rank, int *seen) {
    const dt_replica_plan *p = w->plan[rank];
    for (int l = 0; l < p->n_replicas; l++) {
        char **flat = w->flat[rank] + p->replicas[l].first_flat;
        for (int i = 0; i < p->replicas[l].n_actions; i++) {
            const dt_tree_action *a = &p->replicas[l].actions[i];
            if (a->kind == DT_TREE_ADD) {
                add(&flat[a->a], &flat[a->b]);
                continue;
            }
            assert_int_equal(a->kind, DT_TREE_LEAF);
            assert_null(flat[a->a]);
            seen[a->micro]++;
            set(&flat[a->a], dt_xprintf("%d", a->micro));
        }
    }
}

// One round of blocking transfers; false when nobody could move.
static bool run_transfers(ranks *w) {
    bool moved = false;
    for (int r = 0; r < w->n; r++) {
        const dt_replica_plan *p = w->plan[r];
        if (w->next[r] == p->n_transfers) continue;
        const dt_tree_action *t = &p->transfers[w->next[r]];
        if (t->kind == DT_TREE_ADD) {
            add(&w->flat[r][t->a], &w->flat[r][t->b]);
        } else if (t->kind == DT_TREE_SEND) {
            const dt_replica_plan *q = w->plan[t->peer];
            if (w->next[t->peer] == q->n_transfers) continue;
            const dt_tree_action *u = &q->transfers[w->next[t->peer]];
            if (u->kind != DT_TREE_RECV || u->peer != r) continue;
            set(&w->flat[t->peer][u->b], w->flat[r][t->a]);
            w->flat[r][t->a] = NULL;
            add(&w->flat[t->peer][u->a], &w->flat[t->peer][u->b]);
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
static char *sum_of(int n_ranks, int n_replicas, int n_micro) {
    ranks w = {.n = n_ranks};
    int *seen = calloc((size_t)n_micro, sizeof *seen), n_rank_micros = 0;
    for (int r = 0; r < n_ranks; r++) {
        must(dt_replica_plan_create(&w.plan[r], true, r, n_ranks, n_replicas, n_micro));
        w.flat[r] = calloc((size_t)w.plan[r]->n_flats, sizeof(char *));
        n_rank_micros += w.plan[r]->n_rank_micros;
        run_local(&w, r, seen);
    }
    assert_int_equal(n_rank_micros, n_micro);
    for (int i = 0; i < n_micro; i++) assert_int_equal(seen[i], 1);
    while (run_transfers(&w)) {
    }
    for (int r = 0; r < n_ranks; r++) assert_int_equal(w.next[r], w.plan[r]->n_transfers);
    char *sum = w.flat[0][0];
    w.flat[0][0] = NULL;
    assert_non_null(sum);
    for (int r = 0; r < n_ranks; r++) {
        for (int i = 0; i < w.plan[r]->n_flats; i++) assert_null(w.flat[r][i]);
        free(w.flat[r]);
        dt_replica_plan_destroy(w.plan[r]);
    }
    free(seen);
    return sum;
}

TEST(test_one_order) {
    static const int micros[] = {1, 2, 3, 5, 8, 12, 13, 16};
    for (size_t k = 0; k < sizeof micros / sizeof *micros; k++) {
        int m = micros[k];
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

TEST(test_tree_shape) {
    char *sum = sum_of(3, 1, 5);
    assert_string_equal(sum, "(((0+1)+(2+3))+4)");
    free(sum);
}

TEST(test_replicas_fit) {
    dt_replica_plan *p = NULL;
    must(dt_replica_plan_create(&p, false, 2, 3, 100, 8));
    assert_int_equal(p->n_replicas, 2); // 8 / 3
    assert_int_equal(p->n_flats, 2);
    assert_int_equal(p->replicas[0].micro_begin, 5);
    assert_int_equal(p->replicas[1].micro_end, 8);
    assert_int_equal(p->n_rank_micros, 3);
    assert_int_equal(p->micros[0], 5); // first micro-batches of both replicas first
    assert_int_equal(p->micros[1], 6);
    assert_int_equal(p->micros[2], 7);
    dt_replica_plan_destroy(p);
    must_fail(DT_E_USAGE, "at most 8 ranks", dt_replica_plan_create(&p, true, 0, 9, 1, 8));
}

TEST_MAIN(NULL, NULL)
