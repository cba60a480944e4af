// ckpt_positions.c: position embeddings for another number of patches: one pass over columns, one over rows, each a
// cubic kernel (Keys, 1981, a = -1/2) that is as much wider as the grid becomes smaller. It is what PyTorch's
// interpolate(mode="bicubic", antialias=True) computes, and so timm.
#include "base/arena.h"
#include "checkpoint/ckpt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double cubic(double x) {
    x = fabs(x);
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

// Sums rows of `width` values: n_in rows to n_out.
static void resize_rows(float *to, int n_out, const float *from, int n_in, size_t width) {
    const double scale = (double)n_in / n_out, wide = scale > 1 ? scale : 1;
    for (int i = 0; i < n_out; i++) {
        const double center = scale * (i + 0.5);
        int first = (int)(center - 2 * wide + 0.5), end = (int)(center + 2 * wide + 0.5);
        float *row = to + (size_t)i * width;
        double sum = 0;
        if (first < 0) first = 0;
        if (end > n_in) end = n_in;
        for (int k = first; k < end; k++) sum += cubic((k - center + 0.5) / wide);
        memset(row, 0, width * sizeof *row);
        for (int k = first; k < end; k++) {
            const float weight = (float)(cubic((k - center + 0.5) / wide) / sum);
            for (size_t c = 0; c < width; c++) row[c] += weight * from[(size_t)k * width + c];
        }
    }
}

void dt_ckpt_resize_positions(float *to, int to_h, int to_w, const float *from, int from_h, int from_w, int dim) {
    const size_t in_row = (size_t)from_w * (size_t)dim, out_row = (size_t)to_w * (size_t)dim;
    float *columns = dt_xcalloc((size_t)from_h * out_row, sizeof *columns);
    for (int y = 0; y < from_h; y++)
        resize_rows(columns + (size_t)y * out_row, to_w, from + (size_t)y * in_row, from_w, (size_t)dim);
    resize_rows(to, to_h, columns, from_h, out_row);
    free(columns);
}
