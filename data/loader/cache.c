// cache.c: entries in a file, filled by whoever reads them first.
//
// Every cache is a file in memory, mapped: a head, a word an entry, and data. ram has no name (memfd); shared is
// /dev/shm/dtrain-<uid>-<key>, a name that goes when the last process has come.
//
// A word is EMPTY, FILLING, or says where the bytes lie. Who has just read an entry writes its bytes, then
// publishes the word; all others find it or read for themselves. So nobody waits, and a filler that dies
// leaves one entry that is never kept, nothing else. Bytes are checked before they come here.
//
// Memory order, among threads and processes: the word's release, behind the pwrite, publishes the bytes to the acquire of
// cache_word_of; bytes never change afterwards. The head's constants are published by the lock of byte 0, its counters
// are atomics that nothing hangs on.
//
// Bytes are written by pwrite, so a full /dev/shm (64 MiB in most containers) is an error at that place and no SIGBUS
// later. The memory of head and words is reserved first. Room for an entry is taken from the head's counter; what does
// not fit any more makes the cache full, and it stays so.
//
// Locks are OFD locks, which the kernel drops with the process. Byte 0 says who is alive: shared by all who
// use the file, exclusive while somebody makes or removes it. Whoever gets it exclusively is alone: makes the file, and
// removes all shared caches that nobody holds. A maker that dies half-way leaves a file without its head; who attaches
// sees that, lets go, and tries again, now as the maker. A file whose last link is gone is not used.
//
// Rejected: eviction (an epoch reads every record once, so by the time a record is wanted again LRU has just
// dropped it; any fixed part of the set gives its share of hits); pids in the file (pids are reused).
#define _GNU_SOURCE // memfd
#include "data_parts.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "store/blob_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    ALIGN = 64,
    MEMORY_STEP = 4 << 20, // auto: how often free memory is looked at, as that takes longer than to keep an entry
    KEEP_MEMORY_SHARE = 4  // auto: 1/4 of the memory stays free
};
#define MAGIC       UINT64_C(0x3330686361637464) // "dtcach03"
#define EMPTY       UINT64_C(0)
#define FILLING     UINT64_C(1)
#define FIRST_PLACE UINT64_C(2) // word = place + 2

typedef struct head {
    uint64_t magic, key, n_entries;
    _Atomic uint64_t n_taken; // bytes of data handed out
    _Atomic uint64_t n_kept, n_bytes, n_attached;
} head;

struct dt_cache {
    dt_cache_opts o;
    int fd;
    char *path;
    uint8_t *map;
    head *head;              // of the map
    _Atomic uint64_t *words; // of the map, by entry
    uint64_t cap_bytes, data_at;
    _Atomic bool full;
};

static dt_status write_at(dt_cache *c, const void *p, size_t n, uint64_t at) {
    return dt_io_pwrite(c->fd, c->path, p, n, (off_t)at);
}

// ---- room ------------------------------------------------------------------------------------------
static bool cache_is_short(uint64_t more) {
    dt_memory m;
    dt_memory_read(&m);
    return m.total_bytes > 0 && m.available_bytes < m.total_bytes / KEEP_MEMORY_SHARE + more;
}

// Where n bytes of the data are for this entry alone; false: the cache is full.
static bool cache_take(dt_cache *c, uint64_t n, uint64_t *at) {
    *at = c->head->n_taken; // by any process: the map is shared
    do {
        const bool looks = c->o.cap_bytes == 0 && (*at == 0 || *at % MEMORY_STEP + n >= MEMORY_STEP);
        if (c->full || *at > c->cap_bytes || n > c->cap_bytes - *at || (looks && cache_is_short(n))) {
            c->full = true;
            return false;
        }
    } while (!atomic_compare_exchange_weak(&c->head->n_taken, at, *at + n));
    return true;
}

// ---- entries ---------------------------------------------------------------------------------------
static uint64_t cache_word_of(const dt_cache *c, uint32_t entry) {
    return atomic_load_explicit(&c->words[entry], memory_order_acquire);
}

bool dt_cache_has(const dt_cache *c, uint32_t entry) {
    return cache_word_of(c, entry) >= FIRST_PLACE;
}

const uint8_t *dt_cache_find(const dt_cache *c, uint32_t entry) {
    const uint64_t word = cache_word_of(c, entry);
    return word >= FIRST_PLACE ? c->map + c->data_at + (word - FIRST_PLACE) : NULL;
}

void dt_cache_store(dt_cache *c, uint32_t entry, const void *bytes, size_t n_bytes) {
    uint64_t at, empty = EMPTY;
    // another thread has it, or stores it now
    if (!atomic_compare_exchange_strong(&c->words[entry], &empty, FILLING)) return;
    bool kept = cache_take(c, dt_align_up(n_bytes, ALIGN), &at);
    dt_status st = kept ? write_at(c, bytes, n_bytes, c->data_at + at) : DT_OK;
    kept = kept && st == DT_OK;
    if (kept) { // counted before others find it
        c->head->n_kept++;
        c->head->n_bytes += n_bytes;
    }
    atomic_store_explicit(&c->words[entry], kept ? at + FIRST_PLACE : EMPTY, memory_order_release);
    if (st != DT_OK && !atomic_exchange(&c->full, true))
        dt_warn("%s: the cache stays as it is%s", dt_error_message(),
                c->o.kind == DT_CACHE_shared ? " (containers: --shm-size)" : "");
}

void dt_cache_get_stats(const dt_cache *c, dt_cache_stats *out) {
    *out = (dt_cache_stats){.kind = c->o.kind,
                            .n_entries = c->head->n_kept,
                            .n_bytes = c->head->n_bytes,
                            .cap_bytes = c->cap_bytes,
                            .full = c->full};
}

// ---- files of others -------------------------------------------------------------------------------
// Shared caches of the same user that are left over.
static void remove_others(const dt_cache *c) {
    dt_used_file *others = NULL;
    size_t n = 0;
    int n_removed = 0;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "/dev/shm/dtrain-%u-", (unsigned)geteuid());
    if (dt_used_files_add(&others, &n, "/dev/shm") != DT_OK) dt_error_clear();
    for (size_t i = 0; i < n; i++) {
        const char *path = others[i].path;
        if (strcmp(path, c->path) == 0 || strncmp(path, prefix, strlen(prefix)) != 0) continue;
        int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        n_removed += fd >= 0 && dt_io_lock_byte(fd, 0, F_WRLCK, false) && unlink(path) == 0;
        if (fd >= 0) close(fd);
    }
    dt_used_files_free(others, n);
    if (n_removed > 0) dt_info("removed %d shared cache%s of jobs that died", n_removed, n_removed == 1 ? "" : "s");
}

// ---- opening ---------------------------------------------------------------------------------------
static dt_status no_file(const dt_cache *c, const char *what) {
    return dt_fail(DT_E_STORAGE, "%s: cannot %s: %s", c->path, what, strerror(errno));
}

static dt_status make_file(dt_cache *c) {
    const head h = {.magic = MAGIC, .key = c->o.key, .n_entries = c->o.n_entries};
    if (ftruncate(c->fd, 0) != 0 || ftruncate(c->fd, (off_t)(c->data_at + c->cap_bytes)) != 0)
        return no_file(c, "size");
    DT_TRY(dt_io_reserve(c->fd, c->path, 0, (off_t)c->data_at));
    return write_at(c, &h, sizeof h, 0); // last: what has no head is not whole
}

// One try, with the lock of byte 0 shared in the end. *again: another process was faster, or died.
static dt_status cache_open_file(dt_cache *c, bool *again) {
    struct stat st;
    head h = {0};
    c->fd = open(c->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (c->fd < 0) return no_file(c, "open");
    if (fstat(c->fd, &st) != 0) return no_file(c, "look at"); // of the open file: the name may lead elsewhere by now
    // others of this host may not plant one for us
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return dt_fail(DT_E_STORAGE, "%s: belongs to someone else: remove it", c->path);
    bool alone = dt_io_lock_byte(c->fd, 0, F_WRLCK, false);
    if (!alone && !dt_io_lock_byte(c->fd, 0, F_RDLCK, true)) return no_file(c, "lock");
    bool linked = fstat(c->fd, &st) == 0 && st.st_nlink > 0;
    bool whole = linked && pread(c->fd, &h, sizeof h, 0) == sizeof h && h.magic == MAGIC && h.key == c->o.key &&
                 h.n_entries == c->o.n_entries;
    *again = !linked || (!whole && !alone);
    if (*again) return DT_OK;
    if (alone && make_file(c) != DT_OK) {
        unlink(c->path);
        return DT_E_STORAGE;
    }
    if (alone) remove_others(c);
    dt_io_lock_byte(c->fd, 0, F_RDLCK, false); // from ours alone to shared: in one step
    return DT_OK;
}

static dt_status open_named(dt_cache *c) {
    enum { MAX_TRIES = 1000 };
    char hex[17];
    dt_hash_hex(c->o.key, hex);
    c->path = dt_xprintf("/dev/shm/dtrain-%u-%s", (unsigned)geteuid(), hex);
    for (int i = 0; i < MAX_TRIES; i++) {
        bool again = false;
        DT_TRY(cache_open_file(c, &again));
        if (!again) return DT_OK;
        close(c->fd);
        c->fd = -1;
        usleep(1000);
    }
    return dt_fail(DT_E_STORAGE, "%s: is made and removed by others all the time", c->path);
}

static dt_status cache_map_file(dt_cache *c) {
    void *p = mmap(NULL, c->data_at + c->cap_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (p == MAP_FAILED) return no_file(c, "map");
    c->map = p;
    c->words = (_Atomic uint64_t *)(void *)(c->map + PAGE);
    c->head = p;
    uint64_t n_attached = ++c->head->n_attached;
    if (c->o.kind == DT_CACHE_shared && n_attached >= (uint64_t)c->o.n_processes) unlink(c->path);
    return DT_OK;
}

dt_status dt_cache_open(dt_cache **out, const dt_cache_opts *o) {
    dt_cache *c = dt_xcalloc(1, sizeof *c);
    *out = NULL;
    c->o = *o;
    c->fd = -1;
    const uint64_t all = o->total_bytes + (uint64_t)o->n_entries * ALIGN;
    c->cap_bytes = dt_align_up(o->cap_bytes > 0 && o->cap_bytes < all ? o->cap_bytes : all, PAGE);
    c->data_at = dt_align_up(PAGE + (uint64_t)o->n_entries * sizeof *c->words, PAGE);
    dt_status st;
    if (o->kind == DT_CACHE_ram) {
        c->path = dt_xstrdup("data.cache: ram");
        c->fd = memfd_create("dtrain-cache", MFD_CLOEXEC);
        st = c->fd < 0 ? no_file(c, "get memory") : make_file(c);
    } else
        st = open_named(c);
    if (st == DT_OK) st = cache_map_file(c);
    if (st != DT_OK) {
        dt_cache_close(c);
        return st;
    }
    *out = c;
    return DT_OK;
}

// The name of a shared one goes with the last process, should it still be there.
void dt_cache_close(dt_cache *c) {
    if (!c) return;
    struct stat st;
    if (c->map) munmap(c->map, c->data_at + c->cap_bytes);
    if (c->map && c->o.kind == DT_CACHE_shared) {
        dt_io_lock_byte(c->fd, 0, F_UNLCK, false); // then exclusively, which succeeds for the last process alone
        if (dt_io_lock_byte(c->fd, 0, F_WRLCK, false) && fstat(c->fd, &st) == 0 && st.st_nlink > 0) unlink(c->path);
    }
    if (c->fd >= 0) close(c->fd);
    free(c->path);
    free(c);
}
