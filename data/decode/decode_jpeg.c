// decode_jpeg.c: JPEG through libjpeg(-turbo), from memory.
//
// libjpeg reports a fatal error by a callback that must not return, so it jumps back here with the library's
// own text as the message. Warnings are errors if they mean lost data (a cut file would decode to grey blocks)
// and are ignored otherwise. Two kinds of bombs are stopped: the pixel limit is checked before memory is taken,
// and the progress monitor limits the scans of progressive files. Each worker reuses one state; the library
// frees an image's memory when it is finished or aborted.
//
// Grey output takes the luma plane as it is stored. CMYK and YCCK become RGB by the plain formula. The
// orientation that EXIF may state is ignored, as Pillow and torchvision ignore it.
//
// Regions. If only a box will be resized, only the pixels that the resize reads are made: columns by
// jpeg_crop_scanline, rows above by jpeg_skip_scanlines (their Huffman codes must be read, the transform is
// saved), and rows below are not even read. The pixels are those of a full decode, bit for bit: chroma
// smoothing looks one sample past a block and takes the edge of a crop for that of the image, so the crop is
// MARGIN pixels larger on all sides. As rows below the box are not read, a file that does not end in an
// end-of-image marker is read to its end, so that a cut file is an error whatever the box.
//
// Reduction. If both sides of the box are at least 2 k times the wanted size, k = 2, 4, 8, the transform gives
// 1/k of the size (libjpeg's scaled inverse DCT): each pixel is about the mean of k x k, and the resize that
// follows still shrinks by 2 or more. The bytes differ from those of the full image: on photographs by 0.35 on
// average and 15 at worst. Only where chroma is sampled alike in both directions (4:4:4, 4:2:0); in other files
// colours would blur, as the library shrinks planes by whole powers of two.
//
// Rows. What is still larger than want->rows_above after that is not kept: the library makes row after row for the
// resize. Files of several scans are not read so, since the library holds their coefficients.
#include "decode.h"

#include "base/core.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include <jerror.h>

enum { MARGIN = 2 };

typedef struct dt_jpeg {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    char message[JMSG_LENGTH_MAX];
    dt_buffer row;      // a row of CMYK, or one that is skipped
    dt_buffer pointers; // to rows
    // of an image in rows
    int width, channels;
    bool ends; // with its marker
} dt_jpeg;

static void fatal(j_common_ptr info) {
    dt_jpeg *j = info->client_data;
    info->err->format_message(info, j->message);
    longjmp(j->back, 1);
}

static void on_message(j_common_ptr info, int level) {
    if (level >= 0) return; // trace
    int code = info->err->msg_code;
    // the library fills what is missing with gray and only warns
    bool lost = code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE;
    if (lost) fatal(info);
}

static void silent(j_common_ptr info) {}

static void on_progress(j_common_ptr info) {
    dt_jpeg *j = info->client_data;
    if (j->d.input_scan_number <= DT_MAX_SCANS) return; // a progressive file of a few kB may have thousands
    snprintf(j->message, sizeof j->message, "more than %d scans", DT_MAX_SCANS);
    longjmp(j->back, 1);
}

static void *jpeg_create(void) {
    dt_jpeg *j = dt_xcalloc(1, sizeof *j);
    j->d.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = fatal;
    j->errors.emit_message = on_message;
    j->errors.output_message = silent;
    jpeg_create_decompress(&j->d);
    j->d.client_data = j;
    j->progress.progress_monitor = on_progress;
    return j;
}

static void jpeg_destroy_state(void *state) {
    dt_jpeg *j = state;
    jpeg_destroy_decompress(&j->d);
    dt_buffer_fini(&j->row);
    dt_buffer_fini(&j->pointers);
    free(j);
}

// Adobe writes the four inks inverted: 255 means none.
static void cmyk_to_pixels(const uint8_t *src, uint8_t *dst, int n, int channels, bool inverted) {
    for (int x = 0; x < n; x++) {
        uint32_t v[3], k = inverted ? src[4 * x + 3] : 255u - src[4 * x + 3];
        for (int i = 0; i < 3; i++) {
            uint32_t ink = inverted ? src[4 * x + i] : 255u - src[4 * x + i];
            v[i] = (ink * k + 127) / 255; // rounded: what the ink leaves of what black leaves
        }
        dt_put_pixel(dst, x, channels, v[0], v[1], v[2]);
    }
}

// ---- what to decode ----------------------------------------------------------------------------------
// The transform's reduction: see the top.
static int choose_reduction(const struct jpeg_decompress_struct *d, const dt_image_want *w, const double box[4]) {
    int k = 8;
    if (w->width <= 0 || w->height <= 0) return 1; // the size is not known: no resize follows
    for (int i = 0; i < d->num_components; i++)
        if (d->max_h_samp_factor * d->comp_info[i].v_samp_factor !=
            d->max_v_samp_factor * d->comp_info[i].h_samp_factor)
            return 1;
    // the resize that follows shrinks by 2 or more
    while (k > 1 && (box[2] - box[0] < 2.0 * k * w->width || box[3] - box[1] < 2.0 * k * w->height)) k /= 2;
    return k;
}

static void jpeg_reach(double low, double high, int n_out, int size, int *begin, int *end) {
    dt_resize_reach(low, high, n_out, size, begin, end);
    *begin = *begin > MARGIN ? *begin - MARGIN : 0; // chroma is interpolated from neighbours
    *end = *end + MARGIN < size ? *end + MARGIN : size;
}

// Fixes scale, crop and memory; after jpeg_read_header. *first_row: rows to skip.
static dt_status jpeg_plan(dt_jpeg *j, const dt_image_sink *sink, dt_image *out) {
    struct jpeg_decompress_struct *d = &j->d;
    const dt_image_want *w = sink->want;
    DT_TRY((jpeg_has_multiple_scans(d) ? dt_image_begin : dt_image_begin_rows)(sink, d->image_width, d->image_height,
                                                                               out));
    int k = choose_reduction(d, w, out->box);
    d->scale_num = 1;
    d->scale_denom = (unsigned)k;
    jpeg_calc_output_dimensions(d);
    out->full_width = (int)d->output_width;
    out->full_height = (int)d->output_height;
    for (int i = 0; i < 4; i++) out->box[i] /= k; // the box in pixels of the reduced image
    int x[2] = {0, out->full_width}, y[2] = {0, out->full_height};
    if (w->box && w->width > 0 && w->height > 0) {
        jpeg_reach(out->box[0], out->box[2], w->width, out->full_width, &x[0], &x[1]);
        jpeg_reach(out->box[1], out->box[3], w->height, out->full_height, &y[0], &y[1]);
    }
    out->left = x[0], out->width = x[1] - x[0];
    out->top = y[0], out->height = y[1] - y[0];
    return DT_OK;
}

// Columns are cropped at block boundaries: the region becomes what the library gives.
static dt_status begin_region(dt_jpeg *j, const dt_image_sink *sink, dt_image *out) {
    struct jpeg_decompress_struct *d = &j->d;
    JDIMENSION left = (JDIMENSION)out->left, width = (JDIMENSION)out->width;
    if (out->width < out->full_width) jpeg_crop_scanline(d, &left, &width);
    out->left = (int)left;
    out->width = (int)width;
    if (out->top > 0) jpeg_skip_scanlines(d, (JDIMENSION)out->top); // entropy decoding alone: no inverse DCT
    return DT_OK;
}

static bool ends_with_marker(dt_span s) {
    size_t n = s.n_bytes;
    while (n > 2 && s.n_bytes - n < 64 && s.data[n - 1] == 0) n--; // padding
    return n >= 2 && s.data[n - 2] == 0xff && s.data[n - 1] == JPEG_EOI;
}

// The rows below are not decoded, unless the file may be cut there.
static void jpeg_finish(dt_jpeg *j, bool ends, uint8_t *row) {
    struct jpeg_decompress_struct *d = &j->d;
    if (ends && d->output_scanline < d->output_height) {
        jpeg_abort_decompress(d);
        return;
    }
    while (d->output_scanline < d->output_height) jpeg_read_scanlines(d, &row, 1);
    jpeg_finish_decompress(d);
}

static dt_status jpeg_fail(dt_jpeg *j) {
    jpeg_abort_decompress(&j->d); // the state serves the next file
    return dt_fail(DT_E_DATA, "JPEG: %s", j->message);
}

static dt_status jpeg_next_row(void *state, uint8_t *to) {
    dt_jpeg *j = state;
    const bool cmyk = j->d.out_color_space == JCS_CMYK;
    uint8_t *row = cmyk || !to ? j->row.data : to;
    if (setjmp(j->back) != 0) return jpeg_fail(j);
    if (!to) {
        jpeg_finish(j, j->ends, row);
        return DT_OK;
    }
    jpeg_read_scanlines(&j->d, &row, 1);
    if (cmyk) cmyk_to_pixels(j->row.data, to, j->width, j->channels, j->d.saw_Adobe_marker);
    return DT_OK;
}

static dt_status jpeg_read_rows(dt_jpeg *j, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    struct jpeg_decompress_struct *d = &j->d;
    bool cmyk = d->out_color_space == JCS_CMYK;
    int channels = sink->want->channels;
    JDIMENSION end = (JDIMENSION)(out->top + out->height);
    uint8_t *row = dt_buffer_reserve(&j->row, 4 * (size_t)d->output_width);
    if (row && !jpeg_has_multiple_scans(d) && dt_image_in_rows(sink, out)) {
        j->width = out->width, j->channels = channels, j->ends = ends_with_marker(bytes);
        out->next = jpeg_next_row, out->state = j;
        return DT_OK;
    }
    DT_TRY(dt_image_reserve(sink, out, false));
    JSAMPROW *to = (JSAMPROW *)dt_buffer_reserve(&j->pointers, (size_t)out->height * sizeof *to);
    if (!row || !to) return dt_fail(DT_E_INTERNAL, "out of memory");
    size_t stride = (size_t)out->width * (size_t)channels;
    for (int y = 0; y < out->height; y++) to[y] = cmyk ? row : out->data + stride * (size_t)y;
    while (d->output_scanline < end) {
        JDIMENSION y = d->output_scanline - (JDIMENSION)out->top;
        jpeg_read_scanlines(d, to + y, cmyk ? 1 : end - d->output_scanline);
        if (cmyk) cmyk_to_pixels(row, out->data + stride * y, out->width, channels, d->saw_Adobe_marker);
    }
    jpeg_finish(j, ends_with_marker(bytes), row);
    return DT_OK;
}

static dt_status jpeg_decode_image(dt_jpeg *j, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    struct jpeg_decompress_struct *d = &j->d;
    int channels = sink->want->channels;
    jpeg_mem_src(d, bytes.data, bytes.n_bytes);
    jpeg_read_header(d, TRUE);
    d->progress = jpeg_has_multiple_scans(d) ? &j->progress : NULL; // asked for every row
    bool cmyk = d->jpeg_color_space == JCS_CMYK || d->jpeg_color_space == JCS_YCCK;
    d->out_color_space = cmyk ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    DT_TRY(jpeg_plan(j, sink, out));
    jpeg_start_decompress(d);
    DT_TRY(begin_region(j, sink, out));
    return jpeg_read_rows(j, bytes, sink, out);
}

static dt_status jpeg_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    dt_jpeg *j = state;
    jpeg_abort_decompress(&j->d);                  // of rows that nobody read to the end
    if (setjmp(j->back) != 0) return jpeg_fail(j); // libjpeg has no return on errors but this
    dt_status st = jpeg_decode_image(j, bytes, sink, out);
    if (st != DT_OK) jpeg_abort_decompress(&j->d);
    return st;
}

const dt_image_driver dt_image_jpg = {jpeg_decode, jpeg_create, jpeg_destroy_state};
