// Sounds: WAV in every coding and what is wrong with it; formats of libsndfile; places and padding of
// clips; transforms of all kinds of lengths against their definition; logarithms; options that do not
// fit. Agreement with librosa and torchaudio is tests/golden/test_golden_audio.c.
#include "base/io.h"
#include "data/decode/audio.h"
#include "data/decode/fft.h"
#include "testing.h"

#include <math.h>
#include <sndfile.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dt_clipper *clipper;

static void put(uint8_t *p, uint64_t v, int n) {
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
}

// ---- WAV -------------------------------------------------------------------------------------------
typedef struct wav_kind {
    int tag, bits, channels;
    bool extensible, odd_chunk; // odd_chunk: a chunk of odd length comes first
} wav_kind;

// Sample i of channel c is (i * 3 - 40 + 20 c) / 128, which every coding holds exactly.
static double value(int i, int c) {
    return ((i * 3 + 20 * c) % 200 - 100) / 128.0;
}

static void put_sample(uint8_t *p, const wav_kind *k, double v) {
    if (k->tag == 3) {
        float f = (float)v;
        memcpy(p, k->bits == 32 ? (void *)&f : (void *)&v, (size_t)k->bits / 8);
    } else if (k->bits == 8)
        p[0] = (uint8_t)(v * 128 + 128);
    else
        put(p, (uint64_t)(int64_t)(v * ldexp(1, k->bits - 1)), k->bits / 8);
}

static size_t make_wav(uint8_t *out, const wav_kind *k, int n) {
    size_t format = k->extensible ? 40 : 16, frame = (size_t)(k->bits / 8 * k->channels), at = 12;
    memcpy(out, "RIFF\0\0\0\0WAVE", 12);
    if (k->odd_chunk) {
        memcpy(out + at, "LIST\3\0\0\0abc\0", 12);
        at += 12;
    }
    memset(out + at, 0, 8 + format);
    memcpy(out + at, "fmt ", 4);
    put(out + at + 4, format, 4);
    put(out + at + 8, k->extensible ? 0xfffe : (uint64_t)k->tag, 2);
    put(out + at + 10, (uint64_t)k->channels, 2);
    put(out + at + 12, 8000, 4);
    put(out + at + 16, 8000 * frame, 4);
    put(out + at + 20, frame, 2);
    put(out + at + 22, (uint64_t)k->bits, 2);
    if (k->extensible) put(out + at + 32, (uint64_t)k->tag, 2);
    at += 8 + format;
    memcpy(out + at, "data", 4);
    put(out + at + 4, frame * (size_t)n, 4);
    at += 8;
    for (int i = 0; i < n; i++)
        for (int c = 0; c < k->channels; c++, at += (size_t)k->bits / 8) put_sample(out + at, k, value(i, c));
    put(out + 4, at - 8, 4);
    return at;
}

static const wav_kind WAVS[] = {{1, 8, 1},  {1, 16, 1}, {1, 16, 2}, {1, 24, 1, true},      {1, 24, 2},
                                {1, 32, 1}, {3, 32, 1}, {3, 64, 2}, {1, 16, 3, true, true}};
enum { N_WAVS = sizeof WAVS / sizeof *WAVS };

// An exact copy, so that AddressSanitizer sees a read past the end.
static dt_status run(const uint8_t *bytes, size_t n, const dt_audio_clip *c, uint64_t at, float *out) {
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, bytes, n);
    dt_status st = dt_clipper_run(clipper, (dt_span){copy, n}, c, at, out, (size_t)c->n_samples);
    free(copy);
    return st;
}

static void run_ok(const uint8_t *bytes, size_t n, const dt_audio_clip *c, uint64_t at, float *out) {
    dt_status st = run(bytes, n, c, at, out);
    must(st);
}

TEST(test_wav) {
    uint8_t bytes[4096];
    float out[3 * 100];
    for (int i = 0; i < N_WAVS; i++) {
        const wav_kind *k = &WAVS[i];
        size_t n = make_wav(bytes, k, 100);
        dt_audio_clip own = {8000, k->channels, 100, DT_PAD_zero}, mono = {8000, 1, 100, DT_PAD_zero};
        run_ok(bytes, n, &own, DT_CLIP_CENTRE, out);
        for (int c = 0; c < k->channels; c++)
            for (int s = 0; s < 100; s++)
                if (out[c * 100 + s] != (float)value(s, c))
                    fail_msg("kind %d, channel %d, sample %d: %g, not %g", i, c, s, (double)out[c * 100 + s],
                             value(s, c));
        run_ok(bytes, n, &mono, DT_CLIP_CENTRE, out);
        for (int s = 0; s < 100; s++) {
            double mean = 0;
            for (int c = 0; c < k->channels; c++) mean += value(s, c) / k->channels;
            assert_true(fabs((double)out[s] - mean) < 1e-7);
        }
        if (k->channels == 3) { // neither the mean nor a copy
            dt_audio_clip two = {8000, 2, 100, DT_PAD_zero};
            assert_int_equal(run(bytes, n, &two, 0, out), DT_E_DATA);
        }
    }
    size_t n = make_wav(bytes, &WAVS[1], 100);
    dt_audio_clip two = {8000, 2, 100, DT_PAD_zero};
    run_ok(bytes, n, &two, 0, out);
    assert_memory_equal(out, out + 100, 100 * sizeof *out);
}

// Cut anywhere: an error with a reason, whatever was cut; a length from a pipe is no cut.
TEST(test_cut_wav) {
    uint8_t bytes[4096];
    float out[3 * 100];
    for (int i = 0; i < N_WAVS; i++) {
        dt_audio_clip c = {8000, 1, 100, DT_PAD_zero};
        size_t n = make_wav(bytes, &WAVS[i], 100);
        for (size_t cut = 0; cut < n; cut++) {
            assert_int_equal(run(bytes, cut, &c, 0, out), DT_E_DATA);
            assert_true(strlen(dt_error_message()) > 10);
        }
        put(bytes + n - 4 - (size_t)(100 * WAVS[i].bits / 8 * WAVS[i].channels), 0xffffffff, 4);
        run_ok(bytes, n, &c, 0, out);
        assert_true(out[99] != 0);
        put(bytes + n - 4 - (size_t)(100 * WAVS[i].bits / 8 * WAVS[i].channels), 0, 4);
        for (int riff = 0; riff < 3; riff++) { // 0, -1, or the header alone
            put(bytes + 4, riff == 2 ? n - 8 - (size_t)(100 * WAVS[i].bits / 8 * WAVS[i].channels) : (uint64_t)-riff,
                4);
            memset(out, 0, sizeof out);
            run_ok(bytes, n, &c, 0, out);
            assert_true(out[99] != 0);
        }
        put(bytes + 4, n - 8, 4); // no samples, and chunks behind them
        must_fail(DT_E_DATA, "without samples", run(bytes, n, &c, 0, out));
    }
}

TEST(test_damaged_wav) {
    uint8_t bytes[4096], *data;
    float out[100];
    dt_audio_clip c = {8000, 1, 100, DT_PAD_zero};
    size_t n = make_wav(bytes, &WAVS[6], 100); // floats
    float bad[] = {NAN, INFINITY, -1e20f};
    for (int i = 0; i < 3; i++) {
        memcpy(bytes + n - 40, &bad[i], 4);
        must_fail(DT_E_DATA, "no sound", run(bytes, n, &c, 0, out));
    }
    n = make_wav(bytes, &WAVS[1], 100);
    for (size_t at = 0; at < 44; at++) // any byte of the header
        for (int v = 0; v < 256; v++) {
            uint8_t kept = bytes[at];
            bytes[at] = (uint8_t)v;
            dt_status st = run(bytes, n, &c, UINT32_MAX, out);
            assert_true(st == DT_OK || st == DT_E_DATA);
            bytes[at] = kept;
        }
    n = make_wav(bytes, &WAVS[1], 0);
    must_fail(DT_E_DATA, "without samples", run(bytes, n, &c, 0, out));
    data = (uint8_t *)"no sound at all";
    assert_int_equal(run(data, 15, &c, 0, out), DT_E_DATA);
}

typedef struct sounded { // a file in memory
    uint8_t bytes[1 << 18];
    size_t n, at;
} sounded;

static sf_count_t sounded_length(void *user) {
    return (sf_count_t)((sounded *)user)->n;
}

static sf_count_t sounded_seek(sf_count_t offset, int whence, void *user) {
    sounded *m = user;
    sf_count_t from = whence == SEEK_SET ? 0 : (sf_count_t)(whence == SEEK_CUR ? m->at : m->n);
    m->at = (size_t)(from + offset);
    return (sf_count_t)m->at;
}

static sf_count_t sounded_read(void *out, sf_count_t n, void *user) {
    return 0; // only written
}

static sf_count_t sounded_write(const void *data, sf_count_t n, void *user) {
    sounded *m = user;
    assert_true(m->at + (size_t)n <= sizeof m->bytes);
    memcpy(m->bytes + m->at, data, (size_t)n);
    m->at += (size_t)n;
    m->n = m->at > m->n ? m->at : m->n;
    return n;
}

static sf_count_t sounded_tell(void *user) {
    return (sf_count_t)((sounded *)user)->at;
}

// ---- libsndfile --------------------------------------------------------------------------------------
static uint8_t *corpus(const char *name, size_t *n) {
    char path[1024], *data;
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus_audio/%s", getenv("SOURCE"), name);
    must(dt_io_read_file(&data, n, path, 0, DT_E_DATA));
    return (uint8_t *)data;
}

// What soundfile wrote from the same samples reads as the same samples.
TEST(test_formats) {
    static const struct {
        const char *a, *b;
        double within;
    } PAIRS[] = {
        {"mono16.wav", "mono16.flac", 0},     {"mono16.wav", "mono16.aiff", 0},   {"mono16.wav", "mono16.au", 0},
        {"mono16.wav", "float.wav", 0},       {"mono16.wav", "mono8.wav", 1e-2},  {"mono16.wav", "ulaw.wav", 2e-2},
        {"mono16.wav", "mono.ogg", 0.3},      {"mono16.wav", "mono16.w64", 0},    {"mono16.wav", "mpeg25.mp3", 0.1},
        {"stereo24.wav", "stereo24.flac", 0}, {"stereo24.wav", "stereo32.wav", 0}};
    for (size_t i = 0; i < sizeof PAIRS / sizeof *PAIRS; i++) {
        size_t n_a, n_b;
        uint8_t *a = corpus(PAIRS[i].a, &n_a), *b = corpus(PAIRS[i].b, &n_b);
        int channels = strstr(PAIRS[i].a, "stereo") ? 2 : 1;
        dt_audio_clip c = {8000, channels, 200, DT_PAD_zero};
        float x[400] = {0}, y[400] = {0};
        double energy = 0;
        run_ok(a, n_a, &c, 0, x);
        run_ok(b, n_b, &c, 0, y);
        for (int s = 0; s < 200 * channels; s++) {
            energy += (double)x[s] * (double)x[s];
            if (fabs((double)x[s] - (double)y[s]) > PAIRS[i].within)
                fail_msg("%s, %s: sample %d is %g and %g", PAIRS[i].a, PAIRS[i].b, s, (double)x[s], (double)y[s]);
        }
        assert_true(energy > 1);
        free(a);
        free(b);
    }
}

TEST(test_cut_formats) {
    static const char *const NAMES[] = {"mono16.flac", "stereo24.flac", "mono16.aiff"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        size_t n;
        float out[800];
        uint8_t *bytes = corpus(NAMES[i], &n);
        dt_audio_clip c = {8000, 1, i == 1 ? 200 : 400, DT_PAD_zero};
        run_ok(bytes, n, &c, 0, out);
        for (size_t cut = 0; cut < n; cut += 7) {
            dt_status st = run(bytes, cut, &c, 0, out);
            if (strstr(NAMES[i], "flac"))
                assert_int_equal(st, DT_E_DATA);
            else
                assert_true(st == DT_E_DATA || st == DT_OK);
        }
        free(bytes);
    }
}

static SNDFILE *memory_open(sounded *m, int mode, SF_INFO *info) {
    SF_VIRTUAL_IO io = {sounded_length, sounded_seek, sounded_read, sounded_write, sounded_tell};
    SNDFILE *f = sf_open_virtual(&io, mode, info, m);
    if (!f) fail_msg("%s", sf_strerror(NULL));
    return f;
}

// 8,000 samples that libsndfile writes.
static void make_sound(sounded *m, int format, int rate) {
    SF_INFO info = {.samplerate = rate, .channels = 1, .format = format};
    float x[8000];
    for (int i = 0; i < 8000; i++) x[i] = 0.5f * sinf((float)i * 0.05f);
    m->n = m->at = 0;
    SNDFILE *f = memory_open(m, SFM_WRITE, &info);
    assert_int_equal(sf_writef_float(f, x, 8000), 8000);
    sf_close(f);
}

static void read_from(const sounded *m, int64_t begin, int64_t n, float *out) {
    dt_audio_file *f = dt_audio_file_create();
    dt_audio_info info;
    if (dt_audio_file_open(f, (dt_span){m->bytes, m->n}, &info) != DT_OK ||
        dt_audio_file_read(f, begin, n, 1, out, (size_t)n) != DT_OK)
        fail_msg("%s", dt_error_message());
    dt_audio_file_destroy(f);
}

// What begins late, or cannot be sought, is read as what begins at 0.
TEST(test_late_begin) {
    static const struct {
        int format, rate;
    } KINDS[] = {{SF_FORMAT_WAV | SF_FORMAT_GSM610, 8000},   {SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM, 8000},
                 {SF_FORMAT_RF64 | SF_FORMAT_PCM_16, 8000},  {SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, 8000},
                 {SF_FORMAT_AIFF | SF_FORMAT_PCM_24, 44100}, {SF_FORMAT_CAF | SF_FORMAT_PCM_16, 8000},
                 {SF_FORMAT_AU | SF_FORMAT_ALAW, 8000},      {SF_FORMAT_W64 | SF_FORMAT_PCM_16, 8000}};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        float x[4000], y[1000];
        sounded m = {0};
        make_sound(&m, KINDS[i].format, KINDS[i].rate);
        read_from(&m, 0, 4000, x);
        read_from(&m, 2500, 1000, y);
        assert_true(fabsf(x[100]) > 0.1f);
        for (int k = 0; k < 1000; k++)
            if (memcmp(&y[k], &x[2500 + k], sizeof *y) != 0)
                fail_msg("format %x: sample %d is %g and %g", (unsigned)KINDS[i].format, 2500 + k, (double)y[k],
                         (double)x[2500 + k]);
    }
}

// Noise and tones, loud and quiet by turns, so that frames differ in size.
static size_t make_noise(sounded *m, int format, int rate, int channels, int mode, double level, int n) {
    SF_INFO info = {.samplerate = rate, .channels = channels, .format = format};
    float *x = malloc((size_t)(n * channels) * sizeof *x);
    uint32_t random = 1;
    for (int i = 0; i < n * channels; i++) {
        random = random * 1664525 + 1013904223;
        const int k = i / channels, loud = k / (rate / 4) % 3;
        const float noise = (float)(int32_t)random / 2147483648.0f;
        x[i] = (loud == 0 ? 0.9f : loud == 1 ? 0.02f : 0.3f) * (0.5f * sinf((float)k * 0.03f) + 0.4f * noise);
    }
    m->n = m->at = 0;
    SNDFILE *f = memory_open(m, SFM_WRITE, &info);
    if (mode >= 0) sf_command(f, SFC_SET_BITRATE_MODE, &mode, sizeof mode);
    sf_command(f, SFC_SET_COMPRESSION_LEVEL, &level, sizeof level);
    assert_int_equal(sf_writef_float(f, x, n), n);
    sf_close(f);
    free(x);
    return m->n;
}

// Parts of compressed sounds, read first or after another part, are those of the whole; the decoder prints nothing.
TEST(test_parts) {
    static const struct {
        int format, rate, channels, mode, n;
        double level,
            within; // mono MP3: another order of the last sum; Opus: what it has not forgotten
    } KINDS[] = {{SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, 1, 2, 160000, 1, 3e-7},
                 {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, 2, 2, 160000, .8, 0},
                 {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 48000, 2, 0, 160000, 1, 0},
                 {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 24000, 1, 0, 80000, 1, 3e-7},
                 {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 16000, 1, 2, 80000, 1, 3e-7},
                 {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 8000, 1, 0, 80000, 1, 3e-7},
                 {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 11025, 2, 2, 80000, .8, 3e-7},
                 {SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 12000, 1, 2, 80000, .5, 3e-7},
                 {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 44100, 2, -1, 132300, .5, 0},
                 {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 44100, 1, -1, 441000, .8, 0},
                 {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16000, 1, -1, 100001, .3, 0},
                 {SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16000, 1, -1, 9001, .3, 0},
                 {SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, 1, -1, 160000, .7, 1e-2},
                 {SF_FORMAT_OGG | SF_FORMAT_OPUS, 16000, 1, -1, 80000, 1, 1e-2},
                 {SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, 1, -1, 80000, .5, 0},
                 {SF_FORMAT_WAV | SF_FORMAT_MS_ADPCM, 16000, 2, -1, 80000, 0, 0},
                 {SF_FORMAT_WAV | SF_FORMAT_G721_32, 8000, 1, -1, 40000, 0, 0}};
    enum { MOST = 441000 };
    static float all[MOST], x[4000];
    static sounded m;
    FILE *said = tmpfile();
    const int own = dup(STDERR_FILENO);
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        const int n = KINDS[i].n;
        dt_audio_info info;
        dt_audio_file *f = dt_audio_file_create();
        const dt_span bytes = {m.bytes, make_noise(&m, KINDS[i].format, KINDS[i].rate, KINDS[i].channels, KINDS[i].mode,
                                                   KINDS[i].level, n)};
        must(dt_audio_file_open(f, bytes, &info));
        must(dt_audio_file_read(f, 0, n, 1, all, MOST));
        double worst = 0, power = 0;
        fflush(stderr);
        dup2(fileno(said), STDERR_FILENO);
        uint32_t random = 1;
        int begin = 0, worst_at = 0;
        for (int part = 0; part < 60; part++) {
            random = random * 1664525 + 1013904223;
            begin = (int)(random % (uint32_t)(n - 4000));
            if (part % 10 == 9) begin = n - 4000; // in the last page of an Ogg
            if (part % 2 == 0) must(dt_audio_file_open(f, bytes, &info));
            must(dt_audio_file_read(f, begin, 4000, 1, x, 4000));
            for (int k = 0; k < 4000; k++) {
                const double d = fabs((double)x[k] - (double)all[begin + k]);
                if (d > worst) worst = d, worst_at = begin;
                power += (double)x[k] * (double)x[k];
            }
        }
        fflush(stderr);
        dup2(own, STDERR_FILENO);
        dt_audio_file_destroy(f);
        double within = KINDS[i].within;
#ifdef __aarch64__ // mpg123's decoder for NEON rounds once more
        if ((KINDS[i].format & SF_FORMAT_TYPEMASK) == SF_FORMAT_MPEG) within = fmax(within, 3e-7);
#endif
        if (!(worst <= within) || power < 100) fail_msg("kind %zu: a part from %d is %g off", i, worst_at, worst);
    }
    close(own);
    assert_int_equal(fseek(said, 0, SEEK_END), 0);
    assert_int_equal(ftell(said), 0);
    fclose(said);
}

// An MP3 whose first frame does not state the length, of frames that differ in size or do not, with a tag in front, with damage.
TEST(test_length_of_mp3) {
    enum { N = 160000, ID3 = 300 };
    static float x[N + 4 * 1152];
    static sounded m;
    static uint8_t bare[sizeof m.bytes];
    for (int i = 0; i < 7; i++) {
        const int mode = i < 3 ? 2 : 0, n_tag = i % 3 == 2 ? ID3 : 0; // VBR, CBR
        const int damage = i == 6 ? 3000 : 0, least = damage ? N - 15 * 1152 : N;
        const size_t n =
            make_noise(&m, SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, i % 3 ? 44100 : 16000, 1, mode, .9, N);
        size_t at = 4;
        while (at < n - 4 && (memcmp(m.bytes + at, m.bytes, 2) != 0 || ((m.bytes[at + 2] ^ m.bytes[2]) & 12) != 0))
            at++;
        memset(bare, 0, ID3);
        memcpy(bare, "ID3\4\0\0\0\0\2", 9);
        bare[9] = (ID3 - 10) & 127;
        memcpy(bare + n_tag, m.bytes + at, n - at);
        memset(bare + (n - at) / 3, 0x55, (size_t)damage);
        dt_audio_info info;
        dt_audio_file *f = dt_audio_file_create();
        const size_t n_bare = n_tag + n - at;
        must(dt_audio_file_open(f, (dt_span){bare, n_bare}, &info));
        if (info.n_samples < least || info.n_samples > N + 4 * 1152)
            fail_msg("case %d: %lld samples of %d", i, (long long)info.n_samples, N);
        must(dt_audio_file_read(f, 0, info.n_samples, 1, x, sizeof x / sizeof *x));
        at = n / 2; // a frame of another rate, where decoders stop
        while (memcmp(bare + at, bare + n_tag, 2) != 0 || bare[at + 3] != bare[n_tag + 3] ||
               ((bare[at + 2] ^ bare[n_tag + 2]) & 12) != 0)
            at++;
        bare[at + 2] ^= 8;
        must_fail(DT_E_DATA, "mp3: damaged: its frames end at byte",
                  dt_audio_file_open(f, (dt_span){bare, n_bare}, &info));
        dt_audio_file_destroy(f);
    }
}

// Containers state what they hold: no cut is taken for the whole.
TEST(test_cut_containers) {
    static const int FORMATS[] = {SF_FORMAT_AIFF | SF_FORMAT_PCM_16, SF_FORMAT_CAF | SF_FORMAT_PCM_16,
                                  SF_FORMAT_AU | SF_FORMAT_PCM_16,   SF_FORMAT_RF64 | SF_FORMAT_PCM_16,
                                  SF_FORMAT_WAV | SF_FORMAT_ALAW,    SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG,
                                  SF_FORMAT_W64 | SF_FORMAT_PCM_24};
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++) {
        dt_audio_clip c = {8000, 1, 100, DT_PAD_zero};
        float out[100];
        sounded m = {0};
        make_sound(&m, FORMATS[i], 8000);
        run_ok(m.bytes, m.n, &c, 0, out);
        for (size_t n = 0; n < m.n; n += 1 + m.n / 60)
            if (run(m.bytes, n, &c, 0, out) != DT_E_DATA)
                fail_msg("format %x passes with %zu of %zu bytes", (unsigned)FORMATS[i], n, m.n);
    }
}

// What a writer to a pipe, who cannot go back, leaves in an AIFF; and one who counts the header in.
TEST(test_aiff_sizes) {
    dt_audio_clip c = {8000, 1, 100, DT_PAD_zero};
    static const uint8_t PIPE[2][4] = {{0x7f, 0, 0, 0x50}, {0x7f, 0, 0, 8}};
    float out[100];
    sounded m = {0};
    make_sound(&m, SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 8000);
    size_t samples = 12;
    while (memcmp(m.bytes + samples, "SSND", 4) != 0) samples++;
    m.bytes[7] = (uint8_t)(m.bytes[7] + 8); // of the whole
    run_ok(m.bytes, m.n, &c, 0, out);
    memcpy(m.bytes + 4, PIPE[0], 4);
    memcpy(m.bytes + samples + 4, PIPE[1], 4);
    run_ok(m.bytes, m.n, &c, 0, out);
}

// Any bit of an Ogg file is under a checksum; any page is numbered; the last one is marked.
TEST(test_damaged_ogg) {
    dt_audio_clip c = {8000, 1, 100, DT_PAD_zero};
    float out[100];
    sounded m = {0};
    make_sound(&m, SF_FORMAT_OGG | SF_FORMAT_VORBIS, 8000);
    run_ok(m.bytes, m.n, &c, 0, out);
    for (size_t i = 0; i < m.n; i += 7) {
        m.bytes[i] ^= (uint8_t)(1 << i % 8);
        if (run(m.bytes, m.n, &c, 0, out) != DT_E_DATA) fail_msg("a bit of byte %zu", i);
        m.bytes[i] ^= (uint8_t)(1 << i % 8);
    }
    memset(m.bytes + m.n, 'T', 128); // a tag behind it is nobody's business
    run_ok(m.bytes, m.n + 128, &c, 0, out);
    size_t second = 0, last = 0;
    for (size_t i = 0; i + 4 <= m.n; i++)
        if (memcmp(m.bytes + i, "OggS", 4) == 0) second = second ? second : i, last = i;
    for (size_t n = 0; n < m.n; n += 11) assert_int_equal(run(m.bytes, n, &c, 0, out), DT_E_DATA);
    assert_int_equal(run(m.bytes, last, &c, 0, out), DT_E_DATA); // whole pages, but for the last
    assert_non_null(strstr(dt_error_message(), "not marked as the last"));
    size_t next = second + 27; // a page in between is lost
    for (int k = 0; k < m.bytes[second + 26]; k++) next += m.bytes[second + 27 + k];
    next += m.bytes[second + 26];
    assert_true(second > 0 && next < m.n);
    memmove(m.bytes + second, m.bytes + next, m.n - next);
    assert_int_equal(run(m.bytes, m.n - (next - second), &c, 0, out), DT_E_DATA);
}

// ---- places and padding --------------------------------------------------------------------------------
TEST(test_places) {
    uint8_t bytes[4096];
    float whole[100], out[64];
    size_t n = make_wav(bytes, &WAVS[1], 100);
    dt_audio_clip all = {8000, 1, 100, DT_PAD_zero}, c = {8000, 1, 64, DT_PAD_zero};
    run_ok(bytes, n, &all, DT_CLIP_CENTRE, whole);
    for (int place = 0; place <= 36; place++) {
        run_ok(bytes, n, &c, ((uint64_t)place << 32) / 37 + 1, out);
        assert_memory_equal(out, whole + place, sizeof out);
    }
    run_ok(bytes, n, &c, UINT32_MAX, out);
    assert_memory_equal(out, whole + 36, sizeof out);
    run_ok(bytes, n, &c, DT_CLIP_CENTRE, out);
    assert_memory_equal(out, whole + 18, sizeof out);
}

// A clip of another rate is the same whether the whole or a part is decoded.
TEST(test_resampled_places) {
    uint8_t bytes[4096];
    float whole[276], out[64];
    size_t n = make_wav(bytes, &WAVS[1], 100);
    dt_audio_clip all = {22050, 1, 276, DT_PAD_zero}, c = {22050, 1, 64, DT_PAD_zero};
    run_ok(bytes, n, &all, 0, whole);
    for (uint64_t place = 0; place <= 212; place++) {
        run_ok(bytes, n, &c, (place << 32) / 213 + 1, out);
        assert_memory_equal(out, whole + place, sizeof out);
    }
}

TEST(test_padding) {
    uint8_t bytes[4096];
    float x[5], out[24];
    size_t n = make_wav(bytes, &WAVS[1], 5);
    dt_audio_clip c = {8000, 1, 5, DT_PAD_zero};
    run_ok(bytes, n, &c, 0, x);
    c.n_samples = 24;
    static const int MIRRORED[] = {0, 1, 2, 3, 4, 3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1};
    for (int pad = DT_PAD_zero; pad <= DT_PAD_reflect; pad++) {
        c.pad = (dt_audio_pad)pad;
        run_ok(bytes, n, &c, 12345, out);
        for (int i = 0; i < 24; i++) {
            float want = pad == DT_PAD_zero ? (i < 5 ? x[i] : 0) : pad == DT_PAD_wrap ? x[i % 5] : x[MIRRORED[i]];
            assert_true(out[i] == want);
        }
    }
    n = make_wav(bytes, &WAVS[1], 1);
    run_ok(bytes, n, &c, 0, out); // mirrored about its only sample
    for (int i = 0; i < 24; i++) assert_true(out[i] == out[0] && out[0] != 0);
}

// ---- transforms ----------------------------------------------------------------------------------------
TEST(test_fft) {
    static const int SIZES[] = {2,  3,  4,  5,   6,   7,   8,   9,   12,  15,  16,  25,  27,
                                30, 34, 64, 127, 128, 200, 254, 256, 400, 441, 512, 551, 1102};
    for (size_t k = 0; k < sizeof SIZES / sizeof *SIZES; k++) {
        int n = SIZES[k], n_bins = n / 2 + 1;
        assert_true(dt_fft_has_size(n));
        dt_fft *f = dt_fft_create(n);
        size_t work = dt_fft_work(f);
        dt_lanes *x = aligned_alloc(64, work * 64), *y = aligned_alloc(64, work * 64),
                 *power = aligned_alloc(64, (size_t)n_bins * 64);
        float *in = malloc((size_t)n * DT_LANES * sizeof *in);
        uint32_t random = 1;
        for (int i = 0; i < n * DT_LANES; i++) {
            random = random * 1664525 + 1013904223;
            ((float *)x)[i] = in[i] = (float)(int32_t)random / 2147483648.0f;
        }
        dt_fft_power(f, x, y, power);
        for (int l = 0; l < DT_LANES; l++)
            for (int b = 0; b < n_bins; b++) {
                double re = 0, im = 0;
                for (int i = 0; i < n; i++) {
                    double angle = 2 * acos(-1.0) * (b * i % n) / n;
                    re += (double)in[i * DT_LANES + l] * cos(angle);
                    im -= (double)in[i * DT_LANES + l] * sin(angle);
                }
                double want = re * re + im * im, got = (double)((float *)power)[b * DT_LANES + l];
                if (!(fabs(got - want) <= 2e-6 * n + 1e-6 * want))
                    fail_msg("n %d, bin %d, replica %d: %g, not %g", n, b, l, got, want);
            }
        free(x), free(y), free(power), free(in);
        dt_fft_destroy(f);
    }
    assert_false(dt_fft_has_size(1) || dt_fft_has_size(131) || dt_fft_has_size(2 * 131));
    assert_false(dt_fft_has_size(131072));
}

// A frame's numbers do not depend on the others of its block, nor on how many there are.
TEST(test_frames_alone) {
    dt_feature_opts o = {DT_FEATURE_logmel, .rate = 8000, .channels = 1, .n_samples = 1000, .n_fft = 200, .window = 200,
                         .hop = 50,         .power = 2,   .n_mels = 20,  .f_max = 4000,     .floor = 1e-6};
    dt_features *f;
    dt_feature_scratch w = {.rows = NULL};
    float *x, all[20 * 17], one[20];
    size_t stride;
    must(dt_features_create(&f, &o));
    must(dt_features_begin(f, &w, &x, &stride));
    for (int i = 0; i < 1000; i++) x[i] = (float)sin(i * 0.001 * i) * (float)(i % 7);
    float keep[1000];
    memcpy(keep, x, sizeof keep);
    must(dt_features_run(f, &w, all));
    dt_features_destroy(f);
    o.n_samples = 200;
    must(dt_features_create(&f, &o));
    for (int t = 0; t < 17; t++) {
        must(dt_features_begin(f, &w, &x, &stride));
        memcpy(x, keep + 50 * t, 200 * sizeof *x);
        must(dt_features_run(f, &w, one));
        for (int m = 0; m < 20; m++) assert_true(one[m] == all[m * 17 + t]);
    }
    dt_features_destroy(f);
    dt_feature_scratch_fini(&w);
}

// Two channels are two sounds, interleaved.
TEST(test_channels) {
    static const dt_feature_kind KINDS[] = {DT_FEATURE_waveform, DT_FEATURE_mel, DT_FEATURE_mfcc};
    for (int k = 0; k < 3; k++) {
        dt_feature_opts o = {KINDS[k],      .rate = 8000,  .channels = 2,   .n_samples = 400, .n_fft = 128,
                             .window = 100, .hop = 40,     .center = true,  .reflect = true,  .power = 2,
                             .n_mels = 10,  .f_max = 4000, .decibel = true, .floor = 1e-10,   .n_mfcc = 5};
        float *x, *two = malloc(8000), *one = malloc(8000);
        dt_feature_scratch w = {.rows = NULL};
        dt_features *f;
        size_t stride;
        int64_t rows, columns;
        must(dt_features_create(&f, &o));
        dt_features_shape(f, &rows, &columns);
        must(dt_features_begin(f, &w, &x, &stride));
        for (size_t c = 0; c < 2; c++)
            for (size_t i = 0; i < 400; i++) x[c * stride + i] = (float)sin((double)(i * (c + 1)) * 0.2);
        must(dt_features_run(f, &w, two));
        dt_features_destroy(f);
        o.channels = 1;
        must(dt_features_create(&f, &o));
        for (size_t c = 0; c < 2; c++) {
            must(dt_features_begin(f, &w, &x, &stride));
            for (size_t i = 0; i < 400; i++) x[i] = (float)sin((double)(i * (c + 1)) * 0.2);
            must(dt_features_run(f, &w, one));
            for (int64_t i = 0; i < rows * columns; i++) assert_true(two[2 * i + (int64_t)c] == one[i]);
        }
        free(two), free(one);
        dt_features_destroy(f);
        dt_feature_scratch_fini(&w);
    }
}

// ln of all sizes of numbers, through a spectrogram of one bin: |x0 + x1|.
TEST(test_logarithm) {
    dt_feature_opts o = {DT_FEATURE_logspectrogram,
                         .rate = 8000,
                         .channels = 1,
                         .n_samples = 4000,
                         .n_fft = 2,
                         .window = 2,
                         .hop = 2,
                         .power = 1,
                         .floor = 1e-30};
    dt_features *f;
    dt_feature_scratch w = {.rows = NULL};
    float *x, *out = malloc(2 * 2000 * sizeof *out), in[2000];
    size_t stride;
    double worst = 0;
    must(dt_features_create(&f, &o));
    must(dt_features_begin(f, &w, &x, &stride));
    for (int i = 0; i < 2000; i++) {
        in[i] = i == 0 ? 0 : (float)pow(10, -15 + 0.015 * i) * (i < 1000 ? 1 : 1.0001f);
        x[2 * i] = 0; // the Hann window of 2 is (0, 1)
        x[2 * i + 1] = in[i];
    }
    must(dt_features_run(f, &w, out));
    for (int i = 0; i < 2000; i++) {
        double want = log((double)in[i] + 1e-30), d = fabs((double)out[i] - want);
        worst = fmax(worst, d / fmax(fabs(want), 1e-3));
    }
    printf("logarithm: largest relative error %.2g\n", worst);
    assert_true(worst < 2.5e-7);
    free(out);
    dt_features_destroy(f);
    dt_feature_scratch_fini(&w);
}

TEST(test_options) {
    const dt_feature_opts good = {DT_FEATURE_mfcc, .rate = 8000,  .channels = 1, .n_samples = 1000, .n_fft = 200,
                                  .window = 200,   .hop = 50,     .power = 2,    .center = true,    .reflect = true,
                                  .n_mels = 20,    .f_max = 4000, .n_mfcc = 13};
    dt_feature_opts bad[6];
    static const char *const WORDS[] = {"prime", "window", "mirror", "f_max", "n_mfcc", "segment"};
    for (int i = 0; i < 6; i++) bad[i] = good;
    bad[0].n_fft = 2 * 131;
    bad[1].window = 201;
    bad[2].n_samples = 100;
    bad[3].f_max = 4001;
    bad[4].n_mfcc = 21;
    bad[5].n_samples = INT64_MAX;
    dt_features *f;
    must(dt_features_create(&f, &good));
    assert_int_equal(dt_features_empty_bands(f), 0);
    dt_features_destroy(f);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(dt_features_create(&f, &bad[i]), DT_E_USAGE);
        if (!strstr(dt_error_message(), WORDS[i])) fail_msg("%s", dt_error_message());
    }
    dt_feature_opts many = good;
    many.n_mels = 128;
    must(dt_features_create(&f, &many));
    assert_true(dt_features_empty_bands(f) > 0);
    dt_features_destroy(f);
}

int main(void) {
    clipper = dt_clipper_create();
    int rc = run_all_tests(NULL, NULL);
    dt_clipper_destroy(clipper);
    return rc;
}
