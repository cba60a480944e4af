// activation_words.h: the activations of activations.def, as constants.
#ifndef DT_GRAPH_ACTIVATION_WORDS_H
#define DT_GRAPH_ACTIVATION_WORDS_H

enum dt_activation_word { // a dt_activation (attrs.h)
    DT_ACTIVATION_none,
#define ACTIVATION(id, op, at_zero, help) DT_ACTIVATION_##id,
#include "graph/activations.def"
#undef ACTIVATION
    DT_N_ACTIVATIONS
};

#endif
