// backend.h: the table that a backend fills. cpu/ (oneDNN and custom kernels) is linked in; cuda/ is a module
// that is loaded if a GPU is wanted. Nothing above this header knows which one runs.
//
// A kernel implements one op in one direction. While a plan is made, it calls prepare() for each node in
// execution order with a kernel instance (dt_kernel_instance): the node, the types and shapes of its tensors, and the
// layouts of its inputs. The kernel may request other input layouts (the plan inserts reorders). It sets the
// layouts of its outputs, its scratch bytes, which output may reuse an input's memory, and which packed
// copies of parameters it reads. It creates what the library needs and keeps that in `state`. A missing or
// refusing kernel fails there, never in a step. run() gets pointers and may not allocate, log or fail.
//
// Layouts:
//   DENSE         logical row-major (images: NCHW). PARAM, BUFFER, GRAD, STAT and INPUT values always are
//   NHWC          channels last
//   BLOCKED       NCHW with blocks of `block` channels innermost, (N, ceil(C/b), H, W, b). Padding channels
//                 are zero; every kernel that writes a BLOCKED tensor keeps them zero
// Behind the elements of an NHWC tensor a kernel may leave more (dt_layout_tail) for other kernels of its backend.
//
// GRAD and STAT outputs point into a flat gradient buffer (f32, dense). run() overwrites them, or adds if the
// output's bit in `accumulate` is set.
//
// Threads: prepare and destroy are called from one thread, run() of one instance from one thread at a time
// per exec. Several execs may run an instance at the same time, with their own scratch and activations, so
// run() must not write to `state`. run() may use `threads` OpenMP threads. Results depend on that number and
// on the ISA, and on nothing else.
#ifndef DT_BACKEND_BACKEND_H
#define DT_BACKEND_BACKEND_H

#include "backend/commit.h"
#include "config/words.h"
#include "graph/ir.h"

typedef enum dt_layout_kind { DT_DENSE, DT_NHWC, DT_BLOCKED } dt_layout_kind;
// What lies behind the elements, for readers that know it. Copies in another layout lack it.
typedef struct dt_layout_tail {
    const char *name;                               // of the layout with its tail
    size_t (*bytes)(dt_dtype t, const dt_shape *s); // of elements and tail
} dt_layout_tail;
typedef struct dt_layout {
    uint8_t kind;               // dt_layout_kind
    uint8_t block;              // BLOCKED: 8 or 16
    const dt_layout_tail *tail; // of the backend; NULL: none
} dt_layout;
static inline dt_layout dt_dense(void) {
    return (dt_layout){.kind = DT_DENSE};
}
static inline bool dt_layout_equal(dt_layout a, dt_layout b) {
    return a.kind == b.kind && a.block == b.block && a.tail == b.tail;
}
// Elements stored (with channel padding, without a tail) and bytes of a tensor in a layout.
int64_t dt_layout_elements(dt_layout l, const dt_shape *s);
size_t dt_layout_bytes(dt_layout l, dt_dtype t, const dt_shape *s);
// "dense", "nhwc", "nChw16c", "nChw8c", "nChw4c", or the tail's name
const char *dt_layout_name(dt_layout l);

// ---- packed parameters -----------------------------------------------------------------------------
// A packed parameter is a copy of one or several parameters in the form that a kernel wants (blocked, bf16,
// batch norm folded in). Requests with equal `key` share one copy, across nodes and plans.

typedef struct dt_pack_request {
    uint64_t key; // hash of parameter names + library descriptor + backend version of the packing
    int n_params;
    dt_value params[6]; // graph values (PARAM or BUFFER)
    size_t n_bytes;
    dt_pack_form form;
    // On a device: device memory, queued on `stream`. CPU: stream is NULL.
    void (*pack)(const void *ctx, const float *const *dense, void *packed, int threads, void *stream);
    const void *ctx; // lives as long as the kernel instance
} dt_pack_request;

enum { DT_MAX_PACKS = 2 };

typedef struct dt_kernel_instance {
    const dt_graph *graph;
    const dt_node *node;
    struct dt_backend *backend;
    int threads;
    int n_replicas; // how many execs may run this instance at once (dt_run.replica < n_replicas)
    // by input / output position of the node; DT_NONE positions are ignored
    dt_layout *in_layout;  // in: where inputs lie; out: where the kernel wants them
    dt_layout *out_layout; // out
    size_t scratch_bytes;  // out: 64-byte aligned, contents undefined at run, dead afterwards
    int inplace_in;        // out: input whose memory output 0 may reuse (same bytes), or -1
    bool same_memory;      // out: output 0 is input 0's memory, unchanged
    int n_packs;           // out
    dt_pack_request packs[DT_MAX_PACKS];
    void *state; // the kernel's own; immutable after prepare
} dt_kernel_instance;

// What a kernel exchanges with the other ranks: sums in a fixed order. All ranks run the same instructions. On a device x
// is in its memory, and the sum is queued on the stream of the run.
typedef struct dt_run_ranks {
    void (*all_reduce)(void *ctx, double *x, int64_t n);
    void *ctx;
    int world_size;
} dt_run_ranks;

typedef struct dt_run {
    const void *const *in; // by position; NULL for DT_NONE
    void *const *out;
    void *const *packed; // by pack request
    void *scratch;
    int replica;         // index of the exec: selects its library objects in `state`
    uint64_t accumulate; // bit i: GRAD or STAT output i adds
    const dt_step_block *step;
    const dt_run_ranks *ranks; // NULL: this rank is alone
    void *stream;              // CUDA: the stream to launch on; NULL on the CPU
} dt_run;

typedef struct dt_kernel {
    dt_status (*prepare)(dt_kernel_instance *s); // DT_E_INTERNAL naming node, op, shapes when unsupported
    void (*run)(const dt_kernel_instance *s, const dt_run *r);
    void (*destroy)(dt_kernel_instance *s); // may be NULL; not called if prepare failed
} dt_kernel;

// A backend's kernels of an op, and what the words of its column in ops.def declare and put into its table of them.
typedef struct dt_kernel_pair {
    const dt_kernel *forward, *backward; // NULL: there is none
} dt_kernel_pair;
#define DT_KERNEL_DECLARE_BOTH(k)    extern const dt_kernel k, k##_bwd;
#define DT_KERNEL_DECLARE_FORWARD(k) extern const dt_kernel k;
#define DT_KERNEL_DECLARE_NONE(k)
#define DT_KERNEL_PAIR_BOTH(k)    &k, &k##_bwd
#define DT_KERNEL_PAIR_FORWARD(k) &k, NULL
#define DT_KERNEL_PAIR_NONE(k)    NULL, NULL

// ---- what work moves and computes ------------------------------------------------------------------
// Tensors laid out one behind the other from `base` on, as an instruction needs them. Without memory (dt_device.count,
// untimed) `base` is any address.
typedef struct dt_operands {
    uintptr_t base;
    size_t n_bytes;
    struct {
        uintptr_t at;
        size_t n_bytes;
    } list[256];
    int n;
} dt_operands;
void *dt_operands_add(dt_operands *o, size_t n_bytes); // where it lies, at a multiple of 256 bytes
// Those of a kernel instance, and scratch, which is not listed: all that r needs but its stream. Lists are a's.
void dt_operands_of(dt_operands *o, const dt_kernel_instance *s, struct dt_arena *a, dt_run *r);

// One launch on a device, or one kernel's work on the CPU; or several of one kind.
typedef struct dt_kernel_cost {
    char kind[320]; // "bn_apply", "convolution, forward"
    int n;
    double bytes; // of its operands, each once
    double flop;  // of its products, two for a multiplication with its addition
    // What the device needs at least, for its bytes or for its products; 0: unknown.
    double floor_s;
    double seconds; // measured; 0: it was not
} dt_kernel_cost;

// What a device reaches at best, by its clocks; 0: unknown.
typedef struct dt_device_rates {
    double bytes_s, f32_flop_s, tf32_flop_s, f16_flop_s;
} dt_device_rates;

typedef struct dt_cost_counter {
    dt_operands operands; // of the instruction that runs
    dt_device_rates rates;
    bool timed;
    void (*add)(struct dt_cost_counter *c, const dt_kernel_cost *launch);
} dt_cost_counter;

// ---- a device of its own ---------------------------------------------------------------------------
// On the CPU everything runs in the calling thread, in host memory. A device (a GPU) has memory that the host
// must not touch, runs work queued on streams, and replays captured streams as graphs. alloc, copy_to_device
// and copy_to_host then use device memory and wait for the copy. reorder and the kernels' run() only queue
// work on dt_run.stream; dt_run.step, packed copies and all tensors are in device memory. Whatever changes
// from step to step is read from device memory (dt_device_step), so that one captured graph serves all steps.
// The device's own stream is for work outside steps (loading, packing, evaluation); copy_to_device and
// copy_to_host wait for it.
typedef struct dt_device {
    int index;                      // among the devices that this process sees
    const char *bus;                // PCI address ("0000:1b:00.0"); empty: unknown
    void *stream;                   // the device's own
    const struct dt_nccl_api *nccl; // cuda/nccl_api.h; NULL: no NCCL
    // alloc for buffers that ranks exchange: with several ranks, memory that NCCL uses without copies, if
    // NCCL supports that. Freed by `free`.
    dt_status (*alloc_shared)(struct dt_backend *b, void **p, size_t n_bytes, const char *what);
    // Free and total bytes of device memory.
    void (*memory)(struct dt_backend *b, size_t *free_bytes, size_t *total_bytes);
    // urgent: its kernels start before those of other streams that wait for room
    dt_status (*stream_create)(struct dt_backend *b, void **stream, bool urgent);
    void (*stream_destroy)(struct dt_backend *b, void *stream);
    // Waits for all work on the stream. Returns the device's first error, with advice.
    dt_status (*synchronize)(struct dt_backend *b, void *stream);
    bool (*stream_done)(struct dt_backend *b, void *stream); // never blocks
    // Later work on `stream` waits for all work now queued on `on`. Can be captured.
    void (*stream_wait)(struct dt_backend *b, void *stream, void *on);
    // Asynchronous copies; host memory must come from alloc_host and stay valid until they are done.
    void (*copy_in)(struct dt_backend *b, void *dst, const void *host, size_t n_bytes, void *stream);
    void (*copy_out)(struct dt_backend *b, void *host, const void *src, size_t n_bytes, void *stream);
    void (*add)(struct dt_backend *b, float *dst, const float *src, int64_t n, void *stream);
    void (*swap)(struct dt_backend *b, float *x, float *y, int64_t n, void *stream);
    // Between begin and end, work queued on the stream (and on streams forked from it by stream_wait and joined
    // again) is recorded instead of run. end fails if something cannot be captured.
    dt_status (*capture_begin)(struct dt_backend *b, void *stream);
    dt_status (*capture_end)(struct dt_backend *b, void *stream, void **graph);
    void (*graph_launch)(struct dt_backend *b, void *graph, void *stream);
    void (*graph_destroy)(struct dt_backend *b, void *graph);
    // true: plans that are made from now on only return their size. Their engines are the libraries' favourites,
    // untimed and not remembered. false: as before; plans made in between must be gone.
    dt_status (*size_only)(struct dt_backend *b, bool on);
    dt_device_rates rates;
    // Until it is called with NULL, each launch that kernels queue on the device's own stream is given to c->add instead of
    // run. A custom kernel moves the operands that its arguments point to, a library's plan those of its description.
    // c->timed: operands are zeroed here, and each launch runs, and is timed as a captured chain of itself.
    void (*count)(struct dt_backend *b, dt_cost_counter *c);
    dt_status (*commit_create)(struct dt_backend *b, const dt_commit_args *a, void **commit);
    // Queues one phase of a commit (commit.h); phases are called in their order.
    void (*commit_phase)(struct dt_backend *b, void *commit, dt_commit_phase phase, const float *grad, void *stream);
    // With dt_commit_args.states: sums in device memory that a phase leaves, of this rank's chunks and 0 of all others,
    // and that must be added over the ranks in front of the next phase; NULL: there are none.
    double *(*commit_sums)(struct dt_backend *b, void *commit, dt_commit_phase phase, int64_t *n);
    void (*commit_destroy)(struct dt_backend *b, void *commit);
} dt_device;

typedef struct dt_backend {
    const char *name;        // "cpu", "cuda"
    const dt_device *device; // NULL: the CPU
    void *self;
    bool out_of_memory; // memory of the device that would be there without other processes was not
    int threads;
    const dt_pass *passes; // what its kernels can do fused; plans run them in this order, NULL ends the list
    bool (*supports_dtype)(const struct dt_backend *b, dt_dtype t); // at full speed
    bool (*computes_dtype)(const struct dt_backend *b, dt_dtype t); // at all
    // "cpu avx512_core_bf16, oneDNN 2.6.3, 2 threads"
    const char *(*describe)(const struct dt_backend *b);

    // Memory is 64-byte aligned and zeroed. `what` names it in messages and reports.
    dt_status (*alloc)(struct dt_backend *b, void **p, size_t n_bytes, const char *what);
    void (*free)(struct dt_backend *b, void *p, size_t n_bytes);
    dt_status (*alloc_host)(struct dt_backend *b, void **p, size_t n_bytes,
                            const char *what); // pinned
    void (*free_host)(struct dt_backend *b, void *p, size_t n_bytes);
    void (*copy_to_device)(struct dt_backend *b, void *dst, const void *src, size_t n_bytes);
    void (*copy_to_host)(struct dt_backend *b, void *dst, const void *src, size_t n_bytes);

    // The engine or algorithm chosen by timing for each computation, as lines of text (heap, choices.h); complete
    // once all plans are made. Engines differ in their order of summation, so all ranks and resumed runs must use the
    // same: rank 0's choices (or a checkpoint's) are given to all ranks before plans are made.
    char *(*choices)(struct dt_backend *b);
    void (*take_choices)(struct dt_backend *b, const char *text);
    // train.precision: auto, for the same network in both: *faster is 0 (fp32) or 1 (bf16), which is logged. NULL:
    // bf16 where it is supported.
    dt_status (*choose_precision)(struct dt_backend *b, const dt_graph *fp32, const dt_graph *bf16, int n_replicas,
                                  int *faster);
    char *(*choice_table)(struct dt_backend *b); // for people, with rates; heap; NULL: there is none
    // Plans that are made from now on have n threads a replica; no plan is in use. NULL: a device divides its own work.
    void (*set_threads)(struct dt_backend *b, int n);

    // ops; NULL when the backend has none
    const dt_kernel *(*kernel)(const struct dt_backend *b, dt_op op, bool backward);
    // Copies a tensor into another dtype and layout (padding channels become zero).
    void (*reorder)(struct dt_backend *b, int threads, const dt_shape *shape, const void *src, dt_dtype src_type,
                    dt_layout src_layout, void *dst, dt_dtype dst_type, dt_layout dst_layout, void *stream);

    // Arithmetic on elements [begin, end) of flat buffers, one thread; callers divide the range by chunks
    void (*flat_add)(struct dt_backend *b, float *dst, const float *src, int64_t begin, int64_t end);
    // Returns whether all values that it wrote are finite.
    bool (*flat_optimize)(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end);
    // With clip_agc, before flat_norms: clips rows [begin, end) of all tensors' gradients in place
    void (*flat_clip_agc)(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end);
    // For factored optimizers, before flat_optimize: tensors [begin, end) of a->factored, whose gradients become steps.
    // Returns whether the slots stay finite.
    bool (*flat_factor)(struct dt_backend *b, const dt_optimizer_args *a, int begin, int end);
    // For optimizers with norms, before flat_optimize: a->norms of the chunks in the range
    void (*flat_norms)(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end);
    // partial[c] = sum of squares of chunk c, for chunks [begin, end) of x (n elements); NaN stays NaN
    void (*flat_sum_squares)(struct dt_backend *b, const float *x, int64_t n, double *partial, int64_t begin,
                             int64_t end);

    void (*destroy)(struct dt_backend *b);
} dt_backend;

typedef struct dt_backend_opts {
    int threads;              // most threads that one kernel may use (a replica's share)
    bool deterministic;       // only kernels whose bits are reproducible
    bool timed;               // engines, algorithms, layouts are chosen by timing; false: the libraries' preferred ones
    const char *cache_folder; // keeps what was chosen between runs; NULL: nowhere
    // CPU
    bool winograd; // 3x3 convolutions may use Winograd's algorithm, where timing shows that it is faster
    // CUDA
    int local_rank, local_size; // of this process on its host; picks its device
    int world_size;             // over all hosts; 0 counts as 1
    bool tf32;                  // fp32 matmuls and convolutions may round their inputs to TF32 (10 bits)
    bool unsummed;              // under fp16 no convolution makes or applies a batch norm's sums
    bool uncaptured;            // steps are not graphs, so that engines are not timed in one
} dt_backend_opts;

// Whether the GPU driver's library loads.
bool dt_backend_has_driver(void);

// DT_E_USAGE if this kind cannot be used, saying what is missing. auto: CUDA if there is a driver with a
// device and the module loads, else the CPU, with a warning if there is a driver but CUDA cannot be used.
dt_status dt_backend_create(dt_backend **out, dt_device_kind kind, const dt_backend_opts *opts);
dt_status dt_backend_create_cpu(dt_backend **out, const dt_backend_opts *opts);

// Prints a line for each device and for the module's libraries. DT_E_USAGE as dt_backend_create.
dt_status dt_backend_print_devices(void (*print)(const char *line));

// What dtrain_cuda.so exports, under this name. abi: DT_CUDA_MODULE_ABI of the program.
enum { DT_CUDA_MODULE_ABI = 4 };
typedef struct dt_cuda_module {
    int abi;
    dt_status (*create)(dt_backend **out, const dt_backend_opts *opts);
    dt_status (*print_devices)(void (*print)(const char *line));
} dt_cuda_module;
#define DT_CUDA_MODULE_SYMBOL "dt_cuda_module_table"

// For kernels: fails with node name, op and input shapes before the text.
dt_status dt_instance_fail(const dt_kernel_instance *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline const dt_value_info *dt_instance_in(const dt_kernel_instance *s, int i) {
    return s->node->in[i] == DT_NONE ? NULL : &s->graph->values[s->node->in[i]];
}
static inline const dt_value_info *dt_instance_out(const dt_kernel_instance *s, int i) {
    return s->node->out[i] == DT_NONE ? NULL : &s->graph->values[s->node->out[i]];
}

// Where a data set puts batches that this backend reads: its host memory.
struct dt_batch_memory dt_backend_batch_memory(dt_backend *b);

#endif
