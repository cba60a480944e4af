// where.c: pack --where: conditions on what a file holds: sizes, durations, quality.

#include "pack_parts.h"
#include "transform.h"

#include "base/bits.h"
#include "base/core.h"
#include "base/sort.h"
#include "data/catalog/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- where --------------------------------------------------------------------------------------------------------

// An expression (catalog/select.h) on one record at a time, while packing: on names and tables, then what a transform
// found out, then the set's metadata.

enum { KEY, SOURCE, BYTES, N_GIVEN }; // behind the names of the transform

struct dt_where {
    dt_query query;
    const char **given;
};

typedef struct packed_record {
    const dt_where *w;
    const dt_raw_item *item;
    const dt_transform_record *r;
    const char *key;
    uint64_t n_bytes;
} packed_record;

static dt_cell where_value_of(const void *record, int given) {
    const packed_record *x = record;
    const dt_query_scope *scope = &x->w->query.scope;
    if (given == scope->n_measured + KEY) return dt_cell_text(x->key);
    if (given == scope->n_measured + SOURCE) return dt_cell_text(x->item->name);
    if (given == scope->n_measured + BYTES) return dt_cell_real((double)x->n_bytes);
    for (int k = 0; k < x->r->n_columns; k++)
        if (strcmp(x->r->column[k].name, scope->given[given]) == 0) return dt_cell_real(x->r->column[k].number);
    return dt_cell_text(NULL);
}

dt_status dt_where_create(dt_where **out, const char *text, const dt_raw *raw, const dt_transform *t) {
    dt_expr *e = NULL;
    const dt_status parsed = dt_expr_parse(&e, text);
    if (parsed != DT_OK) return dt_fail_context(parsed, "--where");
    dt_where *w = dt_xcalloc(1, sizeof *w);
    dt_query_scope scope = {.table = {&raw->table, raw->catalog ? &raw->catalog->table : NULL},
                            .missing =
                                "it is neither in names, tables or the set that is packed, nor found out while packing",
                            .value = where_value_of};
    scope.given = w->given = dt_xcalloc((size_t)dt_expr_n_names(e) + N_GIVEN, sizeof *w->given);
    for (int i = 0; i < dt_expr_n_names(e); i++)
        if (dt_transform_has_column(t, dt_expr_name(e, i))) w->given[scope.n_measured++] = dt_expr_name(e, i);
    w->given[scope.n_measured + KEY] = "key";
    w->given[scope.n_measured + SOURCE] = "source";
    w->given[scope.n_measured + BYTES] = "bytes";
    scope.n_given = scope.n_measured + N_GIVEN;
    const dt_status st = dt_query_open(&w->query, e, &scope);
    if (st != DT_OK) {
        dt_where_destroy(w);
        return dt_fail_context(st, "--where");
    }
    *out = w;
    return DT_OK;
}

void dt_where_destroy(dt_where *w) {
    if (!w) return;
    dt_query_close(&w->query);
    free(w->given);
    free(w);
}

dt_status dt_where_keeps(const dt_where *w, const dt_raw_item *item, const dt_transform_record *r, uint64_t n_bytes,
                         bool *yes) {
    char *key = dt_xprintf("%s%s", item->key, r->suffix);
    dt_cell *cells = dt_query_buffer(&w->query);
    const packed_record x = {w, item, r, key, n_bytes};
    const dt_status st =
        dt_expr_is_true(w->query.e, dt_query_values(&w->query, cells, (uint32_t[]){item->row, item->record}, &x), yes);
    free(cells);
    free(key);
    return st == DT_OK ? st : dt_fail_context(st, "--where");
}

// ---- media info ---------------------------------------------------------------------------------------------------

// Reads of headers only what the shape needs. Judging files is the decoders' task; where a shape is
// not easily seen, none is given.
//
// JPEG: the first frame marker (ITU-T T.81, B.2.2). PNG: IHDR. BMP: info header of 12 or at least 40
// bytes. PNM: three numbers with comments between. WebP: the first chunk (RFC 9649). WAV: the chunks before "data";
// the length that "data" says, or that the file has. FLAC: STREAMINFO. Ogg: the first packet and the last page. FITS:
// NAXIS1..3 of the first header with axes. TIFF (not BigTIFF): the first directory, if it is there.

static bool set_image(dt_media_info *m, double width, double height, double channels) {
    m->width = width;
    m->height = height;
    m->channels = channels;
    return width > 0 && height > 0;
}

static bool read_jpeg(dt_media_info *m, const uint8_t *p, size_t n) {
    size_t at = 2; // behind SOI
    while (at + 4 <= n) {
        if (p[at] != 0xff) return false; // every segment begins with 0xff
        uint8_t marker = p[at + 1];
        if (marker == 0xff || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) {
            at += marker == 0xff ? 1 : 2; // fill byte; marker without length
            continue;
        }
        // SOF0 to SOF15 without DHT, JPG and DAC
        bool frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
        // height, width, components
        if (frame && at + 10 <= n) return set_image(m, dt_be16(p + at + 7), dt_be16(p + at + 5), p[at + 9]);
        if (frame || marker == 0xda) return false; // SOS: image data without a frame header
        at += 2 + dt_be16(p + at + 2);             // the length counts itself
    }
    return false;
}

static bool read_png(dt_media_info *m, const uint8_t *p, size_t n) {
    static const int CHANNELS[] = {1, 0, 3, 3, 2, 0, 4}; // by colour type; a palette is of colours
    // IHDR is the first chunk, at a fixed place
    if (n < 26 || memcmp(p + 12, "IHDR", 4) != 0 || p[25] > 6) return false;
    return set_image(m, dt_be32(p + 16), dt_be32(p + 20), CHANNELS[p[25]]);
}

static bool read_bmp(dt_media_info *m, const uint8_t *p, size_t n) {
    if (n < 30) return false;
    // 12: OS/2's header of 16-bit sides
    uint32_t header = dt_le32(p + 14), bits = header == 12 ? dt_le16(p + 24) : dt_le16(p + 28);
    double channels = bits == 32 ? 4 : 3;
    if (header == 12) return set_image(m, dt_le16(p + 18), dt_le16(p + 20), channels);
    // a negative height: rows from the top
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
    // nine digits: no overflow of the image's size
    for (*out = 0; *at < n && p[*at] >= '0' && p[*at] <= '9' && *at - begin < 9; (*at)++)
        *out = *out * 10 + (p[*at] - '0');
    return *at > begin && *at < n; // a number at the very end may be cut
}

static bool read_pnm(dt_media_info *m, const uint8_t *p, size_t n) {
    size_t at = 2;
    double width, height;
    if (!pnm_number(p, n, &at, &width) || !pnm_number(p, n, &at, &height)) return false;
    return set_image(m, width, height, p[1] == '3' || p[1] == '6' ? 3 : 1); // P3, P6: RGB; P1, P2, P4, P5: one channel
}

static bool read_webp(dt_media_info *m, const uint8_t *p, size_t n) {
    if (n < 30) return false;
    uint32_t size = dt_le32(p + 21); // of VP8L: 14 bits each, less 1, then whether there is alpha
    if (memcmp(p + 12, "VP8 ", 4) == 0 && memcmp(p + 23, "\x9d\x01\x2a", 3) == 0) // lossy: a key frame's start code
        return set_image(m, dt_le16(p + 26) & 0x3fff, dt_le16(p + 28) & 0x3fff, 3);
    if (memcmp(p + 12, "VP8L", 4) == 0 && p[20] == 0x2f)
        return set_image(m, (size & 0x3fff) + 1, (size >> 14 & 0x3fff) + 1, 3 + (size >> 28 & 1));
    if (memcmp(p + 12, "VP8X", 4) == 0) // extended: canvas sides of 24 bits, less 1
        return set_image(m, (dt_le32(p + 23) >> 8) + 1, (dt_le32(p + 26) >> 8) + 1, 3 + (p[20] >> 4 & 1));
    return false;
}

static bool read_wav(dt_media_info *m, const uint8_t *p, size_t n, uint64_t size) {
    double frame = 0;
    for (size_t at = 12; at + 8 <= n;) {
        uint64_t n_chunk = dt_le32(p + at + 4); // chunk size, without its header
        if (memcmp(p + at, "fmt ", 4) == 0 && at + 24 <= n) {
            m->channels = dt_le16(p + at + 10);
            m->rate = dt_le32(p + at + 12);
            frame = dt_le16(p + at + 20); // block align: bytes of all channels of a sample
        } else if (memcmp(p + at, "data", 4) == 0) {
            const uint64_t there = size > at + 8 ? size - at - 8 : 0; // a cut recording has what is there
            const uint64_t n_data = dt_wav_data_bytes(dt_le32(p + 4), (uint32_t)n_chunk, at + 8, there);
            if (frame > 0) m->samples = floor((double)(n_data < there ? n_data : there) / frame);
            return frame > 0 && m->rate > 0;
        }
        uint64_t next = at + 8 + n_chunk + n_chunk % 2; // chunks are padded to even sizes
        if (next > n) break;
        at = (size_t)next;
    }
    return false;
}

static bool read_flac(dt_media_info *m, const uint8_t *p, size_t n) {
    if (n < 26 || (p[4] & 0x7f) != 0) return false;  // STREAMINFO is the first block
    m->rate = p[18] << 12 | p[19] << 4 | p[20] >> 4; // 20 bits
    m->channels = (p[20] >> 1 & 7) + 1;
    double samples = (double)(p[21] & 15) * 4294967296.0 + dt_be32(p + 22); // 36 bits; 0: unknown
    if (samples > 0) m->samples = samples;
    return m->rate > 0;
}

// Ogg with Vorbis or Opus: reads the first packet and, where the whole file is in memory, the last page (RFC 3533, RFC
// 7845).
static bool read_ogg(dt_media_info *m, const uint8_t *p, size_t n, uint64_t size) {
    if (n < 28 || n < 27 + (size_t)p[26] + 19) return false; // 27: page header; its segment table; 19: OpusHead
    const uint8_t *packet = p + 27 + p[26];
    const bool opus = memcmp(packet, "OpusHead", 8) == 0;
    if (!opus && memcmp(packet, "\x01vorbis", 7) != 0) return false;
    m->channels = opus ? packet[9] : packet[11];
    m->rate = dt_le32(packet + 12);
    // Opus counts at 48 kHz; libsndfile decodes to the rate that was coded, if it is one that Opus has
    if (opus && m->rate != 8000 && m->rate != 12000 && m->rate != 16000 && m->rate != 24000) m->rate = 48000;
    const uint64_t skip = opus ? dt_le16(packet + 10) : 0;   // Opus: samples in front that decoders drop (pre-skip)
    for (size_t at = n == size ? n - 27 : 0; at > 0; at--) { // from the end: the last page of the stream
        // the same serial number: files may be chained
        if (memcmp(p + at, "OggS", 4) != 0 || memcmp(p + at + 14, p + 14, 4) != 0) continue;
        const uint64_t end = dt_le64(p + at + 6);
        if (end == UINT64_MAX) continue;           // a page in which no packet ends
        if (end > skip && end < UINT64_C(1) << 50) // 2^50: a forged position must not overflow later products
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
    bool is_image = true;          // no extension, or an image
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
        at = (at / 2880 + 1) * 2880 - 80; // headers are padded to 2880 bytes
    }
    return false;
}

// A tag's first value in the directory at `at`: numbers of 16 or 32 bits; 0: none.
static double tiff_tag(const uint8_t *p, size_t n, size_t at, uint32_t tag) {
    const bool big = *p == 'M';
    if (at > n - 2) return 0;
    for (uint32_t i = 0, k = big ? dt_be16(p + at) : dt_le16(p + at); i < k && at + 14 + 12 * i <= n; i++) {
        const uint8_t *e = p + at + 2 + 12 * i;
        if ((big ? dt_be16(e) : dt_le16(e)) != tag) continue;
        if (e[big ? 3 : 2] == 4) return big ? dt_be32(e + 8) : dt_le32(e + 8); // LONG
        return big ? dt_be16(e + 8) : dt_le16(e + 8);
    }
    return 0;
}

static bool read_tiff(dt_media_info *m, const uint8_t *p, size_t n) {
    const size_t at = *p == 'M' ? dt_be32(p + 4) : dt_le32(p + 4);
    const double samples = tiff_tag(p, n, at, 277);
    return set_image(m, tiff_tag(p, n, at, 256), tiff_tag(p, n, at, 257), samples > 0 ? samples : 1);
}

bool dt_media_info_read(dt_media_info *m, dt_span s, uint64_t size) {
    const uint8_t *p = s.data;
    size_t n = s.n_bytes;
    *m = (dt_media_info){NAN, NAN, NAN, NAN, NAN};
    if (n < 12) return false; // 12: the longest signature below
    if (memcmp(p, "\xff\xd8", 2) == 0) return read_jpeg(m, p, n);
    if (memcmp(p, "\x89PNG", 4) == 0) return read_png(m, p, n);
    if (memcmp(p, "BM", 2) == 0) return read_bmp(m, p, n);
    if (p[0] == 'P' && p[1] >= '1' && p[1] <= '6') return read_pnm(m, p, n);
    if (memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WAVE", 4) == 0) return read_wav(m, p, n, size);
    if (memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0) return read_webp(m, p, n);
    if (memcmp(p, "fLaC", 4) == 0) return read_flac(m, p, n);
    if (memcmp(p, "OggS", 4) == 0) return read_ogg(m, p, n, size);
    if (memcmp(p, "SIMPLE  =", 9) == 0) return read_fits(m, p, n);
    if (memcmp(p, "II*\0", 4) == 0 || memcmp(p, "MM\0*", 4) == 0) return read_tiff(m, p, n);
    return false;
}

// ---- quality ------------------------------------------------------------------------------------------------------

// Sums over pixels and samples. Pixels are summed as integers, so the figures are the same on every
// machine; samples as doubles, in order.

enum { MOST_DB = 99 };

// ---- images ------------------------------------------------------------------------------------------
// Y of RGB, or the bytes themselves.
static const uint8_t *quality_luma_of(const dt_image *m, dt_buffer *scratch) {
    if (m->channels == 1) return m->data;
    size_t n = (size_t)m->width * (size_t)m->height;
    uint8_t *y = dt_buffer_reserve(scratch, n);
    for (size_t i = 0; y && i < n; i++) y[i] = dt_luma(m->data[3 * i], m->data[3 * i + 1], m->data[3 * i + 2]);
    return y;
}

typedef struct image_sums {
    uint64_t histogram[256], n_inside; // n_inside: pixels that have four neighbours
    int64_t laplacian;
    uint64_t laplacian_squares, noise; // noise: sum of the absolute values of Immerkaer's mask
} image_sums;

static void quality_add_row(image_sums *s, const uint8_t *up, const uint8_t *y, const uint8_t *down, int w) {
    int64_t sum = 0;
    uint64_t squares = 0, noise = 0;
    for (int x = 1; x + 1 < w; x++) {
        // cross and corners: both masks share these sums
        int cross = up[x] + down[x] + y[x - 1] + y[x + 1], corners = up[x - 1] + up[x + 1] + down[x - 1] + down[x + 1];
        int l = cross - 4 * y[x];
        sum += l;
        squares += (uint64_t)(l * l);
        noise += (uint64_t)abs(corners - 2 * cross + 4 * y[x]); // 1 -2 1, -2 4 -2, 1 -2 1
    }
    s->laplacian += sum;
    s->laplacian_squares += squares;
    s->noise += noise;
    s->n_inside += (uint64_t)(w - 2);
}

static double decibels(double ratio, double factor) {
    double db = ratio > 0 ? factor * log10(ratio) : -MOST_DB;
    return db > MOST_DB ? MOST_DB : db < -MOST_DB ? -MOST_DB : db;
}

dt_status dt_quality_of_image(dt_image_quality *out, const dt_image *image, dt_buffer *scratch) {
    image_sums s = {0};
    const uint8_t *y = quality_luma_of(image, scratch);
    if (!y) return dt_fail(DT_E_INTERNAL, "out of memory for an image's quality");
    const int w = image->width, h = image->height;
    for (size_t i = 0; i < (size_t)w * (size_t)h; i++) s.histogram[y[i]]++;
    for (int r = 1; r + 1 < h && w > 2; r++) { // rows with a row above and below
        const uint8_t *row = y + (size_t)r * (size_t)w;
        quality_add_row(&s, row - w, row, row + w, w);
    }
    double n = (double)w * h, sum = 0, squares = 0, entropy = 0;
    for (int v = 0; v < 256; v++) {
        double p = (double)s.histogram[v] / n;
        sum += p * v;
        squares += p * v * v;
        if (p > 0) entropy -= p * log2(p); // 0 log 0 is 0
    }
    double deviation = sqrt(squares > sum * sum ? squares - sum * sum : 0); // rounding may leave less than 0
    *out = (dt_image_quality){.brightness = sum / 255,
                              .contrast = deviation / 255,
                              .entropy = entropy,
                              .clipping = (double)(s.histogram[0] + s.histogram[255]) / n};
    if (s.n_inside > 0) {
        double inside = (double)s.n_inside, mean = (double)s.laplacian / inside;
        double noise = sqrt(acos(-1.0) / 2) * (double)s.noise / (6 * inside); // sigma = sqrt(pi / 2) sum |N| / (6 n)
        out->sharpness = (double)s.laplacian_squares / inside - mean * mean;
        // without noise: at most MOST_DB
        out->snr = deviation > 0 ? decibels(noise > 0 ? deviation / noise : HUGE_VAL, 20) : 0;
    }
    double contrast = out->contrast < 0.25 ? out->contrast / 0.25 : 1;
    // the geometric mean of four factors
    out->quality = pow(out->sharpness / (out->sharpness + 100) * contrast * entropy / 8 * (1 - out->clipping), 0.25);
    return DT_OK;
}

// ---- recordings --------------------------------------------------------------------------------------
static void add_frames(dt_audio_quality *q, double *power, int64_t n_frames) {
    int64_t silent = 0;
    for (int64_t i = 0; i < n_frames; i++) silent += power[i] < 1e-6; // -60 dB of power
    qsort(power, (size_t)n_frames, sizeof *power, dt_sort_reals);
    double low = power[n_frames / 10], high = power[(n_frames * 95 - 1) / 100]; // the 95th and the 10th percentile
    q->silence = (double)silent / (double)n_frames;
    q->snr = high > 0 ? decibels(low > 0 ? high / low : HUGE_VAL, 10) : 0;
}

dt_status dt_quality_of_audio(dt_audio_quality *out, const float *x, int channels, int64_t n, int rate,
                              dt_buffer *scratch) {
    int64_t frame = rate / 50 > 0 ? rate / 50 : 1, each = n / frame > 0 ? n / frame : 1; // 20 ms
    double *power = (double *)(void *)dt_buffer_reserve(scratch, (size_t)(each * channels) * sizeof *power);
    if (!power) return dt_fail(DT_E_INTERNAL, "out of memory for a recording's quality");
    if (n < frame) frame = n; // shorter than a frame: one frame of all samples
    double sum = 0, peak = 0, clipped = 0;
    for (int c = 0; c < channels; c++)
        for (int64_t i = 0, f = 0; i < n; i++) {
            double v = fabs((double)x[c * n + i]), square = v * v; // (channels, n)
            if (v > peak) peak = v;
            clipped += v >= 0.999;
            sum += square;
            f = i / frame;
            if (f >= each) continue;                     // the rest of a frame
            if (i % frame == 0) power[c * each + f] = 0; // the frame begins
            power[c * each + f] += square / (double)frame;
        }
    double all = (double)n * channels;
    *out = (dt_audio_quality){.level = decibels(sqrt(sum / all), 20), .peak = peak, .clipping = clipped / all};
    add_frames(out, power, each * channels);
    out->quality = cbrt((1 - out->silence) * (1 - out->clipping) * out->snr / (out->snr + 10));
    return DT_OK;
}
