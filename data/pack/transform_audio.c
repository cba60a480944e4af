// transform_audio.c: recordings resampled, mixed down and cut into segments before they are packed.
//
// Segment k holds samples [k * hop, k * hop + length) of the resampled recording. A short last segment is filled
// with zeros or left out. A recording shorter than a segment is one short segment. Segments are 16-bit WAVs; column
// and json member `begin_s` is where they begin, in seconds. A recording is decoded as a whole: at most 64 Mi samples
// over all channels, half an hour at 48 kHz mono.
#include "transform_parts.h"

#include "quality.h"

#include "data/decode/audio.h"
#include "data/decode/encode.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SUFFIX_BYTES = 24, MOST_SEGMENTS = 100000 };

typedef struct recording {
    float *x; // (channels, n)
    int channels, rate;
    int64_t n;
} recording;

static float *transform_audio_reserve(dt_buffer *b, int64_t n) {
    return (float *)(void *)dt_buffer_reserve(b, (size_t)n * sizeof(float));
}

static dt_status transform_audio_out_of_memory(void) {
    return dt_fail(DT_E_INTERNAL, "out of memory for a recording");
}

static dt_status transform_audio_decode(const dt_transform *t, dt_transform_scratch *s, dt_span bytes, recording *out) {
    dt_audio_info info;
    DT_TRY(dt_audio_file_open(s->file, bytes, &info));
    *out = (recording){.channels = t->o->mono ? 1 : info.channels, .rate = info.rate, .n = info.n_samples};
    if (out->n * out->channels > DT_AUDIO_MAX_SAMPLES)
        return dt_fail(DT_E_DATA, "%lld samples of %d channels: more than the limit of %d", (long long)out->n,
                       out->channels, DT_AUDIO_MAX_SAMPLES);
    out->x = transform_audio_reserve(&s->decoded, out->n * out->channels);
    if (!out->x) return transform_audio_out_of_memory();
    return dt_audio_file_read(s->file, 0, out->n, out->channels, out->x, (size_t)out->n);
}

static dt_status take_resampler(dt_transform_scratch *s, int from, int to) {
    if (s->resampler && s->from_rate == from && s->to_rate == to) return DT_OK;
    dt_resampler_destroy(s->resampler);
    s->resampler = dt_resampler_create(from, to);
    s->from_rate = from;
    s->to_rate = to;
    return s->resampler ? DT_OK
                        : dt_fail(DT_E_DATA,
                                  "%d samples/s cannot become %d: choose a --rate that "
                                  "divides more evenly",
                                  from, to);
}

// The filter reaches beyond both ends, where samples are 0.
static dt_status transform_audio_resample(dt_transform_scratch *s, recording *r, int rate) {
    int64_t begin, end;
    DT_TRY(take_resampler(s, r->rate, rate));
    int64_t n = dt_resampler_length(s->resampler, r->n);
    dt_resampler_window(s->resampler, 0, n, &begin, &end);
    int64_t before = begin < 0 ? -begin : 0, window = end - begin;
    float *in = transform_audio_reserve(&s->segment, window),
          *out = transform_audio_reserve(&s->resampled, n * r->channels);
    if (!in || !out) return transform_audio_out_of_memory();
    int64_t first = begin < 0 ? 0 : begin, last = end < r->n ? end : r->n;
    for (int c = 0; c < r->channels; c++) {
        memset(in, 0, (size_t)window * sizeof *in);
        memcpy(in + before, r->x + c * r->n + first, (size_t)(last - first) * sizeof *in);
        dt_resampler_run(s->resampler, in, 0, n, out + c * n);
    }
    *r = (recording){out, r->channels, rate, n};
    return DT_OK;
}

// Figures of quality, if they are asked for.
static dt_status transform_audio_add_quality(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r,
                                             const recording *a) {
    dt_audio_quality q;
    if (!t->o->quality) return DT_OK;
    DT_TRY(dt_quality_of_audio(&q, a->x, a->channels, a->n, a->rate, &s->power));
    dt_transform_add_number(r, "level", q.level);
    dt_transform_add_number(r, "peak", q.peak);
    dt_transform_add_number(r, "clipping", q.clipping);
    dt_transform_add_number(r, "silence", q.silence);
    dt_transform_add_number(r, "snr", q.snr);
    dt_transform_add_number(r, "quality", q.quality);
    return DT_OK;
}

static void transform_audio_add_shape(dt_transform_record *r, const recording *a) {
    dt_transform_add_number(r, "channels", a->channels);
    dt_transform_add_number(r, "samples", (double)a->n);
    dt_transform_add_number(r, "rate", a->rate);
    dt_transform_add_number(r, "seconds", (double)a->n / a->rate);
}

// With column `clipped`: how many samples lie beyond full scale, as resampling may make them, and are cut.
static dt_status transform_audio_store(dt_transform_scratch *s, dt_transform_record *r, int member,
                                       const recording *a) {
    int64_t n_clipped = 0;
    for (int64_t i = 0; i < a->n * a->channels; i++) n_clipped += fabsf(a->x[i]) > 1;
    dt_transform_add_number(r, "clipped", (double)n_clipped);
    DT_TRY(dt_encode_wav(&s->encoded[member], a->x, a->channels, a->n, (size_t)a->n, a->rate));
    dt_transform_replace(s, r, member, "wav");
    return DT_OK;
}

// Copies a segment, with zeros behind the end of the recording.
static dt_status transform_audio_cut(dt_transform_scratch *s, const recording *a, int64_t begin, int64_t length,
                                     recording *out) {
    float *x = transform_audio_reserve(&s->segment, length * a->channels);
    if (!x) return transform_audio_out_of_memory();
    int64_t have = a->n - begin < length ? a->n - begin : length;
    memset(x, 0, (size_t)(length * a->channels) * sizeof *x);
    for (int c = 0; c < a->channels; c++) memcpy(x + c * length, a->x + c * a->n + begin, (size_t)have * sizeof *x);
    *out = (recording){x, a->channels, a->rate, length};
    return DT_OK;
}

static dt_status emit_segments(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r, int member,
                               const recording *a, dt_transform_emit emit, void *arg) {
    int64_t length = llround(t->o->segment_s * a->rate);
    int64_t hop = llround((t->o->hop_s > 0 ? t->o->hop_s : t->o->segment_s) * a->rate);
    int n_columns = r->n_columns;
    char suffix[SUFFIX_BYTES];
    if (length < 1 || hop < 1) return dt_fail(DT_E_DATA, "segments shorter than a sample at %d/s", a->rate);
    for (int64_t k = 0, begin = 0; begin < a->n; k++, begin += hop) {
        bool is_short = begin + length > a->n;
        if (is_short && k > 0 && (t->o->drop_tail || begin + length - hop >= a->n))
            break; // the segment before has all of it
        if (is_short && t->o->drop_tail) break;
        if (k >= MOST_SEGMENTS) return dt_fail(DT_E_DATA, "more than %d segments", MOST_SEGMENTS);
        recording segment;
        DT_TRY(transform_audio_cut(s, a, begin, is_short ? a->n - begin : length, &segment)); // without zeros
        snprintf(suffix, sizeof suffix, "-%05lld", (long long)k);
        r->suffix = suffix;
        r->n_columns = n_columns;
        r->column[r->n_columns++] =
            (dt_transform_column){.name = "begin_s", .number = (double)begin / a->rate, .in_json = true};
        DT_TRY(transform_audio_add_quality(t, s, r, &segment));
        if (is_short) DT_TRY(transform_audio_cut(s, a, begin, length, &segment)); // zeros do not count as silence
        transform_audio_add_shape(r, &segment);
        DT_TRY(transform_audio_store(s, r, member, &segment));
        DT_TRY(emit(arg, r));
    }
    return DT_OK;
}

int dt_transform_find_recording(const dt_transform_record *r) {
    for (int i = 0; i < r->n_members; i++)
        if (dt_transform_wants(&r->member[i], DT_KIND_AUDIO)) return i;
    return -1;
}

dt_status dt_transform_recording(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r, int member,
                                 dt_transform_emit emit, void *arg) {
    recording a;
    const char *ext = r->member[member].ext;
    dt_status st = transform_audio_decode(t, s, r->member[member].bytes, &a);
    if (st == DT_OK && t->o->rate > 0 && t->o->rate != a.rate) st = transform_audio_resample(s, &a, t->o->rate);
    if (st != DT_OK) return dt_fail_context(st, "member %s", ext);
    if (t->o->segment_s > 0) return emit_segments(t, s, r, member, &a, emit, arg);
    transform_audio_add_shape(r, &a);
    DT_TRY(transform_audio_add_quality(t, s, r, &a));
    if (dt_transform_changes_recordings(t)) DT_TRY(transform_audio_store(s, r, member, &a));
    return emit(arg, r);
}
