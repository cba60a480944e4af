// build.h: the API that models are written in. One function an op; shapes in the comments.
//
// Names: `name` is the node's name; parameters get "<name>.weight", "<name>.bias" and, for batch norm,
// "<name>.running_mean", "<name>.running_var": so a builder that uses torchvision's module paths makes
// checkpoints that PyTorch loads. Ops without parameters take NULL for a generated name.
// Generated names follow the order of the calls, and C may evaluate arguments in any order: never pass two builder
// calls as arguments of one call.
#ifndef DT_GRAPH_BUILD_H
#define DT_GRAPH_BUILD_H

#include "graph/ir.h"

// What there is already of this name, type and shape is that input.
dt_value dt_input(dt_graph *g, const char *name, dt_dtype dtype, dt_shape shape);
dt_value dt_param(dt_graph *g, const char *name, dt_shape shape, dt_init init, bool decay);
// Changes how an existing parameter ("fc.weight") is initialized.
void dt_param_set_init(dt_graph *g, const char *name, dt_init init);
dt_value dt_constant(dt_graph *g, const char *name, dt_dtype dtype, dt_shape shape, const void *data);
dt_value dt_full(dt_graph *g, dt_shape shape, float v);    // of one number, f32
void dt_output(dt_graph *g, const char *name, dt_value v); // names a value for evaluation

// (N,H,W,C) u8 -> the same, changed by its list of steps, i32 (N,k*DT_PIXEL_STEP_WORDS) (pixel_steps.h). Devices only.
dt_value dt_image_augment(dt_graph *g, dt_value x, dt_value steps);
// (N,H,W,C) u8 -> (N,C,H,W) float: (x/255 - mean[c]) / std[c]; f32: (x - mean[c]) / std[c].
// plan: i32 (N,DT_MIX_COLUMNS), how samples are mixed before (mix_plan.h), or DT_NONE
dt_value dt_image_normalize(dt_graph *g, dt_value x, dt_value plan, const float *mean, const float *std);
dt_value dt_cast(dt_graph *g, dt_value x, dt_dtype to);

typedef struct dt_conv2d_opts {
    int out, kernel, stride, pad; // square window; 0 stride = 1
    int dilation, groups;         // 0 = 1
    bool bias;
    const dt_window *window; // NULL, or the full form (overrides kernel, stride, pad, dilation)
} dt_conv2d_opts;
// (N,C,H,W) -> (N,out,H',W'); weight (out,C/groups,R,S), Kaiming normal (fan-out, ReLU gain)
dt_value dt_conv2d(dt_graph *g, const char *name, dt_value x, const dt_conv2d_opts *o);
// The same with given parameters: weight (K,C/groups,R,S), bias (K) or DT_NONE
dt_value dt_conv2d_with(dt_graph *g, const char *name, dt_value x, dt_value weight, dt_value bias, int groups,
                        const dt_window *window);
// (…,I) -> (…,out); weight (out,I), bias (out), both uniform ±1/sqrt(I) as PyTorch's
dt_value dt_linear(dt_graph *g, const char *name, dt_value x, int64_t out, bool bias);
// The same with given parameters: weight (out,I), bias (out) or DT_NONE
dt_value dt_linear_with(dt_graph *g, const char *name, dt_value x, dt_value weight, dt_value bias);
// (…,M,K) x (…,K,N) -> (…,M,N), scaled by alpha
dt_value dt_matmul(dt_graph *g, dt_value a, dt_value b, bool trans_a, bool trans_b, float alpha);
// (N,C,H,W) or (N,C); eps 1e-5, momentum 0.1
dt_value dt_batch_norm(dt_graph *g, const char *name, dt_value x);
dt_value dt_batch_norm_eps(dt_graph *g, const char *name, dt_value x, float eps, float momentum);
dt_value dt_layer_norm(dt_graph *g, const char *name, dt_value x, float eps); // over the last dim
// The same with given parameters; batch norm: weight, bias, and the buffers running mean and variance.
dt_value dt_batch_norm_with(dt_graph *g, const char *name, dt_value x, const dt_value params[4], float eps,
                            float momentum);
dt_value dt_layer_norm_with(dt_graph *g, const char *name, dt_value x, dt_value weight, dt_value bias, float eps);
dt_value dt_relu(dt_graph *g, dt_value x);
dt_value dt_gelu(dt_graph *g, dt_value x);      // exact (erf)
dt_value dt_gelu_tanh(dt_graph *g, dt_value x); // the tanh form
dt_value dt_activate(dt_graph *g, dt_activation kind,
                     dt_value x); // none: x; with its number's default
// With the number of an ACTIVATION_WITH.
dt_value dt_activate_with(dt_graph *g, dt_activation kind, dt_value x, float number);
dt_value dt_max_pool(dt_graph *g, dt_value x, int kernel, int stride, int pad);
dt_value dt_avg_pool(dt_graph *g, dt_value x, int kernel, int stride, int pad);
// With any window. count_include_pad: padding counts as zeros, as it does in dt_avg_pool and by default in PyTorch.
dt_value dt_max_pool_window(dt_graph *g, dt_value x, const dt_window *w);
dt_value dt_avg_pool_window(dt_graph *g, dt_value x, const dt_window *w, bool count_include_pad);
dt_value dt_global_pool(dt_graph *g, dt_value x);                        // (N,C,H,W) -> (N,C), mean
dt_value dt_dropout(dt_graph *g, const char *name, dt_value x, float p); // identity in evaluation
// Stochastic depth (Huang et al. 2016): all of a sample's x is zero with probability p; identity outside training.
dt_value dt_drop_path(dt_graph *g, const char *name, dt_value x, float p);
// The end of a residual block: x + dt_drop_path(dt_mul(y, scale)); scale DT_NONE: without the factor.
dt_value dt_add_branch(dt_graph *g, const char *name, dt_value x, dt_value y, dt_value scale, float p);
dt_value dt_add(dt_graph *g, dt_value a,
                dt_value b); // b may lack leading dims: broadcast over them
// b: the shape of a; or its last dimension, (D); or for a (N,C,H,W) channels, (C,1,1) or (N,C,1,1)
dt_value dt_mul(dt_graph *g, dt_value a, dt_value b);
dt_value dt_scale(dt_graph *g, dt_value x, float alpha);
dt_value dt_concat(dt_graph *g, const dt_value *x, int n, int axis);
dt_value dt_slice(dt_graph *g, dt_value x, int axis, int64_t begin, int64_t end);
dt_value dt_transpose(dt_graph *g, dt_value x, const int *perm);
dt_value dt_reshape(dt_graph *g, dt_value x, dt_shape shape); // one -1 is inferred
dt_value dt_softmax(dt_graph *g, dt_value x);                 // last dim
// Of as many dimensions, elsewhere equal: repeats those of size 1; sums to size 1. x where nothing changes.
dt_value dt_expand(dt_graph *g, dt_value x, dt_shape shape);
dt_value dt_sum(dt_graph *g, dt_value x, dt_shape shape);
// (N,C,H,W) -> (N,C,size), as nn.Upsample. scale: the factors that gave the size, or NULL or 0: new by old size
dt_value dt_resize2d(dt_graph *g, dt_value x, dt_resize_mode mode, const int64_t size[2], const double scale[2]);
// nn.ConvTranspose2d: (N,I,H,W) -> (N,out,H',W'); weight (I,out/groups,R,S); o->window is given; more: output_padding
dt_value dt_conv_transpose(dt_graph *g, const char *name, dt_value x, const dt_conv2d_opts *o, const int more[2]);
dt_value dt_conv_transpose_with(dt_graph *g, const char *name, dt_value x, dt_value weight, dt_value bias, int groups,
                                const dt_window *window, const int more[2]);

// ---- layers of several ops (composed_layers.c) -------------------------------------------------------------
// (N,C,…) + b (C)
dt_value dt_add_channels(dt_graph *g, dt_value x, dt_value b);
// nn.GroupNorm of (N,C,…); with as many groups as channels it is nn.InstanceNorm. affine: weight and bias (C)
dt_value dt_group_norm(dt_graph *g, const char *name, dt_value x, int64_t groups, float eps, bool affine);
// With given parameters (C), or DT_NONE.
dt_value dt_group_norm_with(dt_graph *g, const char *name, dt_value x, int64_t groups, dt_value weight, dt_value bias,
                            float eps);
// nn.PReLU of (N,C,…): x where that is above 0, else weight x; weight (C) if each, or (1)
dt_value dt_prelu(dt_graph *g, const char *name, dt_value x, bool each, float init);
dt_value dt_prelu_with(dt_graph *g, dt_value x, dt_value weight);
// F.pad of an axis. Below 0 elements are cut off. with: the constant
typedef enum dt_pad_mode { DT_PAD_CONSTANT, DT_PAD_REFLECT, DT_PAD_REPLICATE } dt_pad_mode;
dt_value dt_pad(dt_graph *g, dt_value x, int axis, int64_t begin, int64_t end, dt_pad_mode mode, float with);
// nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d
dt_value dt_adaptive_pool(dt_graph *g, dt_value x, int64_t h, int64_t w, bool max);
// Over the axes whose bits are set, which stay with one element or go.
typedef enum dt_reduce_kind { DT_REDUCE_SUM, DT_REDUCE_MEAN, DT_REDUCE_MAX } dt_reduce_kind;
dt_value dt_reduce(dt_graph *g, dt_value x, dt_reduce_kind how, unsigned axes, bool keep);
// q (N,H,Tq,D), k and v (N,H,Tk,D) -> (N,H,Tq,D); softmax(scale q k^T) v
dt_value dt_sdpa(dt_graph *g, dt_value q, dt_value k, dt_value v, float scale);
// The same from one projection: qkv (N,T,3*heads*D), q first, heads within each -> (N,T,heads*D)
dt_value dt_sdpa_packed(dt_graph *g, const char *name, dt_value qkv, int heads, float scale);

// Losses: sum over samples of weight[n] * loss_n, and the sum of weights; sets graph->loss.
// The gradient is that of the sum; it is divided by the global weight once, at commit. id: dt_loss_id.
dt_value dt_loss(dt_graph *g, dt_word id, dt_value x, dt_value target, dt_value weight /*(N)*/, float smoothing,
                 float param); // x and target: ops/loss.c
// One of several losses, which are added: its value and gradient times share. name: of the node.
dt_value dt_loss_share(dt_graph *g, const char *name, dt_word id, dt_value x, dt_value target, dt_value weight,
                       dt_value class_weights /*(K) or DT_NONE*/, bool by_sample, float smoothing, float param,
                       float share); // see attrs.loss, ops/loss.c

// x (…,D) over its length along the last dimension
dt_value dt_l2_normalize(dt_graph *g, dt_value x);
// (N,I) -> (N,out): scale times the cosine between x and each row of weight (out,I)
dt_value dt_cosine(dt_graph *g, const char *name, dt_value x, int64_t out, float scale);
// ArcFace: of scaled cosines (N,K) and classes i32 (N), for a loss over classes (ops/loss.c)
dt_value dt_arc_margin(dt_graph *g, dt_value x, dt_value target, float margin, float scale);
// The batch-hard triplet loss of embeddings (N,D) and classes i32 (N) (ops/loss.c): like dt_loss_share
dt_value dt_triplet(dt_graph *g, dt_value x, dt_value target, dt_value weight, float margin, bool semihard,
                    float share);

#endif
