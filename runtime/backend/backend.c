// backend.c: what all backends share: layout arithmetic, the error helper of kernels, and the
// choice of a backend by name. The CPU backend is linked in; a CUDA module would be loaded here.
#include "backend/backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int64_t dt_layout_elements(dt_layout l, const dt_shape *s) {
    if (l.kind != DT_BLOCKED || s->n < 2) return dt_shape_elements(s);
    int64_t n = 1;
    for (int i = 0; i < s->n; i++) {
        n *= i == 1 ? (s->d[1] + l.block - 1) / l.block * l.block : s->d[i];
    }
    return n;
}

size_t dt_layout_bytes(dt_layout l, dt_dtype t, const dt_shape *s) {
    return (size_t)dt_layout_elements(l, s) * dt_dtype_size(t);
}

const char *dt_layout_name(dt_layout l) {
    switch (l.kind) {
    case DT_DENSE:
        return "dense";
    case DT_NHWC:
        return "nhwc";
    default:
        return l.block == 16 ? "nChw16c" : "nChw8c";
    }
}

dt_status dt_site_fail(const dt_site *s, const char *fmt, ...) {
    char text[512], shapes[384] = "", one[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t used = 0;
    for (int i = 0; i < s->node->n_in && used + sizeof one < sizeof shapes; i++) {
        const dt_value_info *v = dt_site_in(s, i);
        used += (size_t)snprintf(shapes + used, sizeof shapes - used, "%s%s%s", i ? ", " : "",
                                 v ? dt_dtype_name(v->dtype) : "-",
                                 v ? dt_shape_print(&v->shape, one, sizeof one) : "");
    }
    return dt_fail(DT_E_INTERNAL, "%s: node '%s' (%s%s) of %s: %s", s->backend->name, s->node->name,
                   dt_op_name(s->node->op), s->node->backward ? " backward" : "", shapes, text);
}

dt_status dt_backend_create(dt_backend **out, const char *kind, const dt_backend_opts *opts) {
    *out = NULL;
    if (!strcmp(kind, "cpu") || !strcmp(kind, "auto")) return dt_backend_create_cpu(out, opts);
    if (!strcmp(kind, "cuda")) {
        return dt_fail(DT_E_USAGE, "device.kind: cuda: no CUDA module in this build; "
                                   "use device.kind=cpu or device.kind=auto");
    }
    return dt_fail(DT_E_USAGE, "device.kind: '%s' is not a backend; use cpu, cuda or auto", kind);
}
