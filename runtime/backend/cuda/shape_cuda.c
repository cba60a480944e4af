// shape_cuda.c: kernels that move elements, host side.

#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/shape_kernels.h"

// ---- copy ---------------------------------------------------------------------------------------------------------

// Host side of the ops that only move elements: concat, slice and its gradient, transpose, reshape
// (kernels/shape_kernels.h).
//
// Concat and slice keep the layout of their (first) input. In NHWC memory the axes are (N,H,W,C).
//
// Transpose reads any layout. If the memory already holds the result, in DENSE or in NHWC order (dimension 1
// innermost, for three dimensions too), nothing moves: the output takes over the input. Turning an image into tokens,
// (N,C,H,W) -> (N,C,HW) -> (N,HW,C), is therefore free, and so is its gradient, because reshape keeps NHWC as long as
// N and C stay.

// The dimension at a position in memory, outermost first, for a tensor of n dimensions.
static int memory_axis(dt_layout l, int n, int position) {
    if (l.kind != DT_NHWC || n < 3 || position == 0) return position; // NHWC: axes 0, 2, 3, 1
    return position == n - 1 ? 1 : position + 1;
}

// The widest access, in bytes, that all the values or-ed into `bits` are multiples of.
static int unit_of(uint64_t bits) {
    return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : bits % 2 == 0 ? 2 : 1; // lowest bit of all decides
}

// Copies parts, given in bytes (x NULL: zeros), into `outer` rows of `whole` bytes.
static void copy_cuda_join(dt_cuda *c, void *out, int64_t outer, int64_t whole, const dt_join_part *parts, int n_parts,
                           void *stream) {
    for (int first = 0; first < n_parts; first += DT_JOIN_PARTS) {
        const int end = first + DT_JOIN_PARTS < n_parts ? first + DT_JOIN_PARTS : n_parts;
        dt_join_args a = {.out = out};
        // addresses count too: a slice may begin anywhere
        uint64_t bits = (uint64_t)(uintptr_t)out | (uint64_t)whole;
        for (int i = first; i < end; i++)
            bits |= (uint64_t)(uintptr_t)parts[i].x | (uint64_t)(parts[i].run | parts[i].pitch | parts[i].at);
        a.unit = unit_of(bits);
        a.whole = whole / a.unit;
        int64_t blocks = 0;
        for (int i = first; i < end; i++) {
            if (!parts[i].run || !outer) continue; // empty tensors
            dt_join_part p = {.x = parts[i].x,
                              .run = parts[i].run / a.unit,
                              .pitch = parts[i].pitch / a.unit,
                              .at = parts[i].at / a.unit,
                              .begin = blocks,
                              .n = parts[i].run / a.unit * outer};
            blocks += (p.n + 256 * DT_JOIN_EACH - 1) / (256 * DT_JOIN_EACH); // first block of the part
            a.part[a.n_parts++] = p;
        }
        if (blocks) dt_cuda_launch(c, DT_K_join_runs, (dt_cuda_grid){.blocks = blocks, .threads = 256}, &a, stream);
    }
}

void dt_cuda_copy(dt_cuda *c, void *out, const void *x, int64_t n_bytes, void *stream) {
    // 16-byte accesses for all but the tail, so that an odd length does not narrow every access
    const int64_t even = n_bytes / 16 * 16;
    // the tail is at most 15 bytes
    copy_cuda_join(c, out, 1, even, &(dt_join_part){.x = x, .run = even, .pitch = even}, 1, stream);
    copy_cuda_join(c, (char *)out + even, 1, n_bytes - even,
                   &(dt_join_part){.x = (const char *)x + even, .run = n_bytes - even, .pitch = n_bytes - even}, 1,
                   stream);
}

typedef struct runs {
    int64_t outer, step; // step: bytes of one step along the axis
} runs;
static runs runs_of(const dt_value_info *v, dt_layout l, int axis) {
    runs r = {1, (int64_t)dt_dtype_size(v->dtype)};
    bool behind = false;
    for (int p = 0; p < v->shape.n; p++) {
        const int a = memory_axis(l, v->shape.n, p);
        // in front of the axis: rows; behind: contiguous run
        if (a == axis)
            behind = true;
        else if (behind)
            r.step *= v->shape.d[a];
        else
            r.outer *= v->shape.d[a];
    }
    return r;
}

static dt_status copy_cuda_prepare_concat(dt_kernel_instance *s) {
    // the first input's layout, unless one is not an activation
    dt_layout layout = s->in_layout[0];
    dt_cuda_prepare(s, 0);
    for (int i = 0; i < s->node->n_in; i++)
        if (dt_instance_in(s, i)->kind != DT_V_TEMP) layout = dt_dense();
    for (int i = 0; i < s->node->n_in; i++) {
        if (dt_instance_in(s, i)->dtype != dt_instance_out(s, 0)->dtype) // bytes are copied: no conversion
            return dt_cuda_fail(s, "%s has another element type", dt_instance_in(s, i)->name);
        s->in_layout[i] = layout;
    }
    s->out_layout[0] = layout;
    return DT_OK;
}

static void copy_cuda_run_concat(const dt_kernel_instance *s, const dt_run *r) {
    enum { MOST = 64 };
    dt_join_part parts[MOST];
    const int axis = s->node->attrs.concat.axis;
    int64_t at = 0, outer = 1;
    for (int i = 0; i < s->node->n_in && i < MOST; i++) {
        const dt_value_info *x = dt_instance_in(s, i);
        const runs k = runs_of(x, s->out_layout[0], axis);
        const int64_t run = k.step * x->shape.d[axis]; // bytes of a row of this part
        parts[i] = (dt_join_part){.x = r->in[i], .run = run, .pitch = run, .at = at};
        at += run, outer = k.outer;
    }
    copy_cuda_join(dt_cuda_of(s), r->out[0], outer, at, parts, s->node->n_in, r->stream);
}

static dt_status copy_cuda_prepare_slice(dt_kernel_instance *s) {
    const int at = s->node->backward ? dt_cuda_pos_grad(s, 0) : 0;
    const dt_layout layout = s->in_layout[at];
    dt_cuda_prepare(s, 0);
    if (!dt_instance_out(s, 0) || dt_instance_out(s, 0)->dtype != dt_instance_in(s, at)->dtype)
        return dt_cuda_fail(s, "the output has another element type");
    s->in_layout[at] = s->out_layout[0] = layout;
    return DT_OK;
}

static void copy_cuda_run_slice(const dt_kernel_instance *s, const dt_run *r) {
    const int axis = s->node->attrs.slice.axis;
    const dt_value_info *x = dt_instance_in(s, 0);
    const runs k = runs_of(x, s->out_layout[0], axis);
    const int64_t begin = s->node->attrs.slice.begin * k.step;
    const int64_t run = s->node->attrs.slice.end * k.step - begin;
    // pitch: a whole row of x
    const dt_join_part part = {.x = (const char *)r->in[0] + begin, .run = run, .pitch = x->shape.d[axis] * k.step};
    copy_cuda_join(dt_cuda_of(s), r->out[0], k.outer, run, &part, 1, r->stream);
}

static void copy_cuda_run_slice_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const int axis = s->node->attrs.slice.axis;
    const dt_value_info *dx = dt_instance_out(s, 0);
    const runs k = runs_of(dx, s->out_layout[0], axis);
    const int64_t begin = s->node->attrs.slice.begin * k.step;
    const int64_t end = s->node->attrs.slice.end * k.step, whole = dx->shape.d[axis] * k.step;
    const dt_join_part parts[3] = {
        {.run = begin}, // zeros in front
        {.x = r->in[dt_cuda_pos_grad(s, 0)], .run = end - begin, .pitch = end - begin, .at = begin},
        {.run = whole - end, .at = end}}; // zeros behind
    copy_cuda_join(dt_cuda_of(s), r->out[0], k.outer, whole, parts, 3, r->stream);
}

const dt_kernel dt_cuda_concat = {copy_cuda_prepare_concat, copy_cuda_run_concat, dt_cuda_destroy};
const dt_kernel dt_cuda_slice = {copy_cuda_prepare_slice, copy_cuda_run_slice, dt_cuda_destroy};
const dt_kernel dt_cuda_slice_bwd = {copy_cuda_prepare_slice, copy_cuda_run_slice_bwd, dt_cuda_destroy};

// ---- transpose -------------------------------------------------------------------------------------
typedef struct permutation {
    int n;                     // merged dimensions, in the order of out's memory
    int64_t size[DT_MAX_DIMS]; // elements
    int64_t step[DT_MAX_DIMS]; // elements in x's memory for one step along each
    int64_t n_bytes;
    int element;
} permutation;

static permutation copy_cuda_merge(const dt_value_info *x, dt_layout from, dt_layout to, const int *perm) {
    permutation m = {.element = (int)dt_dtype_size(x->dtype)};
    int64_t stride[DT_MAX_DIMS], at = 1;
    // element strides of x's axes
    for (int p = x->shape.n - 1; p >= 0; p--) {
        const int axis = memory_axis(from, x->shape.n, p);
        stride[axis] = at, at *= x->shape.d[axis];
    }
    m.n_bytes = at * m.element;
    for (int p = 0; p < x->shape.n; p++) {
        const int axis = perm[memory_axis(to, x->shape.n, p)], last = m.n - 1;
        const int64_t size = x->shape.d[axis], step = stride[axis];
        if (size == 1) continue;                      // 1 element: no dimension
        if (last >= 0 && m.step[last] == step * size) // contiguous with the dimension before: one
            m.size[last] *= size, m.step[last] = step;
        else
            m.size[m.n] = size, m.step[m.n++] = step;
    }
    if (m.n == 0) m.n = 1, m.size[0] = 1, m.step[0] = 1; // a single element
    return m;
}

static dt_status prepare_transpose(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    const dt_layout layout = s->in_layout[0], nhwc = {.kind = DT_NHWC};
    const int *perm = s->node->attrs.transpose.perm;
    permutation *m = dt_cuda_prepare(s, sizeof *m);
    if (x->dtype != y->dtype) return dt_cuda_fail(s, "cannot change the element type");
    // dt_cuda_prepare has made it DENSE
    s->in_layout[0] = layout;
    s->out_layout[0] = dt_dense();
    *m = copy_cuda_merge(x, layout, dt_dense(), perm);
    if (m->n > 1 && y->shape.n >= 3 && y->shape.n <= 4 && y->kind == DT_V_TEMP) {
        const permutation other = copy_cuda_merge(x, layout, nhwc, perm); // nothing moves if NHWC holds the result
        if (other.n == 1) *m = other, s->out_layout[0] = nhwc;
    }
    if (m->n == 1) s->inplace_in = 0;
    return DT_OK;
}

static void run_runs(dt_cuda *c, const permutation *m, const dt_run *r) {
    dt_permute_args a = {.x = r->in[0], .out = r->out[0], .n = m->n};
    const int last = m->n - 1;
    uint64_t bits = (uint64_t)(uintptr_t)a.x | (uint64_t)(uintptr_t)a.out | (uint64_t)(m->size[last] * m->element);
    for (int i = 0; i < last; i++) bits |= (uint64_t)(m->step[i] * m->element);
    a.unit = unit_of(bits);
    for (int i = 0; i < last; i++) a.size[i] = m->size[i], a.step[i] = m->step[i] * m->element / a.unit;
    a.size[last] = m->size[last] * m->element / a.unit, a.step[last] = 1;
    a.count = m->n_bytes / a.unit;
    const int64_t blocks = (a.count + 256 * DT_JOIN_EACH - 1) / (256 * DT_JOIN_EACH);
    dt_cuda_launch(c, DT_K_permute, (dt_cuda_grid){.blocks = blocks, .threads = 256}, &a, r->stream);
}

static void run_planes(dt_cuda *c, const permutation *m, const dt_run *r) {
    dt_planes_args a = {.p = {.x = r->in[0], .out = r->out[0], .n = m->n, .unit = m->element}};
    int64_t to[DT_MAX_DIMS], at = 1, planes = 1;
    int fast = m->n - 2, k = 0;
    for (int i = m->n - 1; i >= 0; i--) {
        to[i] = at, at *= m->size[i];
        if (m->step[i] == 1) fast = i;
    }
    for (int i = 0; i < m->n - 1; i++) {
        if (i == fast) continue;
        a.p.size[k] = m->size[i], a.p.step[k] = m->step[i], a.to[k++] = to[i];
        planes *= m->size[i];
    }
    const int order[2] = {fast, m->n - 1};
    for (int i = 0; i < 2; i++, k++) {
        a.p.size[k] = m->size[order[i]], a.p.step[k] = m->step[order[i]];
        a.to[k] = to[order[i]];
    }
    const int64_t tile = DT_PERMUTE_TILE;
    const dt_cuda_grid g = {.blocks =
                                planes * ((a.p.size[k - 2] + tile - 1) / tile) * ((a.p.size[k - 1] + tile - 1) / tile),
                            .threads = 256};
    dt_cuda_launch(c, DT_K_permute_planes, g, &a, r->stream);
}

static void run_transpose(const dt_kernel_instance *s, const dt_run *r) {
    const permutation *m = s->state;
    dt_cuda *c = dt_cuda_of(s);
    if (!m->n_bytes || r->out[0] == r->in[0]) return;
    if (m->n == 1)
        dt_cuda_copy(c, r->out[0], r->in[0], m->n_bytes, r->stream);
    else if (m->step[m->n - 1] == 1)
        run_runs(c, m, r);
    else
        run_planes(c, m, r);
}

// Returns whether NHWC memory of x is also NHWC memory of y.
static bool keeps_channels(const dt_shape *x, const dt_shape *y) {
    return x->n >= 3 && y->n >= 3 && y->n <= 4 && x->d[0] == y->d[0] && x->d[1] == y->d[1];
}

static dt_status copy_cuda_prepare_reshape(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    const dt_layout layout = s->in_layout[0];
    permutation *m = dt_cuda_prepare(s, sizeof *m);
    if (x->dtype != y->dtype) return dt_cuda_fail(s, "cannot change the element type");
    m->n = 1, m->n_bytes = dt_shape_elements(&x->shape) * (int64_t)dt_dtype_size(x->dtype);
    s->in_layout[0] = s->out_layout[0] = dt_dense();
    if (layout.kind == DT_NHWC && keeps_channels(&x->shape, &y->shape) && y->kind == DT_V_TEMP)
        s->in_layout[0] = s->out_layout[0] = layout;
    else if (layout.kind == DT_NHWC && dt_shape_elements(&x->shape) == x->shape.d[0] * x->shape.d[1])
        s->in_layout[0] = layout; // one pixel: both orders are the same memory
    s->inplace_in = 0;
    return DT_OK;
}

const dt_kernel dt_cuda_transpose = {prepare_transpose, run_transpose, dt_cuda_destroy};
const dt_kernel dt_cuda_reshape = {copy_cuda_prepare_reshape, run_transpose, dt_cuda_destroy};

// ---- expand -------------------------------------------------------------------------------------------------------

// Host side of expand and sum (graph/ops/shape.c; kernels/shape_kernels.h), DENSE.

// The larger tensor's dimensions: those that are kept, those that are repeated, and all with their steps in the smaller.
typedef struct expand_state {
    dt_places kept, summed; // steps of the larger tensor
    dt_permute_args all;
    int type;
} expand_state;

static dt_status expand_cuda_prepare(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    expand_state *st = dt_cuda_prepare_dense(s, sizeof *st);
    DT_TRY(dt_cuda_type(s, &st->type, x, y));
    const bool sum = s->node->op == DT_OP_sum;
    const dt_shape *big = sum ? &x->shape : &y->shape, *small = sum ? &y->shape : &x->shape;
    int64_t step[DT_MAX_DIMS], small_step[DT_MAX_DIMS], at = 1, small_at = 1;
    for (int i = big->n - 1; i >= 0; i--) {
        step[i] = at, at *= big->d[i];
        small_step[i] = small->d[i] == big->d[i] ? small_at : 0, small_at *= small->d[i];
    }
    st->kept.count = st->summed.count = 1;
    st->all = (dt_permute_args){.n = big->n, .unit = (int)dt_dtype_size(x->dtype), .count = dt_shape_elements(big)};
    for (int i = 0; i < big->n; i++) {
        dt_places *p = small->d[i] == big->d[i] ? &st->kept : &st->summed;
        p->size[p->n] = big->d[i], p->step[p->n++] = step[i];
        p->count *= big->d[i];
        st->all.size[i] = big->d[i], st->all.step[i] = small_step[i];
    }
    return DT_OK;
}

static void expand_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    const expand_state *st = s->state;
    dt_permute_args a = st->all;
    a.x = r->in[0], a.out = r->out[0];
    const int64_t blocks = (a.count + 256 * DT_JOIN_EACH - 1) / (256 * DT_JOIN_EACH);
    dt_cuda_launch(dt_cuda_of(s), DT_K_permute, (dt_cuda_grid){.blocks = blocks, .threads = 256}, &a, r->stream);
}

static void expand_cuda_run_sum(const dt_kernel_instance *s, const dt_run *r) {
    const expand_state *st = s->state;
    dt_sum_args a = {
        .x = r->in[0], .out = r->out[0], .kept = st->kept, .summed = st->summed, .group = 1, .type = st->type};
    while (a.group < 256 && a.group * 8 < a.summed.count) a.group *= 2;
    const int64_t each = 256 / a.group, blocks = (a.kept.count + each - 1) / each;
    dt_cuda_launch(dt_cuda_of(s), DT_K_sum_dims, (dt_cuda_grid){.blocks = blocks, .threads = 256}, &a, r->stream);
}

const dt_kernel dt_cuda_expand = {expand_cuda_prepare, expand_cuda_run, dt_cuda_destroy};
const dt_kernel dt_cuda_sum = {expand_cuda_prepare, expand_cuda_run_sum, dt_cuda_destroy};
