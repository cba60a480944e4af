// field_info.h: what a field of the data is. data/ describes the fields, the trainer passes them on, models/ makes graph
// inputs of them: nobody copies them into a struct of their own.
#ifndef DT_BATCH_FIELD_INFO_H
#define DT_BATCH_FIELD_INFO_H

#include "base/core.h"
#include "config/config.h"

#include <math.h>

enum { DT_MAX_FIELDS = 16, DT_MAX_NORMALIZE = 64 };

typedef struct dt_field_info {
    const char *name;
    dt_dtype dtype;
    dt_shape sample_shape; // without N: (H,W,C), () for a class
    bool is_image;
    // Images, by channel: u8 of values in 0..1, f32 of values as they are; the network applies them.
    // Numbers, by element (those after the 64th share its): the batch holds (x - mean) / std, and
    // metrics are scaled back. Doubles: numbers may be times in seconds.
    double mean[DT_MAX_NORMALIZE], std[DT_MAX_NORMALIZE];
    // Images and series, by channel: what is subtracted from the values before they are rounded to f32; mean is without it.
    double origin[DT_MAX_NORMALIZE];
    // Numbers from columns: `normalize: auto`, resolved to mean and std; and how far the training part's targets lie
    // from a new network's outputs, which are near 0: the larger of |mean| and standard deviation, of the element with
    // the largest.
    bool normalize_auto;
    float mean_or_std;
    int n_classes;                    // class fields, else 0
    int n_categories, embedding;      // class fields that are inputs, as rows of so many numbers, else 0; 0: one-hot
    const char *const *class_names;   // by class, NULL where it has none; or NULL
    const char *const *element_names; // numbers and labels, by element: their columns; or NULL
    int n_strangers;                  // values that are no class of the run: n_classes and up (DT_USE_IDENTITY)
    // Training batches only:
    // Of each class, for a loss that takes them by class (losses.h), or of each label's positives; or NULL
    const float *class_weights;
    bool soft;   // class: the batch and the graph hold shares of the classes, f32 (N, n_classes)
    bool mixed;  // image: dt_batch.mix, graph input "<name>.mix", says how samples are mixed
    int n_steps; // image: number of dt_batch.steps per sample, graph input "<name>.steps"; 0: none
} dt_field_info;

static inline double dt_field_mean(const dt_field_info *f, int64_t element) {
    return f->mean[element < DT_MAX_NORMALIZE ? element : DT_MAX_NORMALIZE - 1];
}
// The name of class or element k; NULL: it has only its number.
static inline const char *dt_field_name_of(const dt_field_info *f, int64_t k) {
    const char *const *names = f->class_names ? f->class_names : f->element_names;
    return names ? names[k] : NULL;
}
static inline double dt_field_std(const dt_field_info *f, int64_t element) {
    return f->std[element < DT_MAX_NORMALIZE ? element : DT_MAX_NORMALIZE - 1];
}
// A number of a batch, or a network's, in the field's unit; and how many of its digits say something, where `digits` do of
// one without a mean.
static inline double dt_field_value(const dt_field_info *f, int64_t element, double x) {
    return x * dt_field_std(f, element) + dt_field_mean(f, element);
}
static inline int dt_field_digits(const dt_field_info *f, int64_t element, int digits) {
    const double far = fabs(dt_field_mean(f, element)) / dt_field_std(f, element);
    return (int)fmin(digits + (far > 1 ? ceil(log10(far)) : 0), 17);
}

// What is wanted of a field of a set that a run meets after training.
typedef enum dt_field_use {
    DT_USE_VALUE,
    DT_USE_NOTHING,  // not looked for in the set: zeros (what is to be predicted)
    DT_USE_IDENTITY, // a class: values that the run does not know are numbered, too
} dt_field_use;

#endif
