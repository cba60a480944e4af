// blob_url.h: blobs of objects that an HTTP server or an object store has: http://, https://, s3://, gs:// (base/s3.h).
//
// Opening asks for the first 8 KiB, with which size and ETag come; these bytes are kept. Each read is a request for a range
// that must still have this ETag and size: an object that changed is an error. What fails on the way is tried again
// (base/http.h).
#ifndef DT_DATA_BLOB_URL_H
#define DT_DATA_BLOB_URL_H

#include "blob.h"

#include <stdbool.h>

bool dt_blob_is_url(const char *path);
// *is_there = false: the server has no such object (404, or 403 from a server that does not tell the two apart). `path`
// is borrowed.
dt_status dt_blob_open_url(dt_blob *b, const char *path, bool *is_there);
// All bytes of a file or object, heap, NUL behind them; *text NULL: it is not there. DT_E_DATA: more than max_bytes.
dt_status dt_blob_read_all(char **text, size_t *n_bytes, const char *path, size_t max_bytes);

#endif
