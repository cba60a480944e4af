// scan.c: what the scanners of all formats do with metadata.
//
// A record whose metadata cannot be read is still a record: it is listed without those columns and counted.
// One warning tells for the whole dataset.
#include "source.h"

#include "config/words.h"

#include <stdio.h>
#include <string.h>

enum { MAX_JSON_BYTES = 65536, MAX_CLS_BYTES = 20 };

// The error set says what is wrong.
static dt_status count_bad(dt_scan *s) {
    if (s->n_bad++ == 0) snprintf(s->first_bad, sizeof s->first_bad, "%s", dt_error_message());
    dt_error_clear();
    return DT_OK;
}

dt_status dt_scan_json(dt_scan *s, const char *json, size_t n_bytes) {
    dt_status st = dt_catalog_set_json(s->c, json, n_bytes);
    if (st != DT_E_DATA) return st;
    s->partial = true; // so that the next opening warns again
    return count_bad(s);
}

static dt_status scan_read_member(const dt_scan *s, uint64_t offset, void *dst, uint64_t size) {
    return s->peek ? dt_peek_read(s->peek, offset, dst, (size_t)size)
                   : dt_blob_read(s->blob, offset, dst, (size_t)size);
}

static dt_status json_member(dt_scan *s, uint64_t offset, uint64_t size) {
    char text[MAX_JSON_BYTES];
    if (size > sizeof text) {
        const dt_record *r = &s->c->records[s->c->n_records - 1];
        dt_fail(DT_E_DATA,
                "%s: record %s: member json has %llu bytes; above %d it is taken for data, not for "
                "metadata",
                s->c->shards[r->shard].path, dt_catalog_str(s->c, r->key), (unsigned long long)size, MAX_JSON_BYTES);
        return count_bad(s); // the rows are kept
    }
    DT_TRY(scan_read_member(s, offset, text, size));
    return dt_scan_json(s, text, (size_t)size);
}

dt_status dt_scan_member(dt_scan *s, const char *ext, uint64_t offset, uint64_t size) {
    char text[MAX_CLS_BYTES + 1];
    const char *dot = strrchr(ext, '.'); // "seg.cls" is a class as "cls" is
    const bool is_class = dt_word_index("cls|cls2|index|inx|id", dot ? dot + 1 : ext) >= 0;
    if (strcmp(ext, "json") == 0) return json_member(s, offset, size);
    if (!is_class || size > MAX_CLS_BYTES) return DT_OK;
    DT_TRY(scan_read_member(s, offset, text, size));
    text[size] = '\0';
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1])) *--end = '\0';
    return dt_catalog_set(s->c, ext, text + strspn(text, " \t\r\n"));
}
