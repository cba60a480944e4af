// augment.c: parses data.augment and applies it to a sample.
//
// A list becomes an array of operations with their parameters (augment_table.c has the operations). For each
// sample the array is walked once. Consecutive geometric operations are composed into one map, so the image is
// resampled once: sharper and faster than one pass each. A map that only flips or moves whole pixels copies
// bytes, and a flip directly after the resize is done by the resize. random_resized_crop must come first; it
// chooses the part of the decoded image that is resized at all (Szegedy et al., "Going deeper with
// convolutions", 2014, as in torchvision).
//
// The draws give a list of steps (batch/pixel_steps.h). They are played at once, or, from some operation on,
// left to a device together with the batch (dt_augment_split). The device draws nothing; the steps hold the
// numbers.
//
// Randomness: Philox with key = seed and counter = (draw, sample, epoch, hash of "augment.<field>.<position>").
// So adding an operation at the end leaves the draws of the others alone. Whether an operation happens at all
// (p) is a draw of its own.
#include "augment.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/text.h"
#include "config/words.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 256 };
#define P_ELEMENT UINT32_MAX // beyond every operation's own draws

// ---- words -------------------------------------------------------------------------------------------
static size_t augment_add(char *buf, size_t at, const char *text) {
    return at < TEXT ? at + (size_t)snprintf(buf + at, TEXT - at, "%s", text) : at;
}

// What a parameter may be, in words or (short) as in the table of the docs; buf[TEXT].
static const char *augment_expectation(const dt_augment_param *p, bool brief, char *buf) {
    static const char *const WHAT[][2] = {[DT_AUGMENT_NONE] = {"", ""},
                                          [DT_AUGMENT_REAL] = {"a number in ", ""},
                                          [DT_AUGMENT_WHOLE] = {"a whole number in ", ""},
                                          [DT_AUGMENT_ODD] = {"an odd number in ", "odd "},
                                          [DT_AUGMENT_RANGE] = {"[from, to] in ", "range "},
                                          [DT_AUGMENT_EITHER] = {"a, for [-a, a], or [from, to] in ", "± "},
                                          [DT_AUGMENT_FACTOR] = {"a, for [1-a, 1+a], or [from, to] in ", "1 ± "},
                                          [DT_AUGMENT_WORD] = {"", ""}};
    size_t at = augment_add(buf, 0, WHAT[p->type][brief]);
    if (p->type == DT_AUGMENT_WORD) {
        for (const char *w = p->words; *w; w++) at = augment_add(buf, at, *w == '|' ? ", " : (char[]){*w, '\0'});
        if (p->high > 0) at = augment_add(buf, at, " or "); // a word or a number, as `fill`
    }
    if (p->high > 0 && at < TEXT) snprintf(buf + at, TEXT - at, "%g..%g", p->low, p->high);
    return buf;
}

static int n_params(const dt_augment_kind *k) {
    int n = 0;
    while (n < DT_MAX_PARAMS && k->params[n].type != DT_AUGMENT_NONE) n++;
    return n;
}

static size_t add_default(char *buf, size_t at, const dt_augment_param *p) {
    if (isnan(p->from)) return at; // NaN: the parameter has to be given
    at = augment_add(buf, at, " = ");
    if (p->type == DT_AUGMENT_WORD) {
        const char *w = p->words;
        // words beside numbers are -1, -2, …
        for (int skip = (int)(p->high > 0 ? -1 - p->from : p->from); skip > 0; skip--) w = strchr(w, '|') + 1;
        return at < TEXT ? at + (size_t)snprintf(buf + at, TEXT - at, "%.*s", (int)strcspn(w, "|"), w) : at;
    }
    if (at >= TEXT) return at;
    double middle = p->type == DT_AUGMENT_EITHER ? 0 : 1; // ± a, or 1 ± a
    bool around = p->type == DT_AUGMENT_EITHER || p->type == DT_AUGMENT_FACTOR;
    if (p->type == DT_AUGMENT_RANGE) return at + (size_t)snprintf(buf + at, TEXT - at, "[%.3g, %.3g]", p->from, p->to);
    return at + (size_t)snprintf(buf + at, TEXT - at, "%g", around ? p->to - middle : p->from);
}

const char *dt_augment_describe(int i, bool markdown, char *buf, size_t cap) {
    const dt_augment_kind *k = &dt_augment_kinds[i];
    if (!k->name) return NULL;
    char text[TEXT], value[TEXT];
    size_t at = (size_t)snprintf(buf, cap, markdown ? "| `%s` | " : "%s\n", k->name);
    for (int p = 0; p < n_params(k); p++) {
        augment_expectation(&k->params[p], markdown, text);
        value[0] = '\0';
        add_default(value, 0, &k->params[p]);
        at += (size_t)snprintf(buf + at, cap - at, markdown ? "`%s`%s (%s), " : "    %s%s: %s\n", k->params[p].name,
                               value, text);
    }
    snprintf(buf + at, cap - at, markdown ? "`p` = %g | %s |" : "    p = %g\n    %s", k->p, k->help);
    return buf;
}

// ---- parsing -----------------------------------------------------------------------------------------
static dt_status fail_param(const dt_augment_kind *k, const dt_augment_param *p, const dt_cnode *v) {
    char text[TEXT];
    return dt_fail(DT_E_USAGE, "%s: %s: %s: expected %s", dt_cnode_where(v), k->name, p->name,
                   augment_expectation(p, false, text));
}

static bool augment_read_word(const dt_augment_param *p, const dt_cnode *v, dt_value2 *out) {
    const int i = dt_word_index(p->words, dt_cnode_str(v));
    if (i >= 0) {
        out->from = out->to = p->high > 0 ? -1 - i : i; // below 0 where numbers are allowed, too
        return true;
    }
    return p->high > 0 && dt_cnode_real(v, &out->from) && out->from == floor(out->from) && out->from >= p->low &&
           (out->to = out->from) <= p->high;
}

static bool read_pair(const dt_augment_param *p, const dt_cnode *v, dt_value2 *out) {
    bool around = p->type == DT_AUGMENT_EITHER || p->type == DT_AUGMENT_FACTOR;
    if (dt_cnode_kind(v) == DT_C_LIST)
        return (around || p->type == DT_AUGMENT_RANGE) && dt_cnode_size(v) == 2 &&
               dt_cnode_real(dt_cnode_item(v, 0), &out->from) && dt_cnode_real(dt_cnode_item(v, 1), &out->to) &&
               out->from <= out->to;
    double a;
    if (dt_cnode_kind(v) != DT_C_SCALAR || !dt_cnode_real(v, &a)) return false;
    out->from = out->to = a;
    if (!around) return true;
    double middle = p->type == DT_AUGMENT_FACTOR ? 1 : 0;
    out->from = middle - a;
    out->to = middle + a;
    // 1 ± 2: a factor does not change its sign
    if (p->type == DT_AUGMENT_FACTOR && p->low == 0 && out->from < 0) out->from = 0;
    return a >= 0;
}

static dt_status read_param(const dt_augment_kind *k, const dt_augment_param *p, const dt_cnode *v, dt_value2 *out) {
    bool ok;
    if (p->type == DT_AUGMENT_WORD)
        ok = dt_cnode_kind(v) == DT_C_SCALAR && augment_read_word(p, v, out);
    else {
        ok = read_pair(p, v, out) && out->from >= p->low && out->to <= p->high;
        if (p->type == DT_AUGMENT_WHOLE || p->type == DT_AUGMENT_ODD) ok = ok && out->from == floor(out->from);
        if (p->type == DT_AUGMENT_ODD) ok = ok && fmod(out->from, 2) == 1;
    }
    return ok ? DT_OK : fail_param(k, p, v);
}

static dt_status read_p(const dt_augment_kind *k, const dt_cnode *v, double *out) {
    if (dt_cnode_kind(v) == DT_C_SCALAR && dt_cnode_real(v, out) && *out >= 0 && *out <= 1) return DT_OK;
    return dt_fail(DT_E_USAGE, "%s: %s: p: expected a number in 0..1", dt_cnode_where(v), k->name);
}

static dt_status augment_read_named(dt_augment_op *o, const dt_cnode *map) {
    int n = n_params(o->kind);
    for (size_t i = 0; i < dt_cnode_size(map); i++) {
        const dt_cnode *v = dt_cnode_item(map, i);
        const char *name = dt_cnode_key(map, i);
        char all[TEXT] = "";
        int p = 0;
        for (; p < n && strcmp(o->kind->params[p].name, name) != 0; p++)
            dt_text_list(all, sizeof all, o->kind->params[p].name);
        dt_text_list(all, sizeof all, "p");
        if (p < n)
            DT_TRY(read_param(o->kind, &o->kind->params[p], v, &o->v[p]));
        else if (strcmp(name, "p") == 0)
            DT_TRY(read_p(o->kind, v, &o->p));
        else
            return dt_fail(DT_E_USAGE, "%s: unknown parameter '%s' of %s; it has %s", dt_cnode_where(v), name,
                           o->kind->name, all);
    }
    return DT_OK;
}

static dt_status augment_find_kind(const dt_augment_kind *kinds, const char *name, const dt_cnode *item,
                                   const dt_augment_kind **out) {
    const dt_augment_kind *k = kinds, *near = NULL;
    int best = DT_TEXT_FAR;
    for (; k->name && strcmp(k->name, name) != 0; k++) {
        int far = dt_text_closeness(k->name, strlen(k->name), name);
        if (far < best) best = far, near = k;
    }
    *out = k;
    if (k->name) return DT_OK;
    if (near)
        return dt_fail(DT_E_USAGE, "%s: unknown augmentation '%s'; did you mean '%s'?", dt_cnode_where(item), name,
                       near->name);
    char text[1024] = "";
    for (k = kinds; k->name; k++) dt_text_list(text, sizeof text, k->name);
    return dt_fail(DT_E_USAGE, "%s: unknown augmentation '%s'; expected %s", dt_cnode_where(item), name, text);
}

static dt_status parse_op(dt_augment_op *o, const dt_augment_kind *kinds, const char *example, const dt_cnode *item,
                          const char *field, int position) {
    bool is_map = dt_cnode_kind(item) == DT_C_MAP && dt_cnode_size(item) == 1;
    if (!is_map && dt_cnode_kind(item) != DT_C_SCALAR)
        return dt_fail(DT_E_USAGE, "%s: expected one augmentation a list item, such as %s", dt_cnode_where(item),
                       example);
    const dt_augment_kind *k;
    DT_TRY(augment_find_kind(kinds, is_map ? dt_cnode_key(item, 0) : dt_cnode_str(item), item, &k));
    char purpose[256];
    // the name of the draws: each place of each field's list has its own stream
    snprintf(purpose, sizeof purpose, "augment.%s.%d", field, position);
    *o = (dt_augment_op){.kind = k, .purpose = dt_hash32(purpose), .p = k->p};
    if (k->first && position != 0)
        return dt_fail(DT_E_USAGE, "%s: %s must be the first of the list", dt_cnode_where(item), k->name);
    for (int p = 0; p < n_params(k); p++) o->v[p] = (dt_value2){k->params[p].from, k->params[p].to};
    const dt_cnode *v = is_map ? dt_cnode_item(item, 0) : NULL;
    if (v && dt_cnode_kind(v) == DT_C_MAP)
        DT_TRY(augment_read_named(o, v));
    else if (v && n_params(k) == 0) // without parameters the value is p
        DT_TRY(read_p(k, v, &o->p));
    else if (v)
        DT_TRY(read_param(k, &k->params[0], v, &o->v[0]));
    for (int p = 0; p < n_params(k); p++)
        if (isnan(o->v[p].from)) return fail_param(k, &k->params[p], item); // neither given nor by default
    return DT_OK;
}

dt_status dt_augment_check_fields(const dt_config *c) {
    const dt_cnode *all = c->data.augment;
    for (size_t i = 0; all && dt_cnode_kind(all) == DT_C_MAP && i < dt_cnode_size(all); i++) {
        const char *name = dt_cnode_key(all, i);
        char names[512] = "";
        bool found = false;
        for (int k = 0; k < c->data.n_fields; k++) {
            const char *field = c->data.fields[k].id;
            const dt_field_kind kind = c->data.fields[k].kind;
            if (kind != DT_FIELD_image && kind != DT_FIELD_audio) continue;
            found = found || strcmp(field, name) == 0;
            dt_text_list(names, sizeof names, field);
        }
        if (!found) return dt_config_fail_name(c, "data.augment", name, "image or audio field of data.fields", names);
    }
    return DT_OK;
}

dt_status dt_augment_parse_list(dt_augment **out, const dt_augment_kind *kinds, const char *example,
                                const dt_cnode *list, const char *field) {
    *out = NULL;
    if (dt_cnode_kind(list) != DT_C_LIST)
        return dt_fail(DT_E_USAGE, "%s: data.augment.%s: expected a list such as [%s]", dt_cnode_where(list), field,
                       example);
    dt_augment *a = dt_xcalloc(1, sizeof *a);
    a->n_ops = (int)dt_cnode_size(list);
    a->ops = dt_xcalloc((size_t)a->n_ops + 1, sizeof *a->ops);
    for (int i = 0; i < a->n_ops; i++) {
        dt_status st = parse_op(&a->ops[i], kinds, example, dt_cnode_item(list, (size_t)i), field, i);
        if (st != DT_OK) {
            dt_augment_destroy(a);
            return st;
        }
    }
    *out = a;
    return DT_OK;
}

dt_status dt_augment_parse(dt_augment **out, const dt_cnode *list, const char *field) {
    return dt_augment_parse_list(out, dt_augment_kinds, "{rotate: 10}", list, field);
}

void dt_augment_destroy(dt_augment *a) {
    if (!a) return;
    free(a->ops);
    free(a);
}

// ---- draws -------------------------------------------------------------------------------------------
dt_rng dt_augment_rng(const dt_augment_op *o, const dt_augment_key *k) {
    return (dt_rng){.seed = k->seed, .slot = k->sample, .step = k->epoch, .purpose = o->purpose};
}

bool dt_augment_happens(const dt_augment_op *o, const dt_rng *r) {
    // custom_p: the operation draws by itself how often
    return o->kind->custom_p || o->p >= 1 || (double)dt_rng_uniform(r, P_ELEMENT) < o->p;
}

bool dt_draw_part(const dt_rng *r, dt_value2 scale, dt_value2 ratio, int w, int h, dt_rect *out) {
    double area = (double)w * h;
    dt_value2 logs = {log(ratio.from), log(ratio.to)};
    for (uint32_t i = 0; i < 10; i++) {
        // torchvision's RandomResizedCrop: area uniform, shape uniform in its logarithm, ten tries
        double target = area * dt_draw(r, 4 * i, scale), shape = exp(dt_draw(r, 4 * i + 1, logs));
        int pw = (int)lround(sqrt(target * shape)), ph = (int)lround(sqrt(target / shape));
        if (pw < 1 || ph < 1 || pw > w || ph > h) continue;
        *out = (dt_rect){(int)dt_rng_below(r, 4 * i + 2, (uint32_t)(w - pw + 1)),
                         (int)dt_rng_below(r, 4 * i + 3, (uint32_t)(h - ph + 1)), pw, ph};
        return true;
    }
    return false;
}

bool dt_augment_crops(const dt_augment *a) {
    return a->n_ops > 0 && !a->ops[0].kind->run; // a crop has no pixels to run on: the resize reads its box
}

bool dt_augment_box(const dt_augment *a, const dt_augment_key *k, int width, int height, double box[4]) {
    if (!dt_augment_crops(a)) return false;
    const dt_augment_op *o = &a->ops[0];
    dt_rng r = dt_augment_rng(o, k);
    if (!dt_augment_happens(o, &r)) return false;
    dt_rect part;
    double w = width, h = height, x = 0, y = 0;
    if (dt_draw_part(&r, o->v[0], o->v[1], width, height, &part))
        x = part.x, y = part.y, w = part.w, h = part.h;
    else { // the largest centred part of an allowed shape
        double ratio = w / h;
        if (ratio < o->v[1].from)
            h = w / o->v[1].from;
        else if (ratio > o->v[1].to)
            w = h * o->v[1].to;
        x = (width - w) / 2;
        y = (height - h) / 2;
    }
    box[0] = x;
    box[1] = y;
    box[2] = x + w;
    box[3] = y + h;
    return true;
}

// ---- the walk ------------------------------------------------------------------------------------------
static dt_status flush_real(dt_canvas *c) {
    dt_image *image = c->image, src = *image;
    size_t n_bytes = (size_t)image->width * (size_t)image->height * (size_t)image->channels * sizeof *image->real;
    src.real = (float *)dt_buffer_reserve(c->scratch, n_bytes);
    if (!src.real) return dt_fail(DT_E_INTERNAL, "out of memory");
    memcpy(src.real, image->real, n_bytes); // resampling reads pixels that it has overwritten
    dt_pixels_warp_real(&src, &c->map, c->border, image->real);
    c->moves = c->interpolates = false;
    return DT_OK;
}

static dt_status augment_put(dt_canvas *c, const dt_pixel_step *s) {
    if (!c->steps) return dt_pixels_play(c->image, s, c->scratch);
    assert(c->n_steps < c->cap_steps);
    c->steps[c->n_steps++] = *s;
    return DT_OK;
}

dt_status dt_canvas_flush(dt_canvas *c) {
    if (!c->moves) return DT_OK;
    if (c->image->real) return flush_real(c);
    dt_pixel_step s = dt_map_step(&c->map, c->border, !c->interpolates);
    c->moves = c->interpolates = false;
    return augment_put(c, &s);
}

dt_status dt_canvas_step(dt_canvas *c, const dt_pixel_step *s) {
    DT_TRY(dt_canvas_flush(c));
    return augment_put(c, s);
}

dt_status dt_canvas_map(dt_canvas *c, const dt_map *n, dt_border border, bool interpolates) {
    bool any = border.fill == DT_FILL_ANY; // a flip looks at no border
    // maps of different borders are not one map
    if (c->moves && !any && c->border.fill != DT_FILL_ANY &&
        (c->border.fill != border.fill || (interpolates && c->interpolates && c->border.nearest != border.nearest)))
        DT_TRY(dt_canvas_flush(c));
    if (!c->moves) c->border = border;
    if (c->border.fill == DT_FILL_ANY) c->border.fill = border.fill;
    if (interpolates) c->border.nearest = border.nearest;
    c->map = c->moves ? dt_map_then(&c->map, n) : *n; // composed: pixels are resampled once, however many operations
    c->moves = true;
    c->interpolates = c->interpolates || interpolates;
    return DT_OK;
}

const char *dt_augment_of_bytes(const dt_augment *a) {
    for (int i = 0; i < a->n_ops; i++)
        if (!a->ops[i].kind->maps) return a->ops[i].kind->name;
    return NULL;
}

// Index of the mirror flip of dt_augment_mirrors, or -1. It is the first operation that happens. If the next
// one that happens would be composed with it, the flip stays where it is: composing rounds differently.
static int find_mirror(const dt_augment *a, const dt_augment_key *k) {
    int found = -1;
    for (int i = 0; i < a->n_ops; i++) {
        const dt_augment_op *o = &a->ops[i];
        dt_rng r = dt_augment_rng(o, k);
        if (!o->kind->run || !dt_augment_happens(o, &r)) continue;
        if (found >= 0) return o->kind->maps || o->kind->may_map ? -1 : found;
        if (!dt_augment_is_mirror(o, &r)) return -1;
        found = i;
    }
    return found;
}

bool dt_augment_mirrors(const dt_augment *a, const dt_augment_key *k) {
    return find_mirror(a, k) >= 0;
}

bool dt_augment_flips(const dt_augment *a, const dt_augment_key *k) {
    bool flips = false;
    for (int i = 0; i < a->n_ops; i++) {
        const dt_augment_op *o = &a->ops[i];
        dt_rng r = dt_augment_rng(o, k);
        if (o->kind->run && dt_augment_happens(o, &r)) flips ^= dt_augment_turns(o, &r); // two flips are none
    }
    return flips;
}

// Operations from `to_device` on leave steps. A map of earlier operations that still waits is composed with
// theirs, so the map does not depend on who resamples.
static dt_status augment_walk(const dt_augment *a, const dt_augment_key *k, dt_canvas *c, int to_device,
                              dt_pixel_step *steps) {
    int done = c->image->mirrored ? find_mirror(a, k) : -1;
    for (int i = 0; i < a->n_ops; i++) {
        if (i == to_device) c->steps = steps;
        if (i == done) continue; // the resize has mirrored already
        const dt_augment_op *o = &a->ops[i];
        dt_rng r = dt_augment_rng(o, k);
        if (c->image->real && !o->kind->maps)
            return dt_fail(DT_E_DATA, "augmentation %s works on bytes, this is an array of floats", o->kind->name);
        if (o->kind->run && dt_augment_happens(o, &r)) DT_TRY(o->kind->run(o, &r, c));
    }
    return dt_canvas_flush(c);
}

dt_status dt_augment_apply(const dt_augment *a, const dt_augment_key *k, dt_image *image, dt_buffer *scratch) {
    dt_canvas c = {.image = image, .scratch = scratch};
    return augment_walk(a, k, &c, -1, NULL);
}

// ---- on a device ---------------------------------------------------------------------------------------
// First operation of the longest tail of the list that steps can hold.
static int device_begin(const dt_augment *a) {
    int begin = a->n_ops;
    while (begin > 0 && a->ops[begin - 1].kind->run && dt_augment_has_steps(&a->ops[begin - 1])) begin--;
    return begin;
}

// One step more if operations of the host come before: their map may still wait.
int dt_augment_device_steps(const dt_augment *a) {
    int begin = device_begin(a), n = begin > 0;
    for (int i = begin; i < a->n_ops; i++) n += dt_augment_most_steps(&a->ops[i]);
    return begin < a->n_ops ? n : 0;
}

dt_status dt_augment_split(const dt_augment *a, const dt_augment_key *k, dt_image *image, dt_buffer *scratch,
                           dt_pixel_step *steps) {
    dt_canvas c = {.image = image, .scratch = scratch, .cap_steps = dt_augment_device_steps(a)};
    memset(steps, 0, (size_t)c.cap_steps * sizeof *steps); // all DT_PIXEL_END
    return augment_walk(a, k, &c, device_begin(a), steps);
}
