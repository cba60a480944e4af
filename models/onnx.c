// onnx.c: a network from an ONNX file (runtime/onnx/onnx_import.h): fields are its inputs, by name or, where there is one,
// the only field; images come normalised as the field says. Its first output gives the logits of the target if it has as
// many numbers; if not, or with several targets, its last linear layer makes way for a head of ours.
//
// Outputs: "logits" (N,K), "embedding" (N,D): what the last linear layer reads.
#include "graph/activation_words.h"
#include "models.h"
#include "onnx/onnx_import.h"

#include <string.h>

static dt_value onnx_input_of(dt_graph *g, const dt_model_args *a, const char *name, bool only) {
    const dt_field_info *found = NULL;
    int n = 0;
    for (int i = 0; i < a->n_fields; i++) {
        const dt_field_info *f = &a->fields[i];
        if (!f->is_image && !dt_model_is_numbers(a, f)) continue;
        n++;
        // the field of this name, else the first
        if (!found || strcmp(f->name, name) == 0) found = f;
    }
    // a file of one input needs no matching name where there is one field
    if (!found || (strcmp(found->name, name) != 0 && !(only && n == 1)))
        return dt_graph_fail(g, "its input %.60s is no field of data.fields", name);
    return found->is_image ? dt_model_image(g, a, found) : dt_model_numbers(g, a, found);
}

// Its last node, where that makes probabilities and the target's loss takes logits; or NULL.
static const char *makes_probabilities(const dt_graph *g, const dt_model_args *a, dt_value y) {
    const dt_node_id last = y == DT_NONE ? DT_NONE : dt_info_of(g, y)->producer; // DT_NONE: building has failed
    const dt_loss_row *loss = &dt_losses[a->targets->items[0].loss];
    // a loss that applies softmax or sigmoid itself would apply it twice
    if (last == DT_NONE || !(loss->softmax || loss->gives_labels)) return NULL;
    const dt_node *n = &g->nodes[last];
    const bool sigmoid = n->op == DT_OP_activation && n->attrs.activation.kind == DT_ACTIVATION_sigmoid;
    return sigmoid ? "Sigmoid" : n->op == DT_OP_softmax ? "Softmax" : NULL;
}

static bool gives_logits(const dt_graph *g, const dt_model_args *a, dt_value y) {
    if (y == DT_NONE || a->targets->n > 1) return false;
    const dt_shape *s = &dt_info_of(g, y)->shape; // (N,K)
    return s->n == 2 && s->d[1] == dt_target_n_out(&a->targets->items[0]);
}

static void onnx_build(dt_graph *g, const dt_model_args *a, const dt_onnx_file *f) {
    dt_value in[DT_MAX_FIELDS], features, y;
    const int n = dt_onnx_n_inputs(f);
    if (n < 1 || n > DT_MAX_FIELDS) {
        dt_graph_fail(g, "the file has %d inputs; 1 to %d are read", n, DT_MAX_FIELDS);
        return;
    }
    for (int i = 0; i < n; i++) in[i] = onnx_input_of(g, a, dt_onnx_input_name(f, i), n == 1);
    const int64_t n_out = dt_onnx_n_outputs(f); // below 0: unknown
    const bool other = n_out >= 0 && n_out != dt_target_n_out(&a->targets->items[0]);
    // the last linear layer is left out where its outputs are not the target's
    y = dt_onnx_build(f, g, in, other || a->targets->n > 1, &features);
    if (g->status != DT_OK) return;
    const char *path = a->config->model.onnx, *last = makes_probabilities(g, a, y);
    if (last && g->training) {
        dt_graph_fail(g, "%s ends in %s, and its loss takes logits: export it without", path, last);
        return;
    }
    // the file's own head stays
    if (gives_logits(g, a, y)) {
        if (g->training && a->config->model.dropout > 0)
            dt_graph_fail(g,
                          "%s keeps its own head, which model.dropout does not reach: leave it "
                          "out, and export nn.Dropout in training mode",
                          path);
        if (features != DT_NONE) dt_output(g, "embedding", features);
        dt_model_logits(g, a, y);
        return;
    }
    // no linear layer to cut at
    if (features == DT_NONE) {
        dt_graph_fail(g, "%s: its output fits no target, and its last layer is not linear", path);
        return;
    }
    dt_model_classify(g, a, "head", features, NULL);
}

void dt_model_build_onnx(dt_graph *g, const dt_model_args *a) {
    dt_onnx_file *f = NULL;
    if (dt_onnx_open(&f, a->config->model.onnx) != DT_OK) {
        dt_graph_fail(g, "%s", dt_error_message());
        return;
    }
    // weights are copied into the graph's arena: the file may close
    onnx_build(g, a, f);
    dt_onnx_close(f);
}
