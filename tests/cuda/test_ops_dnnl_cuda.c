// test_ops_dnnl_cuda.c: the rows of ops/test_ops_dnnl.c on the CUDA backend and the fake device.
#define DT_ROWS_CUDA 1
#include "ops/test_ops_dnnl.c"
