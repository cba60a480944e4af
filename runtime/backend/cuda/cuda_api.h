// cuda_api.h: the table of everything that this backend calls of CUDA, cuDNN and cuBLASLt.
//
// The backend's own code (layouts, plans, launch order, capture, commit) is plain C over this table and needs no CUDA
// header. cuda_real*.c, cuda_dnn*.c and cuda_gemm*.c fill the table with the libraries. tests/cuda/ fills it with a
// fake device: device memory is host memory between guards, custom kernels run on the host (kernel.h), convolutions and
// matmuls are naive loops, and a captured stream is a list that is played back. Machines without a GPU can thus test
// everything except the libraries. Libraries are queried whether they have an engine for every graph of every model
// (tests/cuda/test_dnn_support.c), which needs no device.
//
// Calls return 0 or an error code that error_text explains. They are asynchronous where CUDA's are. Streams, events,
// graphs and plans are opaque. One thread uses a table at a time, except for alloc_host.
#ifndef DT_BACKEND_CUDA_CUDA_API_H
#define DT_BACKEND_CUDA_CUDA_API_H

#include "base/core.h"
#include "graph/attrs.h"

#include <stddef.h>
#include <stdint.h>

typedef enum dt_cuda_kernel {
#define CUDA_CUSTOM_KERNEL(name, args) DT_K_##name,
#include "backend/cuda/cuda_custom_kernels.def"
#undef CUDA_CUSTOM_KERNEL
    DT_K_COUNT
} dt_cuda_kernel;

extern const char *const dt_cuda_kernel_names[]; // by dt_cuda_kernel

typedef struct dt_cuda_grid {
    int64_t blocks; // the grid has one dimension
    int threads;    // per block: a multiple of 32, at most what the kernel allows (kernel.h)
} dt_cuda_grid;

// ---- cuDNN: what one plan computes. cuda_dnn.c turns it into descriptors. ----------------------------
// All activations are NHWC and 16-byte aligned; weights are KRSC. Computes in fp32 (TF32 only if `tf32` is set).
typedef enum dt_dnn_kind {
    // y = act(conv(x, w) + bias)   ptr: x w y [bias], or with sums x w y sum squares [gain shift]
    DT_DNN_CONV_FWD,
    DT_DNN_CONV_DGRAD, // dx                            ptr: dy w dx
    DT_DNN_CONV_WGRAD, // dw                            ptr: x dy dw [gain shift]
    DT_DNN_SDPA_FWD,   // y, lse                        ptr: q k v y lse
    DT_DNN_SDPA_BWD    // dq, dk, dv                    ptr: q k v y dy lse dq dk dv
    // and f32 scratch: dq32 (n,heads,tq,d), NULL if deterministic, else zeroed by cuDNN (9.6); sum (n,heads,tq)
} dt_dnn_kind;
typedef struct dt_dnn_desc {
    dt_dnn_kind kind;
    // The type of all tensors but lse and scratch: bias and dw too, as cuDNN has no other precompiled engines.
    dt_dtype type;
    bool deterministic, tf32;
    int64_t n, c, h, w, k, out_h, out_w; // convolution
    dt_window win;
    int groups;
    dt_activation act;
    bool bias;
    // Forward without bias and act: also writes the sums of y and of its squares for each channel, f32 (k) each.
    bool sums;
    // The convolution reads relu(x gain + shift), gain and shift (c) of `type`. Forward with sums, and wgrad.
    bool normed;
    int fold; // a convolution over blocks of so many pixels each way as channels (cuda_desc.c); 0: none
    int64_t heads, tq, tk,
        d; // attention: (n, heads, t, d); strides of q, k, v, y in elements for n, head, t
    int64_t stride_q[3], stride_k[3], stride_v[3], stride_y[3];
    float scale;
} dt_dnn_desc;
// Prints one line that names every field into buf (DT_DESC_TEXT bytes, cuda_desc.h) and returns buf. Descriptions with
// equal text share a plan.
const char *dt_dnn_desc_print(const dt_dnn_desc *d, char *buf);
bool dt_dnn_desc_equal(const dt_dnn_desc *a, const dt_dnn_desc *b);
enum { DT_DNN_POINTERS = 11 };
int dt_dnn_pointers(const dt_dnn_desc *d); // how many pointers a run takes

// ---- cuBLASLt ---------------------------------------------------------------------------------------
// Row-major d (m,n) = epilogue(alpha * op(a) op(b)), batched, with strides in elements. GELU is the tanh form. aux is
// (m,n) and has d's type and leading dimension. A run may add to d instead; it has the algorithm of one that overwrites,
// so a gradient added to another has the bits of two gradients that are added afterwards.
typedef enum dt_gemm_epilogue {
    DT_GEMM_NONE,
    DT_GEMM_BIAS, // + bias (n)
    DT_GEMM_BIAS_RELU,
    DT_GEMM_BIAS_GELU,
    DT_GEMM_BIAS_GELU_AUX, // aux receives the input of the GELU
    DT_GEMM_DGELU,         // * the slope of GELU at aux
    DT_GEMM_BGRAD          // bias (m) = op(a) summed over k, beside the matmul
} dt_gemm_epilogue;
static inline bool dt_gemm_has_bias(dt_gemm_epilogue e) {
    return e != DT_GEMM_NONE && e != DT_GEMM_DGELU;
}
static inline bool dt_gemm_has_aux(dt_gemm_epilogue e) {
    return e == DT_GEMM_BIAS_GELU_AUX || e == DT_GEMM_DGELU;
}
typedef struct dt_gemm_desc {
    int64_t m, n, k, lda, ldb, ldd, batch, stride_a, stride_b, stride_d;
    bool trans_a, trans_b;
    dt_dtype type, out_type; // of a and b; of d
    dt_dtype bias_type;
    dt_gemm_epilogue epilogue;
    float alpha;
    bool tf32, deterministic;
    int align; // of a, b and d, in bytes; 0: DT_GEMM_ALIGN
} dt_gemm_desc;
enum { DT_GEMM_ALIGN = 32 }; // bf16 weights begin at multiples of 16 elements (dt_flat_extent)

typedef struct dt_cuda_device_info {
    char name[128];
    int major, minor, n_sm;
    char pci[16];                   // "0000:1b:00.0", lower case, as in /sys/bus/pci/devices
    int numa_node;                  // -1: unknown
    char cores[64];                 // nearest cores: "0-15,64-79"; "": unknown
    size_t total_bytes, free_bytes; // free 0: unknown while the device is not in use
    int driver, runtime;            // CUDA versions that they support: 13000
    char driver_version[32];        // the driver's own release: "580.65.06"; "": unknown
    double bytes_s, clock_hz;       // of its memory, of its multiprocessors, at most; 0: unknown
} dt_cuda_device_info;

// What is between two devices.
typedef struct dt_cuda_link {
    bool peer; // one device can read the other's memory
    bool nvlink;
} dt_cuda_link;

// CUDA's codes for the errors that have a remedy of their own.
enum {
    DT_CUDA_OUT_OF_MEMORY = 2,
    DT_CUDA_NO_CODE = 209,         // a module has no code for the device
    DT_CUDA_NO_PTX_COMPILER = 221, // that part of the driver is not installed
    DT_CUDA_PTX_TOO_NEW = 222,
    DT_CUDA_DEVICE_BUSY = 46,   // exclusive-process mode and in use, or prohibited mode
    DT_CUDA_DEVICE_IN_USE = 216 // exclusive-thread mode, of old drivers
};

typedef struct dt_cuda_api dt_cuda_api;
struct dt_cuda_api {
    void *self;
    const char *(*error_text)(dt_cuda_api *a, int error);
    // Returns whether a library reports that it has no engine for a description. Any other error is a fault.
    bool (*is_refusal)(dt_cuda_api *a, int error);
    const char *(*versions)(dt_cuda_api *a); // "CUDA 13.0, cuDNN 9.19.0, cuBLASLt 13.2, NCCL 2.28.9"
    int (*device_count)(dt_cuda_api *a, int *n);
    int (*device_use)(dt_cuda_api *a, int index);
    int (*device_info)(dt_cuda_api *a, int index, dt_cuda_device_info *out); // does not use it
    int (*device_link)(dt_cuda_api *a, int from, int to, dt_cuda_link *out); // uses neither

    int (*alloc)(dt_cuda_api *a, void **p, size_t n_bytes);
    int (*free)(dt_cuda_api *a, void *p);
    int (*alloc_host)(dt_cuda_api *a, void **p, size_t n_bytes); // pinned
    int (*free_host)(dt_cuda_api *a, void *p);
    // direction: 1 to the device, 0 from it, 2 within it. Stream NULL: waits until the copy is done.
    int (*copy)(dt_cuda_api *a, void *dst, const void *src, size_t n_bytes, int direction, void *stream);
    int (*zero)(dt_cuda_api *a, void *dst, size_t n_bytes, void *stream);

    int (*stream_create)(dt_cuda_api *a, void **stream, bool urgent);
    int (*stream_destroy)(dt_cuda_api *a, void *stream);
    int (*stream_synchronize)(dt_cuda_api *a, void *stream); // NULL: the device
    int (*stream_query)(dt_cuda_api *a, void *stream, bool *done);
    int (*event_create)(dt_cuda_api *a, void **event, bool timed);
    int (*event_destroy)(dt_cuda_api *a, void *event);
    int (*event_record)(dt_cuda_api *a, void *event, void *stream);
    int (*event_wait)(dt_cuda_api *a, void *event, void *stream); // the stream waits, not the host
    int (*event_ms)(dt_cuda_api *a, void *begin, void *end, float *ms);

    int (*capture_begin)(dt_cuda_api *a, void *stream);
    int (*capture_end)(dt_cuda_api *a, void *stream, void **graph); // instantiated
    int (*graph_launch)(dt_cuda_api *a, void *graph, void *stream);
    int (*graph_destroy)(dt_cuda_api *a, void *graph);

    // args: the kernel's struct as in cuda_custom_kernels.def; copied
    int (*launch)(dt_cuda_api *a, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *stream);

    // Plans. choices: how many engines there are, in cuDNN's order of preference; choice: the number of one.
    int (*dnn_plan)(dt_cuda_api *a, const dt_dnn_desc *d, int choice, void **plan, size_t *workspace_bytes);
    int (*dnn_choices)(dt_cuda_api *a, const dt_dnn_desc *d, int *n);
    // How many engines, at the end of the list, compile when their plan is made, which takes a second each. 0 before
    // dnn_choices was called.
    int (*dnn_compiled)(dt_cuda_api *a, const dt_dnn_desc *d);
    int (*dnn_run)(dt_cuda_api *a, void *plan, void *const *ptr, void *workspace, void *stream);
    int (*dnn_destroy)(dt_cuda_api *a, void *plan);
    int (*gemm_plan)(dt_cuda_api *a, const dt_gemm_desc *d, int choice, void **plan, size_t *workspace_bytes);
    int (*gemm_choices)(dt_cuda_api *a, const dt_gemm_desc *d, int *n);
    // add: to d. bias and aux: NULL where the epilogue has none.
    int (*gemm_run)(dt_cuda_api *a, void *plan, const void *A, const void *B, void *D, bool add, void *bias, void *aux,
                    void *workspace, void *stream);
    int (*gemm_destroy)(dt_cuda_api *a, void *plan);
};

#endif
