// cuda_plans.h: plans of cuDNN and cuBLASLt: one for all sites that describe the same work, and which of the
// engines on offer it uses.
//
// The first time a description is asked for, the engines that the library likes best (at most DT_PLAN_TRIES) are
// run a few times on memory of their own and the fastest stays: its number is the choice. Choices are text,
// a line each, "number <tab> description", so that rank 0's can be given to all ranks, kept in checkpoints and
// in a file for the next run on the same kind of machine. A choice that is given is obeyed and nothing is timed.
// cuDNN's finished plans are kept in a file too, so that the next run neither asks its heuristics nor compiles.
//
// One thread, outside steps: everything here belongs to the making of plans.
#ifndef DT_BACKEND_CUDA_PLANS_H
#define DT_BACKEND_CUDA_PLANS_H

#include "backend/cuda/cuda_api.h"
#include "base/status.h"

// What a choice's number means here: raised when engines are left out or in. In the names of files and in what
// checkpoints say of their machine.
#define DT_PLAN_CHOICES "3"
enum {
    DT_PLAN_TRIES = 10,
    DT_PLAN_BUDGET_S = 60,
    DT_PLAN_WORKSPACE = 1 << 30, // the most that an engine may want
    DT_PLAN_LITTLE_WORKSPACE = 32 << 20
};

typedef struct dt_cuda_plans dt_cuda_plans;

// A plan with its place in the table; lives as long as the plans it came from.
typedef struct dt_cuda_plan {
    void *plan;
    size_t workspace_bytes;
    int choice;
} dt_cuda_plan;

typedef struct dt_cuda_plans_opts {
    // What choices depend on besides the description: library versions, driver, device. Names the file.
    const char *machine;
    const char *folder; // of the files; NULL: none
    bool no_timing;     // the library's favourite, and no file of choices
    double budget_s;    // of timing; 0: DT_PLAN_BUDGET_S
} dt_cuda_plans_opts;

dt_status dt_cuda_plans_create(dt_cuda_plans **out, dt_cuda_api *api,
                               const dt_cuda_plans_opts *opts);
// Writes the files if there is news. NULL is fine.
void dt_cuda_plans_destroy(dt_cuda_plans *p);

// *out NULL with DT_OK: the library has no engine for it; or, of one with sums, it is not worth its time.
// DT_E_INTERNAL: the library does not work, or the device no more.
dt_status dt_cuda_plan_dnn(dt_cuda_plans *p, const dt_dnn_desc *d, const dt_cuda_plan **out);
// Whether convolutions that do part of a batch norm's work are taken: a normed forward with its normed weight gradient
// (NULL: none), which then both have plans, or a masked dgrad.
dt_status dt_cuda_plan_fused(dt_cuda_plans *p, const dt_dnn_desc *first, const dt_dnn_desc *second,
                             bool *take);
dt_status dt_cuda_plan_gemm(dt_cuda_plans *p, const dt_gemm_desc *d, const dt_cuda_plan **out);

// All choices made or taken so far, favourites too, sorted; of the file's only those that were used; heap. And the reverse: lines that cannot be read are skipped;
// returns how many were taken. Descriptions that have a plan keep it.
char *dt_cuda_plans_text(const dt_cuda_plans *p);
int dt_cuda_plans_take(dt_cuda_plans *p, const char *text);
// From now on engines may want so much workspace and no more, unless there is no other. What is chosen here or comes from the file
// and wants more is chosen again when it is next asked for, as the file of this bound says or anew; what was given, by a
// checkpoint or rank 0, stays. The file without a bound keeps what it had. Returns how many will be chosen again; plans that sites still hold are void if that is not 0.
int dt_cuda_plans_bound(dt_cuda_plans *p, size_t workspace_bytes);
// Writes the files now, if there is news (destroy does it too). A failure is one warning.
void dt_cuda_plans_save(dt_cuda_plans *p);

#endif
