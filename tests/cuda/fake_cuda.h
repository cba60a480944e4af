// fake_cuda.h: fake CUDA devices, for tests on machines without one. It fills dt_cuda_api, and is stricter
// than a real device where that finds mistakes:
//   - the host cannot access device memory (touching it is a segmentation fault). It lies between guard pages, starts
//     as NaN bytes, and has a canary behind it that free checks;
//   - queued work runs as late as possible: when somebody waits for it, or one item per query. A stream runs alone
//     until it meets a wait, and then only the work waited for runs. A missing wait shows as stale data. Custom
//     kernels run with threads and blocks forwards or backwards;
//   - the default stream (NULL) behaves as CUDA's: copies that wait only wait for it, not for other streams;
//   - queued copies must use pinned memory, which must still exist when they run;
//   - a custom kernel's arguments must not point to ordinary host memory, and its blocks must not have more threads
//     than it declares (kernel.h);
//   - plans need tensors and workspaces aligned as the libraries were promised: 16, 64 and 256 bytes;
//   - a plan must run uncaptured before it is captured, because libraries load a kernel at its first run;
//   - only the thread that chose the device may call (another would use device 0), except for alloc_host;
//   - during a capture the calls that CUDA forbids fail as there (allocating, waiting, an unjoined fork).
// A violation that CUDA would not report is printed and aborts the test.
//
// cuDNN's and cuBLASLt's parts are naive f32 loops. Each has three choices with the same result. The second, or number
// FAKE_CUDA_FASTEST, is the fastest by the fake device's own clock (event_ms), which counts work instead of time.
// Environment variables:
//   FAKE_CUDA_NO_DNN       cuDNN has no engine for descriptions that begin so: "sdpa", "conv_fwd"
//   FAKE_CUDA_NO_SUMS      none for convolutions that also make sums
//   FAKE_CUDA_NO_NORMED    none for convolutions that apply the batch norm in front
//   FAKE_CUDA_NO_EPILOGUE  cuBLASLt has no epilogues but bias and ReLU
//   FAKE_CUDA_BYTES        memory of a device (1 GiB)
//   FAKE_CUDA_VERSIONS     the libraries' versions; FAKE_CUDA_DRIVER: the driver's
//   FAKE_CUDA_COMPILED     how many further engines cuDNN has that it compiles when asked for
//   FAKE_CUDA_ORDERS       see fake_cuda_races; FAKE_CUDA_NO_BARRIER: no thread waits at that barrier of a block (1, 2, …)
//   FAKE_CUDA_WORKSPACE    bytes of workspace that the first engine of each list needs
#ifndef DT_TESTS_CUDA_FAKE_CUDA_H
#define DT_TESTS_CUDA_FAKE_CUDA_H

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/nccl_api.h"

typedef struct fake_cuda_opts {
    int n_devices;      // 0: one
    size_t total_bytes; // of each; 0: FAKE_CUDA_BYTES
} fake_cuda_opts;

// By the fake device's clock a convolution's sums, or the batch norm that it applies, cost nothing up to so many
// channels, and too much above.
enum { FAKE_SUMS_CHEAP = 256 };

// Error codes as in CUDA.
enum {
    FAKE_OUT_OF_MEMORY = DT_CUDA_OUT_OF_MEMORY,
    FAKE_INVALID = 1,
    FAKE_NOT_CAPTURABLE = 900,
    FAKE_CAPTURE_INVALID = 901,
    FAKE_CAPTURE_UNJOINED = 904,
    FAKE_CAPTURE_ISOLATION = 905,
    FAKE_ILLEGAL_ADDRESS = 700, // lasting: all later calls fail
    FAKE_NOT_SUPPORTED = 3000   // a library has no engine
};

dt_cuda_api *fake_cuda_create(const fake_cuda_opts *opts);
// Returns how many things were not given back (each is printed); a test asserts 0. A broken device takes nothing back.
int fake_cuda_destroy(dt_cuda_api *a);

// A backend with its own fake device and fake NCCL (fake_nccl.h) too. Destroying the backend destroys them too, and aborts on a
// leak.
dt_status fake_cuda_backend(dt_backend **out, const dt_backend_opts *opts);
dt_nccl_api *fake_cuda_nccl(dt_backend *b); // the table of such a backend, in which a test may replace functions

// ---- what was asked of it, in order ----------------------------------------------------------------
typedef struct fake_cuda_call {
    const char *call; // the table's field: "alloc", "copy", "launch", "event_wait"
    const char *what; // launch: the kernel's name; else ""
    size_t n_bytes;   // alloc, copy, zero
    void *stream;
    bool captured; // recorded into a graph
} fake_cuda_call;
const fake_cuda_call *fake_cuda_log(dt_cuda_api *a, size_t *n); // until the next call or clear
void fake_cuda_log_clear(dt_cuda_api *a);
int fake_cuda_count(dt_cuda_api *a, const char *call); // calls of this field in the log
// The (after + 1)-th call from now on of this field fails with `error`; after FAKE_ILLEGAL_ADDRESS all calls do.
void fake_cuda_fail(dt_cuda_api *a, const char *call, int after, int error);
// How custom kernels run their threads and blocks: 0 forwards, 1 backwards, -1 (default) alternating.
void fake_cuda_order(dt_cuda_api *a, int order);
// Of what comes from now on, launches number 1, 4, 16, 64, … of each custom kernel that are small enough run with threads of
// their own, in `orders` random orders each, and everything that they touch is looked at (fake_fibers.h): a race aborts the
// test. 0: none. With FAKE_CUDA_ORDERS=1000 the first of a kernel's launches run in more orders, until its blocks have run
// 1,000 times, and the end of the program prints how often blocks of each kernel have. Returns false in a build with a
// sanitizer, where none ever do.
bool fake_cuda_races(int orders);
static inline int fake_cuda_race(void **state) { // in two orders; set-up of a program's tests
    fake_cuda_races(2);
    return 0;
}

// ---- for other fakes (fake_nccl.c) -------------------------------------------------------------
// Host work in a stream's order, capturable; args are copied. It returns false while it waits for another process, and
// is called again later. Logged as `call`.
int fake_cuda_queue(dt_cuda_api *a, const char *call, bool (*host)(const void *args), const void *args,
                    size_t args_bytes, size_t n_bytes, void *stream);
void fake_cuda_move(dt_cuda_api *a); // the calling thread chooses the device
// Logs a call. Returns an error if it is told to fail.
int fake_cuda_note(dt_cuda_api *a, const char *call, size_t n_bytes);
// The number of the capture that the stream is part of, from 1 on; 0: none.
uint64_t fake_cuda_capture(dt_cuda_api *a, const void *stream);
// The number of graphs with such work, including one being captured, without destroyed ones.
int fake_cuda_graphs_with(dt_cuda_api *a, bool (*host)(const void *args));
void fake_cuda_check_device(dt_cuda_api *a, const void *p, size_t n_bytes); // aborts if it is not

#endif
