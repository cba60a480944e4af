// transform.c: changes images and recordings before they are stored, if that was asked for.
//
// Every record gets columns for its shape: width, height and channels of images; channels, samples, rate and
// seconds of audio. If files are stored as they are, the shape comes from the first member whose header tells it.
// A damaged or unknown header is not an error then. Files that are changed or measured for quality are decoded,
// and one that cannot be decoded is an error.

#include "transform.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "base/stated.h"
#include "base/text.h"
#include "config/words.h"
#include "data/decode/array.h"
#include "data/decode/audio.h"
#include "data/decode/encode.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- options -----------------------------------------------------------------------------------------
static dt_status read_encoding(dt_transform *t) {
    const char *text = t->o->encode;
    if (!text) return DT_OK;
    int n = 0;
    t->jpeg_quality = 90;
    if (strcmp(text, "png") == 0)
        t->encoding = DT_ENCODE_PNG;
    else if (strcmp(text, "jpeg") == 0 || (sscanf(text, "jpeg:%d%n", &t->jpeg_quality, &n) == 1 && !text[n] &&
                                           t->jpeg_quality >= 1 && t->jpeg_quality <= 100))
        t->encoding = DT_ENCODE_JPEG;
    else
        return dt_fail(DT_E_USAGE, "--encode: '%s' is not jpeg:1..100 or png", text);
    return DT_OK;
}

static dt_status check_options(const dt_pack_opts *o) {
    if (o->resize < 0 || o->resize > 16384) return dt_fail(DT_E_USAGE, "--resize: expected 1..16384 pixels");
    if (o->max_pixels < 0 || o->max_pixels > DT_MAX_ROWS_PIXELS)
        return dt_fail(DT_E_USAGE, "--max-pixels: expected 1..%d", DT_MAX_ROWS_PIXELS);
    if (o->rate != 0 && !(o->rate >= 0.001 && o->rate <= 768000))
        return dt_fail(DT_E_USAGE, "--rate: expected 0.001..768000 samples/s");
    if (o->segment_s < 0 || o->segment_s > 3600 || o->hop_s < 0 || o->hop_s > 3600)
        return dt_fail(DT_E_USAGE, "--segment and --hop: expected up to 3600 seconds");
    if (o->segment_s > 0 && o->slices) return dt_fail(DT_E_USAGE, "--segment cuts series, --slices cubes: one of them");
    if (o->segment_s == 0 && (o->hop_s > 0 || o->drop_tail))
        return dt_fail(DT_E_USAGE, "--hop and --tail need --segment");
    return DT_OK;
}

static char *transform_describe(const dt_transform *t) {
    const dt_pack_opts *o = t->o;
    char text[256] = "";
    size_t n = 0;
#define ADD(...) n += (size_t)snprintf(text + n, sizeof text - n, __VA_ARGS__)
    if (o->resize) ADD(", resize %d", o->resize);
    if (t->encoding == DT_ENCODE_JPEG) ADD(", encode jpeg:%d", t->jpeg_quality);
    if (t->encoding == DT_ENCODE_PNG) ADD(", encode png");
    if (o->max_pixels) ADD(", max-pixels %d", o->max_pixels);
    if (o->mono) ADD(", mono");
    if (o->rate) ADD(", rate %.9g", o->rate);
    if (o->segment_s > 0)
        ADD(", segment %.9g hop %.9g tail %s", o->segment_s, o->hop_s > 0 ? o->hop_s : o->segment_s,
            o->drop_tail ? "drop" : "pad");
    if (o->quality) ADD(", quality");
    if (o->slices) ADD(", slices");
#undef ADD
    return dt_xstrdup(n ? text + 2 : "store as is"); // 2: the first ", "
}

dt_status dt_transform_create(dt_transform **out, const dt_pack_opts *o) {
    dt_transform *t = dt_xcalloc(1, sizeof *t);
    t->o = o;
    dt_status st = read_encoding(t);
    if (st == DT_OK) st = check_options(o);
    if (st != DT_OK) {
        free(t);
        return st;
    }
    t->description = transform_describe(t);
    *out = t;
    return DT_OK;
}

void dt_transform_destroy(dt_transform *t) {
    if (!t) return;
    free(t->description);
    free(t);
}

const char *dt_transform_describe(const dt_transform *t) {
    return t->description;
}

bool dt_transform_keeps_bytes(const dt_transform *t) {
    return !t->o->quality && t->o->resize == 0 && t->encoding == DT_ENCODE_KEEP && !t->o->slices &&
           !dt_transform_changes_recordings(t);
}

bool dt_transform_divides(const dt_transform *t) {
    return t->o->segment_s > 0 || t->o->slices;
}

bool dt_transform_has_column(const dt_transform *t, const char *name) {
    static const char shape[] = "width|height|channels|samples|rate|seconds",
                      quality[] = "brightness|contrast|sharpness|entropy|clipping|snr|level|peak|"
                                  "silence|quality";
    return dt_word_index(shape, name) >= 0 || ((!t || t->o->quality) && dt_word_index(quality, name) >= 0) ||
           ((!t || dt_transform_changes_recordings(t)) && strcmp(name, "clipped") == 0) ||
           ((!t || t->o->segment_s > 0) && strcmp(name, "begin_s") == 0) ||
           ((!t || t->o->slices) && strcmp(name, "slice") == 0);
}

dt_transform_scratch *dt_transform_scratch_create(void) {
    dt_transform_scratch *s = dt_xcalloc(1, sizeof *s);
    s->decoder = dt_decoder_create();
    s->resizer = dt_resizer_create();
    s->file = dt_audio_file_create();
    return s;
}

void dt_transform_scratch_destroy(dt_transform_scratch *s) {
    if (!s) return;
    dt_decoder_destroy(s->decoder);
    dt_resizer_destroy(s->resizer);
    dt_audio_file_destroy(s->file);
    dt_resampler_destroy(s->resampler);
    dt_buffer_fini(&s->small);
    dt_buffer_fini(&s->luma);
    dt_buffer_fini(&s->decoded);
    dt_buffer_fini(&s->resampled);
    dt_buffer_fini(&s->segment);
    dt_buffer_fini(&s->power);
    for (int i = 0; i < DT_TRANSFORM_MAX_MEMBERS; i++) dt_buffer_fini(&s->encoded[i]);
    free(s);
}

// NaN: the header does not tell.
static void transform_add_number(dt_transform_record *r, const char *name, double v) {
    assert(r->n_columns < DT_TRANSFORM_MAX_COLUMNS);
    if (!isnan(v)) r->column[r->n_columns++] = (dt_transform_column){.name = name, .number = v};
}

// Member i becomes s->encoded[i] of that kind: "iris.bmp" -> "iris.jpg".
static void transform_replace(dt_transform_scratch *s, dt_transform_record *r, int i, const char *kind) {
    dt_transform_member *m = &r->member[i];
    const dt_buffer *bytes = &s->encoded[i];
    char *ext = s->ext[i];
    if (m->ext != ext) { // else an earlier segment has renamed it
        const char *dot = strrchr(m->ext, '.');
        snprintf(ext, sizeof s->ext[i], "%.*s%s", dot ? (int)(dot + 1 - m->ext) : 0, m->ext, kind);
    }
    *m = (dt_transform_member){ext, {bytes->data, bytes->n_bytes}, bytes->n_bytes};
}

// ---- transform audio ----------------------------------------------------------------------------------------------

// Recordings resampled, mixed down and cut into segments before they are packed.
//
// Segment k holds samples [k * hop, k * hop + length) of the resampled recording. A short last segment is filled
// with zeros or left out. A recording shorter than a segment is one short segment. Segments are 16-bit WAVs; column
// and json member `begin_s` is where they begin, in seconds. A recording is decoded as a whole: at most 64 Mi samples
// over all channels, half an hour at 48 kHz mono. Series (NPY, text) are cut in the same way, into NPY arrays; --rate says
// what their rate is.

enum { SUFFIX_BYTES = 24, MOST_SEGMENTS = 100000 }; // of "-" and the number

typedef struct recording {
    float *x; // (channels, n); NULL: of a series
    int channels;
    double rate;
    int64_t n;
    dt_npy series;
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
    // mono: the decoder mixes down
    *out = (recording){.channels = t->o->mono ? 1 : info.channels, .rate = info.rate, .n = info.n_samples};
    if (out->n * out->channels > DT_AUDIO_MAX_SAMPLES)
        return dt_fail(DT_E_DATA, "%lld samples of %d channels: more than the limit of %d", (long long)out->n,
                       out->channels, DT_AUDIO_MAX_SAMPLES);
    out->x = transform_audio_reserve(&s->decoded, out->n * out->channels);
    if (!out->x) return transform_audio_out_of_memory();
    return dt_audio_file_read(s->file, 0, out->n, out->channels, out->x, (size_t)out->n);
}

// Values of a series stay as they are: its type, of text doubles.
static dt_status transform_series_decode(const dt_transform *t, dt_transform_scratch *s, dt_span bytes,
                                         recording *out) {
    static const dt_series_names all;
    *out = (recording){.rate = 0};
    DT_TRY(dt_series_read(bytes, &all, &out->series, &out->rate, &s->decoded));
    if (out->rate == 0) out->rate = t->o->rate;
    if (out->rate == 0)
        return dt_fail(DT_E_USAGE, "--segment: a series does not state its rate: give --rate (samples/s)");
    out->n = out->series.shape[0];
    if (out->series.shape[1] > DT_AUDIO_MAX_CHANNELS)
        return dt_fail(DT_E_DATA, "a series of %lld columns: %d are the most", (long long)out->series.shape[1],
                       DT_AUDIO_MAX_CHANNELS);
    out->channels = (int)out->series.shape[1];
    return DT_OK;
}

// Samples begin to begin + length as an NPY array of (length, channels), with zeros behind the end.
static dt_status transform_series_store(dt_transform_scratch *s, dt_transform_record *r, int member, const recording *a,
                                        int64_t begin, int64_t length) {
    const dt_npy *v = &a->series;
    const char type[] = {v->swapped ? '>' : '<', v->kind, (char)('0' + v->size), '\0'};
    const size_t each = (size_t)v->size;
    size_t n;
    if (!dt_stated_size((uint64_t)length, (uint64_t)a->channels * each, DT_AUDIO_MAX_SAMPLES * sizeof(double), &n))
        return dt_fail(DT_E_DATA, "segments of %lld samples: too large", (long long)length);
    uint8_t *p = dt_buffer_reserve(&s->encoded[member], DT_NPY_HEAD + n);
    if (!p) return transform_audio_out_of_memory();
    s->encoded[member].n_bytes = DT_NPY_HEAD + n;
    dt_text_npy_head((char *)p, type, length, a->channels);
    memset(p + DT_NPY_HEAD, 0, n);
    p += DT_NPY_HEAD;
    for (int64_t i = begin; i < begin + length && i < a->n; i++)
        for (int c = 0; c < a->channels; c++, p += each)
            memcpy(p, v->data + (size_t)(i * v->stride[0] + c * v->stride[1]) * each, each);
    transform_replace(s, r, member, "npy");
    return DT_OK;
}

static dt_status take_resampler(dt_transform_scratch *s, int from, int to) {
    // one rate after the other: files of a set mostly have the same
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
    DT_TRY(take_resampler(s, (int)r->rate, rate));
    int64_t n = dt_resampler_length(s->resampler, r->n);
    dt_resampler_window(s->resampler, 0, n, &begin, &end);
    int64_t before = begin < 0 ? -begin : 0, window = end - begin; // samples in front of the first, which do not exist
    float *in = transform_audio_reserve(&s->segment, window),
          *out = transform_audio_reserve(&s->resampled, n * r->channels);
    if (!in || !out) return transform_audio_out_of_memory();
    int64_t first = begin < 0 ? 0 : begin, last = end < r->n ? end : r->n;
    for (int c = 0; c < r->channels; c++) {
        memset(in, 0, (size_t)window * sizeof *in); // zeros on both sides
        memcpy(in + before, r->x + c * r->n + first, (size_t)(last - first) * sizeof *in);
        dt_resampler_run(s->resampler, in, 0, n, out + c * n);
    }
    *r = (recording){
        .x = out, .channels = r->channels, .rate = rate, .n = n}; // borrowed from s->resampled, until the next item
    return DT_OK;
}

// Figures of quality, if they are asked for.
static dt_status transform_audio_add_quality(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r,
                                             const recording *a) {
    dt_audio_quality q;
    if (!t->o->quality) return DT_OK;
    DT_TRY(dt_quality_of_audio(&q, a->x, a->channels, a->n, (int)a->rate, &s->power));
    transform_add_number(r, "level", q.level);
    transform_add_number(r, "peak", q.peak);
    transform_add_number(r, "clipping", q.clipping);
    transform_add_number(r, "silence", q.silence);
    transform_add_number(r, "snr", q.snr);
    transform_add_number(r, "quality", q.quality);
    return DT_OK;
}

static void transform_audio_add_shape(dt_transform_record *r, const recording *a) {
    transform_add_number(r, "channels", a->channels);
    transform_add_number(r, "samples", (double)a->n);
    transform_add_number(r, "rate", a->rate);
    transform_add_number(r, "seconds", (double)a->n / a->rate);
}

// With column `clipped`: how many samples lie beyond full scale, as resampling may make them, and are cut.
static dt_status transform_audio_store(dt_transform_scratch *s, dt_transform_record *r, int member,
                                       const recording *a) {
    int64_t n_clipped = 0;
    // counted before encoding, which cuts them at full scale
    for (int64_t i = 0; i < a->n * a->channels; i++) n_clipped += fabsf(a->x[i]) > 1;
    transform_add_number(r, "clipped", (double)n_clipped);
    const double begin_s = dt_clock_s();
    DT_TRY(dt_encode_wav(&s->encoded[member], a->x, a->channels, a->n, (size_t)a->n, (int)a->rate));
    s->encode_s += dt_clock_s() - begin_s;
    transform_replace(s, r, member, "wav");
    return DT_OK;
}

// Copies a segment, with zeros behind the end of the recording.
static dt_status transform_audio_cut(dt_transform_scratch *s, const recording *a, int64_t begin, int64_t length,
                                     recording *out) {
    float *x = transform_audio_reserve(&s->segment, length * a->channels);
    if (!x) return transform_audio_out_of_memory();
    int64_t have = a->n - begin < length ? a->n - begin : length; // what is left of the recording
    memset(x, 0, (size_t)(length * a->channels) * sizeof *x);
    // (channels, length)
    for (int c = 0; c < a->channels; c++) memcpy(x + c * length, a->x + c * a->n + begin, (size_t)have * sizeof *x);
    *out = (recording){.x = x, .channels = a->channels, .rate = a->rate, .n = length};
    return DT_OK;
}

static dt_status emit_segments(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r, int member,
                               const recording *a, dt_transform_emit emit, void *arg) {
    int64_t length = llround(t->o->segment_s * a->rate); // samples
    int64_t hop = llround((t->o->hop_s > 0 ? t->o->hop_s : t->o->segment_s) * a->rate);
    int n_columns = r->n_columns;
    char suffix[SUFFIX_BYTES];
    // less than a sample would never advance
    if (length < 1 || hop < 1) return dt_fail(DT_E_DATA, "segments shorter than a sample at %g/s", a->rate);
    for (int64_t k = 0, begin = 0; begin < a->n; k++, begin += hop) {
        bool is_short = begin + length > a->n;
        // the last segments may lie within the one before
        if (is_short && k > 0 && (t->o->drop_tail || begin + length - hop >= a->n))
            break; // the segment before has all of it
        if (is_short && t->o->drop_tail) break;
        if (k >= MOST_SEGMENTS) return dt_fail(DT_E_DATA, "more than %d segments", MOST_SEGMENTS);
        recording segment = {.channels = a->channels, .rate = a->rate, .n = length};
        snprintf(suffix, sizeof suffix, "-%05lld", (long long)k);
        r->suffix = suffix;
        r->n_columns = n_columns; // columns of the segment before go
        r->column[r->n_columns++] =
            (dt_transform_column){.name = "begin_s", .number = (double)begin / a->rate, .in_json = true};
        if (a->x) DT_TRY(transform_audio_cut(s, a, begin, is_short ? a->n - begin : length, &segment)); // without zeros
        if (a->x) DT_TRY(transform_audio_add_quality(t, s, r, &segment));
        if (a->x && is_short)
            DT_TRY(transform_audio_cut(s, a, begin, length, &segment)); // zeros do not count as silence
        transform_audio_add_shape(r, &segment);
        DT_TRY(a->x ? transform_audio_store(s, r, member, &segment)
                    : transform_series_store(s, r, member, a, begin, length));
        DT_TRY(emit(arg, r));
    }
    return DT_OK;
}

// The first recording of a record, or -1.
static int transform_find_recording(const dt_transform_record *r) {
    for (int i = 0; i < r->n_members; i++)
        if (dt_transform_wants(&r->member[i], DT_KIND_AUDIO)) return i;
    return -1;
}

// The first series of a record without recordings, or -1.
static int transform_find_series(const dt_transform_record *r) {
    static const char *const EXTS[] = {DT_SERIES_EXTS, "txt"};
    for (size_t k = 0; k < sizeof EXTS / sizeof *EXTS; k++)
        for (int i = 0; i < r->n_members; i++) {
            const char *dot = strrchr(r->member[i].ext, '.');
            if (strcasecmp(dot ? dot + 1 : r->member[i].ext, EXTS[k]) == 0 && dt_series_is(r->member[i].bytes))
                return i;
        }
    return -1;
}

// Resamples, mixes and cuts the recording `member`, or cuts the series. Calls emit for each segment (once where there are no segments); the
// other members stay unchanged.
static dt_status transform_recording(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r, int member,
                                     bool is_series, dt_transform_emit emit, void *arg) {
    recording a;
    const char *ext = r->member[member].ext;
    const double begin_s = dt_clock_s();
    const dt_span bytes = r->member[member].bytes;
    dt_status st = is_series ? transform_series_decode(t, s, bytes, &a) : transform_audio_decode(t, s, bytes, &a);
    if (st == DT_OK && a.x && t->o->rate > 0 && (t->o->rate < 1000 || t->o->rate != floor(t->o->rate)))
        st = dt_fail(DT_E_USAGE, "--rate: audio becomes 1000..768000 whole samples/s");
    // after mixing down: fewer channels to resample
    if (st == DT_OK && a.x && t->o->rate > 0 && t->o->rate != a.rate)
        st = transform_audio_resample(s, &a, (int)t->o->rate);
    if (st != DT_OK) return dt_fail_context(st, "member %s", ext);
    s->decode_s += dt_clock_s() - begin_s;
    if (t->o->segment_s > 0) return emit_segments(t, s, r, member, &a, emit, arg);
    transform_audio_add_shape(r, &a);
    DT_TRY(transform_audio_add_quality(t, s, r, &a));
    if (dt_transform_changes_recordings(t)) DT_TRY(transform_audio_store(s, r, member, &a)); // else the bytes stay
    return emit(arg, r);
}

// ---- transform image ----------------------------------------------------------------------------------------------

// Resizes images to a short side, encodes them, and measures their quality.
//
// Smaller files decode faster: photographs of 500 x 375 packed with --resize 256 --encode jpeg:90 load about twice
// as fast. The long side is scaled by the same factor and rounded down, as torchvision's Resize does. Without
// --encode, an image that is resized stays JPEG (quality 95) or PNG, and any other kind becomes PNG. An image that
// is small enough and of the right kind keeps its bytes. Quality is measured on the resized pixels, before encoding.

enum { DEFAULT_QUALITY = 95 };

static dt_status shrink(const dt_transform *t, dt_transform_scratch *s, dt_image *m) {
    int shorter = m->width < m->height ? m->width : m->height; // the short side
    if (t->o->resize == 0 || shorter <= t->o->resize) return DT_OK;
    int w = (int)((int64_t)m->width * t->o->resize / shorter); // 64 bits: sides of 16384
    int h = (int)((int64_t)m->height * t->o->resize / shorter);
    uint8_t *p = dt_buffer_reserve(&s->small, (size_t)w * (size_t)h * (size_t)m->channels);
    if (!p) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    DT_TRY(dt_resize(s->resizer, m, NULL, p, h, w));
    *m = (dt_image){.data = p, .width = w, .height = h, .channels = m->channels}; // borrowed from s->small
    return DT_OK;
}

static dt_status transform_image_encode(const dt_transform *t, const char *kind, const dt_image *m, dt_buffer *out,
                                        const char **new_kind) {
    bool jpeg = t->encoding == DT_ENCODE_JPEG || (t->encoding == DT_ENCODE_KEEP && strcmp(kind, "jpg") == 0);
    *new_kind = jpeg ? "jpg" : "png";
    if (!jpeg) return dt_encode_png(out, m); // PNG has no quality
    return dt_encode_jpeg(out, m, t->encoding == DT_ENCODE_JPEG ? t->jpeg_quality : DEFAULT_QUALITY);
}

static dt_status transform_image_add_quality(dt_transform_scratch *s, dt_transform_record *r, const dt_image *m) {
    dt_image_quality q;
    DT_TRY(dt_quality_of_image(&q, m, &s->luma));
    transform_add_number(r, "brightness", q.brightness);
    transform_add_number(r, "contrast", q.contrast);
    transform_add_number(r, "sharpness", q.sharpness);
    transform_add_number(r, "entropy", q.entropy);
    transform_add_number(r, "clipping", q.clipping);
    transform_add_number(r, "snr", q.snr);
    transform_add_number(r, "quality", q.quality);
    return DT_OK;
}

static bool same_kind(const dt_transform *t, const char *kind) {
    if (t->encoding == DT_ENCODE_KEEP) return true;
    return strcmp(kind, t->encoding == DT_ENCODE_JPEG ? "jpg" : "png") == 0;
}

// Once a pack.
static void transform_image_warn_of_bytes(const dt_transform_record *r, int i, const dt_image *m) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&warned)) return;
    dt_warn("values of %g to %g (a member %s) are stored as 8 bits; without --resize and --encode such images stay as "
            "they are",
            m->least, m->greatest, r->member[i].ext);
}

static dt_status transform(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r, int i,
                           const char *kind, bool is_first) {
    dt_image m, whole;
    dt_media_info info;
    bool known = dt_media_info_read(&info, r->member[i].bytes, r->member[i].size);
    int channels = known && info.channels == 1 ? 1 : 3; // grey stays grey
    double begin_s = dt_clock_s();
    // in rows only what shrink reads
    const bool shrinks = known && t->o->resize > 0 && fmin(info.width, info.height) > t->o->resize;
    const dt_image_want want = {.channels = channels,
                                .rows_above = shrinks ? DT_MAX_PIXELS : 0,
                                .max_pixels = t->o->max_pixels,
                                .limit_hint = "; --max-pixels sets another"};
    DT_TRY(dt_decode_image_part(s->decoder, r->member[i].bytes, &want, &whole));
    m = whole;
    DT_TRY(shrink(t, s, &m));
    s->decode_s += dt_clock_s() - begin_s;
    if (is_first) { // columns describe the first image of a record
        transform_add_number(r, "width", m.width);
        transform_add_number(r, "height", m.height);
        transform_add_number(r, "channels", channels);
        if (t->o->quality) DT_TRY(transform_image_add_quality(s, r, &m));
    }
    if (m.data == whole.data && same_kind(t, kind)) return DT_OK; // nothing to change
    // least and greatest: of arrays of numbers (FITS, NPY)
    if (whole.greatest > whole.least) transform_image_warn_of_bytes(r, i, &whole);
    const char *new_kind;
    begin_s = dt_clock_s();
    DT_TRY(transform_image_encode(t, kind, &m, &s->encoded[i], &new_kind));
    s->encode_s += dt_clock_s() - begin_s;
    transform_replace(s, r, i, new_kind);
    return DT_OK;
}

// Resizes and encodes every image among the record's members, and adds the columns of the first. Bytes live in `s`
// until the next call. Other members stay as they are. DT_E_DATA: an image cannot be decoded.
static dt_status transform_images(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r) {
    bool is_first = true;
    for (int i = 0; i < r->n_members; i++) {
        if (!dt_transform_wants(&r->member[i], DT_KIND_PICTURE)) continue;
        const dt_kind *kind = dt_kind_of_bytes(r->member[i].bytes.data, r->member[i].bytes.n_bytes);
        // unknown bytes have no kind, and fail while decoding
        dt_status st = transform(t, s, r, i, kind ? kind->name : "", is_first);
        if (st != DT_OK) return dt_fail_context(st, "member %s", r->member[i].ext);
        is_first = false;
    }
    return DT_OK;
}

static void transform_add_shape(dt_transform_record *r) {
    dt_media_info m;
    for (int i = 0; i < r->n_members; i++) {
        // the first member whose header tells a shape
        if (!dt_media_info_read(&m, r->member[i].bytes, r->member[i].size)) continue;
        transform_add_number(r, "width", m.width);
        transform_add_number(r, "height", m.height);
        transform_add_number(r, "channels", m.channels);
        transform_add_number(r, "samples", m.samples);
        transform_add_number(r, "rate", m.rate);
        transform_add_number(r, "seconds", m.samples / m.rate);
        return;
    }
}

// ---- slices -------------------------------------------------------------------------------------------------------

// All FITS cubes of a record are cut side by side (a file a band, which --group made one record).
static dt_status transform_slices(dt_transform_scratch *s, dt_transform_record *r, dt_transform_emit emit, void *arg) {
    dt_span cube[DT_TRANSFORM_MAX_MEMBERS] = {{NULL}};
    int64_t n = -1, has;
    char suffix[SUFFIX_BYTES];
    for (int i = 0; i < r->n_members; i++) {
        const dt_kind *k = dt_kind_of_bytes(r->member[i].bytes.data, r->member[i].bytes.n_bytes);
        if (!k || k->id != DT_KIND_ID_fits) continue;
        cube[i] = r->member[i].bytes;
        const dt_status st = dt_fits_count_slices(cube[i], &has);
        if (st != DT_OK) return dt_fail_context(st, "member %s", r->member[i].ext);
        if (n >= 0 && has != n)
            return dt_fail(DT_E_DATA, "member %s: %lld slices, another member has %lld", r->member[i].ext,
                           (long long)has, (long long)n);
        n = has;
    }
    if (n < 0) return dt_fail(DT_E_DATA, "--slices: no FITS cube");
    if (n > MOST_SEGMENTS) return dt_fail(DT_E_DATA, "more than %d slices", MOST_SEGMENTS);
    for (int64_t k = 0; k < n; k++) {
        snprintf(suffix, sizeof suffix, "-%05lld", (long long)k);
        for (int i = 0; i < r->n_members; i++) {
            if (!cube[i].data) continue;
            DT_TRY(dt_fits_take_slice(cube[i], k, &s->encoded[i]));
            r->member[i].bytes = (dt_span){s->encoded[i].data, s->encoded[i].n_bytes};
            r->member[i].size = s->encoded[i].n_bytes;
        }
        r->suffix = suffix;
        r->n_columns = 0;
        transform_add_shape(r);
        r->column[r->n_columns++] = (dt_transform_column){.name = "slice", .number = (double)k, .in_json = true};
        DT_TRY(emit(arg, r));
    }
    return DT_OK;
}

dt_status dt_transform_apply(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r,
                             dt_transform_emit emit, void *arg) {
    r->suffix = "";
    r->n_columns = 0;
    if (dt_transform_keeps_bytes(t)) {
        transform_add_shape(r);
        return emit(arg, r);
    }
    if (t->o->slices) return transform_slices(s, r, emit, arg);
    DT_TRY(transform_images(t, s, r));
    const int recorded = transform_find_recording(r);
    const int member = recorded < 0 && t->o->segment_s > 0 ? transform_find_series(r) : recorded;
    // images beside a recording were changed above
    if (member >= 0) return transform_recording(t, s, r, member, recorded < 0, emit, arg);
    if (r->n_columns == 0) transform_add_shape(r);
    return emit(arg, r);
}
