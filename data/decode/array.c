// array.c: planes of numbers to pixels.
//
// Planes are read, stretched and put into their channel one after another, so scratch holds one plane whatever
// the file holds. Floats go directly to the batch slot if the size is right.
#include "array.h"

#include <math.h>
#include <stdlib.h>

// A stretch's two halves are independent: which values become 0 and 1 (given, least and greatest, or zscale's
// limits), and the curve between them (a line, or asinh, which is a line near 0 and a logarithm far from it).
// Computed in double and rounded once, so that the bits do not depend on the library's float functions.
// ---- zscale ------------------------------------------------------------------------------------------
enum { N_SAMPLES = 1000, MIN_SAMPLES = 5, MAX_ROUNDS = 5 };
static const double CONTRAST = 0.25, MAX_REJECTED = 0.5, REJECT_SIGMAS = 2.5;

static int array_compare_floats(const void *a, const void *b) {
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
static line array_fit(const float *v, const bool *bad, int n) {
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

// Marks values that are too far from the line, and their neighbours.
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
    for (int i = 0; i < n; i++) far[i] = bad[i] || fabs((double)v[i] - (l.slope * i + l.offset)) > threshold;
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
        l = array_fit(v, bad, n);
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

// The limits that astropy's ZScaleInterval finds with its defaults among n values, without those that are not
// finite. (IRAF's zscale: a line through up to 1000 sorted samples, outliers rejected, slope divided by a
// contrast of 0.25.)
static dt_status zscale(const float *v, size_t n, dt_buffer *scratch, double limits[2]) {
    float *samples = (float *)dt_buffer_reserve(scratch, N_SAMPLES * sizeof *samples);
    if (!samples) return dt_fail(DT_E_INTERNAL, "out of memory");
    int taken = take_samples(v, n, samples);
    limits[0] = limits[1] = 0;
    if (taken == 0) return DT_OK;
    qsort(samples, (size_t)taken, sizeof *samples, array_compare_floats);
    zscale_limits(samples, taken, limits);
    return DT_OK;
}

// ---- limits and curves ------------------------------------------------------------------------------------------
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

// v[i] -> 0..1 in place, as astropy's intervals and AsinhStretch (asinh(x / a) / asinh(1 / a); Lupton, Gunn
// and Szalay 1999); what is not finite becomes 0. DT_STRETCH_none does only that.
static dt_status stretch_plane(const dt_array_spec *s, float *v, size_t n, dt_buffer *scratch) {
    double limits[2] = {s->low, s->high};
    if (s->stretch == DT_STRETCH_none) {
        for (size_t i = 0; i < n; i++) v[i] = isfinite(v[i]) ? v[i] : 0;
        return DT_OK;
    }
    if (s->range == DT_RANGE_zscale) DT_TRY(zscale(v, n, scratch, limits));
    if (s->range == DT_RANGE_minmax) least_and_greatest(v, n, limits);
    double width = limits[1] - limits[0], top = asinh(1 / s->softening);
    for (size_t i = 0; i < n; i++) {
        double x = width > 0 ? ((double)v[i] - limits[0]) / width : (double)v[i] > limits[0];
        x = !(x > 0) || !isfinite(v[i]) ? 0 : x > 1 ? 1 : x; // NaN fails every comparison
        v[i] = (float)(s->stretch == DT_STRETCH_asinh ? asinh(x / s->softening) / top : x);
    }
    return DT_OK;
}

// ---- pixels ------------------------------------------------------------------------------------------
const dt_array_spec *dt_array_spec_of(const dt_image_want *w) {
    static const dt_array_spec plain = {.f32 = false};
    return w->array ? w->array : &plain;
}

static dt_status check_bands(const dt_array_spec *spec, const dt_planes *p, int channels) {
    for (int i = 0; i < spec->n_bands; i++)
        if (spec->bands[i] >= p->n)
            return dt_fail(DT_E_DATA, "%s: no band %d: it has %lld, counted from 0", p->format, spec->bands[i],
                           (long long)p->n);
    int64_t n = spec->n_bands ? spec->n_bands : p->n;
    if (n == channels) return DT_OK;
    return dt_fail(DT_E_DATA,
                   "%s: %lld band%s where the field has channels: %d; choose with `bands`, or set "
                   "`channels` (and for NPY `layout`)",
                   p->format, (long long)n, n == 1 ? "" : "s", channels);
}

static void array_put_bytes(const float *v, size_t n, float factor, uint8_t *out, int channels) {
    for (size_t i = 0; i < n; i++) {
        float x = v[i] * factor + 0.5f;
        out[i * (size_t)channels] = (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
    }
}

// What bytes make of values that are not stretched: rounded, and cut to 0..255.
static void note_range(const float *v, size_t n, dt_image *out) {
    double limits[2];
    least_and_greatest(v, n, limits);
    bool kept = limits[0] > -0.5 && limits[1] < 255.5, whole = kept;
    for (size_t i = 0; i < n && whole; i++) whole = v[i] == rintf(v[i]);
    if (!whole) dt_image_note_levels(out, limits[0], limits[1], kept ? limits[1] - limits[0] : 0);
}

static dt_status array_fill(const dt_image_sink *sink, const dt_planes *p, dt_image *out) {
    const dt_array_spec *spec = dt_array_spec_of(sink->want);
    int channels = sink->want->channels;
    DT_TRY(dt_image_begin(sink, p->width, p->height, out));
    DT_TRY(dt_image_reserve(sink, out, spec->f32));
    size_t n = (size_t)p->width * (size_t)p->height;
    float *plane = (float *)dt_buffer_reserve(&sink->work[0], n * sizeof *plane);
    if (!plane) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    for (int c = 0; c < channels; c++) {
        DT_TRY(p->read(p->ctx, spec->n_bands ? spec->bands[c] : c, spec->origin[c], plane));
        DT_TRY(stretch_plane(spec, plane, n, &sink->work[1]));
        if (spec->f32)
            for (size_t i = 0; i < n; i++) out->real[i * (size_t)channels + (size_t)c] = plane[i];
        else if (spec->stretch == DT_STRETCH_none)
            note_range(plane, n, out), array_put_bytes(plane, n, 1, out->data + c, channels);
        else
            array_put_bytes(plane, n, 255, out->data + c, channels);
    }
    return DT_OK;
}

dt_status dt_planes_to_image(const dt_image_sink *sink, const dt_planes *p, dt_image *out) {
    dt_image_want want = *sink->want;
    dt_image_sink natural = {&want, sink->scratch, sink->work};
    if (want.channels > 0) {
        DT_TRY(check_bands(dt_array_spec_of(&want), p, want.channels));
        return array_fill(sink, p, out);
    }
    want.channels = p->n < DT_MAX_CHANNELS ? (int)p->n : DT_MAX_CHANNELS;
    return array_fill(&natural, p, out);
}
