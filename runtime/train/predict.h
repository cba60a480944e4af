// predict.h: what trained networks say of the samples of a data set, in the order of the set (dtrain predict).
//
// The network runs over the set (infer.h), and rank 0 turns the outputs of a sample into a row: probabilities of
// classes, the most probable ones by name, or numbers in their field's unit (predict_write.h). What is predicted is not
// looked for in the set. Rows are written as they come, so the set can be of any size, and they depend on neither
// ranks nor replicas.
//
// Classes and labels have probabilities by what they were trained with: softmax of the logits, or for bce the logistic
// function of each.
//
// defines: dt_trainer_predict
#ifndef DT_TRAIN_PREDICT_H
#define DT_TRAIN_PREDICT_H

#include "train/trainer.h"

typedef struct dt_predict_request {
    const char *which; // "best", "latest" or a step number
    const char *out;   // .csv, .jsonl, .npy; NULL: CSV on the args' results
    int top;           // classes of a row
    bool logits, embeddings;
} dt_predict_request;

// a: of the run; its data are the set, all of it in the test split, opened without what is predicted. Collective.
dt_status dt_trainer_predict(const dt_trainer_args *a, const dt_predict_request *r, bool *agreed);

#endif
