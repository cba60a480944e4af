// test_dnn_support.c: does cuDNN have an engine for everything that the CUDA backend asks of it? Needs no device: cuDNN
// gets descriptions of an A100, an H200, an H100, a B200, an L40S, an RTX 4090, an RTX 5090 and a T4, and
// deviceless_driver.c replaces a missing driver.
//
// Graphs: every config in configs/, and the shipped networks at the sizes of the speed table, training and inference,
// in fp32 (without TF32), bf16 and fp16, deterministic: engines that satisfy this satisfy all other demands. An engine
// counts if its plan was finalized here. DNN_SUPPORT_VERBOSE=1 prints the engine of each.
//
// Convolutions in front of batch norms want sums under fp16 (cuda_desc.h). They must have an engine without them. The
// test prints for each network how many have one with them, and each shipped network must have some on devices from the
// A100 to before the B200, whose engines for it do not repeat their bits; the RTX 5090 and the T4 have none. None of
// those is compiled at run time: such engines add with float atomics.
//
// Batch norms with ReLU that only one convolution reads may leave their work to it (cuda_desc.h). The test counts for
// each network how many have engines, forward and for the weight gradient. On the same devices all must, and on the B200
// all where bits need not repeat. A T4 has no bf16, and no engine for attention, which is matmuls there.
//
// Asks for the oldest device, which has the fewest engines, and each fifth description; with FULL in the environment
// (tests/run.sh all) for everything: a device takes 50 s of a core. Each has its own process, because cuDNN keeps what it
// makes, gigabytes per device, until the process ends.
//
// Without libcudnn at build time this program only says so (77).
#include "testing.h"

#include <stdio.h>

#ifndef DTRAIN_HAVE_CUDNN
int main(void) {
    puts("skipped: built without cuDNN");
    return 77;
}
#else

#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/cuda_dnn.h"
#include "base/core.h"
#include "base/io.h"
#include "data/data.h"
#include "models/models.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct gpu {
    const char *name;
    int version, n_sm, shared_bytes;
    long long memory, l2;
    int clock_khz, memory_khz, ctas_per_sm, threads_per_sm;
} gpu;
static const gpu gpus[] = {
    {"NVIDIA A100-SXM4-80GB", 800, 108, 166912, 85899345920, 41943040, 1410000, 1593000, 32, 2048},
    {"NVIDIA H200", 900, 132, 232448, 150754820096, 62914560, 1980000, 3201000, 32, 2048},
    {"NVIDIA H100 80GB HBM3", 900, 132, 232448, 85021163520, 52428800, 1980000, 2619000, 32, 2048},
    {"NVIDIA B200", 1000, 148, 232448, 191503532032, 132644864, 1965000, 3996000, 32, 2048},
    {"NVIDIA L40S", 890, 142, 101376, 47674294272, 100663296, 2520000, 9001000, 24, 1536},
    {"NVIDIA GeForce RTX 4090", 890, 128, 101376, 25756172288, 75497472, 2520000, 10501000, 24, 1536},
    {"NVIDIA GeForce RTX 5090", 1200, 170, 101376, 33677180928, 100663296, 2407000, 14001000, 24, 1536},
    {"Tesla T4", 750, 40, 65536, 15843721216, 4194304, 1590000, 5001000, 16, 1024},
};
enum { N_GPUS = sizeof gpus / sizeof *gpus };

static void describe(const gpu *g, char *text, size_t cap) {
    snprintf(text, cap,
             "{\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"totalGlobalMem\":%lld,"
             "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
             "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"warpSize\":32,"
             "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
             "\"reservedSharedMemoryPerBlock\":%d,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%d,"
             "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,\"pciDeviceId\":0,\"isTccDriver\":0,"
             "\"supportCoopLaunch\":1,\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,"
             "\"l2CacheSize\":%lld,\"deviceName\":\"%s\"}",
             g->version, g->memory, g->n_sm, g->shared_bytes, g->version < 800 ? 0 : 1024, g->ctas_per_sm,
             g->threads_per_sm, g->clock_khz, g->memory_khz, g->l2, g->name);
}

static dt_cudnn *open_gpu(const gpu *g) {
    char json[2048];
    dt_cudnn *c = NULL;
    describe(g, json, sizeof json);
    if (dt_cudnn_open(&c, json) != 0) fail_msg("%s: %s", g->name, dt_cudnn_last_error());
    return c;
}

// ---- the descriptions that all graphs need, without repetition ---------------------------------------
typedef struct want {
    dt_dnn_desc desc;
    char text[DT_DESC_TEXT];
    char from[96]; // the first node that asks
} want;
static want *wants;
static int n_wants, cap_wants;
static signed char *has; // by want: a plan was finalized for the device; -1: not asked

// Which convolutions of which network want sums, one per line.
typedef struct wish {
    char network[80];
    int want;
} wish;
static wish wishes[2048];
static int n_wishes;

// Batch norms that may be left to the convolution behind them, one per line: their two descriptions.
typedef struct pair {
    char network[80];
    dt_cuda_normed asks;
} pair;
static pair pairs[512];
static int n_pairs;

static int add_want(const dt_dnn_desc *d, const char *graph, const char *node) {
    char text[DT_DESC_TEXT];
    if (dt_cuda_dnn_refuses(d)) return -1;
    dt_dnn_desc_print(d, text);
    for (int i = 0; i < n_wants; i++)
        if (strcmp(wants[i].text, text) == 0) return i;
    if (n_wants == cap_wants) {
        cap_wants = cap_wants ? 2 * cap_wants : 256;
        wants = dt_xrealloc(wants, sizeof *wants * (size_t)cap_wants);
    }
    want *w = &wants[n_wants++];
    w->desc = *d;
    memcpy(w->text, text, sizeof text);
    snprintf(w->from, sizeof w->from, "%s: %s", graph, node);
    return n_wants - 1;
}

static void add_graph(const dt_graph *g, const char *name) {
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead) continue;
        // the strictest demands: an engine that meets them serves all others
        const dt_cuda_demands demands = {.deterministic = true, .tf32 = false};
        dt_dnn_desc d[DT_NODE_DESCS];
        dt_cuda_normed asks;
        if (dt_cuda_normed_of(g, &g->nodes[i], (dt_cuda_demands){0}, &asks)) {
            assert_true(asks.has_weights && n_pairs < (int)(sizeof pairs / sizeof *pairs));
            pairs[n_pairs].asks = asks;
            snprintf(pairs[n_pairs++].network, sizeof pairs->network, "%s", name);
        }
        const int n = dt_cuda_node_descs(g, &g->nodes[i], demands, d);
        for (int j = 0; j < n; j++) {
            const int at = add_want(&d[j], name, g->nodes[i].name);
            if (!d[j].sums) continue;
            assert_true(n_wishes < (int)(sizeof wishes / sizeof *wishes));
            wishes[n_wishes].want = at;
            snprintf(wishes[n_wishes++].network, sizeof wishes->network, "%s", name);
            d[j].sums = false;
            add_want(&d[j], name, g->nodes[i].name);
        }
    }
}

static void add_config(const char *path, const char *const *overrides, int n_overrides, int batch) {
    static const dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};
    const char *label = n_overrides ? overrides[0] : strrchr(path, '/') + 1;
    dt_config *c = NULL;
    dt_field_info fields[DT_MAX_FIELDS];
    int n = 0;
    if (dt_config_load(&c, path, overrides, (size_t)n_overrides) != DT_OK ||
        dt_data_describe_fields(c, NULL, fields, &n) != DT_OK)
        fail_msg("%s: %s", path, dt_error_message());
    if (!batch) batch = (int)dt_answer_or(c->train.micro_batch, c->train.global_batch);
    for (int k = 0; k < 6; k++) {
        dt_graph *g = NULL;
        const dt_model_args a = {.config = c, .fields = fields, .n_fields = n, .batch = batch, .training = k & 1};
        if (dt_model_graph(&g, &a, types[k / 2]) != DT_OK) fail_msg("%s: %s", path, dt_error_message());
        add_graph(g, label);
        dt_graph_destroy(g);
    }
    dt_config_destroy(c);
}

static void add_all(void) {
    const char *source = getenv("SOURCE");
    char path[512];
    char **names = NULL;
    size_t n = 0;
    if (!source) source = ".";
    snprintf(path, sizeof path, "%s/configs", source);
    assert_int_equal(dt_io_list_dir(&names, &n, path, DT_E_DATA), DT_OK);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/configs/%s", source, names[i]);
        add_config(path, NULL, 0, 0);
    }
    dt_io_free_list(names, n);
    // the speed table
    static const char *const photos = "data.fields.image={kind: image, source: jpg, channels: 3, "
                                      "size: [224, 224], normalize: imagenet}";
    static const struct {
        const char *config, *overrides[3];
        int batch;
    } table[] = {
        {"photos", {"model={name: resnet, depth: 50, width: 64}", NULL, NULL}, 256},
        {"photos", {"model={name: resnet, depth: 18, width: 64}", NULL, NULL}, 512},
        {"photos", {"model={name: resnet, depth: 34, width: 64}", NULL, NULL}, 64},
        {"photos", {"model={name: vit, depth: , width: }", NULL, NULL}, 128},
        {"photos", {"model={name: convnext, size: ti, depth: , width: }", NULL, NULL}, 256},
        {"photos", {"model={name: mobilenet_v3, size: l, depth: , width: }", NULL, NULL}, 256},
        {"photos", {"model={name: efficientnet, size: b0, depth: , width: }", NULL, NULL}, 256},
        {"fusion", {"model={name: fusion, fusion: concat}", NULL, NULL}, 128},
        {"fusion", {"model={name: fusion, fusion: cross_attention}", NULL, NULL}, 32},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const bool photo = strcmp(table[i].config, "photos") == 0;
        const char *overrides[2] = {table[i].overrides[0], photos};
        snprintf(path, sizeof path, "%s/configs/%s.yaml", source, table[i].config);
        add_config(path, overrides, photo ? 2 : 1, table[i].batch);
    }
}

// ---- asking ----------------------------------------------------------------------------------------
enum { QUICK_ONLY = 1, QUICK_FIRST = 2 }; // engines that need no compiling, which takes a second

static bool has_engine(dt_cudnn *c, const dt_dnn_desc *d, int tries, int *which, int *n_choices) {
    if (dt_cudnn_choices(c, d, n_choices) != 0) return false;
    for (int runtime = 0; runtime < tries; runtime++) {
        for (int i = 0; i < *n_choices; i++) {
            dt_cudnn_plan *p = NULL;
            size_t workspace = 0;
            if (dt_cudnn_compiles(c, d, i) != runtime) continue;
            *which = i;
            const int code = dt_cudnn_plan_create(c, d, i, &p, &workspace);
            dt_cudnn_plan_destroy(p);
            if (code == 0) return true;
        }
    }
    return false;
}

// Whether it has engines that fuse parts of batch norms into convolutions, with bits that repeat.
static bool repeats_fused(const gpu *g) {
    return g->version >= 800 && g->version < 1000;
}

// Prints each network, and how many of its convolutions in front of batch norms make sums.
static void report_sums(const gpu *g) {
    for (int i = 0, end; i < n_wishes; i = end) {
        int n = 0, n_have = 0;
        for (end = i; end < n_wishes && strcmp(wishes[end].network, wishes[i].network) == 0; end++) {
            n += has[wishes[end].want] >= 0;
            n_have += has[wishes[end].want] > 0;
        }
        print_message("%s: %s: of %d convolutions in front of a batch norm %d can make its sums\n", g->name,
                      wishes[i].network, n, n_have);
        if (n > 3 && (n_have > 0) != repeats_fused(g))
            fail_msg("%s: %s: %d engines make sums", g->name, wishes[i].network, n_have);
    }
}

// Counts how many batch norms of the networks have both engines, precompiled. Compares with what each network is known to have.
static const struct {
    const char *network;
    int n;
} known_pairs[] = {{"model={name: resnet, depth: 50, width: 64}", 32},
                   {"model={name: resnet, depth: 34, width: 64}", 16},
                   {"model={name: resnet, depth: 18, width: 64}", 8},
                   {"model={name: fusion, fusion: concat}", 0}};

static bool has_ready_engine(dt_cudnn *c, const dt_dnn_desc *asked, bool deterministic) {
    dt_dnn_desc d = *asked;
    int which, n;
    d.deterministic = deterministic;
    return has_engine(c, &d, QUICK_ONLY, &which, &n);
}

static bool pair_has_engines(dt_cudnn *c, const pair *p, bool deterministic) {
    return has_ready_engine(c, &p->asks.forward, deterministic) && has_ready_engine(c, &p->asks.weights, deterministic);
}

static void report_pairs(dt_cudnn *c, const gpu *g) {
    const int n_known = (int)(sizeof known_pairs / sizeof *known_pairs);
    for (int k = 0; k < n_known; k++) {
        int n = 0, n_have[2] = {0}; // repeating their bits, or not
        for (int i = 0; i < n_pairs; i++) {
            if (strcmp(pairs[i].network, known_pairs[k].network) != 0) continue;
            bool have = false;
            n++;
            // an engine that repeats its bits also serves where that is not required
            for (int loose = 0; loose < 2; loose++)
                n_have[loose] += have = have || pair_has_engines(c, &pairs[i], !loose);
        }
        print_message("%s: %s: %d batch norms that one convolution reads: it can apply %d of them "
                      "(%d where bits need not repeat), precompiled\n",
                      g->name, known_pairs[k].network, n, n_have[0], n_have[1]);
        assert_int_equal(n, known_pairs[k].n);
        assert_int_equal(n_have[1], repeats_fused(g) || g->version == 1000 ? n : 0);
        assert_int_equal(n_have[0], repeats_fused(g) ? n : 0);
    }
}

static bool attends(const dt_dnn_desc *d) {
    return d->kind == DT_DNN_SDPA_FWD || d->kind == DT_DNN_SDPA_BWD;
}

static void check_gpu(const gpu *g, bool verbose) {
    dt_cudnn *c = open_gpu(g);
    int n_missing = 0, n_runtime = 0;
    const bool full = getenv("FULL") || getenv("DNN_SUPPORT_GPU");
    for (int i = 0; i < n_wants; i++) {
        int which = 0, n = 0;
        const bool sums = wants[i].desc.sums;
        has[i] = -1;
        if (!full && i % 5 != 0) continue;
        if (wants[i].desc.type == DT_BF16 && g->version < 800) continue; // dt_backend.supports_dtype
        const bool ok = has_engine(c, &wants[i].desc, QUICK_FIRST, &which, &n);
        has[i] = ok;
        const bool compiles = ok && dt_cudnn_compiles(c, &wants[i].desc, which);
        if (sums && compiles) fail_msg("%s: %s: compiled at run time", g->name, wants[i].text);
        n_runtime += compiles;
        if (verbose)
            printf("%s | %s | %d choices, number %d%s\n", g->name, wants[i].text, n, which,
                   compiles ? ", compiled at run time" : "");
        if (ok || sums || (attends(&wants[i].desc) && g->version < 800)) continue; // there it is matmuls (sdpa_cuda.c)
        if (n_missing++ < 20)
            print_error("%s: no engine of %d offered for %s (%s): %s\n", g->name, n, wants[i].text, wants[i].from,
                        dt_cudnn_last_error());
    }
    print_message("%s: %d descriptions, %d compiled at run time, %d without an engine\n", g->name, n_wants, n_runtime,
                  n_missing);
    assert_int_equal(n_missing, 0);
    report_sums(g);
    report_pairs(c, g);
    dt_cudnn_close(c);
}

// In a child process: a failed assertion there ends the child's run of the tests, of which this is the last.
static void check_apart(const gpu *g) {
    int status = 1;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        check_gpu(g, getenv("DNN_SUPPORT_VERBOSE") != NULL);
        fflush(NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status) fail_msg("%s: what its process says is above", g->name);
}

TEST(test_every_graph_has_an_engine) {
    const char *only = getenv("DNN_SUPPORT_GPU"); // part of a name
    add_all();
    assert_true(n_wants > 100);
    has = dt_xcalloc((size_t)n_wants, sizeof *has);
    for (int i = 0; i < N_GPUS; i++) {
        if (only ? strstr(gpus[i].name, only) != NULL : i == 0 || getenv("FULL")) check_apart(&gpus[i]);
    }
    free(wants);
    free(has);
}

TEST(test_what_does_not_exist_is_refused) {
    dt_cudnn *c = open_gpu(&gpus[1]);
    int n = -1;
    // five channels in two groups: no such convolution
    const dt_dnn_desc d = {
        .kind = DT_DNN_CONV_FWD,
        .type = DT_BF16,
        .n = 2,
        .c = 5,
        .h = 8,
        .w = 8,
        .k = 4,
        .out_h = 8,
        .out_w = 8,
        .groups = 2,
        .win = {.kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}}};
    const int code = dt_cudnn_choices(c, &d, &n);
    assert_true(code != 0 || n == 0);
    dt_cudnn_close(c);
}

// Sums over pixels come from precompiled engines, or from none: those compiled at run time add with float atomics.
// cuDNN offers only such for three channels.
TEST(test_sums_repeat_their_bits) {
    dt_cudnn *c = open_gpu(&gpus[1]);
    for (int i = 0; i < 4; i++) {
        const bool few = i & 1;
        const int64_t channels = few ? 3 : 64;
        dt_dnn_desc d = {
            .kind = DT_DNN_CONV_FWD,
            .type = DT_F16,
            .deterministic = i >> 1,
            .n = 4,
            .c = channels,
            .h = 16,
            .w = 16,
            .k = 64,
            .out_h = 16,
            .out_w = 16,
            .groups = 1,
            .sums = true,
            .win = {.kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad_begin = {1, 1}, .pad_end = {1, 1}}};
        int n = -1;
        const int code = dt_cudnn_choices(c, &d, &n);
        assert_true(code == 0 || dt_cudnn_is_refusal(code));
        assert_int_equal(n > 0, !few);
        assert_int_equal(dt_cudnn_compiled(c, &d), 0);
    }
    dt_cudnn_close(c);
}

// Run-time engines look for the driver even to be checked: without one, deviceless_driver.c stands in.
static void with_stub(char **argv) {
    if (getenv("DNN_SUPPORT_STUB")) return;
    setenv("DNN_SUPPORT_STUB", "1", 1);
    if (dlopen("libcuda.so.1", RTLD_NOW)) return;
    const char *old = getenv("LD_LIBRARY_PATH");
    char *path = dt_xprintf("%s%s%s", DTRAIN_DEVICELESS_DRIVER, old ? ":" : "", old ? old : "");
    setenv("LD_LIBRARY_PATH", path, 1);
    free(path);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    with_stub(argv);
    return run_all_tests(NULL, NULL);
}
#endif
