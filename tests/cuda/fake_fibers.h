// fake_fibers.h: what kernel.h's macros mean where the threads of a block are real threads of control (fake_races.c):
// fibers, each with a stack of its own, which run from barrier to barrier in a random order. Shared memory is static, as
// on a device, and every access to it and to global memory is looked at (fake_fibers.c): what another thread touches
// without a barrier in between, one of the two writing, is a race and aborts the test.
#ifndef DT_TESTS_CUDA_FAKE_FIBERS_H
#define DT_TESTS_CUDA_FAKE_FIBERS_H

#include "backend/cuda/cuda_api.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct fake_fiber_place { // the fiber that runs
    int64_t block, grid;
    int block_dim, thread;
} fake_fiber_place;
extern fake_fiber_place fake_fiber;

void fake_fiber_barrier(int line);
void fake_fiber_warp(int line);
void fake_fiber_share(void *p, size_t n_bytes); // of the block, filled with NaN by the first thread that comes
void *fake_fiber_copy(void *to, const void *from, size_t n);
void fake_fiber_add(void *p, size_t n_bytes, uint64_t x); // atomically, to an integer

#ifdef DT_HOST_FIBERS
#define DT_FN                                          static inline __attribute__((unused))
#define DT_KERNEL(name, args_t)                        DT_KERNEL_BOUND(name, args_t, 256, 1)
#define DT_KERNEL_BOUND(name, args_t, threads, blocks) static __attribute__((unused)) void name##_fiber(const args_t *a)
#define DT_THREADS(t)                                  for (int t = DT_THREAD, dt_go_ = 1; dt_go_; dt_go_ = 0, fake_fiber_barrier(__LINE__))
#define __syncthreads()                                fake_fiber_barrier(__LINE__)
#define __syncwarp()                                   fake_fiber_warp(__LINE__)
#define DT_UNROLL(n)
#define DT_THREAD    (fake_fiber.thread)
#define DT_BLOCK     (fake_fiber.block)
#define DT_GRID      (fake_fiber.grid)
#define DT_BLOCK_DIM (fake_fiber.block_dim)
#define DT_SHARED(type, x, n)                                                                                          \
    static type x[n] __attribute__((aligned(16)));                                                                     \
    fake_fiber_share(x, sizeof x)
#define DT_PUBLISH_SYSTEM(to, v) (*(to) = (v))                // one fiber at a time
#define memcpy(to, from, n)      fake_fiber_copy(to, from, n) // else an access that nobody looks at
#define atomicAdd(to, n)         fake_fiber_add((to), sizeof *(to), (n))
#endif

// The kernels, compiled with -fsanitize=thread, whose calls fake_fibers.c takes.
typedef void fake_fiber_kernel(const void *args);
extern fake_fiber_kernel *const fake_fiber_kernels[];

#endif
