// comm_mpi_sum.c: additions of the all-reduce, vectorized. Rounding is that of one addition after the other.
#include "base/bits.h"
#include "comm/bucket.h"
#include "comm/comm_mpi_internal.h"

#include <string.h>

VECTORIZED static void add_f32(float *restrict a, const float *restrict b, int64_t n) {
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
}
VECTORIZED static void add_f64(double *restrict a, const double *restrict b, int64_t n) {
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
}
VECTORIZED static void max_i64(int64_t *restrict a, const int64_t *restrict b, int64_t n) {
    for (int64_t i = 0; i < n; i++) a[i] = a[i] > b[i] ? a[i] : b[i];
}

// bf16 is the upper half of an f32
static inline float comm_mpi_sum_widen(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint16_t narrow(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    // to nearest, ties to even; a carry runs into the exponent as it should
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded); // NaN stays
}

VECTORIZED static void add_bf16(float *restrict a, const uint16_t *restrict b, int64_t n) {
    for (int64_t i = 0; i < n; i++) a[i] += comm_mpi_sum_widen(b[i]);
}
VECTORIZED void dt_mpi_sum_narrow(uint16_t *restrict to, const float *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = narrow(from[i]);
}
VECTORIZED void dt_mpi_sum_widen(float *restrict to, const uint16_t *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = comm_mpi_sum_widen(from[i]);
}

size_t dt_mpi_element_bytes(dt_mpi_element kind) {
    return kind == MPI_ELEMENT_BF16 ? 2 : kind == MPI_ELEMENT_F32 ? 4 : 8; // f64 and i64
}

static void begin(dt_mpi_element kind, void *sum, const void *x, int64_t n) {
    if (kind == MPI_ELEMENT_BF16) // bf16 is summed in f32
        dt_mpi_sum_widen(sum, x, n);
    else
        memcpy(sum, x, (size_t)n * dt_mpi_element_bytes(kind));
}

static void comm_mpi_sum_add(dt_mpi_element kind, void *sum, const void *x, int64_t n) {
    if (kind == MPI_ELEMENT_F32) add_f32(sum, x, n);
    if (kind == MPI_ELEMENT_F64) add_f64(sum, x, n);
    if (kind == MPI_ELEMENT_MAX_I64) max_i64(sum, x, n);
    if (kind == MPI_ELEMENT_BF16) add_bf16(sum, x, n);
}

static void comm_mpi_sum_end(dt_mpi_element kind, void *out, const void *sum, int64_t n) {
    if (kind == MPI_ELEMENT_BF16) // one rounding at the end
        dt_mpi_sum_narrow(out, sum, n);
    else
        memcpy(out, sum, (size_t)n * dt_mpi_element_bytes(kind));
}

enum { BLOCK = 1024 }; // elements at a time, in L1

static void sum_node(dt_mpi_element kind, void *sum, const char *const *x, int n_x, size_t skip, int64_t n) {
    const int left = n_x == 1 ? 1 : dt_tree_split(n_x);
    double right[BLOCK]; // 8 KiB: doubles, so aligned for all kinds; one per level of the tree
    if (n_x == 1) {
        begin(kind, sum, x[0] + skip, n);
        return;
    }
    sum_node(kind, sum, x, left, skip, n);
    if (left + 1 < n_x) sum_node(kind, right, x + left, n_x - left, skip, n); // a single leaf is added where it lies
    comm_mpi_sum_add(kind, sum, left + 1 < n_x ? (const void *)right : x[left] + skip, n);
}

void dt_mpi_sum(dt_mpi_element kind, bool tree, void *out, const char *const *x, int n_x, int64_t n) {
    const size_t size = dt_mpi_element_bytes(kind);
    double sum[BLOCK];
    // two ranks add in place; bf16 needs the f32 accumulator
    if (n_x == 2 && kind != MPI_ELEMENT_BF16 && (out == x[0] || out == x[1])) {
        comm_mpi_sum_add(kind, out, out == x[0] ? x[1] : x[0], n); // a + b has the bits of b + a
        return;
    }
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t len = n - at < BLOCK ? n - at : BLOCK;
        if (tree) sum_node(kind, sum, x, n_x, (size_t)at * size, len);
        for (int s = 0; s < n_x && !tree; s++) // rank order: ((x0 + x1) + x2) + …
            (s == 0 ? begin : comm_mpi_sum_add)(kind, sum, x[s] + (size_t)at * size, len);
        comm_mpi_sum_end(kind, (char *)out + (size_t)at * size, sum, len);
    }
}
