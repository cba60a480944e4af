// ckpt_manifest.c: manifest.json, the list of a checkpoint's files with sizes and hashes.
//
//   {"format":"dtrain-checkpoint","version":1,"dtrain":"1.0.0","step":123,"best":false,"files":[{"name":…,
//    "bytes":…,"xxh3":"16 hex digits","ranges":[{"name":<tensor>,"offset":…,"bytes":…,"xxh3":…}]}],
//    "manifest_xxh3":…}
//
// The last member is the hash of every byte before it, so the manifest protects itself as well. It is written
// after the files that it names are on disk: a directory without a manifest never was a checkpoint. A file's
// hash shows whether it is damaged; its ranges, one per tensor, then show which tensor is. Only plain file
// names are allowed, and links are not followed, so nothing outside the directory is ever opened. Tensors are F32, and
// checking one also checks that it holds neither NaN nor infinity.
#define _GNU_SOURCE
#include "base/bits.h"
#include "base/core.h"
#include "base/formats.h"
#include "base/io.h"
#include "ckpt_internal.h"
#include "store/blob.h"
#include "store/s3.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FORMAT "dtrain-checkpoint"
#define SELF   ",\"manifest_xxh3\":\""
// limits of a hostile manifest, far above what a save writes
enum { MAX_MANIFEST_BYTES = 64 << 20, MAX_FILES = 16, READ_BYTES = 1 << 20 };
static const char *const REQUIRED[] = {"model.safetensors", "state.json"};

void dt_ckpt_manifest_fini(dt_ckpt_manifest *m) {
    for (int i = 0; i < m->n_files; i++) {
        for (int k = 0; k < m->files[i].n_ranges; k++) free(m->files[i].ranges[k].name);
        free(m->files[i].ranges);
        free(m->files[i].name);
    }
    free(m->files);
    *m = (dt_ckpt_manifest){0};
}

dt_ckpt_file *dt_ckpt_manifest_add(dt_ckpt_manifest *m, const char *name) {
    if ((m->n_files & (m->n_files - 1)) == 0) // full at every power of two
        m->files = dt_xrealloc(m->files, (m->n_files ? 2 * (size_t)m->n_files : 1) * sizeof *m->files);
    dt_ckpt_file *f = &m->files[m->n_files++];
    *f = (dt_ckpt_file){.name = dt_xstrdup(name)};
    return f;
}

const dt_ckpt_file *dt_ckpt_manifest_find(const dt_ckpt_manifest *m, const char *name) {
    for (int i = 0; i < m->n_files; i++)
        if (strcmp(m->files[i].name, name) == 0) return &m->files[i];
    return NULL;
}

// -- text --------------------------------------------------------------------------------------
// 16 hex digits: JSON numbers of 64 bits lose bits in other readers
static void print_hash(dt_json *j, uint64_t hash) {
    char hex[17];
    dt_hash_hex(hash, hex);
    dt_json_string(j, "xxh3", hex);
}

static void print_file(dt_json *j, const dt_ckpt_file *f) {
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "name", f->name);
    dt_json_int(j, "bytes", (int64_t)f->n_bytes);
    print_hash(j, f->hash);
    if (f->n_ranges) { // files without tensors have no ranges
        dt_json_begin_array(j, "ranges");
        for (int i = 0; i < f->n_ranges; i++) {
            dt_json_begin_object(j, NULL);
            dt_json_string(j, "name", f->ranges[i].name);
            dt_json_int(j, "offset", (int64_t)f->ranges[i].offset);
            dt_json_int(j, "bytes", (int64_t)f->ranges[i].n_bytes);
            print_hash(j, f->ranges[i].hash);
            dt_json_end_object(j);
        }
        dt_json_end_array(j);
    }
    dt_json_end_object(j);
}

void dt_ckpt_manifest_print(const dt_ckpt_manifest *m, dt_json *j) {
    // the order of members is part of the format: the hash covers bytes, not values
    char hex[17];
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "format", FORMAT);
    dt_json_int(j, "version", DT_FORMAT_MANIFEST);
    dt_json_string(j, "dtrain", dt_version);
    dt_json_int(j, "step", m->step);
    dt_json_bool(j, "best", m->best);
    dt_json_begin_array(j, "files");
    for (int i = 0; i < m->n_files; i++) print_file(j, &m->files[i]);
    dt_json_end_array(j);
    dt_hash_hex(dt_hash64(j->data, j->n_bytes), hex); // of all bytes so far; the closing brace comes after
    dt_json_string(j, "manifest_xxh3", hex);
    dt_json_end_object(j);
    dt_json_newline(j);
}

static bool check_self_hash(const char *text, size_t n_bytes) {
    // SELF, 16 digits, quote, brace, newline
    const size_t n_self = strlen(SELF), n_tail = n_self + 16 + strlen("\"}\n");
    char hex[17];
    if (n_bytes < n_tail) return false; // shorter than the tail alone
    const char *tail = text + n_bytes - n_tail;
    dt_hash_hex(dt_hash64(text, n_bytes - n_tail), hex); // digits are recomputed, then compared as text
    // SELF must stand exactly here: no member may follow
    return memcmp(tail, SELF, n_self) == 0 && memcmp(tail + n_self, hex, 16) == 0 &&
           memcmp(tail + n_self + 16, "\"}\n", 3) == 0;
}

dt_status dt_ckpt_read_text(char **text, size_t *n_bytes, const char *path, size_t max_bytes) {
    if (!dt_s3_is_url(path)) return dt_io_read_own(text, n_bytes, path, max_bytes, DT_E_CKPT);
    // true: an absent object is no error of the server
    const dt_status st = dt_blob_read_all(text, n_bytes, path, max_bytes, true);
    if (st == DT_OK && !*text) return dt_fail(DT_E_CKPT, "%s: not there", path);
    return st == DT_E_DATA ? DT_E_CKPT : st; // a refused or cut object counts as a damaged checkpoint
}

// -- reading -------------------------------------------------------------------------------------
static bool read_hash(const json_t *object, uint64_t *hash) {
    const char *hex = json_string_value(json_object_get(object, "xxh3"));
    // lower case only: one spelling per hash
    if (!hex || strlen(hex) != 16 || strspn(hex, "0123456789abcdef") != 16) return false;
    *hash = strtoull(hex, NULL, 16);
    return true;
}

static bool ckpt_manifest_read_count(const json_t *object, const char *key, uint64_t *out) {
    // no negative and no real numbers, so sums below cannot wrap
    const json_t *v = json_object_get(object, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static bool ckpt_manifest_plain_name(const char *name) {
    // no path, no hidden name, no "..": nothing outside the folder is opened
    return name && *name && name[0] != '.' && !strchr(name, '/') && strlen(name) < 256;
}

static bool ckpt_manifest_read_range(dt_ckpt_file *f, const json_t *object) {
    dt_ckpt_range r = {0};
    const char *name = json_string_value(json_object_get(object, "name"));
    if (!name || !ckpt_manifest_read_count(object, "offset", &r.offset) ||
        // subtraction on the right: offset + bytes might overflow
        !ckpt_manifest_read_count(object, "bytes", &r.n_bytes) || !read_hash(object, &r.hash) ||
        r.n_bytes > f->n_bytes || r.offset > f->n_bytes - r.n_bytes)
        return false;
    const dt_ckpt_range *last = f->n_ranges ? &f->ranges[f->n_ranges - 1] : NULL;
    if (last && r.offset < last->offset + last->n_bytes) return false; // each byte is hashed once
    r.name = dt_xstrdup(name);
    f->ranges[f->n_ranges++] = r;
    return true;
}

static dt_status ckpt_manifest_read_file(dt_ckpt_manifest *m, const json_t *object, const char *where) {
    const char *name = json_string_value(json_object_get(object, "name"));
    const json_t *ranges = json_object_get(object, "ranges");              // absent: a file without tensors
    if (!ckpt_manifest_plain_name(name) || dt_ckpt_manifest_find(m, name)) // each name once
        return dt_fail(DT_E_CKPT, "%s: '%.100s' is not the plain name of a file", where, name ? name : "");
    dt_ckpt_file *f = dt_ckpt_manifest_add(m, name);
    bool good = ckpt_manifest_read_count(object, "bytes", &f->n_bytes) && read_hash(object, &f->hash) &&
                (!ranges || json_is_array(ranges));
    f->ranges = dt_xcalloc(json_array_size(ranges) + 1, sizeof *f->ranges); // bounded by MAX_MANIFEST_BYTES of text
    for (size_t i = 0; good && i < json_array_size(ranges); i++)
        good = ckpt_manifest_read_range(f, json_array_get(ranges, i)); // the first malformed range ends the loop
    return good ? DT_OK : dt_fail(DT_E_CKPT, "%s: the entry of '%.100s' is malformed", where, name);
}

static dt_status read_manifest(dt_ckpt_manifest *m, const json_t *root, const char *where) {
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *files = json_object_get(root, "files");
    uint64_t version, step;
    if (!format || strcmp(format, FORMAT) != 0)
        return dt_fail(DT_E_CKPT, "%s: not the manifest of a checkpoint", where);
    if (!ckpt_manifest_read_count(root, "version", &version) || version < 1)
        return dt_fail(DT_E_CKPT, "%s: no version in it", where);
    // a newer version may mean anything: refused before its hash is tested
    DT_TRY(dt_format_check(where, (int64_t)version, DT_FORMAT_MANIFEST,
                           json_string_value(json_object_get(root, "dtrain"))));
    if (!ckpt_manifest_read_count(root, "step", &step) || !json_is_array(files) || json_array_size(files) > MAX_FILES)
        return dt_fail(DT_E_CKPT, "%s: no step in it, no files, or more than %d", where, (int)MAX_FILES);
    m->step = (int64_t)step;
    m->best = json_is_true(json_object_get(root, "best")); // absent: false
    for (size_t i = 0; i < json_array_size(files); i++)
        DT_TRY(ckpt_manifest_read_file(m, json_array_get(files, i), where));
    for (size_t i = 0; i < sizeof REQUIRED / sizeof *REQUIRED; i++) // a checkpoint without weights or state is none
        if (!dt_ckpt_manifest_find(m, REQUIRED[i]))
            return dt_fail(DT_E_CKPT, "%s: %s is not in it", where, REQUIRED[i]);
    return DT_OK;
}

dt_status dt_ckpt_manifest_parse(dt_ckpt_manifest *m, const char *text, size_t n_bytes, const char *where) {
    json_error_t error;
    *m = (dt_ckpt_manifest){0};
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) return dt_fail(DT_E_CKPT, "%s: damaged: at byte %d: %s", where, error.position, error.text);
    dt_status st = read_manifest(m, root, where); // checked first: a newer version may hash differently
    if (st == DT_OK && !check_self_hash(text, n_bytes))
        st = dt_fail(DT_E_CKPT, "%s: damaged: its bytes do not match its own hash", where);
    json_decref(root); // names were copied into m
    if (st != DT_OK) dt_ckpt_manifest_fini(m);
    return st;
}

bool dt_ckpt_step_of_name(const char *name, int64_t *step) {
    size_t n = strlen(name);
    // "step-" and 8 to 18 digits, which fit an int64
    if (strncmp(name, "step-", 5) != 0 || n < 13 || n > 23) return false;
    for (const char *p = name + 5; *p; p++)
        if (!isdigit((unsigned char)*p)) return false;
    if (n > 13 && name[5] == '0') return false; // each step has one name
    *step = strtoll(name + 5, NULL, 10);
    return true;
}

dt_status dt_ckpt_manifest_read(dt_ckpt_manifest *m, const char *path) {
    char *file = dt_xprintf("%s/manifest.json", path), *text = NULL;
    const char *base = strrchr(path, '/'); // the last part of the path; URLs too
    size_t n_bytes;
    int64_t step;
    *m = (dt_ckpt_manifest){0};
    const bool named = dt_ckpt_step_of_name(base ? base + 1 : path, &step); // a copy may have any name
    dt_status st = named ? dt_ckpt_not_a_link(path, DT_E_CKPT) : DT_OK;
    if (st == DT_OK) st = dt_ckpt_read_text(&text, &n_bytes, file, MAX_MANIFEST_BYTES);
    if (st == DT_OK) st = dt_ckpt_manifest_parse(m, text, n_bytes, file);
    // copies under other names are fine, but a step-N must be step N
    if (st == DT_OK && named && step != m->step) {
        // step-7 that holds step 8 would be resumed as 7
        st = dt_fail(DT_E_CKPT, "%s: is of step %" PRId64 ": the directory was renamed", file, m->step);
        dt_ckpt_manifest_fini(m);
    }
    free(text);
    free(file);
    return st;
}

// -- checking --------------------------------------------------------------------------------------
// The first byte of the first F32 that is NaN or infinity; n_bytes if all are finite.
static size_t find_not_finite(const char *data, size_t n_bytes) {
    const uint32_t ones = 0x7f800000; // exponent all ones: infinity or NaN
    const size_t n = n_bytes / sizeof ones * sizeof ones;
    uint32_t words[256]; // a block of constant length is compared by vectors
    for (size_t at = 0; at < n; at += sizeof words) {
        const size_t n_block = n - at < sizeof words ? n - at : sizeof words;
        uint32_t bad = 0;
        memset(words, 0, sizeof words); // zeros behind a short block are finite
        memcpy(words, data + at, n_block);
        // no branch inside: vectorized
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) bad |= (words[i] & ones) == ones;
        for (size_t i = 0; bad; i++) // entered only if the block has one
            if ((words[i] & ones) == ones) return at + i * sizeof *words;
    }
    return n_bytes;
}

static dt_status read_bytes(const dt_blob *b, uint64_t at, void *data, size_t n_bytes) {
    const dt_status st = dt_blob_read(b, at, data, n_bytes);
    return st == DT_E_DATA ? DT_E_CKPT : st; // DT_E_DATA is the blob's word; here the data are a checkpoint's
}

// Hashes bytes [offset, offset + n_bytes). Reads instead of mapping: a bad disk is an error, not a SIGBUS. From
// `floats` on the file is F32: *bad is where the first that is not finite lies, or the end of the bytes.
static dt_status hash_bytes(const dt_blob *b, uint64_t offset, uint64_t n_bytes, uint64_t floats, uint64_t *hash,
                            uint64_t *bad) {
    const size_t most = b->store->remote ? 8 * READ_BYTES : READ_BYTES; // remote reads: fewer, larger requests
    char *buffer = dt_xcalloc(1, most);
    dt_hash_stream *h = dt_hash_stream_create();
    dt_status st = DT_OK;
    const uint64_t end = *bad = offset + n_bytes; // end: none found
    while (st == DT_OK && n_bytes > 0) {
        size_t n = n_bytes < most ? (size_t)n_bytes : most;
        // the header is not split F32 by F32: a block ends where floats begin
        if (offset < floats && n > floats - offset) n = (size_t)(floats - offset);
        st = read_bytes(b, offset, buffer, n);
        if (st == DT_OK) dt_hash_stream_update(h, buffer, n);
        // only whole blocks behind the header
        const size_t at = st == DT_OK && offset >= floats ? find_not_finite(buffer, n) : n;
        if (at < n && *bad == end) *bad = offset + at; // the first one only
        offset += n;
        n_bytes -= n;
    }
    *hash = dt_hash_stream_digest(h);
    dt_hash_stream_destroy(h);
    free(buffer);
    return st;
}

// For a file whose hash is wrong: names the damaged tensor.
static dt_status name_the_damage(const dt_blob *b, const dt_ckpt_file *f) {
    for (int i = 0; i < f->n_ranges; i++) { // ranges are read again: damage is rare
        uint64_t hash, bad;
        // UINT64_MAX: finiteness is not tested again
        DT_TRY(hash_bytes(b, f->ranges[i].offset, f->ranges[i].n_bytes, UINT64_MAX, &hash, &bad));
        if (hash != f->ranges[i].hash)
            return dt_fail(DT_E_CKPT,
                           "%s: damaged: the bytes of tensor '%s' changed since it was "
                           "saved",
                           b->path, f->ranges[i].name);
    }
    // none of the ranges: the header, or bytes between tensors
    return dt_fail(DT_E_CKPT, "%s: damaged: its bytes changed since it was saved", b->path);
}

// Where a file of tensors begins to be F32: behind its own header. Other files have none.
static dt_status find_floats(const dt_blob *b, const dt_ckpt_file *f, uint64_t *floats) {
    const char *dot = strrchr(f->name, '.');
    unsigned char head[8];
    // other files: *floats stays UINT64_MAX, and no element is tested
    if (!dot || strcmp(dot, ".safetensors") != 0 || f->n_bytes < sizeof head) return DT_OK;
    DT_TRY(read_bytes(b, 0, head, sizeof head));
    const uint64_t n = dt_le64(head);                             // little-endian u64, safetensors
    if (n <= f->n_bytes - sizeof head) *floats = sizeof head + n; // compared without an addition that could wrap
    return DT_OK;
}

// Files are opened without following links. An object that is refused is there, and may be whole.
static dt_status ckpt_manifest_open_file(dt_blob *b, const char *path, dt_ckpt_depth depth) {
    if (dt_s3_is_url(path)) {
        int absent; // HTTP status of a refusal
        const dt_status st = dt_blob_open_url(b, path, &absent);
        // 404 is a missing file; others are no statement about the checkpoint
        return st == DT_E_DATA && absent != 404 ? DT_E_STORAGE : st;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); // O_NONBLOCK: a FIFO must not block
    if (fd < 0) return dt_io_read_error(path, "open", errno, DT_E_CKPT);
    // a hint: pages that are dirty stay cached
    if (depth == DT_CKPT_FROM_DISK) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return dt_blob_from_fd(b, path, fd);
}

static dt_status verify_open(const dt_blob *b, const dt_ckpt_file *f, dt_ckpt_depth depth) {
    uint64_t hash, bad, floats = UINT64_MAX; // UINT64_MAX: no float in the file
    if (b->n_bytes != f->n_bytes)            // first the cheap test
        return dt_fail(DT_E_CKPT, "%s: %s: %" PRIu64 " bytes, %" PRIu64 " were saved", b->path,
                       b->n_bytes < f->n_bytes ? "truncated" : "grew", b->n_bytes, f->n_bytes);
    if (depth == DT_CKPT_SIZES) return DT_OK;
    DT_TRY(find_floats(b, f, &floats));
    DT_TRY(hash_bytes(b, 0, f->n_bytes, floats, &hash, &bad));
    if (hash != f->hash) return name_the_damage(b, f); // slower, but names the tensor
    if (bad >= f->n_bytes) return DT_OK;
    // training never saves NaN or infinity: the commit that made one ended the run, so one here counts as damage
    int i = 0; // n_ranges: in the header or padding
    while (i < f->n_ranges && (bad < f->ranges[i].offset || bad - f->ranges[i].offset >= f->ranges[i].n_bytes)) i++;
    return dt_fail(DT_E_CKPT, "%s: tensor '%s' holds NaN or infinity", b->path,
                   i < f->n_ranges ? f->ranges[i].name : "?");
}

dt_status dt_ckpt_verify_file(const char *dir, const dt_ckpt_file *f, dt_ckpt_depth depth) {
    char *path = dt_xprintf("%s/%s", dir, f->name);
    dt_blob b = {.store = NULL}; // store NULL: close does nothing before open
    dt_status st = ckpt_manifest_open_file(&b, path, depth);
    if (st == DT_OK) st = verify_open(&b, f, depth);
    dt_blob_close(&b);
    free(path);
    return st == DT_E_DATA ? DT_E_CKPT : st;
}

dt_status dt_ckpt_read_verified(dt_ckpt_manifest *m, const char *path, dt_ckpt_depth depth) {
    struct stat before, after;
    dt_status st;
    *m = (dt_ckpt_manifest){0};
    do { // a running training may put another one in its place meanwhile
        dt_ckpt_manifest_fini(m);
        const bool remote = dt_s3_is_url(path); // URLs have no inode: read once
        // gone or never there: the manifest's error reports that
        if (!remote && stat(path, &before) != 0) return dt_ckpt_manifest_read(m, path);
        st = dt_ckpt_manifest_read(m, path);
        for (int i = 0; st == DT_OK && i < m->n_files; i++) st = dt_ckpt_verify_file(path, &m->files[i], depth);
        if (remote) return st;
        // another inode: the folder was exchanged during the read
    } while (st != DT_OK && stat(path, &after) == 0 && after.st_ino != before.st_ino);
    return st;
}

dt_status dt_ckpt_verify(const char *path, dt_ckpt_depth depth, bool *best) {
    dt_ckpt_manifest m;
    dt_status st = dt_ckpt_read_verified(&m, path, depth);
    if (best) *best |= m.best; // also where a file is damaged: the manifest's word
    dt_ckpt_manifest_fini(&m);
    return st;
}
