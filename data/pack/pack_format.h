// pack_format.h: formats of packed sets, and what they are given.
#ifndef DT_DATA_PACK_FORMAT_H
#define DT_DATA_PACK_FORMAT_H

#include "chunk.h"

// A data file that is about to be finished: all its chunks are in it.
typedef struct dt_pack_file {
    const char *path;
    uint64_t n_bytes; // so far
    uint64_t n_members;
    const uint8_t *marks; // of its chunks, in order: see `marks` of the format
    size_t n_marks;
} dt_pack_file;

// Bytes that go to offset `at` of the file, to finish it.
typedef dt_status (*dt_pack_put)(void *arg, const void *data, size_t n_bytes, uint64_t at);

// One format of packed sets: how members lie in a chunk, and what a file has besides its chunks. Nothing
// in it depends on how many threads or ranks build chunks, nor on where a file lies.
typedef struct dt_pack_format {
    const char *name;
    bool one_file;       // the set is one file in a folder of its own; else a file a shard
    uint64_t head_bytes; // of a file in front of its first chunk: written by `finish`
    bool (*accepts)(const char *out);
    // About how many bytes a record takes; exact for records of ordinary names.
    uint64_t (*estimate)(uint64_t member_bytes, bool has_cls);
    // At most so many for a member: what to reserve.
    size_t (*most)(size_t n_name, uint64_t in_memory);
    // A place for a member, in the order of names. in_memory false: the member is the gap, of `size`
    // bytes. *offset: of the member, from the chunk's beginning. Room was reserved.
    dt_status (*add)(dt_chunk *c, const char *name, size_t n_name, uint64_t size, bool in_memory,
                     uint64_t *offset, uint8_t **place);
    // The chunk lies at `base` of the file: c->base.
    void (*relocate)(dt_chunk *c);
    dt_status (*finish)(const dt_pack_file *f, dt_pack_put put, void *arg, uint64_t *n_bytes);
    // Changes `n_bytes` of a chunk run that was relocated for base 0 and now lies `delta` further on. Called
    // with one piece after another, whole pages each; *state is 0 at first. NULL: nothing changes.
    void (*move)(uint8_t *data, size_t n_bytes, uint64_t delta, uint64_t *state);
    // The same for the marks of one chunk.
    void (*move_marks)(uint8_t *marks, size_t n_bytes, uint64_t delta);
} dt_pack_format;

extern const dt_pack_format dt_pack_lmdb, dt_pack_wds;

#endif
