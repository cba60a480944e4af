// onnx_fold.c: nodes of an ONNX file whose inputs are known: shapes and the arithmetic on them, computed once.
#include "onnx_reader.h"

#include <math.h>
#include <string.h>

enum { MAX_IN = 64 };

typedef struct fold {
    onnx_reader *r;
    const onnx_const *in[MAX_IN];
    int n_in;
} fold;

static bool is(const onnx_reader *r, const char *op) {
    return strcmp(r->node->op_type, op) == 0;
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

static void fold_concat(fold *f) {
    int64_t total = 0, at = 0;
    for (int i = 0; i < f->n_in; i++) {
        if (f->in[i]->n != 1) {
            onnx_fail(f->r, "joins constants of more than one dimension");
            return;
        }
        total += f->in[i]->count;
    }
    onnx_const *c = onnx_new_const(f->r, f->n_in > 0 && f->in[0]->is_float, 1, &total);
    for (int i = 0; c && i < f->n_in; i++) {
        memcpy(c->v + at, f->in[i]->v, (size_t)f->in[i]->count * sizeof *c->v);
        at += f->in[i]->count;
    }
    give(f->r, c);
}

static void fold_gather(fold *f) {
    const onnx_const *x = f->in[0], *at = f->in[1];
    onnx_const *c = x->n == 1 ? onnx_new_const(f->r, x->is_float, at->n, at->d) : NULL;
    for (int64_t i = 0; c && i < c->count; i++) {
        const double k = at->v[i] < 0 ? at->v[i] + (double)x->count : at->v[i];
        if (!(k >= 0 && k < (double)x->count))
            c = NULL;
        else
            c->v[i] = x->v[(int64_t)k];
    }
    if (!c) onnx_fail(f->r, "takes an element of a constant that is not there");
    give(f->r, c);
}

static void fold_slice(fold *f) {
    const onnx_const *x = f->in[0];
    const double n = (double)x->count;
    const bool plain = x->n == 1 && f->n_in >= 3 && f->in[1]->count == 1 && f->in[2]->count == 1 &&
                       (f->n_in < 5 || (f->in[4]->count == 1 && f->in[4]->v[0] == 1));
    if (!plain) {
        onnx_fail(f->r, "slices a constant in a way that is not supported");
        return;
    }
    double begin = f->in[1]->v[0], end = f->in[2]->v[0];
    begin = fmin(fmax(begin < 0 ? begin + n : begin, 0), n);
    end = fmin(fmax(end < 0 ? end + n : end, begin), n);
    onnx_const *c = onnx_new_const(f->r, x->is_float, 1, &(int64_t){(int64_t)(end - begin)});
    for (int64_t i = 0; c && i < c->count; i++) c->v[i] = x->v[(int64_t)begin + i];
    give(f->r, c);
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

static void fold_unsqueeze(fold *f) {
    const onnx_const *x = f->in[0], *axes = f->n_in > 1 ? f->in[1] : NULL;
    int64_t d[ONNX_MAX_DIMS];
    const int n = x->n + (axes ? (int)axes->count : 0);
    if (!axes || axes->count > ONNX_MAX_DIMS || n > ONNX_MAX_DIMS) {
        onnx_fail(f->r, "gives a constant a shape that is not supported");
        return;
    }
    for (int i = 0, from = 0; i < n; i++) {
        bool one = false;
        for (int64_t k = 0; k < axes->count; k++) one |= axes->v[k] == i || axes->v[k] + n == i;
        d[i] = one || from >= x->n ? 1 : x->d[from++];
    }
    fold_reshaped(f, n, d);
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

// Whether all inputs are known: numbers are, weights are not.
static bool known(fold *f) {
    onnx_reader *r = f->r;
    if (r->node->n_input > MAX_IN) return false;
    for (size_t i = 0; i < r->node->n_input; i++) {
        onnx_slot *s = onnx_in(r, (int)i);
        if (!s) continue;
        if (s->kind == ONNX_VALUE) return false;
        const onnx_const *c = onnx_as_const(r, s);
        if (!c) return false;
        if (s->kind == ONNX_WEIGHT && c->is_float && c->count > 1) return false;
        f->in[f->n_in++] = c;
    }
    return f->n_in > 0;
}

bool onnx_fold(onnx_reader *r) {
    fold f = {.r = r};
    if (is(r, "Shape")) return fold_shape(r), true;
    if (is(r, "Constant")) return fold_constant(r), true;
    if (r->g->status != DT_OK || !known(&f)) return r->g->status != DT_OK;
    if (is(r, "Add") || is(r, "Sub") || is(r, "Mul") || is(r, "Div") || is(r, "Mod") ||
        is(r, "Equal") || is(r, "Pow"))
        return fold_elementwise(&f, 2), true;
    if (is(r, "Range") && f.n_in == 3) return fold_range(&f), true;
    if (is(r, "Where")) return fold_elementwise(&f, 3), true;
    if (is(r, "Sqrt") || is(r, "Erf")) return fold_elementwise(&f, 1), true;
    if (is(r, "Concat")) return fold_concat(&f), true;
    if (is(r, "Gather") && f.n_in == 2) return fold_gather(&f), true;
    if (is(r, "Slice")) return fold_slice(&f), true;
    if (is(r, "ConstantOfShape")) return fold_filled(&f), true;
    if (is(r, "Squeeze") && f.in[0]->n <= 1)
        return fold_reshaped(&f, f.in[0]->count == 1 ? 0 : 1, &f.in[0]->count), true;
    if (is(r, "Cast")) return fold_cast(&f), true;
    if (is(r, "Identity") || is(r, "Expand")) return give(r, (onnx_const *)f.in[0]), true;
    if (is(r, "Unsqueeze")) return fold_unsqueeze(&f), true;
    if (f.in[0]->n <= 1 && is(r, "Reshape")) return fold_reshaped(&f, 1, &f.in[0]->count), true;
    return false;
}
