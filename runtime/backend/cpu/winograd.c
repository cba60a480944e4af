// winograd.c: see own_conv.h. In scratch and packed weights, `position` floats lie between the positions of a patch. It
// is an odd number of cache lines: otherwise the stores of a patch would fall on the same few lines of the cache.
//
//   transformed patches   (position, channel block, tile, vector)
//   filters, sums         (block of channels out, position, channel in, vector)
#include "backend/cpu/own_conv.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/simd.h"
#include "base/core.h"
#include "base/hash.h"
#include "graph/activation_words.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

// taps of a filter; floats of a cache line; bytes of L2 for a block; tiles that a sum has at least
enum { TAPS = 9, LINE = 16, CACHE_BYTES = 512 << 10, LEAST_SUMMED = 56 };
// Products are summed by so many channels at once: long sums round more, and this much fits the first cache.
enum { SUMMED = 64 };

struct dt_winograd_conv {
    const dt_simd_winograd *simd;
    int tile, positions, threads;
    int type; // of rows: the tensors'
    dt_dnnl_direction dir;
    bool adds, relu;
    int64_t n_in, n_out; // channels
    dt_winograd_image in,
        out;                          // forward, and x and dy of a weight gradient; dy and dx of a data gradient
    dt_winograd_tiles tiles;          // n: of a block
    int64_t n_tiles, rows;            // rows of filters and sums
    int64_t unit;                     // floats of a vector of transformed channels
    int64_t in_at, out_at, filter_at; // from one position to the next
};

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t winograd_round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

static int64_t odd_lines(int64_t n) {
    const int64_t lines = (n + LINE - 1) / LINE;
    return (lines | 1) * LINE; // odd: positions fall on different cache sets
}

static bool is_blocked(const dt_dnnl_tensor *t) {
    return t->format == DT_DNNL_LAYOUT && dt_layout_equal(t->layout, dt_blocked(dt_cpu_block()));
}

bool dt_winograd_fits(dt_dnnl_direction dir, const dt_dnnl_conv *c) {
    const dt_dnnl_tensor *w = &c->weights;
    // the bias gradient would need a pass of its own
    if (dir == DT_DNNL_BACKWARD_WEIGHTS && c->bias.format != DT_DNNL_ABSENT) return false;
    return dt_simd_get()->winograd && w->n == 4 && w->d[2] == 3 && w->d[3] == 3 && dt_row_type(c->src.type) >= 0 &&
           c->dst.type == c->src.type && is_blocked(&c->src) && is_blocked(&c->dst) && c->stride[0] == 1 &&
           c->stride[1] == 1 && c->dilation[0] == 1 && c->dilation[1] == 1 &&
           (c->after.act == DT_ACTIVATION_none || c->after.act == DT_ACTIVATION_relu);
}

// ---- shapes ----------------------------------------------------------------------------------------
// top, left: first pixel of the first patch
static dt_winograd_image winograd_image_of(const dt_dnnl_tensor *t, int64_t top, int64_t left) {
    return (dt_winograd_image){.blocks = winograd_round_up(t->d[1], dt_cpu_block()) / dt_cpu_block(),
                               .h = t->d[2],
                               .w = t->d[3],
                               .top = top,
                               .left = left};
}

// Floats that n summed numbers take.
static int64_t units(const dt_winograd_conv *w, int64_t n) {
    return (n + w->simd->per_float - 1) / w->simd->per_float; // bf16: two numbers in a float
}

// Blocks as large as the cache allows, and of equal size.
static void divide_tiles(dt_winograd_conv *w) {
    const int64_t width = dt_cpu_block(), tile_rows = w->simd->tile_rows;
    const bool grad = w->dir == DT_DNNL_BACKWARD_WEIGHTS;
    const int64_t unit = w->unit, out = grad ? w->out.blocks * unit : w->simd->tile_cols * width;
    // bytes of a tile: patches and results
    const int64_t each = w->positions * (w->in.blocks * unit + out) * (int64_t)sizeof(float);
    int64_t most = CACHE_BYTES / each;
    if (grad && most < LEAST_SUMMED) most = LEAST_SUMMED; // longer sums: fewer additions to the sums in memory
    if (!grad) most = min64(most, (w->n_tiles + w->threads - 1) / w->threads); // a block per thread at least
    most = most < tile_rows ? tile_rows : most / tile_rows * tile_rows;        // whole register tiles
    const int64_t n_blocks = (w->n_tiles + most - 1) / most;
    w->tiles.n = winograd_round_up((w->n_tiles + n_blocks - 1) / n_blocks, tile_rows); // equal blocks
    w->in_at = odd_lines(w->tiles.n * w->in.blocks * unit);
    w->out_at = odd_lines(w->tiles.n * out);
    w->rows = grad ? w->in.blocks * width : units(w, w->n_in);
    w->filter_at = odd_lines(w->rows * width);
}

dt_winograd_conv *dt_winograd_create(dt_winograd_way way, dt_dnnl_direction dir, const dt_dnnl_conv *c, int threads) {
    const int tile = way == DT_WINOGRAD_4 ? 4 : 2;
    dt_winograd_conv *w = dt_xcalloc(1, sizeof *w); // plain memory: a shape, nothing else to free
    const bool data = dir == DT_DNNL_BACKWARD_DATA;
    const dt_dnnl_tensor *in = data ? &c->dst : &c->src, *out = data ? &c->src : &c->dst;
    w->simd = way == DT_WINOGRAD_2_BF16 ? dt_simd_get()->winograd->bf16 : dt_simd_get()->winograd;
    w->unit = dt_cpu_block() / w->simd->per_float;
    w->tile = tile;
    w->type = dt_row_type(c->src.type);
    w->positions = (tile + 2) * (tile + 2);
    w->threads = threads;
    w->dir = dir;
    w->adds = dir == DT_DNNL_FORWARD && c->after.add != 0;
    w->relu = dir == DT_DNNL_FORWARD && c->after.act == DT_ACTIVATION_relu;
    w->n_in = in->d[1];
    w->n_out = out->d[1];
    // data gradient: padding 2 - p of the turned filter
    w->in = winograd_image_of(in, data ? c->pad_begin[0] - 2 : -c->pad_begin[0],
                              data ? c->pad_begin[1] - 2 : -c->pad_begin[1]);
    w->out = winograd_image_of(out, 0, 0);
    w->tiles.rows = (out->d[2] + tile - 1) / tile; // partial tiles at the edges count
    w->tiles.cols = (out->d[3] + tile - 1) / tile;
    w->n_tiles = out->d[0] * w->tiles.rows * w->tiles.cols;
    divide_tiles(w);
    return w;
}

void dt_winograd_destroy(dt_winograd_conv *w) {
    free(w);
}

static int64_t filter_floats(const dt_winograd_conv *w) {
    return w->out.blocks * w->positions * w->filter_at;
}

static int64_t patch_floats(const dt_winograd_conv *w) {
    return w->positions * (w->in_at + w->out_at);
}

size_t dt_winograd_packed_bytes(const dt_winograd_conv *w) {
    return (size_t)filter_floats(w) * sizeof(float);
}

size_t dt_winograd_scratch_bytes(const dt_winograd_conv *w) {
    const int64_t n =
        // gradient: one set of patches, shared; else one per thread
        w->dir == DT_DNNL_BACKWARD_WEIGHTS ? patch_floats(w) + filter_floats(w) : patch_floats(w) * w->threads;
    return (size_t)n * sizeof(float);
}

// ---- filters ---------------------------------------------------------------------------------------
uint64_t dt_winograd_pack_hash(const dt_winograd_conv *w) {
    // what the packed bytes depend on, besides the weights
    const uint64_t what[4] = {0x77696e6f /* "wino" */, (uint64_t)w->tile, (uint64_t)w->simd->per_float,
                              (uint64_t)w->dir};
    return dt_hash64(what, sizeof what);
}

// Where the tap of a filter lies in the dense weight (O,C,3,3).
static int64_t tap_at(const dt_winograd_conv *w, int64_t in, int64_t out, int tap) {
    return w->dir == DT_DNNL_BACKWARD_DATA ? (in * w->n_out + out) * TAPS + TAPS - 1 - tap // turned by 180 degrees
                                           : (out * w->n_in + in) * TAPS + tap;
}

static void pack_block(const dt_winograd_conv *w, const float *dense, float *packed, int64_t block) {
    const int width = dt_cpu_block();
    const int64_t n = min64(width, w->n_out - block * width); // channels of the last block
    float filter[TAPS * DT_SIMD_MAX_WIDTH] = {0};
    for (int64_t i = 0; i < w->n_in; i++) {
        for (int64_t l = 0; l < n; l++)
            // (tap, lane)
            for (int k = 0; k < TAPS; k++) filter[k * width + l] = dense[tap_at(w, i, block * width + l, k)];
        w->simd->filter[w->tile / 4](packed + block * w->positions * w->filter_at, w->filter_at, i, filter);
    }
}

void dt_winograd_pack(const dt_winograd_conv *w, const float *dense, float *packed, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t block = 0; block < w->out.blocks; block++) pack_block(w, dense, packed, block);
}

// ---- forward and data gradient ---------------------------------------------------------------------
typedef struct conv_call {
    const dt_winograd_conv *w;
    const void *x;
    const float *packed, *bias;
    void *y;
} conv_call;

static dt_winograd_tiles tiles_of(const dt_winograd_conv *w, int64_t block, int64_t position) {
    dt_winograd_tiles t = w->tiles;
    t.first = block * t.n;
    t.n = min64(t.n, w->n_tiles - t.first); // the last block is smaller
    t.position = position;
    return t;
}

// All positions of n_cols blocks of channels out.
static void multiply(const conv_call *call, const float *v, float *m, int64_t block, int64_t n_tiles, int64_t n_cols) {
    const dt_winograd_conv *w = call->w;
    const int64_t width = dt_cpu_block();
    const int64_t n = units(w, w->n_in);
    for (int64_t p = 0; p < w->positions; p++)     // positions are independent products
        for (int64_t at = 0; at < n; at += SUMMED) // SUMMED channels at a time, added in order
            w->simd->product_tiles(
                &(dt_winograd_product){.out = m + p * w->out_at,
                                       .out_col = w->tiles.n * width,
                                       .a = v + p * w->in_at + at * w->tiles.n,
                                       .a_block = w->tiles.n * w->unit,
                                       .b = call->packed + (block * w->positions + p) * w->filter_at + at * width,
                                       .b_col = w->positions * w->filter_at,
                                       .n_rows = n_tiles,
                                       .n_cols = n_cols,
                                       .n = min64(SUMMED, n - at),
                                       .per_block = w->unit,
                                       .add = at > 0}); // the first part overwrites
}

static void winograd_run_block(const conv_call *call, int64_t block, float *v) {
    const dt_winograd_conv *w = call->w;
    const int64_t width = dt_cpu_block();
    const dt_winograd_tiles in = tiles_of(w, block, w->in_at), out = tiles_of(w, block, w->out_at);
    float *m = v + w->positions * w->in_at; // results behind the patches
    for (int64_t i = 0; i < w->in.blocks; i++)
        w->simd->input[w->type][w->tile / 4](v + i * w->tiles.n * w->unit, call->x, &w->in, i, &in);
    for (int64_t o = 0; o < w->out.blocks; o += w->simd->tile_cols) { // columns of output blocks that registers hold
        const int64_t n_cols = min64(w->simd->tile_cols, w->out.blocks - o);
        multiply(call, v, m, o, in.n, n_cols);
        for (int64_t c = o; c < o + n_cols; c++) {
            float bias[DT_SIMD_MAX_WIDTH] = {0};
            const int64_t n = min64(width, w->n_out - c * width);
            if (call->bias) memcpy(bias, call->bias + c * width, (size_t)n * sizeof *bias);
            w->simd->output[w->type][w->tile / 4](call->y, m + (c - o) * w->tiles.n * width, &w->out, c, &out, bias,
                                                  w->adds, w->relu);
        }
    }
}

void dt_winograd_run(const dt_winograd_conv *w, const void *x, const float *packed, const float *bias, void *y,
                     void *scratch) {
    const conv_call call = {w, x, packed, bias, y};
    const int64_t n_blocks = (w->n_tiles + w->tiles.n - 1) / w->tiles.n;
#pragma omp parallel for num_threads(w->threads) schedule(static) if (w->threads > 1)
    for (int64_t block = 0; block < n_blocks; block++)
        // scratch per thread
        winograd_run_block(&call, block, (float *)scratch + omp_get_thread_num() * patch_floats(w));
}

// ---- weight gradient -------------------------------------------------------------------------------
// Adds a block's tiles to the sums of position p.
static void sum_position(const dt_winograd_conv *w, int64_t block, int64_t p, const float *v, const float *z,
                         float *sums) {
    const int64_t n = units(w, tiles_of(w, block, 0).n), most = w->simd->channel_cols;
    const int64_t each = w->tiles.n * w->unit;
    const int64_t groups = (w->out.blocks + most - 1) / most;
    for (int64_t g = 0; g < groups; g++) { // groups of nearly equal size
        const int64_t o = w->out.blocks * g / groups, end = w->out.blocks * (g + 1) / groups;
        w->simd->product_channels(&(dt_winograd_product){.out = sums + (o * w->positions + p) * w->filter_at,
                                                         .out_col = w->positions * w->filter_at,
                                                         .a = v + p * w->in_at,
                                                         .a_block = each,
                                                         .b = z + p * w->out_at + o * each,
                                                         .b_col = each,
                                                         .n_rows = w->rows,
                                                         .n_cols = end - o,
                                                         .n = n,
                                                         .per_block = n,
                                                         .add = block > 0}); // the first block overwrites
    }
}

static void store_block(const dt_winograd_conv *w, const float *sums, int64_t block, float *dw, bool accumulate) {
    const int width = dt_cpu_block();
    const int64_t n = min64(width, w->n_out - block * width);
    float filter[TAPS * DT_SIMD_MAX_WIDTH];
    for (int64_t i = 0; i < w->n_in; i++) {
        w->simd->filter_grad[w->tile / 4](filter, sums + block * w->positions * w->filter_at + i * width, w->filter_at);
        for (int64_t l = 0; l < n; l++) {
            float *to = dw + tap_at(w, i, block * width + l, 0);
            // lanes are output channels
            for (int k = 0; k < TAPS; k++) to[k] = filter[k * width + l] + (accumulate ? to[k] : 0);
        }
    }
}

void dt_winograd_run_weights(const dt_winograd_conv *w, const void *x, const void *dy, float *dw, bool accumulate,
                             void *scratch) {
    const int64_t each = w->tiles.n * w->unit, n_blocks = (w->n_tiles + w->tiles.n - 1) / w->tiles.n;
    float *v = scratch, *z = v + w->positions * w->in_at, *sums = z + w->positions * w->out_at;
#pragma omp parallel num_threads(w->threads) if (w->threads > 1)
    {
        for (int64_t b = 0; b < n_blocks; b++) {
            const dt_winograd_tiles in = tiles_of(w, b, w->in_at), out = tiles_of(w, b, w->out_at);
// omp for has a barrier: patches are complete before products
#pragma omp for schedule(static)
            for (int64_t i = 0; i < w->in.blocks; i++)
                w->simd->input_summed[w->type][w->tile / 4](v + i * each, x, &w->in, i, &in);
#pragma omp for schedule(static)
            for (int64_t o = 0; o < w->out.blocks; o++)
                w->simd->output_grad[w->type][w->tile / 4](z + o * each, dy, &w->out, o, &out);
#pragma omp for schedule(static)
            // a position has one thread: no atomic additions
            for (int64_t p = 0; p < w->positions; p++) sum_position(w, b, p, v, z, sums);
        }
#pragma omp for schedule(static)
        for (int64_t o = 0; o < w->out.blocks; o++) store_block(w, sums, o, dw, accumulate);
    }
}
