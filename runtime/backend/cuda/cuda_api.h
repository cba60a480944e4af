// cuda_api.h: the table of everything that this backend asks of CUDA, cuDNN and cuBLASLt.
//
// The backend's own code (layouts, plans, order of launches, capture, commit) is plain C over this table
// and knows no CUDA header. cuda_real*.c, cuda_dnn*.c and cuda_gemm*.c fill it with the libraries. tests/cuda/ fills it with a
// machine that only pretends: device memory is host memory behind a guard, own kernels run on the host
// (kernel.h), convolutions and products are naive loops, a captured stream is a list that is played back.
// So what runs on a GPU is checked on machines without one, except the libraries themselves; those are asked
// whether they have an engine for every graph of every model (tests/cuda/test_dnn_support.c), which needs
// no device.
//
// Calls return 0 or an error code that error_text explains; they are asynchronous where CUDA's are.
// Streams, events, graphs and plans are opaque. One thread uses a table at a time, except alloc_host.
#ifndef DT_BACKEND_CUDA_CUDA_API_H
#define DT_BACKEND_CUDA_CUDA_API_H

#include "base/tensor.h"
#include "graph/attrs.h"

#include <stddef.h>
#include <stdint.h>

typedef enum dt_cuda_kernel {
#define CUDA_OWN_KERNEL(name, args) DT_K_##name,
#include "backend/cuda/cuda_own_kernels.def"
#undef CUDA_OWN_KERNEL
    DT_K_COUNT
} dt_cuda_kernel;

extern const char *const dt_cuda_kernel_names[]; // by dt_cuda_kernel

typedef struct dt_cuda_grid {
    int64_t blocks; // one-dimensional
    int threads;    // a block: a multiple of 32, at most what the kernel says (kernel.h)
} dt_cuda_grid;

// ---- cuDNN: what one plan computes, in our own words. cuda_dnn.c turns it into descriptors. ---------
// All activations NHWC, 16-byte aligned; weights KRSC. Computes in fp32 (TF32 only where `tf32`).
typedef enum dt_dnn_kind {
    // y = act(conv(x, w) + bias)   ptr: x w y [bias], or with sums x w y sum squares [gain shift]
    DT_DNN_CONV_FWD,
    // dx                                  ptr: dy w dx, masked: [x mean invstd scale shift dscale dshift c c c]
    DT_DNN_CONV_DGRAD,
    DT_DNN_CONV_WGRAD, // dw                            ptr: x dy dw [gain shift]
    DT_DNN_SDPA_FWD,   // y, lse                        ptr: q k v y lse
    DT_DNN_SDPA_BWD    // dq, dk, dv                    ptr: q k v y dy lse dq dk dv
    //  and f32 scratch: dq32 (n,heads,tq,d), zeroed before each run, NULL if deterministic; sum (n,heads,tq)
} dt_dnn_kind;
typedef struct dt_dnn_desc {
    dt_dnn_kind kind;
    // Of all but lse and scratch. bias and dw too: cuDNN has precompiled engines for nothing else.
    dt_dtype type;
    bool deterministic, tf32;
    int64_t n, c, h, w, k, out_h, out_w; // convolution
    dt_window win;
    int groups;
    dt_act act;
    bool bias;
    // Forward without bias and act: also writes the sum of each channel of y and of its squares, f32 (k) each.
    bool sums;
    // What is convolved is relu(x gain + shift), gain and shift of `type`, (c) each. Forward with sums, and wgrad.
    bool normed;
    // Dgrad of a convolution behind a batch norm with ReLU in training: dx is what the ReLU let through, x (mean, invstd,
    // scale, shift) being what the batch norm reads; and the sums over it that are the batch norm's dscale and dshift.
    // All of those f32, (c) each. Three more (c) get factors of the batch norm's own dx.
    bool masked;
    int64_t heads, tq, tk,
        d; // attention: (n, heads, t, d); strides of q, k, v, y in elements for n, head, t
    int64_t stride_q[3], stride_k[3], stride_v[3], stride_y[3];
    float scale;
} dt_dnn_desc;
// One line that names every field; buf of DT_DESC_TEXT (cuda_desc.h); returns buf. Equal text, equal plan.
const char *dt_dnn_desc_print(const dt_dnn_desc *d, char *buf);
bool dt_dnn_desc_equal(const dt_dnn_desc *a, const dt_dnn_desc *b);
enum { DT_DNN_POINTERS = 13 };
int dt_dnn_pointers(const dt_dnn_desc *d); // how many of them a run is given

// ---- cuBLASLt ---------------------------------------------------------------------------------------
// Row-major d (m,n) = epilogue(alpha * op(a) op(b) + beta * d), batched with strides in elements. GELU is the
// tanh form. aux is (m,n), of d's type and leading dimension.
typedef enum dt_gemm_epilogue {
    DT_GEMM_NONE,
    DT_GEMM_BIAS, // + bias (n)
    DT_GEMM_BIAS_RELU,
    DT_GEMM_BIAS_GELU,
    DT_GEMM_BIAS_GELU_AUX, // aux gets what goes into the GELU
    DT_GEMM_DGELU,         // * the slope of GELU at aux
    DT_GEMM_BGRAD          // bias (m) = op(a) summed over k, beside the product
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
    float alpha, beta;
    bool tf32, deterministic;
} dt_gemm_desc;

typedef struct dt_cuda_device_info {
    char name[128];
    int major, minor, n_sm;
    char pci[16];                   // "0000:1b:00.0", lower case, as in /sys/bus/pci/devices
    int numa_node;                  // -1: unknown
    char cores[64];                 // nearest to it, "0-15,64-79"; "": unknown
    size_t total_bytes, free_bytes; // free 0: unknown, as the device is not in use
    int driver, runtime;            // the CUDA they are for: 13000
    char driver_version[32];        // of the driver itself: "580.65.06"; "": unknown
} dt_cuda_device_info;

// What is between two devices.
typedef struct dt_cuda_link {
    bool peer; // one reads the other's memory
    bool nvlink;
} dt_cuda_link;

// CUDA's numbers of the errors that have remedies of their own.
enum {
    DT_CUDA_OUT_OF_MEMORY = 2,
    DT_CUDA_NO_CODE = 209,         // for the device, in a module
    DT_CUDA_NO_PTX_COMPILER = 221, // the driver's part for it is not installed
    DT_CUDA_PTX_TOO_NEW = 222,
    DT_CUDA_DEVICE_BUSY = 46,   // exclusive-process mode and somebody has it, or prohibited mode
    DT_CUDA_DEVICE_IN_USE = 216 // exclusive-thread mode, of old drivers
};

typedef struct dt_cuda_api dt_cuda_api;
struct dt_cuda_api {
    void *self;
    const char *(*error_text)(dt_cuda_api *a, int error);
    // Whether a library says with it that it has no engine for what was described; all else is broken.
    bool (*is_refusal)(dt_cuda_api *a, int error);
    const char *(*versions)(
        dt_cuda_api *a); // "CUDA 13.0, cuDNN 9.19.0, cuBLASLt 13.2, NCCL 2.28.9"
    int (*device_count)(dt_cuda_api *a, int *n);
    int (*device_use)(dt_cuda_api *a, int index);
    int (*device_info)(dt_cuda_api *a, int index, dt_cuda_device_info *out); // does not use it
    int (*device_link)(dt_cuda_api *a, int from, int to, dt_cuda_link *out); // uses neither

    int (*alloc)(dt_cuda_api *a, void **p, size_t n_bytes);
    int (*free)(dt_cuda_api *a, void *p);
    int (*alloc_host)(dt_cuda_api *a, void **p, size_t n_bytes); // pinned
    int (*free_host)(dt_cuda_api *a, void *p);
    // direction: 1 to the device, 0 from it, 2 within it. Stream NULL: the copy is done on return.
    int (*copy)(dt_cuda_api *a, void *dst, const void *src, size_t n_bytes, int direction,
                void *stream);
    int (*zero)(dt_cuda_api *a, void *dst, size_t n_bytes, void *stream);

    int (*stream_create)(dt_cuda_api *a, void **stream);
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

    // args: the kernel's struct, copied; its size is that of the entry in cuda_own_kernels.def
    int (*launch)(dt_cuda_api *a, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *stream);

    // Plans. choices: how many engines there are; choice: which of them. cuDNN's order of preference.
    int (*dnn_plan)(dt_cuda_api *a, const dt_dnn_desc *d, int choice, void **plan,
                    size_t *workspace_bytes);
    int (*dnn_choices)(dt_cuda_api *a, const dt_dnn_desc *d, int *n);
    // How many at the end of the list are compiled when their plan is made: a second each. 0 before dnn_choices.
    int (*dnn_compiled)(dt_cuda_api *a, const dt_dnn_desc *d);
    int (*dnn_run)(dt_cuda_api *a, void *plan, void *const *ptr, void *workspace, void *stream);
    int (*dnn_destroy)(dt_cuda_api *a, void *plan);
    // A finished plan as text (heap), and a plan of such text: nothing is asked for or compiled.
    int (*dnn_text)(dt_cuda_api *a, void *plan, char **text);
    int (*dnn_restore)(dt_cuda_api *a, const dt_dnn_desc *d, const char *text, void **plan,
                       size_t *workspace_bytes);
    int (*gemm_plan)(dt_cuda_api *a, const dt_gemm_desc *d, int choice, void **plan,
                     size_t *workspace_bytes);
    int (*gemm_choices)(dt_cuda_api *a, const dt_gemm_desc *d, int *n);
    // bias and aux: NULL where the epilogue has none
    int (*gemm_run)(dt_cuda_api *a, void *plan, const void *A, const void *B, void *D, void *bias,
                    void *aux, void *workspace, void *stream);
    int (*gemm_destroy)(dt_cuda_api *a, void *plan);
};

#endif
