// audio_resample.c: another sample rate by windowed-sinc interpolation.
//
// With both rates divided by their greatest common divisor, outputs j and j + to use the same weights on inputs
// that are `from` apart. So there are `to` phases, each a short row of weights and the place of its first
// input; torchaudio convolves with the whole period of `from` inputs, nearly all of them zeros. The weights are
// the same: sinc(t) * cos^2(pi t / 12) / max(1, from / to), t in zero crossings of a low-pass at 0.99 of the
// lower Nyquist frequency, none beyond six. Rows are padded with zeros to whole vectors. A dot product is
// summed in eight lanes in a fixed order, so the bits are the same on every ISA.
// Method: J. O. Smith, "Digital Audio Resampling" (https://ccrma.stanford.edu/~jos/resample/).
#include "audio.h"
#include "fft.h"

#include "base/arena.h"
#include "base/vectorize.h"

#include <math.h>
#include <stdlib.h>

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
    if (fabs(t) >= ZERO_CROSSINGS) return 0;
    double x = acos(-1.0) * t, c = cos(x / ZERO_CROSSINGS / 2);
    return (t == 0 ? 1 : sin(x) / x) * c * c * base / r->from;
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
    if ((int64_t)r->n_taps * r->to > MAX_TABLE) {
        free(r);
        return NULL;
    }
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
    *begin = first / r->to * r->from - r->width;
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
        a += __builtin_shufflevector(a, a, 2, 3, -1, -1);
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
