// fuzz_onnx.c: any bytes as an ONNX file: refused, or a graph whose shapes hold; weights are read in full. libFuzzer
// begins best with corpus_onnx/small.onnx alone (23 nodes, 1.5 KB): -max_len=4096.
// Parser: runtime/onnx/onnx_import.c!dt_onnx_open runtime/onnx/onnx_import_ops.c!dt_onnx_import_ops
// Parser: runtime/onnx/onnx_import_math.c runtime/onnx/onnx_fold.c runtime/onnx/onnx_tensor.c
#include "onnx/onnx_import.h"

#include <stddef.h>
#include <stdint.h>

enum { MAX_INPUTS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    dt_onnx_file *f;
    if (dt_onnx_open_bytes(&f, "fuzz", data, size) != DT_OK) return 0;
    dt_onnx_n_outputs(f);
    for (int k = 0; k < 2 && dt_onnx_n_inputs(f) <= MAX_INPUTS; k++) {
        dt_value in[MAX_INPUTS], features;
        dt_graph *g = dt_graph_create("fuzz", true);
        for (int i = 0; i < dt_onnx_n_inputs(f); i++)
            in[i] = dt_input(g, dt_onnx_input_name(f, i), DT_F32, dt_shape4(2, 3, 32, 32));
        dt_onnx_build(f, g, in, k == 1, &features);
        dt_graph_destroy(g);
    }
    dt_onnx_close(f);
    return 0;
}
