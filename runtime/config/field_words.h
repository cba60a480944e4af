// field_words.h: the words of data.fields.*.kind, as constants.
#ifndef DT_CONFIG_FIELD_WORDS_H
#define DT_CONFIG_FIELD_WORDS_H

#define WORD(id, ...) DT_FIELD_##id,
typedef enum dt_field_kind {
#include "config/field_kinds.def"
    DT_N_FIELD_KINDS
} dt_field_kind;
#undef WORD

#endif
