// int8_cpu.c: conv2d_int8 and linear_int8 through oneDNN, and quantize (graph/ops/matmul.c).
//
// Activations are NHWC (linear: DENSE), the layout of oneDNN's int8 kernels on every ISA. The f32 weight, with a batch
// norm folded in, is rounded to 8 bits by the scale of its output channel when it is packed, so a run keeps its f32
// weights. Products are added in 32 bits; each channel's sum is then multiplied by
// scale(x) scale(weight) / scale(y), the residual is added, the activation applied, and y rounded.
//
// Without VNNI (and for oneDNN's s8 convolutions, which see to it themselves) two products of 8 bits are added in 16
// first, and saturate. There weights are rounded to 7 bits: 2 * 255 * 64 < 2^15.
//
// A 1x1 convolution with a stride reads pixels that are picked out here first. oneDNN (2.6, and 3.x as of 2026) would pick
// them out into a scratchpad of each thread, and on SSE4.1 and AVX2 does so 8 or 16 bytes at a time whatever the number of
// channels: the last store reaches into the next thread's scratchpad, which that thread may have filled already. Picking
// them out here takes no longer on any ISA.
#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/dnnl_weights.h"
#include "base/core.h"
#include "base/hash.h"
#include "base/log.h"
#include "graph/activation_words.h"

#include <math.h>
#include <string.h>

typedef struct int8_state {
    dt_dnnl_op *op, *place; // place: the rounded weight into op's format
    int64_t n_out, n_per_out;
    bool has_bias;
    dt_fold fold;
    float *weight; // scale of each output channel
    float *bias;   // what each bias is divided by
    int8_t *dense; // rounded weight, (n_out, n_per_out)
    void *scratch; // of place
    // a 1x1 convolution's strides, where it has any (else 0), what is picked out, and where in the scratch it lies
    int64_t stride[2];
    dt_shape picked;
    size_t picked_at;
} int8_state;

static void int8_cpu_destroy(dt_kernel_instance *s) {
    int8_state *st = s->state;
    if (!st) return;
    dt_dnnl_op_destroy(st->op);
    dt_dnnl_op_destroy(st->place);
    free(st->weight);
    free(st->bias);
    free(st->dense);
    free(st->scratch);
    dt_custom_destroy(s);
}

// ---- packing ---------------------------------------------------------------------------------------
// dense: weight, or weight, scale, var
static void int8_cpu_pack_weight(const void *ctx, const float *const *dense, void *packed, int threads, void *stream) {
    const int8_state *st = ctx;
    for (int64_t o = 0; o < st->n_out; o++) {
        const float gain = st->fold.on ? dt_fold_gain(dense[1], dense[2], o, st->fold.eps) : 1;
        const float *from = dense[0] + o * st->n_per_out;
        // true: signed
        dt_simd_get()->int8->quantize(st->dense + o * st->n_per_out, from, gain / st->weight[o], true, st->n_per_out);
    }
    dt_dnnl_op_run_threads(st->place, 0, threads, (const void *[]){st->dense, packed}, st->scratch);
}

// dense: bias; or scale, shift, mean, var[, bias]
static void int8_cpu_pack_bias(const void *ctx, const float *const *dense, void *packed, int threads, void *stream) {
    const int8_state *st = ctx;
    float *to = packed;
    for (int64_t o = 0; o < st->n_out; o++) {
        float b = st->fold.on ? st->has_bias ? dense[4][o] : 0 : dense[0][o];
        if (st->fold.on) b = (b - dense[2][o]) * dt_fold_gain(dense[0], dense[3], o, st->fold.eps) + dense[1][o];
        to[o] = b / st->bias[o]; // oneDNN adds the bias before or after its scaling
    }
}

static uint64_t int8_cpu_pack_key(const dt_kernel_instance *s, const dt_pack_request *r, uint64_t seed,
                                  const float *scales, int64_t n) {
    uint64_t h[9] = {seed, dt_hash64(scales, (size_t)n * sizeof *scales), (uint64_t)r->n_params}; // room for five names
    for (int i = 0; i < r->n_params; i++) {
        const char *name = s->graph->values[r->params[i]].name;
        h[3 + i] = dt_hash64(name, strlen(name));
    }
    return dt_hash64(h, sizeof h);
}

static dt_status request_weight(dt_kernel_instance *s, int8_state *st, const dt_dnnl_tensor *dense) {
    const dt_dnnl_env env = {.threads = s->threads, .n_replicas = 1};
    const dt_dnnl_md md = dt_dnnl_op_md(st->op, 1);
    const dt_dnnl_tensor dst = dt_dnnl_like(md);
    dt_pack_request *r = &s->packs[s->n_packs++];
    DT_TRY(dt_dnnl_op_create_reorder(&st->place, &env, dense, &dst, false));
    st->dense = dt_cpu_alloc64((size_t)(st->n_out * st->n_per_out)); // one byte per weight
    st->scratch = dt_cpu_alloc64(dt_dnnl_op_scratch_bytes(st->place));
    *r = (dt_pack_request){.n_params = st->fold.on ? 3 : 1,
                           .params = {s->node->in[1], st->fold.scale, st->fold.var},
                           .n_bytes = dt_dnnl_md_bytes(md),
                           .pack = int8_cpu_pack_weight,
                           .ctx = st};
    r->key = int8_cpu_pack_key(s, r, dt_dnnl_md_hash(md), st->weight, st->n_out); // scales are part of the packed bytes
    return DT_OK;
}

static void request_bias(dt_kernel_instance *s, int8_state *st) {
    const dt_fold *f = &st->fold;
    const dt_value bias = st->has_bias ? s->node->in[2] : DT_NONE;
    if (!st->has_bias && !f->on) return;
    dt_pack_request *r = &s->packs[s->n_packs++];
    *r = (dt_pack_request){.n_params = f->on ? 4 + st->has_bias : 1, // order of the pack function's arguments
                           .params = {bias},
                           .n_bytes = (size_t)st->n_out * sizeof(float),
                           .pack = int8_cpu_pack_bias,
                           .ctx = st};
    if (f->on) {
        const dt_value folded[] = {f->scale, f->shift, f->mean, f->var, bias};
        memcpy(r->params, folded, sizeof folded);
    }
    r->key = int8_cpu_pack_key(s, r, 0x693862 /* "i8b" */, st->bias, st->n_out);
}

// ---- what both share -------------------------------------------------------------------------------
static int8_state *int8_cpu_start(dt_kernel_instance *s, const dt_int8_scales *scales, bool sees_to_it) {
    const dt_value_info *w = dt_instance_in(s, 1);
    int8_state *st = dt_custom_prepare(s, sizeof *st);
    st->n_out = w->shape.d[0];
    st->n_per_out = dt_shape_elements(&w->shape) / st->n_out;
    st->has_bias = s->node->n_in > 2 && s->node->in[2] != DT_NONE;
    st->weight = dt_xcalloc((size_t)st->n_out + 1, sizeof *st->weight); // + 1: no calloc of 0
    st->bias = dt_xcalloc((size_t)st->n_out + 1, sizeof *st->bias);
    const float coarser = dt_dnnl_isa_vnni() || sees_to_it ? 1 : 2; // 7 bits: the scale doubles
    for (int64_t o = 0; o < st->n_out; o++) st->weight[o] = scales->weight[o] * coarser;
    return st;
}

// out: a factor for each channel, which oneDNN copies. GELU needs real values, so y's scale comes behind it.
static void describe_after(const dt_kernel_instance *s, int8_state *st, const dt_int8_scales *k, dt_activation act,
                           float *factors, dt_dnnl_after *out) {
    const bool late = act > DT_ACTIVATION_relu;
    const float real = late ? 1 : 1 / k->y;
    for (int64_t o = 0; o < st->n_out; o++) {
        factors[o] = k->x * st->weight[o] * real; // f32 per step of the 32-bit sum
        // oneDNN 2 scales the bias too, version 3 does not
        st->bias[o] = dt_dnnl_scales_bias() ? k->x * st->weight[o] : 1 / real;
    }
    // times: a post-op behind the activation
    *out = (dt_dnnl_after){.scales = factors, .n_scales = st->n_out, .act = act, .times = late ? 1 / k->y : 1};
    const dt_value_info *residual = s->node->n_in > 3 ? dt_instance_in(s, 3) : NULL;
    if (!residual) return;
    out->add = k->residual / k->y; // residual in units of y
    out->add_type = residual->dtype;
}

typedef struct pick_call {
    const int8_state *st;
    const dt_shape *x;
    const char *from;
    char *to;
} pick_call;

// Row `row`, counted over all images.
static void pick_row(const void *ctx, int64_t row, int64_t end) {
    const pick_call *p = ctx;
    const int64_t *x = p->x->d, *y = p->st->picked.d, *stride = p->st->stride;
    // x and y are NHWC: a pixel's channels lie together
    const char *from = p->from + (row / y[2] * x[2] + row % y[2] * stride[0]) * x[3] * x[1];
    char *to = p->to + row * y[3] * y[1];
    // channels are one byte each
    for (int64_t i = 0; i < y[3]; i++) memcpy(to + i * y[1], from + i * stride[1] * y[1], (size_t)y[1]);
}

static void int8_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const int8_state *st = s->state;
    if (s->node->n_in > 3) dt_custom_copy_residual(s, r);
    const void *x = r->in[0];
    if (st->stride[0]) {
        const pick_call p = {st, &dt_instance_in(s, 0)->shape, x, (char *)r->scratch + st->picked_at};
        dt_custom_items(s->threads, st->picked.d[0] * st->picked.d[2], pick_row, &p); // items: rows of the picked image
        x = p.to;
    }
    const void *bias = s->n_packs > 1 ? r->packed[1] : r->out[0]; // packs[1] exists with a bias or a folded batch norm
    const void *const with[] = {x, r->packed[0], bias, r->out[0]};
    dt_dnnl_op_run(st->op, r->replica, with, r->scratch); // without bias the third is the last
}

static dt_status int8_cpu_finish(dt_kernel_instance *s, int8_state *st, dt_status status, const dt_dnnl_tensor *dense) {
    if (status == DT_OK) status = request_weight(s, st, dense);
    if (status != DT_OK) {
        int8_cpu_destroy(s); // frees what exists; the error is kept
        return dt_fail_context(status, "%s '%s'", dt_op_name(s->node->op), s->node->name);
    }
    request_bias(s, st);
    s->scratch_bytes = st->picked_at = dt_dnnl_op_scratch_bytes(st->op); // picked pixels lie behind oneDNN's scratchpad
    if (st->stride[0]) s->scratch_bytes += (size_t)dt_shape_elements(&st->picked);
    dt_log(DT_LOG_DEBUG, "%s %s: %s", dt_op_name(s->node->op), s->node->name, dt_dnnl_op_impl(st->op));
    return DT_OK;
}

// ---- convolution -----------------------------------------------------------------------------------
// Makes c the convolution without strides of what is picked out, where it is one of 1x1 with strides.
static void pick_out(int8_state *st, const dt_window *win, const dt_value_info *x, const dt_value_info *y,
                     dt_dnnl_conv *c) {
    for (int i = 0; i < 2; i++)
        if (win->kernel[i] != 1 || win->pad_begin[i] || win->pad_end[i]) return;  // only 1 x 1 without padding
    if (c->weights.n > 4 || (win->stride[0] == 1 && win->stride[1] == 1)) return; // or groups
    st->picked = dt_shape4(x->shape.d[0], x->shape.d[1], y->shape.d[2], y->shape.d[3]);
    c->src = dt_dnnl_laid_out(x->dtype, &st->picked, (dt_layout){.kind = DT_NHWC});
    for (int i = 0; i < 2; i++) {
        st->stride[i] = win->stride[i];
        c->stride[i] = 1; // the primitive reads the picked pixels with stride 1
    }
}

static dt_status prepare_conv(dt_kernel_instance *s) {
    const dt_node *n = s->node;
    const dt_value_info *x = dt_instance_in(s, 0), *w = dt_instance_in(s, 1);
    const dt_value_info *y = dt_instance_out(s, 0);
    const dt_layout nhwc = {.kind = DT_NHWC};
    const dt_window *win = &n->attrs.conv2d.win;
    const int groups = n->attrs.conv2d.groups;
    int8_state *st = int8_cpu_start(s, n->attrs.conv2d.int8, x->dtype == DT_I8); // s8 input: oneDNN compensates itself
    st->fold = dt_fold_of(n);
    s->in_layout[0] = s->out_layout[0] = nhwc;
    if (n->n_in > 3) s->in_layout[3] = nhwc;
    if (n->n_in > 3) s->inplace_in = 3; // the residual's memory becomes y
    const int64_t d[5] = {groups, w->shape.d[0] / groups, w->shape.d[1], w->shape.d[2], w->shape.d[3]};
    const int skip = groups == 1; // without groups the leading dimension is dropped
    dt_dnnl_conv c = {.src = dt_dnnl_laid_out(x->dtype, &x->shape, nhwc),
                      .weights = dt_dnnl_any(DT_I8, 5 - skip, d + skip),
                      .dst = dt_dnnl_laid_out(y->dtype, &y->shape, nhwc)};
    if (st->has_bias || st->fold.on) c.bias = dt_dnnl_dense(DT_F32, 1, &st->n_out);
    for (int i = 0; i < 2; i++) {
        c.stride[i] = win->stride[i];
        c.dilation[i] = win->dilation[i];
        c.pad_begin[i] = win->pad_begin[i];
        c.pad_end[i] = win->pad_end[i];
    }
    pick_out(st, win, x, y, &c);
    const dt_dnnl_env env = {.threads = s->threads, .n_replicas = s->n_replicas};
    float *factors = dt_xcalloc((size_t)st->n_out + 1, sizeof *factors);
    describe_after(s, st, n->attrs.conv2d.int8, n->attrs.conv2d.act, factors, &c.after);
    const dt_status status = dt_dnnl_op_create_conv(&st->op, &env, DT_DNNL_FORWARD, &c);
    const dt_dnnl_tensor dense = dt_dnnl_dense(DT_I8, 5 - skip, d + skip); // rounded weight as it lies
    free(factors);                                                         // oneDNN copied the factors
    return int8_cpu_finish(s, st, status, &dense);
}

// ---- linear ----------------------------------------------------------------------------------------
static dt_status prepare_linear(dt_kernel_instance *s) {
    const dt_node *n = s->node;
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    int8_state *st = int8_cpu_start(s, n->attrs.linear.int8, false);
    const int64_t rows = dt_shape_elements(&x->shape) / st->n_per_out; // all leading dimensions are rows
    dt_dnnl_matmul m = {.a = dt_dnnl_matrix(x->dtype, rows, st->n_per_out),
                        .b = dt_dnnl_any(DT_I8, 2, (int64_t[]){st->n_per_out, st->n_out}),
                        .dst = dt_dnnl_matrix(y->dtype, rows, st->n_out),
                        .alpha = 1};
    if (st->has_bias) m.bias = dt_dnnl_matrix(DT_F32, 1, st->n_out);
    const dt_dnnl_env env = {.threads = s->threads, .n_replicas = s->n_replicas};
    float *factors = dt_xcalloc((size_t)st->n_out + 1, sizeof *factors);
    describe_after(s, st, n->attrs.linear.int8, n->attrs.linear.act, factors, &m.after);
    const dt_status status = dt_dnnl_op_create_matmul(&st->op, &env, &m);
    // (out, in) in memory, read as (in, out)
    const dt_dnnl_tensor dense = dt_dnnl_transposed(DT_I8, st->n_per_out, st->n_out);
    free(factors);
    return int8_cpu_finish(s, st, status, &dense);
}

const dt_kernel dt_cpu_conv2d_int8 = {prepare_conv, int8_cpu_run, int8_cpu_destroy};
const dt_kernel dt_cpu_linear_int8 = {prepare_linear, int8_cpu_run, int8_cpu_destroy};

// ---- quantize --------------------------------------------------------------------------------------
// f32 images are BLOCKED or, of few channels, DENSE, as convolutions have them; in 8 bits they are NHWC. What is DENSE
// and no image stays so.
typedef struct quantize_state {
    bool down, negative, moves; // down: f32 to 8 bits; negative: signed; moves: the layout changes
    float by;                   // to 8 bits: 1 / scale
    dt_layout f32;
    int64_t channels, pixels;
} quantize_state;

static dt_status prepare_quantize(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    const dt_layout there = s->in_layout[0], nhwc = {.kind = DT_NHWC};
    quantize_state *st = dt_custom_prepare(s, sizeof *st);
    const float scale = s->node->attrs.quantize.scale;
    st->down = x->dtype == DT_F32;
    st->negative = (st->down ? y : x)->dtype == DT_I8;
    st->by = st->down ? 1 / scale : scale; // reciprocal once: a multiplication per element
    const bool few = x->shape.n == 4 && x->shape.d[1] <= 4;
    // no images, or nothing to reorder
    if (x->shape.n != 4 || (there.kind == DT_DENSE && !(few && st->down))) return DT_OK;
    st->channels = x->shape.d[1];
    st->pixels = x->shape.d[2] * x->shape.d[3];
    // few channels: the first layer's input
    st->f32 = there.kind == DT_NHWC && (st->down || few) ? nhwc : dt_cpu_conv_layout(st->channels);
    st->moves = st->f32.kind != DT_NHWC;
    s->in_layout[0] = st->down ? st->f32 : nhwc;
    s->out_layout[0] = st->down ? nhwc : st->f32;
    return DT_OK;
}

typedef struct quantize_call {
    const quantize_state *st;
    const char *x;
    char *y;
} quantize_call;

static void int8_cpu_convert(const quantize_call *c, int64_t to, int64_t from, int64_t n) {
    const dt_simd_int8 *k = dt_simd_get()->int8;
    const quantize_state *st = c->st;
    if (st->down)
        k->quantize(c->y + to, (const float *)(const void *)c->x + from, st->by, st->negative, n);
    else
        k->dequantize((float *)(void *)c->y + to, c->x + from, st->by, st->negative, n);
}

static void convert_range(const void *ctx, int64_t begin, int64_t end) {
    int8_cpu_convert(ctx, begin, begin, end - begin);
}

// Pixels [begin, end) of all images.
static void convert_pixels(const void *ctx, int64_t begin, int64_t end) {
    const quantize_call *c = ctx;
    const quantize_state *st = c->st;
    const int64_t block = st->f32.kind == DT_BLOCKED ? st->f32.block : 1; // 1: DENSE planes
    const int64_t blocks = (st->channels + block - 1) / block;
    for (int64_t p = begin; p < end; p++) {
        const int64_t image = p / st->pixels * blocks, pixel = p % st->pixels;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t left = st->channels - b * block, n = left < block ? left : block;
            const int64_t f32 = ((image + b) * st->pixels + pixel) * block; // place in the f32 tensor
            const int64_t bytes = p * st->channels + b * block;             // place in NHWC
            int8_cpu_convert(c, st->down ? bytes : f32, st->down ? f32 : bytes, n);
            // padding channels must be 0
            if (!st->down && n < block) memset((float *)(void *)c->y + f32 + n, 0, (size_t)(block - n) * sizeof(float));
        }
    }
}

static void run_quantize(const dt_kernel_instance *s, const dt_run *r) {
    const quantize_state *st = s->state;
    const quantize_call c = {st, r->in[0], r->out[0]};
    const int64_t n = dt_shape_elements(&dt_instance_in(s, 0)->shape);
    if (!st->moves) {
        dt_custom_ranges(s->threads, n, convert_range, &c);
        return;
    }
    const int64_t pixels = n / st->channels;
#pragma omp parallel for num_threads(s->threads) schedule(static) if (s->threads > 1)
    for (int t = 0; t < s->threads; t++) {
        int64_t b, e;
        dt_cpu_share(pixels, 64, t, s->threads, &b, &e); // 64 pixels: no shared cache line
        convert_pixels(&c, b, e);
    }
}

const dt_kernel dt_cpu_quantize = {prepare_quantize, run_quantize, dt_custom_destroy};
