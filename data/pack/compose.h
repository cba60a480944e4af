// compose.h: source items into the records of a chunk, in memory, by one thread.
#ifndef DT_DATA_COMPOSE_H
#define DT_DATA_COMPOSE_H

#include "data/source/source.h"
#include "pack_plan.h"
#include "transform.h"
#include "where.h"

enum { DT_CHUNK_MAX_MEMBERS = DT_TRANSFORM_MAX_MEMBERS + 2 }; // of a record, with json and cls

typedef struct dt_chunk_member {
    const char *ext;
    const uint8_t *data; // NULL: the item's file itself, which is too large to be read as a whole
    uint64_t size, hash; // without data the hash is not known yet
} dt_chunk_member;

typedef struct dt_chunk_record {
    struct dt_chunk_record *next;
    uint32_t item;        // of the list
    uint64_t source_hash; // of the item before any transform; as `hash`
    const char *suffix;
    int n_members, n_columns;
    dt_chunk_member *member;
    dt_transform_column *column;
} dt_chunk_record;

// Records of consecutive items, with everything that they point to.
typedef struct dt_chunk {
    struct dt_chunk_block *blocks;
    dt_chunk_record *first, **last;
} dt_chunk;
void dt_chunk_fini(dt_chunk *c);

// What does not change while a dataset is packed; shared by all threads.
typedef struct dt_compose {
    const dt_raw *raw;
    dt_reader *reader; // DT_RAW_SET: whose records the list holds
    const dt_plan *plan;
    const dt_transform *transform;
    bool skip_bad;         // items that fail with DT_E_DATA give no record, with a warning
    const uint8_t *drop;   // by item: left out (duplicates); or NULL
    const dt_where *where; // records that are kept; or NULL: all
} dt_compose;

typedef struct dt_composer dt_composer; // a thread's scratch
dt_composer *dt_composer_create(const dt_compose *c);
void dt_composer_destroy(dt_composer *w);

// Reads the items of chunk `index` of the plan and replaces `out`. DT_E_DATA names the item, unless skip_bad.
dt_status dt_compose_chunk(dt_composer *w, size_t index, dt_chunk *out);
// XXH3 over an item's members as they are in the source (of a raw file: of its bytes), for duplicates.
dt_status dt_compose_hash(dt_composer *w, size_t item, uint64_t *out);

#endif
