// pack_fetch.c: see pack_fetch.h. Many threads fetch, as each request waits for the network.
#include "pack_fetch.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "store/s3_objects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FETCHERS = 32 };

typedef struct fetching {
    const char *url, *dir;
    char **names; // of the objects, behind the URL
    size_t n;
    _Atomic size_t next;
    _Atomic int failed; // the first status that is none
    char message[1024]; // its
} fetching;

// An object may be named as no file can be, or as one outside of the folder.
static bool pack_fetch_is_path(const char *name) {
    char *slashed = dt_xprintf("/%s/", name);
    const bool ok = !strstr(slashed, "//") && !strstr(slashed, "/./") && !strstr(slashed, "/../");
    free(slashed);
    return ok;
}

static dt_status fetch_one(const fetching *f, const char *name) {
    if (dt_text_ends(name, "/")) return DT_OK; // it marks a folder
    char *url = dt_xprintf("%s%s", f->url, name), *path = dt_xprintf("%s/%s", f->dir, name);
    char *folder = dt_io_parent(path);
    dt_status st =
        pack_fetch_is_path(name) ? dt_io_mkdir_all(folder) : dt_fail(DT_E_DATA, "%s: no file can be named so", url);
    if (st == DT_OK) st = dt_s3_get(path, url);
    free(folder);
    free(path);
    free(url);
    return st;
}

static void fetch_some(void *arg, int index) {
    fetching *f = arg;
    for (size_t i; !f->failed && (i = f->next++) < f->n;) {
        int none = DT_OK;
        const dt_status st = fetch_one(f, f->names[i]);
        if (st != DT_OK && atomic_compare_exchange_strong(&f->failed, &none, st))
            snprintf(f->message, sizeof f->message, "%s", dt_error_message());
    }
}

// Waits until no other process has what it fetched of this URL, where the file system has locks. The lock goes with the
// process.
static dt_status lock_folder(const char *cache, const char *url, uint64_t key) {
    int fd;
    char *path = dt_xprintf("%s/packing.lock", cache);
    dt_status st = dt_io_mkdir_all(cache);
    if (st == DT_OK) st = dt_io_open_update(&fd, path);
    if (st == DT_OK && !dt_io_lock_byte(fd, (off_t)(key >> 2), F_WRLCK, false) &&
        (errno == EAGAIN || errno == EACCES)) {
        dt_info("%s: another process packs it: waiting", url);
        (void)dt_io_lock_byte(fd, (off_t)(key >> 2), F_WRLCK, true);
    }
    free(path);
    return st;
}

dt_status dt_cli_fetch_folder(char **out, const char *url) {
    char hex[17], *cache = dt_io_cache_folder(NULL, "");
    const uint64_t key = dt_hash64(url, strlen(url));
    if (!cache) return dt_fail(DT_E_STORAGE, "no home folder to fetch to: set XDG_CACHE_HOME");
    dt_hash_hex(key, hex);
    dt_status st = lock_folder(cache, url, key);
    if (st == DT_OK) *out = dt_xprintf("%s/packing/raw-%s", cache, hex);
    free(cache);
    DT_TRY(st);
    fetching f = {.url = url, .dir = *out};
    dt_team *team;
    if (dt_io_is_dir(*out)) DT_TRY(dt_io_remove_tree(*out)); // of a fetch that was killed
    st = dt_s3_list_below(&f.names, &f.n, url);
    if (st == DT_OK && f.n == 0) st = dt_fail(DT_E_DATA, "%s: there are no objects below it", url);
    if (st == DT_OK) dt_info("%s: fetching %zu objects to %s", url, f.n, *out);
    if (st == DT_OK) st = dt_team_create(&team, f.n < FETCHERS ? (int)f.n : FETCHERS, "dt-fetch");
    if (st == DT_OK) {
        dt_team_run(team, fetch_some, &f);
        dt_team_destroy(team);
        if (f.failed) st = dt_fail((dt_status)f.failed, "%s", f.message);
    }
    dt_io_free_list(f.names, f.n);
    return st;
}
