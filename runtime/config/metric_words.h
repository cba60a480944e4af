// metric_words.h: the words of eval.metrics, as constants.
#ifndef DT_CONFIG_METRIC_WORDS_H
#define DT_CONFIG_METRIC_WORDS_H

#define WORD(id, ...) DT_METRIC_##id,
typedef enum dt_metric_id {
#include "config/metrics.def"
    DT_N_METRICS
} dt_metric_id;
#undef WORD

#endif
