// cache_shared.c: memory that the processes of one user and host share by name, and that no crash leaves
// behind.
//
// The name is /dev/shm/dtrain-<uid>-<key>; who comes first makes it, the others attach, and the last one
// expected removes the name: from then on the kernel frees the memory when the last process ends, however
// it ends. Until then a lock says who is alive: each process holds a shared OFD lock on the file, which
// the kernel drops when the process dies. So "nobody holds it" is one question to the kernel, and answers
// both who makes the segment (who gets the lock for himself) and which ones are left over from a job that
// died in its first moments: those are removed when the next segment is opened.
//
// A maker that dies half-way leaves a segment without its mark; who attaches sees that, lets go, and
// tries again, now as the maker. A file whose last link is gone is never used.
//
// Rejected: pids in the segment (pids are reused), a robust mutex (waits for somebody), memfd (needs
// somebody to hand the descriptor over).
#define _GNU_SOURCE // OFD locks
#include "cache.h"

#include "base/hash.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *const FOLDER = "/dev/shm";
static const uint64_t MARK = 0x6474736567303176; // "dtseg01v"

static bool lock(int fd, short type, bool wait) {
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    int rc;
    do rc = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l);
    while (rc != 0 && errno == EINTR);
    return rc == 0;
}

static dt_status no_segment(const char *path, const char *what) {
    return dt_fail(DT_E_STORAGE, "%s: cannot %s: %s", path, what, strerror(errno));
}

// The file as it is now, ours alone: others of this host may not plant one for us.
static dt_status open_file(const char *path, int *fd) {
    struct stat st;
    *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*fd < 0) return no_segment(path, "create shared memory");
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        (st.st_mode & 077) == 0)
        return DT_OK;
    close(*fd);
    *fd = -1;
    return dt_fail(DT_E_STORAGE, "%s: belongs to someone else: remove it", path);
}

static bool is_linked(int fd, uint64_t *n_bytes) {
    struct stat st;
    bool yes = fstat(fd, &st) == 0 && st.st_nlink > 0;
    *n_bytes = yes ? (uint64_t)st.st_size : 0;
    return yes;
}

// With the lock for ourselves: an empty segment, its head backed by memory.
static dt_status make(dt_shm *s, size_t n_head_bytes) {
    if (ftruncate(s->fd, 0) != 0 || ftruncate(s->fd, (off_t)s->n_bytes) != 0)
        return no_segment(s->path, "size shared memory");
    return dt_io_reserve(s->fd, s->path, 0, (off_t)n_head_bytes);
}

static dt_status map(dt_shm *s) {
    void *p = mmap(NULL, s->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    s->memory = p == MAP_FAILED ? NULL : p;
    if (s->memory) return DT_OK;
    return no_segment(s->path, "map shared memory");
}

static uint64_t *mark_of(const dt_shm *s) {
    return (uint64_t *)(void *)s->memory;
}

// One try. *again: another process was faster, or died.
static dt_status attach(dt_shm *s, size_t n_head_bytes, bool *fresh, bool *again) {
    uint64_t n_bytes;
    *again = *fresh = false;
    DT_TRY(open_file(s->path, &s->fd));
    *fresh = lock(s->fd, F_WRLCK, false);
    if (!*fresh && !lock(s->fd, F_RDLCK, true)) return no_segment(s->path, "lock shared memory");
    *again = !is_linked(s->fd, &n_bytes) || (!*fresh && n_bytes != s->n_bytes);
    if (*again) return DT_OK;
    if (*fresh) DT_TRY(make(s, n_head_bytes));
    DT_TRY(map(s));
    *again = !*fresh && __atomic_load_n(mark_of(s), __ATOMIC_ACQUIRE) != MARK;
    return DT_OK;
}

dt_status dt_shm_open(dt_shm *s, uint64_t key, size_t n_bytes, size_t n_head_bytes, bool *fresh) {
    enum { MAX_TRIES = 1000 };
    char hex[17];
    *s = (dt_shm){.fd = -1, .n_bytes = n_bytes};
    dt_hash_hex(key, hex);
    snprintf(s->path, sizeof s->path, "%s/dtrain-%u-%s", FOLDER, (unsigned)geteuid(), hex);
    for (int i = 0; i < MAX_TRIES; i++) {
        bool again;
        dt_status st = attach(s, n_head_bytes, fresh, &again);
        if (st == DT_OK && !again) return DT_OK;
        if (st != DT_OK && *fresh && s->fd >= 0) unlink(s->path);
        dt_shm_close(s);
        if (st != DT_OK) return st;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return dt_fail(DT_E_STORAGE, "%s: is made and removed by others all the time", s->path);
}

void dt_shm_ready(dt_shm *s) {
    __atomic_store_n(mark_of(s), MARK, __ATOMIC_RELEASE);
    lock(s->fd, F_RDLCK, false); // from ours alone to shared: in one step
}

void dt_shm_unlink(dt_shm *s) {
    uint64_t n_bytes;
    if (is_linked(s->fd, &n_bytes)) unlink(s->path);
}

// The name goes with the last process, should it still be there.
void dt_shm_close(dt_shm *s) {
    if (s->memory) munmap(s->memory, s->n_bytes);
    if (s->fd >= 0) {
        lock(s->fd, F_UNLCK, false);
        if (lock(s->fd, F_WRLCK, false)) dt_shm_unlink(s);
        close(s->fd);
    }
    s->memory = NULL;
    s->fd = -1;
}

int dt_shm_remove_stale(void) {
    char prefix[64], path[320], **names = NULL;
    size_t n = 0;
    int n_removed = 0;
    if (dt_io_list_dir(&names, &n, FOLDER, DT_E_STORAGE) != DT_OK) return 0;
    snprintf(prefix, sizeof prefix, "dtrain-%u-", (unsigned)geteuid());
    for (size_t i = 0; i < n; i++) {
        if (strncmp(names[i], prefix, strlen(prefix)) != 0) continue;
        snprintf(path, sizeof path, "%s/%.255s", FOLDER, names[i]);
        int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        uint64_t n_bytes;
        if (fd >= 0 && lock(fd, F_WRLCK, false) && is_linked(fd, &n_bytes))
            n_removed += unlink(path) == 0;
        if (fd >= 0) close(fd);
    }
    dt_io_free_list(names, n);
    return n_removed;
}
