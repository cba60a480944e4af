// pack.h: dtrain pack SRC OUT: from the files of a folder, a list or a tar, or from an existing dataset, to a
// dataset that is fast to read: an LMDB (OUT ends in .lmdb) or WebDataset (.tar, or a pattern of them).
#ifndef DT_DATA_PACK_H
#define DT_DATA_PACK_H

#include "data/raw/raw.h"

#include "base/core.h"

typedef enum dt_pack_duplicates {
    DT_DUPLICATES_REPORT, // counted, and named in column duplicate_of
    DT_DUPLICATES_DROP,   // all but the first left out
    DT_DUPLICATES_FAIL
} dt_pack_duplicates;

typedef struct dt_pack_opts {
    const char *source, *out;
    const char *pattern; // "{subject}__{gender}_{hand}_{finger}_{n}.BMP"; several separated by '|';
                         // NULL = known patterns (biometric), else class by folder
    const char *group;   // captures of the pattern, "id,eye": files that agree in them are one record; or NULL
    const char *rows;    // columns that are metadata, or "-": a table of numbers whose rows are records; or NULL
    const char *join;    // CSV or JSON with one row a file, several a line each, or NULL
    const char *join_on; // name, stem, key or a column; NULL: whichever fits
    bool join_strict;
    dt_join_duplicates join_duplicates;
    const char *columns; // columns made of others, "NAME=EXPRESSION", a line each, or NULL
    bool skip_bad;       // what is empty, unfit or cannot be transformed or joined is left out; else DT_E_DATA
    bool key_by_shard;   // of a dataset: each key gets its shard's name in front
    dt_pack_duplicates duplicates;
    const char *where;                   // expression (catalog/expression.h): what is kept; or NULL
    uint64_t shard_bytes, shard_records; // limits; 0: none given
    // what happens to files before they are stored (transform.h); all 0: nothing
    bool quality;            // figures of quality as columns
    int resize;              // images: most pixels of the short side
    int max_pixels;          // images: of a file that is decoded; 0: the decoder's limits
    const char *encode;      // images: "jpeg:90", "png"; NULL: keep the kind
    double segment_s, hop_s; // recordings and series: cut into segments; hop_s 0: one after the other
    bool drop_tail, mono;    // recordings
    bool slices;             // FITS: a record for each slice along the last axis
    double rate;             // samples/s: what recordings become, and what series have
    int n_threads;           // of this rank; 0: one a core
    bool progress, overwrite;
    // Several processes may work on one dataset, on a file system that all see; world_size 0: one does. All call
    // agree, and all get the worst status and the largest *value.
    int rank, world_size;
    dt_status (*agree)(void *ctx, dt_status mine, int64_t *value);
    void *ctx;
} dt_pack_opts;
// Every rank returns the same status; the first that failed has logged why.
dt_status dt_data_pack(const dt_pack_opts *o);

#endif
