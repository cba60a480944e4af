// models.h: the registry of networks, and what they share.
#ifndef DT_MODELS_MODELS_H
#define DT_MODELS_MODELS_H

#include "base/core.h"
#include "batch/targets.h"
#include "graph/build.h"
#include "graph/model_args.h"

// ---- models -------------------------------------------------------------------------------------------------------

// Networks by name. A builder calls the graph API and nothing else; config/models.def lists them.
//
// The batch's fields become graph inputs of the same names (images u8 or f32 (N,H,W,C), classes i32 (N)) plus
// "weight" f32 (N). A builder normalises images with the fields' mean and std, names what evaluation
// reads with dt_output ("logits" (N,K), with train.targets "<field>.logits" for each; "embedding" (N,D) where
// verification makes sense), and adds the losses of its targets (batch/targets.h), in training and evaluation graphs
// alike.

// Builds, fuses (or folds), differentiates and applies precision, so that ops run in `compute` where they can: what a
// plan takes. DT_E_USAGE naming the model and what it lacks (fields, classes).
dt_status dt_model_graph(dt_graph **out, const dt_model_args *a, dt_dtype compute);
// Layer i of model.layers: its name, "key key=default …", what it does; false: there are fewer.
bool dt_model_describe_layer(size_t i, const char **type, const char **keys, const char **help);

// ---- model util ---------------------------------------------------------------------------------------------------

// What builders share: fields as graph inputs, the head and its loss.

// The builders, one a line of models.def; errors through dt_graph_fail.
#define WORD(id, ...) void dt_model_build_##id(dt_graph *g, const dt_model_args *a);
#include "config/models.def"
#undef WORD

// The network of model.name.
void dt_model_build(dt_graph *g, const dt_model_args *a);

// With a teacher (distil.c), before the network is built: the teacher's network; the losses of the targets count for less
// then. And after it: the losses towards what the teacher predicts; own: the targets as they were.
void dt_distil_begin(dt_graph *g, const dt_model_args *a, dt_targets *own);
void dt_distil_end(dt_graph *g, const dt_model_args *a, const dt_targets *own);

// Whether there are n image fields; if not, the graph fails and says what there is.
bool dt_model_has_fields(dt_graph *g, const dt_model_args *a, int n_images);
// The i-th image field, in the config's order, or NULL.
const dt_field_info *dt_model_image_field(const dt_model_args *a, int i);
// Input (N,H,W,C) of the field, augmented and mixed in training where the field says so, normalised to (N,C,H,W).
dt_value dt_model_image(dt_graph *g, const dt_model_args *a, const dt_field_info *f);
// dt_add_branch of the i-th block of n: its branch y is dropped for some samples (model.drop_path), less often in
// earlier blocks.
dt_value dt_model_add_branch(dt_graph *g, const dt_model_args *a, const char *name, dt_value x, dt_value y,
                             dt_value scale, int i, int n);
// Whether the field is of numbers, or a class that is an input, and no target; then its input as rows, (N,D).
bool dt_model_is_numbers(const dt_model_args *a, const dt_field_info *f);
dt_value dt_model_numbers(dt_graph *g, const dt_model_args *a, const dt_field_info *f);
// The usual end: names x (N,D) the embedding, then dropout and dt_model_heads.
void dt_model_classify(dt_graph *g, const dt_model_args *a, const char *name, dt_value x, const dt_init *init);
// The loss of a target, times share. Several may be added, of the same target too.
void dt_model_add_loss(dt_graph *g, const dt_model_args *a, const dt_target *t, dt_value logits, dt_value weight,
                       float share);
// The same end where the network makes the logits of its only target itself.
void dt_model_logits(dt_graph *g, const dt_model_args *a, dt_value logits);
// The logits of a target: a linear layer "<name>" of x (N,D), or where its loss is of angles, cosines.
dt_value dt_model_head(dt_graph *g, const dt_target *t, const char *name, dt_value x);
// For each target a linear layer of x (N,D), "<name>" or, where train.targets names them, "<name>.<field>"; its logits
// (N,K) as an output, inputs for the target and "weight", and its loss. init: of the weight, where a scale of 0
// stands for 1/sqrt(K), and the bias begins with zeros; NULL: PyTorch's of a linear layer.
void dt_model_heads(dt_graph *g, const dt_model_args *a, const char *name, dt_value x, const dt_init *init);

// ---- trunk --------------------------------------------------------------------------------------------------------

// Trunks, the parts of networks between a field and a head. A trunk is a model of its own with a head
// (dt_model_build_<id>), or one encoder of several (fusion.c): its keys are those at `at`, and whoever builds it sets
// the scope of its names (dt_graph_scope).

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
