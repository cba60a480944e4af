// decode_fits.c: FITS images from memory.
//
// A file is a sequence of units, each a header of 80-character cards in blocks of 2880 bytes, then big-endian
// data, padded to whole blocks. The first unit with an image of two or three axes is used, or those that the field
// names (hdu), their planes stacked. BSCALE, BZERO and
// BLANK are applied; every BITPIX becomes floats. Nothing is allocated, and a header that promises more than
// there is is an error. Tile-compressed images (.fz) are refused by name.
//
// Rejected: cfitsio. A few minutes of fuzzing found reads beyond the end of cut files, a division by zero, and
// an endless loop in compressed ones. A damaged record must not end a job.
//
// The third axis is bands; further axes must have length 1. The first row of the array is the first row of the
// image, as in astropy and NumPy. Format: FITS Standard 4.0 (IAU, 2018).
#include "array.h"

#include "base/bits.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BLOCK = 2880, CARD = 80, MAX_AXES = 8, MAX_UNITS = 64, MAX_HEADER_BLOCKS = 1024 };

typedef struct fits_unit {
    bool is_image, is_compressed;
    char name[CARD]; // EXTNAME, or ""
    int64_t bits, n_axes, size[MAX_AXES], pcount, gcount, blank;
    bool has_blank;
    double scale, zero;
    const uint8_t *data;
    size_t n_bytes; // of data, without filling
} fits_unit;

static dt_status fits_broken(const char *what) {
    return dt_fail(DT_E_DATA, "FITS: %s", what);
}

// ---- headers -----------------------------------------------------------------------------------------
static bool is_key(const uint8_t *card, const char *key) {
    size_t n = strlen(key);
    if (memcmp(card, key, n) != 0) return false;
    for (; n < 8; n++)
        if (card[n] != ' ') return false;
    return card[8] == '=';
}

// The value field as text, without the comment; strings keep their quotes.
static void fits_value_of(const uint8_t *card, char out[CARD]) {
    int n = 0;
    bool quoted = false;
    for (int i = 10; i < CARD && (quoted || card[i] != '/'); i++) { // columns 11 to 80, up to a slash outside of quotes
        if (card[i] == '\'') quoted = !quoted;
        if (n || card[i] != ' ') out[n++] = (char)card[i];
    }
    out[n] = '\0';
}

static dt_status fits_read_int(const uint8_t *card, int64_t low, int64_t high, int64_t *out) {
    char text[CARD], *end;
    fits_value_of(card, text);
    long long v = strtoll(text, &end, 10);
    if (end == text || (*end && *end != ' ') || v < low || v > high) // a real is no whole number
        return dt_fail(DT_E_DATA, "FITS: %.8s is %.20s", (const char *)card, text);
    *out = v;
    return DT_OK;
}

static dt_status fits_read_real(const uint8_t *card, double *out) {
    char text[CARD], *end;
    fits_value_of(card, text);
    for (char *p = text; *p; p++)
        if (*p == 'D' || *p == 'd') *p = 'E'; // Fortran's exponent
    *out = strtod(text, &end);
    if (end == text || !isfinite(*out)) return dt_fail(DT_E_DATA, "FITS: %.8s is %.20s", (const char *)card, text);
    return DT_OK;
}

// NAXIS1, NAXIS2, …
static dt_status read_axes(const uint8_t *card, const char *stem, int64_t *out) {
    size_t n = strlen(stem);
    int digit = card[n] - '1';
    if (memcmp(card, stem, n) != 0 || digit < 0 || digit >= MAX_AXES || card[n + 1] != ' ') return DT_OK;
    return fits_read_int(card, 0, (int64_t)1 << 40, &out[digit]);
}

static dt_status read_card(fits_unit *u, const uint8_t *card) {
    char text[CARD];
    if (is_key(card, "BITPIX")) return fits_read_int(card, -64, 64, &u->bits);
    if (is_key(card, "NAXIS")) return fits_read_int(card, 0, 999, &u->n_axes);
    if (is_key(card, "PCOUNT")) return fits_read_int(card, 0, (int64_t)1 << 48, &u->pcount);
    if (is_key(card, "GCOUNT")) return fits_read_int(card, 0, 1 << 20, &u->gcount);
    if (is_key(card, "BSCALE")) return fits_read_real(card, &u->scale);
    if (is_key(card, "BZERO")) return fits_read_real(card, &u->zero);
    if (is_key(card, "BLANK")) {
        u->has_blank = true;
        return fits_read_int(card, INT64_MIN, INT64_MAX, &u->blank);
    }
    if (is_key(card, "EXTNAME")) {
        fits_value_of(card, text);
        size_t n = 0;
        // quotes off; trailing blanks do not count
        for (const char *s = text + (text[0] == '\''); *s && *s != '\''; s++) u->name[n++] = *s;
        while (n > 0 && u->name[n - 1] == ' ') n--;
        u->name[n] = '\0';
    }
    if (is_key(card, "ZIMAGE")) {
        fits_value_of(card, text);
        u->is_compressed = text[0] == 'T';
    }
    return read_axes(card, "NAXIS", u->size);
}

static size_t element_bytes(const fits_unit *u) {
    return (size_t)(u->bits < 0 ? -u->bits : u->bits) / 8;
}

// Bytes that the header promises.
static dt_status data_size(const fits_unit *u, size_t *out) {
    *out = 0;
    if (u->n_axes == 0) return DT_OK;
    const int64_t v = u->bits; // below 0: floats
    if (v != 8 && v != 16 && v != 32 && v != 64 && v != -32 && v != -64)
        return dt_fail(DT_E_DATA, "FITS: BITPIX is %d", (int)u->bits);
    double n = 1;
    for (int64_t i = 0; i < u->n_axes && i < MAX_AXES; i++) n *= (double)u->size[i];
    n = (n + (double)u->pcount) * (double)u->gcount; // FITS 4.0: the heap and the groups
    // beyond 2^53 a double is not exact, and no file is so large
    if (u->n_axes > MAX_AXES || n >= 0x1p50) return fits_broken("an array of impossible size");
    *out = element_bytes(u) * (size_t)n;
    return DT_OK;
}

// Reads the unit at *at and moves *at behind it. The padding of the last unit's data may be missing.
static dt_status fits_read_unit(dt_span s, size_t *at, bool first, fits_unit *u) {
    *u = (fits_unit){.gcount = 1, .scale = 1};
    bool ended = false;
    u->is_image = first || (s.n_bytes - *at >= CARD && memcmp(s.data + *at, "XTENSION= 'IMAGE ", 17) == 0);
    for (int block = 0; !ended && block < MAX_HEADER_BLOCKS; block++, *at += BLOCK) {
        // headers and data fill blocks of 2,880 bytes
        if (s.n_bytes < BLOCK || *at > s.n_bytes - BLOCK) return fits_broken("cut in its header");
        for (int i = 0; i < BLOCK && !ended; i += CARD) {
            const uint8_t *card = s.data + *at + i;
            ended = memcmp(card, "END     ", 8) == 0;
            if (!ended) DT_TRY(read_card(u, card));
        }
    }
    if (!ended) return fits_broken("a header without end");
    DT_TRY(data_size(u, &u->n_bytes));
    if (u->n_bytes > s.n_bytes - *at) return fits_broken("cut: its data is not all there");
    u->data = s.data + *at;
    size_t filled = (u->n_bytes + BLOCK - 1) / BLOCK * BLOCK;
    *at = filled < s.n_bytes - *at ? *at + filled : s.n_bytes;
    return DT_OK;
}

// ---- plain pixels ------------------------------------------------------------------------------------
static inline double fits_value_at(const fits_unit *u, const uint8_t *p) {
    double d;
    float f;
    int64_t whole;
    switch (u->bits) {
    case -32: {
        uint32_t bits = dt_be32(p);
        memcpy(&f, &bits, sizeof f);
        return (double)f * u->scale + u->zero;
    }
    case -64: {
        uint64_t bits = dt_be64(p);
        memcpy(&d, &bits, sizeof d);
        return d * u->scale + u->zero;
    }
    case 8:
        whole = p[0];
        break;
    case 16:
        whole = (int16_t)dt_be16(p);
        break;
    case 32:
        whole = (int32_t)dt_be32(p);
        break;
    default:
        whole = (int64_t)dt_be64(p);
    }
    if (u->has_blank && whole == u->blank) return (double)NAN;
    return (double)whole * u->scale + u->zero;
}

// Units of one size, their planes one after another.
typedef struct stack {
    fits_unit unit[DT_MAX_HDUS];
    int n;
} stack;

static int64_t n_planes(const fits_unit *u) {
    return u->n_axes > 2 ? u->size[2] : 1;
}

static dt_status fits_read_plane(void *ctx, int64_t i, double origin, float *out) {
    const fits_unit *u = ((const stack *)ctx)->unit;
    for (; i >= n_planes(u); u++) i -= n_planes(u); // the unit that has plane i
    size_t n = (size_t)(u->size[0] * u->size[1]), step = element_bytes(u);
    const uint8_t *p = u->data + (size_t)i * n * step; // rows from the bottom up are taken as they lie
    for (size_t k = 0; k < n; k++) out[k] = (float)(fits_value_at(u, p + k * step) - origin);
    return DT_OK;
}

// ---- a file ------------------------------------------------------------------------------------------
static bool has_image(const fits_unit *u) {
    return u->is_image && (u->n_axes == 2 || u->n_axes == 3);
}

static dt_status decode_units(stack *s, const dt_image_sink *sink, dt_image *out) {
    dt_planes p = {"FITS", s->unit[0].size[0], s->unit[0].size[1], 0, fits_read_plane, s};
    for (int i = 0; i < s->n; i++) {
        const fits_unit *u = &s->unit[i];
        // random groups: FITS of radio interferometers
        if (u->pcount != 0 || u->gcount != 1) return fits_broken("an image of groups");
        if (u->size[0] != p.width || u->size[1] != p.height)
            return dt_fail(DT_E_DATA, "FITS: the units of hdu differ in size: %lld x %lld and %lld x %lld",
                           (long long)p.height, (long long)p.width, (long long)u->size[1], (long long)u->size[0]);
        p.n += n_planes(u);
    }
    return dt_planes_to_image(sink, &p, out);
}

// A name of `hdu` that is a number counts units; another is compared with EXTNAME.
static bool fits_is_meant(const char *hdu, int number, const fits_unit *u) {
    if (hdu[strspn(hdu, "0123456789")] == '\0') return atoi(hdu) == number;
    return strcasecmp(hdu, u->name) == 0;
}

static dt_status not_there(const char *hdu, dt_span bytes) {
    char has[256] = "";
    fits_unit u;
    size_t at = 0;
    for (int k = 0; k < MAX_UNITS && at < bytes.n_bytes; k++) {
        DT_TRY(fits_read_unit(bytes, &at, k == 0, &u));
        size_t n = strlen(has);
        snprintf(has + n, sizeof has - n, "%s%d%s%s", k ? ", " : "", k, *u.name ? " " : "", u.name);
    }
    return dt_fail(DT_E_DATA, "FITS: no unit (HDU) '%s'; there are %s", hdu, has);
}

static dt_status find_unit(const char *hdu, dt_span bytes, fits_unit *out) {
    size_t at = 0;
    for (int k = 0; k < MAX_UNITS && at < bytes.n_bytes; k++) {
        DT_TRY(fits_read_unit(bytes, &at, k == 0, out));
        if (!fits_is_meant(hdu, k, out)) continue;
        while (out->n_axes > 2 && out->size[out->n_axes - 1] == 1) out->n_axes--;
        if (has_image(out)) return DT_OK;
        return dt_fail(DT_E_DATA, "FITS: unit (HDU) '%s' %s", hdu,
                       out->is_compressed ? "is compressed by tiles; unpack it (funpack)"
                                          : "is no image of two or three axes");
    }
    return not_there(hdu, bytes);
}

static dt_status find_first(dt_span bytes, fits_unit *out) {
    size_t at = 0;
    for (int k = 0; k < MAX_UNITS && at < bytes.n_bytes; k++) {
        DT_TRY(fits_read_unit(bytes, &at, k == 0, out));
        while (out->n_axes > 2 && out->size[out->n_axes - 1] == 1) out->n_axes--;
        if (has_image(out)) return DT_OK;
        if (out->is_compressed) return fits_broken("an image compressed by tiles; unpack it (funpack)");
    }
    return fits_broken("no image of two or three axes");
}

static dt_status fits_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    const dt_array_spec *spec = dt_array_spec_of(sink->want);
    stack s = {.n = spec->n_hdus > 0 ? spec->n_hdus : 1};
    if (spec->n_hdus == 0) DT_TRY(find_first(bytes, &s.unit[0]));
    for (int i = 0; i < spec->n_hdus; i++) DT_TRY(find_unit(spec->hdus[i], bytes, &s.unit[i]));
    return decode_units(&s, sink, out);
}

const dt_image_driver dt_image_fits = {.decode = fits_decode};

// ---- slices ------------------------------------------------------------------------------------------
static dt_status find_cube(dt_span bytes, fits_unit *out) {
    size_t at = 0;
    for (int k = 0; k < MAX_UNITS && at < bytes.n_bytes; k++) {
        DT_TRY(fits_read_unit(bytes, &at, k == 0, out));
        if (out->is_image && (out->n_axes == 3 || out->n_axes == 4) && out->n_bytes > 0) {
            if (out->pcount == 0 && out->gcount == 1) return DT_OK;
            return fits_broken("an image of groups");
        }
    }
    return fits_broken("no image of three or four axes, which has slices");
}

dt_status dt_fits_count_slices(dt_span bytes, int64_t *n) {
    fits_unit u;
    DT_TRY(find_cube(bytes, &u));
    *n = u.size[u.n_axes - 1];
    return DT_OK;
}

static void add_card(char **p, const char *key, const char *format, ...) {
    char value[40];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    (*p)[sprintf(*p, "%-8s= %20s", key, value)] = ' '; // blanks follow, not the 0
    *p += CARD;
}

dt_status dt_fits_take_slice(dt_span bytes, int64_t k, dt_buffer *out) {
    fits_unit u;
    DT_TRY(find_cube(bytes, &u));
    const int64_t n_axes = u.n_axes - 1;
    const size_t n = u.n_bytes / (size_t)u.size[n_axes], filled = (n + BLOCK - 1) / BLOCK * BLOCK;
    char *p = (char *)dt_buffer_reserve(out, BLOCK + filled), name[16];
    if (!p) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    out->n_bytes = BLOCK + filled;
    memset(p, ' ', BLOCK);
    memset(p + BLOCK, 0, filled);
    memcpy(p + BLOCK, u.data + (size_t)k * n, n);
    add_card(&p, "SIMPLE", "T");
    add_card(&p, "BITPIX", "%lld", (long long)u.bits);
    add_card(&p, "NAXIS", "%lld", (long long)n_axes);
    for (int i = 0; i < n_axes; i++) {
        snprintf(name, sizeof name, "NAXIS%d", i + 1);
        add_card(&p, name, "%lld", (long long)u.size[i]);
    }
    if (u.scale != 1) add_card(&p, "BSCALE", "%.16E", u.scale);
    if (u.zero != 0) add_card(&p, "BZERO", "%.16E", u.zero);
    if (u.has_blank) add_card(&p, "BLANK", "%lld", (long long)u.blank);
    memcpy(p, "END ", 4);
    return DT_OK;
}
