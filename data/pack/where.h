// where.h: dropping records by an expression while a set is packed, after their transform.
#ifndef DT_DATA_WHERE_H
#define DT_DATA_WHERE_H

#include "data/raw/raw.h"
#include "transform.h"

typedef struct dt_where dt_where;                 // shared by threads
typedef struct dt_where_scratch dt_where_scratch; // a thread's own

// The names of the expression are metadata columns of the list, columns of the transform, or key, bytes
// and source. DT_E_USAGE with the place of what is wrong. raw outlives it.
dt_status dt_where_create(dt_where **out, const char *text, const dt_raw *raw, const dt_transform *t);
void dt_where_destroy(dt_where *w);

dt_where_scratch *dt_where_scratch_create(const dt_where *w); // NULL for NULL
void dt_where_scratch_destroy(dt_where_scratch *s);
// Whether the record is kept. n_bytes: of all its members.
bool dt_where_keeps(dt_where_scratch *s, const dt_raw_item *item, const dt_transform_record *r, uint64_t n_bytes);

#endif
