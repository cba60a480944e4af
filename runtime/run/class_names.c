// class_names.c: see the header.
#include "run/class_names.h"

#include "base/json.h"
#include "base/log.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *dt_class_names_text(const dt_field_info *fields, int n_fields) {
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    for (int i = 0; i < n_fields; i++) {
        const dt_field_info *f = &fields[i];
        if (f->n_classes > 0 && !f->class_names) dt_json_int(&j, f->name, f->n_classes);
        if (f->n_classes == 0 || !f->class_names) continue;
        dt_json_begin_array(&j, f->name);
        for (int k = 0; k < f->n_classes; k++)
            f->class_names[k] ? dt_json_string(&j, NULL, f->class_names[k]) : dt_json_null(&j, NULL);
        dt_json_end_array(&j);
    }
    dt_json_end_object(&j);
    char *text = strdup(j.data);
    dt_json_fini(&j);
    return text;
}

static size_t n_classes(const json_t *classes) {
    return json_is_array(classes) ? json_array_size(classes) : (size_t)json_integer_value(classes);
}

// Class k: its name, or its number where it has none.
static const char *class_names_name_of(const json_t *classes, size_t k, char buf[32]) {
    const char *name = json_string_value(json_array_get(classes, k));
    snprintf(buf, 32, "%zu", k);
    return name ? name : buf;
}

void dt_class_names_compare(const char *theirs, const char *ours, const char *from) {
    json_t *a = json_loads(theirs, 0, NULL), *b = json_loads(ours, 0, NULL), *there;
    const char *field;
    json_object_foreach(a, field, there) {
        const json_t *here = json_object_get(b, field);
        char was[32], is[32];
        size_t k = 0, n = n_classes(there);
        if (n != n_classes(here)) continue;
        while (k < n && strcmp(class_names_name_of(there, k, was), class_names_name_of(here, k, is)) == 0) k++;
        if (k < n)
            dt_warn("%s: class %zu of %s was '%s' there and is '%s' here: name the head in "
                    "model.init_keep, so that it starts anew",
                    from, k, field, class_names_name_of(there, k, was), class_names_name_of(here, k, is));
    }
    json_decref(a);
    json_decref(b);
}

dt_status dt_class_names_check(const char *theirs, const char *ours, const char *field) {
    json_t *a = json_loads(theirs, 0, NULL), *b = json_loads(ours, 0, NULL);
    const json_t *there = json_object_get(a, field), *here = json_object_get(b, field);
    const size_t n = n_classes(there);
    char was[32], is[32];
    dt_status st = DT_OK;
    if (n != n_classes(here))
        st = dt_fail(DT_E_USAGE,
                     "train.teacher knows %zu classes of %s, and there are %zu here: they must be "
                     "the same",
                     n, field, n_classes(here));
    for (size_t k = 0; k < n && st == DT_OK; k++)
        if (strcmp(class_names_name_of(there, k, was), class_names_name_of(here, k, is)) != 0)
            st = dt_fail(DT_E_USAGE,
                         "train.teacher: class %zu of %s is '%s' there and '%s' here: they must be "
                         "the same",
                         k, field, class_names_name_of(there, k, was), class_names_name_of(here, k, is));
    json_decref(a);
    json_decref(b);
    return st;
}
