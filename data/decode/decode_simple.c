// decode_simple.c: formats that a library or a few lines decode: Caffe Datum, NPY, PNG, WebP, text.

#include "array.h"
#include "decode.h"

#include "base/bits.h"
#include "base/core.h"
#include "data/file/datum.h"

#include <spng.h>
#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>

// ---- decode datum -------------------------------------------------------------------------------------------------

// Raw pixels in a Caffe Datum (data/file/datum.h): planes of bytes or floats, 1 channel (grey)
// or 3 (blue, green, red, as in OpenCV). Floats are rounded and clamped to 0..255; data sets with other numbers
// in them are not pictures. Encoded images never get here: the LMDB reader hands out the image inside the
// message.

static uint8_t float_pixel(const uint8_t *p) {
    float v;
    memcpy(&v, p, sizeof v);
    return v > 0 ? v < 255 ? (uint8_t)(v + 0.5f) : 255 : 0; // NaN: 0
}

// Plane c of the row that begins at pixel `first`, as bytes; `skip` bytes from value to value.
static const uint8_t *plane_row(const dt_datum *d, const uint8_t *bytes, int64_t c, int64_t first, int64_t *skip) {
    int64_t at = c * d->height * d->width + first;
    if (d->n_data) {
        *skip = 1;
        return bytes + d->data_at + at;
    }
    *skip = d->packed ? 4 : 5;
    return bytes + d->float_at + at * *skip + (d->packed ? 0 : 1);
}

static void datum_fill_row(const dt_datum *d, const uint8_t *bytes, int64_t y, uint8_t *dst, int channels) {
    const uint8_t *plane[3];
    int64_t skip = 1;
    bool floats = d->n_data == 0;
    for (int c = 0; c < 3; c++) // red is the last plane
        plane[c] = plane_row(d, bytes, d->channels == 3 ? 2 - c : 0, y * d->width, &skip);
    for (int64_t x = 0; x < d->width; x++) {
        uint32_t v[3];
        for (int c = 0; c < 3; c++) v[c] = floats ? float_pixel(plane[c] + x * skip) : plane[c][x * skip];
        dt_put_pixel(dst, x, channels, v[0], v[1], v[2]);
    }
}

static dt_status datum_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    dt_blob b;
    dt_datum d;
    dt_blob_from_memory(&b, "Datum", bytes.data, bytes.n_bytes);
    DT_TRY(dt_datum_read(&b, 0, bytes.n_bytes, &d));
    if (d.encoded || (d.channels != 1 && d.channels != 3))
        return d.encoded ? dt_fail(DT_E_DATA, "a Datum with an encoded image in it")
                         : dt_fail(DT_E_DATA, "a Datum of %lld channels; images have 1 or 3", (long long)d.channels);
    int channels = sink->want->channels;
    DT_TRY(dt_image_place(sink, d.width, d.height, out));
    for (int64_t y = 0; y < d.height; y++)
        datum_fill_row(&d, bytes.data, y, out->data + y * d.width * channels, channels);
    return DT_OK;
}

const dt_image_driver dt_image_datum = {.decode = datum_decode};

// ---- decode npy ---------------------------------------------------------------------------------------------------

// NumPy arrays as images.
//
// Two axes are height and width; three have channels last, or first where the field says layout: chw; more
// are refused unless the outer ones have length 1. Bytes in the layout of the batch, wanted as bytes and
// unstretched, are copied as they lie; everything else goes through planes of floats (array.h), elements of 64
// bits after the origin of far values is subtracted.

typedef struct npy_view {
    dt_npy a;
    int64_t height, width, channels, row, column, channel; // strides in elements
} npy_view;

static dt_status view_of(npy_view *v, bool chw) {
    const dt_npy *a = &v->a;
    int n = a->n_axes, first = 0;
    while (n - first > 3 && a->shape[first] == 1) first++;
    n -= first;
    if (n != 2 && n != 3) return dt_fail(DT_E_DATA, "NPY: %d axes; an image has 2 or 3", a->n_axes);
    int h = first + (n == 3 && chw), c = n == 2 ? -1 : chw ? first : first + 2;
    v->height = a->shape[h], v->row = a->stride[h];
    v->width = a->shape[h + 1], v->column = a->stride[h + 1];
    v->channels = c < 0 ? 1 : a->shape[c];
    v->channel = c < 0 ? 0 : a->stride[c];
    return DT_OK;
}

static dt_status npy_read_plane(void *ctx, int64_t i, double origin, float *out) {
    const npy_view *v = ctx;
    const dt_npy *a = &v->a;
    bool f4 = a->kind == 'f' && a->size == 4 && !a->swapped;
    for (int64_t y = 0; y < v->height; y++) {
        int64_t at = i * v->channel + y * v->row;
        if (f4 && v->column == 1 && origin == 0)
            memcpy(out, a->data + 4 * at, (size_t)v->width * 4);
        else
            for (int64_t x = 0; x < v->width; x++) out[x] = (float)(dt_npy_get(a, at + x * v->column) - origin);
        out += v->width;
    }
    return DT_OK;
}

static bool is_as_wanted(const npy_view *v, const dt_array_spec *s, int channels) {
    return v->a.kind == 'u' && v->a.size == 1 && !s->f32 && s->stretch == DT_STRETCH_none && s->n_bands == 0 &&
           v->channels == channels && (channels == 1 || v->channel == 1) && v->column == channels &&
           v->row == v->width * channels;
}

static dt_status npy_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    const dt_array_spec *spec = dt_array_spec_of(sink->want);
    npy_view v;
    DT_TRY(dt_npy_read(bytes, &v.a));
    DT_TRY(view_of(&v, spec->chw));
    if (is_as_wanted(&v, spec, sink->want->channels)) {
        DT_TRY(dt_image_place(sink, v.width, v.height, out));
        memcpy(out->data, v.a.data, (size_t)v.a.n);
        return DT_OK;
    }
    dt_planes p = {"NPY", v.width, v.height, v.channels, npy_read_plane, &v};
    return dt_planes_to_image(sink, &p, out);
}

const dt_image_driver dt_image_npy = {.decode = npy_decode};

// ---- decode png ---------------------------------------------------------------------------------------------------

// PNG of every colour type and depth through libspng, from memory.
//
// The library makes RGB of up to 8 bits, or grey of grey, so that RGB and grey go directly to the batch slot.
// Colour becomes grey by luma. 16 bits are an array's values where floats or a stretch are wanted (array.h), else they are
// rounded here to 8 (v * 255 / 65535); Pillow truncates them, else its convert gives the same bytes. Alpha and transparent colours are dropped, gamma is ignored. The library checks
// the CRCs of critical chunks and the Adler sum of the pixels.

enum {
    MAX_CHUNK_BYTES = 4 << 20, // text, profiles: kept by the library, not used
    MAX_CACHE_BYTES = 16 << 20
};

static dt_status png_fail(int code) {
    return dt_fail(DT_E_DATA, "PNG: %s", spng_strerror(code));
}

static uint32_t round16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v); // the host's order
    return (v * 255u + 32767u) / 65535u;
}

typedef struct deep {
    const uint16_t *rgba;
    size_t n;
    int channels;
} deep;

static dt_status png_read_plane(void *ctx, int64_t c, double origin, float *out) {
    const deep *d = ctx;
    for (size_t i = 0; i < d->n; i++) {
        const uint16_t *p = d->rgba + 4 * i;
        out[i] = dt_deep_value(d->channels, c, (const uint32_t[]){p[0], p[1], p[2]}) - (float)origin;
    }
    return DT_OK;
}

static dt_status decode_deep(spng_ctx *png, const struct spng_ihdr *h, const dt_image_sink *sink, dt_image *out) {
    DT_TRY(dt_image_begin(sink, h->width, h->height, out)); // its limits, before memory is taken
    deep d = {.n = (size_t)h->width * h->height, .channels = sink->want->channels};
    uint8_t *pixels = dt_buffer_reserve(&sink->work[2], 8 * d.n);
    if (!pixels) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    const int code = spng_decode_image(png, pixels, 8 * d.n, SPNG_FMT_RGBA16, 0);
    if (code) return png_fail(code);
    d.rgba = (const uint16_t *)(const void *)pixels;
    const dt_planes p = {"PNG", h->width, h->height, d.channels, png_read_plane, &d};
    return dt_planes_to_image(sink, &p, out);
}

typedef struct png_state {
    spng_ctx *png; // open while rows are read
    bool wide;     // RGBA of 16 bits
    bool luma;     // RGB of which grey is made
    int width, channels;
    size_t n_row; // bytes that the library makes of a row
    dt_buffer row;
    dt_image *out;            // the caller's
    uint16_t least, greatest; // of 16 bits
} png_state;

// How the library writes pixels, and what is to be made of them.
static int png_choose_format(png_state *s, const struct spng_ihdr *h, int channels) {
    const bool grey = channels == 1 && h->bit_depth < 16 && h->color_type == SPNG_COLOR_TYPE_GRAYSCALE;
    s->wide = h->bit_depth == 16;
    s->luma = !s->wide && !grey && channels == 1;
    s->width = (int)h->width;
    s->channels = channels;
    s->n_row = (size_t)h->width * (s->wide ? 8 : grey ? 1 : 3);
    return s->wide ? SPNG_FMT_RGBA16 : grey ? SPNG_FMT_G8 : SPNG_FMT_RGB8;
}

// RGBA of 16 bits. to NULL: it is looked at alone.
static void convert_wide(png_state *s, const uint8_t *src, size_t n, uint8_t *to) {
    for (size_t i = 0; i < n; i++, src += 8) {
        if (to) dt_put_pixel(to, (int64_t)i, s->channels, round16(src), round16(src + 2), round16(src + 4));
        for (int c = 0; c < 3; c++) {
            uint16_t v;
            memcpy(&v, src + 2 * c, sizeof v);
            s->least = v < s->least ? v : s->least;
            s->greatest = v > s->greatest ? v : s->greatest;
        }
    }
}

// n pixels in one of the library's formats that is not the wanted one.
static void png_convert(png_state *s, const uint8_t *pixels, size_t n, uint8_t *to) {
    if (s->wide)
        convert_wide(s, pixels, n, to);
    else
        for (size_t i = 0; i < n; i++) to[i] = dt_luma(pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2]);
}

static void png_close(png_state *s) {
    spng_ctx_free(s->png);
    s->png = NULL;
}

static dt_status png_finish(png_state *s) {
    const int code = spng_decode_chunks(s->png); // to the end: the last chunk's checksum
    png_close(s);
    dt_image_note_levels(s->out, s->least, s->greatest, (s->greatest - s->least) / 257); // 65535 / 255
    return code ? png_fail(code) : DT_OK;
}

static dt_status png_next_row(void *state, uint8_t *to) {
    png_state *s = state;
    uint8_t *row = !to || s->wide || s->luma ? s->row.data : to;
    int code = 0;
    if (to) {
        code = spng_decode_row(s->png, row, s->n_row);
        if (code && code != SPNG_EOI) return png_fail(code);
        if (row != to) png_convert(s, row, (size_t)s->width, to);
        return DT_OK;
    }
    while (!code) { // the rows below, and their checksum
        code = spng_decode_row(s->png, row, s->n_row);
        if (s->wide) convert_wide(s, row, (size_t)s->width, NULL);
    }
    return code == SPNG_EOI ? png_finish(s) : png_fail(code);
}

static dt_status read_pixels(png_state *s, int format, const dt_image_sink *sink, dt_image *out) {
    DT_TRY(dt_image_reserve(sink, out, false));
    const size_t n_pixels = (size_t)out->width * (size_t)out->height, n_bytes = s->n_row * (size_t)out->height;
    const bool direct = !s->wide && !s->luma; // the library writes to the slot itself
    uint8_t *pixels = direct ? out->data : dt_buffer_reserve(&sink->work[2], n_bytes);
    if (!pixels) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    const int code = spng_decode_image(s->png, pixels, n_bytes, format, 0);
    if (code) return png_fail(code);
    if (!direct) png_convert(s, pixels, n_pixels, out->data);
    return png_finish(s);
}

static dt_status png_begin_rows(png_state *s, int format, dt_image *out) {
    if (!dt_buffer_reserve(&s->row, s->n_row)) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    const int code = spng_decode_image(s->png, NULL, 0, format, SPNG_DECODE_PROGRESSIVE);
    if (code) return png_fail(code);
    out->next = png_next_row;
    out->state = s;
    return DT_OK;
}

static dt_status png_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    png_state *s = state;
    struct spng_ihdr h;
    png_close(s); // of rows that nobody read to the end
    s->out = out, s->least = UINT16_MAX, s->greatest = 0;
    s->png = spng_ctx_new(0);
    if (!s->png) return dt_fail(DT_E_INTERNAL, "out of memory for a PNG");
    spng_set_image_limits(s->png, DT_MAX_ROWS_PIXELS, DT_MAX_ROWS_PIXELS);
    spng_set_chunk_limits(s->png, MAX_CHUNK_BYTES, MAX_CACHE_BYTES);
    int code = spng_set_png_buffer(s->png, bytes.data, bytes.n_bytes);
    if (!code) code = spng_get_ihdr(s->png, &h);
    if (code) return png_fail(code);
    if (h.bit_depth == 16 && dt_image_is_deep(sink->want, UINT16_MAX)) {
        DT_TRY(decode_deep(s->png, &h, sink, out));
        return png_finish(s);
    }
    const bool can_stream = h.interlace_method == SPNG_INTERLACE_NONE;
    DT_TRY((can_stream ? dt_image_begin_rows : dt_image_begin)(sink, h.width, h.height, out));
    const int format = png_choose_format(s, &h, out->channels);
    return can_stream && dt_image_in_rows(sink, out) ? png_begin_rows(s, format, out)
                                                     : read_pixels(s, format, sink, out);
}

static void *png_create(void) {
    return dt_xcalloc(1, sizeof(png_state));
}

static void png_destroy(void *state) {
    png_state *s = state;
    png_close(s);
    dt_buffer_fini(&s->row);
    free(s);
}

const dt_image_driver dt_image_png = {png_decode, png_create, png_destroy};

// ---- decode webp --------------------------------------------------------------------------------------------------

// WebP, lossy (VP8) and lossless (VP8L), through libwebp, from memory.
//
// The library writes three channels directly to their place; one channel is the BT.601 luma of its RGB, because
// lossy luma is stored in 16..235 and lossless has none. Alpha is dropped, as of PNG. Animations are refused.
// The format has no checksums; a file that ends before its RIFF header says so is an error.
//
// The library allocates its working memory for every picture and offers no way to pass memory in. Regions are
// not decoded separately: rows of a lossy picture depend on those above, and the filter between blocks reaches
// across the edge of a crop.
// Format: RFC 9649.

// libwebp 1.5 reports a damaged alpha plane as out of memory, so that must be an error of the file.
static dt_status webp_fail(VP8StatusCode code) {
    const char *what = code == VP8_STATUS_UNSUPPORTED_FEATURE ? "uses a feature that libwebp lacks"
                       : code == VP8_STATUS_NOT_ENOUGH_DATA || code == VP8_STATUS_SUSPENDED
                           ? "the file ends before its pixels do"
                       : code == VP8_STATUS_OUT_OF_MEMORY ? "damaged, or memory is short"
                                                          : "damaged";
    return dt_fail(DT_E_DATA, "WebP: %s", what);
}

static dt_status webp_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    WebPDecoderConfig c;
    if (!WebPInitDecoderConfig(&c)) return dt_fail(DT_E_INTERNAL, "another libwebp than built for");
    // RIFF: the size behind the first eight bytes
    if (bytes.n_bytes < 12 || 8 + (uint64_t)dt_le32(bytes.data + 4) > bytes.n_bytes)
        return webp_fail(VP8_STATUS_NOT_ENOUGH_DATA);
    VP8StatusCode code = WebPGetFeatures(bytes.data, bytes.n_bytes, &c.input);
    if (code != VP8_STATUS_OK) return webp_fail(code);
    if (c.input.has_animation) return dt_fail(DT_E_DATA, "WebP: an animation; only single images are read");
    DT_TRY(dt_image_place(sink, c.input.width, c.input.height, out));
    size_t n_pixels = (size_t)out->width * (size_t)out->height;
    bool grey = out->channels == 1;
    uint8_t *rgb = grey ? dt_buffer_reserve(sink->work, 3 * n_pixels) : out->data;
    if (!rgb) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    c.output.colorspace = MODE_RGB;
    c.output.is_external_memory = 1; // the library takes the buffer as it is, and does not free it
    c.output.u.RGBA = (WebPRGBABuffer){.rgba = rgb, .stride = 3 * out->width, .size = 3 * n_pixels};
    code = WebPDecode(bytes.data, bytes.n_bytes, &c);
    WebPFreeDecBuffer(&c.output);
    if (code != VP8_STATUS_OK) return webp_fail(code);
    for (size_t i = 0; grey && i < n_pixels; i++) out->data[i] = dt_luma(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
    return DT_OK;
}

const dt_image_driver dt_image_webp = {.decode = webp_decode};

// ---- numbers ------------------------------------------------------------------------------------------------------

// A member's bytes as a vector of numbers, or as a series: rows of numbers.
//
// Three forms; the bytes say which: an NPY array; text, if every byte may be part of a number or a
// separator; else raw little-endian floats, exactly n of them. 4 n bytes that look like text are text: raw
// floats would have to look like digits in every byte to be mistaken for it.

static const char BETWEEN[] = " \t\r\n,;[]";

static bool is_text(dt_span s) {
    static const char NUMBER[] = "0123456789+-.eEnaifNAIF";
    for (size_t i = 0; i < s.n_bytes; i++)
        // strchr finds the NUL of its string, too
        if (!s.data[i] || (!strchr(NUMBER, s.data[i]) && !strchr(BETWEEN, s.data[i]))) return false;
    return true;
}

static dt_status count_differs(int64_t n, int64_t has, const char *more) {
    return dt_fail(DT_E_DATA, "%lld number%s wanted, %lld%s found", (long long)n, n == 1 ? "" : "s", (long long)has,
                   more);
}

// Rows of numbers: lines, or where there are brackets the innermost of them. *columns -1: not all rows have as many.
static void measure_rows(const char *p, int64_t *rows, int64_t *columns) {
    const char end = strchr(p, '[') ? ']' : '\n'; // [[1, 2], [3, 4]] as Python prints it
    int64_t n = 0;
    *rows = *columns = 0;
    for (;; p++) {
        const size_t n_chars = strcspn(p, BETWEEN);
        n += n_chars > 0;
        p += n_chars;
        if (*p && *p != end) continue;
        if (n > 0) *columns = (*rows)++ == 0 || *columns == n ? n : -1;
        n = 0;
        if (!*p) return;
    }
}

static dt_status refuse_rows(int64_t rows, int64_t columns) {
    return dt_fail(DT_E_DATA,
                   "%lld rows of %lld numbers are no vector, which would glue them together: "
                   "kind: audio takes series (rows are samples, columns channels), kind: image "
                   "arrays of (height, width)",
                   (long long)rows, (long long)columns);
}

static dt_status numbers_read_text(dt_span s, int64_t n, double *out, dt_buffer *scratch) {
    char *text = (char *)dt_buffer_reserve(scratch, s.n_bytes + 1), *end;
    int64_t rows, columns;
    if (!text) return dt_fail(DT_E_INTERNAL, "out of memory");
    memcpy(text, s.data, s.n_bytes);
    text[s.n_bytes] = '\0';
    measure_rows(text, &rows, &columns);
    if (rows > 1 && columns > 1) return refuse_rows(rows, columns);
    for (int64_t i = 0;; i++) {
        text += strspn(text, BETWEEN);
        if (!*text) return i == n ? DT_OK : count_differs(n, i, "");
        if (i == n) return count_differs(n, i, " and more");
        out[i] = strtod(text, &end);
        if (end == text || (*end && !strchr(BETWEEN, *end))) return dt_fail(DT_E_DATA, "'%.20s' is not a number", text);
        text = end;
    }
}

static void widen(const uint8_t *floats, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) {
        float v; // may lie anywhere
        memcpy(&v, floats + sizeof v * (size_t)i, sizeof v);
        out[i] = (double)v;
    }
}

static dt_status read_npy(dt_span s, int64_t n, double *out) {
    dt_npy a;
    int64_t longest = 1;
    DT_TRY(dt_npy_read(s, &a));
    for (int k = 0; k < a.n_axes; k++) longest = a.shape[k] > longest ? a.shape[k] : longest;
    if (a.n > longest) return refuse_rows(a.n / longest, longest);
    if (a.n != n) return count_differs(n, a.n, " in an NPY array");
    // every other axis has one element: in either order the numbers lie side by side
    if (a.kind == 'f' && a.size == 4 && !a.swapped)
        widen(a.data, n, out);
    else
        for (int64_t i = 0; i < n; i++) out[i] = dt_npy_get(&a, i);
    return DT_OK;
}

dt_status dt_decode_numbers(dt_span bytes, int64_t n, double *out, dt_buffer *scratch) {
    if (dt_npy_is(bytes)) return read_npy(bytes, n, out);
    if (is_text(bytes)) return numbers_read_text(bytes, n, out, scratch);
    if (bytes.n_bytes != (size_t)n * sizeof(float))
        return dt_fail(DT_E_DATA, "neither NPY nor numbers as text, and %zu bytes are not %lld raw floats",
                       bytes.n_bytes, (long long)n);
    widen(bytes.data, n, out);
    return DT_OK;
}

// What follows a first line of words, the names of columns; all where there is none. Bytes that are no text have none.
static dt_span below_names(dt_span s) {
    const uint8_t *p = s.data;
    size_t n = 0;
    for (; n < s.n_bytes && p[n] != '\n'; n++)
        if (p[n] < ' ' && p[n] != '\t' && p[n] != '\r') return s;
    n++; // the end of the line
    return n >= s.n_bytes || is_text((dt_span){p, n}) ? s : (dt_span){p + n, s.n_bytes - n};
}

bool dt_series_is(dt_span bytes) {
    return dt_npy_is(bytes) || dt_edf_is(bytes) || dt_mat_is(bytes) ||
           (bytes.n_bytes > 0 && is_text(below_names(bytes)));
}

static dt_status numbers_read_rows(dt_span s, dt_npy *out, dt_buffer *scratch) {
    s = below_names(s);
    const size_t n_text = dt_align_up(s.n_bytes + 1, sizeof(double));
    // a number takes two bytes, the last one of a text one
    char *text = (char *)dt_buffer_reserve(scratch, n_text + (s.n_bytes / 2 + 1) * sizeof(double)), *end;
    int64_t rows, columns, n = 0;
    if (!text) return dt_fail(DT_E_INTERNAL, "out of memory");
    double *number = (double *)(void *)(text + n_text);
    memcpy(text, s.data, s.n_bytes);
    text[s.n_bytes] = '\0';
    measure_rows(text, &rows, &columns);
    if (columns < 1)
        return dt_fail(DT_E_DATA, "a series whose %lld rows have not all as many numbers", (long long)rows);
    for (;; text = end) {
        text += strspn(text, BETWEEN);
        if (!*text) break;
        number[n++] = strtod(text, &end);
        if (end == text || (*end && !strchr(BETWEEN, *end))) return dt_fail(DT_E_DATA, "'%.20s' is not a number", text);
    }
    *out = (dt_npy){.kind = 'f',
                    .size = sizeof *number,
                    .n_axes = 2,
                    .shape = {rows, columns},
                    .stride = {columns, 1},
                    .n = n,
                    .data = (const uint8_t *)number};
    return DT_OK;
}

dt_status dt_series_read(dt_span bytes, const dt_series_names *names, dt_npy *out, double *rate, dt_buffer *scratch) {
    *rate = 0;
    if (dt_mat_is(bytes)) return dt_mat_read(bytes, names, out, scratch);
    if (dt_edf_is(bytes)) return dt_edf_read(bytes, names, out, rate, scratch);
    if (!dt_npy_is(bytes)) return numbers_read_rows(bytes, out, scratch);
    DT_TRY(dt_npy_read(bytes, out));
    if (out->n_axes == 1) out->shape[out->n_axes++] = 1;
    return out->n_axes == 2
               ? DT_OK
               : dt_fail(DT_E_DATA, "an array of %d axes is no series, which has samples and channels: (T, C)",
                         out->n_axes);
}
