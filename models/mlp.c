// mlp.c: a multilayer perceptron: fields of numbers that are not targets, side by side, then two hidden layers.
#include "trunk.h"

dt_features dt_trunk_mlp(const dt_trunk *t, dt_value x) {
    const int64_t hidden = t->keys->hidden;
    x = dt_relu(t->g, dt_linear(t->g, "fc1", x, hidden, true));
    x = dt_relu(t->g, dt_linear(t->g, "fc2", x, hidden, true));
    return (dt_features){DT_NONE, x};
}

void dt_model_build_mlp(dt_graph *g, const dt_model_args *a) {
    const dt_trunk t = {g, a, "model", &a->config->model.backbone};
    dt_value parts[DT_MAX_FIELDS];
    int n = 0;
    for (int i = 0; i < a->n_fields; i++)
        if (dt_model_is_numbers(a, &a->fields[i])) parts[n++] = dt_model_numbers(g, a, &a->fields[i]);
    if (n == 0) {
        dt_graph_fail(g,
                      "wants fields of numbers (kind: vector or real) in data.fields beside its "
                      "target, %s; there are none. To predict a class of them, add it: label: "
                      "{kind: class}",
                      a->targets->items[0].field->name);
        return;
    }
    const dt_features f = dt_trunk_mlp(&t, n > 1 ? dt_concat(g, parts, n, 1) : parts[0]);
    dt_model_classify(g, a, "fc3", f.pooled, NULL);
}
