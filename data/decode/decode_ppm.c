// decode_ppm.c: the netpbm formats P1 to P6: bits, grey and RGB, as text or bytes.
//
// A header is a magic number, then width, height and (except for bits) the largest value, separated by white
// space and by comments from '#' to the end of the line; one white space ends it. Values up to 65535 are scaled
// to 0..255 and rounded; above 255 they take two bytes, high byte first. In P1 digits may touch. In bits, 1 is
// black. Where floats or a stretch are wanted and the largest value is above 255, values are an array's (array.h). A
// value above the largest is an error, and so is a file that ends early; whatever follows the first image is not read.
// Format: the netpbm man pages pbm(5), pgm(5), ppm(5).
#include "array.h"

#include "base/stated.h"

#include <string.h>

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

static void bit_row(ppm *m, uint8_t *dst, int channels) {
    for (int64_t x = 0; x < m->width; x++) {
        int white = m->p[x / 8] >> (7 - x % 8) & 1 ? 0 : 255;
        memset(dst + x * channels, white, (size_t)channels);
    }
    m->p += (m->width + 7) / 8;
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
    if (!dt_stated_size(need, (uint64_t)m.height, (uint64_t)(m.end - m.p), &need)) return ppm_cut();
    if (dt_image_is_deep(sink->want, m.max)) {
        m.deep = channels;
        const dt_planes p = {"PPM", m.width, m.height, channels, ppm_read_plane, &m};
        return dt_planes_to_image(sink, &p, out);
    }
    DT_TRY(dt_image_place(sink, m.width, m.height, out));
    for (int64_t y = 0; y < m.height; y++) {
        uint8_t *dst = out->data + (size_t)y * (size_t)m.width * (size_t)channels;
        if (m.bits && !m.text)
            bit_row(&m, dst, channels);
        else
            DT_TRY(ppm_read_row(&m, dst, channels));
    }
    if (m.max > 255) dt_image_note_levels(out, m.least, m.greatest, (m.greatest - m.least) * 255.0 / m.max);
    return DT_OK;
}

static bool ppm_is_raw(dt_span bytes, size_t n_head, const dt_image_want *want) {
    ppm m = {.p = bytes.data, .end = bytes.data + n_head};
    return ppm_read_header(&m) == DT_OK && m.p == m.end && !m.text && !m.bits && m.max == 255 &&
           m.samples == want->channels && m.width == want->width && m.height == want->height;
}

const dt_image_driver dt_image_ppm = {.decode = ppm_decode, .is_raw = ppm_is_raw};
