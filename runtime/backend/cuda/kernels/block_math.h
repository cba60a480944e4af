// block_math.h: how the threads of a block share elements, columns and rows, and how they sum.
//
// Everything here is limited by memory bandwidth. So a thread moves sixteen bytes at a time (eight f32 elements are
// two such loads) and issues two or four loads before it uses the first, and the element type is a constant of the
// loop (DT_TYPED), not a branch in it.
//
//   elements   dt_map: n elements in order, in any layout                  DT_MAP_KERNEL
//   columns    a matrix (rows, cols), e.g. the pixels and channels of NHWC. A thread keeps eight columns and walks down
//              the rows of its block's chunk, so that a column's values stay in registers
//                  block = chunk * tiles + tile
//                  thread = row lane * tx + column group      (tx groups of 8 columns, a power of two)
//   rows       `group` threads (a power of two) share one row
//
// Sums are trees over shared memory: at each level the lower half adds the upper half. Which numbers meet depends on
// shapes alone, never on the device or on timing.
#ifndef DT_BLOCK_MATH_H
#define DT_BLOCK_MATH_H

#include "backend/cuda/kernels/kernel_math.h"

// ---- one copy of a statement for each element type, T being its constant ---------------------------
#define DT_TYPED(T, type, ...)                                                                                         \
    do {                                                                                                               \
        if ((type) == DT_F32) {                                                                                        \
            const int T = DT_F32;                                                                                      \
            __VA_ARGS__;                                                                                               \
        } else if ((type) == DT_BF16) {                                                                                \
            const int T = DT_BF16;                                                                                     \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            const int T = DT_F16;                                                                                      \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
    } while (0)

// The same, with V: whether rows begin and end at multiples of eight elements. Rows that do not are rare; they get one
// copy for all types, element by element.
#define DT_TYPED_ROWS(T, V, type, whole, ...)                                                                          \
    do {                                                                                                               \
        if (!(whole)) {                                                                                                \
            const int T = (type), V = 0;                                                                               \
            __VA_ARGS__;                                                                                               \
        } else {                                                                                                       \
            const int V = 1;                                                                                           \
            DT_TYPED(T, type, __VA_ARGS__);                                                                            \
        }                                                                                                              \
    } while (0)

// ---- a thread's own variables that live through several phases -------------------------------------
// DT_PRIVATE(float, sum, 8); ... DT_THREADS(t) { DT_MINE(sum, t)[k] += x; }   registers on a device
#if defined __CUDACC__ || defined DT_HOST_FIBERS
#define DT_PRIVATE(type, x, n) type x[1][n]
#define DT_MINE(x, t)          ((x)[(t)*0])
#else
enum { DT_MOST_THREADS = 1024 };
#define DT_PRIVATE(type, x, n) type x[DT_MOST_THREADS][n]
#define DT_MINE(x, t)          ((x)[t])
#endif

// ---- trees -----------------------------------------------------------------------------------------
// Executes the statement for each thread t and each level of a tree over `group` threads (a power of two that divides
// the block), from group / 2 down to 1. The statement lets t take what t + HALF * stride holds. Threads whose position
// in the group is below HALF * stride take part. Within a warp the levels need no barrier of the block.
#if defined __CUDACC__ || defined DT_HOST_FIBERS
#define DT_TREE(t, HALF, group, stride, ...)                                                                           \
    for (int HALF = (group) / 2; HALF > 0; HALF /= 2) {                                                                \
        const int t = DT_THREAD;                                                                                       \
        if ((t & ((group) * (stride)-1)) < HALF * (stride)) {                                                          \
            __VA_ARGS__;                                                                                               \
        }                                                                                                              \
        if (HALF * (stride) > 32)                                                                                      \
            __syncthreads();                                                                                           \
        else                                                                                                           \
            __syncwarp();                                                                                              \
    }                                                                                                                  \
    __syncthreads()
#else
#define DT_TREE(t, HALF, group, stride, ...)                                                                           \
    for (int HALF = (group) / 2; HALF > 0; HALF /= 2) DT_THREADS(t)                                                    \
    if ((t & ((group) * (stride)-1)) < HALF * (stride)) {                                                              \
        __VA_ARGS__;                                                                                                   \
    }
#endif

// ---- eight elements, fetched now and used later ----------------------------------------------------
typedef struct dt_raw8 {
    dt_vec16 a, b; // b: second half of f32
} dt_raw8;

DT_FN dt_raw8 dt_fetch8(const void *p, int T, int64_t i) {
    dt_raw8 r;
    if (T == DT_F32) {
        r.a = dt_load16((const float *)p + i); // f32: two loads
        r.b = dt_load16((const float *)p + i + 4);
    } else {
        r.a = r.b = dt_load16((const uint16_t *)p + i);
    }
    return r;
}
DT_FN void dt_unpack8(int T, const dt_raw8 *r, float x[8]) {
    for (int k = 0; k < 4; k++) {
        if (T == DT_F32) {
            x[k] = dt_of_bits(r->a.w[k]), x[4 + k] = dt_of_bits(r->b.w[k]);
        } else if (T == DT_BF16) {
            x[2 * k] = dt_of_bits(r->a.w[k] << 16); // a bf16 is an f32's upper half
            x[2 * k + 1] = dt_of_bits(r->a.w[k] & 0xffff0000u);
        } else {
            x[2 * k] = dt_f16_to_f32((uint16_t)r->a.w[k]);
            x[2 * k + 1] = dt_f16_to_f32((uint16_t)(r->a.w[k] >> 16));
        }
    }
}
// dt_rounded of each.
DT_FN void dt_round8(int type, float x[8]) {
    DT_TYPED(T, type, for (int k = 0; k < 8; k++) x[k] = dt_rounded(T, x[k]));
}
// Eight elements of a row, of which `left` exist; V as in DT_TYPED_ROWS. The others read as zero.
DT_FN dt_raw8 dt_fetch8_row(const void *p, int T, int V, int64_t i, int64_t left) {
    if (V) return dt_fetch8(p, T, i);
    dt_raw8 r;
    for (int k = 0; k < 4; k++) {
        r.a.w[k] = dt_bits_of(k < left ? dt_get(p, T, i + k) : 0.0f); // kept as f32 bits: no second rounding
        r.b.w[k] = dt_bits_of(4 + k < left ? dt_get(p, T, i + 4 + k) : 0.0f);
    }
    return r;
}
DT_FN void dt_unpack8_row(int T, int V, const dt_raw8 *r, float x[8]) {
    dt_unpack8(V ? T : (int)DT_F32, r, x); // without V: dt_fetch8_row has converted
}
DT_FN void dt_get8_row(const void *p, int T, int V, int64_t i, int64_t left, float x[8]) {
    const dt_raw8 r = dt_fetch8_row(p, T, V, i, left);
    dt_unpack8_row(T, V, &r, x);
}
DT_FN void dt_put8_row(void *p, int T, int V, int64_t i, int64_t left, const float x[8]) {
    if (V) {
        dt_put8(p, T, i, x);
        return;
    }
    // no vector access beyond the row's end
    for (int k = 0; k < 8; k++)
        if (k < left) dt_put(p, T, i + k, x[k]);
}

// Eight bytes of a row. Those that do not exist read as 255.
DT_FN void dt_put8_bytes(uint8_t *to, int V, int64_t left, const int x[8]) {
    if (V) {
        uint64_t all = 0;
        for (int k = 0; k < 8; k++) all |= (uint64_t)(uint8_t)x[k] << 8 * k; // byte k: column k
#ifdef __CUDACC__
        *(unsigned long long *)to = all; // at a multiple of eight bytes from an aligned address
#else
        memcpy(to, &all, 8);
#endif
        return;
    }
    for (int k = 0; k < 8; k++)
        if (k < left) to[k] = (uint8_t)x[k];
}
DT_FN uint64_t dt_fetch8_bytes(const uint8_t *from) {
    uint64_t all;
#ifdef __CUDACC__
    all = *(const unsigned long long *)from;
#else
    memcpy(&all, from, 8);
#endif
    return all;
}
DT_FN void dt_get8_bytes(const uint8_t *from, int V, int64_t left, int x[8]) {
    if (V) {
        const uint64_t all = dt_fetch8_bytes(from);
        for (int k = 0; k < 8; k++) x[k] = (int)(all >> 8 * k & 255);
        return;
    }
    for (int k = 0; k < 8; k++) x[k] = k < left ? from[k] : 255;
}

// ---- division by a constant of the launch ----------------------------------------------------------
// Exact for 0 <= n < 2^31, d >= 1: n * ceil(2^shift / d) >> shift with shift = 31 + ceil(log2 d).
typedef struct dt_quot {
    uint32_t mul, d; // ceil(2^shift / d)
    int shift;
} dt_quot;
DT_FN int64_t dt_div(dt_quot q, int64_t n) {
    return (int64_t)((uint64_t)(uint32_t)n * q.mul >> q.shift); // below 2^63
}
#ifndef __CUDACC__
static inline __attribute__((unused)) dt_quot dt_quot_of(int64_t d) {
    int log = 0; // ceil(log2 d)
    while ((int64_t)1 << log < d) log++;
    const uint64_t mul = (((uint64_t)1 << (31 + log)) + (uint64_t)d - 1) / (uint64_t)d;
    const dt_quot q = {(uint32_t)mul, (uint32_t)d, 31 + log};
    return q;
}
#endif

// ---- elements --------------------------------------------------------------------------------------
typedef struct dt_map_args {
    const void *x, *d; // d: the second operand, or NULL
    void *out;         // may be x or d
    int64_t n;         // elements
    int type;
    float alpha;
} dt_map_args;

// Elements i_ to i_+7 of out = f(a, x, d); `reads_d` is a constant.
#define DT_MAP_APPLY(f, reads_d, T, rx, rd, i_)                                                                        \
    do {                                                                                                               \
        float x_[8], d_[8];                                                                                            \
        dt_unpack8(T, &(rx), x_);                                                                                      \
        dt_unpack8(T, &(rd), d_);                                                                                      \
        for (int k = 0; k < 8; k++) x_[k] = f(a, T, x_[k], (reads_d) ? d_[k] : 0.0f);                                  \
        dt_put8(a->out, T, i_, x_);                                                                                    \
    } while (0)
#define DT_MAP_LOOP(f, reads_d, T, t)                                                                                  \
    do {                                                                                                               \
        const int64_t n_ = a->n / 8, step_ = DT_GRID * DT_BLOCK_DIM;                                                   \
        for (int64_t v_ = DT_BLOCK * DT_BLOCK_DIM + t; v_ < n_; v_ += 2 * step_) {                                     \
            const int64_t i_ = 8 * v_, j_ = 8 * (v_ + step_);                                                          \
            const int two_ = v_ + step_ < n_;                                                                          \
            const dt_raw8 x0_ = dt_fetch8(a->x, T, i_);                                                                \
            const dt_raw8 d0_ = (reads_d) ? dt_fetch8(a->d, T, i_) : x0_;                                              \
            const dt_raw8 x1_ = two_ ? dt_fetch8(a->x, T, j_) : x0_;                                                   \
            const dt_raw8 d1_ = two_ && (reads_d) ? dt_fetch8(a->d, T, j_) : x0_;                                      \
            DT_MAP_APPLY(f, reads_d, T, x0_, d0_, i_);                                                                 \
            if (two_) DT_MAP_APPLY(f, reads_d, T, x1_, d1_, j_);                                                       \
        }                                                                                                              \
        if (DT_BLOCK == 0 && t < a->n % 8) {                                                                           \
            const int64_t i_ = 8 * n_ + t;                                                                             \
            const float d_ = (reads_d) ? dt_get(a->d, T, i_) : 0.0f;                                                   \
            dt_put(a->out, T, i_, f(a, T, dt_get(a->x, T, i_), d_));                                                   \
        }                                                                                                              \
    } while (0)
// Defines kernel `name`: out[i] = f(a, T, x[i], d[i]), f being a DT_FN of (const dt_map_args *, int, float, float).
#define DT_MAP_KERNEL(name, f, reads_d)                                                                                \
    DT_KERNEL_BOUND(name, dt_map_args, 256, 4) {                                                                       \
        DT_THREADS(t) {                                                                                                \
            DT_TYPED(T, a->type, DT_MAP_LOOP(f, reads_d, T, t));                                                       \
        }                                                                                                              \
    }

// ---- columns ---------------------------------------------------------------------------------------
typedef struct dt_cols {
    int64_t rows, cols;
    int64_t chunk_rows; // rows per block
    int64_t n_chunks;
    int64_t padded; // cols rounded up to whole tiles: stride of per-column floats in scratch
    int tx_log2;    // log2 of groups of 8 columns in a tile
    int tiles;
    int whole; // cols % 8 == 0
} dt_cols;
typedef struct dt_cols_share {
    int64_t col, left; // left: how many columns from col on exist (may be <= 0)
    int64_t row, end;  // row, row + step, ... < end
    int64_t chunk;
    int step, lane, tx; // rows between two of a thread; its row lane; column groups
} dt_cols_share;

DT_FN dt_cols_share dt_cols_of(const dt_cols *c, int64_t block, int block_dim, int t) {
    dt_cols_share s;
    // tiles of a chunk are neighbours: threads of a warp read neighbouring columns
    const int64_t tile = block % c->tiles;
    s.tx = 1 << c->tx_log2;
    s.chunk = block / c->tiles;
    s.lane = t >> c->tx_log2;
    s.step = block_dim >> c->tx_log2;
    s.col = (tile * s.tx + (t & (s.tx - 1))) * 8;
    s.left = c->cols - s.col;
    s.row = s.chunk * c->chunk_rows + s.lane;
    s.end = (s.chunk + 1) * c->chunk_rows;
    if (s.end > c->rows) s.end = c->rows;
    if (s.left <= 0) s.end = 0; // no columns: no rows either
    return s;
}

// Defines kernel `name`, in which thread(a, &share, T, V) goes over the rows of a thread's eight columns.
#define DT_COLS_KERNEL(name, args, thread)                                                                             \
    DT_KERNEL(name, args) {                                                                                            \
        DT_THREADS(t) {                                                                                                \
            const dt_cols_share s = dt_cols_of(&a->c, DT_BLOCK, DT_BLOCK_DIM, t);                                      \
            DT_TYPED_ROWS(T, V, a->type, a->c.whole, thread(a, &s, T, V));                                             \
        }                                                                                                              \
    }

// Defines kernel `name`, of blocks of 256 threads: sum_of(a, &share, sum, T, V) gives what a thread has of its eight
// columns, and store(a, &share, k, value) takes the block's sum of column share.col + k.
#define DT_COLS_SUM_KERNEL(name, args, sum_of, store)                                                                  \
    DT_KERNEL(name, args) {                                                                                            \
        DT_SHARED(float, sums, 8 * 256);                                                                               \
        DT_THREADS(t) {                                                                                                \
            const dt_cols_share s = dt_cols_of(&a->c, DT_BLOCK, DT_BLOCK_DIM, t);                                      \
            float sum[8];                                                                                              \
            DT_TYPED_ROWS(T, V, a->type, a->c.whole, sum_of(a, &s, sum, T, V));                                        \
            for (int k = 0; k < 8; k++) sums[k * 256 + t] = sum[k];                                                    \
        }                                                                                                              \
        DT_TREE(t, half, 256 >> a->c.tx_log2, 1 << a->c.tx_log2,                                                       \
                for (int k = 0; k < 8; k++) sums[k * 256 + t] += sums[k * 256 + t + (half << a->c.tx_log2)]);          \
        DT_THREADS(t) {                                                                                                \
            const dt_cols_share s = dt_cols_of(&a->c, DT_BLOCK, DT_BLOCK_DIM, t);                                      \
            for (int k = 0; k < 8 && s.lane == 0; k++)                                                                 \
                if (k < s.left) store(a, &s, k, sums[k * 256 + t]);                                                    \
        }                                                                                                              \
    }

// Eight per-column floats of scratch (padded, 16-byte aligned).
DT_FN void dt_col8(const float *p, int64_t col, float x[8]) {
    dt_get8(p, DT_F32, col, x);
}
// Eight values of a dense f32 parameter, of which `left` exist; any alignment.
DT_FN void dt_param8(const float *p, int64_t col, int64_t left, float x[8]) {
    if (left >= 8 && ((uintptr_t)(p + col) & 15) == 0) // parameters lie anywhere in the flat buffer
        dt_get8(p, DT_F32, col, x);
    else
        for (int k = 0; k < 8; k++) x[k] = k < left ? p[col + k] : 0.0f;
}
DT_FN void dt_store_sum(float *to, int64_t i, int add, double value) {
    to[i] = add ? to[i] + (float)value : (float)value; // one rounding to f32, then the sum over micro-batches
}

// ---- rows ------------------------------------------------------------------------------------------
typedef struct dt_rows {
    int64_t rows, n; // n: elements per row
    int group;       // threads per row
    int whole;       // n % 8 == 0
} dt_rows;
typedef struct dt_rows_share {
    int64_t row; // -1: none
    int lane;    // of the group
} dt_rows_share;
DT_FN dt_rows_share dt_rows_of(const dt_rows *r, int64_t block, int block_dim, int t) {
    dt_rows_share s;
    s.row = block * (block_dim / r->group) + t / r->group;
    s.lane = t & (r->group - 1);
    if (s.row >= r->rows) s.row = -1; // threads of a last block without a row still take part in trees
    return s;
}

#endif
