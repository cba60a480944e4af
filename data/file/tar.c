// tar.c: the dialects of tar that datasets come in.
//
// A tar file is 512-byte headers, each followed by its data padded to 512, and ends with two zero
// blocks (one, or a plain end of file on a block boundary, is accepted as GNU tar does). Three ways to
// say a long name: USTAR's prefix field, GNU's 'L' entry before the file, PAX's 'x' entry with
// "length key=value\n" records; Python's writer puts a PAX record in front of every member. A global
// 'g' record holds for all that follow until replaced.
//
// Invariants: every offset is checked against the file before it is used, the header checksum must fit,
// and a data range that leaves the file is an error at its header ("cut"), never a short entry.
// Format: POSIX.1-2017 pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format".

#include "tar.h"

#include "base/bits.h"
#include "base/core.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_PAX_BYTES = 64 << 10 };

typedef struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type;
    char linkname[100], magic[6], version[2], uname[32], gname[32], major[8], minor[8];
    char prefix[155], pad[12];
} header;
_Static_assert(sizeof(header) == DT_TAR_BLOCK, "a tar header is one block");

typedef dt_tar_says overrides;

size_t dt_tar_stem(const char *path) {
    static const char *const ENDS[] = {".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"};
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++) {
        const size_t k = strlen(ENDS[i]);
        if (n > k && strcasecmp(path + n - k, ENDS[i]) == 0) return n - k; // n > k: a file named .tar has no stem
    }
    return 0;
}

void dt_tar_begin(dt_tar *t, const dt_blob *blob) {
    *t = (dt_tar){.blob = blob};
    dt_peek_init(&t->peek, blob);
}

static dt_status tar_bad(const dt_tar *t, const char *what) {
    return dt_fail(DT_E_DATA, "%s: offset %llu: %s", t->blob->path, (unsigned long long)t->at, what);
}

// Octal with leading spaces, ended by NUL, space or the field; or base-256 when the top bit is set.
static bool tar_parse_number(const char *field, size_t n, uint64_t *out) {
    const uint8_t *p = (const uint8_t *)field;
    uint64_t v = 0;
    if (p[0] & 0x80) {
        if (p[0] != 0x80) return false; // negative or beyond 2^(8n-8)
        for (size_t i = 1; i < n; i++) {
            if (v >> 55) return false; // sizes of 2^63 and more are no sizes
            v = v << 8 | p[i];
        }
        *out = v;
        return true;
    }
    size_t i = 0;
    while (i < n && p[i] == ' ') i++; // old writers pad with spaces
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        if (v >> 60) return false; // the same for octal
        v = v << 3 | (uint64_t)(p[i] - '0');
    }
    if (i < n && p[i] != '\0' && p[i] != ' ') return false;
    *out = v;
    return true;
}

// The sum of a header's bytes, its checksum field counted as spaces. A scan is mostly this.
VECTORIZED
static uint32_t header_sum(const header *h, bool as_signed) {
    const uint8_t *p = (const uint8_t *)h;
    const int8_t *q = (const int8_t *)h;
    uint32_t sum = 0, field = 0;
    if (as_signed)
        for (size_t i = 0; i < sizeof *h; i++) sum += (uint32_t)q[i];
    else
        for (size_t i = 0; i < sizeof *h; i++) sum += p[i];
    for (size_t i = 0; i < sizeof h->checksum; i++)
        field += as_signed ? (uint32_t)(int8_t)h->checksum[i] : (uint8_t)h->checksum[i];
    return sum - field + (uint32_t)sizeof h->checksum * ' '; // POSIX: as if the field held spaces
}

static bool checksum_fits(const header *h) {
    uint64_t sum;
    return tar_parse_number(h->checksum, sizeof h->checksum, &sum) &&
           (sum == header_sum(h, false) || sum == header_sum(h, true)); // old tars summed chars
}

static bool all_zero(const header *h) {
    const uint8_t *p = (const uint8_t *)h;
    for (size_t i = 0; i < sizeof *h; i++)
        if (p[i]) return false;
    return true;
}

bool dt_tar_starts(const uint8_t *head, size_t n_bytes) {
    header h;
    if (n_bytes < sizeof h) return false;
    memcpy(&h, head, sizeof h);
    return !all_zero(&h) && checksum_fits(&h);
}

// PAX records: "25 path=some/name\n", the length counting itself.
static bool parse_pax(const char *p, size_t n, overrides *o) {
    while (n > 0) {
        size_t length = 0, i = 0;
        for (; i < n && p[i] >= '0' && p[i] <= '9' && length < MAX_PAX_BYTES; i++)
            length = length * 10 + (size_t)(p[i] - '0');
        // the length counts its digits, the space and the newline, and ends on the newline
        if (i == 0 || i >= n || p[i] != ' ' || length > n || length < i + 3 || p[length - 1] != '\n') return false;
        const char *key = p + i + 1, *end = p + length - 1, *eq = memchr(key, '=', (size_t)(end - key));
        if (!eq) return false;
        size_t n_key = (size_t)(eq - key), n_value = (size_t)(end - eq - 1);
        const bool is_path = n_key == 4 && memcmp(key, "path", 4) == 0; // times, owners and other keys do not matter
        if (is_path || (n_key == 8 && memcmp(key, "linkpath", 8) == 0)) {
            char *to = is_path ? o->path : o->link;
            // a name with NUL would be compared short
            if (n_value >= sizeof o->path || memchr(eq + 1, 0, n_value)) return false;
            memcpy(to, eq + 1, n_value);
            to[n_value] = '\0';
            *(is_path ? &o->has_path : &o->has_link) = n_value > 0; // an empty value takes the key back
        } else if (n_key == 4 && memcmp(key, "size", 4) == 0) {
            o->size = 0;
            for (const char *d = eq + 1; d < end; d++) {
                if (*d < '0' || *d > '9' || o->size > UINT64_MAX / 20) return false; // no sum or product wraps
                o->size = o->size * 10 + (uint64_t)(*d - '0');
            }
            o->has_size = n_value > 0;
        } else if (n_key > 11 && memcmp(key, "GNU.sparse.", 11) == 0) {
            o->is_sparse = true;
        }
        p += length;
        n -= length;
    }
    return true;
}

static dt_status read_extension(dt_tar *t, char type, uint64_t data_at, uint64_t size, overrides *o) {
    char text[MAX_PAX_BYTES];
    if (size > sizeof text) return tar_bad(t, "an extended header of more than 64 KiB");
    DT_TRY(dt_peek_read(&t->peek, data_at, text, (size_t)size));
    if (type == 'x' || type == 'g')
        return parse_pax(text, (size_t)size, o) ? DT_OK : tar_bad(t, "a PAX record that is not one");
    size_t n = strnlen(text, (size_t)size); // GNU 'L' and 'K'
    char *to = type == 'L' ? o->path : o->link;
    if (n == 0 || n >= sizeof o->path) return tar_bad(t, "a GNU long name that is empty or too long");
    memcpy(to, text, n);
    to[n] = '\0';
    *(type == 'L' ? &o->has_path : &o->has_link) = true;
    return DT_OK;
}

static void header_path(const header *h, char *out) {
    size_t n = 0;
    if (memcmp(h->magic, "ustar\0", 6) == 0 && h->prefix[0]) { // POSIX only: GNU keeps times there
        n = strnlen(h->prefix, sizeof h->prefix);
        memcpy(out, h->prefix, n); // neither field needs a NUL where it is full
        out[n++] = '/';
    }
    size_t n_name = strnlen(h->name, sizeof h->name);
    memcpy(out + n, h->name, n_name);
    out[n + n_name] = '\0';
}

static void fill_entry(dt_tar_entry *e, const header *h, const overrides *local, const overrides *global) {
    if (local->has_path)
        strcpy(e->path, local->path);
    else if (global->has_path)
        strcpy(e->path, global->path);
    else
        header_path(h, e->path);
    // tar -C folder . writes ./name
    while (e->path[0] == '.' && e->path[1] == '/') memmove(e->path, e->path + 2, strlen(e->path) - 1);
    size_t n = strlen(e->path);
    bool directory = n > 0 && e->path[n - 1] == '/'; // as old tars mark them
    // 7: contiguous, which all systems read as regular
    e->is_regular = (h->type == '0' || h->type == '\0' || h->type == '7') && !directory && n > 0;
    e->is_hard = h->type == '1';
    e->link[0] = '\0';
    if (h->type != '1' && h->type != '2') return; // hard, symbolic
    if (local->has_link)
        strcpy(e->link, local->link);
    else
        sprintf(e->link, "%.*s", (int)sizeof h->linkname, h->linkname);
}

// Reads the header at t->at; *end = true at the end of the archive.
static dt_status tar_read_header(dt_tar *t, header *h, uint64_t *size, bool *end) {
    *end = t->at == t->blob->n_bytes; // a tar without end mark ends between two members
    if (*end) return DT_OK;
    if (t->blob->n_bytes - t->at < DT_TAR_BLOCK) return tar_bad(t, "the file is cut inside a header");
    DT_TRY(dt_peek_read(&t->peek, t->at, h, sizeof *h));
    *end = t->has_end = all_zero(h); // POSIX writes two such blocks; one is enough to read
    if (*end) return DT_OK;
    if (!checksum_fits(h)) return tar_bad(t, "not a tar header (wrong checksum): damaged, or not a tar file");
    if (!tar_parse_number(h->size, sizeof h->size, size)) return tar_bad(t, "a size that is no number");
    return DT_OK;
}

// Where another tar begins behind the end mark and the zeros after it, or 0: `cat` joins two so, and every reader
// sees only the first.
static uint64_t find_next_tar(const dt_tar *t) {
    enum { LOOK_BYTES = 1 << 20 };
    header h;
    for (uint64_t at = t->at; at - t->at < LOOK_BYTES && t->blob->n_bytes - at >= sizeof h; at += sizeof h) {
        if (dt_blob_read(t->blob, at, &h, sizeof h) != DT_OK) break;
        if (!all_zero(&h)) return checksum_fits(&h) ? at : 0;
    }
    dt_error_clear();
    return 0;
}

bool dt_tar_warn_end(const dt_tar *t) {
    if (!t->ended) return false;
    if (t->has_end) {
        uint64_t next = find_next_tar(t);
        if (next)
            dt_warn("%s: ends at byte %llu, and another tar that begins at byte %llu is not read: "
                    "give them as two files, or put them together with tar -A",
                    t->blob->path, (unsigned long long)t->at, (unsigned long long)next);
        return next != 0;
    }
    dt_warn("%s: no end mark at its end, byte %llu: it may have been cut between two members; "
            "what is there is used",
            t->blob->path, (unsigned long long)t->at);
    return true;
}

// Files whose bytes are not where their header says.
static dt_status tar_refuse(const dt_tar *t, const header *h, const overrides *local) {
    if (h->type == 'S' || local->is_sparse || t->global.is_sparse)
        return tar_bad(t, "a file that is stored sparse, which is not read: make the tar without "
                          "--sparse");
    if (h->type == 'M') return tar_bad(t, "the rest of a file of another volume, which is not read");
    return DT_OK;
}

dt_status dt_tar_next(dt_tar *t, dt_tar_entry *e, bool *more) {
    overrides local;
    header h;
    *more = false;
    local.has_path = local.has_link = local.has_size = local.is_sparse = false;
    while (!t->ended) {
        uint64_t size = 0, data_at;
        bool end;
        DT_TRY(tar_read_header(t, &h, &size, &end));
        if (end) break;
        bool is_extension = h.type == 'x' || h.type == 'g' || h.type == 'L' || h.type == 'K';
        if (!is_extension) DT_TRY(tar_refuse(t, &h, &local));
        // a PAX size stands for files of 8 GiB and more, and never for an extension's own
        if (!is_extension && (local.has_size || t->global.has_size))
            size = local.has_size ? local.size : t->global.size;
        bool has_data = is_extension || h.type == '0' || h.type == '\0' || h.type == '7';
        if (h.type >= '1' && h.type <= '6') size = 0; // links, devices, directories hold none
        data_at = t->at + DT_TAR_BLOCK;
        if (size > t->blob->n_bytes - data_at) // data_at lies inside the file: the header was read
            return tar_bad(t, "the file is cut: this member's data goes beyond its end");
        if (h.type == 'x' || h.type == 'L' || h.type == 'K') {
            DT_TRY(read_extension(t, h.type, data_at, size, &local));
        } else if (h.type == 'g') {
            DT_TRY(read_extension(t, h.type, data_at, size, &t->global)); // g: for all entries from here on
        }
        uint64_t next = data_at + dt_tar_padded(size);
        t->at = next < t->blob->n_bytes ? next : t->blob->n_bytes; // the last padding may be missing
        if (is_extension) continue;
        fill_entry(e, &h, &local, &t->global);
        e->is_regular = e->is_regular && has_data;
        e->offset = data_at;
        e->size = size;
        *more = true;
        return DT_OK;
    }
    t->ended = true;
    return DT_OK;
}

// ---- writing -------------------------------------------------------------------------------------
static void put_octal(char *field, size_t n, uint64_t v) {
    for (size_t i = n - 1; i-- > 0; v >>= 3) field[i] = (char)('0' + (v & 7)); // from the last digit
    field[n - 1] = '\0';
}

static void finish_header(header *h, char type, uint64_t size) {
    put_octal(h->mode, sizeof h->mode, 0644);
    put_octal(h->uid, sizeof h->uid, 0);
    put_octal(h->gid, sizeof h->gid, 0);
    put_octal(h->size, sizeof h->size, size);
    put_octal(h->mtime, sizeof h->mtime, 0); // equal records make equal bytes, whenever they are packed
    h->type = type;
    memcpy(h->magic, "ustar", 6);
    memcpy(h->version, "00", 2);
    put_octal(h->checksum, 7, header_sum(h, false)); // six digits, NUL, space: as GNU tar and POSIX write them
    h->checksum[7] = ' ';
}

// USTAR holds 100 bytes of name and, split at a slash, 155 of prefix.
static bool split_name(header *h, const char *path) {
    size_t n = strlen(path);
    if (n <= sizeof h->name) {
        memcpy(h->name, path, n);
        return true;
    }
    // the first slash behind which the rest fits into name
    for (size_t i = n - sizeof h->name - 1; i < n - 1 && i <= sizeof h->prefix; i++)
        if (path[i] == '/' && i > 0) {
            memcpy(h->prefix, path, i);
            memcpy(h->name, path + i + 1, n - i - 1);
            return true;
        }
    return false;
}

static size_t pax_record(char *out, size_t cap, const char *key, const char *value) {
    size_t rest = strlen(key) + strlen(value) + 3, length = rest + 1; // " key=value\n"
    char digits[24];
    // the digits of the length count too, which may add one
    while ((size_t)snprintf(digits, sizeof digits, "%zu", length) + rest != length) length++;
    return (size_t)snprintf(out, cap, "%zu %s=%s\n", length, key, value);
}

dt_status dt_tar_write_header(uint8_t *out, size_t *n_bytes, const char *path, uint64_t size) {
    const uint64_t max_size = (UINT64_C(1) << 33) - 1; // eleven octal digits
    header h = {.name = ""};
    char pax[DT_TAR_MAX_PATH + 256], number[24];
    size_t n_pax = 0, at = 0;
    if (strlen(path) >= DT_TAR_MAX_PATH) return dt_fail(DT_E_DATA, "%s: path too long", path);
    if (!split_name(&h, path)) {
        n_pax += pax_record(pax, sizeof pax, "path", path);
        memcpy(h.name, path, sizeof h.name); // what a reader without PAX will see
    }
    if (size > max_size) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)size);
        n_pax += pax_record(pax + n_pax, sizeof pax - n_pax, "size", number);
    }
    // the extension is a member of its own in front: header, records, padding
    if (n_pax > 0) {
        header x = {.name = "PaxHeader"};
        finish_header(&x, 'x', n_pax);
        memcpy(out, &x, sizeof x);
        memset(out + sizeof x, 0, dt_tar_padded(n_pax));
        memcpy(out + sizeof x, pax, n_pax);
        at = sizeof x + dt_tar_padded(n_pax);
    }
    finish_header(&h, '0', size > max_size ? 0 : size); // the PAX record wins over the field
    memcpy(out + at, &h, sizeof h);
    *n_bytes = at + sizeof h;
    return DT_OK;
}

// ---- tar links ----------------------------------------------------------------------------------------------------

// The files that links of a tar lead to.
//
// A hard link names an earlier entry; a symbolic link names a path from its own folder, which may come later, be a link
// again, a folder, or lead through links to folders. A path is followed part by part, as a kernel does it, in a sorted
// table of the tar's files and links.

enum { MAX_HOPS = 32, MIN_NAMES = 1 << 20, NAMES_A_PLACE = 16 };

typedef struct tar_place {
    const char *path, *link; // link NULL: a file
    bool is_hard;
    uint64_t offset, size, header; // header: of two entries with one path the later one counts
} tar_place;

struct dt_tar_links {
    dt_arena arena;
    const char *tar;
    tar_place *places; // by path
    size_t n, n_left;  // n_left: names that links to folders may still give
};

static int compare_places(const void *pa, const void *pb) {
    const tar_place *a = pa, *b = pb;
    const int order = strcmp(a->path, b->path);
    return order ? order : (a->header > b->header) - (a->header < b->header);
}

dt_status dt_tar_links_create(dt_tar_links **out, const dt_blob *blob) {
    dt_tar_links *l = *out = dt_xcalloc(1, sizeof *l);
    dt_tar_entry *e = dt_xcalloc(1, sizeof *e);
    dt_tar tar;
    bool more = true;
    dt_status st;
    dt_arena_init(&l->arena); // paths live as long as the table
    l->tar = dt_arena_strdup(&l->arena, blob->path);
    dt_tar_begin(&tar, blob);
    while ((st = dt_tar_next(&tar, e, &more)) == DT_OK && more) {
        if (!e->is_regular && !*e->link) continue; // folders are known by their files
        l->places = dt_xgrow(l->places, l->n, sizeof *l->places);
        l->places[l->n++] = (tar_place){.path = dt_arena_strdup(&l->arena, e->path),
                                        .link = *e->link ? dt_arena_strdup(&l->arena, e->link) : NULL,
                                        .is_hard = e->is_hard,
                                        .offset = e->offset,
                                        .size = e->size,
                                        .header = tar.at};
    }
    free(e);
    if (l->n > 0) qsort(l->places, l->n, sizeof *l->places, compare_places);
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        // of entries with one path the last one counts, as when a tar is unpacked
        if (i + 1 == l->n || strcmp(l->places[i].path, l->places[i + 1].path) != 0) l->places[n++] = l->places[i];
    l->n = n;
    l->n_left = MIN_NAMES + NAMES_A_PLACE * n; // bounds what folders of links to folders name, which may be exponential
    if (st == DT_E_DATA) dt_error_clear();
    return st == DT_E_DATA ? DT_OK : st; // the scan of the tar reports damage; links use what is before it
}

void dt_tar_links_destroy(dt_tar_links *l) {
    if (!l) return;
    dt_arena_fini(&l->arena);
    free(l->places);
    free(l);
}

// The first place whose path does not stand before `path`.
static size_t lower_bound(const dt_tar_links *l, const char *path) {
    size_t low = 0, high = l->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(l->places[middle].path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const tar_place *tar_links_find_place(const dt_tar_links *l, const char *path) {
    const size_t i = lower_bound(l, path);
    return i < l->n && strcmp(l->places[i].path, path) == 0 ? &l->places[i] : NULL;
}

static void drop_last_part(char *path) {
    char *slash = strrchr(path, '/');
    *(slash ? slash : path) = '\0';
}

// Goes on from the folder `at` along `path`; at becomes the path without links. False: it leaves the tar.
static bool tar_links_follow(const dt_tar_links *l, char *at, const char *path, int *n_hops) {
    if (*path == '/') return false; // absolute: outside of the tar
    for (size_t n; *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        if (n == 0 || (n == 1 && *path == '.')) continue;
        if (n == 2 && memcmp(path, "..", 2) == 0) {
            if (!*at) return false; // above the root
            drop_last_part(at);
            continue;
        }
        const size_t n_at = strlen(at);
        if (n_at + n + 2 > DT_TAR_MAX_PATH) return false;
        if (n_at) at[n_at] = '/';
        memcpy(at + n_at + (n_at > 0), path, n);
        at[n_at + (n_at > 0) + n] = '\0';
        const tar_place *p = tar_links_find_place(l, at);
        if (!p || !p->link) continue;
        if (++*n_hops > MAX_HOPS) return false; // a loop, as the kernel's ELOOP
        if (p->is_hard)
            *at = '\0';
        else
            drop_last_part(at);
        if (!tar_links_follow(l, at, p->link, n_hops)) return false;
    }
    return true;
}

// at: what `path` leads to, "" where that is nothing. NULL: no file.
static const tar_place *tar_links_find_file(const dt_tar_links *l, char *at, const char *path) {
    int n_hops = 0;
    *at = '\0';
    if (!tar_links_follow(l, at, path, &n_hops)) *at = '\0';
    const tar_place *p = tar_links_find_place(l, at);
    return p && !p->link ? p : NULL;
}

bool dt_tar_links_find(const dt_tar_links *l, const char *path, uint64_t *offset, uint64_t *size) {
    char at[DT_TAR_MAX_PATH];
    const tar_place *file = tar_links_find_file(l, at, path);
    if (!file) return false;
    *offset = file->offset;
    *size = file->size;
    return true;
}

// A link that is followed, and the one to the folder in which it was found.
typedef struct followed {
    const char *path;
    const struct followed *above;
    int depth;
} followed;

typedef struct visit {
    dt_tar_links *l;
    dt_tar_visit *visit;
    void *arg;
    char name[DT_TAR_MAX_PATH];
    bool any;
} visit;

// Whether a followed link lies in the folder, which makes a loop.
static bool holds_one(const char *folder, const followed *f) {
    const size_t n = strlen(folder);
    for (; f; f = f->above)
        if (strncmp(f->path, folder, n) == 0 && f->path[n] == '/') return true;
    return false;
}

// Visits the file, or the files of the folder, that f leads to, as v->name.
static dt_status visit_path(visit *v, const followed *f) {
    dt_tar_links *l = v->l;
    char folder[DT_TAR_MAX_PATH];
    const tar_place *file = tar_links_find_file(l, folder, f->path);
    const size_t n = strlen(folder), n_name = strlen(v->name);
    if (file) {
        v->visit(v->arg, v->name, file->offset, file->size);
        v->any = true;
        return DT_OK;
    }
    if (n == 0 || n + 2 > sizeof folder || tar_links_find_place(l, folder) || holds_one(folder, f)) return DT_OK;
    memcpy(folder + n, "/", 2);
    for (size_t i = lower_bound(l, folder); i < l->n && strncmp(l->places[i].path, folder, n + 1) == 0; i++) {
        const char *path = l->places[i].path;
        if (l->n_left-- == 0 || f->depth == MAX_HOPS)
            return dt_fail(DT_E_DATA,
                           "%s: %s: its links to folders name files many times over, or lie more "
                           "than %d deep in one another: remove such links",
                           l->tar, v->name, MAX_HOPS);
        if (n_name + strlen(path + n) >= sizeof v->name) continue; // no name can be that long
        strcpy(v->name + n_name, path + n);
        DT_TRY(visit_path(v, &(followed){path, f, f->depth + 1}));
        v->name[n_name] = '\0'; // for the next file of the folder
    }
    return DT_OK;
}

dt_status dt_tar_links_visit(dt_tar_links *l, const char *path, dt_tar_visit *each, void *arg, bool *any) {
    visit v = {.l = l, .visit = each, .arg = arg};
    strcpy(v.name, path);
    const dt_status st = visit_path(&v, &(followed){.path = path});
    *any = v.any;
    return st;
}
