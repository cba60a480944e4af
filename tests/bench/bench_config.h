// bench_config.h: a model's fields and precision as a config describes them, without opening any data. For benches.
#ifndef DT_BENCH_CONFIG_H
#define DT_BENCH_CONFIG_H

#include "backend/cpu/cpu_backend.h"
#include "data/data.h"
#include "models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int bench_config_fields(const dt_config *c, dt_field_info *fields) {
    int n = 0;
    if (dt_data_describe_fields(c, NULL, fields, &n) == DT_OK) return n;
    fprintf(stderr, "%s\n", dt_error_message());
    exit(2);
}

// What training on this CPU would compute in.
static inline dt_dtype bench_config_precision(const dt_config *c) {
    const int precision = c->train.precision;
    bool low = precision == DT_PRECISION_bf16 || (precision == DT_PRECISION_auto && dt_cpu_has_bf16());
    return low ? DT_BF16 : DT_F32;
}

static inline bool bench_config_winograd(const dt_config *c) {
    return c->device.winograd == DT_WINOGRAD_auto;
}

#endif
