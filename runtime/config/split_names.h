// split_names.h: the parts of a data set, and their names in configs, records and files.
#ifndef DT_CONFIG_SPLIT_NAMES_H
#define DT_CONFIG_SPLIT_NAMES_H

// The evaluation of the test part with the best weights; other evaluations have the names of their parts.
#define DT_TEST_BEST "test_best"

typedef enum dt_split { DT_SPLIT_TRAIN, DT_SPLIT_VAL, DT_SPLIT_TEST } dt_split;

static inline const char *dt_split_name(int split) {
    return split == DT_SPLIT_TRAIN ? "train" : split == DT_SPLIT_VAL ? "val" : "test";
}

#endif
