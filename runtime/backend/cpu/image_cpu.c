// image_cpu.c: pooling, resizing and normalisation of images, on the CPU.

#include "backend/cpu/custom_kernel.h"
#include "base/bits.h"
#include "batch/mix_plan.h"
#include "graph/resize_taps.h"

#include <string.h>

// ---- pool ---------------------------------------------------------------------------------------------------------

// Max and average pooling with any window, on BLOCKED or NHWC tensors; global mean pooling,
// (N,C,H,W) <-> (N,C) DENSE. What lies in NHWC stays so if its channels are whole blocks. Threads divide the images'
// channel blocks, or (NHWC, but for global means) the images. Maxima of 8 bits are of NHWC, pixel by pixel,
// without argmax: only inference has them (int8_cpu.c).

typedef struct pool_state {
    int type, block; // block: channels of a vector
    bool max;
    int64_t images, channels, n_blocks; // n_blocks: per image
    dt_layout layout;
    dt_pool_image image; // sizes and window
    const dt_simd_pool *simd;
} pool_state;

static void read_planes(pool_state *st, const dt_value_info *x, dt_layout lies) {
    st->block = dt_simd_get()->width;
    // st->image describes one call of a vector function
    st->simd = dt_simd_get()->pool;
    st->channels = x->shape.d[1];
    st->n_blocks = (x->shape.d[1] + st->block - 1) / st->block;
    st->images = x->shape.d[0];
    // NHWC only in whole vectors: no padding inside a pixel
    st->layout = lies.kind == DT_NHWC && st->channels % st->block == 0 ? lies : dt_custom_blocked();
    st->image.n_blocks = st->layout.kind == DT_NHWC ? st->n_blocks : 1; // blocks that one call covers
    st->image.pixel = st->image.n_blocks * st->block;                   // elements between neighbouring pixels
    st->image.in_h = x->shape.d[2];
    st->image.in_w = x->shape.d[3];
}

// x: the bigger tensor (forward x, backward dx); y: the pooled one.
static dt_status pool_cpu_read_window(dt_kernel_instance *s, pool_state *st, const dt_value_info *x,
                                      const dt_value_info *y, dt_layout lies) {
    if (!x || !y || x->shape.n != 4) return dt_custom_fail(s, "pooling wants (N,C,H,W)");
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    read_planes(st, x, lies);
    st->max = s->node->op == DT_OP_max_pool; // else average
    st->image.out_h = y->shape.d[2];
    st->image.out_w = y->shape.d[3];
    st->image.win = &s->node->attrs.pool.win;
    st->image.count_include_pad = s->node->attrs.pool.count_include_pad;
    return DT_OK;
}

static bool is_8_bits(const dt_kernel_instance *s) {
    const dt_dtype t = dt_instance_in(s, 0)->dtype;
    return s->node->op == DT_OP_max_pool && (t == DT_U8 || t == DT_I8); // quantized networks
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
    for (int i = 0; i < s->node->n_out; i++) s->out_layout[i] = st->layout; // argmax has y's layout
    return DT_OK;
}

typedef struct pool_call {
    const pool_state *st;
    // a state may outlive its graph
    const dt_window *win; // of this instance's node: a copied graph has another
    const void *x;
    void *y;
    uint8_t *argmax;
    const dt_value_info *in, *out; // of 8 bits
} pool_call;

// The nth of run_images.
static dt_pool_image pool_cpu_image_of(const pool_call *c, int64_t nth, bool backward) {
    const pool_state *st = c->st;
    int64_t big = nth * st->image.in_h * st->image.in_w * st->image.pixel;     // elements of an unpooled image
    int64_t small = nth * st->image.out_h * st->image.out_w * st->image.pixel; // elements of a pooled one
    dt_pool_image p = st->image;
    p.win = c->win;
    p.x = dt_row_at(st->type, c->x, backward ? small : big); // backward reads dy and writes dx
    p.y = dt_row_at_mut(st->type, c->y, backward ? big : small);
    p.argmax = c->argmax ? c->argmax + small : NULL; // one byte per output element: place in the window
    return p;
}

static void run_images(const dt_kernel_instance *s, const pool_call *c, dt_range_fn fn) {
    // items: images, or channel blocks of images
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
    const int64_t row0 = top * c->win->stride[0] - c->win->pad_begin[0]; // top left of the window; negative: padding
    const char *from = (const char *)c->x + image * x->d[2] * x->d[3] * channels;
    char *to = (char *)c->y + row * y->d[3] * channels;
    for (int64_t col = 0; col < y->d[3]; col++, to += channels) {
        const int64_t col0 = col * c->win->stride[1] - c->win->pad_begin[1];
        bool first = true;
        for (int64_t i = row0; i < row0 + c->win->kernel[0]; i++)
            for (int64_t j = col0; j < col0 + c->win->kernel[1]; j++) {
                if (i < 0 || i >= x->d[2] || j < 0 || j >= x->d[3]) continue; // padding takes no part in a maximum
                const char *pixel = from + (i * x->d[3] + j) * channels;
                if (first) // the first pixel that counts
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
    if (st->max && s->node->n_out > 1) c.argmax = r->out[1]; // without: inference
    run_images(s, &c, forward_image);
}

static dt_status pool_cpu_prepare_backward(dt_kernel_instance *s) {
    int argmax_at = dt_pos_out(s, 1), dy_at = dt_pos_grad(s, 0);
    // backward keeps the layout that forward chose
    const dt_layout lies = s->in_layout[s->node->op == DT_OP_max_pool ? argmax_at : dy_at];
    pool_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(pool_cpu_read_window(s, st, dt_instance_out(s, 0), dt_instance_in(s, dy_at), lies));
    if (st->max) {
        // forward wrote argmax only when a gradient was wanted
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
    // backward always writes BLOCKED: forward's layout is not known here
    const dt_layout lies = backward ? dt_custom_blocked() : s->in_layout[0];
    pool_state *st = dt_custom_prepare(s, sizeof(*st));
    const dt_value_info *x = backward ? dt_instance_out(s, 0) : dt_instance_in(s, 0);
    const dt_value_info *y = backward ? dt_instance_in(s, dt_pos_grad(s, 0)) : dt_instance_out(s, 0);
    if (!x || !y || x->shape.n != 4) return dt_custom_fail(s, "global pooling wants (N,C,H,W)");
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    read_planes(st, x, lies);
    *(backward ? s->out_layout : s->in_layout) = st->layout; // the pooled side is DENSE
    return DT_OK;
}

// A plane is an image's channel block. Channels of its block, and where they begin in (N,C).
static int64_t block_channels(const pool_state *st, int64_t plane, int64_t *at) {
    int64_t first = plane % st->n_blocks * st->block, left = st->channels - first;
    *at = plane / st->n_blocks * st->channels + first; // place in (N,C)
    return left < st->block ? left : st->block;        // channels of a last, partial block
}

// The element at which the plane's pixels begin.
static int64_t plane_at(const pool_state *st, int64_t plane, int64_t n_pixels) {
    if (st->layout.kind != DT_NHWC) return plane * n_pixels * st->block; // (N, C/block, H*W, block)
    // NHWC: offset inside a pixel
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
        memcpy(y, mean, (size_t)n * sizeof(float)); // partial blocks: only real channels
    else
        dt_simd_get()->elementwise->to_bf16(y, mean, n);
}

static void global_plane_bwd(const void *ctx, int64_t plane, int64_t end) {
    const pool_call *c = ctx;
    const pool_state *st = c->st;
    int64_t n_pixels = st->image.in_h * st->image.in_w, at;
    int64_t n = block_channels(st, plane, &at);
    float g[DT_SIMD_MAX_WIDTH] = {0}; // padding channels get 0
    const void *dy = dt_row_at(st->type, c->x, at);
    if (st->type == DT_ROW_F32)
        memcpy(g, dy, (size_t)n * sizeof(float));
    else
        dt_simd_get()->elementwise->to_f32(g, dy, n);
    for (int64_t i = 0; i < n; i++) g[i] /= (float)n_pixels; // each pixel has an equal share
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

// ---- resize -------------------------------------------------------------------------------------------------------

// The op resize in any layout: an element of a plane is one channel (DENSE), a block of them (BLOCKED) or all
// (NHWC), and is two places of two rows, weighted. Backward adds each gradient to those places, plane by plane, in f32:
// in dx where it is f32, else in a plane of scratch for each thread.

typedef struct resize_state {
    int type;
    int64_t planes, each;     // elements of a place
    int64_t big[2], small[2]; // rows, columns of y (big) and x (small)
    dt_taps *taps[2];         // by row, by column of y
} resize_state;

static void resize_cpu_destroy(dt_kernel_instance *s) {
    resize_state *st = s->state;
    if (st) free(st->taps[0]), free(st->taps[1]); // calloc'ed in read_shapes
    dt_custom_destroy(s);
}

// x: what is resized (backward dx); y: the result.
static dt_status resize_cpu_read_shapes(dt_kernel_instance *s, const dt_value_info *x, const dt_value_info *y,
                                        dt_layout layout) {
    resize_state *st = dt_custom_prepare(s, sizeof *st);
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    const int64_t channels = x->shape.d[1];
    // elements of a pixel that lie side by side
    st->each = layout.kind == DT_NHWC ? channels : layout.kind == DT_BLOCKED ? layout.block : 1;
    st->planes = x->shape.d[0] * ((channels + st->each - 1) / st->each);
    for (int d = 0; d < 2; d++) {
        st->big[d] = y->shape.d[2 + d], st->small[d] = x->shape.d[2 + d];
        st->taps[d] = dt_xcalloc((size_t)st->big[d], sizeof *st->taps[d]);
        for (int i = 0; i < st->big[d]; i++) // positions and weights are the same for all planes
            st->taps[d][i] =
                dt_resize_taps((int)s->node->attrs.resize.mode, s->node->attrs.resize.step[d], i, (int)st->small[d]);
    }
    return DT_OK;
}

static dt_status resize_cpu_prepare(dt_kernel_instance *s) {
    const dt_layout layout = s->in_layout[0];
    DT_TRY(resize_cpu_read_shapes(s, dt_instance_in(s, 0), dt_instance_out(s, 0), layout));
    s->in_layout[0] = s->out_layout[0] = layout;
    return DT_OK;
}

// A row of y in strips of floats.
static inline void forward_row(const resize_state *st, void *y, const void *x, int64_t row, int type) {
    enum { STRIP = 64 };                     // floats: 256 bytes of stack, in L1
    const dt_taps *down = &st->taps[0][row]; // two source rows
    const int64_t width = st->small[1] * st->each, each = st->each;
    for (int64_t col = 0; col < st->big[1]; col++) {
        const dt_taps *t = &st->taps[1][col];
        const float w[4] = {down->weight[0] * t->weight[0], down->weight[0] * t->weight[1],
                            // bilinear: products of row and column weights
                            down->weight[1] * t->weight[0], down->weight[1] * t->weight[1]};
        // four corners, in elements
        const int64_t at[4] = {down->at[0] * width + t->at[0] * each, down->at[0] * width + t->at[1] * each,
                               down->at[1] * width + t->at[0] * each, down->at[1] * width + t->at[1] * each};
        for (int64_t from = 0; from < each; from += STRIP) {
            float sum[STRIP];
            const int64_t n = each - from < STRIP ? each - from : STRIP;
            const int64_t to = (row * st->big[1] + col) * each + from;
            for (int64_t i = 0; i < n; i++) // f32 sums also for bf16
                sum[i] = w[0] * dt_row_get(type, x, at[0] + from + i) + w[1] * dt_row_get(type, x, at[1] + from + i) +
                         w[2] * dt_row_get(type, x, at[2] + from + i) + w[3] * dt_row_get(type, x, at[3] + from + i);
            if (type == DT_ROW_BF16)
                dt_simd_get()->elementwise->to_bf16((uint16_t *)y + to, sum, n);
            else
                memcpy((float *)y + to, sum, (size_t)n * sizeof *sum);
        }
    }
}

static void resize_cpu_forward_item(const void *ctx, int64_t item, int64_t end) {
    const dt_one_to_one *c = ctx;
    const resize_state *st = c->state;
    const int64_t plane = item / st->big[0], row = item % st->big[0]; // an item is a row of y
    void *y = dt_row_at_mut(st->type, c->y, plane * st->big[0] * st->big[1] * st->each);
    const void *x = dt_row_at(st->type, c->x, plane * st->small[0] * st->small[1] * st->each);
    if (st->type == DT_ROW_BF16)
        forward_row(st, y, x, row, DT_ROW_BF16);
    else
        forward_row(st, y, x, row, DT_ROW_F32);
}

static void resize_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const resize_state *st = s->state;
    dt_custom_items(s->threads, st->planes * st->big[0], resize_cpu_forward_item,
                    &(dt_one_to_one){st, r->out[0], r->in[0]});
}

// ---- backward --------------------------------------------------------------------------------------
static int64_t small_plane(const resize_state *st) {
    return st->small[0] * st->small[1] * st->each;
}

static dt_status resize_cpu_prepare_bwd(dt_kernel_instance *s) {
    const int dy = dt_pos_grad(s, 0);
    const dt_layout layout = s->in_layout[dy];
    DT_TRY(resize_cpu_read_shapes(s, dt_instance_out(s, 0), dt_instance_in(s, dy), layout));
    const resize_state *st = s->state;
    s->in_layout[dy] = s->out_layout[0] = layout;
    // an f32 plane per thread
    if (st->type == DT_ROW_BF16) s->scratch_bytes = (size_t)s->threads * (size_t)small_plane(st) * sizeof(float);
    return DT_OK;
}

static inline void add_plane(const resize_state *st, float *dx, const void *dy, int type) {
    memset(dx, 0, (size_t)small_plane(st) * sizeof *dx); // dx is the sum of all taps: begins at 0
    for (int64_t row = 0; row < st->big[0]; row++)
        for (int64_t col = 0; col < st->big[1]; col++)
            for (int k = 0; k < 4; k++) { // four corners
                const dt_taps *down = &st->taps[0][row], *t = &st->taps[1][col];
                const float w = down->weight[k / 2] * t->weight[k % 2];
                float *to = dx + (down->at[k / 2] * st->small[1] + t->at[k % 2]) * st->each;
                const int64_t from = (row * st->big[1] + col) * st->each;
                if (w == 0) continue; // nearest: one tap has all the weight
                for (int64_t i = 0; i < st->each; i++) to[i] += w * dt_row_get(type, dy, from + i);
            }
}

static void resize_cpu_run_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const resize_state *st = s->state;
    const int64_t big = st->big[0] * st->big[1] * st->each, n = small_plane(st);
    const char *dy = r->in[dt_pos_grad(s, 0)];
// planes are divided: no two threads add to one
#pragma omp parallel for num_threads(s->threads) schedule(static) if (s->threads > 1)
    for (int t = 0; t < s->threads; t++) {
        float *mine = (float *)r->scratch + t * n;
        for (int64_t p = st->planes * t / s->threads; p < st->planes * (t + 1) / s->threads; p++) {
            if (st->type == DT_ROW_F32) {
                add_plane(st, (float *)r->out[0] + p * n, dy + p * big * 4, DT_ROW_F32); // 4: bytes of a float
                continue;
            }
            add_plane(st, mine, dy + p * big * 2, DT_ROW_BF16); // 2: bytes of a bf16
            dt_simd_get()->elementwise->to_bf16((uint16_t *)r->out[0] + p * n, mine, n);
        }
    }
}

const dt_kernel dt_cpu_resize = {resize_cpu_prepare, resize_cpu_run, resize_cpu_destroy};
const dt_kernel dt_cpu_resize_bwd = {resize_cpu_prepare_bwd, resize_cpu_run_bwd, resize_cpu_destroy};

// ---- image normalize ----------------------------------------------------------------------------------------------

// Pixels (N,H,W,C) -> (N,C,H,W) f32 or bf16. Bytes: (x/255 - mean[c]) / std[c], as one
// multiply-add; RGB is split into planes in registers. Floats: (x - mean[c]) * (1 / std[c]), the difference
// first, since the mean may be large beside the deviation. Threads divide an image's pixels.
//
// With a mix plan (batch/mix_plan.h) a mixed sample goes through a small buffer: pixels are mixed there and
// normalized while they are in the L1 cache. The buffer's size does not change any bits, since each pixel is
// computed on its own.

typedef struct normalize_state {
    int type, channels;
    bool is_f32;
    int64_t n_images, n_pixels, parts; // ranges of pixels per image
    size_t pixel_bytes;
    int64_t width;
    float scale[64], shift[64]; // f32: shift holds the mean
    const dt_simd_elementwise *simd;
} normalize_state;

enum { PART_PIXELS = 16384, MIX_BYTES = 8192 }; // pixels of a thread's item; bytes of the mixing buffer

static dt_status image_normalize_cpu_prepare(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    normalize_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){y}, 1));
    st->is_f32 = x->dtype == DT_F32;
    if ((x->dtype != DT_U8 && !st->is_f32) || x->shape.n != 4 || x->shape.d[3] > 64)
        return dt_custom_fail(s, "wants u8 or f32 (N,H,W,C) with at most 64 channels");
    st->channels = (int)x->shape.d[3];
    st->pixel_bytes = (size_t)st->channels * dt_dtype_size(x->dtype);
    st->width = x->shape.d[2];
    st->n_images = x->shape.d[0];
    st->n_pixels = x->shape.d[1] * x->shape.d[2];
    st->parts = (st->n_pixels + PART_PIXELS - 1) / PART_PIXELS;
    for (int c = 0; c < st->channels; c++) {
        double std = s->node->attrs.image_normalize.std[c];
        float mean = s->node->attrs.image_normalize.mean[c];
        st->scale[c] = (float)(1.0 / (st->is_f32 ? std : 255.0 * std)); // bytes become multiples of 1/255
        st->shift[c] = st->is_f32 ? mean : (float)(-(double)mean / std);
    }
    st->simd = dt_simd_get()->elementwise;
    return DT_OK;
}

typedef struct normalize_call {
    const normalize_state *st;
    void *y;
    const char *x;
    const dt_mix_row *plan; // or NULL
} normalize_call;

// n pixels from x; y: their place in the first channel's plane.
static void normalize(const normalize_state *st, void *y, const void *x, int64_t n) {
    if (!st->is_f32 && st->channels == 3) {
        st->simd->u8_rgb[st->type](y, st->n_pixels, x, st->scale, st->shift, n); // three planes at once
        return;
    }
    for (int k = 0; k < st->channels; k++) {
        void *plane = dt_row_at_mut(st->type, y, k * st->n_pixels); // planes of a channel lie n_pixels apart
        if (st->is_f32)
            st->simd->f32_plane[st->type](plane, x, st->channels, k, st->shift[k], st->scale[k], n);
        else
            st->simd->u8_plane[st->type](plane, x, st->channels, k, st->scale[k], st->shift[k], n);
    }
}

// ---- mixing ----------------------------------------------------------------------------------------
VECTORIZED static void blend_bytes(uint8_t *restrict v, const uint8_t *restrict a, const uint8_t *restrict b, size_t n,
                                   uint32_t own) {
    // fixed point with 16 fractional bits, rounded
    for (size_t i = 0; i < n; i++) v[i] = (uint8_t)((a[i] * own + b[i] * (DT_MIX_ONE - own) + DT_MIX_ONE / 2) >> 16);
}

VECTORIZED static void blend_reals(float *restrict v, const float *restrict a, const float *restrict b, size_t n,
                                   float own) {
    for (size_t i = 0; i < n; i++) v[i] = a[i] * own + b[i] * (1 - own);
}

// Mixes pixels [first, first + n) of image a (the sample's own) and image b (the next one) into v.
static void image_normalize_cpu_mix(const normalize_state *st, const dt_mix_row *m, char *v, const char *a,
                                    const char *b, int64_t first, int64_t n) {
    const size_t at = (size_t)first * st->pixel_bytes, bytes = (size_t)n * st->pixel_bytes;
    if (m->own == DT_MIX_ONE) // no blending (CutMix alone)
        memcpy(v, a + at, bytes);
    else if (st->is_f32)
        blend_reals((float *)v, (const float *)(a + at), (const float *)(b + at), bytes / 4,
                    (float)m->own / DT_MIX_ONE);
    else
        blend_bytes((uint8_t *)v, (const uint8_t *)a + at, (const uint8_t *)b + at, bytes, (uint32_t)m->own);
    int64_t y = first / st->width, end = first + n;
    // CutMix: the rectangle comes from the next sample
    for (y = y < m->y0 ? m->y0 : y; y < m->y1 && y * st->width < end; y++) {
        int64_t from = y * st->width + m->x0, to = y * st->width + m->x1;
        from = from < first ? first : from;
        to = to > end ? end : to;
        if (from >= to) continue;
        memcpy(v + (size_t)(from - first) * st->pixel_bytes, b + (size_t)from * st->pixel_bytes,
               (size_t)(to - from) * st->pixel_bytes);
    }
}

static void mix_and_normalize(const normalize_call *c, void *y, int64_t image, int64_t first, int64_t n) {
    const normalize_state *st = c->st;
    _Alignas(64) char buffer[MIX_BYTES];
    const size_t image_bytes = (size_t)st->n_pixels * st->pixel_bytes;
    const int64_t most = (int64_t)(MIX_BYTES / st->pixel_bytes);
    const int64_t next = image + 1 < st->n_images ? image + 1 : 0; // the last sample mixes with the first
    for (int64_t at = 0; at < n; at += most) {
        int64_t some = n - at < most ? n - at : most; // the buffer holds whole pixels
        image_normalize_cpu_mix(st, &c->plan[image], buffer, c->x + (size_t)image * image_bytes,
                                c->x + (size_t)next * image_bytes, first + at, some);
        normalize(st, dt_row_at_mut(st->type, y, at), buffer, some);
    }
}

static void image_normalize_cpu_item(const void *ctx, int64_t i, int64_t end) {
    const normalize_call *c = ctx;
    const normalize_state *st = c->st;
    int64_t image = i / st->parts, first = i % st->parts * PART_PIXELS; // item: a range of an image's pixels
    int64_t n = st->n_pixels - first < PART_PIXELS ? st->n_pixels - first : PART_PIXELS;
    void *y = dt_row_at_mut(st->type, c->y, image * st->n_pixels * st->channels + first);
    const dt_mix_row *m = c->plan ? &c->plan[image] : NULL;
    if (m && (m->own != DT_MIX_ONE || (m->y0 < m->y1 && m->x0 < m->x1))) // blended, or with a rectangle of another
        mix_and_normalize(c, y, image, first, n);
    else
        normalize(st, y, c->x + (size_t)(image * st->n_pixels + first) * st->pixel_bytes, n);
}

static void image_normalize_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const normalize_state *st = s->state;
    // input 1: the mix plan, in training only
    normalize_call c = {st, r->out[0], r->in[0], s->node->n_in > 1 ? r->in[1] : NULL};
    dt_custom_items(s->threads, st->n_images * st->parts, image_normalize_cpu_item, &c);
}

const dt_kernel dt_cpu_image_normalize = {image_normalize_cpu_prepare, image_normalize_cpu_run, dt_custom_destroy};
