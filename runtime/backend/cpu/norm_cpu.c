// norm_cpu.c: batch norms, on the CPU.

#include "backend/cpu/custom_kernel.h"
#include "base/core.h"

#include <math.h>
#include <omp.h>
#include <string.h>

// ---- batch norm ---------------------------------------------------------------------------------------------------

// Batch norm with fused residual, ReLU and 2x2 max-pool, forward and backward.
//
//   forward   in  x, scale, shift, running mean, running variance, [residual]
//             out y, saved mean, saved 1/std, [argmax u8], STAT batch mean, STAT unbiased variance
//   backward  in  x, scale, …; y (ReLU without pool), saved mean, saved 1/std, argmax (pool); dy
//             out dx, dscale, dshift, -, -, dresidual
//
// Channels are independent, and a BLOCKED tensor keeps a channel block of an image together. So the unit of
// work is a chunk: whole rows of one channel block of one image, about CHUNK_PIXELS pixels at most. All passes
// over one channel block end before the next block starts. The second pass walks the chunks backwards, so it
// finds what the first pass read last in the cache:
//
//   for each channel block:   sums of all chunks  ->  constants  ->  all chunks, backwards
//
// An NHWC tensor (bf16, what AMX convolutions make) keeps all channels of a pixel together. There the blocks are one
// group, whose passes go side by side: over a few rows at a time, which are in the cache for every block but the first.
//
// Sums are f32 within 256 pixels and doubles above that, about a pivot near the mean (the mean of x's first
// pixels), and are combined in the order of the chunks. The cut depends only on shapes, so the bits do not
// depend on the number of threads. Threads share large groups, and take whole ones where these are small.
//
// (N,C) tensors are gathered into scratch block by block and run as one row of N pixels.

enum {
    CHUNK_PIXELS = 2048,
    PIVOT_PIXELS = 32,
    SHARE_BYTES = 1 << 18, // groups of at least this size are shared by all threads
    TILE_BYTES = 1 << 15,  // of an NHWC tensor, at a time
    MAX_LANES = 2 * DT_SIMD_MAX_WIDTH,
};

typedef struct bn_state {
    int type;
    int block; // channels of a block
    bool flat; // (N,C)
    bool nhwc; // NHWC, else BLOCKED
    bool training, relu, pool, residual;
    int64_t channels, n_blocks, images, height, width; // flat: 1 image of 1 row of N pixels
    int64_t group;                                     // blocks whose passes go side by side
    int64_t chunk_rows, chunks_an_image, n_chunks;
    int64_t tile_rows;     // of a chunk, at a time
    size_t thread_scratch; // bytes per thread
    float eps;
    const dt_simd_bn *simd;
} bn_state;

// Constants of one channel block, and the sums of its chunks: (n_chunks, 2, block).
typedef struct bn_block {
    float mean[MAX_LANES], gain[MAX_LANES], shift[MAX_LANES];
    float k1[MAX_LANES], k2[MAX_LANES], pivot[MAX_LANES];
    double *sums;
} bn_block;

// Tensors of one call, BLOCKED (or gathered so from (N,C)).
typedef struct bn_call {
    const dt_kernel_instance *instance;
    const dt_run *run;
    const bn_state *st;
    const void *x, *residual, *y_in, *dy;
    const uint8_t *argmax_in;
    void *y, *dx, *dresidual;
    uint8_t *argmax;
} bn_call;

// ---- prepare ---------------------------------------------------------------------------------------
// Pooled rows come in pairs.
static int64_t even_rows(int64_t n, int64_t height) {
    n = n < 2 ? 2 : n / 2 * 2; // pairs: a pooled row comes of two rows
    return n < height ? n : height;
}

// x lies as in `layout`, and stays so where the kernels can: in NHWC a channel block is a register of bf16.
static dt_status batch_norm_cpu_read_shape(dt_kernel_instance *s, bn_state *st, const dt_value_info *x,
                                           dt_layout layout) {
    const dt_shape *d = &x->shape;
    if (d->n != 2 && d->n != 4) return dt_custom_fail(s, "batch norm wants (N,C,H,W) or (N,C)");
    st->block = dt_simd_get()->width;
    // two vectors of channels: one register of bf16
    st->nhwc = layout.kind == DT_NHWC && d->n == 4 && st->type == DT_ROW_BF16 && d->d[1] % (2 * st->block) == 0;
    if (st->nhwc) st->block *= 2; // NHWC kernels take two vectors of channels per register
    st->simd = dt_simd_get()->bn[st->type];
    st->flat = d->n == 2;
    st->channels = d->d[1];
    st->n_blocks = (d->d[1] + st->block - 1) / st->block;
    st->images = st->flat ? 1 : d->d[0]; // (N,C): one image of N pixels
    st->height = st->flat ? 1 : d->d[2];
    st->width = st->flat ? d->d[0] : d->d[3];
    st->training = s->node->attrs.batch_norm.training;
    st->relu = s->node->attrs.batch_norm.relu;
    st->pool = s->node->attrs.batch_norm.pool;
    st->eps = s->node->attrs.batch_norm.eps;
    st->group = st->nhwc ? st->n_blocks : 1;
    st->chunk_rows = even_rows(CHUNK_PIXELS / st->width, st->height); // 0 rows become 2 by even_rows
    st->tile_rows = st->chunk_rows;
    // 2: bytes of bf16
    if (st->nhwc) st->tile_rows = even_rows(TILE_BYTES / (2 * st->width * st->channels), st->height);
    st->chunks_an_image = (st->height + st->chunk_rows - 1) / st->chunk_rows;
    // an odd last row belongs to the chunk before it, not to one that has no pooled row
    if (st->pool && st->height > 1 && st->height % st->chunk_rows == 1) st->chunks_an_image--;
    st->n_chunks = st->images * st->chunks_an_image;
    return DT_OK;
}

static dt_status check_pool(dt_kernel_instance *s, const bn_state *st) {
    if (!st->pool) return DT_OK;
    const dt_window *w = &s->node->attrs.batch_norm.win;
    for (int i = 0; i < 2; i++)
        if (w->kernel[i] != 2 || w->stride[i] != 2 || w->pad_begin[i] || w->pad_end[i])
            return dt_custom_fail(s, "only 2x2 pooling with stride 2 and no padding can be fused");
    if (st->flat) return dt_custom_fail(s, "pooling wants (N,C,H,W)");
    if (st->residual || !st->relu) return dt_custom_fail(s, "a pool is fused behind a ReLU, and without a residual");
    return DT_OK; // fused in this order only: norm, ReLU, pool
}

static int64_t flat_elements(const bn_state *st) {
    return st->width * st->block;
}

static size_t sums_bytes(const bn_state *st) {                            // of a block
    return (size_t)st->n_chunks * 2 * (size_t)st->block * sizeof(double); // two sums per channel and chunk, in double
}

static void size_scratch(dt_kernel_instance *s, bn_state *st) {
    size_t n = (size_t)st->group * (sizeof(bn_block) + sums_bytes(st)); // the block, then its sums
    n = dt_align_up(n, 64);
    // the flat path gathers at most six tensors
    if (st->flat) n += 6 * dt_align_up((size_t)flat_elements(st) * dt_row_size(st->type), 64);
    st->thread_scratch = n;
    // threads work on different groups, except in NHWC
    s->scratch_bytes = n * (st->nhwc ? 1 : (size_t)s->threads); // NHWC: one group
}

static dt_status batch_norm_cpu_prepare_forward(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0);
    const dt_layout lies = s->in_layout[0];
    bn_state *st = dt_custom_prepare(s, sizeof(*st));
    st->residual = s->node->n_in > 5 && s->node->in[5] != DT_NONE;
    DT_TRY(dt_custom_type(
        s, &st->type, (const dt_value_info *[]){x, dt_instance_out(s, 0), st->residual ? dt_instance_in(s, 5) : NULL},
        3));
    DT_TRY(batch_norm_cpu_read_shape(s, st, x, lies));
    DT_TRY(check_pool(s, st));
    if (!st->flat) {
        const dt_layout layout = st->nhwc ? lies : dt_custom_blocked();
        s->in_layout[0] = s->out_layout[0] = layout;
        if (st->residual) s->in_layout[5] = layout;
        if (s->node->n_out > 3) s->out_layout[3] = layout; // argmax lies like y
    }
    if (!st->pool) s->inplace_in = 0; // y has x's size
    size_scratch(s, st);
    return DT_OK;
}

static dt_status batch_norm_cpu_prepare_backward(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *dres = s->node->n_out > 5 ? dt_instance_out(s, 5) : NULL;
    int y_at = dt_pos_out(s, 0), argmax_at = dt_pos_out(s, 3), dy_at = dt_pos_grad(s, 0);
    const dt_layout lies = s->in_layout[0];
    bn_state *st = dt_custom_prepare(s, sizeof(*st));
    if (!x) return dt_custom_fail(s, "the backward node lacks x");
    st->residual = dres != NULL;
    DT_TRY(dt_custom_type(s, &st->type,
                          (const dt_value_info *[]){x, dt_instance_in(s, dy_at), dt_instance_out(s, 0), dres}, 4));
    DT_TRY(batch_norm_cpu_read_shape(s, st, x, lies));
    DT_TRY(check_pool(s, st));
    // pool: argmax is the index of the largest input; ReLU: y > 0 is the mask
    if (st->pool ? s->node->in[argmax_at] == DT_NONE : st->relu && s->node->in[y_at] == DT_NONE)
        return dt_custom_fail(s, "the backward node lacks %s", st->pool ? "argmax" : "y");
    if (!st->flat) {
        const dt_layout layout = st->nhwc ? lies : dt_custom_blocked();
        s->in_layout[0] = s->in_layout[y_at] = s->in_layout[argmax_at] = layout;
        s->in_layout[dy_at] = s->out_layout[0] = layout;
        if (s->node->n_out > 5) s->out_layout[5] = layout;
    }
    s->inplace_in = 0; // each pixel of x is read before its dx is written, and x usually dies here
    size_scratch(s, st);
    return DT_OK;
}

// ---- chunks ----------------------------------------------------------------------------------------
static const void *batch_norm_cpu_offset(const bn_state *st, const void *p, int64_t element) {
    return p ? dt_row_at(st->type, p, element) : NULL;
}
static void *offset_mut(const bn_state *st, void *p, int64_t element) {
    return p ? dt_row_at_mut(st->type, p, element) : NULL;
}

// The element at which block `block` of a row of an image lies, in a tensor of `height` rows of `width` pixels.
static int64_t batch_norm_cpu_place(const bn_state *st, int64_t image, int64_t block, int64_t row, int64_t height,
                                    int64_t width) {
    if (st->nhwc) return (image * height + row) * width * st->channels + block * st->block;
    return ((image * st->n_blocks + block) * height + row) * width * st->block; // (image, block, row, column, lane)
}

// Rows of an image: a chunk, or a tile of one.
typedef struct bn_rows {
    int64_t image, row, end;
} bn_rows;

static bn_rows batch_norm_cpu_rows_of(const bn_state *st, int64_t chunk) {
    const int64_t nth = chunk % st->chunks_an_image, row = nth * st->chunk_rows;
    const bool last = nth == st->chunks_an_image - 1; // the last chunk may be longer or shorter
    return (bn_rows){chunk / st->chunks_an_image, row, last ? st->height : row + st->chunk_rows};
}
static bn_rows tile_of(const bn_state *st, bn_rows r, int64_t row) {
    // an odd last row stays with the rows before it
    if (r.end - row > st->tile_rows + 1) r.end = row + st->tile_rows; // + 1: a tile of one row has no pooled row
    r.row = row;
    return r;
}

static dt_bn_chunk chunk_of(const bn_call *c, const bn_block *b, int64_t block, bn_rows r) {
    const bn_state *st = c->st;
    int64_t at = batch_norm_cpu_place(st, r.image, block, r.row, st->height, st->width), out_at = at;
    // two by two: rows and columns halve
    if (st->pool) out_at = batch_norm_cpu_place(st, r.image, block, r.row / 2, st->height / 2, st->width / 2);
    return (dt_bn_chunk){
        .n_rows = r.end - r.row,
        .width = st->width,
        .nhwc = st->nhwc ? st->channels : 0, // 0: BLOCKED
        .relu = st->relu,
        .pool = st->pool,
        .x = batch_norm_cpu_offset(st, c->x, at),
        .residual = batch_norm_cpu_offset(st, c->residual, at),
        // forward writes y; backward only reads it
        .y = c->y ? offset_mut(st, c->y, out_at) : (void *)batch_norm_cpu_offset(st, c->y_in, out_at),
        .argmax = c->argmax      ? c->argmax + out_at
                  : c->argmax_in ? (uint8_t *)c->argmax_in + out_at
                                 : NULL,
        .dy = batch_norm_cpu_offset(st, c->dy, out_at),
        .dx = offset_mut(st, c->dx, at),
        .dresidual = offset_mut(st, c->dresidual, at),
        .mean = b->mean,
        .gain = b->gain,
        .shift = b->shift,
        .k1 = b->k1,
        .k2 = b->k2,
    };
}

// Sum over chunks, in order, of one lane of the first or second sums.
static double total(const bn_state *st, const bn_block *b, int which, int lane) {
    double t = 0;
    // fixed order: independent of threads
    for (int64_t i = 0; i < st->n_chunks; i++) t += b->sums[(2 * i + which) * st->block + lane];
    return t;
}

// ---- forward ---------------------------------------------------------------------------------------
static void find_pivot(const bn_call *c, bn_block *b, int64_t block) {
    const bn_state *st = c->st;
    // the first image's beginning
    int64_t n = st->height * st->width < PIVOT_PIXELS ? st->height * st->width : PIVOT_PIXELS;
    double sums[2 * MAX_LANES]; // double: sums and squares of all lanes
    memset(b->pivot, 0, sizeof(b->pivot));
    st->simd->stats(batch_norm_cpu_offset(st, c->x, batch_norm_cpu_place(st, 0, block, 0, st->height, st->width)), n,
                    st->nhwc ? st->channels : 0, b->pivot, sums);
    // an approximate mean: subtracting the pivot avoids cancellation of E[x^2] - mean^2
    for (int l = 0; l < st->block; l++) b->pivot[l] = (float)(sums[l] / (double)n);
}

static void sum_forward(const bn_call *c, const bn_block *b, const dt_bn_chunk *p) {
    c->st->simd->stats(p->x, p->n_rows * p->width, p->nhwc, b->pivot, p->sums);
}

// Mean and variance of the batch (or the running ones) -> the block's constants and the outputs.
static void finish_forward(const bn_call *c, bn_block *b, int64_t block) {
    const bn_state *st = c->st;
    const float *scale = c->run->in[1], *shift = c->run->in[2];
    const float *running_mean = c->run->in[3], *running_var = c->run->in[4];
    float *saved_mean = c->run->out[1], *saved_invstd = c->run->out[2];
    double m = (double)(st->images * st->height * st->width); // values per channel
    for (int l = 0; l < st->block; l++) {
        int64_t ch = block * st->block + l;
        b->mean[l] = b->gain[l] = b->shift[l] = 0; // padding channels give zero
        if (ch >= st->channels) continue;
        double mean, var;
        if (st->training) {
            // mean and variance of x - pivot; rounding may give a negative variance
            double d = total(st, b, 0, l) / m, q = total(st, b, 1, l) / m - d * d;
            mean = b->pivot[l] + d, var = q < 0 ? 0 : q;
            dt_custom_put(c->run, 4, ch, mean);
            dt_custom_put(c->run, 5, ch, m > 1 ? var * m / (m - 1) : var); // PyTorch's running variance is unbiased
        } else
            mean = running_mean[ch], var = running_var[ch];
        double invstd = 1 / sqrt(var + st->eps);
        b->mean[l] = (float)mean;
        b->gain[l] = (float)(scale[ch] * invstd); // y = (x - mean) * gain + shift
        // the mean's rounding error goes into the shift
        b->shift[l] = (float)(shift[ch] - (mean - b->mean[l]) * scale[ch] * invstd);
        if (saved_mean) saved_mean[ch] = (float)mean;
        if (saved_invstd) saved_invstd[ch] = (float)invstd;
    }
}

// ---- backward --------------------------------------------------------------------------------------
static void begin_backward(const bn_call *c, bn_block *b, int64_t block) {
    const bn_state *st = c->st;
    const float *saved_mean = c->run->in[dt_pos_out(c->instance, 1)];
    for (int l = 0; l < st->block; l++) {
        int64_t ch = block * st->block + l;
        b->mean[l] = ch < st->channels ? saved_mean[ch] : 0;
    }
}

static void sum_backward(const bn_call *c, const bn_block *b, const dt_bn_chunk *p) {
    (void)b;
    c->st->simd->backward_sums(p);
}

static void finish_backward(const bn_call *c, bn_block *b, int64_t block) {
    const bn_state *st = c->st;
    const float *scale = c->run->in[1], *saved_invstd = c->run->in[dt_pos_out(c->instance, 2)];
    double m = (double)(st->images * st->height * st->width);
    for (int l = 0; l < st->block; l++) {
        int64_t ch = block * st->block + l;
        b->gain[l] = b->k1[l] = b->k2[l] = 0;
        if (ch >= st->channels) continue;
        // sum of g, and of g (x - mean)
        double g = total(st, b, 0, l), gx = total(st, b, 1, l), invstd = saved_invstd[ch];
        double gain = scale[ch] * invstd;
        b->gain[l] = (float)gain;
        b->k1[l] = (float)(gain * g / m); // dx = gain g - k1 - k2 (x - mean)
        b->k2[l] = (float)(gain * invstd * invstd * gx / m);
        dt_custom_put(c->run, 1, ch, gx * invstd); // dscale = sum g xhat, xhat = (x - mean) / std
        dt_custom_put(c->run, 2, ch, g);           // dshift = sum g
    }
}

// With running statistics the gradient of x is that of a constant map; gradients of scale and shift are not wanted.
static void finish_frozen(const bn_call *c, bn_block *b, int64_t block) {
    const bn_state *st = c->st;
    const float *scale = c->run->in[1], *saved_invstd = c->run->in[dt_pos_out(c->instance, 2)];
    begin_backward(c, b, block);
    for (int l = 0; l < st->block; l++) {
        int64_t ch = block * st->block + l;
        b->k1[l] = b->k2[l] = 0;
        b->gain[l] = ch < st->channels ? scale[ch] * saved_invstd[ch] : 0;
    }
}

// ---- the order of passes ---------------------------------------------------------------------------
typedef struct bn_passes {
    void (*begin)(const bn_call *c, bn_block *b, int64_t block); // NULL: no first pass
    void (*sum)(const bn_call *c, const bn_block *b, const dt_bn_chunk *p);
    void (*finish)(const bn_call *c, bn_block *b, int64_t block);
    bool backward;
} bn_passes;

static const bn_passes forward_passes = {find_pivot, sum_forward, finish_forward, false};
static const bn_passes inference_passes = {NULL, NULL, finish_forward, false};
static const bn_passes backward_passes = {begin_backward, sum_backward, finish_backward, true};
static const bn_passes frozen_backward_passes = {NULL, NULL, finish_frozen, true};

// A group of blocks from `first` on; b has n of them.
typedef struct bn_group {
    bn_block *b;
    int64_t first, n;
} bn_group;

// Sums lie behind the group's blocks.
static bn_group batch_norm_cpu_group_of(const bn_state *st, void *scratch, int64_t first) {
    const int64_t left = st->n_blocks - first;
    bn_group g = {scratch, first, left < st->group ? left : st->group};
    double *sums = (double *)(g.b + st->group);
    for (int64_t k = 0; k < g.n; k++) g.b[k].sums = sums + k * st->n_chunks * 2 * st->block;
    return g;
}

static void sum_chunk(const bn_call *c, const bn_passes *passes, const bn_group *g, int64_t i) {
    const bn_state *st = c->st;
    const bn_rows chunk = batch_norm_cpu_rows_of(st, i);
    const int64_t n = 2 * st->block;
    for (int64_t row = chunk.row; row < chunk.end;) {
        const bn_rows tile = tile_of(st, chunk, row);
        for (int64_t k = 0; k < g->n; k++) {
            double more[2 * MAX_LANES], *sums = g->b[k].sums + i * n; // `more`: sums of a further tile of the chunk
            dt_bn_chunk p = chunk_of(c, &g->b[k], g->first + k, tile);
            p.sums = row == chunk.row ? sums : more; // the first tile writes the chunk's sums directly
            passes->sum(c, &g->b[k], &p);
            for (int64_t l = 0; p.sums == more && l < n; l++) sums[l] += more[l];
        }
        row = tile.end;
    }
}

static void write_chunk(const bn_call *c, const bn_passes *passes, const bn_group *g, int64_t i) {
    const dt_simd_bn *simd = c->st->simd;
    const bn_rows chunk = batch_norm_cpu_rows_of(c->st, i);
    for (int64_t row = chunk.row; row < chunk.end;) {
        const bn_rows tile = tile_of(c->st, chunk, row);
        for (int64_t k = 0; k < g->n; k++) {
            const dt_bn_chunk p = chunk_of(c, &g->b[k], g->first + k, tile);
            (passes->backward ? simd->backward : simd->forward)(&p);
        }
        row = tile.end;
    }
}

static void begin_group(const bn_call *c, const bn_passes *passes, const bn_group *g) {
    for (int64_t k = 0; k < g->n; k++) passes->begin(c, &g->b[k], g->first + k);
}
static void finish_group(const bn_call *c, const bn_passes *passes, const bn_group *g) {
    for (int64_t k = 0; k < g->n; k++) passes->finish(c, &g->b[k], g->first + k);
}

static void run_group(const bn_call *c, const bn_passes *passes, void *scratch, int64_t first) {
    const bn_group g = batch_norm_cpu_group_of(c->st, scratch, first);
    if (passes->begin) {
        begin_group(c, passes, &g);
        for (int64_t i = 0; i < c->st->n_chunks; i++) sum_chunk(c, passes, &g, i); // first pass: forwards
    }
    finish_group(c, passes, &g);
    // second pass: backwards, over what the cache still holds
    for (int64_t i = c->st->n_chunks; i-- > 0;) write_chunk(c, passes, &g, i);
}

// All threads work on each group in turn: they divide the chunks evenly, and one thread makes the constants.
// single has a barrier at its end; constants are complete for all threads
static void run_shared(const bn_call *c, const bn_passes *passes, int threads) {
    const bn_state *st = c->st;
    for (int64_t first = 0; first < st->n_blocks; first += st->group) {
        const bn_group g = batch_norm_cpu_group_of(st, c->run->scratch, first);
#pragma omp parallel num_threads(threads)
        {
            int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
            int64_t begin = st->n_chunks * me / team, end = st->n_chunks * (me + 1) / team;
            if (passes->begin) {
#pragma omp single
                begin_group(c, passes, &g);
                for (int64_t i = begin; i < end; i++) sum_chunk(c, passes, &g, i);
#pragma omp barrier // all sums before the constants
            }
#pragma omp single
            finish_group(c, passes, &g);
            for (int64_t i = end; i-- > begin;) write_chunk(c, passes, &g, i);
        }
    }
}

// ---- (N,C) -----------------------------------------------------------------------------------------
// Copies block `block` of an (N,C) tensor to (N,block), zero-padded, or back.
static void batch_norm_cpu_gather(const bn_state *st, void *to, const void *from, int64_t block) {
    size_t size = dt_row_size(st->type); // bytes of an element
    int64_t first = block * st->block, left = st->channels - first;
    size_t n = (size_t)(left < st->block ? left : st->block) * size, row = (size_t)st->block * size;
    memset(to, 0, row * (size_t)st->width); // padding lanes are 0
    for (int64_t i = 0; i < st->width; i++)
        memcpy((char *)to + (size_t)i * row, dt_row_at(st->type, from, i * st->channels + first), n);
}

static void scatter(const bn_state *st, void *to, const void *from, int64_t block) {
    size_t size = dt_row_size(st->type);
    int64_t first = block * st->block, left = st->channels - first;
    size_t n = (size_t)(left < st->block ? left : st->block) * size, row = (size_t)st->block * size;
    for (int64_t i = 0; i < st->width; i++)
        memcpy(dt_row_at_mut(st->type, to, i * st->channels + first), (const char *)from + (size_t)i * row, n);
}

static void run_flat(const bn_call *c, const bn_passes *passes) {
    const bn_state *st = c->st;
    size_t bytes = dt_align_up((size_t)flat_elements(st) * dt_row_size(st->type), 64);
    // x, residual, y, dy, then y or dx, then dresidual
    char *gathered = (char *)c->run->scratch + st->thread_scratch - 6 * bytes;
    const void *from[4] = {c->x, c->residual, c->y_in, c->dy};
    void *to[3] = {c->y, c->dx, c->dresidual};
    for (int64_t block = 0; block < st->n_blocks; block++) {
        const void *in[4];
        void *out[3];
        for (int i = 0; i < 4; i++) {
            in[i] = from[i] ? gathered + (size_t)i * bytes : NULL;
            if (from[i]) batch_norm_cpu_gather(st, gathered + (size_t)i * bytes, from[i], block);
        }
        // y and dx never occur together; dx may follow x in place, as the passes allow
        for (int i = 0; i < 3; i++) out[i] = to[i] ? gathered + (size_t)(i == 2 ? 5 : 4) * bytes : NULL;
        // chunk_of addresses by block number: shift the bases so that this block is at its place
        int64_t back = block * st->width * st->block;
        bn_call one = *c;
        one.x = batch_norm_cpu_offset(st, in[0], -back), one.residual = batch_norm_cpu_offset(st, in[1], -back);
        one.y_in = batch_norm_cpu_offset(st, in[2], -back), one.dy = batch_norm_cpu_offset(st, in[3], -back);
        one.y = offset_mut(st, out[0], -back), one.dx = offset_mut(st, out[1], -back);
        one.dresidual = offset_mut(st, out[2], -back);
        run_group(&one, passes, c->run->scratch, block); // one thread: (N,C) tensors are small
        for (int i = 0; i < 3; i++)
            if (to[i]) scatter(st, to[i], out[i], block);
    }
}

// ---- run -------------------------------------------------------------------------------------------
static void batch_norm_cpu_run_passes(const bn_call *c, const bn_passes *passes) {
    const bn_state *st = c->st;
    if (st->flat) {
        run_flat(c, passes);
        return;
    }
    int threads = c->instance->threads;
    int64_t n_groups = (st->n_blocks + st->group - 1) / st->group;
    size_t group_bytes = (size_t)(st->images * st->height * st->width * st->block * st->group) * dt_row_size(st->type);
    if (threads > 1 && (group_bytes >= SHARE_BYTES || n_groups < threads)) { // few large groups: threads share each one
        run_shared(c, passes, threads);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < n_groups; i++) {
        char *mine = (char *)c->run->scratch + st->thread_scratch * (size_t)omp_get_thread_num(); // scratch per thread
        run_group(c, passes, mine, i * st->group);
    }
}

static void batch_norm_cpu_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const bn_state *st = s->state;
    bn_call c = {.instance = s, .run = r, .st = st, .x = r->in[0], .y = r->out[0]};
    if (st->residual) c.residual = r->in[5];
    if (st->pool && s->node->n_out > 3) c.argmax = r->out[3];
    batch_norm_cpu_run_passes(&c, st->training ? &forward_passes : &inference_passes);
}

static void batch_norm_cpu_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const bn_state *st = s->state;
    bn_call c = {.instance = s, .run = r, .st = st, .x = r->in[0], .dx = r->out[0]};
    c.dy = r->in[dt_pos_grad(s, 0)];
    if (st->pool)
        c.argmax_in = r->in[dt_pos_out(s, 3)];
    else if (st->relu)
        c.y_in = r->in[dt_pos_out(s, 0)]; // pooled ReLU: the mask is in argmax (255)
    if (s->node->n_out > 5) c.dresidual = r->out[5];
    batch_norm_cpu_run_passes(&c, st->training ? &backward_passes : &frozen_backward_passes);
}

const dt_kernel dt_cpu_batch_norm = {batch_norm_cpu_prepare_forward, batch_norm_cpu_run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_batch_norm_bwd = {batch_norm_cpu_prepare_backward, batch_norm_cpu_run_backward,
                                         dt_custom_destroy};

// ---- sync batch norm ----------------------------------------------------------------------------------------------

// Batch norm whose statistics are those of all ranks' samples (dt_run.ranks), as
// torch.nn.SyncBatchNorm; the contract is that of batch norm above, without fused ops. f32, DENSE; a thread takes whole
// channels, and sums are doubles in the order of elements, so the bits do not depend on the threads.
//
//   forward   sums of x and x², all-reduced, then y
//   backward  sums of dy and dy x̂, which are the gradients of shift and scale; all-reduced they give dx

typedef struct channels {
    int64_t n, images, plane; // elements of a channel in an image
} channels;

static channels channels_of(const dt_kernel_instance *s) {
    const dt_shape *x = &dt_instance_in(s, 0)->shape;
    return (channels){x->d[1], x->d[0], x->n == 4 ? x->d[2] * x->d[3] : 1};
}

static dt_status sync_batch_norm_cpu_prepare(dt_kernel_instance *s) {
    dt_custom_prepare(s, 0);
    if (dt_instance_in(s, 0)->dtype != DT_F32) return dt_instance_fail(s, "wants f32");
    s->scratch_bytes = (size_t)(2 * channels_of(s).n) * sizeof(double); // doubles: sum and second sum of each channel
    return DT_OK;
}

// Adds the sums over the ranks. Returns the number of values per channel: micro-batches are alike on all ranks.
static double sync_batch_norm_cpu_all_reduce(const dt_run *r, double *sums, channels d) {
    if (r->ranks) r->ranks->all_reduce(r->ranks->ctx, sums, 2 * d.n); // NULL: a single rank, or evaluation
    return (double)(d.images * d.plane * (r->ranks ? r->ranks->world_size : 1));
}

// ---- forward ---------------------------------------------------------------------------------------
static void sync_batch_norm_cpu_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const channels d = channels_of(s);
    const float *x = r->in[0], *scale = r->in[1], *shift = r->in[2];
    float *y = r->out[0];
    double *sums = r->scratch;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t c = 0; c < d.n; c++) {
        double sum = 0, square = 0;
        for (int64_t i = 0; i < d.images; i++)
            // NCHW: a channel's plane is contiguous
            for (int64_t k = (i * d.n + c) * d.plane; k < (i * d.n + c + 1) * d.plane; k++)
                sum += (double)x[k], square += (double)x[k] * (double)x[k];
        sums[c] = sum, sums[d.n + c] = square; // 2 n doubles in one all-reduce
    }
    const double m = sync_batch_norm_cpu_all_reduce(r, sums, d), eps = (double)s->node->attrs.batch_norm.eps;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t c = 0; c < d.n; c++) {
        // rounding may make it negative
        const double mean = sums[c] / m, var = fmax(sums[d.n + c] / m - mean * mean, 0);
        const float invstd = (float)(1 / sqrt(var + eps)), gain = scale[c] * invstd;
        dt_custom_put(r, 1, c, mean);
        dt_custom_put(r, 2, c, (double)invstd);
        dt_custom_put(r, 4, c, mean);
        dt_custom_put(r, 5, c, m > 1 ? var * m / (m - 1) : var); // unbiased, over all ranks' values
        for (int64_t i = 0; i < d.images; i++)
            for (int64_t k = (i * d.n + c) * d.plane; k < (i * d.n + c + 1) * d.plane; k++)
                y[k] = (x[k] - (float)mean) * gain + shift[c];
    }
}

// ---- backward --------------------------------------------------------------------------------------
static void sync_batch_norm_cpu_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const channels d = channels_of(s);
    const float *x = r->in[0], *scale = r->in[1], *mean = r->in[dt_pos_out(s, 1)], *invstd = r->in[dt_pos_out(s, 2)],
                *dy = r->in[dt_pos_grad(s, 0)];
    float *dx = r->out[0];
    double *sums = r->scratch;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t c = 0; c < d.n; c++) {
        double sum = 0, along = 0;
        for (int64_t i = 0; i < d.images; i++)
            for (int64_t k = (i * d.n + c) * d.plane; k < (i * d.n + c + 1) * d.plane; k++)
                // x̂ in f32, the product's sum in double
                sum += (double)dy[k], along += (double)(dy[k] * ((x[k] - mean[c]) * invstd[c]));
        sums[c] = sum, sums[d.n + c] = along;
        dt_custom_put(r, 1, c, along); // this rank's share: gradients are summed over ranks later
        dt_custom_put(r, 2, c, sum);
    }
    if (!dx) return; // x needs no gradient: no collective; the same on all ranks
    const double m = sync_batch_norm_cpu_all_reduce(r, sums, d);
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t c = 0; c < d.n; c++) {
        const float gain = scale[c] * invstd[c], sum = (float)(sums[c] / m), along = (float)(sums[d.n + c] / m);
        for (int64_t i = 0; i < d.images; i++)
            for (int64_t k = (i * d.n + c) * d.plane; k < (i * d.n + c + 1) * d.plane; k++)
                dx[k] = gain * (dy[k] - sum - (x[k] - mean[c]) * invstd[c] * along);
    }
}

const dt_kernel dt_cpu_sync_batch_norm = {sync_batch_norm_cpu_prepare, sync_batch_norm_cpu_run_forward, NULL};
const dt_kernel dt_cpu_sync_batch_norm_bwd = {sync_batch_norm_cpu_prepare, sync_batch_norm_cpu_run_backward, NULL};
