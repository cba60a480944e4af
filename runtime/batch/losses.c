// losses.c: the table of losses.h.
#include "batch/losses.h"

#include "config/words.h"

const dt_loss_row dt_losses[DT_N_LOSSES] = {
#define WORD(id, ...) {#id, DT_LOSS_ROW_##id},
#include "config/losses.def"
#undef WORD
};
