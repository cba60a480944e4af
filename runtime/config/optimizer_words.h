// optimizer_words.h: the words of train.optimizer.name, as constants.
#ifndef DT_CONFIG_OPTIMIZER_WORDS_H
#define DT_CONFIG_OPTIMIZER_WORDS_H

#define WORD(id, ...) DT_OPTIMIZER_##id,
typedef enum dt_optimizer_id {
#include "config/optimizers.def"
    DT_N_OPTIMIZERS
} dt_optimizer_id;
#undef WORD

#endif
