// hash_named.c: libxxhash's streams by name. Cryptographic hashes are left out: they would need another
// library, and nobody expects these files to be forged.
#include "base/arena.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef enum hash_kind { H32, H64, H3_64, H128 } hash_kind;

struct dt_named_hash {
    hash_kind kind;
    XXH32_state_t *h32;
    XXH64_state_t *h64;
    XXH3_state_t *h3; // 64 and 128 bits
};

static bool hash_named_find_kind(const char *name, hash_kind *out) {
    static const struct {
        const char *name;
        hash_kind kind;
    } NAMES[] = {{"xxh32", H32}, {"xxh64", H64}, {"xxh3_64", H3_64}, {"xxh128", H128}, {"xxh3_128", H128}};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(NAMES[i].name, name) == 0) {
            *out = NAMES[i].kind;
            return true;
        }
    return false;
}

bool dt_named_hash_is_known(const char *name) {
    hash_kind kind;
    return hash_named_find_kind(name, &kind);
}

dt_named_hash *dt_named_hash_create(const char *name) {
    hash_kind kind;
    if (!hash_named_find_kind(name, &kind)) return NULL;
    dt_named_hash *h = dt_xcalloc(1, sizeof *h);
    h->kind = kind;
    if (kind == H32) h->h32 = XXH32_createState();
    if (kind == H64) h->h64 = XXH64_createState();
    if (kind == H3_64 || kind == H128) h->h3 = XXH3_createState();
    if (!h->h32 && !h->h64 && !h->h3) abort(); // as dt_xcalloc
    if (kind == H32) XXH32_reset(h->h32, 0);
    if (kind == H64) XXH64_reset(h->h64, 0);
    if (kind == H3_64) XXH3_64bits_reset(h->h3);
    if (kind == H128) XXH3_128bits_reset(h->h3);
    return h;
}

void dt_named_hash_update(dt_named_hash *h, const void *data, size_t n_bytes) {
    if (h->kind == H32) XXH32_update(h->h32, data, n_bytes);
    if (h->kind == H64) XXH64_update(h->h64, data, n_bytes);
    if (h->kind == H3_64) XXH3_64bits_update(h->h3, data, n_bytes);
    if (h->kind == H128) XXH3_128bits_update(h->h3, data, n_bytes);
}

void dt_named_hash_hex(const dt_named_hash *h, char out[DT_NAMED_HASH_HEX]) {
    if (h->kind == H32) {
        char wide[17];
        dt_hash_hex(XXH32_digest(h->h32), wide);
        memcpy(out, wide + 8, 9);
    } else if (h->kind == H128) {
        XXH128_hash_t v = XXH3_128bits_digest(h->h3);
        dt_hash_hex(v.high64, out);
        dt_hash_hex(v.low64, out + 16);
    } else {
        dt_hash_hex(h->kind == H64 ? XXH64_digest(h->h64) : XXH3_64bits_digest(h->h3), out);
    }
}

void dt_named_hash_destroy(dt_named_hash *h) {
    if (!h) return;
    XXH32_freeState(h->h32);
    XXH64_freeState(h->h64);
    XXH3_freeState(h->h3);
    free(h);
}
