// duplicates.h: records whose source has the same content as an earlier one's.
#ifndef DT_DATA_DUPLICATES_H
#define DT_DATA_DUPLICATES_H

#include "compose.h"

enum { DT_NO_DUPLICATE = UINT32_MAX };

// first[i] = the first item of the list that item i repeats, or DT_NO_DUPLICATE. Heap. hash[i] 0: not known, so not a
// duplicate. Returns how many items repeat another.
size_t dt_duplicates_find(const uint64_t *hash, const dt_raw *raw, uint32_t **first);

// Before anything is written: hashes the items whose size another item has; the others stay 0.
dt_status dt_duplicates_hash(const dt_compose *c, int n_threads, uint64_t *hash);

#endif
