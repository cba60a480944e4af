// build.c: the builder calls that are no ops: inputs, parameters, constants.
#include "graph/build.h"

#include <string.h>

dt_value dt_input(dt_graph *g, const char *name, dt_dtype dtype, dt_shape shape) {
    const dt_value v = dt_graph_find(g, name);
    const dt_value_info *known = v == DT_NONE ? NULL : dt_info_of(g, v);
    if (known && known->kind == DT_V_INPUT && known->dtype == dtype && dt_shape_equal(&known->shape, &shape)) return v;
    return dt_graph_add_value(g, DT_V_INPUT, name, dtype, &shape);
}

dt_value dt_param(dt_graph *g, const char *name, dt_shape shape, dt_init init, bool decay) {
    dt_value v = dt_graph_add_value(g, DT_V_PARAM, name, DT_F32, &shape);
    if (v == DT_NONE) return v;
    g->values[v].init = init;
    g->values[v].decay = decay;
    g->values[v].frozen = g->is_frozen && g->is_frozen(g->frozen_ctx, g->values[v].name);
    return v;
}

void dt_param_set_init(dt_graph *g, const char *name, dt_init init) {
    if (g->status != DT_OK) return;
    name = dt_arena_printf(&g->arena, "%s%s", g->scope, name);
    dt_value v = dt_graph_find(g, name);
    if (v == DT_NONE || g->values[v].kind != DT_V_PARAM) {
        dt_graph_fail(g, "parameter %s: no such parameter", name);
        return;
    }
    g->values[v].init = init;
}

dt_value dt_constant(dt_graph *g, const char *name, dt_dtype dtype, dt_shape shape, const void *data) {
    dt_value v = dt_graph_add_value(g, DT_V_CONST, name ? name : "constant", dtype, &shape);
    if (v == DT_NONE) return v;
    size_t n_bytes = (size_t)dt_shape_elements(&shape) * dt_dtype_size(dtype);
    void *copy = dt_arena_alloc(&g->arena, n_bytes);
    memcpy(copy, data, n_bytes);
    g->values[v].data = copy;
    return v;
}

dt_value dt_full(dt_graph *g, dt_shape shape, float v) {
    if (dt_shape_is_sound(&shape) && dt_shape_elements(&shape) > 1 << 28)
        return dt_graph_fail(g, "wants a constant of more than 2^28 elements");
    dt_value c = dt_graph_add_value(g, DT_V_CONST, "constant", DT_F32, &shape);
    if (c == DT_NONE) return c;
    const int64_t n = dt_shape_elements(&shape);
    float *x = dt_arena_alloc(&g->arena, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = v;
    g->values[c].data = x;
    return c;
}

void dt_output(dt_graph *g, const char *name, dt_value v) {
    if (g->status != DT_OK) return;
    if (v == DT_NONE)
        dt_graph_fail(g, "output %s: no such value", name);
    else
        dt_graph_add_output(g, dt_arena_printf(&g->arena, "%s%s", g->scope, name), v);
}
