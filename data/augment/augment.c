// augment.c: rotate, shift, flip, crop, brightness, contrast, noise, random resized crop.
//
// The config's list becomes an array of operations with their numbers; a sample walks it. Geometric
// operations that follow one another (rotate, shift, zoom, flip) are composed into one affine map and
// the image is resampled once, bilinearly, edges repeated: sharper and faster than one pass each. A map
// that is only a flip moves bytes and interpolates nothing. Brightness and contrast become one table
// of 256 entries. random_resized_crop stands first and chooses the part of the decoded image that is
// resized at all (Szegedy et al., "Going deeper with convolutions", 2014, as torchvision does it).
//
// Randomness: Philox with key = seed and counter = (draw, sample, epoch, hash of
// "augment.<field>.<position>"), so adding an operation at the end changes no other one's draws.
// Geometry is computed in double and stored in 16.16 fixed point: the same bytes whatever the ISA.
#include "augment.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/rng.h"
#include "data/vectorize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum op_kind {
    OP_ROTATE,
    OP_SHIFT,
    OP_FLIP,
    OP_ZOOM,
    OP_CROP,
    OP_BRIGHTNESS,
    OP_CONTRAST,
    OP_NOISE,
    OP_RESIZED_CROP
} op_kind;

typedef struct op {
    op_kind kind;
    uint32_t purpose;
    bool horizontal, vertical;
    double a, b, c, d; // magnitude; resized crop: scale low, high, ratio low, high
} op;

struct dt_augment {
    op *ops;
    int n_ops;
    uint8_t gauss[256]; // quantiles of |N(0,1)| * 64, for noise
};

// ---- parsing -----------------------------------------------------------------------------------------
static const struct {
    const char *name, *help;
    op_kind kind;
    double low, high; // of the magnitude
} KINDS[] = {
    {"rotate", "degrees either way, 0..180", OP_ROTATE, 0, 180},
    {"shift", "fraction of the size either way, 0..1", OP_SHIFT, 0, 1},
    {"flip", "horizontal, vertical or both", OP_FLIP, 0, 0},
    {"zoom", "fraction either way, 0..0.9", OP_ZOOM, 0, 0.9},
    {"crop", "pixels that edges are padded by before a crop to size, 0..1024", OP_CROP, 0, 1024},
    {"brightness", "fraction either way, 0..1", OP_BRIGHTNESS, 0, 1},
    {"contrast", "fraction either way, 0..1", OP_CONTRAST, 0, 1},
    {"noise", "standard deviation, of a range of 0..1", OP_NOISE, 0, 1},
    {"random_resized_crop", "{scale: [0.08, 1], ratio: [0.75, 1.333]}, first in the list",
     OP_RESIZED_CROP, 0, 0},
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

static dt_status parse_flip(op *o, const dt_cnode *v) {
    const char *s = dt_cnode_kind(v) == DT_C_SCALAR ? dt_cnode_str(v) : "";
    o->horizontal = strcmp(s, "horizontal") == 0 || strcmp(s, "both") == 0;
    o->vertical = strcmp(s, "vertical") == 0 || strcmp(s, "both") == 0;
    if (o->horizontal || o->vertical) return DT_OK;
    return dt_fail(DT_E_USAGE, "%s: flip: expected horizontal, vertical or both",
                   dt_cnode_where(v));
}

static dt_status parse_range(const dt_cnode *map, const char *key, double *low, double *high) {
    const dt_cnode *v = dt_cnode_kind(map) == DT_C_MAP ? dt_cnode_get(map, key) : NULL;
    if (!v) return DT_OK;
    bool ok = dt_cnode_kind(v) == DT_C_LIST && dt_cnode_size(v) == 2 &&
              dt_cnode_real(dt_cnode_item(v, 0), low) && dt_cnode_real(dt_cnode_item(v, 1), high) &&
              *low > 0 && *low <= *high;
    return ok ? DT_OK
              : dt_fail(DT_E_USAGE, "%s: %s: expected [low, high], both above 0", dt_cnode_where(v),
                        key);
}

static dt_status parse_op(op *o, const dt_cnode *item, const char *field, int position) {
    bool is_map = dt_cnode_kind(item) == DT_C_MAP && dt_cnode_size(item) == 1;
    bool is_word = dt_cnode_kind(item) == DT_C_SCALAR;
    if (!is_map && !is_word)
        return dt_fail(DT_E_USAGE,
                       "%s: expected one augmentation a list item, such as {rotate: 10}",
                       dt_cnode_where(item));
    const char *name = is_map ? dt_cnode_key(item, 0) : dt_cnode_str(item);
    const dt_cnode *v = is_map ? dt_cnode_item(item, 0) : item;
    int k = 0;
    while (k < N_KINDS && strcmp(KINDS[k].name, name) != 0) k++;
    if (k == N_KINDS)
        return dt_fail(DT_E_USAGE,
                       "%s: unknown augmentation '%s'; expected rotate, shift, flip, zoom, crop, "
                       "brightness, contrast, noise or random_resized_crop",
                       dt_cnode_where(item), name);
    char purpose[256];
    snprintf(purpose, sizeof purpose, "augment.%s.%d", field, position);
    *o = (op){.kind = KINDS[k].kind, .purpose = dt_hash32(purpose)};
    if (o->kind == OP_FLIP) return parse_flip(o, v);
    if (o->kind == OP_RESIZED_CROP) {
        o->a = 0.08, o->b = 1, o->c = 3.0 / 4, o->d = 4.0 / 3;
        if (position != 0)
            return dt_fail(DT_E_USAGE, "%s: random_resized_crop must be the first of the list",
                           dt_cnode_where(item));
        if (!is_map) return DT_OK;
        DT_TRY(parse_range(v, "scale", &o->a, &o->b));
        if (o->b > 1)
            return dt_fail(DT_E_USAGE, "%s: scale: expected at most 1", dt_cnode_where(v));
        return parse_range(v, "ratio", &o->c, &o->d);
    }
    if (!is_map || dt_cnode_kind(v) != DT_C_SCALAR || !dt_cnode_real(v, &o->a) ||
        !(o->a >= KINDS[k].low && o->a <= KINDS[k].high))
        return dt_fail(DT_E_USAGE, "%s: %s: expected %s", dt_cnode_where(v), name, KINDS[k].help);
    return DT_OK;
}

// Quantile (i + 0.5) / 256 of |N(0,1)|, by bisection of erf.
static uint8_t half_normal_quantile(int i) {
    double low = 0, high = 4, p = (i + 0.5) / 256;
    for (int k = 0; k < 40; k++) {
        double mid = (low + high) / 2;
        if (erf(mid / sqrt(2.0)) < p)
            low = mid;
        else
            high = mid;
    }
    return (uint8_t)lround(low * 64);
}

dt_status dt_augment_parse(dt_augment **out, const dt_cnode *list, const char *field) {
    *out = NULL;
    if (dt_cnode_kind(list) != DT_C_LIST)
        return dt_fail(DT_E_USAGE, "%s: data.augment.%s: expected a list such as [{rotate: 10}]",
                       dt_cnode_where(list), field);
    dt_augment *a = dt_xcalloc(1, sizeof *a);
    a->n_ops = (int)dt_cnode_size(list);
    a->ops = dt_xcalloc((size_t)a->n_ops + 1, sizeof *a->ops);
    for (int i = 0; i < 256; i++) a->gauss[i] = half_normal_quantile(i);
    for (int i = 0; i < a->n_ops; i++) {
        dt_status st = parse_op(&a->ops[i], dt_cnode_item(list, (size_t)i), field, i);
        if (st != DT_OK) {
            dt_augment_destroy(a);
            return st;
        }
    }
    *out = a;
    return DT_OK;
}

void dt_augment_destroy(dt_augment *a) {
    if (!a) return;
    free(a->ops);
    free(a);
}

// ---- draws -------------------------------------------------------------------------------------------
static dt_rng rng_of(const op *o, const dt_augment_key *k) {
    return (dt_rng){.seed = k->seed, .slot = k->sample, .step = k->epoch, .purpose = o->purpose};
}

static double between(const dt_rng *r, uint32_t draw, double low, double high) {
    return low + (high - low) * (double)dt_rng_uniform(r, draw);
}

bool dt_augment_box(const dt_augment *a, const dt_augment_key *k, int width, int height,
                    double box[4]) {
    if (a->n_ops == 0 || a->ops[0].kind != OP_RESIZED_CROP) return false;
    const op *o = &a->ops[0];
    dt_rng r = rng_of(o, k);
    double area = (double)width * height;
    for (uint32_t i = 0; i < 10; i++) {
        double target = area * between(&r, 4 * i, o->a, o->b);
        double ratio = exp(between(&r, 4 * i + 1, log(o->c), log(o->d)));
        int w = (int)lround(sqrt(target * ratio)), h = (int)lround(sqrt(target / ratio));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        box[0] = dt_rng_below(&r, 4 * i + 2, (uint32_t)(width - w + 1));
        box[1] = dt_rng_below(&r, 4 * i + 3, (uint32_t)(height - h + 1));
        box[2] = box[0] + w;
        box[3] = box[1] + h;
        return true;
    }
    // ten misses: the largest centred part of an allowed shape
    double ratio = (double)width / height, w = width, h = height;
    if (ratio < o->c)
        h = width / o->c;
    else if (ratio > o->d)
        w = height * o->d;
    box[0] = (width - w) / 2;
    box[1] = (height - h) / 2;
    box[2] = box[0] + w;
    box[3] = box[1] + h;
    return true;
}

// ---- geometry: output pixel -> source pixel, x' = m0 x + m1 y + m2, y' = m3 x + m4 y + m5 ------------
typedef struct affine {
    double m[6];
    bool any, interpolates;
} affine;

static const affine IDENTITY = {{1, 0, 0, 0, 1, 0}, false, false};

// The map of `next` after what is already there: out -> (inverse of next) -> (inverse of earlier).
static void compose(affine *t, const double n[6]) {
    const double *m = t->m;
    double r[6] = {m[0] * n[0] + m[1] * n[3],        m[0] * n[1] + m[1] * n[4],
                   m[0] * n[2] + m[1] * n[5] + m[2], m[3] * n[0] + m[4] * n[3],
                   m[3] * n[1] + m[4] * n[4],        m[3] * n[2] + m[4] * n[5] + m[5]};
    memcpy(t->m, r, sizeof r);
    t->any = true;
}

static void add_geometry(affine *t, const op *o, const dt_rng *r, int w, int h) {
    double cx = (w - 1) / 2.0, cy = (h - 1) / 2.0;
    if (o->kind == OP_ROTATE || o->kind == OP_ZOOM) {
        double angle = 0, scale = 1;
        if (o->kind == OP_ROTATE)
            angle = between(r, 0, -o->a, o->a) * (acos(-1.0) / 180);
        else
            scale = 1 / between(r, 0, 1 - o->a, 1 + o->a);
        double c = cos(angle) * scale, s = sin(angle) * scale;
        double n[6] = {c, -s, cx - c * cx + s * cy, s, c, cy - s * cx - c * cy};
        compose(t, n);
        t->interpolates = true;
    } else if (o->kind == OP_SHIFT) {
        double n[6] = {1, 0, between(r, 0, -o->a, o->a) * w, 0, 1, between(r, 1, -o->a, o->a) * h};
        compose(t, n);
        t->interpolates = true;
    } else if (o->kind == OP_CROP) { // whole pixels: exact without interpolation
        uint32_t n_places = (uint32_t)(2 * (int)o->a + 1);
        double n[6] = {1, 0, (double)dt_rng_below(r, 0, n_places) - (int)o->a,
                       0, 1, (double)dt_rng_below(r, 1, n_places) - (int)o->a};
        compose(t, n);
    } else {
        bool x = o->horizontal && (dt_rng_u32(r, 0) >> 31),
             y = o->vertical && (dt_rng_u32(r, 1) >> 31);
        double n[6] = {x ? -1 : 1, 0, x ? w - 1 : 0, 0, y ? -1 : 1, y ? h - 1 : 0};
        if (x || y) compose(t, n);
    }
}

static int clamp_int(int v, int high) {
    return v < 0 ? 0 : v > high ? high : v;
}

static void move_pixels(const affine *t, const dt_image *src, uint8_t *dst) {
    int w = src->width, h = src->height, c = src->channels;
    int sx = (int)t->m[0], ox = (int)t->m[2], sy = (int)t->m[4], oy = (int)t->m[5];
    for (int y = 0; y < h; y++) {
        const uint8_t *row = src->data + (size_t)clamp_int(sy * y + oy, h - 1) * (size_t)(w * c);
        uint8_t *to = dst + (size_t)y * (size_t)(w * c);
        for (int x = 0; x < w; x++) {
            const uint8_t *p = row + clamp_int(sx * x + ox, w - 1) * c;
            for (int i = 0; i < c; i++) to[x * c + i] = p[i];
        }
    }
}

// Bilinear, weights of 8 bits a direction; source coordinates in 16.16.
static inline void sample_pixel(const dt_image *s, int64_t fx, int64_t fy, uint8_t *out) {
    int x = (int)(fx >> 16), y = (int)(fy >> 16), c = s->channels;
    uint32_t wx = (uint32_t)(fx >> 8 & 255), wy = (uint32_t)(fy >> 8 & 255);
    int x0 = clamp_int(x, s->width - 1), x1 = clamp_int(x + 1, s->width - 1);
    int y0 = clamp_int(y, s->height - 1), y1 = clamp_int(y + 1, s->height - 1);
    const uint8_t *top = s->data + (size_t)y0 * (size_t)(s->width * c);
    const uint8_t *low = s->data + (size_t)y1 * (size_t)(s->width * c);
    for (int i = 0; i < c; i++) {
        uint32_t a = top[x0 * c + i] * (256 - wx) + top[x1 * c + i] * wx;
        uint32_t b = low[x0 * c + i] * (256 - wx) + low[x1 * c + i] * wx;
        out[i] = (uint8_t)((a * (256 - wy) + b * wy + (1u << 15)) >> 16);
    }
}

// The same for a pixel whose four neighbours are inside.
static inline void sample_inside(const dt_image *s, int64_t fx, int64_t fy, uint8_t *out) {
    int c = s->channels;
    uint32_t wx = (uint32_t)(fx >> 8 & 255), wy = (uint32_t)(fy >> 8 & 255);
    const uint8_t *top = s->data + ((fy >> 16) * s->width + (fx >> 16)) * c,
                  *low = top + s->width * c;
    for (int i = 0; i < c; i++) {
        uint32_t a = top[i] * (256 - wx) + top[c + i] * wx;
        uint32_t b = low[i] * (256 - wx) + low[c + i] * wx;
        out[i] = (uint8_t)((a * (256 - wy) + b * wy + (1u << 15)) >> 16);
    }
}

static inline bool is_inside(const dt_image *s, int64_t fx, int64_t fy) {
    return fx >= 0 && fy >= 0 && fx >> 16 < s->width - 1 && fy >> 16 < s->height - 1;
}

// n bytes at one fraction: a shift without rotation, which is most of what is asked for.
VECTORIZED static void blend_rows(const uint8_t *restrict top, const uint8_t *restrict low,
                                  uint8_t *restrict dst, int n, int c, uint32_t wx, uint32_t wy) {
    for (int i = 0; i < n; i++) {
        uint32_t a = top[i] * (256 - wx) + top[c + i] * wx;
        uint32_t b = low[i] * (256 - wx) + low[c + i] * wx;
        dst[i] = (uint8_t)((a * (256 - wy) + b * wy + (1u << 15)) >> 16);
    }
}

// The pixels of a row whose neighbours are inside are an interval: clamping is for its two sides only.
static void warp_row(const dt_image *src, const int64_t m[6], int y, uint8_t *dst) {
    int64_t fx = m[1] * y + m[2], fy = m[4] * y + m[5];
    int w = src->width, c = src->channels, begin = 0, end = w;
    while (begin < w && !is_inside(src, fx + m[0] * begin, fy + m[3] * begin)) begin++;
    while (end > begin && !is_inside(src, fx + m[0] * (end - 1), fy + m[3] * (end - 1))) end--;
    for (int x = 0; x < begin; x++) sample_pixel(src, fx + m[0] * x, fy + m[3] * x, dst + x * c);
    for (int x = end; x < w; x++) sample_pixel(src, fx + m[0] * x, fy + m[3] * x, dst + x * c);
    if (begin == end) return;
    if (m[0] == 65536 && m[3] == 0) {
        int64_t at = fx + m[0] * begin;
        const uint8_t *top = src->data + ((fy >> 16) * w + (at >> 16)) * c;
        blend_rows(top, top + w * c, dst + begin * c, (end - begin) * c, c,
                   (uint32_t)(at >> 8 & 255), (uint32_t)(fy >> 8 & 255));
        return;
    }
    for (int x = begin; x < end; x++) sample_inside(src, fx + m[0] * x, fy + m[3] * x, dst + x * c);
}

static void warp(const affine *t, const dt_image *src, uint8_t *dst) {
    int64_t m[6];
    for (int i = 0; i < 6; i++) m[i] = llround(t->m[i] * 65536);
    for (int y = 0; y < src->height; y++)
        warp_row(src, m, y, dst + (size_t)y * (size_t)(src->width * src->channels));
}

static dt_status flush_geometry(affine *t, dt_image *image, dt_buffer *scratch) {
    if (!t->any) return DT_OK;
    size_t n = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    uint8_t *copy = dt_buffer_reserve(scratch, n);
    if (!copy) return dt_fail(DT_E_INTERNAL, "out of memory");
    memcpy(copy, image->data, n);
    dt_image src = *image;
    src.data = copy;
    if (t->interpolates)
        warp(t, &src, image->data);
    else
        move_pixels(t, &src, image->data);
    *t = IDENTITY;
    return DT_OK;
}

// ---- values --------------------------------------------------------------------------------------------
static void apply_levels(const op *o, const dt_rng *r, dt_image *image) {
    size_t n = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    double factor = between(r, 0, 1 - o->a, 1 + o->a), offset = 0;
    if (o->kind == OP_CONTRAST) { // around the image's own mean
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++) sum += image->data[i];
        offset = (double)sum / (double)n * (1 - factor);
    }
    uint8_t table[256];
    for (int v = 0; v < 256; v++) {
        double x = v * factor + offset + 0.5;
        table[v] = (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
    }
    for (size_t i = 0; i < n; i++) image->data[i] = table[image->data[i]];
}

// One Philox block gives eight values: a byte picks the quantile, the next one's top bit the sign.
static void apply_noise(const dt_augment *a, const op *o, const dt_rng *r, dt_image *image) {
    size_t n = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    int16_t level[256];
    for (int i = 0; i < 256; i++) level[i] = (int16_t)lround(a->gauss[i] / 64.0 * o->a * 255);
    for (size_t i = 0; i < n; i += 8) {
        uint32_t block[4], counter[4] = {(uint32_t)(i / 8), r->slot, r->step, r->purpose};
        uint8_t bytes[16];
        dt_philox4x32(r->seed, counter, block);
        memcpy(bytes, block, sizeof bytes);
        for (size_t k = 0; k < 8 && i + k < n; k++) {
            int d = level[bytes[2 * k]], v = image->data[i + k] + (bytes[2 * k + 1] & 128 ? -d : d);
            image->data[i + k] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
    }
}

dt_status dt_augment_apply(const dt_augment *a, const dt_augment_key *k, dt_image *image,
                           dt_buffer *scratch) {
    affine t = IDENTITY;
    for (int i = 0; i < a->n_ops; i++) {
        const op *o = &a->ops[i];
        dt_rng r = rng_of(o, k);
        switch (o->kind) {
        case OP_ROTATE:
        case OP_SHIFT:
        case OP_FLIP:
        case OP_ZOOM:
        case OP_CROP:
            add_geometry(&t, o, &r, image->width, image->height);
            break;
        case OP_BRIGHTNESS:
        case OP_CONTRAST:
            DT_TRY(flush_geometry(&t, image, scratch));
            apply_levels(o, &r, image);
            break;
        case OP_NOISE:
            DT_TRY(flush_geometry(&t, image, scratch));
            apply_noise(a, o, &r, image);
            break;
        case OP_RESIZED_CROP:
            break; // done before the resize
        }
    }
    return flush_geometry(&t, image, scratch);
}
