// hash_avx2.c: XXH3-64 compiled for AVX2: the same values, 2.5 times as fast as the library's build, which
// must run on every x86-64 (43 against 17 GB/s of bytes in L2). Records are hashed whenever they are read, so
// it shows. Compiled with -mavx2 (CMakeLists.txt); hash.c asks the CPU before it calls.
//
// Copying and hashing at once. Each byte of the source is loaded once, to registers, from where it goes into
// the hash and into a KiB that stays in L1; from that the destination is written past the cache. So what
// was hashed is what was written, even if somebody writes to the source meanwhile. Loads reach 2 KiB
// ahead: the CPU's own prefetching ends with each page, and that alone is 8 against 11 GB/s. Ordinary
// stores, which read each line of the destination first, make 8. The inner loop is XXH3's on whole blocks of
// 1 KiB (its specification: 16 stripes of 64 bytes, then a scramble); the library does beginning and end.
#include "base/hash_avx2.h"

#if defined(__AVX2__)
#define XXH_STATIC_LINKING_ONLY // the state's fields
#define XXH_INLINE_ALL          // this file's own copy
#include <immintrin.h>
#include <string.h>
#include <xxhash.h>

const bool hash_avx2_is_built = true;

uint64_t hash_avx2(const void *data, size_t n_bytes) {
    return XXH3_64bits(data, n_bytes);
}

void *hash_avx2_create(void) {
    XXH3_state_t *s = XXH3_createState();
    if (s) XXH3_64bits_reset(s);
    return s;
}

void hash_avx2_reset(void *state) {
    XXH3_64bits_reset(state);
}

void hash_avx2_update(void *state, const void *data, size_t n_bytes) {
    XXH3_64bits_update(state, data, n_bytes);
}

uint64_t hash_avx2_digest(const void *state) {
    return XXH3_64bits_digest(state);
}

void hash_avx2_destroy(void *state) {
    XXH3_freeState(state);
}

enum { STRIPE = 64, BLOCK = 1024, LINE = 64, AHEAD_BYTES = 2048 };

static inline __m256i load(const void *p) {
    return _mm256_loadu_si256(p);
}

// Half a stripe: what is added to its four lanes.
static inline __m256i stripe_half(__m256i data, const uint8_t *secret) {
    __m256i key = _mm256_xor_si256(data, load(secret));
    __m256i product = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));
    return _mm256_add_epi64(product, _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2)));
}

static inline __m256i scramble(__m256i a, const uint8_t *secret) {
    const __m256i prime = _mm256_set1_epi64x(XXH_PRIME32_1);
    a = _mm256_xor_si256(a, _mm256_srli_epi64(a, 47));
    a = _mm256_xor_si256(a, load(secret));
    __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(a, prime), _mm256_slli_epi64(high, 32));
}

// One block into the hash and to `to`, which is aligned.
static inline void take_block(__m256i lanes[2], const uint8_t *secret, const uint8_t *src,
                              uint8_t *to) {
    for (int i = 0; i < BLOCK / STRIPE; i++) {
        const uint8_t *s = src + STRIPE * i;
        _mm_prefetch(s + AHEAD_BYTES, _MM_HINT_T0);
        __m256i low = load(s), high = load(s + 32);
        _mm256_store_si256((__m256i *)(to + STRIPE * i), low);
        _mm256_store_si256((__m256i *)(to + STRIPE * i + 32), high);
        lanes[0] = _mm256_add_epi64(lanes[0], stripe_half(low, secret + 8 * i));
        lanes[1] = _mm256_add_epi64(lanes[1], stripe_half(high, secret + 8 * i + 32));
    }
    lanes[0] = scramble(lanes[0], secret + XXH3_SECRET_DEFAULT_SIZE - STRIPE);
    lanes[1] = scramble(lanes[1], secret + XXH3_SECRET_DEFAULT_SIZE - STRIPE + 32);
}

// Past the cache but for what is no whole line.
static inline void put(uint8_t *to, const uint8_t *from, size_t n) {
    size_t first = -(uintptr_t)to % LINE;
    if (first > n) first = n;
    if (first > 0) memcpy(to, from, first);
    to += first, from += first, n -= first;
    for (; n >= LINE; n -= LINE, to += LINE, from += LINE) {
        _mm256_stream_si256((__m256i *)to, load(from));
        _mm256_stream_si256((__m256i *)(to + 32), load(from + 32));
    }
    if (n > 0) memcpy(to, from, n);
}

uint64_t hash_avx2_copy(const uint8_t *src, uint8_t *head, size_t n_head, uint8_t *dst,
                        size_t n_bytes) {
    // bytes that wait for the rest of their line; then a block, or what is left at the end
    _Alignas(64) uint8_t buffer[LINE + 2 * BLOCK], *block = buffer + LINE;
    size_t n = n_head + n_bytes, at = 0, n_put = 0; // bytes of the record taken, of dst written
    XXH3_state_t s;
    XXH3_INITSTATE(&s);
    XXH3_64bits_reset(&s);
    __m256i lanes[2] = {load(s.acc), load(s.acc + 4)};
    while (at < n) {
        bool whole = n - at >= 2 * BLOCK; // the library wants the last stripes itself
        size_t m = whole ? (size_t)BLOCK : n - at;
        if (whole)
            take_block(lanes, s.extSecret, src + at, block);
        else
            memcpy(block, src + at, m);
        if (at < n_head) memcpy(head + at, block, n_head - at < m ? n_head - at : m);
        if (at + m > n_head) {
            size_t end = at + m - n_head; // of dst, as far as it is there
            if (whole)
                end -=
                    (uintptr_t)(dst + end) % LINE < end - n_put ? (uintptr_t)(dst + end) % LINE : 0;
            put(dst + n_put, block + n_put + n_head - at, end - n_put);
            n_put = end;
        }
        at += m;
        if (whole) {
            memcpy(buffer, block + BLOCK - LINE, LINE);
            s.totalLen = at;
            continue;
        }
        _mm256_storeu_si256((__m256i *)s.acc, lanes[0]);
        _mm256_storeu_si256((__m256i *)(s.acc + 4), lanes[1]);
        XXH3_64bits_update(&s, block, m);
    }
    _mm_sfence();
    return XXH3_64bits_digest(&s);
}
#else
const bool hash_avx2_is_built = false;
uint64_t hash_avx2(const void *data, size_t n_bytes) {
    return 0;
}
void *hash_avx2_create(void) {
    return NULL;
}
void hash_avx2_reset(void *state) {}
void hash_avx2_update(void *state, const void *data, size_t n_bytes) {}
uint64_t hash_avx2_digest(const void *state) {
    return 0;
}
void hash_avx2_destroy(void *state) {}
uint64_t hash_avx2_copy(const uint8_t *src, uint8_t *head, size_t n_head, uint8_t *dst,
                        size_t n_bytes) {
    return 0;
}
#endif
