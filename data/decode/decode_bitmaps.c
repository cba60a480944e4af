// decode_bitmaps.c: BMP and PNM.

#include "array.h"
#include "decode.h"

#include "base/bits.h"
#include "base/stated.h"

#include <string.h>

// ---- decode bmp ---------------------------------------------------------------------------------------------------

// Windows and OS/2 bitmaps of 1, 4, 8, 16, 24 and 32 bits.
//
// A BMP is a 14-byte file header, an info header (12 bytes for OS/2 1, 40 for V3, more for V4 and V5,
// which only append), bit masks or a palette, and rows padded to 4 bytes, bottom up unless the height
// is negative. 16- and 32-bit pixels have channel masks, fixed ones when the compression says none.
//
// Run-length coding (4 and 8 bits) gives a picture of palette indices first. Places that it jumps over have
// index 0, as have rows above an early end mark; a run beyond the end of its row is cut there; a file that
// ends without its mark before the last row does is cut.
//
// The header is read into one struct with every offset checked against the bytes; the row loops then
// run on checked memory. 24 and 32 bits with the usual byte order have their own loops, as those are
// what scanners and cameras write; the rest goes through masks or a palette.
// Format: Microsoft, "Bitmap Storage" (BITMAPINFOHEADER, BITMAPV4HEADER, BITMAPV5HEADER).

typedef struct bmp {
    int64_t width, height; // height > 0
    bool top_down;
    int bits;
    uint32_t compression;
    const uint8_t *rows;
    size_t stride, n_bytes; // n_bytes: run-length coded
    uint32_t mask[3];       // r, g, b for 16 and 32 bits
    uint8_t palette[256][3];
} bmp;

enum { BI_RGB = 0, BI_RLE8 = 1, BI_RLE4 = 2, BI_BITFIELDS = 3, BI_ALPHABITFIELDS = 6 };

static dt_status bmp_cut(const char *what) {
    return dt_fail(DT_E_DATA, "BMP: cut in its %s", what);
}

static dt_status read_palette(bmp *b, dt_span s, size_t at, size_t entry_bytes, uint32_t n_used) {
    uint32_t n = n_used ? n_used : 1u << b->bits; // 0: all that the bits can name
    if (n > 1u << b->bits) return dt_fail(DT_E_DATA, "BMP: a palette of %u colours for %d bits", n, b->bits);
    if (at > s.n_bytes || n * entry_bytes > s.n_bytes - at) return bmp_cut("palette");
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *p = s.data + at + i * entry_bytes; // blue, green, red
        b->palette[i][0] = p[2];
        b->palette[i][1] = p[1];
        b->palette[i][2] = p[0];
    }
    return DT_OK;
}

static dt_status read_masks(bmp *b, dt_span s, uint32_t compression, uint32_t header_bytes) {
    if (compression == BI_RGB) {
        static const uint32_t RGB555[3] = {0x7c00, 0x03e0, 0x001f};
        static const uint32_t RGB888[3] = {0xff0000, 0x00ff00, 0x0000ff};
        memcpy(b->mask, b->bits == 16 ? RGB555 : RGB888, sizeof b->mask);
        return DT_OK;
    }
    // right after 40 bytes of header: inside a longer header, or between header and pixels
    if (s.n_bytes < 14 + 40 + 12 || header_bytes < 40) return bmp_cut("bit masks");
    for (int i = 0; i < 3; i++) {
        b->mask[i] = dt_le32(s.data + 14 + 40 + 4 * i);
        uint32_t m = b->mask[i];
        uint32_t low = m & (~m + 1); // the lowest bit: added, a run carries beyond its top
        if (m == 0 || ((m + low) & m) != 0 || (b->bits == 16 && m > 0xffff))
            return dt_fail(DT_E_DATA, "BMP: bit mask %08x is not a run of bits", m);
    }
    return DT_OK;
}

static void bmp_read_size(bmp *b, dt_span s, uint32_t header_bytes) {
    const uint8_t *p = s.data;
    if (header_bytes == 12) {
        b->width = dt_le16(p + 18);
        b->height = dt_le16(p + 20);
        b->bits = (int)dt_le16(p + 24);
        return;
    }
    b->width = (int32_t)dt_le32(p + 18);
    int64_t height = (int32_t)dt_le32(p + 22);
    b->top_down = height < 0; // a negative height: the first row is the top one
    b->height = height < 0 ? -height : height;
    b->bits = (int)dt_le16(p + 28);
}

static dt_status bmp_read_header(bmp *b, dt_span s) {
    if (s.n_bytes < 26) return bmp_cut("header");
    uint32_t pixels_at = dt_le32(s.data + 10), header_bytes = dt_le32(s.data + 14);
    if (header_bytes != 12 && (header_bytes < 40 || header_bytes > 256))
        return dt_fail(DT_E_DATA, "BMP: a header of %u bytes is of no known version", header_bytes);
    if (s.n_bytes < 14 + (size_t)header_bytes) return bmp_cut("header");
    bmp_read_size(b, s, header_bytes);
    uint32_t compression = header_bytes == 12 ? BI_RGB : dt_le32(s.data + 30);
    uint32_t n_used = header_bytes == 12 ? 0 : dt_le32(s.data + 46);
    bool masked = compression == BI_BITFIELDS || compression == BI_ALPHABITFIELDS;
    bool rle = (compression == BI_RLE8 && b->bits == 8) || (compression == BI_RLE4 && b->bits == 4);
    if (compression != BI_RGB && !rle && !(masked && (b->bits == 16 || b->bits == 32)))
        return dt_fail(DT_E_DATA, "BMP: compression %u with %d bits", compression, b->bits);
    switch (b->bits) {
    case 1:
    case 4:
    case 8:
        DT_TRY(read_palette(b, s, 14 + header_bytes, header_bytes == 12 ? 3 : 4, n_used));
        break;
    case 16:
    case 32:
        DT_TRY(read_masks(b, s, compression, header_bytes));
        break;
    case 24:
        break;
    default:
        return dt_fail(DT_E_DATA, "BMP: %d bits a pixel", b->bits);
    }
    if (b->width <= 0 || b->height <= 0 || b->width > DT_MAX_PIXELS || b->height > DT_MAX_PIXELS)
        return dt_fail(DT_E_DATA, "BMP: %lld x %lld pixels", (long long)b->width, (long long)b->height);
    b->compression = compression;
    b->stride = (((size_t)b->width * (size_t)b->bits + 31) / 32) * 4; // rows fill whole words of 32 bits
    if (pixels_at < 14 + header_bytes || pixels_at > s.n_bytes) return bmp_cut("pixels");
    b->rows = s.data + pixels_at;
    b->n_bytes = s.n_bytes - pixels_at;
    if (rle) return b->top_down ? dt_fail(DT_E_DATA, "BMP: run-length coded top down") : DT_OK;
    // the padding of the last row may be missing, as some writers leave it out
    size_t row_bytes = ((size_t)b->width * (size_t)b->bits + 7) / 8;
    size_t need = b->stride * ((size_t)b->height - 1) + row_bytes;
    if (need > s.n_bytes - pixels_at)
        return dt_fail(DT_E_DATA, "BMP: cut: %lld x %lld pixels of %d bits need %zu bytes, it has %zu",
                       (long long)b->width, (long long)b->height, b->bits, need, s.n_bytes - pixels_at);
    return DT_OK;
}

// ---- rows ------------------------------------------------------------------------------------------
VECTORIZED static void row_bytes(const uint8_t *restrict src, uint8_t *restrict dst, int n, int step, int channels) {
    for (int x = 0; x < n; x++, src += step) dt_put_pixel(dst, x, channels, src[2], src[1], src[0]);
}

static void row_palette(const bmp *b, const uint8_t *src, uint8_t *dst, int channels) {
    int per_byte = 8 / b->bits, mask = (1 << b->bits) - 1;
    for (int x = 0; x < b->width; x++) {
        int shift = 8 - b->bits * (x % per_byte + 1); // the leftmost pixel is in the highest bits
        const uint8_t *c = b->palette[src[x / per_byte] >> shift & mask];
        dt_put_pixel(dst, x, channels, c[0], c[1], c[2]);
    }
}

static uint32_t masked(uint32_t pixel, uint32_t mask) {
    int shift = __builtin_ctz(mask);
    uint64_t top = mask >> shift;
    return (uint32_t)(((uint64_t)((pixel & mask) >> shift) * 255 + top / 2) / top); // 0 .. top to 0 .. 255, rounded
}

static void row_masks(const bmp *b, const uint8_t *src, uint8_t *dst, int channels) {
    for (int x = 0; x < b->width; x++) {
        uint32_t p = b->bits == 16 ? dt_le16(src + 2 * x) : dt_le32(src + 4 * x);
        dt_put_pixel(dst, x, channels, masked(p, b->mask[0]), masked(p, b->mask[1]), masked(p, b->mask[2]));
    }
}

// ---- run-length coding -------------------------------------------------------------------------------
typedef struct rle {
    const uint8_t *p, *end;
    uint8_t *indices; // top down
    int64_t x, y;     // y counts from the bottom
    bool done;
} rle;

static void put_index(const bmp *b, rle *r, uint8_t index) {
    if (r->x < b->width) r->indices[(b->height - 1 - r->y) * b->width + r->x] = index; // beyond the row: cut
    r->x++;
}

// n pixels: from bytes of their own, or all from one byte (repeat).
static dt_status put_run(const bmp *b, rle *r, int n, bool repeat) {
    bool nibbles = b->bits == 4;
    size_t n_bytes = repeat ? 1 : nibbles ? ((size_t)n + 1) / 2 : (size_t)n;
    if (n_bytes > (size_t)(r->end - r->p)) return bmp_cut("pixels");
    // r->y never falls: no index below 0
    if (r->y >= b->height) return dt_fail(DT_E_DATA, "BMP: more rows than %lld", (long long)b->height);
    for (int i = 0; i < n; i++) {
        uint8_t v = r->p[repeat ? 0 : nibbles ? i / 2 : i];
        put_index(b, r, !nibbles ? v : i & 1 ? v & 15 : v >> 4);
    }
    if (!repeat && (n_bytes & 1) && n_bytes < (size_t)(r->end - r->p)) n_bytes++; // padding
    r->p += n_bytes;
    return DT_OK;
}

static dt_status put_escape(const bmp *b, rle *r, int code) {
    if (code > 2) return put_run(b, r, code, false); // 3 to 255: so many bytes follow as they are
    if (code == 0) r->x = 0, r->y++;                 // 0 ends a row, 1 the image, 2 moves right and up
    r->done = code == 1;
    if (code != 2) return DT_OK;
    if (r->end - r->p < 2) return bmp_cut("pixels");
    r->x += r->p[0];
    r->y += r->p[1];
    r->p += 2;
    return DT_OK;
}

static dt_status decode_rle(const bmp *b, uint8_t *indices) {
    rle r = {.p = b->rows, .end = b->rows + b->n_bytes, .indices = indices};
    memset(indices, 0, (size_t)b->width * (size_t)b->height); // pixels that no run names have index 0
    while (!r.done && r.end - r.p >= 2) {
        int n = r.p[0], code = r.p[1];
        r.p += n ? 1 : 2;
        DT_TRY(n ? put_run(b, &r, n, true) : put_escape(b, &r, code));
    }
    bool all_rows = r.y >= b->height || (r.y == b->height - 1 && r.x >= b->width);
    return r.done || all_rows ? DT_OK : bmp_cut("pixels");
}

// ---- a file ------------------------------------------------------------------------------------------
static void decode_row(const bmp *b, const uint8_t *src, uint8_t *dst, int channels) {
    bool plain32 = b->bits == 32 && b->mask[0] == 0xff0000 && b->mask[1] == 0xff00 && b->mask[2] == 0xff;
    if (b->bits == 24 || plain32)
        row_bytes(src, dst, (int)b->width, b->bits / 8, channels);
    else if (b->bits <= 8)
        row_palette(b, src, dst, channels);
    else
        row_masks(b, src, dst, channels);
}

static dt_status bmp_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    bmp b = {.rows = NULL};
    int c = sink->want->channels;
    DT_TRY(bmp_read_header(&b, bytes));
    DT_TRY(dt_image_place(sink, b.width, b.height, out));
    if (b.compression == BI_RLE8 || b.compression == BI_RLE4) {
        uint8_t *indices = dt_buffer_reserve(sink->work, (size_t)b.width * (size_t)b.height);
        if (!indices) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
        DT_TRY(decode_rle(&b, indices));
        b.rows = indices; // now the picture is one of bytes, stored top down
        b.stride = (size_t)b.width;
        b.bits = 8;
        b.top_down = true;
    }
    for (int64_t y = 0; y < b.height; y++) {
        uint8_t *dst = out->data + (size_t)y * (size_t)b.width * (size_t)c;
        decode_row(&b, b.rows + b.stride * (size_t)(b.top_down ? y : b.height - 1 - y), dst, c);
    }
    return DT_OK;
}

const dt_image_driver dt_image_bmp = {.decode = bmp_decode};

// ---- decode ppm ---------------------------------------------------------------------------------------------------

// The netpbm formats P1 to P6: bits, grey and RGB, as text or bytes.
//
// A header is a magic number, then width, height and (except for bits) the largest value, separated by white
// space and by comments from '#' to the end of the line; one white space ends it. Values up to 65535 are scaled
// to 0..255 and rounded; above 255 they take two bytes, high byte first. In P1 digits may touch. In bits, 1 is
// black. Where floats or a stretch are wanted and the largest value is above 255, values are an array's (array.h). A
// value above the largest is an error, and so is a file that ends early; whatever follows the first image is not read.
// Format: the netpbm man pages pbm(5), pgm(5), ppm(5).

typedef struct ppm {
    const uint8_t *p, *end;
    int64_t width, height;
    uint32_t max;
    bool text, bits;
    int samples;              // a pixel
    int deep;                 // so many channels, values as they are; 0: bytes
    uint32_t least, greatest; // so far
} ppm;

static dt_status ppm_cut(void) {
    return dt_fail(DT_E_DATA, "PPM: the file ends before its pixels do");
}

static bool is_space(uint8_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void ppm_skip_space(ppm *m) {
    while (m->p < m->end) {
        if (*m->p == '#')
            while (m->p < m->end && *m->p != '\n' && *m->p != '\r') m->p++;
        else if (is_space(*m->p))
            m->p++;
        else
            return;
    }
}

static dt_status ppm_read_number(ppm *m, uint32_t *out) {
    ppm_skip_space(m);
    if (m->p == m->end) return ppm_cut();
    uint32_t v = 0;
    const uint8_t *begin = m->p;
    // no number of the header is so large: no wrap
    for (; m->p < m->end && *m->p >= '0' && *m->p <= '9' && v < 100000000; m->p++) v = v * 10 + (uint32_t)(*m->p - '0');
    if (m->p == begin) return dt_fail(DT_E_DATA, "PPM: byte 0x%02x where a number must be", *m->p);
    *out = v;
    return DT_OK;
}

static dt_status ppm_read_header(ppm *m) {
    uint32_t width, height;
    int type = m->p[1] - '0';
    m->p += 2;
    if (m->p == m->end) return ppm_cut();
    if (!is_space(*m->p) && *m->p != '#') return dt_fail(DT_E_DATA, "PPM: byte 0x%02x after P%d", *m->p, type);
    DT_TRY(ppm_read_number(m, &width));
    DT_TRY(ppm_read_number(m, &height));
    m->width = width, m->height = height, m->max = 1;
    m->text = type <= 3;
    m->bits = type % 3 == 1;
    m->samples = type % 3 == 0 ? 3 : 1;
    if (!m->bits) DT_TRY(ppm_read_number(m, &m->max));
    if (m->max < 1 || m->max > 65535)
        return dt_fail(DT_E_DATA, "PPM: a largest value of %u; it must be 1..65535", m->max);
    if (m->text) return DT_OK;
    if (m->p == m->end) return ppm_cut();
    if (!is_space(*m->p++)) return dt_fail(DT_E_DATA, "PPM: no white space before the pixels");
    return DT_OK;
}

// As 0..255, or as it is.
static dt_status scale(ppm *m, uint32_t v, uint32_t *out) {
    if (v > m->max) return dt_fail(DT_E_DATA, "PPM: value %u above the largest, %u", v, m->max);
    m->least = v < m->least ? v : m->least;
    m->greatest = v > m->greatest ? v : m->greatest;
    *out = m->max == 255 || m->deep ? v : (v * 255 + m->max / 2) / m->max;
    return DT_OK;
}

static dt_status read_text_bit(ppm *m, uint32_t *out) {
    ppm_skip_space(m);
    if (m->p == m->end) return ppm_cut();
    if (*m->p != '0' && *m->p != '1') return dt_fail(DT_E_DATA, "PPM: byte 0x%02x where 0 or 1 must be", *m->p);
    *out = *m->p++ == '1' ? 0 : 255;
    return DT_OK;
}

static dt_status read_sample(ppm *m, uint32_t *out) {
    uint32_t v;
    if (m->bits) return read_text_bit(m, out);
    if (m->text) {
        DT_TRY(ppm_read_number(m, &v));
    } else {
        v = m->max > 255 ? (uint32_t)m->p[0] << 8 | m->p[1] : m->p[0];
        m->p += m->max > 255 ? 2 : 1;
    }
    return scale(m, v, out);
}

static dt_status read_pixel(ppm *m, uint32_t v[3]) {
    for (int c = 0; c < m->samples; c++) DT_TRY(read_sample(m, &v[c]));
    if (m->samples == 1) v[1] = v[2] = v[0];
    return DT_OK;
}

static dt_status ppm_read_row(ppm *m, uint8_t *dst, int channels) {
    if (!m->text && m->max == 255 && m->samples == channels) {
        memcpy(dst, m->p, (size_t)m->width * (size_t)channels);
        m->p += m->width * channels;
        return DT_OK;
    }
    for (int64_t x = 0; x < m->width; x++) {
        uint32_t v[3];
        DT_TRY(read_pixel(m, v));
        dt_put_pixel(dst, x, channels, v[0], v[1], v[2]);
    }
    return DT_OK;
}

static dt_status ppm_read_plane(void *ctx, int64_t c, double origin, float *out) {
    ppm m = *(const ppm *)ctx;
    for (int64_t i = 0; i < m.width * m.height; i++) {
        uint32_t v[3];
        DT_TRY(read_pixel(&m, v));
        out[i] = dt_deep_value(m.deep, c, v) - (float)origin;
    }
    return DT_OK;
}

static dt_status ppm_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    ppm m = {.p = bytes.data, .end = bytes.data + bytes.n_bytes, .least = UINT32_MAX};
    int channels = sink->want->channels;
    DT_TRY(ppm_read_header(&m));
    size_t row_bytes = m.bits ? ((size_t)m.width + 7) / 8 : ((size_t)m.width * (size_t)m.samples) << (m.max > 255);
    // before memory is taken: what is not there cannot be a picture (a text sample has a byte at least)
    size_t need = m.text ? (size_t)m.width * (size_t)m.samples : row_bytes;
    // the product is checked, not only its factors
    if (!dt_stated_size(need, (uint64_t)m.height, (uint64_t)(m.end - m.p), &need)) return ppm_cut();
    if (dt_image_is_deep(sink->want, m.max)) {
        m.deep = channels;
        const dt_planes p = {"PPM", m.width, m.height, channels, ppm_read_plane, &m};
        return dt_planes_to_image(sink, &p, out);
    }
    DT_TRY(dt_image_place(sink, m.width, m.height, out));
    for (int64_t y = 0; y < m.height; y++) {
        uint8_t *dst = out->data + (size_t)y * (size_t)m.width * (size_t)channels;
        if (!m.bits || m.text) {
            DT_TRY(ppm_read_row(&m, dst, channels));
            continue;
        }
        for (int64_t x = 0; x < m.width; x++)
            memset(dst + x * channels, m.p[x / 8] >> (7 - x % 8) & 1 ? 0 : 255, (size_t)channels);
        m.p += row_bytes;
    }
    if (m.max > 255) dt_image_note_levels(out, m.least, m.greatest, (m.greatest - m.least) * 255.0 / m.max);
    return DT_OK;
}

const dt_image_driver dt_image_ppm = {.decode = ppm_decode};
