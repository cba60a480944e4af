// pack_fetch.h: dtrain pack s3://bucket/raw/ OUT: files in a bucket are fetched to this host, then packed as a folder is.
#ifndef LAUNCH_PACK_FETCH_H
#define LAUNCH_PACK_FETCH_H

#include "base/status.h"

// Fetches all objects whose keys begin as the URL does, which ends with '/', into a folder of data.cache_dir's default, *out
// (heap, also after an error), which the caller removes.
dt_status dt_cli_fetch_folder(char **out, const char *url);

#endif
