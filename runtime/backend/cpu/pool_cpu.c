// pool_cpu.c: max and average pooling with any window, on BLOCKED or NHWC tensors; global mean pooling,
// (N,C,H,W) <-> (N,C) DENSE. What lies in NHWC stays so if its channels are whole blocks. Threads divide the images'
// channel blocks, or (NHWC, but for global means) the images. Maxima of 8 bits are of NHWC, pixel by pixel,
// without argmax: only inference has them (int8_cpu.c).
#include "backend/cpu/custom_kernel.h"

#include <string.h>

typedef struct pool_state {
    int type, block;
    bool max;
    int64_t images, channels, n_blocks;
    dt_layout layout;
    dt_pool_image image; // sizes and window
    const dt_simd_pool *simd;
} pool_state;

static void read_planes(pool_state *st, const dt_value_info *x, dt_layout lies) {
    st->block = dt_simd_get()->width;
    st->simd = dt_simd_get()->pool;
    st->channels = x->shape.d[1];
    st->n_blocks = (x->shape.d[1] + st->block - 1) / st->block;
    st->images = x->shape.d[0];
    st->layout = lies.kind == DT_NHWC && st->channels % st->block == 0 ? lies : dt_custom_blocked();
    st->image.n_blocks = st->layout.kind == DT_NHWC ? st->n_blocks : 1;
    st->image.pixel = st->image.n_blocks * st->block;
    st->image.in_h = x->shape.d[2];
    st->image.in_w = x->shape.d[3];
}

// x: the bigger tensor (forward x, backward dx); y: the pooled one.
static dt_status pool_cpu_read_window(dt_kernel_instance *s, pool_state *st, const dt_value_info *x,
                                      const dt_value_info *y, dt_layout lies) {
    if (!x || !y || x->shape.n != 4) return dt_custom_fail(s, "pooling wants (N,C,H,W)");
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    read_planes(st, x, lies);
    st->max = s->node->op == DT_OP_max_pool;
    st->image.out_h = y->shape.d[2];
    st->image.out_w = y->shape.d[3];
    st->image.win = &s->node->attrs.pool.win;
    st->image.count_include_pad = s->node->attrs.pool.count_include_pad;
    return DT_OK;
}

static bool is_8_bits(const dt_kernel_instance *s) {
    const dt_dtype t = dt_instance_in(s, 0)->dtype;
    return s->node->op == DT_OP_max_pool && (t == DT_U8 || t == DT_I8);
}

static dt_status pool_cpu_prepare_forward(dt_kernel_instance *s) {
    const dt_layout lies = s->in_layout[0];
    pool_state *st = dt_custom_prepare(s, sizeof(*st));
    if (is_8_bits(s)) {
        s->in_layout[0] = s->out_layout[0] = (dt_layout){.kind = DT_NHWC};
        return DT_OK;
    }
    DT_TRY(pool_cpu_read_window(s, st, dt_instance_in(s, 0), dt_instance_out(s, 0), lies));
    s->in_layout[0] = st->layout;
    for (int i = 0; i < s->node->n_out; i++) s->out_layout[i] = st->layout;
    return DT_OK;
}

typedef struct pool_call {
    const pool_state *st;
    const dt_window *win; // of this instance's node: a copied graph has another
    const void *x;
    void *y;
    uint8_t *argmax;
    const dt_value_info *in, *out; // of 8 bits
} pool_call;

// The nth of run_images.
static dt_pool_image pool_cpu_image_of(const pool_call *c, int64_t nth, bool backward) {
    const pool_state *st = c->st;
    int64_t big = nth * st->image.in_h * st->image.in_w * st->image.pixel;
    int64_t small = nth * st->image.out_h * st->image.out_w * st->image.pixel;
    dt_pool_image p = st->image;
    p.win = c->win;
    p.x = dt_row_at(st->type, c->x, backward ? small : big);
    p.y = dt_row_at_mut(st->type, c->y, backward ? big : small);
    p.argmax = c->argmax ? c->argmax + small : NULL;
    return p;
}

static void run_images(const dt_kernel_instance *s, const pool_call *c, dt_range_fn fn) {
    dt_custom_items(s->threads, c->st->images * (c->st->n_blocks / c->st->image.n_blocks), fn, c);
}

static void forward_image(const void *ctx, int64_t nth, int64_t end) {
    const pool_call *c = ctx;
    dt_pool_image p = pool_cpu_image_of(c, nth, false);
    (c->st->max ? c->st->simd->max : c->st->simd->avg)[c->st->type](&p);
}

// A row of an image of y.
static void max_row_8_bits(const void *ctx, int64_t row, int64_t end) {
    const pool_call *c = ctx;
    const dt_shape *x = &c->in->shape, *y = &c->out->shape;
    const int64_t channels = x->d[1], image = row / y->d[2], top = row % y->d[2];
    const int64_t row0 = top * c->win->stride[0] - c->win->pad_begin[0];
    const char *from = (const char *)c->x + image * x->d[2] * x->d[3] * channels;
    char *to = (char *)c->y + row * y->d[3] * channels;
    for (int64_t col = 0; col < y->d[3]; col++, to += channels) {
        const int64_t col0 = col * c->win->stride[1] - c->win->pad_begin[1];
        bool first = true;
        for (int64_t i = row0; i < row0 + c->win->kernel[0]; i++)
            for (int64_t j = col0; j < col0 + c->win->kernel[1]; j++) {
                if (i < 0 || i >= x->d[2] || j < 0 || j >= x->d[3]) continue;
                const char *pixel = from + (i * x->d[3] + j) * channels;
                if (first)
                    memcpy(to, pixel, (size_t)channels);
                else
                    dt_simd_get()->int8->max[c->in->dtype == DT_I8](to, pixel, channels);
                first = false;
            }
    }
}

static void pool_cpu_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const pool_state *st = s->state;
    if (is_8_bits(s)) {
        const dt_value_info *in = dt_instance_in(s, 0), *out = dt_instance_out(s, 0);
        const pool_call call = {.win = &s->node->attrs.pool.win, .x = r->in[0], .y = r->out[0], .in = in, .out = out};
        dt_custom_items(s->threads, out->shape.d[0] * out->shape.d[2], max_row_8_bits, &call);
        return;
    }
    pool_call c = {.st = st, .win = &s->node->attrs.pool.win, .x = r->in[0], .y = r->out[0]};
    if (st->max && s->node->n_out > 1) c.argmax = r->out[1];
    run_images(s, &c, forward_image);
}

static dt_status pool_cpu_prepare_backward(dt_kernel_instance *s) {
    int argmax_at = dt_pos_out(s, 1), dy_at = dt_pos_grad(s, 0);
    const dt_layout lies = s->in_layout[s->node->op == DT_OP_max_pool ? argmax_at : dy_at];
    pool_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(pool_cpu_read_window(s, st, dt_instance_out(s, 0), dt_instance_in(s, dy_at), lies));
    if (st->max) {
        if (s->node->in[argmax_at] == DT_NONE) return dt_custom_fail(s, "the backward node lacks argmax");
        s->in_layout[argmax_at] = st->layout;
    }
    s->in_layout[dy_at] = s->out_layout[0] = st->layout;
    return DT_OK;
}

static void backward_image(const void *ctx, int64_t nth, int64_t end) {
    const pool_call *c = ctx;
    dt_pool_image p = pool_cpu_image_of(c, nth, true);
    (c->st->max ? c->st->simd->max_bwd : c->st->simd->avg_bwd)[c->st->type](&p);
}

static void pool_cpu_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const pool_state *st = s->state;
    pool_call c = {.st = st, .win = &s->node->attrs.pool.win, .x = r->in[dt_pos_grad(s, 0)], .y = r->out[0]};
    if (st->max) c.argmax = (uint8_t *)r->in[dt_pos_out(s, 1)];
    run_images(s, &c, backward_image);
}

const dt_kernel dt_cpu_max_pool = {pool_cpu_prepare_forward, pool_cpu_run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_max_pool_bwd = {pool_cpu_prepare_backward, pool_cpu_run_backward, dt_custom_destroy};
const dt_kernel dt_cpu_avg_pool = {pool_cpu_prepare_forward, pool_cpu_run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_avg_pool_bwd = {pool_cpu_prepare_backward, pool_cpu_run_backward, dt_custom_destroy};

// ---- global pooling --------------------------------------------------------------------------------
static dt_status pool_cpu_prepare_global(dt_kernel_instance *s) {
    const bool backward = s->node->backward;
    const dt_layout lies = backward ? dt_custom_blocked() : s->in_layout[0];
    pool_state *st = dt_custom_prepare(s, sizeof(*st));
    const dt_value_info *x = backward ? dt_instance_out(s, 0) : dt_instance_in(s, 0);
    const dt_value_info *y = backward ? dt_instance_in(s, dt_pos_grad(s, 0)) : dt_instance_out(s, 0);
    if (!x || !y || x->shape.n != 4) return dt_custom_fail(s, "global pooling wants (N,C,H,W)");
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    read_planes(st, x, lies);
    *(backward ? s->out_layout : s->in_layout) = st->layout;
    return DT_OK;
}

// A plane is an image's channel block. Channels of its block, and where they begin in (N,C).
static int64_t block_channels(const pool_state *st, int64_t plane, int64_t *at) {
    int64_t first = plane % st->n_blocks * st->block, left = st->channels - first;
    *at = plane / st->n_blocks * st->channels + first;
    return left < st->block ? left : st->block;
}

// The element at which the plane's pixels begin.
static int64_t plane_at(const pool_state *st, int64_t plane, int64_t n_pixels) {
    if (st->layout.kind != DT_NHWC) return plane * n_pixels * st->block;
    return plane / st->n_blocks * n_pixels * st->channels + plane % st->n_blocks * st->block;
}

static void global_plane(const void *ctx, int64_t plane, int64_t end) {
    const pool_call *c = ctx;
    const pool_state *st = c->st;
    int64_t n_pixels = st->image.in_h * st->image.in_w, at;
    int64_t n = block_channels(st, plane, &at);
    float mean[DT_SIMD_MAX_WIDTH];
    st->simd->mean[st->type](mean, dt_row_at(st->type, c->x, plane_at(st, plane, n_pixels)), n_pixels, st->image.pixel);
    void *y = dt_row_at_mut(st->type, c->y, at);
    if (st->type == DT_ROW_F32)
        memcpy(y, mean, (size_t)n * sizeof(float));
    else
        dt_simd_get()->elementwise->to_bf16(y, mean, n);
}

static void global_plane_bwd(const void *ctx, int64_t plane, int64_t end) {
    const pool_call *c = ctx;
    const pool_state *st = c->st;
    int64_t n_pixels = st->image.in_h * st->image.in_w, at;
    int64_t n = block_channels(st, plane, &at);
    float g[DT_SIMD_MAX_WIDTH] = {0};
    const void *dy = dt_row_at(st->type, c->x, at);
    if (st->type == DT_ROW_F32)
        memcpy(g, dy, (size_t)n * sizeof(float));
    else
        dt_simd_get()->elementwise->to_f32(g, dy, n);
    for (int64_t i = 0; i < n; i++) g[i] /= (float)n_pixels;
    st->simd->fill[st->type](dt_row_at_mut(st->type, c->y, plane_at(st, plane, n_pixels)), g, n_pixels);
}

static void pool_cpu_run_global(const dt_kernel_instance *s, const dt_run *r) {
    const pool_state *st = s->state;
    const bool backward = s->node->backward;
    pool_call c = {.st = st, .x = r->in[backward ? dt_pos_grad(s, 0) : 0], .y = r->out[0]};
    dt_custom_items(s->threads, st->images * st->n_blocks, backward ? global_plane_bwd : global_plane, &c);
}

const dt_kernel dt_cpu_global_pool = {pool_cpu_prepare_global, pool_cpu_run_global, dt_custom_destroy};
const dt_kernel dt_cpu_global_pool_bwd = {pool_cpu_prepare_global, pool_cpu_run_global, dt_custom_destroy};
