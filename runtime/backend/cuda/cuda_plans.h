// cuda_plans.h: plans of cuDNN and cuBLASLt: chosen by timing, and kept.
#ifndef DT_BACKEND_CUDA_CUDA_PLANS_H
#define DT_BACKEND_CUDA_CUDA_PLANS_H

#include "backend/choices.h"
#include "backend/cuda/cuda_api.h"
#include "backend/cuda/cuda_desc.h"
#include "base/core.h"

// ---- cuda plans ---------------------------------------------------------------------------------------------------

// Plans of cuDNN and cuBLASLt. All kernel instances that describe the same work share a plan, and this
// module decides which of the available engines it uses.
//
// When a description is first asked for, the engines that the library prefers (at most DT_PLAN_TRIES) are timed on
// memory of their own, and the fastest wins: its number is the choice (backend/choices.h).

// The version of the engine lists that choices index. Raise it when engines are left out or added. It is part of file
// names and of what checkpoints record of their machine.
#define DT_PLAN_CHOICES "5"
enum { DT_PLAN_TRIES = 10, DT_PLAN_WORKSPACE = 1 << 30 };

typedef struct dt_cuda_plans dt_cuda_plans;

// A plan, the number of its engine, and what it computes. Lives as long as the dt_cuda_plans that made it.
typedef struct dt_cuda_plan {
    void *plan;
    size_t workspace_bytes;
    int choice;
    union {
        dt_dnn_desc dnn;
        dt_gemm_desc gemm;
    } does;
} dt_cuda_plan;

typedef struct dt_cuda_plans_opts {
    // What choices depend on besides the description: library versions, driver, device. Part of the file name.
    const char *machine;
    const char *folder;    // where the file of choices is; NULL: none
    bool no_timing;        // always take the library's favourite; no file
    bool uncaptured;       // time plans launched one by one instead of in a graph
    size_t most_workspace; // of an engine, in bytes, unless all want more; 0: DT_PLAN_WORKSPACE
    bool size_only;        // the plans are not to run: no warnings
} dt_cuda_plans_opts;

dt_status dt_cuda_plans_create(dt_cuda_plans **out, dt_cuda_api *api, const dt_cuda_plans_opts *opts);
// Saves the file if something changed. NULL is allowed.
void dt_cuda_plans_destroy(dt_cuda_plans *p);

// *out NULL with DT_OK: the library has no engine for it, or one with sums does not pay. DT_E_INTERNAL: the library
// does not work, or the device no longer does.
dt_status dt_cuda_plan_dnn(dt_cuda_plans *p, const dt_dnn_desc *d, const dt_cuda_plan **out);
// Decides whether a convolution that applies the batch norm in front is used: a normed forward with its normed weight
// gradient (`second`; NULL: none), which then both have plans.
dt_status dt_cuda_plan_fused(dt_cuda_plans *p, const dt_dnn_desc *first, const dt_dnn_desc *second, bool *take);
dt_status dt_cuda_plan_gemm(dt_cuda_plans *p, const dt_gemm_desc *d, const dt_cuda_plan **out);
const dt_cuda_plan *dt_cuda_plan_find(const dt_cuda_plans *p, const void *plan); // one of its own

// As dt_choices_text, favourites included, and dt_choices_take.
char *dt_cuda_plans_text(const dt_cuda_plans *p);
int dt_cuda_plans_take(dt_cuda_plans *p, const char *text);
// Saves the file now if something changed (destroy does too). A failure is one warning.
void dt_cuda_plans_save(dt_cuda_plans *p);

// ---- plan bench ---------------------------------------------------------------------------------------------------

// Times plans of cuDNN and cuBLASLt on memory of its own, for cuda_plans.c.
//
// The memory holds random values around ±1 of whatever type is read: on zeros a device draws less power and clocks
// higher, which favours some engines. The device does nothing else meanwhile. Each plan runs once to load its kernels
// and once between two events. That says how many runs take half a millisecond, one to twenty, which are then captured
// as one graph, like a step's: launched one by one, runs of a few microseconds would time the host. The better of two
// replays counts. A plan that cannot be captured fails.

// The description of one library's plan, so that choosing is written once.
typedef struct dt_plan_kind {
    bool gemm;
    const dt_dnn_desc *dnn;
    const dt_gemm_desc *mul;
} dt_plan_kind;

typedef struct dt_plan_bench {
    dt_cuda_api *api;
    const dt_plan_kind *kind; // borrowed
    void *memory, *workspace, *stream, *event[2];
    void *ptr[DT_DNN_POINTERS]; // in the order of the description
    size_t n_bytes[DT_DNN_POINTERS];
    bool uncaptured;
} dt_plan_bench;

// uncaptured: runs are launched one by one, as steps are. Returns the table's error codes. Call close after a failure
// too.
int dt_plan_bench_open(dt_plan_bench *b, dt_cuda_api *api, const dt_plan_kind *k, size_t workspace_bytes,
                       bool uncaptured);
void dt_plan_bench_close(dt_plan_bench *b);
// Milliseconds that a plan takes; its workspace must fit.
int dt_plan_bench_time(const dt_plan_bench *b, void *plan, float *ms);
// Milliseconds that filling pointer `at` with zeros takes, which stands for a pass over it. Comes after all plans.
int dt_plan_bench_fill(const dt_plan_bench *b, int at, float *ms);

#endif
