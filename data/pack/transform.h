// transform.h: what happens to a record between its source and the set.
//
// A dt_transform is made once from the options of `dtrain pack` and never changes; any number of
// threads apply it, each with a scratch of its own, to one source item at a time. An item becomes no
// record, one, or several (a recording cut into segments), each with members, and with columns that
// were found out on the way (sizes, lengths, quality). What an item becomes depends on its bytes and
// the options alone: never on the thread, on time, or on other items.
//
// Metadata from names and joined tables is not the transform's business: `dtrain pack` adds it to each
// record, as it does the `json` and `cls` members, and drops records by --where afterwards.
#ifndef DT_DATA_TRANSFORM_H
#define DT_DATA_TRANSFORM_H

#include "data/file/bytes.h"
#include "pack.h"

enum { DT_TRANSFORM_MAX_MEMBERS = 64, DT_TRANSFORM_MAX_COLUMNS = 64 };

// `ext` with the field in front where there is one ("iris.bmp"). `size` is bytes.n_bytes, except
// that of a very large member that is stored as is only the beginning is in memory.
typedef struct dt_transform_member {
    const char *ext;
    dt_span bytes;
    uint64_t size;
} dt_transform_member;

// A cell of the catalog. `text` NULL: the number in a number column (NaN: no value). in_json: also in the
// record's json member, for what cannot be found out from the stored bytes again (where a segment
// began); sizes and quality are in the catalog only.
typedef struct dt_transform_column {
    const char *name, *text;
    double number;
    bool in_json;
} dt_transform_column;

typedef struct dt_transform_item {
    const char *name; // as the user knows it, for messages
    const char *key;
    int n_members; // without the json member
    dt_transform_member member[DT_TRANSFORM_MAX_MEMBERS];
} dt_transform_item;

// Its pointers are borrowed for the call of emit.
typedef struct dt_transform_record {
    const char
        *suffix; // goes behind the key: "", or "-00000", "-00001", … of a transform that divides
    int n_members;
    dt_transform_member member[DT_TRANSFORM_MAX_MEMBERS];
    int n_columns;
    dt_transform_column column[DT_TRANSFORM_MAX_COLUMNS];
} dt_transform_record;

typedef struct dt_transform dt_transform;
typedef struct dt_transform_scratch dt_transform_scratch;

// DT_E_USAGE for options that do not go together.
dt_status dt_transform_create(dt_transform **out, const dt_pack_opts *o);
void dt_transform_destroy(dt_transform *t);

// All options that change what is written, in one canonical line ("store as is"): part of what tells
// whether a set was made in just this way, and of its lineage. Borrowed.
const char *dt_transform_describe(const dt_transform *t);
// Each item becomes at most one record, with suffix "", with its own members unchanged, and no column
// is in_json: then members are read straight to where they are written, and large ones need not be in
// memory as a whole.
bool dt_transform_keeps_bytes(const dt_transform *t);
// Records have suffixes of five digits after a '-'.
bool dt_transform_divides(const dt_transform *t);

// Every column that records may get, NULL-terminated: what --where may name beside metadata. Number
// columns, unless the name begins with '='.
const char *const *dt_transform_columns(const dt_transform *t);

dt_transform_scratch *dt_transform_scratch_create(void);
void dt_transform_scratch_destroy(dt_transform_scratch *s);

// Calls emit for each record, in order; its status ends the work. DT_E_DATA when the item cannot be
// read; the caller adds its name.
typedef dt_status (*dt_transform_emit)(void *arg, const dt_transform_record *r);
dt_status dt_transform_apply(const dt_transform *t, dt_transform_scratch *s,
                             const dt_transform_item *item, dt_transform_emit emit, void *arg);

// For transforms: adds a number column unless v is NaN.
void dt_transform_add_number(dt_transform_record *r, const char *name, double v);

#endif
