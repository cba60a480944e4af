// transpose_cpu.c: permutation of dimensions (DENSE); reshape, which on DENSE memory is a copy or, in place,
// nothing. Dimensions of length 1 are dropped, and neighbours that stay neighbours are merged. So most
// permutations become contiguous copies, or swaps of two dimensions, which are done in tiles.
#include "backend/cpu/custom_kernel.h"

#include <string.h>

enum { TILE = 16 };

typedef struct transpose_state {
    int n;                     // merged dimensions of the output
    int64_t size[DT_MAX_DIMS]; // of the output
    int64_t step[DT_MAX_DIMS]; // elements in the input for one step along each
    size_t element;
    int64_t n_outer; // product of all but the last two (or one) dimensions
    size_t n_bytes;
} transpose_state;

static void merge_dims(transpose_state *st, const dt_shape *x, const int *perm) {
    int64_t stride[DT_MAX_DIMS];
    int64_t at = 1;
    for (int i = x->n - 1; i >= 0; i--) stride[i] = at, at *= x->d[i];
    for (int i = 0; i < x->n; i++) {
        int64_t size = x->d[perm[i]], step = stride[perm[i]];
        if (size == 1) continue;
        int last = st->n - 1;
        if (last >= 0 && st->step[last] == step * size) {
            st->size[last] *= size;
            st->step[last] = step;
        } else {
            st->size[st->n] = size;
            st->step[st->n++] = step;
        }
    }
    if (st->n == 0) st->n = 1, st->size[0] = 1, st->step[0] = 1;
}

static dt_status transpose_cpu_prepare(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    transpose_state *st = dt_custom_prepare(s, sizeof(*st));
    if (x->dtype != y->dtype) return dt_custom_fail(s, "cannot change the element type");
    merge_dims(st, &x->shape, s->node->attrs.transpose.perm);
    st->element = dt_dtype_size(x->dtype);
    st->n_outer = 1;
    int inner = st->step[st->n - 1] == 1 ? 1 : 2; // contiguous copies, or tiles of two dimensions
    for (int i = 0; i < st->n - inner; i++) st->n_outer *= st->size[i];
    return DT_OK;
}

// y (rows, cols) from x with the given element steps, TILE x TILE at a time.
#define TRANSPOSE(T)                                                                                                   \
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)                                                                        \
        for (int64_t c0 = 0; c0 < cols; c0 += TILE) {                                                                  \
            int64_t r1 = r0 + TILE < rows ? r0 + TILE : rows;                                                          \
            int64_t c1 = c0 + TILE < cols ? c0 + TILE : cols;                                                          \
            for (int64_t r = r0; r < r1; r++)                                                                          \
                for (int64_t c = c0; c < c1; c++)                                                                      \
                    ((T *)y)[r * cols + c] = ((const T *)x)[r * row_step + c * col_step];                              \
        }

static void transpose_plane(char *y, const char *x, int64_t rows, int64_t cols, int64_t row_step, int64_t col_step,
                            size_t element) {
    if (element == 4) {
        TRANSPOSE(uint32_t)
    } else if (element == 2) {
        TRANSPOSE(uint16_t)
    } else {
        TRANSPOSE(uint8_t)
    }
}

static void outer_item(const void *ctx, int64_t item, int64_t end) {
    const dt_one_to_one *c = ctx;
    const transpose_state *st = c->state;
    bool runs = st->step[st->n - 1] == 1;
    int n_outer = st->n - (runs ? 1 : 2);
    int64_t from = 0, rest = item;
    for (int i = n_outer - 1; i >= 0; i--) {
        from += rest % st->size[i] * st->step[i];
        rest /= st->size[i];
    }
    const char *x = (const char *)c->x + (size_t)from * st->element;
    char *y = c->y;
    int64_t cols = st->size[st->n - 1];
    if (runs) {
        size_t run = (size_t)cols * st->element;
        memcpy(y + (size_t)item * run, x, run);
        return;
    }
    int64_t rows = st->size[st->n - 2];
    transpose_plane(y + (size_t)(item * rows * cols) * st->element, x, rows, cols, st->step[st->n - 2],
                    st->step[st->n - 1], st->element);
}

static void transpose_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const transpose_state *st = s->state;
    dt_custom_items(s->threads, st->n_outer, outer_item, &(dt_one_to_one){st, r->out[0], r->in[0]});
}

static dt_status transpose_cpu_prepare_reshape(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    transpose_state *st = dt_custom_prepare(s, sizeof(*st));
    if (x->dtype != y->dtype) return dt_custom_fail(s, "cannot change the element type");
    st->n_bytes = (size_t)dt_shape_elements(&x->shape) * dt_dtype_size(x->dtype);
    s->inplace_in = 0;
    return DT_OK;
}

static void run_reshape(const dt_kernel_instance *s, const dt_run *r) {
    const transpose_state *st = s->state;
    if (r->out[0] != r->in[0]) memcpy(r->out[0], r->in[0], st->n_bytes);
}

const dt_kernel dt_cpu_transpose = {transpose_cpu_prepare, transpose_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_reshape = {transpose_cpu_prepare_reshape, run_reshape, dt_custom_destroy};
