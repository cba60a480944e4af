// cache_room.c: see cache_room.h.
#include "cache_room.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { KEEP_SHARE = 10 }; // a tenth of the disk

// ---- files of a folder -----------------------------------------------------------------------------

static int compare_used(const void *pa, const void *pb) {
    const dt_used_file *a = pa, *b = pb;
    if (a->used.tv_sec != b->used.tv_sec) return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    return (a->used.tv_nsec > b->used.tv_nsec) - (a->used.tv_nsec < b->used.tv_nsec);
}

dt_status dt_used_files_add(dt_used_file **out, size_t *n, const char *folder) {
    char **names;
    size_t n_names;
    DT_TRY(dt_io_list_dir(&names, &n_names, folder, DT_E_STORAGE));
    for (size_t i = 0; i < n_names; i++) {
        char *path = dt_xprintf("%s/%s", folder, names[i]);
        struct stat s;
        if (lstat(path, &s) != 0 || !S_ISREG(s.st_mode)) {
            free(path);
            continue;
        }
        const uint64_t size = (uint64_t)s.st_size, stored = (uint64_t)s.st_blocks * 512;
        *out = dt_xgrow(*out, *n, sizeof **out);
        (*out)[(*n)++] = (dt_used_file){path, size < stored ? size : stored, s.st_mtim};
    }
    dt_io_free_list(names, n_names);
    return DT_OK;
}

void dt_used_files_sort(dt_used_file *files, size_t n) {
    if (n > 0) qsort(files, n, sizeof *files, compare_used);
}

void dt_used_files_free(dt_used_file *files, size_t n) {
    for (size_t i = 0; i < n; i++) free(files[i].path);
    free(files);
}

// ---- the host's cache ------------------------------------------------------------------------------

int dt_cache_hold(const char *path, int flags) {
    for (;;) {
        struct stat s;
        const int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) return -1;
        int rc;
        do rc = flock(fd, LOCK_SH);
        while (rc != 0 && errno == EINTR);
        const bool held = rc == 0 && fstat(fd, &s) == 0;
        if (held && s.st_nlink > 0) {
            futimens(fd, (struct timespec[2]){{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}});
            return fd;
        }
        const int error = errno;
        close(fd);
        errno = error;
        if (!held) return -1;
    }
}

int dt_cache_lock(const char *path, off_t first, uint32_t n, double wait_s) {
    const double begin = dt_clock_s();
    const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    for (uint32_t i = 0; i < n && fd >= 0; i++)
        for (useconds_t pause_us = 500; !dt_io_lock_byte(fd, first + i, F_WRLCK, false);
             pause_us = pause_us < 8000 ? 2 * pause_us : 8000) {
            if ((errno == EAGAIN || errno == EACCES) && dt_clock_s() - begin < wait_s) {
                usleep(pause_us);
                continue;
            }
            close(fd);
            return -1;
        }
    return fd;
}

// Not what belongs to another file, or to all.
static bool cache_room_counts(const char *path) {
    return !dt_text_ends(path, ".index|/lock");
}

// Removes a file that nobody holds, and the index beside it. false: in use, or gone already.
static bool evict(const char *path) {
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat s; // no links: another process removed it, and a third may have made it anew
    const bool gone =
        fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &s) == 0 && s.st_nlink > 0 && unlink(path) == 0;
    if (gone) {
        char *index = dt_xprintf("%s.index", path);
        unlink(index);
        free(index);
    }
    if (fd >= 0) close(fd);
    return gone;
}

static bool cache_room_is_short(const char *dir, uint64_t n_bytes) {
    struct statvfs v;
    return statvfs(dir, &v) == 0 &&
           (uint64_t)v.f_bavail * v.f_frsize < (uint64_t)v.f_blocks * v.f_frsize / KEEP_SHARE + n_bytes;
}

bool dt_cache_room(const char *dir, uint64_t max_bytes, uint64_t n_bytes, bool spare) {
    static const char *const FOLDERS[] = {DT_CACHE_UNPACKED, DT_CACHE_OBJECTS, DT_CACHE_INDEXES};
    dt_used_file *files = NULL;
    size_t n = 0;
    uint64_t total = 0;
    if (max_bytes == 0) max_bytes = DT_CACHE_AUTO_BYTES;
    for (int i = 0; i < 3; i++) {
        char *folder = dt_xprintf("%s%s", dir, FOLDERS[i]);
        if (dt_used_files_add(&files, &n, folder) != DT_OK) dt_error_clear(); // none yet
        free(folder);
    }
    dt_used_files_sort(files, n);
    for (size_t i = 0; i < n; i++) total += cache_room_counts(files[i].path) ? files[i].n_bytes : 0;
    bool room = false;
    for (size_t i = 0; !room; i++) {
        room = total + n_bytes <= max_bytes && !(spare && cache_room_is_short(dir, n_bytes));
        if (room || i == n) break;
        if (cache_room_counts(files[i].path) && evict(files[i].path)) total -= files[i].n_bytes;
    }
    dt_used_files_free(files, n);
    return room;
}
