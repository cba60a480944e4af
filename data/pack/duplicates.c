// duplicates.c: content counts as equal if size and XXH3-64 are equal. For two different records of one size the
// chance of that is 2^-64: among a million records, one dataset in forty million has such a pair.

#include "base/arena.h"
#include "base/thread.h"
#include "pack_steps.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { RUN = 16 };

typedef struct entry {
    uint64_t hash, size;
    uint32_t item;
} entry;

static int compare_entries(const void *pa, const void *pb) {
    const entry *a = pa, *b = pb;
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

size_t dt_duplicates_find(const uint64_t *hash, const dt_raw *raw, uint32_t **first) {
    size_t n = 0, n_twins = 0;
    entry *e = dt_xcalloc(raw->n + 1, sizeof *e);
    *first = dt_xcalloc(raw->n + 1, sizeof **first);
    for (uint32_t i = 0; i < raw->n; i++) {
        (*first)[i] = DT_NO_DUPLICATE;
        if (hash[i]) e[n++] = (entry){hash[i], raw->items[i].size, i};
    }
    qsort(e, n, sizeof *e, compare_entries);
    for (size_t i = 1, at = 0; i < n; i++) {
        if (e[i].hash != e[at].hash || e[i].size != e[at].size) {
            at = i;
            continue;
        }
        (*first)[e[i].item] = e[at].item;
        n_twins++;
    }
    free(e);
    return n_twins;
}

typedef struct job {
    const dt_compose *c;
    const uint32_t *items;
    size_t n;
    uint64_t *hash;
    atomic_size_t next;
    atomic_int status;
    dt_error_kept first; // written by the thread that set status
} job;

static void hash_some(void *arg, int worker) {
    job *j = arg;
    dt_composer *w = dt_composer_create(j->c);
    for (size_t at; atomic_load(&j->status) == DT_OK && (at = atomic_fetch_add(&j->next, RUN)) < j->n;)
        for (size_t i = at; i < at + RUN && i < j->n; i++) {
            dt_status st = dt_compose_hash(w, j->items[i], &j->hash[j->items[i]]);
            if (st == DT_OK) continue;
            int none = DT_OK;
            if (atomic_compare_exchange_strong(&j->status, &none, (int)st)) j->first = dt_error_keep();
            break;
        }
    dt_composer_destroy(w);
}

dt_status dt_duplicates_hash(const dt_compose *c, int n_threads, uint64_t *hash) {
    const dt_raw *raw = c->raw;
    entry *e = dt_xcalloc(raw->n + 1, sizeof *e);
    uint32_t *items = dt_xcalloc(raw->n + 1, sizeof *items);
    job j = {.c = c, .items = items, .hash = hash};
    dt_team *team = NULL;
    for (uint32_t i = 0; i < raw->n; i++) e[i] = (entry){0, raw->items[i].size, i};
    qsort(e, raw->n, sizeof *e, compare_entries);
    for (size_t i = 0; i < raw->n; i++) {
        bool twin = (i > 0 && e[i - 1].size == e[i].size) || (i + 1 < raw->n && e[i + 1].size == e[i].size);
        if (twin) items[j.n++] = e[i].item;
    }
    free(e);
    dt_status st = dt_team_create(&team, n_threads, "dt-hash");
    if (st == DT_OK) {
        dt_team_run(team, hash_some, &j);
        dt_team_destroy(team);
        st = (dt_status)atomic_load(&j.status);
        if (st != DT_OK) dt_error_restore(&j.first);
    }
    free(items);
    return st;
}
