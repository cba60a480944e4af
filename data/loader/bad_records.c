// bad_records.c: records that cannot be read are logged once, listed in the run directory and, under data.on_error:
// quarantine, not tried again. Records that give no sample because they lack a field or a partner are no error,
// but seldom intended: they are logged and listed too, whatever data.on_error says.
//
// Each rank appends to its own skipped.rank<r>, a JSON line a record: file, record, member, offset, bytes,
// reason. Under `quarantine`, opening the data reads the lines of all ranks, so that a resumed run does not
// try those records again. Whether a record is tried or known to be bad, its place gets the same replacement
// (loader.c). Records without a sample are the same on all ranks: rank 0 logs them, and lists them if the run
// has no list yet.
#include "data_parts.h"

#include "base/core.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sort.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- what is known ---------------------------------------------------------------------------------
static bool is_bad(const dt_skips *k, uint32_t record) {
    return k->seen[record / 8] >> record % 8 & 1;
}

static bool mark(dt_skips *k, uint32_t record) { // under the lock
    bool first = !is_bad(k, record);
    k->seen[record / 8] |= (uint8_t)(1u << record % 8);
    return first;
}

bool dt_skips_find(const dt_data *d, uint32_t sample, uint32_t *record) {
    if (!d->skips.quarantine || d->skips.n == 0) return false; // without a lock: n only grows
    const uint32_t *r = d->view.record + (size_t)sample * (size_t)d->view.width;
    for (int k = 0; k < d->view.width; k++) {
        *record = r[k];
        if (is_bad(&d->skips, r[k])) return true;
    }
    return false;
}

// ---- the list --------------------------------------------------------------------------------------
// A listed record and one of the catalog are the same if these texts are.
static char *skips_name_of(const char *file, const char *record) {
    return dt_xprintf("%s\n%s", file, record); // a newline stands in neither
}

// Reads the lines of a file. A line that a kill has cut is left out, and so are records that only lack something, as
// they are never drawn.
static dt_status read_lines(const char *path, dt_names *listed) {
    char *text, *save = NULL;
    size_t n_bytes;
    DT_TRY(dt_io_read_file(&text, &n_bytes, path, 64 << 20, DT_E_STORAGE));
    for (char *p = strtok_r(text, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
        json_t *j = json_loads(p, 0, NULL);
        const char *file = json_string_value(json_object_get(j, "file"));
        const char *record = json_string_value(json_object_get(j, "record"));
        if (file && record && !json_object_get(j, "left_out")) {
            char *name = skips_name_of(file, record);
            dt_names_add(listed, name);
            free(name);
        }
        json_decref(j);
    }
    free(text);
    return DT_OK;
}

static void mark_listed(dt_data *d, dt_names *listed) {
    const dt_catalog *c = d->reader->catalog;
    if (listed->n == 0) return; // no name is made for each record
    qsort(listed->name, listed->n, sizeof *listed->name, dt_sort_strings);
    for (uint32_t r = 0; r < c->n_records; r++) {
        char *name = skips_name_of(c->shards[c->records[r].shard].path, dt_catalog_str(c, c->records[r].key));
        if (bsearch(&name, listed->name, listed->n, sizeof name, dt_sort_strings)) d->skips.n += mark(&d->skips, r);
        free(name);
    }
}

static dt_status read_lists(dt_data *d, const char *folder) {
    char **names;
    size_t n_names;
    dt_names listed = {0};
    DT_TRY(dt_io_list_dir(&names, &n_names, folder, DT_E_STORAGE));
    dt_status st = DT_OK;
    for (size_t i = 0; i < n_names && st == DT_OK; i++) {
        if (strncmp(names[i], "skipped.", 8) != 0) continue; // of every rank: skipped.0, skipped.1 …
        char *path = dt_xprintf("%s/%s", folder, names[i]);
        st = read_lines(path, &listed);
        free(path);
    }
    if (st == DT_OK) mark_listed(d, &listed);
    dt_names_fini(&listed);
    dt_io_free_list(names, n_names);
    return st;
}

static void put_line(dt_json *j, const dt_data *d, uint32_t record, uint32_t member, const char *reason,
                     bool left_out) {
    const dt_catalog *c = d->reader->catalog;
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "file", c->shards[c->records[record].shard].path);
    dt_json_string(j, "record", dt_catalog_str(c, c->records[record].key));
    if (member < c->n_members) {
        dt_json_string(j, "member", dt_catalog_str(c, c->exts[c->members[member].ext]));
        dt_json_int(j, "offset", (int64_t)c->members[member].offset);
        dt_json_int(j, "bytes", (int64_t)c->members[member].size);
    }
    dt_json_string(j, "reason", reason);
    if (left_out) dt_json_bool(j, "left_out", true);
    dt_json_end_object(j);
    dt_json_newline(j);
}

static void append_line(const dt_data *d, const char *path, uint32_t record, uint32_t member, const char *reason) {
    int fd;
    dt_json j;
    if (dt_io_open_append(&fd, path) != DT_OK) {
        dt_warn("%s", dt_error_message());
        return;
    }
    dt_json_init(&j);
    put_line(&j, d, record, member, reason, false);
    if (dt_io_write(fd, path, j.data, j.n_bytes) != DT_OK) dt_warn("%s", dt_error_message());
    dt_io_close(fd, path);
    dt_json_fini(&j);
}

// ---- records that give no sample -------------------------------------------------------------------
enum { NO_PARTNER = DT_MAX_FIELDS, NO_SIDE, N_REASONS, MAX_LISTED = 10000 };

// Why a record gives no sample: the first field that it lacks, or one of the reasons above.
static int why_unused(const dt_data *d, uint32_t record) {
    bool whole[DT_MAX_WIDTH] = {true, d->view.width > 1};
    int first = NO_SIDE;
    for (int i = 0; i < d->fields.n; i++) {
        if (dt_field_present(&d->fields.f[i], d->reader->catalog, record)) continue;
        whole[d->fields.f[i].part] = false;
        if (first == NO_SIDE) first = i;
    }
    if (d->view.width == 1) return first;
    return whole[0] || whole[1] ? NO_PARTNER : NO_SIDE; // a record is one side of a pair
}

static const char *reason_text(const dt_data *d, int reason, char *buf, size_t cap) {
    if (reason == NO_PARTNER) return "no partner for a pair";
    if (reason == NO_SIDE) return "the fields of neither side of a pair";
    snprintf(buf, cap, "nothing for field '%s'", d->fields.f[reason].name);
    return buf;
}

// What a record lacks of the columns of a field of numbers; else what it has.
static const char *members_of(const dt_data *d, int reason, uint32_t record, char *buf, size_t cap) {
    const dt_catalog *c = d->reader->catalog;
    const dt_record *r = &c->records[record];
    size_t at = 0;
    buf[0] = '\0';
    for (int i = 0; reason < d->fields.n && i < d->fields.f[reason].n_numbers; i++) {
        const int k = d->fields.f[reason].numbers[i].column;
        const char *name = dt_columns_name(&c->table, k);
        if (dt_columns_has(&c->table, k, record)) continue;
        snprintf(buf, cap, "it has no '%s'; data.columns can fill it: case when %s is null then 0 else %s end", name,
                 name, name);
        return buf;
    }
    at += (size_t)snprintf(buf, cap, "it has ");
    for (uint32_t i = 0; i < r->n_members && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s.%s", i ? ", " : "",
                               dt_catalog_str(c, c->exts[c->members[r->first_member + i].ext]));
    return r->n_members > 0 ? buf : "it has no member";
}

static void warn_all_unused(dt_data *d) {
    uint32_t n_records = d->reader->catalog->n_records, n[N_REASONS] = {0}, first[N_REASONS];
    if (d->view.width == 1 && d->view.n == n_records) return; // each record is a sample
    uint8_t *used = dt_xcalloc(n_records + 1, 1);
    const char *log = d->skips.log_path;
    bool list = log && dt_log_rank() == 0 && !dt_io_exists(log); // once a run: a resumed one has the list
    dt_json j;
    dt_json_init(&j);
    for (size_t i = 0; i < (size_t)d->view.n * (size_t)d->view.width; i++) used[d->view.record[i]] = 1;
    for (uint32_t r = 0; r < n_records; r++) {
        if (used[r]) continue;
        char text[128];
        int reason = why_unused(d, r);
        if (n[reason]++ == 0) first[reason] = r;
        if (list && d->base.n_left_out < MAX_LISTED)
            put_line(&j, d, r, UINT32_MAX, reason_text(d, reason, text, sizeof text), true);
        d->base.n_left_out++;
    }
    if (j.n_bytes > 0 && dt_io_write_file(log, j.data, j.n_bytes) != DT_OK) dt_warn("%s", dt_error_message());
    dt_json_fini(&j);
    for (int k = 0; k < N_REASONS; k++) {
        const dt_catalog *c = d->reader->catalog;
        char text[128], members[512];
        if (n[k] > 0)
            dt_warn_alike("%u of %u records have %s and are left out; the first is %s (%s)", n[k], n_records,
                          reason_text(d, k, text, sizeof text), dt_catalog_str(c, c->records[first[k]].key),
                          members_of(d, k, first[k], members, sizeof members));
    }
    free(used);
}

// ---- for the loader --------------------------------------------------------------------------------
dt_status dt_skips_open(dt_data *d) {
    dt_skips *k = &d->skips;
    k->seen = dt_xcalloc(d->reader->catalog->n_records / 8 + 1, 1);
    warn_all_unused(d);
    const char *slash = k->log_path ? strrchr(k->log_path, '/') : NULL;
    if (!k->quarantine || !slash) return DT_OK;
    char *folder = dt_xprintf("%.*s", (int)(slash - k->log_path), k->log_path);
    dt_status st = dt_io_is_dir(folder) ? read_lists(d, folder) : DT_OK;
    if (st == DT_OK && k->n > 0)
        dt_info("%llu records are in quarantine and not tried (listed in %s/skipped.*; remove those "
                "files to try again)",
                (unsigned long long)k->n, folder);
    free(folder);
    return st;
}

void dt_skips_close(dt_data *d) {
    free((void *)d->skips.seen);
    free(d->skips.log_path);
    pthread_mutex_destroy(&d->skips.lock);
}

void dt_skips_note(dt_data *d, uint32_t record, uint32_t member, const char *reason) {
    dt_skips *k = &d->skips;
    pthread_mutex_lock(&k->lock);
    if (mark(k, record)) {
        k->n++;
        dt_warn("skipped: %s", reason);
        if (k->log_path) append_line(d, k->log_path, record, member, reason);
    }
    pthread_mutex_unlock(&k->lock);
}
