// loss_row.h: what building a graph and reading the config must know of a loss. Its arithmetic is in losses.h, which knows
// the list of losses; this header does not, so that a new loss rebuilds only who computes it.
#ifndef DT_GRAPH_LOSS_ROW_H
#define DT_GRAPH_LOSS_ROW_H

#include "config/words.h"

#include <stdbool.h>

enum { // what a target field holds
    DT_TARGET_CLASS = 1,
    DT_TARGET_SHARES = 2, // of the classes, where samples are mixed
    DT_TARGET_VECTOR = 4,
    DT_TARGET_NUMBER = 8
};

typedef struct dt_loss_row {
    const char *id;
    unsigned takes;        // DT_TARGET_…
    bool softmax;          // over classes; else over elements
    bool by_class;         // class weights are factors in the sum over classes; else of the sample
    bool angular;          // of cosines between embedding and the classes' weights
    bool rotation;         // of 3 or 6 numbers together (rotation.h); p: radians of a unit of angles
    bool gives_numbers;    // what the network predicts is in the target's unit
    bool gives_labels;     // each element is the logit of a label; several can be true
    bool exponent;         // it is the exponential of its output
    dt_word best;          // eval.best where it is not given
    float param;           // p, where no key sets it
    const char *param_key; // the key beside the loss's that sets p, or NULL
} dt_loss_row;

extern const dt_loss_row dt_losses[]; // losses.c

#endif
