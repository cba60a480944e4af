// onnx_groups.c: what exporters write in parts and is one op here:
//   GELU    a product of x, 1/2 and Erf(x / sqrt 2) + 1
//   norm    (x - mean) / Sqrt(mean((x - mean)^2) + eps) * weight + bias, over the last dimension
//   linear  MatMul(x, weight) + bias
//   same    Where(Greater(x beta, 20), x, Softplus(x beta) / beta), which is its last part: nn.Softplus at its threshold
// A part that something else reads too is no part.
#include "onnx_reader.h"

#include <math.h>
#include <string.h>

static const Onnx__NodeProto *made_by(const dt_onnx_slot *s, const char *op) {
    return s && s->producer && strcmp(s->producer->op_type, op) == 0 ? s->producer : NULL;
}
static const Onnx__NodeProto *onnx_groups_part(const dt_onnx_slot *s, const char *op) {
    return s && s->n_uses == 1 ? made_by(s, op) : NULL;
}
static dt_onnx_slot *in(dt_onnx_reader *r, const Onnx__NodeProto *n, size_t i) {
    return n && i < n->n_input ? dt_onnx_find(r, n->input[i]) : NULL;
}

// A number: an initialiser of one element, or a Constant, under a CastLike or not.
static bool onnx_groups_number(dt_onnx_reader *r, const dt_onnx_slot *s, double *v) {
    if (made_by(s, "CastLike")) s = in(r, s->producer, 0);
    const Onnx__TensorProto *t = s && s->kind == ONNX_WEIGHT ? s->t : NULL;
    const Onnx__NodeProto *n = made_by(s, "Constant");
    const Onnx__AttributeProto *a = n ? dt_onnx_attribute(n, "value") : NULL,
                               *f = n ? dt_onnx_attribute(n, "value_float") : NULL;
    if (f) return *v = (double)f->f, true;
    if (a) t = a->t;
    if (!t || dt_onnx_count(r, t) != 1) return false;
    const dt_onnx_const *c = dt_onnx_read_const(r, t);
    if (c) *v = c->v[0];
    return c != NULL;
}
static bool near(dt_onnx_reader *r, const dt_onnx_slot *s, double want) {
    double v;
    return onnx_groups_number(r, s, &v) && fabs(v - want) < 1e-4 * fabs(want);
}

// ---- GELU ------------------------------------------------------------------------------------------
static int factors(dt_onnx_reader *r, const Onnx__NodeProto *n, dt_onnx_slot **out, int cap, int depth) {
    int k = 0;
    for (size_t i = 0; i < 2; i++) {
        dt_onnx_slot *s = in(r, n, i);
        const Onnx__NodeProto *inner = depth < 2 ? onnx_groups_part(s, "Mul") : NULL;
        if (inner)
            k += factors(r, inner, out + k, cap - k, depth + 1);
        else if (k < cap)
            out[k++] = s;
    }
    return k;
}

// Whether s is Erf(x / sqrt 2) + 1; then x.
static dt_onnx_slot *erf_of(dt_onnx_reader *r, dt_onnx_slot *s) {
    const Onnx__NodeProto *add = onnx_groups_part(s, "Add");
    if (!add) return NULL;
    const size_t at = near(r, in(r, add, 1), 1) ? 0 : 1;
    if (!near(r, in(r, add, 1 - at), 1)) return NULL;
    const Onnx__NodeProto *erf = onnx_groups_part(in(r, add, at), "Erf");
    dt_onnx_slot *scaled = in(r, erf, 0);
    const Onnx__NodeProto *div = onnx_groups_part(scaled, "Div"), *mul = onnx_groups_part(scaled, "Mul");
    if (div && near(r, in(r, div, 1), sqrt(2))) return in(r, div, 0);
    if (mul && near(r, in(r, mul, 1), sqrt(0.5))) return in(r, mul, 0);
    return NULL;
}

static bool find_gelu(dt_onnx_reader *r, const Onnx__NodeProto *n, dt_onnx_group *g) {
    dt_onnx_slot *f[3] = {NULL};
    if (strcmp(n->op_type, "Mul") != 0 || factors(r, n, f, 3, 0) != 3) return false;
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
    return a && a->n_ints == 1 && a->ints[0] == -1 ? n : NULL;
}

static bool find_norm(dt_onnx_reader *r, const Onnx__NodeProto *n, dt_onnx_group *g) {
    const Onnx__NodeProto *mul = onnx_groups_part(in(r, n, 0), "Mul"), *div = onnx_groups_part(in(r, mul, 0), "Div");
    if (strcmp(n->op_type, "Add") != 0 || !div) return false;
    const Onnx__NodeProto *sub = made_by(in(r, div, 0), "Sub"), *root = onnx_groups_part(in(r, div, 1), "Sqrt");
    const Onnx__NodeProto *add = onnx_groups_part(in(r, root, 0), "Add"), *var = mean_of_last(in(r, add, 0));
    const Onnx__NodeProto *square = onnx_groups_part(in(r, var, 0), "Pow");
    const Onnx__NodeProto *mean = sub ? mean_of_last(in(r, sub, 1)) : NULL;
    double eps;
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

static bool find_linear(dt_onnx_reader *r, const Onnx__NodeProto *n, dt_onnx_group *g) {
    if (strcmp(n->op_type, "Add") != 0) return false;
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
static bool find_softplus(dt_onnx_reader *r, const Onnx__NodeProto *n, dt_onnx_group *g) {
    dt_onnx_slot *soft = in(r, n, 2);
    const Onnx__NodeProto *div = made_by(soft, "Div");
    const Onnx__NodeProto *softplus = made_by(div ? in(r, div, 0) : soft, "Softplus");
    const Onnx__NodeProto *greater = onnx_groups_part(in(r, n, 0), "Greater");
    dt_onnx_slot *x = in(r, softplus, 0);
    double beta = 1, by;
    if (!greater || in(r, greater, 0) != x || !near(r, in(r, greater, 1), 20)) return false;
    if (div) {
        if (!made_by(x, "Mul") || !onnx_groups_number(r, in(r, div, 1), &by)) return false;
        if (!onnx_groups_number(r, in(r, x->producer, 1), &beta) || beta != by) return false;
        x = in(r, x->producer, 0);
    }
    if (!x || in(r, n, 1) != x) return false;
    *g = (dt_onnx_group){.kind = ONNX_SAME, .x = soft};
    return true;
}

bool dt_onnx_find_group(dt_onnx_reader *r, const Onnx__NodeProto *n, dt_onnx_group *g) {
    if (strcmp(n->op_type, "Where") == 0) return n->n_input == 3 && find_softplus(r, n, g);
    if (n->n_input != 2 || n->n_output < 1) return false;
    return find_gelu(r, n, g) || find_norm(r, n, g) || find_linear(r, n, g);
}
