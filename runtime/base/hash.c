// hash.c: a thin wrapper of libxxhash; CRC32C by the CPU's instruction or by table.
#include "base/hash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
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
    return (XXH3_state_t *)(void *)h;
}

dt_hash_stream *dt_hash_stream_create(void) {
    XXH3_state_t *state = XXH3_createState();
    if (!state) abort(); // as dt_xcalloc
    XXH3_64bits_reset(state);
    return (dt_hash_stream *)(void *)state;
}

void dt_hash_stream_reset(dt_hash_stream *h) {
    XXH3_64bits_reset(state_of(h));
}

void dt_hash_stream_update(dt_hash_stream *h, const void *data, size_t n_bytes) {
    if (n_bytes > 0) XXH3_64bits_update(state_of(h), data, n_bytes);
}

uint64_t dt_hash_stream_digest(dt_hash_stream *h) {
    return XXH3_64bits_digest(state_of(h));
}

void dt_hash_stream_destroy(dt_hash_stream *h) {
    XXH3_freeState(state_of(h));
}

void dt_hash_hex(uint64_t h, char out[17]) {
    for (int i = 0; i < 16; i++) out[i] = "0123456789abcdef"[h >> (60 - 4 * i) & 15];
    out[16] = '\0';
}

// -- CRC32C: polynomial 0x1EDC6F41, reflected ------------------------------------------------
static uint32_t crc_table[256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void fill_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
        crc_table[i] = c;
    }
}

static uint32_t crc32c_table(uint32_t c, const unsigned char *p, size_t n) {
    pthread_once(&crc_once, fill_crc_table);
    for (; n; n--, p++) c = crc_table[(c ^ *p) & 255] ^ c >> 8;
    return c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(uint32_t c, const unsigned char *p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        c = (uint32_t)__builtin_ia32_crc32di(c, v);
    }
    for (; n; n--, p++) c = __builtin_ia32_crc32qi(c, *p);
    return c;
}
#endif

uint32_t dt_crc32c(uint32_t crc, const void *data, size_t n_bytes) {
    uint32_t c = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~crc32c_sse(c, data, n_bytes);
#endif
    return ~crc32c_table(c, data, n_bytes);
}
