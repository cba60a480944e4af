// predict_write.h: predictions as rows of a file: CSV, JSON lines or NumPy's array.
//
// A row a sample, in the order of the set. What it has of a target depends on what the target is:
//
//   classes   the most probable class, its probability, and the next ones (top)
//   labels    of which several can be true (bce): the probability of each, and which count as predicted
//   numbers   in the field's unit
//
//   CSV    key,path,<field>,<field>.probability,<field>.2,<field>.2.probability,…,error
//          <field>.<label> or <field>.<element> where a field has several; <field>.predicted of labels: their names
//          with | between them
//   JSON   {"key": …, "path": …, "<field>": {"class": …, "probability": …, "top": [[class, probability], …]}}
//          labels {"<label>": …, "predicted": [label, …]}; a single one {"value": …, "predicted": [<field>]}
//   NPY    (samples, classes or numbers), float32, or float64 of numbers far from 0: no keys; a sample without a
//          prediction is NaN
//
// Several passes give more (predict.c): <field>.variance of the first class, <field>.entropy and
// <field>.mutual_information, or a variance for each label and number.
//
// A sample of two records (data.view.pairs) has key2 and path2, too. One that could not be read, or whose outputs are not
// finite, has the reason as "error", and nothing else.
//
// A file gets its name when it is complete (dt_io_begin).
#ifndef DT_TRAIN_PREDICT_WRITE_H
#define DT_TRAIN_PREDICT_WRITE_H

#include "batch/batch_source.h"
#include "batch/targets.h"
#include "config/config.h"

#include <stdio.h>

typedef enum dt_predicts { DT_PREDICTS_CLASSES, DT_PREDICTS_LABELS, DT_PREDICTS_NUMBERS } dt_predicts;

// What is written of a target.
typedef struct dt_predict_column {
    const char *field;
    const dt_field_info *info; // of numbers
    dt_predicts kind;
    int64_t n;                // classes, labels or numbers
    const char *const *name;  // of each; NULL: there is one, without a name
    const double *thresholds; // of labels: (n) from which one counts as predicted
} dt_predict_column;

typedef struct dt_predict_row {
    int64_t index;                       // in the set
    const char *why;                     // it has no prediction; NULL: it has
    const double *value[DT_MAX_TARGETS]; // (n): probabilities, or numbers
    const float *logits[DT_MAX_TARGETS]; // (n) outputs of the network, where asked for
    const float *embedding;              // where asked for
    // of several passes (predict.c):
    const double *variance[DT_MAX_TARGETS]; // (n)
    double entropy[DT_MAX_TARGETS], information[DT_MAX_TARGETS];
} dt_predict_row;

typedef struct dt_predict_writer dt_predict_writer;

typedef struct dt_predict_format {
    const char *path;                 // its extension says the format; NULL: CSV on stdout
    const dt_predict_column *columns; // borrowed
    int n_columns;
    int top; // classes of a row
    bool logits;
    bool deviates;          // rows are means of several passes, and say how far these differ
    int64_t n_embedding;    // 0: none
    const dt_dataset *data; // keys; may be NULL until the first row
    dt_split split;
    int64_t n_samples;
} dt_predict_format;

// DT_E_USAGE where the extension is unknown, or NPY would have to hold several arrays. Opens nothing.
dt_status dt_predict_check(const char *path, int n_columns, bool logits, bool embedding);
dt_status dt_predict_writer_open(dt_predict_writer **out, const dt_predict_format *f);
dt_status dt_predict_writer_put(dt_predict_writer *w, const dt_predict_row *row);
// Finishes the file; st: of the run so far, a failure drops the file. Frees w; w may be NULL.
dt_status dt_predict_writer_close(dt_predict_writer *w, dt_status st);

#endif
