// print.c: a graph as text, a line a live node, in execution order:
//
//   fingerprint.1  batch_norm  relu pool 2x2/2  fingerprint.0 (4,32,96,103)bf16 -> max_pool (4,32,48,51)bf16
//
// then the number of parameters and the outputs. Columns are as wide as their widest entry.

#include "base/text.h"
#include "graph/activation_words.h"
#include "graph/ir.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char *at, *end;
} text;

static void print_put(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void print_put(text *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->at, (size_t)(t->end - t->at), fmt, args);
    va_end(args);
    t->at = n < t->end - t->at ? t->at + n : t->end - 1;
}

static void put_window(text *t, const dt_window *w) {
    print_put(t, " %dx%d", w->kernel[0], w->kernel[1]);
    if (w->stride[0] != 1 || w->stride[1] != 1) {
        print_put(t, w->stride[0] == w->stride[1] ? "/%d" : "/%dx%d", w->stride[0], w->stride[1]);
    }
    if (w->pad_begin[0] || w->pad_begin[1] || w->pad_end[0] || w->pad_end[1]) {
        print_put(t, " pad %d,%d,%d,%d", w->pad_begin[0], w->pad_begin[1], w->pad_end[0], w->pad_end[1]);
    }
    if (w->dilation[0] != 1 || w->dilation[1] != 1) {
        print_put(t, " dilation %d,%d", w->dilation[0], w->dilation[1]);
    }
}

static void put_act(text *t, dt_activation act) {
    if (act != DT_ACTIVATION_none) print_put(t, " %s", dt_activation_name(act));
}

static void put_conv2d(text *t, const dt_attrs *a) {
    put_window(t, &a->conv2d.win);
    if (a->conv2d.groups > 1) print_put(t, " groups %d", a->conv2d.groups);
    if (a->conv2d.fold_bn) print_put(t, " bn");
    put_act(t, a->conv2d.act);
}

static void put_batch_norm(text *t, const dt_attrs *a, const dt_node *n) {
    int n_fwd_in = n->backward ? n->n_fwd_in : n->n_in;
    if (!a->batch_norm.training) print_put(t, " running");
    if (n_fwd_in == 6) print_put(t, " add");
    if (a->batch_norm.relu) print_put(t, " relu");
    put_act(t, a->batch_norm.act);
    if (!a->batch_norm.pool) return;
    print_put(t, " pool");
    put_window(t, &a->batch_norm.win);
}

static void put_attrs(text *t, const dt_node *n) {
    const dt_attrs *a = &n->attrs;
    switch (n->op) {
    case DT_OP_cast:
        print_put(t, " %s", dt_dtype_name(a->cast.to));
        break;
    case DT_OP_quantize:
        print_put(t, " %s x%g", dt_dtype_name(a->quantize.to), (double)a->quantize.scale);
        break;
    case DT_OP_conv2d:
    case DT_OP_conv_transpose:
    case DT_OP_conv2d_int8:
        put_conv2d(t, a);
        break;
    case DT_OP_linear:
    case DT_OP_linear_int8:
        put_act(t, a->linear.act);
        if (a->linear.dgelu) print_put(t, " dgelu");
        break;
    case DT_OP_gelu:
    case DT_OP_activation:
        put_act(t, a->activation.kind);
        break;
    case DT_OP_matmul:
        print_put(t, "%s%s", a->matmul.trans_a ? " aT" : "", a->matmul.trans_b ? " bT" : "");
        if (a->matmul.alpha != 1.0f) print_put(t, " x%g", (double)a->matmul.alpha);
        break;
    case DT_OP_batch_norm:
        put_batch_norm(t, a, n);
        break;
    case DT_OP_max_pool:
    case DT_OP_avg_pool:
        put_window(t, &a->pool.win);
        break;
    case DT_OP_dropout:
    case DT_OP_add_branch:
        print_put(t, " p %g", (double)a->dropout.p);
        break;
    case DT_OP_scale:
        print_put(t, " x%g", (double)a->scale.alpha);
        break;
    case DT_OP_concat:
        print_put(t, " axis %d", a->concat.axis);
        break;
    case DT_OP_slice:
        print_put(t, " axis %d [%" PRId64 ",%" PRId64 ")", a->slice.axis, a->slice.begin, a->slice.end);
        break;
    case DT_OP_sdpa:
        print_put(t, " scale %g", (double)a->sdpa.scale);
        if (a->sdpa.heads) print_put(t, " packed, %d heads", a->sdpa.heads);
        break;
    case DT_OP_loss:
        if (a->loss.smoothing > 0.0f) print_put(t, " smoothing %g", (double)a->loss.smoothing);
        if (a->loss.param > 0.0f) print_put(t, " param %g", (double)a->loss.param);
        break;
    case DT_OP_image_augment:
    case DT_OP_image_normalize:
    case DT_OP_sync_batch_norm:
    case DT_OP_layer_norm:
    case DT_OP_relu:
    case DT_OP_expand:
    case DT_OP_sum:
    case DT_OP_resize:
    case DT_OP_global_pool:
    case DT_OP_add:
    case DT_OP_mul:
    case DT_OP_transpose:
    case DT_OP_reshape:
    case DT_OP_softmax:
    case DT_OP_l2_normalize:
    case DT_OP_arc_margin:
    case DT_OP_triplet:
    case DT_OP_COUNT:
        break;
    }
}

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

static void node_texts(const dt_node *n, char *op, size_t op_cap, char *attrs, size_t attrs_cap) {
    text t = {attrs, attrs + attrs_cap};
    snprintf(op, op_cap, "%s%s", dt_op_name(n->op), n->backward ? ".bwd" : "");
    attrs[0] = attrs[1] = 0;
    put_attrs(&t, n);
}

static void print_nodes(const dt_graph *g, FILE *out) {
    int wide_name = 0, wide_op = 0, wide_attrs = 0;
    char op[64], attrs[160];
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead) continue;
        node_texts(&g->nodes[i], op, sizeof op, attrs, sizeof attrs);
        int name_len = (int)strlen(g->nodes[i].name), op_len = (int)strlen(op), attrs_len = (int)strlen(attrs);
        if (name_len > wide_name) wide_name = name_len;
        if (op_len > wide_op) wide_op = op_len;
        if (attrs_len > wide_attrs) wide_attrs = attrs_len;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        if (n->dead) continue;
        node_texts(n, op, sizeof op, attrs, sizeof attrs);
        dt_text_printf(out, "%-*s  %-*s %-*s  ", wide_name, n->name, wide_op, op, wide_attrs, attrs);
        print_put_values(g, n->in, n->n_in, out);
        fputs(" -> ", out);
        print_put_values(g, n->out, n->n_out, out);
        fputc('\n', out);
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

static const dt_shape *in_shape(const dt_graph *g, const dt_node *n, int i) {
    return &dt_info_of(g, n->in[i])->shape;
}

// Per element of the first output.
static double flops_per_element(const dt_graph *g, const dt_node *n) {
    const dt_shape *s;
    switch (n->op) {
    case DT_OP_conv2d:
    case DT_OP_conv2d_int8:
        s = in_shape(g, n, 1);
        return 2.0 * (double)(s->d[1] * s->d[2] * s->d[3]);
    case DT_OP_conv_transpose: // each of x meets a window of each channel
        s = in_shape(g, n, 1);
        return 2.0 * (double)dt_shape_elements(in_shape(g, n, 0)) * (double)(s->d[1] * s->d[2] * s->d[3]) /
               (double)dt_shape_elements(&dt_info_of(g, n->out[0])->shape);
    case DT_OP_linear:
    case DT_OP_linear_int8:
        return 2.0 * (double)in_shape(g, n, 1)->d[1];
    case DT_OP_matmul:
        s = in_shape(g, n, 0);
        return 2.0 * (double)s->d[n->attrs.matmul.trans_a ? s->n - 2 : s->n - 1];
    case DT_OP_sdpa: // q k^T and its product with v: 2 T each
        s = in_shape(g, n, n->attrs.sdpa.heads ? 0 : 1);
        return 4.0 * (double)(n->attrs.sdpa.heads ? s->d[1] : s->d[2]);
    case DT_OP_max_pool:
    case DT_OP_avg_pool:
        return (double)n->attrs.pool.win.kernel[0] * n->attrs.pool.win.kernel[1];
    case DT_OP_global_pool:
        s = in_shape(g, n, 0);
        return (double)(s->d[2] * s->d[3]);
    case DT_OP_sum:
        return (double)dt_shape_elements(in_shape(g, n, 0)) /
               (double)dt_shape_elements(&dt_info_of(g, n->out[0])->shape);
    case DT_OP_reshape:
    case DT_OP_transpose:
    case DT_OP_concat:
    case DT_OP_slice:
    case DT_OP_expand:
    case DT_OP_cast:
    case DT_OP_quantize:
        return 0;
    case DT_OP_image_augment:
    case DT_OP_image_normalize:
    case DT_OP_batch_norm:
    case DT_OP_sync_batch_norm:
    case DT_OP_layer_norm:
    case DT_OP_relu:
    case DT_OP_gelu:
    case DT_OP_activation:
    case DT_OP_resize:
    case DT_OP_dropout:
    case DT_OP_add:
    case DT_OP_add_branch:
    case DT_OP_mul:
    case DT_OP_scale:
    case DT_OP_softmax:
    case DT_OP_loss:
    case DT_OP_l2_normalize:
    case DT_OP_arc_margin:
    case DT_OP_triplet:
    case DT_OP_COUNT:
        break;
    }
    return 1;
}

double dt_node_flops(const dt_graph *g, const dt_node *n) {
    double times = 1;
    if (n->backward) {
        if (n->forward == DT_NONE) return 0; // it adds up a parameter's gradient
        times = (n->out[0] != DT_NONE) + (n->n_out > 1 && n->out[1] != DT_NONE);
        if (n->op == DT_OP_sdpa) times = 2.5; // q k^T again, and two products for each of its factors
        n = &g->nodes[n->forward];
    }
    if (n->out[0] == DT_NONE) return 0;
    return times * (double)dt_shape_elements(&dt_info_of(g, n->out[0])->shape) * flops_per_element(g, n);
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
