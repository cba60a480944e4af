// model_util.h: what builders share: fields as graph inputs, the head and its loss.
#ifndef DT_MODELS_MODEL_UTIL_H
#define DT_MODELS_MODEL_UTIL_H

#include "models/models.h"

// The builders, one a line of models.def; errors through dt_graph_fail.
#define WORD(id, ...) void dt_model_build_##id(dt_graph *g, const dt_model_args *a);
#include "config/models.def"
#undef WORD

// Whether there are n image fields and a target; if not, the graph fails and says what there is.
bool dt_model_has_fields(dt_graph *g, const dt_model_args *a, int n_images);
// The i-th image field, in the config's order, or NULL.
const dt_field_info *dt_model_image_field(const dt_model_args *a, int i);
// What is predicted: the first class field, else the first field of numbers; NULL when there is none.
const dt_field_info *dt_model_target(const dt_model_args *a);
// Outputs of the head for this target: classes, or numbers a sample.
int64_t dt_model_n_out(const dt_field_info *target);
// Input (N,H,W,C) of the field, augmented and mixed in training where the field says so, normalised to (N,C,H,W).
dt_value dt_model_image(dt_graph *g, const dt_model_args *a, const dt_field_info *f);
// The usual head: names x (N,D) the embedding, then dropout and the linear layer `name`. Gives the logits (N,K).
dt_value dt_model_head(dt_graph *g, const dt_model_args *a, const char *name, dt_value x);
// Names the logits (N,K), makes inputs for target and "weight", adds the loss that train.loss names.
void dt_model_add_loss(dt_graph *g, const dt_model_args *a, const dt_field_info *target,
                       dt_value logits);

#endif
