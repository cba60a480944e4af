// pack_bucket.h: dtrain pack SRC s3://….
#ifndef LAUNCH_PACK_BUCKET_H
#define LAUNCH_PACK_BUCKET_H

#include "data/pack/pack.h"

#include <stdint.h>

// Packs into a folder of data.cache_dir's default, uploads what came of it, and removes it. o->out is the URL; `command`: a
// hash of all that was asked for, by which the same command goes on after a kill.
dt_status dt_cli_pack_bucket(const dt_pack_opts *o, uint64_t command);

#endif
