// index_file.h: the rows of one data file, beside it as "<file>.index". Opening a dataset reads the indexes
// instead of the data. Each is appended to one catalog in memory.
//
// An index says which bytes it describes (size and dt_blob_stamp), so that an index of another file is
// detected. An index that packing wrote needs only the right size, as it has every member's hash. The
// format is in index_file.c.
#ifndef DT_DATA_INDEX_FILE_H
#define DT_DATA_INDEX_FILE_H

#include "catalog.h"

// The rows of shard `shard` in the format of the file; `out` is replaced.
dt_status dt_index_make(const dt_catalog *c, uint32_t shard, uint64_t stamp, dt_buffer *out);
// Writes the rows of shard `shard` to `path`; `stamp` is the data file's dt_blob_stamp, which the catalog keeps.
// The cost grows with the shard's records and not with the
// catalog's. DT_E_STORAGE.
dt_status dt_index_save(dt_catalog *c, uint32_t shard, uint64_t stamp, const char *path);
// Appends the index of `data_path` as a shard. *found = false (and DT_OK) when there is no file;
// *stale = true (nothing appended) when the data file is not the one described. DT_E_DATA when the
// index itself is damaged, or the data file is shorter than described.
dt_status dt_index_load(dt_catalog *c, const char *data_path, bool *found, bool *stale);
// Appends an index that is in memory. n_data, stamp: of the data file.
dt_status dt_index_parse(dt_catalog *c, const char *data_path, const char *index_path, const void *data, size_t n_bytes,
                         uint64_t n_data, uint64_t stamp, bool *stale);
// Checks only that the index is whole and describes the data file, and says what that was packed from (0:
// the index was made by scanning). Warns if a packed file has changed but kept its size. *stamp: of the data file, 0 where its
// version stands for it; then the index's own.
dt_status dt_index_check(const char *data_path, const char *index_path, const void *data, size_t n_bytes,
                         uint64_t n_data, uint64_t *stamp, bool *stale, uint64_t *source_hash);

#endif
