// optimizers.h: the words of train.optimizer.name, as constants.
#ifndef DT_CONFIG_OPTIMIZERS_H
#define DT_CONFIG_OPTIMIZERS_H

#define WORD(id, ...) DT_OPTIMIZER_##id,
typedef enum dt_optimizer_id {
#include "config/optimizers.def"
    DT_N_OPTIMIZERS
} dt_optimizer_id;
#undef WORD

#endif
