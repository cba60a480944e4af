// mix.c: mixup and CutMix, in place.
//
// Sample j takes part of sample j + 1, the last one of the first: samples are shuffled already, so the
// neighbour is as good as any. Going up, the neighbour is still as it was; only the first needs a copy,
// and one sample's worth of scratch is all. Each sample has its own share and, for CutMix, its own
// rectangle, placed alike in all image fields (in parts of their size) and cut off at the border, its
// share counted in pixels.
//
// A share is Beta(a, a), made of two Gamma variates by Marsaglia and Tsang ("A simple method for
// generating gamma variables", 2000), compared by their logarithms so that a small `a` cannot
// underflow, and rounded to 1/65536: pixels are integers, labels exact in f32, and both say the same.
//
// Draws of a sample: 0 whether, 1 which of the two, 2 and 3 the rectangle's centre, 64.. the share.
#include "mix.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/rng.h"
#include "data/vectorize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ONE = 65536, MAX_TRIES = 64, BETA_ELEMENT = 64 };

struct dt_mix {
    double mixup, cutmix, p, cutmix_share; // Beta's parameters, 0: not used
    uint64_t seed;
    uint32_t purpose;
    int n_fields;
    const dt_field_info *fields;
    bool is_mixed[DT_MAX_FIELDS];
};

// ---- config ------------------------------------------------------------------------------------------
static double parameter(const dt_config *c, const char *key) {
    return dt_config_has(c, key) ? dt_config_real(c, key) : 0;
}

bool dt_mix_wanted(const dt_config *c) {
    return parameter(c, "data.mix.mixup") > 0 || parameter(c, "data.mix.cutmix") > 0;
}

static dt_status choose_fields(dt_mix *m, const dt_config *c) {
    const dt_cnode *names = dt_config_node(c, "data.mix.fields");
    bool any = false;
    for (int i = 0; i < m->n_fields; i++) m->is_mixed[i] = !m->fields[i].is_image || !names;
    for (size_t k = 0; names && k < dt_cnode_size(names); k++) {
        const char *name = dt_cnode_str(dt_cnode_item(names, k));
        int i = 0;
        while (i < m->n_fields && strcmp(m->fields[i].name, name) != 0) i++;
        if (i == m->n_fields || !m->fields[i].is_image)
            return dt_config_fail(c, "data.mix.fields", "'%s' is no image or sound of data.fields",
                                  name);
        m->is_mixed[i] = true;
    }
    for (int i = 0; i < m->n_fields; i++) any = any || (m->is_mixed[i] && m->fields[i].is_image);
    return any ? DT_OK
               : dt_config_fail(c, "data.mix", "there are no images or sounds in data.fields");
}

dt_status dt_mix_create(dt_mix **out, const dt_config *c, const dt_field_info *fields,
                        int n_fields) {
    *out = NULL;
    if (!dt_mix_wanted(c)) return DT_OK;
    if (dt_config_int(c, "train.micro_batch") < 2)
        return dt_config_fail(
            c, "train.micro_batch",
            "data.mix mixes samples of a micro-batch: train.micro_batch must be at "
            "least 2");
    dt_mix *m = dt_xcalloc(1, sizeof *m);
    m->mixup = parameter(c, "data.mix.mixup");
    m->cutmix = parameter(c, "data.mix.cutmix");
    m->p = dt_config_real(c, "data.mix.p");
    m->cutmix_share = m->mixup <= 0 ? 1 : m->cutmix <= 0 ? 0 : dt_config_real(c, "data.mix.switch");
    m->seed = (uint64_t)dt_config_int(c, "run.seed");
    m->purpose = dt_hash32("data.mix");
    m->n_fields = n_fields;
    m->fields = fields;
    dt_status st = choose_fields(m, c);
    if (st != DT_OK)
        dt_mix_destroy(m);
    else
        *out = m;
    return st;
}

void dt_mix_destroy(dt_mix *m) {
    free(m);
}

// ---- draws -------------------------------------------------------------------------------------------
// In (0, 1].
static double above_zero(const dt_rng *r, uint32_t element) {
    return ((double)dt_rng_u32(r, element) + 1) / 4294967296.0;
}

// Logarithm of a Gamma(a, 1) variate; elements e .. e + 4 MAX_TRIES.
static double log_gamma(const dt_rng *r, uint32_t e, double a) {
    double boost = a < 1 ? log(above_zero(r, e)) / a : 0, shape = a < 1 ? a + 1 : a;
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (uint32_t i = 1; i < MAX_TRIES; i++) {
        double u = above_zero(r, e + 4 * i), angle = above_zero(r, e + 4 * i + 1);
        double x = sqrt(-2 * log(u)) * cos(angle * 6.283185307179586), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(above_zero(r, e + 4 * i + 2)) < 0.5 * x * x + d - d * v + d * log(v))
            return boost + log(d * v);
    }
    return boost + log(d);
}

// Beta(a, a), of ONE.
static uint32_t draw_share(const dt_rng *r, double a) {
    double x = log_gamma(r, BETA_ELEMENT, a), y = log_gamma(r, BETA_ELEMENT + 4 * MAX_TRIES, a);
    return (uint32_t)lround(ONE / (1 + exp(y - x)));
}

typedef struct recipe {
    uint32_t own; // share of the sample itself, of ONE
    bool cuts;    // a rectangle, in parts of the size
    double left, top, right, bottom;
} recipe;

static recipe draw_recipe(const dt_mix *m, const dt_rng *r) {
    if ((double)dt_rng_uniform(r, 0) >= m->p) return (recipe){.own = ONE};
    if ((double)dt_rng_uniform(r, 1) >= m->cutmix_share)
        return (recipe){.own = draw_share(r, m->mixup)};
    uint32_t own = draw_share(r, m->cutmix);
    double half = sqrt((ONE - own) / (double)ONE) / 2;
    double x = (double)dt_rng_uniform(r, 2), y = (double)dt_rng_uniform(r, 3);
    return (recipe){own, true, x - half, y - half, x + half, y + half};
}

// ---- mixing ------------------------------------------------------------------------------------------
VECTORIZED static void blend_bytes(uint8_t *restrict a, const uint8_t *restrict b, size_t n,
                                   uint32_t own) {
    for (size_t i = 0; i < n; i++)
        a[i] = (uint8_t)((a[i] * own + b[i] * (ONE - own) + ONE / 2) >> 16);
}

VECTORIZED static void blend_reals(float *restrict a, const float *restrict b, size_t n,
                                   float own) {
    for (size_t i = 0; i < n; i++) a[i] = a[i] * own + b[i] * (1 - own);
}

static int place(double part, int64_t size) {
    double at = floor(part * (double)size);
    return (int)(at < 0 ? 0 : at > (double)size ? (double)size : at);
}

// Pastes the rectangle; what share of the area it is.
static double paste(const dt_field_info *f, const recipe *k, uint8_t *a, const uint8_t *b) {
    int64_t h = f->sample_shape.d[0], w = f->sample_shape.d[1];
    size_t pixel = (size_t)f->sample_shape.d[2] * dt_dtype_size(f->dtype);
    int x0 = place(k->left, w), x1 = place(k->right, w);
    int y0 = place(k->top, h), y1 = place(k->bottom, h);
    for (int y = y0; y < y1; y++) {
        size_t at = ((size_t)y * (size_t)w + (size_t)x0) * pixel;
        memcpy(a + at, b + at, (size_t)(x1 - x0) * pixel);
    }
    return (double)(x1 - x0) * (y1 - y0) / ((double)w * (double)h);
}

static size_t sample_bytes(const dt_field_info *f) {
    return (size_t)dt_shape_elements(&f->sample_shape) * dt_dtype_size(f->dtype);
}

static void blend(const dt_field_info *f, void *a, const void *b, uint32_t own) {
    size_t n = (size_t)dt_shape_elements(&f->sample_shape);
    if (f->dtype == DT_U8)
        blend_bytes(a, b, n, own);
    else
        blend_reals(a, b, n, (float)own / ONE);
}

// A micro-batch while it is mixed, with sample 0 as it was.
typedef struct mixing {
    const dt_mix *m;
    const dt_mix_batch *b;
    const uint8_t *first[DT_MAX_FIELDS];
} mixing;

static uint8_t *sample_of(const mixing *x, int i, int j) {
    return (uint8_t *)x->b->field[i] + (size_t)j * sample_bytes(&x->m->fields[i]);
}

static const uint8_t *next_of(const mixing *x, int i, int j) {
    return j + 1 < x->b->n ? sample_of(x, i, j + 1) : x->first[i];
}

// A rectangle's share becomes what was really pasted, over all fields alike.
static void mix_images(const mixing *x, int j, recipe *k) {
    double pasted = 0;
    int n_images = 0;
    for (int i = 0; i < x->m->n_fields; i++) {
        const dt_field_info *f = &x->m->fields[i];
        if (!f->is_image || !x->m->is_mixed[i]) continue;
        if (k->cuts)
            pasted += paste(f, k, sample_of(x, i, j), next_of(x, i, j));
        else if (k->own < ONE)
            blend(f, sample_of(x, i, j), next_of(x, i, j), k->own);
        n_images++;
    }
    if (k->cuts) k->own = (uint32_t)lround(ONE * (1 - pasted / n_images));
}

static void mix_numbers(const mixing *x, int j, uint32_t own) {
    for (int i = 0; i < x->m->n_fields; i++) {
        const dt_field_info *f = &x->m->fields[i];
        if (f->n_classes > 0) {
            const int32_t *label = x->b->label[i];
            float *share = (float *)x->b->field[i] + (size_t)j * (size_t)f->n_classes;
            memset(share, 0, (size_t)f->n_classes * sizeof *share);
            share[label[j]] = (float)own / ONE;
            share[label[(j + 1) % x->b->n]] += (float)(ONE - own) / ONE;
        } else if (!f->is_image && own < ONE)
            blend(f, sample_of(x, i, j), next_of(x, i, j), own);
    }
}

// Sample 0 of every field that is mixed in place, 64 bytes apart at least.
static dt_status save_first(mixing *x, dt_buffer *scratch) {
    size_t at = 0, place_of[DT_MAX_FIELDS];
    for (int i = 0; i < x->m->n_fields; i++) {
        place_of[i] = at;
        if (x->m->fields[i].n_classes == 0) at += (sample_bytes(&x->m->fields[i]) + 63) / 64 * 64;
    }
    uint8_t *copy = dt_buffer_reserve(scratch, at + 1);
    if (!copy) return dt_fail(DT_E_INTERNAL, "out of memory");
    for (int i = 0; i < x->m->n_fields; i++) {
        x->first[i] = copy + place_of[i];
        if (x->m->fields[i].n_classes == 0)
            memcpy(copy + place_of[i], x->b->field[i], sample_bytes(&x->m->fields[i]));
    }
    return DT_OK;
}

dt_status dt_mix_run(const dt_mix *m, const dt_mix_batch *b, dt_buffer *scratch) {
    mixing x = {.m = m, .b = b};
    DT_TRY(save_first(&x, scratch));
    for (int j = 0; j < b->n; j++) {
        dt_rng r = {m->seed, (uint32_t)(b->first + j), (uint32_t)b->step, m->purpose};
        recipe k = draw_recipe(m, &r);
        if (b->n == 1) k = (recipe){.own = ONE};
        mix_images(&x, j, &k);
        mix_numbers(&x, j, k.own);
    }
    return DT_OK;
}
