// models.h: networks by name. A builder calls the graph API and nothing else; models.def lists them.
//
// The batch's fields become graph inputs of the same names (images u8 or f32 (N,H,W,C), classes i32 (N)) plus
// "weight" f32 (N). A builder normalises images with the fields' mean and std, names what evaluation
// reads with dt_output ("logits" (N,K); "embedding" (N,D) where verification makes sense), and adds
// its loss, in training and evaluation graphs alike.
#ifndef DT_MODELS_MODELS_H
#define DT_MODELS_MODELS_H

#include "base/status.h"
#include "config/config.h"
#include "graph/build.h"

// What a builder knows about the data.
typedef struct dt_model_field {
    const char *name;
    dt_shape sample_shape; // (H,W,C) for images, () for classes
    dt_dtype dtype;
    bool is_image;
    float mean[64], std[64];
    int n_classes;
    bool soft; // class: training graphs take shares of the classes, f32 (N, n_classes)
    bool
        mixed; // image: training graphs take a plan of how to mix samples, "<name>.mix" (mix_plan.h)
    // image: training graphs take so many steps a sample that change its pixels, "<name>.steps" (pixel_steps.h)
    int n_steps;
} dt_model_field;

typedef struct dt_model_args {
    const dt_config *config;
    const dt_model_field *fields;
    int n_fields;
    int batch; // N
    bool training;
} dt_model_args;

typedef struct dt_model {
    const char *name, *help;
    void (*build)(dt_graph *g, const dt_model_args *a); // errors through dt_graph_fail
} dt_model;

const dt_model *dt_model_find(const char *name); // NULL when unknown
const dt_model *dt_models(int *n);
// Builds, fuses (or folds), differentiates and applies precision: what a plan takes.
// DT_E_USAGE naming the model and what it lacks (fields, classes).
dt_status dt_model_graph(dt_graph **out, const dt_model_args *a, dt_dtype low);

#endif
