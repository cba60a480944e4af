// result_file.c: see the header. Numbers are written with the fewest digits that read back, so a file that was read and
// printed has the text of the first print.
#include "observe/result_file.h"

#include "base/formats.h"
#include "base/io.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static const char LAST[] = "last", CONFUSION[] = "confusion";

json_t *dt_result_of_lines(const char *lines) {
    json_t *records = json_array();
    for (const char *at = lines; at && *at; at += strcspn(at, "\n"), at += *at == '\n')
        json_array_append_new(records, json_loadb(at, strcspn(at, "\n"), 0, NULL));
    return records;
}

json_t *dt_result_of_split(const json_t *records, const char *split) {
    json_t *found = NULL;
    for (size_t i = 0; i < json_array_size(records); i++) {
        json_t *record = json_array_get(records, i);
        const char *name = json_string_value(json_object_get(record, "split"));
        if (name && strcmp(name, split) == 0) found = record; // the best weights come last
    }
    return found;
}

static void put_value(dt_json *j, const char *key, json_t *v, bool confusion) {
    const char *name;
    json_t *item;
    size_t i;
    if (json_is_object(v)) {
        dt_json_begin_object(j, key);
        json_object_foreach(v, name, item) if (confusion || strcmp(name, CONFUSION) != 0)
            put_value(j, name, item, confusion);
        dt_json_end_object(j);
    } else if (json_is_array(v)) {
        dt_json_begin_array(j, key);
        json_array_foreach(v, i, item) put_value(j, NULL, item, confusion);
        dt_json_end_array(j);
    } else if (json_is_string(v)) {
        dt_json_string(j, key, json_string_value(v));
    } else if (json_is_integer(v)) {
        dt_json_int(j, key, json_integer_value(v));
    } else if (json_is_real(v)) {
        dt_json_real(j, key, json_real_value(v));
    } else if (json_is_boolean(v)) {
        dt_json_bool(j, key, json_is_true(v));
    } else {
        dt_json_null(j, key);
    }
}

void dt_result_print(const json_t *records, bool confusion, FILE *out) {
    dt_json j;
    dt_json_init(&j);
    for (size_t i = 0; i < json_array_size(records); i++) {
        put_value(&j, NULL, json_array_get(records, i), confusion);
        dt_json_newline(&j);
    }
    if (j.n_bytes) fputs(j.data, out);
    fflush(out);
    dt_json_fini(&j);
}

dt_status dt_result_write(const char *run_dir, const json_t *records) {
    json_t *all = json_pack("{s:i}", "schema", DT_FORMAT_RESULT), *last = json_object();
    char *path = dt_xprintf("%s/result.json", run_dir);
    dt_json j;
    dt_json_init(&j);
    for (size_t i = 0; i < json_array_size(records); i++) {
        json_t *record = json_array_get(records, i);
        const char *split = json_string_value(json_object_get(record, "split"));
        json_t *best = dt_result_of_split(records, split);
        json_object_set(best == record ? all : last, split, record);
    }
    if (json_object_size(last) > 0) json_object_set(all, LAST, last);
    put_value(&j, NULL, all, true);
    dt_json_newline(&j);
    const dt_status st = dt_io_write_file(path, j.data, j.n_bytes);
    dt_json_fini(&j);
    json_decref(last);
    json_decref(all);
    free(path);
    return st;
}

dt_status dt_result_read(json_t **out, const char *run_dir) {
    char *path = dt_xprintf("%s/result.json", run_dir), *text = NULL;
    size_t n = 0;
    json_t *records = json_array(), *record, *schema;
    // 64 MiB: bounds a file that is none
    const bool there = dt_io_exists(path) && dt_io_read_file(&text, &n, path, 64 << 20, DT_E_CKPT) == DT_OK;
    json_t *all = there ? json_loadb(text, n, 0, NULL) : NULL, *last = json_object_get(all, LAST);
    const char *split;
    dt_error_clear();
    schema = json_object_get(all, "schema");
    const dt_status st = dt_format_check(path, json_integer_value(schema), DT_FORMAT_RESULT, NULL);
    if (there && !schema) { // of version 0.1: the records, a line each
        json_decref(records);
        records = dt_result_of_lines(text);
        json_decref(all);
        all = NULL;
    }
    if (st != DT_OK) json_object_clear(all);
    json_object_foreach(all, split, record) {
        if (!json_is_object(record) || record == last) continue;
        if (json_object_get(last, split)) json_array_append(records, json_object_get(last, split));
        json_array_append(records, record);
    }
    json_decref(all);
    free(text);
    free(path);
    *out = records;
    return st;
}
