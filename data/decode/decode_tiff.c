// decode_tiff.c: TIFF and BigTIFF from memory, through libtiff.
//
// A file is a chain of pages (directories); the first one is read, or those that the field names (hdu), their samples one
// after another as bands. All strips or tiles of a page are decoded into one buffer of whole samples. Grey, palettes and
// RGB of up to 16 bits are a picture where the field has 1 or 3 channels; everything else, floats and further bands, is an
// array (array.h). Alpha is dropped of pictures, and a band of arrays. Orientation is ignored, as of JPEG.
//
// What a file makes libtiff decode is known from its header, and limited before memory is taken. libtiff's messages
// become those of dtrain, its warnings are dropped. Refused by name: other colours (CMYK, Lab, YCbCr without JPEG, raw
// pixels of cameras), samples of other sizes, JPEG of the old kind, whose decoder guesses, volumes.
// Format: TIFF 6.0 (Adobe, 1992) and its supplements; BigTIFF.
#include "array.h"

#include "base/stated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>

enum { MAX_ALLOC = 256 << 20, MAX_BYTES = 8 * DT_MAX_PIXELS };

typedef struct tiff_page {
    dt_npy a;               // (height, width, samples), stride by axis; data: since load
    int bits, n_colours;    // 1 or 3: what a picture of it has; 0: it is none
    uint32_t invert;        // white is 0
    const uint16_t *map[3]; // of a palette, borrowed from libtiff
    int map_shift;
    bool is_planar;
} tiff_page;

typedef struct tiff_file {
    dt_span bytes;
    uint64_t at;
    TIFF *tiff;
    char what[160];       // libtiff's first error
    bool is_cut, is_deep; // is_deep: a picture of 16 bits that the field takes as they are
    const dt_image_sink *sink;
    int n_pages, number[DT_MAX_HDUS], current; // index of the page that is loaded, or -1
    tiff_page page;
} tiff_file;

static dt_status tiff_fail(const tiff_file *t) {
    return dt_fail(DT_E_DATA, "TIFF: %s", *t->what ? t->what : "damaged");
}

// ---- libtiff -----------------------------------------------------------------------------------------
static int tiff_keep_error(TIFF *tiff, void *user, const char *module, const char *format, va_list args) {
    tiff_file *t = user;
    if (!*t->what) vsnprintf(t->what, sizeof t->what, format, args);
    return 1; // no other handler prints it
}

// Of a cut file it drops tags, and takes a picture without its palette for grey.
static int tiff_drop_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list args) {
    tiff_file *t = user;
    if (strncmp(format, "IO error", 8) != 0) return 1;
    t->is_cut = true;
    return tiff_keep_error(tiff, user, module, format, args);
}

static tmsize_t tiff_read(thandle_t user, void *out, tmsize_t n) {
    tiff_file *t = user;
    const uint64_t left = t->at < t->bytes.n_bytes ? t->bytes.n_bytes - t->at : 0;
    if ((uint64_t)n > left) n = (tmsize_t)left;
    if (n > 0) memcpy(out, t->bytes.data + t->at, (size_t)n);
    t->at += (uint64_t)n;
    return n;
}

static tmsize_t tiff_write(thandle_t user, void *from, tmsize_t n) {
    return 0;
}

static toff_t tiff_seek(thandle_t user, toff_t offset, int whence) {
    tiff_file *t = user;
    return t->at = offset + (whence == SEEK_CUR ? t->at : whence == SEEK_END ? t->bytes.n_bytes : 0);
}

static int tiff_close(thandle_t user) {
    return 0;
}

static toff_t tiff_size(thandle_t user) {
    return ((tiff_file *)user)->bytes.n_bytes;
}

// ---- a page ------------------------------------------------------------------------------------------
static dt_status read_colours(tiff_file *t, tiff_page *g, uint32_t n_samples) {
    uint16_t photometric = PHOTOMETRIC_MINISBLACK, compression = COMPRESSION_NONE, n_extra = 0, *extra, *map[3];
    TIFFGetField(t->tiff, TIFFTAG_PHOTOMETRIC, &photometric);
    TIFFGetField(t->tiff, TIFFTAG_COMPRESSION, &compression);
    if (compression == COMPRESSION_OJPEG) return dt_fail(DT_E_DATA, "TIFF: JPEG of the old kind (compression 6)");
    if (compression == COMPRESSION_JPEG && photometric == PHOTOMETRIC_YCBCR && !g->is_planar &&
        TIFFSetField(t->tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB))
        photometric = PHOTOMETRIC_RGB; // libjpeg converts
    if (photometric > PHOTOMETRIC_MASK)
        return dt_fail(DT_E_DATA, "TIFF: colours of kind %d (5: CMYK, 6: YCbCr without JPEG, 8: Lab)", photometric);
    if (TIFFGetField(t->tiff, TIFFTAG_EXTRASAMPLES, &n_extra, &extra) && n_extra == 1 && *extra) n_samples--; // alpha
    const uint32_t n_colours = photometric == PHOTOMETRIC_RGB ? 3 : 1;
    if (n_samples != n_colours || g->bits > 16 || g->a.kind != 'u') return DT_OK;
    g->n_colours = (int)n_colours;
    g->invert = photometric == PHOTOMETRIC_MINISWHITE ? (1u << g->bits) - 1 : 0;
    if (photometric != PHOTOMETRIC_PALETTE) return DT_OK;
    if (!TIFFGetField(t->tiff, TIFFTAG_COLORMAP, &map[0], &map[1], &map[2]))
        return dt_fail(DT_E_DATA, "TIFF: a palette is missing");
    for (int c = 0; c < 3; c++) {
        g->map[c] = map[c];
        for (int i = 0; i < 1 << g->bits; i++) // old writers leave 8 bits
            if (map[c][i] > 255) g->map_shift = 8;
    }
    return DT_OK;
}

static dt_status read_page(tiff_file *t, int number, tiff_page *g) {
    uint32_t width = 0, height = 0, depth = 1;
    uint16_t bits, n, format, planar;
    if (!TIFFSetDirectory(t->tiff, (tdir_t)number))
        return *t->what ? tiff_fail(t)
                        : dt_fail(DT_E_DATA, "TIFF: no page %d (hdu): there are %d, counted from 0", number,
                                  (int)TIFFNumberOfDirectories(t->tiff));
    if (t->is_cut) return tiff_fail(t);
    TIFFGetField(t->tiff, TIFFTAG_IMAGEWIDTH, &width);
    TIFFGetField(t->tiff, TIFFTAG_IMAGELENGTH, &height);
    TIFFGetField(t->tiff, TIFFTAG_IMAGEDEPTH, &depth);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_SAMPLESPERPIXEL, &n);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_SAMPLEFORMAT, &format);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_PLANARCONFIG, &planar);
    if (depth > 1) return dt_fail(DT_E_DATA, "TIFF: a volume (ImageDepth %u); pages are read", depth);
    *g = (tiff_page){.bits = bits, .is_planar = planar == PLANARCONFIG_SEPARATE && n > 1};
    g->a = (dt_npy){.size = bits < 8 ? 1 : bits / 8, .n_axes = 3, .shape = {height, width, n}};
    g->a.kind = "uuifucc"[format > SAMPLEFORMAT_COMPLEXIEEEFP ? 0 : format];
    const bool is_whole = g->a.kind == 'u' || g->a.kind == 'i', is_short = bits == 1 || bits == 2 || bits == 4;
    if (!(is_whole && (bits == 8 || bits == 16)) && !(g->a.kind != 'c' && (bits == 32 || bits == 64)) &&
        !(g->a.kind == 'u' && is_short))
        return dt_fail(DT_E_DATA, "TIFF: %s numbers of %d bits",
                       is_whole           ? "whole"
                       : g->a.kind == 'f' ? "real"
                                          : "complex",
                       bits);
    g->a.stride[1] = g->is_planar ? 1 : n;
    g->a.stride[0] = g->a.stride[1] * width;
    g->a.stride[2] = g->is_planar ? (int64_t)width * height : 1;
    return read_colours(t, g, n);
}

// Samples of less than 8 bits become bytes.
static void unpack_row(const uint8_t *from, size_t n, int bits, int size, uint8_t *to) {
    if (bits >= 8) memcpy(to, from, n * (size_t)size);
    for (size_t i = 0, bit = 0; bits < 8 && i < n; i++, bit += (size_t)bits)
        to[i] = from[bit / 8] >> (8 - bits - (int)(bit % 8)) & ((1 << bits) - 1);
}

// Decodes the current page's strips or tiles.
static dt_status load_page(tiff_file *t, tiff_page *g) {
    const bool tiled = TIFFIsTiled(t->tiff);
    const uint64_t width = (uint64_t)g->a.shape[1], height = (uint64_t)g->a.shape[0], each = (uint64_t)g->a.size;
    const uint64_t n_in = g->is_planar ? 1 : (uint64_t)g->a.shape[2], n_planes = (uint64_t)g->a.shape[2] / n_in;
    uint32_t w = (uint32_t)width, h = UINT32_MAX;
    TIFFGetField(t->tiff, tiled ? TIFFTAG_TILELENGTH : TIFFTAG_ROWSPERSTRIP, &h);
    if (tiled) TIFFGetField(t->tiff, TIFFTAG_TILEWIDTH, &w);
    if (!tiled && h > height) h = (uint32_t)height;
    if (w == 0 || h == 0) return dt_fail(DT_E_DATA, "TIFF: strips or tiles without a size");
    // each factor has at most 32 bits, n_in * bits 22
    const uint64_t row = ((uint64_t)w * n_in * (uint64_t)g->bits + 7) / 8;
    const uint64_t n_blocks = ((width + w - 1) / w) * ((height + h - 1) / h);
    size_t block, all;
    if (!dt_stated_size(row, h, MAX_BYTES, &block) || !dt_stated_size(n_blocks, n_planes, MAX_BYTES, &all) ||
        !dt_stated_size(all, block, MAX_BYTES, &all) ||
        !dt_stated_size(width * height, n_in * n_planes * each, MAX_BYTES, &all))
        return dt_fail(DT_E_DATA, "TIFF: %lld x %lld pixels of %lld samples of %d bits: more than %d MiB",
                       (long long)width, (long long)height, (long long)g->a.shape[2], g->bits, MAX_BYTES >> 20);
    if (row != (tiled ? TIFFTileRowSize64(t->tiff) : TIFFScanlineSize64(t->tiff)) ||
        block != (tiled ? TIFFTileSize64(t->tiff) : TIFFStripSize64(t->tiff)))
        return dt_fail(DT_E_DATA, "TIFF: its rows are subsampled");
    uint8_t *pixels = dt_buffer_reserve(&t->sink->work[2], all + block), *from = pixels + all;
    if (!pixels) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    uint32_t i = 0; // strips and tiles lie by plane, row and column
    for (uint64_t p = 0; p < n_planes; p++)
        for (uint64_t y = 0; y < height; y += h)
            for (uint64_t x = 0; x < width; x += w, i++) {
                const uint64_t n_rows = height - y < h ? height - y : h, n_across = width - x < w ? width - x : w;
                const tmsize_t n = (tmsize_t)(tiled ? block : n_rows * row);
                // libtiff reads a strip that no list names from the file's first byte on
                if (TIFFGetStrileOffset(t->tiff, i) == 0 ||
                    n != (tiled ? TIFFReadEncodedTile : TIFFReadEncodedStrip)(t->tiff, i, from, n))
                    return tiff_fail(t);
                for (uint64_t k = 0; k < n_rows; k++)
                    unpack_row(from + k * row, n_across * n_in, g->bits, g->a.size,
                               pixels + ((p * height + y + k) * width + x) * n_in * each);
            }
    g->a.data = pixels;
    return DT_OK;
}

// Red, green and blue of pixel i: of 8 bits, or of 16 as they are.
static void tiff_colours_of(const tiff_page *g, int64_t i, uint32_t v[3]) {
    for (int c = 0; c < 3; c++) {
        const int64_t at = i * g->a.stride[1] + (g->n_colours == 3 ? c * g->a.stride[2] : 0);
        uint32_t s = g->a.size == 1 ? g->a.data[at] : ((const uint16_t *)(const void *)g->a.data)[at];
        v[c] = g->map[0] ? (uint32_t)g->map[c][s] >> g->map_shift
                         : (s ^ g->invert) * (g->bits < 8 ? 255u / ((1u << g->bits) - 1) : 1);
    }
}

// Sample i of all pages' samples, or of a picture its colour i.
static dt_status tiff_read_plane(void *ctx, int64_t i, double origin, float *out) {
    tiff_file *t = ctx;
    const dt_npy *a = &t->page.a;
    const int k = t->is_deep ? t->current : (int)(i / a->shape[2]); // all pages have as many
    uint32_t v[3];
    if (k != t->current) {
        DT_TRY(read_page(t, t->number[k], &t->page));
        DT_TRY(load_page(t, &t->page));
        t->current = k;
    }
    const int64_t first = i % a->shape[2] * a->stride[2];
    for (int64_t p = 0; p < a->shape[0] * a->shape[1]; p++) {
        if (t->is_deep) tiff_colours_of(&t->page, p, v);
        out[p] = t->is_deep ? dt_deep_value(t->sink->want->channels, i, v) - (float)origin
                            : (float)(dt_npy_get(a, first + p * a->stride[1]) - origin);
    }
    return DT_OK;
}

// ---- pictures ----------------------------------------------------------------------------------------
static dt_status tiff_fill_picture(tiff_file *t, dt_image *out) {
    const tiff_page *g = &t->page;
    const bool wide = g->bits == 16 && !g->map[0];
    uint32_t v[3], least = UINT16_MAX, greatest = 0;
    DT_TRY(dt_image_place(t->sink, g->a.shape[1], g->a.shape[0], out));
    const int64_t n = g->a.shape[0] * g->a.shape[1];
    const bool as_it_is = g->bits == 8 && !g->map[0] && !g->invert && g->n_colours == out->channels &&
                          g->a.stride[1] == out->channels; // the usual picture
    if (as_it_is) memcpy(out->data, g->a.data, (size_t)(n * out->channels));
    for (int64_t i = 0; i < n && !as_it_is; i++) {
        tiff_colours_of(g, i, v);
        for (int c = 0; wide && c < 3; c++) {
            least = v[c] < least ? v[c] : least;
            greatest = v[c] > greatest ? v[c] : greatest;
            v[c] = (v[c] * 255 + 32767) / 65535; // rounded, as of PNG
        }
        dt_put_pixel(out->data, i, out->channels, v[0], v[1], v[2]);
    }
    if (wide) dt_image_note_levels(out, least, greatest, (greatest - least) / 257.0);
    return DT_OK;
}

// ---- a file ------------------------------------------------------------------------------------------
static dt_status tiff_decode_pages(tiff_file *t, dt_image *out) {
    const dt_array_spec *spec = dt_array_spec_of(t->sink->want);
    tiff_page g;
    for (int i = t->n_pages - 1; i >= 0; i--) { // the first comes last: it stays the current one
        DT_TRY(read_page(t, t->number[i], &t->page));
        if (i < t->n_pages - 1 && memcmp(g.a.shape, t->page.a.shape, sizeof g.a.shape) != 0)
            return dt_fail(DT_E_DATA, "TIFF: page %d (hdu) differs from the next in size or samples", t->number[i]);
        g = t->page;
    }
    const int64_t *shape = t->page.a.shape;
    const int channels = t->sink->want->channels;
    const bool is_picture =
        t->n_pages == 1 && spec->n_bands == 0 && t->page.n_colours && (channels == 1 || channels == 3);
    t->is_deep = is_picture && t->page.bits == 16 && !t->page.map[0] && dt_image_is_deep(t->sink->want, UINT16_MAX);
    const dt_planes p = {"TIFF", shape[1], shape[0], t->is_deep ? channels : shape[2] * t->n_pages, tiff_read_plane, t};
    DT_TRY(dt_image_begin(t->sink, p.width, p.height, out)); // its limits, before memory is taken
    DT_TRY(load_page(t, &t->page));
    return is_picture && !t->is_deep ? tiff_fill_picture(t, out) : dt_planes_to_image(t->sink, &p, out);
}

static dt_status tiff_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    const dt_array_spec *spec = dt_array_spec_of(sink->want);
    tiff_file t = {.bytes = bytes, .sink = sink, .n_pages = spec->n_hdus > 0 ? spec->n_hdus : 1};
    for (int i = 0; i < spec->n_hdus; i++) {
        t.number[i] = atoi(spec->hdus[i]);
        if (spec->hdus[i][strspn(spec->hdus[i], "0123456789")])
            return dt_fail(DT_E_DATA, "TIFF: hdu '%s': its pages have numbers, from 0", spec->hdus[i]);
    }
    TIFFOpenOptions *o = TIFFOpenOptionsAlloc();
    if (!o) return dt_fail(DT_E_INTERNAL, "out of memory for a TIFF");
    TIFFOpenOptionsSetMaxSingleMemAlloc(o, MAX_ALLOC);
    TIFFOpenOptionsSetErrorHandlerExtR(o, tiff_keep_error, &t);
    TIFFOpenOptionsSetWarningHandlerExtR(o, tiff_drop_warning, &t);
    t.tiff = TIFFClientOpenExt("TIFF", "r", &t, tiff_read, tiff_write, tiff_seek, tiff_close, tiff_size, NULL, NULL, o);
    TIFFOpenOptionsFree(o);
    if (!t.tiff) return tiff_fail(&t);
    const dt_status st = tiff_decode_pages(&t, out);
    TIFFClose(t.tiff);
    return st;
}

const dt_image_driver dt_image_tif = {.decode = tiff_decode};
