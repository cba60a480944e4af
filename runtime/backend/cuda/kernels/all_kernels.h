// all_kernels.h: every own kernel, for the device (kernels.cu) and for the host (tests/cuda). One line a
// file, in alphabetical order.
#include "backend/cuda/kernels/commit_kernels.h"
#include "backend/cuda/kernels/conv_kernels.h"
#include "backend/cuda/kernels/relu_kernels.h"
#include "backend/cuda/kernels/reorder_kernels.h"
#include "backend/cuda/kernels/sdpa_kernels.h"
#include "backend/cuda/kernels/weights_kernels.h"
