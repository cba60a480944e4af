// compose.h: items of the list into the records of a chunk.
#ifndef DT_DATA_COMPOSE_H
#define DT_DATA_COMPOSE_H

#include "data/source/source.h"
#include "pack_plan.h"
#include "transform.h"
#include "where.h"

// What does not change while a set is built; shared by all threads.
typedef struct dt_compose {
    const dt_raw *raw;
    dt_set *set; // DT_RAW_SET: whose records the list holds
    const dt_plan *plan;
    const dt_transform *transform;
    const uint8_t *drop;   // by item: left out (duplicates); or NULL
    const dt_where *where; // records that are kept; or NULL: all
} dt_compose;

typedef struct dt_composer dt_composer; // a thread's scratch
dt_composer *dt_composer_create(const dt_compose *c);
void dt_composer_destroy(dt_composer *w);

// Reads the items of chunk `index` of the plan and fills `out`. DT_E_DATA names the item.
dt_status dt_compose_chunk(dt_composer *w, size_t index, dt_chunk *out);
// XXH3 over an item's members as they are in the source (of a raw file: of its bytes), for duplicates.
dt_status dt_compose_hash(dt_composer *w, size_t item, uint64_t *out);

#endif
