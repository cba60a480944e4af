// split.h: which samples train, which validate, which test. Parts are given (an official test set), or shares that
// are a pure function of the seed and the records' keys: file order, shard count and rank do not enter.
#ifndef DT_DATA_SPLIT_H
#define DT_DATA_SPLIT_H

#include "view.h"

#include "config/words.h"

typedef enum dt_split_unit { DT_BY_WORDS(DT_WORD_CONSTANT) DT_BY_column } dt_split_unit;

enum { DT_SPLIT_NOWHERE = 3, DT_SPLIT_MAX_COLUMNS = 8 };

typedef struct dt_split_spec {
    dt_split_unit unit;                                     // what is never divided
    int unit_columns[DT_SPLIT_MAX_COLUMNS], n_unit_columns; // DT_BY_column: their combinations
    int stratify;                                           // column whose values keep their shares in each part, or -1
    const uint8_t *given; // by record: DT_SPLIT_VAL, TEST or NOWHERE; TRAIN is what shares are of. NULL: all train
    double val, test;     // fractions
    int folds, fold;      // folds > 0: test = this fold, val = a fraction of the rest
    uint64_t seed;
} dt_split_spec;

typedef struct dt_splits {
    uint32_t *sample[3]; // by dt_split (train, val, test): view indexes, ascending
    uint32_t n[3];
    uint32_t n_mixed;    // samples whose records are in different parts; they are in no part
    uint32_t n_unlisted; // samples of a record that is given to no part
    uint32_t n_no_unit;  // samples of a record without a value of the unit's columns
    uint8_t *part;       // by sample: dt_split or DT_SPLIT_NOWHERE
} dt_splits;

// DT_E_USAGE when the given parts divide a unit of columns.
dt_status dt_splits_make(dt_splits *out, const dt_catalog *c, const dt_view *v, const dt_split_spec *spec);
void dt_splits_fini(dt_splits *s);
// "; 3 have records in several splits and are left out": the samples in no part, "" where there are none.
void dt_splits_left_out(const dt_splits *s, char *buf, size_t cap);

#endif
