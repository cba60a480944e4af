// stretch.c: values of an instrument to 0..1.
//
// The two halves are independent: which values become 0 and 1 (given, least and greatest, or zscale's limits),
// and the curve between them (a line, or asinh, which is a line near 0 and a logarithm far from it). Computed
// in double and rounded once, so that the bits do not depend on the library's float functions.
#include "array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- zscale ------------------------------------------------------------------------------------------
enum { N_SAMPLES = 1000, MIN_SAMPLES = 5, MAX_ROUNDS = 5 };
static const double CONTRAST = 0.25, MAX_REJECTED = 0.5, REJECT_SIGMAS = 2.5;

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// Every k-th finite value, so that there are N_SAMPLES or, of fewer than two thousand, the first of them.
static int take_samples(const float *v, size_t n, float *out) {
    size_t n_finite = 0, step, at = 0;
    int taken = 0;
    for (size_t i = 0; i < n; i++) n_finite += isfinite(v[i]) != 0;
    step = n_finite / N_SAMPLES ? n_finite / N_SAMPLES : 1;
    for (size_t i = 0; i < n && taken < N_SAMPLES; i++)
        if (isfinite(v[i]) && at++ % step == 0) out[taken++] = v[i];
    return taken;
}

typedef struct line {
    double slope, offset;
} line;

// Least squares through the samples that are not bad, by position.
static line fit(const float *v, const bool *bad, int n) {
    double k = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < n; i++)
        if (!bad[i]) k++, sx += i, sy += (double)v[i];
    double mx = k ? sx / k : 0, my = k ? sy / k : 0;
    for (int i = 0; i < n; i++)
        if (!bad[i]) sxx += (i - mx) * (i - mx), sxy += (i - mx) * ((double)v[i] - my);
    line l = {.slope = sxx > 0 ? sxy / sxx : 0};
    l.offset = my - l.slope * mx;
    return l;
}

// Marks what is too far from the line, and its neighbours.
static int reject(const float *v, bool *bad, int n, line l) {
    bool far[N_SAMPLES];
    double sum = 0, squares = 0, k = 0;
    for (int i = 0; i < n; i++)
        if (!bad[i]) sum += (double)v[i] - (l.slope * i + l.offset), k++;
    for (int i = 0; i < n && k > 0; i++) {
        double d = (double)v[i] - (l.slope * i + l.offset) - sum / k;
        if (!bad[i]) squares += d * d;
    }
    double threshold = REJECT_SIGMAS * sqrt(k > 0 ? squares / k : 0);
    for (int i = 0; i < n; i++)
        far[i] = bad[i] || fabs((double)v[i] - (l.slope * i + l.offset)) > threshold;
    int grow = n / 100 > 1 ? n / 100 : 1, n_good = 0;
    for (int i = 0; i < n; i++) { // the window of numpy's convolve(mode="same")
        bad[i] = false;
        for (int j = i - grow / 2; j < i - grow / 2 + grow; j++)
            if (j >= 0 && j < n && far[j]) bad[i] = true;
        n_good += !bad[i];
    }
    return n_good;
}

static void zscale_limits(const float *v, int n, double limits[2]) {
    bool bad[N_SAMPLES] = {false};
    int least = (int)(n * MAX_REJECTED) > MIN_SAMPLES ? (int)(n * MAX_REJECTED) : MIN_SAMPLES;
    int n_good = n, before = n + 1;
    line l = {0, 0};
    limits[0] = (double)v[0];
    limits[1] = (double)v[n - 1];
    for (int round = 0; round < MAX_ROUNDS && n_good < before && n_good >= least; round++) {
        l = fit(v, bad, n);
        before = n_good;
        n_good = reject(v, bad, n, l);
    }
    if (n_good < least) return;
    double median = n % 2 ? (double)v[n / 2] : ((double)v[n / 2 - 1] + (double)v[n / 2]) / 2;
    double slope = l.slope / CONTRAST;
    int center = (n - 1) / 2;
    limits[0] = fmax(limits[0], median - (center - 1) * slope);
    limits[1] = fmin(limits[1], median + (n - center) * slope);
}

dt_status dt_zscale(const float *v, size_t n, dt_buffer *scratch, double limits[2]) {
    float *samples = (float *)dt_buffer_reserve(scratch, N_SAMPLES * sizeof *samples);
    if (!samples) return dt_fail(DT_E_INTERNAL, "out of memory");
    int taken = take_samples(v, n, samples);
    limits[0] = limits[1] = 0;
    if (taken == 0) return DT_OK;
    qsort(samples, (size_t)taken, sizeof *samples, compare_floats);
    zscale_limits(samples, taken, limits);
    return DT_OK;
}

// ---- planes ------------------------------------------------------------------------------------------
static void least_and_greatest(const float *v, size_t n, double limits[2]) {
    bool any = false;
    limits[0] = limits[1] = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) continue;
        if (!any || (double)v[i] < limits[0]) limits[0] = (double)v[i];
        if (!any || (double)v[i] > limits[1]) limits[1] = (double)v[i];
        any = true;
    }
}

dt_status dt_stretch_plane(const dt_array_spec *s, float *v, size_t n, dt_buffer *scratch) {
    double limits[2] = {s->low, s->high};
    if (s->stretch == DT_STRETCH_none) {
        for (size_t i = 0; i < n; i++) v[i] = isfinite(v[i]) ? v[i] : 0;
        return DT_OK;
    }
    if (s->range == DT_RANGE_zscale) DT_TRY(dt_zscale(v, n, scratch, limits));
    if (s->range == DT_RANGE_minmax) least_and_greatest(v, n, limits);
    double width = limits[1] - limits[0], top = asinh(1 / s->softening);
    for (size_t i = 0; i < n; i++) {
        double x = width > 0 ? ((double)v[i] - limits[0]) / width : (double)v[i] > limits[0];
        x = !(x > 0) || !isfinite(v[i]) ? 0 : x > 1 ? 1 : x; // NaN fails every comparison
        v[i] = (float)(s->stretch == DT_STRETCH_asinh ? asinh(x / s->softening) / top : x);
    }
    return DT_OK;
}
