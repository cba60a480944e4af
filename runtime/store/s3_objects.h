// s3_objects.h: what lies in a bucket of S3 (or of what speaks its protocol), and writing to it. URLs are s3:// or gs:// (s3.h).
#ifndef DT_BASE_S3_OBJECTS_H
#define DT_BASE_S3_OBJECTS_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

// Names of the objects directly under `prefix`, which ends with '/', and of what looks like a folder there, with a '/' behind
// it; sorted by bytes; heap, freed by dt_io_free_list. DT_E_DATA: the server refuses. DT_E_STORAGE: the answer is no listing, or
// not a whole one.
dt_status dt_s3_list(char ***names, size_t *n, const char *prefix);
// The same of all objects below, whose names have slashes in them then.
dt_status dt_s3_list_below(char ***names, size_t *n, const char *prefix);

// Makes the file an object, whole or not at all: in parts of 8 MiB or more that several threads send, where it is larger.
// Then its size, beginning and end are compared with what the server has. A file that grows meanwhile is sent as it was.
// stop: as in a dt_http_request. DT_E_STORAGE, DT_E_DATA: as dt_http_do, or the server refuses.
dt_status dt_s3_put(const char *url, const char *path, const atomic_bool *stop);
// Makes a text an object where none has its name. DT_E_STORAGE: one with another text has. Servers without If-None-Match
// (gs://: x-goog-if-generation-match) replace it.
dt_status dt_s3_put_first(const char *url, const char *text, const atomic_bool *stop);
// The same for files of a folder, which become objects under `url`, one after another: who finds the last finds all.
// move: each file is removed when it is there.
dt_status dt_s3_put_files(const char *url, const char *dir, const char *const *names, size_t n, bool move,
                          const atomic_bool *stop);
// Makes the object a file, whole or not at all (dt_io_begin), by ranges that several threads fetch.
dt_status dt_s3_get(const char *path, const char *url);
// Removes the object; one that is not there is fine.
dt_status dt_s3_remove(const char *url, const atomic_bool *stop);

#endif
