// unpack.c: gzip and zstd shards.
//
// Training reads members in any order, and a compressed stream cannot be read at random. So a compressed shard
// is unpacked once, to <cache>/unpacked/<hash>-<name>. The hash is of path, size, time and stamp of the
// compressed file, so a shard that was replaced is unpacked anew. Then it is a file like any other:
// page cache, index beside it, pread.
//
// Many processes share the folder. Who unpacks a shard locks one byte of <cache>/unpacked/lock (the byte stands
// for the shard; byte locks work over NFS). The others wait for the lock and then find the whole file
// (dt_io_begin). Readers hold the file, and what nobody holds makes room (store/blob_cache.h).
//
// A decompression bomb ends at the cache's limit, and zstd windows over 128 MiB are refused.
//
// Rejected: seek points in gzip (zran), as each takes 32 KiB and each read of each epoch would inflate half the way
// between two. Unpacking into memory, as each process would need a copy.
// Formats: RFC 1952 (gzip), RFC 8878 (zstd), by zlib and libzstd.
#include "source_parts.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "store/blob_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { IN_BYTES = 1 << 18, OUT_BYTES = 1 << 20, ROOM_STEP = 64 << 20 };

dt_packing dt_packing_of(const uint8_t *head, size_t n_bytes) {
    if (n_bytes >= 3 && memcmp(head, "\x1f\x8b\x08", 3) == 0) return DT_PACKING_GZIP;
    if (n_bytes >= 4 && memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0) return DT_PACKING_ZSTD;
    return DT_PACKING_NONE;
}

// ---- streams -------------------------------------------------------------------------------------
typedef struct stream {
    const dt_blob *in;
    uint64_t at, n_out, max_bytes;
    uint8_t *from, *to; // IN_BYTES, OUT_BYTES
    dt_unpack_sink sink;
    void *arg;
} stream;

static dt_status unpack_damaged(const stream *s, const char *what) {
    return dt_fail(DT_E_DATA, "%s: near byte %llu: %s; copy or make it again", s->in->path, (unsigned long long)s->at,
                   what);
}

static dt_status unpack_pull(stream *s, size_t *n) {
    uint64_t left = s->in->n_bytes - s->at;
    *n = left < IN_BYTES ? (size_t)left : IN_BYTES;
    DT_TRY(dt_blob_read(s->in, s->at, s->from, *n));
    s->at += *n;
    return DT_OK;
}

static dt_status unpack_push(stream *s, size_t n) {
    s->n_out += n;
    if (s->n_out > s->max_bytes)
        return dt_fail(DT_E_DATA,
                       "%s: unpacks to more than the %.1f GiB of data.cache_size: raise that, or "
                       "unpack it by hand",
                       s->in->path, (double)s->max_bytes / 1073741824.0);
    return n > 0 ? s->sink(s->arg, s->to, n) : DT_OK;
}

static dt_status inflate_all(stream *s, z_stream *z) {
    bool ended = false;
    size_t n;
    while (s->at < s->in->n_bytes) {
        DT_TRY(unpack_pull(s, &n));
        z->next_in = s->from;
        z->avail_in = (uInt)n;
        bool full = false; // more may come out without more going in
        while (z->avail_in > 0 || full) {
            // members may follow one another; zeros after the last are padding
            if (ended && z->avail_in > 0 && *z->next_in == 0) {
                z->next_in++, z->avail_in--;
                continue;
            }
            if (ended && inflateReset(z) != Z_OK) return unpack_damaged(s, "zlib fails");
            ended = false;
            z->next_out = s->to;
            z->avail_out = OUT_BYTES;
            int r = inflate(z, Z_NO_FLUSH);
            if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR) return unpack_damaged(s, "damaged gzip data");
            ended = r == Z_STREAM_END;
            full = !ended && z->avail_out == 0;
            DT_TRY(unpack_push(s, OUT_BYTES - z->avail_out));
        }
    }
    return ended ? DT_OK : unpack_damaged(s, "gzip data that is cut");
}

static dt_status decompress_all(stream *s, ZSTD_DStream *z) {
    size_t left = 1, n;
    while (s->at < s->in->n_bytes) {
        DT_TRY(unpack_pull(s, &n));
        ZSTD_inBuffer in = {s->from, n, 0};
        bool full = false;
        while (in.pos < in.size || full) {
            ZSTD_outBuffer out = {s->to, OUT_BYTES, 0};
            left = ZSTD_decompressStream(z, &out, &in);
            if (ZSTD_isError(left))
                return dt_fail(DT_E_DATA, "%s: near byte %llu: zstd: %s", s->in->path, (unsigned long long)s->at,
                               ZSTD_getErrorName(left));
            full = left > 0 && out.pos == out.size;
            DT_TRY(unpack_push(s, out.pos));
        }
    }
    return left == 0 ? DT_OK : unpack_damaged(s, "zstd data that is cut");
}

dt_status dt_unpack(const dt_blob *b, uint64_t max_bytes, dt_unpack_sink sink, void *arg) {
    uint8_t head[4] = {0};
    DT_TRY(dt_blob_read(b, 0, head, b->n_bytes < 4 ? (size_t)b->n_bytes : 4));
    dt_packing packing = dt_packing_of(head, sizeof head);
    if (packing == DT_PACKING_NONE) return dt_fail(DT_E_DATA, "%s: neither gzip nor zstd", b->path);
    stream s = {.in = b, .max_bytes = max_bytes, .sink = sink, .arg = arg};
    s.from = dt_xrealloc(NULL, IN_BYTES);
    s.to = dt_xrealloc(NULL, OUT_BYTES);
    dt_status st;
    if (packing == DT_PACKING_GZIP) {
        z_stream z = {.next_in = NULL};
        st = inflateInit2(&z, 15 + 16) == Z_OK ? inflate_all(&s, &z) : dt_fail(DT_E_INTERNAL, "zlib: out of memory");
        inflateEnd(&z); // of a stream that was not begun: no effect
    } else {
        ZSTD_DStream *z = ZSTD_createDStream();
        st = z ? decompress_all(&s, z) : dt_fail(DT_E_INTERNAL, "zstd: out of memory");
        ZSTD_freeDStream(z);
    }
    free(s.from);
    free(s.to);
    return st;
}

// ---- one file --------------------------------------------------------------------------------------
// Room for n_bytes more, or DT_E_STORAGE.
static dt_status unpack_make_room(const dt_unpack_cache *c, const char *dir, uint64_t n_bytes) {
    char *root = dt_io_cache_folder(c->dir, "");
    const bool room = dt_cache_room(root, c->max_bytes, n_bytes, false);
    free(root);
    if (room) return DT_OK;
    return dt_fail(DT_E_STORAGE,
                   "%s: what is in use there would take more than the %.1f GiB of data.cache_size: "
                   "raise that, or unpack the shards by hand",
                   dir, (double)c->max_bytes / 1073741824.0);
}

typedef struct writer {
    const dt_unpack_cache *c;
    const char *dir;
    const dt_io_file *file;
    uint64_t n_bytes, room;
} writer;

static dt_status write_block(void *arg, const void *data, size_t n_bytes) {
    writer *w = arg;
    if (w->n_bytes + n_bytes > w->room) {
        uint64_t step = ROOM_STEP < w->c->max_bytes / 8 ? ROOM_STEP : w->c->max_bytes / 8;
        step = step > n_bytes ? step : n_bytes;
        DT_TRY(unpack_make_room(w->c, w->dir, step));
        w->room = w->n_bytes + step;
    }
    w->n_bytes += n_bytes;
    return dt_io_write(w->file->fd, w->file->path, data, n_bytes);
}

static dt_status write_unpacked(dt_unpack_cache *c, const dt_blob *in, const char *dir, const char *path) {
    dt_io_file file;
    DT_TRY(dt_io_remove_leftovers(dir, NULL));
    DT_TRY(dt_io_begin(&file, path)); // locked: another process's make_room leaves it
    writer w = {.c = c, .dir = dir, .file = &file};
    DT_TRY(dt_io_end(&file, dt_unpack(in, c->max_bytes, write_block, &w)));
    c->n_files++;
    c->n_bytes += w.n_bytes;
    return DT_OK;
}

// Waits for byte `key` of <dir>/lock. Closing *fd unlocks it.
static dt_status lock_byte(const char *dir, uint64_t key, const char *what, int *fd) {
    char *path = dt_xprintf("%s/lock", dir);
    off_t byte = (off_t)(key >> 2);
    dt_status st = dt_io_open_update(fd, path);
    if (st == DT_OK && !dt_io_lock_byte(*fd, byte, F_WRLCK, false)) {
        dt_info("%s: another process unpacks it: waiting", what);
        if (!dt_io_lock_byte(*fd, byte, F_WRLCK, true)) {
            st = dt_fail(DT_E_STORAGE, "%s: cannot lock: %s", path, strerror(errno));
            close(*fd);
        }
    }
    free(path);
    return st;
}

static dt_status unpack_identity(const dt_blob *b, uint64_t *key) {
    char real[PATH_MAX];
    uint64_t n[3] = {0, b->version};
    DT_TRY(dt_blob_stamp(b, &n[0]));
    if (!realpath(b->path, real)) snprintf(real, sizeof real, "%s", b->path);
    n[2] = dt_hash64(real, strlen(real));
    *key = dt_hash64(n, sizeof n);
    return DT_OK;
}

// "x.tar.gz" -> "x.tar", "x.tgz" -> "x.tar", "x" -> "x".
static char *unpack_plain_name(const char *path) {
    static const char *const TAILS[][2] = {{".gz", ""},   {".tgz", ".tar"},  {".zst", ""},
                                           {".zstd", ""}, {".tzst", ".tar"}, {NULL, NULL}};
    const char *base = dt_path_base(path);
    for (int i = 0; TAILS[i][0]; i++)
        if (dt_text_ends(base, TAILS[i][0]))
            return dt_xprintf("%.*s%s", (int)(strlen(base) - strlen(TAILS[i][0])), base, TAILS[i][1]);
    return dt_xstrdup(base);
}

static dt_status unpack_locked(dt_unpack_cache *c, const dt_blob *in, const char *dir, const char *file, uint64_t key,
                               int *fd) {
    int lock = -1;
    DT_TRY(lock_byte(dir, key, in->path, &lock));
    *fd = dt_cache_hold(file, O_RDONLY); // another may have made it while we waited
    dt_status st = *fd < 0 ? write_unpacked(c, in, dir, file) : DT_OK;
    if (st == DT_OK && *fd < 0) *fd = dt_cache_hold(file, O_RDONLY);
    if (st == DT_OK && *fd < 0) // between its rename and our lock; the newest goes last
        st = dt_fail(DT_E_STORAGE,
                     "%s: was removed as it was made: other shards that are unpacked now need its "
                     "room; raise data.cache_size",
                     file);
    close(lock);
    return st;
}

dt_status dt_unpack_open(dt_unpack_cache *c, const char *path, char **file, dt_blob *out) {
    dt_blob in;
    int fd = -1;
    uint64_t key = 0;
    char hex[17], *dir = dt_io_cache_folder(c->dir, DT_CACHE_UNPACKED), *name = unpack_plain_name(path);
    dt_status st = DT_OK;
    *file = NULL;
    *out = (dt_blob){.store = NULL};
    DT_TRY_GOTO(st, dt_blob_open(&in, path), names);
    DT_TRY_GOTO(st, unpack_identity(&in, &key), out);
    if (!dir)
        st = dt_fail(DT_E_STORAGE,
                     "%s: is compressed and there is no place to unpack it: set "
                     "data.cache_dir",
                     path);
    if (st == DT_OK) st = dt_io_mkdir_all(dir);
    if (st != DT_OK) goto out;
    dt_hash_hex(key, hex);
    *file = dt_xprintf("%s/%s-%s", dir, hex, name);
    fd = dt_cache_hold(*file, O_RDONLY);
    if (fd < 0) st = unpack_locked(c, &in, dir, *file, key, &fd);
    if (st == DT_OK) st = dt_blob_from_fd(out, *file, fd);
out:
    dt_blob_close(&in);
names:
    if (st != DT_OK) {
        free(*file);
        *file = NULL;
    }
    free(dir);
    free(name);
    return st;
}
