// pack_format.h: the formats that `dtrain pack` writes.
#ifndef DT_DATA_PACK_FORMAT_H
#define DT_DATA_PACK_FORMAT_H

#include "data/catalog/catalog.h"

// A data file that is being written: the format's own.
typedef struct dt_pack_writer dt_pack_writer;

// One thread writes a file, members in order, so its bytes depend on the members alone.
typedef struct dt_pack_format {
    const char *name;
    bool one_file; // the dataset is one file in a folder of its own; else one file a shard
    bool (*accepts)(const char *out);
    // About how many bytes a record takes; exact for records with ordinary names.
    uint64_t (*estimate)(uint64_t member_bytes, bool has_cls);
    // Creates `path`, or empties it.
    dt_status (*open)(dt_pack_writer **out, const char *path);
    // Begins a member; its bytes follow in one or more calls of `put`. *offset: in the file, if already known.
    // DT_E_DATA: the format cannot hold it.
    dt_status (*begin)(dt_pack_writer *w, const char *name, uint64_t size, uint64_t *offset);
    dt_status (*put)(dt_pack_writer *w, const void *data, size_t n_bytes);
    // Completes the file and syncs it. Sets the offsets of c's members where `begin` could not.
    dt_status (*end)(dt_pack_writer *w, dt_catalog *c);
    void (*close)(dt_pack_writer *w); // NULL is fine
} dt_pack_format;

extern const dt_pack_format dt_pack_lmdb, dt_pack_wds;

#endif
