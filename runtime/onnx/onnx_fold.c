// onnx_fold.c: nodes of an ONNX file whose inputs are known: shapes and the arithmetic on them, computed once.
#include "onnx_reader.h"

#include <math.h>
#include <string.h>

enum { MAX_IN = 64 };

typedef struct fold {
    onnx_reader *r;
    const onnx_const *in[MAX_IN];
    int n_in;
    int64_t begin[ONNX_MAX_DIMS], step[ONNX_MAX_DIMS]; // of fold_picked's functions
} fold;

static bool is(const onnx_reader *r, const char *op) {
    return strcmp(r->node->op_type, op) == 0;
}

// Of a number that a file gives: what no size can be stays so.
static int64_t whole(double v) {
    return v > -9e15 && v < 9e15 ? (int64_t)v : INT64_MIN / 4;
}

static void give(onnx_reader *r, onnx_const *c) {
    onnx_slot *out = onnx_out(r, 0);
    if (!c || !out) return;
    out->kind = ONNX_CONST;
    out->c = c;
}

static void fold_shape(onnx_reader *r) {
    onnx_slot *s = onnx_in(r, 0);
    int64_t d[ONNX_MAX_DIMS];
    int n = 0;
    if (s && s->kind == ONNX_VALUE && s->v != DT_NONE) {
        const dt_shape *shape = &dt_info_of(r->g, s->v)->shape;
        for (; n < shape->n; n++) d[n] = shape->d[n];
    } else if (s && s->kind == ONNX_WEIGHT) {
        for (; n < (int)s->t->n_dims && n < ONNX_MAX_DIMS; n++) d[n] = s->t->dims[n];
    } else if (s && s->kind == ONNX_CONST) {
        for (; n < s->c->n; n++) d[n] = s->c->d[n];
    }
    int64_t begin = onnx_int(r, "start", 0), end = onnx_int(r, "end", n);
    begin += begin < 0 ? n : 0, end += end < 0 ? n : 0;
    if (begin < 0 || end > n || begin > end) {
        onnx_fail(r, "takes dimensions that there are not");
        return;
    }
    onnx_const *c = onnx_new_const(r, false, 1, &(int64_t){end - begin});
    for (int64_t i = begin; c && i < end; i++) c->v[i - begin] = (double)d[i];
    give(r, c);
}

static void fold_constant(onnx_reader *r) {
    const Onnx__AttributeProto *a = onnx_attribute(r->node, "value");
    if (a && a->t) {
        onnx_slot *out = onnx_out(r, 0);
        const int64_t count = onnx_count(r, a->t);
        if (count < 0 || !out) return;
        if (count > ONNX_MAX_FOLDED) { // a weight that has only its node's name
            out->kind = ONNX_WEIGHT, out->t = a->t;
            return;
        }
        give(r, onnx_read_const(r, a->t));
        return;
    }
    onnx_const *c = NULL;
    if ((a = onnx_attribute(r->node, "value_int"))) {
        c = onnx_new_const(r, false, 0, NULL);
        c->v[0] = (double)a->i;
    } else if ((a = onnx_attribute(r->node, "value_float"))) {
        c = onnx_new_const(r, true, 0, NULL);
        c->v[0] = (double)a->f;
    } else if ((a = onnx_attribute(r->node, "value_ints"))) {
        c = onnx_new_const(r, false, 1, &(int64_t){(int64_t)a->n_ints});
        for (size_t i = 0; c && i < a->n_ints; i++) c->v[i] = (double)a->ints[i];
    } else if ((a = onnx_attribute(r->node, "value_floats"))) {
        c = onnx_new_const(r, true, 1, &(int64_t){(int64_t)a->n_floats});
        for (size_t i = 0; c && i < a->n_floats; i++) c->v[i] = (double)a->floats[i];
    } else {
        onnx_fail(r, "a constant without a number");
    }
    give(r, c);
}

// The element of `c` for element i of a result of shape (n, d), as numpy broadcasts.
static int64_t broadcast_at(const onnx_const *c, int n, const int64_t *d, int64_t i) {
    int64_t at = 0, step = 1;
    for (int k = 0; k < n; k++) {
        const int dim = n - 1 - k, own = c->n - 1 - k;
        const int64_t here = i % d[dim];
        i /= d[dim];
        if (own < 0) continue;
        at += (c->d[own] == 1 ? 0 : here) * step;
        step *= c->d[own];
    }
    return at;
}

static double arithmetic(const onnx_reader *r, bool is_float, const double *x) {
    if (is(r, "Add")) return x[0] + x[1];
    if (is(r, "Sub")) return x[0] - x[1];
    if (is(r, "Mul")) return x[0] * x[1];
    if (is(r, "Equal")) return x[0] == x[1];
    if (is(r, "Where")) return x[0] != 0 ? x[1] : x[2];
    if (is(r, "Mod")) return x[1] == 0 ? 0 : x[0] - floor(x[0] / x[1]) * x[1];
    if (is(r, "Pow")) return pow(x[0], x[1]);
    if (is(r, "Sqrt")) return sqrt(x[0]);
    if (is(r, "Erf")) return erf(x[0]);
    if (is(r, "Max")) return fmax(x[0], x[1]);
    if (is(r, "Min")) return fmin(x[0], x[1]);
    if (is(r, "Not")) return x[0] == 0;
    if (is(r, "And")) return x[0] != 0 && x[1] != 0;
    if (is(r, "Or")) return x[0] != 0 || x[1] != 0;
    if (is(r, "Less")) return x[0] < x[1];
    if (is(r, "Greater")) return x[0] > x[1];
    if (is(r, "Neg")) return -x[0];
    if (is(r, "Floor")) return floor(x[0]);
    return is_float || x[1] == 0 ? x[0] / x[1] : trunc(x[0] / x[1]);
}

static void fold_elementwise(fold *f, int n_in) {
    onnx_reader *r = f->r;
    int n = 0;
    int64_t d[ONNX_MAX_DIMS];
    if (f->n_in != n_in) {
        onnx_fail(r, "has %d inputs, takes %d", f->n_in, n_in);
        return;
    }
    for (int i = 0; i < n_in; i++) n = f->in[i]->n > n ? f->in[i]->n : n;
    for (int k = 0; k < n; k++) {
        d[n - 1 - k] = 1;
        for (int i = 0; i < n_in; i++) {
            const int own = f->in[i]->n - 1 - k;
            const int64_t size = own < 0 ? 1 : f->in[i]->d[own];
            if (size != 1 && d[n - 1 - k] != 1 && size != d[n - 1 - k]) {
                onnx_fail(r, "shapes of constants do not match");
                return;
            }
            if (size != 1) d[n - 1 - k] = size;
        }
    }
    const bool is_float = f->in[n_in - 1]->is_float && !is(r, "Equal");
    onnx_const *c = onnx_new_const(r, is_float, n, d);
    for (int64_t i = 0; c && i < c->count; i++) {
        double x[3];
        for (int k = 0; k < n_in; k++) x[k] = f->in[k]->v[broadcast_at(f->in[k], n, d, i)];
        c->v[i] = arithmetic(r, is_float, x);
    }
    give(r, c);
}

// Elements of a result of shape (n, d), each from the place of x that `from` gives for its index.
static void fold_picked(fold *f, const onnx_const *x, int n, const int64_t *d,
                        int64_t (*from)(const fold *f, const onnx_const *x, const int64_t *at)) {
    onnx_const *c = onnx_new_const(f->r, x->is_float, n, d);
    for (int64_t i = 0; c && i < c->count; i++) {
        int64_t at[ONNX_MAX_DIMS] = {0}, rest = i;
        for (int k = n - 1; k >= 0; k--) at[k] = rest % d[k], rest /= d[k];
        c->v[i] = x->v[from(f, x, at)];
    }
    give(f->r, c);
}

static int fold_axis(fold *f, int64_t axis, int n) {
    axis += axis < 0 ? n : 0;
    if (axis >= 0 && axis < n) return (int)axis;
    onnx_fail(f->r, "has an axis that its input lacks");
    return -1;
}

static void fold_concat(fold *f) {
    int64_t d[ONNX_MAX_DIMS], outer = 1, row = 0;
    const int n = f->in[0]->n, axis = fold_axis(f, onnx_int(f->r, "axis", 0), n);
    if (axis < 0) return;
    memcpy(d, f->in[0]->d, sizeof d);
    for (int i = 1; i < f->n_in; i++) {
        bool fits = f->in[i]->n == n;
        for (int k = 0; fits && k < n; k++) fits = k == axis || f->in[i]->d[k] == d[k];
        if (!fits) {
            onnx_fail(f->r, "shapes of constants do not match");
            return;
        }
        d[axis] += f->in[i]->d[axis];
    }
    for (int k = 0; k < axis; k++) outer *= d[k];
    onnx_const *c = onnx_new_const(f->r, f->in[0]->is_float, n, d);
    for (int64_t o = 0; c && o < outer; o++)
        for (int i = 0; i < f->n_in; i++) {
            const int64_t run = f->in[i]->count / outer;
            if (run) memcpy(c->v + row, f->in[i]->v + o * run, (size_t)run * sizeof *c->v);
            row += run;
        }
    give(f->r, c);
}

static void fold_gather(fold *f) {
    const onnx_const *x = f->in[0], *at = f->in[1];
    const int axis = fold_axis(f, onnx_int(f->r, "axis", 0), x->n);
    int64_t d[ONNX_MAX_DIMS], inner = 1, outer = 1;
    int n = 0;
    if (axis < 0 || x->n - 1 + at->n > ONNX_MAX_DIMS) return;
    for (int k = 0; k < axis; k++) outer *= d[n++] = x->d[k];
    for (int k = 0; k < at->n; k++) d[n++] = at->d[k];
    for (int k = axis + 1; k < x->n; k++) inner *= d[n++] = x->d[k];
    onnx_const *c = onnx_new_const(f->r, x->is_float, n, d);
    for (int64_t o = 0; c && o < outer; o++)
        for (int64_t i = 0; c && i < at->count; i++) {
            const double k = at->v[i] + (at->v[i] < 0 ? (double)x->d[axis] : 0);
            if (!(k >= 0 && k < (double)x->d[axis])) {
                onnx_fail(f->r, "takes an element of a constant that is not there");
                return;
            }
            for (int64_t e = 0; e < inner; e++)
                c->v[(o * at->count + i) * inner + e] =
                    x->v[(o * x->d[axis] + (int64_t)k) * inner + e];
        }
    give(f->r, c);
}

static int64_t sliced_from(const fold *f, const onnx_const *x, const int64_t *at) {
    int64_t from = 0;
    for (int k = 0; k < x->n; k++) from = from * x->d[k] + f->begin[k] + at[k] * f->step[k];
    return from;
}
static void fold_slice(fold *f) {
    const onnx_const *x = f->in[0];
    int64_t d[ONNX_MAX_DIMS];
    for (int k = 0; k < x->n; k++) f->begin[k] = 0, f->step[k] = 1, d[k] = x->d[k];
    for (int64_t i = 0; f->n_in >= 3 && i < f->in[1]->count; i++) {
        const bool fits = f->in[2]->count == f->in[1]->count &&
                          (f->n_in < 4 || f->in[3]->count == f->in[1]->count) &&
                          (f->n_in < 5 || f->in[4]->count == f->in[1]->count);
        const int k = fits ? fold_axis(f, f->n_in < 4 ? i : whole(f->in[3]->v[i]), x->n) : -1;
        const double step = fits && f->n_in > 4 ? f->in[4]->v[i] : 1;
        if (k < 0 || step == 0) {
            onnx_fail(f->r, "slices a constant in a way that is not supported");
            return;
        }
        const double n = (double)x->d[k], low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
        double begin = f->in[1]->v[i], end = f->in[2]->v[i];
        begin = fmin(fmax(begin + (begin < 0 ? n : 0), low), high);
        end = fmin(fmax(end + (end < 0 ? n : 0), low), high);
        f->begin[k] = (int64_t)begin, f->step[k] = whole(step);
        d[k] = (int64_t)fmax(ceil((end - begin) / step), 0);
    }
    fold_picked(f, x, x->n, d, sliced_from);
}

static int64_t transposed_from(const fold *f, const onnx_const *x, const int64_t *at) {
    int64_t place[ONNX_MAX_DIMS], from = 0;
    for (int k = 0; k < x->n; k++) place[f->begin[k]] = at[k];
    for (int k = 0; k < x->n; k++) from = from * x->d[k] + place[k];
    return from;
}
static void fold_transpose(fold *f) {
    const onnx_const *x = f->in[0];
    const Onnx__AttributeProto *a = onnx_attribute(f->r->node, "perm");
    int64_t d[ONNX_MAX_DIMS];
    unsigned seen = 0;
    for (int k = 0; k < x->n; k++) {
        f->begin[k] = a && k < (int)a->n_ints ? a->ints[k] : x->n - 1 - k;
        if (f->begin[k] >= 0 && f->begin[k] < x->n) seen |= 1u << f->begin[k];
    }
    if (seen != (1u << x->n) - 1) {
        onnx_fail(f->r, "has an order that is none");
        return;
    }
    for (int k = 0; k < x->n; k++) d[k] = x->d[f->begin[k]];
    fold_picked(f, x, x->n, d, transposed_from);
}

static int64_t expanded_from(const fold *f, const onnx_const *x, const int64_t *at) {
    int64_t from = 0;
    for (int k = 0; k < x->n; k++) from = from * x->d[k] + (x->d[k] == 1 ? 0 : at[f->begin[0] + k]);
    return from;
}
static void fold_expand(fold *f) {
    const onnx_const *x = f->in[0], *to = f->n_in > 1 ? f->in[1] : NULL;
    int64_t d[ONNX_MAX_DIMS];
    const int n = !to || x->n > to->count ? x->n : (int)to->count;
    if (n > ONNX_MAX_DIMS) return;
    f->begin[0] = n - x->n;
    for (int k = 0; k < n; k++) {
        const int own = k - (n - x->n), other = to ? k - (n - (int)to->count) : -1;
        const int64_t a = own < 0 ? 1 : x->d[own], b = other < 0 ? 1 : whole(to->v[other]);
        if (a != b && a != 1 && b != 1) {
            onnx_fail(f->r, "shapes of constants do not match");
            return;
        }
        d[k] = a == 1 ? b : a;
    }
    fold_picked(f, x, n, d, expanded_from);
}

static void fold_scatter(fold *f) {
    const onnx_const *x = f->in[0], *at = f->in[1], *with = f->in[2];
    const int depth = at->n > 0 ? (int)at->d[at->n - 1] : 0;
    int64_t inner = 1;
    for (int k = depth; k < x->n; k++) inner *= x->d[k];
    onnx_const *c = onnx_new_const(f->r, x->is_float, x->n, x->d);
    if (c) memcpy(c->v, x->v, (size_t)x->count * sizeof *c->v);
    bool fits = c && depth > 0 && depth <= x->n && with->count == at->count / depth * inner;
    for (int64_t i = 0; fits && i < at->count / depth; i++) {
        int64_t to = 0;
        for (int k = 0; k < depth; k++) {
            const int64_t p = whole(at->v[i * depth + k]);
            fits &= p >= -x->d[k] && p < x->d[k];
            to = to * x->d[k] + p + (p < 0 ? x->d[k] : 0);
        }
        for (int64_t e = 0; fits && e < inner; e++) c->v[to * inner + e] = with->v[i * inner + e];
    }
    if (!fits) onnx_fail(f->r, "writes to elements of a constant that are not there");
    give(f->r, fits ? c : NULL);
}

static void fold_range(fold *f) {
    const double begin = f->in[0]->count ? f->in[0]->v[0] : 0;
    const double end = f->in[1]->count ? f->in[1]->v[0] : 0,
                 step = f->in[2]->count ? f->in[2]->v[0] : 1;
    const double n = step == 0 ? -1 : ceil((end - begin) / step);
    onnx_const *c = NULL;
    if (n > ONNX_MAX_FOLDED || step == 0)
        onnx_fail(f->r, "a range of more than %d elements", ONNX_MAX_FOLDED);
    else
        c = onnx_new_const(f->r, f->in[0]->is_float, 1, &(int64_t){n < 0 ? 0 : (int64_t)n});
    for (int64_t i = 0; c && i < c->count; i++) c->v[i] = begin + (double)i * step;
    give(f->r, c);
}

// The same elements, in another shape.
static void fold_reshaped(fold *f, int n, const int64_t *d) {
    const onnx_const *x = f->in[0];
    onnx_const *c = onnx_new_const(f->r, x->is_float, n, d);
    if (c && c->count == x->count)
        memcpy(c->v, x->v, (size_t)x->count * sizeof *c->v);
    else
        onnx_fail(f->r, "gives a constant a shape that is not supported");
    give(f->r, c);
}

static void fold_cast(fold *f) {
    const onnx_const *x = f->in[0];
    const int64_t to = onnx_int(f->r, "to", 0);
    const bool is_float =
        to == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT || to == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE;
    onnx_const *c = onnx_new_const(f->r, is_float, x->n, x->d);
    for (int64_t i = 0; c && i < c->count; i++) c->v[i] = is_float ? x->v[i] : trunc(x->v[i]);
    give(f->r, c);
}

// Axes that Squeeze and Unsqueeze name, by position; of n dimensions.
static unsigned fold_axes(fold *f, int n) {
    const onnx_const *axes = f->n_in > 1 ? f->in[1] : NULL;
    unsigned set = 0;
    for (int64_t i = 0; axes && i < axes->count; i++) {
        const int axis = fold_axis(f, whole(axes->v[i]), n);
        if (axis >= 0) set |= 1u << axis;
    }
    return set;
}
static void fold_unsqueeze(fold *f) {
    const onnx_const *x = f->in[0];
    int64_t d[ONNX_MAX_DIMS];
    const int n = x->n + (f->n_in > 1 ? (int)f->in[1]->count : 0);
    if (n > ONNX_MAX_DIMS) {
        onnx_fail(f->r, "gives a constant a shape that is not supported");
        return;
    }
    const unsigned ones = fold_axes(f, n);
    for (int i = 0, from = 0; i < n; i++) d[i] = ones >> i & 1 || from >= x->n ? 1 : x->d[from++];
    fold_reshaped(f, n, d);
}
static void fold_squeeze(fold *f) {
    const onnx_const *x = f->in[0];
    int64_t d[ONNX_MAX_DIMS];
    int n = 0;
    const unsigned gone = fold_axes(f, x->n);
    for (int i = 0; i < x->n; i++)
        if (f->n_in > 1 ? !(gone >> i & 1) : x->d[i] != 1) d[n++] = x->d[i];
    fold_reshaped(f, n, d);
}
static void fold_reshape(fold *f) {
    const onnx_const *x = f->in[0], *to = f->n_in > 1 ? f->in[1] : NULL;
    int64_t d[ONNX_MAX_DIMS], known_count = 1;
    int open = -1;
    if (!to || to->count > ONNX_MAX_DIMS) {
        onnx_fail(f->r, "gives a constant a shape that is not supported");
        return;
    }
    for (int i = 0; i < (int)to->count; i++) {
        d[i] = whole(to->v[i]);
        if (d[i] == 0 && i < x->n) d[i] = x->d[i];
        if (d[i] == -1) open = i;
        if (d[i] > 0 && d[i] <= x->count && known_count <= x->count) known_count *= d[i];
    }
    if (open >= 0) d[open] = x->count / known_count;
    fold_reshaped(f, (int)to->count, d);
}

static void fold_filled(fold *f) {
    const onnx_const *x = f->in[0];
    const Onnx__AttributeProto *a = onnx_attribute(f->r->node, "value");
    int64_t d[ONNX_MAX_DIMS];
    onnx_const *with = a && a->t ? onnx_read_const(f->r, a->t) : NULL;
    if (x->count > ONNX_MAX_DIMS || x->n != 1) {
        onnx_fail(f->r, "makes a constant of more than %d dimensions", ONNX_MAX_DIMS);
        return;
    }
    for (int64_t i = 0; i < x->count; i++) d[i] = (int64_t)fmin(fmax(x->v[i], -1), 1e15);
    onnx_const *c = onnx_new_const(f->r, with ? with->is_float : true, (int)x->count, d);
    for (int64_t i = 0; c && i < c->count; i++) c->v[i] = with && with->count > 0 ? with->v[0] : 0;
    give(f->r, c);
}

// Whether all inputs are known: numbers are, weights are not, unless only constants have the op.
static bool known(fold *f, bool weights) {
    onnx_reader *r = f->r;
    if (r->node->n_input > MAX_IN) return false;
    for (size_t i = 0; i < r->node->n_input; i++) {
        onnx_slot *s = onnx_in(r, (int)i);
        if (!s) continue;
        if (s->kind == ONNX_VALUE) return false;
        const onnx_const *c = onnx_as_const(r, s);
        if (!c) return false;
        if (s->kind == ONNX_WEIGHT && c->is_float && c->count > 1 && !weights) return false;
        f->in[f->n_in++] = c;
    }
    return f->n_in > 0;
}

// As the first input's; the second gives the type only.
static bool fold_cast_like(fold *f) {
    onnx_slot *s = onnx_in(f->r, 0), *like = onnx_in(f->r, 1);
    const onnx_const *x = s && s->kind == ONNX_CONST ? s->c : NULL;
    if (!x || !like) return false;
    const bool is_float = like->kind != ONNX_CONST || like->c->is_float;
    onnx_const *c = onnx_new_const(f->r, is_float, x->n, x->d);
    for (int64_t i = 0; c && i < c->count; i++) c->v[i] = is_float ? x->v[i] : trunc(x->v[i]);
    give(f->r, c);
    return true;
}

static const struct {
    const char *op;
    int n_in; // of an elementwise one; 0: any
    void (*fn)(fold *f);
    bool weights; // only constants have it: initialisers are such
} folds[] = {
    {"Add", 2},
    {"Sub", 2},
    {"Mul", 2},
    {"Div", 2},
    {"Mod", 2},
    {"Pow", 2},
    {"Max", 2},
    {"Min", 2},
    {"Equal", 2, NULL, true},
    {"And", 2, NULL, true},
    {"Or", 2, NULL, true},
    {"Less", 2, NULL, true},
    {"Greater", 2, NULL, true},
    {"Not", 1, NULL, true},
    {"Where", 3},
    {"Sqrt", 1},
    {"Erf", 1},
    {"Neg", 1},
    {"Floor", 1},
    {"Cast", 0, fold_cast},
    {"Concat", 0, fold_concat},
    {"ConstantOfShape", 0, fold_filled},
    {"Expand", 0, fold_expand},
    {"Gather", 0, fold_gather},
    {"Range", 0, fold_range},
    {"Reshape", 0, fold_reshape},
    {"ScatterND", 0, fold_scatter, true},
    {"Slice", 0, fold_slice},
    {"Squeeze", 0, fold_squeeze},
    {"Transpose", 0, fold_transpose},
    {"Unsqueeze", 0, fold_unsqueeze},
};

bool onnx_fold(onnx_reader *r) {
    fold f = {.r = r};
    size_t k = 0;
    if (is(r, "Shape")) return fold_shape(r), true;
    if (is(r, "Constant")) return fold_constant(r), true;
    if (r->g->status != DT_OK) return true;
    if (is(r, "CastLike")) return fold_cast_like(&f);
    while (k < sizeof folds / sizeof *folds && !is(r, folds[k].op)) k++;
    const bool listed = k < sizeof folds / sizeof *folds;
    if (!known(&f, listed && folds[k].weights)) return r->g->status != DT_OK;
    const bool one = f.n_in == 1 && (is(r, "Max") || is(r, "Min"));
    if (is(r, "Identity") || one) return give(r, (onnx_const *)f.in[0]), true;
    if (!listed) return false;
    if ((is(r, "Gather") && f.n_in != 2) || (is(r, "Range") && f.n_in != 3) ||
        (is(r, "ScatterND") && f.n_in != 3))
        return false;
    if (folds[k].fn)
        folds[k].fn(&f);
    else
        fold_elementwise(&f, folds[k].n_in);
    return true;
}
