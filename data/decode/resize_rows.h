// resize_rows.h: the two inner loops of a resize, as the machine does them best. All give the same bytes.
#ifndef DT_DATA_RESIZE_ROWS_H
#define DT_DATA_RESIZE_ROWS_H

#include "data/record.h"

enum {
    DT_RESIZE_BITS = 22,      // of a weight's fraction
    DT_RESIZE_SLACK = 32,     // bytes that `across` may write behind the last row
    DT_RESIZE_MAX_PAIRS = 512 // of taps that the vector kernels sum without overflow, and then some
};

// Weights of one axis.
typedef struct dt_resize_axis {
    int n_out, n_taps, max_count; // taps stored a position; the most that one has
    dt_buffer first;              // int[n_out][2]: first source position, count
    dt_buffer weight;             // int32[n_out][n_taps], 0 behind the count
    dt_buffer packed, offset;     // what the vector kernel made of them; its scratch
    int in_size;                  // what they were made for
    double low, high;
} dt_resize_axis;

typedef struct dt_resize_rows {
    // RGB rows: src[y] -> dst[y], n_out pixels, for n_rows rows; `left`: source position of src's first
    // pixel. Reads up to 3 * max_count + 16 bytes behind a row of src, writes DT_RESIZE_SLACK behind one of dst.
    void (*across)(const dt_resize_axis *a, int left, const uint8_t *src, size_t src_stride,
                   uint8_t *dst, size_t dst_stride, int n_rows);
    // n bytes of one row from n_taps rows at `rows`, each n bytes long. Touches nothing else.
    void (*down)(const uint8_t *rows, const int32_t *weight, int n_taps, uint8_t *dst, size_t n);
    // Makes a->packed; false: out of memory.
    bool (*pack)(dt_resize_axis *a);
} dt_resize_rows;

const dt_resize_rows *dt_resize_rows_avx2(void); // NULL where the machine or the build has none

#endif
