// plan_rig.h: what the tests of plans share: the fake device with plans open on it, and descriptions.
#ifndef DT_TESTS_PLAN_RIG_H
#define DT_TESTS_PLAN_RIG_H

#include "fake_cuda.h"
#include "folder.h"

#include "backend/cuda/cuda_plans.h"

static const dt_dnn_desc conv = {.kind = DT_DNN_CONV_FWD,
                                 .type = DT_BF16,
                                 .n = 1,
                                 .c = 4,
                                 .h = 5,
                                 .w = 5,
                                 .k = 3,
                                 .out_h = 3,
                                 .out_w = 3,
                                 .groups = 1,
                                 .bias = true,
                                 .win = {.kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}}};
// As a batch norm behind it (sums) and one in front (normed) want it.
static inline dt_dnn_desc conv_of_norms(bool normed) {
    dt_dnn_desc d = conv;
    d.type = DT_F16;
    d.bias = false;
    d.sums = true;
    d.normed = normed;
    return d;
}
static const dt_dnn_desc attention = {.kind = DT_DNN_SDPA_BWD,
                                      .type = DT_F16,
                                      .n = 1,
                                      .heads = 2,
                                      .tq = 3,
                                      .tk = 5,
                                      .d = 8,
                                      .stride_q = {48, 24, 8},
                                      .stride_k = {80, 40, 8},
                                      .stride_v = {80, 40, 8},
                                      .stride_y = {48, 24, 8},
                                      .scale = 0.5f};
static const dt_gemm_desc matmul = {.m = 3,
                                    .n = 4,
                                    .k = 5,
                                    .lda = 5,
                                    .ldb = 4,
                                    .ldd = 4,
                                    .batch = 1,
                                    .type = DT_F32,
                                    .out_type = DT_F32,
                                    .bias_type = DT_F32,
                                    .epilogue = DT_GEMM_BIAS,
                                    .alpha = 1.0f};

static inline dt_cuda_plans *open_plans(dt_cuda_api *api, const char *machine, const char *folder) {
    dt_cuda_plans *p = NULL;
    const dt_cuda_plans_opts o = {.machine = machine, .folder = folder};
    must(dt_cuda_plans_create(&p, api, &o));
    return p;
}

// The fake device, and the plans that are open on it.
typedef struct rig {
    dt_cuda_api *api;
    dt_cuda_plans *p;
} rig;
static inline rig begin(const char *machine, const char *folder) {
    dt_cuda_api *api = fake_cuda_create(NULL);
    return (rig){api, open_plans(api, machine, folder)};
}
// Like another start on the same machine; folder NULL: without a file.
static inline void start_again(rig *r, const char *folder) {
    dt_cuda_plans_destroy(r->p);
    r->p = open_plans(r->api, "m", folder);
}
static inline void end(rig *r) {
    dt_cuda_plans_destroy(r->p);
    assert_int_equal(fake_cuda_destroy(r->api), 0); // all was given back
}

// The one file whose name begins so; NULL if there is none.
static inline char *file_in(const char *folder, const char *begin) {
    char **names = NULL, *path = NULL;
    size_t n = 0;
    must(dt_io_list_dir(&names, &n, folder, DT_E_STORAGE));
    for (size_t i = 0; i < n; i++) {
        if (strncmp(names[i], begin, strlen(begin)) != 0) continue;
        assert_null(path);
        path = dt_xprintf("%s/%s", folder, names[i]);
    }
    dt_io_free_list(names, n);
    return path;
}

// Whether the convolution applies the batch norm in front.
static inline bool fuses(dt_cuda_plans *p, const dt_dnn_desc *first, const dt_dnn_desc *second) {
    bool take = false;
    must(dt_cuda_plan_fused(p, first, second, &take));
    return take;
}

static inline int choice_of_conv(dt_cuda_plans *p) {
    const dt_cuda_plan *plan = NULL;
    must(dt_cuda_plan_dnn(p, &conv, &plan));
    assert_non_null(plan);
    return plan->choice;
}

#endif
