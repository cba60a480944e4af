// audio_file.c: the samples of WAV files, and through libsndfile of FLAC, Ogg, AIFF and others.
//
// Most data sets are WAV, and libsndfile allocates at each open. WAV is simple: RIFF chunks are walked here,
// every length checked, and integers of 16 or 24 bits or 32-bit floats converted. WAV in other codings (8 bits,
// A-law), RF64 and big-endian RIFX go to libsndfile, as FLAC and Ogg do, from memory. libsndfile only gets bytes that
// begin like a sound of kinds.def: its parsers of old formats, which accept almost anything, stay out of reach.
//
// A cut or damaged file is an error wherever that can be known: WAV whose samples end beyond the file, other
// formats by what their containers state (audio_whole.c), and any file that gives fewer samples than its header
// says. Writers to a pipe leave a length of 2 GiB or more; that means the rest of the file.
//
// A part of a compressed file is what the whole decode has at its place (Opus, which forgets slowly: within 1e-2). An
// MP3 frame needs bits of frames before it, so 32 of them are decoded in advance (mpg123_new below). Vorbis is sought
// in a newly opened file only, and no further than its last page: elsewhere libsndfile 1.2 arrives at another sample.
// Format: IBM/Microsoft, "Multimedia Programming Interface and Data Specifications 1.0", 1991;
// WAVEFORMATEXTENSIBLE as documented by Microsoft.
#define _GNU_SOURCE // RTLD_NEXT
#include "array.h"
#include "audio.h"

#include "base/arena.h"
#include "base/endian.h"
#include "base/vectorize.h"

#include <dlfcn.h>
#include <endian.h>
#include <math.h>
#include <mpg123.h>
#include <sndfile.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, PIPE_LENGTH = 0x7fff0000, MP3_HEAD = 4096, MP3_TAIL = 512 };
static const sf_count_t MAX_LENGTH = (sf_count_t)1 << 40;
static const float LOUDEST = 1e15f; // of floats: beyond it a power would overflow

// Samples as in the file to floats. NULL: the format is not parsed here.
typedef void convert_samples(const uint8_t *restrict p, size_t n, float *restrict out);

struct dt_audio_file {
    dt_span bytes;
    dt_audio_info info;
    // WAV
    convert_samples *convert;
    size_t sample_bytes;
    const uint8_t *samples;
    // a series, if it has numbers
    dt_npy series;
    const double *origin;
    dt_buffer numbers;
    // others: libsndfile, at `at` of the bytes and `position` of the samples
    const char *name;
    SNDFILE *sound;
    bool only_on; // cannot seek
    sf_count_t at, position, last_page, last_read;
    float block[BLOCK];
};

dt_audio_file *dt_audio_file_create(void) {
    return dt_xcalloc(1, sizeof(dt_audio_file));
}

void dt_audio_file_destroy(dt_audio_file *f) {
    if (!f) return;
    if (f->sound) sf_close(f->sound);
    dt_buffer_fini(&f->numbers);
    free(f);
}

// ---- WAV -------------------------------------------------------------------------------------------
VECTORIZED static void from_s16(const uint8_t *restrict p, size_t n, float *restrict out) {
    for (size_t i = 0; i < n; i++) {
        uint16_t v;
        memcpy(&v, p + 2 * i, sizeof v);
        out[i] = (float)(int16_t)le16toh(v) * (1.0f / 32768);
    }
}

VECTORIZED static void from_s24(const uint8_t *restrict p, size_t n, float *restrict out) {
    for (size_t i = 0; i < n; i++) {
        uint32_t v = (uint32_t)p[3 * i] << 8 | (uint32_t)p[3 * i + 1] << 16 | (uint32_t)p[3 * i + 2] << 24;
        out[i] = (float)(int32_t)v * (1.0f / 2147483648.0f);
    }
}

static void from_f32(const uint8_t *restrict p, size_t n, float *restrict out) {
    for (size_t i = 0; i < n; i++) {
        uint32_t v = dt_le32(p + 4 * i);
        memcpy(out + i, &v, sizeof v);
    }
}

static void read_format(dt_audio_file *f, const uint8_t *p, uint32_t n) {
    uint32_t tag = dt_le16(p), block = dt_le16(p + 12), bits = dt_le16(p + 14);
    if (tag == 0xfffe && n >= 40) tag = dt_le16(p + 24); // extensible: the first word of the GUID
    f->info.channels = (int)dt_le16(p + 2);
    f->info.rate = (int)(dt_le32(p + 4) & INT32_MAX);
    bool pcm = tag == 1, ieee = tag == 3;
    f->sample_bytes = (bits + 7) / 8;
    f->convert = pcm && f->sample_bytes == 2    ? from_s16
                 : pcm && f->sample_bytes == 3  ? from_s24
                 : ieee && f->sample_bytes == 4 ? from_f32
                                                : NULL;
    if (!f->info.channels || f->sample_bytes * (size_t)f->info.channels != block) f->convert = NULL;
}

// Without f->convert, libsndfile may know it.
static dt_status open_wav(dt_audio_file *f, dt_span s) {
    bool have_format = false;
    for (size_t at = 12; s.n_bytes - at >= 8;) {
        const uint8_t *p = s.data + at;
        uint32_t n = dt_le32(p + 4);
        size_t left = s.n_bytes - at - 8;
        if (memcmp(p, "data", 4) == 0) {
            if (!have_format) return dt_fail(DT_E_DATA, "WAV: no format before the samples");
            if (n > left && n < PIPE_LENGTH)
                return dt_fail(DT_E_DATA, "WAV: cut: %u bytes of samples announced, %zu are there", n, left);
            if (!f->convert) return DT_OK;
            f->samples = p + 8;
            size_t frame = f->sample_bytes * (size_t)f->info.channels;
            f->info.n_samples = (int64_t)((n < left ? n : left) / frame);
            return DT_OK;
        }
        if (n > left) break;
        if (memcmp(p, "fmt ", 4) == 0) {
            if (n < 16) return dt_fail(DT_E_DATA, "WAV: a format of %u bytes", n);
            read_format(f, p + 8, n);
            have_format = true;
        }
        at += 8 + (size_t)n + (n & 1 && n < left ? 1 : 0);
    }
    return dt_fail(DT_E_DATA, "WAV: cut: it ends before its samples begin");
}

// ---- libsndfile --------------------------------------------------------------------------------------
static sf_count_t memory_length(void *user) {
    return (sf_count_t)((dt_audio_file *)user)->bytes.n_bytes;
}

static sf_count_t memory_seek(sf_count_t offset, int whence, void *user) {
    dt_audio_file *f = user;
    sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? f->at : memory_length(user), to;
    if (__builtin_add_overflow(from, offset, &to) || to < 0) return -1;
    return f->at = to;
}

static sf_count_t memory_read(void *out, sf_count_t n, void *user) {
    dt_audio_file *f = user;
    sf_count_t left = memory_length(user) - f->at;
    if (n > left) n = left;
    if (n <= 0) return 0;
    memcpy(out, f->bytes.data + f->at, (size_t)n);
    f->at += n;
    if (f->at > f->last_read) f->last_read = f->at;
    return n;
}

static sf_count_t memory_tell(void *user) {
    return ((dt_audio_file *)user)->at;
}

// Whether an MP3's first frame states how many follow.
static bool states_length(dt_span s) {
    static const char *const TAGS[] = {"Xing", "Info", "VBRI"};
    const uint8_t *p = s.data;
    size_t at = 0;
    if (s.n_bytes >= 10 && memcmp(p, "ID3", 3) == 0)
        at = 10 + ((size_t)(p[6] & 127) << 21 | (size_t)(p[7] & 127) << 14 | (size_t)(p[8] & 127) << 7 | (p[9] & 127));
    if (at > s.n_bytes) return false;
    const size_t n = s.n_bytes - at < MP3_HEAD ? s.n_bytes - at : MP3_HEAD;
    for (size_t i = 0; i < sizeof TAGS / sizeof *TAGS; i++)
        if (memmem(p + at, n, TAGS[i], 4)) return true;
    return false;
}

static _Thread_local dt_audio_file *counted; // whose frames are to be counted, or NULL

static dt_status open_sound(dt_audio_file *f) {
    SF_VIRTUAL_IO io = {.get_filelen = memory_length, .seek = memory_seek, .read = memory_read, .tell = memory_tell};
    SF_INFO info = {0};
    if (f->sound) sf_close(f->sound);
    f->at = f->position = 0;
    counted = strcmp(f->name, "mp3") == 0 && !states_length(f->bytes) ? f : NULL;
    f->sound = sf_open_virtual(&io, SFM_READ, &info, f);
    if (!f->sound) return dt_fail(DT_E_DATA, "%s: %s", f->name, sf_strerror(NULL));
    f->info = (dt_audio_info){info.samplerate, info.channels, info.frames};
    if (counted && (size_t)f->last_read + MP3_TAIL < f->bytes.n_bytes)
        return dt_fail(DT_E_DATA, "mp3: damaged: its frames end at byte %lld of %zu", (long long)f->last_read,
                       f->bytes.n_bytes);
    if (info.frames > MAX_LENGTH) return dt_fail(DT_E_DATA, "%s: its header does not say how long it is", f->name);
    return DT_OK;
}

static dt_status read_frames(dt_audio_file *f, float *out, size_t n) {
    f->position += (sf_count_t)n;
    return sf_readf_float(f->sound, out, (sf_count_t)n) == (sf_count_t)n
               ? DT_OK
               : dt_fail(DT_E_DATA, "cut or damaged: it has fewer than the %lld samples of its header",
                         (long long)f->info.n_samples);
}

// libsndfile's call comes here, as the program's functions come before a library's: mpg123 then decodes enough frames
// in advance (255 bytes of them are needed, of 9 at least at 8 kbit/s), and writes nothing to stderr about the first.
static _Atomic bool has_new_mpg123;
mpg123_handle *mpg123_new(const char *decoder, int *error) {
    mpg123_handle *(*make)(const char *, int *) =
        (mpg123_handle * (*)(const char *, int *)) dlsym(RTLD_NEXT, "mpg123_new");
    int (*set)(mpg123_handle *, enum mpg123_parms, long, double) =
        (int (*)(mpg123_handle *, enum mpg123_parms, long, double))dlsym(RTLD_NEXT, "mpg123_param");
    mpg123_handle *h = make(decoder, error);
    has_new_mpg123 =
        h && set(h, MPG123_ADD_FLAGS, MPG123_QUIET, 0) == MPG123_OK && set(h, MPG123_PREFRAMES, 32, 0) == MPG123_OK;
    if (h && counted) set(h, MPG123_RESYNC_LIMIT, -1, 0); // behind damage frames go on
    return h;
}

// The length of an MP3 that does not state it is the number of its frames: mpg123's guess from the size of the first one is
// off by a factor where they differ, and by tags where they do not.
off_t mpg123_length(mpg123_handle *h) {
    int (*scan)(mpg123_handle *) = (int (*)(mpg123_handle *))dlsym(RTLD_NEXT, "mpg123_scan");
    off_t (*length)(mpg123_handle *) = (off_t(*)(mpg123_handle *))dlsym(RTLD_NEXT, "mpg123_length");
    if (counted) counted->last_read = 0;
    if (counted && scan(h) != MPG123_OK) return MPG123_ERR;
    return length(h);
}

// What cannot be sought, GSM for one, is read from the beginning.
static dt_status go_to(dt_audio_file *f, int64_t begin) {
    if (begin == f->position) return DT_OK;
    if (f->position > 0 && (begin < f->position || !f->only_on)) DT_TRY(open_sound(f));
    sf_count_t to = begin < f->last_page ? begin : f->last_page;
    if (strcmp(f->name, "mp3") == 0 && !has_new_mpg123) f->only_on = true;
    if (!f->only_on && to > 0 && sf_seek(f->sound, to, SEEK_SET) != to) {
        DT_TRY(open_sound(f));
        f->only_on = true;
    } else if (!f->only_on) {
        f->position = to;
    }
    int64_t at_once = BLOCK / f->info.channels;
    for (int64_t left = begin - f->position; left > 0; left -= at_once)
        DT_TRY(read_frames(f, f->block, (size_t)(left < at_once ? left : at_once)));
    return DT_OK;
}

// ---- both ----------------------------------------------------------------------------------------------
static dt_status check_info(const dt_audio_info *i, const char *kind) {
    if (i->channels < 1 || i->channels > DT_AUDIO_MAX_CHANNELS)
        return dt_fail(DT_E_DATA, "%s: %d channels", kind, i->channels);
    if (i->rate < 1 || i->rate > DT_AUDIO_MAX_RATE) return dt_fail(DT_E_DATA, "%s: a rate of %d Hz", kind, i->rate);
    if (i->n_samples < 1) return dt_fail(DT_E_DATA, "%s: without samples", kind);
    return DT_OK;
}

static void begin_file(dt_audio_file *f, dt_span bytes) {
    if (f->sound) sf_close(f->sound);
    f->sound = NULL;
    f->only_on = false;
    f->convert = NULL;
    f->series.n = 0;
    f->bytes = bytes;
}

dt_status dt_audio_file_open_series(dt_audio_file *f, dt_span bytes, const double origin[DT_AUDIO_MAX_CHANNELS],
                                    dt_audio_info *out) {
    begin_file(f, bytes);
    f->origin = origin;
    DT_TRY(dt_series_read(bytes, &f->series, &f->numbers));
    const int64_t *shape = f->series.shape;
    if (shape[1] > DT_AUDIO_MAX_CHANNELS)
        return dt_fail(DT_E_DATA,
                       "a series of (%lld, %lld): rows are samples and columns channels, of which "
                       "%d are the most",
                       (long long)shape[0], (long long)shape[1], DT_AUDIO_MAX_CHANNELS);
    *out = f->info = (dt_audio_info){0, (int)shape[1], shape[0]};
    return DT_OK;
}

static void read_series(const dt_npy *a, const double *origin, int64_t begin, size_t n, float *out) {
    for (int64_t i = begin; i < begin + (int64_t)n; i++)
        for (int64_t c = 0; c < a->shape[1]; c++)
            *out++ = (float)(dt_npy_get(a, i * a->stride[0] + c * a->stride[1]) - origin[c]);
}

dt_status dt_audio_file_open(dt_audio_file *f, dt_span bytes, dt_audio_info *out) {
    begin_file(f, bytes);
    const dt_kind *kind = dt_kind_of_bytes(bytes.data, bytes.n_bytes);
    if (kind && kind->tool) return dt_fail(DT_E_DATA, "a %s file, which is not read: %s", kind->name, kind->tool);
    if (!kind || !(kind->uses & DT_KIND_AUDIO))
        return dt_fail(DT_E_DATA, "not a sound (its %zu bytes start like none that dtrain knows)", bytes.n_bytes);
    f->name = kind->name;
    if (bytes.n_bytes >= 12 && memcmp(bytes.data, "RIFF", 4) == 0) DT_TRY(open_wav(f, bytes));
    if (!f->convert) {
        DT_TRY(dt_audio_check_whole(kind, &f->bytes, &f->last_page));
        DT_TRY(open_sound(f));
    }
    DT_TRY(check_info(&f->info, f->name));
    *out = f->info;
    return DT_OK;
}

// Frames of n_in channels, interleaved, to rows of n_out.
static void audio_file_mix(const float *restrict in, size_t n, int n_in, int n_out, float *restrict out,
                           size_t stride) {
    size_t step = (size_t)n_in;
    if (n_out == 1 && n_in == 2) {
        for (size_t i = 0; i < n; i++) out[i] = (in[2 * i] + in[2 * i + 1]) * 0.5f;
    } else if (n_out == 1) {
        for (size_t i = 0; i < n; i++) {
            float sum = in[i * step];
            for (size_t c = 1; c < step; c++) sum += in[i * step + c];
            out[i] = sum / (float)n_in;
        }
    } else {
        for (int c = 0; c < n_out; c++)
            for (size_t i = 0; i < n; i++) out[(size_t)c * stride + i] = in[i * step + (n_in == 1 ? 0 : (size_t)c)];
    }
}

static bool is_loud(const float *x, size_t n) {
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) bad |= !(fabsf(x[i]) <= LOUDEST);
    return bad;
}

dt_status dt_audio_file_read(dt_audio_file *f, int64_t begin, int64_t n, int channels, float *out, size_t stride) {
    int n_in = f->info.channels;
    if (f->series.n && channels != n_in)
        return dt_fail(DT_E_DATA,
                       "a series of (%lld, %d), rows are samples and columns channels: the field "
                       "has channels: %d",
                       (long long)f->info.n_samples, n_in, channels);
    if (channels != n_in && channels != 1 && n_in != 1)
        return dt_fail(DT_E_DATA, "%d channels, of which %d cannot be made", n_in, channels);
    if (f->sound) DT_TRY(go_to(f, begin));
    size_t frame = (size_t)n_in, at_once = BLOCK / frame;
    for (int64_t done = 0; done < n;) {
        size_t m = (size_t)(n - done) < at_once ? (size_t)(n - done) : at_once;
        float *to = n_in == 1 && channels == 1 ? out + done : f->block;
        if (f->sound) {
            DT_TRY(read_frames(f, to, m));
        } else if (f->series.n) {
            read_series(&f->series, f->origin, begin + done, m, to);
        } else {
            size_t at = (size_t)(begin + done) * frame * f->sample_bytes;
            f->convert(f->samples + at, m * frame, to);
        }
        bool is_float = f->sound || f->series.n || f->convert == from_f32;
        if (is_float && is_loud(to, m * frame))
            return dt_fail(DT_E_DATA, "its samples are no %s: NaN, infinite or above 1e15",
                           f->series.n ? "signal" : "sound");
        if (to == f->block) audio_file_mix(to, m, n_in, channels, out + done, stride);
        done += (int64_t)m;
    }
    return DT_OK;
}
