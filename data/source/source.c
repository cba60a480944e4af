// source.c: opening data files and reading members of records.
//
// A path is expanded to shards, each shard goes to the first driver that accepts it, and the driver
// appends rows to one catalog. From then on nobody asks what kind of file it was: a member is `size`
// bytes at `offset` of a shard, read with pread (blob.c says why not a map), and its hash is checked
// before anyone decodes it.
//
// Descriptors: the first 512 shards keep theirs, opened at first use; of a larger set (a folder has a
// shard for each file) the rest are opened and closed around the read, which costs 3 us.
#include "source.h"
#include "blob.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const dt_source_driver *const DRIVERS[] = {&dt_source_lmdb, &dt_source_wds,
                                                  &dt_source_folder};
enum { N_DRIVERS = sizeof DRIVERS / sizeof *DRIVERS, MAX_KEPT = 512, MAX_SHARDS = 1000000 };

// ---- names of shards -----------------------------------------------------------------------------
static void push_string(char ***list, size_t *n, char *s) {
    if ((*n & (*n - 1)) == 0) *list = dt_xrealloc(*list, (*n ? *n * 2 : 1) * sizeof **list);
    (*list)[(*n)++] = s;
}

static dt_status expand_one(const char *text, char ***out, size_t *n) {
    const char *open = strchr(text, '{');
    if (!open) {
        push_string(out, n, dt_xstrdup(text));
        return DT_OK;
    }
    unsigned long long first, last;
    int n_first = 0, n_all = 0;
    if (!isdigit((unsigned char)open[1]) ||
        sscanf(open, "{%llu%n..%llu}%n", &first, &n_first, &last, &n_all) != 2 || n_all == 0 ||
        last < first || last - first >= MAX_SHARDS)
        return dt_fail(DT_E_USAGE,
                       "%s: a brace pattern looks like name-{000000..000127}.tar, ascending", text);
    dt_status st = DT_OK;
    for (unsigned long long i = first; i <= last && st == DT_OK; i++) {
        char *s =
            dt_xprintf("%.*s%0*llu%s", (int)(open - text), text, n_first - 1, i, open + n_all);
        st = expand_one(s, out, n);
        free(s);
    }
    return st;
}

dt_status dt_expand_shards(const char *pattern, char ***out, size_t *n) {
    char *copy = dt_xstrdup(pattern), *at = copy;
    dt_status st = DT_OK;
    *out = NULL;
    *n = 0;
    while (at && st == DT_OK) {
        char *next = strstr(at, "::");
        if (next) *next = '\0';
        st = expand_one(at, out, n);
        at = next ? next + 2 : NULL;
    }
    free(copy);
    if (st != DT_OK) {
        dt_io_free_list(*out, *n);
        *out = NULL;
        *n = 0;
    }
    return st;
}

bool dt_split_key(const char *path, size_t *n_key, char *ext, size_t cap_ext) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strchr(base, '.');
    if (!dot || dot == base || !dot[1] || strlen(dot + 1) >= cap_ext) return false;
    size_t n_base = (size_t)(dot - base);
    bool dunder = !slash && n_base >= 4 && !strncmp(base, "__", 2) && !strncmp(dot - 2, "__", 2);
    if (dunder) return false;
    *n_key = (size_t)(dot - path);
    size_t i = 0;
    for (; dot[1 + i]; i++) ext[i] = (char)tolower((unsigned char)dot[1 + i]);
    ext[i] = '\0';
    return true;
}

// ---- opening -------------------------------------------------------------------------------------
static dt_status load_path(dt_set *s, const char *path) {
    if (!dt_io_exists(path))
        return dt_fail(DT_E_DATA,
                       "%s: no such data set; make it with `dtrain pack`, or correct data.path",
                       path);
    for (int i = 0; i < N_DRIVERS; i++) {
        if (!DRIVERS[i]->accepts(path)) continue;
        s->kind = DRIVERS[i]->name;
        return DRIVERS[i]->load(s->catalog, path);
    }
    return dt_fail(DT_E_DATA, "%s: neither LMDB nor tar nor a folder", path);
}

dt_status dt_set_open(dt_set **out, const char *const *paths, size_t n_paths) {
    dt_set *s = dt_xcalloc(1, sizeof *s);
    dt_status st = DT_OK;
    *out = NULL;
    s->catalog = dt_catalog_create();
    for (size_t i = 0; i < n_paths && st == DT_OK; i++) {
        char **shards = NULL;
        size_t n = 0;
        st = dt_expand_shards(paths[i], &shards, &n);
        for (size_t k = 0; k < n && st == DT_OK; k++) st = load_path(s, shards[k]);
        dt_io_free_list(shards, n);
    }
    if (st == DT_OK && s->catalog->n_records == 0)
        st = dt_fail(DT_E_DATA, "%s: holds no records", n_paths ? paths[0] : "data.path");
    dt_catalog_finish(s->catalog);
    s->fds = dt_xcalloc(s->catalog->n_shards + 1, sizeof *s->fds);
    for (uint32_t i = 0; i < s->catalog->n_shards; i++) s->fds[i] = -1;
    if (st != DT_OK) {
        dt_set_close(s);
        return st;
    }
    *out = s;
    return DT_OK;
}

void dt_set_close(dt_set *s) {
    if (!s) return;
    for (uint32_t i = 0; s->fds && i < s->catalog->n_shards; i++)
        if (s->fds[i] >= 0) close(s->fds[i]);
    free(s->fds);
    dt_catalog_destroy(s->catalog);
    free(s);
}

// ---- reading -------------------------------------------------------------------------------------
dt_status dt_set_context(const dt_set *s, uint32_t record, uint32_t member, dt_status code) {
    const dt_catalog *c = s->catalog;
    const dt_record *r = &c->records[record];
    const dt_member *m = &c->members[member];
    return dt_fail_context(code, "%s: record %s, member %s (%llu bytes at offset %llu)",
                           c->shards[r->shard].path, dt_catalog_str(c, r->key),
                           dt_catalog_str(c, c->exts[m->ext]), (unsigned long long)m->size,
                           (unsigned long long)m->offset);
}

// Two threads may open the same shard at once: the loser closes its own.
static dt_status shard_fd(dt_set *s, uint32_t shard, int *fd, bool *keep) {
    int have = __atomic_load_n(&s->fds[shard], __ATOMIC_ACQUIRE);
    *keep = shard < MAX_KEPT;
    if (have >= 0) {
        *fd = have;
        return DT_OK;
    }
    *fd = open(s->catalog->shards[shard].path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return dt_fail(DT_E_DATA, "cannot open: %s", strerror(errno));
    int expected = -1;
    if (*keep && !__atomic_compare_exchange_n(&s->fds[shard], &expected, *fd, false,
                                              __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        close(*fd);
        *fd = expected;
    }
    return DT_OK;
}

static dt_status read_bytes(dt_set *s, uint32_t shard, const dt_member *m, dt_buffer *scratch) {
    int fd;
    bool keep;
    uint8_t *data = dt_buffer_reserve(scratch, m->size ? m->size : 1);
    if (!data) return dt_fail(DT_E_INTERNAL, "out of memory");
    DT_TRY(shard_fd(s, shard, &fd, &keep));
    dt_status st =
        dt_io_pread(fd, s->catalog->shards[shard].path, data, m->size, (off_t)m->offset, DT_E_DATA);
    if (!keep) close(fd);
    return st;
}

dt_status dt_set_read(dt_set *s, uint32_t record, uint32_t member, bool verify, dt_buffer *scratch,
                      dt_span *out) {
    const dt_member *m = &s->catalog->members[member];
    dt_status st = read_bytes(s, s->catalog->records[record].shard, m, scratch);
    if (st == DT_OK && m->size == 0) st = dt_fail(DT_E_DATA, "it is empty");
    if (st == DT_OK && verify && m->has_hash && dt_hash64(scratch->data, m->size) != m->hash)
        st = dt_fail(DT_E_DATA,
                     "its bytes are not those that were packed (XXH3 differs): the file was "
                     "changed or the disk is bad; copy or pack it again");
    if (st != DT_OK) return dt_set_context(s, record, member, st);
    *out = (dt_span){scratch->data, m->size};
    return DT_OK;
}
