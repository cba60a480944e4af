// models.h: the words of model.name, as constants.
#ifndef DT_CONFIG_MODELS_H
#define DT_CONFIG_MODELS_H

#define WORD(id, ...) DT_MODEL_##id,
typedef enum dt_model_id {
#include "config/models.def"
    DT_N_MODELS
} dt_model_id;
#undef WORD

#endif
