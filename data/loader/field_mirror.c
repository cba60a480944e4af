// field_mirror.c: see fields.h.
#include "fields.h"

#include "base/core.h"
#include "config/words.h"

#include <stdio.h>

// The only image; -1: there is none, or several.
static int only_image(const dt_fields *f) {
    int found = -1, n = 0;
    for (int i = 0; i < f->n; i++)
        if (f->f[i].kind == DT_FIELD_image) found = i, n++;
    return n == 1 ? found : -1;
}

dt_status dt_field_mirrors_read(dt_fields *f, const dt_config *c) {
    char key[320];
    for (int i = 0; i < f->n; i++) {
        dt_field *field = &f->f[i];
        snprintf(key, sizeof key, "data.fields.%s.mirror", field->name);
        const dt_cnode *list = c->data.fields[i].mirror;
        if (!list) continue;
        const int64_t n = dt_shape_elements(&f->info[i].sample_shape);
        if ((int64_t)dt_cnode_size(list) != n)
            return dt_config_fail(c, key, "mirror has %zu factors, field %s has %lld numbers", dt_cnode_size(list),
                                  field->name, (long long)n);
        field->mirror = dt_xcalloc((size_t)n, sizeof *field->mirror);
        for (int64_t k = 0; k < n; k++) {
            double v;
            const dt_cnode *item = dt_cnode_item(list, (size_t)k);
            if (!dt_cnode_real(item, &v) || (v != 1 && v != -1))
                return dt_config_fail(c, key, "mirror: '%s' is neither 1 nor -1", dt_cnode_str(item));
            field->mirror[k] = (float)v;
        }
        field->mirror_of = only_image(f);
        if (field->mirror_of < 0)
            return dt_config_fail(c, key,
                                  "mirror follows the flips of the image, and data.fields "
                                  "has none or several");
    }
    return DT_OK;
}

void dt_field_mirror(const dt_fields *f, int field, const dt_augment_key *k, float *x) {
    const dt_field *own = &f->f[field];
    const dt_field_info *info = &f->info[field];
    const dt_augment *a = f->f[own->mirror_of].augment;
    if (!a || !dt_augment_flips(a, k)) return;
    for (int64_t i = 0; i < dt_shape_elements(&info->sample_shape); i++) {
        const double mean = dt_field_mean(info, i), std = dt_field_std(info, i);
        if (own->mirror[i] < 0) x[i] = (float)(-(double)x[i] - 2 * mean / std);
    }
}
