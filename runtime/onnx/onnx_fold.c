// onnx_fold.c: nodes of an ONNX file whose inputs are known, that is shapes and the arithmetic on them, are computed
// once (constant folding); and groups of nodes that are one op here.

#include "onnx_reader.h"

#include <math.h>
#include <string.h>

enum { MAX_IN = 64 }; // of a Concat

typedef struct fold {
    dt_onnx_importer *r;
    const dt_onnx_const *in[MAX_IN];
    int n_in;
} fold;

static bool is(const dt_onnx_importer *r, const char *op) {
    return strcmp(r->node->op_type, op) == 0;
}

static void onnx_fold_give(dt_onnx_importer *r, dt_onnx_const *c) {
    dt_onnx_slot *out = dt_onnx_out(r, 0);
    if (!c || !out) return; // c NULL: the graph has failed
    out->kind = ONNX_CONST;
    out->c = c;
}

static void fold_shape(dt_onnx_importer *r) {
    const dt_onnx_slot *s = dt_onnx_in(r, 0);
    dt_shape of = {0}; // of an absent input: no dimensions
    if (s && s->kind == ONNX_VALUE)
        of = dt_onnx_shape(r, s->v); // with this graph's number of samples
    else if (s && s->kind == ONNX_CONST)
        of = s->c->shape;
    else if (s && s->kind == ONNX_WEIGHT && dt_onnx_count(r, s->t) >= 0)
        of = dt_onnx_tensor_shape(s->t);
    int64_t begin = dt_onnx_read_int(r, "start", 0), end = dt_onnx_read_int(r, "end", of.n); // since set 15
    begin += begin < 0 ? of.n : 0, end += end < 0 ? of.n : 0;                                // from the end
    if (begin < 0 || end > of.n || begin > end) {
        dt_onnx_fail(r, "takes dimensions that there are not");
        return;
    }
    const dt_shape one = dt_shape1(end - begin);
    dt_onnx_const *c = dt_onnx_new_const(r, false, &one);
    for (int64_t i = begin; c && i < end; i++) c->v[i - begin] = (double)of.d[i];
    onnx_fold_give(r, c);
}

static void fold_constant(dt_onnx_importer *r) {
    const Onnx__AttributeProto *a = dt_onnx_attribute(r->node, "value");
    if (a && a->t) {
        dt_onnx_slot *out = dt_onnx_out(r, 0);
        const int64_t count = dt_onnx_count(r, a->t);
        if (count < 0 || !out) return;
        if (count > ONNX_MAX_FOLDED) { // a weight that has only its node's name
            out->kind = ONNX_WEIGHT, out->t = a->t;
            return;
        }
        onnx_fold_give(r, dt_onnx_read_const(r, a->t));
        return;
    }
    // of the other forms since set 12 strings and sparse tensors are not read
    dt_shape shape = dt_shape0();
    dt_onnx_const *c = NULL;
    if ((a = dt_onnx_attribute(r->node, "value_int"))) {
        c = dt_onnx_new_const(r, false, &shape);
        c->v[0] = (double)a->i;
    } else if ((a = dt_onnx_attribute(r->node, "value_float"))) {
        c = dt_onnx_new_const(r, true, &shape);
        c->v[0] = (double)a->f;
    } else if ((a = dt_onnx_attribute(r->node, "value_ints"))) {
        shape = dt_shape1((int64_t)a->n_ints);
        c = dt_onnx_new_const(r, false, &shape);
        for (size_t i = 0; c && i < a->n_ints; i++) c->v[i] = (double)a->ints[i];
    } else if ((a = dt_onnx_attribute(r->node, "value_floats"))) {
        shape = dt_shape1((int64_t)a->n_floats);
        c = dt_onnx_new_const(r, true, &shape);
        for (size_t i = 0; c && i < a->n_floats; i++) c->v[i] = (double)a->floats[i];
    } else {
        dt_onnx_fail(r, "a constant without a number");
    }
    onnx_fold_give(r, c);
}

// ---- elements --------------------------------------------------------------------------------------
// Elements of c for one along each dimension of a shape that c broadcasts to.
static void steps_of(const dt_onnx_const *c, const dt_shape *to, int64_t *step) {
    int64_t at = 1;
    for (int i = 1; i <= to->n; i++) {
        // a dimension of one, or one that c lacks, is repeated: its step is 0
        const int64_t size = i > c->shape.n ? 1 : c->shape.d[c->shape.n - i];
        step[to->n - i] = size == 1 ? 0 : at;
        at *= size;
    }
}
// Where element i of this shape lies.
static int64_t onnx_fold_place_of(const dt_shape *s, const int64_t *step, int64_t i) {
    int64_t at = 0;
    for (int k = s->n - 1; k >= 0; i /= s->d[k--]) at += i % s->d[k] * step[k]; // row-major
    return at;
}

// A result of this shape, of elements of x: the first, and a step along each dimension.
static void fold_picked(fold *f, const dt_shape *shape, int64_t first, const int64_t *step) {
    const dt_onnx_const *x = f->in[0];
    dt_onnx_const *c = dt_onnx_new_const(f->r, x->is_float, shape); // bounded there
    for (int64_t i = 0; c && i < c->count; i++) c->v[i] = x->v[first + onnx_fold_place_of(shape, step, i)];
    onnx_fold_give(f->r, c);
}

// Computed for each element x of the inputs: name, inputs, whether only constants have the op (initialisers are such).
#define ELEMENTWISE                                                                                                    \
    OP(Add, 2, false, x[0] + x[1])                                                                                     \
    OP(Sub, 2, false, x[0] - x[1])                                                                                     \
    OP(Mul, 2, false, x[0] * x[1])                                                                                     \
    OP(Div, 2, false, is_float || x[1] == 0 ? x[0] / x[1] : trunc(x[0] / x[1]))                                        \
    OP(Mod, 2, false, x[1] == 0 ? 0 : x[0] - floor(x[0] / x[1]) * x[1])                                                \
    OP(Pow, 2, false, pow(x[0], x[1]))                                                                                 \
    OP(Max, 2, false, fmax(x[0], x[1]))                                                                                \
    OP(Min, 2, false, fmin(x[0], x[1]))                                                                                \
    OP(Equal, 2, true, x[0] == x[1])                                                                                   \
    OP(And, 2, true, x[0] != 0 && x[1] != 0)                                                                           \
    OP(Or, 2, true, x[0] != 0 || x[1] != 0)                                                                            \
    OP(Less, 2, true, x[0] < x[1])                                                                                     \
    OP(Greater, 2, true, x[0] > x[1])                                                                                  \
    OP(LessOrEqual, 2, true, x[0] <= x[1])                                                                             \
    OP(GreaterOrEqual, 2, true, x[0] >= x[1])                                                                          \
    OP(Not, 1, true, x[0] == 0)                                                                                        \
    OP(Where, 3, false, x[0] != 0 ? x[1] : x[2])                                                                       \
    OP(Sqrt, 1, false, sqrt(x[0]))                                                                                     \
    OP(Erf, 1, false, erf(x[0]))                                                                                       \
    OP(Neg, 1, false, -x[0])                                                                                           \
    OP(Floor, 1, false, floor(x[0]))
#define OP(name, n_in, weights, value)                                                                                 \
    static double of_##name(const double *x, bool is_float) {                                                          \
        return value;                                                                                                  \
    }
ELEMENTWISE
#undef OP

static void fold_elementwise(fold *f, int n_in, double (*value)(const double *x, bool is_float)) {
    dt_onnx_importer *r = f->r;
    dt_shape shape = dt_shape0();
    int64_t step[3][DT_MAX_DIMS];
    if (f->n_in != n_in) { // Max and Min of three or more tensors, too
        dt_onnx_fail(r, "has %d inputs, takes %d", f->n_in, n_in);
        return;
    }
    for (int i = 0; i < n_in; i++)
        if (!dt_onnx_broadcast(r, &shape, &f->in[i]->shape, &shape)) return;
    for (int i = 0; i < n_in; i++) steps_of(f->in[i], &shape, step[i]); // each input's own repeats
    // of Where the last is a value, the first a condition
    const bool is_float = f->in[n_in - 1]->is_float && !is(r, "Equal");
    dt_onnx_const *c = dt_onnx_new_const(r, is_float, &shape);
    for (int64_t i = 0; c && i < c->count; i++) {
        double x[3];
        for (int k = 0; k < n_in; k++) x[k] = f->in[k]->v[onnx_fold_place_of(&shape, step[k], i)];
        c->v[i] = value(x, is_float); // integers are doubles here, exact up to 2^53
    }
    onnx_fold_give(r, c);
}

// ---- the others --------------------------------------------------------------------------------------
static void fold_concat(fold *f) {
    dt_onnx_importer *r = f->r;
    dt_shape s = f->in[0]->shape;
    int64_t outer = 1, row = 0;
    const int64_t axis = dt_onnx_axis(r, dt_onnx_read_int(r, "axis", 0), s.n);
    if (r->g->status != DT_OK) return;
    // sizes along the axis add up, the others are equal
    for (int i = 1; i < f->n_in; i++) {
        const dt_shape *other = &f->in[i]->shape;
        bool fits = other->n == s.n;
        for (int k = 0; fits && k < s.n; k++) fits = k == axis || other->d[k] == s.d[k];
        if (!fits) {
            dt_onnx_fail(r, "shapes of constants do not match");
            return;
        }
        s.d[axis] += other->d[axis];
    }
    for (int k = 0; k < axis; k++) outer *= s.d[k]; // rows that are made of a run of each input
    dt_onnx_const *c = dt_onnx_new_const(r, f->in[0]->is_float, &s);
    for (int64_t o = 0; c && o < outer; o++)
        for (int i = 0; i < f->n_in; i++) {
            const int64_t run = f->in[i]->count / outer; // outer 0: c has no elements, the loop is not entered
            if (run) memcpy(c->v + row, f->in[i]->v + o * run, (size_t)run * sizeof *c->v);
            row += run;
        }
    onnx_fold_give(r, c);
}

static void fold_gather(fold *f) {
    const dt_onnx_const *x = f->in[0], *at = f->in[1];
    const int64_t axis = dt_onnx_axis(f->r, dt_onnx_read_int(f->r, "axis", 0), x->shape.n);
    dt_shape s = {0};
    int64_t inner = 1, outer = 1;
    if (f->r->g->status != DT_OK) return;
    if (x->shape.n - 1 + at->shape.n > DT_MAX_DIMS) { // the indices' shape takes the place of the axis
        dt_onnx_fail(f->r, "has more than %d dimensions", DT_MAX_DIMS);
        return;
    }
    for (int k = 0; k < axis; k++) outer *= s.d[s.n++] = x->shape.d[k];
    for (int k = 0; k < at->shape.n; k++) s.d[s.n++] = at->shape.d[k];
    for (int k = (int)axis + 1; k < x->shape.n; k++) inner *= s.d[s.n++] = x->shape.d[k];
    const int64_t size = x->shape.d[axis];
    dt_onnx_const *c = dt_onnx_new_const(f->r, x->is_float, &s);
    for (int64_t o = 0; c && o < outer; o++)
        for (int64_t i = 0; c && i < at->count; i++) {
            const double k = at->v[i] + (at->v[i] < 0 ? (double)size : 0); // from the end
            if (!(k >= 0 && k < (double)size)) {
                dt_onnx_fail(f->r, "takes an element of a constant that is not there");
                return;
            }
            for (int64_t e = 0; e < inner; e++)
                c->v[(o * at->count + i) * inner + e] = x->v[(o * size + (int64_t)k) * inner + e];
        }
    onnx_fold_give(f->r, c);
}

static void fold_slice(fold *f) {
    const dt_onnx_const *x = f->in[0];
    int64_t begin[DT_MAX_DIMS], by[DT_MAX_DIMS], step[DT_MAX_DIMS], first = 0;
    dt_shape s;
    if (!dt_onnx_sliced(f->r, &x->shape, begin, by, &s)) return; // begins and steps are within x, also backwards
    steps_of(x, &x->shape, step);
    for (int k = 0; k < s.n; k++) first += begin[k] * step[k], step[k] *= by[k];
    fold_picked(f, &s, first, step);
}

static void fold_transpose(fold *f) {
    const dt_onnx_const *x = f->in[0];
    int order[DT_MAX_DIMS];
    int64_t own[DT_MAX_DIMS], step[DT_MAX_DIMS];
    dt_shape s = x->shape;
    if (!dt_onnx_order(f->r, s.n, order)) return;
    steps_of(x, &x->shape, own);
    for (int k = 0; k < s.n; k++) s.d[k] = x->shape.d[order[k]], step[k] = own[order[k]]; // no copy in between
    fold_picked(f, &s, 0, step);
}

static void fold_expand(fold *f) {
    int64_t step[DT_MAX_DIMS];
    dt_shape s;
    if (!dt_onnx_expanded(f->r, &f->in[0]->shape, &s)) return;
    steps_of(f->in[0], &s, step); // step 0 where x is repeated
    fold_picked(f, &s, 0, step);
}

// The triangle of the last two dimensions up to, or from, diagonal k.
static void fold_trilu(fold *f) {
    const dt_onnx_const *x = f->in[0];
    const int n = x->shape.n;
    const double k = f->n_in > 1 && f->in[1]->count ? f->in[1]->v[0] : 0;
    const bool upper = dt_onnx_read_int(f->r, "upper", 1) != 0;
    dt_onnx_const *c = n < 2 ? NULL : dt_onnx_new_const(f->r, x->is_float, &x->shape);
    if (n < 2) dt_onnx_fail(f->r, "takes a triangle of what is no matrix");
    for (int64_t i = 0; c && i < c->count; i++) {
        const int64_t cols = x->shape.d[n - 1], row = i / cols % x->shape.d[n - 2];
        const double off = (double)(i % cols - row) - k; // columns right of diagonal k
        c->v[i] = (upper ? off >= 0 : off <= 0) ? x->v[i] : 0;
    }
    onnx_fold_give(f->r, c);
}

// ScatterND: rows of `with` replace those of x that the last dimension of `at` names.
static void fold_scatter(fold *f) {
    const dt_onnx_const *x = f->in[0], *at = f->in[1], *with = f->in[2];
    const dt_shape *s = &x->shape;
    const int depth = at->shape.n > 0 ? (int)at->shape.d[at->shape.n - 1] : 0;
    int64_t inner = 1;
    for (int k = depth; k < s->n; k++) inner *= s->d[k]; // elements of a row
    dt_onnx_const *c = dt_onnx_new_const(f->r, x->is_float, s);
    if (c) memcpy(c->v, x->v, (size_t)x->count * sizeof *c->v);
    // `at` has count / depth rows, `with` one run of inner elements for each
    bool fits = c && depth > 0 && depth <= s->n && with->count == at->count / depth * inner;
    for (int64_t i = 0; fits && i < at->count / depth; i++) {
        int64_t to = 0;
        for (int k = 0; fits && k < depth; k++) {
            const double p = at->v[i * depth + k], size = (double)s->d[k];
            fits = p >= -size && p < size; // also false of NaN
            if (fits) to = to * s->d[k] + (int64_t)(p < 0 ? p + size : p);
        }
        for (int64_t e = 0; fits && e < inner; e++) c->v[to * inner + e] = with->v[i * inner + e];
    }
    if (!fits) dt_onnx_fail(f->r, "writes to elements of a constant that are not there");
    onnx_fold_give(f->r, fits ? c : NULL);
}

static void fold_range(fold *f) {
    const double begin = f->in[0]->count ? f->in[0]->v[0] : 0;
    const double end = f->in[1]->count ? f->in[1]->v[0] : 0, step = f->in[2]->count ? f->in[2]->v[0] : 1;
    const double n = step == 0 ? -1 : ceil((end - begin) / step); // as numpy.arange
    dt_onnx_const *c = NULL;
    if (!(n <= ONNX_MAX_FOLDED) || step == 0) // n may be no number
        dt_onnx_fail(f->r, "a range of more than %d elements", ONNX_MAX_FOLDED);
    else
        c = dt_onnx_new_const(f->r, f->in[0]->is_float, &(dt_shape){1, {n < 0 ? 0 : (int64_t)n}});
    for (int64_t i = 0; c && i < c->count; i++) c->v[i] = begin + (double)i * step; // no sum that drifts
    onnx_fold_give(f->r, c);
}

static void fold_reshaped(fold *f) {
    const dt_onnx_const *x = f->in[0];
    dt_shape s;
    if (!dt_onnx_reshaped(f->r, &x->shape, &s)) return;
    dt_onnx_const *c = dt_onnx_new_const(f->r, x->is_float, &s);
    if (c && c->count == x->count) // -1 may have left a remainder
        memcpy(c->v, x->v, (size_t)x->count * sizeof *c->v);
    else
        dt_onnx_fail(f->r, "gives a constant a shape that is not supported");
    onnx_fold_give(f->r, c);
}

static void fold_to(fold *f, bool is_float) {
    const dt_onnx_const *x = f->in[0];
    dt_onnx_const *c = dt_onnx_new_const(f->r, is_float, &x->shape);
    for (int64_t i = 0; c && i < c->count; i++) c->v[i] = is_float ? x->v[i] : trunc(x->v[i]); // as C casts; bool too
    onnx_fold_give(f->r, c);
}
static void fold_cast(fold *f) {
    const int64_t to = dt_onnx_read_int(f->r, "to", 0);
    fold_to(f, to == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT || to == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE);
}
// The second input gives the type only.
static bool fold_cast_like(fold *f) {
    const dt_onnx_slot *s = dt_onnx_in(f->r, 0), *like = dt_onnx_in(f->r, 1);
    if (!s || s->kind != ONNX_CONST || !like) return false;
    f->in[0] = s->c;
    // weights and values are floats
    fold_to(f, like->kind != ONNX_CONST || like->c->is_float);
    return true;
}

static void fold_filled(fold *f) {
    const dt_onnx_const *x = f->in[0];
    const Onnx__AttributeProto *a = dt_onnx_attribute(f->r->node, "value");
    // x is the shape; read below, once its length is bounded
    dt_shape s = {.n = (int)x->count};
    dt_onnx_const *with = a && a->t ? dt_onnx_read_const(f->r, a->t) : NULL;
    if (x->count > DT_MAX_DIMS || x->shape.n != 1) {
        dt_onnx_fail(f->r, "makes a constant of more than %d dimensions", DT_MAX_DIMS);
        return;
    }
    // within an int64; dt_onnx_new_const refuses what is below 0 or too large
    for (int64_t i = 0; i < x->count; i++) s.d[i] = (int64_t)fmin(fmax(x->v[i], -1), 1e15);
    dt_onnx_const *c = dt_onnx_new_const(f->r, with ? with->is_float : true, &s);
    for (int64_t i = 0; c && i < c->count; i++) c->v[i] = with && with->count > 0 ? with->v[0] : 0;
    onnx_fold_give(f->r, c);
}

// Whether all inputs are known: numbers are, weights are not, unless only constants have the op.
static bool known(fold *f, bool weights) {
    dt_onnx_importer *r = f->r;
    if (r->node->n_input > MAX_IN) return false;
    for (size_t i = 0; i < r->node->n_input; i++) {
        dt_onnx_slot *s = dt_onnx_in(r, (int)i);
        if (!s) continue;
        if (s->kind == ONNX_VALUE) return false;
        // NULL: larger than ONNX_MAX_FOLDED
        const dt_onnx_const *c = dt_onnx_as_const(r, s);
        if (!c) return false;
        if (s->kind == ONNX_WEIGHT && c->is_float && c->count > 1 && !weights) return false;
        f->in[f->n_in++] = c;
    }
    return f->n_in > 0;
}

static const struct {
    const char *op;
    void (*fn)(fold *f);
    int n_in;     // 0: any
    bool weights; // as in ELEMENTWISE
    double (*value)(const double *x, bool is_float);
} folds[] = {
#define OP(name, n_in, weights, value) {#name, NULL, n_in, weights, of_##name},
    ELEMENTWISE
#undef OP
    {"Cast", fold_cast},
    {"Concat", fold_concat},
    {"ConstantOfShape", fold_filled},
    {"Expand", fold_expand},
    {"Flatten", fold_reshaped},
    {"Gather", fold_gather, 2},
    {"Range", fold_range, 3},
    {"Reshape", fold_reshaped},
    {"ScatterND", fold_scatter, 3, true},
    {"Slice", fold_slice},
    {"Squeeze", fold_reshaped},
    {"Transpose", fold_transpose},
    {"Trilu", fold_trilu},
    {"Unsqueeze", fold_reshaped},
};

bool dt_onnx_fold(dt_onnx_importer *r) {
    fold f = {.r = r};
    size_t k = 0;                                   // line of the table
    if (is(r, "Shape")) return fold_shape(r), true; // also of values: shapes are always known
    if (is(r, "Constant")) return fold_constant(r), true;
    if (r->g->status != DT_OK) return true;
    if (is(r, "CastLike")) return fold_cast_like(&f);
    while (k < sizeof folds / sizeof *folds && !is(r, folds[k].op)) k++;
    const bool listed = k < sizeof folds / sizeof *folds;
    if (!known(&f, listed && folds[k].weights)) return r->g->status != DT_OK;
    const bool one = f.n_in == 1 && (is(r, "Max") || is(r, "Min")); // of one input: that
    if (is(r, "Identity") || one) return onnx_fold_give(r, (dt_onnx_const *)f.in[0]), true;
    if (!listed) return false;
    if (folds[k].value)
        fold_elementwise(&f, folds[k].n_in, folds[k].value);
    else if (folds[k].n_in && f.n_in != folds[k].n_in)
        return false;
    else
        folds[k].fn(&f);
    return true;
}

// ---- onnx shapes --------------------------------------------------------------------------------------------------

// Which shape a node of an ONNX file gives, of constants and of values alike.

int64_t dt_onnx_axis(dt_onnx_importer *r, int64_t axis, int n) {
    if (axis < 0) axis += n; // from the end
    if (axis >= 0 && axis < n) return axis;
    dt_onnx_fail(r, "has an axis that its input lacks");
    return 0;
}

int dt_onnx_integers(dt_onnx_importer *r, int i, const char *attribute, int64_t *out) {
    const dt_onnx_const *c = i >= 0 ? dt_onnx_as_const(r, dt_onnx_in(r, i)) : NULL;
    const Onnx__AttributeProto *a = attribute ? dt_onnx_attribute(r->node, attribute) : NULL;
    const int64_t n = c ? c->count : a ? (int64_t)a->n_ints : -1;
    // sizes that depend on the data have no static graph
    if (!c && i >= 0 && dt_onnx_in(r, i)) {
        dt_onnx_fail(r, "input %d must be known when the graph is built", i);
        return -1;
    }
    if (n > DT_MAX_DIMS) {
        dt_onnx_fail(r, "has more than %d integers", DT_MAX_DIMS);
        return -1;
    }
    // INT64_MAX, as Slice has it for "to the end", is no double: 9e15 is as far
    for (int64_t k = 0; k < n; k++) out[k] = c ? (int64_t)fmin(fmax(c->v[k], -9e15), 9e15) : a->ints[k];
    return (int)n;
}

bool dt_onnx_broadcast(dt_onnx_importer *r, const dt_shape *a, const dt_shape *b, dt_shape *out) {
    dt_shape s = {.n = a->n > b->n ? a->n : b->n};
    for (int i = 1; i <= s.n; i++) {
        const int64_t x = i > a->n ? 1 : a->d[a->n - i], y = i > b->n ? 1 : b->d[b->n - i]; // from the last
        if (x != y && x != 1 && y != 1) return dt_onnx_fail(r, "shapes do not match");
        s.d[s.n - i] = x == 1 ? y : x;
    }
    *out = s;
    return true;
}

bool dt_onnx_expanded(dt_onnx_importer *r, const dt_shape *x, dt_shape *y) {
    dt_shape to = {0};
    to.n = dt_onnx_integers(r, 1, NULL, to.d);
    for (int i = 0; i < to.n; i++)
        if (to.d[i] == -1) to.d[i] = 1; // as it is
    if (to.n < 0) return dt_onnx_fail(r, "lacks a shape");
    // both ways: Expand also keeps x's size where the shape has 1
    return dt_onnx_broadcast(r, x, &to, y) && (dt_shape_is_sound(y) || dt_onnx_fail(r, "has an impossible shape"));
}

// 0: as many as x has; -1: what is left.
static void onnx_shapes_reshape(dt_onnx_importer *r, const dt_shape *x, dt_shape *y) {
    int64_t known = 1;
    const int64_t count = dt_shape_elements(x);
    int open = -1;
    y->n = dt_onnx_integers(r, 1, NULL, y->d);
    for (int i = 0; i < y->n; i++) {
        if (y->d[i] == 0 && i < x->n && !dt_onnx_read_int(r, "allowzero", 0)) y->d[i] = x->d[i];
        if (y->d[i] == -1 && open >= 0) dt_onnx_fail(r, "leaves two sizes open");
        if (y->d[i] == -1) open = i;
        // sizes are the file's: the product stays below count^2, within an int64
        if (y->d[i] > 0 && y->d[i] <= count && known <= count) known *= y->d[i];
    }
    if (open >= 0) y->d[open] = count / known; // the caller compares the counts
}

bool dt_onnx_reshaped(dt_onnx_importer *r, const dt_shape *x, dt_shape *y) {
    int64_t axes[DT_MAX_DIMS];
    const char *op = r->node->op_type;
    const bool unsqueeze = strcmp(op, "Unsqueeze") == 0;
    unsigned set = 0;
    *y = (dt_shape){0};
    if (strcmp(op, "Reshape") == 0) {
        onnx_shapes_reshape(r, x, y);
    } else if (strcmp(op, "Flatten") == 0) {
        const int64_t axis = dt_onnx_read_int(r, "axis", 1);
        const int64_t first = axis == x->n ? axis : dt_onnx_axis(r, axis, x->n);
        *y = dt_shape2(1, 1); // (all before the axis, all from it on)
        for (int i = 0; i < x->n; i++) y->d[i >= first] *= x->d[i];
    } else {
        // Unsqueeze counts axes in the result, Squeeze in x
        const int n_axes = dt_onnx_integers(r, 1, NULL, axes);
        const int n = unsqueeze && n_axes > 0 ? x->n + n_axes : x->n;
        if (n > DT_MAX_DIMS) return dt_onnx_fail(r, "has more than %d dimensions", DT_MAX_DIMS);
        for (int i = 0; i < n_axes; i++) set |= 1u << dt_onnx_axis(r, axes[i], n);
        for (int i = 0, from = 0; unsqueeze && i < n; i++)
            y->d[y->n++] = set >> i & 1 || from >= x->n ? 1 : x->d[from++];
        // Squeeze without axes drops every dimension of one
        for (int i = 0; !unsqueeze && i < n; i++)
            if (n_axes < 0 ? x->d[i] != 1 : !(set >> i & 1)) y->d[y->n++] = x->d[i];
    }
    return r->g->status == DT_OK && (y->n >= 0 || dt_onnx_fail(r, "lacks a shape"));
}

bool dt_onnx_order(dt_onnx_importer *r, int n, int *order) {
    int64_t perm[DT_MAX_DIMS];
    const int given = dt_onnx_integers(r, -1, "perm", perm);
    unsigned seen = 0;
    for (int i = 0; i < n; i++) {
        const int64_t from = given < 0 ? n - 1 - i : i < given ? perm[i] : -1; // no perm: reversed
        if (from >= 0 && from < n) seen |= 1u << from;
        order[i] = (int)from;
    }
    // a permutation has each dimension once
    return (seen == (1u << n) - 1 && (given < 0 || given == n)) || dt_onnx_fail(r, "has an order that is none");
}

static int64_t onnx_shapes_within(int64_t at, int64_t low, int64_t high) {
    return at < low ? low : at > high ? high : at;
}

bool dt_onnx_sliced(dt_onnx_importer *r, const dt_shape *x, int64_t *begin, int64_t *step, dt_shape *y) {
    int64_t from[DT_MAX_DIMS], to[DT_MAX_DIMS], axes[DT_MAX_DIMS], steps[DT_MAX_DIMS];
    const int n = dt_onnx_integers(r, 1, NULL, from), n_to = dt_onnx_integers(r, 2, NULL, to);
    const int n_axes = dt_onnx_integers(r, 3, NULL, axes), n_steps = dt_onnx_integers(r, 4, NULL, steps);
    if (n < 0 || n_to != n || (n_axes >= 0 && n_axes != n) || (n_steps >= 0 && n_steps != n))
        return dt_onnx_fail(r, "has lists of different lengths");
    *y = *x;
    for (int k = 0; k < x->n; k++) begin[k] = 0, step[k] = 1; // axes that are not named: all of them
    for (int i = 0; i < n; i++) {
        const int64_t k = dt_onnx_axis(r, n_axes < 0 ? i : axes[i], x->n);
        const int64_t by = n_steps < 0 ? 1 : steps[i];
        if (r->g->status != DT_OK) return false;
        if (by == 0) return dt_onnx_fail(r, "has a step of 0");
        const int64_t size = x->d[k], low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size; // backwards: to before 0
        const int64_t first = onnx_shapes_within(from[i] + (from[i] < 0 ? size : 0), low, high);
        const int64_t end = onnx_shapes_within(to[i] + (to[i] < 0 ? size : 0), low, high);
        // ceil(length / |step|)
        const int64_t taken = by < 0 ? (first - end - by - 1) / -by : (end - first + by - 1) / by;
        begin[k] = first, step[k] = by, y->d[k] = taken > 0 ? taken : 0;
    }
    return true;
}

// ---- onnx groups --------------------------------------------------------------------------------------------------

// What exporters write in parts and is one op here:
//   GELU    a product of x, 1/2 and Erf(x / sqrt 2) + 1
//   norm    (x - mean) / Sqrt(mean((x - mean)^2) + eps) * weight + bias, over the last dimension
//   linear  MatMul(x, weight) + bias
//   same    Where(Greater(x beta, 20), x, Softplus(x beta) / beta), which is its last part: nn.Softplus at its threshold
// A part that something else reads too is no part.

static const Onnx__NodeProto *made_by(const dt_onnx_slot *s, const char *op) {
    return s && s->producer && strcmp(s->producer->op_type, op) == 0 ? s->producer : NULL;
}
// A node that only this reader needs: it may vanish into the group.
static const Onnx__NodeProto *onnx_groups_part(const dt_onnx_slot *s, const char *op) {
    return s && s->n_uses == 1 ? made_by(s, op) : NULL;
}
static dt_onnx_slot *in(dt_onnx_importer *r, const Onnx__NodeProto *n, size_t i) {
    return n && i < n->n_input ? dt_onnx_find(r, n->input[i]) : NULL;
}

// A number: an initialiser of one element, or a Constant, under a CastLike or not.
static bool onnx_groups_number(dt_onnx_importer *r, const dt_onnx_slot *s, double *v) {
    if (made_by(s, "CastLike")) s = in(r, s->producer, 0);
    const Onnx__TensorProto *t = s && s->kind == ONNX_WEIGHT ? s->t : NULL;
    const Onnx__NodeProto *n = made_by(s, "Constant");
    const Onnx__AttributeProto *a = n ? dt_onnx_attribute(n, "value") : NULL,
                               *f = n ? dt_onnx_attribute(n, "value_float") : NULL;
    if (f) return *v = (double)f->f, true; // torch.onnx writes either form
    if (a) t = a->t;
    if (!t || dt_onnx_count(r, t) != 1) return false;
    const dt_onnx_const *c = dt_onnx_read_const(r, t);
    if (c) *v = c->v[0];
    return c != NULL;
}
static bool near(dt_onnx_importer *r, const dt_onnx_slot *s, double want) {
    double v;
    return onnx_groups_number(r, s, &v) && fabs(v - want) < 1e-4 * fabs(want); // 1.4142 of 4 digits is meant, too
}

// ---- GELU ------------------------------------------------------------------------------------------
// The factors of a product of products, 8 at most: exporters write x * 0.5 * (1 + erf) in any order, and more may follow.
static int factors(dt_onnx_importer *r, const Onnx__NodeProto *n, dt_onnx_slot **out, int depth) {
    int k = 0;
    for (size_t i = 0; i < 2; i++) {
        dt_onnx_slot *s = in(r, n, i);
        // two products make three factors; the depth ends a malicious chain
        const Onnx__NodeProto *inner = depth < 2 ? onnx_groups_part(s, "Mul") : NULL;
        if (inner)
            k += factors(r, inner, out + k, depth + 1);
        else
            out[k++] = s;
    }
    return k;
}

// Whether s is Erf(x / sqrt 2) + 1; then x.
static dt_onnx_slot *erf_of(dt_onnx_importer *r, dt_onnx_slot *s) {
    const Onnx__NodeProto *add = onnx_groups_part(s, "Add");
    if (!add) return NULL;
    // 1 + erf or erf + 1
    const size_t at = near(r, in(r, add, 1), 1) ? 0 : 1;
    if (!near(r, in(r, add, 1 - at), 1)) return NULL;
    const Onnx__NodeProto *erf = onnx_groups_part(in(r, add, at), "Erf");
    dt_onnx_slot *scaled = in(r, erf, 0);
    const Onnx__NodeProto *div = onnx_groups_part(scaled, "Div"), *mul = onnx_groups_part(scaled, "Mul");
    if (div && near(r, in(r, div, 1), sqrt(2))) return in(r, div, 0);   // x / sqrt 2
    if (mul && near(r, in(r, mul, 1), sqrt(0.5))) return in(r, mul, 0); // x sqrt(1/2)
    return NULL;
}

static bool find_gelu(dt_onnx_importer *r, const Onnx__NodeProto *n, dt_onnx_group *g) {
    dt_onnx_slot *f[8] = {NULL};
    if (strcmp(n->op_type, "Mul") != 0 || factors(r, n, f, 0) != 3) return false;
    // any of the three may be erf's; of the others one is 1/2, the other its x
    for (int i = 0; i < 3; i++) {
        dt_onnx_slot *x = erf_of(r, f[i]), *a = f[(i + 1) % 3], *b = f[(i + 2) % 3];
        if (!x || !((a == x && near(r, b, 0.5)) || (b == x && near(r, a, 0.5)))) continue;
        *g = (dt_onnx_group){.kind = ONNX_GELU, .x = x};
        return true;
    }
    return false;
}

// ---- layer norm ------------------------------------------------------------------------------------
static const Onnx__NodeProto *mean_of_last(const dt_onnx_slot *s) {
    const Onnx__NodeProto *n = made_by(s, "ReduceMean");
    const Onnx__AttributeProto *a = n ? dt_onnx_attribute(n, "axes") : NULL;
    return a && a->n_ints == 1 && a->ints[0] == -1 ? n : NULL; // exporters write LayerNorm over -1
}

static bool find_norm(dt_onnx_importer *r, const Onnx__NodeProto *n, dt_onnx_group *g) {
    const Onnx__NodeProto *mul = onnx_groups_part(in(r, n, 0), "Mul"), *div = onnx_groups_part(in(r, mul, 0), "Div");
    if (strcmp(n->op_type, "Add") != 0 || !div) return false; // quick: most nodes end here
    // x - mean has two readers, so it is no part that only one needs
    const Onnx__NodeProto *sub = made_by(in(r, div, 0), "Sub"), *root = onnx_groups_part(in(r, div, 1), "Sqrt");
    const Onnx__NodeProto *add = onnx_groups_part(in(r, root, 0), "Add"), *var = mean_of_last(in(r, add, 0));
    const Onnx__NodeProto *square = onnx_groups_part(in(r, var, 0), "Pow");
    const Onnx__NodeProto *mean = sub ? mean_of_last(in(r, sub, 1)) : NULL;
    double eps; // of any size: an attribute of the op here
    if (!square || !mean || in(r, square, 0) != in(r, div, 0) || !near(r, in(r, square, 1), 2) ||
        in(r, mean, 0) != in(r, sub, 0) || !onnx_groups_number(r, in(r, add, 1), &eps))
        return false;
    *g = (dt_onnx_group){
        .kind = ONNX_NORM, .x = in(r, sub, 0), .weight = in(r, mul, 1), .bias = in(r, n, 1), .eps = eps};
    return true;
}

// ---- linear ----------------------------------------------------------------------------------------
static bool onnx_groups_is_weight(const dt_onnx_slot *s, size_t n_dims) {
    return s && s->kind == ONNX_WEIGHT && s->t->n_dims == n_dims;
}

static bool find_linear(dt_onnx_importer *r, const Onnx__NodeProto *n, dt_onnx_group *g) {
    if (strcmp(n->op_type, "Add") != 0) return false; // (x W) + b, as torch.onnx writes Linear of (N,T,I)
    // bias on either side
    for (size_t i = 0; i < 2; i++) {
        const Onnx__NodeProto *product = onnx_groups_part(in(r, n, i), "MatMul");
        if (!product || !onnx_groups_is_weight(in(r, product, 1), 2) || !onnx_groups_is_weight(in(r, n, 1 - i), 1))
            continue;
        *g = (dt_onnx_group){
            .kind = ONNX_LINEAR, .x = in(r, product, 0), .weight = in(r, product, 1), .bias = in(r, n, 1 - i)};
        return true;
    }
    return false;
}

// ---- softplus --------------------------------------------------------------------------------------
static bool find_softplus(dt_onnx_importer *r, const Onnx__NodeProto *n, dt_onnx_group *g) {
    dt_onnx_slot *soft = in(r, n, 2); // Where's second choice
    const Onnx__NodeProto *div = made_by(soft, "Div");
    const Onnx__NodeProto *softplus = made_by(div ? in(r, div, 0) : soft, "Softplus");
    const Onnx__NodeProto *greater = onnx_groups_part(in(r, n, 0), "Greater");
    dt_onnx_slot *x = in(r, softplus, 0);
    double beta = 1, by;
    if (!greater || in(r, greater, 0) != x || !near(r, in(r, greater, 1), 20)) return false;
    if (div) {
        // x beta inside, beta outside: they must be the same number
        if (!made_by(x, "Mul") || !onnx_groups_number(r, in(r, div, 1), &by)) return false;
        if (!onnx_groups_number(r, in(r, x->producer, 1), &beta) || beta != by) return false;
        x = in(r, x->producer, 0);
    }
    if (!x || in(r, n, 1) != x) return false;           // its first choice is x itself
    *g = (dt_onnx_group){.kind = ONNX_SAME, .x = soft}; // above 20 softplus is x within f32
    return true;
}

bool dt_onnx_find_group(dt_onnx_importer *r, const Onnx__NodeProto *n, dt_onnx_group *g) {
    if (strcmp(n->op_type, "Where") == 0) return n->n_input == 3 && find_softplus(r, n, g);
    if (n->n_input != 2 || n->n_output < 1) return false;
    // a norm and a linear layer both end in an Add, of a product or of a MatMul
    return find_gelu(r, n, g) || find_norm(r, n, g) || find_linear(r, n, g);
}
