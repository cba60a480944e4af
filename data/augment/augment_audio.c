// augment_audio.c: noise, gain and time shift of samples; masks over bands and frames of features.
//
// Operations on samples run in the order of the list before features are computed; masks run in their order
// afterwards. A masked band or frame gets the mean of the sample's features, the 0 of SpecAugment's normalised
// spectrograms (Park et al., "SpecAugment", 2019). All widths from 0 to the limit are equally likely, and so
// are all places where a mask fits.
//
// Noise is white. Its level follows the clip's own power, so that the signal-to-noise ratio is what the config
// says. A value is the sum of the four bytes of a random word minus its mean: close enough to a Gaussian
// (excess kurtosis -0.3, nothing beyond 3.5 deviations) at a quarter of the cost. Philox blocks are computed
// eight at a time: sample 32 g + 8 w + l is word w of block 8 g + l, counted over the channels.
//
// Randomness as in augment.c: key = seed, counter = (draw, sample, epoch, hash of
// "augment.<field>.<position>"). Sums run in eight lanes in a fixed order: the same bits on every ISA.
#include "augment_audio.h"

#include "augment.h"
#include "base/bits.h"

#include <math.h>
#include <string.h>

enum { LANES = DT_PHILOX_EIGHT, PER_GROUP = 4 * LANES };

static dt_sound_change add_noise, apply_gain, shift_rows;

static const dt_augment_kind KINDS[] = {{.name = "noise",
                                         .help = "white noise: a signal-to-noise ratio in dB",
                                         .p = 1,
                                         .change = add_noise,
                                         .params = {{"snr", DT_AUGMENT_RANGE, -60, 120, NAN, NAN, NULL}}},
                                        {.name = "gain",
                                         .help = "dB either way",
                                         .p = 1,
                                         .change = apply_gain,
                                         .params = {{"db", DT_AUGMENT_EITHER, -60, 60, NAN, NAN, NULL}}},
                                        {.name = "time_shift",
                                         .help = "share of the length either way, round the end",
                                         .p = 1,
                                         .change = shift_rows,
                                         .params = {{"by", DT_AUGMENT_EITHER, -1, 1, NAN, NAN, NULL}}},
                                        {.name = "freq_mask",
                                         .help = "the most bands that are covered",
                                         .p = 1,
                                         .masks_bands = true,
                                         .params = {{"bands", DT_AUGMENT_WHOLE, 1, 4096, NAN, NAN, NULL}}},
                                        {.name = "time_mask",
                                         .help = "the most frames that are covered",
                                         .p = 1,
                                         .params = {{"frames", DT_AUGMENT_WHOLE, 1, 1000000, NAN, NAN, NULL}}},
                                        {.name = NULL}};

dt_status dt_audio_augment_parse(dt_augment **out, const dt_cnode *list, const char *field, bool masks) {
    DT_TRY(dt_augment_parse_list(out, KINDS, "{gain: 6}", list, field));
    for (int i = 0; i < (*out)->n_ops && !masks; i++) {
        const dt_augment_kind *kind = (*out)->ops[i].kind;
        if (kind->change) continue;
        dt_augment_destroy(*out);
        *out = NULL;
        return dt_fail(DT_E_USAGE, "%s: %s: a waveform has no bands or frames to mask",
                       dt_cnode_where(dt_cnode_item(list, (size_t)i)), kind->name);
    }
    return DT_OK;
}

// ---- draws and sums ------------------------------------------------------------------------------------
VECTORIZED static void sum_lanes(const float *restrict x, size_t n, bool square, float *restrict sum) {
    for (size_t i = 0; i + LANES <= n; i += LANES)
        // LANES sums whatever the CPU: the order of additions, and so the bits, are fixed
        for (size_t l = 0; l < LANES; l++) sum[l] += square ? x[i + l] * x[i + l] : x[i + l];
    for (size_t i = n - n % LANES; i < n; i++) sum[i % LANES] += square ? x[i] * x[i] : x[i];
}

static double augment_audio_mean_of(const float *x, size_t n, bool square) {
    double total = 0;
    for (size_t at = 0; at < n; at += 4096) { // floats add up 512 values each at most, doubles the rest
        float sum[LANES] = {0};
        sum_lanes(x + at, n - at < 4096 ? n - at : 4096, square, sum);
        for (int l = 0; l < LANES; l++) total += (double)sum[l];
    }
    return total / (double)n;
}

// ---- samples -------------------------------------------------------------------------------------------
VECTORIZED static void add_words(const uint32_t *restrict words, float *restrict x, size_t n, float scale) {
    for (size_t i = 0; i < n; i++) {
        // the sum of a word's four bytes is nearly normal, with mean 510
        uint32_t w = words[i], pairs = (w & 0xff00ff) + (w >> 8 & 0xff00ff);
        x[i] += (float)((int32_t)((pairs & 0xffff) + (pairs >> 16)) - 510) * scale;
    }
}

static dt_status add_noise(const dt_rng *r, double snr, float *x, size_t n, size_t n_channels, size_t stride,
                           dt_buffer *scratch) {
    double power = 0; // of all channels: their balance stays
    for (size_t c = 0; c < n_channels; c++) power += augment_audio_mean_of(x + c * stride, n, true);
    power /= (double)n_channels;
    // 147.8: deviation of a sum of four bytes, sqrt(4 (256^2 - 1) / 12)
    float scale = (float)(sqrt(power) * pow(10, -snr / 20) / 147.8005);
    uint32_t block = 1, words[4][DT_PHILOX_EIGHT]; // block 0 holds the draws
    for (size_t c = 0; c < n_channels; c++)
        for (size_t i = 0; i < n; i += PER_GROUP, block += LANES) {
            dt_philox_eight(r, block, words);
            add_words(words[0], x + c * stride + i, n - i < PER_GROUP ? n - i : PER_GROUP, scale);
        }
    return DT_OK;
}

VECTORIZED static void scale_row(float *restrict x, size_t n, float factor) {
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static dt_status apply_gain(const dt_rng *r, double db, float *x, size_t n, size_t n_channels, size_t stride,
                            dt_buffer *scratch) {
    for (size_t c = 0; c < n_channels; c++) scale_row(x + c * stride, n, (float)pow(10, db / 20));
    return DT_OK;
}

// Round the end: what leaves on one side comes back on the other.
static dt_status shift_rows(const dt_rng *r, double share, float *x, size_t n, size_t n_channels, size_t stride,
                            dt_buffer *scratch) {
    int64_t by = llround(share * (double)n) % (int64_t)n; // % n: a whole turn is none
    size_t right = (size_t)(by < 0 ? by + (int64_t)n : by), left = n - right;
    if (right == 0) return DT_OK;
    float *copy = (float *)dt_buffer_reserve(scratch, n * sizeof *copy);
    if (!copy) return dt_fail(DT_E_INTERNAL, "out of memory");
    for (size_t c = 0; c < n_channels; c++) {
        float *row = x + c * stride;
        memcpy(copy, row, n * sizeof *copy);
        memcpy(row + right, copy, left * sizeof *copy);
        memcpy(row, copy + left, right * sizeof *copy);
    }
    return DT_OK;
}

dt_status dt_audio_augment_samples(const dt_augment *a, const dt_augment_key *k, float *x, size_t n, size_t n_channels,
                                   size_t stride, dt_buffer *scratch) {
    for (int i = 0; i < a->n_ops; i++) {
        const dt_augment_op *o = &a->ops[i];
        dt_rng r = dt_augment_rng(o, k);
        if (!o->kind->change || !dt_augment_happens(o, &r)) continue;
        DT_TRY(o->kind->change(&r, dt_draw(&r, 0, o->v[0]), x, n, n_channels, stride, scratch));
    }
    return DT_OK;
}

// ---- features ------------------------------------------------------------------------------------------
static void augment_audio_fill(float *x, size_t n, float value) {
    for (size_t i = 0; i < n; i++) x[i] = value;
}

void dt_audio_augment_features(const dt_augment *a, const dt_augment_key *k, float *x, size_t n_rows, size_t n_columns,
                               size_t n_channels) {
    size_t row = n_columns * n_channels;
    float mean = 0;
    bool masked = false; // by one before: the mean is of what there was at first
    for (int i = 0; i < a->n_ops; i++) {
        const dt_augment_op *o = &a->ops[i];
        dt_rng r = dt_augment_rng(o, k);
        if (o->kind->change || !dt_augment_happens(o, &r)) continue;
        if (!masked) mean = (float)augment_audio_mean_of(x, n_rows * row, false);
        masked = true;
        size_t n = o->kind->masks_bands ? n_rows : n_columns;
        uint32_t most = (uint32_t)(o->v[0].from < (double)n ? o->v[0].from : (double)n); // a short clip may have fewer
        size_t covered = dt_rng_below(&r, 0, most + 1); // SpecAugment: 0 to `most`, anywhere
        size_t first = dt_rng_below(&r, 1, (uint32_t)(n - covered) + 1);
        if (o->kind->masks_bands)
            augment_audio_fill(x + first * row, covered * row, mean);
        else
            for (size_t y = 0; y < n_rows; y++)
                augment_audio_fill(x + y * row + first * n_channels, covered * n_channels, mean);
    }
}
