// s3_objects.h: what lies in a bucket of S3 (or of what speaks its protocol), and writing to it. URLs are s3:// or gs:// (s3.h).
#ifndef DT_BASE_S3_OBJECTS_H
#define DT_BASE_S3_OBJECTS_H

#include "status.h"

#include <stddef.h>

// Names of the objects directly under `prefix`, which ends with '/', and of what looks like a folder there, with a '/' behind
// it; sorted by bytes; heap, freed by dt_io_free_list. DT_E_DATA: the server refuses.
dt_status dt_s3_list(char ***names, size_t *n, const char *prefix);
// The same of all objects below, whose names have slashes in them then.
dt_status dt_s3_list_below(char ***names, size_t *n, const char *prefix);

// Makes the file an object, whole or not at all: in parts of 8 MiB or more that several threads send, where it is larger.
// Then its size, beginning and end are compared with what the server has. DT_E_STORAGE, DT_E_DATA: as dt_http_do, or the
// server refuses.
dt_status dt_s3_put(const char *url, const char *path);

#endif
