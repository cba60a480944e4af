// resize_cpu.c: the op resize in any layout: an element of a plane is one channel (DENSE), a block of them (BLOCKED) or all
// (NHWC), and is two places of two rows, weighted. Backward adds each gradient to those places, plane by plane, in f32:
// in dx where it is f32, else in a plane of scratch for each thread.
#include "backend/cpu/custom_kernel.h"
#include "graph/resize_taps.h"

#include <string.h>

typedef struct resize_state {
    int type;
    int64_t planes, each; // elements of a place
    int64_t big[2], small[2];
    dt_taps *taps[2]; // by row, by column of y
} resize_state;

static void resize_cpu_destroy(dt_kernel_instance *s) {
    resize_state *st = s->state;
    if (st) free(st->taps[0]), free(st->taps[1]);
    dt_custom_destroy(s);
}

// x: what is resized (backward dx); y: the result.
static dt_status resize_cpu_read_shapes(dt_kernel_instance *s, const dt_value_info *x, const dt_value_info *y,
                                        dt_layout layout) {
    resize_state *st = dt_custom_prepare(s, sizeof *st);
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    const int64_t channels = x->shape.d[1];
    st->each = layout.kind == DT_NHWC ? channels : layout.kind == DT_BLOCKED ? layout.block : 1;
    st->planes = x->shape.d[0] * ((channels + st->each - 1) / st->each);
    for (int d = 0; d < 2; d++) {
        st->big[d] = y->shape.d[2 + d], st->small[d] = x->shape.d[2 + d];
        st->taps[d] = dt_xcalloc((size_t)st->big[d], sizeof *st->taps[d]);
        for (int i = 0; i < st->big[d]; i++)
            st->taps[d][i] =
                dt_resize_taps((int)s->node->attrs.resize.mode, s->node->attrs.resize.step[d], i, (int)st->small[d]);
    }
    return DT_OK;
}

static dt_status resize_cpu_prepare(dt_kernel_instance *s) {
    const dt_layout layout = s->in_layout[0];
    DT_TRY(resize_cpu_read_shapes(s, dt_instance_in(s, 0), dt_instance_out(s, 0), layout));
    s->in_layout[0] = s->out_layout[0] = layout;
    return DT_OK;
}

// A row of y in strips of floats.
static inline void forward_row(const resize_state *st, void *y, const void *x, int64_t row, int type) {
    enum { STRIP = 64 };
    const dt_taps *down = &st->taps[0][row];
    const int64_t width = st->small[1] * st->each, each = st->each;
    for (int64_t col = 0; col < st->big[1]; col++) {
        const dt_taps *t = &st->taps[1][col];
        const float w[4] = {down->weight[0] * t->weight[0], down->weight[0] * t->weight[1],
                            down->weight[1] * t->weight[0], down->weight[1] * t->weight[1]};
        const int64_t at[4] = {down->at[0] * width + t->at[0] * each, down->at[0] * width + t->at[1] * each,
                               down->at[1] * width + t->at[0] * each, down->at[1] * width + t->at[1] * each};
        for (int64_t from = 0; from < each; from += STRIP) {
            float sum[STRIP];
            const int64_t n = each - from < STRIP ? each - from : STRIP;
            const int64_t to = (row * st->big[1] + col) * each + from;
            for (int64_t i = 0; i < n; i++)
                sum[i] = w[0] * dt_row_get(type, x, at[0] + from + i) + w[1] * dt_row_get(type, x, at[1] + from + i) +
                         w[2] * dt_row_get(type, x, at[2] + from + i) + w[3] * dt_row_get(type, x, at[3] + from + i);
            if (type == DT_ROW_BF16)
                dt_simd_get()->elementwise->to_bf16((uint16_t *)y + to, sum, n);
            else
                memcpy((float *)y + to, sum, (size_t)n * sizeof *sum);
        }
    }
}

static void resize_cpu_forward_item(const void *ctx, int64_t item, int64_t end) {
    const dt_one_to_one *c = ctx;
    const resize_state *st = c->state;
    const int64_t plane = item / st->big[0], row = item % st->big[0];
    void *y = dt_row_at_mut(st->type, c->y, plane * st->big[0] * st->big[1] * st->each);
    const void *x = dt_row_at(st->type, c->x, plane * st->small[0] * st->small[1] * st->each);
    if (st->type == DT_ROW_BF16)
        forward_row(st, y, x, row, DT_ROW_BF16);
    else
        forward_row(st, y, x, row, DT_ROW_F32);
}

static void resize_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const resize_state *st = s->state;
    dt_custom_items(s->threads, st->planes * st->big[0], resize_cpu_forward_item,
                    &(dt_one_to_one){st, r->out[0], r->in[0]});
}

// ---- backward --------------------------------------------------------------------------------------
static int64_t small_plane(const resize_state *st) {
    return st->small[0] * st->small[1] * st->each;
}

static dt_status resize_cpu_prepare_bwd(dt_kernel_instance *s) {
    const int dy = dt_pos_grad(s, 0);
    const dt_layout layout = s->in_layout[dy];
    DT_TRY(resize_cpu_read_shapes(s, dt_instance_out(s, 0), dt_instance_in(s, dy), layout));
    const resize_state *st = s->state;
    s->in_layout[dy] = s->out_layout[0] = layout;
    if (st->type == DT_ROW_BF16) s->scratch_bytes = (size_t)s->threads * (size_t)small_plane(st) * sizeof(float);
    return DT_OK;
}

static inline void add_plane(const resize_state *st, float *dx, const void *dy, int type) {
    memset(dx, 0, (size_t)small_plane(st) * sizeof *dx);
    for (int64_t row = 0; row < st->big[0]; row++)
        for (int64_t col = 0; col < st->big[1]; col++)
            for (int k = 0; k < 4; k++) {
                const dt_taps *down = &st->taps[0][row], *t = &st->taps[1][col];
                const float w = down->weight[k / 2] * t->weight[k % 2];
                float *to = dx + (down->at[k / 2] * st->small[1] + t->at[k % 2]) * st->each;
                const int64_t from = (row * st->big[1] + col) * st->each;
                if (w == 0) continue;
                for (int64_t i = 0; i < st->each; i++) to[i] += w * dt_row_get(type, dy, from + i);
            }
}

static void resize_cpu_run_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const resize_state *st = s->state;
    const int64_t big = st->big[0] * st->big[1] * st->each, n = small_plane(st);
    const char *dy = r->in[dt_pos_grad(s, 0)];
#pragma omp parallel for num_threads(s->threads) schedule(static) if (s->threads > 1)
    for (int t = 0; t < s->threads; t++) {
        float *mine = (float *)r->scratch + t * n;
        for (int64_t p = st->planes * t / s->threads; p < st->planes * (t + 1) / s->threads; p++) {
            if (st->type == DT_ROW_F32) {
                add_plane(st, (float *)r->out[0] + p * n, dy + p * big * 4, DT_ROW_F32);
                continue;
            }
            add_plane(st, mine, dy + p * big * 2, DT_ROW_BF16);
            dt_simd_get()->elementwise->to_bf16((uint16_t *)r->out[0] + p * n, mine, n);
        }
    }
}

const dt_kernel dt_cpu_resize = {resize_cpu_prepare, resize_cpu_run, resize_cpu_destroy};
const dt_kernel dt_cpu_resize_bwd = {resize_cpu_prepare_bwd, resize_cpu_run_bwd, resize_cpu_destroy};
