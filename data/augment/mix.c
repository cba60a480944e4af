// mix.c: mixup and CutMix: the plan for images, and the mixed targets.
//
// Sample j is mixed with sample j + 1, the last with the first: samples are shuffled already, so the neighbour
// is as good as any. Each sample has its own share and, for CutMix, its own rectangle. The rectangle has the
// same relative place in all image fields and is cut at the border; its share is counted in pixels.
//
// Images are most of a batch. They are mixed where they are normalised, on a device from the bytes that it has
// anyway; a loader thread would read and write them once more. Labels and numbers are a few bytes and depend on
// what was really pasted, so they are mixed here.
//
// A share is Beta(a, a), made of two Gamma variates by Marsaglia and Tsang ("A simple method for generating
// gamma variables", 2000). These are compared by their logarithms so that a small `a` cannot underflow. The
// share is rounded to 1/65536, so that integer pixels and f32 labels use exactly the same one.
//
// The bits of a draw are the same on every machine: only operations that IEEE 754 rounds correctly (+ - * / sqrt) are
// used, for logarithm, exponential and cosine too, and nothing contracts them (CMakeLists.txt).
//
// Draws of a sample: 0 whether, 1 which of the two, 2 and 3 the rectangle's centre, 64.. the share.
#include "mix.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ONE = DT_MIX_ONE, MAX_TRIES = 64, BETA_ELEMENT = 64 };

struct dt_mix {
    double mixup, cutmix, p, cutmix_share; // Beta's parameters, 0: not used
    uint64_t seed;
    uint32_t purpose;
    int n_fields;
    const dt_field_info *fields;
};

// ---- config ------------------------------------------------------------------------------------------
bool dt_mix_wanted(const dt_config *c) {
    return dt_value_or(c->data.mix.mixup, 0) > 0 || dt_value_or(c->data.mix.cutmix, 0) > 0;
}

bool dt_mix_takes(const dt_config *c, const char *field) {
    const dt_cnode *names = c->data.mix.fields;
    bool takes = !names;
    for (size_t k = 0; names && k < dt_cnode_size(names); k++)
        takes = takes || strcmp(dt_cnode_str(dt_cnode_item(names, k)), field) == 0;
    return takes && dt_mix_wanted(c);
}

static dt_status mix_check_fields(const dt_mix *m, const dt_config *c) {
    const dt_cnode *names = c->data.mix.fields;
    char known[512] = "";
    bool any = false;
    for (int i = 0; i < m->n_fields; i++)
        if (m->fields[i].is_image) dt_text_list(known, sizeof known, m->fields[i].name);
    for (size_t k = 0; names && k < dt_cnode_size(names); k++) {
        const char *name = dt_cnode_str(dt_cnode_item(names, k));
        int i = 0;
        while (i < m->n_fields && strcmp(m->fields[i].name, name) != 0) i++;
        if (i == m->n_fields || !m->fields[i].is_image)
            return dt_config_fail_name(c, "data.mix.fields", name, "image or audio field of data.fields", known);
    }
    for (int i = 0; i < m->n_fields; i++) any = any || m->fields[i].mixed;
    return any ? DT_OK : dt_config_fail(c, "data.mix", "data.fields has no image or audio field");
}

dt_status dt_mix_create(dt_mix **out, const dt_config *c, const dt_field_info *fields, int n_fields) {
    *out = NULL;
    if (!dt_mix_wanted(c)) return DT_OK;
    if (!c->train.micro_batch.is_auto && dt_answer(c->train.micro_batch) < 2)
        return dt_config_fail(c, "train.micro_batch",
                              "data.mix mixes samples of a micro-batch: train.micro_batch must be at "
                              "least 2");
    dt_mix *m = dt_xcalloc(1, sizeof *m);
    m->mixup = dt_value_or(c->data.mix.mixup, 0);
    m->cutmix = dt_value_or(c->data.mix.cutmix, 0);
    m->p = c->data.mix.p;
    m->cutmix_share = m->mixup <= 0 ? 1 : m->cutmix <= 0 ? 0 : c->data.mix.cutmix_share;
    m->seed = (uint64_t)c->run.seed;
    m->purpose = dt_hash32("data.mix");
    m->n_fields = n_fields;
    m->fields = fields;
    dt_status st = mix_check_fields(m, c);
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
// A random number in (0, 1].
static double above_zero(const dt_rng *r, uint32_t element) {
    return ((double)dt_rng_u32(r, element) + 1) / 4294967296.0;
}

// ln x of a normal x > 0: with x = 2^e m, m in [sqrt(1/2), sqrt(2)), and s = (m - 1) / (m + 1), it is
// e ln 2 + 2 (s + s^3/3 + s^5/5 + ...); s^2 < 0.0295, so that eleven terms reach a double's last bits.
static double fixed_log(double x) {
    int e;
    double m = frexp(x, &e); // exact
    if (m < 0.70710678118654752) m *= 2, e--;
    const double s = (m - 1) / (m + 1), z = s * s;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2) sum = sum * z + 1.0 / k;
    return e * 0.69314718055994531 + 2 * s * sum;
}

// e^x, |x| at most 700: x = k ln 2 + r with |r| <= ln 2 / 2, and r's series.
static double fixed_exp(double x) {
    const double k = floor(x * 1.4426950408889634 + 0.5), r = x - k * 0.69314718055994531;
    double sum = 1;
    for (int i = 14; i >= 1; i--) sum = 1 + sum * r / i;
    return ldexp(sum, (int)k); // exact
}

// cos(2 pi t), t in [0, 1]: its series, brought to the first quarter.
static double fixed_cos(double t) {
    double a = t > 0.5 ? 1 - t : t, sign = a > 0.25 ? -1 : 1;
    if (a > 0.25) a = 0.5 - a;
    const double x = a * 6.283185307179586, z = x * x;
    double sum = 1;
    for (int i = 22; i >= 2; i -= 2) sum = 1 - sum * z / (i * (i - 1));
    return sign * sum;
}

// Logarithm of a Gamma(a, 1) variate; elements e .. e + 4 MAX_TRIES.
static double log_gamma(const dt_rng *r, uint32_t e, double a) {
    // Marsaglia and Tsang, 2000; below 1 a variate of a + 1 times U^(1/a)
    double boost = a < 1 ? fixed_log(above_zero(r, e)) / a : 0, shape = a < 1 ? a + 1 : a;
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (uint32_t i = 1; i < MAX_TRIES; i++) {
        double u = above_zero(r, e + 4 * i), angle = above_zero(r, e + 4 * i + 1);
        double x = sqrt(-2 * fixed_log(u)) * fixed_cos(angle), v = 1 + c * x;
        if (v <= 0) continue; // outside of the density's support
        v = v * v * v;
        double bound = 0.5 * x * x + d - d * v + d * fixed_log(v);
        if (fixed_log(above_zero(r, e + 4 * i + 2)) < bound) return boost + fixed_log(d * v);
    }
    return boost + fixed_log(d); // MAX_TRIES refusals do not happen; the mode then
}

// Beta(a, a), of ONE.
static uint32_t draw_share(const dt_rng *r, double a) {
    double x = log_gamma(r, BETA_ELEMENT, a), y = log_gamma(r, BETA_ELEMENT + 4 * MAX_TRIES, a);
    // beyond 700 a double has no e^x; the share is 0 or ONE there
    double ratio = fixed_exp(y - x < -700 ? -700 : y - x > 700 ? 700 : y - x);
    return (uint32_t)floor(ONE / (1 + ratio) + 0.5);
}

typedef struct recipe {
    uint32_t own; // share of the sample itself, of ONE
    bool cuts;    // a rectangle, in parts of the size
    double left, top, right, bottom;
} recipe;

static recipe draw_recipe(const dt_mix *m, const dt_rng *r) {
    if ((double)dt_rng_uniform(r, 0) >= m->p) return (recipe){.own = ONE};
    if ((double)dt_rng_uniform(r, 1) >= m->cutmix_share) return (recipe){.own = draw_share(r, m->mixup)};
    // CutMix: the rectangle's area is 1 - own, its middle anywhere, its parts outside cut off
    uint32_t own = draw_share(r, m->cutmix);
    double half = sqrt((ONE - own) / (double)ONE) / 2;
    double x = (double)dt_rng_uniform(r, 2), y = (double)dt_rng_uniform(r, 3);
    return (recipe){own, true, x - half, y - half, x + half, y + half};
}

// ---- mixing ------------------------------------------------------------------------------------------
static int mix_place(double part, int64_t size) {
    double at = floor(part * (double)size);
    return (int)(at < 0 ? 0 : at > (double)size ? (double)size : at);
}

// The row for an image; what share of its area is pasted.
static double plan_image(const dt_field_info *f, const recipe *k, dt_mix_row *row) {
    *row = (dt_mix_row){.own = k->cuts ? ONE : (int32_t)k->own};
    if (!k->cuts) return 0;
    int64_t h = f->sample_shape.d[0], w = f->sample_shape.d[1];
    row->x0 = mix_place(k->left, w), row->x1 = mix_place(k->right, w);
    row->y0 = mix_place(k->top, h), row->y1 = mix_place(k->bottom, h);
    return (double)(row->x1 - row->x0) * (row->y1 - row->y0) / ((double)w * (double)h);
}

// A rectangle's share becomes the share of pixels really pasted, averaged over all fields.
static void plan_images(const dt_mix *m, const dt_mix_batch *b, int j, recipe *k) {
    double pasted = 0;
    int n_images = 0;
    for (int i = 0; i < m->n_fields; i++) {
        if (!m->fields[i].mixed) continue;
        pasted += plan_image(&m->fields[i], k, &b->plan[i][j]);
        n_images++;
    }
    if (k->cuts) k->own = (uint32_t)lround(ONE * (1 - pasted / n_images));
}

static void mix_targets(const dt_mix *m, const dt_mix_batch *b, int j, uint32_t own) {
    const size_t next = (size_t)((j + 1) % b->n); // the neighbour, as images are mixed on the device
    for (int i = 0; i < m->n_fields; i++) {
        const dt_field_info *f = &m->fields[i];
        if (f->n_classes > 0) {
            const int32_t *label = b->in[i];
            float *share = (float *)b->out[i] + (size_t)j * (size_t)f->n_classes;
            memset(share, 0, (size_t)f->n_classes * sizeof *share);
            share[label[j]] = (float)own / ONE;
            share[label[next]] += (float)(ONE - own) / ONE; // both may have one class
        } else if (!f->is_image) {
            const float *in = b->in[i];
            size_t n = (size_t)dt_shape_elements(&f->sample_shape), at = (size_t)j * n;
            const float *own_x = in + at, *next_x = in + next * n;
            const float share = (float)own / ONE;
            float *out = (float *)b->out[i] + at;
            for (size_t k = 0; k < n; k++) out[k] = own < ONE ? own_x[k] * share + next_x[k] * (1 - share) : own_x[k];
        }
    }
}

void dt_mix_run(const dt_mix *m, const dt_mix_batch *b) {
    for (int j = 0; j < b->n; j++) {
        dt_rng r = {m->seed, (uint32_t)(b->first + j), (uint32_t)b->step, m->purpose};
        recipe k = draw_recipe(m, &r);
        if (b->n == 1) k = (recipe){.own = ONE}; // a last micro-batch of one has nobody to mix with
        plan_images(m, b, j, &k);
        mix_targets(m, b, j, k.own);
    }
}
