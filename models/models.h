// models.h: networks by name. A builder calls the graph API and nothing else; config/models.def lists them.
//
// The batch's fields become graph inputs of the same names (images u8 or f32 (N,H,W,C), classes i32 (N)) plus
// "weight" f32 (N). A builder normalises images with the fields' mean and std, names what evaluation
// reads with dt_output ("logits" (N,K), with train.targets "<field>.logits" for each; "embedding" (N,D) where
// verification makes sense), and adds the losses of its targets (batch/targets.h), in training and evaluation graphs
// alike.
#ifndef DT_MODELS_MODELS_H
#define DT_MODELS_MODELS_H

#include "base/status.h"
#include "graph/build.h"
#include "graph/model_args.h"

// Builds, fuses (or folds), differentiates and applies precision, so that ops run in `compute` where they can: what a
// plan takes. DT_E_USAGE naming the model and what it lacks (fields, classes).
dt_status dt_model_graph(dt_graph **out, const dt_model_args *a, dt_dtype compute);
// Layer i of model.layers: its name, "key key=default …", what it does; false: there are fewer.
bool dt_model_describe_layer(size_t i, const char **type, const char **keys, const char **help);

#endif
