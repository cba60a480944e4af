// int8_file.c: see int8_file.h.
#include "run/int8_file.h"

#include "base/core.h"
#include "base/formats.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

char *dt_int8_path(const dt_config *c) {
    return dt_xprintf("%s/%s/int8.json", c->run.dir, c->run.name);
}

void dt_int8_build(const dt_int8 *q, const double *errors, int64_t step, dt_json *j) {
    // Weight scales of layers in fp32 are null: the layer is listed with the error that kept it out.
    dt_json_reset(j);
    dt_json_begin_object(j, NULL);
    dt_json_int(j, "format", DT_FORMAT_INT8);
    dt_json_int(j, "step", step);
    dt_json_begin_object(j, "values");
    for (int i = 0; i < q->n_values; i++) {
        dt_json_begin_object(j, q->values[i].name);
        dt_json_real(j, "scale", (double)q->values[i].scale);
        dt_json_bool(j, "negative", q->values[i].negative);
        dt_json_end_object(j);
    }
    dt_json_end_object(j);
    dt_json_begin_object(j, "layers");
    for (int i = 0; i < q->n_layers; i++) {
        const dt_int8_layer *l = &q->layers[i];
        dt_json_begin_object(j, l->name);
        dt_json_real(j, "error", errors[i]);
        if (l->weight)
            dt_json_begin_array(j, "weight");
        else
            dt_json_null(j, "weight");
        for (int64_t k = 0; l->weight && k < l->n; k++) dt_json_real(j, NULL, (double)l->weight[k]);
        if (l->weight) dt_json_end_array(j);
        dt_json_end_object(j);
    }
    dt_json_end_object(j);
    dt_json_end_object(j);
    dt_json_newline(j);
}

// A scale divides: 0, negative numbers, NaN and infinity are refused.
static bool int8_file_read_scale(const json_t *v, float *out) {
    *out = (float)json_number_value(v);
    return json_is_number(v) && *out > 0 && isfinite(*out);
}

static bool read_layer(dt_int8_layer *l, const char *name, json_t *o) {
    const json_t *list = json_object_get(o, "weight");
    *l = (dt_int8_layer){.name = dt_xstrdup(name), .n = (int64_t)json_array_size(list)};
    if (json_is_null(list)) return true; // null: the layer stays fp32
    if (!json_is_array(list) || l->n == 0) return false;
    float *weight = dt_xcalloc((size_t)l->n, sizeof *weight);
    l->weight = weight;
    for (int64_t i = 0; i < l->n; i++)
        // q owns weight already: dt_int8_destroy frees it after a failure
        if (!int8_file_read_scale(json_array_get(list, (size_t)i), &weight[i])) return false;
    return true;
}

// Returns the member that is wrong, or NULL.
static const char *read(dt_int8 *q, json_t *all, int64_t step) {
    json_t *values = json_object_get(all, "values"), *layers = json_object_get(all, "layers");
    const json_t *at = json_object_get(all, "step");
    const char *name;
    json_t *o;
    if (json_integer_value(json_object_get(all, "format")) < 1) return "format";
    // scales fit one set of weights
    if (!json_is_integer(at) || json_integer_value(at) != step) return "step";
    if (!json_is_object(values)) return "values";
    if (!json_is_object(layers)) return "layers";
    q->values = dt_xcalloc(json_object_size(values) + 1, sizeof *q->values); // + 1: an empty object is valid
    q->layers = dt_xcalloc(json_object_size(layers) + 1, sizeof *q->layers);
    json_object_foreach(values, name, o) {
        dt_int8_value *v = &q->values[q->n_values++];
        *v = (dt_int8_value){.name = dt_xstrdup(name), .negative = json_is_true(json_object_get(o, "negative"))};
        if (!json_is_boolean(json_object_get(o, "negative")) ||
            !int8_file_read_scale(json_object_get(o, "scale"), &v->scale))
            return v->name;
    }
    json_object_foreach(layers, name, o) {
        dt_int8_layer *l = &q->layers[q->n_layers++];
        if (!read_layer(l, name, o)) return l->name;
    }
    return NULL;
}

dt_status dt_int8_parse(dt_int8 **out, const char *where, const char *text, int64_t step) {
    dt_int8 *q = dt_xcalloc(1, sizeof *q);
    // a second member of a name would overwrite the first silently
    json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    dt_status st = dt_format_check(where, json_integer_value(json_object_get(all, "format")), DT_FORMAT_INT8, NULL);
    const char *bad = st != DT_OK ? NULL : all ? read(q, all, step) : "JSON";
    if (bad && strcmp(bad, "step") == 0)
        st = dt_fail(DT_E_CKPT, "%s: is of another checkpoint than step %lld: quantise again", where, (long long)step);
    else if (bad)
        st = dt_fail(DT_E_CKPT, "%s: %s is missing or wrong: quantise again", where, bad);
    json_decref(all);
    if (st == DT_OK)
        *out = q;
    else
        dt_int8_destroy(q);
    return st;
}

void dt_int8_destroy(dt_int8 *q) {
    if (!q) return;
    // names are const for readers; here they are heap
    for (int i = 0; i < q->n_values; i++) free((char *)(uintptr_t)q->values[i].name);
    for (int i = 0; i < q->n_layers; i++) {
        free((char *)(uintptr_t)q->layers[i].name);
        free((float *)(uintptr_t)q->layers[i].weight);
    }
    free(q->values);
    free(q->layers);
    free(q);
}
