// audio_whole.c: cut and damaged sound files, found by what their containers state.
//
// libsndfile decodes whatever is left of a file: of an Ogg with one wrong bit the pages before it, of a cut
// AIFF the samples that are there. In training that is silently wrong data, so the containers are checked
// first. An Ogg page has a CRC-32, a number, and a flag on the last one, so any missing or changed page is
// found. RIFX, RF64, AIFF, AU and CAF state sizes; a size that stands for "unknown", as writers to a pipe
// leave, is taken as the rest. MP3 states its length at most (audio_file.c). FLAC's frames have checksums that
// the decoder verifies.
//
// Formats: RFC 3533 (Ogg); EBU Tech 3306 (RF64); Apple, "Audio Interchange File Format 1.3" and "Core Audio
// Format 1.0"; Sun's au(4).
#include "audio.h"

#include "base/endian.h"

#include <pthread.h>
#include <string.h>

enum { UNKNOWN = 0x7f000000, PAGE = 27, MAX_STREAMS = 16 };

static dt_status audio_whole_cut(const char *what, uint64_t announced, size_t there) {
    return dt_fail(DT_E_DATA, "%s: cut: %llu bytes announced, %zu are there", what, (unsigned long long)announced,
                   there);
}

// ---- sizes -----------------------------------------------------------------------------------------
static dt_status audio_whole_check_size(const char *what, uint64_t n, size_t before, size_t there) {
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
    if (memcmp(s.data, "RF64", 4) != 0) return DT_OK; // RIFF: audio_file.c walks it itself
    if (s.n_bytes < 36 || memcmp(s.data + 12, "ds64", 4) != 0)
        return dt_fail(DT_E_DATA, "RF64: no sizes before the format");
    DT_TRY(find_samples("RF64", s, "data", false, &n, &at));
    n = dt_le64(s.data + 28);
    return n > s.n_bytes - at ? audio_whole_cut("RF64", n, s.n_bytes - at) : DT_OK;
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
    uint32_t crc = crc_of(crc_of(crc_of(0, p, 22), ZERO, 4), p + 26, n - 26);
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
        if (at > 0 && !any_open(streams) && !is_page(s, at)) {
            whole->n_bytes = at;
            break;
        }
        DT_TRY(audio_whole_read_page(s, at, &n));
        DT_TRY(audio_whole_follow(streams, s.data + at, at));
        *last_page = end;
        if ((int64_t)dt_le64(s.data + at + 6) >= 0) end = (int64_t)dt_le64(s.data + at + 6);
    }
    if (any_open(streams)) return dt_fail(DT_E_DATA, "Ogg: cut: its last page says that others follow");
    return DT_OK;
}

dt_status dt_audio_check_whole(const dt_kind *k, dt_span *s, int64_t *last_page) {
    *last_page = INT64_MAX;
    if (strcmp(k->name, "ogg") == 0) return check_ogg(s, last_page);
    if (s->n_bytes < 12) return DT_OK; // too short for a size: the decoder says so
    if (strcmp(k->name, "wav") == 0) return check_wav(*s);
    if (strcmp(k->name, "aiff") == 0) return check_chunks("AIFF", *s, "SSND");
    if (strcmp(k->name, "au") == 0) return check_au(*s);
    if (strcmp(k->name, "caf") == 0) return check_caf(*s);
    return DT_OK;
}
