// schedule_words.h: the words of train.schedule.name, as constants.
#ifndef DT_CONFIG_SCHEDULE_WORDS_H
#define DT_CONFIG_SCHEDULE_WORDS_H

#define WORD(id, ...) DT_SCHEDULE_##id,
typedef enum dt_schedule_id {
#include "config/schedules.def"
    DT_N_SCHEDULES
} dt_schedule_id;
#undef WORD

#endif
