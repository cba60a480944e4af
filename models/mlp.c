// mlp.c: a multilayer perceptron: fields of numbers that are not targets, side by side, then two hidden layers.
#include "model_util.h"

#include "base/arena.h"

static bool is_target(const dt_model_args *a, const dt_field_info *f) {
    for (int i = 0; i < a->targets->n; i++)
        if (a->targets->items[i].field == f) return true;
    return false;
}

void dt_model_build_mlp(dt_graph *g, const dt_model_args *a) {
    dt_value parts[DT_MAX_FIELDS];
    int n = 0;
    for (int i = 0; i < a->n_fields; i++) {
        const dt_field_info *f = &a->fields[i];
        if (f->is_image || f->n_classes > 0 || is_target(a, f)) continue;
        const dt_shape flat = dt_shape2(a->batch, dt_shape_elements(&f->sample_shape));
        dt_shape shape = dt_shape1(a->batch);
        for (int k = 0; k < f->sample_shape.n; k++) shape.d[shape.n++] = f->sample_shape.d[k];
        parts[n++] = dt_reshape(g, dt_input(g, f->name, DT_F32, shape), flat);
    }
    if (n == 0) {
        dt_graph_fail(g,
                      "wants fields of numbers (kind: vector or real) in data.fields beside its "
                      "target, %s; there are none. To predict a class of them, add it: label: "
                      "{kind: class}",
                      a->targets->items[0].field->name);
        return;
    }
    const int hidden = (int)dt_config_int(a->config, "model.hidden");
    dt_value x = n > 1 ? dt_concat(g, parts, n, 1) : parts[0];
    x = dt_relu(g, dt_linear(g, "fc1", x, hidden, true));
    x = dt_relu(g, dt_linear(g, "fc2", x, hidden, true));
    dt_model_classify(g, a, "fc3", x, NULL);
}
