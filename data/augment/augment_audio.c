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

#include "base/arena.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/vectorize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, PER_GROUP = 4 * LANES };

// n_channels rows of n samples, stride apart, changed by v, which was drawn first.
typedef dt_status change_samples(const dt_rng *r, double v, float *x, size_t n, size_t n_channels,
                                 size_t stride, dt_buffer *scratch);
static change_samples add_noise, apply_gain, shift_rows;

// An operation is a line here. Its config's value is a number or [low, high].
typedef struct kind {
    const char *name, *help;
    bool both;              // one number means -x..x, else x..x
    double low, high;       // limits
    change_samples *change; // NULL: it masks features,
    bool masks_rows;        // bands, else frames
} kind;
static const kind KINDS[] = {
    {"noise", "a signal-to-noise ratio in dB or [low, high], -60..120", false, -60, 120, add_noise},
    {"gain", "dB either way or [low, high], -60..60", true, -60, 60, apply_gain},
    {"time_shift", "share of the length either way, 0..1, or [low, high]", true, -1, 1, shift_rows},
    {"freq_mask", "the most bands a mask covers, 1..4096", false, 1, 4096, NULL, true},
    {"time_mask", "the most frames a mask covers, 1..1000000", false, 1, 1000000, NULL, false},
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

typedef struct op {
    const kind *kind;
    uint32_t purpose;
    double low, high;
} op;

struct dt_audio_augment {
    op *ops;
    int n_ops;
    bool masks; // any
};

// ---- parsing -----------------------------------------------------------------------------------------
static bool read_range(op *o, const dt_cnode *v) {
    if (dt_cnode_kind(v) == DT_C_SCALAR) {
        if (!dt_cnode_real(v, &o->high)) return false;
        o->low = o->kind->both ? -o->high : o->high;
    } else if (!o->kind->change || dt_cnode_kind(v) != DT_C_LIST || dt_cnode_size(v) != 2 ||
               !dt_cnode_real(dt_cnode_item(v, 0), &o->low) ||
               !dt_cnode_real(dt_cnode_item(v, 1), &o->high))
        return false;
    return o->low >= o->kind->low && o->low <= o->high && o->high <= o->kind->high;
}

static dt_status fail_unknown(const dt_cnode *item, const char *name) {
    char list[256] = "";
    for (int k = 0; k < N_KINDS; k++) {
        size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", k ? ", " : "", KINDS[k].name);
    }
    return dt_fail(DT_E_USAGE, "%s: unknown augmentation of sounds '%s'; expected one of %s",
                   dt_cnode_where(item), name, list);
}

static dt_status parse_op(op *o, const dt_cnode *item, const char *field, int position,
                          bool masks) {
    if (dt_cnode_kind(item) != DT_C_MAP || dt_cnode_size(item) != 1)
        return dt_fail(DT_E_USAGE,
                       "%s: expected one augmentation a list item, such as {noise: [10, 40]}",
                       dt_cnode_where(item));
    const char *name = dt_cnode_key(item, 0);
    const dt_cnode *v = dt_cnode_item(item, 0);
    int k = 0;
    while (k < N_KINDS && strcmp(KINDS[k].name, name) != 0) k++;
    if (k == N_KINDS) return fail_unknown(item, name);
    char purpose[256];
    snprintf(purpose, sizeof purpose, "augment.%s.%d", field, position);
    *o = (op){.kind = &KINDS[k], .purpose = dt_hash32(purpose)};
    if (!read_range(o, v))
        return dt_fail(DT_E_USAGE, "%s: %s: expected %s", dt_cnode_where(v), name, KINDS[k].help);
    if (!o->kind->change && !masks)
        return dt_fail(DT_E_USAGE, "%s: %s: a waveform has no bands or frames to mask",
                       dt_cnode_where(item), name);
    return DT_OK;
}

dt_status dt_audio_augment_parse(dt_audio_augment **out, const dt_cnode *list, const char *field,
                                 bool masks) {
    *out = NULL;
    if (dt_cnode_kind(list) != DT_C_LIST)
        return dt_fail(DT_E_USAGE, "%s: data.augment.%s: expected a list such as [{gain: 6}]",
                       dt_cnode_where(list), field);
    dt_audio_augment *a = dt_xcalloc(1, sizeof *a);
    a->n_ops = (int)dt_cnode_size(list);
    a->ops = dt_xcalloc((size_t)a->n_ops + 1, sizeof *a->ops);
    for (int i = 0; i < a->n_ops; i++) {
        dt_status st = parse_op(&a->ops[i], dt_cnode_item(list, (size_t)i), field, i, masks);
        if (st != DT_OK) {
            dt_audio_augment_destroy(a);
            return st;
        }
        a->masks = a->masks || !a->ops[i].kind->change;
    }
    *out = a;
    return DT_OK;
}

void dt_audio_augment_destroy(dt_audio_augment *a) {
    if (!a) return;
    free(a->ops);
    free(a);
}

// ---- draws and sums ------------------------------------------------------------------------------------
static dt_rng rng_of(const op *o, const dt_augment_key *k) {
    return (dt_rng){.seed = k->seed, .slot = k->sample, .step = k->epoch, .purpose = o->purpose};
}

static double between(const dt_rng *r, uint32_t draw, double low, double high) {
    return low + (high - low) * (double)dt_rng_uniform(r, draw);
}

VECTORIZED static void sum_lanes(const float *restrict x, size_t n, bool square,
                                 float *restrict sum) {
    for (size_t i = 0; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) sum[l] += square ? x[i + l] * x[i + l] : x[i + l];
    for (size_t i = n - n % LANES; i < n; i++) sum[i % LANES] += square ? x[i] * x[i] : x[i];
}

static double mean_of(const float *x, size_t n, bool square) {
    double total = 0;
    for (size_t at = 0; at < n; at += 4096) {
        float sum[LANES] = {0};
        sum_lanes(x + at, n - at < 4096 ? n - at : 4096, square, sum);
        for (int l = 0; l < LANES; l++) total += (double)sum[l];
    }
    return total / (double)n;
}

// ---- samples -------------------------------------------------------------------------------------------
// Philox4x32-10 on counters (first + l, slot, step, purpose), as dt_philox4x32 (base/rng.c).
VECTORIZED static void eight_blocks(const dt_rng *r, uint32_t first, uint32_t *restrict out) {
    uint32_t a[LANES], b[LANES], c[LANES], d[LANES];
    uint32_t k0 = (uint32_t)r->seed, k1 = (uint32_t)(r->seed >> 32);
    for (uint32_t l = 0; l < LANES; l++)
        a[l] = first + l, b[l] = r->slot, c[l] = r->step, d[l] = r->purpose;
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < LANES; l++) {
            uint64_t p = (uint64_t)a[l] * 0xD2511F53u, q = (uint64_t)c[l] * 0xCD9E8D57u;
            a[l] = (uint32_t)(q >> 32) ^ b[l] ^ k0;
            b[l] = (uint32_t)q;
            c[l] = (uint32_t)(p >> 32) ^ d[l] ^ k1;
            d[l] = (uint32_t)p;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < LANES; l++) {
        out[l] = a[l];
        out[LANES + l] = b[l];
        out[2 * LANES + l] = c[l];
        out[3 * LANES + l] = d[l];
    }
}

VECTORIZED static void add_words(const uint32_t *restrict words, float *restrict x, size_t n,
                                 float scale) {
    for (size_t i = 0; i < n; i++) {
        uint32_t w = words[i], pairs = (w & 0xff00ff) + (w >> 8 & 0xff00ff);
        x[i] += (float)((int32_t)((pairs & 0xffff) + (pairs >> 16)) - 510) * scale;
    }
}

static dt_status add_noise(const dt_rng *r, double snr, float *x, size_t n, size_t n_channels,
                           size_t stride, dt_buffer *scratch) {
    double power = 0;
    for (size_t c = 0; c < n_channels; c++) power += mean_of(x + c * stride, n, true);
    power /= (double)n_channels;
    // 147.8: deviation of a sum of four bytes, sqrt(4 (256^2 - 1) / 12)
    float scale = (float)(sqrt(power) * pow(10, -snr / 20) / 147.8005);
    uint32_t block = 1, words[PER_GROUP]; // block 0 holds the draws
    for (size_t c = 0; c < n_channels; c++)
        for (size_t i = 0; i < n; i += PER_GROUP, block += LANES) {
            eight_blocks(r, block, words);
            add_words(words, x + c * stride + i, n - i < PER_GROUP ? n - i : PER_GROUP, scale);
        }
    return DT_OK;
}

VECTORIZED static void scale_row(float *restrict x, size_t n, float factor) {
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static dt_status apply_gain(const dt_rng *r, double db, float *x, size_t n, size_t n_channels,
                            size_t stride, dt_buffer *scratch) {
    for (size_t c = 0; c < n_channels; c++) scale_row(x + c * stride, n, (float)pow(10, db / 20));
    return DT_OK;
}

// Round the end: what leaves on one side comes back on the other.
static dt_status shift_rows(const dt_rng *r, double share, float *x, size_t n, size_t n_channels,
                            size_t stride, dt_buffer *scratch) {
    int64_t by = llround(share * (double)n) % (int64_t)n;
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

dt_status dt_audio_augment_samples(const dt_audio_augment *a, const dt_augment_key *k, float *x,
                                   size_t n, size_t n_channels, size_t stride, dt_buffer *scratch) {
    for (int i = 0; i < a->n_ops; i++) {
        const op *o = &a->ops[i];
        dt_rng r = rng_of(o, k);
        if (!o->kind->change) continue;
        double v = between(&r, 0, o->low, o->high);
        DT_TRY(o->kind->change(&r, v, x, n, n_channels, stride, scratch));
    }
    return DT_OK;
}

// ---- features ------------------------------------------------------------------------------------------
static void fill(float *x, size_t n, float value) {
    for (size_t i = 0; i < n; i++) x[i] = value;
}

void dt_audio_augment_features(const dt_audio_augment *a, const dt_augment_key *k, float *x,
                               size_t n_rows, size_t n_columns, size_t n_channels) {
    if (!a->masks) return;
    size_t row = n_columns * n_channels;
    float mean = (float)mean_of(x, n_rows * row, false);
    for (int i = 0; i < a->n_ops; i++) {
        const op *o = &a->ops[i];
        if (o->kind->change) continue;
        dt_rng r = rng_of(o, k);
        size_t n = o->kind->masks_rows ? n_rows : n_columns;
        uint32_t most = (uint32_t)(o->high < (double)n ? o->high : (double)n);
        size_t covered = dt_rng_below(&r, 0, most + 1);
        size_t first = dt_rng_below(&r, 1, (uint32_t)(n - covered) + 1);
        if (o->kind->masks_rows)
            fill(x + first * row, covered * row, mean);
        else
            for (size_t y = 0; y < n_rows; y++)
                fill(x + y * row + first * n_channels, covered * n_channels, mean);
    }
}
