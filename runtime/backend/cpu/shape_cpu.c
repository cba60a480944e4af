// shape_cpu.c: kernels that move elements, on the CPU.

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/simd.h"

#include <assert.h>
#include <string.h>

// ---- concat -------------------------------------------------------------------------------------------------------

// Concatenation along an axis, slice, and slice's gradient (zeros around dy), as contiguous
// copies: a tensor is seen as (outer, run), where a run covers the axis and all dimensions behind it.
//
// BLOCKED tensors stay BLOCKED if the axis is the batch, or if the cut along the channels falls between blocks:
// then (N, C/b, H, W, b) has the same runs as (N, C, H, W). The gradient of concatenation is made of slices.

enum { MAX_INPUTS = 64 };

typedef struct copy_state {
    int64_t outer;          // runs of each input
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
    if (l.kind != DT_BLOCKED || s->n != 4 || s->d[1] % l.block) return false; // padding channels would break runs
    return axis == 0 || (axis == 1 && begin % l.block == 0 && end % l.block == 0);
}

static dt_status concat_cpu_prepare(dt_kernel_instance *s) {
    int n = s->node->n_in, axis = s->node->attrs.concat.axis;
    const dt_value_info *y = dt_instance_out(s, 0);
    dt_layout first = s->in_layout[0];
    bool blocked = true;
    for (int i = 0; i < n; i++)
        blocked = blocked && keeps_blocks(first, &dt_instance_in(s, i)->shape, axis, 0,
                                          // the batch axis cuts nothing
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
        for (int64_t o = 0; o < st->outer; o++) // runs of inputs alternate in y
            memcpy(y + (size_t)o * st->whole, x + (size_t)o * st->run[i], st->run[i]);
        at += st->run[i];
    }
}

// long_v: the tensor that is sliced (forward input, backward output).
static void read_slice(const dt_kernel_instance *s, copy_state *st, const dt_value_info *long_v) {
    int axis = s->node->attrs.slice.axis;
    size_t step = step_bytes(long_v, axis, &st->outer);
    st->skip = (size_t)s->node->attrs.slice.begin * step; // bytes in front of the slice
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
        memset(dx, 0, st->skip); // zeros around the gradient
        memcpy(dx + st->skip, dy + (size_t)o * st->run[0], st->run[0]);
        memset(dx + st->skip + st->run[0], 0, st->whole - st->skip - st->run[0]);
    }
}

const dt_kernel dt_cpu_concat = {concat_cpu_prepare, concat_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_slice = {concat_cpu_prepare_slice, concat_cpu_run_slice, dt_custom_destroy};
const dt_kernel dt_cpu_slice_bwd = {prepare_slice_bwd, concat_cpu_run_slice_bwd, dt_custom_destroy};

// ---- transpose ----------------------------------------------------------------------------------------------------

// Permutation of dimensions (DENSE); reshape, which on DENSE memory is a copy or, in place,
// nothing. Dimensions of length 1 are dropped, and neighbours that stay neighbours are merged. So most
// permutations become contiguous copies, or swaps of two dimensions, which are done in tiles.

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
    for (int i = x->n - 1; i >= 0; i--) stride[i] = at, at *= x->d[i]; // row-major strides
    for (int i = 0; i < x->n; i++) {
        int64_t size = x->d[perm[i]], step = stride[perm[i]];
        if (size == 1) continue; // length 1: no step at all
        int last = st->n - 1;
        if (last >= 0 && st->step[last] == step * size) { // contiguous with the dimension before it
            st->size[last] *= size;
            st->step[last] = step;
        } else {
            st->size[st->n] = size;
            st->step[st->n++] = step;
        }
    }
    if (st->n == 0) st->n = 1, st->size[0] = 1, st->step[0] = 1; // a tensor of one element
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
    if (element == 4) { // types do not matter, only sizes
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
    for (int i = n_outer - 1; i >= 0; i--) { // item's index in the outer dimensions, innermost first
        from += rest % st->size[i] * st->step[i];
        rest /= st->size[i];
    }
    const char *x = (const char *)c->x + (size_t)from * st->element;
    char *y = c->y;
    int64_t cols = st->size[st->n - 1];
    if (runs) {
        size_t run = (size_t)cols * st->element;
        memcpy(y + (size_t)item * run, x, run); // contiguous
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
    s->inplace_in = 0; // the plan then gives both the same memory
    return DT_OK;
}

static void run_reshape(const dt_kernel_instance *s, const dt_run *r) {
    const transpose_state *st = s->state;
    if (r->out[0] != r->in[0]) memcpy(r->out[0], r->in[0], st->n_bytes);
}

const dt_kernel dt_cpu_transpose = {transpose_cpu_prepare, transpose_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_reshape = {transpose_cpu_prepare_reshape, run_reshape, dt_custom_destroy};

// ---- expand -------------------------------------------------------------------------------------------------------

// Expand and sum (graph/ops/shape.c), DENSE. The larger tensor's dimensions, neighbours of a kind merged,
// are kept or repeated in turn. A thread has whole strips of the result, so sums have a fixed order; they are of f64.

enum { STRIP = 64 }; // elements of a row that are summed at once

typedef struct expand_state {
    int type, n;
    // size 1 is dropped
    int64_t size[DT_MAX_DIMS]; // of the larger tensor
    int64_t step[DT_MAX_DIMS]; // elements in the smaller one for one along each; 0: repeated
    int64_t inner;             // of the last dimension
    int64_t n_rows, n_strips;  // of the result: rows, and strips of a row
} expand_state;

static dt_status expand_cpu_prepare(dt_kernel_instance *s) {
    const bool sum = s->node->op == DT_OP_sum;
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    const dt_shape *big = sum ? &x->shape : &y->shape, *small = sum ? &y->shape : &x->shape;
    expand_state *st = dt_custom_prepare(s, sizeof *st);
    int64_t at = 1;
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    for (int i = 0; i < big->n; i++) {
        // repeated dimensions have step 0
        const bool repeated = small->d[i] != big->d[i], last = st->n > 0 && st->step[st->n - 1] == 0;
        if (big->d[i] == 1) continue;
        if (st->n > 0 && repeated == last) {
            st->size[st->n - 1] *= big->d[i];
            continue;
        }
        st->step[st->n] = repeated ? 0 : 1;
        st->size[st->n++] = big->d[i];
    }
    if (st->n == 0) st->n = 1, st->size[0] = st->step[0] = 1;
    for (int i = st->n - 1; i >= 0; i--) // steps in the smaller tensor, where it is kept
        if (st->step[i]) st->step[i] = at, at *= st->size[i];
    st->inner = st->size[st->n - 1];
    st->n_rows = st->n_strips = 1;
    for (int i = 0; i < st->n - 1; i++)
        if (!sum || st->step[i]) st->n_rows *= st->size[i]; // sum: only the kept dimensions make rows
    // strips: work for threads where rows are few
    if (sum && st->step[st->n - 1]) st->n_strips = (st->inner + STRIP - 1) / STRIP;
    return DT_OK;
}

// ---- expand: row `row` of y --------------------------------------------------------------------------
static void expand_row(const void *ctx, int64_t row, int64_t end) {
    const dt_one_to_one *c = ctx;
    const expand_state *st = c->state;
    const size_t each = dt_row_size(st->type);
    int64_t from = 0;
    // index in the smaller tensor
    for (int64_t d = st->n - 2, rest = row; d >= 0; rest /= st->size[d--]) from += rest % st->size[d] * st->step[d];
    char *to = dt_row_at_mut(st->type, c->y, row * st->inner);
    const char *x = dt_row_at(st->type, c->x, from);
    if (st->step[st->n - 1] == 1) {
        memcpy(to, x, (size_t)st->inner * each);
        return;
    }
    for (int64_t i = 0; i < st->inner; i++) memcpy(to + (size_t)i * each, x, each);
}

static void expand_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const expand_state *st = s->state;
    dt_custom_items(s->threads, st->n_rows, expand_row, &(dt_one_to_one){st, r->out[0], r->in[0]});
}

// ---- sum: a strip of a row of y ----------------------------------------------------------------------
static inline void expand_cpu_add_up(double *sum, const void *x, int64_t n, bool keeps, int type) {
    // repeated: STRIP partial sums, added at the end
    for (int64_t i = 0; i < n; i++) sum[keeps ? i : i % STRIP] += (double)dt_row_get(type, x, i);
}

static void sum_strip(const void *ctx, int64_t item, int64_t end) {
    const dt_one_to_one *c = ctx;
    const expand_state *st = c->state;
    const int last = st->n - 1;
    const bool keeps = st->step[last] == 1;
    const int64_t first = keeps ? item % st->n_strips * STRIP : 0; // kept: a strip of the row
    const int64_t n = keeps && st->inner - first > STRIP ? STRIP : st->inner - first;
    double sum[STRIP] = {0};
    float out[STRIP];
    int64_t place[DT_MAX_DIMS] = {0}, to = 0;
    for (int64_t d = last - 1, rest = item / st->n_strips; d >= 0; d--) // place in the kept dimensions
        if (st->step[d]) {
            place[d] = rest % st->size[d], rest /= st->size[d];
            to += place[d] * st->step[d];
        }
    for (int d = 0; d >= 0;) { // over all places of the repeated dimensions
        int64_t from = 0;
        for (int k = 0; k < last; k++) from = from * st->size[k] + place[k];
        const void *x = dt_row_at(st->type, c->x, from * st->inner + first);
        if (st->type == DT_ROW_BF16)
            expand_cpu_add_up(sum, x, n, keeps, DT_ROW_BF16);
        else
            expand_cpu_add_up(sum, x, n, keeps, DT_ROW_F32);
        for (d = last - 1; d >= 0; d--) {
            if (st->step[d]) continue;
            if (++place[d] < st->size[d]) break; // odometer over the repeated dimensions
            place[d] = 0;
        }
    }
    for (int i = 1; !keeps && i < STRIP; i++) sum[0] += sum[i]; // fixed order of the partial sums
    for (int64_t i = 0; i < (keeps ? n : 1); i++) out[i] = (float)sum[i];
    if (st->type == DT_ROW_BF16)
        dt_simd_get()->elementwise->to_bf16((uint16_t *)c->y + to + first, out, keeps ? n : 1);
    else
        memcpy((float *)c->y + to + first, out, (size_t)(keeps ? n : 1) * sizeof *out);
}

static void expand_cpu_run_sum(const dt_kernel_instance *s, const dt_run *r) {
    const expand_state *st = s->state;
    dt_custom_items(s->threads, st->n_rows * st->n_strips, sum_strip, &(dt_one_to_one){st, r->out[0], r->in[0]});
}

const dt_kernel dt_cpu_expand = {expand_cpu_prepare, expand_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_sum = {expand_cpu_prepare, expand_cpu_run_sum, dt_custom_destroy};

// ---- reorder ------------------------------------------------------------------------------------------------------

// Copies between layouts and types.
//
// Equal layouts are a copy or a cast of the whole buffer. Otherwise the tensor is divided into tiles of one
// channel block by up to 1024 pixels of an image, and each tile is transposed between planes (DENSE) and pixels
// (NHWC, BLOCKED) in vector registers. BLOCKED pixels are stored whole, so padding channels become zero. u8 and
// i32 are only copied, and 8 bits moved one by one between DENSE and NHWC. The block is always the vector's width.

enum { PARALLEL_BYTES = 65536 }; // bytes: below this a fork costs more

static void copy_flat(int threads, const void *src, dt_dtype st, void *dst, dt_dtype dt, int64_t n) {
    const dt_simd_elementwise *e = dt_simd_get()->elementwise;
    const int64_t src_size = (int64_t)dt_dtype_size(st), dst_size = (int64_t)dt_dtype_size(dt);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && n * src_size > PARALLEL_BYTES)
    for (int t = 0; t < threads; t++) {
        int64_t b, end;
        dt_cpu_share(n, 64, t, threads, &b, &end); // 64 elements: no shared cache line
        const char *from = (const char *)src + b * src_size;
        char *to = (char *)dst + b * dst_size;
        if (st == dt)
            memcpy(to, from, (size_t)((end - b) * src_size));
        else if (dt == DT_BF16)
            e->to_bf16(to, from, end - b);
        else
            e->to_f32(to, from, end - b);
    }
}

typedef struct side {
    // index = image * n + c * channel + tile_px * pixel
    dt_layout layout;
    int64_t size;              // of an element
    int64_t image, c, tile_px; // elements between images, between channels, between a tile's pixels
    int64_t block_stride;      // BLOCKED: between channel blocks
} side;

static side reorder_cpu_side_of(dt_layout l, dt_dtype t, int64_t channels, int64_t pixels) {
    side s = {.layout = l, .size = (int64_t)dt_dtype_size(t)};
    if (l.kind == DT_BLOCKED) {
        s.image = (channels + l.block - 1) / l.block * l.block * pixels; // padding channels included
        s.tile_px = l.block;
        s.block_stride = pixels * l.block;
    } else {
        s.image = channels * pixels;
        s.c = l.kind == DT_DENSE ? pixels : 1;
        s.tile_px = l.kind == DT_DENSE ? 1 : channels;
    }
    return s;
}

// Where channel c of pixel p of image n lies; c is a multiple of the vector's width.
static int64_t reorder_cpu_at(const side *s, int64_t n, int64_t c, int64_t p) {
    int64_t i = n * s->image + p * s->tile_px;
    if (s->layout.kind == DT_BLOCKED)
        i += c / s->layout.block * s->block_stride + c % s->layout.block;
    else
        i += c * s->c;
    return i * s->size;
}

typedef struct job {
    const char *src;
    char *dst;
    side from, to;
    int from_type, to_type; // DT_ROW_*
    int64_t images, channels, pixels;
} job;

static void copy_tile(const job *j, int64_t n, int64_t c, int64_t p, int64_t n_pixels) {
    const dt_simd_rows *k = dt_simd_get()->rows;
    const int width = dt_simd_get()->width;
    const int left = (int)(j->channels - c < width ? j->channels - c : width);
    // planes: a channel's pixels are contiguous
    const bool src_planes = j->from.layout.kind == DT_DENSE, dst_planes = j->to.layout.kind == DT_DENSE;
    const dt_reorder_tile t = {.src = j->src + reorder_cpu_at(&j->from, n, c, p),
                               .dst = j->dst + reorder_cpu_at(&j->to, n, c, p),
                               .src_stride = src_planes ? j->from.c : j->from.tile_px,
                               .dst_stride = dst_planes ? j->to.c : j->to.tile_px,
                               .n_channels = left,
                               // BLOCKED: padding lanes are written as zeros
                               .n_stored = j->to.layout.kind == DT_BLOCKED ? width : left,
                               .n_pixels = n_pixels};
    if (src_planes)
        k->planes_to_pixels[j->from_type][j->to_type](&t);
    else if (dst_planes)
        k->pixels_to_planes[j->from_type][j->to_type](&t);
    else
        k->pixels_to_pixels[j->from_type][j->to_type](&t);
}

static void copy_tiles(const job *j, int threads) {
    const int width = dt_simd_get()->width;
    const int64_t blocks = (j->channels + width - 1) / width;
    // pixels of a tile: source and destination stay in L2
    const int64_t run = 1024, runs = (j->pixels + run - 1) / run;
    const int64_t n_tiles = j->images * blocks * runs;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && n_tiles > 1)
    for (int64_t i = 0; i < n_tiles; i++) {
        // images, then blocks, then runs
        const int64_t n = i / (blocks * runs), c = i / runs % blocks * width, p = i % runs * run;
        copy_tile(j, n, c, p, j->pixels - p < run ? j->pixels - p : run);
    }
}

static void move_bytes(const job *j, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t i = 0; i < j->images * j->channels; i++)
        for (int64_t p = 0; p < j->pixels; p++)
            j->dst[reorder_cpu_at(&j->to, i / j->channels, i % j->channels, p)] =
                j->src[reorder_cpu_at(&j->from, i / j->channels, i % j->channels, p)];
}

void dt_cpu_reorder(struct dt_backend *b, int threads, const dt_shape *shape, const void *src, dt_dtype src_type,
                    dt_layout src_layout, void *dst, dt_dtype dst_type, dt_layout dst_layout, void *stream) {
    if (threads < 1) threads = 1;
    const bool flat = dt_layout_equal(src_layout, dst_layout) || shape->n < 2; // also vectors: no second dimension
    if (flat) {
        copy_flat(threads, src, src_type, dst, dst_type, dt_layout_elements(src_layout, shape));
        return;
    }
    const bool bytes = dt_dtype_size(src_type) == 1; // bytes and i8 have no arithmetic
    assert(bytes ? src_type == dst_type : dt_dtype_is_float(src_type) && dt_dtype_is_float(dst_type));
    assert(src_layout.kind != DT_BLOCKED || src_layout.block == dt_cpu_block());
    assert(dst_layout.kind != DT_BLOCKED || dst_layout.block == dt_cpu_block());
    int64_t pixels = 1;
    for (int i = 2; i < shape->n; i++) pixels *= shape->d[i]; // rows and columns are one dimension here
    const job j = {.src = src,
                   .dst = dst,
                   .from = reorder_cpu_side_of(src_layout, src_type, shape->d[1], pixels),
                   .to = reorder_cpu_side_of(dst_layout, dst_type, shape->d[1], pixels),
                   .from_type = src_type == DT_BF16 ? DT_ROW_BF16 : DT_ROW_F32,
                   .to_type = dst_type == DT_BF16 ? DT_ROW_BF16 : DT_ROW_F32,
                   .images = shape->d[0],
                   .channels = shape->d[1],
                   .pixels = pixels};
    if (bytes)
        move_bytes(&j, threads);
    else
        copy_tiles(&j, threads);
}
