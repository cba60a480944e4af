// factored_cpu.c: the second moments of a factored optimizer, and the step that follows (optimizers/adafactor.h), a tensor
// by the calling thread alone, in the order of its elements: the bits do not depend on the threads.
//
//   row, column  averages of the mean square of the gradient's rows and columns, with weight t^-0.8 for the newest
//   moment       of an element: row column / mean of the rows'; of a vector the average of its own square
//   step         gradient / sqrt(moment), its root mean square clipped to 1, times min(lr, 1 / sqrt(t)) and the root mean
//                square of the weights (1e-3 at least)
#include "backend/cpu/custom_kernel.h"
#include "backend/optimizer.h"

#include <float.h>
#include <math.h>
#include <string.h>

typedef struct factoring {
    const dt_optimizer_args *a;
    const dt_factored *t;
    float *grad, *row, *column;
    double newest; // weight of this step's squares
} factoring;

// Scales and clips the gradient; sums its squares by row into the rows' averages, and by column.
static void take_squares(const factoring *f, double *sums) {
    const dt_factored *t = f->t;
    const float limit = dt_clip_limit(f->a->clip_value, f->a->grad_scale);
    memset(sums, 0, sizeof *sums * (size_t)t->cols);
    for (int64_t r = 0; r < t->rows; r++) {
        float *g = f->grad + r * t->cols;
        double sum = 0;
        for (int64_t c = 0; c < t->cols; c++) {
            g[c] = fminf(fmaxf(g[c], -limit), limit) * f->a->grad_scale;
            const double square = (double)g[c] * (double)g[c];
            sum += square;
            sums[c] += square;
        }
        if (!t->vector) f->row[r] += (float)(f->newest * (sum / (double)t->cols - (double)f->row[r]));
    }
    float *to = t->vector ? f->row : f->column;
    for (int64_t c = 0; c < t->cols; c++) to[c] += (float)(f->newest * (sums[c] / (double)t->rows - (double)to[c]));
}

// The gradient becomes gradient / sqrt(moment); the sum of its squares.
static double divide_by_root(const factoring *f) {
    const dt_factored *t = f->t;
    const double least = (double)FLT_EPSILON * (double)FLT_EPSILON;
    double mean = 0, sum = 0;
    for (int64_t r = 0; r < t->rows && !t->vector; r++) mean += (double)f->row[r] / (double)t->rows;
    mean = fmax(mean, (double)FLT_EPSILON);
    for (int64_t r = 0; r < t->rows; r++) {
        float *g = f->grad + r * t->cols;
        for (int64_t c = 0; c < t->cols; c++) {
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
    const int64_t n = t->rows * t->cols, step = a->t - (t->start ? t->start : a->n_skipped);
    const float *weights = a->master + t->offset;
    const factoring f = {.a = a,
                         .t = t,
                         .grad = (float *)(uintptr_t)a->grad + t->offset,
                         .row = a->slots[0] + t->at[0],
                         .column = a->slots[1] + t->at[1],
                         .newest = pow((double)step, -0.8)};
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += (double)weights[i] * (double)weights[i];
    take_squares(&f, a->column_sums + t->sums);
    const double size = sqrt(divide_by_root(&f) / (double)n);
    const double rate = fmin((double)(a->lr * t->lr_scale), 1 / sqrt((double)step)) *
                        fmax(1e-3, sqrt(square / (double)n)) / fmax(1, size);
    for (int64_t i = 0; i < n; i++) f.grad[i] = (float)((double)f.grad[i] * rate);
    return factored_cpu_all_finite(f.row, t->vector ? t->cols : t->rows) &&
           (t->vector || factored_cpu_all_finite(f.column, t->cols));
}

bool dt_cpu_flat_factor(struct dt_backend *b, const dt_optimizer_args *a, int begin, int end) {
    bool finite = true;
    for (int i = begin; i < end; i++)
        if (!a->factored[i].frozen) finite &= factor(a, &a->factored[i]);
    return finite;
}
