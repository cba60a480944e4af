// fuse.c: passes that make one node of several, and remove dead ones.

#include "graph/activation_words.h"
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Calls visit for each live node in execution order, with the readers as they were before the first call.
static dt_status visit_nodes(dt_graph *g, void (*visit)(dt_graph *g, const dt_node_id *readers, dt_node *n)) {
    DT_TRY(dt_graph_check(g));
    dt_node_id *readers = dt_graph_sole_readers(g);
    for (dt_node_id id = 0; id < g->n_nodes && g->status == DT_OK; id++)
        if (!g->nodes[id].dead) visit(g, readers, &g->nodes[id]);
    free(readers);
    return dt_graph_check(g);
}

// ---- fuse ---------------------------------------------------------------------------------------------------------

// Merges chains of nodes into one node, before differentiation, so that the gradient is one kernel too.
//
//   batch_norm -> [add residual] -> relu -> [max_pool 2x2]   =>  batch_norm
//   linear -> relu (and gelu, in inference graphs)           =>  linear
//
// A value inside a chain must have one reader and be no graph output. The merged node keeps the name of the first node,
// and so its parameters and random numbers. It takes the place of the last node, because a residual may be computed
// after the batch norm, and the output of the last node, so that readers need no change.
//
// A pool is merged only if its windows tile the image: then each element has at most one window, and backward is a
// gather. It is not merged after a residual, whose gradient would need the mask before the pool.
//
// dt_pass_fuse_residual, for inference: conv2d -> add residual -> [relu]  =>  conv2d with a fourth input.

// Puts `merged`, the new form of `head`, in the place of `last`.
static void move_head(dt_graph *g, dt_node *head, dt_node *last, dt_node merged) {
    head->dead = true; // nodes between head and last are dead already, or merged by the caller
    dt_graph_swap_value_names(g, head->out[0], merged.out[0]);
    for (int i = 0; i < head->n_out; i++) {
        if (head->out[i] != DT_NONE) g->values[head->out[i]].producer = DT_NONE;
    }
    // dt_graph_rename_node frees the name that the node has at the moment
    const char *old_name = last->name;
    *last = merged;
    last->name = old_name;
    dt_graph_rename_node(g, (dt_node_id)(last - g->nodes), merged.name);
    for (int i = 0; i < merged.n_out; i++) dt_graph_set_out(g, last, i, merged.out[i]);
}

static bool pool_tiles(const dt_window *w) {
    for (int d = 0; d < 2; d++) {
        if (w->kernel[d] != 2 || w->stride[d] != 2 || w->dilation[d] != 1) return false; // the kernels have 2x2 only
        if (w->pad_begin[d] != 0 || w->pad_end[d] != 0) return false;
    }
    return true;
}

// The add after the batch norm, if it adds a tensor of the same shape: *other. Not a parameter: its gradient adds.
static dt_node *residual_add(dt_graph *g, const dt_node_id *readers, dt_value y, dt_value *other) {
    dt_node *add = dt_graph_reader(g, readers, y, DT_OP_add);
    if (!add) return NULL;
    *other = add->in[0] == y ? add->in[1] : add->in[0];
    const dt_value_info *v = &g->values[*other];
    if (*other == y || v->kind == DT_V_PARAM || !dt_shape_equal(&v->shape, &g->values[y].shape)) return NULL;
    return add;
}

static void fuse_batch_norm(dt_graph *g, const dt_node_id *readers, dt_node *bn) {
    dt_node merged = *bn;
    dt_value residual = DT_NONE;
    if (merged.attrs.batch_norm.relu || merged.n_in > 5) return; // fused before: the pass is idempotent
    dt_node *add = residual_add(g, readers, bn->out[0], &residual);
    dt_node *relu = dt_graph_reader(g, readers, add ? add->out[0] : bn->out[0], DT_OP_relu);
    if (!relu) return;
    dt_node *last = relu;
    // a residual's gradient needs the mask before the pool
    dt_node *pool = add ? NULL : dt_graph_reader(g, readers, relu->out[0], DT_OP_max_pool);
    merged.attrs.batch_norm.relu = 1;
    merged.out = dt_arena_alloc(&g->arena, (size_t)bn->n_out * sizeof *merged.out);
    for (int i = 0; i < bn->n_out; i++) merged.out[i] = bn->out[i];
    merged.out[0] = relu->out[0];
    if (add) {
        merged.in = dt_arena_alloc(&g->arena, 6 * sizeof *merged.in);
        for (int i = 0; i < 5; i++) merged.in[i] = bn->in[i];
        merged.in[5] = residual;
        merged.n_in = 6;
        add->dead = true;
        g->values[add->out[0]].producer = DT_NONE;
    }
    if (pool && pool_tiles(&pool->attrs.pool.win)) {
        merged.attrs.batch_norm.pool = 1;
        merged.attrs.batch_norm.win = pool->attrs.pool.win;
        merged.out[0] = pool->out[0];
        merged.out[3] = g->training ? pool->out[1] : DT_NONE; // argmax, for backward
        relu->dead = true;
        g->values[relu->out[0]].producer = DT_NONE;
        g->values[pool->out[1]].producer = DT_NONE;
        last = pool;
    }
    move_head(g, bn, last, merged);
}

static void fuse_linear(dt_graph *g, const dt_node_id *readers, dt_node *linear) {
    if (linear->attrs.linear.act != DT_ACTIVATION_none) return;
    dt_node *next = dt_graph_reader(g, readers, linear->out[0], DT_OP_relu);
    // in training exact GELU needs its input, which a fused kernel does not leave
    if (!next && !g->training) {
        next = dt_graph_reader(g, readers, linear->out[0], DT_OP_gelu);
    }
    if (!next) return;
    dt_node merged = *linear;
    merged.attrs.linear.act = next->attrs.activation.kind;
    merged.out = next->out;
    move_head(g, linear, next, merged);
}

static void fuse_residual(dt_graph *g, const dt_node_id *readers, dt_node *conv) {
    dt_value residual = DT_NONE;
    if (conv->op != DT_OP_conv2d || conv->backward || conv->n_in > 3 || conv->attrs.conv2d.act != DT_ACTIVATION_none)
        return;
    dt_node *add = residual_add(g, readers, conv->out[0], &residual);
    if (!add || g->values[residual].kind != DT_V_TEMP) return; // kernels read an activation there
    dt_node *relu = dt_graph_reader(g, readers, add->out[0], DT_OP_relu);
    dt_node *last = relu ? relu : add;
    dt_node merged = *conv;
    merged.attrs.conv2d.act = relu ? DT_ACTIVATION_relu : DT_ACTIVATION_none;
    merged.in = dt_arena_alloc(&g->arena, 4 * sizeof *merged.in);
    // a bias that is absent keeps its place
    for (int i = 0; i < 3; i++) merged.in[i] = i < conv->n_in ? conv->in[i] : DT_NONE;
    merged.in[3] = residual;
    merged.n_in = 4;
    merged.out = dt_arena_alloc(&g->arena, sizeof *merged.out);
    merged.out[0] = last->out[0];
    if (relu) {
        add->dead = true;
        g->values[add->out[0]].producer = DT_NONE;
    }
    move_head(g, conv, last, merged);
}

dt_status dt_pass_fuse_residual(dt_graph *g) {
    return g->training ? dt_graph_check(g) : visit_nodes(g, fuse_residual);
}

static void fuse_node(dt_graph *g, const dt_node_id *readers, dt_node *n) {
    if (n->op == DT_OP_batch_norm && !n->backward) fuse_batch_norm(g, readers, n);
    if (n->op == DT_OP_linear && !n->backward) fuse_linear(g, readers, n);
}

dt_status dt_pass_fuse(dt_graph *g) {
    return visit_nodes(g, fuse_node);
}

// ---- fuse norm act ------------------------------------------------------------------------------------------------

// Training graphs, for backends whose kernels can (dt_backend.passes). A batch norm applies
// the activation behind it, and its gradient that of the activation, so that z is neither written nor read:
//
//   batch_norm(x) -> z;  activation(z) -> y                    =>  batch_norm(x) -> y, saved_shift
//   activation.bwd(z, dy) -> dz;  batch_norm.bwd(x, …, dz)     =>  batch_norm.bwd(x, …, saved_shift, dy)
//
// The gradient makes z again from x. Both kernels round z and dz as if they were written, and the shift that the batch
// norm applied, which takes up what rounding the mean lost, is saved for it: results keep their bits. ReLU is fused
// above, before differentiation. The pass comes after mixed precision, which would keep a further output in f32, and
// after recompute: there z may be a copy's, which then is not needed.

enum { Z = 0, SAVED_MEAN = 1, SAVED_SHIFT = 3, RESIDUAL = 5 };

static bool is_plain_norm(const dt_node *n, bool backward) {
    return !n->dead && n->op == DT_OP_batch_norm && n->backward == backward && !n->attrs.batch_norm.relu &&
           !n->attrs.batch_norm.act && !n->attrs.batch_norm.pool &&
           (backward || n->n_in <= RESIDUAL || n->in[RESIDUAL] == DT_NONE);
}

static int dy_at(const dt_node *bwd) {
    return bwd->n_fwd_in + bwd->n_fwd_out;
}

// The gradient of the batch norm that alone reads what act.bwd gives, else NULL.
static dt_node *norm_behind(dt_graph *g, const dt_node_id *sole, const dt_node *act) {
    const dt_node_id id = sole[act->out[0]];
    dt_node *n = id == DT_NONE ? NULL : &g->nodes[id];
    return n && is_plain_norm(n, true) && n->in[dy_at(n)] == act->out[0] ? n : NULL;
}

// What reads z: at most the activation and its gradient; else false.
static bool find_readers(dt_graph *g, const dt_node_id *sole, dt_value z, dt_node *act[2]) {
    act[0] = act[1] = NULL;
    for (int i = 0; i < g->n_outputs; i++)
        if (g->outputs[i].value == z) return false;
    for (dt_node *n = g->nodes; n < g->nodes + g->n_nodes; n++)
        for (int k = 0; k < n->n_in && !n->dead; k++) {
            if (n->in[k] != z) continue;
            if (k || (n->op != DT_OP_activation && n->op != DT_OP_gelu) || act[n->backward]) return false;
            if (n->backward && !norm_behind(g, sole, n)) return false;
            act[n->backward] = n;
        }
    return true;
}

static void fuse_norm_act_take(dt_graph *g, dt_node *norm, dt_node *act) {
    norm->attrs.batch_norm.act = act->attrs.activation.kind;
    norm->attrs.batch_norm.number = act->attrs.activation.number;
    g->values[norm->backward ? act->out[0] : norm->out[Z]].producer = DT_NONE;
    act->dead = true;
}

// The shift is saved by the node that saved the mean.
static dt_value saved_shift(dt_graph *g, dt_value mean) {
    dt_node *norm = &g->nodes[g->values[mean].producer];
    char name[512];
    if (norm->out[SAVED_SHIFT] != DT_NONE) return norm->out[SAVED_SHIFT];
    snprintf(name, sizeof name, "%s.saved_shift", norm->name);
    const dt_shape shape = g->values[mean].shape; // the list of values may move
    const dt_value v = dt_graph_add_value(g, DT_V_TEMP, name, DT_F32, &shape);
    if (v != DT_NONE) dt_graph_set_out(g, norm, SAVED_SHIFT, v);
    return v;
}

static void fuse_norm_act(dt_graph *g, const dt_node_id *sole, dt_node *norm) {
    dt_node *act[2];
    if (!is_plain_norm(norm, false) || !find_readers(g, sole, norm->out[Z], act)) return;
    if (act[0]) {
        fuse_norm_act_take(g, norm, act[0]);
        dt_graph_set_out(g, norm, Z, act[0]->out[0]); // y in the place of z
    }
    // frozen layers in front: no gradient
    if (!act[1]) return;
    dt_node *back = norm_behind(g, sole, act[1]);
    fuse_norm_act_take(g, back, act[1]);
    back->in[dy_at(back)] = act[1]->in[dy_at(act[1])];
    back->in[back->n_fwd_in + SAVED_SHIFT] = saved_shift(g, back->in[back->n_fwd_in + SAVED_MEAN]);
}

dt_status dt_pass_fuse_norm_act(dt_graph *g) {
    if (!g->training) return dt_graph_check(g);
    DT_TRY(visit_nodes(g, fuse_norm_act));
    return dt_pass_dead_code(g);
}

// ---- fuse norm add ------------------------------------------------------------------------------------------------

// A transformer adds to its residual stream and normalizes the sum at once; the gradient of the stream
// is that of the layer norm plus the one from later layers. Each becomes one pass over the rows instead of two:
//
//   add(a, b) -> s;  layer_norm(s) -> y                     =>  layer_norm(a, …, b) -> y, …, s
//   layer_norm.bwd(s, …) -> d;  add(d, other) -> ds         =>  layer_norm.bwd(s, …, other) -> ds
//
// As without the pass, s is rounded before it is normalized, and d before `other` is added: results keep their bits.
// The merged node takes the place of the layer norm, so nothing may read s before it, and `other` must be computed
// before it. The pass comes after mixed precision, which would keep further outputs in f32; the types must be equal.

enum { FUSE_NORM_ADD_RESIDUAL = 3, SUM = 3 };

// `n` places, of which the first `kept` are copied and the others empty.
static dt_value *longer(dt_graph *g, const dt_value *list, int kept, int n) {
    dt_value *to = dt_arena_alloc(&g->arena, (size_t)n * sizeof *to);
    memcpy(to, list, (size_t)kept * sizeof *to);
    for (int i = kept; i < n; i++) to[i] = DT_NONE;
    return to;
}

static void fuse_norm_add_forward(dt_graph *g, dt_node *norm) {
    const dt_value s = norm->in[0];
    // the addition that made what is normalized
    const dt_node_id at = g->values[s].producer;
    if (norm->n_in > FUSE_NORM_ADD_RESIDUAL || at == DT_NONE || !dt_graph_adds_alike(g, &g->nodes[at])) return;
    if (g->values[s].dtype != g->values[norm->out[0]].dtype) return; // the kernel rounds both to one type
    for (const dt_node *n = &g->nodes[at]; n < norm; n++)            // s will be there behind the norm only
        for (int i = 0; i < n->n_in && !n->dead; i++)
            if (n->in[i] == s) return;
    dt_node *add = &g->nodes[at];
    norm->in = longer(g, norm->in, norm->n_in, FUSE_NORM_ADD_RESIDUAL + 1);
    norm->in[0] = add->in[0];
    norm->in[FUSE_NORM_ADD_RESIDUAL] = add->in[1];
    norm->n_in = FUSE_NORM_ADD_RESIDUAL + 1;
    norm->out = longer(g, norm->out, norm->n_out, SUM + 1);
    norm->n_out = SUM + 1;
    dt_graph_set_out(g, norm, SUM, s);
    add->dead = true;
}

static void fuse_norm_add_backward(dt_graph *g, const dt_node_id *readers, dt_node *norm) {
    const dt_value d = norm->out[0];
    if (d == DT_NONE || readers[d] == DT_NONE || !dt_graph_adds_alike(g, &g->nodes[readers[d]])) return;
    if (norm->n_in > norm->n_fwd_in + 2 * norm->n_fwd_out) return; // has one
    dt_node *add = &g->nodes[readers[d]];
    const dt_value other = add->in[0] == d ? add->in[1] : add->in[0];
    if (other == d || g->values[other].producer > norm - g->nodes) return; // computed behind the norm: too late
    norm->in = longer(g, norm->in, norm->n_in, norm->n_in + 1);
    norm->in[norm->n_in++] = other;
    dt_graph_set_out(g, norm, 0, add->out[0]);
    g->values[d].producer = DT_NONE;
    add->dead = true;
}

static void fuse_norm_add(dt_graph *g, const dt_node_id *readers, dt_node *n) {
    if (n->op == DT_OP_layer_norm && !n->backward) fuse_norm_add_forward(g, n);
    if (n->op == DT_OP_layer_norm && n->backward) fuse_norm_add_backward(g, readers, n);
}

dt_status dt_pass_fuse_norm_add(dt_graph *g) {
    return visit_nodes(g, fuse_norm_add);
}

// ---- fuse gelu ----------------------------------------------------------------------------------------------------

// Training graphs only: the tanh form of GELU goes into the matmuls before and after it.
//
//   linear -> z;  gelu(z) -> y                            =>  linear -> y, z          (attrs.act)
//   linear.bwd(..., dout) -> dy;  gelu.bwd(z, dy) -> dz   =>  linear.bwd(..., dout, z) -> dz   (attrs.dgelu)
//
// The first linear gives both y and z, and its backward node gets dz as before. The pass comes after differentiation,
// which it does not concern, and after mixed precision, which would keep a second output in f32. Exact GELU stays a
// node of its own: no library offers it as an epilogue with a gradient.

// The live linear node in this direction whose output 0 is v, else NULL.
static dt_node *linear_of(dt_graph *g, dt_value v, bool backward) {
    const dt_value_info *info = &g->values[v];
    if (info->producer == DT_NONE || info->out_index != 0) return NULL;
    dt_node *n = &g->nodes[info->producer];
    return !n->dead && n->op == DT_OP_linear && n->backward == backward ? n : NULL;
}

static void fuse_gelu_forward(dt_graph *g, dt_node *gelu) {
    const dt_value z = gelu->in[0], y = gelu->out[0];
    dt_node *linear = linear_of(g, z, false);
    if (!linear || linear->n_out != 1 || linear->attrs.linear.act != DT_ACTIVATION_none) return;
    // cuBLASLt writes both in one type
    if (g->values[z].dtype != g->values[y].dtype) return;
    linear->attrs.linear.act = DT_ACTIVATION_gelu_tanh;
    linear->n_out = 2;
    linear->out = dt_arena_alloc(&g->arena, 2 * sizeof *linear->out);
    dt_graph_set_out(g, linear, 0, y);
    dt_graph_set_out(g, linear, 1, z);
    gelu->dead = true;
}

static void fuse_gelu_backward(dt_graph *g, const dt_node_id *readers, dt_node *gelu) {
    const dt_value z = gelu->in[0], dy = gelu->in[gelu->n_fwd_in + gelu->n_fwd_out];
    const dt_value dz = gelu->out[0];
    dt_node *linear = linear_of(g, dy, true);
    if (!linear || linear->attrs.linear.dgelu || readers[dy] == DT_NONE) return; // dy has other readers
    if (g->values[z].dtype != g->values[dy].dtype || g->values[dz].dtype != g->values[dy].dtype) return;
    dt_value *in = dt_arena_alloc(&g->arena, (size_t)(linear->n_in + 1) * sizeof *in);
    for (int i = 0; i < linear->n_in; i++) in[i] = linear->in[i];
    in[linear->n_in++] = z;
    linear->in = in;
    linear->attrs.linear.dgelu = 1;
    dt_graph_set_out(g, linear, 0, dz);
    g->values[dy].producer = DT_NONE;
    gelu->dead = true;
}

static void fuse_gelu(dt_graph *g, const dt_node_id *readers, dt_node *n) {
    if (n->op != DT_OP_gelu || n->attrs.activation.kind != DT_ACTIVATION_gelu_tanh) return;
    if (n->backward)
        fuse_gelu_backward(g, readers, n);
    else
        fuse_gelu_forward(g, n);
}

dt_status dt_pass_fuse_gelu(dt_graph *g) {
    return visit_nodes(g, fuse_gelu);
}

// ---- fold bn ------------------------------------------------------------------------------------------------------

// Inference graphs only. With running statistics a batch norm is an affine map of each channel, so it folds
// into weight and bias of the convolution before it: y = conv(x, w s) + (b - mean) s + shift,
// s = scale / sqrt(var + eps). The pass only stores the parameters' ids in the attributes of the convolution. The
// backend folds when it packs the weight, so that new parameters need no new plan. A ReLU after it becomes the
// convolution's activation.
//
// The convolution keeps its name and its place, and its output becomes that of the last node.

// `conv` takes over the output of `next`, which dies.
static void take_output(dt_graph *g, dt_node *conv, dt_node *next) {
    dt_graph_swap_value_names(g, conv->out[0], next->out[0]);
    g->values[conv->out[0]].producer = DT_NONE;
    dt_graph_set_out(g, conv, 0, next->out[0]);
    next->dead = true;
}

// What is packed is a parameter; an ONNX file may have constants there.
static bool is_packable(const dt_graph *g, dt_value v) {
    return v == DT_NONE || g->values[v].kind == DT_V_PARAM;
}

static void fold_bn_node(dt_graph *g, const dt_node_id *readers, dt_node *conv) {
    if (conv->op != DT_OP_conv2d || conv->attrs.conv2d.act != DT_ACTIVATION_none) return;
    dt_node *bn = dt_graph_reader(g, readers, conv->out[0], DT_OP_batch_norm);
    bool relu_in_bn = false;
    if (bn && !conv->attrs.conv2d.fold_bn && bn->in[0] == conv->out[0] && bn->n_in == 5 &&
        // running statistics only: moments of a batch are not known when weights are packed
        !bn->attrs.batch_norm.training && !bn->attrs.batch_norm.pool && is_packable(g, bn->in[1]) &&
        is_packable(g, bn->in[2]) && (conv->n_in < 3 || is_packable(g, conv->in[2]))) {
        conv->attrs.conv2d.fold_bn = 1;
        conv->attrs.conv2d.bn_scale = bn->in[1];
        conv->attrs.conv2d.bn_shift = bn->in[2];
        conv->attrs.conv2d.bn_mean = bn->in[3];
        conv->attrs.conv2d.bn_var = bn->in[4];
        conv->attrs.conv2d.bn_eps = bn->attrs.batch_norm.eps;
        relu_in_bn = bn->attrs.batch_norm.relu;
        take_output(g, conv, bn);
    }
    dt_node *relu = relu_in_bn ? NULL : dt_graph_reader(g, readers, conv->out[0], DT_OP_relu);
    if (relu) take_output(g, conv, relu); // a norm that brought a ReLU has none behind it
    if (relu || relu_in_bn) conv->attrs.conv2d.act = DT_ACTIVATION_relu;
}

dt_status dt_pass_fold_bn(dt_graph *g) {
    return g->training ? dt_graph_check(g) : visit_nodes(g, fold_bn_node);
}

// ---- relu bits ----------------------------------------------------------------------------------------------------

// Training graphs, for backends whose kernels can (dt_backend.passes). The gradient of
// batch_norm + residual + ReLU needs to know where y is above zero: one bit for each element, not the 16 or 32 of y.
//
//   batch_norm -> y;  batch_norm.bwd(…, y, …)   =>   batch_norm -> y, bits;  batch_norm.bwd(…, bits, …)
//
// and where y has two readers, their gradients' addition:
//
//   add(a, b) -> dy;  batch_norm.bwd(…, dy) -> …, dresidual   =>   batch_norm.bwd(…, a, b) -> …, dresidual
//
// with the bits of two kernels: dy is rounded to its type. Then y lives only as long as its other readers need it.
// Without a residual the kernel recomputes the mask from x, which it reads anyway, and with a pool the argmax holds it.
// The pass comes after mixed precision, which would keep a further output in f32, and after dead code.

enum { X = 0, RELU_BITS_RESIDUAL = 5, Y = 0, BITS = 3 };

static bool wants_bits(const dt_node *n) {
    return !n->dead && !n->backward && n->op == DT_OP_batch_norm && n->attrs.batch_norm.relu &&
           !n->attrs.batch_norm.pool && n->n_in > RELU_BITS_RESIDUAL && n->in[RELU_BITS_RESIDUAL] != DT_NONE &&
           n->n_out > BITS && n->out[BITS] == DT_NONE;
}

// The addition goes into the only reader of its sum, which writes the masked sum as the residual's gradient.
static void take_both(dt_graph *g, const dt_node_id *readers, dt_node *bwd) {
    const int at = bwd->n_fwd_in + bwd->n_fwd_out;
    const dt_value dy = bwd->in[at];
    if (dy == DT_NONE || readers[dy] != bwd - g->nodes || bwd->out[RELU_BITS_RESIDUAL] == DT_NONE) return;
    const dt_node_id made = g->values[dy].producer; // the node that adds both gradients of y
    dt_node *add = made == DT_NONE ? NULL : &g->nodes[made];
    if (!add || !dt_graph_adds_alike(g, add)) return;
    dt_value *in = dt_arena_alloc(&g->arena, (size_t)(bwd->n_in + 1) * sizeof *in);
    memcpy(in, bwd->in, (size_t)bwd->n_in * sizeof *in);
    in[at] = add->in[0]; // first the one that came first: the sum is the same, bit by bit
    in[bwd->n_in++] = add->in[1];
    bwd->in = in;
    add->dead = true;
}

static void relu_bits(dt_graph *g, const dt_node_id *readers, dt_node *n) {
    dt_node *bwd = n + 1, *end = g->nodes + g->n_nodes;
    if (!wants_bits(n)) return;
    while (bwd < end && (bwd->dead || !bwd->backward || bwd->forward != n - g->nodes)) bwd++;
    if (bwd == end || bwd->in[bwd->n_fwd_in + Y] == DT_NONE) return; // nothing is trained behind, or y is not saved
    char name[512];
    snprintf(name, sizeof name, "%s.bits", n->name);
    const dt_shape *x = &g->values[n->in[X]].shape;
    const dt_shape s = dt_shape2(dt_shape_elements(x) / x->d[1], (x->d[1] + 7) / 8);
    const dt_value bits = dt_graph_add_value(g, DT_V_TEMP, name, DT_U8, &s);
    if (bits == DT_NONE) return;
    dt_graph_set_out(g, n, BITS, bits);
    bwd->in[bwd->n_fwd_in + Y] = DT_NONE;
    bwd->in[bwd->n_fwd_in + BITS] = bits;
    take_both(g, readers, bwd);
}

dt_status dt_pass_relu_bits(dt_graph *g) {
    return visit_nodes(g, relu_bits);
}

// ---- dead code ----------------------------------------------------------------------------------------------------

// Marks nodes as dead if nothing reads their results. Graph outputs, gradients of parameters and
// statistics (loss, weights, batch moments) always count as read.

dt_status dt_pass_dead_code(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    bool *needed = dt_xcalloc((size_t)g->n_values + 1, sizeof *needed);
    for (int i = 0; i < g->n_outputs; i++) needed[g->outputs[i].value] = true;
    for (dt_node_id id = g->n_nodes - 1; id >= 0; id--) {
        dt_node *n = &g->nodes[id];
        bool live = false;
        for (int i = 0; i < n->n_out && !n->dead; i++) {
            if (n->out[i] == DT_NONE) continue;
            const dt_value_kind kind = g->values[n->out[i]].kind;
            live |= needed[n->out[i]] || kind == DT_V_GRAD || kind == DT_V_STAT;
        }
        // last to first: readers are decided before what they read
        n->dead = !live;
        for (int i = 0; i < n->n_in && live; i++) {
            if (n->in[i] != DT_NONE) needed[n->in[i]] = true;
        }
    }
    free(needed);
    return DT_OK;
}
