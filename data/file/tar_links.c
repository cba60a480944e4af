// tar_links.c: the files that links of a tar lead to.
//
// A hard link names an earlier entry; a symbolic link names a path from its own folder, which may come later, be a link
// again, a folder, or lead through links to folders. A path is followed part by part, as a kernel does it, in a sorted
// table of the tar's files and links.
#include "tar.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

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
    dt_arena_init(&l->arena);
    l->tar = dt_arena_strdup(&l->arena, blob->path);
    dt_tar_begin(&tar, blob);
    while ((st = dt_tar_next(&tar, e, &more)) == DT_OK && more) {
        if (!e->is_regular && !*e->link) continue;
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
        if (i + 1 == l->n || strcmp(l->places[i].path, l->places[i + 1].path) != 0) l->places[n++] = l->places[i];
    l->n = n;
    l->n_left = MIN_NAMES + NAMES_A_PLACE * n;
    if (st == DT_E_DATA) dt_error_clear();
    return st == DT_E_DATA ? DT_OK : st;
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
    if (*path == '/') return false;
    for (size_t n; *path; path += n + (path[n] == '/')) {
        n = strcspn(path, "/");
        if (n == 0 || (n == 1 && *path == '.')) continue;
        if (n == 2 && memcmp(path, "..", 2) == 0) {
            if (!*at) return false;
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
        if (++*n_hops > MAX_HOPS) return false;
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
        if (n_name + strlen(path + n) >= sizeof v->name) continue;
        strcpy(v->name + n_name, path + n);
        DT_TRY(visit_path(v, &(followed){path, f, f->depth + 1}));
        v->name[n_name] = '\0';
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
