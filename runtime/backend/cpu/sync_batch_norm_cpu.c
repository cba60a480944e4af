// sync_batch_norm_cpu.c: batch norm whose statistics are those of all ranks' samples (dt_run.ranks), as
// torch.nn.SyncBatchNorm; the contract is that of batch_norm_cpu.c without what is fused. f32, DENSE; a thread takes whole
// channels, and sums are doubles in the order of elements, so the bits do not depend on the threads.
//
//   forward   sums of x and x², all-reduced, then y
//   backward  sums of dy and dy x̂, which are the gradients of shift and scale; all-reduced they give dx
#include "backend/cpu/custom_kernel.h"

#include <math.h>

typedef struct channels {
    int64_t n, images, plane;
} channels;

static channels channels_of(const dt_kernel_instance *s) {
    const dt_shape *x = &dt_instance_in(s, 0)->shape;
    return (channels){x->d[1], x->d[0], x->n == 4 ? x->d[2] * x->d[3] : 1};
}

static dt_status sync_batch_norm_cpu_prepare(dt_kernel_instance *s) {
    dt_custom_prepare(s, 0);
    if (dt_instance_in(s, 0)->dtype != DT_F32) return dt_instance_fail(s, "wants f32");
    s->scratch_bytes = (size_t)(2 * channels_of(s).n) * sizeof(double);
    return DT_OK;
}

// Adds the sums over the ranks. Returns of how many values a channel they are: micro-batches are alike on all ranks.
static double sync_batch_norm_cpu_all_reduce(const dt_run *r, double *sums, channels d) {
    if (r->ranks) r->ranks->all_reduce(r->ranks->ctx, sums, 2 * d.n);
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
            for (int64_t k = (i * d.n + c) * d.plane; k < (i * d.n + c + 1) * d.plane; k++)
                sum += (double)x[k], square += (double)x[k] * (double)x[k];
        sums[c] = sum, sums[d.n + c] = square;
    }
    const double m = sync_batch_norm_cpu_all_reduce(r, sums, d), eps = (double)s->node->attrs.batch_norm.eps;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t c = 0; c < d.n; c++) {
        const double mean = sums[c] / m, var = fmax(sums[d.n + c] / m - mean * mean, 0);
        const float invstd = (float)(1 / sqrt(var + eps)), gain = scale[c] * invstd;
        dt_custom_put(r, 1, c, mean);
        dt_custom_put(r, 2, c, (double)invstd);
        dt_custom_put(r, 4, c, mean);
        dt_custom_put(r, 5, c, m > 1 ? var * m / (m - 1) : var);
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
                sum += (double)dy[k], along += (double)(dy[k] * ((x[k] - mean[c]) * invstd[c]));
        sums[c] = sum, sums[d.n + c] = along;
        dt_custom_put(r, 1, c, along);
        dt_custom_put(r, 2, c, sum);
    }
    if (!dx) return;
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
