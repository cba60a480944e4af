// pack_source.h: what is packed: raw files, or the records of a set.
#ifndef DT_DATA_PACK_SOURCE_H
#define DT_DATA_PACK_SOURCE_H

#include "data/source/source.h"

// The set that a path is, open; NULL: raw files, or nothing that is there. DT_E_DATA.
dt_status dt_pack_source_open(dt_set **out, const char *path);

#endif
