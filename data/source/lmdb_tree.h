// lmdb_tree.h: the entries of an LMDB file, in key order, by offset.
#ifndef DT_DATA_LMDB_TREE_H
#define DT_DATA_LMDB_TREE_H

#include "store/blob.h"

// Called for each entry in key order. `key` is NUL-terminated and borrowed for the call; the value is
// `size` bytes at `offset` of the file. A status other than DT_OK stops the walk.
typedef dt_status (*dt_lmdb_visit)(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size);
// DT_E_DATA when it is no LMDB file, is cut, or its tree is damaged.
dt_status dt_lmdb_walk(const dt_blob *blob, dt_lmdb_visit visit, void *arg);

#endif
