// model_words.h: the words of model.name, as constants.
#ifndef DT_CONFIG_MODEL_WORDS_H
#define DT_CONFIG_MODEL_WORDS_H

#define WORD(id, ...) DT_MODEL_##id,
typedef enum dt_model_id {
#include "config/models.def"
    DT_N_MODELS
} dt_model_id;
#undef WORD

#endif
