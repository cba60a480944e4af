// phases.c: see phases.h.
#include "train/phases.h"

#include "base/arena.h"
#include "train/schedule.h"

#include <inttypes.h>
#include <stdlib.h>

static int by_begin(const void *a, const void *b) {
    const dt_phase *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int add_phase(dt_phase *phases, int n, int64_t begin, bool joins) {
    int at = 0;
    while (at < n && phases[at].begin != begin) at++;
    if (at == n) phases[n++] = (dt_phase){.begin = begin};
    phases[at].joins |= joins;
    return n;
}

int dt_phases_list(dt_phase phases[DT_MAX_PHASES], dt_param_groups *g, const dt_scales *scales,
                   int64_t total_steps, int64_t steps_per_epoch) {
    int n = add_phase(phases, 0, 0, true);
    for (int i = 0; i < g->n; i++) {
        dt_param_group *group = &g->items[i];
        if (!group->thaws) continue;
        group->thaw = dt_amount_steps(group->until, total_steps, steps_per_epoch);
        n = add_phase(phases, n, group->thaw, false);
    }
    for (int i = 0; i < scales->n; i++)
        n = add_phase(phases, n,
                      dt_amount_steps(scales->items[i].from, total_steps, steps_per_epoch), true);
    qsort(phases, (size_t)n, sizeof *phases, by_begin);
    return n;
}

const dt_phase *dt_phases_at(const dt_phase *phases, int n, int64_t step) {
    while (n > 1 && phases[n - 1].begin > step) n--;
    return &phases[n - 1];
}

const dt_phase *dt_phases_evaluated(const dt_phase *phases, int n, int64_t done) {
    const dt_phase *p = dt_phases_at(phases, n, done > 0 ? done - 1 : 0);
    while (!p->joins) p--;
    return p;
}

dt_status dt_phases_check(const dt_param_groups *g, const dt_graph *graph) {
    const char **names = dt_xcalloc((size_t)graph->n_values + 1, sizeof *names);
    int n = 0;
    for (dt_value v = 0; v < graph->n_values; v++)
        if (graph->values[v].kind == DT_V_PARAM) names[n++] = graph->values[v].name;
    const dt_status st = dt_param_groups_check(g, names, n);
    free(names);
    return st;
}

void dt_phases_apply(const dt_param_groups *g, dt_params *p) {
    for (int i = 0; i < p->n_entries; i++) {
        dt_param_entry *e = &p->entries[i];
        const dt_param_group *group = dt_param_groups_of(g, e->name);
        if (!group) continue;
        e->lr_scale = (float)group->lr;
        e->decay_scale = (float)group->decay;
        e->thaw = group->thaw;
    }
}

static void print_group(const dt_param_group *group, FILE *out) {
    if (!group) {
        fprintf(out, "as train.optimizer says");
    } else if (group->freeze) {
        fprintf(out, "frozen");
    } else {
        fprintf(out, "lr x %g, decay x %g", group->lr, group->decay);
        if (group->thaws) fprintf(out, ", frozen until step %" PRId64, group->thaw);
    }
}

void dt_phases_print(const dt_param_groups *g, const dt_params *p, FILE *out) {
    if (g->n == 0) return;
    fprintf(out, "groups:\n");
    for (int i = 0; i <= g->n; i++) {
        const dt_param_group *group = i < g->n ? &g->items[i] : NULL;
        int n_tensors = 0;
        int64_t n = 0;
        for (int k = 0; k < p->n_entries; k++) {
            if (dt_param_groups_of(g, p->entries[k].name) != group) continue;
            n_tensors++;
            n += p->entries[k].count;
        }
        fprintf(out, "  %-28s %4d tensors %11" PRId64 " parameters, ",
                group ? group->match : "all others", n_tensors, n);
        print_group(group, out);
        fprintf(out, "\n");
    }
}

void dt_phases_print_memory(const dt_phase *phases, int n, int64_t total_steps, FILE *out) {
    for (int i = 0; i < n && n > 1; i++) {
        const int64_t end = i + 1 < n ? phases[i + 1].begin : total_steps;
        dt_plan_report r;
        dt_plan_report_get(phases[i].plan, &r);
        if (phases[i].begin < end)
            fprintf(out, "  steps %" PRId64 " to %" PRId64 ": %.1f MiB of activations a replica\n",
                    phases[i].begin, end - 1, (double)r.activation_bytes / 1048576.0);
    }
}
