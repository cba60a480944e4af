// all_kernels.h: every custom kernel, for the device (kernels.cu) and for the host (tests/cuda). One line for each
// file, in alphabetical order.
#include "backend/cuda/kernels/augment_kernels.h"
#include "backend/cuda/kernels/batch_norm_backward_kernels.h"
#include "backend/cuda/kernels/batch_norm_kernels.h"
#include "backend/cuda/kernels/commit_kernels.h"
#include "backend/cuda/kernels/elementwise_kernels.h"
#include "backend/cuda/kernels/image_kernels.h"
#include "backend/cuda/kernels/loss_kernels.h"
#include "backend/cuda/kernels/rows_kernels.h"
#include "backend/cuda/kernels/shape_kernels.h"
#include "backend/cuda/kernels/weights_kernels.h"
