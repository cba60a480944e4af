// decode_jpeg.c: JPEG through libjpeg(-turbo), from memory.
//
// libjpeg reports a fatal error by a callback that must not return: it jumps back here with the
// library's own text as the message. Warnings count as errors when they mean lost data (a file that is
// cut decodes to grey blocks otherwise), and are ignored when they are only untidiness. Two bombs are
// defused: the pixel limit before any memory is taken, and a limit of scans for progressive files,
// through the progress monitor. One state a worker is reused; the library frees an image's memory when
// it is finished or aborted.
//
// Grey output takes the luma plane as it is stored. CMYK and YCCK become RGB by the plain formula.
#include "decode.h"

#include "base/arena.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

struct dt_jpeg {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    char message[JMSG_LENGTH_MAX];
    dt_buffer cmyk_row;
};

static void fatal(j_common_ptr info) {
    dt_jpeg *j = info->client_data;
    info->err->format_message(info, j->message);
    longjmp(j->back, 1);
}

static void on_message(j_common_ptr info, int level) {
    if (level >= 0) return; // trace
    int code = info->err->msg_code;
    bool lost = code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE;
    if (lost) fatal(info);
}

static void silent(j_common_ptr info) {}

static void on_progress(j_common_ptr info) {
    dt_jpeg *j = info->client_data;
    if (j->d.input_scan_number <= DT_MAX_SCANS) return;
    snprintf(j->message, sizeof j->message, "more than %d scans", DT_MAX_SCANS);
    longjmp(j->back, 1);
}

dt_jpeg *dt_jpeg_create(void) {
    dt_jpeg *j = dt_xcalloc(1, sizeof *j);
    j->d.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = fatal;
    j->errors.emit_message = on_message;
    j->errors.output_message = silent;
    jpeg_create_decompress(&j->d);
    j->d.client_data = j;
    j->progress.progress_monitor = on_progress;
    j->d.progress = &j->progress;
    return j;
}

void dt_jpeg_destroy(dt_jpeg *j) {
    if (!j) return;
    jpeg_destroy_decompress(&j->d);
    dt_buffer_fini(&j->cmyk_row);
    free(j);
}

// Adobe writes the four inks inverted: 255 means none.
static void cmyk_to_pixels(const uint8_t *src, uint8_t *dst, int n, int channels, bool inverted) {
    for (int x = 0; x < n; x++) {
        uint32_t v[3], k = inverted ? src[4 * x + 3] : 255u - src[4 * x + 3];
        for (int i = 0; i < 3; i++) {
            uint32_t ink = inverted ? src[4 * x + i] : 255u - src[4 * x + i];
            v[i] = (ink * k + 127) / 255;
        }
        if (channels == 1)
            dst[x] = dt_luma(v[0], v[1], v[2]);
        else
            for (int i = 0; i < 3; i++) dst[3 * x + i] = (uint8_t)v[i];
    }
}

static dt_status read_rows(dt_jpeg *j, const dt_image_sink *sink, dt_image *out) {
    struct jpeg_decompress_struct *d = &j->d;
    bool cmyk = d->out_color_space == JCS_CMYK;
    uint8_t *row = NULL;
    if (cmyk && !(row = dt_buffer_reserve(&j->cmyk_row, 4 * (size_t)d->output_width)))
        return dt_fail(DT_E_INTERNAL, "out of memory");
    size_t stride = (size_t)out->width * (size_t)sink->channels;
    while (d->output_scanline < d->output_height) {
        uint8_t *dst = out->data + stride * d->output_scanline;
        JSAMPROW to = cmyk ? row : dst;
        jpeg_read_scanlines(d, &to, 1);
        if (cmyk) cmyk_to_pixels(row, dst, out->width, sink->channels, d->saw_Adobe_marker);
    }
    return DT_OK;
}

static dt_status decode(dt_jpeg *j, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    struct jpeg_decompress_struct *d = &j->d;
    jpeg_mem_src(d, bytes.data, bytes.n_bytes);
    jpeg_read_header(d, TRUE);
    DT_TRY(dt_image_place(sink, d->image_width, d->image_height, out));
    bool cmyk = d->jpeg_color_space == JCS_CMYK || d->jpeg_color_space == JCS_YCCK;
    d->out_color_space = cmyk ? JCS_CMYK : sink->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    if (sink->channels == 1 && d->jpeg_color_space == JCS_RGB) d->out_color_space = JCS_GRAYSCALE;
    jpeg_start_decompress(d);
    DT_TRY(read_rows(j, sink, out));
    jpeg_finish_decompress(d);
    return DT_OK;
}

dt_status dt_decode_jpeg(dt_jpeg *j, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    dt_status st;
    if (setjmp(j->back) != 0)
        st = dt_fail(DT_E_DATA, "JPEG: %s", j->message);
    else
        st = decode(j, bytes, sink, out);
    if (st != DT_OK) jpeg_abort_decompress(&j->d);
    return st;
}
