// attrs.h: the attributes of each op that has any. A plain union: a node is a value that passes copy.
#ifndef DT_GRAPH_ATTRS_H
#define DT_GRAPH_ATTRS_H

#include "base/core.h"
#include "config/words.h"
#include "graph/resize_mode.h"

typedef dt_word dt_activation; // a constant of activation_words.h, which only those include who know the list
const char *dt_activation_name(dt_activation kind); // "gelu_tanh"; "" for none (ops/elementwise.c)

// How the factors of `mul` repeat: a (or, of channels, its pixels in rows) is images x rows x cols, and b has one row
// of cols for all images, or one for each.
typedef struct dt_times {
    bool same, channels; // same: one row, of all elements
    int64_t images, rows, cols;
    bool each; // b has a row for each image
} dt_times;
static inline bool dt_times_of(const dt_shape *a, const dt_shape *b, dt_times *t) {
    const int skip = b->n == 4 && b->d[0] == 1 ? 1 : 0, n = b->n - skip;
    const int64_t *d = b->d + skip, all = dt_shape_elements(a);
    const bool ones = n >= 2 && d[n - 1] == 1 && d[n - 2] == 1;
    *t = (dt_times){.same = dt_shape_equal(a, b), .images = 1, .rows = 1, .cols = all};
    if (t->same) return true;
    if (b->n == 1 && a->n > 1 && d[0] == a->d[a->n - 1]) {
        t->cols = d[0];
        t->rows = d[0] ? all / d[0] : 0;
        return true;
    }
    if (a->n != 4 || !ones || n < 3 || d[n - 3] != a->d[1]) return false;
    if (n == 4 && d[0] != a->d[0]) return false;
    *t = (dt_times){.channels = true,
                    .images = a->d[0],
                    .rows = a->d[2] * a->d[3],
                    .cols = a->d[1],
                    .each = n == 4 || a->d[0] == 1};
    return true;
}

// Of a convolution or linear layer that computes in int8 (passes/int8.c). Real values are scale times stored ones.
typedef struct dt_int8_scales {
    const float *weight;  // of each output channel; the weight is stored in -127..127
    float x, residual, y; // y 1 where it is f32
} dt_int8_scales;

// Window of a convolution or pooling. Padding may be asymmetric.
typedef struct dt_window {
    int kernel[2], stride[2], dilation[2]; // height, width
    int pad_begin[2], pad_end[2];
} dt_window;

typedef union dt_attrs {
    struct {
        int channels;
        float mean[64], std[64]; // bytes: of values scaled to 0..1
    } image_normalize;
    struct {
        dt_dtype to;
    } cast;
    struct {
        dt_dtype to; // u8 or i8; f32: back from them
        float scale;
    } quantize;
    struct {
        dt_window win; // win.kernel follows the weight's shape
        int groups;
        dt_activation act;                       // fused after the bias (inference only)
        int fold_bn;                             // parameter ids below are folded into weight and bias when packed
        int bn_scale, bn_shift, bn_mean, bn_var; // param ids (mean, var: buffers)
        float bn_eps;
        const dt_int8_scales *int8; // of conv2d_int8
        int more[2];                // conv_transpose: elements behind, of a size that several convolve to
    } conv2d;                       // also conv_transpose
    struct {
        dt_activation act;          // fused after the bias
        int dgelu;                  // backward: output 0 times the slope of GELU (tanh form) at the last input
        const dt_int8_scales *int8; // of linear_int8
    } linear;
    struct {
        int trans_a, trans_b; // of the last two dimensions
        float alpha;
    } matmul;
    struct {
        float eps, momentum; // running = (1-momentum)*running + momentum*batch
        int training;        // 0: uses running statistics, has no stat outputs
        int relu;            // fused ReLU (after the residual)
        dt_activation act;   // another one, without residual and pool (dt_pass_fuse_norm_act)
        float number;        // of an ACTIVATION_WITH
        int pool;            // fused max-pool after the ReLU: window in `win`
        dt_window win;
    } batch_norm;
    struct {
        dt_activation kind;
        float number; // of an ACTIVATION_WITH
    } activation;     // also relu and gelu
    struct {
        float eps;
    } layer_norm;
    struct {
        dt_window win;
        int count_include_pad; // avg_pool
    } pool;                    // max_pool, avg_pool
    struct {
        float p;   // probability of zero; kept values are scaled by 1/(1-p)
        int whole; // one draw a sample
    } dropout;
    struct {
        float alpha;
    } scale;
    struct {
        int axis;
    } concat; // also softmax (last axis only)
    struct {
        int axis;
        int64_t begin, end;
    } slice;
    struct {
        int perm[DT_MAX_DIMS];
    } transpose;
    struct {
        dt_shape shape;
    } reshape; // also expand and sum
    struct {
        dt_resize_mode mode;
        int64_t size[2]; // height, width
        float step[2];   // places in x for one in y (resize_taps.h)
    } resize;
    struct {
        float scale;
        int heads; // of a packed input; 0: q, k and v are apart
    } sdpa;
    struct {
        dt_word id;      // dt_loss_id
        float smoothing; // of labels, where it is over classes
        float param;     // losses.h
        float share;     // factor of this loss in the sum of all
        int by_sample;   // a sample is multiplied by its class's weight here, and not in `weight`
    } loss;
    struct {
        float margin, scale; // radians; of the cosines
    } arc_margin;
    struct {
        float margin, share; // share: as that of loss
        bool semihard;
    } triplet;
} dt_attrs;

#endif
