// test_dnn_support.c: does cuDNN have an engine for everything that the CUDA backend asks of it? Without a
// device: cuDNN is given descriptions of an A100, an H200 (an H100 has the same engines) and a B200.
//
// Graphs: every config in configs/, the shipped networks at the sizes of the speed table, training and
// inference, in fp32 (without TF32), bf16 and fp16, deterministic: what serves that serves all else. An engine
// counts when its plan can be finalised; one that is compiled at run time counts when only the loading of what
// it compiled fails, which without a driver it must. DNN_SUPPORT_VERBOSE=1 prints the engine of each.
//
// Without libcudnn at build time this program only says so (77).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#ifndef DTRAIN_HAVE_CUDNN
int main(void) {
    puts("skipped: built without cuDNN");
    return 77;
}
#else

#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/cuda_dnn.h"
#include "base/arena.h"
#include "base/io.h"
#include "launch/launch.h"
#include "models/models.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct gpu {
    const char *name;
    int version, n_sm, shared_bytes;
    long long memory, l2;
    int clock_khz, memory_khz, ctas_per_sm;
} gpu;
static const gpu gpus[] = {
    {"NVIDIA A100-SXM4-80GB", 800, 108, 166912, 85899345920, 41943040, 1410000, 1593000, 32},
    {"NVIDIA H200", 900, 132, 232448, 150754820096, 62914560, 1980000, 3201000, 32},
    {"NVIDIA B200", 1000, 148, 232448, 191503532032, 132644864, 1965000, 3996000, 32},
};
enum { N_GPUS = sizeof gpus / sizeof *gpus };

static void describe(const gpu *g, char *text, size_t cap) {
    snprintf(
        text, cap,
        "{\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"totalGlobalMem\":%lld,"
        "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
        "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"warpSize\":32,"
        "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
        "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%d,"
        "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
        "\"supportCoopLaunch\":1,\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,"
        "\"l2CacheSize\":%lld,\"deviceName\":\"%s\"}",
        g->version, g->memory, g->n_sm, g->shared_bytes, g->ctas_per_sm, g->clock_khz,
        g->memory_khz, g->l2, g->name);
}

// ---- the descriptions that all graphs need, without repetition ---------------------------------------
typedef struct want {
    dt_dnn_desc desc;
    char text[DT_DESC_TEXT];
    char from[96]; // the first node that asks
} want;
static want *wants;
static int n_wants, cap_wants;

static void add_want(const dt_dnn_desc *d, const char *graph, const char *node) {
    char text[DT_DESC_TEXT];
    if (!dt_cuda_dnn_serves(d)) return;
    dt_dnn_desc_print(d, text);
    for (int i = 0; i < n_wants; i++)
        if (strcmp(wants[i].text, text) == 0) return;
    if (n_wants == cap_wants) {
        cap_wants = cap_wants ? 2 * cap_wants : 256;
        wants = dt_xrealloc(wants, sizeof *wants * (size_t)cap_wants);
    }
    want *w = &wants[n_wants++];
    w->desc = *d;
    memcpy(w->text, text, sizeof text);
    snprintf(w->from, sizeof w->from, "%s: %s", graph, node);
}

static void add_graph(const dt_graph *g, const char *name) {
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead) continue;
        // the strictest demands: an engine that obeys them serves all others
        const dt_cuda_demands demands = {.deterministic = true, .tf32 = false};
        dt_dnn_desc d[DT_NODE_DESCS];
        const int n = dt_cuda_node_descs(g, &g->nodes[i], demands, d);
        for (int j = 0; j < n; j++) {
            add_want(&d[j], name, g->nodes[i].name);
            if (d[j].type != DT_BF16) continue;
            d[j].type = DT_F16;
            add_want(&d[j], name, g->nodes[i].name);
        }
    }
}

static void add_config(const char *path, const char *const *overrides, int n_overrides, int batch) {
    dt_config *c = NULL;
    dt_field_info info[DT_MAX_FIELDS];
    dt_model_field fields[DT_MAX_FIELDS];
    int n = 0;
    if (dt_config_load(&c, path, overrides, (size_t)n_overrides) != DT_OK ||
        launch_fields_of_config(c, info, &n) != DT_OK)
        fail_msg("%s: %s", path, dt_error_message());
    for (int i = 0; i < n; i++) {
        fields[i] = (dt_model_field){.name = info[i].name,
                                     .sample_shape = info[i].sample_shape,
                                     .dtype = info[i].dtype,
                                     .is_image = info[i].is_image,
                                     .n_classes = info[i].n_classes};
        memcpy(fields[i].mean, info[i].mean, sizeof fields[i].mean);
        memcpy(fields[i].std, info[i].std, sizeof fields[i].std);
    }
    for (int k = 0; k < 4; k++) {
        dt_graph *g = NULL;
        const dt_model_args a = {.config = c,
                                 .fields = fields,
                                 .n_fields = n,
                                 .batch =
                                     batch ? batch : (int)dt_config_int(c, "train.micro_batch"),
                                 .training = k & 1};
        if (dt_model_graph(&g, &a, k >> 1 ? DT_BF16 : DT_F32) != DT_OK)
            fail_msg("%s: %s", path, dt_error_message());
        add_graph(g, strrchr(path, '/') + 1);
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
        {"photos", {"model={name: vit}", NULL, NULL}, 128},
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
// Without a driver cuDNN cannot load what it has compiled; that it compiled is the answer.
static bool only_loading_failed(void) {
    return strstr(dt_cudnn_last_error(), "cuLibraryLoadData") != NULL;
}

static bool has_engine(dt_cudnn *c, const dt_dnn_desc *d, int *which, int *n_choices) {
    if (dt_cudnn_choices(c, d, n_choices) != 0) return false;
    for (int runtime = 0; runtime < 2; runtime++) { // compiling takes a second
        for (int i = 0; i < *n_choices; i++) {
            char text[128] = "";
            dt_cudnn_plan *p = NULL;
            size_t workspace = 0;
            dt_cudnn_choice_text(c, d, i, text, sizeof text);
            if ((strstr(text, "run time") != NULL) != runtime) continue;
            *which = i;
            if (runtime && d->type == DT_F16) return true; // compiled as for bf16
            const int code = dt_cudnn_plan_create(c, d, i, &p, &workspace);
            dt_cudnn_plan_destroy(p);
            if (code == 0 || (runtime && only_loading_failed())) return true;
        }
    }
    return false;
}

static void check_gpu(const gpu *g, bool verbose) {
    char json[2048];
    dt_cudnn *c = NULL;
    int n_missing = 0, n_runtime = 0;
    describe(g, json, sizeof json);
    if (dt_cudnn_open(&c, json) != 0) fail_msg("%s: %s", g->name, dt_cudnn_last_error());
    for (int i = 0; i < n_wants; i++) {
        int which = 0, n = 0;
        char text[128] = "";
        const bool ok = has_engine(c, &wants[i].desc, &which, &n);
        if (ok) dt_cudnn_choice_text(c, &wants[i].desc, which, text, sizeof text);
        if (strstr(text, "run time")) n_runtime++;
        if (verbose)
            printf("%s | %s | %d choices, number %d: %s\n", g->name, wants[i].text, n, which, text);
        if (ok) continue;
        if (n_missing++ < 20)
            print_error("%s: no engine of %d offered for %s (%s): %s\n", g->name, n, wants[i].text,
                        wants[i].from, dt_cudnn_last_error());
    }
    dt_cudnn_close(c);
    print_message("%s: %d descriptions, %d compiled at run time, %d without an engine\n", g->name,
                  n_wants, n_runtime, n_missing);
    assert_int_equal(n_missing, 0);
}

static void test_every_graph_has_an_engine(void **state) {
    const char *only = getenv("DNN_SUPPORT_GPU"); // part of a name
    add_all();
    assert_true(n_wants > 100);
    for (int i = 0; i < N_GPUS; i++)
        if (!only || strstr(gpus[i].name, only))
            check_gpu(&gpus[i], getenv("DNN_SUPPORT_VERBOSE") != NULL);
    free(wants);
}

static void test_what_does_not_exist_is_refused(void **state) {
    char json[2048];
    dt_cudnn *c = NULL;
    int n = -1;
    describe(&gpus[1], json, sizeof json);
    assert_int_equal(dt_cudnn_open(&c, json), 0);
    // five channels in two groups: no such convolution
    const dt_dnn_desc d = {.kind = DT_DNN_CONV_FWD,
                           .type = DT_BF16,
                           .n = 2,
                           .c = 5,
                           .h = 8,
                           .w = 8,
                           .k = 4,
                           .out_h = 8,
                           .out_w = 8,
                           .groups = 2,
                           .win = {.kernel = {3, 3},
                                   .stride = {1, 1},
                                   .dilation = {1, 1},
                                   .pad_begin = {1, 1},
                                   .pad_end = {1, 1}}};
    const int code = dt_cudnn_choices(c, &d, &n);
    assert_true(code != 0 || n == 0);
    dt_cudnn_close(c);
}

// Run-time engines look for the driver even to be checked: without one, its stub stands in.
static void with_stub(char **argv) {
    if (getenv("DNN_SUPPORT_STUB")) return;
    setenv("DNN_SUPPORT_STUB", "1", 1);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver || !strlen(DTRAIN_CUDA_STUBS)) return;
    char folder[64] = "/tmp/dnn_support.XXXXXX", link[96];
    if (!mkdtemp(folder)) return;
    snprintf(link, sizeof link, "%s/libcuda.so.1", folder);
    if (symlink(DTRAIN_CUDA_STUBS "/libcuda.so", link)) return;
    setenv("DNN_SUPPORT_FOLDER", folder, 1);
    const char *old = getenv("LD_LIBRARY_PATH");
    char *path = dt_xprintf("%s%s%s", folder, old ? ":" : "", old ? old : "");
    setenv("LD_LIBRARY_PATH", path, 1);
    free(path);
    execv("/proc/self/exe", argv);
}

static void without_folder(void) {
    const char *folder = getenv("DNN_SUPPORT_FOLDER");
    if (!folder) return;
    char link[128];
    snprintf(link, sizeof link, "%s/libcuda.so.1", folder);
    unlink(link);
    rmdir(folder);
}

int main(int argc, char **argv) {
    with_stub(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_does_not_exist_is_refused),
        cmocka_unit_test(test_every_graph_has_an_engine),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    without_folder();
    return failed;
}
#endif
