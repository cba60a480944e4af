// tensor.h: element type and logical shape of a tensor. How its elements lie in memory is its layout, which
// only plans and backends know.
#ifndef DT_BASE_TENSOR_H
#define DT_BASE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DT_MAX_DIMS = 6 };

typedef enum dt_dtype { DT_F32, DT_BF16, DT_F16, DT_I32, DT_U8, DT_I8, DT_DTYPE_COUNT } dt_dtype;

// Logical shape, outermost first; images are (N,C,H,W). n = 0 is a scalar.
typedef struct dt_shape {
    int n;
    int64_t d[DT_MAX_DIMS];
} dt_shape;

static inline dt_shape dt_shape_of(int n, int64_t a, int64_t b, int64_t c, int64_t d) {
    dt_shape s = {n, {a, b, c, d}};
    for (int i = n; i < 4; i++) s.d[i] = 0;
    return s;
}
#define dt_shape0()           dt_shape_of(0, 0, 0, 0, 0)
#define dt_shape1(a)          dt_shape_of(1, a, 0, 0, 0)
#define dt_shape2(a, b)       dt_shape_of(2, a, b, 0, 0)
#define dt_shape3(a, b, c)    dt_shape_of(3, a, b, c, 0)
#define dt_shape4(a, b, c, d) dt_shape_of(4, a, b, c, d)

size_t dt_dtype_size(dt_dtype t);
const char *dt_dtype_name(dt_dtype t); // "f32", "bf16", …
bool dt_dtype_is_float(dt_dtype t);    // f32, bf16, f16
int64_t dt_shape_elements(const dt_shape *s);
// Whether sizes are 0 to DT_MAX_SIZE and elements at most DT_MAX_ELEMENTS, more than any memory. All tensors of a
// graph are so (dt_graph_add_value): sums and products of a few of their sizes, and bytes, need no check, and
// libraries that count a size in 32 bits can.
#define DT_MAX_SIZE     ((int64_t)1 << 30)
#define DT_MAX_ELEMENTS ((int64_t)1 << 46)
bool dt_shape_is_sound(const dt_shape *s);
bool dt_shape_equal(const dt_shape *a, const dt_shape *b);
// "(4,32,96,103)" into buf; returns buf.
const char *dt_shape_print(const dt_shape *s, char *buf, size_t cap);

#endif
