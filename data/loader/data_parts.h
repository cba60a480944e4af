// data_parts.h: the parts of an open data set, for the files of loader/, which work on it, and for dataset.c,
// which opens it. Read-only once open: loaders of several splits share it.
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

#include "backend/backend.h"
#include "batch/batch_source.h"
#include "config/config.h"

#include <pthread.h>

// Records that could not be used: each is listed once (skips.c).
typedef struct dt_skips {
    pthread_mutex_t lock;
    uint8_t *seen;   // a bit a record
    char *log_path;  // or NULL
    bool quarantine; // what is listed is not tried again
    uint64_t n;      // records
} dt_skips;

// Which fields are kept, and where. (cache_data.c)
typedef struct dt_data_cache {
    dt_cache_kind kind;
    dt_cache *cache; // NULL until a loader opens, and where there is no room
    uint64_t cap_bytes;
    char *dir, *run;
    int n_slots,
        slot[DT_MAX_FIELDS];    // entry of a record's field: record * n_slots + slot; -1: none
    bool pixels[DT_MAX_FIELDS]; // decoded, else as stored
    int n_processes;            // of this host, that share it
    bool opened;
} dt_data_cache;

// Memory of batch slots that no loader has now (slot_memory.c).
typedef struct dt_slot_block {
    void *p;
    size_t n_bytes;
} dt_slot_block;
typedef struct dt_slot_memory {
    pthread_mutex_t lock;
    dt_slot_block *blocks;
    int n, capacity;
} dt_slot_memory;

typedef struct dt_data {
    dt_dataset base;
    dt_set *set;
    uint32_t n_stored; // records before data.where
    dt_fields fields;
    dt_mix *mix; // of training batches, or NULL
    dt_view view;
    dt_splits splits;
    uint64_t *weights;   // running sums of the training samples', or NULL
    dt_sampler sampler;  // of the training split
    dt_backend *backend; // or NULL
    uint64_t seed;
    bool skip, verify;
    int n_workers, n_prefetch; // n_prefetch 0 = auto
    int n_readers;             // -1 = auto: only while reads block
    dt_data_cache cache;
    dt_skips skips;
    dt_slot_memory slot_memory;
    char *description;
    dt_pipeline_facts facts; // what the config fixes
} dt_data;

// ---- one sample (sample.c) -----------------------------------------------------------------------
typedef struct dt_sample_scratch {
    dt_decoder *decoder;
    dt_resizer *resizer;
    dt_clipper *clipper;
    dt_feature_scratch features;
    dt_buffer bytes, augment, pixels;
    struct dt_hash_stream *hash;
    const dt_span *given;     // by field: bytes that were read ahead, or NULL
    uint32_t bad_record;      // being read; after a failure: the bad one
    uint32_t bad_member;      // of it; UINT32_MAX: none
    uint32_t n_reads, n_slow; // own reads since the loader last looked, and those that blocked
    uint32_t n_quick;         // own reads in a row that did not block, up to what is asked for
    uint64_t n_waits;         // dt_thread_waits() as last known
    // since creation, read by others without a lock
    uint64_t read_ns, decode_ns, augment_ns;
    uint64_t n_read, n_bytes, n_decoded, n_augmented, n_skipped, n_hits, n_misses;
    uint64_t since_ns; // of the read in progress, or 0
} dt_sample_scratch;
void dt_sample_scratch_init(dt_sample_scratch *w);
void dt_sample_scratch_fini(dt_sample_scratch *w);
// Writes sample `sample` (view index) to place j of the batch's field arrays. DT_E_DATA names file,
// record, reason. steps: by field, where steps that a device is to play go (dt_augment_split), or NULL: what is
// random is all done here; steps itself may be NULL.
dt_status dt_sample_fill(const dt_data *d, dt_sample_scratch *w, uint32_t sample, uint32_t epoch,
                         bool augment, void *const *field, dt_pixel_step *const *steps, int j);

// ---- what could not be used (skips.c) ------------------------------------------------------------
// After the view is made: tells which records give no sample, and reads the lists of the run directory under
// quarantine.
dt_status dt_skips_open(dt_data *d);
void dt_skips_close(dt_data *d);
// Lists the record the first time, whatever the epoch. Any thread.
void dt_skips_note(dt_data *d, uint32_t record, uint32_t member, const char *reason);
// Whether a record of the sample is in quarantine, and which.
bool dt_skips_find(const dt_data *d, uint32_t sample, uint32_t *record);

// The bytes of a member, checked: cached, read ahead, or read now into w->bytes. Valid until the next
// fetch and while what was read ahead is held. (fetch.c)
dt_status dt_fetch(const dt_data *d, dt_sample_scratch *w, int field, uint32_t record,
                   uint32_t member, dt_span *out);
// The same in two parts: the last n_payload bytes to `dst`, what is before them to w->bytes, where there
// is room for all. Only where dt_can_fetch_apart: neither cached nor read ahead.
bool dt_can_fetch_apart(const dt_data *d, const dt_sample_scratch *w, int field);
dt_status dt_fetch_apart(const dt_data *d, dt_sample_scratch *w, uint32_t record, uint32_t member,
                         void *dst, size_t n_payload, size_t *n_head);
// Pixels that a field with data.cache_form: decoded had in an earlier epoch, or NULL; and keeping them.
const uint8_t *dt_fetch_pixels(const dt_data *d, dt_sample_scratch *w, int field, uint32_t record);
void dt_keep_pixels(const dt_data *d, int field, uint32_t record, const uint8_t *pixels);
bool dt_keeps_pixels(const dt_data *d, int field);
// Whether a field's value need not be read from its file.
bool dt_is_cached(const dt_data *d, int field, uint32_t record);

dt_status dt_data_cache_configure(dt_data *d, const dt_config *c); // DT_E_USAGE
void dt_data_cache_open(dt_data *d);
// What a cache in memory with data.cache_form: decoded would take, where that leaves nothing to decode; 0
// where it would not, or is there.
uint64_t dt_data_decoded_bytes(const dt_data *d);
void dt_data_cache_close(dt_data *d);
size_t dt_data_pixel_bytes(const dt_data *d, int field);
static inline uint32_t dt_data_cache_entry(const dt_data *d, int field, uint32_t record) {
    return record * (uint32_t)d->cache.n_slots + (uint32_t)d->cache.slot[field];
}

static inline void dt_counter_add(uint64_t *counter, uint64_t n) { // one writer, any reader
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}
static inline uint64_t dt_counter_get(const uint64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

// ---- memory of slots (slot_memory.c) ---------------------------------------------------------------
// From the backend's host allocator (plain memory without one), zeroed, aligned to 64. Given back it is kept for
// the next loader; the data set's closing frees it, before the backend goes. Any thread. DT_E_INTERNAL.
void dt_slot_memory_open(dt_data *d);
dt_status dt_slot_memory_take(dt_data *d, size_t n_bytes, void **out);
void dt_slot_memory_give(dt_data *d, void *p, size_t n_bytes);
void dt_slot_memory_close(dt_data *d);

// ---- threads and ring (loader.c) -------------------------------------------------------------------
dt_status dt_loader_open(dt_batch_source **out, dt_data *d, const dt_source_request *r);

#endif
