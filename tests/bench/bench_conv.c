// bench_conv.c: the CPU backend's convolution kernels as a plan would run them, layer by layer: forward,
// then backward (dx, dw and its way into the flat buffer).
//
//   bench_conv [threads [micro_batch [winograd]]]      layers of the fusion network and of ResNet-18; winograd:
//                                                      where it is faster, as training does
//
// Prints, for f32 and, where the ISA has it, bf16: time and GFLOP/s of forward and backward, best of
// several runs. ONEDNN_VERBOSE=1 names the implementations.
#include "backend/cpu/cpu_backend.h"
#include "backend/time_nodes.h"
#include "bench_short.h"
#include "graph/build.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct layer {
    const char *name;
    int c, h, w, out, kernel, stride;
} layer;

static const layer layers[] = {
    {"fingerprint.0", 1, 103, 96, 32, 3, 1},    {"iris.0", 3, 240, 320, 32, 3, 1},
    {"fingerprint.4", 32, 51, 48, 64, 3, 1},    {"iris.4", 32, 120, 160, 64, 3, 1},
    {"fingerprint.8", 64, 25, 24, 128, 3, 1},   {"iris.8", 64, 60, 80, 128, 3, 1},
    {"fingerprint.12", 128, 12, 12, 256, 3, 1}, {"iris.12", 128, 30, 40, 256, 3, 1},
    {"resnet.conv1", 3, 224, 224, 64, 7, 2},    {"resnet.layer1", 64, 56, 56, 64, 3, 1},
    {"resnet.layer2.0", 64, 56, 56, 128, 3, 2}, {"resnet.layer4", 512, 7, 7, 512, 3, 1},
};

static double time_node(dt_backend *b, const dt_graph *g, const dt_node *n) {
    double s = 0;
    if (dt_time_node(g, n, b, b->threads, bench_most(0.15, 0), &s) == DT_OK) return s;
    fprintf(stderr, "%s\n", dt_error_message());
    exit(1);
}

static void bench(dt_backend *b, const layer *l, int batch, dt_dtype t) {
    dt_graph *g = dt_graph_create("bench", true);
    const dt_value x = dt_input(g, "x", t, dt_shape4(batch, l->c, l->h, l->w));
    const dt_conv2d_opts o = {
        .out = l->out, .kernel = l->kernel, .stride = l->stride, .pad = l->kernel / 2};
    const dt_value y = dt_conv2d(g, l->name, x, &o);
    const dt_node_id id = g->values[y].producer;
    const dt_shape ys = g->values[y].shape, xs = g->values[x].shape;
    const dt_shape ws = g->values[g->nodes[id].in[1]].shape;
    const dt_value dy = dt_graph_add_value(g, DT_V_TEMP, "dy", t, &ys);
    const dt_value in[] = {x, g->nodes[id].in[1], DT_NONE, dy};
    const dt_attrs attrs = g->nodes[id].attrs;
    dt_node *n = dt_graph_add_node(g, DT_OP_conv2d, "bwd", in, 4, 2, &attrs);
    n->backward = true;
    n->n_fwd_in = 2;
    n->n_fwd_out = 1;
    if (l->c > 4) n->out[0] = dt_graph_add_value(g, DT_V_TEMP, "dx", t, &xs);
    n->out[1] = dt_graph_add_value(g, DT_V_GRAD, "dw", DT_F32, &ws);
    const double flop =
        2.0 * (double)dt_shape_elements(&ys) * (double)(dt_shape_elements(&ws) / l->out);
    const double forward = time_node(b, g, &g->nodes[id]);
    const double backward = time_node(b, g, &g->nodes[g->n_nodes - 1]);
    const double flop_bwd = flop * (l->c > 4 ? 2 : 1);
    printf("%-16s %-4s  forward %8.1f us %6.1f GFLOP/s   backward %8.1f us %6.1f GFLOP/s\n",
           l->name, dt_dtype_name(t), forward * 1e6, flop / forward / 1e9, backward * 1e6,
           flop_bwd / backward / 1e9);
    dt_graph_destroy(g);
}

int main(int argc, char **argv) {
    const int threads = argc > 1 ? atoi(argv[1]) : 1, batch = argc > 2 ? atoi(argv[2]) : 4;
    dt_backend *b = NULL;
    if (dt_backend_create(
            &b, DT_DEVICE_cpu,
            &(dt_backend_opts){.threads = threads, .timed = argc > 3, .winograd = argc > 3}) !=
        DT_OK)
        return 1;
    printf("%s, micro-batch %d\n", b->describe(b), batch);
    for (int t = 0; t <= dt_cpu_has_bf16(); t++) {
        for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
            bench(b, &layers[i], batch, t ? DT_BF16 : DT_F32);
        }
    }
    b->destroy(b);
    return 0;
}
