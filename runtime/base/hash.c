// hash.c: a thin wrapper of libxxhash; CRC32C by the CPU's instruction or by table.

#include "base/hash.h"

#include "base/core.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __aarch64__
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

#ifdef DTRAIN_XXH_DISPATCH
#include <xxh_x86dispatch.h> // picks XXH3's vector code at run time
#else
#include <xxhash.h>
#endif

uint32_t dt_hash32(const char *name) {
    return XXH32(name, strlen(name), 0);
}

uint64_t dt_hash64(const void *data, size_t n_bytes) {
    return XXH3_64bits(data, n_bytes);
}

// A dt_hash_stream is XXH3's state, which needs the 64-byte alignment that XXH3_createState gives.
static XXH3_state_t *state_of(dt_hash_stream *h) {
    return (XXH3_state_t *)(void *)h; // both are opaque: void in between avoids a cast of incompatible pointers
}

dt_hash_stream *dt_hash_stream_create(void) {
    XXH3_state_t *state = XXH3_createState();
    if (!state) abort(); // as dt_xcalloc
    XXH3_64bits_reset(state);
    return (dt_hash_stream *)(void *)state;
}

void dt_hash_stream_update(dt_hash_stream *h, const void *data, size_t n_bytes) {
    if (n_bytes > 0) XXH3_64bits_update(state_of(h), data, n_bytes); // data may be NULL if empty
}

uint64_t dt_hash_stream_digest(dt_hash_stream *h) {
    return XXH3_64bits_digest(state_of(h));
}

void dt_hash_stream_destroy(dt_hash_stream *h) {
    XXH3_freeState(state_of(h));
}

void dt_hash_hex(uint64_t h, char out[17]) {
    for (int i = 0; i < 16; i++) out[i] = "0123456789abcdef"[h >> (60 - 4 * i) & 15]; // most significant digit first
    out[16] = '\0';
}

// -- CRC32C: polynomial 0x1EDC6F41, reflected ------------------------------------------------
static uint32_t crc_table[256]; // one byte at a time; filled once
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void fill_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        // 0x82F63B78: the polynomial with its bits reflected
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
        crc_table[i] = c;
    }
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(uint32_t c, const unsigned char *p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8); // any alignment
        c = (uint32_t)__builtin_ia32_crc32di(c, v);
    }
    for (; n; n--, p++) c = __builtin_ia32_crc32qi(c, *p);
    return c;
}
#elif defined(__aarch64__)
__attribute__((target("+crc"))) static uint32_t crc32c_arm(uint32_t c, const unsigned char *p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        c = __crc32cd(c, v);
    }
    for (; n; n--, p++) c = __crc32cb(c, *p);
    return c;
}
#endif

uint32_t dt_crc32c(uint32_t crc, const void *data, size_t n_bytes) {
    uint32_t c = ~crc; // initial value and final xor are all ones, so crc = 0 starts
#if defined(__x86_64__)
    // same polynomial as the instruction has
    if (__builtin_cpu_supports("sse4.2")) return ~crc32c_sse(c, data, n_bytes);
#elif defined(__aarch64__)
    if (getauxval(AT_HWCAP) & HWCAP_CRC32) return ~crc32c_arm(c, data, n_bytes);
#endif
    pthread_once(&crc_once, fill_crc_table);
    // the table's low byte index, as the CRC is reflected
    for (const unsigned char *p = data; n_bytes; n_bytes--, p++) c = crc_table[(c ^ *p) & 255] ^ c >> 8;
    return ~c;
}

// ---- hash named ---------------------------------------------------------------------------------------------------

// Libxxhash's streams by name. Cryptographic hashes are left out: they would need another
// library, and nobody expects these files to be forged.

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
    // seed 0, as Python's xxhash
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
        dt_hash_hex(XXH32_digest(h->h32), wide); // 16 digits; the lower 8 and the NUL are kept
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
