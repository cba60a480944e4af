// predict.h: what trained networks say of the samples of a data set, in the order of the set (dtrain predict).
//
// The network runs over the set (infer.h), and rank 0 turns the outputs of a sample into a row: probabilities of
// classes, the most probable ones by name, or numbers in their field's unit (predict_write.h). What is predicted is not
// looked for in the set. Rows depend on neither ranks nor replicas. With one pass they are written as they come, so the
// set can be of any size; of several passes (members of an ensemble, changed images, dropout masks) the mean is kept in
// memory until the last (predict.c). Each pass is computed by all ranks together.
//
// Classes and labels have probabilities by what they were trained with: softmax of the logits, or for bce the logistic
// function of each, divided by the temperature of the run where it was calibrated (calibrate.h). A label counts as
// predicted from its threshold on; of several runs from the mean of theirs.
//
// defines: dt_predict_evaluate, dt_trainer_predict
#ifndef DT_TRAIN_PREDICT_H
#define DT_TRAIN_PREDICT_H

#include "eval/asked.h"

enum { DT_PREDICT_CHANGES = 2 };

typedef struct dt_predict_request {
    const char *which; // checkpoint (dt_ckpt_find)
    const char *out;   // .csv, .jsonl, .npy; NULL: CSV on the args' results
    dt_split split;    // of the members' data
    int top;           // classes of a row
    bool logits, embeddings;
    bool raw;            // with train.ema: the trained weights, not their average
    bool own_data;       // dt_run_request
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

#endif
