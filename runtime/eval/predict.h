// predict.h: predictions of trained networks: dtrain predict, its rows, and calibration.
#ifndef DT_EVAL_PREDICT_H
#define DT_EVAL_PREDICT_H

#include "batch/batch_source.h"
#include "batch/targets.h"
#include "config/config.h"
#include "eval/evaluate.h"
#include "run/run.h"

#include <stdio.h>

// ---- predict ------------------------------------------------------------------------------------------------------

// Predictions of trained networks for the samples of a data set, in the order of the set (dtrain predict).
//
// The network runs over the set (infer.h), and rank 0 turns the outputs of a sample into a row: probabilities of
// classes, the most probable ones by name, or numbers in their field's unit. What is predicted is not
// looked for in the set. Rows depend on neither ranks nor replicas. With one pass they are written as they come, so the
// set can be of any size; of several passes (members of an ensemble, changed images, dropout masks) the sums of a
// range of samples are in memory (predict.c); where the set has several ranges, so are the weights of all members. Each
// pass is computed by all ranks together.
//
// Classes and labels have probabilities by what they were trained with: softmax of the logits, or for bce the logistic
// function of each, divided by the temperature of the run where it was calibrated. A label counts as
// predicted from its threshold on; of several runs from the mean of theirs.
//
// defines: dt_predict_evaluate, dt_trainer_predict

enum { DT_PREDICT_CHANGES = 2 };

typedef struct dt_predict_request {
    const char *which; // checkpoint (dt_ckpt_find)
    const char *out;   // .csv, .jsonl, .npy; NULL: CSV on the args' results
    dt_split split;    // of the members' data
    int top;           // classes of a row
    bool logits, embeddings;
    bool raw;            // with train.ema: the trained weights, not their average
    bool own_data;       // dt_run_request
    const char *columns; // of the set, beside each prediction: "who,rec"; NULL: none
    int mc;              // passes with dropout; 0: one without
    bool by_uncertainty; // weights of the mean
    // Of further passes over all samples: what is done to each image, in the words of data.augment.FIELD.
    const char *changes[DT_PREDICT_CHANGES];
    int n_changes;
} dt_predict_request;

// members: of the runs. Their data are either the set, all of it in the test split, opened without what is predicted, or
// the run's own, divided as the run does it. Their classes are matched by name, and have the first's order.
// Collective.
dt_status dt_trainer_predict(const dt_trainer_args *members, int n, const dt_predict_request *r);
// dt_trainer_eval of an ensemble: the metrics of these means, with the thresholds that a prediction has. It has no
// embedding, so metrics of pairs are left out. Collective.
dt_status dt_predict_evaluate(const dt_eval_request *q);

// ---- predict write ------------------------------------------------------------------------------------------------

// Predictions as rows of a file: CSV, JSON lines or NumPy's array.
//
// A row a sample, in the order of the set. What it has of a target depends on what the target is:
//
//   classes   the most probable class, its probability, and the next ones (top)
//   labels    of which several can be true (bce): the probability of each, and which count as predicted
//   numbers   in the field's unit
//
// Where the set has the true value, it is <field>.truth (<field>.truth.<element>) in front of the others.
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

enum { DT_PREDICT_SOURCES = 64 };
typedef enum dt_predicts { DT_PREDICTS_CLASSES, DT_PREDICTS_LABELS, DT_PREDICTS_NUMBERS } dt_predicts;

// What is written of a target.
typedef struct dt_predict_column {
    const char *field;
    const dt_field_info *info; // of numbers
    dt_predicts kind;
    int64_t n;                // classes, labels or numbers
    const char *const *name;  // of each; NULL: there is one, without a name
    const double *thresholds; // of labels: (n) from which one counts as predicted
    // Columns of the set that may have its true value: of classes the first that is there, else one for each element.
    const char *source[DT_PREDICT_SOURCES];
    int n_sources;
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
    int top;          // classes of a row
    const char *also; // columns of the set, "who,rec"; NULL: none
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

// ---- calibrate ----------------------------------------------------------------------------------------------------

// Temperature scaling (Guo et al., "On calibration of modern neural networks", ICML 2017): logits are
// divided by a temperature T that makes the validation part most likely, so that probabilities mean what they say. The
// order of classes, and so the accuracy, stays. T stays 1 unless it lowers the nll of samples that did not choose it: each
// half of the part (every second sample) is measured with the T of the other.
//
// RUN/calibration.json: {"step": 450, "flags": {"temperature": 1.7, "thresholds": {"odd": 0.31, …}}}, of classes and of
// labels (bce); thresholds, of calibrated probabilities, of labels with eval.threshold: f1. It belongs to the checkpoint
// of that step. dtrain predict applies it.

// Fits T on the validation part and writes calibration.json; prints a JSON line with the calibration error (ece) and
// the mean negative log-likelihood (nll) before and after: of each half with the T of the other. Collective.
dt_status dt_trainer_calibrate(const dt_trainer_args *a, const char *which);

// The temperature of a target for the checkpoint of `step`; 1 where there is none, with a warning where it is of another
// step. thresholds (n_out), or NULL: from which a calibrated probability counts as predicted; DT_E_USAGE where
// eval.threshold is f1 and there is none for that checkpoint.
dt_status dt_calibration_read(const dt_config *c, int64_t step, const dt_target *t, double *temperature,
                              double *thresholds);

#endif
