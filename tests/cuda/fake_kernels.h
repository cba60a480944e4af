// fake_kernels.h: the custom kernels as host functions, by number. Only fake_kernels.c compiles them. It is the
// slowest file of the tests to compile, so no other file should include all_kernels.h to call one.
#ifndef DT_TESTS_CUDA_FAKE_KERNELS_H
#define DT_TESTS_CUDA_FAKE_KERNELS_H

#include "backend/cuda/cuda_api.h"
#include "backend/cuda/kernel.h"

typedef struct fake_kernel {
    const char *name;
    size_t args_bytes;
    int most_threads;                                      // per block, as compiled
    void (*run)(const void *args, const dt_host_block *b); // one block
} fake_kernel;
extern const fake_kernel fake_kernels[]; // by dt_cuda_kernel

// Runs the launch with threads of its own if it is its turn (fake_cuda_races). Returns whether it did.
bool fake_fibers_take(dt_cuda_kernel k, const void *args, dt_cuda_grid grid);
// The same, but memory is afterwards as it was.
void fake_fibers_look(dt_cuda_kernel k, const void *args, dt_cuda_grid grid);

#endif
