// fake_cuda.h: a machine that only pretends to have CUDA devices, for tests on machines without one.
//
// It fills dt_cuda_api. It is stricter than a real device where that finds mistakes:
//   - device memory is not accessible to the host (a touch is a segmentation fault), lies between guard
//     pages, starts as NaN bytes and has a canary behind it that free checks;
//   - queued work runs as late as it may: when somebody waits for it, or a query lets it go on one piece a
//     call. A stream runs alone until it meets a wait, and then only what it waits for is run: a missing wait
//     shows as stale data. Own kernels run with threads and blocks forwards or backwards;
//   - the default stream (NULL) is CUDA's: copies that wait, wait for it and for no other stream;
//   - queued copies must be from and to pinned memory, which must still be there when they run;
//   - an own kernel's arguments must not point to ordinary host memory; its blocks have no more threads than it says
//     (kernel.h);
//   - plans get tensors and workspaces aligned as the libraries were promised, and want: 16, 64 and 256 bytes;
//   - a plan runs uncaptured before it is captured: libraries load a kernel when it is first run;
//   - only the thread that chose the device makes calls (another one would be on device 0), except alloc_host;
//   - while a stream is captured, what CUDA forbids fails as there (allocating, waiting, an unjoined fork).
// A breach of these rules that CUDA would not report is printed and aborts the test.
//
// cuDNN's and cuBLASLt's part are naive loops in f32. Each has three choices that give the same result;
// the second, or number FAKE_CUDA_FASTEST of the environment, is the fastest by the machine's own clock
// (event_ms), which counts work and no time. With FAKE_CUDA_NO_DNN in the environment cuDNN has no engine for
// anything: own kernels serve its ops; with FAKE_CUDA_NO_SUMS, none for convolutions that also make sums; with
// FAKE_CUDA_NO_NORMED, none for convolutions that apply the batch norm in front; with FAKE_CUDA_NO_MASKED, none for those
// that begin its backward pass. With
// FAKE_CUDA_NO_EPILOGUE cuBLASLt adds biases and clips, and no more. FAKE_CUDA_VERSIONS is what the libraries
// call themselves, FAKE_CUDA_DRIVER the driver's version. FAKE_CUDA_COMPILED is how many more engines cuDNN has that it compiles when they are asked for.
// FAKE_CUDA_WORKSPACE is how many bytes of workspace the first engine of each wants.
#ifndef DT_TESTS_CUDA_FAKE_CUDA_H
#define DT_TESTS_CUDA_FAKE_CUDA_H

#include "backend/cuda/cuda_backend.h"

typedef struct fake_cuda_opts {
    int n_devices;      // 0: one
    size_t total_bytes; // of each; 0: 1 GiB
} fake_cuda_opts;

// By the machine's clock a convolution's sums, or what it does of the batch norm in front, cost nothing up to so many
// channels, and too much above. Its backward costs nothing up to FAKE_MASKED_FREE, and then a pass over x.
enum { FAKE_SUMS_CHEAP = 256, FAKE_MASKED_FREE = 128 };

// Error codes, CUDA's own numbers.
enum {
    FAKE_OUT_OF_MEMORY = DT_CUDA_OUT_OF_MEMORY,
    FAKE_INVALID = 1,
    FAKE_NOT_CAPTURABLE = 900,
    FAKE_CAPTURE_INVALID = 901,
    FAKE_CAPTURE_UNJOINED = 904,
    FAKE_CAPTURE_ISOLATION = 905,
    FAKE_ILLEGAL_ADDRESS = 700, // lasting: from then on nothing else is answered
    FAKE_NOT_SUPPORTED = 3000   // a library has no engine
};

dt_cuda_api *fake_cuda_create(const fake_cuda_opts *opts);
// Number of things that were not given back (each is printed); a test asserts 0.
int fake_cuda_destroy(dt_cuda_api *a);

// A backend on a machine of its own; destroying the backend destroys the machine and aborts on a leak.
dt_status fake_cuda_backend(dt_backend **out, const dt_backend_opts *opts);

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
// How own kernels run their threads and blocks: 0 forwards, 1 backwards, -1 (default) by turns.
void fake_cuda_order(dt_cuda_api *a, int order);
size_t fake_cuda_bytes(dt_cuda_api *a); // of device memory in use

// ---- for what else pretends (fake_nccl.c) -----------------------------------------------------------
// Work of the host in a stream's order, capturable; args are copied. While it answers false it waits for
// another process, and is called again. Logged as `call`.
int fake_cuda_queue(dt_cuda_api *a, const char *call, bool (*host)(const void *args),
                    const void *args, size_t args_bytes, size_t n_bytes, void *stream);
void fake_cuda_note(dt_cuda_api *a, const char *call, size_t n_bytes);
// The number of the capture that the stream is part of now, from 1 on; 0: none.
uint64_t fake_cuda_capture(dt_cuda_api *a, const void *stream);
// Graphs that have such work in them, the one that is being captured too; none that are destroyed.
int fake_cuda_graphs_with(dt_cuda_api *a, bool (*host)(const void *args));
void fake_cuda_check_device(dt_cuda_api *a, const void *p, size_t n_bytes); // aborts if it is not

#endif
