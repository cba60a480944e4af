// print.c: a graph as text, a line a live node, in execution order:
//
//   fingerprint.1  batch_norm  relu pool 2x2/2  fingerprint.0 (4,32,96,103)bf16 -> max_pool (4,32,48,51)bf16
//
// then the number of parameters and the outputs. Columns are as wide as their widest entry.

#include "base/text.h"
#include "graph/ir.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void print_put_values(const dt_graph *g, const dt_value *v, int n, FILE *out) {
    char shape[96];
    const char *separator = "";
    for (int i = 0; i < n; i++) {
        if (v[i] == DT_NONE) continue;
        const dt_value_info *info = &g->values[v[i]];
        dt_text_printf(out, "%s%s %s%s", separator, info->name, dt_shape_print(&info->shape, shape, sizeof shape),
                       dt_dtype_name(info->dtype));
        separator = ", ";
    }
}

// The columns of a node: op, attributes (heap).
static char *node_columns(const dt_node *n, char op[64]) {
    char *attrs = NULL;
    size_t size;
    FILE *out = open_memstream(&attrs, &size);
    assert(out);
    snprintf(op, 64, "%s%s", dt_op_name(n->op), n->backward ? ".bwd" : "");
    if (dt_op_get(n->op)->rules->print) dt_op_get(n->op)->rules->print(n, out);
    fclose(out);
    return attrs;
}

static void print_nodes(const dt_graph *g, FILE *out) {
    int wide_name = 0, wide_op = 0, wide_attrs = 0;
    char op[64];
    for (int prints = 0; prints < 2; prints++) // first the widths
        for (const dt_node *n = g->nodes; n < g->nodes + g->n_nodes; n++) {
            if (n->dead) continue;
            char *attrs = node_columns(n, op);
            if (prints) {
                dt_text_printf(out, "%-*s  %-*s %-*s  ", wide_name, n->name, wide_op, op, wide_attrs, attrs);
                print_put_values(g, n->in, n->n_in, out);
                fputs(" -> ", out);
                print_put_values(g, n->out, n->n_out, out);
                fputc('\n', out);
            }
            if ((int)strlen(n->name) > wide_name) wide_name = (int)strlen(n->name);
            if ((int)strlen(op) > wide_op) wide_op = (int)strlen(op);
            if ((int)strlen(attrs) > wide_attrs) wide_attrs = (int)strlen(attrs);
            free(attrs);
        }
}

int64_t dt_graph_count_params(const dt_graph *g) {
    int64_t n = 0;
    for (int v = 0; v < g->n_values; v++) {
        if (g->values[v].kind == DT_V_PARAM) n += dt_shape_elements(&g->values[v].shape);
    }
    return n;
}

void dt_graph_print(const dt_graph *g, FILE *out) {
    int n_params = 0;
    for (int v = 0; v < g->n_values; v++) n_params += g->values[v].kind == DT_V_PARAM;
    dt_text_printf(out, "graph %s (%s)\n", g->name, g->training ? "training" : "inference");
    print_nodes(g, out);
    fprintf(out, "parameters: %" PRId64 " in %d tensors\n", dt_graph_count_params(g), n_params);
    for (int i = 0; i < g->n_outputs; i++) {
        dt_text_printf(out, "output %s: ", g->outputs[i].name);
        print_put_values(g, &g->outputs[i].value, 1, out);
        fputc('\n', out);
    }
}

// ---- summary ------------------------------------------------------------------------------------------------------

// What a graph costs, node by node, and its picture for Graphviz. FLOPs are those of forward, two for a
// multiplication with its addition; elementwise ops count one an element. Bytes are those of a node's results.

typedef struct cost {
    int64_t params;
    double flops, bytes;
} cost;

double dt_node_flops(const dt_graph *g, const dt_node *n) {
    if (n->backward && n->forward == DT_NONE) return 0; // it adds up a parameter's gradient
    const dt_node *forward = n->backward ? &g->nodes[n->forward] : n;
    const dt_op_rules *rules = dt_op_get(forward->op)->rules;
    if (forward->out[0] == DT_NONE) return 0;
    double times = 1;
    if (n->backward) times = (n->out[0] != DT_NONE) + (n->n_out > 1 && n->out[1] != DT_NONE);
    if (n->backward && rules->backward_flops > 0) times = rules->backward_flops;
    return times * (double)dt_shape_elements(&dt_info_of(g, forward->out[0])->shape) *
           (rules->flops ? rules->flops(g, forward) : 1);
}

// A parameter counts where it is first read.
static cost summary_cost_of(const dt_graph *g, const dt_node *n, bool *counted) {
    cost c = {0};
    for (int i = 0; i < n->n_in; i++) {
        const dt_value v = n->in[i];
        if (v == DT_NONE || dt_info_of(g, v)->kind != DT_V_PARAM || counted[v]) continue;
        counted[v] = true;
        c.params += dt_shape_elements(&dt_info_of(g, v)->shape);
    }
    for (int i = 0; i < n->n_out; i++) {
        if (n->out[i] == DT_NONE) continue;
        const dt_value_info *out = dt_info_of(g, n->out[i]);
        const int64_t elements = dt_shape_elements(&out->shape);
        c.bytes += (double)elements * (double)dt_dtype_size(out->dtype);
        if (i == 0) c.flops = dt_node_flops(g, n);
    }
    return c;
}

// Casts come of mixed precision, some in backward.
static bool is_shown(const dt_node *n) {
    return !n->dead && !n->backward && n->op != DT_OP_cast && n->out[0] != DT_NONE;
}

int64_t dt_graph_samples(const dt_graph *g) {
    for (int v = 0; v < g->n_values; v++)
        if (dt_info_of(g, v)->kind == DT_V_INPUT && dt_info_of(g, v)->shape.n > 0) return dt_info_of(g, v)->shape.d[0];
    return 1;
}

void dt_graph_print_costs(const dt_graph *g, FILE *out) {
    bool *counted = dt_xcalloc((size_t)g->n_values + 1, sizeof *counted);
    const double samples = (double)dt_graph_samples(g);
    cost all = {0};
    char shape[96];
    dt_text_printf(out, "%-48s %-16s %-20s %12s %12s %12s\n", "layer", "op", "shape", "parameters", "MFLOPs", "KiB");
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        if (!is_shown(n)) continue;
        const cost c = summary_cost_of(g, n, counted);
        dt_text_printf(out, "%-48s %-16s %-20s %12" PRId64 " %12.3f %12.1f\n", n->name, dt_op_name(n->op),
                       dt_shape_print(&dt_info_of(g, n->out[0])->shape, shape, sizeof shape), c.params,
                       c.flops / samples / 1e6, c.bytes / samples / 1024);
        all.params += c.params, all.flops += c.flops, all.bytes += c.bytes;
    }
    dt_text_printf(out, "%-48s %-16s %-20s %12" PRId64 " %12.3f %12.1f\n", "all, a sample", "", "", all.params,
                   all.flops / samples / 1e6, all.bytes / samples / 1024);
    free(counted);
}

static void summary_write_quoted(const char *s, FILE *out) {
    fputc('"', out);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fputc('\\', out);
        fputc(*s, out);
    }
    fputc('"', out);
}

void dt_graph_write_dot(const dt_graph *g, FILE *out) {
    char shape[96];
    fputs("digraph network {\n  node [shape=box, fontname=\"sans-serif\"];\n", out);
    for (int v = 0; v < g->n_values; v++) {
        if (dt_info_of(g, v)->kind != DT_V_INPUT) continue;
        fprintf(out, "  v%d [shape=ellipse, label=", v);
        summary_write_quoted(dt_info_of(g, v)->name, out);
        fputs("];\n", out);
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        if (!is_shown(n)) continue;
        fprintf(out, "  n%d [label=", i);
        summary_write_quoted(n->name, out);
        fprintf(out, ", xlabel=\"%s %s\"];\n", dt_op_name(n->op),
                dt_shape_print(&dt_info_of(g, n->out[0])->shape, shape, sizeof shape));
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] == DT_NONE) continue;
            const dt_value_info *in = dt_info_of(g, n->in[k]);
            if (in->kind == DT_V_INPUT) fprintf(out, "  v%d -> n%d;\n", n->in[k], i);
            while (in->producer != DT_NONE && g->nodes[in->producer].op == DT_OP_cast)
                in = dt_info_of(g, g->nodes[in->producer].in[0]);
            if (in->producer != DT_NONE) fprintf(out, "  n%d -> n%d;\n", in->producer, i);
        }
    }
    fputs("}\n", out);
}
