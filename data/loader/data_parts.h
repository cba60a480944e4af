// data_parts.h: the parts of an open dataset, for dataset.c, which opens it, and the files of loader/, which
// work on it. Read-only once open: loaders of several splits share it.
//
// The sections stand in the order of the calls, and no file calls one of a later section:
//   fields, cache -> cache_data -> ahead, fetch -> sample, stage_times -> skips, class_weights -> loader,
//   loader_open
#ifndef DT_DATA_LOADER_DATA_PARTS_H
#define DT_DATA_LOADER_DATA_PARTS_H

#include "fields.h"

#include "base/os.h"
#include "base/thread.h"
#include "batch/batch_source.h"
#include "config/config.h"
#include "data/augment/mix.h"
#include "data/order/split.h"
#include "data/order/view.h"
#include "data/source/source.h"

#include <pthread.h>
#include <stdatomic.h>

// ---- cache --------------------------------------------------------------------------------------------------------

// Bytes that are kept in memory so that the next epoch need not read (or decode) them.
//
// A cache has a fixed number of entries, each empty or whole. What does not fit is not kept: each epoch
// reads everything once, so to keep what came first is the best that any rule can do, and what is kept
// is never moved or dropped while the cache is open.

typedef struct dt_cache_opts {
    // ram: this process's memory; shared: one copy for the processes of this user and host that use the same key
    dt_cache_kind kind;
    uint64_t key; // of everything that decides what an entry holds
    uint32_t n_entries;
    uint64_t total_bytes; // of all entries
    uint64_t cap_bytes;   // 0: as much as leaves a quarter of the memory free
    int n_processes;      // shared: that will open it; the last one to come removes the name
} dt_cache_opts;

typedef struct dt_cache dt_cache;
// DT_E_STORAGE: no room for it, or no such place. The caller may go on without.
dt_status dt_cache_open(dt_cache **out, const dt_cache_opts *o);
void dt_cache_close(dt_cache *c); // NULL is fine

// All of these: any thread, any process that has the cache open. Nobody waits for anybody.

bool dt_cache_has(const dt_cache *c, uint32_t entry);
// The bytes that were stored, where they lie; NULL: not there.
const uint8_t *dt_cache_find(const dt_cache *c, uint32_t entry);
// Keeps them if there is room and nobody has.
void dt_cache_store(dt_cache *c, uint32_t entry, const void *bytes, size_t n_bytes);

// All but hits and misses.
void dt_cache_get_stats(const dt_cache *c, dt_cache_stats *out);

// ---- data parts ---------------------------------------------------------------------------------------------------

// Records that could not be read; each is listed once (bad_records.c).
typedef struct dt_skips {
    pthread_mutex_t lock;
    _Atomic uint8_t *seen; // a bit a record
    char *log_path;        // or NULL
    bool quarantine;       // what is listed is not tried again
    _Atomic uint64_t n;    // records
} dt_skips;

// Which fields the cache keeps, and where (fetch.c).
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
// A count that one thread adds to and any thread reads. Relaxed: it publishes nothing but itself.
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

// ---- what the cache keeps (fetch.c) -----------------------------------------------------------
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
bool dt_is_kept(const dt_data *d, int field); // in ram or shared

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
    const dt_span *given;     // by field: bytes that were read ahead, or NULL
    uint32_t n_reads, n_slow; // own reads since the loader last looked, and those that blocked
    uint64_t n_waits;         // dt_thread_waits() as last known
    // since creation, read by others without a lock
    dt_counter read_ns, decode_ns, augment_ns;
    dt_counter n_read, n_bytes, n_decoded, n_augmented, n_skipped, n_hits, n_misses;
    dt_counter since_ns;     // of the read in progress, or 0
    _Atomic uint32_t record; // being made
} dt_sample_scratch;

typedef struct dt_fetch {
    int field;
    uint32_t record, member;
    dt_span bytes;   // of the member, or
    bool are_pixels; // decoded in an earlier epoch (data.cache_form: decoded)
} dt_fetch;
// Gets the member's bytes from the cache, from the readers, or by a read into w->bytes, and checks them. They are
// valid until the next fetch and while the readers' place is held.
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

// ---- a picture of a sample (preview.c), see dt_dataset.picture ---------------------------------------

// What a field shows of a sample: an image, a spectrogram (sound), or lines (a waveform, a series, a long vector).
typedef struct dt_preview {
    const double *x; // values by row, column, channel: the caller's
    int h, w, c;     // lines: w values of c channels
    bool is_sound, is_line, is_u8;
} dt_preview;
// False: the field is no picture, or a vector of less than least_signal numbers. Without x.
bool dt_preview_of(const dt_fields *fields, int field, int least_signal, dt_preview *out);
// A value of a sample's field, as the network gets it.
double dt_preview_stored(const dt_field_info *f, const void *x, int64_t at);

// From values to grey: linear, or asinh of (value - low) / soft.
typedef struct dt_preview_range {
    double low, high, soft; // soft 0: linear
} dt_preview_range;
// Of channels c .. c + n - 1. Floats that are neither sounds nor lines are stretched about their noise.
dt_preview_range dt_preview_find_range(const dt_preview *v, int c, int n);
uint8_t dt_preview_level(const dt_preview_range *r, double value);
// The mean of the values that fall on a pixel of a picture of out_h x out_w. A spectrogram is low at the bottom.
double dt_preview_mean(const dt_preview *v, int out_h, int out_w, int y, int x, int channel);

dt_status dt_data_picture(const dt_dataset *base, dt_split split, int64_t i, dt_json *j);

// ---- what could not be used (bad_records.c) ------------------------------------------------------------
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

// ---- ahead --------------------------------------------------------------------------------------------------------

// Threads that read bytes ahead of the workers, where reading blocks.
//
// The loader numbers the samples that it will make: places 0, 1, … in the order in which workers take them.
// Readers take places ahead of the workers and put the members' bytes into a byte ring, where the worker
// that comes to such a place finds them. Workers read the places that no reader has taken.

typedef struct dt_ahead dt_ahead;

typedef struct dt_ahead_opts {
    const dt_data *d;
    // The sample (view index) of a place. False: there is none, now or later. Called under a lock.
    bool (*sample_at)(const void *ctx, int64_t place, uint32_t *sample);
    const void *ctx;
    int64_t start;    // first place
    int n_readers;    // to begin with
    int max_readers;  // >= n_readers
    bool at_once;     // read ahead from the beginning, as reads will block
    bool always;      // read ahead whether or not reads block
    size_t cap_bytes; // of the ring
} dt_ahead_opts;

// Starts no thread until reading ahead begins.
dt_status dt_ahead_create(dt_ahead **out, const dt_ahead_opts *o);
void dt_ahead_destroy(dt_ahead *a); // waits for reads in flight

// ---- workers ---------------------------------------------------------------------------------------
// Gives places [begin, end) to the calling worker. Calls come in the order of places. Returns the first
// place that the worker reads itself: those before it are with the readers, and each must be released.
int64_t dt_ahead_begin(dt_ahead *a, int64_t begin, int64_t end);
// Waits for the bytes of a place that is with the readers; by field, data NULL: not read ahead. NULL: reading
// failed, and the worker reads again to get the message. Adds the time it waited to wait_ns.
const dt_span *dt_ahead_wait(dt_ahead *a, int64_t place, dt_counter *wait_ns);
void dt_ahead_release(dt_ahead *a, int64_t place);
// Reports a worker's own reads since its last report, and how many blocked. May turn reading ahead on.
void dt_ahead_note(dt_ahead *a, uint32_t n_reads, uint32_t n_slow);

// ---- the loader ------------------------------------------------------------------------------------
// Drops what is held and goes on at `place`. No worker may hold a place.
void dt_ahead_seek(dt_ahead *a, int64_t place);
void dt_ahead_set_readers(dt_ahead *a, int n);

typedef struct dt_ahead_stats {
    uint64_t busy_ns, n_reads;
    int n_readers, max_readers, n_ready, capacity; // capacity in samples
    double depth_s;
    bool on;
    // the record of the read that has lasted longest, and since when; since 0: none
    uint32_t record;
    double since_s;
} dt_ahead_stats;
void dt_ahead_get_stats(const dt_ahead *a, dt_ahead_stats *out); // any thread, no lock

// ---- stage times --------------------------------------------------------------------------------------------------

// What a sample costs, stage by stage.

// How long one thread takes for a sample of the training split up to and including a stage: reading its
// members, decoding them, augmenting them. Runs for about `seconds` a stage, in training order. Records
// that cannot be read are left out. DT_E_DATA when none can.
typedef struct dt_stage_times {
    double read_s, decode_s, augment_s; // a sample; each includes the stages before it
    double bytes;                       // read for a sample
    double sample_bytes;                // that a sample takes in a batch
} dt_stage_times;
dt_status dt_data_time_stages(const dt_dataset *d, double seconds, dt_stage_times *out);

#endif
