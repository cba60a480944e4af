// json_data.h: JSON that data sets and tables bring, as Python's json writes it.
#ifndef DT_DATA_JSON_DATA_H
#define DT_DATA_JSON_DATA_H

#include <jansson.h>

// json_loadb, but a number that JSON or jansson cannot hold costs only itself: a whole number of more than 63 bits is its
// text; NaN, Infinity and what no double reaches are null.
json_t *dt_json_load(const char *text, size_t n_bytes, size_t flags, json_error_t *error);

#endif
