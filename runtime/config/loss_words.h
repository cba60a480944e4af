// loss_words.h: the words of train.loss, as constants.
#ifndef DT_CONFIG_LOSS_WORDS_H
#define DT_CONFIG_LOSS_WORDS_H

#define WORD(id, ...) DT_LOSS_##id,
typedef enum dt_loss_id {
#include "config/losses.def"
    DT_N_LOSSES
} dt_loss_id;
#undef WORD

#endif
