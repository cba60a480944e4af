// cache.c: entries in memory, filled by whoever reads them first.
//
// Memory is a head (counters), an index of one word an entry, and data. A word is EMPTY, FILLING, or
// says where the bytes lie. Who has just read an entry sets EMPTY to FILLING, copies, and publishes the
// place with release order; all others find the place or read for themselves. So nobody waits, and a
// filler that dies leaves one entry that is never kept, nothing else. Bytes are checked before they come
// here and are not checked again.
//
// Data is handed out in chunks: a process takes one from the shared counter and divides it among its
// threads, so that processes meet once in some megabytes. In shared memory the chunk is allocated there
// and then; a full /dev/shm (64 MiB in most containers) is an error at that place, not a SIGBUS later.
// When a chunk is refused the cache is full, and stays so.
//
// Rejected: eviction. An epoch reads every record once, so by the time a record is wanted again LRU has
// just dropped it; any fixed part of the set gives its share of hits.
#include "cache.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"
#include "base/machine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    PAGE = 4096,
    ALIGN = 64,
    MAX_CHUNK = 4 << 20,
    OWN_CHUNK = 8, // entries above 1/8 of a chunk get pages of their own
    KEEP_SHARE = 4 // auto: 1/4 of the memory stays free
};
#define EMPTY       UINT64_C(0)
#define FILLING     UINT64_C(1)
#define FIRST_PLACE UINT64_C(2) // word = place + 2

typedef struct head {
    uint64_t mark; // of the segment
    uint64_t taken, n_entries, n_bytes, n_attached;
    uint32_t full;
} head;

struct dt_cache {
    dt_cache_opts o;
    dt_cache_disk *disk; // or memory:
    head *head;
    uint64_t *index;
    uint8_t *data;
    uint64_t cap_bytes, chunk_bytes;
    size_t data_at, mapped_bytes;
    dt_shm segment;
    pthread_mutex_t lock; // of the chunk
    uint64_t at, end;
};

static uint64_t up(uint64_t v, uint64_t to) {
    return (v + to - 1) / to * to;
}

// ---- room ------------------------------------------------------------------------------------------
static bool memory_is_short(uint64_t more) {
    dt_memory m;
    dt_memory_read(&m);
    return m.total_bytes > 0 && m.available_bytes < m.total_bytes / KEEP_SHARE + more;
}

static void set_full(dt_cache *c) {
    __atomic_store_n(&c->head->full, 1, __ATOMIC_RELAXED);
}

// A piece of the data for this process alone; false: the cache is full.
static bool take_chunk(dt_cache *c, uint64_t n, uint64_t *at) {
    if (__atomic_load_n(&c->head->full, __ATOMIC_RELAXED)) return false;
    *at = __atomic_fetch_add(&c->head->taken, n, __ATOMIC_RELAXED);
    bool ok = *at + n <= c->cap_bytes && (c->o.cap_bytes > 0 || !memory_is_short(n));
    if (ok && c->o.kind == DT_CACHE_shared &&
        dt_io_reserve(c->segment.fd, c->segment.path, (off_t)(c->data_at + *at), (off_t)n) !=
            DT_OK) {
        dt_warn("%s: the cache stays as it is (containers: --shm-size)", dt_error_message());
        ok = false;
    }
    if (!ok) set_full(c);
    return ok;
}

static bool take(dt_cache *c, uint64_t n, uint64_t *at) {
    bool own = n > c->chunk_bytes / OWN_CHUNK, ok;
    if (own) return take_chunk(c, up(n, PAGE), at);
    pthread_mutex_lock(&c->lock);
    ok = c->at + n <= c->end;
    if (!ok && (ok = take_chunk(c, c->chunk_bytes, &c->at))) c->end = c->at + c->chunk_bytes;
    *at = c->at;
    if (ok) c->at += n;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

// ---- entries ---------------------------------------------------------------------------------------
const uint8_t *dt_cache_find(const dt_cache *c, uint32_t entry) {
    if (c->disk) return NULL;
    uint64_t word = __atomic_load_n(&c->index[entry], __ATOMIC_ACQUIRE);
    return word >= FIRST_PLACE ? c->data + (word - FIRST_PLACE) : NULL;
}

bool dt_cache_has(const dt_cache *c, uint32_t entry) {
    return c->disk ? dt_cache_disk_has(c->disk, entry) : dt_cache_find(c, entry) != NULL;
}

bool dt_cache_load(dt_cache *c, uint32_t entry, void *dst, size_t n_bytes) {
    return c->disk && dt_cache_disk_load(c->disk, entry, dst, n_bytes);
}

void dt_cache_store(dt_cache *c, uint32_t entry, const void *bytes, size_t n_bytes) {
    if (c->disk) {
        dt_cache_disk_store(c->disk, entry, bytes, n_bytes);
        return;
    }
    uint64_t empty = EMPTY, at;
    if (!__atomic_compare_exchange_n(&c->index[entry], &empty, FILLING, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return;
    if (!take(c, up(n_bytes, ALIGN), &at)) {
        __atomic_store_n(&c->index[entry], EMPTY, __ATOMIC_RELAXED);
        return;
    }
    memcpy(c->data + at, bytes, n_bytes);
    __atomic_fetch_add(&c->head->n_entries, 1, __ATOMIC_RELAXED); // before others find it
    __atomic_fetch_add(&c->head->n_bytes, n_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&c->index[entry], at + FIRST_PLACE, __ATOMIC_RELEASE);
}

void dt_cache_get_usage(const dt_cache *c, dt_cache_usage *out) {
    if (c->disk) {
        dt_cache_disk_get_usage(c->disk, out);
        return;
    }
    *out = (dt_cache_usage){.kind = c->o.kind,
                            .n_entries = __atomic_load_n(&c->head->n_entries, __ATOMIC_RELAXED),
                            .n_bytes = __atomic_load_n(&c->head->n_bytes, __ATOMIC_RELAXED),
                            .cap_bytes = c->cap_bytes,
                            .full = __atomic_load_n(&c->head->full, __ATOMIC_RELAXED) != 0};
}

// ---- opening ---------------------------------------------------------------------------------------
// Data: all entries and what is lost at the ends of chunks, or the limit.
static void lay_out(dt_cache *c) {
    const dt_cache_opts *o = &c->o;
    uint64_t processes = o->n_processes > 1 ? (uint64_t)o->n_processes : 1;
    uint64_t all = o->total_bytes + (uint64_t)o->n_entries * ALIGN;
    all += all / OWN_CHUNK + (processes + 1) * MAX_CHUNK;
    c->cap_bytes = up(o->cap_bytes > 0 && o->cap_bytes < all ? o->cap_bytes : all, PAGE);
    c->chunk_bytes = up(c->cap_bytes / 16, PAGE);
    if (c->chunk_bytes > MAX_CHUNK) c->chunk_bytes = MAX_CHUNK;
    c->data_at = up(PAGE + (uint64_t)o->n_entries * sizeof(uint64_t), PAGE);
    c->mapped_bytes = c->data_at + c->cap_bytes;
}

static dt_status open_shared(dt_cache *c) {
    bool fresh;
    int n = dt_shm_remove_stale();
    if (n > 0) dt_info("removed %d shared cache%s of jobs that died", n, n == 1 ? "" : "s");
    DT_TRY(dt_shm_open(&c->segment, c->o.key, c->mapped_bytes, c->data_at, &fresh));
    c->head = (head *)(void *)c->segment.memory;
    if (fresh) dt_shm_ready(&c->segment); // zeros are the right beginning
    uint64_t n_attached = __atomic_add_fetch(&c->head->n_attached, 1, __ATOMIC_RELAXED);
    if (n_attached >= (uint64_t)c->o.n_processes) dt_shm_unlink(&c->segment);
    return DT_OK;
}

static dt_status open_ram(dt_cache *c) {
    void *p = mmap(NULL, c->mapped_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return dt_fail(DT_E_STORAGE, "data.cache: no address space for %zu bytes", c->mapped_bytes);
    c->head = p;
    return DT_OK;
}

dt_status dt_cache_open(dt_cache **out, const dt_cache_opts *o) {
    dt_cache *c = dt_xcalloc(1, sizeof *c);
    dt_status st;
    *out = NULL;
    c->o = *o;
    c->segment.fd = -1;
    pthread_mutex_init(&c->lock, NULL);
    if (o->kind == DT_CACHE_disk) {
        st = dt_cache_disk_open(&c->disk, o);
    } else {
        lay_out(c);
        st = o->kind == DT_CACHE_shared ? open_shared(c) : open_ram(c);
    }
    if (st != DT_OK) {
        pthread_mutex_destroy(&c->lock);
        free(c);
        return st;
    }
    if (c->head) {
        c->index = (uint64_t *)(void *)((uint8_t *)c->head + PAGE);
        c->data = (uint8_t *)c->head + c->data_at;
    }
    *out = c;
    return DT_OK;
}

void dt_cache_close(dt_cache *c) {
    if (!c) return;
    if (c->disk)
        dt_cache_disk_close(c->disk);
    else if (c->o.kind == DT_CACHE_shared)
        dt_shm_close(&c->segment);
    else
        munmap(c->head, c->mapped_bytes);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
