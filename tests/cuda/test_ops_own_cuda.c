// test_ops_own_cuda.c: the rows of ops/test_ops_own.c on the CUDA backend and the imitation.
#define DT_ROWS_CUDA 1
#include "ops/test_ops_own.c"
