// decode_bmp.c: Windows and OS/2 bitmaps of 1, 4, 8, 16, 24 and 32 bits.
//
// A BMP is a 14-byte file header, an info header (12 bytes for OS/2 1, 40 for V3, more for V4 and V5,
// which only append), bit masks or a palette, and rows padded to 4 bytes, bottom up unless the height
// is negative. 16- and 32-bit pixels have channel masks, fixed ones when the compression says none.
// Run-length coding is refused by name.
//
// The header is read into one struct with every offset checked against the bytes; the row loops then
// run on checked memory. 24 and 32 bits with the usual byte order have their own loops, as those are
// what scanners and cameras write; the rest goes through masks or a palette.
// Format: Microsoft, "Bitmap Storage" (BITMAPINFOHEADER, BITMAPV4HEADER, BITMAPV5HEADER).
#include "data/vectorize.h"
#include "decode.h"

#include <string.h>

typedef struct bmp {
    int64_t width, height; // height > 0
    bool top_down;
    int bits;
    const uint8_t *rows;
    size_t stride;
    uint32_t mask[3]; // r, g, b for 16 and 32 bits
    uint8_t palette[256][3];
} bmp;

enum { BI_RGB = 0, BI_RLE8 = 1, BI_RLE4 = 2, BI_BITFIELDS = 3, BI_ALPHABITFIELDS = 6 };

static uint32_t u16_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
static uint32_t u32_at(const uint8_t *p) {
    return u16_at(p) | u16_at(p + 2) << 16;
}

static dt_status cut(const char *what) {
    return dt_fail(DT_E_DATA, "BMP: cut in its %s", what);
}

static dt_status read_palette(bmp *b, dt_span s, size_t at, size_t entry_bytes, uint32_t n_used) {
    uint32_t n = n_used ? n_used : 1u << b->bits;
    if (n > 1u << b->bits)
        return dt_fail(DT_E_DATA, "BMP: a palette of %u colours for %d bits", n, b->bits);
    if (at > s.n_bytes || n * entry_bytes > s.n_bytes - at) return cut("palette");
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
    if (s.n_bytes < 14 + 40 + 12 || header_bytes < 40) return cut("bit masks");
    for (int i = 0; i < 3; i++) {
        b->mask[i] = u32_at(s.data + 14 + 40 + 4 * i);
        uint32_t m = b->mask[i];
        uint32_t low = m & (~m + 1);
        if (m == 0 || ((m + low) & m) != 0 || (b->bits == 16 && m > 0xffff))
            return dt_fail(DT_E_DATA, "BMP: bit mask %08x is not a run of bits", m);
    }
    return DT_OK;
}

static dt_status read_size(bmp *b, dt_span s, uint32_t header_bytes) {
    const uint8_t *p = s.data;
    if (header_bytes == 12) {
        b->width = u16_at(p + 18);
        b->height = u16_at(p + 20);
        b->bits = (int)u16_at(p + 24);
        return DT_OK;
    }
    b->width = (int32_t)u32_at(p + 18);
    int64_t height = (int32_t)u32_at(p + 22);
    b->top_down = height < 0;
    b->height = height < 0 ? -height : height;
    b->bits = (int)u16_at(p + 28);
    return DT_OK;
}

static dt_status read_header(bmp *b, dt_span s) {
    if (s.n_bytes < 26) return cut("header");
    uint32_t pixels_at = u32_at(s.data + 10), header_bytes = u32_at(s.data + 14);
    if (header_bytes != 12 && (header_bytes < 40 || header_bytes > 256))
        return dt_fail(DT_E_DATA, "BMP: a header of %u bytes is of no known version", header_bytes);
    if (s.n_bytes < 14 + (size_t)header_bytes) return cut("header");
    DT_TRY(read_size(b, s, header_bytes));
    uint32_t compression = header_bytes == 12 ? BI_RGB : u32_at(s.data + 30);
    uint32_t n_used = header_bytes == 12 ? 0 : u32_at(s.data + 46);
    bool masked = compression == BI_BITFIELDS || compression == BI_ALPHABITFIELDS;
    if (compression == BI_RLE8 || compression == BI_RLE4)
        return dt_fail(DT_E_DATA, "BMP: run-length coded; save it uncompressed");
    if (compression != BI_RGB && !(masked && (b->bits == 16 || b->bits == 32)))
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
        return dt_fail(DT_E_DATA, "BMP: %lld x %lld pixels", (long long)b->width,
                       (long long)b->height);
    b->stride = (((size_t)b->width * (size_t)b->bits + 31) / 32) * 4;
    if (pixels_at < 14 + header_bytes || pixels_at > s.n_bytes) return cut("pixels");
    // the padding of the last row may be missing, as some writers leave it out
    size_t row_bytes = ((size_t)b->width * (size_t)b->bits + 7) / 8;
    size_t need = b->stride * ((size_t)b->height - 1) + row_bytes;
    if (need > s.n_bytes - pixels_at)
        return dt_fail(
            DT_E_DATA, "BMP: cut: %lld x %lld pixels of %d bits need %zu bytes, it has %zu",
            (long long)b->width, (long long)b->height, b->bits, need, s.n_bytes - pixels_at);
    b->rows = s.data + pixels_at;
    return DT_OK;
}

// ---- rows ------------------------------------------------------------------------------------------
VECTORIZED static void row_bytes_rgb(const uint8_t *restrict src, uint8_t *restrict dst, int n,
                                     int step) {
    for (int x = 0; x < n; x++) {
        dst[3 * x] = src[step * x + 2];
        dst[3 * x + 1] = src[step * x + 1];
        dst[3 * x + 2] = src[step * x];
    }
}

VECTORIZED static void row_bytes_grey(const uint8_t *restrict src, uint8_t *restrict dst, int n,
                                      int step) {
    for (int x = 0; x < n; x++)
        dst[x] = dt_luma(src[step * x + 2], src[step * x + 1], src[step * x]);
}

static void put_pixel(uint8_t *dst, int x, int channels, uint32_t r, uint32_t g, uint32_t b) {
    if (channels == 1) {
        dst[x] = dt_luma(r, g, b);
        return;
    }
    dst[3 * x] = (uint8_t)r;
    dst[3 * x + 1] = (uint8_t)g;
    dst[3 * x + 2] = (uint8_t)b;
}

static void row_palette(const bmp *b, const uint8_t *src, uint8_t *dst, int channels) {
    int per_byte = 8 / b->bits, mask = (1 << b->bits) - 1;
    for (int x = 0; x < b->width; x++) {
        int shift = 8 - b->bits * (x % per_byte + 1);
        const uint8_t *c = b->palette[src[x / per_byte] >> shift & mask];
        put_pixel(dst, x, channels, c[0], c[1], c[2]);
    }
}

static uint32_t masked(uint32_t pixel, uint32_t mask) {
    int shift = __builtin_ctz(mask);
    uint64_t top = mask >> shift;
    return (uint32_t)(((uint64_t)((pixel & mask) >> shift) * 255 + top / 2) / top);
}

static void row_masks(const bmp *b, const uint8_t *src, uint8_t *dst, int channels) {
    for (int x = 0; x < b->width; x++) {
        uint32_t p = b->bits == 16 ? u16_at(src + 2 * x) : u32_at(src + 4 * x);
        put_pixel(dst, x, channels, masked(p, b->mask[0]), masked(p, b->mask[1]),
                  masked(p, b->mask[2]));
    }
}

dt_status dt_decode_bmp(dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    bmp b = {.rows = NULL};
    DT_TRY(read_header(&b, bytes));
    DT_TRY(dt_image_place(sink, b.width, b.height, out));
    bool plain32 =
        b.bits == 32 && b.mask[0] == 0xff0000 && b.mask[1] == 0xff00 && b.mask[2] == 0xff;
    int c = sink->channels, step = b.bits / 8;
    for (int64_t y = 0; y < b.height; y++) {
        const uint8_t *src = b.rows + b.stride * (size_t)(b.top_down ? y : b.height - 1 - y);
        uint8_t *dst = out->data + (size_t)y * (size_t)b.width * (size_t)c;
        if ((b.bits == 24 || plain32) && c == 3)
            row_bytes_rgb(src, dst, (int)b.width, step);
        else if (b.bits == 24 || plain32)
            row_bytes_grey(src, dst, (int)b.width, step);
        else if (b.bits <= 8)
            row_palette(&b, src, dst, c);
        else
            row_masks(&b, src, dst, c);
    }
    return DT_OK;
}
