// onnx_import_math.c: nodes of an ONNX file that compute elements: activations, arithmetic of any shapes that fit,
// reductions, products by letters, other sizes. The rest is in onnx_import_ops.c.
#include "onnx_reader.h"

#include "graph/activation_words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// alpha: the number of those that have one
static void activate(dt_onnx_importer *r, dt_activation kind) {
    const Onnx__AttributeProto *alpha = dt_onnx_attribute(r->node, "alpha");
    dt_value x = dt_onnx_input_value(r, 0);
    dt_onnx_give(r, 0, alpha ? dt_activate_with(r->g, kind, x, alpha->f) : dt_activate(r->g, kind, x));
}
#define IMPORT_OP(op)
#define IMPORT_AS(op, like)
#define FOLD_OP(op)
#define IMPORT_ACTIVATION(op, kind)                                                                                    \
    void dt_onnx_read_##op(dt_onnx_importer *r) {                                                                      \
        activate(r, DT_ACTIVATION_##kind);                                                                             \
    }
#include "onnx_import_ops.def"
#undef IMPORT_OP
#undef IMPORT_AS
#undef FOLD_OP
void dt_onnx_read_HardSigmoid(dt_onnx_importer *r) {
    // ONNX's default is 0.2, of Theano; nn.Hardsigmoid is x/6 + 1/2
    if (fabsf(dt_onnx_read_float(r, "alpha", 0.2f) - 1.0f / 6) > 1e-5f || dt_onnx_read_float(r, "beta", 0.5f) != 0.5f)
        dt_onnx_fail(r, "only alpha 1/6 and beta 1/2, as PyTorch's, are read");
    else
        dt_onnx_give(r, 0, dt_activate(r->g, DT_ACTIVATION_hardsigmoid, dt_onnx_input_value(r, 0)));
}
void dt_onnx_read_Gelu(dt_onnx_importer *r) {
    const bool tanh = strcmp(dt_onnx_read_text(r, "approximate", "none"), "tanh") == 0;
    dt_value x = dt_onnx_input_value(r, 0);
    dt_onnx_give(r, 0, tanh ? dt_gelu_tanh(r->g, x) : dt_gelu(r->g, x));
}
void dt_onnx_read_PRelu(dt_onnx_importer *r) {
    dt_value x = dt_onnx_input_value(r, 0), w = dt_onnx_input_value(r, 1);
    const dt_shape s = dt_onnx_shape(r, w), of = dt_onnx_shape(r, x);
    if (w == DT_NONE || x == DT_NONE) return;
    const int64_t n = dt_shape_elements(&s);
    // slopes (C,1,1) of (N,C,H,W), as exporters write them
    if (of.n < 2 || (n != 1 && n != of.d[1]))
        dt_onnx_fail(r, "only a slope of each channel, or one of all, is read");
    else
        dt_onnx_give(r, 0, dt_prelu_with(r->g, x, s.n == 1 ? w : dt_reshape(r->g, w, dt_shape1(n))));
}
void dt_onnx_read_Softmax(dt_onnx_importer *r) {
    dt_value x = dt_onnx_input_value(r, 0);
    const int n = dt_onnx_shape(r, x).n;
    const int axis = (int)dt_onnx_axis(r, dt_onnx_read_int(r, "axis", -1), n);
    int swapped[DT_MAX_DIMS]; // the axis is last
    if (x == DT_NONE || r->g->status != DT_OK) return;
    if (axis == 0 && n > 1) { // samples are independent: no layer divides among them
        dt_onnx_fail(r, "mixes samples: its axis is the first dimension");
        return;
    }
    for (int i = 0; i < n; i++) swapped[i] = i == axis ? n - 1 : i == n - 1 ? axis : i;
    if (axis != n - 1) x = dt_transpose(r->g, x, swapped);
    x = dt_softmax(r->g, x); // of the last dimension only
    dt_onnx_give(r, 0, axis != n - 1 ? dt_transpose(r->g, x, swapped) : x);
}
// v repeated to a shape that it broadcasts to (numpy's rule: from the last dimension, ones in front).
static dt_value widened(dt_onnx_importer *r, dt_value v, const dt_shape *to) {
    dt_shape s = dt_onnx_shape(r, v), own = *to;
    for (int i = 1; i <= to->n; i++) own.d[to->n - i] = i > s.n ? 1 : s.d[s.n - i];
    if (s.n != to->n) v = dt_reshape(r->g, v, own); // expand keeps the number of dimensions
    return dt_expand(r->g, v, *to);
}
// The smaller operand as one that add (times: mul) repeats over the larger.
static dt_value repeated(dt_onnx_importer *r, dt_value v, const dt_shape *over, bool times) {
    const dt_shape s = dt_onnx_shape(r, v);
    dt_times t;
    int skip = 0;
    if (times && dt_times_of(over, &s, &t)) return v; // a form of mul's own: a row, or a factor a channel
    while (skip < s.n - 1 && s.d[skip] == 1) skip++;  // ones in front add nothing
    dt_shape rest = {.n = s.n - skip}, to = rest;
    for (int i = 0; i < rest.n; i++) rest.d[i] = s.d[skip + i], to.d[i] = over->d[over->n - rest.n + i];
    // dt_add repeats over leading dimensions, so `to` stops at those that v has
    if (times && dt_times_of(over, &rest, &t)) return dt_reshape(r->g, v, rest);
    return times ? widened(r, v, over) : widened(r, skip ? dt_reshape(r->g, v, rest) : v, &to);
}
// a + b or a * b, of any shapes that fit.
static dt_value combined(dt_onnx_importer *r, dt_value a, dt_value b, bool times) {
    if (a == DT_NONE || b == DT_NONE || r->g->status != DT_OK) return DT_NONE;
    const dt_shape sa = dt_onnx_shape(r, a), sb = dt_onnx_shape(r, b);
    dt_shape all;
    if (!dt_onnx_broadcast(r, &sa, &sb, &all)) return DT_NONE; // also where neither has the result's shape
    // both ops take the operand with the result's shape first; the sum and product are the same
    const bool swap =
        dt_shape_elements(&sb) > dt_shape_elements(&sa) || (dt_shape_equal(&sb, &all) && !dt_shape_equal(&sa, &all));
    dt_value big = widened(r, swap ? b : a, &all), small = repeated(r, swap ? a : b, &all, times);
    // kernels read an activation there; a reshape makes one of a parameter
    if (r->g->values[big].kind == DT_V_PARAM) big = dt_reshape(r->g, big, all);
    return times ? dt_mul(r->g, big, small) : dt_add(r->g, big, small);
}

void dt_onnx_read_Expand(dt_onnx_importer *r) {
    dt_value x = dt_onnx_input_value(r, 0);
    const dt_shape s = dt_onnx_shape(r, x);
    dt_shape to;
    // the shape is known, so the repeats are those of a static graph
    if (x != DT_NONE && dt_onnx_expanded(r, &s, &to)) dt_onnx_give(r, 0, widened(r, x, &to));
}

// x + number, as a row of numbers
static dt_value shifted(dt_onnx_importer *r, dt_value x, double by) {
    const dt_shape s = dt_onnx_shape(r, x);
    if (x == DT_NONE || s.n < 1 || by == 0) return x; // nothing to add, or no row to add to
    return dt_add(r->g, x, dt_full(r->g, dt_shape1(s.d[s.n - 1]), (float)by));
}

static bool one_number(dt_onnx_importer *r, int i, double *v) {
    const dt_onnx_const *c = dt_onnx_as_const(r, dt_onnx_in(r, i));
    if (!c || c->count != 1) return false; // (1) and (1,1) are numbers, too
    *v = c->v[0];
    return true;
}

// Drops only with training_mode, as PyTorch's TrainingMode.TRAINING writes it.
void dt_onnx_read_Dropout(dt_onnx_importer *r) {
    // ONNX's defaults
    double p = 0.5, trains = 0;
    if ((dt_onnx_in(r, 1) && !one_number(r, 1, &p)) || (dt_onnx_in(r, 2) && !one_number(r, 2, &trains)))
        dt_onnx_fail(r, "its ratio and training_mode must be known when the graph is built");
    else if (trains == 0)
        dt_onnx_read_Identity(r);
    else
        dt_onnx_give(r, 0, dt_dropout(r->g, dt_onnx_name(r), dt_onnx_input_value(r, 0), (float)p));
}

// input i + input k, or input i - input k
static dt_value onnx_import_math_sum(dt_onnx_importer *r, int i, int k, bool minus) {
    double v;
    if (one_number(r, k, &v)) return shifted(r, dt_onnx_input_value(r, i), minus ? -v : v); // no tensor of numbers
    if (one_number(r, i, &v)) {
        dt_value x = dt_onnx_input_value(r, k);
        return shifted(r, minus ? dt_scale(r->g, x, -1) : x, v); // number - x
    }
    dt_value a = dt_onnx_input_value(r, i), b = dt_onnx_input_value(r, k);
    return combined(r, a, minus ? dt_scale(r->g, b, -1) : b, false);
}
void dt_onnx_read_Add(dt_onnx_importer *r) {
    dt_onnx_give(r, 0, onnx_import_math_sum(r, 0, 1, false));
}
void dt_onnx_read_Sub(dt_onnx_importer *r) {
    dt_onnx_give(r, 0, onnx_import_math_sum(r, 0, 1, true));
}
void dt_onnx_read_Mul(dt_onnx_importer *r) {
    double v;
    // a number on either side is a scale, which needs no tensor
    for (int i = 0; i < 2; i++)
        if (one_number(r, i, &v)) {
            dt_onnx_give(r, 0, dt_scale(r->g, dt_onnx_input_value(r, 1 - i), (float)v));
            return;
        }
    dt_value a = dt_onnx_input_value(r, 0), b = dt_onnx_input_value(r, 1);
    dt_onnx_give(r, 0, combined(r, a, b, true));
}
void dt_onnx_read_Div(dt_onnx_importer *r) {
    const dt_onnx_const *c = dt_onnx_as_const(r, dt_onnx_in(r, 1));
    // a trained divisor would need its own gradient; one number is never a weight here
    if (!c || dt_onnx_in(r, 1)->kind == ONNX_WEIGHT ? !c || c->count != 1 : false) {
        dt_onnx_fail(r, "only division by numbers is read");
        return;
    }
    float *v = dt_arena_alloc(&r->g->arena, ((size_t)c->count + 1) * sizeof *v);
    for (int64_t i = 0; i < c->count; i++) v[i] = (float)(1 / c->v[i]); // in f64, rounded once
    if (c->count == 1)
        dt_onnx_give(r, 0, dt_scale(r->g, dt_onnx_input_value(r, 0), v[0]));
    else
        dt_onnx_give(r, 0, combined(r, dt_onnx_input_value(r, 0), dt_constant(r->g, NULL, DT_F32, c->shape, v), true));
}
void dt_onnx_read_Neg(dt_onnx_importer *r) {
    dt_onnx_give(r, 0, dt_scale(r->g, dt_onnx_input_value(r, 0), -1));
}
void dt_onnx_read_Pow(dt_onnx_importer *r) {
    double v;
    dt_value x = dt_onnx_input_value(r, 0);
    // other powers have no kernel
    if (!one_number(r, 1, &v) || v != 2)
        dt_onnx_fail(r, "only squares are read");
    else
        dt_onnx_give(r, 0, dt_mul(r->g, x, x));
}

static dt_value onnx_import_math_magnitude(dt_onnx_importer *r, dt_value x) {
    dt_value above = dt_relu(r->g, x), below = dt_relu(r->g, dt_scale(r->g, x, -1)); // |x| = relu(x) + relu(-x)
    return dt_add(r->g, above, below);
}
void dt_onnx_read_Abs(dt_onnx_importer *r) {
    dt_onnx_give(r, 0, onnx_import_math_magnitude(r, dt_onnx_input_value(r, 0)));
}

// ---- conditions, as factors of 0 and 1 -------------------------------------------------------------
static dt_value opposite(dt_onnx_importer *r, dt_value c) {
    return shifted(r, dt_scale(r->g, c, -1), 1); // 1 - c
}
static dt_value above(dt_onnx_importer *r, int i, int k) {                                  // input i > input k
    return dt_activate(r->g, DT_ACTIVATION_heaviside, onnx_import_math_sum(r, i, k, true)); // of the difference
}
void dt_onnx_read_Greater(dt_onnx_importer *r) {
    dt_onnx_give(r, 0, above(r, 0, 1));
}
void dt_onnx_read_Less(dt_onnx_importer *r) {
    dt_onnx_give(r, 0, above(r, 1, 0));
}
void dt_onnx_read_GreaterOrEqual(dt_onnx_importer *r) {
    dt_onnx_give(r, 0, opposite(r, above(r, 1, 0))); // not less
}
void dt_onnx_read_LessOrEqual(dt_onnx_importer *r) {
    dt_onnx_give(r, 0, opposite(r, above(r, 0, 1))); // not greater
}
void dt_onnx_read_Equal(dt_onnx_importer *r) {
    dt_value off = onnx_import_math_magnitude(r, onnx_import_math_sum(r, 0, 1, true)); // 0 where they are equal
    dt_onnx_give(r, 0, opposite(r, dt_activate(r->g, DT_ACTIVATION_heaviside, off)));
}

// Input i, or with holds false its opposite.
static dt_value condition(dt_onnx_importer *r, int i, bool holds) {
    const dt_onnx_const *c = dt_onnx_as_const(r, dt_onnx_in(r, i));
    if (!c) return holds ? dt_onnx_input_value(r, i) : opposite(r, dt_onnx_input_value(r, i));
    float *v = dt_arena_alloc(&r->g->arena, ((size_t)c->count + 1) * sizeof *v);
    for (int64_t k = 0; k < c->count; k++) v[k] = (c->v[k] != 0) == holds; // a known mask, of bools
    return dt_constant(r->g, NULL, DT_F32, c->shape, v);
}
void dt_onnx_read_Not(dt_onnx_importer *r) {
    dt_onnx_give(r, 0, condition(r, 0, false));
}
void dt_onnx_read_And(dt_onnx_importer *r) {
    dt_value a = condition(r, 0, true), b = condition(r, 1, true); // a and b: the product
    dt_onnx_give(r, 0, combined(r, a, b, true));
}
void dt_onnx_read_Or(dt_onnx_importer *r) {
    dt_value a = condition(r, 0, false), b = condition(r, 1, false); // a or b: not (not a and not b)
    dt_onnx_give(r, 0, opposite(r, combined(r, a, b, true)));
}
// Weights and what is computed are f32.
void dt_onnx_read_Cast(dt_onnx_importer *r) {
    const int64_t to = dt_onnx_read_int(r, "to", 0);
    if (to == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) dt_onnx_read_Identity(r);
    // 1 where x is not 0
    else if (to == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL)
        dt_onnx_give(
            r, 0, dt_activate(r->g, DT_ACTIVATION_heaviside, onnx_import_math_magnitude(r, dt_onnx_input_value(r, 0))));
    else
        dt_onnx_fail(r, "of what depends on the network's input, only to float or bool is read");
}

// One side of a Where: input i where the condition is so, else 0. Constants may be infinite.
static dt_value side(dt_onnx_importer *r, int i, bool holds) {
    dt_onnx_slot *s = dt_onnx_in(r, i);
    const dt_onnx_const *x = dt_onnx_as_const(r, s);
    dt_value c = condition(r, 0, holds);
    if (!x || (s->kind == ONNX_WEIGHT && x->count > 1)) return combined(r, dt_onnx_input_value(r, i), c, true);
    float *v = dt_arena_alloc(&r->g->arena, ((size_t)x->count + 1) * sizeof *v);
    for (int64_t k = 0; k < x->count; k++) v[k] = (float)fmin(fmax(x->v[k], -1e30), 1e30); // inf times 0 is NaN
    if (x->count == 1) return dt_scale(r->g, c, v[0]);                                     // masked_fill with a number
    return combined(r, dt_constant(r->g, NULL, DT_F32, x->shape, v), c, true);
}
void dt_onnx_read_Where(dt_onnx_importer *r) {
    dt_value a = side(r, 1, true), b = side(r, 2, false); // c a + (1 - c) b
    dt_onnx_give(r, 0, combined(r, a, b, false));
}

// ---- bounds ----------------------------------------------------------------------------------------
// The larger of the two, or the smaller. Where they are equal a has the gradient; torch.maximum gives each a half.
static dt_value extreme(dt_onnx_importer *r, dt_value a, dt_value b, bool max) {
    dt_value over = combined(r, b, dt_scale(r->g, a, -1), false); // b - a
    dt_value c = dt_activate(r->g, DT_ACTIVATION_heaviside, max ? over : dt_scale(r->g, over, -1));
    b = combined(r, b, c, true);
    a = combined(r, a, opposite(r, c), true); // (1 - c) a + c b
    return combined(r, a, b, false);
}
static dt_value bounded(dt_onnx_importer *r, dt_value x, double by, bool max) {
    if (isinf(by)) return x;                                                          // torch.clamp with one bound
    if (by == 0 && max) return dt_relu(r->g, x);                                      // the kernel that passes fuse
    dt_value over = max ? shifted(r, dt_scale(r->g, x, -1), by) : shifted(r, x, -by); // above 0 outside the bound
    dt_value c = dt_activate(r->g, DT_ACTIVATION_heaviside, over);
    x = dt_mul(r->g, x, opposite(r, c)); // no gradient outside, as torch.clamp
    return dt_add(r->g, x, dt_scale(r->g, c, (float)by));
}
static void read_extreme(dt_onnx_importer *r, bool max) {
    double v;
    dt_value x = DT_NONE;
    for (int i = 0; i < (int)r->node->n_input; i++)
        if (!one_number(r, i, &v))
            x = x == DT_NONE ? dt_onnx_input_value(r, i) : extreme(r, x, dt_onnx_input_value(r, i), max);
    // numbers last: each is a bound of what the tensors gave
    for (int i = 0; i < (int)r->node->n_input && x != DT_NONE; i++)
        if (one_number(r, i, &v)) x = bounded(r, x, v, max);
    dt_onnx_give(r, 0, x);
}
void dt_onnx_read_Max(dt_onnx_importer *r) {
    read_extreme(r, true);
}
void dt_onnx_read_Min(dt_onnx_importer *r) {
    read_extreme(r, false);
}
void dt_onnx_read_Clip(dt_onnx_importer *r) {
    double low = 0, high = 0;
    // min and max are inputs 1 and 2, either may be left out
    const bool has_low = one_number(r, 1, &low), has_high = one_number(r, 2, &high);
    dt_value x = dt_onnx_input_value(r, 0);
    if ((dt_onnx_in(r, 1) && !has_low) || (dt_onnx_in(r, 2) && !has_high)) {
        dt_onnx_fail(r, "its bounds must be known when the graph is built");
        return;
    }
    if (has_low && low == 0 && has_high && high == 6) { // nn.ReLU6, one kernel
        dt_onnx_give(r, 0, dt_activate(r->g, DT_ACTIVATION_relu6, x));
        return;
    }
    if (has_low) x = bounded(r, x, low, true);
    if (has_high) x = bounded(r, x, high, false);
    dt_onnx_give(r, 0, x);
}

// ---- reductions ------------------------------------------------------------------------------------
static void read_reduction(dt_onnx_importer *r, dt_reduce_kind how) {
    int64_t axes[DT_MAX_DIMS];
    dt_value x = dt_onnx_input_value(r, 0);
    const dt_shape s = dt_onnx_shape(r, x);
    const int n = dt_onnx_integers(r, r->node->n_input > 1 ? 1 : -1, "axes", axes); // an input since set 18 (sum: 13)
    unsigned set = 0;
    for (int i = 0; i < n; i++) set |= 1u << dt_onnx_axis(r, axes[i], s.n);
    if (n <= 0 && !dt_onnx_read_int(r, "noop_with_empty_axes", 0)) set = (1u << s.n) - 1; // no axes: all
    if (x != DT_NONE && r->g->status == DT_OK && (set & 1))
        dt_onnx_fail(r, "mixes samples: its axes have the first dimension");
    if (r->g->status == DT_OK)
        dt_onnx_give(r, 0, dt_reduce(r->g, x, how, set, dt_onnx_read_int(r, "keepdims", 1) != 0));
}
void dt_onnx_read_ReduceMean(dt_onnx_importer *r) {
    read_reduction(r, DT_REDUCE_MEAN);
}
void dt_onnx_read_ReduceSum(dt_onnx_importer *r) {
    read_reduction(r, DT_REDUCE_SUM);
}
void dt_onnx_read_ReduceMax(dt_onnx_importer *r) {
    read_reduction(r, DT_REDUCE_MAX);
}
static void read_global(dt_onnx_importer *r, dt_reduce_kind how) {
    dt_value x = dt_onnx_input_value(r, 0);
    const int n = dt_onnx_shape(r, x).n;
    if (n > 2) dt_onnx_give(r, 0, dt_reduce(r->g, x, how, ((1u << n) - 1) & ~3u, true)); // all but N and C
}
void dt_onnx_read_GlobalAveragePool(dt_onnx_importer *r) {
    read_global(r, DT_REDUCE_MEAN);
}
void dt_onnx_read_GlobalMaxPool(dt_onnx_importer *r) {
    read_global(r, DT_REDUCE_MAX);
}

// ---- products by letters ---------------------------------------------------------------------------
typedef struct letters {
    char a[16], b[16], out[16]; // "bhqd", "bhkd", "bhqk"
} letters;

static bool read_letters(dt_onnx_importer *r, letters *l) {
    const char *p = dt_onnx_read_text(r, "equation", "");
    char *at[3] = {l->a, l->b, l->out};
    int k = 0; // which of the three: "," and "->" go on to the next
    *l = (letters){.a = ""};
    for (; *p && k < 3; p++) {
        if (*p == ',' || *p == '-') k++;
        // "..." and more letters than dimensions are refused
        else if (*p != '>' && *p != ' ' && strlen(at[k]) < DT_MAX_DIMS && *p != '.')
            at[k][strlen(at[k])] = *p;
        else if (*p != '>' && *p != ' ')
            return false;
    }
    return k == 2 && r->node->n_input == 2;
}
// Letters of `from` that both of the others have, or have not.
static void onnx_import_math_keep(char *to, const char *from, const char *x, bool in_x, const char *y, bool in_y) {
    for (; *from; from++)
        if ((strchr(x, *from) != NULL) == in_x && (strchr(y, *from) != NULL) == in_y) *to++ = *from;
    *to = 0;
}
// x, whose dimensions are named, in the order of the three groups, as (batch, rows, columns); sizes by letter.
static dt_value grouped(dt_onnx_importer *r, dt_value x, const char *names, const char *const group[3], int64_t *size) {
    const dt_shape s = dt_onnx_shape(r, x);
    int perm[DT_MAX_DIMS], n = 0;
    int64_t d[3] = {1, 1, 1};
    // perm: a group after the other; d: their sizes, multiplied
    for (int g = 0; g < 3; g++)
        for (const char *p = group[g]; *p && n < DT_MAX_DIMS; p++) {
            perm[n] = (int)(strchr(names, *p) - names);
            size[(unsigned char)*p] = s.d[perm[n]];
            d[g] *= s.d[perm[n++]];
        }
    if (n != s.n || strlen(names) != (size_t)n) {
        dt_onnx_fail(r, "only products of two tensors, without repeated letters, are read");
        return DT_NONE;
    }
    return dt_reshape(r->g, dt_transpose(r->g, x, perm), dt_shape3(d[0], d[1], d[2]));
}
// Two tensors as one batched product of matrices.
void dt_onnx_read_Einsum(dt_onnx_importer *r) {
    letters l;
    char batch[16], rows[16], sum[16], cols[16], order[32];
    int64_t size[256] = {0};
    int perm[DT_MAX_DIMS];
    if (!read_letters(r, &l)) {
        dt_onnx_fail(r, "only products of two tensors, written out, are read");
        return;
    }
    onnx_import_math_keep(batch, l.a, l.b, true, l.out, true); // in all three
    onnx_import_math_keep(sum, l.a, l.b, true, l.out, false);  // in both factors, not in the result
    onnx_import_math_keep(rows, l.a, l.b, false, l.out, true); // only in a
    onnx_import_math_keep(cols, l.b, l.a, false, l.out, true); // only in b
    const int n = snprintf(order, sizeof order, "%s%s%s", batch, rows, cols);
    dt_value a = grouped(r, dt_onnx_input_value(r, 0), l.a, (const char *const[]){batch, rows, sum}, size);
    dt_value b = grouped(r, dt_onnx_input_value(r, 1), l.b, (const char *const[]){batch, sum, cols}, size);
    if (r->g->status != DT_OK || n > DT_MAX_DIMS || (size_t)n != strlen(l.out)) {
        dt_onnx_fail(r, "gives a tensor that is not read");
        return;
    }
    a = dt_matmul(r->g, a, b, false, false, 1); // (batch,rows,sum) (batch,sum,cols)
    dt_shape s = {.n = n};
    for (int i = 0; i < n; i++) s.d[i] = size[(unsigned char)order[i]];
    // from (batch,rows,cols) to the letters of the result
    for (int i = 0; i < n; i++) perm[i] = (int)(strchr(order, l.out[i]) - order);
    dt_onnx_give(r, 0, dt_transpose(r->g, dt_reshape(r->g, a, s), perm));
}

// ---- sizes -----------------------------------------------------------------------------------------
// Whether one of n elements, `step` pixels each, lies as near to one pixel as to the next.
static bool has_ties(double step, double n) {
    double i = 0;
    while (i < n && fabs((i + 0.5) * step - rint((i + 0.5) * step)) > 1e-5) i++; // half-pixel centres
    return i < n;
}
void dt_onnx_read_Resize(dt_onnx_importer *r) {
    const dt_onnx_const *scales = dt_onnx_as_const(r, dt_onnx_in(r, 2)), *sizes = dt_onnx_as_const(r, dt_onnx_in(r, 3));
    const char *from = dt_onnx_read_text(r, "coordinate_transformation_mode", "half_pixel");
    const char *mode_of = dt_onnx_read_text(r, "mode", "nearest");
    const char *rounds = dt_onnx_read_text(r, "nearest_mode", "round_prefer_floor");
    // they differ only in an output of one pixel
    const bool half = !strcmp(from, "half_pixel") || !strcmp(from, "pytorch_half_pixel");
    const bool corners = !strcmp(from, "align_corners"), old = !strcmp(from, "asymmetric");
    const bool linear = !strcmp(mode_of, "linear"), nearest = !strcmp(mode_of, "nearest");
    dt_value x = dt_onnx_input_value(r, 0);
    const dt_shape s = dt_onnx_shape(r, x);
    double scale[2] = {0, 0};
    int64_t size[2];
    bool ties = false; // where round_prefer_floor takes the pixel before, as nearest-exact does not
    if (scales && scales->count == 0) scales = NULL; // an empty tensor stands for one that is left out
    const dt_onnx_const *given = scales ? scales : sizes;
    if (s.n != 4 || !given || given->count != 4 || dt_onnx_read_int(r, "antialias", 0) ||
        strcmp(dt_onnx_read_text(r, "keep_aspect_ratio_policy", "stretch"), "stretch") != 0) {
        dt_onnx_fail(r, "only images, (N,C,H,W), stretched to a size that is known when the graph is "
                        "built, without antialias");
        return;
    }
    for (int d = 0; d < 4; d++) {
        const double to = scales ? floorf((float)s.d[d] * (float)scales->v[d]) : sizes->v[d]; // as onnxruntime
        if ((d < 2 && to != (double)s.d[d]) || !(to >= 1 && to <= 1 << 20)) {
            dt_onnx_fail(r, "resizes samples or channels, or to an impossible size");
            return;
        }
        if (d < 2) continue; // N and C stay
        size[d - 2] = (int64_t)to;
        if (scales) scale[d - 2] = scales->v[d]; // 0: the step follows from the sizes
        ties |= has_ties(scales ? 1 / scales->v[d] : (double)s.d[d] / to, to);
    }
    dt_resize_mode mode;
    if (linear && (half || corners))
        mode = corners ? DT_RESIZE_BILINEAR_CORNERS : DT_RESIZE_BILINEAR;
    else if (nearest && old && !strcmp(rounds, "floor"))
        mode = DT_RESIZE_NEAREST;
    else if (nearest && half && !strcmp(rounds, ties ? "round_prefer_ceil" : rounds) &&
             !strncmp(rounds, "round_prefer_", 13))
        mode = DT_RESIZE_NEAREST_EXACT;
    else {
        dt_onnx_fail(r, "only nn.Upsample's modes nearest, nearest-exact (half_pixel rounds up: "
                        "round_prefer_ceil) and bilinear are read");
        return;
    }
    dt_onnx_give(r, 0, dt_resize2d(r->g, x, mode, size, scale));
}
