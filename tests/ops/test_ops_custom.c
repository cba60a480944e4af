// test_ops_custom.c: the CPU backend's custom kernels, once an ISA that the machine has (each_isa.h); on the CUDA backend
// where cuda/test_ops_custom_cuda.c includes it. A row is one case of one op (custom_case.h) and lies in the room of its op,
// rows_<room>.h. What is about the CPU alone, flat buffers and values at the edges, is in test_ops_cpu.c.
#include "each_isa.h"
#include "rows_batch_norm.h"
#include "rows_elementwise.h"
#include "rows_image.h"
#include "rows_losses.h"
#include "rows_pool.h"
#include "rows_shapes.h"
#include "testing.h"

int main(void) {
    return run_rows();
}
