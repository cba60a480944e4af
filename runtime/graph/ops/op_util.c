// op_util.c: what the files of ops share (see op_util.h).
#include "op_util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

dt_status dt_op_fail(dt_graph *g, dt_node_id id, const char *fmt, ...) {
    const dt_node *n = &g->nodes[id];
    char shapes[256] = "", text[256], one[96];
    size_t at = 0;
    for (int i = 0; i < n->n_in && at < sizeof shapes; i++) {
        if (n->in[i] == DT_NONE) continue;
        const dt_value_info *v = &g->values[n->in[i]];
        at += (size_t)snprintf(shapes + at, sizeof shapes - at, "%s%s %s%s", i ? ", " : "", v->name,
                               dt_dtype_name(v->dtype), dt_shape_print(&v->shape, one, sizeof one));
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    dt_graph_fail(g, "%s %s on %s: %s", dt_op_name(n->op), n->name, shapes, text);
    return g->status;
}

bool dt_op_has_in(const dt_graph *g, dt_node_id id, int i) {
    const dt_node *n = &g->nodes[id];
    return i < n->n_in && n->in[i] != DT_NONE;
}

dt_shape dt_op_in_shape(const dt_graph *g, dt_node_id id, int i) {
    return g->values[g->nodes[id].in[i]].shape;
}

dt_dtype dt_op_in_dtype(const dt_graph *g, dt_node_id id, int i) {
    return g->values[g->nodes[id].in[i]].dtype;
}

void dt_op_add_out(dt_graph *g, dt_node_id id, int i, const char *suffix, dt_dtype dtype, const dt_shape *shape) {
    char name[512];
    snprintf(name, sizeof name, "%s%s%s", g->nodes[id].name, suffix ? "." : "", suffix ? suffix : "");
    dt_graph_set_out(g, &g->nodes[id], i, dt_graph_add_value(g, DT_V_TEMP, name, dtype, shape));
}

void dt_op_add_stat(dt_graph *g, dt_node_id id, int i, const char *name, const dt_shape *shape) {
    dt_graph_set_out(g, &g->nodes[id], i, dt_graph_add_value(g, DT_V_STAT, name, DT_F32, shape));
}

dt_status dt_op_shaped(dt_graph *g, dt_node_id id, const dt_shape *shape) {
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 0), shape);
    return g->status;
}

dt_status dt_op_same(dt_graph *g, dt_node_id id) {
    const dt_shape s = dt_op_in_shape(g, id, 0);
    if (!dt_dtype_is_float(dt_op_in_dtype(g, id, 0))) return dt_op_fail(g, id, "wants a floating tensor");
    return dt_op_shaped(g, id, &s);
}

dt_status dt_op_rows(dt_graph *g, dt_node_id id) {
    return dt_op_in_shape(g, id, 0).n < 1 ? dt_op_fail(g, id, "wants (…,D)") : dt_op_same(g, id);
}

int64_t dt_op_window_out(const dt_window *w, int d, int64_t n) {
    int64_t span = (int64_t)w->dilation[d] * (w->kernel[d] - 1) + 1;
    int64_t room = n + w->pad_begin[d] + w->pad_end[d] - span;
    return room < 0 ? 0 : room / w->stride[d] + 1;
}

dt_window dt_op_window_square(int kernel, int stride, int pad) {
    if (stride <= 0) stride = 1;
    return (dt_window){.kernel = {kernel, kernel},
                       .stride = {stride, stride},
                       .dilation = {1, 1},
                       .pad_begin = {pad, pad},
                       .pad_end = {pad, pad}};
}

dt_status dt_op_add_loss(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), w = dt_op_in_shape(g, id, 2), scalar = dt_shape0();
    if (x.n < 1) return dt_op_fail(g, id, "the prediction needs a batch dimension");
    if (!dt_dtype_is_float(dt_op_in_dtype(g, id, 0))) {
        return dt_op_fail(g, id, "the prediction must be floating");
    }
    if (w.n != 1 || w.d[0] != x.d[0] || dt_op_in_dtype(g, id, 2) != DT_F32) {
        return dt_op_fail(g, id, "weight must be f32 (N)");
    }
    if (g->loss != DT_NONE) {
        dt_graph_set_out(g, &g->nodes[id], 0, g->loss);
        return g->status;
    }
    dt_op_add_stat(g, id, 0, "loss", &scalar);
    dt_op_add_stat(g, id, 1, "loss_weight", &scalar);
    g->loss = g->nodes[id].out[0];
    g->loss_weight = g->nodes[id].out[1];
    return g->status;
}

dt_status dt_op_infer_pool(dt_graph *g, dt_node_id id, dt_shape *y) {
    dt_window w = g->nodes[id].attrs.pool.win;
    *y = dt_op_in_shape(g, id, 0);
    if (y->n != 4) return dt_op_fail(g, id, "wants (N,C,H,W)");
    if (w.dilation[0] > 1 || w.dilation[1] > 1) return dt_op_fail(g, id, "pooling with dilation is not supported");
    for (int d = 0; d < 2; d++) {
        if (w.kernel[d] < 1 || w.pad_begin[d] < 0 || w.pad_end[d] < 0 || w.pad_begin[d] > w.kernel[d] / 2 ||
            w.pad_end[d] >= w.kernel[d]) { // ceil_mode's end
            return dt_op_fail(g, id, "padding must be at most half of the window");
        }
        y->d[2 + d] = dt_op_window_out(&w, d, y->d[2 + d]);
        if (y->d[2 + d] < 1) return dt_op_fail(g, id, "the window is larger than the image");
    }
    return DT_OK;
}

void dt_op_print_window(const dt_window *w, FILE *out) {
    fprintf(out, " %dx%d", w->kernel[0], w->kernel[1]);
    if (w->stride[0] != 1 || w->stride[1] != 1) {
        fprintf(out, w->stride[0] == w->stride[1] ? "/%d" : "/%dx%d", w->stride[0], w->stride[1]);
    }
    if (w->pad_begin[0] || w->pad_begin[1] || w->pad_end[0] || w->pad_end[1]) {
        fprintf(out, " pad %d,%d,%d,%d", w->pad_begin[0], w->pad_begin[1], w->pad_end[0], w->pad_end[1]);
    }
    if (w->dilation[0] != 1 || w->dilation[1] != 1) {
        fprintf(out, " dilation %d,%d", w->dilation[0], w->dilation[1]);
    }
}

void dt_op_print_act(dt_activation act, FILE *out) {
    if (act) fprintf(out, " %s", dt_activation_name(act)); // none is 0
}

double dt_op_no_flops(const dt_graph *g, const dt_node *n) {
    (void)g;
    (void)n;
    return 0;
}
