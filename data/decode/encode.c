// encode.c: JPEG by libjpeg, PNG by libspng, WAV by hand (44 bytes of header).
#include "encode.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <spng.h>

enum { WAV_HEADER = 44 };

static dt_status encode_keep(dt_buffer *out, const void *data, size_t n_bytes) {
    uint8_t *p = dt_buffer_reserve(out, n_bytes);
    if (!p) return dt_fail(DT_E_INTERNAL, "out of memory for %zu encoded bytes", n_bytes);
    memcpy(p, data, n_bytes);
    out->n_bytes = n_bytes;
    return DT_OK;
}

// ---- JPEG --------------------------------------------------------------------------------------------
typedef struct jpeg_failure {
    struct jpeg_error_mgr base; // first: libjpeg gives it back
    jmp_buf back;
    char message[JMSG_LENGTH_MAX];
} jpeg_failure;

static void encode_leave(j_common_ptr c) {
    jpeg_failure *f = (jpeg_failure *)c->err;
    c->err->format_message(c, f->message);
    longjmp(f->back, 1);
}

static void ignore(j_common_ptr c, int level) {}

static void compress(struct jpeg_compress_struct *c, const dt_image *m, int quality) {
    c->image_width = (JDIMENSION)m->width;
    c->image_height = (JDIMENSION)m->height;
    c->input_components = m->channels;
    c->in_color_space = m->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, quality, TRUE);
    jpeg_start_compress(c, TRUE);
    size_t stride = (size_t)m->width * (size_t)m->channels;
    while (c->next_scanline < c->image_height) {
        JSAMPROW row = m->data + (size_t)c->next_scanline * stride;
        jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
}

dt_status dt_encode_jpeg(dt_buffer *out, const dt_image *m, int quality) {
    struct jpeg_compress_struct c;
    jpeg_failure failure;
    unsigned char *volatile bytes = NULL; // libjpeg writes it; read after a jump
    unsigned long n = 0;
    c.err = jpeg_std_error(&failure.base);
    failure.base.error_exit = encode_leave;
    failure.base.emit_message = ignore;
    dt_status st = DT_OK;
    if (setjmp(failure.back) == 0) {
        jpeg_create_compress(&c);
        jpeg_mem_dest(&c, (unsigned char **)(uintptr_t)&bytes, &n);
        compress(&c, m, quality);
    } else {
        st = dt_fail(DT_E_DATA, "%d x %d pixels as JPEG: %s", m->width, m->height, failure.message);
    }
    jpeg_destroy_compress(&c);
    if (st == DT_OK) st = encode_keep(out, bytes, n);
    free(bytes);
    return st;
}

// ---- PNG ---------------------------------------------------------------------------------------------
dt_status dt_encode_png(dt_buffer *out, const dt_image *m) {
    spng_ctx *c = spng_ctx_new(SPNG_CTX_ENCODER);
    if (!c) return dt_fail(DT_E_INTERNAL, "out of memory for a PNG");
    struct spng_ihdr header = {.width = (uint32_t)m->width,
                               .height = (uint32_t)m->height,
                               .bit_depth = 8,
                               .color_type = m->channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR};
    size_t n_pixels = (size_t)m->width * (size_t)m->height * (size_t)m->channels, n = 0;
    int failed = spng_set_option(c, SPNG_ENCODE_TO_BUFFER, 1);
    if (!failed) failed = spng_set_ihdr(c, &header);
    if (!failed) failed = spng_encode_image(c, m->data, n_pixels, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    void *bytes = failed ? NULL : spng_get_png_buffer(c, &n, &failed);
    dt_status st = bytes ? encode_keep(out, bytes, n)
                         : dt_fail(DT_E_DATA, "%d x %d pixels as PNG: %s", m->width, m->height, spng_strerror(failed));
    free(bytes);
    spng_ctx_free(c);
    return st;
}

// ---- WAV ---------------------------------------------------------------------------------------------
static void encode_put(uint8_t *p, uint32_t v, int n) {
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
}

dt_status dt_encode_wav(dt_buffer *out, const float *x, int channels, int64_t n, size_t stride, int rate) {
    uint64_t data = (uint64_t)n * (uint64_t)channels * 2;
    if (data > UINT32_MAX - WAV_HEADER)
        return dt_fail(DT_E_DATA, "%lld samples are more than a WAV file holds", (long long)n);
    uint8_t *p = dt_buffer_reserve(out, WAV_HEADER + data);
    if (!p) return dt_fail(DT_E_INTERNAL, "out of memory for a WAV");
    out->n_bytes = WAV_HEADER + data;
    memcpy(p, "RIFF", 4);
    encode_put(p + 4, (uint32_t)(WAV_HEADER - 8 + data), 4);
    memcpy(p + 8, "WAVEfmt ", 8);
    encode_put(p + 16, 16, 4);
    encode_put(p + 20, 1, 2); // PCM
    encode_put(p + 22, (uint32_t)channels, 2);
    encode_put(p + 24, (uint32_t)rate, 4);
    encode_put(p + 28, (uint32_t)(rate * channels) * 2, 4);
    encode_put(p + 32, (uint32_t)channels * 2, 2);
    encode_put(p + 34, 16, 2);
    memcpy(p + 36, "data", 4);
    encode_put(p + 40, (uint32_t)data, 4);
    p += WAV_HEADER;
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < channels; c++, p += 2) {
            float v = x[(size_t)c * stride + (size_t)i] * 32768;
            int s = (int)lrintf(v < -32768 ? -32768 : v > 32767 ? 32767 : v);
            encode_put(p, (uint32_t)s & 0xffff, 2);
        }
    return DT_OK;
}
