// blob_url.h: blobs of objects that an HTTP server or an object store has: http://, https://, s3://, gs:// (store/s3.h).
//
// Opening asks for the first 8 KiB, with which size and version come (the ETag, else Last-Modified); these bytes are kept.
// Each read is a request for a range that must still have this version and size: an object that changed is an error. What
// fails on the way is tried again (store/http.h). A secret in a path is refused (url.h).
#ifndef DT_BASE_BLOB_URL_H
#define DT_BASE_BLOB_URL_H

#include "blob.h"

#include <stdbool.h>

// SCHEME://…, of any scheme; opening refuses others than those above.
bool dt_blob_is_url(const char *path);
// *absent: the status of an answer that the server may give where it has no such object (dt_s3_absent), else 0. `path` is
// borrowed.
dt_status dt_blob_open_url(dt_blob *b, const char *path, int *absent);
// Whether the blob is an object whose version is a strong ETag: as long as it is the same, so are the bytes.
bool dt_blob_has_etag(const dt_blob *b);
// All bytes of a file or object, heap, NUL behind them; *text NULL: it is not there. DT_E_DATA: more than max_bytes, which is
// above 0.
// listed: the server has named the object. An answer other than 404 is then a refusal, not an object that is missing:
// DT_E_STORAGE.
dt_status dt_blob_read_all(char **text, size_t *n_bytes, const char *path, size_t max_bytes, bool listed);

#endif
