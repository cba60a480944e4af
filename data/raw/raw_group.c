// raw_group.c: records of several files: those that agree in the captures of --group become the members of one record.
//
// Band1/img-7.fits … Band4/img-7.fits with {id} in common are record "7" with members band1.fits … band4.fits. What
// the files of a record do not agree in (the band) is a column of none of them.
#define _GNU_SOURCE
#include "raw.h"

#include <stdlib.h>
#include <string.h>

bool dt_raw_is_listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0')) return true;
    }
    return false;
}

// The values of the group's columns, in their order in the list.
static dt_status raw_group_make_key(dt_raw *r, dt_raw_item *item, const char *group) {
    char *list = dt_arena_strdup(&r->arena, group), *save = NULL;
    const char *key = NULL;
    for (char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        const dt_raw_column *c = NULL;
        for (int k = 0; k < r->n_columns; k++)
            if (strcmp(r->columns[k].name, name) == 0) c = &r->columns[k];
        if (!c) return dt_fail(DT_E_USAGE, "--group %s: the pattern captures no {%s}", group, name);
        uint32_t v = c->cell[item->row];
        if (v == DT_NO_VALUE)
            return dt_fail(DT_E_USAGE,
                           "--group %s: %s has no {%s}: every alternative of the "
                           "pattern must capture it",
                           group, item->name, name);
        key = key ? dt_arena_printf(&r->arena, "%s/%s", key, r->values[v]) : r->values[v];
    }
    if (!key) return dt_fail(DT_E_USAGE, "--group: expected names of captures: id,eye");
    char *out = dt_arena_strdup(&r->arena, key);
    for (char *p = out; *p; p++)
        if (*p == '.') *p = '-';
    item->key = out;
    return DT_OK;
}

static int compare_parts(const void *pa, const void *pb) {
    const dt_raw_item *a = pa, *b = pb;
    int order = strcmp(a->key, b->key);
    if (order == 0) order = strcmp(a->ext, b->ext);
    return order ? order : strcmp(a->name, b->name);
}

static void keep_common(dt_raw *r, const dt_raw_item *part, size_t n) {
    for (int k = 0; k < r->n_columns; k++) {
        uint32_t *cell = r->columns[k].cell;
        for (size_t i = 1; i < n && cell; i++)
            if (cell[part[i].row] != cell[part[0].row]) cell[part[0].row] = DT_NO_VALUE;
    }
}

static dt_status raw_group_merge(dt_raw *r, const dt_raw_item *part, size_t n, dt_raw_item *out) {
    for (size_t i = 1; i < n; i++)
        if (strcmp(part[i - 1].ext, part[i].ext) == 0)
            return dt_fail(DT_E_DATA,
                           "%s: %s and %s would both be member %s of record %s: capture what tells "
                           "them apart as {member}",
                           r->source, part[i - 1].name, part[i].name, part[i].ext, part[i].key);
    if (n > DT_RAW_MOST_PARTS)
        return dt_fail(DT_E_DATA, "%s: record %s has %zu files, the first is %s; at most %d fit", r->source, part->key,
                       n, part->name, DT_RAW_MOST_PARTS);
    dt_raw_item *kept = dt_arena_alloc(&r->arena, n * sizeof *kept);
    memcpy(kept, part, n * sizeof *kept);
    keep_common(r, kept, n);
    *out = kept[0];
    out->parts = kept;
    out->n_parts = (uint32_t)n;
    for (size_t i = 1; i < n; i++) out->size += kept[i].size;
    return DT_OK;
}

static void count_incomplete(dt_raw *r) {
    uint32_t most = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->items[i].n_parts > most) most = r->items[i].n_parts;
    for (size_t i = 0; i < r->n; i++)
        if (r->items[i].n_parts < most && r->n_incomplete++ == 0) r->first_incomplete = r->items[i].key;
    r->n_parts = most;
}

dt_status dt_raw_group(dt_raw *r, const char *group) {
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) DT_TRY(raw_group_make_key(r, &r->items[i], group));
    qsort(r->items, r->n, sizeof *r->items, compare_parts);
    for (size_t i = 0, end; i < r->n; i = end) {
        for (end = i + 1; end < r->n && strcmp(r->items[i].key, r->items[end].key) == 0;) end++;
        dt_raw_item whole;
        DT_TRY(raw_group_merge(r, &r->items[i], end - i, &whole));
        r->items[n++] = whole;
    }
    r->n = n;
    count_incomplete(r);
    return DT_OK;
}
