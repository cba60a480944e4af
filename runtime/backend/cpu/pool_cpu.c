// pool_cpu.c: max and average pooling with windows up to 15x15, on BLOCKED tensors; global mean pooling,
// (N,C,H,W) BLOCKED <-> (N,C) DENSE. Threads divide the (image, channel block) planes. Backward sums
// overlapping windows in f32 scratch, one plane per thread.
#include "backend/cpu/custom_kernel.h"
#include "base/arena.h"

#include <omp.h>
#include <string.h>

typedef struct pool_state {
    int type, lanes;
    bool max;
    int64_t channels, n_blocks, n_planes; // planes: images x channel blocks
    dt_pool_image image;                  // sizes and window
    size_t plane_bytes;                   // backward scratch a thread
    const dt_simd_pool *simd;
} pool_state;

static void read_planes(pool_state *st, const dt_value_info *x) {
    st->lanes = dt_simd_get()->width;
    st->simd = dt_simd_get()->pool;
    st->channels = x->shape.d[1];
    st->n_blocks = (x->shape.d[1] + st->lanes - 1) / st->lanes;
    st->n_planes = x->shape.d[0] * st->n_blocks;
    st->image.in_h = x->shape.d[2];
    st->image.in_w = x->shape.d[3];
}

// x: the bigger tensor (forward x, backward dx); y: the pooled one.
static dt_status read_window(dt_kernel_instance *s, pool_state *st, const dt_value_info *x,
                             const dt_value_info *y) {
    if (!x || !y || x->shape.n != 4) return dt_custom_fail(s, "pooling wants (N,C,H,W)");
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    const dt_window *w = &s->node->attrs.pool.win;
    for (int i = 0; i < 2; i++)
        if (w->kernel[i] < 1 || w->kernel[i] > 15 || w->pad_begin[i] >= w->kernel[i] ||
            w->dilation[i] > 1)
            return dt_custom_fail(s,
                                  "pooling window %dx%d is not supported: 1x1 to 15x15, padding "
                                  "smaller than the window, no dilation",
                                  w->kernel[0], w->kernel[1]);
    read_planes(st, x);
    st->max = s->node->op == DT_OP_max_pool;
    st->image.out_h = y->shape.d[2];
    st->image.out_w = y->shape.d[3];
    st->image.win = w;
    st->image.count_include_pad = s->node->attrs.pool.count_include_pad;
    return DT_OK;
}

static dt_status prepare_forward(dt_kernel_instance *s) {
    pool_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(read_window(s, st, dt_instance_in(s, 0), dt_instance_out(s, 0)));
    s->in_layout[0] = dt_custom_blocked();
    for (int i = 0; i < s->node->n_out; i++) s->out_layout[i] = dt_custom_blocked();
    return DT_OK;
}

typedef struct pool_call {
    const pool_state *st;
    const dt_window *win; // of this instance's node: a copied graph has another
    const void *x;
    void *y;
    uint8_t *argmax;
    char *scratch;
} pool_call;

static dt_pool_image image_of(const pool_call *c, int64_t plane, bool backward) {
    const pool_state *st = c->st;
    int64_t big = plane * st->image.in_h * st->image.in_w * st->lanes;
    int64_t small = plane * st->image.out_h * st->image.out_w * st->lanes;
    dt_pool_image p = st->image;
    p.win = c->win;
    p.x = dt_row_at(st->type, c->x, backward ? small : big);
    p.y = dt_row_at_mut(st->type, c->y, backward ? big : small);
    p.argmax = c->argmax ? c->argmax + small : NULL;
    return p;
}

static void forward_plane(const void *ctx, int64_t plane, int64_t end) {
    const pool_call *c = ctx;
    dt_pool_image p = image_of(c, plane, false);
    (c->st->max ? c->st->simd->max : c->st->simd->avg)[c->st->type](&p);
}

static void run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const pool_state *st = s->state;
    pool_call c = {st, &s->node->attrs.pool.win, r->in[0], r->out[0], NULL, NULL};
    if (st->max && s->node->n_out > 1) c.argmax = r->out[1];
    dt_custom_items(s->threads, st->n_planes, forward_plane, &c);
}

static dt_status prepare_backward(dt_kernel_instance *s) {
    int argmax_at = dt_pos_out(s, 1), dy_at = dt_pos_grad(s, 0);
    pool_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(read_window(s, st, dt_instance_out(s, 0), dt_instance_in(s, dy_at)));
    if (st->max) {
        if (s->node->in[argmax_at] == DT_NONE)
            return dt_custom_fail(s, "the backward node lacks argmax");
        s->in_layout[argmax_at] = dt_custom_blocked();
    }
    s->in_layout[dy_at] = s->out_layout[0] = dt_custom_blocked();
    const int64_t n_floats = st->image.in_h * st->image.in_w * st->lanes;
    st->plane_bytes = dt_align_up((size_t)n_floats * sizeof(float), 64);
    s->scratch_bytes = st->plane_bytes * (size_t)s->threads;
    return DT_OK;
}

static void backward_plane(const void *ctx, int64_t plane, int64_t end) {
    const pool_call *c = ctx;
    dt_pool_image p = image_of(c, plane, true);
    p.row_sums = (float *)(c->scratch + c->st->plane_bytes * (size_t)omp_get_thread_num());
    (c->st->max ? c->st->simd->max_bwd : c->st->simd->avg_bwd)[c->st->type](&p);
}

static void run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const pool_state *st = s->state;
    pool_call c = {st,        &s->node->attrs.pool.win, r->in[dt_pos_grad(s, 0)], r->out[0], NULL,
                   r->scratch};
    if (st->max) c.argmax = (uint8_t *)r->in[dt_pos_out(s, 1)];
    dt_custom_items(s->threads, st->n_planes, backward_plane, &c);
}

const dt_kernel dt_cpu_max_pool = {prepare_forward, run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_max_pool_bwd = {prepare_backward, run_backward, dt_custom_destroy};
const dt_kernel dt_cpu_avg_pool = {prepare_forward, run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_avg_pool_bwd = {prepare_backward, run_backward, dt_custom_destroy};

// ---- global pooling --------------------------------------------------------------------------------
static dt_status prepare_global(dt_kernel_instance *s) {
    const bool backward = s->node->backward;
    pool_state *st = dt_custom_prepare(s, sizeof(*st));
    const dt_value_info *x = backward ? dt_instance_out(s, 0) : dt_instance_in(s, 0);
    const dt_value_info *y =
        backward ? dt_instance_in(s, dt_pos_grad(s, 0)) : dt_instance_out(s, 0);
    if (!x || !y || x->shape.n != 4) return dt_custom_fail(s, "global pooling wants (N,C,H,W)");
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    read_planes(st, x);
    if (backward)
        s->out_layout[0] = dt_custom_blocked();
    else
        s->in_layout[0] = dt_custom_blocked();
    return DT_OK;
}

// Channels of the plane's block, and where they begin in (N,C).
static int64_t block_channels(const pool_state *st, int64_t plane, int64_t *at) {
    int64_t first = plane % st->n_blocks * st->lanes, left = st->channels - first;
    *at = plane / st->n_blocks * st->channels + first;
    return left < st->lanes ? left : st->lanes;
}

static void global_plane(const void *ctx, int64_t plane, int64_t end) {
    const pool_call *c = ctx;
    const pool_state *st = c->st;
    int64_t n_pixels = st->image.in_h * st->image.in_w, at;
    int64_t n = block_channels(st, plane, &at);
    float mean[DT_SIMD_MAX_WIDTH];
    st->simd->mean[st->type](mean, dt_row_at(st->type, c->x, plane * n_pixels * st->lanes),
                             n_pixels);
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
    st->simd->fill[st->type](dt_row_at_mut(st->type, c->y, plane * n_pixels * st->lanes), g,
                             n_pixels);
}

static void run_global(const dt_kernel_instance *s, const dt_run *r) {
    const pool_state *st = s->state;
    const bool backward = s->node->backward;
    pool_call c = {.st = st, .x = r->in[backward ? dt_pos_grad(s, 0) : 0], .y = r->out[0]};
    dt_custom_items(s->threads, st->n_planes, backward ? global_plane_bwd : global_plane, &c);
}

const dt_kernel dt_cpu_global_pool = {prepare_global, run_global, dt_custom_destroy};
const dt_kernel dt_cpu_global_pool_bwd = {prepare_global, run_global, dt_custom_destroy};
