// batch_source.h: the table by which data/ gives batches to the trainer. The trainer knows steps and
// micro-batches; the source knows samples, files and decoding.
//
// Micro-batch l of step s holds global-batch slots [l*micro, (l+1)*micro) of that step. A source is opened
// with the leaves that this rank will take in each step, in the order in which its replicas will want
// them, and prefetches in that order from the cursor on. Which samples are in a slot is a pure function
// of (seed, epoch, slot): never of rank, worker or history.
//
// Memory of a batch: one slot of the ring, from dt_batch_memory; fields dense: images u8
// or f32 (n,H,W,C), class i32 (n), or shares f32 (n,classes) where samples are mixed, real and vector f32.
// Mixing of images is left to the network, which gets the samples as they are and a plan. Slots beyond
// n_valid (evaluation's tail) repeat the last valid sample and have weight 0.
#ifndef DT_BATCH_BATCH_SOURCE_H
#define DT_BATCH_BATCH_SOURCE_H

#include "base/core.h"
#include "base/json.h"
#include "batch/field_info.h"
#include "batch/mix_plan.h"
#include "config/words.h"

enum { DT_MAX_WIDTH = 2 }; // records a sample

typedef struct dt_batch {
    int64_t step; // or index of the evaluation batch
    int micro;
    int n, n_valid;
    void *field[DT_MAX_FIELDS];
    dt_mix_row *mix[DT_MAX_FIELDS];             // (n) of an image field; NULL: samples stay as they are
    struct dt_pixel_step *steps[DT_MAX_FIELDS]; // (n, n_steps) of an image field, or NULL
    float *weight;                              // (n)
    char **why;      // (n) why a sample could not be read (its weight is 0 and its fields are zeros), or NULL
    int64_t *sample; // (n) view index, for reports
} dt_batch;

// Where batches lie: memory of the backend that reads them (pinned, for a GPU). The owner outlives the data set.
typedef struct dt_batch_memory {
    dt_status (*alloc)(void *owner, void **p, size_t n_bytes, const char *what);
    void (*free)(void *owner, void *p, size_t n_bytes);
    void *owner;
    bool augments; // a device plays the last steps of the augmentation of byte images (dt_field_info.n_steps)
} dt_batch_memory;

// ---- what the pipeline does, for whoever tunes it or reports bottlenecks -----------------------------
// Counters since the source was opened; they only grow. Take two readings and look at the difference.
typedef enum dt_stage {
    DT_STAGE_READ,    // bytes of members: file or cache, and their hash
    DT_STAGE_DECODE,  // bytes -> values of the field's shape
    DT_STAGE_AUGMENT, // random changes to a sample
    DT_N_STAGES
} dt_stage;

typedef struct dt_stage_stats {
    const char *name;
    double busy_s;  // summed over all threads
    double wait_s;  // the share of get()'s waiting during which the pipeline did this
    uint64_t items; // read: members; decode and augment: fields of samples
    uint64_t bytes; // that went in
    int threads;    // that may be at it now
} dt_stage_stats;

// Something that one side fills and another empties.
typedef struct dt_queue_stats {
    const char *name;
    int depth, capacity; // now
    double depth_s;      // depth integrated over time: difference / seconds = mean depth
} dt_queue_stats;

typedef struct dt_cache_stats {
    dt_cache_kind kind;
    uint64_t n_hits, n_misses;   // of this source: members found and not found; disk: reads
    uint64_t n_entries, n_bytes; // stored now (shared: of all who share it; disk: used here)
    uint64_t cap_bytes;
    bool full;
} dt_cache_stats;

typedef struct dt_source_stats {
    double at_s; // dt_clock_s() of this reading
    uint64_t n_batches, n_samples, n_skipped;
    dt_stage_stats stage[DT_N_STAGES];
    dt_queue_stats encoded; // samples whose bytes readers hold for workers
    dt_queue_stats batches; // finished batches that wait for get()
    uint64_t n_waits;       // how often and how long get() waited: the pipeline is slower than training
    double wait_s;
    double blocked_s;           // workers had no free batch slot: training is slower than the pipeline
    double starved_s;           // workers waited for bytes that a reader was fetching
    int n_workers, max_workers; // threads that decode: now, and as many as tune() can have
    int n_readers, max_readers;
    bool reading_ahead; // readers are at work: reads turned out to block, or data.readers is set
    int ring_slots, max_slots;
    size_t ring_bytes;
    dt_cache_stats cache;
} dt_source_stats;

// 0: leave as it is. Out of range: as far as it goes.
typedef struct dt_source_tuning {
    int workers, readers, slots;
} dt_source_tuning;

typedef struct dt_batch_source dt_batch_source;
struct dt_batch_source {
    void *self;
    int n_fields;
    const dt_field_info *fields;
    int64_t n_samples;       // in this split (per epoch)
    int64_t steps_per_epoch; // training: whole global batches; evaluation: batches, the tail padded
    // Blocks until the batch is ready. From the replica that computes the micro-batch; several replicas at once.
    dt_status (*get)(dt_batch_source *s, int64_t step, int micro, const dt_batch **out, double *wait_s);
    void (*release)(dt_batch_source *s, const dt_batch *b); // any order; frees the slot
    // Starts prefetching at `step` (drops what is in flight).
    dt_status (*seek)(dt_batch_source *s, int64_t step);
    // Any thread; takes no lock.
    void (*stats)(dt_batch_source *s, dt_source_stats *out);
    // While it runs, from one thread at a time. Never changes what is in a batch.
    void (*tune)(dt_batch_source *s, const dt_source_tuning *t);
    void (*close)(dt_batch_source *s);
};

typedef struct dt_source_request {
    dt_split split;
    bool augment;
    bool in_order;                 // each sample once, in the order of the split; always so but for training
    int global_batch, micro_batch; // evaluation: global_batch = batches of all ranks together
    const int *micros;             // this rank's micro-batches within a step, in the order wanted
    int n_micro;
    int64_t start_step, end_step; // [start, end): prefetching stops there; end < 0: never
} dt_source_request;

// What most bytes of a set's members are.
typedef enum dt_members { DT_MEMBERS_IMAGES, DT_MEMBERS_AUDIO, DT_MEMBERS_ARRAYS } dt_members;

// What counters do not show, for bottleneck.h. Zeros: not known.
typedef struct dt_pipeline_facts {
    dt_members members;
    int cores;                                // that loader threads may use
    uint64_t set_bytes;                       // of the members that an epoch reads
    uint64_t free_bytes;                      // memory that a cache could take
    uint64_t decoded_bytes;                   // of a cache of pixels that would leave nothing to
                                              // decode; 0: none would, or there is one
    uint64_t decoded_sample_bytes;            // of a sample's pixels
    double copy_byte_s;                       // dt_memory_time_copy, by whoever estimates gains
    uint64_t member_bytes;                    // mean size of one
    int n_processes;                          // of this host, that would each keep a cache
    bool is_folder;                           // a file is opened for each record
    bool fix_workers, fix_readers, fix_slots; // given in the config: not to be tuned
} dt_pipeline_facts;

// The classes of a field in the validation part (without one: the test), beside those of training.
typedef enum dt_classes {
    DT_CLASSES_EVEN,
    DT_CLASSES_UNEVEN, // training has more than three times as much of one as of another
    DT_CLASSES_UNSEEN, // training has none of them
} dt_classes;

// A data set that is open: made by data/ from the config, handed to the trainer by launch/.
typedef struct dt_dataset dt_dataset;
struct dt_dataset {
    void *self;
    int n_fields;
    const dt_field_info *fields;
    uint64_t fingerprint; // of records, view and split: stored in the checkpoint
    bool hashed;          // and of the bytes of all records
    int64_t n_left_out;   // records of no sample: they lack a field, or a partner
    size_t decode_bytes;  // what decoding images takes at most, in all loader threads
    int64_t (*n_samples)(const dt_dataset *d, dt_split split);
    // The records that sample i of a split (as evaluation numbers them) is made of; how many. May be
    // NULL: then no two samples share one.
    int (*records)(const dt_dataset *d, dt_split split, int64_t i, uint32_t out[DT_MAX_WIDTH]);
    // A record's key, and the path of the file that it is in; both live as long as the data set. May be NULL.
    const char *(*key)(const dt_dataset *d, uint32_t record, const char **path);
    // The value of a column of the catalog for sample i of a split, or NULL; lives as long as the data set. May be NULL.
    const char *(*value)(const dt_dataset *d, const char *column, dt_split split, int64_t i);
    // The same as text, of columns of numbers, too: heap; NULL: no value. *number: it is one. DT_E_USAGE: the set has no
    // such column. May be NULL.
    dt_status (*cell)(const dt_dataset *d, const char *column, dt_split split, int64_t i, char **text, bool *number);
    // The images and signals of sample i of a split, small, as objects of the array that j is in: "field", and "png" (base64)
    // or "lines" (arrays of numbers); of sounds "seconds" and "hz", the frequencies at bottom, middle and top. May be NULL.
    dt_status (*picture)(const dt_dataset *d, dt_split split, int64_t i, dt_json *j);
    // May be NULL: DT_CLASSES_EVEN.
    dt_classes (*classes)(const dt_dataset *d, int field);
    // The classes of training that the validation part has no sample of, "ant, cat"; how many. 0 where it has none of
    // them, or there is no such part. May be NULL.
    int (*unvalidated)(const dt_dataset *d, int field, char *names, size_t cap);
    dt_status (*open)(dt_dataset *d, const dt_source_request *r, dt_batch_source **out);
    const char *(*describe)(const dt_dataset *d);                    // one line for the log
    dt_status (*write_split)(const dt_dataset *d, const char *path); // CSV: key, part; may be NULL
    void (*facts)(const dt_dataset *d, dt_pipeline_facts *out);      // may be NULL
    void (*close)(dt_dataset *d);
};

#endif
