// concat_cpu.c: concatenation along an axis, slice, and slice's gradient (zeros around dy), as contiguous
// copies: a tensor is seen as (outer, run), where a run covers the axis and all dimensions behind it.
//
// BLOCKED tensors stay BLOCKED if the axis is the batch, or if the cut along the channels falls between blocks:
// then (N, C/b, H, W, b) has the same runs as (N, C, H, W). The gradient of concatenation is made of slices.
#include "backend/cpu/custom_kernel.h"

#include <string.h>

enum { MAX_INPUTS = 64 };

typedef struct copy_state {
    int64_t outer;
    size_t run[MAX_INPUTS]; // bytes of one run, for each input of concat
    size_t whole;           // bytes of one run of the longer tensor
    size_t skip;            // slice: bytes before the run
} copy_state;

// (outer, axis x inner) of a shape; bytes of one step along the axis.
static size_t step_bytes(const dt_value_info *v, int axis, int64_t *outer) {
    int64_t n = 1, inner = 1;
    for (int i = 0; i < axis; i++) n *= v->shape.d[i];
    for (int i = axis + 1; i < v->shape.n; i++) inner *= v->shape.d[i];
    if (outer) *outer = n;
    return (size_t)inner * dt_dtype_size(v->dtype);
}

// Whether copies along the axis may treat a BLOCKED tensor of this shape as its DENSE twin.
static bool keeps_blocks(dt_layout l, const dt_shape *s, int axis, int64_t begin, int64_t end) {
    if (l.kind != DT_BLOCKED || s->n != 4 || s->d[1] % l.block) return false;
    return axis == 0 || (axis == 1 && begin % l.block == 0 && end % l.block == 0);
}

static dt_status concat_cpu_prepare(dt_kernel_instance *s) {
    int n = s->node->n_in, axis = s->node->attrs.concat.axis;
    const dt_value_info *y = dt_instance_out(s, 0);
    dt_layout first = s->in_layout[0];
    bool blocked = true;
    for (int i = 0; i < n; i++)
        blocked = blocked && keeps_blocks(first, &dt_instance_in(s, i)->shape, axis, 0,
                                          axis == 1 ? dt_instance_in(s, i)->shape.d[1] : 0);
    copy_state *st = dt_custom_prepare(s, sizeof(*st));
    if (n > MAX_INPUTS) return dt_custom_fail(s, "more than %d inputs", (int)MAX_INPUTS);
    for (int i = 0; i < n; i++) {
        const dt_value_info *x = dt_instance_in(s, i);
        if (x->dtype != y->dtype) return dt_custom_fail(s, "%s has another element type", x->name);
        st->run[i] = step_bytes(x, axis, &st->outer) * (size_t)x->shape.d[axis];
        st->whole += st->run[i];
        if (blocked) s->in_layout[i] = first;
    }
    if (blocked) s->out_layout[0] = first;
    return DT_OK;
}

static void concat_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const copy_state *st = s->state;
    size_t at = 0;
    for (int i = 0; i < s->node->n_in; i++) {
        const char *x = r->in[i];
        char *y = (char *)r->out[0] + at;
        for (int64_t o = 0; o < st->outer; o++)
            memcpy(y + (size_t)o * st->whole, x + (size_t)o * st->run[i], st->run[i]);
        at += st->run[i];
    }
}

// long_v: the tensor that is sliced (forward input, backward output).
static void read_slice(const dt_kernel_instance *s, copy_state *st, const dt_value_info *long_v) {
    int axis = s->node->attrs.slice.axis;
    size_t step = step_bytes(long_v, axis, &st->outer);
    st->skip = (size_t)s->node->attrs.slice.begin * step;
    st->run[0] = (size_t)(s->node->attrs.slice.end - s->node->attrs.slice.begin) * step;
    st->whole = (size_t)long_v->shape.d[axis] * step;
}

static bool slice_keeps(const dt_kernel_instance *s, dt_layout l, const dt_shape *long_shape) {
    return keeps_blocks(l, long_shape, s->node->attrs.slice.axis, s->node->attrs.slice.begin, s->node->attrs.slice.end);
}

static dt_status concat_cpu_prepare_slice(dt_kernel_instance *s) {
    dt_layout layout = s->in_layout[0];
    copy_state *st = dt_custom_prepare(s, sizeof(*st));
    read_slice(s, st, dt_instance_in(s, 0));
    if (slice_keeps(s, layout, &dt_instance_in(s, 0)->shape)) s->in_layout[0] = s->out_layout[0] = layout;
    return DT_OK;
}

static void concat_cpu_run_slice(const dt_kernel_instance *s, const dt_run *r) {
    const copy_state *st = s->state;
    for (int64_t o = 0; o < st->outer; o++)
        memcpy((char *)r->out[0] + (size_t)o * st->run[0], (const char *)r->in[0] + (size_t)o * st->whole + st->skip,
               st->run[0]);
}

static dt_status prepare_slice_bwd(dt_kernel_instance *s) {
    int dy_at = dt_pos_grad(s, 0);
    dt_layout layout = s->in_layout[dy_at];
    copy_state *st = dt_custom_prepare(s, sizeof(*st));
    const dt_value_info *dx = dt_instance_out(s, 0);
    if (!dx || dx->dtype != dt_instance_in(s, dy_at)->dtype)
        return dt_custom_fail(s, "the gradient has another element type");
    read_slice(s, st, dx);
    if (slice_keeps(s, layout, &dx->shape)) s->in_layout[dy_at] = s->out_layout[0] = layout;
    return DT_OK;
}

static void concat_cpu_run_slice_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const copy_state *st = s->state;
    const char *dy = r->in[dt_pos_grad(s, 0)];
    for (int64_t o = 0; o < st->outer; o++) {
        char *dx = (char *)r->out[0] + (size_t)o * st->whole;
        memset(dx, 0, st->skip);
        memcpy(dx + st->skip, dy + (size_t)o * st->run[0], st->run[0]);
        memset(dx + st->skip + st->run[0], 0, st->whole - st->skip - st->run[0]);
    }
}

const dt_kernel dt_cpu_concat = {concat_cpu_prepare, concat_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_slice = {concat_cpu_prepare_slice, concat_cpu_run_slice, dt_custom_destroy};
const dt_kernel dt_cpu_slice_bwd = {prepare_slice_bwd, concat_cpu_run_slice_bwd, dt_custom_destroy};
