// precision_cpu.c: which of fp32 and bf16 is faster for a network, on this CPU. Having bf16 instructions is not enough:
// some CPUs run them at half the rate of fp32.
//
// The largest convolutions and linear layers are timed in both precisions, with what else was chosen for them, until
// nine tenths of the work or the budget are covered: on all replicas at once, as fp32 needs more of the memory that they
// share. The other nodes take what moving their bytes takes.
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_choices.h"
#include "backend/time_nodes.h"
#include "base/core.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double BUDGET_S = 0.6, ENOUGH = 0.9; // seconds; share of the work

// The node of the same name in the graph of the other precision.
static const dt_node *twin_of(const dt_node *n, const dt_graph *g) {
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *m = &g->nodes[i];
        // passes keep names and ops
        if (!m->dead && m->op == n->op && m->backward == n->backward && strcmp(m->name, n->name) == 0) return m;
    }
    return NULL;
}

// Adds up the seconds of a micro-batch in each precision.
static dt_status time_groups(dt_backend *b, const dt_graph *const g[2], const dt_node_group *list, int n,
                             int n_replicas, double total, double seconds[2], double *flop) {
    const double begin = dt_clock_work_s(b->threads), left = dt_cpu_choices_left_s(dt_cpu_choices_of(b));
    for (int i = 0; i < n && *flop < ENOUGH * total; i++) { // largest groups first
        const dt_node *node[2] = {list[i].node, twin_of(list[i].node, g[1])};
        // what convolutions took to choose their algorithm meanwhile has a budget of its own
        const double chose = left - dt_cpu_choices_left_s(dt_cpu_choices_of(b));
        if (i && dt_clock_work_s(b->threads) - begin - chose > BUDGET_S) break; // the first group is timed in any case
        if (!node[1]) continue;                                                 // the node exists in fp32 only
        for (int k = 0; k < 2; k++) {
            double s = 0;
            DT_TRY(dt_time_node(g[k], node[k], b, b->threads, n_replicas, &s));
            seconds[k] += s * list[i].count; // nodes of equal shapes are timed once
        }
        *flop += list[i].flop * list[i].count;
    }
    return DT_OK;
}

// Seconds of the nodes that dt_node_groups leaves out, at the rate of a copy.
static void time_bytes(const dt_graph *const g[2], double seconds[2]) {
    enum { COPY_BYTES = 16 << 20 }; // 16 MiB: beyond a core's caches
    char *from = dt_xcalloc(COPY_BYTES, 1);
    char *volatile to = dt_xcalloc(COPY_BYTES, 1); // so that the copies are made
    double rate = 0;
    for (int i = 0; i < 3; i++) {
        memset(from, i + 1, COPY_BYTES);
        const double begin = dt_clock_work_s(1);
        memcpy(to, from, COPY_BYTES);
        const double now = 2.0 * COPY_BYTES / (dt_clock_work_s(1) - begin + 1e-9); // read and write; bytes per second
        if (i && now > rate) rate = now;                                           // the first touches the pages
    }
    free(to);
    free(from);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < g[k]->n_nodes; i++) {
            const dt_node *n = &g[k]->nodes[i];
            if (n->dead || n->op == DT_OP_conv2d || n->op == DT_OP_linear) continue;
            for (int j = 0; j < n->n_in + n->n_out; j++) {
                const dt_value v = j < n->n_in ? n->in[j] : n->out[j - n->n_in];
                if (v == DT_NONE) continue;
                const dt_value_info *x = &g[k]->values[v];
                // each operand is moved once
                seconds[k] += (double)dt_shape_elements(&x->shape) * (double)dt_dtype_size(x->dtype) / rate;
            }
        }
}

dt_status dt_cpu_choose_precision(dt_backend *b, const dt_graph *fp32, const dt_graph *bf16, int n_replicas,
                                  int *faster) {
    const dt_graph *const g[2] = {fp32, bf16};
    dt_cpu_choices *choices = dt_cpu_choices_of(b);
    dt_node_group *list = NULL;
    double seconds[2] = {0, 0}, total = 0, flop = 0;
    char text[DT_CHOICE_TEXT], hex[17];
    dt_status st = DT_OK;
    const int n = dt_node_groups(&list, fp32);
    for (int i = 0; i < n; i++) total += list[i].flop * list[i].count;
    uint64_t h = (uint64_t)n_replicas; // the key: what was timed, and by how many worker groups
    for (int i = 0; i < n; i++) {
        // chained: the order is by work, so it is fixed
        const uint64_t one[3] = {h, dt_hash64(list[i].text, strlen(list[i].text)), (uint64_t)list[i].count};
        h = dt_hash64(one, sizeof one);
    }
    dt_hash_hex(h, hex);
    snprintf(text, sizeof text, "precision of %s %s", fp32->name, hex);
    *faster = dt_cpu_choices_find(choices, text);
    if (*faster > 1 || (*faster < 0 && !dt_cpu_choices_timed(choices))) *faster = 1; // the default of the hardware
    if (*faster < 0) {
        st = time_groups(b, g, list, n, n_replicas, total, seconds, &flop);
        // extrapolates to all products; + 1: no division by zero
        for (int k = 0; k < 2; k++) seconds[k] *= total / (flop + 1);
        time_bytes(g, seconds);
        const double rate[2] = {total / 1e9 / (seconds[0] + 1e-9), total / 1e9 / (seconds[1] + 1e-9)};
        // 0 s: the budget is BUDGET_S, not that of kernels
        if (st == DT_OK) *faster = dt_cpu_choices_add(choices, text, rate, 2, 0);
    }
    double rate[DT_CHOICE_RATES];
    if (st == DT_OK && dt_cpu_choices_rates(choices, text, rate)) // not timed: nothing to print
        dt_info("train.precision: auto: %s, %.2f times as fast as %s on this network here", *faster ? "bf16" : "fp32",
                rate[*faster] / rate[!*faster], *faster ? "fp32" : "bf16");
    free(list);
    return st;
}
