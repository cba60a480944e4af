// s3.h: objects of S3 and of what speaks its protocol (MinIO, Ceph, Cloudflare R2, Google's interoperability), as HTTP
// requests: names, signatures (by libcurl), credentials.
//
// s3://BUCKET/KEY goes to the endpoint that is configured, else to Amazon's of the region; gs://BUCKET/KEY to Google's.
// Credentials and region are found where AWS's own tools find them, in this order: environment (AWS_ACCESS_KEY_ID …), the
// profile (AWS_PROFILE, else default) of ~/.aws/credentials and ~/.aws/config, a web identity token
// (AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN), a container's agent (AWS_CONTAINER_CREDENTIALS_*), the instance's
// metadata. Temporary ones are fetched again five minutes before they end. dtrain writes no credentials into messages
// or files.
#ifndef DT_STORE_S3_H
#define DT_STORE_S3_H

#include "http.h"

#include "base/core.h"

#include <stdatomic.h>

// Sets endpoint and region from data.s3 of the config, copied; NULL members: as AWS's tools find them. Call it before
// the first request.
typedef struct dt_s3_options {
    const char *endpoint, *region;
    bool anonymous; // requests are not signed
} dt_s3_options;
void dt_s3_configure(const dt_s3_options *o);

bool dt_s3_is_url(const char *path); // s3://… or gs://…

// Sends r, whose url, headers, sign and user are made from `url`; that of an http:// or https:// object goes as it is. query:
// parameters in the order of their names, values encoded, or NULL; header: one, or NULL. Credentials that have ended are
// looked for again once. DT_E_USAGE: no bucket in the URL, or neither key nor query; no credentials, with where they were
// looked for. DT_E_STORAGE: credentials could not be fetched; else as dt_http_do. Any thread.
dt_status dt_s3_do(dt_http_reply *out, const dt_http_request *r, const char *url, const char *query,
                   const char *header);

// Whether the answer says that there is no such object: 404, or 403, as a server says that does not tell the two apart, but
// neither of a bucket that is not there nor of credentials that are none.
bool dt_s3_absent(const dt_http_reply *r);

// The error of an answer that was not what was hoped for; `right`: what the request takes, such as s3:GetObject.
dt_status dt_s3_refused(const char *path, const dt_http_reply *r, const char *right);

// Percent-encodes in the form that is signed: all characters but letters, digits, -._~ and, of a key, the slashes. Heap.
char *dt_s3_encode(const char *text, bool is_key);
// The text between <name> and </name> of an answer, heap; NULL: none. From *at on, which moves behind it.
char *dt_s3_element(const char **at, const char *name);

// ---- s3 objects ---------------------------------------------------------------------------------------------------

// What lies in a bucket of S3 (or of what speaks its protocol), and writing to it. URLs are s3:// or gs://.

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

// ---- aws credentials ----------------------------------------------------------------------------------------------

// The credentials and the region that AWS's own tools would use.

typedef struct dt_aws_credentials {
    char *key, *secret; // heap
    char *token;        // session token of temporary credentials, or NULL
} dt_aws_credentials;

// Copies of the credentials, which are fetched once and kept until five minutes before they expire. Any thread.
dt_status dt_aws_credentials_get(dt_aws_credentials *out);
// The next dt_aws_credentials_get looks for them again. Any thread.
void dt_aws_credentials_forget(void);
void dt_aws_credentials_fini(dt_aws_credentials *c);
// A setting of the profile in ~/.aws/config or ~/.aws/credentials; heap, NULL: there is none.
char *dt_aws_profile_get(const char *name);

#endif
