// depthwise.c: see own_conv.h.
#include "backend/cpu/own_conv.h"

#include "backend/cpu/custom_kernel.h"
#include "graph/activation_words.h"

#include <string.h>

typedef struct conv_call {
    const dt_depthwise_conv *d;
    bool data; // data gradient instead of forward
    const void *from, *dy;
    const float *packed, *bias; // packed: (block, R, S, width); bias: one per channel
    void *to;
    float *dw, *db;
    uint64_t accumulate; // bit 1: add to dw, bit 2: to db
} conv_call;

static int64_t n_blocks(const dt_depthwise_conv *d) {
    // blocks of channels; the last may be partly empty
    return (d->channels + dt_simd_get()->width - 1) / dt_simd_get()->width;
}

// ---- forward and data gradient -----------------------------------------------------------------------
// the data gradient of stride s is s * s convolutions of stride 1, one per phase of the input pixel
// Rows (dim 0) or columns (1) of the outputs from `phase` on in steps of the data gradient's stride: the first tap, and
// the columns of taps.
static int64_t set_dim(const conv_call *c, int dim, int64_t phase, dt_depthwise_pass *p, int64_t *first_tap) {
    const dt_depthwise_conv *d = c->d;
    // tap: the first that meets this phase
    const int64_t stride = d->stride[dim], at = phase + d->pad[dim], tap = at % stride;
    // taps whose distance to `tap` is a multiple of the stride
    const int64_t taps = c->data ? (d->kernel[dim] - tap + stride - 1) / stride : d->kernel[dim];
    // outputs of this phase are `steps` apart
    const int64_t steps = c->data ? stride : 1, n = c->data ? d->in[dim] : d->out[dim];
    p->src[dim] = c->data ? d->out[dim] : d->in[dim];
    p->n[dim] = (n - phase + steps - 1) / steps;
    // dy index that the first output reads; negative: padding
    p->first[dim] = c->data ? at / stride - (taps - 1) : -d->pad[dim];
    p->w_step[dim] = c->data ? -stride : 1; // the filter is read backwards
    p->y_step[dim] = steps;
    *first_tap = c->data ? tap + stride * (taps - 1) : 0;
    return taps;
}

// The outputs of rows and columns from these phases on.
static dt_depthwise_fn set_phase(const conv_call *c, const dt_depthwise_pass *image, int64_t row, int64_t col,
                                 dt_depthwise_pass *p) {
    const dt_depthwise_conv *d = c->d;
    const int64_t width = dt_simd_get()->width, out_w = c->data ? d->in[1] : d->out[1];
    int64_t first[2];
    *p = *image;
    p->taps = set_dim(c, 0, row, p, &first[0]); // rows
    const int64_t taps =
        set_dim(c, 1, col, p, &first[1]); // columns: one function per taps, stride and type, so that loops are unrolled
    p->stride = c->data ? 1 : d->stride[0];
    p->w += (first[0] * d->kernel[1] + first[1]) * width; // packed weights: `width` channels per tap
    p->w_step[0] *= d->kernel[1];
    p->y = dt_row_at_mut(d->type, p->y, (row * out_w + col) * width);
    p->y_step[0] *= out_w; // a row of taps is kernel[1] taps
    return dt_simd_get()->depthwise->conv[taps][c->data ? 1 : d->stride[1]][d->type];
}

// Row after row where there are several phases, so that memory is written in its order.
static void run_phases(const conv_call *c, const dt_depthwise_pass *image, int64_t n_rows) {
    const dt_depthwise_conv *d = c->d;
    const int64_t rows = c->data ? d->stride[0] : 1, cols = c->data ? d->stride[1] : 1;
    dt_depthwise_pass pass[4]; // stride is at most 2
    dt_depthwise_fn run[4];
    for (int64_t k = 0; k < rows * cols; k++) {
        run[k] = set_phase(c, image, k / cols, k % cols, &pass[k]);
        if (rows * cols > 1) pass[k].n[0] = 1; // one row at a time
    }
    for (int64_t row = 0; row < (rows * cols > 1 ? n_rows : 1); row++)          // output rows in order
        for (int64_t k = row % rows * cols; k < (row % rows + 1) * cols; k++) { // phases of this row
            run[k](&pass[k]);
            pass[k].first[0] += pass[k].stride; // next row of this phase
            pass[k].y = dt_row_at_mut(d->type, pass[k].y, pass[k].y_step[0] * dt_simd_get()->width);
        }
}

// item: a channel block of an image, blocked layout (N, C/width, H, W, width)
static void run_image(const void *ctx, int64_t item, int64_t end) {
    const conv_call *c = ctx;
    const dt_depthwise_conv *d = c->d;
    const int64_t width = dt_simd_get()->width, block = item % n_blocks(d);
    const int64_t *from = c->data ? d->out : d->in, *to = c->data ? d->in : d->out;
    float start[DT_SIMD_MAX_WIDTH] = {0};             // accumulators begin with the bias
    const int64_t rest = d->channels - block * width; // channels of the last block
    if (c->bias) memcpy(start, c->bias + block * width, (size_t)(rest < width ? rest : width) * sizeof *start);
    const dt_depthwise_pass image = {.x = dt_row_at(d->type, c->from, item * from[0] * from[1] * width),
                                     .y = dt_row_at_mut(d->type, c->to, item * to[0] * to[1] * width),
                                     // padded channels have zero weights
                                     .w = (float *)c->packed + block * d->kernel[0] * d->kernel[1] * width,
                                     .start = start,
                                     .relu = !c->data && d->relu};
    run_phases(c, &image, to[0]);
}

void dt_depthwise_run(const dt_depthwise_conv *d, dt_dnnl_direction dir, const void *from, const float *packed,
                      const float *bias, void *to) {
    const conv_call c = {
        .d = d, .data = dir == DT_DNNL_BACKWARD_DATA, .from = from, .packed = packed, .bias = bias, .to = to};
    dt_custom_items(d->threads, d->n * n_blocks(d), run_image, &c);
}

// ---- weight gradient ---------------------------------------------------------------------------------
// Adds a channel block of one image to its sums.
// f32 sums, in the order of images
static void depthwise_add_image(const conv_call *c, int64_t image, float *dw, float *db) {
    const dt_depthwise_conv *d = c->d;
    const int64_t width = dt_simd_get()->width, pixels = d->out[0] * d->out[1];
    const dt_depthwise_pass p = {.src = {d->in[0], d->in[1]},
                                 .n = {d->out[0], d->out[1]},
                                 .first = {-d->pad[0], -d->pad[1]},
                                 .stride = d->stride[0],
                                 .taps = d->kernel[0],
                                 .x = dt_row_at(d->type, c->from, image * d->in[0] * d->in[1] * width),
                                 .y = (void *)dt_row_at(d->type, c->dy, image * pixels * width), // y is read here
                                 .w = dw};
    dt_simd_get()->depthwise->weights[d->kernel[1]][d->stride[1]][d->type](&p);
    if (!c->db) return; // NULL: no bias gradient
    float mean[DT_SIMD_MAX_WIDTH];
    dt_simd_get()->pool->mean[d->type](mean, p.y, pixels, width);
    for (int64_t l = 0; l < width; l++) db[l] += mean[l] * (float)pixels; // sum of dy per channel, from its mean
}

// a thread owns a block of channels over all images: no reduction between threads
static void depthwise_run_block(const void *ctx, int64_t block, int64_t end) {
    const conv_call *c = ctx;
    const dt_depthwise_conv *d = c->d;
    const int64_t width = dt_simd_get()->width, taps = d->kernel[0] * d->kernel[1];
    float dw[DT_DEPTHWISE_MOST * DT_DEPTHWISE_MOST * DT_SIMD_MAX_WIDTH] = {0}; // [tap][lane]
    float db[DT_SIMD_MAX_WIDTH] = {0};
    for (int64_t n = 0; n < d->n; n++) depthwise_add_image(c, n * n_blocks(d) + block, dw, db);
    for (int64_t l = 0; l < width && block * width + l < d->channels; l++) { // lanes of padded channels are dropped
        const int64_t at = block * width + l;
        float *to = c->dw ? c->dw + at * taps : NULL;
        // (channels, R, S), dense; accumulate: adds to the micro-batches before
        for (int64_t k = 0; to && k < taps; k++) to[k] = (c->accumulate >> 1 & 1 ? to[k] : 0) + dw[k * width + l];
        if (c->db) c->db[at] = (c->accumulate >> 2 & 1 ? c->db[at] : 0) + db[l];
    }
}

void dt_depthwise_run_weights(const dt_depthwise_conv *d, const void *x, const void *dy, float *dw, float *db,
                              uint64_t accumulate) {
    const conv_call c = {.d = d, .from = x, .dy = dy, .dw = dw, .db = db, .accumulate = accumulate};
    dt_custom_items(d->threads, n_blocks(d), depthwise_run_block, &c);
}

// ---- shape -------------------------------------------------------------------------------------------
unsigned dt_depthwise_init(dt_depthwise_conv *d, const dt_dnnl_conv *conv, int threads) {
    const dt_dnnl_tensor *x = &conv->src, *y = &conv->dst, *w = &conv->weights;
    *d = (dt_depthwise_conv){.n = x->d[0],
                             .channels = x->d[1],
                             .type = dt_row_type(x->type),
                             .threads = threads,
                             // the only activation that these kernels apply
                             .relu = conv->after.act == DT_ACTIVATION_relu};
    const dt_simd_depthwise *simd = dt_simd_get()->depthwise;
    // groups == channels == outputs, not an image, one type, nothing added
    if (!simd || w->n != 5 || w->d[0] != d->channels || y->d[1] != d->channels || d->channels <= 4 || d->type < 0 ||
        y->type != x->type || conv->after.act > DT_ACTIVATION_relu || conv->after.add != 0)
        return 0;
    for (int i = 0; i < 2; i++) {
        d->in[i] = x->d[2 + i];
        d->out[i] = y->d[2 + i];
        d->kernel[i] = w->d[3 + i]; // w is (g,1,1,R,S)
        d->stride[i] = conv->stride[i];
        d->pad[i] = conv->pad_begin[i];
        // what the vector functions are compiled for
        if (conv->dilation[i] != 1 || d->stride[i] > 2 || d->kernel[i] > DT_DEPTHWISE_MOST ||
            d->kernel[i] < d->stride[i])
            return 0;
    }
    const bool wide = simd->weights[d->kernel[1]][1][d->type] != NULL; // taps and type for which weight gradients exist
    // 3 x 3 in f32: forward and data are faster, the weight gradient is oneDNN's
    const bool conv_too = wide || (d->kernel[1] == 3 && d->type == DT_ROW_F32);
    return (conv_too ? 1u << DT_DNNL_FORWARD | 1u << DT_DNNL_BACKWARD_DATA : 0) |
           (wide ? 1u << DT_DNNL_BACKWARD_WEIGHTS : 0);
}
