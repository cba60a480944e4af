// unpack.h: data files that are compressed as a whole (gzip, zstd), unpacked once a host into a cache
// so that members can be read by offset.
#ifndef DT_DATA_UNPACK_H
#define DT_DATA_UNPACK_H

#include "store/blob.h"

typedef enum dt_packing { DT_PACKING_NONE, DT_PACKING_GZIP, DT_PACKING_ZSTD } dt_packing;
// Recognised by the first bytes, never by the name.
dt_packing dt_packing_of(const uint8_t *head, size_t n_bytes);

// Unpacks all members or frames of `b` and hands the bytes to `sink`, block by block. DT_E_DATA: the stream is
// damaged or cut, or more than max_bytes come out (a bomb, or the limit is too low).
typedef dt_status (*dt_unpack_sink)(void *arg, const void *data, size_t n_bytes);
dt_status dt_unpack(const dt_blob *b, uint64_t max_bytes, dt_unpack_sink sink, void *arg);

typedef struct dt_unpack_cache {
    const char *dir;                   // or NULL: dt_io_cache_folder
    uint64_t max_bytes;                // of the host's cache (store/cache_room.h)
    _Atomic uint64_t n_files, n_bytes; // that this process unpacked
} dt_unpack_cache;

// Gives the unpacked copy of `path`: *file (heap) and *out, which must stay open as long as the file is read, as
// it keeps others from removing it; its path is borrowed from *file. Makes the copy if it is not there, or waits for a process that makes it.
// Any thread. DT_E_DATA: damaged, or over the limit; DT_E_STORAGE: no folder to put it, disk full.
dt_status dt_unpack_open(dt_unpack_cache *c, const char *path, char **file, dt_blob *out);

#endif
