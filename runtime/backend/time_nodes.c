// time_nodes.c: see time_nodes.h.
#include "backend/time_nodes.h"

#include "base/core.h"
#include "base/os.h"
#include "base/thread.h"
#include "base/watch.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- groups ----------------------------------------------------------------------------------------
static const dt_shape *shape_at(const dt_graph *g, const dt_node *n, int i) {
    // a backward node may lack an input whose gradient it writes
    const dt_value in = n->in[i], out = n->backward && i < n->n_out ? n->out[i] : DT_NONE;
    return &g->values[in != DT_NONE ? in : out].shape;
}

static bool is_product(const dt_node *n) {
    return n->op == DT_OP_conv2d || n->op == DT_OP_linear;
}

void dt_node_describe(const dt_graph *g, const dt_node *n, char *text, size_t cap) {
    char x[96], w[96], y[96], window[64] = "";
    if (!is_product(n)) { // no product: the first tensor describes the node
        dt_value v = DT_NONE;
        for (int i = 0; v == DT_NONE; i++) v = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
        snprintf(text, cap, "%s %s %s", dt_op_name(n->op), n->backward ? "backward" : "forward",
                 dt_shape_print(&g->values[v].shape, x, sizeof x));
        return;
    }
    // x, weight, y of a forward node or of a backward one
    const dt_value out = n->backward ? n->in[n->n_fwd_in + n->n_fwd_out] : n->out[0];
    const dt_shape *s[3] = {shape_at(g, n, 0), shape_at(g, n, 1), &g->values[out].shape};
    const bool data = !n->backward || n->out[0] != DT_NONE;
    const bool weights = n->backward && n->out[1] != DT_NONE;
    if (n->op == DT_OP_conv2d) {
        const dt_window *v = &n->attrs.conv2d.win;
        snprintf(window, sizeof window, ", stride %d pad %d,%d", v->stride[0], v->pad_begin[0], v->pad_begin[1]);
        if (n->attrs.conv2d.groups > 1) snprintf(window + strlen(window), 24, " groups %d", n->attrs.conv2d.groups);
    }
    snprintf(text, cap, "%s %s %s x %s to %s%s", dt_op_name(n->op),
             !n->backward ? "forward"
             : !data      ? "weight gradient"
             : weights    ? "gradients"
                          : "data gradient",
             dt_shape_print(s[0], x, sizeof x), dt_shape_print(s[1], w, sizeof w), dt_shape_print(s[2], y, sizeof y),
             window);
}

static int by_work(const void *a, const void *b) {
    const dt_node_group *x = a, *y = b; // descending
    const double fx = x->flop * x->count, fy = y->flop * y->count;
    // equal work: by text, so that the order is fixed
    return fx != fy ? (fx < fy) - (fx > fy) : strcmp(x->text, y->text);
}

int dt_node_groups(dt_node_group **out, const dt_graph *g) {
    dt_node_group *list = dt_xcalloc((size_t)g->n_nodes + 1, sizeof *list);
    int count = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        if (n->dead || !is_product(n)) continue;
        int k = 0;
        list[count] = (dt_node_group){.node = n, .count = 1, .flop = dt_node_flops(g, n)};
        dt_node_describe(g, n, list[count].text, sizeof list[count].text);
        while (strcmp(list[k].text, list[count].text) != 0) k++; // ends at the new entry at the latest
        if (k < count)
            list[k].count++;
        else
            count++;
    }
    qsort(list, (size_t)count, sizeof *list, by_work);
    *out = list;
    return count;
}

// ---- timing ----------------------------------------------------------------------------------------
// One kernel on every replica at once, each with memory of its own.
typedef struct timed_kernel {
    const dt_kernel *kernel;
    const dt_kernel_instance *s;
    dt_run *run;
    double *least;
} timed_kernel;

static double time_nodes_run(const timed_kernel *k, int replica) {
    const double begin = dt_clock_work_s(k->s->threads); // CPU time with one thread, wall time otherwise
    k->kernel->run(k->s, &k->run[replica]);
    dt_watch_tick();
    return dt_clock_work_s(k->s->threads) - begin;
}

static void time_replica(void *arg, int replica) {
    const timed_kernel *k = arg;
    omp_set_num_threads(k->s->threads); // per thread of the team
    time_nodes_run(k, replica);         // warm-up: pages, caches, code
    for (int i = 0; i < 2; i++) {
        const double now = time_nodes_run(k, replica);
        if (i == 0 || now < k->least[replica]) k->least[replica] = now;
    }
}

static void give_memory(dt_arena *a, const dt_kernel_instance *s, dt_run *r) {
    dt_operands o = {0};
    dt_operands_of(&o, s, a, r);                                                 // measures
    void *memory = memset(dt_arena_alloc(a, o.n_bytes + 64), 0, o.n_bytes + 64); // its pages exist
    o = (dt_operands){.base = dt_align_up((uintptr_t)memory, 64)};               // places
    dt_operands_of(&o, s, a, r);
}

dt_status dt_time_node(const dt_graph *g, const dt_node *n, dt_backend *b, int threads, int n_replicas, double *out) {
    dt_arena a;
    dt_team *team = NULL;
    DT_TRY(dt_team_create(&team, n_replicas, "time"));
    dt_arena_init(&a);
    dt_kernel_instance s = {.graph = g,
                            .node = n,
                            .backend = b,
                            .threads = threads,
                            .n_replicas = n_replicas, // kernels make memory objects for each worker group
                            .in_layout = dt_arena_alloc(&a, sizeof(dt_layout) * ((size_t)n->n_in + 1)),
                            .out_layout = dt_arena_alloc(&a, sizeof(dt_layout) * ((size_t)n->n_out + 1))};
    timed_kernel k = {.kernel = b->kernel(b, n->op, n->backward),
                      .s = &s,
                      .run = dt_arena_alloc(&a, sizeof *k.run * (size_t)n_replicas),
                      .least = dt_arena_alloc(&a, sizeof *k.least * (size_t)n_replicas)};
    const dt_status st = k.kernel->prepare(&s);
    if (st == DT_OK) {
        for (int i = 0; i < n_replicas; i++) {
            give_memory(&a, &s, &k.run[i]);
            k.run[i].replica = i;
        }
        dt_team_run(team, time_replica, &k);
        *out = 0;
        for (int i = 0; i < n_replicas; i++) *out += k.least[i] / n_replicas; // mean over worker groups
        if (k.kernel->destroy) k.kernel->destroy(&s);
    }
    dt_arena_fini(&a);
    dt_team_destroy(team);
    return st;
}
