// recompute.c: activation checkpointing, less memory for more work (Chen et al. 2016, "Training Deep Nets with
// Sublinear Memory Cost"). Forward is cut into groups where little crosses from one side to the other, such as between
// residual blocks. What a group's nodes give is dropped when forward has passed, and recomputed by copies of the nodes,
// right before the group's backward:
//
//   a -> b -> c …   c.bwd(b) b.bwd(a)    =>    a -> b -> c …   b' = copy of b   c.bwd(b') b.bwd(a)
//
// Bits are the same: the copies read what the originals read, and draw the same random numbers (dt_graph_origin). Kept
// are what crosses into another group, and what is tiny (moments of norms). The copies give no batch statistics.
//
// How many groups: as many as lead to the lowest peak of live bytes. Then those without which the limit still holds are
// not recomputed, the most expensive first. The peak is counted over the graph's values, without regard to layouts,
// scratch and what runs in place, so it is above what the plan takes.
#include "base/regular.h"
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GROUPS = 64, TINY = 256 };

typedef struct recompute {
    dt_graph *g;
    int n_nodes, n_values; // of the graph as it came
    int n_forward;         // nodes in front of the first backward node
    bool *cut;             // by forward node: a group may end behind it
    bool *may;             // by forward node: may be recomputed
    int *group;            // by forward node, -1: in none
    int n_groups;
    bool on[MOST_GROUPS + 1];
    bool *needed;       // by forward node: its copy is wanted
    size_t *bytes;      // by value; 0: not a tensor of its own
    dt_value *root;     // by value: whose memory it is in
    size_t most, saved; // the largest that backward reads, and all of them
    bool *is_saved;     // by root
    int *last_forward;  // by root: the last forward node that reads it
    // of a run: order of nodes, copies as n_nodes + id, and lifetimes of values, copies' as n_values + id
    int *order, n_order, *first, *last;
} recompute;

// ---- facts -----------------------------------------------------------------------------------------

static bool is_loss(const dt_node *n) {
    return n->op == DT_OP_loss;
}

static void measure_values(recompute *r) {
    const dt_graph *g = r->g;
    for (dt_value v = 0; v < g->n_values; v++) {
        const dt_value_info *i = &g->values[v];
        const dt_node *n = i->producer != DT_NONE ? &g->nodes[i->producer] : NULL;
        r->root[v] = v;
        r->last_forward[v] = -1;
        if (i->kind != DT_V_TEMP || !n || n->dead) continue;
        // a reshape shares its input's memory (same_memory): no bytes of its own
        if (n->op == DT_OP_reshape)
            r->root[v] = r->root[n->in[n->backward ? n->n_fwd_in + n->n_fwd_out : 0]];
        else
            r->bytes[v] = (size_t)dt_shape_elements(&i->shape) * dt_dtype_size(i->dtype);
    }
    r->n_forward = g->n_nodes;
    for (dt_node_id id = g->n_nodes - 1; id >= 0; id--)
        if (!g->nodes[id].dead && g->nodes[id].backward) r->n_forward = id;
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        const dt_node *n = &g->nodes[id];
        for (int k = 0; k < n->n_in && !n->dead; k++) {
            if (n->in[k] == DT_NONE) continue;
            const dt_value v = r->root[n->in[k]];
            const dt_node_id from = g->values[v].producer;
            if (id < r->n_forward)
                r->last_forward[v] = id;
            else if (from != DT_NONE && from < r->n_forward)
                r->is_saved[v] = true; // forward made it, backward reads it: it lives through all that lies between
        }
    }
    for (dt_value v = 0; v < g->n_values; v++)
        if (r->is_saved[v]) {
            r->saved += r->bytes[v];
            if (r->bytes[v] > r->most) r->most = r->bytes[v];
        }
}

// Behind which forward nodes little more than one tensor crosses.
static void find_cuts(recompute *r) {
    const dt_graph *g = r->g;
    for (dt_node_id id = 0; id < r->n_forward; id++) {
        size_t all = 0, largest = 0;
        for (dt_value v = 0; v < g->n_values; v++) {
            const dt_node_id from = g->values[v].producer;
            if (!r->bytes[v] || from > id || r->last_forward[v] <= id) continue;
            all += r->bytes[v];
            if (r->bytes[v] > largest) largest = r->bytes[v];
        }
        r->cut[id] = all <= largest + largest / 4;
    }
}

// FLOPs, but at least 8 for each element of the result: reading and writing it takes about as long.
static double recompute_cost_of(const dt_graph *g, const dt_node *n) {
    const double least = 8 * (double)dt_shape_elements(&g->values[n->out[0]].shape);
    const double flops = dt_node_flops(g, n);
    return flops > least ? flops : least;
}

// ---- groups ----------------------------------------------------------------------------------------

// About m groups of equal saved bytes. The last one is not worth it: backward begins with it.
static void recompute_make_groups(recompute *r, int m) {
    const dt_graph *g = r->g;
    const size_t share = r->saved / (size_t)m; // saved bytes of a group
    size_t held = 0;
    r->n_groups = 0;
    for (dt_node_id id = 0; id < r->n_forward; id++) {
        const dt_node *n = &g->nodes[id];
        r->group[id] = n->dead || !r->may[id] ? -1 : r->n_groups;
        for (int k = 0; k < n->n_out && !n->dead; k++)
            if (n->out[k] != DT_NONE && r->is_saved[n->out[k]]) held += r->bytes[n->out[k]];
        // only at a cut, or much of a group would be kept for the next
        if (!r->cut[id] || held < share || r->n_groups == MOST_GROUPS - 1) continue;
        held = 0;
        r->n_groups++;
    }
    r->n_groups++;
    for (int i = 0; i < r->n_groups; i++) r->on[i] = i + 1 < r->n_groups;
}

// The copy's output that backward node `bwd` reads instead of its input v, if there is one.
static bool takes_copy(const recompute *r, const dt_node *bwd, dt_value v) {
    if (v == DT_NONE || bwd->forward == DT_NONE || bwd->forward >= r->n_forward) return false;
    const dt_value from = r->root[v];
    const dt_node_id p = r->g->values[v].producer;
    if (p == DT_NONE || p >= r->n_forward || r->g->values[v].kind != DT_V_TEMP) return false;
    const int group = r->group[bwd->forward];
    if (group < 0 || !r->on[group] || r->group[p] != group) return false; // made in another group: kept
    const int last = r->last_forward[from];
    if (last >= 0 && r->group[last] != group) return false; // it is kept for another group
    return r->bytes[from] * TINY > r->most;                 // tiny tensors stay: copies would save nothing
}

static void need(recompute *r, dt_node_id id) {
    const dt_graph *g = r->g;
    if (r->needed[id]) return;
    r->needed[id] = true;
    for (int k = 0; k < g->nodes[id].n_in; k++) {
        const dt_value v = g->nodes[id].in[k];
        const dt_node_id p = v == DT_NONE ? DT_NONE : g->values[v].producer;
        // up to the group's inputs, which are kept
        if (p != DT_NONE && p < r->n_forward && r->group[p] == r->group[id]) need(r, p);
    }
}

static void recompute_find_needed(recompute *r) {
    const dt_graph *g = r->g;
    memset(r->needed, 0, (size_t)r->n_forward);
    for (dt_node_id id = r->n_forward; id < g->n_nodes; id++) {
        const dt_node *n = &g->nodes[id];
        for (int k = 0; k < n->n_in && !n->dead; k++)
            if (takes_copy(r, n, n->in[k])) need(r, g->values[n->in[k]].producer);
    }
}

// All nodes and copies in the order of execution: a group's copies stand before the first node that reads one.
static void recompute_make_order(recompute *r) {
    const dt_graph *g = r->g;
    bool done[MOST_GROUPS + 1] = {false};
    recompute_find_needed(r);
    r->n_order = 0;
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        const dt_node *n = &g->nodes[id];
        for (int k = 0; k < n->n_in && !n->dead && n->backward; k++) {
            // once a group: the first backward node that reads a copy
            if (!takes_copy(r, n, n->in[k]) || done[r->group[n->forward]]) continue;
            done[r->group[n->forward]] = true;
            for (dt_node_id c = 0; c < r->n_forward; c++)
                if (r->needed[c] && r->group[c] == r->group[n->forward]) r->order[r->n_order++] = g->n_nodes + c;
        }
        r->order[r->n_order++] = id;
    }
}

// The value that input k of an entry of the order reads; copies' outputs as n_values + value.
static int recompute_input_of(const recompute *r, int entry, int k) {
    const dt_graph *g = r->g;
    const bool copy = entry >= r->n_nodes;
    const dt_node *n = &g->nodes[copy ? entry - r->n_nodes : entry];
    const dt_value v = n->in[k];
    if (v == DT_NONE) return -1;
    if (!copy) return n->backward && takes_copy(r, n, v) ? r->n_values + v : v;
    const dt_node_id p = g->values[v].producer;
    const bool inside = p != DT_NONE && p < r->n_forward && r->group[p] >= 0 &&
                        r->group[p] == r->group[entry - r->n_nodes] && r->needed[p];
    return inside ? r->n_values + v : v;
}

static int memory_of(const recompute *r, int value) {
    const int n = r->n_values;
    return value < n ? r->root[value] : n + r->root[value - n];
}

// Most bytes that live at once.
static size_t find_peak(recompute *r) {
    const dt_graph *g = r->g;
    recompute_make_order(r);
    for (int v = 0; v < 2 * g->n_values; v++) r->first[v] = r->last[v] = -1;
    for (int i = 0; i < r->n_order; i++) {
        const int entry = r->order[i];
        const dt_node *n = &g->nodes[entry % g->n_nodes]; // of a copy: the node that it copies
        const int base = entry >= g->n_nodes ? g->n_values : 0;
        for (int k = 0; k < n->n_in && !n->dead; k++) {
            const int v = recompute_input_of(r, entry, k);
            if (v >= 0) r->last[memory_of(r, v)] = i;
        }
        for (int k = 0; k < n->n_out && !n->dead; k++)
            if (n->out[k] != DT_NONE && r->bytes[n->out[k]]) r->first[base + n->out[k]] = r->last[base + n->out[k]] = i;
    }
    for (int i = 0; i < g->n_outputs; i++) r->last[memory_of(r, g->outputs[i].value)] = r->n_order - 1;
    // a sweep: bytes that begin to live, less those that end, at each place of the order
    int64_t *change = dt_xcalloc((size_t)r->n_order + 1, sizeof *change);
    for (int v = 0; v < 2 * g->n_values; v++) {
        if (r->first[v] < 0) continue;
        change[r->first[v]] += (int64_t)r->bytes[v % g->n_values];
        change[r->last[v] + 1] -= (int64_t)r->bytes[v % g->n_values];
    }
    int64_t now = 0, peak = 0;
    for (int i = 0; i < r->n_order; i++) {
        now += change[i];
        if (now > peak) peak = now;
    }
    free(change);
    return (size_t)peak;
}

static double group_cost(const recompute *r, int group) {
    double sum = 0;
    for (dt_node_id id = 0; id < r->n_forward; id++)
        if (r->needed[id] && r->group[id] == group) sum += recompute_cost_of(r->g, &r->g->nodes[id]);
    return sum;
}

// ---- the choice ------------------------------------------------------------------------------------

static void choose_groups(recompute *r) {
    size_t least = SIZE_MAX;
    int best = 1;
    // few groups keep little but make much again at once; many keep what crosses
    for (int m = 1; m < MOST_GROUPS; m++) {
        recompute_make_groups(r, m);
        const size_t peak = find_peak(r);
        if (peak < least) least = peak, best = m;
    }
    recompute_make_groups(r, best);
}

// Leaves out groups as long as the peak stays within the limit, the most expensive first.
static void spare_groups(recompute *r, size_t limit) {
    const size_t least = find_peak(r);
    bool tried[MOST_GROUPS + 1] = {false};
    if (limit < least) limit = least;
    for (;;) {
        int next = -1;
        double most = -1;
        (void)find_peak(r);
        for (int i = 0; i < r->n_groups; i++) {
            const double cost = r->on[i] && !tried[i] ? group_cost(r, i) : -1;
            if (cost > most) most = cost, next = i;
        }
        if (next < 0) break;
        tried[next] = true;
        r->on[next] = false;
        if (find_peak(r) > limit) r->on[next] = true; // back: the peak lies here
    }
}

static dt_status find_named(recompute *r, const dt_recompute_opts *o) {
    for (int i = 0; i < o->n_names; i++) {
        regex_t regex;
        char text[512], why[DT_REGULAR_WHY];
        bool any = false;
        snprintf(text, sizeof text, "^(%s)$", o->names[i]); // of the whole name
        if (!dt_regular_compile(&regex, text, REG_NOSUB, why))
            return dt_fail(
                DT_E_USAGE,
                "train.recompute: '%s' is neither a regular expression (%s) nor none, auto or a size such as 4GiB",
                o->names[i], why);
        for (dt_node_id id = 0; id < r->n_forward; id++)
            if (regexec(&regex, r->g->nodes[id].name, 0, NULL, 0) == 0) r->may[id] = any = true;
        regfree(&regex);
        if (!any)
            return dt_fail(DT_E_USAGE,
                           "train.recompute: no layer of the network is called '%s'; dtrain check "
                           "--graph lists them",
                           o->names[i]);
    }
    return DT_OK;
}

// ---- the rewrite -----------------------------------------------------------------------------------

static void add_copies(recompute *r) {
    dt_graph *g = r->g;
    const int n_nodes = g->n_nodes, n_values = g->n_values;
    dt_value *copy_of = dt_xcalloc((size_t)n_values + 1, sizeof *copy_of);
    dt_node_id *copy = dt_xcalloc((size_t)n_nodes + 1, sizeof *copy);
    int *order = dt_xcalloc((size_t)r->n_order + 1, sizeof *order);
    char name[512];
    for (int i = 0; i < r->n_order; i++) {
        order[i] = r->order[i];
        if (order[i] < n_nodes) continue;
        const dt_node_id id = order[i] - n_nodes;
        const dt_node from = g->nodes[id];
        dt_value *in = dt_arena_alloc(&g->arena, (size_t)(from.n_in + 1) * sizeof *in);
        for (int k = 0; k < from.n_in; k++) {
            const int v = recompute_input_of(r, n_nodes + id, k);
            in[k] = v < 0 ? DT_NONE : v < n_values ? v : copy_of[v - n_values];
        }
        snprintf(name, sizeof name, "%s.again", from.name); // random numbers follow dt_graph_origin, not this name
        dt_graph_add_node(g, from.op, name, in, from.n_in, from.n_out, &from.attrs);
        order[i] = copy[id] = g->n_nodes - 1;
        g->nodes[copy[id]].forward = id;
        for (int k = 0; k < from.n_out; k++) {
            if (from.out[k] == DT_NONE || g->values[from.out[k]].kind != DT_V_TEMP) continue; // no statistics twice
            const dt_value_info v = g->values[from.out[k]];
            snprintf(name, sizeof name, "%s.again", v.name);
            copy_of[from.out[k]] = dt_graph_add_value(g, DT_V_TEMP, name, v.dtype, &v.shape);
            dt_graph_set_out(g, &g->nodes[copy[id]], k, copy_of[from.out[k]]);
        }
    }
    for (dt_node_id id = r->n_forward; id < n_nodes; id++) {
        dt_node *n = &g->nodes[id];
        for (int k = 0; k < n->n_in && !n->dead; k++)
            if (takes_copy(r, n, n->in[k])) n->in[k] = copy_of[n->in[k]];
    }
    for (dt_node_id id = r->n_forward; id < n_nodes; id++) // their saved tensors are the copy's
        if (g->nodes[id].forward != DT_NONE && copy[g->nodes[id].forward])
            g->nodes[id].forward = copy[g->nodes[id].forward];
    dt_graph_permute_nodes(g, order);
    free(copy_of);
    free(copy);
    free(order);
}

dt_status dt_pass_recompute(dt_graph *g, const dt_recompute_opts *o) {
    DT_TRY(dt_graph_check(g));
    const size_t n = (size_t)g->n_nodes + 1, v = (size_t)g->n_values + 1;
    dt_arena a;
    dt_arena_init(&a);
    recompute r = {.g = g, .n_nodes = g->n_nodes, .n_values = g->n_values};
    r.cut = dt_arena_alloc(&a, n);
    r.may = dt_arena_alloc(&a, n);
    r.needed = dt_arena_alloc(&a, n);
    r.group = dt_arena_alloc(&a, n * sizeof *r.group);
    r.bytes = dt_arena_alloc(&a, v * sizeof *r.bytes);
    r.root = dt_arena_alloc(&a, v * sizeof *r.root);
    r.is_saved = dt_arena_alloc(&a, v);
    r.last_forward = dt_arena_alloc(&a, v * sizeof *r.last_forward);
    r.order = dt_arena_alloc(&a, 2 * n * sizeof *r.order);
    r.first = dt_arena_alloc(&a, 2 * v * sizeof *r.first);
    r.last = dt_arena_alloc(&a, 2 * v * sizeof *r.last);
    measure_values(&r);
    find_cuts(&r);
    for (dt_node_id id = 0; id < r.n_forward; id++) r.may[id] = o->n_names == 0;
    dt_status st = find_named(&r, o);
    for (dt_node_id id = 0; id < r.n_forward; id++) r.may[id] &= !g->nodes[id].dead && !is_loss(&g->nodes[id]);
    double all = 0, again = 0;
    for (dt_node_id id = 0; id < r.n_forward; id++)
        if (!g->nodes[id].dead && !is_loss(&g->nodes[id])) all += recompute_cost_of(g, &g->nodes[id]);
    if (st == DT_OK) {
        recompute_make_groups(&r, 1);
        memset(r.on, 0, sizeof r.on); // nothing recomputed: the peak without the pass
        g->recompute.bytes_before = find_peak(&r);
        if (o->limit < g->recompute.bytes_before) {
            choose_groups(&r);
            if (o->n_names == 0) spare_groups(&r, o->limit);
        }
        g->recompute.bytes_after = find_peak(&r);
        for (int i = 0; i < r.n_groups; i++) again += group_cost(&r, i);
        g->recompute.compute = 1 + again / (3 * all); // backward is twice forward
        add_copies(&r);
    }
    dt_arena_fini(&a);
    return st == DT_OK ? dt_graph_check(g) : st;
}
