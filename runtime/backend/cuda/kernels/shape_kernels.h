// shape_kernels.h: device kernels that move elements.
#ifndef DT_BACKEND_CUDA_KERNELS_SHAPE_KERNELS_H
#define DT_BACKEND_CUDA_KERNELS_SHAPE_KERNELS_H

#include "backend/cuda/kernels/block_math.h"
#include "backend/cuda/kernels/kernel_math.h"
#include "batch/mix_plan.h"

// ---- copy ---------------------------------------------------------------------------------------------------------

// Moves elements without computing: concatenation, slices and their gradients, reshapes, permutations.
//
//   join_runs   out is (outer, whole) bytes; part p fills [at, at + run) of each row from rows of `pitch` bytes, or
//               with zeros. Concatenation: one part per input. Slice: one part. Its gradient: zeros, part, zeros.
//   permute     out of up to DT_MAX_DIMS merged dimensions from strides, `run` elements at a time
//   permute_planes   through tiles in shared memory, if the last dimension changes
//
// The host side picks the widest access (16, 4, 2 or 1 bytes) that all lengths, pitches and offsets are multiples of.
// Moves: what is written once; copies twice that.

enum { DT_JOIN_PARTS = 16, DT_JOIN_EACH = 4, DT_PERMUTE_TILE = 32 };

typedef struct dt_join_part {
    const void *x;          // NULL: zeros
    int64_t run, pitch, at; // in accesses; at: offset in a row of out
    int64_t begin, n;       // first block, accesses
} dt_join_part;
typedef struct dt_join_args {
    void *out;
    int64_t whole; // accesses per row of out
    int unit;      // bytes
    int n_parts;
    dt_join_part part[DT_JOIN_PARTS];
} dt_join_args;

DT_FN dt_vec16 dt_unit_load(const void *p, int unit, int64_t i) {
    dt_vec16 v; // 16 bytes at most
    if (unit == 16) return dt_load16((const unsigned char *)p + 16 * i);
    v.w[0] = unit == 4 ? ((const uint32_t *)p)[i] : unit == 2 ? ((const uint16_t *)p)[i] : ((const uint8_t *)p)[i];
    v.w[1] = v.w[2] = v.w[3] = 0; // narrower accesses use w[0]
    return v;
}
DT_FN void dt_unit_store(void *p, int unit, int64_t i, dt_vec16 v) {
    if (unit == 16)
        dt_store16((unsigned char *)p + 16 * i, v);
    else if (unit == 4)
        ((uint32_t *)p)[i] = v.w[0];
    else if (unit == 2)
        ((uint16_t *)p)[i] = (uint16_t)v.w[0];
    else
        ((uint8_t *)p)[i] = (uint8_t)v.w[0];
}

DT_FN void dt_join_thread(const dt_join_args *a, const dt_join_part *p, int64_t first, int threads, int P) {
    dt_vec16 v[DT_JOIN_EACH]; // four accesses in flight
    int64_t to[DT_JOIN_EACH];
    for (int u = 0; u < DT_JOIN_EACH; u++) {
        const int64_t i = first + u * threads;
        to[u] = -1; // nothing to store
        if (i >= p->n) continue;
        // 32 bits if they suffice: a 64-bit division is a long loop
        const int64_t row = p->n <= INT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)p->run) : i / p->run;
        const int64_t col = i - row * p->run;
        to[u] = row * a->whole + p->at + col;
        for (int k = 0; k < 4; k++) v[u].w[k] = 0;
        if (p->x) v[u] = dt_unit_load(p->x, P, row * p->pitch + col);
    }
    for (int u = 0; u < DT_JOIN_EACH; u++)
        if (to[u] >= 0) dt_unit_store(a->out, P, to[u], v[u]);
}
DT_KERNEL(join_runs, dt_join_args) {
    DT_THREADS(t) {
        int p = 0;
        while (p + 1 < a->n_parts && DT_BLOCK >= a->part[p + 1].begin) p++; // few parts: no search
        const int64_t first = (DT_BLOCK - a->part[p].begin) * DT_BLOCK_DIM * DT_JOIN_EACH + t;
        if (a->unit == 16)
            dt_join_thread(a, &a->part[p], first, DT_BLOCK_DIM, 16);
        else
            dt_join_thread(a, &a->part[p], first, DT_BLOCK_DIM, a->unit);
    }
}

typedef struct dt_permute_args {
    const void *x;
    void *out;
    int n;                     // dimensions of out, merged; the last counts accesses
    int unit;                  // bytes
    int64_t size[DT_MAX_DIMS]; // of out
    int64_t step[DT_MAX_DIMS]; // accesses in x per step along each; the last of permute is 1
    int64_t count;             // accesses of out
} dt_permute_args;

// The place in x of index `i` of out.
DT_FN int64_t dt_permute_from(const dt_permute_args *a, int64_t i) {
    int64_t from = 0;
    for (int d = a->n - 1; d >= 0; d--) {
        // 32-bit division where it suffices
        const int64_t q = i <= INT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)a->size[d]) : i / a->size[d];
        from += (i - q * a->size[d]) * a->step[d]; // index along d, times its stride
        i = q;
    }
    return from;
}
DT_KERNEL(permute, dt_permute_args) {
    DT_THREADS(t) {
        const int64_t first = DT_BLOCK * DT_BLOCK_DIM * DT_JOIN_EACH + t;
        dt_vec16 v[DT_JOIN_EACH]; // all loads before the first store
        for (int u = 0; u < DT_JOIN_EACH; u++) {
            const int64_t i = first + u * DT_BLOCK_DIM;
            if (i < a->count) v[u] = dt_unit_load(a->x, a->unit, dt_permute_from(a, i));
        }
        for (int u = 0; u < DT_JOIN_EACH; u++) {
            const int64_t i = first + u * DT_BLOCK_DIM;
            if (i < a->count) dt_unit_store(a->out, a->unit, i, v[u]);
        }
    }
}

// A block of 256 threads takes a tile of 32 x 32. The last dimension of the arrays is out's last; the one before it is
// x's last (step 1), wherever that lies in out. Accesses of at most 4 bytes.
typedef struct dt_planes_args {
    dt_permute_args p;       // count: not used
    int64_t to[DT_MAX_DIMS]; // accesses in out per step along each; the last is 1
} dt_planes_args;
DT_KERNEL(permute_planes, dt_planes_args) {
    DT_SHARED(uint32_t, tile, DT_PERMUTE_TILE * (DT_PERMUTE_TILE + 1)); // 33 words a row: no bank conflicts
    const dt_permute_args *p = &a->p;
    const int64_t rows = p->size[p->n - 2], cols = p->size[p->n - 1];
    const int64_t across = (cols + DT_PERMUTE_TILE - 1) / DT_PERMUTE_TILE;
    const int64_t down = (rows + DT_PERMUTE_TILE - 1) / DT_PERMUTE_TILE;
    const int64_t row = DT_BLOCK / across % down * DT_PERMUTE_TILE;
    const int64_t col = DT_BLOCK % across * DT_PERMUTE_TILE;
    int64_t from = 0, to = 0, plane = DT_BLOCK / (across * down); // plane: a tile's number along the other dimensions
    for (int d = p->n - 3; d >= 0; d--) {
        from += plane % p->size[d] * p->step[d];
        to += plane % p->size[d] * a->to[d];
        plane /= p->size[d];
    }
    DT_THREADS(t) {
        const int r = t % DT_PERMUTE_TILE;
        for (int q = t / DT_PERMUTE_TILE; q < DT_PERMUTE_TILE; q += DT_BLOCK_DIM / DT_PERMUTE_TILE)
            if (row + r < rows && col + q < cols) // neighbouring threads read x's neighbours
                tile[q * (DT_PERMUTE_TILE + 1) + r] =
                    dt_unit_load(p->x, p->unit, from + row + r + (col + q) * p->step[p->n - 1]).w[0];
    }
    DT_THREADS(t) {
        const int q = t % DT_PERMUTE_TILE;
        // and write out's neighbours
        for (int r = t / DT_PERMUTE_TILE; r < DT_PERMUTE_TILE; r += DT_BLOCK_DIM / DT_PERMUTE_TILE) {
            if (row + r >= rows || col + q >= cols) continue;
            dt_vec16 v;
            v.w[0] = tile[q * (DT_PERMUTE_TILE + 1) + r];
            v.w[1] = v.w[2] = v.w[3] = 0;
            dt_unit_store(p->out, p->unit, to + (row + r) * a->to[p->n - 2] + col + q, v);
        }
    }
}

// ---- expand -------------------------------------------------------------------------------------------------------

// Sums over dimensions (graph/ops/shape.c); expand itself is a permute whose steps may be 0. `group`
// threads, a power of two, sum one element of the result in f32, each every group-th, then as a tree.
//
// Moves (E bytes per element, n elements): nE read.

typedef struct dt_places {
    int n;
    int64_t size[DT_MAX_DIMS], step[DT_MAX_DIMS]; // elements of x
    int64_t count;
} dt_places;
typedef struct dt_sum_args {
    const void *x; // elements of `type`
    void *out;
    dt_places kept, summed;
    int group, type;
} dt_sum_args;

DT_FN int64_t dt_place_of(const dt_places *p, int64_t i) {
    int64_t at = 0;
    for (int d = p->n - 1; d >= 0; d--) {
        at += i % p->size[d] * p->step[d];
        i /= p->size[d];
    }
    return at;
}
DT_KERNEL(sum_dims, dt_sum_args) {
    DT_SHARED(float, sum, 256);
    const int64_t first = DT_BLOCK * (256 / a->group); // a block has 256 / group elements of the result
    DT_THREADS(t) {
        const int64_t o = first + t / a->group;
        float s = 0.0f;
        if (o < a->kept.count) {
            const int64_t from = dt_place_of(&a->kept, o); // reduced dimensions begin there
            for (int64_t i = t % a->group; i < a->summed.count; i += a->group)
                s += dt_get(a->x, a->type, from + dt_place_of(&a->summed, i));
        }
        sum[t] = s;
    }
    DT_TREE(t, HALF, a->group, 1, sum[t] += sum[t + HALF]);
    DT_THREADS(t) {
        const int64_t o = first + t / a->group;
        if (t % a->group == 0 && o < a->kept.count) dt_put(a->out, a->type, o, sum[t]);
    }
}

// ---- fold ---------------------------------------------------------------------------------------------------------

// Blocks of stride x stride pixels of an NHWC image become the channels of one pixel (cuda_desc.c): channel
// (y * stride + x) * c + k of folded pixel (i, j) is channel k of pixel (i * stride + y - pad, j * stride + x - pad). What lies
// outside the image, and channels up to the next multiple of eight, are zero.
//
// Moves nE read, n'E written.

typedef struct dt_fold_args {
    const void *x;
    void *out;
    int64_t n;             // groups of eight channels that are written
    int64_t height, width; // of the image
    int c, stride, pad_down, pad_across;
    dt_quot groups, across, down; // groups of a pixel, pixels of a row, rows of a folded image
    dt_quot by_c, by_stride;
    int type;
} dt_fold_args;

// A thread's eight channels.
DT_KERNEL(fold_stride, dt_fold_args) {
    DT_THREADS(t) {
        for (int64_t i = DT_BLOCK * DT_BLOCK_DIM + t; i < a->n; i += DT_GRID * DT_BLOCK_DIM) {
            const int64_t pixel = dt_div(a->groups, i), row = dt_div(a->across, pixel);
            const int64_t image = dt_div(a->down, row);
            const int64_t y0 = (row - image * a->down.d) * a->stride - a->pad_down; // top of the folded pixel's block
            const int64_t x0 = (pixel - row * a->across.d) * a->stride - a->pad_across; // its left
            // channel's place in the block: at = y * stride + x
            const int64_t channel = (i - pixel * a->groups.d) * 8, at = dt_div(a->by_c, channel);
            int c = (int)(channel - at * a->c), down = (int)dt_div(a->by_stride, at);
            int across = (int)at - down * a->stride;
            float v[8];
            for (int k = 0; k < 8; k++) {
                const int64_t y = y0 + down, x = x0 + across;
                // down beyond the block: padding channels
                const int inside = down < a->stride && y >= 0 && y < a->height && x >= 0 && x < a->width;
                const int64_t from = ((image * a->height + y) * a->width + x) * a->c + c;
                v[k] = inside ? dt_get(a->x, a->type, from) : 0.0f;
                if (++c == a->c) c = 0, across++; // the next channel, pixel or row
                if (across == a->stride) across = 0, down++;
            }
            dt_put8(a->out, a->type, 8 * i, v);
        }
    }
}

// ---- reorder ------------------------------------------------------------------------------------------------------

// Copies between layouts and element types.
//
// DENSE (C planes of P pixels) to NHWC (P pixels of C channels) and back is a transposition of each image. It goes
// through tiles of 32 x 32 in shared memory with a padded row, so that reads and writes are both contiguous. Equal
// types move as bits, so integers pass unchanged. Between equal layouts op_cuda.c uses a flat copy or cast instead.

enum { DT_REORDER_TILE = 32, DT_REORDER_THREADS = 256 };

typedef struct dt_reorder_args {
    const void *src;
    void *dst;
    int src_type, dst_type;
    int64_t n;              // images
    int64_t n_rows, n_cols; // of the source image; the destination is (n_cols, n_rows)
} dt_reorder_args;

DT_FN uint32_t dt_reorder_load(const dt_reorder_args *a, int64_t i) {
    if (a->src_type != a->dst_type) return dt_bits_of(dt_get(a->src, a->src_type, i)); // conversion by f32
    const int size = dt_elem_bytes(a->src_type);
    return size == 4   ? ((const uint32_t *)a->src)[i]
           : size == 2 ? ((const uint16_t *)a->src)[i]
                       : ((const uint8_t *)a->src)[i];
}
DT_FN void dt_reorder_store(const dt_reorder_args *a, int64_t i, uint32_t u) {
    const int size = dt_elem_bytes(a->dst_type);
    if (a->src_type != a->dst_type)
        dt_put(a->dst, a->dst_type, i, dt_of_bits(u));
    else if (size == 4)
        ((uint32_t *)a->dst)[i] = u;
    else if (size == 2)
        ((uint16_t *)a->dst)[i] = (uint16_t)u;
    else
        ((uint8_t *)a->dst)[i] = (uint8_t)u;
}

// One block per tile, of DT_REORDER_THREADS threads.
DT_KERNEL(reorder_planes, dt_reorder_args) {
    DT_SHARED(uint32_t, tile, DT_REORDER_TILE * (DT_REORDER_TILE + 1)); // 33 words a row: no bank conflicts
    const int64_t across = (a->n_cols + DT_REORDER_TILE - 1) / DT_REORDER_TILE;
    const int64_t down = (a->n_rows + DT_REORDER_TILE - 1) / DT_REORDER_TILE;
    const int64_t image = DT_BLOCK / (across * down) * a->n_rows * a->n_cols; // first element
    const int64_t row = DT_BLOCK / across % down * DT_REORDER_TILE;
    const int64_t col = DT_BLOCK % across * DT_REORDER_TILE;
    DT_THREADS(t) {
        const int x = t % DT_REORDER_TILE;
        for (int y = t / DT_REORDER_TILE; y < DT_REORDER_TILE; y += DT_BLOCK_DIM / DT_REORDER_TILE)
            if (row + y < a->n_rows && col + x < a->n_cols)
                tile[y * (DT_REORDER_TILE + 1) + x] = dt_reorder_load(a, image + (row + y) * a->n_cols + col + x);
    }
    DT_THREADS(t) {
        const int x = t % DT_REORDER_TILE;
        for (int y = t / DT_REORDER_TILE; y < DT_REORDER_TILE; y += DT_BLOCK_DIM / DT_REORDER_TILE)
            if (col + y < a->n_cols && row + x < a->n_rows) // transposed: x runs along the source's rows
                dt_reorder_store(a, image + (col + y) * a->n_rows + row + x, tile[x * (DT_REORDER_TILE + 1) + y]);
    }
}

// ---- convert ------------------------------------------------------------------------------------------------------

// Other element types: cast, and pixels to normalized activations. Both are elementwise: images
// come as u8 or f32 (N,H,W,C) and are written as NHWC. If the step has a mixing plan, each pixel is first mixed with
// the next sample's (batch/mix_plan.h), with the CPU's bits: u8 in integers.
//
//   u8      x * scale[c] + shift[c]       scale = 1 / (255 std), shift = -mean / std
//   f32     (x - shift[c]) * scale[c]     scale = 1 / std, shift = mean: the difference first, as a mean may be large
//
// Moves n (E_in + E_out); mixed, at most n (2 E_in + E_out).

enum { DT_NORMALIZE_CHANNELS = 64 };

typedef struct dt_convert_args {
    const void *x;
    void *out;
    int64_t n;
    int from, to;
    int channels;
    float scale[DT_NORMALIZE_CHANNELS], shift[DT_NORMALIZE_CHANNELS];
    // mixed
    const dt_mix_row *plan;          // by sample
    int64_t samples, sample, chunks; // elements per sample, blocks per sample
    dt_quot by_channels, by_width;
} dt_convert_args;

// Eight elements from i, of which `left` exist; V: all exist, and i is a multiple of eight. u8 becomes numbers.
DT_FN void dt_convert_load(const void *p, int type, int V, int64_t i, int64_t left, float x[8]) {
    if (type == DT_U8) {
        int b[8];
        dt_get8_bytes((const uint8_t *)p + i, V, left, b); // bytes are promoted to f32, exactly
        for (int k = 0; k < 8; k++) x[k] = (float)b[k];
    } else {
        dt_get8_row(p, type, V, i, left, x);
    }
}
DT_FN void dt_cast_thread(const dt_convert_args *a, int64_t i, int F, int T) {
    float x[8];
    const int64_t left = a->n - i;
    if (left <= 0) return;
    dt_convert_load(a->x, F, left >= 8, i, left, x);
    dt_put8_row(a->out, T, left >= 8, i, left, x);
}
// A block converts 2 * 2048 elements.
DT_KERNEL(cast_fwd, dt_convert_args) {
    DT_THREADS(t) {
        for (int u = 0; u < 2; u++) {
            const int64_t i = ((DT_BLOCK * 2 + u) * DT_BLOCK_DIM + t) * 8; // 8 elements per thread, two rounds
            if (a->from == DT_F32)
                DT_TYPED(T, a->to, dt_cast_thread(a, i, DT_F32, T));
            else if (a->to == DT_F32)
                dt_cast_thread(a, i, a->from, DT_F32);
            else
                dt_cast_thread(a, i, a->from, a->to);
        }
    }
}

// Eight elements, the first of channel c.
DT_FN void dt_normalize8(const dt_convert_args *a, int c, const float *scale, const float *shift, int F, float x[8]) {
    for (int k = 0; k < 8; k++) {
        x[k] = F == DT_U8 ? fmaf(x[k], scale[c], shift[c]) : (x[k] - shift[c]) * scale[c]; // one rounding: fma
        c = c + 1 == a->channels ? 0 : c + 1; // cheaper than a remainder for each
    }
}
DT_FN void dt_normalize_thread(const dt_convert_args *a, int64_t i, const float *scale, const float *shift, int F,
                               int T) {
    float x[8];
    const int64_t left = a->n - i;
    if (left <= 0) return;
    dt_convert_load(a->x, F, left >= 8, i, left, x);
    dt_normalize8(a, (int)(i % a->channels), scale, shift, F, x); // the first element's channel
    dt_put8_row(a->out, T, left >= 8, i, left, x);
}
DT_KERNEL(normalize, dt_convert_args) {
    DT_SHARED(float, scale, DT_NORMALIZE_CHANNELS);
    DT_SHARED(float, shift, DT_NORMALIZE_CHANNELS);
    DT_THREADS(t) {
        if (t < a->channels) scale[t] = a->scale[t], shift[t] = a->shift[t]; // from constant memory to shared
    }
    DT_THREADS(t) {
        for (int u = 0; u < 2; u++) {
            const int64_t i = ((DT_BLOCK * 2 + u) * DT_BLOCK_DIM + t) * 8;
            if (a->from == DT_U8)
                DT_TYPED(T, a->to, dt_normalize_thread(a, i, scale, shift, DT_U8, T));
            else
                DT_TYPED(T, a->to, dt_normalize_thread(a, i, scale, shift, DT_F32, T));
        }
    }
}

// ---- mixed -----------------------------------------------------------------------------------------
DT_FN float dt_blend_byte(float x, float next, int own) {
    // rounded: the half is added before the shift
    return (float)(((uint32_t)x * (uint32_t)own + (uint32_t)next * (uint32_t)(DT_MIX_ONE - own) + DT_MIX_ONE / 2) >>
                   16); // share in 16 bits
}
// Two products and a sum, each rounded: no fused multiply-add, as on the CPU.
DT_FN float dt_blend_real(float x, float next, int own) {
    const float share = (float)own / DT_MIX_ONE;
#ifdef __CUDACC__
    return __fadd_rn(__fmul_rn(x, share), __fmul_rn(next, 1.0f - share));
#else
    const volatile float mine = x * share, other = next * (1.0f - share); // volatile: no contraction on the host either
    return mine + other;
#endif
}

// Elements o .. o + 7 of a sample. A sample whose length is no multiple of eight goes element by element.
DT_FN void dt_mix_thread(const dt_convert_args *a, int64_t j, int64_t o, const float *scale, const float *shift, int F,
                         int T) {
    float x[8], next[8];
    const int64_t left = a->sample - o, i = j * a->sample + o;
    if (left <= 0) return;
    const int V = a->sample % 8 == 0; // vector access
    const dt_mix_row m = a->plan[j];
    int64_t pixel = dt_div(a->by_channels, o);
    const int channel = (int)(o - pixel * a->channels);
    dt_convert_load(a->x, F, V, i, left, x);
    if (m.own != DT_MIX_ONE || (m.y0 < m.y1 && m.x0 < m.x1)) { // a row that mixing leaves alone reads no other sample
        int c = channel, row = (int)dt_div(a->by_width, pixel);
        int col = (int)(pixel - (int64_t)row * a->by_width.d);
        // the next sample; the last takes the first
        dt_convert_load(a->x, F, V, (j + 1 < a->samples ? i + a->sample : o), left, next);
        for (int k = 0; k < 8; k++) {
            if (row >= m.y0 && row < m.y1 && col >= m.x0 && col < m.x1) // cut: the next sample's pixels
                x[k] = next[k];
            else if (m.own != DT_MIX_ONE) // blend
                x[k] = F == DT_U8 ? dt_blend_byte(x[k], next[k], m.own) : dt_blend_real(x[k], next[k], m.own);
            if (++c < a->channels) continue;
            c = 0;
            if (++col == (int)a->by_width.d) col = 0, row++; // row of the image
        }
    }
    dt_normalize8(a, channel, scale, shift, F, x);
    dt_put8_row(a->out, T, V, i, left, x);
}
// `chunks` blocks per sample, of 2 * 2048 elements each.
DT_KERNEL(normalize_mixed, dt_convert_args) {
    DT_SHARED(float, scale, DT_NORMALIZE_CHANNELS);
    DT_SHARED(float, shift, DT_NORMALIZE_CHANNELS);
    DT_THREADS(t) {
        if (t < a->channels) scale[t] = a->scale[t], shift[t] = a->shift[t];
    }
    DT_THREADS(t) {
        const int64_t j = DT_BLOCK / a->chunks, chunk = DT_BLOCK - j * a->chunks;
        for (int u = 0; u < 2; u++) {
            const int64_t o = ((chunk * 2 + u) * DT_BLOCK_DIM + t) * 8;
            if (a->from == DT_U8)
                DT_TYPED(T, a->to, dt_mix_thread(a, j, o, scale, shift, DT_U8, T));
            else
                DT_TYPED(T, a->to, dt_mix_thread(a, j, o, scale, shift, DT_F32, T));
        }
    }
}

#endif
