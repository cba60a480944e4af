// audio_segment.c: a segment of a sound, of the length and rate that the network wants.
//
// The place is chosen among the samples that the whole file would have at the wanted rate. Only the inputs that
// the segment needs are decoded: a second out of an hour of FLAC costs a seek. The result is the same as
// resampling the whole file and cutting. Channels are mixed before resampling.
//
// A worker keeps resampling tables for the last few rates; a new rate costs one table, once.
#include "array.h"
#include "audio.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    const int steps = rate == floor(rate) ? 1 : 1000, to = (int)llround(rate * steps);
    from *= steps;
    for (int i = 0; i < MAX_TABLES; i++)
        if (s->table[i].r && s->table[i].from == from && s->table[i].to == to) {
            *out = s->table[i].r;
            return DT_OK;
        }
    dt_resampler *r = dt_resampler_create(from, to);
    if (!r) return dt_fail(DT_E_DATA, "its rate of %d Hz is too uneven a multiple of %.6g Hz", from / steps, rate);
    int i = s->n_made++ % MAX_TABLES;
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
    if (!source) return dt_fail(DT_E_INTERNAL, "out of memory for a sound");
    DT_TRY(dt_audio_file_read(s->file, from, to - from, want->channels, source + (from - begin), row));
    for (int c = 0; c < want->channels; c++) {
        float *x = source + (size_t)c * row;
        memset(x, 0, (size_t)(from - begin) * sizeof *x);
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
        DT_TRY(dt_audio_file_open_series(s->file, bytes, want->origin, &info));
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
