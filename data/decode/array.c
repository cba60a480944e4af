// array.c: arrays as images, and the NPY format.

#include "array.h"

#include "base/bits.h"
#include "base/sort.h"
#include "base/stated.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- array --------------------------------------------------------------------------------------------------------

// Planes of numbers to pixels.
//
// Planes are read, stretched and put into their channel one after another, so scratch holds one plane whatever
// the file holds. Floats go directly to the batch slot if the size is right.

// A stretch's two halves are independent: which values become 0 and 1 (given, least and greatest, or zscale's
// limits), and the curve between them (a line, or asinh, which is a line near 0 and a logarithm far from it).
// Computed in double and rounded once, so that the bits do not depend on the library's float functions.
// ---- zscale ------------------------------------------------------------------------------------------
enum { N_SAMPLES = 1000, MIN_SAMPLES = 5, MAX_ROUNDS = 5 };
static const double CONTRAST = 0.25, MAX_REJECTED = 0.5, REJECT_SIGMAS = 2.5;

// Every k-th finite value, so that there are N_SAMPLES or, of fewer than two thousand, the first of them.
static int take_samples(const float *v, size_t n, float *out) {
    size_t n_finite = 0, step, at = 0;
    int taken = 0;
    for (size_t i = 0; i < n; i++) n_finite += isfinite(v[i]) != 0;
    step = n_finite / N_SAMPLES ? n_finite / N_SAMPLES : 1; // spread over the image, as zscale takes them
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
    // the deviation of what is left, about its own mean
    double threshold = REJECT_SIGMAS * sqrt(k > 0 ? squares / k : 0);
    for (int i = 0; i < n; i++) far[i] = bad[i] || fabs((double)v[i] - (l.slope * i + l.offset)) > threshold;
    int grow = n / 100 > 1 ? n / 100 : 1, n_good = 0; // one sample of a hundred
    for (int i = 0; i < n; i++) {                     // the window of numpy's convolve(mode="same")
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
    if (n_good < least) return; // no line fits: the limits of all values
    double median = n % 2 ? (double)v[n / 2] : ((double)v[n / 2 - 1] + (double)v[n / 2]) / 2;
    double slope = l.slope / CONTRAST;
    int center = (n - 1) / 2; // astropy counts positions from here
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
    qsort(samples, (size_t)taken, sizeof *samples, dt_sort_floats);
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
        // one value alone: 0, and above it 1
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
    bool kept = limits[0] > -0.5 && limits[1] < 255.5, whole = kept; // they round to a byte
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
    // a check of the file: all bands, whatever the field wants
    want.channels = p->n < DT_MAX_CHANNELS ? (int)p->n : DT_MAX_CHANNELS;
    return array_fill(&natural, p, out);
}

// ---- npy ----------------------------------------------------------------------------------------------------------

// The header of a NumPy array file, and its elements.
//
// A magic number, a version, the header's length, and a Python dictionary as text: {'descr': '<f4',
// 'fortran_order': False, 'shape': (3, 4), }. The parser accepts just that: three keys in any order, a type of
// one letter and a size, a tuple of whole numbers. Python objects (pickles), records and text are refused. All
// elements must be there, so that reading them needs no further check.
// Format: NumPy Enhancement Proposal 1 and numpy.lib.format, versions 1.0, 2.0 and 3.0.

typedef struct cursor {
    const char *p, *end;
} cursor;

static dt_status npy_broken(const char *what) {
    return dt_fail(DT_E_DATA, "NPY: %s", what);
}

static void npy_skip_space(cursor *c) {
    while (c->p < c->end && strchr(" \t\r\n", *c->p) && *c->p) c->p++;
}

static bool npy_take(cursor *c, char wanted) {
    npy_skip_space(c);
    if (c->p == c->end || *c->p != wanted) return false;
    c->p++;
    return true;
}

// 'text' or "text" -> a copy.
static bool npy_take_text(cursor *c, char *out, size_t cap) {
    npy_skip_space(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"')) return false;
    char quote = *c->p++;
    size_t n = 0;
    while (c->p < c->end && *c->p != quote && n + 1 < cap) out[n++] = *c->p++;
    out[n] = '\0';
    return npy_take(c, quote);
}

static bool take_number(cursor *c, int64_t *out) {
    npy_skip_space(c);
    const char *begin = c->p;
    int64_t v = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9' && v < (int64_t)1 << 48; c->p++) v = v * 10 + (*c->p - '0');
    *out = v;
    return c->p > begin;
}

static bool take_shape(cursor *c, dt_npy *a) {
    if (!npy_take(c, '(')) return false;
    a->n_axes = 0;
    while (!npy_take(c, ')')) {
        if (a->n_axes == DT_NPY_MAX_AXES || !take_number(c, &a->shape[a->n_axes])) return false;
        a->n_axes++;
        if (!npy_take(c, ',')) return npy_take(c, ')');
    }
    return true;
}

static bool take_word(cursor *c, const char *word) {
    size_t n = strlen(word);
    npy_skip_space(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0) return false;
    c->p += n;
    return true;
}

// '<f4', '|u1', …
static dt_status read_type(dt_npy *a, const char *t) {
    bool order = strchr("<>|=", t[0]) && t[0], sized = order && t[1] && t[2] && !t[3];
    a->kind = order ? t[1] : t[0];
    a->size = sized ? t[2] - '0' : 0;
    a->swapped = t[0] == '>' && a->size > 1;
    if (a->kind == 'O') return npy_broken("Python objects (pickle) are never read; save numbers");
    bool whole = a->kind == 'i' || a->kind == 'u';
    bool known = (whole && (a->size == 1 || a->size == 2 || a->size == 4 || a->size == 8)) ||
                 (a->kind == 'f' && (a->size == 4 || a->size == 8)) || (a->kind == 'b' && a->size == 1);
    return known ? DT_OK
                 : dt_fail(DT_E_DATA,
                           "NPY: elements of type '%s': expected bool, i1 to i8, u1 to "
                           "u8, f4 or f8",
                           t);
}

static dt_status read_dictionary(cursor *c, dt_npy *a, bool *fortran) {
    char key[32], type[32];
    unsigned seen = 0;
    if (!npy_take(c, '{')) return npy_broken("its header is no dictionary");
    while (!npy_take(c, '}')) {
        if (!npy_take_text(c, key, sizeof key) || !npy_take(c, ':')) return npy_broken("a damaged header");
        if (strcmp(key, "descr") == 0) {
            npy_skip_space(c);
            if (c->p < c->end && *c->p == '[')
                return npy_broken("an array of records; save its columns as arrays of numbers");
            if (!npy_take_text(c, type, sizeof type)) return npy_broken("a damaged type in the header");
            DT_TRY(read_type(a, type));
            seen |= 1;
        } else if (strcmp(key, "fortran_order") == 0) {
            *fortran = take_word(c, "True");
            if (!*fortran && !take_word(c, "False")) return npy_broken("a damaged order in the header");
            seen |= 2;
        } else if (strcmp(key, "shape") == 0) {
            if (!take_shape(c, a)) return npy_broken("a damaged shape in the header");
            seen |= 4;
        } else {
            return dt_fail(DT_E_DATA, "NPY: unknown key '%s' in the header", key);
        }
        if (!npy_take(c, ',')) {
            if (!npy_take(c, '}')) return npy_broken("a damaged header");
            break;
        }
    }
    return seen == 7 ? DT_OK : npy_broken("its header lacks descr, fortran_order or shape");
}

static dt_status set_strides(dt_npy *a, bool fortran, size_t n_bytes) {
    for (int k = 0; k < a->n_axes; k++)
        if (a->shape[k] == 0) return npy_broken("an array without elements: its shape has a 0");
    size_t n = 1;
    bool whole = dt_stated_size(1, (uint64_t)a->size, n_bytes, &n); // of a scalar
    n = 1;
    for (int k = 0; k < a->n_axes && whole; k++) {
        int axis = fortran ? k : a->n_axes - 1 - k;
        a->stride[axis] = (int64_t)n;
        whole = dt_stated_size(n, (uint64_t)a->shape[axis], n_bytes / (size_t)a->size, &n);
    }
    a->n = (int64_t)n;
    return whole ? DT_OK : npy_broken("cut: its elements are not all there");
}

bool dt_npy_is(dt_span s) {
    return s.n_bytes >= 6 && memcmp(s.data, "\x93NUMPY", 6) == 0;
}

dt_status dt_npy_read(dt_span s, dt_npy *out) {
    *out = (dt_npy){.kind = 0};
    if (!dt_npy_is(s) || s.n_bytes < 12) return npy_broken("cut in its header");
    int version = s.data[6];
    if (version < 1 || version > 3) return dt_fail(DT_E_DATA, "NPY: version %d.%d is not known", version, s.data[7]);
    size_t at = version == 1 ? 10 : 12;
    size_t n = version == 1 ? dt_le16(s.data + 8) : dt_le32(s.data + 8);
    if (n > s.n_bytes - at) return npy_broken("cut in its header");
    const char *text = (const char *)s.data + at;
    cursor c = {text, text + n};
    bool fortran = false;
    DT_TRY(read_dictionary(&c, out, &fortran));
    out->data = s.data + at + n;
    return set_strides(out, fortran, s.n_bytes - at - n);
}

double dt_npy_get(const dt_npy *a, int64_t at) {
    const uint8_t *p = a->data + at * a->size;
    uint64_t v = 0;
    float f;
    double d;
    for (int i = 0; i < a->size; i++) v |= (uint64_t)p[a->swapped ? a->size - 1 - i : i] << 8 * i;
    if (a->kind == 'f' && a->size == 4) {
        uint32_t bits = (uint32_t)v;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
    if (a->kind == 'f') {
        memcpy(&d, &v, sizeof d);
        return d;
    }
    int shift = 64 - 8 * a->size; // sign
    return a->kind == 'i' ? (double)((int64_t)(v << shift) >> shift) : (double)v;
}
