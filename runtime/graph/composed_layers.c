// composed_layers.c: layers that are made of several ops: group norm, PReLU, padding, adaptive pooling, reductions.
#include "graph/build.h"

#include <string.h>

static dt_shape composed_layers_shape_of(const dt_graph *g, dt_value x) {
    return x == DT_NONE ? dt_shape0() : dt_info_of(g, x)->shape;
}

// (N,C,…) as an image, and the shape to go back to.
static dt_value composed_layers_as_image(dt_graph *g, dt_value x, dt_shape *was) {
    *was = composed_layers_shape_of(g, x);
    if (x == DT_NONE || was->n == 4) return x;
    if (was->n < 2) return dt_graph_fail(g, "wants (N,C,…)");
    return dt_reshape(g, x, dt_shape4(was->d[0], was->d[1], -1, 1));
}

dt_value dt_add_channels(dt_graph *g, dt_value x, dt_value b) {
    dt_shape s = composed_layers_shape_of(g, x);
    if (b == DT_NONE || s.n < 2) return x;
    dt_shape each = {.n = s.n - 1};
    // b (C) as (C,1,…,1), expanded to a sample's shape, which add repeats over N
    for (int i = 0; i < each.n; i++) each.d[i] = i == 0 ? composed_layers_shape_of(g, b).d[0] : 1, s.d[i] = s.d[i + 1];
    s.n--;
    if (s.n > 1) b = dt_expand(g, dt_reshape(g, b, each), s);
    return dt_add(g, x, b);
}

// ---- norms, PReLU ----------------------------------------------------------------------------------
dt_value dt_group_norm_with(dt_graph *g, const char *name, dt_value x, int64_t groups, dt_value weight, dt_value bias,
                            float eps) {
    dt_shape was;
    x = composed_layers_as_image(g, x, &was);
    if (x == DT_NONE) return x;
    if (groups < 1 || was.d[1] % groups)
        return dt_graph_fail(g, "group_norm %s: %lld channels are no multiple of %lld groups", name ? name : "",
                             (long long)was.d[1], (long long)groups);
    const dt_shape image = composed_layers_shape_of(g, x);
    const dt_shape row = dt_shape1(image.d[1] / groups * image.d[2] * image.d[3]); // a group's channels and pixels
    dt_value one, zero;
    one = dt_full(g, row, 1);
    zero = dt_full(g, row, 0);
    // a layer norm of rows that are groups: factors 1 and summands 0, the real ones are of channels
    x = dt_reshape(g, x, dt_shape3(was.d[0], groups, row.d[0]));
    x = dt_layer_norm_with(g, name, x, one, zero, eps);
    x = dt_reshape(g, x, image);
    if (weight != DT_NONE) x = dt_mul(g, x, dt_reshape(g, weight, dt_shape3(image.d[1], 1, 1)));
    return dt_reshape(g, dt_add_channels(g, x, bias), was);
}

dt_value dt_group_norm(dt_graph *g, const char *name, dt_value x, int64_t groups, float eps, bool affine) {
    const dt_shape s = composed_layers_shape_of(g, x);
    dt_value weight = DT_NONE, bias = DT_NONE;
    if (affine && s.n > 1) {
        weight = dt_param(g, dt_arena_printf(&g->arena, "%s.weight", name), dt_shape1(s.d[1]),
                          (dt_init){DT_INIT_CONSTANT, 1}, false);
        bias = dt_param(g, dt_arena_printf(&g->arena, "%s.bias", name), dt_shape1(s.d[1]), (dt_init){DT_INIT_ZERO, 0},
                        false);
    }
    return dt_group_norm_with(g, name, x, groups, weight, bias, eps);
}

// relu(x) + weight min(x, 0): one of the two is 0, and min(x, 0) = x - relu(x) is exact.
dt_value dt_prelu_with(dt_graph *g, dt_value x, dt_value weight) {
    dt_shape was;
    x = composed_layers_as_image(g, x, &was);
    if (x == DT_NONE || weight == DT_NONE) return x;
    dt_value positive = dt_relu(g, x), negative, each;
    negative = dt_add(g, x, dt_scale(g, positive, -1));
    each = dt_reshape(g, weight, dt_shape3(-1, 1, 1));
    each = dt_expand(g, each, dt_shape3(was.d[1], 1, 1)); // one slope for all channels, or one each
    return dt_reshape(g, dt_add(g, positive, dt_mul(g, negative, each)), was);
}

dt_value dt_prelu(dt_graph *g, const char *name, dt_value x, bool each, float init) {
    const int64_t n = each && composed_layers_shape_of(g, x).n > 1 ? composed_layers_shape_of(g, x).d[1] : 1;
    dt_value weight = dt_param(g, dt_arena_printf(&g->arena, "%s.weight", name), dt_shape1(n),
                               (dt_init){DT_INIT_CONSTANT, init}, false);
    return dt_prelu_with(g, x, weight);
}

// ---- padding ---------------------------------------------------------------------------------------
// Elements `count` of them from `from` on, in steps of `step`, of an axis, one behind the other.
static int list_elements(dt_graph *g, dt_value x, int axis, int64_t from, int64_t step, int64_t count, dt_value *out) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = from + i * step;
        out[i] = dt_slice(g, x, axis, at, at + 1);
    }
    return (int)count;
}

dt_value dt_pad(dt_graph *g, dt_value x, int axis, int64_t begin, int64_t end, dt_pad_mode mode, float with) {
    enum { MOST = 30 }; // of elements that are not constant: a concat joins 64 values
    dt_value part[2 * MOST + 1];
    dt_shape s = composed_layers_shape_of(g, x);
    int n = 0;
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    if (axis < 0 || axis >= s.n) return dt_graph_fail(g, "pad: there is no axis %d", axis);
    const int64_t size = s.d[axis], cut[2] = {begin < 0 ? -begin : 0, end < 0 ? -end : 0};
    if (cut[0] + cut[1] > 0) {
        if (cut[0] + cut[1] >= size) return dt_graph_fail(g, "pad: nothing is left of axis %d", axis);
        x = dt_slice(g, x, axis, cut[0], size - cut[1]);
        // cut first: what is reflected or repeated is of the rest
        return dt_pad(g, x, axis, begin < 0 ? 0 : begin, end < 0 ? 0 : end, mode, with);
    }
    const int64_t most = mode == DT_PAD_REFLECT ? size - 1 : MOST; // the edge itself is not reflected
    if (mode != DT_PAD_CONSTANT && (begin > most || end > most || begin > MOST || end > MOST))
        return dt_graph_fail(g,
                             "pad: reflected and repeated padding is of at most %d elements, and "
                             "reflected of fewer than the axis has",
                             MOST);
    const int64_t sizes[2] = {begin, end};
    for (int side = 0; side < 2; side++) {
        if (mode == DT_PAD_CONSTANT && sizes[side] > 0) {
            s.d[axis] = sizes[side];
            part[n++] = dt_full(g, s, with);
        } else if (mode == DT_PAD_REFLECT) {
            n += list_elements(g, x, axis, side ? size - 2 : begin, -1, sizes[side], part + n);
        } else if (mode == DT_PAD_REPLICATE) {
            n += list_elements(g, x, axis, side ? size - 1 : 0, 0, sizes[side], part + n);
        }
        if (side == 0) part[n++] = x;
    }
    return n == 1 ? x : dt_concat(g, part, n, axis);
}

// ---- adaptive pooling ------------------------------------------------------------------------------
// All of a window of at most this size is pooled at once: max_pool counts its places in a byte.
enum { MOST_PLACES = 255 };

static dt_value composed_layers_pool(dt_graph *g, dt_value x, dt_window w, bool max) {
    return max ? dt_max_pool_window(g, x, &w) : dt_avg_pool_window(g, x, &w, false);
}

// The largest or the mean of all elements along H (d 0) or W (d 1), which stays with one. A long one in steps; what
// hangs over the end never counts.
static dt_value pool_all(dt_graph *g, dt_value x, int d, bool max) {
    for (int64_t n; x != DT_NONE && (n = composed_layers_shape_of(g, x).d[2 + d]) > 1;) {
        dt_window w = {.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
        w.kernel[d] = max && n > MOST_PLACES ? 16 : (int)n; // largest of largest; a mean is taken at once
        w.stride[d] = w.kernel[d];
        w.pad_end[d] = (int)((w.kernel[d] - n % w.kernel[d]) % w.kernel[d]);
        x = composed_layers_pool(g, x, w, max);
    }
    return x;
}

// Element i of n along an axis of size s is made of its elements floor(i s / n) to ceil((i + 1) s / n) - 1.
static dt_value pool_axis(dt_graph *g, dt_value x, int d, int64_t n, bool max) {
    const int64_t s = composed_layers_shape_of(g, x).d[2 + d];
    dt_value part[64];
    if (n == s || x == DT_NONE) return x;
    // windows side by side: one pooling
    if (s % n == 0 && s / n <= MOST_PLACES) {
        dt_window w = {.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
        w.kernel[d] = w.stride[d] = (int)(s / n);
        return composed_layers_pool(g, x, w, max);
    }
    if (n > 64)
        return dt_graph_fail(g, "adaptive pooling: %lld of %lld windows differ; at most 64 may", (long long)n,
                             (long long)s);
    for (int64_t i = 0; i < n; i++)
        part[i] = pool_all(g, dt_slice(g, x, 2 + d, i * s / n, ((i + 1) * s + n - 1) / n), d, max);
    return n == 1 ? part[0] : dt_concat(g, part, (int)n, 2 + d);
}

dt_value dt_adaptive_pool(dt_graph *g, dt_value x, int64_t h, int64_t w, bool max) {
    const dt_shape s = composed_layers_shape_of(g, x);
    if (x == DT_NONE) return x;
    if (s.n != 4 || h < 1 || w < 1) return dt_graph_fail(g, "adaptive pooling wants (N,C,H,W), and sizes above 0");
    return pool_axis(g, pool_axis(g, x, 1, w, max), 0, h, max);
}

// ---- reductions ------------------------------------------------------------------------------------
static dt_value largest(dt_graph *g, dt_value x, const dt_shape *to) {
    const dt_shape s = composed_layers_shape_of(g, x);
    for (int d = 0; d < s.n; d++) {
        int64_t inner = 1;
        dt_shape now = composed_layers_shape_of(g, x);
        if (to->d[d] == s.d[d] || x == DT_NONE) continue;
        for (int i = d + 1; i < s.n; i++) inner *= now.d[i];
        now.d[d] = 1;
        // the axis as H of an image of W inner elements
        x = dt_reshape(g, x, dt_shape4(d > 0 ? s.d[0] : 1, -1, s.d[d], inner));
        x = dt_reshape(g, pool_all(g, x, 0, true), now);
    }
    return x;
}

dt_value dt_reduce(dt_graph *g, dt_value x, dt_reduce_kind how, unsigned axes, bool keep) {
    const dt_shape s = composed_layers_shape_of(g, x);
    dt_shape to = s, left = {0};
    int64_t count = 1;
    if (x == DT_NONE) return x;
    for (int i = 0; i < s.n; i++) {
        if (axes >> i & 1)
            count *= s.d[i], to.d[i] = 1;
        else
            left.d[left.n++] = s.d[i];
    }
    if (how == DT_REDUCE_MEAN && s.n == 4 && axes == 12) { // the mean of an image has an op of its own
        x = dt_global_pool(g, x);
        return keep ? dt_reshape(g, x, to) : x;
    }
    // with ones in place of the axes; `left` is without them
    x = how == DT_REDUCE_MAX ? largest(g, x, &to) : dt_sum(g, x, to);
    if (how == DT_REDUCE_MEAN) x = dt_scale(g, x, 1.0f / (float)count);
    return keep ? x : dt_reshape(g, x, left);
}
