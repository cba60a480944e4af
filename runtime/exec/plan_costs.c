// plan_costs.c: see plan_costs.h.
#include "exec/plan_costs.h"

#include "backend/time_nodes.h"
#include "base/os.h"
#include "base/watch.h"
#include "exec/plan_internal.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

typedef struct walk {
    dt_cost_counter counter; // first: what add_launch gets
    const dt_plan *plan;
    dt_kernel_cost *rows;
    int n;
} walk;

static dt_kernel_cost *new_row(walk *w, const dt_kernel_cost *first) {
    w->rows = dt_xgrow(w->rows, (size_t)w->n, sizeof *w->rows);
    w->rows[w->n] = *first;
    return &w->rows[w->n++];
}

static void add_launch(dt_cost_counter *c, const dt_kernel_cost *one) {
    walk *w = (walk *)c;
    // kinds are few: a kernel's name, or its op and shapes
    for (int i = 0; i < w->n; i++) {
        dt_kernel_cost *row = &w->rows[i];
        if (strcmp(row->kind, one->kind) != 0) continue;
        row->n += one->n;
        row->bytes += one->bytes, row->flop += one->flop;
        row->floor_s += one->floor_s, row->seconds += one->seconds;
        return;
    }
    new_row(w, one);
}

static void plan_costs_lay_out(walk *w, const dt_instruction *s, uintptr_t base, dt_arena *a, dt_run *r) {
    dt_operands *o = &w->counter.operands;
    o->base = base;
    o->n_bytes = 0, o->n = 0;
    if (s->kernel) {
        dt_operands_of(o, &s->instance, a, r);
        r->accumulate = s->adds; // reads what it adds to: that is moved, too
    } else {
        const dt_shape *shape = &w->plan->graph->values[s->value].shape;
        const void **in = dt_arena_alloc(a, sizeof *in);
        void **out = dt_arena_alloc(a, sizeof *out);
        *in = dt_operands_add(o, dt_layout_bytes(s->from, s->type, shape));
        *out = dt_operands_add(o, dt_layout_bytes(s->to, s->type, shape));
        *r = (dt_run){.in = in, .out = out};
    }
    if (w->plan->backend->device) r->stream = w->plan->backend->device->stream;
}

static void plan_costs_run(const dt_plan *p, const dt_instruction *s, const dt_run *r) {
    dt_backend *b = p->backend;
    if (s->kernel)
        s->kernel->run(&s->instance, r);
    else
        b->reorder(b, p->opts.threads, &p->graph->values[s->value].shape, r->in[0], s->type, s->from, r->out[0],
                   s->type, s->to, r->stream);
    dt_watch_tick(); // timing all kernels may take longer than the watchdog's limit
}

// The least of two runs and more, for 50 ms, after one that does not count.
static double time_run(const walk *w, const dt_instruction *s, const dt_run *r) {
    const int threads = w->plan->opts.threads;
    double begin, least = 0;
    // also pages: the first run would measure their faults
    memset((void *)w->counter.operands.base, 0, w->counter.operands.n_bytes);
    omp_set_num_threads(threads);
    for (int i = 0; i < 3 || dt_clock_work_s(threads) - begin < 0.05; i++) {
        const double now = dt_clock_work_s(threads);
        if (i <= 1) begin = now; // the first run does not count
        plan_costs_run(w->plan, s, r);
        const double took = dt_clock_work_s(threads) - now;
        if (i == 1 || took < least) least = took; // other processes only ever add time
    }
    return least;
}

// Work of a kernel on the CPU, by its operands; timed unless there is a row for the same work.
static void add_host_work(walk *w, const dt_instruction *s, const dt_run *r) {
    const dt_graph *g = w->plan->graph;
    char shape[96];
    dt_kernel_cost one = {.n = 1};
    for (int i = 0; i < w->counter.operands.n; i++) one.bytes += (double)w->counter.operands.list[i].n_bytes;
    if (s->kernel) {
        dt_node_describe(g, s->instance.node, one.kind, sizeof one.kind);
        one.flop = dt_node_flops(g, s->instance.node);
    } else {
        snprintf(one.kind, sizeof one.kind, "reorder %s to %s",
                 dt_shape_print(&g->values[s->value].shape, shape, sizeof shape), dt_layout_name(s->to));
    }
    dt_kernel_cost *row = w->rows, *end = w->rows + w->n;
    // the same op on the same shapes and bytes takes as long: timed once
    while (row < end && (strcmp(row->kind, one.kind) != 0 || row->bytes != one.bytes * row->n)) row++;
    if (row == end) {
        if (w->counter.timed) one.seconds = time_run(w, s, r);
        new_row(w, &one);
        return;
    }
    row->seconds += row->seconds / row->n++; // one more of the mean
    row->bytes += one.bytes, row->flop += one.flop;
}

static int by_need(const void *a, const void *b) {
    const dt_kernel_cost *x = a, *y = b;
    if (x->floor_s != y->floor_s) return x->floor_s < y->floor_s ? 1 : -1;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? 1 : -1;
    return strcmp(x->kind, y->kind);
}

dt_status dt_plan_costs(const dt_plan *p, const dt_device_rates *rates, bool timed, dt_kernel_cost **out, int *n) {
    const dt_device *device = p->backend->device;
    walk w = {.counter = {.timed = timed, .add = add_launch}, .plan = p};
    dt_arena a;
    dt_run r;
    void *memory = NULL;
    size_t most = 0;
    if (device) w.counter.rates = rates ? *rates : device->rates;
    dt_arena_init(&a);
    for (int k = 0; k < p->n_instructions; k++) {
        plan_costs_lay_out(&w, &p->instructions[k], 0, &a, &r);
        if (w.counter.operands.n_bytes > most) most = w.counter.operands.n_bytes;
    }
    dt_status st = timed ? p->backend->alloc(p->backend, &memory, most, "kernels alone") : DT_OK;
    const uintptr_t base = timed ? (uintptr_t)memory : DT_NO_MEMORY; // counting needs addresses, not bytes
    for (int k = 0; k < p->n_instructions && st == DT_OK; k++) {
        const dt_instruction *s = &p->instructions[k];
        plan_costs_lay_out(&w, s, base, &a, &r);
        if (!device) {
            add_host_work(&w, s, &r);
            continue;
        }
        device->count(p->backend, &w.counter);
        plan_costs_run(p, s, &r);
    }
    if (device) {
        device->count(p->backend, NULL);
        if (st == DT_OK) st = device->synchronize(p->backend, device->stream);
    }
    if (memory) p->backend->free(p->backend, memory, most);
    dt_arena_fini(&a);
    if (w.n) qsort(w.rows, (size_t)w.n, sizeof *w.rows, by_need);
    *out = w.rows;
    *n = w.n;
    return st;
}
