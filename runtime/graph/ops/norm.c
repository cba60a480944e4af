// norm.c: norms: shape inference, gradient, builder call.

#include "op_util.h"

#include <math.h>
#include <stdio.h>

// ---- batch norm ---------------------------------------------------------------------------------------------------

// batch_norm: per channel (x - mean) / sqrt(var + eps) * scale + shift, then, when fused, + residual,
// ReLU, max-pool. Training takes the moments of this micro-batch; inference, and training where scale and shift are
// frozen (attrs.training is 0), take the running ones.
//   in  0 x (N,C,H,W) or (N,C)   1 scale (C)   2 shift (C)   3 running_mean (C)   4 running_var (C)
//       5 residual (shape of x), optional
//   out 0 y   and, in training graphs only,
//       1 saved_mean f32 (C)   2 saved_invstd f32 (C)
//       3 argmax u8 (shape of y), fused pool only: position in the window, row * kernel_w + column;
//         255 = the pooled value was clipped to zero by the ReLU. Or, behind a residual and for a backend
//         with dt_pass_relu_bits, bits u8 (pixels, ceil(C/8)): channel c of a pixel is bit c % 8 of byte c / 8, set
//         where the ReLU let it through. Or, with another activation (dt_pass_fuse_norm_act), the shift f32 (C) that was
//         applied to x: input 2 with what rounding the mean lost
//       4 STAT mean of the micro-batch (C)   5 STAT its unbiased variance (C); not with running moments
// sync_batch_norm is the same without what is fused, and its moments are those of all ranks (dt_graph.sync_bn).
// Backward reads x, scale, saved_mean, saved_invstd, y when a ReLU without pool is fused (its mask is
// y > 0) unless it has the bits, and argmax when a pool is; gives dx, dscale, dshift, dresidual. It has shift too,
// which costs nothing and lets a backend make the mask from x instead of reading y. With another activation it has the
// applied shift instead, and not y. Behind all other inputs dt_pass_relu_bits puts a second gradient of y (shape of y)
// that is added to the first.

enum { X, SCALE, SHIFT, RUNNING_MEAN, RUNNING_VAR, RESIDUAL };
enum { Y, SAVED_MEAN, SAVED_INVSTD, ARGMAX, MEAN, VAR };

static dt_status infer_training(dt_graph *g, dt_node_id id, const dt_shape *y, const dt_shape *c) {
    dt_attrs a = g->nodes[id].attrs;
    char mean[512], var[512];
    dt_op_add_out(g, id, SAVED_MEAN, "saved_mean", DT_F32, c);
    dt_op_add_out(g, id, SAVED_INVSTD, "saved_invstd", DT_F32, c);
    if (a.batch_norm.pool) dt_op_add_out(g, id, ARGMAX, "argmax", DT_U8, y);
    if (!a.batch_norm.training) return g->status; // frozen: running statistics stay as they are
    snprintf(mean, sizeof mean, "%s.mean", g->nodes[id].name);
    snprintf(var, sizeof var, "%s.var", g->nodes[id].name);
    dt_op_add_stat(g, id, MEAN, mean, c);
    dt_op_add_stat(g, id, VAR, var, c);
    if (g->status != DT_OK) return g->status;
    const dt_node *n = &g->nodes[id];
    // the commit moves running statistics by the mean over micro-batches
    dt_graph_add_update(g, n->in[RUNNING_MEAN], n->out[MEAN], a.batch_norm.momentum);
    dt_graph_add_update(g, n->in[RUNNING_VAR], n->out[VAR], a.batch_norm.momentum);
    return DT_OK;
}

static dt_status batch_norm_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, X);
    dt_attrs a = g->nodes[id].attrs;
    if (x.n != 4 && x.n != 2) return dt_op_fail(g, id, "wants (N,C,H,W) or (N,C)");
    dt_shape c = dt_shape1(x.d[1]);
    for (int i = SCALE; i <= RUNNING_VAR; i++) {
        dt_shape s = dt_op_in_shape(g, id, i);
        if (!dt_shape_equal(&s, &c)) return dt_op_fail(g, id, "input %d must be (C)", i);
    }
    if (dt_op_has_in(g, id, RESIDUAL)) {
        dt_shape r = dt_op_in_shape(g, id, RESIDUAL);
        if (!dt_shape_equal(&r, &x)) return dt_op_fail(g, id, "residual must have the shape of x");
    }
    dt_shape y = x;
    if (a.batch_norm.pool) {
        if (x.n != 4) return dt_op_fail(g, id, "a fused pool wants (N,C,H,W)");
        for (int d = 0; d < 2; d++) y.d[2 + d] = dt_op_window_out(&a.batch_norm.win, d, x.d[2 + d]);
        if (y.d[2] < 1 || y.d[3] < 1) return dt_op_fail(g, id, "the window is larger than the image");
    }
    dt_op_add_out(g, id, Y, NULL, dt_op_in_dtype(g, id, X), &y);
    if (!g->training) return g->status;
    if (a.batch_norm.training && x.d[0] * (x.n == 4 ? x.d[2] * x.d[3] : 1) < 2) {
        return dt_op_fail(g, id, "one value per channel has no variance: use a larger micro-batch");
    }
    return infer_training(g, id, &y, &c);
}

static dt_status batch_norm_grad(dt_grad_ctx *ctx, dt_node_id id) {
    const dt_attrs *a = &ctx->g->nodes[id].attrs;
    uint32_t save_out = 1u << SAVED_MEAN | 1u << SAVED_INVSTD;
    if (a->batch_norm.pool) {
        save_out |= 1u << ARGMAX;
    } else if (a->batch_norm.relu) {
        save_out |= 1u << Y;
    }
    return dt_grad_default(ctx, id, 1u << X | 1u << SCALE | 1u << SHIFT, save_out, 0);
}

static void batch_norm_print(const dt_node *n, FILE *out) {
    const dt_attrs *a = &n->attrs;
    if (!a->batch_norm.training) fprintf(out, " running");
    if ((n->backward ? n->n_fwd_in : n->n_in) > RESIDUAL) fprintf(out, " add");
    if (a->batch_norm.relu) fprintf(out, " relu");
    dt_op_print_act(a->batch_norm.act, out);
    if (!a->batch_norm.pool) return;
    fprintf(out, " pool");
    dt_op_print_window(&a->batch_norm.win, out);
}

DT_OP_DEFINE(batch_norm, .infer = batch_norm_infer, .grad = batch_norm_grad, .print = batch_norm_print);
DT_OP_DEFINE(sync_batch_norm, .infer = batch_norm_infer, .grad = batch_norm_grad);

dt_value dt_batch_norm(dt_graph *g, const char *name, dt_value x) {
    return dt_batch_norm_eps(g, name, x, 1e-5f, 0.1f);
}

dt_value dt_batch_norm_eps(dt_graph *g, const char *name, dt_value x, float eps, float momentum) {
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    dt_shape s = dt_info_of(g, x)->shape;
    if (s.n != 4 && s.n != 2) return dt_graph_fail(g, "batch_norm %s: wants (N,C,H,W) or (N,C)", name);
    if (!name) name = dt_graph_unique_name(g, "batch_norm");
    dt_shape c = dt_shape1(s.d[1]);
    dt_arena *m = &g->arena;
    dt_value in[5] = {x};
    in[SCALE] = dt_param(g, dt_arena_printf(m, "%s.weight", name), c, (dt_init){DT_INIT_CONSTANT, 1}, false);
    in[SHIFT] = dt_param(g, dt_arena_printf(m, "%s.bias", name), c, (dt_init){DT_INIT_ZERO, 0}, false);
    in[RUNNING_MEAN] = dt_graph_add_value(g, DT_V_BUFFER, dt_arena_printf(m, "%s.running_mean", name), DT_F32, &c);
    in[RUNNING_VAR] = dt_graph_add_value(g, DT_V_BUFFER, dt_arena_printf(m, "%s.running_var", name), DT_F32, &c);
    if (g->status != DT_OK) return DT_NONE;
    g->values[in[RUNNING_VAR]].init = (dt_init){DT_INIT_CONSTANT, 1};
    return dt_batch_norm_with(g, name, x, in + SCALE, eps, momentum);
}

dt_value dt_batch_norm_with(dt_graph *g, const char *name, dt_value x, const dt_value params[4], float eps,
                            float momentum) {
    dt_value in[5] = {x};
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    for (int i = 0; i < 4; i++) {
        if (params[i] == DT_NONE) return DT_NONE;
        in[SCALE + i] = params[i];
    }
    const bool frozen = g->values[in[SCALE]].frozen && g->values[in[SHIFT]].frozen; // then as in inference
    dt_attrs a = {.batch_norm = {.eps = eps, .momentum = momentum, .training = g->training && !frozen}};
    const dt_op op = g->sync_bn && a.batch_norm.training ? DT_OP_sync_batch_norm : DT_OP_batch_norm;
    return dt_graph_apply(g, op, name, in, 5, &a);
}

// ---- layer norm ---------------------------------------------------------------------------------------------------

// layer_norm: over the last dimension, (x - mean) / sqrt(var + eps) * scale + shift.
//   in  0 x (…,D)   1 scale (D)   2 shift (D)
//   out 0 y (…,D)   1 mean f32 (…)   2 invstd f32 (…)
// Backward reads x, scale, mean, invstd; gives dx, dscale, dshift.
//
// Where the pass fuse_norm_add has merged additions into it:
//   forward   in 3 residual: what is normalised is x + residual, rounded to their type; out 3 that sum
//   backward  reads the sum as x, and behind all other inputs a gradient (…,D) that is added to dx

static dt_status layer_norm_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0);
    if (x.n < 1) return dt_op_fail(g, id, "wants (…,D)");
    for (int i = 1; i <= 2; i++) {
        dt_shape s = dt_op_in_shape(g, id, i);
        if (s.n != 1 || s.d[0] != x.d[x.n - 1]) return dt_op_fail(g, id, "input %d must be (D)", i);
    }
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 0), &x);
    x.n--;
    dt_op_add_out(g, id, 1, "saved_mean", DT_F32, &x);
    dt_op_add_out(g, id, 2, "saved_invstd", DT_F32, &x);
    return g->status;
}

DT_OP_DEFINE(layer_norm, .infer = layer_norm_infer, .grad = dt_grad_saved, .save_in = 3, .save_out = 6);

dt_value dt_layer_norm(dt_graph *g, const char *name, dt_value x, float eps) {
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    dt_shape s = dt_info_of(g, x)->shape;
    if (s.n < 1) return dt_graph_fail(g, "layer_norm %s: wants (…,D)", name);
    if (!name) name = dt_graph_unique_name(g, "layer_norm");
    dt_shape d = dt_shape1(s.d[s.n - 1]);
    dt_value weight, bias;
    weight = dt_param(g, dt_arena_printf(&g->arena, "%s.weight", name), d, (dt_init){DT_INIT_CONSTANT, 1}, false);
    bias = dt_param(g, dt_arena_printf(&g->arena, "%s.bias", name), d, (dt_init){DT_INIT_ZERO, 0}, false);
    return dt_layer_norm_with(g, name, x, weight, bias, eps);
}

dt_value dt_layer_norm_with(dt_graph *g, const char *name, dt_value x, dt_value weight, dt_value bias, float eps) {
    const dt_attrs a = {.layer_norm = {eps}};
    return dt_graph_apply(g, DT_OP_layer_norm, name, (dt_value[]){x, weight, bias}, 3, &a);
}

// ---- l2 normalize -------------------------------------------------------------------------------------------------

// l2_normalize: x / max(|x|, 1e-12) over the last dimension, as torch.nn.functional.normalize.
//   in  0 x (…,D)
//   out 0 y (…,D)
// Backward reads x; gives dx.

DT_OP_DEFINE(l2_normalize, .infer = dt_op_rows, .grad = dt_grad_saved, .save_in = 1);

dt_value dt_l2_normalize(dt_graph *g, dt_value x) {
    return dt_graph_apply(g, DT_OP_l2_normalize, NULL, &x, 1, NULL);
}

dt_value dt_cosine(dt_graph *g, const char *name, dt_value x, int64_t out, float scale) {
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    const int64_t n = dt_info_of(g, x)->shape.d[1];
    const dt_init init = {DT_INIT_NORMAL, 1.0f / sqrtf((float)n)};
    dt_value w = dt_param(g, dt_arena_printf(&g->arena, "%s.weight", name), dt_shape2(out, n), init, true);
    x = dt_l2_normalize(g, x);
    w = dt_l2_normalize(g, w);
    if (w == DT_NONE) return DT_NONE;
    const dt_attrs a = {.matmul = {0, 1, scale}};
    return dt_graph_apply(g, DT_OP_matmul, name, (dt_value[]){x, w}, 2, &a);
}
