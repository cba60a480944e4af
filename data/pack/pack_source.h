// pack_source.h: opens what is packed: raw files, or the records of a dataset.
#ifndef DT_DATA_PACK_SOURCE_H
#define DT_DATA_PACK_SOURCE_H

#include "pack_plan.h"

#include "data/source/source.h"

// Opens the dataset at a path. *out NULL: there are raw files, or nothing. Needs of `plan` what dt_plan_name sets.
// The output of an earlier pack into the folder that is packed is not part of the source, unless it is all there
// is. DT_E_DATA, also if a folder holds a dataset and other data; DT_E_USAGE if OUT would replace a part of a dataset.
dt_status dt_pack_source_open(dt_reader **out, const char *path, const dt_plan *plan);
// Whether files of the plan replace files of the dataset.
bool dt_pack_source_is_out(const dt_reader *s, const dt_plan *plan);

#endif
