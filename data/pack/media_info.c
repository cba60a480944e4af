// media_info.c: reads of headers only what the shape needs. Judging files is the decoders' task; where a shape is
// not easily seen, none is given.
//
// JPEG: the first frame marker (ITU-T T.81, B.2.2). PNG: IHDR. BMP: info header of 12 or at least 40
// bytes. PNM: three numbers with comments between. WebP: the first chunk (RFC 9649). WAV: the chunks before "data";
// the length that "data" says, or that the file has. FLAC: STREAMINFO. Ogg: the first packet and the last page. FITS:
// NAXIS1..3 of the first header with axes.
#include "media_info.h"

#include "base/endian.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool set_image(dt_media_info *m, double width, double height, double channels) {
    m->width = width;
    m->height = height;
    m->channels = channels;
    return width > 0 && height > 0;
}

static bool read_jpeg(dt_media_info *m, const uint8_t *p, size_t n) {
    size_t at = 2;
    while (at + 4 <= n) {
        if (p[at] != 0xff) return false;
        uint8_t marker = p[at + 1];
        if (marker == 0xff || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) {
            at += marker == 0xff ? 1 : 2; // fill byte; marker without length
            continue;
        }
        bool frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
        if (frame && at + 10 <= n) return set_image(m, dt_be16(p + at + 7), dt_be16(p + at + 5), p[at + 9]);
        if (frame || marker == 0xda) return false;
        at += 2 + dt_be16(p + at + 2);
    }
    return false;
}

static bool read_png(dt_media_info *m, const uint8_t *p, size_t n) {
    static const int CHANNELS[] = {1, 0, 3, 3, 2, 0, 4}; // by colour type; a palette is of colours
    if (n < 26 || memcmp(p + 12, "IHDR", 4) != 0 || p[25] > 6) return false;
    return set_image(m, dt_be32(p + 16), dt_be32(p + 20), CHANNELS[p[25]]);
}

static bool read_bmp(dt_media_info *m, const uint8_t *p, size_t n) {
    if (n < 30) return false;
    uint32_t header = dt_le32(p + 14), bits = header == 12 ? dt_le16(p + 24) : dt_le16(p + 28);
    double channels = bits == 32 ? 4 : 3;
    if (header == 12) return set_image(m, dt_le16(p + 18), dt_le16(p + 20), channels);
    return header >= 40 && set_image(m, (int32_t)dt_le32(p + 18), fabs((double)(int32_t)dt_le32(p + 22)), channels);
}

static bool pnm_number(const uint8_t *p, size_t n, size_t *at, double *out) {
    while (*at < n && strchr(" \t\r\n#", p[*at])) {
        if (p[*at] == '#')
            while (*at < n && p[*at] != '\n') (*at)++;
        else
            (*at)++;
    }
    size_t begin = *at;
    for (*out = 0; *at < n && p[*at] >= '0' && p[*at] <= '9' && *at - begin < 9; (*at)++)
        *out = *out * 10 + (p[*at] - '0');
    return *at > begin && *at < n;
}

static bool read_pnm(dt_media_info *m, const uint8_t *p, size_t n) {
    size_t at = 2;
    double width, height;
    if (!pnm_number(p, n, &at, &width) || !pnm_number(p, n, &at, &height)) return false;
    return set_image(m, width, height, p[1] == '3' || p[1] == '6' ? 3 : 1);
}

static bool read_webp(dt_media_info *m, const uint8_t *p, size_t n) {
    if (n < 30) return false;
    uint32_t size = dt_le32(p + 21); // of VP8L: 14 bits each, less 1, then whether there is alpha
    if (memcmp(p + 12, "VP8 ", 4) == 0 && memcmp(p + 23, "\x9d\x01\x2a", 3) == 0)
        return set_image(m, dt_le16(p + 26) & 0x3fff, dt_le16(p + 28) & 0x3fff, 3);
    if (memcmp(p + 12, "VP8L", 4) == 0 && p[20] == 0x2f)
        return set_image(m, (size & 0x3fff) + 1, (size >> 14 & 0x3fff) + 1, 3 + (size >> 28 & 1));
    if (memcmp(p + 12, "VP8X", 4) == 0)
        return set_image(m, (dt_le32(p + 23) >> 8) + 1, (dt_le32(p + 26) >> 8) + 1, 3 + (p[20] >> 4 & 1));
    return false;
}

static bool read_wav(dt_media_info *m, const uint8_t *p, size_t n, uint64_t size) {
    double frame = 0;
    for (size_t at = 12; at + 8 <= n;) {
        uint64_t n_chunk = dt_le32(p + at + 4);
        if (memcmp(p + at, "fmt ", 4) == 0 && at + 24 <= n) {
            m->channels = dt_le16(p + at + 10);
            m->rate = dt_le32(p + at + 12);
            frame = dt_le16(p + at + 20);
        } else if (memcmp(p + at, "data", 4) == 0) {
            uint64_t there = size > at + 8 ? size - at - 8 : 0;
            if (frame > 0) m->samples = floor((double)(n_chunk < there ? n_chunk : there) / frame);
            return frame > 0 && m->rate > 0;
        }
        uint64_t next = at + 8 + n_chunk + n_chunk % 2;
        if (next > n) break;
        at = (size_t)next;
    }
    return false;
}

static bool read_flac(dt_media_info *m, const uint8_t *p, size_t n) {
    if (n < 26 || (p[4] & 0x7f) != 0) return false;
    m->rate = p[18] << 12 | p[19] << 4 | p[20] >> 4;
    m->channels = (p[20] >> 1 & 7) + 1;
    double samples = (double)(p[21] & 15) * 4294967296.0 + dt_be32(p + 22);
    if (samples > 0) m->samples = samples;
    return m->rate > 0;
}

// Opus counts at 48 kHz; libsndfile decodes to the rate that was coded, if it is one that Opus has.
static double opus_rate(uint32_t coded) {
    return coded == 8000 || coded == 12000 || coded == 16000 || coded == 24000 ? coded : 48000;
}

// Ogg with Vorbis or Opus: reads the first packet and, where the whole file is in memory, the last page (RFC 3533, RFC
// 7845).
static bool read_ogg(dt_media_info *m, const uint8_t *p, size_t n, uint64_t size) {
    if (n < 28 || n < 27 + (size_t)p[26] + 19) return false;
    const uint8_t *packet = p + 27 + p[26];
    const bool opus = memcmp(packet, "OpusHead", 8) == 0;
    if (!opus && memcmp(packet, "\x01vorbis", 7) != 0) return false;
    m->channels = opus ? packet[9] : packet[11];
    m->rate = opus ? opus_rate(dt_le32(packet + 12)) : dt_le32(packet + 12);
    const uint64_t skip = opus ? dt_le16(packet + 10) : 0;
    for (size_t at = n == size ? n - 27 : 0; at > 0; at--) {
        if (memcmp(p + at, "OggS", 4) != 0 || memcmp(p + at + 14, p + 14, 4) != 0) continue;
        const uint64_t end = dt_le64(p + at + 6);
        if (end == UINT64_MAX) continue; // a page in which no packet ends
        if (end > skip && end < UINT64_C(1) << 50)
            m->samples = floor((double)(end - skip) * (opus ? m->rate / 48000 : 1));
        break;
    }
    return m->rate > 0 && m->channels > 0;
}

// A card of 80 bytes: "NAXIS1  =                  512 / comment".
static double card_number(const uint8_t *card) {
    char text[71];
    memcpy(text, card + 10, 70);
    text[70] = '\0';
    return strtod(text, NULL);
}

static bool read_fits(dt_media_info *m, const uint8_t *p, size_t n) {
    double axis[4] = {0, 0, 0, 0}; // NAXIS, NAXIS1..3
    bool is_image = true;
    for (size_t at = 0; at + 80 <= n; at += 80) {
        const uint8_t *card = p + at;
        bool is_axis = memcmp(card, "NAXIS", 5) == 0 && card[8] == '=' && card[6] == ' ';
        if (is_axis && (card[5] == ' ' || (card[5] >= '1' && card[5] <= '3')))
            axis[card[5] == ' ' ? 0 : card[5] - '0'] = card_number(card);
        if (memcmp(card, "XTENSION=", 9) == 0) is_image = memcmp(card + 11, "IMAGE", 5) == 0;
        if (memcmp(card, "END     ", 8) != 0) continue;
        if (axis[0] >= 1) // else the image is in an extension
            return is_image && axis[0] <= 3 &&
                   set_image(m, axis[1], axis[0] >= 2 ? axis[2] : 1, axis[0] >= 3 ? axis[3] : 1);
        at = (at / 2880 + 1) * 2880 - 80;
    }
    return false;
}

bool dt_media_info_read(dt_media_info *m, dt_span s, uint64_t size) {
    const uint8_t *p = s.data;
    size_t n = s.n_bytes;
    *m = (dt_media_info){NAN, NAN, NAN, NAN, NAN};
    if (n < 12) return false;
    if (memcmp(p, "\xff\xd8", 2) == 0) return read_jpeg(m, p, n);
    if (memcmp(p, "\x89PNG", 4) == 0) return read_png(m, p, n);
    if (memcmp(p, "BM", 2) == 0) return read_bmp(m, p, n);
    if (p[0] == 'P' && p[1] >= '1' && p[1] <= '6') return read_pnm(m, p, n);
    if (memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WAVE", 4) == 0) return read_wav(m, p, n, size);
    if (memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0) return read_webp(m, p, n);
    if (memcmp(p, "fLaC", 4) == 0) return read_flac(m, p, n);
    if (memcmp(p, "OggS", 4) == 0) return read_ogg(m, p, n, size);
    if (memcmp(p, "SIMPLE  =", 9) == 0) return read_fits(m, p, n);
    return false;
}
