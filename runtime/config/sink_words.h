// sink_words.h: the words of metrics.sinks, as constants.
#ifndef DT_CONFIG_SINK_WORDS_H
#define DT_CONFIG_SINK_WORDS_H

#define WORD(id, ...) DT_SINK_##id,
typedef enum dt_sink_id {
#include "config/sinks.def"
    DT_N_SINKS
} dt_sink_id;
#undef WORD

#endif
