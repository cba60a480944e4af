// resize_rows.h: the two inner loops of a resize, as the machine does them best. All give the same bytes.
#ifndef DT_DATA_RESIZE_ROWS_H
#define DT_DATA_RESIZE_ROWS_H

#include "decode.h"

enum {
    DT_RESIZE_BITS = 22,      // of a weight's fraction
    DT_RESIZE_SLACK = 32,     // bytes that `across` may write behind the last row
    DT_RESIZE_COLUMNS = 32,   // bytes that `down` needs at least
    DT_RESIZE_MAX_PAIRS = 512 // of taps that the vector kernels sum without overflow, and then some
};

// Weights of one axis.
typedef struct dt_resize_axis {
    int n_out, n_taps, max_count; // taps stored a position; the most that one has
    dt_buffer first;              // int[n_out][2]: first source position, count
    dt_buffer weight;             // int32[n_out][n_taps], 0 behind the count
    dt_buffer packed, offset;     // what the vector kernel made of them; its scratch
    bool is_packed;
    int in_size; // what they were made for
    double low, high;
    bool mirror; // output 0 is the last one
} dt_resize_axis;

typedef struct dt_resize_rows {
    // Makes a->packed; false: out of memory.
    bool (*pack)(dt_resize_axis *a);
    // Before rows of an image; `left`: source position of a row's first pixel.
    void (*place)(dt_resize_axis *a, int left);
    // Two RGB rows (they may be the same) to n_out pixels each. Reads up to 3 * max_count + 16 bytes behind a
    // src, writes DT_RESIZE_SLACK behind a dst.
    void (*across)(const dt_resize_axis *a, const uint8_t *const src[2], uint8_t *const dst[2]);
    // n bytes of one row from n_taps rows at `rows`, a stride apart. Touches nothing else.
    void (*down)(const uint8_t *rows, size_t stride, const int32_t *weight, int n_taps, uint8_t *dst, size_t n);
} dt_resize_rows;

// NULL where the machine or the build has none
const dt_resize_rows *dt_resize_rows_avx2(void);
const dt_resize_rows *dt_resize_rows_vectors(void);

#endif
