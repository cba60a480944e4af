// kernel.h: how a custom kernel is written once and runs both on a device and, for tests, on the host.
//
// A kernel is a block of threads that goes through phases. In a phase each thread does its share; between two phases
// the block synchronizes. On the device a phase is each thread's own code followed by __syncthreads. On the host it is
// a loop over the threads. One phase passes results to the next in shared memory. Kernels written this way have no
// warp shuffles. Sums over a block are trees over shared memory in an order that does not depend on the device, which
// guarantees the same bits in each run.
//
//   typedef struct relu_args { const void *x; void *y; int64_t n; int type; } relu_args;
//   DT_KERNEL(relu_fwd, relu_args) {
//       DT_THREADS(t) {
//           for (int64_t i = DT_BLOCK * DT_BLOCK_DIM + t; i < a->n; i += DT_GRID * DT_BLOCK_DIM)
//               dt_put(a->y, a->type, i, fmaxf(dt_get(a->x, a->type, i), 0.0f));
//       }
//   }
//
// In DT_THREADS `continue` ends a thread's phase. `break` and `return` must not leave it, and every thread of a block
// must reach it. The host runs threads and blocks forwards in one launch and backwards in the next, and first fills
// shared memory with NaN. Code that depends on an order that nothing guarantees then gives different bits.
//
// Kernels are in kernels/<op>_kernels.h, which is both C and CUDA C++: no C++ features, and no C features that C++
// lacks (designated initializers, compound literals, restrict, _Bool, implicit void * casts). kernels/all_kernels.h
// includes them all, for the device in kernels.cu and for the host in the tests' fake device. An op's host side includes
// its custom kernels for their structs. cuda_custom_kernels.def lists the kernels.
#ifndef DT_BACKEND_CUDA_KERNEL_H
#define DT_BACKEND_CUDA_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define DT_FN static __device__ __forceinline__
#define DT_KERNEL_AS(name, args_t, bounds)                                                                             \
    static __device__ __forceinline__ void name##_body(const args_t *a);                                               \
    static __global__ void bounds name(const __grid_constant__ args_t a) {                                             \
        name##_body(&a);                                                                                               \
    }                                                                                                                  \
    static __device__ __forceinline__ void name##_body(const args_t *a)
#define DT_KERNEL(name, args_t) DT_KERNEL_AS(name, args_t, )
// Limits the registers that the compiler may use: a block has at most `threads` threads, and at least `blocks`
// blocks should fit on a multiprocessor. Required for blocks of more than 256 threads.
#define DT_KERNEL_BOUND(name, args_t, threads, blocks) DT_KERNEL_AS(name, args_t, __launch_bounds__(threads, blocks))
#define DT_THREADS(t)                                  for (int t = DT_THREAD, dt_go_ = 1; dt_go_; dt_go_ = 0, __syncthreads())
#define DT_THREAD                                      ((int)threadIdx.x)
#define DT_BLOCK                                       ((int64_t)blockIdx.x)
#define DT_GRID                                        ((int64_t)gridDim.x)
#define DT_BLOCK_DIM                                   ((int)blockDim.x)
#define DT_SHARED(type, x, n)                          __shared__ __align__(16) type x[n]
#define DT_PRAGMA(x)                                   _Pragma(#x)
// Of the loop that follows: n turns at once, so that their loads are in flight together; DT_UNROLL(): all.
#define DT_UNROLL(n) DT_PRAGMA(unroll n)
// An int64_t that the host polls: who loads it with acquire sees all earlier writes.
#define DT_PUBLISH_SYSTEM(to, v) (__threadfence_system(), *(volatile int64_t *)(to) = (v))
#elif !defined DT_HOST_FIBERS // tests/cuda/fake_fibers.h has them for threads that are run one by one
#include <stdatomic.h>

typedef struct dt_host_block { // set by the tests' fake device for each block
    int64_t block, grid;
    int block_dim;
    int backwards; // last thread first
} dt_host_block;
#define DT_FN                   static inline __attribute__((unused))
#define DT_KERNEL(name, args_t) DT_KERNEL_BOUND(name, args_t, 256, 1)
#define DT_KERNEL_BOUND(name, args_t, threads, blocks)                                                                 \
    enum { name##_most_threads = (threads) };                                                                          \
    static inline __attribute__((unused)) void name##_host(const args_t *a, const dt_host_block *dt_b)
#define DT_THREADS(t)                                                                                                  \
    for (int dt_i_ = 0, t; dt_i_ < dt_b->block_dim && (t = dt_b->backwards ? dt_b->block_dim - 1 - dt_i_ : dt_i_, 1);  \
         dt_i_++)
#define DT_UNROLL(n)
#define DT_BLOCK     (dt_b->block)
#define DT_GRID      (dt_b->grid)
#define DT_BLOCK_DIM (dt_b->block_dim)
#define DT_SHARED(type, x, n)                                                                                          \
    type x[n] __attribute__((aligned(16)));                                                                            \
    memset(x, 0xff, sizeof x)
#define DT_PUBLISH_SYSTEM(to, v) atomic_store_explicit((_Atomic int64_t *)(to), v, memory_order_release)
#endif

#endif
