// tar_index.c: reading tars by the indexes of others.
//
// DALI's index has the place of each member, so the tar is not walked. It has no stamp: whether it is of
// this tar is told by looking at some members' headers (16 spread over the file, and each that is not one
// header after the member before) and by what follows the last one, which must be the end. The tool takes
// a member's end from where the next header is and knows no PAX records: what lies before a member that
// has some (a long name; each member that Python's webdataset writes) it places too late. An index that
// does not fit is left aside with a warning and the tar is walked. v1.1 has no names; the header in front
// of a record's first member has.
//
// Energon's index has only where each record starts (u64, native order, the end last), which spares no
// header, so the tar is walked anyway and the count compared.
//
// Formats: DALI tools/wds2idx.py; Megatron Energon itar.py.
#include "tar_index.h"
#include "data/file/tar.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { N_CHECKED = 16, MAX_MEMBER_WORDS = 4 };

// ---- DALI's text -----------------------------------------------------------------------------------
typedef struct reader {
    const char *path, *at, *end;
    uint64_t line;
} reader;

static dt_status wrong(const reader *r, const char *what) {
    return dt_fail(DT_E_DATA, "%s:%llu: %s", r->path, (unsigned long long)r->line, what);
}

// The next word of the line, or false at its end. Words are separated by single spaces.
static bool next_word(reader *r, const char **word, size_t *n) {
    while (r->at < r->end && *r->at == ' ') r->at++;
    *word = r->at;
    while (r->at < r->end && *r->at != ' ' && *r->at != '\n') r->at++;
    *n = (size_t)(r->at - *word);
    return *n > 0;
}

static bool next_number(reader *r, uint64_t *out) {
    const char *word;
    size_t n;
    *out = 0;
    if (!next_word(r, &word, &n) || n > 18) return false;
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)word[i])) return false;
        *out = *out * 10 + (uint64_t)(word[i] - '0');
    }
    return true;
}

static bool copy_word(reader *r, char *out, size_t cap) {
    const char *word;
    size_t n;
    if (!next_word(r, &word, &n) || n >= cap || memchr(word, 0, n)) return false;
    memcpy(out, word, n);
    out[n] = '\0';
    return true;
}

static dt_status read_line(reader *r, bool names, uint64_t n_data, dt_dali_visit visit, void *arg) {
    char ext[64], name[DT_TAR_MAX_PATH];
    bool first = true;
    r->line++;
    while (r->at < r->end && *r->at != '\n') {
        uint64_t offset, size;
        if (!copy_word(r, ext, sizeof ext) || !next_number(r, &offset) || !next_number(r, &size) ||
            (names && !copy_word(r, name, sizeof name)))
            return wrong(r, "expected extension, offset, size and name of each member");
        if (offset % DT_TAR_BLOCK || offset < DT_TAR_BLOCK || offset > n_data ||
            size > n_data - offset)
            return wrong(r, "a member that is no part of the tar");
        DT_TRY(visit(arg, first, ext, offset, size, names ? name : NULL));
        first = false;
        while (r->at < r->end && *r->at == ' ') r->at++;
    }
    r->at += r->at < r->end;
    return first ? wrong(r, "a record without members") : DT_OK;
}

dt_status dt_dali_parse(const char *path, const char *text, size_t n_bytes, uint64_t n_data,
                        dt_dali_visit visit, void *arg) {
    reader r = {path, text, text + n_bytes, 1};
    char version[16];
    uint64_t n_records, n = 0;
    if (!copy_word(&r, version, sizeof version) || !next_number(&r, &n_records) ||
        (r.at < r.end && *r.at != '\n'))
        return wrong(&r, "expected a version and the number of records");
    bool names = strcmp(version, "v1.2") == 0;
    if (!names && strcmp(version, "v1.1") != 0)
        return wrong(&r, "a version other than v1.1 and v1.2");
    r.at += r.at < r.end;
    for (; r.at < r.end; n++) DT_TRY(read_line(&r, names, n_data, visit, arg));
    return n == n_records ? DT_OK : wrong(&r, "not as many records as the first line says");
}

// ---- against the tar -------------------------------------------------------------------------------
typedef struct place {
    uint64_t offset, size;
    const char *name; // in the tar; NULL: v1.1
    bool first;
} place;

typedef struct places {
    dt_arena arena;
    place *p;
    size_t n, cap;
} places;

static dt_status note_place(void *arg, bool first, const char *ext, uint64_t offset, uint64_t size,
                            const char *name) {
    places *l = arg;
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 256;
        l->p = dt_xrealloc(l->p, l->cap * sizeof *l->p);
    }
    l->p[l->n++] = (place){offset, size, name ? dt_arena_strdup(&l->arena, name) : NULL, first};
    return DT_OK;
}

// The header right before a member's data: its name as far as that goes (100 characters, or with the
// prefix of USTAR).
static dt_status header_before(dt_tar *t, const place *p, dt_tar_entry *e) {
    bool more = false;
    t->at = p->offset - DT_TAR_BLOCK;
    t->ended = false;
    DT_TRY(dt_tar_next(t, e, &more));
    if (!more || !e->is_regular || e->offset != p->offset)
        return dt_fail(DT_E_DATA, "offset %llu is not where a file begins",
                       (unsigned long long)p->offset);
    return DT_OK;
}

static dt_status check_member(dt_tar *t, const place *p, dt_tar_entry *e) {
    DT_TRY(header_before(t, p, e));
    bool large = e->size == 0 && p->size > 0; // its size is in a PAX record
    const char *name = p->name;
    while (name && name[0] == '.' && name[1] == '/') name += 2;
    size_t n = strlen(e->path);
    bool same = !name || strcmp(name, e->path) == 0 || (n >= 99 && strncmp(name, e->path, n) == 0);
    if ((e->size != p->size && !large) || !same)
        return dt_fail(DT_E_DATA, "the file at offset %llu is another",
                       (unsigned long long)p->offset);
    return DT_OK;
}

// Nothing that a record could be made of follows the last member.
static dt_status check_end(dt_tar *t, const place *last, dt_tar_entry *e) {
    bool more = true;
    char ext[64];
    size_t n_key;
    t->at = last->offset + dt_tar_padded(last->size);
    if (t->at > t->blob->n_bytes) t->at = t->blob->n_bytes;
    t->ended = false;
    for (;;) {
        DT_TRY(dt_tar_next(t, e, &more));
        if (!more) return DT_OK;
        if (e->is_regular && dt_split_key(e->path, &n_key, ext, sizeof ext))
            return dt_fail(DT_E_DATA, "the tar has more members than the index");
    }
}

static dt_status check_places(dt_tar *t, const places *l, dt_tar_entry *e) {
    if (l->n == 0) return dt_fail(DT_E_DATA, "it has no members");
    size_t step = l->n > N_CHECKED ? l->n / N_CHECKED : 1;
    uint64_t end = 0;
    for (size_t i = 0; i < l->n; i++) {
        const place *p = &l->p[i];
        bool gap = p->offset != end + DT_TAR_BLOCK;
        if (gap || i % step == 0) DT_TRY(check_member(t, p, e));
        end = p->offset + dt_tar_padded(p->size);
    }
    DT_TRY(check_member(t, &l->p[l->n - 1], e));
    return check_end(t, &l->p[l->n - 1], e);
}

// Without names the key of a record is that of its first member's header; a name that fills its field
// may be cut, and then only the walk knows.
static dt_status name_places(dt_tar *t, places *l, dt_tar_entry *e) {
    for (size_t i = 0; i < l->n; i++) {
        if (l->p[i].name) continue;
        DT_TRY(header_before(t, &l->p[i], e));
        if (strlen(e->path) >= 99) return dt_fail(DT_E_DATA, "names that are too long for v1.1");
        l->p[i].name = dt_arena_strdup(&l->arena, e->path);
    }
    return DT_OK;
}

static dt_status append_places(dt_scan *s, uint32_t shard, const places *l) {
    char last[DT_TAR_MAX_PATH] = "", key[DT_TAR_MAX_PATH], ext[64];
    for (size_t i = 0; i < l->n; i++) {
        size_t n_key;
        if (!dt_split_key(l->p[i].name, &n_key, ext, sizeof ext)) continue;
        const char *name = l->p[i].name;
        while (name[0] == '.' && name[1] == '/') name += 2, n_key -= 2;
        memcpy(key, name, n_key);
        key[n_key] = '\0';
        if (strcmp(last, key) != 0) DT_TRY(dt_catalog_add_record(s->c, shard, key));
        memcpy(last, key, n_key + 1);
        DT_TRY(dt_catalog_add_member(s->c, ext, l->p[i].offset, l->p[i].size, NULL));
        DT_TRY(dt_scan_member(s, ext, l->p[i].offset, l->p[i].size));
    }
    return DT_OK;
}

// ---- beside the tar --------------------------------------------------------------------------------
static dt_status read_text(const char *path, char **text, size_t *n) {
    return dt_io_read_file(text, n, path, 0, DT_E_DATA);
}

// DALI's tool names it after the tar up to the first dot; people name it after the last.
static char *dali_path(const char *tar, int variant) {
    const char *slash = strrchr(tar, '/'), *base = slash ? slash + 1 : tar;
    const char *dot = variant == 0 ? strchr(base + (*base != '\0'), '.') : strrchr(base, '.');
    char *path = dot ? dt_xprintf("%.*s.idx", (int)(dot - tar), tar) : dt_xprintf("%s.idx", tar);
    if (dt_io_exists(path)) return path;
    free(path);
    return NULL;
}

dt_status dt_tar_index_load(dt_scan *s, uint32_t shard, bool *used) {
    char *path = dali_path(s->blob->path, 0), *text = NULL;
    size_t n = 0;
    if (!path) path = dali_path(s->blob->path, 1);
    *used = false;
    if (!path || s->blob->fd < 0) {
        free(path);
        return DT_OK;
    }
    places l = {.n = 0};
    dt_arena_init(&l.arena);
    dt_tar *t = dt_xcalloc(1, sizeof *t);
    dt_tar_entry *e = dt_xcalloc(1, sizeof *e);
    dt_tar_begin(t, s->blob);
    dt_status st = read_text(path, &text, &n);
    if (st == DT_OK) st = dt_dali_parse(path, text, n, s->blob->n_bytes, note_place, &l);
    if (st == DT_OK) st = check_places(t, &l, e);
    if (st == DT_OK) st = name_places(t, &l, e);
    *used = st == DT_OK;
    if (*used)
        st = append_places(s, shard, &l);
    else if (st == DT_E_DATA) {
        dt_warn("%s: not used, %s is scanned: %s", path, s->blob->path, dt_error_message());
        st = DT_OK;
    }
    free(e);
    free(t);
    free(l.p);
    dt_arena_fini(&l.arena);
    free(text);
    free(path);
    return st;
}

void dt_tar_index_compare(const dt_scan *s) {
    char *path = dt_xprintf("%s.idx", s->blob->path), *data = NULL;
    size_t n = 0;
    uint64_t first = 1;
    if (dt_io_exists(path) && read_text(path, &data, &n) == DT_OK && n >= 16 && n % 8 == 0) {
        memcpy(&first, data, 8);
        if (first == 0 && n / 8 - 1 != s->c->n_records)
            dt_warn("%s: says %zu records, and the tar has %u: it is not of the tar as that is now",
                    path, n / 8 - 1, s->c->n_records);
    }
    dt_error_clear();
    free(data);
    free(path);
}
