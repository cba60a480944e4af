// aws_credentials.h: the credentials and the region that AWS's own tools would use (s3.h says where they look).
#ifndef DT_BASE_AWS_CREDENTIALS_H
#define DT_BASE_AWS_CREDENTIALS_H

#include "base/status.h"

#include <stdbool.h>

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
