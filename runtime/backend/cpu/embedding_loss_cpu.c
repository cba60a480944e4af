// embedding_loss_cpu.c: what losses of embeddings are made of: l2_normalize, arc_margin and triplet (graph/ops). f32,
// DENSE; threads take whole rows, and sums are doubles in the order of elements.
#include "backend/cpu/custom_kernel.h"
#include "graph/arc_margin.h"

#include <math.h>
#include <string.h>

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
    return n >= EMBEDDING_LOSS_CPU_PARALLEL_ELEMENTS ? s->threads : 1;
}

// ---- l2_normalize ----------------------------------------------------------------------------------
static void normalize_forward(const dt_kernel_instance *s, const dt_run *r) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    const int64_t n = shape->d[shape->n - 1], rows = dt_shape_elements(shape) / n;
    const float *x = r->in[0];
    float *y = r->out[0];
#pragma omp parallel for num_threads(embedding_loss_cpu_threads_for(s, rows *n)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
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
    memcpy(out, from, sizeof *out * (size_t)(rows * n));
    for (int64_t i = 0; i < rows; i++) {
        if (target[i] < 0 || target[i] >= n) continue;
        const int64_t at = i * n + target[i];
        const float y = dt_arc_margin_of(x[at], margin, scale, &slope);
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
    s->scratch_bytes = (size_t)dt_instance_in(s, 0)->shape.d[0] * sizeof(hardest);
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
        if (k == i || weight[k] == 0 || other != (j >= rows)) continue;
        const double d = distance(x + i * n, x + k * n, n);
        if (!other && (h.positive < 0 || d > h.far)) h.positive = k, h.far = d;
        if (other && s->node->attrs.triplet.semihard && d <= h.far) continue;
        if (other && (h.negative < 0 || d < h.near)) h.negative = k, h.near = d;
    }
    if (h.positive >= 0 && h.negative >= 0) h.loss = (double)s->node->attrs.triplet.margin + h.far - h.near;
    if (h.loss < 0) h.loss = 0;
    return h;
}

static void find_all(const dt_kernel_instance *s, const dt_run *r) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    const int64_t rows = shape->d[0], n = shape->d[1];
    hardest *all = r->scratch;
#pragma omp parallel for num_threads(embedding_loss_cpu_threads_for(s, rows *rows *n)) schedule(static)
    for (int64_t i = 0; i < rows; i++) all[i] = find_hardest(s, r, i);
}

static void triplet_forward(const dt_kernel_instance *s, const dt_run *r) {
    const int64_t rows = dt_instance_in(s, 0)->shape.d[0];
    const hardest *all = r->scratch;
    const float *weight = r->in[2];
    double loss = 0, sum = 0;
    find_all(s, r);
    for (int64_t i = 0; i < rows; i++) loss += (double)weight[i] * all[i].loss, sum += weight[i];
    dt_custom_put(r, 0, 0, loss * (double)s->node->attrs.triplet.share);
    dt_custom_put(r, 1, 0, sum);
}

// by * the gradient of |a - b| by a; by b it is the opposite.
static void embedding_loss_cpu_pull(float *da, float *db, const float *a, const float *b, int64_t n, double by) {
    for (int64_t k = 0; k < n; k++) {
        const float d = (float)(by * ((double)a[k] - (double)b[k]));
        da[k] += d, db[k] -= d;
    }
}

static void triplet_backward(const dt_kernel_instance *s, const dt_run *r) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    const int64_t rows = shape->d[0], n = shape->d[1];
    const double share = (double)(s->node->attrs.triplet.share * r->step->loss_scale);
    const float *x = r->in[0], *weight = r->in[2];
    const hardest *all = r->scratch;
    float *dx = r->out[0];
    find_all(s, r);
    memset(dx, 0, sizeof *dx * (size_t)(rows * n));
    for (int64_t i = 0; i < rows; i++) {
        const hardest *h = &all[i];
        const double g = share * (double)weight[i];
        if (h->loss == 0) continue;
        if (h->far > 0)
            embedding_loss_cpu_pull(dx + i * n, dx + h->positive * n, x + i * n, x + h->positive * n, n, g / h->far);
        if (h->near > 0)
            embedding_loss_cpu_pull(dx + i * n, dx + h->negative * n, x + i * n, x + h->negative * n, n, -g / h->near);
    }
}

const dt_kernel dt_cpu_triplet = {embedding_loss_cpu_prepare_triplet, triplet_forward, NULL};
const dt_kernel dt_cpu_triplet_bwd = {embedding_loss_cpu_prepare_triplet, triplet_backward, NULL};
