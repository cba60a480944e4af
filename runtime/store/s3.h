// s3.h: objects of S3 and of what speaks its protocol (MinIO, Ceph, Cloudflare R2, Google's interoperability), as HTTP
// requests: names, signatures (by libcurl), credentials.
//
// s3://BUCKET/KEY goes to the endpoint that is configured, else to Amazon's of the region; gs://BUCKET/KEY to Google's.
// Credentials and region are found where AWS's own tools find them, in this order: environment (AWS_ACCESS_KEY_ID …), the
// profile (AWS_PROFILE, else default) of ~/.aws/credentials and ~/.aws/config, a web identity token
// (AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN), a container's agent (AWS_CONTAINER_CREDENTIALS_*), the instance's
// metadata. Temporary ones are fetched again five minutes before they end. dtrain writes no credentials into messages
// or files.
#ifndef DT_BASE_S3_H
#define DT_BASE_S3_H

#include "http.h"

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

#endif
