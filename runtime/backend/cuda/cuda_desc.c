// cuda_desc.c: see cuda_desc.h.
//
// Only this file decides which convolution a node is, so that the kernels, the support check without a device and the
// file of choices cannot disagree.
//
// A first layer reads few channels with a stride, for which cuDNN's engines in bf16 are slow (ResNet-50's first layer on an
// H200: 1.5 ms forward and 0.9 ms backward of a step of 34). Blocks of stride x stride pixels become the channels of one
// pixel, padded to a multiple of eight: a convolution of stride 1 over these makes the same sums. Where the window is no
// larger than the stride, as of a ViT's patches, that is a matmul. fp16 has engines for few channels, so there only the latter is folded.
//
// cuDNN is not queried for attention in fp32, with head sizes that are above 128 or no multiple of 8, or of one query to
// one key: on some device it has no engine for them.
#include "backend/cuda/cuda_desc.h"

#include "backend/sdpa_view.h"
#include "graph/activation_words.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {"conv_fwd", "conv_dgrad", "conv_wgrad", "sdpa_fwd", "sdpa_bwd"};

const char *dt_dnn_desc_print(const dt_dnn_desc *d, char *buf) {
    const dt_window *w = &d->win;
    const char *end[2] = {d->deterministic ? " deterministic" : "", d->tf32 ? " tf32" : ""}; // both may be empty
    if (dt_cuda_is_attention(d)) {
        int at = snprintf(buf, DT_DESC_TEXT, "%s %s n%lld heads%lld %lldx%lldx%lld scale%.9g", kind_names[d->kind],
                          dt_dtype_name(d->type), (long long)d->n, (long long)d->heads, (long long)d->tq,
                          (long long)d->tk, (long long)d->d, (double)d->scale);
        const int64_t *const strides[4] = {d->stride_q, d->stride_k, d->stride_v, d->stride_y};
        for (int i = 0; i < 4; i++) // strides of n, head, row
            at += snprintf(buf + at, DT_DESC_TEXT - (size_t)at, " %lld,%lld,%lld", (long long)strides[i][0],
                           (long long)strides[i][1], (long long)strides[i][2]);
        snprintf(buf + at, DT_DESC_TEXT - (size_t)at, "%s%s", end[0], end[1]);
        return buf;
    }
    snprintf(buf, DT_DESC_TEXT,
             "%s %s n%lld c%lld %lldx%lld k%lld %lldx%lld window %dx%d stride %d,%d dilation %d,%d "
             "pad %d,%d,%d,%d groups %d%s%s%s%s%s%s%s%s",
             kind_names[d->kind], dt_dtype_name(d->type), (long long)d->n, (long long)d->c, (long long)d->h,
             (long long)d->w, (long long)d->k, (long long)d->out_h, (long long)d->out_w, w->kernel[0], w->kernel[1],
             w->stride[0], w->stride[1], w->dilation[0], w->dilation[1], w->pad_begin[0], w->pad_begin[1],
             w->pad_end[0], w->pad_end[1], d->groups, d->bias ? " bias" : "", d->act ? " " : "",
             dt_activation_name(d->act), d->sums ? " sums" : "", d->normed ? " normed" : "", d->fold ? " folded" : "",
             end[0], end[1]);
    return buf;
}

bool dt_dnn_desc_equal(const dt_dnn_desc *a, const dt_dnn_desc *b) {
    char x[DT_DESC_TEXT], y[DT_DESC_TEXT];
    return a->kind == b->kind && a->type == b->type && a->n == b->n &&
           strcmp(dt_dnn_desc_print(a, x), dt_dnn_desc_print(b, y)) == 0; // numbers first: printing is slow
}

int dt_dnn_pointers(const dt_dnn_desc *d) {
    if (d->kind == DT_DNN_SDPA_FWD) return 5;           // q, k, v, y, lse
    if (d->kind == DT_DNN_SDPA_BWD) return 11;          // q, k, v, y, dy, lse, dq, dk, dv, dq32, row sums
    return 3 + (d->sums ? 2 : d->bias) + 2 * d->normed; // x, w, y; sums and squares or bias; gain and shift
}

const char *dt_gemm_desc_print(const dt_gemm_desc *d, char *buf) {
    static const char *const epilogue[] = {"",       " bias", " bias relu", " bias gelu", " bias gelu aux",
                                           " dgelu", " bgrad"};
    const bool bias = dt_gemm_has_bias(d->epilogue);
    char align[16] = "";
    // the usual alignment is not printed, so that known choices stay valid
    if (d->align && d->align != DT_GEMM_ALIGN) snprintf(align, sizeof align, " align %d", d->align);
    snprintf(buf, DT_DESC_TEXT,
             "gemm %s->%s %lldx%lldx%lld batch %lld ld %lld,%lld,%lld stride %lld,%lld,%lld%s%s "
             "alpha %.9g%s%s%s%s%s%s",
             dt_dtype_name(d->type), dt_dtype_name(d->out_type), (long long)d->m, (long long)d->n, (long long)d->k,
             (long long)d->batch, (long long)d->lda, (long long)d->ldb, (long long)d->ldd, (long long)d->stride_a,
             (long long)d->stride_b, (long long)d->stride_d, d->trans_a ? " ta" : "", d->trans_b ? " tb" : "",
             (double)d->alpha, epilogue[d->epilogue], bias ? " " : "", bias ? dt_dtype_name(d->bias_type) : "",
             d->deterministic ? " deterministic" : "", d->tf32 ? " tf32" : "", align);
    return buf;
}

// ---- nodes -----------------------------------------------------------------------------------------
static const dt_value_info *info(const dt_graph *g, dt_value v) {
    return v == DT_NONE ? NULL : &g->values[v];
}

static bool cuda_desc_is_output(const dt_graph *g, dt_value v) {
    for (int i = 0; i < g->n_outputs; i++)
        if (g->outputs[i].value == v) return true;
    return false;
}

// The readers of a value are those of the graph without the nodes that are computed again (passes/recompute.c), so that a copy
// has the engines, and the bits, of the node itself.
static bool cuda_desc_counts(const dt_node *n) {
    return !n->dead && (n->backward || n->forward == DT_NONE); // recomputed forward nodes do not count
}
static const dt_node *original_node(const dt_graph *g, const dt_node *n) {
    return n->backward ? n : dt_graph_origin(g, n);
}
static dt_value original(const dt_graph *g, dt_value v) {
    if (v == DT_NONE || g->values[v].producer == DT_NONE) return v;
    // a recomputed value: that of the node itself
    const dt_node *n = &g->nodes[g->values[v].producer], *from = original_node(g, n);
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] == v) return from->out[k];
    return v;
}

// Returns whether all readers of y want its sums: training batch norms, in fp16. For bf16 all engines that make sums are
// compiled at run time, and those add with float atomics (cuda_dnn.c). The sums of squares follow k sums directly, and
// cuDNN learns from them that all tensors are 16-byte aligned.
static bool wants_sums(const dt_graph *g, const dt_node *n, const dt_dnn_desc *d) {
    // squares lie behind k sums: 4 floats are 16 bytes
    if (d->type != DT_F16 || d->bias || d->act != DT_ACTIVATION_none || d->k % 4) return false;
    int n_forward = 0;
    n = original_node(g, n);
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *r = &g->nodes[i];
        for (int k = 0; cuda_desc_counts(r) && k < r->n_in; k++) {
            if (original(g, r->in[k]) != n->out[0]) continue; // not a reader of this value
            // another reader of y: no sums
            if (r->op != DT_OP_batch_norm || k != 0 || !r->attrs.batch_norm.training) return false;
            n_forward += !r->backward;
        }
    }
    return n_forward > 0 && !cuda_desc_is_output(g, n->out[0]);
}

static void fold_stride(dt_dnn_desc *d) {
    enum { MOST_CHANNELS = 4 };
    dt_window *w = &d->win;
    const int s = w->stride[0];
    const int64_t taps[2] = {(w->kernel[0] + s - 1) / s, (w->kernel[1] + s - 1) / s}; // taps of the folded window
    // an image, no groups, square stride, no dilation
    if (d->c > MOST_CHANNELS || d->groups != 1 || s < 2 || w->stride[1] != s || w->dilation[0] != 1 ||
        w->dilation[1] != 1 || d->type == DT_F32 || (d->type == DT_F16 && taps[0] * taps[1] > 1))
        return;
    d->fold = s;
    d->c = (s * s * d->c + 7) / 8 * 8; // stride^2 pixels, padded to 8 channels
    // no padding left: the folded image contains the zeros
    d->h = d->out_h + taps[0] - 1, d->w = d->out_w + taps[1] - 1;
    *w = (dt_window){.kernel = {(int)taps[0], (int)taps[1]}, .stride = {1, 1}, .dilation = {1, 1}};
}

static int conv_descs(const dt_graph *g, const dt_node *n, dt_dnn_desc base, bool unsummed, dt_dnn_desc *out) {
    const int y_at = n->backward ? n->n_fwd_in + n->n_fwd_out : 0; // position of dy among the inputs of a backward node
    const dt_value_info *x = info(g, n->in[0]), *w = info(g, n->in[1]);
    const dt_value_info *y = n->backward ? info(g, n->in[y_at]) : info(g, n->out[0]);
    if (!x) x = info(g, n->out[0]); // backward without a weight gradient
    if (n->op == DT_OP_conv_transpose) {
        y = x; // y and x exchange roles: the op is a data gradient
        x = info(g, n->out[0]);
    }
    if (!w) w = info(g, n->out[1]);
    base.type = y->dtype;
    base.n = x->shape.d[0];
    base.c = x->shape.d[1];
    base.h = x->shape.d[2];
    base.w = x->shape.d[3];
    base.k = w->shape.d[0];
    base.out_h = y->shape.d[2];
    base.out_w = y->shape.d[3];
    base.win = n->attrs.conv2d.win;
    base.groups = n->attrs.conv2d.groups;
    if (n->op == DT_OP_conv_transpose) {
        base.kind = DT_DNN_CONV_DGRAD;
        out[0] = base;
        return 1;
    }
    if (!n->backward) {
        base.kind = DT_DNN_CONV_FWD;
        base.act = n->attrs.conv2d.act;
        base.bias = (n->n_in > 2 && n->in[2] != DT_NONE) || n->attrs.conv2d.fold_bn; // a folded batch norm adds a bias
        base.sums = !unsummed && wants_sums(g, n, &base);
        out[0] = base;
        fold_stride(&out[0]);
        return 1;
    }
    int count = 0;
    for (int i = 0; i < 2; i++) {
        if (n->out[i] == DT_NONE) continue;
        base.kind = i == 0 ? DT_DNN_CONV_DGRAD : DT_DNN_CONV_WGRAD; // outputs 0 and 1: dx, dw
        out[count] = base;
        if (base.kind == DT_DNN_CONV_WGRAD) fold_stride(&out[count]); // dx of an image is never wanted
        count++;
    }
    return count;
}

static int sdpa_descs(const dt_graph *g, const dt_node *n, dt_dnn_desc base, dt_dnn_desc *out) {
    const dt_sdpa_view v = dt_sdpa_view_of(g, n);
    const dt_sdpa_place *const place[4] = {&v.part[0], &v.part[1], &v.part[2], &v.y};
    int64_t *const stride[4] = {base.stride_q, base.stride_k, base.stride_v, base.stride_y};
    base.kind = n->backward ? DT_DNN_SDPA_BWD : DT_DNN_SDPA_FWD;
    base.type = g->values[n->in[0]].dtype;
    base.n = v.n;
    base.heads = v.heads;
    base.tq = v.tq;
    base.tk = v.tk;
    base.d = v.dim;
    base.scale = n->attrs.sdpa.scale;
    for (int i = 0; i < 4; i++) {
        stride[i][0] = place[i]->batch;
        stride[i][1] = place[i]->head;
        stride[i][2] = place[i]->row;
    }
    out[0] = base;
    return 1;
}

int dt_cuda_node_descs(const dt_graph *g, const dt_node *n, dt_cuda_demands demands, dt_dnn_desc out[DT_NODE_DESCS]) {
    const dt_dnn_desc base = {.deterministic = demands.deterministic, .tf32 = demands.tf32, .groups = 1};
    if (n->op == DT_OP_conv2d || n->op == DT_OP_conv_transpose) return conv_descs(g, n, base, demands.unsummed, out);
    if (n->op == DT_OP_sdpa) return sdpa_descs(g, n, base, out);
    return 0;
}

// Returns whether bn is the only batch norm of x. Gain and shift lie behind x, where there is room for one pair.
static bool norms_alone(const dt_graph *g, const dt_node *bn) {
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *r = &g->nodes[i];
        if (r != bn && cuda_desc_counts(r) && !r->backward && r->op == DT_OP_batch_norm && r->in[0] == bn->in[0])
            return false;
    }
    return true;
}

// Returns the one convolution that reads the output of batch norm bn, NULL if something else reads it too. bn's own
// backward node does not count, since it recomputes its mask from x.
static const dt_node *only_reader(const dt_graph *g, const dt_node *bn) {
    const dt_node *reader = NULL;
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *r = &g->nodes[i];
        for (int k = 0; cuda_desc_counts(r) && k < r->n_in; k++) {
            if (original(g, r->in[k]) != bn->out[0]) continue;
            if (r->backward && dt_graph_origin(g, r) == bn) {
                if (r->in[2] == DT_NONE) return NULL; // the mask is computed from x with shift
            } else if (r->op != DT_OP_conv2d || k != 0 || (reader && !r->backward)) {
                return NULL;
            } else if (!r->backward) {
                reader = r;
            } else if (dt_graph_origin(g, r) != reader) {
                return NULL;
            }
        }
    }
    return cuda_desc_is_output(g, bn->out[0]) ? NULL : reader;
}

bool dt_cuda_normed_of(const dt_graph *g, const dt_node *bn, dt_cuda_demands demands, dt_cuda_normed *out) {
    bn = original_node(g, bn);
    const dt_attrs *a = &bn->attrs;
    dt_dnn_desc d[DT_NODE_DESCS];
    *out = (dt_cuda_normed){0};
    // training, ReLU, no pool, no residual, fp16
    if (bn->op != DT_OP_batch_norm || bn->backward || !a->batch_norm.training || !a->batch_norm.relu ||
        a->batch_norm.pool || (bn->n_in > 5 && bn->in[5] != DT_NONE) || g->values[bn->out[0]].dtype != DT_F16)
        return false;
    const dt_node *reader = norms_alone(g, bn) ? only_reader(g, bn) : NULL;
    if (!reader) return false;
    dt_cuda_node_descs(g, reader, demands, d); // description of the reading convolution
    if (!d[0].sums || d[0].fold) return false; // folded pixels have the channels of several
    out->forward = d[0];
    out->forward.normed = true;
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *r = &g->nodes[i];
        if (r->dead || !r->backward || dt_graph_origin(g, r) != reader) continue; // its backward nodes
        const int n = dt_cuda_node_descs(g, r, demands, d);
        for (int k = 0; k < n; k++) {
            if (d[k].kind != DT_DNN_CONV_WGRAD) continue; // the data gradient does not read x
            out->weights = d[k];
            out->weights.normed = out->has_weights = true;
        }
    }
    return true;
}

const char *dt_cuda_dnn_refuses(const dt_dnn_desc *d) {
    if (!dt_cuda_is_attention(d)) return NULL;
    if (d->type == DT_F32) return "that takes bf16 or fp16";
    if (d->d % 8 || d->d > 128) return "that takes heads of up to 128 numbers, in multiples of 8";
    return d->tq * d->tk > 1 ? NULL : "that takes more than one query and one key"; // a product of one element
}
