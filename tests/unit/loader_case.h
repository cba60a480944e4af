// loader_case.h: a packed set and its batches, for the tests of the loader.
#ifndef DT_TESTS_LOADER_CASE_H
#define DT_TESTS_LOADER_CASE_H

#include "data_fixture.h"

static const char *packed; // LMDB of 6 subjects x 10 x 10

enum { GLOBAL = 8, MICRO = 2, N_MICRO = 4 };
static const int ALL[] = {0, 1, 2, 3};

static inline dt_batch_source *open_source(dt_dataset *d, dt_split split, const int *micros,
                                           int n_micro, int64_t start) {
    dt_source_request r = {.split = split,
                           .augment = split == DT_SPLIT_TRAIN,
                           .global_batch = GLOBAL,
                           .micro_batch = MICRO,
                           .micros = micros,
                           .n_micro = n_micro,
                           .start_step = start,
                           .end_step = -1};
    dt_batch_source *s = NULL;
    if (d->open(d, &r, &s) != DT_OK) fail_msg("%s", dt_error_message());
    return s;
}

static inline int loader_set_up(void **state) {
    fixture_begin();
    packed = fixture_packed(6, 10);
    return 0;
}

#endif
