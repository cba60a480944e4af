// cuda_gemm.c: cuBLASLt's descriptors for row-major matmuls. See cuda_dnn.h.
//
// cuBLASLt is column-major. A row-major matrix read by columns is its transpose, so for d = op(a) op(b) dtrain requests
// for d' = op(b)' op(a)': dtrain's b is cuBLASLt's A, its a the B, m and n change places, leading dimensions stay. The
// bias has one number for each column of d, that is, for each row of d', which is what the epilogue adds.
//
// Sums are in fp32. Partial sums of split matmuls must not be stored in a narrower output type, which adding in place
// would do. Of the remaining ways to add them only those with a fixed order are allowed, so that a matmul gives the
// same bits each time (all algorithms then do, with one stream per handle). If bits matter, adding in place is not
// allowed for fp32 either: a matmul that accumulates would start with the old content, while a separate addition comes
// last. fp32 means fp32 unless TF32 is allowed.
//
// If the library has no epilogue for some types and sizes, that is not an error: there is no algorithm, and the caller
// does the work in two steps. The algorithms of a description live as long as the context.
#include "backend/cuda/cuda_dnn.h"

#include "backend/cuda/cuda_desc.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ALGORITHMS = 16, WORKSPACE = 32 << 20 }; // results of the heuristics; bytes

typedef struct gemm_parts {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d; // cuBLASLt's names: a is dtrain's b
} gemm_parts;

typedef struct gemm_list {
    struct gemm_list *next;
    char text[DT_DESC_TEXT]; // the description, as key
    cublasLtMatmulHeuristicResult_t result[MAX_ALGORITHMS];
    int n;
} gemm_list;

struct dt_cublas {
    cublasLtHandle_t handle;
    gemm_list *lists;
};

struct dt_cublas_plan {
    gemm_parts parts;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    float alpha;
    bool bias, aux;
};

static int code_of(cublasStatus_t s) {
    return s == CUBLAS_STATUS_SUCCESS ? 0 : DT_CUBLAS_ERROR + (int)s;
}

const char *dt_cublas_error_text(int error) {
    return cublasLtGetStatusString((cublasStatus_t)(error - DT_CUBLAS_ERROR));
}

bool dt_cublas_is_refusal(int error) {
    const int s = error - DT_CUBLAS_ERROR;
    // the types, sizes or epilogue are not supported
    return s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE || s == CUBLAS_STATUS_ARCH_MISMATCH;
}

int dt_cublas_version(void) {
    return (int)cublasLtGetVersion();
}

// ---- descriptors -----------------------------------------------------------------------------------
static cudaDataType_t data_type(dt_dtype t) {
    return t == DT_BF16 ? CUDA_R_16BF : t == DT_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static void destroy_parts(gemm_parts *p) {
    if (p->op) cublasLtMatmulDescDestroy(p->op);
    if (p->a) cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) cublasLtMatrixLayoutDestroy(p->b);
    if (p->d) cublasLtMatrixLayoutDestroy(p->d);
    *p = (gemm_parts){0};
}

#define SET(kind, to, name, value) cublasLt##kind##SetAttribute(to, CUBLASLT_##name, &(value), sizeof(value))

// A column-major matrix, batched if batch is above 1.
static cublasStatus_t layout(cublasLtMatrixLayout_t *out, dt_dtype type, int64_t rows, int64_t cols, int64_t ld,
                             int64_t batch, int64_t stride) {
    const int32_t count = (int32_t)batch; // batches are int32 in cuBLASLt
    cublasStatus_t s = cublasLtMatrixLayoutCreate(out, data_type(type), (uint64_t)rows, (uint64_t)cols, ld);
    if (s || batch <= 1) return s; // a single matrix has no batch attributes
    s = SET(MatrixLayout, *out, MATRIX_LAYOUT_BATCH_COUNT, count);
    return s ? s : SET(MatrixLayout, *out, MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
}

// The heuristics only check whether pointers are set; each run sets its own.
static cublasStatus_t set_epilogue(cublasLtMatmulDesc_t op, const dt_gemm_desc *d) {
    // by dt_gemm_epilogue; dtrain's a is cuBLASLt's B, so the sums over a are BGRADB
    static const cublasLtEpilogue_t names[] = {CUBLASLT_EPILOGUE_DEFAULT,       CUBLASLT_EPILOGUE_BIAS,
                                               CUBLASLT_EPILOGUE_RELU_BIAS,     CUBLASLT_EPILOGUE_GELU_BIAS,
                                               CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
                                               CUBLASLT_EPILOGUE_BGRADB};
    const cublasLtEpilogue_t epilogue = names[d->epilogue];
    const cudaDataType_t type = data_type(d->bias_type);
    const void *const not_null = (const void *)(uintptr_t)4096; // any aligned address
    const bool bias = dt_gemm_has_bias(d->epilogue), aux = dt_gemm_has_aux(d->epilogue);
    cublasStatus_t s = SET(MatmulDesc, op, MATMUL_DESC_EPILOGUE, epilogue);
    if (!s && bias) s = SET(MatmulDesc, op, MATMUL_DESC_BIAS_POINTER, not_null);
    if (!s && bias) s = SET(MatmulDesc, op, MATMUL_DESC_BIAS_DATA_TYPE, type);
    if (!s && aux) s = SET(MatmulDesc, op, MATMUL_DESC_EPILOGUE_AUX_POINTER, not_null);
    if (!s && aux) s = SET(MatmulDesc, op, MATMUL_DESC_EPILOGUE_AUX_LD, d->ldd); // aux has d's shape
    return s;
}

static cublasStatus_t operation(cublasLtMatmulDesc_t *out, const dt_gemm_desc *d) {
    const cublasComputeType_t compute =
        d->type == DT_F32 && d->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t a = d->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N; // cuBLASLt's A is dtrain's b
    const cublasOperation_t b = d->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t s = cublasLtMatmulDescCreate(out, compute, CUDA_R_32F);
    if (!s) s = SET(MatmulDesc, *out, MATMUL_DESC_TRANSA, a);
    if (!s) s = SET(MatmulDesc, *out, MATMUL_DESC_TRANSB, b);
    return s || d->epilogue == DT_GEMM_NONE ? s : set_epilogue(*out, d);
}

static cublasStatus_t make_parts(gemm_parts *p, const dt_gemm_desc *d) {
    *p = (gemm_parts){0};
    cublasStatus_t s = operation(&p->op, d);
    if (!s)
        s = layout(&p->a, d->type, d->trans_b ? d->k : d->n, d->trans_b ? d->n : d->k, d->ldb, d->batch, d->stride_b);
    if (!s)
        s = layout(&p->b, d->type, d->trans_a ? d->m : d->k, d->trans_a ? d->k : d->m, d->lda, d->batch, d->stride_a);
    if (!s) s = layout(&p->d, d->out_type, d->n, d->m, d->ldd, d->batch, d->stride_d); // (n, m): d transposed
    if (s) destroy_parts(p);
    return s;
}

// ---- heuristics ------------------------------------------------------------------------------------
static cublasStatus_t preference(cublasLtMatmulPreference_t *out, const dt_gemm_desc *d) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = WORKSPACE;
    // bytes: less than usual where heads lie closer
    const uint32_t alignment = d->align ? (uint32_t)d->align : DT_GEMM_ALIGN;
    // INPLACE only where the output is f32 and bits may vary
    const uint32_t sums = d->out_type == DT_F32 && !d->deterministic
                              ? CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                              : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasStatus_t s = cublasLtMatmulPreferenceCreate(out);
    if (!s) s = SET(MatmulPreference, *out, MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    if (!s) s = SET(MatmulPreference, *out, MATMUL_PREF_REDUCTION_SCHEME_MASK, sums);
    for (int i = 0; !s && i < 4; i++)
        s = cublasLtMatmulPreferenceSetAttribute(*out, alignments[i], &alignment, sizeof alignment);
    return s;
}

static cublasStatus_t query(dt_cublas *c, const dt_gemm_desc *d, gemm_list *l) {
    gemm_parts p;
    cublasLtMatmulPreference_t wish = NULL;
    int n = 0;
    cublasStatus_t s = make_parts(&p, d);
    if (s) return s;
    s = preference(&wish, d);
    if (!s)
        s = cublasLtMatmulAlgoGetHeuristic(c->handle, p.op, p.a, p.b, p.d, p.d, wish, MAX_ALGORITHMS, l->result, &n);
    // finding none is not an error
    if (s == CUBLAS_STATUS_NOT_SUPPORTED || (s == CUBLAS_STATUS_INVALID_VALUE && d->epilogue)) {
        s = CUBLAS_STATUS_SUCCESS;
        n = 0;
    }
    for (int i = 0; !s && i < n; i++)
        // compacts in place: entries that cannot run are dropped
        if (l->result[i].state == CUBLAS_STATUS_SUCCESS) l->result[l->n++] = l->result[i];
    if (wish) cublasLtMatmulPreferenceDestroy(wish);
    destroy_parts(&p);
    return s;
}

static int list_of(dt_cublas *c, const dt_gemm_desc *d, gemm_list **out) {
    char text[DT_DESC_TEXT];
    dt_gemm_desc_print(d, text);
    for (gemm_list *l = c->lists; l; l = l->next) {
        if (strcmp(l->text, text) == 0) {
            *out = l;
            return 0; // the list of an earlier call
        }
    }
    gemm_list *l = calloc(1, sizeof *l);
    if (!l) abort();
    memcpy(l->text, text, sizeof text);
    const cublasStatus_t s = query(c, d, l);
    if (s) {
        free(l);
        return code_of(s);
    }
    l->next = c->lists;
    c->lists = l;
    *out = l;
    return 0;
}

// ---- public ----------------------------------------------------------------------------------------
int dt_cublas_open(dt_cublas **out) {
    dt_cublas *c = calloc(1, sizeof *c);
    if (!c) abort();
    const cublasStatus_t s = cublasLtCreate(&c->handle);
    if (s) {
        free(c);
        c = NULL;
    }
    *out = c;
    return code_of(s);
}

void dt_cublas_close(dt_cublas *c) {
    if (!c) return;
    while (c->lists) {
        gemm_list *l = c->lists; // plans hold copies of their algorithm
        c->lists = l->next;
        free(l);
    }
    cublasLtDestroy(c->handle);
    free(c);
}

int dt_cublas_choices(dt_cublas *c, const dt_gemm_desc *d, int *n) {
    gemm_list *l = NULL;
    *n = 0;
    const int code = list_of(c, d, &l);
    if (code == 0) *n = l->n;
    return code;
}

int dt_cublas_plan_create(dt_cublas *c, const dt_gemm_desc *d, int choice, dt_cublas_plan **out,
                          size_t *workspace_bytes) {
    gemm_list *l = NULL;
    *out = NULL;
    const int code = list_of(c, d, &l);
    if (code) return code;
    if (choice < 0 || choice >= l->n) return code_of(CUBLAS_STATUS_INVALID_VALUE);
    dt_cublas_plan *p = calloc(1, sizeof *p);
    if (!p) abort();
    const cublasStatus_t s = make_parts(&p->parts, d);
    if (s) {
        free(p);
        return code_of(s);
    }
    p->algorithm = l->result[choice].algo; // by value
    p->workspace_bytes = *workspace_bytes = l->result[choice].workspaceSize;
    p->alpha = d->alpha;
    p->bias = dt_gemm_has_bias(d->epilogue);
    p->aux = dt_gemm_has_aux(d->epilogue);
    *out = p;
    return 0;
}

void dt_cublas_plan_destroy(dt_cublas_plan *p) {
    if (!p) return;
    destroy_parts(&p->parts);
    free(p);
}

int dt_cublas_run(dt_cublas *c, dt_cublas_plan *p, const void *A, const void *B, void *D, bool add, void *bias,
                  void *aux, void *workspace, void *stream) {
    const float beta = add; // 1: adds to D
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    // one plan runs on one thread at a time
    if (p->bias) s = SET(MatmulDesc, p->parts.op, MATMUL_DESC_BIAS_POINTER, bias);
    if (!s && p->aux) s = SET(MatmulDesc, p->parts.op, MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    if (s) return code_of(s);
    // C and D are the same matrix
    return code_of(cublasLtMatmul(c->handle, p->parts.op, &p->alpha, B, p->parts.a, A, p->parts.b, &beta, D, p->parts.d,
                                  D, p->parts.d, &p->algorithm, workspace, p->workspace_bytes, (cudaStream_t)stream));
}
