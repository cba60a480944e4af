// model_util.h: what builders share: fields as graph inputs, the head and its loss.
#ifndef DT_MODELS_MODEL_UTIL_H
#define DT_MODELS_MODEL_UTIL_H

#include "batch/targets.h"
#include "models/models.h"

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
// Whether the field is of numbers and no target; then its input as rows, (N,D).
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

#endif
