// shard_map.c: maps of shards, kept, and filled in pieces of 2 MiB.
//
// A read makes the kernel copy, and its copy (`rep movsb`, a page or a few at a time) is slower than memory;
// a hash behind it comes on top. Of a map both are one loop (dt_hash_copy): 1.7 times as fast as a read
// alone, where a read and a hash make 0.8. What made maps unfit for data sets, and what is done about it:
//
//   a file that is cut, or a disk or server that fails, is a SIGBUS     the loop runs in a guard (base/guard.h)
//   a page that is cut off in the middle reads as zeros                 only bytes whose hash is known go
//                                                                      this way; the caller compares
//   neither says what is wrong                                          then the caller reads as ever, and
//                                                                      the read says it
//   pages that are not in the cache are faults, each a wait             the caller comes only while its own
//                                                                      reads do not wait (fetch.c)
//   first touches cost more than they save (0.6 us a page)              pieces of 2 MiB are made present at
//                                                                      once (MADV_POPULATE_READ: 0.3 us a
//                                                                      page), and stay: no page is ever dropped
//                                                                      (that, a record at a time or 64 MiB at
//                                                                      a time, makes 0.3 to 0.8 of a read)
//   mapped pages count as this process's memory                         max_bytes in all; the rest of a large
//                                                                      set is read. A piece is filled as soon as
//                                                                      it is touched, so that this number
//                                                                      stands still early in the first epoch
//   addresses are used up by whole shards, where they are limited     not where they are (ulimit -v)
//   file systems whose maps are not the page cache, or are slow         only those known to be well
//
// The kernel takes mapped pages back like others when memory is short; then they are faults again. A shard
// that is replaced stays what it was under the map, as under a descriptor; one that grows stays mapped as
// far as it was.
#include "shard_map.h"

#include "base/arena.h"
#include "base/guard.h"
#include "base/hash.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 // Linux 5.14
#endif

enum { PIECE_BITS = 21, MAX_MAPS = 4096 }; // a process may have 65530, and others need some

typedef enum piece_state { UNTOUCHED, TAKEN, PRESENT } piece_state; // TAKEN: being filled, or never

typedef struct shard_map {
    uint8_t *at;
    size_t n_bytes;
    uint8_t piece[]; // piece_state
} shard_map;

struct dt_shard_maps {
    uint32_t n_shards, n_maps;
    uint64_t max_bytes, n_bytes; // of pieces that are present
    shard_map *by_shard[];       // NULL: not asked for yet
};

static shard_map no_map; // of shards that are read

dt_shard_maps *dt_shard_maps_create(uint32_t n_shards, uint64_t max_bytes) {
    dt_shard_maps *m = dt_xcalloc(1, sizeof *m + n_shards * sizeof *m->by_shard);
    m->n_shards = n_shards;
    m->max_bytes = max_bytes;
    return m;
}

static void unmap(shard_map *s) {
    if (!s || s == &no_map) return;
    munmap(s->at, s->n_bytes);
    free(s);
}

void dt_shard_maps_destroy(dt_shard_maps *m) {
    if (!m) return;
    for (uint32_t i = 0; i < m->n_shards; i++) unmap(m->by_shard[i]);
    free(m);
}

uint64_t dt_shard_maps_bytes(const dt_shard_maps *m) {
    return __atomic_load_n(&m->n_bytes, __ATOMIC_RELAXED);
}

static bool is_local(int fd) {
    enum { EXT4 = 0xEF53, XFS = 0x58465342, TMPFS = 0x01021994 };
    static const unsigned BTRFS = 0x9123683E;
    struct statfs s;
    if (fstatfs(fd, &s) != 0) return false;
    unsigned type = (unsigned)s.f_type;
    return type == EXT4 || type == XFS || type == TMPFS || type == BTRFS;
}

// Then what a map takes is missing when memory is asked for, and that is the end of the process.
static bool are_addresses_limited(void) {
    struct rlimit r;
    return getrlimit(RLIMIT_AS, &r) != 0 || r.rlim_cur != RLIM_INFINITY;
}

static shard_map *map_file(int fd) {
    struct stat st;
    if (!dt_hash_can_copy() || are_addresses_limited() || !is_local(fd) || !dt_guard_arm() ||
        fstat(fd, &st) != 0 || st.st_size < DT_MAP_MIN_BYTES)
        return &no_map;
    size_t n = (size_t)st.st_size;
    if ((off_t)n != st.st_size) return &no_map;
    void *at = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return &no_map;
    shard_map *s = dt_xcalloc(1, sizeof *s + (n >> PIECE_BITS) + 1);
    s->at = at;
    s->n_bytes = n;
    return s;
}

typedef bool fd_source(void *ctx, uint32_t shard, int *fd, bool *keep);

// Two threads may map the same shard at once: the loser takes its own away.
static shard_map *find_map(dt_shard_maps *m, uint32_t shard, fd_source *get_fd, void *ctx) {
    shard_map *s = __atomic_load_n(&m->by_shard[shard], __ATOMIC_ACQUIRE);
    if (s) return s;
    int fd = -1;
    bool keep = true;
    s = &no_map;
    if (__atomic_load_n(&m->n_bytes, __ATOMIC_RELAXED) < m->max_bytes &&
        __atomic_load_n(&m->n_maps, __ATOMIC_RELAXED) < MAX_MAPS && get_fd(ctx, shard, &fd, &keep))
        s = map_file(fd);
    if (!keep && fd >= 0) close(fd);
    shard_map *expected = NULL;
    if (!__atomic_compare_exchange_n(&m->by_shard[shard], &expected, s, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        unmap(s);
        return expected;
    }
    if (s != &no_map) __atomic_fetch_add(&m->n_maps, 1, __ATOMIC_RELAXED);
    return s;
}

// Whether a piece is present, or can be made so now.
static bool fill_piece(dt_shard_maps *m, shard_map *s, size_t i) {
    uint8_t state = __atomic_load_n(&s->piece[i], __ATOMIC_RELAXED);
    if (state != UNTOUCHED) return state == PRESENT;
    if (!__atomic_compare_exchange_n(&s->piece[i], &state, TAKEN, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return false;
    size_t at = i << PIECE_BITS, n = s->n_bytes - at;
    if (n > (size_t)1 << PIECE_BITS) n = (size_t)1 << PIECE_BITS;
    uint64_t sum = __atomic_add_fetch(&m->n_bytes, n, __ATOMIC_RELAXED);
    // an error, and no SIGBUS, where the file has become shorter
    if (sum > m->max_bytes || madvise(s->at + at, n, MADV_POPULATE_READ) != 0) {
        __atomic_fetch_sub(&m->n_bytes, n, __ATOMIC_RELAXED);
        return false;
    }
    __atomic_store_n(&s->piece[i], PRESENT, __ATOMIC_RELAXED);
    return true;
}

typedef struct copying {
    const uint8_t *src;
    void *head, *dst;
    size_t n_head, n_bytes;
    uint64_t hash;
} copying;

static void copy(void *ctx) {
    copying *c = ctx;
    c->hash = dt_hash_copy(c->src, c->head, c->n_head, c->dst, c->n_bytes);
}

bool dt_shard_maps_copy(dt_shard_maps *m, uint32_t shard, uint64_t offset, void *head,
                        size_t n_head, void *dst, size_t n_bytes, uint64_t *hash, fd_source *get_fd,
                        void *ctx) {
    size_t n = n_head + n_bytes;
    if (n < DT_MAP_MIN_BYTES) return false;
    shard_map *s = find_map(m, shard, get_fd, ctx);
    if (offset > s->n_bytes || n > s->n_bytes - offset) return false;
    for (size_t i = (size_t)offset >> PIECE_BITS; i <= (size_t)(offset + n - 1) >> PIECE_BITS; i++)
        if (!fill_piece(m, s, i)) return false;
    copying c = {s->at + offset, head, dst, n_head, n_bytes, 0};
    if (!dt_guard_run(copy, &c, c.src, n)) return false;
    *hash = c.hash;
    return true;
}
