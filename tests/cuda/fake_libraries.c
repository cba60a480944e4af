// fake_libraries.c: fakes of cuDNN and cuBLASLt (see fake_cuda.h). A plan is a description and a choice.
// fake_math.c computes it, when its stream runs.
#include "fake_machine.h"

#include "backend/cuda/cuda_desc.h"
#include "base/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CHOICES = 3 };

static int n_compiled(void) {
    const char *n = getenv("FAKE_CUDA_COMPILED");
    return n ? atoi(n) : 0;
}

// Engine k needs k KiB; the first needs what FAKE_CUDA_WORKSPACE says.
static size_t workspace_of(int choice) {
    const char *n = choice ? NULL : getenv("FAKE_CUDA_WORKSPACE");
    return n ? strtoul(n, NULL, 10) : (size_t)choice * 1024;
}

static int add_plan(machine *m, const fake_plan *f, void **out, size_t *workspace_bytes) {
    if (f->choice < 0 || f->choice >= N_CHOICES + n_compiled()) return FAKE_NOT_SUPPORTED;
    plan *p = dt_xcalloc(1, sizeof *p);
    *p = (plan){.f = *f, .alive = true, .next = m->plans};
    *out = m->plans = p;
    *workspace_bytes = workspace_of(f->choice);
    return 0;
}

static int run_plan(machine *m, work_kind kind, void *plan_, bool add, void *const *ptr, int n_ptr, void *workspace,
                    void *st) {
    plan *p = plan_;
    if (!p->alive) return FAKE_INVALID;
    const bool captured = st && ((stream *)st)->captured;
    if (captured && !p->ran[add]) fake_breach("a plan runs for the first time in a capture");
    p->ran[add] |= !captured;
    const size_t need = workspace_of(p->f.choice);
    const fake_block *w = need ? fake_memory_find(&m->memory, workspace, need) : NULL;
    if (need && (!w || w->pinned)) fake_breach("a plan's workspace is not %zu bytes of the device", need);
    if (need && (uintptr_t)workspace % 256) // required by cublasLtMatmul
        fake_breach("a plan's workspace is not 256-byte aligned");
    work item = {.kind = kind, .plan = p->f};
    item.plan.add = add;
    for (int i = 0; i < n_ptr; i++) {
        const fake_block *b = ptr[i] ? fake_memory_find(&m->memory, ptr[i], 1) : NULL;
        if (ptr[i] && (!b || b->pinned)) fake_breach("tensor %d of a plan is not on the device", i);
        // what cuda_dnn.c and cuda_gemm.c promise to the heuristics
        const uintptr_t align = kind == W_DNN || i == 3 ? 16
                                : p->f.gemm.align       ? (uintptr_t)p->f.gemm.align
                                                        : DT_GEMM_ALIGN;
        if (ptr[i] && (uintptr_t)ptr[i] % align)
            fake_breach("tensor %d of a plan is not %d-byte aligned", i, (int)align);
        item.ptr[i] = ptr[i];
    }
    return fake_queue(m, st, &item);
}

static int dnn_plan(dt_cuda_api *a, const dt_dnn_desc *d, int choice, void **out, size_t *bytes) {
    const int e = fake_note(of(a), "dnn_plan", "", 0, NULL);
    return e ? e : add_plan(of(a), &(fake_plan){.dnn = *d, .choice = choice}, out, bytes);
}
static int dnn_choices(dt_cuda_api *a, const dt_dnn_desc *d, int *n) {
    const char *unserved = getenv("FAKE_CUDA_NO_DNN");
    char text[DT_DESC_TEXT];
    const bool named = unserved && strncmp(dt_dnn_desc_print(d, text), unserved, strlen(unserved)) == 0;
    const bool none = named || (d->sums && getenv("FAKE_CUDA_NO_SUMS")) || (d->normed && getenv("FAKE_CUDA_NO_NORMED"));
    *n = none ? 0 : N_CHOICES + n_compiled();
    return fake_note(of(a), "dnn_choices", "", 0, NULL);
}
static int dnn_compiled(dt_cuda_api *a, const dt_dnn_desc *d) {
    return n_compiled();
}
static bool is_refusal(dt_cuda_api *a, int error) {
    return error == FAKE_NOT_SUPPORTED;
}
static int dnn_run(dt_cuda_api *a, void *p, void *const *ptr, void *workspace, void *st) {
    const int e = fake_note(of(a), "dnn_run", fake_dnn_name(&((plan *)p)->f), 0, st);
    return e ? e : run_plan(of(a), W_DNN, p, false, ptr, dt_dnn_pointers(&((plan *)p)->f.dnn), workspace, st);
}
static int plan_destroy(machine *m, plan *p, const char *call) {
    const int e = fake_note(m, call, "", 0, NULL);
    if (e) return e;
    if (!p->alive) return FAKE_INVALID;
    p->alive = false;
    return 0;
}
static int dnn_destroy(dt_cuda_api *a, void *p) {
    return plan_destroy(of(a), p, "dnn_destroy");
}
static int gemm_plan(dt_cuda_api *a, const dt_gemm_desc *d, int choice, void **out, size_t *bytes) {
    const int e = fake_note(of(a), "gemm_plan", "", 0, NULL);
    return e ? e : add_plan(of(a), &(fake_plan){.gemm = *d, .choice = choice}, out, bytes);
}
static int gemm_choices(dt_cuda_api *a, const dt_gemm_desc *d, int *n) {
    const bool plain = d->epilogue <= DT_GEMM_BIAS_RELU;
    *n = !plain && getenv("FAKE_CUDA_NO_EPILOGUE") ? 0 : N_CHOICES;
    return fake_note(of(a), "gemm_choices", "", 0, NULL);
}
static int gemm_run(dt_cuda_api *a, void *p, const void *A, const void *B, void *D, bool add, void *bias, void *aux,
                    void *workspace, void *st) {
    const dt_gemm_epilogue epilogue = ((plan *)p)->f.gemm.epilogue;
    const int e = fake_note(of(a), "gemm_run", fake_gemm_name(epilogue), 0, st);
    void *const ptr[] = {(void *)A, (void *)B, D, bias, aux};
    if (dt_gemm_has_bias(epilogue) != (bias != NULL) || dt_gemm_has_aux(epilogue) != (aux != NULL)) return FAKE_INVALID;
    return e ? e : run_plan(of(a), W_GEMM, p, add, ptr, 5, workspace, st);
}
static int gemm_destroy(dt_cuda_api *a, void *p) {
    return plan_destroy(of(a), p, "gemm_destroy");
}

void fake_libraries_fill(dt_cuda_api *a) {
    a->is_refusal = is_refusal;
    a->dnn_plan = dnn_plan;
    a->dnn_compiled = dnn_compiled;
    a->dnn_choices = dnn_choices;
    a->dnn_run = dnn_run;
    a->dnn_destroy = dnn_destroy;
    a->gemm_plan = gemm_plan;
    a->gemm_choices = gemm_choices;
    a->gemm_run = gemm_run;
    a->gemm_destroy = gemm_destroy;
}

int fake_libraries_close(machine *m) {
    int n = 0;
    while (m->plans) {
        plan *p = m->plans;
        m->plans = p->next;
        if (p->alive) n += fake_left(m, "a plan", 0);
        free(p);
    }
    return n;
}
