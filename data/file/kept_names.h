// kept_names.h: names that belong to somebody else: other tools, or the file system.
#ifndef DT_DATA_KEPT_NAMES_H
#define DT_DATA_KEPT_NAMES_H

#include <stdbool.h>

// Of a member or a key: "__x__/…" and "__x__.…", what WebDataset's tools keep for themselves.
bool dt_name_is_private(const char *path);

// "lost+found" at the root of a disk, which only root may enter. It holds no data, so a folder is fine even if this
// one cannot be listed.
bool dt_name_is_lost_found(const char *name);

#endif
