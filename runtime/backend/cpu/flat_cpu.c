// flat_cpu.c: arithmetic on flat buffers of parameters and gradients (see backend.h), one pass each. Runs on the
// calling thread; callers divide ranges among threads by whole chunks.

#include "backend/cpu/custom_kernel.h"
#include "backend/optimizer.h"

#include <float.h>
#include <math.h>
#include <string.h>

void dt_cpu_flat_add(struct dt_backend *b, float *dst, const float *src, int64_t begin, int64_t end) {
    dt_simd_get()->elementwise->add[DT_ROW_F32](dst + begin, dst + begin, src + begin, end - begin);
}

void dt_cpu_flat_sum_squares(struct dt_backend *b, const float *x, int64_t n, double *partial, int64_t begin,
                             int64_t end) {
    // double sums per chunk: neither threads nor ranks change the bits
    const dt_simd_flat *simd = dt_simd_get()->flat;
    for (int64_t c = begin; c < end; c++) {
        int64_t first = c * DT_CHUNK, left = n - first; // floats; a chunk past the end counts 0
        partial[c] = left > 0 ? simd->sum_squares(x + first, left < DT_CHUNK ? left : DT_CHUNK) : 0;
    }
}

// The first segment that ends after `at`.
static int first_segment(const dt_optimizer_args *a, int64_t at) {
    int low = 0, high = a->n_segments; // binary search: segments are sorted by offset
    while (low < high) {
        int mid = (low + high) / 2;
        if (a->segments[mid].offset + a->segments[mid].length > at)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

bool dt_cpu_flat_optimize(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end) {
    bool finite = true; // false: some new value is infinite or NaN
    for (int i = first_segment(a, begin); i < a->n_segments; i++) {
        const dt_segment *g = &a->segments[i];
        int64_t from = g->offset > begin ? g->offset : begin; // intersection with [begin, end)
        int64_t to = g->offset + g->length < end ? g->offset + g->length : end;
        if (g->offset >= end) break;                    // segments behind do not overlap either
        if (g->frozen || from >= to) continue;          // weight and moments stay as they are
        const dt_update u = dt_optimizer_segment(a, i); // rate and decay of the segment's group
        finite &= dt_simd_get()->optimizers[a->kind].update(a, from, to - from, &u);
    }
    return finite;
}

// adaptive gradient clipping (Brock et al., 2021), unit by unit
void dt_cpu_flat_clip_agc(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end) {
    const dt_simd_flat *simd = dt_simd_get()->flat;
    for (int i = 0; i < a->n_tensors; i++) {
        const dt_clip_tensor *t = &a->tensors[i];
        // units whose first chunk position lies in the range
        for (int64_t row = begin > t->first ? begin - t->first : 0; row < t->n && t->first + row < end; row++) {
            const int64_t at = t->offset + row * t->length;
            float *grad = (float *)(uintptr_t)a->grad + at; // const elsewhere: only clipping writes gradients
            const double weights = simd->sum_squares(a->master + at, t->length);
            // of the unscaled gradient: mixed precision multiplies it
            const double norm = sqrt(simd->sum_squares(grad, t->length)) * (double)a->grad_scale;
            // 1e-3: weights at zero must still move
            const double most = (double)a->clip_agc * fmax(sqrt(weights), 1e-3);
            if (!(norm >= most)) continue;                         // also NaN: left for the check of finiteness
            const float factor = (float)(most / fmax(norm, 1e-6)); // 1e-6 against a division by zero
            for (int64_t k = 0; k < t->length; k++) grad[k] *= factor;
        }
    }
}

void dt_cpu_flat_norms(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end) {
    double *sums = a->norms; // pairs {weights, update}, chunk by chunk
    for (int i = 0; i < a->n_segments && a->segments[i].offset < end; i++) {
        const dt_segment *g = &a->segments[i];
        int64_t n = dt_segment_chunks(g->offset, g->length, g->scaled); // 0: this segment is not scaled by norms
        if (n == 0) continue;
        const dt_update u = dt_optimizer_segment(a, i);
        for (int64_t at = g->offset; n > 0; n--, sums += 2) {
            int64_t to = (at / DT_CHUNK + 1) * DT_CHUNK; // to the next multiple of DT_CHUNK of the flat buffer
            if (to > g->offset + g->length) to = g->offset + g->length;
            // others belong to another thread, but advance `sums`
            if (at >= begin && at < end) dt_simd_get()->optimizers[a->kind].measure(a, at, to - at, &u, sums);
            at = to;
        }
    }
}

// ---- factored -----------------------------------------------------------------------------------------------------

// The second moments of a factored optimizer, and the step that follows (optimizers/adafactor.h), a tensor
// by the calling thread alone, in the order of its elements: the bits do not depend on the threads.
//
//   row, column  averages of the mean square of the gradient's rows and columns, with weight t^-0.8 for the newest
//   moment       of an element: row column / mean of the rows'; of a vector the average of its own square
//   step         gradient / sqrt(moment), its root mean square clipped to 1, times min(lr, 1 / sqrt(t)) and the root mean
//                square of the weights (1e-3 at least)

typedef struct factoring {
    const dt_optimizer_args *a;
    const dt_factored *t;
    float *grad, *row, *column; // row (rows), column (cols): running averages, f32
    double newest;              // weight of this step's squares
} factoring;

// Scales and clips the gradient; sums its squares by row into the rows' averages, and by column.
static void take_squares(const factoring *f, double *sums) {
    const dt_factored *t = f->t;
    const float limit = dt_clip_limit(f->a->clip_value, f->a->grad_scale); // in the scaled gradient's units
    memset(sums, 0, sizeof *sums * (size_t)t->cols);
    for (int64_t r = 0; r < t->rows; r++) {
        float *g = f->grad + r * t->cols;
        double sum = 0;
        for (int64_t c = 0; c < t->cols; c++) {
            g[c] = fminf(fmaxf(g[c], -limit), limit) * f->a->grad_scale; // clips, then unscales
            const double square = (double)g[c] * (double)g[c];
            sum += square;
            sums[c] += square;
        }
        // exponential average
        if (!t->vector) f->row[r] += (float)(f->newest * (sum / (double)t->cols - (double)f->row[r]));
    }
    float *to = t->vector ? f->row : f->column; // a vector has one average per element, kept in row
    for (int64_t c = 0; c < t->cols; c++) to[c] += (float)(f->newest * (sums[c] / (double)t->rows - (double)to[c]));
}

// The gradient becomes gradient / sqrt(moment); the sum of its squares.
static double divide_by_root(const factoring *f) {
    const dt_factored *t = f->t;
    const double least = (double)FLT_EPSILON * (double)FLT_EPSILON; // Adafactor's epsilon_1, of squares
    double mean = 0, sum = 0;
    // the row averages' mean, which both factors contain
    for (int64_t r = 0; r < t->rows && !t->vector; r++) mean += (double)f->row[r] / (double)t->rows;
    mean = fmax(mean, (double)FLT_EPSILON);
    for (int64_t r = 0; r < t->rows; r++) {
        float *g = f->grad + r * t->cols;
        for (int64_t c = 0; c < t->cols; c++) {
            // rank-1 estimate: row * column / mean
            const double moment = t->vector ? (double)f->row[c] : (double)f->row[r] * (double)f->column[c] / mean;
            g[c] = (float)((double)g[c] / sqrt(fmax(moment, least)));
            sum += (double)g[c] * (double)g[c];
        }
    }
    return sum;
}

static bool factored_cpu_all_finite(const float *x, int64_t n) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] - x[i]; // 0 of what is finite
    return sum == 0;
}

static bool factor(const dt_optimizer_args *a, const dt_factored *t) {
    // steps counted from the tensor's unfreezing, or without skipped ones
    const int64_t n = t->rows * t->cols, step = a->t - (t->start ? t->start : a->n_skipped);
    const float *weights = a->master + t->offset;
    const factoring f = {.a = a,
                         .t = t,
                         .grad = (float *)(uintptr_t)a->grad + t->offset,
                         .row = a->slots[0] + t->at[0],
                         .column = a->slots[1] + t->at[1],
                         .newest = pow((double)step, -0.8)}; // 1 - beta2 of the paper: t^-0.8
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += (double)weights[i] * (double)weights[i]; // of the weights before the step
    take_squares(&f, a->column_sums + t->sums);
    const double size = sqrt(divide_by_root(&f) / (double)n); // root mean square of the update
    // relative step size, at most 1 / sqrt(t)
    const double rate = fmin((double)(a->lr * t->lr_scale), 1 / sqrt((double)step)) *
                        // scaled by the weights' size; the update's size clipped to 1
                        fmax(1e-3, sqrt(square / (double)n)) / fmax(1, size);
    // the gradient buffer holds the step for the update pass
    for (int64_t i = 0; i < n; i++) f.grad[i] = (float)((double)f.grad[i] * rate);
    // moments only: the update pass checks the weights
    return factored_cpu_all_finite(f.row, t->vector ? t->cols : t->rows) &&
           (t->vector || factored_cpu_all_finite(f.column, t->cols));
}

bool dt_cpu_flat_factor(struct dt_backend *b, const dt_optimizer_args *a, int begin, int end) {
    bool finite = true;
    for (int i = begin; i < end; i++)
        if (!a->factored[i].frozen) finite &= factor(a, &a->factored[i]); // frozen tensors keep their averages
    return finite;
}
