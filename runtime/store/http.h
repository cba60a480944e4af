// http.h: HTTP requests. libcurl makes them; it comes with the module dtrain_http.so, so that a process that uses no URL
// loads neither it nor the libraries below it.
//
// A request is tried again, with a jittered pause that doubles up to 5 s (or as long as the server's Retry-After says),
// when the connection fails, stalls or ends early, and on 408, 429, 500, 502, 503 and 504;
// an answer that is none (no HTTP, another range than the one that was asked for) twice. A body that was cut goes on
// where it ended, unless the object was replaced meanwhile: then all of it is asked for anew. Connections are kept open
// for later requests of any thread. URLs stand in messages as they are, so no secret may be in one.
#ifndef DT_BASE_HTTP_H
#define DT_BASE_HTTP_H

#include "base/core.h"

#include <stdatomic.h>

typedef struct dt_http_request {
    const char *method;         // NULL: GET
    const char *url;            // http:// or https://
    const char *const *headers; // "Name: value", NULL at the end; or NULL
    const void *body;           // of PUT and POST
    size_t n_body;
    const char *sign; // AWS Signature Version 4 with `user` as KEY:SECRET: "aws:amz:REGION:SERVICE"; else NULL
    const char *user; // KEY:SECRET, or NAME:PASSWORD for basic authentication; NULL: none
    // Where n_range bytes from `from` on go, as far as the object has them (reply's n_total). NULL: the reply holds the
    // whole body as text.
    void *range;
    size_t n_range;
    uint64_t from;
    size_t max_body; // bytes of a whole body at most
    bool once;       // one attempt only: sent twice it would be done twice
    int stall_s; // an answer of which (nearly) nothing comes for so long is not waited for again; 0: 10 s, and it is
    // For attempts in a row of which none brings 64 KiB of a range, behind a first one that a server takes and does not
    // answer; 0: 60 s. The time for which other requests to the same server have failed counts, too.
    double limit_s;
    const atomic_bool *stop; // once it is true, the request fails within about a second; NULL: never
} dt_http_request;

typedef struct dt_http_reply {
    int status;
    uint64_t n_total;  // bytes of the object, where the server says so (Content-Range, Content-Length)
    char version[128]; // the object's ETag, else its Last-Modified; empty: the server says neither
    size_t n_body;
    char *body; // heap, NUL behind n_body bytes; of a range only where it failed (status is not 206)
} dt_http_reply;

// DT_OK: the server answered; every status but those that are tried again, so the caller looks at out->status. Redirects
// are followed by requests of ranges that are not signed and give no user, and never from https to http: other requests
// carry credentials or bring some. Any thread.
// DT_E_STORAGE: no answer within the limit, naming URL, last cause and number of attempts. DT_E_DATA: an answer that no
// other attempt would mend (no ranges, no trust in its certificate).
// DT_E_USAGE: this build has no dtrain_http.so.
dt_status dt_http_do(dt_http_reply *out, const dt_http_request *r);
void dt_http_reply_fini(dt_http_reply *r);
bool dt_http_is_url(const char *path); // "http://…" or "https://…"

// ---- between http.c and the module -----------------------------------------------------------------
typedef struct dt_http_attempt {
    size_t n_got;         // bytes of the range that are there, before and after
    char version[128];    // of the object that they are of
    double retry_after_s; // < 0: the server did not say
    char cause[256];      // why the attempt failed
    bool again;           // whether another attempt may succeed
    int n_bad;            // answers that were none; before and after
    bool sent;            // a server got a request
} dt_http_attempt;

#define DT_HTTP_MODULE_SYMBOL "dt_http_module_try"
// One attempt. false: no answer; a->cause says why.
typedef bool (*dt_http_try)(dt_http_reply *out, const dt_http_request *r, dt_http_attempt *a);

#endif
