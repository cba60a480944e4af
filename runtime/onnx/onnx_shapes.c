// onnx_shapes.c: which shape a node of an ONNX file gives, of constants (dt_onnx_fold.c) and of values alike.
#include "onnx_reader.h"

#include <math.h>
#include <string.h>

int64_t dt_onnx_axis(dt_onnx_reader *r, int64_t axis, int n) {
    if (axis < 0) axis += n;
    if (axis >= 0 && axis < n) return axis;
    dt_onnx_fail(r, "has an axis that its input lacks");
    return 0;
}

int dt_onnx_integers(dt_onnx_reader *r, int i, const char *attribute, int64_t *out) {
    const dt_onnx_const *c = i >= 0 ? dt_onnx_as_const(r, dt_onnx_in(r, i)) : NULL;
    const Onnx__AttributeProto *a = attribute ? dt_onnx_attribute(r->node, attribute) : NULL;
    const int64_t n = c ? c->count : a ? (int64_t)a->n_ints : -1;
    if (!c && i >= 0 && dt_onnx_in(r, i)) {
        dt_onnx_fail(r, "input %d must be known when the graph is built", i);
        return -1;
    }
    if (n > DT_MAX_DIMS) {
        dt_onnx_fail(r, "has more than %d integers", DT_MAX_DIMS);
        return -1;
    }
    for (int64_t k = 0; k < n; k++) out[k] = c ? (int64_t)fmin(fmax(c->v[k], -9e15), 9e15) : a->ints[k];
    return (int)n;
}

bool dt_onnx_broadcast(dt_onnx_reader *r, const dt_shape *a, const dt_shape *b, dt_shape *out) {
    dt_shape s = {.n = a->n > b->n ? a->n : b->n};
    for (int i = 1; i <= s.n; i++) {
        const int64_t x = i > a->n ? 1 : a->d[a->n - i], y = i > b->n ? 1 : b->d[b->n - i];
        if (x != y && x != 1 && y != 1) return dt_onnx_fail(r, "shapes do not match");
        s.d[s.n - i] = x == 1 ? y : x;
    }
    *out = s;
    return true;
}

bool dt_onnx_expanded(dt_onnx_reader *r, const dt_shape *x, dt_shape *y) {
    dt_shape to = {0};
    to.n = dt_onnx_integers(r, 1, NULL, to.d);
    for (int i = 0; i < to.n; i++)
        if (to.d[i] == -1) to.d[i] = 1; // as it is
    if (to.n < 0) return dt_onnx_fail(r, "lacks a shape");
    return dt_onnx_broadcast(r, x, &to, y) && (dt_shape_is_sound(y) || dt_onnx_fail(r, "has an impossible shape"));
}

// 0: as many as x has; -1: what is left.
static void onnx_shapes_reshape(dt_onnx_reader *r, const dt_shape *x, dt_shape *y) {
    int64_t known = 1;
    const int64_t count = dt_shape_elements(x);
    int open = -1;
    y->n = dt_onnx_integers(r, 1, NULL, y->d);
    for (int i = 0; i < y->n; i++) {
        if (y->d[i] == 0 && i < x->n && !dt_onnx_read_int(r, "allowzero", 0)) y->d[i] = x->d[i];
        if (y->d[i] == -1 && open >= 0) dt_onnx_fail(r, "leaves two sizes open");
        if (y->d[i] == -1) open = i;
        if (y->d[i] > 0 && y->d[i] <= count && known <= count) known *= y->d[i];
    }
    if (open >= 0) y->d[open] = count / known;
}

bool dt_onnx_reshaped(dt_onnx_reader *r, const dt_shape *x, dt_shape *y) {
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
        *y = dt_shape2(1, 1);
        for (int i = 0; i < x->n; i++) y->d[i >= first] *= x->d[i];
    } else {
        const int n_axes = dt_onnx_integers(r, 1, NULL, axes);
        const int n = unsqueeze && n_axes > 0 ? x->n + n_axes : x->n;
        if (n > DT_MAX_DIMS) return dt_onnx_fail(r, "has more than %d dimensions", DT_MAX_DIMS);
        for (int i = 0; i < n_axes; i++) set |= 1u << dt_onnx_axis(r, axes[i], n);
        for (int i = 0, from = 0; unsqueeze && i < n; i++)
            y->d[y->n++] = set >> i & 1 || from >= x->n ? 1 : x->d[from++];
        for (int i = 0; !unsqueeze && i < n; i++)
            if (n_axes < 0 ? x->d[i] != 1 : !(set >> i & 1)) y->d[y->n++] = x->d[i];
    }
    return r->g->status == DT_OK && (y->n >= 0 || dt_onnx_fail(r, "lacks a shape"));
}

bool dt_onnx_order(dt_onnx_reader *r, int n, int *order) {
    int64_t perm[DT_MAX_DIMS];
    const int given = dt_onnx_integers(r, -1, "perm", perm);
    unsigned seen = 0;
    for (int i = 0; i < n; i++) {
        const int64_t from = given < 0 ? n - 1 - i : i < given ? perm[i] : -1;
        if (from >= 0 && from < n) seen |= 1u << from;
        order[i] = (int)from;
    }
    return (seen == (1u << n) - 1 && (given < 0 || given == n)) || dt_onnx_fail(r, "has an order that is none");
}

static int64_t onnx_shapes_within(int64_t at, int64_t low, int64_t high) {
    return at < low ? low : at > high ? high : at;
}

bool dt_onnx_sliced(dt_onnx_reader *r, const dt_shape *x, int64_t *begin, int64_t *step, dt_shape *y) {
    int64_t from[DT_MAX_DIMS], to[DT_MAX_DIMS], axes[DT_MAX_DIMS], steps[DT_MAX_DIMS];
    const int n = dt_onnx_integers(r, 1, NULL, from), n_to = dt_onnx_integers(r, 2, NULL, to);
    const int n_axes = dt_onnx_integers(r, 3, NULL, axes), n_steps = dt_onnx_integers(r, 4, NULL, steps);
    if (n < 0 || n_to != n || (n_axes >= 0 && n_axes != n) || (n_steps >= 0 && n_steps != n))
        return dt_onnx_fail(r, "has lists of different lengths");
    *y = *x;
    for (int k = 0; k < x->n; k++) begin[k] = 0, step[k] = 1;
    for (int i = 0; i < n; i++) {
        const int64_t k = dt_onnx_axis(r, n_axes < 0 ? i : axes[i], x->n);
        const int64_t by = n_steps < 0 ? 1 : steps[i];
        if (r->g->status != DT_OK) return false;
        if (by == 0) return dt_onnx_fail(r, "has a step of 0");
        const int64_t size = x->d[k], low = by < 0 ? -1 : 0, high = by < 0 ? size - 1 : size;
        const int64_t first = onnx_shapes_within(from[i] + (from[i] < 0 ? size : 0), low, high);
        const int64_t end = onnx_shapes_within(to[i] + (to[i] < 0 ? size : 0), low, high);
        const int64_t taken = by < 0 ? (first - end - by - 1) / -by : (end - first + by - 1) / by;
        begin[k] = first, step[k] = by, y->d[k] = taken > 0 ? taken : 0;
    }
    return true;
}
