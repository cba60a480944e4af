// rows_cpu.c: kernels over rows, on the CPU.

#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/dnnl_weights.h"
#include "backend/cpu/simd.h"
#include "base/core.h"
#include "graph/arc_margin.h"

#include <math.h>
#include <string.h>

// ---- softmax ------------------------------------------------------------------------------------------------------

// Softmax over the last axis, DENSE, computed in f32. Threads take whole rows, so bits do not
// depend on their number.

enum { PARALLEL_ELEMENTS = 16384 }; // below this a fork costs more than it saves

static dt_status softmax_cpu_prepare(dt_kernel_instance *s) {
    const dt_value_info *y = dt_instance_out(s, 0);
    dt_custom_prepare(s, 0);
    if (y->dtype != DT_F32 && y->dtype != DT_BF16) return dt_instance_fail(s, "wants f32 or bf16");
    s->inplace_in = s->node->backward ? dt_pos_grad(s, 0) : 0; // each element is read before it is written
    return DT_OK;
}

static void softmax_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const dt_value_info *out = dt_instance_out(s, 0);
    const int type = dt_row_type(out->dtype);
    const int64_t n = out->shape.d[out->shape.n - 1], rows = dt_shape_elements(&out->shape) / n; // last axis
    const bool backward = s->node->backward;
    const void *x = r->in[backward ? dt_pos_out(s, 0) : 0]; // backward needs y only
    const void *dy = backward ? r->in[dt_pos_grad(s, 0)] : NULL;
#pragma omp parallel for num_threads(s->threads) schedule(static) if (s->threads > 1 && rows * n > PARALLEL_ELEMENTS)
    for (int64_t i = 0; i < rows; i++) {
        void *to = dt_row_at_mut(type, r->out[0], i * n);
        const void *from = dt_row_at(type, x, i * n);
        if (backward)
            dt_simd_get()->rows->softmax_bwd[type](to, from, dt_row_at(type, dy, i * n), n);
        else
            dt_simd_get()->rows->softmax[type](to, from, n);
    }
}

static dt_status softmax_cpu_prepare_bwd(dt_kernel_instance *s) {
    // NONE: dropped by recomputation or inference
    if (s->node->in[dt_pos_out(s, 0)] == DT_NONE) return dt_instance_fail(s, "the gradient reads the output");
    return softmax_cpu_prepare(s);
}

const dt_kernel dt_cpu_softmax = {softmax_cpu_prepare, softmax_cpu_run, NULL};
const dt_kernel dt_cpu_softmax_bwd = {softmax_cpu_prepare_bwd, softmax_cpu_run, NULL};

// ---- layer norm ---------------------------------------------------------------------------------------------------

// Layer norm over the last dimension, DENSE, with statistics in f32. Fused additions (see
// graph/ops/norm.c) are done row by row, before the norm and after its gradient.
//
// The forward node's outputs are y and, for the backward node, the rows' mean and 1/std (either may be absent
// in inference). Threads take consecutive rows. Each thread sums the gradients of scale and shift over its rows
// in scratch; these sums are then added in the order of the threads.
//
// Scratch of backward: [thread][ dscale | dshift ], rows of `stride` floats

enum { LAYER_NORM_CPU_PARALLEL_ELEMENTS = 16384 };

static int64_t layer_norm_cpu_row_length(const dt_value_info *v) {
    return v->shape.d[v->shape.n - 1];
}

static dt_status layer_norm_cpu_prepare(dt_kernel_instance *s) {
    const dt_node *n = s->node;
    const dt_value_info *x = dt_instance_in(s, 0);
    dt_custom_prepare(s, 0);
    // backward: dy; with a residual: the residual; else x
    s->inplace_in = n->backward ? dt_pos_grad(s, 0) : n->n_in > 3 ? 3 : 0;
    if (x->dtype != DT_F32 && x->dtype != DT_BF16) return dt_instance_fail(s, "wants f32 or bf16");
    // floats of a thread's sums, to whole cache lines
    const size_t sums_bytes = dt_align_up((size_t)layer_norm_cpu_row_length(x) * sizeof(float), 64);
    if (n->backward) s->scratch_bytes = (size_t)s->threads * 2 * sums_bytes; // dscale and dshift per thread
    return DT_OK;
}

static void layer_norm_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const dt_value_info *x = dt_instance_in(s, 0);
    const int type = dt_row_type(x->dtype);
    const int64_t n = layer_norm_cpu_row_length(x), rows = dt_shape_elements(&x->shape) / n;
    const size_t row_bytes = (size_t)n * dt_dtype_size(x->dtype);
    float *mean = r->out[1], *rstd = r->out[2]; // absent in inference
    const char *residual = s->node->n_in > 3 ? r->in[3] : NULL;
    char *sum = residual ? r->out[3] : NULL; // output 3: x + residual, which backward reads
#pragma omp parallel for num_threads(s->threads)                                                                       \
    schedule(static) if (s->threads > 1 && rows * n > LAYER_NORM_CPU_PARALLEL_ELEMENTS)
    for (int64_t i = 0; i < rows; i++) {
        const size_t at = (size_t)i * row_bytes;
        const char *x_row = (const char *)r->in[0] + at;
        if (residual) {
            // the sum is stored, then normalized from the cache
            dt_simd_get()->elementwise->add[type](sum + at, x_row, residual + at, n);
            x_row = sum + at;
        }
        dt_norm_row row = {.n = n,
                           .x = x_row,
                           .y = (char *)r->out[0] + at,
                           .scale = r->in[1],
                           .shift = r->in[2],
                           .eps = s->node->attrs.layer_norm.eps};
        dt_simd_get()->rows->norm[type](&row);
        if (mean) mean[i] = row.mean;
        if (rstd) rstd[i] = row.rstd;
    }
}

const dt_kernel dt_cpu_layer_norm = {layer_norm_cpu_prepare, layer_norm_cpu_run, NULL};

static dt_status layer_norm_cpu_prepare_bwd(dt_kernel_instance *s) {
    const int stats = s->node->n_fwd_in + 1; // position of mean among the inputs; 1/std is behind
    if (s->node->in[0] == DT_NONE || s->node->in[1] == DT_NONE || s->node->in[stats] == DT_NONE ||
        s->node->in[stats + 1] == DT_NONE) {
        return dt_instance_fail(s, "the gradient reads x, scale, mean and 1/std");
    }
    return layer_norm_cpu_prepare(s);
}

// Rows [begin, end) into the thread's own sums.
static void rows_bwd(const dt_kernel_instance *s, const dt_run *r, int64_t begin, int64_t end, float *dscale,
                     float *dshift) {
    const dt_value_info *x = dt_instance_in(s, 0);
    const int type = dt_row_type(x->dtype), first = s->node->n_fwd_in;
    const int64_t n = layer_norm_cpu_row_length(x);
    const size_t row_bytes = (size_t)n * dt_dtype_size(x->dtype);
    const float *mean = r->in[first + 1], *rstd = r->in[first + 2];
    const int behind = first + 2 * s->node->n_fwd_out; // behind the gradients of all outputs
    const char *dy = r->in[first + s->node->n_fwd_out];
    const char *other = s->node->n_in > behind ? r->in[behind] : NULL; // gradient of the sum's other use, added to dx
    memset(dscale, 0, (size_t)n * sizeof(float));
    memset(dshift, 0, (size_t)n * sizeof(float));
    for (int64_t i = begin; i < end; i++) {
        const size_t at = (size_t)i * row_bytes;
        dt_norm_row row = {.n = n,
                           .x = (const char *)r->in[0] + at,
                           .dy = dy + at,
                           .y = r->out[0] ? (char *)r->out[0] + at : NULL, // NULL: x needs no gradient
                           .scale = r->in[1],
                           .mean = mean[i],
                           .rstd = rstd[i],
                           .dscale = dscale,
                           .dshift = dshift};
        dt_simd_get()->rows->norm_bwd[type](&row);
        if (other) dt_simd_get()->elementwise->add[type](row.y, row.y, other + at, n);
    }
}

static void layer_norm_cpu_run_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const dt_value_info *x = dt_instance_in(s, 0);
    const int64_t n = layer_norm_cpu_row_length(x), rows = dt_shape_elements(&x->shape) / n;
    const size_t stride = dt_align_up((size_t)n * sizeof(float), 64) / sizeof(float);
    float *sums = r->scratch;
#pragma omp parallel for num_threads(s->threads)                                                                       \
    schedule(static) if (s->threads > 1 && rows * n > LAYER_NORM_CPU_PARALLEL_ELEMENTS)
    for (int t = 0; t < s->threads; t++) {
        int64_t begin, end;
        dt_cpu_share(rows, 1, t, s->threads, &begin, &end);
        float *mine = sums + (size_t)t * 2 * stride;
        rows_bwd(s, r, begin, end, mine, mine + stride);
    }
    for (int t = 1; t < s->threads; t++) { // in order of the threads
        // first rows of all threads become the total
        for (size_t i = 0; i < 2 * stride; i++) sums[i] += sums[(size_t)t * 2 * stride + i];
    }
    for (int i = 0; i < 2; i++) {
        if (r->out[1 + i]) {
            // bits 1 and 2: accumulate over micro-batches
            dt_cpu_store_sum(r->out[1 + i], sums + (size_t)i * stride, n, r->accumulate >> (1 + i) & 1);
        }
    }
}

const dt_kernel dt_cpu_layer_norm_bwd = {layer_norm_cpu_prepare_bwd, layer_norm_cpu_run_bwd, NULL};

// ---- embedding loss -----------------------------------------------------------------------------------------------

// What losses of embeddings are made of: l2_normalize, arc_margin and triplet (graph/ops). f32,
// DENSE; threads take whole rows, and sums are doubles in the order of elements.

enum { EMBEDDING_LOSS_CPU_PARALLEL_ELEMENTS = 16384 }; // below this a fork costs more than it saves

static double embedding_loss_cpu_dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static dt_status embedding_loss_cpu_prepare_f32(dt_kernel_instance *s) {
    dt_custom_prepare(s, 0);
    if (dt_instance_in(s, 0)->dtype != DT_F32) return dt_instance_fail(s, "wants f32");
    return DT_OK;
}

static int embedding_loss_cpu_threads_for(const dt_kernel_instance *s, int64_t n) {
    return n >= EMBEDDING_LOSS_CPU_PARALLEL_ELEMENTS ? s->threads : 1; // fewer elements: one thread
}

// ---- l2_normalize ----------------------------------------------------------------------------------
static void normalize_forward(const dt_kernel_instance *s, const dt_run *r) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    const int64_t n = shape->d[shape->n - 1], rows = dt_shape_elements(shape) / n;
    const float *x = r->in[0];
    float *y = r->out[0];
#pragma omp parallel for num_threads(embedding_loss_cpu_threads_for(s, rows *n)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        // eps as F.normalize has it
        const double by = 1 / fmax(sqrt(embedding_loss_cpu_dot(x + i * n, x + i * n, n)), 1e-12);
        for (int64_t k = i * n; k < (i + 1) * n; k++) y[k] = (float)((double)x[k] * by);
    }
}

// Of each row, dy is read before dx is written.
static dt_status embedding_loss_cpu_prepare_normalize_bwd(dt_kernel_instance *s) {
    DT_TRY(embedding_loss_cpu_prepare_f32(s));
    s->inplace_in = dt_pos_grad(s, 0);
    return DT_OK;
}

// dx = (dy - y (y dy)) / |x|
static void normalize_backward(const dt_kernel_instance *s, const dt_run *r) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    const int64_t n = shape->d[shape->n - 1], rows = dt_shape_elements(shape) / n;
    const float *x = r->in[0], *dy = r->in[dt_pos_grad(s, 0)];
    float *dx = r->out[0];
#pragma omp parallel for num_threads(embedding_loss_cpu_threads_for(s, rows *n)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const double square = embedding_loss_cpu_dot(x + i * n, x + i * n, n), by = 1 / fmax(sqrt(square), 1e-12);
        // |x| below eps: y = x / eps, without a tangential part
        const double along = square > 1e-24 ? embedding_loss_cpu_dot(x + i * n, dy + i * n, n) / square : 0;
        for (int64_t k = i * n; k < (i + 1) * n; k++) dx[k] = (float)(((double)dy[k] - (double)x[k] * along) * by);
    }
}

const dt_kernel dt_cpu_l2_normalize = {embedding_loss_cpu_prepare_f32, normalize_forward, NULL};
const dt_kernel dt_cpu_l2_normalize_bwd = {embedding_loss_cpu_prepare_normalize_bwd, normalize_backward, NULL};

// ---- arc_margin ------------------------------------------------------------------------------------
static void embedding_loss_cpu_run_margin(const dt_kernel_instance *s, const dt_run *r) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    const int64_t rows = shape->d[0], n = shape->d[1];
    const bool backward = s->node->backward;
    const float *x = r->in[0], *from = backward ? r->in[dt_pos_grad(s, 0)] : x;
    const int32_t *target = r->in[1];
    const float margin = s->node->attrs.arc_margin.margin, scale = s->node->attrs.arc_margin.scale;
    float *out = r->out[0], slope;
    memcpy(out, from, sizeof *out * (size_t)(rows * n)); // all logits but the target's stay
    for (int64_t i = 0; i < rows; i++) {
        if (target[i] < 0 || target[i] >= n) continue; // padding, or an unknown class
        const int64_t at = i * n + target[i];
        const float y = dt_arc_margin_of(x[at], margin, scale, &slope); // cos(acos(x) + margin) * scale, and its slope
        out[at] = backward ? from[at] * slope : y;
    }
}

const dt_kernel dt_cpu_arc_margin = {embedding_loss_cpu_prepare_f32, embedding_loss_cpu_run_margin, NULL};
const dt_kernel dt_cpu_arc_margin_bwd = {embedding_loss_cpu_prepare_f32, embedding_loss_cpu_run_margin, NULL};

// ---- triplet ---------------------------------------------------------------------------------------
// In scratch, of each sample: its hardest positive and negative (-1: none), their distances, its loss.
typedef struct hardest {
    int64_t positive, negative;
    double far, near, loss;
} hardest;

static dt_status embedding_loss_cpu_prepare_triplet(dt_kernel_instance *s) {
    DT_TRY(embedding_loss_cpu_prepare_f32(s));
    s->scratch_bytes = (size_t)dt_instance_in(s, 0)->shape.d[0] * sizeof(hardest); // one per sample
    return DT_OK;
}

static double distance(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sqrt(sum);
}

static hardest find_hardest(const dt_kernel_instance *s, const dt_run *r, int64_t i) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    const int64_t rows = shape->d[0], n = shape->d[1];
    const float *x = r->in[0], *weight = r->in[2];
    const int32_t *target = r->in[1];
    hardest h = {.positive = -1, .negative = -1};
    for (int64_t j = 0; j < 2 * rows && weight[i] != 0; j++) { // those of its class, then others
        const int64_t k = j % rows;
        const bool other = target[k] != target[i];
        if (k == i || weight[k] == 0 || other != (j >= rows)) continue; // each round takes one kind
        const double d = distance(x + i * n, x + k * n, n);
        if (!other && (h.positive < 0 || d > h.far)) h.positive = k, h.far = d;
        if (other && s->node->attrs.triplet.semihard && d <= h.far) continue; // semihard: farther than the positive
        if (other && (h.negative < 0 || d < h.near)) h.negative = k, h.near = d;
    }
    // hinge: margin + d(positive) - d(negative)
    if (h.positive >= 0 && h.negative >= 0) h.loss = (double)s->node->attrs.triplet.margin + h.far - h.near;
    if (h.loss < 0) h.loss = 0;
    return h;
}

static void find_all(const dt_kernel_instance *s, const dt_run *r) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    const int64_t rows = shape->d[0], n = shape->d[1];
    hardest *all = r->scratch;
// all pairs: rows^2 distances
#pragma omp parallel for num_threads(embedding_loss_cpu_threads_for(s, rows *rows *n)) schedule(static)
    for (int64_t i = 0; i < rows; i++) all[i] = find_hardest(s, r, i);
}

static void triplet_forward(const dt_kernel_instance *s, const dt_run *r) {
    const int64_t rows = dt_instance_in(s, 0)->shape.d[0];
    const hardest *all = r->scratch;
    const float *weight = r->in[2];
    double loss = 0, sum = 0;
    find_all(s, r);
    for (int64_t i = 0; i < rows; i++) loss += (double)weight[i] * all[i].loss, sum += weight[i]; // in sample order
    dt_custom_put(r, 0, 0, loss * (double)s->node->attrs.triplet.share);
    dt_custom_put(r, 1, 0, sum);
}

// by * the gradient of |a - b| by a; by b it is the opposite.
static void embedding_loss_cpu_pull(float *da, float *db, const float *a, const float *b, int64_t n, double by) {
    for (int64_t k = 0; k < n; k++) { // d|a - b| / da = (a - b) / |a - b|
        const float d = (float)(by * ((double)a[k] - (double)b[k]));
        da[k] += d, db[k] -= d;
    }
}

static void triplet_backward(const dt_kernel_instance *s, const dt_run *r) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    const int64_t rows = shape->d[0], n = shape->d[1];
    // as the losses: scaled for mixed precision
    const double share = (double)(s->node->attrs.triplet.share * r->step->loss_scale);
    const float *x = r->in[0], *weight = r->in[2];
    const hardest *all = r->scratch;
    float *dx = r->out[0];
    find_all(s, r);
    memset(dx, 0, sizeof *dx * (size_t)(rows * n));
    for (int64_t i = 0; i < rows; i++) {
        const hardest *h = &all[i];
        const double g = share * (double)weight[i];
        if (h->loss == 0) continue; // outside the hinge, or no pair
        if (h->far > 0)             // a distance of 0 has no direction
            embedding_loss_cpu_pull(dx + i * n, dx + h->positive * n, x + i * n, x + h->positive * n, n, g / h->far);
        if (h->near > 0)
            embedding_loss_cpu_pull(dx + i * n, dx + h->negative * n, x + i * n, x + h->negative * n, n, -g / h->near);
    }
}

const dt_kernel dt_cpu_triplet = {embedding_loss_cpu_prepare_triplet, triplet_forward, NULL};
const dt_kernel dt_cpu_triplet_bwd = {embedding_loss_cpu_prepare_triplet, triplet_backward, NULL};
