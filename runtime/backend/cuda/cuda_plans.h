// cuda_plans.h: plans of cuDNN and cuBLASLt. All kernel instances that describe the same work share a plan, and this
// module decides which of the available engines it uses.
//
// When a description is first asked for, the engines that the library prefers (at most DT_PLAN_TRIES) are timed on
// memory of their own (plan_bench.h), and the fastest wins: its number is the choice. Choices are text, one per line,
// "number <tab> description", so that rank 0 can give its choices to all ranks, checkpoints can keep them, and a file
// can pass them to the next run on the same kind of machine. A given choice is obeyed without timing.
//
// Used by one thread, while plans are made, never during steps.
#ifndef DT_BACKEND_CUDA_PLANS_H
#define DT_BACKEND_CUDA_PLANS_H

#include "backend/cuda/cuda_api.h"
#include "base/status.h"

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

// All choices made or taken so far, including favourites, sorted, on the heap; of those from the file only the ones
// that were used. take() is the reverse: it skips lines that are malformed and returns how many it took. Descriptions
// that already have a plan keep it.
char *dt_cuda_plans_text(const dt_cuda_plans *p);
int dt_cuda_plans_take(dt_cuda_plans *p, const char *text);
// Saves the file now if something changed (destroy does too). A failure is one warning.
void dt_cuda_plans_save(dt_cuda_plans *p);

#endif
