// kept_names.h: names that belong to somebody else: other tools, or the file system.
#ifndef DT_DATA_KEPT_NAMES_H
#define DT_DATA_KEPT_NAMES_H

#include <stdbool.h>
#include <stddef.h>

// "__x__": what WebDataset's tools keep for themselves, as the first folder of a member's name or as a file's
// name up to its first dot. `name` has n bytes.
bool dt_name_is_private(const char *name, size_t n);

// "lost+found" at the root of a disk, which only root may enter: nobody's data, so that not being able to list it
// is no error of a folder.
bool dt_name_is_lost_found(const char *name);

#endif
