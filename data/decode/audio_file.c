// audio_file.c: the samples of WAV files, and through libsndfile of FLAC, Ogg, AIFF and others.
//
// Most data sets are WAV, and libsndfile allocates at each open. WAV is simple: RIFF chunks are walked here,
// every length checked, and integers of 16 or 24 bits or 32-bit floats converted. WAV in other codings (8 bits,
// A-law), RF64 and big-endian RIFX go to libsndfile, as FLAC and Ogg do, from memory. libsndfile only gets bytes that
// begin like a sound of kinds.def: its parsers of old formats, which accept almost anything, stay out of reach.
//
// A cut or damaged file is an error wherever that can be known: WAV whose samples end beyond the file, other
// formats by what their containers state (below), and any file that gives fewer samples than its header
// says.
//
// A part of a compressed file is what the whole decode has at its place (Opus, which forgets slowly: within 1e-2). An
// MP3 frame needs bits of frames before it, so 32 of them are decoded in advance (mpg123_new below). Vorbis is sought
// in a newly opened file only, and no further than its last page: elsewhere libsndfile 1.2 arrives at another sample.
// Format: IBM/Microsoft, "Multimedia Programming Interface and Data Specifications 1.0", 1991;
// WAVEFORMATEXTENSIBLE as documented by Microsoft.

#include "array.h"
#include "audio.h"

#include "base/bits.h"
#include "base/core.h"

#include <dlfcn.h>
#include <endian.h>
#include <math.h>
#include <mpg123.h>
#include <pthread.h>
#include <sndfile.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, MP3_HEAD = 4096, MP3_TAIL = 512 };
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
    bool only_on;       // cannot seek
    size_t unstated_at; // of a WAV: where 0 stands for a length that is not known; else 0
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
        // in the upper 24 bits: the sign comes for free
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
    f->info.rate = (int)(dt_le32(p + 4) & INT32_MAX); // no rate is above 2^31: checked behind
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
            const uint64_t n_data = dt_wav_data_bytes(dt_le32(s.data + 4), n, at + 8, left);
            if (n_data > left)
                return dt_fail(DT_E_DATA, "WAV: cut: %u bytes of samples announced, %zu are there", n, left);
            if (n == 0 && n_data > 0) f->unstated_at = at + 4;
            if (!f->convert) return DT_OK; // A-law, ADPCM, 8 or 32 bits: libsndfile's
            f->samples = p + 8;
            size_t frame = f->sample_bytes * (size_t)f->info.channels;
            f->info.n_samples = (int64_t)(n_data / frame);
            return DT_OK;
        }
        if (n > left) break;
        if (memcmp(p, "fmt ", 4) == 0) {
            if (n < 16) return dt_fail(DT_E_DATA, "WAV: a format of %u bytes", n);
            read_format(f, p + 8, n);
            have_format = true;
        }
        at += 8 + (size_t)n + (n & 1 && n < left ? 1 : 0); // chunks are padded to even sizes
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
    for (size_t i = 0; i < 4 && f->unstated_at; i++) { // what libsndfile takes for the rest
        const sf_count_t at = (sf_count_t)(f->unstated_at + i) - f->at;
        if (at >= 0 && at < n) ((uint8_t *)out)[at] = 0xff;
    }
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
        // ID3v2: four times seven bits
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
    // SF_COUNT_MAX: a header for a stream
    if (info.frames > MAX_LENGTH) return dt_fail(DT_E_DATA, "%s: its header has no length", f->name);
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
    // no seek into an Ogg's last page: from its beginning on it is read
    sf_count_t to = begin < f->last_page ? begin : f->last_page;
    // without the frames in advance a seek gives other samples
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

// ---- audio whole --------------------------------------------------------------------------------------------------

// Cut and damaged sound files, found by what their containers state.
//
// libsndfile decodes whatever is left of a file: of an Ogg with one wrong bit the pages before it, of a cut
// AIFF the samples that are there. In training that is silently wrong data, so the containers are checked
// first. An Ogg page has a CRC-32, a number, and a flag on the last one, so any missing or changed page is
// found. RIFX, RF64, W64, AIFF, AU and CAF state sizes; a size that stands for "unknown", as writers to a pipe
// leave, is taken as the rest. MP3 states its length at most. FLAC's frames have checksums that
// the decoder verifies.
//
// Formats: RFC 3533 (Ogg); EBU Tech 3306 (RF64); Apple, "Audio Interchange File Format 1.3" and "Core Audio
// Format 1.0"; Sun's au(4).

enum { UNKNOWN = 0x7f000000, PAGE = 27, MAX_STREAMS = 16 };

static dt_status audio_whole_cut(const char *what, uint64_t announced, size_t there) {
    return dt_fail(DT_E_DATA, "%s: cut: %llu bytes announced, %zu are there", what, (unsigned long long)announced,
                   there);
}

// ---- sizes -----------------------------------------------------------------------------------------
static dt_status audio_whole_check_size(const char *what, uint64_t n, size_t before, size_t there) {
    // larger than any file: unknown
    return n < UNKNOWN && n > there - before ? audio_whole_cut(what, n + before, there) : DT_OK;
}

// Walks the chunks after the first 12 bytes to the one with the samples. The size of the whole is not used: some
// writers get it wrong by their own header. *n: what the chunk announces; *at: where its samples begin.
static dt_status find_samples(const char *what, dt_span s, const char *samples, bool big_endian, uint64_t *n,
                              size_t *at) {
    for (*at = 12; s.n_bytes - *at >= 8;) {
        const uint8_t *p = s.data + *at;
        *n = big_endian ? dt_be32(p + 4) : dt_le32(p + 4);
        *at += 8;
        if (memcmp(p, samples, 4) == 0) return DT_OK;
        if (*n + (*n & 1) > s.n_bytes - *at) break;
        *at += (size_t)(*n + (*n & 1));
    }
    return dt_fail(DT_E_DATA, "%s: cut: it ends before its samples begin", what);
}

static dt_status check_chunks(const char *what, dt_span s, const char *samples) {
    uint64_t n = 0;
    size_t at = 0;
    DT_TRY(find_samples(what, s, samples, true, &n, &at));
    return audio_whole_check_size(what, n, at, s.n_bytes);
}

static dt_status check_wav(dt_span s) {
    uint64_t n;
    size_t at;
    if (memcmp(s.data, "RIFX", 4) == 0) return check_chunks("WAV", s, "data");
    if (memcmp(s.data, "RF64", 4) != 0) return DT_OK; // RIFF: its chunks are walked when it is opened
    if (s.n_bytes < 36 || memcmp(s.data + 12, "ds64", 4) != 0)
        return dt_fail(DT_E_DATA, "RF64: no sizes before the format");
    DT_TRY(find_samples("RF64", s, "data", false, &n, &at));
    n = dt_le64(s.data + 28); // RF64 states 0xffffffff in the chunk, and 64 bits in ds64
    return n > s.n_bytes - at ? audio_whole_cut("RF64", n, s.n_bytes - at) : DT_OK;
}

// Sony Wave64: GUIDs instead of names, sizes of 64 bits that count the 24 bytes of their header, chunks at multiples of 8.
static dt_status check_w64(dt_span s) {
    for (size_t at = 40; s.n_bytes >= 24 && at <= s.n_bytes - 24;) {
        const uint64_t n = dt_le64(s.data + at + 16), left = s.n_bytes - at;
        const bool is_data = memcmp(s.data + at, "data\xf3\xac\xd3\x11", 8) == 0;
        if (n < 24 || n > left) return audio_whole_cut("W64", n, left);
        if (is_data) return DT_OK;
        at += dt_align_up(n, 8);
    }
    return dt_fail(DT_E_DATA, "W64: cut: it ends before its samples begin");
}

static dt_status check_au(dt_span s) {
    uint64_t head = dt_be32(s.data + 4);
    if (head > s.n_bytes) return audio_whole_cut("AU", head, s.n_bytes);
    return audio_whole_check_size("AU", dt_be32(s.data + 8), (size_t)head, s.n_bytes);
}

static dt_status check_caf(dt_span s) {
    for (size_t at = 8; at < s.n_bytes;) {
        if (s.n_bytes - at < 12) return audio_whole_cut("CAF", at + 12, s.n_bytes);
        uint64_t n = dt_be64(s.data + at + 4);
        if (n == UINT64_MAX) return DT_OK; // the rest
        at += 12;
        if (n > s.n_bytes - at) return audio_whole_cut("CAF", at + n, s.n_bytes);
        at += (size_t)n;
    }
    return DT_OK;
}

// ---- Ogg -------------------------------------------------------------------------------------------
static uint32_t crc_table[8][256]; // of a byte that so many others follow

static void make_crc_table(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t v = b << 24;
        for (int i = 0; i < 8; i++) v = v << 1 ^ (v >> 31 ? 0x04c11db7 : 0);
        crc_table[0][b] = v;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++) {
            uint32_t v = crc_table[k - 1][b];
            // eight bytes at once: slicing by 8 (Kounavis and Berry, 2005)
            crc_table[k][b] = v << 8 ^ crc_table[0][v >> 24];
        }
}

static uint32_t crc_of(uint32_t crc, const uint8_t *p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        crc ^= dt_be32(p);
        crc = crc_table[7][crc >> 24] ^ crc_table[6][crc >> 16 & 255] ^ crc_table[5][crc >> 8 & 255] ^
              crc_table[4][crc & 255] ^ crc_table[3][p[4]] ^ crc_table[2][p[5]] ^ crc_table[1][p[6]] ^
              crc_table[0][p[7]];
    }
    for (size_t i = 0; i < n; i++) crc = crc << 8 ^ crc_table[0][crc >> 24 ^ p[i]];
    return crc;
}

static bool is_page(dt_span s, size_t at) {
    return s.n_bytes - at >= 4 && memcmp(s.data + at, "OggS", 4) == 0;
}

// Bytes of the page at `at`, whose checksum is right.
static dt_status audio_whole_read_page(dt_span s, size_t at, size_t *n_bytes) {
    static const uint8_t ZERO[4] = {0};
    const uint8_t *p = s.data + at;
    size_t left = s.n_bytes - at, n = PAGE;
    if (left < PAGE) return audio_whole_cut("Ogg", at + PAGE, s.n_bytes);
    if (!is_page(s, at)) return dt_fail(DT_E_DATA, "Ogg: damaged: no page at byte %zu", at);
    n += p[26];
    if (left < n) return audio_whole_cut("Ogg", at + n, s.n_bytes);
    for (int i = 0; i < p[26]; i++) n += p[PAGE + i];
    if (left < n) return audio_whole_cut("Ogg", at + n, s.n_bytes);
    uint32_t crc = crc_of(crc_of(crc_of(0, p, 22), ZERO, 4), p + 26, n - 26); // as if the field of the checksum were 0
    if (crc != dt_le32(p + 22))
        return dt_fail(DT_E_DATA, "Ogg: damaged: the page at byte %zu has another checksum", at);
    *n_bytes = n;
    return DT_OK;
}

typedef struct stream {
    uint32_t serial, next;
    bool open;
} stream;

// Pages of a stream are numbered without a gap, from the one that begins it to the one that ends it.
static dt_status audio_whole_follow(stream *streams, const uint8_t *page, size_t at) {
    bool begins = page[5] & 2, ends = page[5] & 4;
    uint32_t serial = dt_le32(page + 14), number = dt_le32(page + 18);
    stream *t = NULL;
    for (int i = 0; i < MAX_STREAMS; i++) {
        if (streams[i].open && streams[i].serial == serial) t = &streams[i];
        if (!t && begins && !streams[i].open) t = &streams[i];
    }
    if (!t && begins) return dt_fail(DT_E_DATA, "Ogg: more than %d streams at once", MAX_STREAMS);
    if (!t) return dt_fail(DT_E_DATA, "Ogg: cut: the page at byte %zu has no beginning", at);
    if (t->open && number != t->next)
        return dt_fail(DT_E_DATA, "Ogg: cut: page %u is followed by %u at byte %zu", t->next - 1, number, at);
    *t = (stream){serial, number + 1, !ends};
    return DT_OK;
}

static bool any_open(const stream *streams) {
    bool any = false;
    for (int i = 0; i < MAX_STREAMS; i++) any = any || streams[i].open;
    return any;
}

static dt_status check_ogg(dt_span *whole, int64_t *last_page) {
    const dt_span s = *whole;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    stream streams[MAX_STREAMS] = {{0}};
    size_t n = 0;
    int64_t end = 0; // of what the pages so far have
    pthread_once(&once, make_crc_table);
    for (size_t at = 0; at < s.n_bytes; at += n) {
        if (at > 0 && !any_open(streams) && !is_page(s, at)) { // tags of other programs behind the last page
            whole->n_bytes = at;
            break;
        }
        DT_TRY(audio_whole_read_page(s, at, &n));
        DT_TRY(audio_whole_follow(streams, s.data + at, at));
        *last_page = end;
        // -1: no packet ends on the page
        if ((int64_t)dt_le64(s.data + at + 6) >= 0) end = (int64_t)dt_le64(s.data + at + 6);
    }
    if (any_open(streams)) return dt_fail(DT_E_DATA, "Ogg: cut: its last page is not marked as the last");
    return DT_OK;
}

// What the container itself states (audio_file.c): sizes of RIFX, RF64, W64, AIFF, AU and CAF; pages of Ogg with their
// checksums. DT_E_DATA with the place. Whatever follows the last page of an Ogg, such as a tag, is cut off s,
// because libsndfile looks for that page at the end. *last_page: the sample at which that page begins (of Opus: in
// 48,000 a second); of other kinds INT64_MAX.
static dt_status audio_check_whole(const dt_kind *k, dt_span *s, int64_t *last_page) {
    *last_page = INT64_MAX;
    if (strcmp(k->name, "ogg") == 0) return check_ogg(s, last_page);
    if (s->n_bytes < 12) return DT_OK; // too short for a size: the decoder says so
    if (strcmp(k->name, "wav") == 0) return check_wav(*s);
    if (strcmp(k->name, "w64") == 0) return check_w64(*s);
    if (strcmp(k->name, "aiff") == 0) return check_chunks("AIFF", *s, "SSND");
    if (strcmp(k->name, "au") == 0) return check_au(*s);
    if (strcmp(k->name, "caf") == 0) return check_caf(*s);
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
    f->unstated_at = 0;
    f->convert = NULL;
    f->series.n = 0;
    f->bytes = bytes;
}

dt_status dt_audio_file_open_series(dt_audio_file *f, dt_span bytes, const dt_audio_clip *want, dt_audio_info *out) {
    double rate;
    begin_file(f, bytes);
    f->origin = want->origin;
    DT_TRY(dt_series_read(bytes, &want->names, &f->series, &rate, &f->numbers));
    const int64_t *shape = f->series.shape;
    if (shape[1] > DT_AUDIO_MAX_CHANNELS)
        return dt_fail(DT_E_DATA,
                       "a series of (%lld, %lld): rows are samples and columns channels, of which "
                       "%d are the most",
                       (long long)shape[0], (long long)shape[1], DT_AUDIO_MAX_CHANNELS);
    if (rate == 0) rate = want->stated_rate;
    if (rate == want->rate) rate = 0;
    if (!(rate >= 0) || rate != floor(rate) || rate > DT_AUDIO_MAX_RATE)
        return dt_fail(DT_E_DATA, "a series of %g Hz, which cannot become %g: set rate", rate, want->rate);
    *out = f->info = (dt_audio_info){(int)rate, (int)shape[1], shape[0]};
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
        return dt_fail(DT_E_DATA, "not audio (its %zu bytes start like none that dtrain knows)", bytes.n_bytes);
    f->name = kind->name;
    if (bytes.n_bytes >= 12 && memcmp(bytes.data, "RIFF", 4) == 0) DT_TRY(open_wav(f, bytes));
    if (!f->convert) {
        DT_TRY(audio_check_whole(kind, &f->bytes, &f->last_page));
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
    // NaN fails the comparison, too; no branch, which vectorises
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
        float *to = n_in == 1 && channels == 1 ? out + done : f->block; // one channel to one: no copy
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
