// loader_case.h: a packed set and its batches, for the tests of the loader.
#ifndef DT_TESTS_LOADER_CASE_H
#define DT_TESTS_LOADER_CASE_H

#include "base/hash.h"
#include "data_fixture.h"

static const char *packed; // LMDB of 6 subjects x 10 x 10

enum { GLOBAL = 8, MICRO = 2, N_MICRO = 4 };
static const int ALL[] = {0, 1, 2, 3};

static inline dt_batch_source *open_steps(dt_dataset *d, dt_split split, const int *micros, int n_micro, int64_t start,
                                          int64_t end) {
    dt_source_request r = {.split = split,
                           .augment = split == DT_SPLIT_TRAIN,
                           .global_batch = GLOBAL,
                           .micro_batch = MICRO,
                           .micros = micros,
                           .n_micro = n_micro,
                           .start_step = start,
                           .end_step = end};
    dt_batch_source *s = NULL;
    must(d->open(d, &r, &s));
    return s;
}

static inline dt_batch_source *open_source(dt_dataset *d, dt_split split, const int *micros, int n_micro,
                                           int64_t start) {
    return open_steps(d, split, micros, n_micro, start, -1);
}

static inline dt_batch_source *open_train(dt_dataset *d, int64_t start, int64_t end) {
    return open_steps(d, DT_SPLIT_TRAIN, ALL, N_MICRO, start, end);
}

static inline uint64_t batch_hash(const dt_dataset *d, const dt_batch *b) {
    uint64_t h = dt_hash64(b->sample, (size_t)b->n * sizeof *b->sample);
    h = h * 31 + dt_hash64(b->weight, (size_t)b->n * sizeof *b->weight);
    for (int i = 0; i < d->n_fields; i++) {
        const dt_field_info *f = &d->fields[i];
        size_t bytes = (size_t)b->n * (size_t)dt_shape_elements(&f->sample_shape) * dt_dtype_size(f->dtype);
        if (f->soft) bytes *= (size_t)f->n_classes; // of training
        h = h * 31 + dt_hash64(b->field[i], bytes);
        if (b->mix[i]) h = h * 31 + dt_hash64(b->mix[i], (size_t)b->n * sizeof *b->mix[i]);
    }
    return h;
}

// Of a step.
static inline uint64_t take_step(dt_dataset *d, dt_batch_source *s, int64_t step) {
    uint64_t h = (uint64_t)step;
    for (int micro = 0; micro < N_MICRO; micro++) {
        const dt_batch *b;
        must(s->get(s, step, micro, &b, NULL));
        h = h * 31 + batch_hash(d, b);
        s->release(s, b);
    }
    return h;
}

static inline int loader_set_up(void **state) {
    folder_make(state);
    packed = fixture_packed(6, 10);
    return 0;
}

#endif
