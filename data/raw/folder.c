// folder.c: a folder of raw files as a dataset, without packing. Handy for a first look; a packed dataset is
// faster to read and each of its records is checked by hash, so a long job should read that. Each file becomes a
// shard with one record, named as `dtrain pack` would name it (raw.c).
#include "folder.h"
#include "raw.h"

#include <stdlib.h>

static dt_status add_item(dt_catalog *c, const dt_raw *raw, const dt_raw_item *item) {
    char *path = dt_raw_path(raw, item);
    uint32_t shard = dt_catalog_add_shard(c, path, item->size);
    free(path);
    DT_TRY(dt_catalog_add_record(c, shard, item->key));
    DT_TRY(dt_catalog_add_member(c, item->ext, item->offset, item->size, NULL));
    return dt_raw_put_row(raw, item, c);
}

dt_status dt_folder_load(dt_catalog *c, const char *path) {
    dt_raw raw;
    dt_status st = DT_OK;
    DT_TRY(dt_raw_list(&raw, path, NULL, NULL));
    for (size_t i = 0; i < raw.n && st == DT_OK; i++) st = add_item(c, &raw, &raw.items[i]);
    dt_raw_fini(&raw);
    return st;
}
