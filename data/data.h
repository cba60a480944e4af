// data.h: from a config to samples. Files come in through a source (LMDB, WebDataset, folder), become
// records in a catalog; a view makes samples of records; split, shuffle and cursor are pure functions
// on the view; the loader decodes and augments into a ring of batches (train/batch_source.h).
#ifndef DT_DATA_DATA_H
#define DT_DATA_DATA_H

#include "backend/backend.h"
#include "config/config.h"
#include "train/batch_source.h"

// Opens data.path with view, split and fields of the config. The ring's memory comes from the backend
// (NULL: plain memory). rank_workers: loader threads when data.workers is auto. skip_log: file that
// lists skipped records (data.on_error: skip), or NULL.
dt_status dt_data_open(dt_dataset **out, const dt_config *c, dt_backend *b, int rank_workers,
                       const char *skip_log);

// Whether any file of data.path is there: if none is, the data may be still to be made.
bool dt_data_exists(const dt_config *c);

// How many processes of this host open the data set: they share its cache. Before a split is opened.
void dt_data_set_processes(dt_dataset *d, int n);

// The order of training, without loading anything: sample i (0 <= i < n) of an epoch as a view index,
// and the keys of the records that a sample is made of, borrowed; returns how many.
uint32_t dt_data_sample_at(const dt_dataset *d, uint64_t epoch, uint64_t i);
int dt_data_records_of(const dt_dataset *d, uint32_t sample, const char *key[DT_MAX_WIDTH]);

// dtype and shape of an audio field from the config alone, for `dtrain check` without the data set.
dt_status dt_data_describe_audio(const dt_config *c, const char *field, dt_field_info *out);

// How long one thread takes for a sample of the training split up to and including a stage: reading its
// members, decoding them, augmenting them. Runs for about `seconds` a stage, in training order. Records
// that cannot be read are left out. DT_E_DATA when none can.
typedef struct dt_stage_times {
    double read_s, decode_s, augment_s; // a sample, each including those before
    double bytes;                       // read for a sample
    double sample_bytes;                // of a sample in a batch
} dt_stage_times;
dt_status dt_data_time_stages(const dt_dataset *d, double seconds, dt_stage_times *out);

// dtrain pack SRC OUT: files of a folder, a list or a tar, or an existing set -> LMDB (OUT ends in .lmdb) or
// WebDataset (.tar, or a pattern of them).
typedef enum dt_pack_duplicates {
    DT_DUPLICATES_REPORT, // counted, and named in column duplicate_of
    DT_DUPLICATES_DROP,   // all but the first left out
    DT_DUPLICATES_FAIL
} dt_pack_duplicates;

typedef struct dt_pack_opts {
    const char *source, *out;
    const char *pattern; // "{subject}__{gender}_{hand}_{finger}_{n}.BMP"; several separated by '|';
                         // NULL = known patterns (biometric), else class by folder
    const char *join;    // CSV or JSON with a row a file, or NULL
    const char *join_on; // name, stem, key or a column; NULL: whichever fits
    bool join_strict;
    dt_pack_duplicates duplicates;
    const char *where;                   // expression (catalog/expression.h): what is kept; or NULL
    uint64_t shard_bytes, shard_records; // 0: not said
    // what happens to the files before they are stored (transform.h); all 0: stored as they are
    bool quality;            // figures of quality as columns
    int resize;              // pictures: most pixels of the short side
    const char *encode;      // pictures: "jpeg:90", "png"; NULL: keep the kind
    double segment_s, hop_s; // recordings: cut into segments; hop_s 0: one after the other
    bool drop_tail, mono;    // recordings
    int rate;                // recordings: samples/s
    int n_threads;           // builders of this rank; 0: one a core
    bool progress, overwrite;
    const char *version; // of dtrain, for the lineage
    // Several processes that work on one set, on a file system that all see; world_size 0: one. agree is
    // entered by all: the worst status (each says its own), and the largest *value, come back to all.
    int rank, world_size;
    dt_status (*agree)(void *ctx, dt_status mine, int64_t *value);
    void *ctx;
} dt_pack_opts;
// Every rank returns the same status; one that failed alone has said why on its log.
dt_status dt_data_pack(const dt_pack_opts *o);

// dtrain synth KIND OUT. DT_E_USAGE / DT_E_STORAGE.
typedef struct dt_synth_opts {
    const char *kind, *out;
    int n,
        impressions; // items (biometric: subjects, and images of each kind a subject); 0 = default
    uint64_t seed;
    bool progress;
} dt_synth_opts;
dt_status dt_data_synth(const dt_synth_opts *o);

// What can be made: i = 0, 1, … until false.
typedef struct dt_synth_kind_info {
    const char *name, *help, *unit;
    int default_n;
    bool of_people; // subjects, of each of whom there are impressions
} dt_synth_kind_info;
bool dt_data_synth_kind(int i, dt_synth_kind_info *out);

#endif
