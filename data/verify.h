// verify.h: reads every record of a dataset and says which are bad.
#ifndef DT_DATA_VERIFY_H
#define DT_DATA_VERIFY_H

#include "data/source/source.h"

typedef struct dt_bad_member {
    uint32_t record, member; // of the catalog
    char *reason;
} dt_bad_member;

typedef struct dt_bad_shard {
    uint32_t shard; // of the catalog
    char *reason;
} dt_bad_shard;

typedef struct dt_verify_result {
    uint64_t n_members, n_bytes;
    uint64_t n_hashed, n_decoded,
        n_read; // members whose hash, structure, or mere presence was checked
    uint64_t n_bad_records;
    dt_bad_member *bad; // by record and member
    size_t n_bad;
    uint64_t n_shards;        // compared with a hash that the list of shards has
    dt_bad_shard *bad_shards; // by shard
    size_t n_bad_shards;
} dt_verify_result;

typedef struct dt_verify_opts {
    int n_threads;
    bool decode;   // also what has a hash
    bool progress; // a live line on stderr
} dt_verify_opts;

// Members with a stored hash are checked against it. Of the others, images, sounds and JSON are decoded whole, and
// the rest is read. If index.json beside a shard has its hash, the whole shard is compared with
// it. DT_OK also if members or shards are bad: the result lists them. An error that is no fault of the data
// ends it without a result: DT_E_STORAGE (no descriptor is left), DT_E_INTERNAL.
dt_status dt_reader_verify(dt_reader *s, const dt_verify_opts *o, dt_verify_result *out);
void dt_verify_result_fini(dt_verify_result *r);

#endif
