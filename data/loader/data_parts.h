// data_parts.h: the parts of an open dataset, for dataset.c, which opens it, and the files of loader/, which
// work on it. Read-only once open: loaders of several splits share it.
//
// The sections stand in the order of the calls, and no file calls one of a later section:
//   fields, cache -> cache_data -> ahead, fetch -> sample, stage_times -> skips, class_weights -> dt_loader_stats, loader,
//   loader_open
#ifndef DT_DATA_PARTS_H
#define DT_DATA_PARTS_H

#include "cache.h"
#include "data/augment/mix.h"
#include "data/order/sampler.h"
#include "data/order/split.h"
#include "data/order/view.h"
#include "data/order/weights.h"
#include "data/source/source.h"
#include "fields.h"

#include "base/clock.h"
#include "base/thread.h"
#include "batch/batch_source.h"
#include "config/config.h"

#include <pthread.h>
#include <stdatomic.h>

// Records that could not be read; each is listed once (skips.c).
typedef struct dt_skips {
    pthread_mutex_t lock;
    _Atomic uint8_t *seen; // a bit a record
    char *log_path;        // or NULL
    bool quarantine;       // what is listed is not tried again
    _Atomic uint64_t n;    // records
} dt_skips;

// Which fields the cache keeps, and where (cache_data.c).
typedef struct dt_data_cache {
    dt_cache_kind kind;
    dt_cache *cache; // ram, shared: NULL until a loader opens, and where there is no room
    uint64_t cap_bytes;
    char *dir, *run;
    int n_slots,
        slot[DT_MAX_FIELDS];    // entry of a record's field: record * n_slots + slot; -1: none
    bool pixels[DT_MAX_FIELDS]; // decoded, else as stored
    int n_processes;            // of this host, that share it
    bool keeps_files;           // disk: not only objects by URL
    bool opened;
} dt_data_cache;

typedef struct dt_data {
    dt_dataset base;
    dt_reader *reader;
    uint32_t n_stored; // records before data.where
    dt_fields fields;
    dt_mix *mix; // of training batches, or NULL
    dt_view view;
    uint8_t *listed; // by record: the part that data.split.file gives it; NULL: no file
    dt_splits splits;
    float *class_weights[DT_MAX_FIELDS]; // of targets, by class or label (class_weights.c); or NULL
    int weighted_field;                  // whose class weights are in a sample's weight; -1: none
    uint64_t *weights;                   // running sums of the training samples', or NULL
    dt_sampler_values *values;           // they, by data.balance, with data.m_per_class; or NULL
    dt_sampler sampler;                  // of the training split
    dt_batch_memory memory;              // of the ring
    uint64_t seed;
    bool skip, verify;
    int n_workers, n_prefetch; // n_prefetch 0 = auto
    int n_readers;             // -1 = auto: only while reads block
    dt_data_cache cache;
    dt_skips skips;
    char *description;
    dt_pipeline_facts facts; // what the config fixes
} dt_data;

// ---- what is counted --------------------------------------------------------------------------------
// A count that one thread adds to and any thread reads.
typedef _Atomic uint64_t dt_counter;
static inline uint64_t dt_counter_get(const dt_counter *c) {
    return atomic_load_explicit(c, memory_order_relaxed);
}
static inline void dt_counter_set(dt_counter *c, uint64_t n) {
    atomic_store_explicit(c, n, memory_order_relaxed);
}
static inline void dt_counter_add(dt_counter *c, uint64_t n) {
    dt_counter_set(c, dt_counter_get(c) + n);
}

// How many things wait between two sides: now, and integrated over time. Changed under a lock, read without.
typedef struct dt_depth {
    _Atomic int n;
    dt_counter ns, changed_ns;
} dt_depth;
static inline uint64_t dt_now_ns(void) {
    return (uint64_t)(dt_clock_s() * 1e9);
}
static inline void dt_depth_add(dt_depth *d, int change) {
    uint64_t now = dt_now_ns();
    dt_counter_add(&d->ns, (uint64_t)d->n * (now - dt_counter_get(&d->changed_ns)));
    dt_counter_set(&d->changed_ns, now);
    d->n += change;
}
static inline double dt_depth_s(const dt_depth *d) {
    uint64_t now = dt_now_ns(), changed = dt_counter_get(&d->changed_ns);
    return 1e-9 * (double)dt_counter_get(&d->ns) + (now > changed ? d->n * (1e-9 * (double)(now - changed)) : 0);
}

// ---- what the cache keeps (cache_data.c) -----------------------------------------------------------
bool dt_data_has_objects(const dt_data *d);                        // some of it is read by URL
uint64_t dt_data_disk_bytes(const dt_config *c);                   // that data.cache_dir may take; 0: auto
dt_status dt_data_cache_configure(dt_data *d, const dt_config *c); // DT_E_USAGE
void dt_data_cache_open(dt_data *d);
void dt_data_cache_stats(const dt_data *d, dt_cache_stats *out);
// The bytes that a cache of decoded pixels would take, if nothing were left to decode then. 0: something would be,
// or there is such a cache.
uint64_t dt_data_decoded_bytes(const dt_data *d);
void dt_data_cache_close(dt_data *d);
size_t dt_data_pixel_bytes(const dt_data *d, int field);
static inline uint32_t dt_data_cache_entry(const dt_data *d, int field, uint32_t record) {
    return record * (uint32_t)d->cache.n_slots + (uint32_t)d->cache.slot[field];
}
// Stores pixels in the cache, if it keeps this field's.
void dt_keep_pixels(const dt_data *d, int field, uint32_t record, const uint8_t *pixels);
bool dt_keeps_pixels(const dt_data *d, int field);
// Whether the cache (ram, shared) has the field's value.
bool dt_is_cached(const dt_data *d, int field, uint32_t record);

// ---- a member's bytes (fetch.c) ------------------------------------------------------------------
// Whether a read of n_bytes that took so long waited for a device or a server: it took longer than a copy, and
// not only because other threads had the core. *waits: dt_thread_waits() before the read; set to the present one.
static inline bool dt_read_is_slow(double seconds, size_t n_bytes, uint64_t *waits) {
    if (seconds < 40e-6 + 1e-9 * (double)n_bytes) return false;
    uint64_t before = *waits;
    *waits = dt_thread_waits();
    return *waits != before;
}

// A worker's memory and counters.
typedef struct dt_sample_scratch {
    dt_decoder *decoder;
    dt_resizer *resizer;
    dt_clipper *clipper;
    dt_feature_scratch features;
    dt_buffer bytes, augment, pixels;
    dt_hash_stream *hash;
    const dt_span *given;     // by field: bytes that were read ahead, or NULL
    uint32_t n_reads, n_slow; // own reads since the loader last looked, and those that blocked
    uint64_t n_waits;         // dt_thread_waits() as last known
    // since creation, read by others without a lock
    dt_counter read_ns, decode_ns, augment_ns;
    dt_counter n_read, n_bytes, n_decoded, n_augmented, n_skipped, n_hits, n_misses;
    dt_counter since_ns;     // of the read in progress, or 0
    _Atomic uint32_t record; // being made
} dt_sample_scratch;

typedef enum dt_fetched {
    DT_FETCHED_MEMBER, // all bytes of the member
    DT_FETCHED_SPLIT,  // the same, but the last n_payload are at `dst`
    DT_FETCHED_PIXELS  // decoded in an earlier epoch (data.cache_form: decoded)
} dt_fetched;
typedef struct dt_fetch {
    int field;
    uint32_t record, member;
    void *dst; // where the last n_payload bytes of the member may be read to; n_payload 0: nowhere
    size_t n_payload;
    dt_fetched kind;
    dt_span bytes;
} dt_fetch;
// Gets the member's bytes from the cache, from the readers, or by a read into w->bytes, and checks them. They are
// valid until the next fetch and while the readers' place is held. If SPLIT, w->bytes has room for all of them.
dt_status dt_fetch_member(const dt_data *d, dt_sample_scratch *w, dt_fetch *f);

// ---- one sample (sample.c) -----------------------------------------------------------------------
void dt_sample_scratch_init(dt_sample_scratch *w);
void dt_sample_scratch_fini(dt_sample_scratch *w);

// A sample (view index), and its place j in a batch's field arrays. steps: by field, where the steps go that a
// device is to play (dt_augment_split), or NULL: all augmentation is done here. steps itself may be NULL.
typedef struct dt_sample_place {
    uint32_t sample;
    uint32_t draw, epoch; // what augmentation is drawn by: dt_augment_key
    bool augment;
    void *const *field;
    dt_pixel_step *const *steps;
    int j;
} dt_sample_place;
typedef struct dt_bad_sample {
    uint32_t record, member; // member UINT32_MAX: none in particular
} dt_bad_sample;
// Writes the sample to its place. DT_E_DATA names file, record and reason, and *bad says which.
dt_status dt_sample_fill(const dt_data *d, dt_sample_scratch *w, const dt_sample_place *p, dt_bad_sample *bad);
// DT_E_DATA: number i is x, which is NaN, infinite, or too large for a float.
dt_status dt_sample_not_finite(int64_t i, double x);

// ---- a picture of a sample (picture.c), see dt_dataset.picture ---------------------------------------
dt_status dt_data_picture(const dt_dataset *base, dt_split split, int64_t i, uint8_t **png, size_t *n_bytes);

// ---- what could not be used (skips.c) ------------------------------------------------------------
// After the view is made. Warns of records that give no sample and, under `quarantine`, reads the lists in the
// run directory.
dt_status dt_skips_open(dt_data *d);
void dt_skips_close(dt_data *d);
// Lists the record, if it is not listed yet. Any thread.
void dt_skips_note(dt_data *d, uint32_t record, uint32_t member, const char *reason);
// Whether a record of the sample is in quarantine, and which.
bool dt_skips_find(const dt_data *d, uint32_t sample, uint32_t *record);

// ---- train.class_weights, train.pos_weight (class_weights.c) ---------------------------------------------------------
// The class of sample i of a split.
int32_t dt_data_class(const dt_data *d, const dt_field *f, dt_split split, uint32_t i);
// Sets d->class_weights, and those of the field where the loss takes them itself. DT_E_USAGE with the key's place.
dt_status dt_class_weights_read(dt_data *d, const dt_config *c);
// A training batch's weights by its classes, or shares of them (mixed), unless the loss does it.
void dt_class_weights_apply(const dt_data *d, bool mixed, const dt_batch *b);

// ---- threads and ring (loader.c) -------------------------------------------------------------------
dt_status dt_loader_open(dt_batch_source **out, dt_data *d, const dt_source_request *r);

#endif
