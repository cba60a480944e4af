// cuda_dnn.c: finds the cuDNN engines that can compute a description, and makes plans of them. See cuda_dnn.h.
//
// cuDNN's heuristics list engine configurations for a graph (cuda_dnn_graph.c). One of them becomes a plan, and a plan
// runs on pairs of id and pointer. A description always gives the same graph, so graphs and their lists live as long
// as the context: choosing among ten configurations queries the heuristics once.
//
// Configurations are skipped if they
//   - sum in low precision,
//   - round fp32 inputs (tensor cores on fp32 mean TF32), unless TF32 is allowed,
//   - use Winograd with large tiles in fp32, which loses digits,
//   - use FFT: its error scales with the largest element of a tile, and its workspace is many times the tensors,
//   - are not deterministic, if that is required,
//   - are compiled at run time and make sums over pixels (sums): those add with float atomics, without a note
//     that says so, and nothing says that they zero the sums first.
// Winograd with 4x4 tiles stays: its constants are 1 and 1/2, and its error is a small multiple of a direct sum's.
// Fallback engines follow those of the heuristics. The favourite stays first; among the rest, engines that cuDNN
// compiles at run time, a second each, come last.
//
// Attention needs cuDNN 9.16: earlier versions have no engine for it, or one that gives wrong gradients if tk is no
// multiple of 128.
//
// Rejected: cudnn-frontend (C++, and only a few graphs are needed); the older cudnnConvolution* calls (deprecated, no
// fused bias and activation in bf16).
#include "backend/cuda/cuda_dnn.h"

#include "backend/cuda/cuda_dnn_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SDPA_VERSION = 91600, MAX_CONFIGS = 96, MAX_TENSORS = 16 }; // 9.16.0; configurations per description

typedef cudnnBackendDescriptor_t descriptor;

typedef struct dnn_config {
    descriptor config, engine; // freed with the list
    bool runtime;              // compiled when a plan is made
} dnn_config;

// The graph of a description, and the configurations that can compute it.
typedef struct dnn_known {
    struct dnn_known *next;
    dt_dnn_graph g;
    bool queried; // whether the heuristics were queried
    dnn_config config[MAX_CONFIGS];
    int n_configs;
} dnn_known;

struct dt_cudnn {
    cudnnHandle_t handle; // NULL without a device
    descriptor device;    // NULL with one
    dnn_known *known;
};

struct dt_cudnn_plan {
    descriptor plan;
    const dt_dnn_graph *graph; // borrowed: lives as long as the context
};

#define SET(d, name, type, n, value) cudnnBackendSetAttribute(d, CUDNN_ATTR_##name, CUDNN_TYPE_##type, n, value)
#define GET(d, name, type, most, n, value)                                                                             \
    cudnnBackendGetAttribute(d, CUDNN_ATTR_##name, CUDNN_TYPE_##type, most, n, value)

// ---- errors ----------------------------------------------------------------------------------------
static int code_of(cudnnStatus_t s) {
    return s == CUDNN_STATUS_SUCCESS ? 0 : DT_CUDNN_ERROR + (int)s; // cuDNN's codes behind those of CUDA
}

// Not a refusal: what is unsupported only because a driver, a runtime or a part of cuDNN is missing.
bool dt_cudnn_is_refusal(int error) {
    const int s = error - DT_CUDNN_ERROR, category = s / 1000 * 1000; // thousands: category of a status
    if (s == CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER ||
        s == CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART ||
        s == CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING ||
        s == CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE)
        return false;
    return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
}

const char *dt_cudnn_error_text(int error) {
    return cudnnGetErrorString((cudnnStatus_t)(error - DT_CUDNN_ERROR));
}

int dt_cudnn_version(void) {
    return (int)cudnnGetVersion();
}

// ---- a description's graph and its configurations ---------------------------------------------------
static bool wanted(const dt_dnn_desc *d, const cudnnBackendNumericalNote_t *notes, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        switch (notes[i]) {
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            if (d->type == DT_F32 && !d->tf32) return false; // f32 on tensor cores is TF32
            break;
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
            if (d->type != DT_F32 || !d->tf32) return false;
            break;
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_FFT:
            return false;
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
            if (d->deterministic) return false;
            break;
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: // 6 x 6 and 13 x 13 lose digits in f32
            if (d->type == DT_F32) return false;
            break;
        default:
            break; // notes that do not matter, and those of newer versions
        }
    }
    return true;
}

static void add_config(dnn_known *k, descriptor config) {
    // behaviour notes: compiled at run time, for example
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n = 0, n_notes = 0, n_behaviour = 0;
    dnn_config c = {.config = config};
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &c.engine)) c.engine = NULL;
    bool ok = c.engine && !GET(config, ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, 1, &n, &c.engine) &&
              !GET(c.engine, ENGINE_NUMERICAL_NOTE, NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n_notes, notes);
    if (ok &&
        !GET(c.engine, ENGINE_BEHAVIOR_NOTE, BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &n_behaviour, behaviour)) {
        for (int64_t i = 0; i < n_behaviour; i++)
            if (behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) c.runtime = true;
    }
    // see the head comment on run-time engines that make sums
    ok = ok && wanted(&k->g.desc, notes, n_notes) && !(c.runtime && k->g.desc.sums);
    if (ok && k->n_configs < MAX_CONFIGS) {
        k->config[k->n_configs++] = c;
        return;
    }
    if (c.engine) cudnnBackendDestroyDescriptor(c.engine); // not wanted, or the list is full
    cudnnBackendDestroyDescriptor(config);
}

static cudnnStatus_t ask_heuristics(dt_cudnn *c, dnn_known *k, cudnnBackendHeurMode_t mode) {
    descriptor h = NULL, found[MAX_CONFIGS];
    int64_t n = 0, n_found = 0;
    cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &h);
    if (s) return dt_dnn_note(s, "asking for engines");
    s = SET(h, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, &k->g.graph);
    if (!s) s = SET(h, ENGINEHEUR_MODE, HEUR_MODE, 1, &mode);
    if (!s && c->device) s = SET(h, ENGINEHEUR_DEVICEPROP, BACKEND_DESCRIPTOR, 1, &c->device);
    if (!s) s = cudnnBackendFinalize(h);
    if (!s) s = GET(h, ENGINEHEUR_RESULTS, BACKEND_DESCRIPTOR, 0, &n, NULL); // 0: returns the number of results
    if (n > MAX_CONFIGS) n = MAX_CONFIGS;
    for (int64_t i = 0; i < n; i++) {
        // n: those created so far
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &found[i])) n = i;
    }
    if (!s && n > 0) s = GET(h, ENGINEHEUR_RESULTS, BACKEND_DESCRIPTOR, n, &n_found, found);
    dt_dnn_note(s, "asking for engines");
    for (int64_t i = 0; i < n; i++) {
        if (!s && i < n_found)
            add_config(k, found[i]);
        else
            cudnnBackendDestroyDescriptor(found[i]); // created, not filled
    }
    cudnnBackendDestroyDescriptor(h);
    return s;
}

// Sorts: the favourite, precompiled engines, the rest; each group in cuDNN's order.
static void put_compiled_last(dnn_known *k) {
    dnn_config sorted[MAX_CONFIGS];
    int n = 0;
    for (int runtime = 0; runtime < 2; runtime++)
        for (int i = 1; i < k->n_configs; i++) // from 1: the favourite stays first
            if (k->config[i].runtime == runtime) sorted[n++] = k->config[i];
    memcpy(k->config + 1, sorted, (size_t)n * sizeof *sorted);
}

static void destroy_known(dnn_known *k) {
    for (int i = 0; i < k->n_configs; i++) {
        cudnnBackendDestroyDescriptor(k->config[i].config);
        cudnnBackendDestroyDescriptor(k->config[i].engine);
    }
    dt_dnn_graph_destroy(&k->g);
    free(k);
}

static int graph_of(dt_cudnn *c, const dt_dnn_desc *d, dnn_known **out) {
    for (dnn_known *k = c->known; k; k = k->next) { // few descriptions per network: a linear search
        if (dt_dnn_desc_equal(&k->g.desc, d)) {
            *out = k;
            return 0;
        }
    }
    dnn_known *k = calloc(1, sizeof *k);
    if (!k) abort(); // no memory: as dt_xcalloc
    const int code = code_of(dt_dnn_graph_build(&k->g, d, c->handle));
    if (code) {
        destroy_known(k);
        return code;
    }
    k->next = c->known;
    c->known = k;
    *out = k;
    return 0;
}

// The graph, with its configurations.
static int configs_of(dt_cudnn *c, const dt_dnn_desc *d, dnn_known **out) {
    int code = graph_of(c, d, out);
    if (code || (*out)->queried) return code;
    // report an error only if nothing was found and it is more than a refusal
    const int first = code_of(ask_heuristics(c, *out, CUDNN_HEUR_MODE_A));
    code = code_of(ask_heuristics(c, *out, CUDNN_HEUR_MODE_FALLBACK)); // engines beyond the heuristics' first choice
    if (first && !dt_cudnn_is_refusal(first)) code = first;
    if (code && !(*out)->n_configs && !dt_cudnn_is_refusal(code)) return code;
    put_compiled_last(*out);
    (*out)->queried = true; // also with an empty list: queried once
    return 0;
}

// ---- public ----------------------------------------------------------------------------------------
static cudnnStatus_t describe_device(dt_cudnn *c, const char *json) {
    cudnnStatus_t s =
        dt_dnn_note(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &c->device), "a device");
    if (!s)
        s = dt_dnn_note(SET(c->device, DEVICEPROP_JSON_REPRESENTATION, CHAR, (int64_t)strlen(json) + 1, json),
                        "the device's description");
    return s ? s : dt_dnn_note(cudnnBackendFinalize(c->device), "the device's description");
}

int dt_cudnn_open(dt_cudnn **out, const char *device_json) {
    dt_cudnn *c = calloc(1, sizeof *c);
    if (!c) abort();
    const cudnnStatus_t s =
        // without a device: heuristics for a described one
        device_json ? describe_device(c, device_json) : dt_dnn_note(cudnnCreate(&c->handle), "cudnnCreate");
    if (s) {
        c->handle = NULL; // cudnnCreate may leave it undefined
        dt_cudnn_close(c);
        c = NULL;
    }
    *out = c;
    return code_of(s);
}

void dt_cudnn_close(dt_cudnn *c) {
    if (!c) return;
    while (c->known) {
        dnn_known *k = c->known;
        c->known = k->next;
        destroy_known(k);
    }
    if (c->device) cudnnBackendDestroyDescriptor(c->device);
    if (c->handle) cudnnDestroy(c->handle);
    free(c);
}

int dt_cudnn_choices(dt_cudnn *c, const dt_dnn_desc *d, int *n) {
    dnn_known *k = NULL;
    *n = 0;
    if ((d->kind == DT_DNN_SDPA_FWD || d->kind == DT_DNN_SDPA_BWD) && cudnnGetVersion() < SDPA_VERSION) {
        char text[128];
        snprintf(text, sizeof text, "attention needs 9.16 or newer, this is %d.%d", dt_cudnn_version() / 10000,
                 dt_cudnn_version() / 100 % 100);
        dt_dnn_note_text(text);
        return code_of(CUDNN_STATUS_NOT_SUPPORTED);
    }
    const int code = configs_of(c, d, &k);
    if (code == 0) *n = k->n_configs;
    return dt_cudnn_is_refusal(code) ? 0 : code; // no engine is a result, not an error
}

int dt_cudnn_compiled(dt_cudnn *c, const dt_dnn_desc *d) {
    dnn_known *k = NULL;
    int n = 0;
    if (configs_of(c, d, &k)) return 0;
    while (n < k->n_configs && k->config[k->n_configs - 1 - n].runtime) n++; // compiled ones are last
    return n;
}

bool dt_cudnn_compiles(dt_cudnn *c, const dt_dnn_desc *d, int choice) {
    dnn_known *k = NULL;
    return !configs_of(c, d, &k) && choice < k->n_configs && k->config[choice].runtime;
}

int dt_cudnn_plan_create(dt_cudnn *c, const dt_dnn_desc *d, int choice, dt_cudnn_plan **out, size_t *workspace_bytes) {
    dnn_known *k = NULL;
    descriptor p = NULL;
    int64_t count = 0, bytes = 0;
    *out = NULL;
    const int code = configs_of(c, d, &k);
    if (code) return code;
    if (choice < 0 || choice >= k->n_configs) return code_of(CUDNN_STATUS_BAD_PARAM);
    cudnnStatus_t s = dt_dnn_note(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p), "a plan");
    // handle or description of a device, never both
    if (!s && c->handle) s = dt_dnn_note(SET(p, EXECUTION_PLAN_HANDLE, HANDLE, 1, &c->handle), "a plan");
    if (!s && c->device)
        s = dt_dnn_note(SET(p, EXECUTION_PLAN_DEVICEPROP, BACKEND_DESCRIPTOR, 1, &c->device), "a plan");
    if (!s)
        s = dt_dnn_note(SET(p, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, &k->config[choice].config),
                        "a plan");
    if (!s) s = dt_dnn_note(cudnnBackendFinalize(p), "a plan");
    if (!s) s = dt_dnn_note(GET(p, EXECUTION_PLAN_WORKSPACE_SIZE, INT64, 1, &count, &bytes), "a plan's workspace");
    if (s) {
        if (p) cudnnBackendDestroyDescriptor(p);
        return code_of(s);
    }
    *out = calloc(1, sizeof **out); // the graph is borrowed from the list
    if (!*out) abort();
    **out = (dt_cudnn_plan){p, &k->g};
    *workspace_bytes = (size_t)bytes;
    return 0;
}

void dt_cudnn_plan_destroy(dt_cudnn_plan *p) {
    if (!p) return;
    cudnnBackendDestroyDescriptor(p->plan);
    free(p);
}

int dt_cudnn_run(dt_cudnn *c, dt_cudnn_plan *p, void *const *ptr, void *workspace, void *stream) {
    const dt_dnn_graph *g = p->graph;
    float scale = g->desc.scale, one = 1.0f;
    int64_t ids[MAX_TENSORS];
    void *data[MAX_TENSORS];
    // then dq is written directly, and cuDNN has no such tensor
    const bool no_dq32 = g->desc.kind == DT_DNN_SDPA_BWD && g->desc.deterministic;
    int n = 0;
    for (int i = 0; i < g->n_ptr + g->n_scalars; i++) {
        if (no_dq32 && i + 1 == DT_DNN_DQ32_ID) continue;
        ids[n] = i + 1; // ids count from 1, in the order of pointers
        // scalars by value: scale, then dropout's 1
        data[n++] = i < g->n_ptr ? ptr[i] : i == g->n_ptr ? (void *)&scale : (void *)&one;
    }
    descriptor v = NULL;
    // one handle: each run names its stream
    cudnnStatus_t s = dt_dnn_note(cudnnSetStream(c->handle, stream), "cudnnSetStream");
    if (!s) s = dt_dnn_note(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &v), "a run");
    if (!s) s = SET(v, VARIANT_PACK_UNIQUE_IDS, INT64, n, ids);
    if (!s) s = SET(v, VARIANT_PACK_DATA_POINTERS, VOID_PTR, n, data);
    if (!s) s = SET(v, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &workspace);
    if (!s) s = cudnnBackendFinalize(v);
    if (!s) s = cudnnBackendExecute(c->handle, p->plan, v);
    if (v) cudnnBackendDestroyDescriptor(v);
    return code_of(dt_dnn_note(s, "running a plan"));
}
