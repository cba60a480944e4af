// tar_index.h: the indexes that other programs put beside tars: DALI's "x.idx" (v1.1, v1.2) and Energon's
// "x.tar.idx".
#ifndef DT_DATA_TAR_INDEX_H
#define DT_DATA_TAR_INDEX_H

#include "source.h"

// DALI: "v1.2 N", then a line a record: ext offset size filename, repeated; v1.1 has no filename. Calls
// `add` for each member in order; `name` is the path in the tar, or NULL; `first` of its record.
// DT_E_DATA when the text is not of that form or a member is not a block-aligned part of n_data bytes.
typedef dt_status (*dt_dali_visit)(void *arg, bool first, const char *ext, uint64_t offset,
                                   uint64_t size, const char *name);
dt_status dt_dali_parse(const char *path, const char *text, size_t n_bytes, uint64_t n_data,
                        dt_dali_visit visit, void *arg);

// The rows of the shard by the index that lies beside it. *used = false: there is none, or it is not of
// this tar (a warning tells), and nothing was appended. The shard itself is added already.
dt_status dt_tar_index_load(dt_scan *s, uint32_t shard, bool *used);
// After a scan: warns when Energon's index beside the tar counts other records.
void dt_tar_index_compare(const dt_scan *s);

#endif
