// pack_source.h: what is packed: raw files, or the records of a set.
#ifndef DT_DATA_PACK_SOURCE_H
#define DT_DATA_PACK_SOURCE_H

#include "pack_plan.h"

#include "data/source/source.h"

// The set that a path is, open; NULL: raw files, or nothing that is there. Of `plan` what dt_plan_name knows:
// the output of an earlier pack into the folder that is packed is no part of it, and what there is to pack only
// where there is nothing else. DT_E_DATA, also of a folder with a set and other data in it; DT_E_USAGE of a set of
// which OUT would replace a part.
dt_status dt_pack_source_open(dt_set **out, const char *path, const dt_plan *plan);
// Whether files of the set are those that the plan's replace.
bool dt_pack_source_is_out(const dt_set *s, const dt_plan *plan);

#endif
