// audio_features.c: spectrograms, mel spectrograms, their logarithms, and MFCCs.
//
// The segment lies in a row with room for mirrored edges, so a frame is always n_fft samples at t * hop. Frames
// are taken eight at a time: transposed by blocks of 4 x 4 into (n_fft, LANES), windowed and transformed
// (audio_resample.c). Each band of the filter bank is a triangle over few bins and is summed in bin order. The eight
// results are neighbours in an output row. Logarithm and cosine transform follow on rows of all frames. Lanes
// never mix; where fewer than eight frames are left, the last one is repeated and the repeats are not stored.
//
// Numbers: windows, triangles, twiddles and the cosine matrix are computed in double and rounded once. The
// logarithm is a polynomial, at most 2 units in the last place off: about fifteen additions and multiplications
// in any vector width, and the same bits everywhere, which libm does not promise. Mel power agrees with librosa
// and torchaudio to 1e-5 of each value in golden tests; docs/reference/audio.md says which options correspond to which.
// Sources: Davis & Mermelstein 1980 (MFCC); HTK book 5.4 and Slaney, "Auditory Toolbox", 1998 (the two mel
// scales); the polynomial is that of Cephes' logf (Moshier).
#include "audio.h"
#include "fft.h"

#include "base/bits.h"
#include "base/core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef float lanes_at __attribute__((vector_size(DT_LANES * sizeof(float)), aligned(4), may_alias));

typedef struct band {
    int first, n; // bins
    int weights;  // index of the band's first weight
} band;

struct dt_features {
    dt_feature_opts o;
    int64_t n_frames, rows; // rows of the output
    int n_bins, edge;       // edge: samples in front of and behind the segment
    dt_fft *fft;
    float *window; // (n_fft)
    band *bands;   // n_mels
    float *weights;
    float *cosine; // (n_mfcc, n_mels)
};

// ---- plans -----------------------------------------------------------------------------------------
static bool has_bands(const dt_features *f) {
    return f->o.kind >= DT_FEATURE_mel;
}

static double mel_of(double hz, bool htk) {
    if (htk) return 2595 * log10(1 + hz / 700);
    return hz < 1000 ? hz * 3 / 200 : 15 + log(hz / 1000) * 27 / log(6.4);
}

static double hz_of(double mel, bool htk) {
    if (htk) return 700 * (pow(10, mel / 2595) - 1);
    return mel < 15 ? mel * 200 / 3 : 1000 * exp((mel - 15) * log(6.4) / 27);
}

double dt_features_hz(const dt_features *f, double share) {
    const dt_feature_opts *o = &f->o;
    if (o->kind == DT_FEATURE_waveform || o->kind == DT_FEATURE_mfcc) return NAN;
    if (!has_bands(f)) return share * o->rate / 2; // of the transform's bins
    const double low = mel_of(o->f_min, o->htk);
    return hz_of(low + share * (mel_of(o->f_max, o->htk) - low), o->htk);
}

// Band m rises from point m to m + 1 and falls to m + 2, points being even in mel.
static void make_bands(dt_features *f) {
    const dt_feature_opts *o = &f->o;
    double low = mel_of(o->f_min, o->htk), high = mel_of(o->f_max, o->htk);
    size_t n_weights = 0;
    double *point = dt_xcalloc((size_t)o->n_mels + 2, sizeof *point);
    for (int i = 0; i < o->n_mels + 2; i++) point[i] = hz_of(low + (high - low) * i / (o->n_mels + 1), o->htk);
    f->bands = dt_xcalloc((size_t)o->n_mels, sizeof *f->bands);
    f->weights = dt_xcalloc((size_t)f->n_bins * 3 + 1, sizeof *f->weights);
    for (int m = 0; m < o->n_mels; m++) {
        double a = point[m], b = point[m + 1], c = point[m + 2];
        band *to = &f->bands[m];
        to->weights = (int)n_weights;
        for (int k = 0; k < f->n_bins; k++) {
            double hz = (double)k * o->rate / o->n_fft;
            double up = (hz - a) / (b - a), down = (c - hz) / (c - b), w = up < down ? up : down;
            if (!(w > 0)) continue;
            if (to->n == 0) to->first = k;
            to->n = k - to->first + 1;
            f->weights[n_weights++] = (float)(o->slaney_norm ? w * 2 / (c - a) : w);
        }
    }
    free(point);
}

// DCT-II, orthonormal.
static void make_cosine(dt_features *f) {
    int n = f->o.n_mels;
    f->cosine = dt_xcalloc((size_t)f->o.n_mfcc * (size_t)n, sizeof *f->cosine);
    for (int k = 0; k < f->o.n_mfcc; k++)
        for (int m = 0; m < n; m++)
            f->cosine[k * n + m] =
                (float)(cos(acos(-1.0) * k * (2 * m + 1) / (2.0 * n)) * sqrt((k == 0 ? 1.0 : 2.0) / n));
}

static int near_size(int n) {
    while (n < DT_FFT_MAX && !dt_fft_has_size(n)) n++;
    return n;
}

static dt_status audio_features_check(const dt_feature_opts *o) {
    int edge = o->center ? o->n_fft / 2 : 0;
    if (o->n_samples < 1 || o->n_samples > DT_AUDIO_MAX_SAMPLES / o->channels)
        return dt_fail(DT_E_USAGE, "a segment of %lld samples; expected 1 to %d", (long long)o->n_samples,
                       DT_AUDIO_MAX_SAMPLES / o->channels);
    if (o->kind == DT_FEATURE_waveform) return DT_OK;
    if (!dt_fft_has_size(o->n_fft))
        return dt_fail(DT_E_USAGE, "n_fft: %d has a prime factor above %d; the next size without is %d", o->n_fft,
                       DT_FFT_MAX_PRIME, near_size(o->n_fft));
    if (o->window < 1 || o->window > o->n_fft)
        return dt_fail(DT_E_USAGE, "window: %d; expected at most n_fft, which is %d", o->window, o->n_fft);
    if (o->center && o->reflect && o->n_samples <= edge)
        return dt_fail(DT_E_USAGE, "a segment of %lld samples is too short to mirror n_fft / 2 = %d of them",
                       (long long)o->n_samples, edge);
    if (o->n_samples + 2 * edge < o->n_fft)
        return dt_fail(DT_E_USAGE, "a segment of %lld samples is shorter than n_fft, which is %d",
                       (long long)o->n_samples, o->n_fft);
    if (o->kind < DT_FEATURE_mel) return DT_OK;
    if (!(o->f_min >= 0 && o->f_min < o->f_max && o->f_max <= o->rate / 2.0))
        return dt_fail(DT_E_USAGE, "f_min %g and f_max %g: expected 0 <= f_min < f_max <= half the rate, %g", o->f_min,
                       o->f_max, o->rate / 2.0);
    if (o->kind == DT_FEATURE_mfcc && o->n_mfcc > o->n_mels)
        return dt_fail(DT_E_USAGE, "n_mfcc: %d; expected at most n_mels, which is %d", o->n_mfcc, o->n_mels);
    return DT_OK;
}

dt_status dt_features_create(dt_features **out, const dt_feature_opts *o) {
    *out = NULL;
    DT_TRY(audio_features_check(o));
    dt_features *f = dt_xcalloc(1, sizeof *f);
    f->o = *o;
    f->rows = 1;
    f->n_frames = o->n_samples;
    *out = f;
    if (o->kind == DT_FEATURE_waveform) return DT_OK;
    f->edge = o->center ? o->n_fft / 2 : 0;
    f->n_bins = o->n_fft / 2 + 1;
    f->n_frames = 1 + (o->n_samples + 2 * f->edge - o->n_fft) / o->hop; // whole frames only
    f->rows = o->kind == DT_FEATURE_mfcc ? o->n_mfcc : has_bands(f) ? o->n_mels : f->n_bins;
    f->fft = dt_fft_create(o->n_fft);
    f->window = dt_xcalloc((size_t)o->n_fft, sizeof *f->window);
    float *w = f->window + (o->n_fft - o->window) / 2; // a shorter window lies in the middle, as torch.stft pads it
    // Hann, periodic
    for (int i = 0; i < o->window; i++) w[i] = (float)(0.5 - 0.5 * cos(2 * acos(-1.0) * i / o->window));
    if (has_bands(f)) make_bands(f);
    if (o->kind == DT_FEATURE_mfcc) make_cosine(f);
    return DT_OK;
}

void dt_features_destroy(dt_features *f) {
    if (!f) return;
    dt_fft_destroy(f->fft);
    free(f->window);
    free(f->bands);
    free(f->weights);
    free(f->cosine);
    free(f);
}

int dt_features_empty_bands(const dt_features *f) {
    int n = 0;
    for (int m = 0; f->bands && m < f->o.n_mels; m++) n += f->bands[m].n == 0;
    return n;
}

void dt_features_shape(const dt_features *f, int64_t *rows, int64_t *columns) {
    *rows = f->rows;
    *columns = f->n_frames;
}

// ---- scratch ---------------------------------------------------------------------------------------
static void *aligned(dt_buffer *b, size_t n_bytes) {
    uint8_t *p = dt_buffer_reserve(b, n_bytes + 64);
    return p ? p + (64 - (uintptr_t)p % 64) % 64 : NULL;
}

static size_t audio_features_row_length(const dt_features *f) {
    return (size_t)(f->o.n_samples + 2 * f->edge);
}

dt_status dt_features_begin(const dt_features *f, dt_feature_scratch *w, float **signal, size_t *stride) {
    *stride = audio_features_row_length(f);
    w->rows = aligned(&w->signal, *stride * (size_t)f->o.channels * sizeof *w->rows);
    if (!w->rows) return dt_fail(DT_E_INTERNAL, "out of memory for audio");
    *signal = w->rows + f->edge; // room for the mirrored edge on either side
    return DT_OK;
}

void dt_feature_scratch_fini(dt_feature_scratch *w) {
    dt_buffer_fini(&w->signal);
    dt_buffer_fini(&w->work);
    dt_buffer_fini(&w->plane);
}

// ---- frames ----------------------------------------------------------------------------------------
// What np.pad(mode="reflect") and torch.stft(pad_mode="reflect") do, or zeros.
static void fill_edges(const dt_features *f, float *row) {
    float *x = row + f->edge, *end = x + f->o.n_samples;
    for (int i = 1; i <= f->edge; i++) {
        x[-i] = f->o.reflect ? x[i] : 0;
        end[i - 1] = f->o.reflect ? end[-i - 1] : 0;
    }
}

// Eight windowed frames, `hop` apart: (n, LANES). Where fewer are left the last one is repeated.
VECTORIZED static void load_frames(const float *restrict x, const float *restrict w, int n, size_t hop, size_t n_valid,
                                   dt_lanes *restrict to) {
    const float *row[DT_LANES];
    float *out = (float *)to;
    for (size_t l = 0; l < DT_LANES; l++) row[l] = x + hop * (l < n_valid ? l : n_valid - 1);
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int h = 0; h < DT_LANES; h += 4) { // a transposition of 4 x 4: four samples of four frames
            quad a = *(const quad *)(row[h] + i), b = *(const quad *)(row[h + 1] + i);
            quad c = *(const quad *)(row[h + 2] + i), d = *(const quad *)(row[h + 3] + i);
            quad e = __builtin_shufflevector(a, b, 0, 4, 1, 5);
            quad g = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            quad k = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            quad m = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            float *o = out + i * DT_LANES + h;
            *(quad *)o = __builtin_shufflevector(e, g, 0, 1, 4, 5) * w[i];
            *(quad *)(o + DT_LANES) = __builtin_shufflevector(e, g, 2, 3, 6, 7) * w[i + 1];
            *(quad *)(o + 2 * DT_LANES) = __builtin_shufflevector(k, m, 0, 1, 4, 5) * w[i + 2];
            *(quad *)(o + 3 * DT_LANES) = __builtin_shufflevector(k, m, 2, 3, 6, 7) * w[i + 3];
        }
    for (; i < n; i++)
        for (int l = 0; l < DT_LANES; l++) out[i * DT_LANES + l] = row[l][i] * w[i];
}

VECTORIZED static void take_roots(float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = __builtin_sqrtf(x[i]);
}

static inline void audio_features_store(const dt_lanes *v, float *to, size_t n_valid) {
    if (n_valid == DT_LANES)
        *(lanes_at *)to = *v;
    else
        for (size_t l = 0; l < n_valid; l++) to[l] = (*v)[l];
}

VECTORIZED static void sum_bands(const band *restrict b, size_t n_bands, const float *restrict weights,
                                 const dt_lanes *restrict power, float *restrict out, size_t stride, size_t n_valid) {
    for (size_t m = 0; m < n_bands; m++, out += stride) {
        const dt_lanes *p = power + b[m].first;
        const float *w = weights + b[m].weights;
        dt_lanes sum = {0}, odd = {0}; // two chains: the additions' latency is what takes time
        int k = 0;
        for (; k + 2 <= b[m].n; k += 2) {
            sum += p[k] * w[k];
            odd += p[k + 1] * w[k + 1];
        }
        if (k < b[m].n) sum += p[k] * w[k];
        sum += odd;
        audio_features_store(&sum, out, n_valid);
    }
}

VECTORIZED static void copy_bins(const dt_lanes *restrict power, size_t n_bins, float *restrict out, size_t stride,
                                 size_t n_valid) {
    for (size_t k = 0; k < n_bins; k++) audio_features_store(&power[k], out + k * stride, n_valid);
}

// (bins or bands, frames) of one channel.
static dt_status make_spectrogram(const dt_features *f, dt_feature_scratch *w, const float *x, float *out) {
    size_t n_work = dt_fft_work(f->fft), n_bins = (size_t)f->n_bins;
    dt_lanes *a = aligned(&w->work, (2 * n_work + n_bins) * sizeof *a);
    if (!a) return dt_fail(DT_E_INTERNAL, "out of memory for a spectrum");
    dt_lanes *b = a + n_work, *power = b + n_work;
    size_t hop = (size_t)f->o.hop, n_frames = (size_t)f->n_frames;
    for (size_t t = 0; t < n_frames; t += DT_LANES) {
        size_t n_valid = n_frames - t < DT_LANES ? n_frames - t : DT_LANES;
        load_frames(x + t * hop, f->window, f->o.n_fft, hop, n_valid, a);
        dt_fft_power(f->fft, a, b, power);
        if (f->o.power == 1) take_roots((float *)power, n_bins * DT_LANES); // magnitudes; else powers
        if (has_bands(f))
            sum_bands(f->bands, (size_t)f->o.n_mels, f->weights, power, out + t, n_frames, n_valid);
        else
            copy_bins(power, n_bins, out + t, n_frames, n_valid);
    }
    return DT_OK;
}

// ---- logarithms ------------------------------------------------------------------------------------
// x -> ln(max(x, low) + add) * scale, for finite x >= 0. With x = 2^e (1 + t), 1 + t in
// [sqrt(1/2), sqrt(2)): e ln 2 + t - t^2/2 + t^3 P(t).
VECTORIZED static void take_logs(float *restrict x, size_t n, float low, float add, float scale) {
    for (size_t i = 0; i < n; i++) {
        float v = (x[i] > low ? x[i] : low) + add;
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        uint32_t shifted = bits - 0x3f3504f3u; // sqrt(1/2)
        float e = (float)((int32_t)shifted >> 23);
        uint32_t mantissa = (shifted & 0x7fffff) + 0x3f3504f3u;
        float t, z, p;
        memcpy(&t, &mantissa, sizeof t);
        t -= 1;
        z = t * t;
        p = 7.0376836292e-2f; // the polynomial of Cephes' logf (S. Moshier)
        p = p * t - 1.1514610310e-1f;
        p = p * t + 1.1676998740e-1f;
        p = p * t - 1.2420140846e-1f;
        p = p * t + 1.4249322787e-1f;
        p = p * t - 1.6668057665e-1f;
        p = p * t + 2.0000714765e-1f;
        p = p * t - 2.4999993993e-1f;
        p = p * t + 3.3333331174e-1f;
        p = p * t * z + e * -2.12194440e-4f - z * 0.5f;
        x[i] = (t + p + e * 0.693359375f) * scale;
    }
}

VECTORIZED static void limit_below(float *restrict x, size_t n, float range) {
    float most = x[0];
    for (size_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++) x[i] = x[i] > most - range ? x[i] : most - range;
}

static void make_logs(const dt_features *f, float *x, size_t n) {
    const dt_feature_opts *o = &f->o;
    float decibel = (float)((o->power == 1 ? 20 : 10) / log(10.0)); // of a magnitude or of a power
    // a subnormal has another exponent than its bits say
    float least = o->floor > 1.2e-38 ? (float)o->floor : 1.2e-38f;
    if (!o->decibel) {
        take_logs(x, n, 0, least, 1);
        return;
    }
    take_logs(x, n, least, 0, decibel);
    if (o->top_db > 0) limit_below(x, n, (float)o->top_db);
}

// ---- all of it -------------------------------------------------------------------------------------
VECTORIZED static void audio_features_add_row(float *restrict to, const float *restrict x, float w, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] += x[i] * w;
}

static void make_cepstrum(const dt_features *f, const float *x, float *out) {
    size_t n = (size_t)f->n_frames, n_mels = (size_t)f->o.n_mels;
    memset(out, 0, n * (size_t)f->o.n_mfcc * sizeof *out);
    for (size_t k = 0; k < (size_t)f->o.n_mfcc; k++)
        for (size_t m = 0; m < n_mels; m++)
            audio_features_add_row(out + k * n, x + m * n, f->cosine[k * n_mels + m], n);
}

static void interleave(const float *planes, size_t n, size_t n_channels, float *dst) {
    for (size_t c = 0; c < n_channels; c++)
        for (size_t i = 0; i < n; i++) dst[i * n_channels + c] = planes[c * n + i];
}

dt_status dt_features_run(const dt_features *f, dt_feature_scratch *w, float *dst) {
    const dt_feature_opts *o = &f->o;
    size_t channels = (size_t)o->channels, n = (size_t)(f->rows * f->n_frames), length = audio_features_row_length(f);
    if (o->kind == DT_FEATURE_waveform) {
        interleave(w->rows, n, channels, dst);
        return DT_OK;
    }
    bool is_mfcc = o->kind == DT_FEATURE_mfcc, direct = channels == 1 && !is_mfcc;
    size_t n_before = is_mfcc ? (size_t)(o->n_mels * f->n_frames) : n; // of the logarithm
    float *planes = direct ? dst : aligned(&w->plane, (n_before + n) * channels * sizeof *planes);
    if (!planes) return dt_fail(DT_E_INTERNAL, "out of memory for a spectrogram");
    for (size_t c = 0; c < channels; c++) {
        fill_edges(f, w->rows + c * length);
        DT_TRY(make_spectrogram(f, w, w->rows + c * length, planes + c * n_before));
    }
    if (o->kind == DT_FEATURE_logspectrogram || o->kind >= DT_FEATURE_logmel) make_logs(f, planes, n_before * channels);
    if (is_mfcc) {
        float *cepstrum = planes + n_before * channels;
        for (size_t c = 0; c < channels; c++) make_cepstrum(f, planes + c * n_before, cepstrum + c * n);
        planes = cepstrum;
    }
    if (!direct) interleave(planes, n, channels, dst);
    return DT_OK;
}
