// attrs.h: the attributes of each op that has any. A plain union: a node is a value that passes copy.
#ifndef DT_GRAPH_ATTRS_H
#define DT_GRAPH_ATTRS_H

#include "base/tensor.h"
#include "config/words.h"

// GELU is the exact form.
typedef enum dt_act { DT_ACT_NONE, DT_ACT_RELU, DT_ACT_GELU, DT_ACT_GELU_TANH } dt_act;

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
        dt_window win; // win.kernel follows the weight's shape
        int groups;
        dt_act act;  // fused after the bias (inference only)
        int fold_bn; // parameter ids below are folded into weight and bias when packed
        int bn_scale, bn_shift, bn_mean, bn_var; // param ids (mean, var: buffers)
        float bn_eps;
    } conv2d;
    struct {
        dt_act act; // fused after the bias
        int dgelu;  // backward: output 0 times the slope of GELU (tanh form) at the last input
    } linear;
    struct {
        int trans_a, trans_b; // of the last two dimensions
        float alpha;
    } matmul;
    struct {
        float eps, momentum; // running = (1-momentum)*running + momentum*batch
        int training;        // 0: uses running statistics, has no stat outputs
        int relu;            // fused ReLU (after the residual)
        int pool;            // fused max-pool after the ReLU: window in `win`
        dt_window win;
    } batch_norm;
    struct {
        int tanh; // the tanh form
    } gelu;
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
    } reshape;
    struct {
        float scale;
        int heads; // of a packed input; 0: q, k and v are apart
    } sdpa;
    struct {
        dt_loss_id id;
        float smoothing; // of labels, where it is over classes
        float param;     // losses.h
        float share;     // factor of this loss in the sum of all
    } loss;
} dt_attrs;

#endif
