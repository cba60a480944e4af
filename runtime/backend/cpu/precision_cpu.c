// precision_cpu.c: which of fp32 and bf16 is faster for a network, on this CPU. Having bf16 instructions is not enough:
// some CPUs run them at half the rate of fp32, and Winograd is for fp32 only.
//
// The largest convolutions and linear layers are timed in both precisions, with what else was chosen for them, until
// nine tenths of the work or the budget are covered.
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_choices.h"
#include "backend/time_nodes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double BUDGET_S = 0.6, ENOUGH = 0.9;

// The same node in the other precision's graph.
static const dt_node *twin_of(const dt_node *n, const dt_graph *g) {
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *m = &g->nodes[i];
        if (!m->dead && m->op == n->op && m->backward == n->backward &&
            strcmp(m->name, n->name) == 0)
            return m;
    }
    return NULL;
}

// Adds up the seconds of a micro-batch in each precision.
static dt_status time_groups(dt_backend *b, const dt_graph *const g[2], const dt_node_group *list,
                             int n, double total, double seconds[2], double *flop) {
    const double begin = dt_clock_work_s(b->threads),
                 left = dt_cpu_choices_left_s(dt_cpu_choices_of(b));
    for (int i = 0; i < n && *flop < ENOUGH * total; i++) {
        const dt_node *node[2] = {list[i].node, twin_of(list[i].node, g[1])};
        // what convolutions took to choose their algorithm meanwhile has a budget of its own
        const double chose = left - dt_cpu_choices_left_s(dt_cpu_choices_of(b));
        if (i && dt_clock_work_s(b->threads) - begin - chose > BUDGET_S) break;
        if (!node[1]) continue;
        for (int k = 0; k < 2; k++) {
            double s = 0;
            DT_TRY(dt_time_node(g[k], node[k], b, b->threads, 0, &s));
            seconds[k] += s * list[i].count;
        }
        *flop += list[i].flop * list[i].count;
    }
    return DT_OK;
}

static uint64_t hash_groups(const dt_node_group *list, int n) {
    uint64_t h = 0;
    for (int i = 0; i < n; i++) {
        const uint64_t one[3] = {h, dt_hash64(list[i].text, strlen(list[i].text)),
                                 (uint64_t)list[i].count};
        h = dt_hash64(one, sizeof one);
    }
    return h;
}

static void say(const dt_cpu_choices *c, const char *text, int faster) {
    static const char *const words[] = {"fp32", "bf16"};
    double rate[DT_CPU_CANDIDATES];
    if (dt_cpu_choices_rates(c, text, rate))
        dt_info("train.precision: auto: %s, %.2f times as fast as %s on this network here",
                words[faster], rate[faster] / rate[!faster], words[!faster]);
}

dt_status dt_cpu_choose_precision(dt_backend *b, const dt_graph *fp32, const dt_graph *bf16,
                                  int *faster) {
    const dt_graph *const g[2] = {fp32, bf16};
    dt_cpu_choices *choices = dt_cpu_choices_of(b);
    dt_node_group *list = NULL;
    double seconds[2] = {0, 0}, total = 0, flop = 0;
    char text[DT_CHOICE_TEXT], hex[17];
    dt_status st = DT_OK;
    const int n = dt_node_groups(&list, fp32);
    for (int i = 0; i < n; i++) total += list[i].flop * list[i].count;
    dt_hash_hex(hash_groups(list, n), hex);
    snprintf(text, sizeof text, "precision of %s %s", fp32->name, hex);
    *faster = dt_cpu_choices_find(choices, text);
    if (*faster < 0 && !dt_cpu_choices_timed(choices)) *faster = 1; // as the hardware says
    if (*faster < 0) {
        st = time_groups(b, g, list, n, total, seconds, &flop);
        const double rate[2] = {flop / 1e9 / (seconds[0] + 1e-9), flop / 1e9 / (seconds[1] + 1e-9)};
        if (st == DT_OK) *faster = dt_cpu_choices_add(choices, text, rate, 2, 0);
    }
    if (st == DT_OK) say(choices, text, *faster);
    free(list);
    return st;
}
