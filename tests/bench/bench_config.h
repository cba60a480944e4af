// bench_config.h: a model's fields and precision as a config describes them, without opening any data. For benches.
#ifndef DT_BENCH_CONFIG_H
#define DT_BENCH_CONFIG_H

#include "backend/cpu/cpu_backend.h"
#include "models/models.h"

#include <string.h>

static inline int bench_config_fields(const dt_config *c, dt_field_info *fields) {
    const dt_cnode *map = dt_config_node(c, "data.fields");
    int n = 0;
    for (size_t i = 0; map && i < dt_cnode_size(map) && n < 16; i++) {
        const dt_cnode *f = dt_cnode_item(map, i);
        dt_field_info *m = &fields[n++];
        *m = (dt_field_info){.name = dt_cnode_key(map, i), .dtype = DT_I32};
        double v = 0;
        if (strcmp(dt_cnode_str(dt_cnode_get(f, "kind")), "image") == 0) {
            double h = 0, w = 0;
            dt_cnode_real(dt_cnode_item(dt_cnode_get(f, "size"), 0), &h);
            dt_cnode_real(dt_cnode_item(dt_cnode_get(f, "size"), 1), &w);
            v = 3;
            if (dt_cnode_get(f, "channels")) dt_cnode_real(dt_cnode_get(f, "channels"), &v);
            m->is_image = true;
            m->dtype = DT_U8;
            m->sample_shape = dt_shape3((int64_t)h, (int64_t)w, (int64_t)v);
            for (int k = 0; k < 64; k++) m->std[k] = 1;
        } else if (dt_cnode_get(f, "classes") && dt_cnode_real(dt_cnode_get(f, "classes"), &v)) {
            m->n_classes = (int)v;
        }
    }
    return n;
}

// What training on this CPU would compute in.
static inline dt_dtype bench_config_precision(const dt_config *c) {
    const char *precision = dt_config_str(c, "train.precision");
    bool low =
        strcmp(precision, "bf16") == 0 || (strcmp(precision, "auto") == 0 && dt_cpu_has_bf16());
    return low ? DT_BF16 : DT_F32;
}

#endif
