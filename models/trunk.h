// trunk.h: trunks, the parts of networks between a field and a head. A trunk is a model of its own with a head
// (dt_model_build_<id>), or one encoder of several (fusion.c): its keys are those at `at`, and whoever builds it sets
// the scope of its names (dt_graph_scope).
#ifndef DT_MODELS_TRUNK_H
#define DT_MODELS_TRUNK_H

#include "model_util.h"

typedef struct dt_trunk {
    dt_graph *g;
    const dt_model_args *a;
    const char *at; // "model", "model.encoders.iris"
    const dt_config_backbone *keys;
} dt_trunk;

// What a trunk makes of its input.
typedef struct dt_features {
    dt_value map;    // (N,C,h,w), or tokens (N,T,D); DT_NONE: it has no places
    dt_value pooled; // (N,D)
} dt_features;

typedef dt_features (*dt_trunk_fn)(const dt_trunk *t, dt_value x);
dt_features dt_trunk_resnet(const dt_trunk *t, dt_value x);
dt_features dt_trunk_vit(const dt_trunk *t, dt_value x);
dt_features dt_trunk_convnext(const dt_trunk *t, dt_value x);
dt_features dt_trunk_mobilenet_v3(const dt_trunk *t, dt_value x);
dt_features dt_trunk_efficientnet(const dt_trunk *t, dt_value x);
dt_features dt_trunk_audio_cnn(const dt_trunk *t, dt_value x);
dt_features dt_trunk_ast_tiny(const dt_trunk *t, dt_value x);
dt_features dt_trunk_cnn1d(const dt_trunk *t, dt_value x); // rows of numbers, too
dt_features dt_trunk_cnn(const dt_trunk *t, dt_value x);
dt_features dt_trunk_mlp(const dt_trunk *t, dt_value x);

// A Vision Transformer of this form (vit.c).
typedef struct dt_vit_form {
    int64_t dim, heads;
    int blocks, patch, stride; // stride: from patch to patch
    bool tanh, mean;           // the form of GELU; no class token, the mean of the patches
} dt_vit_form;
dt_features dt_vit_features(const dt_trunk *t, dt_value x, const dt_vit_form *form);

// The trunk of a model on the only image field, with model's keys. pooled is DT_NONE where there is none.
dt_features dt_model_trunk(dt_graph *g, const dt_model_args *a, dt_trunk_fn trunk);

// Size of dimension d of x, 1 where building has failed.
int64_t dt_trunk_dim(const dt_trunk *t, dt_value x, int d);
// "<module>.<name>", in the graph's arena
const char *dt_trunk_name(const dt_trunk *t, const char *module, const char *name);

// ---- blocks that several trunks have ---------------------------------------------------------------
// Convolution "<module>.0" without bias, batch norm "<module>.1", activation: torchvision's Conv2dNormActivation.
typedef struct dt_conv_norm {
    int out, kernel, stride, groups; // 0 stride, groups: 1
    dt_activation act;
    float eps, momentum;  // of the batch norm
    bool same;            // TensorFlow's padding: rows that are missing come at the end first
    const char *timms[2]; // what timm calls both modules; NULL: as we do
} dt_conv_norm;
dt_value dt_block_conv_norm(dt_graph *g, const char *module, dt_value x, const dt_conv_norm *c);
// Squeeze-and-excitation (Hu et al., 2018): x times a factor of each channel of each image, from fc1 (squeeze
// channels), an activation, fc2 and a gate.
dt_value dt_block_squeeze_excite(dt_graph *g, const char *module, dt_value x, int64_t squeeze, dt_activation act,
                                 dt_activation gate);
// Inverted residual (Sandler et al., 2018): 1x1 to `expanded` channels, depthwise, squeeze-and-excitation where squeeze
// > 0, 1x1 to `out`; added to x where shapes allow. Modules "<module>.block.<i>". It is block `at` of n_blocks: as in
// timm and torchvision the branch is dropped with probability model.drop_path times at / n_blocks.
typedef struct dt_inverted {
    int64_t expanded, out, squeeze;
    int kernel, stride, at, n_blocks;
    dt_activation act, squeeze_act;
    dt_activation gate;
    float eps, momentum;
    bool same;         // dt_conv_norm
    const char *timms; // what timm calls it, "blocks.1.0"
} dt_inverted;
dt_value dt_block_inverted(const dt_trunk *t, const char *module, dt_value x, const dt_inverted *b);
// (N,C,H,W) -> (N,C,h,w), bilinear; where that is smaller, with PyTorch's antialias.
dt_value dt_block_resize(dt_graph *g, dt_value x, int64_t h, int64_t w);
// v to a multiple of 8, never below 0.9 v: what MobileNet and EfficientNet count channels by.
int64_t dt_multiple_of_8(double v);

#endif
