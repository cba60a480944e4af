// conv2d_cuda.c: convolution through cuDNN, NHWC. A convolution for which cuDNN has no engine ends the start.
//
// Forward: y = act(conv(x, packed w) + packed bias). With fold_bn the packed copies contain the next batch norm.
// Backward: dx uses the same packed weight. cuDNN writes dw in packed form and in the activations' type, because it
// has no precompiled engine that writes f32. dw therefore goes to scratch, and from there into the dense f32 flat
// buffer, where it overwrites or adds. A custom kernel sums dy's rows to get db.
//
// Under fp16, if y goes only into training batch norms and cuDNN has an engine for it, the forward pass also makes the
// sums that a batch norm starts with, and leaves them behind y (nhwc+sums). That saves a pass over y. The plan
// decides this between two kernel instances that see each other's layouts. A pass over the graph would have to ask the
// device's library, and every other backend would meet an op that it does not need.
//
// If the batch norm in front left its work to this convolution (nhwc+norm, see batch_norm_cuda.c), forward and
// weight gradient apply gain, shift and ReLU as they read x.
//
// Where cuda_desc.c folds the stride, the image is folded into scratch in each direction, and the packed copies of the
// weight are folded too.
//
// Scratch of the forward kernel instance: [ workspace | folded x ]
// of the backward one: [ workspace | packed dw | partial sums of db | folded x ]
#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/kernels/shape_kernels.h"
#include "backend/cuda/norm_tails.h"
#include "backend/cuda/weights_cuda.h"
#include "graph/activation_words.h"

// One direction. plan NULL: cuDNN has no engine, which only wishes (sums, normed) survive.
typedef struct conv_op {
    dt_dnn_desc desc;
    const dt_cuda_plan *plan;
} conv_op;

typedef struct conv_state {
    conv_op forward, data, weights; // desc.n 0: not wanted
    const dt_cuda_pack *pack, *bias_pack;
    dt_shape weight;           // (K,C/g,R,S), dense
    dt_tap_fold fold;          // stride 0: nothing is folded
    bool has_bias;             // backward: a bias gradient is wanted
    size_t at_dw, at_db, at_x; // offsets in scratch, bytes
} conv_state;

static size_t workspace_of(const conv_op *op) {
    return op->plan ? dt_cuda_align(op->plan->workspace_bytes) : 0; // each primitive's workspace begins aligned
}

static dt_status conv2d_cuda_plan(dt_kernel_instance *s, conv_op *op, const dt_dnn_desc *d) {
    const dt_cuda *c = dt_cuda_of(s);
    char text[DT_DESC_TEXT];
    op->desc = *d;
    DT_TRY(dt_cuda_kept(s, dt_cuda_plan_dnn(c->plans, d, &op->plan)));
    // sums and normed are wishes: without an engine the caller does without
    if (op->plan || d->sums || d->normed) return DT_OK;
    return dt_cuda_fail(s, "cuDNN has no engine for %s (%s)", dt_dnn_desc_print(d, text), c->api->versions(c->api));
}

static dt_status check_types(dt_kernel_instance *s, const dt_value_info *x, const dt_value_info *y) {
    int type;
    return dt_cuda_type(s, &type, x, y);
}

// Graph inputs are read as NHWC too: the plan reorders them.
static const dt_layout nhwc = {.kind = DT_NHWC};

// The two arrays that a batch norm leaves behind x.
static void norm_of(const dt_kernel_instance *s, const void *x, void **out) {
    const dt_value_info *info = dt_instance_in(s, 0);
    for (int i = 0; i < 2; i++) out[i] = (char *)x + dt_cuda_norm_at(info->dtype, &info->shape, i);
}

// ---- folding the stride ----------------------------------------------------------------------------
// Makes room behind the scratch for the folded image of d.
static dt_status add_fold(dt_kernel_instance *s, conv_state *st, const dt_dnn_desc *d, const dt_shape *weight) {
    if (!d->fold) return DT_OK;
    const int64_t n = d->n * d->h * d->w * d->c;
    // kernels count groups of 8 elements in int32
    if (n / 8 >= INT32_MAX) return dt_cuda_fail(s, "more than 2^34 elements of a folded image");
    st->fold = dt_cuda_tap_fold(weight, d->fold);
    st->at_x = dt_cuda_align(s->scratch_bytes);
    s->scratch_bytes = st->at_x + (size_t)n * dt_dtype_size(d->type);
    return DT_OK;
}

// Returns the folded image, or x itself.
static void *folded(const dt_kernel_instance *s, const dt_dnn_desc *d, const dt_run *r) {
    const conv_state *st = s->state;
    if (!d->fold) return (void *)r->in[0]; // folds only first layers, whose x is an image
    const dt_shape *x = &dt_instance_in(s, 0)->shape;
    const dt_window *w = &s->node->attrs.conv2d.win;
    const dt_fold_args a = {.x = r->in[0],
                            .out = (char *)r->scratch + st->at_x,
                            .n = d->n * d->h * d->w * d->c / 8, // 16-byte groups: 8 elements of 16 bits
                            .height = x->d[2],
                            .width = x->d[3],
                            .c = (int)x->d[1],
                            .stride = d->fold,
                            .pad_down = w->pad_begin[0],
                            .pad_across = w->pad_begin[1],
                            .groups = dt_quot_of(d->c / 8),
                            .across = dt_quot_of(d->w),
                            .down = dt_quot_of(d->h),
                            .by_c = dt_quot_of(x->d[1]),
                            .by_stride = dt_quot_of(d->fold),
                            .type = d->type};
    dt_cuda_launch(dt_cuda_of(s), DT_K_fold_stride, (dt_cuda_grid){.blocks = (a.n + 255) / 256, .threads = 256}, &a,
                   r->stream);
    return a.out;
}

// ---- forward ---------------------------------------------------------------------------------------
static dt_status conv2d_cuda_prepare(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *w = dt_instance_in(s, 1), *y = dt_instance_out(s, 0);
    const bool bias = s->node->n_in > 2 && s->node->in[2] != DT_NONE;
    const dt_fold fold = dt_fold_of(s->node);
    dt_dnn_desc d[DT_NODE_DESCS];
    const dt_layout given = s->in_layout[0];
    conv_state *st = dt_cuda_prepare(s, sizeof *st);
    s->in_layout[0] = given.tail == &dt_cuda_norm ? given : nhwc; // gain, shift and ReLU are then applied here
    s->out_layout[0] = nhwc;
    DT_TRY(check_types(s, x, y));
    dt_cuda_node_descs(s->graph, s->node, dt_cuda_demands_of(dt_cuda_of(s)), d);
    d[0].normed = s->in_layout[0].tail == &dt_cuda_norm;
    DT_TRY(conv2d_cuda_plan(s, &st->forward, &d[0]));
    if (d[0].normed && !st->forward.plan)
        return dt_cuda_fail(s, "the batch norm in front left its work to it, and it has no engine");
    if (d[0].sums && !st->forward.plan) {
        d[0].sums = false; // second try without sums: the batch norm makes a pass
        DT_TRY(conv2d_cuda_plan(s, &st->forward, &d[0]));
    }
    if (d[0].sums) s->out_layout[0].tail = &dt_cuda_sums;
    s->scratch_bytes = workspace_of(&st->forward);
    DT_TRY(add_fold(s, st, &d[0], &w->shape));
    if (fold.on || d[0].fold || !dt_cuda_pack_is_copy(w, x->dtype)) // the packed copy is KRSC in the activations' type
        st->pack = dt_cuda_pack_weight(s, s->node->in[1], x->dtype, &fold, d[0].fold ? &st->fold : NULL);
    if (fold.on || (bias && x->dtype != DT_F32))
        st->bias_pack = dt_cuda_pack_bias(s, bias ? s->node->in[2] : DT_NONE, w->shape.d[0], x->dtype, &fold);
    return DT_OK;
}

static void conv2d_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    const conv_state *st = s->state;
    const void *w = st->pack ? r->packed[0] : r->in[1];
    // position of the bias pack depends on the weight's
    const void *bias = !st->forward.desc.bias ? NULL : st->bias_pack ? r->packed[st->pack != NULL] : r->in[2];
    void *x = folded(s, &st->forward.desc, r);
    void *ptr[7] = {x, (void *)w, r->out[0], (void *)bias};
    if (st->forward.desc.sums) {
        const dt_value_info *y = dt_instance_out(s, 0);
        float *sums = (float *)((char *)r->out[0] + dt_cuda_sums_at(y->dtype, &y->shape));
        ptr[3] = sums, ptr[4] = sums + y->shape.d[1]; // sums, then squares, of each channel
    }
    if (st->forward.desc.normed) norm_of(s, r->in[0], ptr + 5);
    dt_cuda_run_dnn(s, st->forward.plan, ptr, r);
}

const dt_kernel dt_cuda_conv2d = {conv2d_cuda_prepare, conv2d_cuda_run, dt_cuda_destroy};

static dt_status conv2d_cuda_prepare_bwd(dt_kernel_instance *s) {
    const dt_node *n = s->node;
    const dt_value_info *dy = dt_instance_in(s, dt_cuda_pos_grad(s, 0));
    const dt_value_info *w = n->in[1] != DT_NONE ? dt_instance_in(s, 1) : dt_instance_out(s, 1);
    dt_dnn_desc d[DT_NODE_DESCS];
    const dt_layout given = s->in_layout[0];
    conv_state *st = dt_cuda_prepare(s, sizeof *st);
    s->in_layout[0] = s->out_layout[0] = s->in_layout[dt_cuda_pos_grad(s, 0)] = nhwc; // x, dx and dy
    const bool normed = n->in[0] != DT_NONE && given.tail == &dt_cuda_norm;
    if (normed) s->in_layout[0] = given;
    if (n->attrs.conv2d.act != DT_ACTIVATION_none || n->attrs.conv2d.fold_bn)
        return dt_cuda_fail(s, "a fused activation or batch norm has no gradient; fuse for inference only");
    DT_TRY(check_types(s, dt_instance_in(s, 0), dy));
    // one description per wanted gradient
    const int count = dt_cuda_node_descs(s->graph, n, dt_cuda_demands_of(dt_cuda_of(s)), d);
    for (int i = 0; i < count; i++) {
        d[i].normed = normed && d[i].kind == DT_DNN_CONV_WGRAD; // dx does not read x
        DT_TRY(conv2d_cuda_plan(s, d[i].kind == DT_DNN_CONV_DGRAD ? &st->data : &st->weights, &d[i]));
    }
    if (st->weights.desc.normed && !st->weights.plan)
        return dt_cuda_fail(s, "the batch norm in front left its work to it, and it has no engine");
    st->weight = w->shape;
    st->has_bias = n->n_out > 2 && n->out[2] != DT_NONE;
    if (st->data.desc.n && !dt_cuda_pack_is_copy(w, dy->dtype))
        st->pack = dt_cuda_pack_weight(s, n->in[1], dy->dtype, NULL, NULL);
    st->at_dw = workspace_of(&st->data);
    if (workspace_of(&st->weights) > st->at_dw) st->at_dw = workspace_of(&st->weights);
    const dt_dnn_desc *dw = &st->weights.desc;
    st->at_db = st->at_dw; // at_db: behind packed dw
    if (dw->n)
        st->at_db += dt_cuda_align((size_t)(dw->k * (dw->c / dw->groups) * dw->win.kernel[0] * dw->win.kernel[1]) *
                                   dt_dtype_size(dy->dtype));
    s->scratch_bytes = st->at_db;
    if (st->has_bias)
        // partial sums of db
        s->scratch_bytes += dt_cuda_column_bytes(dy->shape.d[0] * dy->shape.d[2] * dy->shape.d[3], dy->shape.d[1]);
    return dw->n ? add_fold(s, st, dw, &w->shape) : DT_OK;
}

static void conv2d_cuda_run_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const conv_state *st = s->state;
    dt_cuda *c = dt_cuda_of(s);
    const int dy_at = dt_cuda_pos_grad(s, 0);
    const void *dy = r->in[dy_at];
    const dt_value_info *info = dt_instance_in(s, dy_at);
    if (st->weights.desc.n) {
        void *dw = (char *)r->scratch + st->at_dw;
        void *x = folded(s, &st->weights.desc, r);
        void *ptr[5] = {x, (void *)dy, dw};
        if (st->weights.desc.normed) norm_of(s, r->in[0], ptr + 3);
        dt_cuda_run_dnn(s, st->weights.plan, ptr, r);
        // unpacks, unfolds and adds to the f32 buffer
        dt_cuda_store_weight_grad(c, &st->weight, st->fold.stride ? &st->fold : NULL, dw, info->dtype, r->out[1],
                                  r->accumulate >> 1 & 1, r->stream);
    }
    if (st->has_bias) // a custom kernel: cuDNN has no f32 sum of 16-bit rows
        dt_cuda_sum_columns(c, dy, info->dtype, info->shape.d[0] * info->shape.d[2] * info->shape.d[3],
                            info->shape.d[1], r->out[2], r->accumulate >> 2 & 1, (char *)r->scratch + st->at_db,
                            r->stream);
    if (st->data.desc.n) {
        const void *w = st->pack ? r->packed[0] : r->in[1];
        void *ptr[DT_DNN_POINTERS] = {(void *)dy, (void *)w, r->out[0]};
        dt_cuda_run_dnn(s, st->data.plan, ptr, r);
    }
}

const dt_kernel dt_cuda_conv2d_bwd = {conv2d_cuda_prepare_bwd, conv2d_cuda_run_bwd, dt_cuda_destroy};

// ---- transposed: the data gradient of dy, of x here ------------------------------------------------
static dt_status prepare_transposed(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *w = dt_instance_in(s, 1);
    dt_dnn_desc d[DT_NODE_DESCS];
    conv_state *st = dt_cuda_prepare(s, sizeof *st);
    s->in_layout[0] = s->out_layout[0] = nhwc;
    DT_TRY(check_types(s, x, dt_instance_out(s, 0)));
    dt_cuda_node_descs(s->graph, s->node, dt_cuda_demands_of(dt_cuda_of(s)), d);
    DT_TRY(conv2d_cuda_plan(s, &st->data, &d[0]));
    if (!dt_cuda_pack_is_copy(w, x->dtype)) st->pack = dt_cuda_pack_weight(s, s->node->in[1], x->dtype, NULL, NULL);
    s->scratch_bytes = workspace_of(&st->data);
    return DT_OK;
}

static void conv2d_cuda_run_transposed(const dt_kernel_instance *s, const dt_run *r) {
    const conv_state *st = s->state;
    const void *w = st->pack ? r->packed[0] : r->in[1];
    void *ptr[DT_DNN_POINTERS] = {(void *)r->in[0], (void *)w, r->out[0]};
    dt_cuda_run_dnn(s, st->data.plan, ptr, r);
}

const dt_kernel dt_cuda_conv_transpose = {prepare_transposed, conv2d_cuda_run_transposed, dt_cuda_destroy};
