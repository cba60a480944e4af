// json.h: a small streaming JSON writer. It appends to one growing buffer (for jsonl, one line a record),
// builds no tree and does not allocate in steady state. Reading uses jansson directly.
#ifndef DT_BASE_JSON_H
#define DT_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The text of fewest digits (15 to 17) that reads back as `value`, which must be finite; returns `out`.
enum { DT_REAL_CHARS = 40, DT_INT_CHARS = 24 };
const char *dt_real_text(char out[DT_REAL_CHARS], double value);
const char *dt_int_text(char out[DT_INT_CHARS], int64_t value);

typedef struct dt_json {
    char *data; // NUL-terminated
    size_t n_bytes, cap_bytes;
    int depth;
    bool need_comma;
} dt_json;

void dt_json_init(dt_json *j);
void dt_json_fini(dt_json *j);
void dt_json_reset(dt_json *j);                         // keeps the buffer
void dt_json_begin_object(dt_json *j, const char *key); // key NULL at top level or in arrays
void dt_json_end_object(dt_json *j);
void dt_json_begin_array(dt_json *j, const char *key);
void dt_json_end_array(dt_json *j);
void dt_json_string(dt_json *j, const char *key,
                    const char *value); // escapes, DEL and C1 too; invalid UTF-8 -> U+FFFD
void dt_json_int(dt_json *j, const char *key, int64_t value);
void dt_json_real(dt_json *j, const char *key,
                  double value); // shortest that reads back; NaN, inf -> null
void dt_json_seconds(dt_json *j, const char *key,
                     double s); // to the nanosecond: a tenth of the time
void dt_json_bool(dt_json *j, const char *key, bool value);
void dt_json_null(dt_json *j, const char *key);
void dt_json_raw(dt_json *j, const char *key, const char *json); // already JSON; the same escapes
void dt_json_newline(dt_json *j);                                // ends a jsonl record at depth 0

#endif
