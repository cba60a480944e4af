// conv2d_cpu.c: convolution through oneDNN, in the blocked layouts of its direct kernels, or by Winograd's algorithm in
// the same layouts (own_conv.h).
//
// Inputs of at most four channels (images) are DENSE, which first-layer kernels read. Everything else is
// BLOCKED with the ISA's block. Where oneDNN only has its reference implementation for that (odd groups),
// all-DENSE is tried. Forward and backward request the same layouts, so nothing is reordered between them.
//
// Forward: y = act(conv(x, packed w) + bias + residual); the residual lies where y will. With fold_bn the packed weight and bias include the batch norm
// that follows. Backward computes dx from its own packed weight, and dw and db in f32, whatever the type of the
// activations, through scratch into the flat buffer. What computes db computes dw too, where the weight is frozen.
//
// Depthwise convolutions take custom kernels in the directions where those are faster (own_conv.h), else oneDNN's.
//
// Scratch of backward: [ scratchpad, shared by its primitives | packed dw | db ]
#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/dnnl_weights.h"
#include "backend/cpu/own_conv.h"
#include "base/core.h" // the master weight and bias are packed when the optimizer has changed them
#include "base/log.h"  // reorders packed dw into the dense flat buffer
#include "graph/activation_words.h"

#include <stdlib.h>
#include <string.h>

typedef struct conv_state {                // output channels, O
    dt_conv_kernel forward, data, weights; // zeroed: none
    dt_weight_pack *pack, *bias_pack;
    dt_weight_grad grad;
    unsigned own; // bits of directions that `depthwise` computes in place of forward, data or weights
    dt_depthwise_conv depthwise;
    bool has_bias;       // an argument of `forward` or `weights`
    size_t clear_bytes;  // of scratch, in front of `weights`
    size_t at_dw, at_db; // offsets in scratch
    int64_t n_out;
} conv_state;

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

// (O,C/g,R,S), or (g,O/g,C/g,R,S) when grouped, which is another view of the same memory.
static int weight_dims(const dt_shape *w, int groups, int64_t *d) {
    int n = 0;
    if (groups > 1) d[n++] = groups;              // the groups' weights follow each other in memory
    d[n++] = w->d[0] / groups;                    // O
    for (int i = 1; i < 4; i++) d[n++] = w->d[i]; // C/g, R, S
    return n;
}

typedef struct conv_shape {
    const dt_value_info *x, *w, *bias, *y; // bias may be NULL
} conv_shape;

// Input 3 of a forward node, or NULL.
static const dt_value_info *residual_of(const dt_kernel_instance *s) {
    return !s->node->backward && s->node->n_in > 3 ? dt_instance_in(s, 3) : NULL;
}

static void conv2d_cpu_describe(const dt_kernel_instance *s, dt_dnnl_direction dir, const conv_shape *c, bool bias,
                                dt_layout lx, dt_layout ly, dt_dnnl_conv *out) {
    const int groups = s->node->attrs.conv2d.groups;
    const dt_window *win = &s->node->attrs.conv2d.win;
    int64_t d[5];
    const int n = weight_dims(&c->w->shape, groups, d);
    const bool grad = dir == DT_DNNL_BACKWARD_WEIGHTS; // dw is f32 whatever the type of the activations
    *out = (dt_dnnl_conv){
        .src = dt_dnnl_laid_out(c->x->dtype, &c->x->shape, lx),
        .dst = dt_dnnl_laid_out(c->y->dtype, &c->y->shape, ly),
        .weights = dt_dnnl_any(grad ? DT_F32 : c->x->dtype, n, d), // "any": oneDNN chooses the packed layout
        // add 1: the sum post-op reads the residual in dst
        .after = {.add = residual_of(s) ? 1 : 0, .add_type = c->y->dtype, .act = s->node->attrs.conv2d.act}};
    if (bias) out->bias = dt_dnnl_dense(DT_F32, 1, &c->w->shape.d[0]); // the bias and its gradient are f32
    for (int i = 0; i < 2; i++) {                                      // rows, columns
        out->stride[i] = win->stride[i];
        out->dilation[i] = win->dilation[i];
        out->pad_begin[i] = win->pad_begin[i];
        out->pad_end[i] = win->pad_end[i];
    }
}

// A direction, with or without bias.
typedef struct conv_op {
    dt_dnnl_direction dir;
    bool bias;
    dt_conv_kernel *out;
} conv_op;

// Creates all kernels in the given layouts. *n_slow: how many are reference implementations.
static dt_status create_in_layout(const dt_kernel_instance *s, const conv_op *ops, int n, const conv_shape *c,
                                  dt_layout lx, dt_layout ly, dt_conv_kernel *made, int *n_slow) {
    // a memory object per worker group, each with its own pointers
    const dt_dnnl_env env = {.threads = s->threads, .n_replicas = s->n_replicas};
    *n_slow = 0;
    for (int k = 0; k < n; k++) {
        dt_dnnl_conv desc;
        conv2d_cpu_describe(s, ops[k].dir, c, ops[k].bias, lx, ly, &desc);
        // Winograd or direct, timed once per shape
        const dt_winograd_way way = dt_conv_chosen_way(s, ops[k].dir, &desc);
        const dt_status st = dt_conv_kernel_create(&made[k], &env, ops[k].dir, &desc, way);
        if (st != DT_OK) {
            while (k-- > 0) dt_conv_kernel_fini(&made[k]); // kernels made before this one
            return st;
        }
        // Winograd is never a reference implementation
        *n_slow += made[k].library && dt_dnnl_op_is_slow(made[k].library);
    }
    return DT_OK;
}

// Tries the layouts in order of preference and keeps the first in which the fewest kernels are slow. All
// kernels of an instance share the layouts, *lx and *ly.
static dt_status create_ops(const dt_kernel_instance *s, const conv_op *ops, int n, const conv_shape *c, dt_layout *lx,
                            dt_layout *ly) {
    const dt_layout nhwc = {.kind = DT_NHWC};
    // {x, y} for each attempt: blocked, then dense
    dt_layout want[2][2] = {{dt_cpu_conv_layout(c->x->shape.d[1]), dt_blocked(dt_cpu_block())},
                            {dt_dense(), dt_dense()}};
    dt_dnnl_conv forward;
    // decides for the pair of passes: forward and backward must use one layout
    conv2d_cpu_describe(s, DT_DNNL_FORWARD, c, false, want[0][0], want[0][1], &forward);
    if (dt_conv_wants_nhwc(s, &forward)) want[0][0] = want[0][1] = nhwc; // AMX only
    dt_status st = DT_OK;
    int best = -1;
    for (int i = 0; i < 2 && best != 0; i++) { // 0 slow kernels: nothing can be better
        dt_conv_kernel made[2] = {{.library = NULL}};
        int n_slow = 0;
        dt_status tried = create_in_layout(s, ops, n, c, want[i][0], want[i][1], made, &n_slow);
        if (tried != DT_OK) st = tried; // the last reason, if no layout works
        if (tried != DT_OK || (best >= 0 && n_slow >= best)) {
            // no better than the layout before
            for (int k = 0; tried == DT_OK && k < n; k++) dt_conv_kernel_fini(&made[k]);
            continue;
        }
        for (int k = 0; k < n; k++) {
            dt_conv_kernel_fini(ops[k].out); // of the attempt before; zeroed: nothing happens
            *ops[k].out = made[k];           // ownership moves to the state
        }
        *lx = want[i][0];
        *ly = want[i][1];
        best = n_slow;
    }
    if (best < 0) return dt_fail_context(st, "conv2d '%s'", s->node->name);
    for (int k = 0; k < n; k++)
        dt_log(DT_LOG_DEBUG, "conv2d %s: %s, %s -> %s", s->node->name, dt_conv_kernel_name(ops[k].out),
               dt_layout_name(*lx), dt_layout_name(*ly));
    return DT_OK;
}

static bool conv2d_cpu_is_own(const conv_state *st, dt_dnnl_direction dir) {
    return st->own >> dir & 1; // bit per dt_dnnl_direction
}

// Creates the kernels of ops other than the custom depthwise convolution's, which reads BLOCKED.
static dt_status create_others(const dt_kernel_instance *s, conv_state *st, const conv_op *ops, int n,
                               const conv_shape *c, dt_layout *lx, dt_layout *ly) {
    conv_op others[2];
    int n_others = 0;
    dt_dnnl_conv conv;
    *lx = *ly = dt_custom_blocked();
    conv2d_cpu_describe(s, DT_DNNL_FORWARD, c, false, *lx, *ly, &conv);
    // directions that vector code does faster here, on these layouts
    st->own = dt_depthwise_init(&st->depthwise, &conv, s->threads);
    for (int k = 0; k < n; k++)
        if (!conv2d_cpu_is_own(st, ops[k].dir)) others[n_others++] = ops[k];
    if (n_others == 0) return DT_OK;
    DT_TRY(create_ops(s, others, n_others, c, lx, ly));
    // both kinds of kernels read the same memory
    if (n_others == n || (lx->kind == DT_BLOCKED && ly->kind == DT_BLOCKED)) return DT_OK;
    st->own = 0; // other layouts: all directions through oneDNN
    return create_ops(s, ops, n, c, lx, ly);
}

static void conv2d_cpu_destroy(dt_kernel_instance *s) {
    conv_state *st = s->state; // may be half built
    if (!st) return;
    dt_weight_pack_destroy(st->pack);
    dt_weight_pack_destroy(st->bias_pack);
    dt_conv_kernel_fini(&st->forward);
    dt_conv_kernel_fini(&st->data);
    dt_conv_kernel_fini(&st->weights);
    dt_weight_grad_fini(&st->grad);
    free(st);
    s->state = NULL;
}

static dt_status pack_for(dt_kernel_instance *s, conv_state *st, const conv_shape *c, const dt_conv_kernel *k,
                          const dt_fold *fold) {
    int64_t d[5];
    const int n = weight_dims(&c->w->shape, s->node->attrs.conv2d.groups, d);
    // custom depthwise kernels read the weights as one BLOCKED image, (1,O,R,S)
    const dt_dnnl_tensor dense = k->library || k->winograd ? dt_dnnl_dense(DT_F32, n, d)
                                                           : dt_dnnl_dense(DT_F32, 4, (int64_t[]){1, d[0], d[3], d[4]});
    return dt_weight_pack_create(&st->pack, s, &s->packs[s->n_packs++], s->node->in[1], &dense,
                                 // NULL: BLOCKED, as the custom kernels want
                                 k->library ? dt_dnnl_op_md(k->library, 1) : NULL, k->winograd, fold);
}

// ---- forward ------------------------------------------------------------------------------------
static dt_status conv2d_cpu_build_forward(dt_kernel_instance *s, conv_state *st) {
    const conv_shape c = {.x = dt_instance_in(s, 0),
                          .w = dt_instance_in(s, 1),
                          .bias = s->node->n_in > 2 ? dt_instance_in(s, 2) : NULL,
                          .y = dt_instance_out(s, 0)};
    const dt_fold fold = dt_fold_of(s->node);
    st->has_bias = c.bias || fold.on; // folding adds a bias of its own
    st->n_out = c.w->shape.d[0];
    const conv_op op = {DT_DNNL_FORWARD, st->has_bias, &st->forward};
    DT_TRY(create_others(s, st, &op, 1, &c, &s->in_layout[0], &s->out_layout[0]));
    DT_TRY(pack_for(s, st, &c, &st->forward, &fold));
    // packs[1]: shift of the batch norm, and the bias scaled by it
    if (fold.on) {
        DT_TRY(dt_bias_pack_create(&st->bias_pack, s, &s->packs[s->n_packs++], c.bias ? s->node->in[2] : DT_NONE,
                                   st->n_out, &fold));
    }
    s->scratch_bytes = dt_conv_kernel_scratch_bytes(&st->forward);
    // the residual is added in place: y's memory holds it before the run
    if (!residual_of(s)) return DT_OK;
    s->in_layout[3] = s->out_layout[0];
    s->inplace_in = 3;
    return DT_OK;
}

static void conv2d_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const conv_state *st = s->state;
    if (residual_of(s)) dt_custom_copy_residual(s, r); // nothing to do where the plan already placed the residual in y
    // packed: with the batch norm folded in
    const void *bias = s->n_packs > 1 ? r->packed[1] : st->has_bias ? r->in[2] : NULL;
    if (conv2d_cpu_is_own(st, DT_DNNL_FORWARD)) {
        dt_depthwise_run(&st->depthwise, DT_DNNL_FORWARD, r->in[0], r->packed[0], bias, r->out[0]);
        return;
    }
    dt_conv_kernel_run(&st->forward, r->replica,
                       // argument order of dt_dnnl_conv: x, w, (bias), y
                       st->has_bias ? (const void *[]){r->in[0], r->packed[0], bias, r->out[0]}
                                    : (const void *[]){r->in[0], r->packed[0], r->out[0]},
                       r->scratch);
}

// ---- backward -----------------------------------------------------------------------------------
static dt_status build_primitives(dt_kernel_instance *s, conv_state *st, const conv_shape *c, int dy) {
    static const dt_fold none = {.on = false};
    const dt_dnnl_env env = {.threads = s->threads, .n_replicas = s->n_replicas};
    const dt_node *n = s->node;
    st->has_bias = n->n_out > 2 && n->out[2] != DT_NONE; // output 2: db
    // the weights' primitive also computes db
    const bool data = n->out[0] != DT_NONE, weights = n->out[1] != DT_NONE || st->has_bias;
    conv_op ops[2] = {{DT_DNNL_FORWARD, false, NULL}}; // an initial value, replaced below
    int n_ops = 0;
    if (data) ops[n_ops++] = (conv_op){DT_DNNL_BACKWARD_DATA, false, &st->data};
    if (weights) ops[n_ops++] = (conv_op){DT_DNNL_BACKWARD_WEIGHTS, st->has_bias, &st->weights};
    dt_layout lx, ly;
    DT_TRY(create_others(s, st, ops, n_ops, c, &lx, &ly));
    s->in_layout[dy] = ly; // dy's layout is y's
    if (data) {
        s->out_layout[0] = lx;
        DT_TRY(pack_for(s, st, c, &st->data, &none));
    }
    if (weights) s->in_layout[0] = lx;      // x is read for dw only
    if (!st->weights.library) return DT_OK; // custom and Winograd kernels write dense dw themselves
    int64_t d[5];
    const int n_dims = weight_dims(&c->w->shape, n->attrs.conv2d.groups, d);
    const dt_dnnl_tensor dense = dt_dnnl_dense(DT_F32, n_dims, d); // the flat buffer's layout
    return dt_weight_grad_init(&st->grad, &env, dt_dnnl_op_md(st->weights.library, 1), &dense);
}

static dt_status conv2d_cpu_build_backward(dt_kernel_instance *s, conv_state *st) {
    const dt_node *n = s->node;
    // inputs of a backward node: forward inputs, forward outputs, then dy
    const int dy = n->n_fwd_in + n->n_fwd_out;
    // x, or dx where x itself is not needed
    const conv_shape c = {.x = n->in[0] != DT_NONE ? dt_instance_in(s, 0) : dt_instance_out(s, 0),
                          .w = n->in[1] != DT_NONE ? dt_instance_in(s, 1) : dt_instance_out(s, 1),
                          .y = dt_instance_in(s, dy)};
    if (n->attrs.conv2d.act != DT_ACTIVATION_none || n->attrs.conv2d.fold_bn) {
        return dt_instance_fail(s, "a fused activation or batch norm has no gradient; fuse for inference only");
    }
    st->n_out = c.w->shape.d[0];
    DT_TRY(build_primitives(s, st, &c, dy));
    // data and weights run one after another, so they share the front of scratch
    const size_t of_weights = dt_conv_kernel_scratch_bytes(&st->weights);
    st->at_dw = max_size(dt_conv_kernel_scratch_bytes(&st->data), of_weights);
    st->at_dw = max_size(st->at_dw, st->grad.scratch_bytes); // the reorder's scratchpad lies there, too
    // Where an image has one column, oneDNN 2.6's bf16 kernel multiplies columns of its scratchpad that it never wrote.
    if (c.x->dtype == DT_BF16 && c.x->shape.d[3] == 1) st->clear_bytes = of_weights;
    st->at_db = st->at_dw + st->grad.packed_bytes; // db in scratch: only to add to the flat buffer
    s->scratch_bytes = st->at_db + dt_align_up((size_t)st->n_out * sizeof(float), 64); // 64: a cache line
    return DT_OK;
}

// ---- transposed: what backward computes of dy, of x here ---------------------------------------------
static dt_status build_transposed(dt_kernel_instance *s, conv_state *st) {
    static const dt_fold none = {.on = false};
    // roles are exchanged: the op's y is the convolution's input
    const conv_shape c = {.x = dt_instance_out(s, 0), .w = dt_instance_in(s, 1), .y = dt_instance_in(s, 0)};
    const conv_op op = {DT_DNNL_BACKWARD_DATA, false, &st->data};
    DT_TRY(create_others(s, st, &op, 1, &c, &s->out_layout[0], &s->in_layout[0])); // layouts come in the same exchange
    s->scratch_bytes = dt_conv_kernel_scratch_bytes(&st->data);
    return pack_for(s, st, &c, &st->data, &none);
}

static dt_status conv2d_cpu_prepare(dt_kernel_instance *s) {
    conv_state *st = s->state = dt_xcalloc(1, sizeof *st);
    s->inplace_in = -1;
    s->n_packs = 0; // packs are added by the build functions
    dt_status status = s->node->op == DT_OP_conv_transpose ? build_transposed(s, st)
                       : s->node->backward                 ? conv2d_cpu_build_backward(s, st)
                                                           : conv2d_cpu_build_forward(s, st);
    if (status != DT_OK) conv2d_cpu_destroy(s); // destroy frees what exists
    return status;
}

static void run_weights(const dt_kernel_instance *s, const dt_run *r, const void *dy) {
    const conv_state *st = s->state;
    char *scratch = r->scratch;
    void *packed = scratch + st->at_dw;
    // bits 1 and 2: outputs dw and db add to what is there
    const bool add_w = r->accumulate >> 1 & 1, add_b = r->accumulate >> 2 & 1;
    if (st->weights.winograd) {
        dt_winograd_run_weights(st->weights.winograd, r->in[0], dy, r->out[1], add_w, scratch);
        return;
    }
    if (conv2d_cpu_is_own(st, DT_DNNL_BACKWARD_WEIGHTS)) {
        dt_depthwise_run_weights(&st->depthwise, r->in[0], dy, r->out[1], st->has_bias ? r->out[2] : NULL,
                                 r->accumulate); // NULL: the weight is frozen, db alone is wanted
        return;
    }
    memset(scratch, 0, st->clear_bytes);
    // the flat buffer itself where no reorder or addition is needed
    void *dw = dt_weight_grad_target(&st->grad, r->out[1], packed, add_w || !r->out[1]);
    if (st->has_bias) {
        void *db = add_b ? scratch + st->at_db : r->out[2];
        dt_conv_kernel_run(&st->weights, r->replica, (const void *[]){r->in[0], dw, db, dy}, scratch);
        if (add_b) dt_cpu_store_sum(r->out[2], db, st->n_out, true); // db is small: O floats
    } else {
        dt_conv_kernel_run(&st->weights, r->replica, (const void *[]){r->in[0], dw, dy}, scratch);
    }
    // unpacks, and adds where gradients accumulate over micro-batches
    if (r->out[1]) dt_weight_grad_store(&st->grad, r->replica, r->out[1], packed, add_w, scratch);
}

static void run_data(const dt_kernel_instance *s, const dt_run *r, const void *dy) {
    const conv_state *st = s->state;
    if (conv2d_cpu_is_own(st, DT_DNNL_BACKWARD_DATA))
        dt_depthwise_run(&st->depthwise, DT_DNNL_BACKWARD_DATA, dy, r->packed[0], NULL, r->out[0]);
    else
        // argument order: dx, w, dy
        dt_conv_kernel_run(&st->data, r->replica, (const void *[]){r->out[0], r->packed[0], dy}, r->scratch);
}

static void conv2d_cpu_run_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const void *dy = r->in[dt_pos_grad(s, 0)];
    // db alone also runs the weights' primitive
    if (r->out[1] || ((const conv_state *)s->state)->has_bias) run_weights(s, r, dy);
    if (s->node->out[0] != DT_NONE) run_data(s, r, dy);
}

static void conv2d_cpu_run_transposed(const dt_kernel_instance *s, const dt_run *r) {
    run_data(s, r, r->in[0]);
}

const dt_kernel dt_cpu_conv2d = {conv2d_cpu_prepare, conv2d_cpu_run, conv2d_cpu_destroy};
const dt_kernel dt_cpu_conv2d_bwd = {conv2d_cpu_prepare, conv2d_cpu_run_bwd, conv2d_cpu_destroy};
const dt_kernel dt_cpu_conv_transpose = {conv2d_cpu_prepare, conv2d_cpu_run_transposed, conv2d_cpu_destroy};
