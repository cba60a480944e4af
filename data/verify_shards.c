// verify_shards.c: finds index.json beside each shard, and compares.
//
// A set is not asked for the list it was opened by: shards may be named one by one, or by a pattern, and
// their hashes lie beside them all the same. One list is kept at a time, as shards of a folder are neighbours.
#include "verify_shards.h"
#include "data/source/shard_list.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BLOCK_BYTES = 1 << 20 };

static void verify_shards_read_list(dt_listing *l, const char *path) {
    bool is_list;
    if (!dt_io_exists(path) || dt_shard_list_read(l, path, &is_list) == DT_OK) return;
    dt_warn("%s: shards are not compared with its hashes", dt_error_message());
    dt_error_clear();
    dt_shard_list_fini(l);
}

// Shards are listed in order as a rule, so the search goes on where the last one was found.
static dt_listed *find_listed(const dt_listing *l, const char *path, size_t *at) {
    for (size_t i = 0; i < l->n; i++) {
        size_t k = (*at + i) % l->n;
        if (strcmp(l->shard[k].path, path) != 0) continue;
        *at = k + 1;
        return &l->shard[k];
    }
    return NULL;
}

static void take_hash(dt_shard_hash *out, dt_listed *from, const char *list, bool *warned) {
    if (from->hash) {
        *out = (dt_shard_hash){from->hash_name, from->hash};
        from->hash_name = from->hash = NULL;
    } else if (from->hash_name && !*warned) {
        dt_info("%s: has hashes of kind %s, which are not compared (those of xxhash are)", list, from->hash_name);
        *warned = true;
    }
}

dt_shard_hash *dt_shard_hashes_find(const dt_catalog *c) {
    dt_shard_hash *out = dt_xcalloc(c->n_shards + 1, sizeof *out);
    dt_listing l = {0};
    char *list = NULL;
    bool warned = false;
    size_t at = 0;
    for (uint32_t s = 0; s < c->n_shards; s++) {
        const char *path = c->shards[s].path, *slash = strrchr(path, '/');
        char *here = dt_xprintf("%.*sindex.json", slash ? (int)(slash - path) + 1 : 0, path);
        if (list && strcmp(here, list) == 0) {
            free(here);
        } else {
            dt_shard_list_fini(&l);
            free(list);
            list = here;
            warned = false;
            at = 0;
            verify_shards_read_list(&l, list);
        }
        dt_listed *found = find_listed(&l, path, &at);
        if (found) take_hash(&out[s], found, list, &warned);
    }
    dt_shard_list_fini(&l);
    free(list);
    return out;
}

void dt_shard_hashes_free(dt_shard_hash *h, uint32_t n) {
    for (uint32_t i = 0; h && i < n; i++) {
        free(h[i].name);
        free(h[i].hex);
    }
    free(h);
}

dt_status dt_shard_hash_check(dt_reader *s, uint32_t shard, const dt_shard_hash *want, dt_buffer *scratch) {
    uint64_t n_bytes = s->catalog->shards[shard].n_bytes;
    char hex[DT_NAMED_HASH_HEX];
    uint8_t *block = dt_buffer_reserve(scratch, BLOCK_BYTES);
    if (!block) return dt_fail(DT_E_INTERNAL, "out of memory");
    dt_named_hash *h = dt_named_hash_create(want->name);
    dt_status st = DT_OK;
    for (uint64_t at = 0; at < n_bytes && st == DT_OK; at += BLOCK_BYTES) {
        size_t n = n_bytes - at < BLOCK_BYTES ? (size_t)(n_bytes - at) : (size_t)BLOCK_BYTES;
        st = dt_reader_read_range(s, shard, at, block, n);
        if (st == DT_OK) dt_named_hash_update(h, block, n);
    }
    dt_named_hash_hex(h, hex);
    dt_named_hash_destroy(h);
    DT_TRY(st);
    if (strcasecmp(hex, want->hex) == 0) return DT_OK;
    return dt_fail(DT_E_DATA, "its bytes are not those that index.json has the hash of (%s %s, not %s)", want->name,
                   hex, want->hex);
}
