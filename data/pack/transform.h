// transform.h: what happens to a record between its source and the packed dataset.
//
// A dt_transform is made once from the options of `dtrain pack` and never changes. Any number of threads apply it,
// each with its own scratch, to one source item at a time. An item becomes no record, one, or several (a recording
// cut into segments). Records have members, and columns that were measured on the way (sizes, lengths, quality).
// Records depend on the item's bytes and the options only.
//
// `dtrain pack` adds metadata from names and tables and the `json` and `cls` members, and drops records by
// --where afterwards.
#ifndef DT_DATA_TRANSFORM_H
#define DT_DATA_TRANSFORM_H

#include "data/file/bytes.h"
#include "pack.h"

enum { DT_TRANSFORM_MAX_MEMBERS = 64, DT_TRANSFORM_MAX_COLUMNS = 64 };

// `ext` has the field's name in front if there is one ("iris.bmp"). `size` is bytes.n_bytes, except that `bytes` has
// only the beginning of a very large member, which is stored unchanged.
typedef struct dt_transform_member {
    const char *ext;
    dt_span bytes;
    uint64_t size;
} dt_transform_member;

// A number of the catalog. in_json: the number is also in the record's json member, because nobody can measure it from
// the stored bytes again (where a segment began).
typedef struct dt_transform_column {
    const char *name;
    double number;
    bool in_json;
} dt_transform_column;

// Pointers of a record are borrowed for the call of emit.
typedef struct dt_transform_record {
    const char *suffix; // behind the key: "", or "-00000", "-00001", … if the transform divides items
    int n_members;
    dt_transform_member member[DT_TRANSFORM_MAX_MEMBERS];
    int n_columns;
    dt_transform_column column[DT_TRANSFORM_MAX_COLUMNS];
} dt_transform_record;

typedef struct dt_transform dt_transform;
typedef struct dt_transform_scratch dt_transform_scratch;

// The options must outlive it. DT_E_USAGE: contradicting options.
dt_status dt_transform_create(dt_transform **out, const dt_pack_opts *o);
void dt_transform_destroy(dt_transform *t);

// All options that change what is written, as one canonical line ("store as is"): part of a dataset's fingerprint.
// Borrowed.
const char *dt_transform_describe(const dt_transform *t);
// Each item becomes one record, with suffix "" and its members unchanged, and no column is in_json. Large members
// then need not be in memory as a whole.
bool dt_transform_keeps_bytes(const dt_transform *t);
// Records have suffixes of five digits after a '-'.
bool dt_transform_divides(const dt_transform *t);

// Whether records may get this column, which --where may name beside metadata.
bool dt_transform_has_column(const dt_transform *t, const char *name);

dt_transform_scratch *dt_transform_scratch_create(void);
void dt_transform_scratch_destroy(dt_transform_scratch *s);

// r: the item's members without the json member; changed. Calls emit for each record, in order, until one fails.
// DT_E_DATA if the item cannot be read; the caller adds its name.
typedef dt_status (*dt_transform_emit)(void *arg, const dt_transform_record *r);
dt_status dt_transform_apply(const dt_transform *t, dt_transform_scratch *s, dt_transform_record *r,
                             dt_transform_emit emit, void *arg);

// For transforms: adds a number column unless v is NaN.
void dt_transform_add_number(dt_transform_record *r, const char *name, double v);

#endif
