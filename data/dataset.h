// dataset.h: the parts of an open data set, for the files of data/ that work together. Read-only once
// open: loaders of several splits share it.
#ifndef DT_DATA_DATASET_H
#define DT_DATA_DATASET_H

#include "data.h"
#include "data/loader/fields.h"
#include "data/order/sampler.h"
#include "data/order/split.h"
#include "data/order/view.h"
#include "data/order/weights.h"
#include "data/source/source.h"

#include <pthread.h>

// Records that were skipped: each is listed once.
typedef struct dt_skips {
    pthread_mutex_t lock;
    uint8_t *seen; // by record
    const char *log_path;
    uint64_t n;
} dt_skips;

typedef struct dt_data {
    dt_dataset base;
    dt_set *set;
    dt_fields fields;
    dt_view view;
    dt_splits splits;
    uint64_t *weights;   // running sums of the training samples', or NULL
    dt_sampler sampler;  // of the training split
    dt_backend *backend; // or NULL
    uint64_t seed;
    bool skip, verify;
    int n_workers, n_prefetch; // n_prefetch 0 = auto
    char *skip_log;
    dt_skips skips;
    char *description;
} dt_data;

// ---- one sample (sample.c) -----------------------------------------------------------------------
typedef struct dt_sample_scratch {
    dt_decoder *decoder;
    dt_resizer *resizer;
    dt_clipper *clipper;
    dt_feature_scratch features;
    dt_buffer bytes, augment, pixels;
    uint32_t bad_record; // of the last failure
    // since creation, read by others without a lock
    uint64_t read_ns, decode_ns, augment_ns, n_bytes, n_skipped;
} dt_sample_scratch;
void dt_sample_scratch_init(dt_sample_scratch *w);
void dt_sample_scratch_fini(dt_sample_scratch *w);
// Writes sample `sample` (view index) to place j of the batch's field arrays. DT_E_DATA names file,
// record, reason.
dt_status dt_sample_fill(const dt_data *d, dt_sample_scratch *w, uint32_t sample, uint32_t epoch,
                         bool augment, void *const *field, int j);

// ---- threads and ring (loader.c) -------------------------------------------------------------------
dt_status dt_loader_open(dt_batch_source **out, dt_data *d, const dt_source_request *r);

#endif
