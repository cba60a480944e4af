// decode_png.c: PNG of every colour type and depth through libspng, from memory.
//
// The library gives rows as they are stored (SPNG_FMT_PNG), and this file interprets them: 1, 2 and 4 bits are
// scaled to the full range, 16 bits rounded to 8 (v * 255 / 65535), palettes looked up, alpha and transparent
// colours dropped, gamma ignored. That is what Pillow's convert gives, except that Pillow truncates 16 bits.
// 8-bit grey into one channel and 8-bit RGB into three go directly to the batch slot. Interlaced files need the
// whole stored image at once, others one row.
//
// The library checks the CRCs of critical chunks and the Adler sum of the pixels. It makes a context per image,
// from a memory pool that each worker keeps, so nothing is allocated in steady state. The pool is found through
// a thread-local pointer, as the library's allocator has no user argument.
#include "base/vectorize.h"
#include "decode.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

#include <spng.h>

enum {
    ALIGN = 64,
    MAX_CHUNK_BYTES = 4 << 20, // text, profiles: kept by the library, not used
    MAX_CACHE_BYTES = 16 << 20
};

// One block, cut from the front; what does not fit comes from malloc and makes the next block larger.
typedef struct png_pool {
    uint8_t *block;
    size_t cap, used, wanted;
} png_pool;

typedef struct png_state {
    png_pool pool;
    dt_buffer rows;
} png_state;

static _Thread_local png_pool *current;

static bool in_block(const void *p) {
    return current->block && (const uint8_t *)p >= current->block &&
           (const uint8_t *)p < current->block + current->cap;
}

// The size stands in front, for realloc.
static void *pool_alloc(size_t n) {
    if (n > SIZE_MAX / 2) return NULL;
    size_t all = (n + 2 * ALIGN - 1) / ALIGN * ALIGN;
    uint8_t *p;
    current->wanted += all;
    if (all <= current->cap - current->used) {
        p = current->block + current->used;
        current->used += all;
    } else if (posix_memalign((void **)&p, ALIGN, all) != 0) {
        return NULL;
    }
    memcpy(p, &n, sizeof n);
    return p + ALIGN;
}

static void pool_free(void *p) {
    if (p && !in_block(p)) free((uint8_t *)p - ALIGN);
}

static void *pool_calloc(size_t count, size_t size) {
    if (size && count > SIZE_MAX / 2 / size) return NULL;
    void *p = pool_alloc(count * size);
    if (p) memset(p, 0, count * size);
    return p;
}

static void *pool_realloc(void *old, size_t n) {
    size_t had = 0;
    void *p = pool_alloc(n);
    if (!p || !old) return p;
    memcpy(&had, (uint8_t *)old - ALIGN, sizeof had);
    memcpy(p, old, had < n ? had : n);
    pool_free(old);
    return p;
}

static void pool_reset(png_pool *p) {
    if (p->wanted > p->cap) {
        free(p->block);
        p->block = NULL;
        p->cap = p->wanted;
        if (posix_memalign((void **)&p->block, ALIGN, p->cap) != 0) p->block = NULL, p->cap = 0;
    }
    p->used = p->wanted = 0;
}

static void *png_create(void) {
    return dt_xcalloc(1, sizeof(png_state));
}

static void png_destroy(void *state) {
    png_state *s = state;
    free(s->pool.block);
    dt_buffer_fini(&s->rows);
    free(s);
}

// ---- rows ------------------------------------------------------------------------------------------
typedef struct png_rows {
    struct spng_ihdr h;
    struct spng_plte palette;
    int channels; // wanted
} png_rows;

static uint32_t round16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v); // the host's order
    return (v * 255u + 32767u) / 65535u;
}

static void row_packed(const png_rows *r, const uint8_t *src, uint8_t *dst) {
    int bits = r->h.bit_depth, per_byte = 8 / bits, mask = (1 << bits) - 1, scale = 255 / mask;
    bool indexed = r->h.color_type == SPNG_COLOR_TYPE_INDEXED;
    for (uint32_t x = 0; x < r->h.width; x++) {
        int shift = 8 - bits * (int)(x % (uint32_t)per_byte + 1);
        uint32_t v = (uint32_t)(src[x / (uint32_t)per_byte] >> shift & mask);
        const struct spng_plte_entry *c = &r->palette.entries[v];
        if (indexed)
            dt_put_pixel(dst, x, r->channels, c->red, c->green, c->blue);
        else if (r->channels == 1)
            dst[x] = (uint8_t)(v * (uint32_t)scale);
        else
            memset(dst + 3 * x, (int)v * scale, 3);
    }
}

// Pixels of whole bytes: grey (1 sample) or RGB (3), alpha behind.
VECTORIZED static void row_bytes(const uint8_t *restrict src, uint8_t *restrict dst, uint32_t n,
                                 int samples, bool colour, int channels) {
    for (uint32_t x = 0; x < n; x++) {
        const uint8_t *p = src + (size_t)x * (size_t)samples;
        if (channels == 1)
            dst[x] = colour ? dt_luma(p[0], p[1], p[2]) : p[0];
        else
            for (int c = 0; c < 3; c++) dst[3 * x + (uint32_t)c] = p[colour ? c : 0];
    }
}

static void row_words(const uint8_t *src, uint8_t *dst, uint32_t n, int samples, bool colour,
                      int channels) {
    for (uint32_t x = 0; x < n; x++) {
        const uint8_t *p = src + (size_t)x * (size_t)samples * 2;
        uint32_t v[3];
        for (int c = 0; c < 3; c++) v[c] = round16(p + (colour ? 2 * c : 0));
        if (channels == 1 && !colour)
            dst[x] = (uint8_t)v[0];
        else
            dt_put_pixel(dst, x, channels, v[0], v[1], v[2]);
    }
}

// The library does not put interlaced pixels of less than a byte into packed rows; as RGB it does.
static bool is_loose(const png_rows *r) {
    return r->h.interlace_method && r->h.bit_depth < 8;
}

static void convert_row(const png_rows *r, const uint8_t *src, uint8_t *dst) {
    int type = r->h.color_type;
    bool colour = type == SPNG_COLOR_TYPE_TRUECOLOR || type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
    bool alpha = type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA || type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
    int samples = (colour ? 3 : 1) + alpha;
    if (is_loose(r))
        row_bytes(src, dst, r->h.width, 3, true, r->channels);
    else if (type == SPNG_COLOR_TYPE_INDEXED || r->h.bit_depth < 8)
        row_packed(r, src, dst);
    else if (r->h.bit_depth == 8)
        row_bytes(src, dst, r->h.width, samples, colour, r->channels);
    else
        row_words(src, dst, r->h.width, samples, colour, r->channels);
}

// ---- a file ----------------------------------------------------------------------------------------
static dt_status fail(int code) {
    return dt_fail(DT_E_DATA, "PNG: %s", spng_strerror(code));
}

static bool is_direct(const png_rows *r) {
    int type = r->channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
    return r->h.bit_depth == 8 && r->h.color_type == type;
}

static dt_status read_rows(png_state *s, spng_ctx *png, const png_rows *r, dt_image *out) {
    size_t n_bytes, stride = (size_t)out->width * (size_t)r->channels;
    int format = is_loose(r) ? SPNG_FMT_RGB8 : SPNG_FMT_PNG;
    int code = spng_decoded_image_size(png, format, &n_bytes);
    if (code) return fail(code);
    size_t row_bytes_stored = n_bytes / r->h.height;
    if (is_direct(r)) {
        code = spng_decode_image(png, out->data, n_bytes, SPNG_FMT_PNG, 0);
        return code ? fail(code) : DT_OK;
    }
    bool whole = r->h.interlace_method != 0;
    uint8_t *rows = dt_buffer_reserve(&s->rows, whole ? n_bytes : row_bytes_stored);
    if (!rows) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    code = spng_decode_image(png, whole ? rows : NULL, whole ? n_bytes : 0, format,
                             whole ? 0 : SPNG_DECODE_PROGRESSIVE);
    for (uint32_t y = 0; y < r->h.height; y++) {
        if (!whole && !code) code = spng_decode_row(png, rows, row_bytes_stored);
        if (code == SPNG_EOI && y + 1 == r->h.height) code = 0;
        if (code) return fail(code);
        convert_row(r, rows + (whole ? row_bytes_stored * y : 0), out->data + stride * y);
    }
    return DT_OK;
}

static dt_status decode(png_state *s, spng_ctx *png, dt_span bytes, const dt_image_sink *sink,
                        dt_image *out) {
    png_rows r = {.channels = sink->want->channels};
    spng_set_image_limits(png, DT_MAX_PIXELS, DT_MAX_PIXELS);
    spng_set_chunk_limits(png, MAX_CHUNK_BYTES, MAX_CACHE_BYTES);
    int code = spng_set_png_buffer(png, bytes.data, bytes.n_bytes);
    if (!code) code = spng_get_ihdr(png, &r.h);
    if (code) return fail(code);
    DT_TRY(dt_image_place(sink, r.h.width, r.h.height, out));
    if (r.h.color_type == SPNG_COLOR_TYPE_INDEXED) code = spng_get_plte(png, &r.palette);
    if (code) return fail(code == SPNG_ECHUNKAVAIL ? SPNG_ENOPLTE : code);
    DT_TRY(read_rows(s, png, &r, out));
    code = spng_decode_chunks(png); // to the end: the last chunk's checksum
    return code ? fail(code) : DT_OK;
}

static dt_status png_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    png_state *s = state;
    struct spng_alloc alloc = {pool_alloc, pool_realloc, pool_calloc, pool_free};
    current = &s->pool;
    pool_reset(&s->pool);
    spng_ctx *png = spng_ctx_new2(&alloc, 0);
    dt_status st =
        png ? decode(s, png, bytes, sink, out) : dt_fail(DT_E_INTERNAL, "out of memory for a PNG");
    spng_ctx_free(png);
    return st;
}

const dt_image_driver dt_image_png = {png_decode, png_create, png_destroy};
