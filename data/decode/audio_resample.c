// audio_resample.c: signals: resampling, segments, Fourier transforms.

#include "array.h"
#include "audio.h"
#include "fft.h"

#include "base/bits.h"
#include "base/core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- audio resample -----------------------------------------------------------------------------------------------

// Another sample rate by windowed-sinc interpolation.
//
// With both rates divided by their greatest common divisor, outputs j and j + to use the same weights on inputs
// that are `from` apart. So there are `to` phases, each a short row of weights and the place of its first
// input; torchaudio convolves with the whole period of `from` inputs, nearly all of them zeros. The weights are
// the same: sinc(t) * cos^2(pi t / 12) / max(1, from / to), t in zero crossings of a low-pass at 0.99 of the
// lower Nyquist frequency, none beyond six. Rows are padded with zeros to whole vectors. A dot product is
// summed in eight lanes in a fixed order, so the bits are the same on every ISA.
// Method: J. O. Smith, "Digital Audio Resampling" (https://ccrma.stanford.edu/~jos/resample/).

enum { ZERO_CROSSINGS = 6, MAX_TABLE = 2 << 20 };
static const double ROLLOFF = 0.99;

typedef float row8 __attribute__((vector_size(DT_LANES * sizeof(float)), aligned(4), may_alias));
typedef float quad __attribute__((vector_size(16)));

struct dt_resampler {
    int from, to;   // without common divisor
    int width;      // inputs on either side that a weight may reach
    int n_taps;     // a row's, a multiple of DT_LANES
    float *weights; // (to, n_taps)
    int *first;     // (to): the row's first input, from block * from - width
};

static int common_divisor(int a, int b) {
    while (b) {
        int t = a % b;
        a = b;
        b = t;
    }
    return a;
}

// The weight of input k (from -width) for output phase i.
static double weight(const dt_resampler *r, int i, int k) {
    double base = (r->from < r->to ? r->from : r->to) * ROLLOFF;
    double t = base * ((double)k / r->from - (double)i / r->to);
    if (fabs(t) >= ZERO_CROSSINGS) return 0; // the window ends
    double x = acos(-1.0) * t, c = cos(x / ZERO_CROSSINGS / 2);
    return (t == 0 ? 1 : sin(x) / x) * c * c * base / r->from; // base / from: the sum of the weights is near 1
}

static void audio_resample_fill_row(dt_resampler *r, int i) {
    // inputs k / from - i / to within +-crossings / base
    double base = (r->from < r->to ? r->from : r->to) * ROLLOFF;
    double centre = (double)i * r->from / r->to, reach = ZERO_CROSSINGS * (double)r->from / base;
    int first = (int)ceil(centre - reach), last = r->width + r->from - r->n_taps;
    if (first < -r->width) first = -r->width;
    if (first > last) first = last; // so that a row ends where the window does
    r->first[i] = first + r->width;
    for (int k = 0; k < r->n_taps; k++)
        r->weights[(size_t)i * (size_t)r->n_taps + (size_t)k] = (float)weight(r, i, first + k);
}

dt_resampler *dt_resampler_create(int from_rate, int to_rate) {
    int g = common_divisor(from_rate, to_rate);
    dt_resampler *r = dt_xcalloc(1, sizeof *r);
    r->from = from_rate / g;
    r->to = to_rate / g;
    double base = (r->from < r->to ? r->from : r->to) * ROLLOFF;
    r->width = (int)ceil(ZERO_CROSSINGS * r->from / base);
    int taps = 2 * r->width + 1;
    r->n_taps = (taps + DT_LANES - 1) / DT_LANES * DT_LANES;
    if ((int64_t)r->n_taps * r->to > MAX_TABLE) { // rates without a common divisor, such as 44100 to 44101
        free(r);
        return NULL;
    }
    // rounding up to whole vectors made rows longer than the window
    if (r->n_taps > 2 * r->width + r->from) r->width = (r->n_taps - r->from + 1) / 2;
    r->weights = dt_xcalloc((size_t)r->to * (size_t)r->n_taps, sizeof *r->weights);
    r->first = dt_xcalloc((size_t)r->to, sizeof *r->first);
    for (int i = 0; i < r->to; i++) audio_resample_fill_row(r, i);
    return r;
}

void dt_resampler_destroy(dt_resampler *r) {
    if (!r) return;
    free(r->weights);
    free(r->first);
    free(r);
}

int64_t dt_resampler_length(const dt_resampler *r, int64_t n) {
    return (n * r->to + r->from - 1) / r->from;
}

void dt_resampler_window(const dt_resampler *r, int64_t first, int64_t n, int64_t *begin, int64_t *end) {
    *begin = first / r->to * r->from - r->width; // whole blocks: `to` outputs stand for `from` inputs
    *end = (first + n - 1) / r->to * r->from + r->from + r->width;
}

VECTORIZED static void dot_rows(const dt_resampler *restrict r, const float *restrict src, int phase, int64_t n,
                                float *restrict out) {
    size_t n_taps = (size_t)r->n_taps;
    for (int64_t i = 0; i < n; i++) {
        const float *x = src + r->first[phase], *w = r->weights + (size_t)phase * n_taps;
        row8 sum = {0};
        for (size_t k = 0; k < n_taps; k += DT_LANES) sum += *(const row8 *)(x + k) * *(const row8 *)(w + k);
        quad a = __builtin_shufflevector(sum, sum, 0, 1, 2, 3) + __builtin_shufflevector(sum, sum, 4, 5, 6, 7);
        a += __builtin_shufflevector(a, a, 2, 3, -1, -1); // the fixed order: lanes l and l + 4, then pairs
        out[i] = a[0] + a[1];
        if (++phase == r->to) {
            phase = 0;
            src += r->from;
        }
    }
}

void dt_resampler_run(const dt_resampler *r, const float *src, int64_t first, int64_t n, float *out) {
    dot_rows(r, src, (int)(first % r->to), n, out);
}

// ---- audio segment ------------------------------------------------------------------------------------------------

// A segment of a sound, of the length and rate that the network wants.
//
// The place is chosen among the samples that the whole file would have at the wanted rate. Only the inputs that
// the segment needs are decoded: a second out of an hour of FLAC costs a seek. The result is the same as
// resampling the whole file and cutting. Channels are mixed before resampling.
//
// A worker keeps resampling tables for the last few rates; a new rate costs one table, once.

enum { MAX_TABLES = 8 };

struct dt_clipper {
    dt_audio_file *file;
    dt_buffer source; // samples before resampling
    struct {
        int from, to;
        dt_resampler *r;
    } table[MAX_TABLES];
    int n_made;
};

dt_clipper *dt_clipper_create(void) {
    dt_clipper *s = dt_xcalloc(1, sizeof *s);
    s->file = dt_audio_file_create();
    return s;
}

void dt_clipper_destroy(dt_clipper *s) {
    if (!s) return;
    dt_audio_file_destroy(s->file);
    dt_buffer_fini(&s->source);
    for (int i = 0; i < MAX_TABLES; i++) dt_resampler_destroy(s->table[i].r);
    free(s);
}

static dt_status find_table(dt_clipper *s, int from, double rate, const dt_resampler **out) {
    // thousandths of a hertz, where the rate is no whole number
    const int steps = rate == floor(rate) ? 1 : 1000, to = (int)llround(rate * steps);
    from *= steps;
    for (int i = 0; i < MAX_TABLES; i++)
        if (s->table[i].r && s->table[i].from == from && s->table[i].to == to) {
            *out = s->table[i].r;
            return DT_OK;
        }
    dt_resampler *r = dt_resampler_create(from, to);
    if (!r) return dt_fail(DT_E_DATA, "its rate of %d Hz is too uneven a multiple of %.6g Hz", from / steps, rate);
    int i = s->n_made++ % MAX_TABLES; // the oldest goes
    dt_resampler_destroy(s->table[i].r);
    s->table[i].from = from;
    s->table[i].to = to;
    s->table[i].r = r;
    *out = r;
    return DT_OK;
}

static dt_status audio_segment_resample(dt_clipper *s, const dt_resampler *r, const dt_audio_info *info,
                                        const dt_audio_clip *want, int64_t first, int64_t n, float *out,
                                        size_t stride) {
    int64_t begin, end;
    dt_resampler_window(r, first, n, &begin, &end);
    int64_t from = begin < 0 ? 0 : begin, to = end < info->n_samples ? end : info->n_samples;
    size_t row = (size_t)(end - begin);
    if (end - begin > DT_AUDIO_MAX_SAMPLES / want->channels)
        return dt_fail(DT_E_DATA, "%lld samples at %d Hz in a segment", (long long)(end - begin), info->rate);
    float *source = (float *)dt_buffer_reserve(&s->source, row * (size_t)want->channels * sizeof(float));
    if (!source) return dt_fail(DT_E_INTERNAL, "out of memory for audio");
    DT_TRY(dt_audio_file_read(s->file, from, to - from, want->channels, source + (from - begin), row));
    for (int c = 0; c < want->channels; c++) {
        float *x = source + (size_t)c * row;
        memset(x, 0, (size_t)(from - begin) * sizeof *x); // before the first sample and behind the last one is silence
        memset(x + (to - begin), 0, (size_t)(end - to) * sizeof *x);
        dt_resampler_run(r, x, first, n, out + (size_t)c * stride);
    }
    return DT_OK;
}

// Fills samples n_have.. of a row that has its first n_have.
static void audio_segment_pad_row(float *x, int64_t n_have, int64_t n, dt_audio_pad pad) {
    if (pad == DT_PAD_zero) {
        memset(x + n_have, 0, (size_t)(n - n_have) * sizeof *x);
        return;
    }
    int64_t period = pad == DT_PAD_wrap || n_have == 1 ? n_have : 2 * (n_have - 1);
    for (int64_t i = n_have; i < n; i++) {
        int64_t k = i < period ? period - i : i - period; // mirrored once, then with the period
        x[i] = pad == DT_PAD_wrap ? x[i - n_have] : x[k];
    }
}

dt_status dt_clipper_run(dt_clipper *s, dt_span bytes, const dt_audio_clip *want, uint64_t at, float *out,
                         size_t stride) {
    dt_audio_info info;
    const dt_resampler *r = NULL;
    if (dt_series_is(bytes))
        DT_TRY(dt_audio_file_open_series(s->file, bytes, want, &info));
    else
        DT_TRY(dt_audio_file_open(s->file, bytes, &info));
    if (info.rate != 0 && info.rate != want->rate) DT_TRY(find_table(s, info.rate, want->rate, &r));
    int64_t all = r ? dt_resampler_length(r, info.n_samples) : info.n_samples;
    int64_t n = all < want->n_samples ? all : want->n_samples, places = all - n + 1;
    int64_t first = (places - 1) / 2;
    if (at != DT_CLIP_CENTRE) first = (int64_t)((__uint128_t)at * (uint64_t)places >> 32);
    if (r)
        DT_TRY(audio_segment_resample(s, r, &info, want, first, n, out, stride));
    else
        DT_TRY(dt_audio_file_read(s->file, first, n, want->channels, out, stride));
    for (int c = 0; c < want->channels; c++)
        audio_segment_pad_row(out + (size_t)c * stride, n, want->n_samples, want->pad);
    return DT_OK;
}

// ---- fft ----------------------------------------------------------------------------------------------------------

// Real discrete Fourier transforms of eight frames at once, to power spectra.
//
// An even number n of real points is taken as n/2 complex ones: a complex transform, then one pass of
// butterflies for the spectrum. An odd n is transformed as complex numbers without imaginary part. The complex
// transform is Stockham's, which sorts itself while it alternates between two blocks, one factor of the length
// per pass: 4 as long as there is one, then 2, 3, 5, and any prime up to 127 by its definition with half the
// multiplications (pairs k, r-k share them). So 25 ms at 44.1 kHz (1102 = 2 * 19 * 29) needs no special case.
// FFTW is not used: it is GPL.
//
// Each pass is one sweep over n * 8 floats, about log4(n) in all: 16 KiB at n = 512, which stay in the L1
// cache. Twiddles are computed in double and rounded once. The error is that of the float additions: below 1e-6
// of the frame's largest value (test_fft in tests/unit/data/test_audio.c).
// Sources: Stockham 1966; Swarztrauber, "FFT algorithms for vector computers", 1984.

enum { MAX_PASSES = 32 };

struct dt_fft {
    int n, n_complex, n_passes;
    int radix[MAX_PASSES];
    float *twiddle[MAX_PASSES]; // (m, radix - 1, 2): powers of the pass's root
    float *roots[MAX_PASSES];   // odd radix: (radix, 2) cos and sin of 2 pi j / radix
    float *split;               // even n: (n / 4 + 1, 2): exp(-2 pi i k / n)
};

// ---- plans -----------------------------------------------------------------------------------------
static int largest_prime(int n) {
    int p = 1;
    for (int d = 2; n > 1; d++)
        for (; n % d == 0; n /= d) p = d;
    return p;
}

bool dt_fft_has_size(int n) {
    return n >= 2 && n <= DT_FFT_MAX && largest_prime(n) <= DT_FFT_MAX_PRIME;
}

static int next_radix(int n) {
    if (n % 4 == 0) return 4;
    for (int d = 2;; d++)
        if (n % d == 0) return d;
}

static float *make_twiddles(int n, int radix) {
    int m = n / radix;
    float *w = dt_xcalloc((size_t)m * (size_t)(radix - 1) * 2, sizeof *w), *at = w;
    for (int p = 0; p < m; p++)
        for (int k = 1; k < radix; k++) {
            double angle = 2 * acos(-1.0) * ((double)p * k) / n;
            *at++ = (float)cos(angle);
            *at++ = (float)-sin(angle);
        }
    return w;
}

static float *make_roots(int radix) {
    float *w = dt_xcalloc((size_t)radix * 2, sizeof *w);
    for (int j = 0; j < radix; j++) {
        w[2 * j] = (float)cos(2 * acos(-1.0) * j / radix);
        w[2 * j + 1] = (float)sin(2 * acos(-1.0) * j / radix);
    }
    return w;
}

dt_fft *dt_fft_create(int n) {
    dt_fft *f = dt_xcalloc(1, sizeof *f);
    f->n = n;
    f->n_complex = n % 2 == 0 ? n / 2 : n;
    for (int left = f->n_complex; left > 1;) {
        int radix = next_radix(left), i = f->n_passes++;
        f->radix[i] = radix;
        f->twiddle[i] = make_twiddles(left, radix);
        if (radix % 2) f->roots[i] = make_roots(radix);
        left /= radix;
    }
    if (n % 2) return f;
    f->split = dt_xcalloc((size_t)(n / 4 + 1) * 2, sizeof(float));
    for (int k = 0; k <= n / 4; k++) {
        f->split[2 * k] = (float)cos(2 * acos(-1.0) * k / n);
        f->split[2 * k + 1] = (float)-sin(2 * acos(-1.0) * k / n);
    }
    return f;
}

void dt_fft_destroy(dt_fft *f) {
    if (!f) return;
    for (int i = 0; i < f->n_passes; i++) {
        free(f->twiddle[i]);
        free(f->roots[i]);
    }
    free(f->split);
    free(f);
}

size_t dt_fft_work(const dt_fft *f) {
    return 2 * (size_t)f->n_complex;
}

// ---- passes ----------------------------------------------------------------------------------------
// A pass of radix r over sub-transforms of length r*m, s of them interleaved: input j of butterfly
// (p, q) is complex number q + s*(p + j*m), output k is q + s*(r*p + k), times the root's power p*k.
// A complex number is two vectors: real and imaginary parts of eight lanes.
#define PUT(to, k, re, im)                                                                                             \
    do {                                                                                                               \
        dt_lanes re_ = (re), im_ = (im);                                                                               \
        float c_ = w[2 * (k)-2], s_ = w[2 * (k)-1];                                                                    \
        (to)[0] = re_ * c_ - im_ * s_;                                                                                 \
        (to)[1] = re_ * s_ + im_ * c_;                                                                                 \
    } while (0)

VECTORIZED static void pass4(const dt_lanes *restrict x, dt_lanes *restrict y, const float *restrict w, size_t m,
                             size_t s) {
    for (size_t p = 0; p < m; p++, w += 6)
        for (size_t q = 0; q < s; q++) {
            const dt_lanes *a = x + 2 * (q + s * p), *b = a + 2 * s * m, *c = b + 2 * s * m, *d = c + 2 * s * m;
            dt_lanes *o = y + 2 * (q + s * 4 * p);
            dt_lanes sr = a[0] + c[0], si = a[1] + c[1], tr = a[0] - c[0], ti = a[1] - c[1];
            dt_lanes ur = b[0] + d[0], ui = b[1] + d[1], vr = b[0] - d[0], vi = b[1] - d[1];
            o[0] = sr + ur;
            o[1] = si + ui;
            PUT(o + 2 * s, 1, tr + vi, ti - vr);
            PUT(o + 4 * s, 2, sr - ur, si - ui);
            PUT(o + 6 * s, 3, tr - vi, ti + vr);
        }
}

VECTORIZED static void pass2(const dt_lanes *restrict x, dt_lanes *restrict y, const float *restrict w, size_t m,
                             size_t s) {
    for (size_t p = 0; p < m; p++, w += 2)
        for (size_t q = 0; q < s; q++) {
            const dt_lanes *a = x + 2 * (q + s * p), *b = a + 2 * s * m;
            dt_lanes *o = y + 2 * (q + s * 2 * p);
            o[0] = a[0] + b[0];
            o[1] = a[1] + b[1];
            PUT(o + 2 * s, 1, a[0] - b[0], a[1] - b[1]);
        }
}

// Any odd radix by its definition: with t = a[j] + a[r-j] and d = a[j] - a[r-j], outputs k and r-k are
// A -/+ iB, A = a[0] + sum t cos(2 pi j k / r), B = sum d sin(2 pi j k / r).
#define PASS_ODD(name, R, MAX)                                                                                         \
    VECTORIZED static void name(const dt_lanes *restrict x, dt_lanes *restrict y, const float *restrict w,             \
                                const float *restrict root, size_t radix, size_t m, size_t s) {                        \
        dt_lanes tr[(MAX) / 2 + 1], ti[(MAX) / 2 + 1], dr[(MAX) / 2 + 1], di[(MAX) / 2 + 1];                           \
        for (size_t p = 0; p < m; p++, w += 2 * ((R)-1))                                                               \
            for (size_t q = 0; q < s; q++) {                                                                           \
                const dt_lanes *a = x + 2 * (q + s * p);                                                               \
                dt_lanes *o = y + 2 * (q + s * (R)*p);                                                                 \
                dt_lanes zr = a[0], zi = a[1], sum_r = zr, sum_i = zi;                                                 \
                for (size_t j = 1; j <= (R) / 2; j++) {                                                                \
                    const dt_lanes *b = a + 2 * s * m * j, *c = a + 2 * s * m * ((R)-j);                               \
                    tr[j] = b[0] + c[0], ti[j] = b[1] + c[1];                                                          \
                    dr[j] = b[0] - c[0], di[j] = b[1] - c[1];                                                          \
                    sum_r += tr[j], sum_i += ti[j];                                                                    \
                }                                                                                                      \
                o[0] = sum_r, o[1] = sum_i;                                                                            \
                for (size_t k = 1; k <= (R) / 2; k++) {                                                                \
                    dt_lanes ar = zr, ai = zi, br = {0}, bi = {0};                                                     \
                    for (size_t j = 1, e = k; j <= (R) / 2; j++) {                                                     \
                        ar += tr[j] * root[2 * e], ai += ti[j] * root[2 * e];                                          \
                        br += dr[j] * root[2 * e + 1], bi += di[j] * root[2 * e + 1];                                  \
                        e += k;                                                                                        \
                        if (e >= (R)) e -= (R);                                                                        \
                    }                                                                                                  \
                    PUT(o + 2 * s * k, k, ar + bi, ai - br);                                                           \
                    PUT(o + 2 * s * ((R)-k), (R)-k, ar - bi, ai + br);                                                 \
                }                                                                                                      \
            }                                                                                                          \
    }
PASS_ODD(pass3, 3, 3)
PASS_ODD(pass5, 5, 5)
PASS_ODD(pass_prime, radix, DT_FFT_MAX_PRIME)

// ---- the spectrum of real points -------------------------------------------------------------------
// Z is the transform of x[2j] + i x[2j+1]. With E = (Z[k] + conj Z[m-k]) / 2 and O = (Z[k] - conj
// Z[m-k]) / 2i: X[k] = E + root^k O and X[m-k] = conj(E - root^k O).
VECTORIZED static void split_power(const dt_lanes *restrict z, const float *restrict w, size_t m,
                                   dt_lanes *restrict power) {
    dt_lanes first = z[0] + z[1], last = z[0] - z[1];
    power[0] = first * first;
    power[m] = last * last;
    for (size_t k = 1; k <= m / 2; k++) {
        const dt_lanes *a = z + 2 * k, *b = z + 2 * (m - k);
        dt_lanes er = a[0] + b[0], ei = a[1] - b[1], gr = a[1] + b[1], gi = b[0] - a[0];
        float c = w[2 * k], s = w[2 * k + 1];
        dt_lanes tr = gr * c - gi * s, ti = gr * s + gi * c;
        dt_lanes xr = er + tr, xi = ei + ti, yr = er - tr, yi = ei - ti;
        power[k] = (xr * xr + xi * xi) * 0.25f;
        power[m - k] = (yr * yr + yi * yi) * 0.25f;
    }
}

VECTORIZED static void plain_power(const dt_lanes *restrict z, size_t n_bins, dt_lanes *restrict power) {
    for (size_t k = 0; k < n_bins; k++) power[k] = z[2 * k] * z[2 * k] + z[2 * k + 1] * z[2 * k + 1];
}

static void fft_widen(dt_lanes *x, size_t n) { // in place: to complex numbers without imaginary part
    for (size_t i = n; i-- > 0;) {
        x[2 * i] = x[i];
        x[2 * i + 1] = (dt_lanes){0};
    }
}

void dt_fft_power(const dt_fft *f, dt_lanes *x, dt_lanes *y, dt_lanes *power) {
    size_t m = (size_t)f->n_complex, s = 1;
    if (!f->split) fft_widen(x, m);
    for (int i = 0; i < f->n_passes; i++) {
        size_t radix = (size_t)f->radix[i];
        const float *w = f->twiddle[i], *root = f->roots[i];
        m /= radix;
        if (radix == 4)
            pass4(x, y, w, m, s);
        else if (radix == 2)
            pass2(x, y, w, m, s);
        else if (radix == 3)
            pass3(x, y, w, root, 3, m, s);
        else if (radix == 5)
            pass5(x, y, w, root, 5, m, s);
        else
            pass_prime(x, y, w, root, radix, m, s);
        s *= radix;
        dt_lanes *t = x;
        x = y;
        y = t;
    }
    if (f->split)
        split_power(x, f->split, (size_t)f->n_complex, power);
    else
        plain_power(x, (size_t)f->n / 2 + 1, power);
}
