// test_moved_cuda.c: how many bytes a micro-batch of each network moves, forward and backward, in how many launches, and
// the time that an H200 needs for it at least, without a device (plan_costs.h). A change that moves more fails here.
// moved_bytes.txt has the numbers; WRITE=1 writes it anew. The least time of a launch is that of its bytes at 4.3 TB/s or
// that of its products at 700 TFLOP/s, which is what kernels reach, whichever is longer. Custom kernels then run, on the
// host, and must touch the pages of what was counted.
#include "exec/plan_costs.h"
#include "fake_cuda.h"
#include "fake_kernels.h"
#include "testing.h"

#include "base/core.h"
#include "base/io.h"
#include "config/words.h"
#include "data/data.h"
#include "models/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PHOTOS(model)                                                                                                  \
    "photos", {                                                                                                        \
        "model={" model "}", "data.fields.image={kind: image, source: jpg, channels: 3, size: [224, 224], "            \
                             "normalize: imagenet}"                                                                    \
    }
#define OTHER "depth: , width: , name: " // than the config's
static const struct {
    const char *name, *config, *overrides[4];
    int batch;
    dt_dtype type;
    bool looked_at; // together these launch most kernels
} networks[] = {
    {"resnet50", PHOTOS("name: resnet, depth: 50, width: 64"), 256, DT_BF16, true},
    {"resnet50", PHOTOS("name: resnet, depth: 50, width: 64"), 256, DT_F16},
    {"resnet18", PHOTOS("name: resnet, depth: 18, width: 64"), 512, DT_BF16},
    {"resnet50d", PHOTOS("name: resnet, depth: 50, width: 64, stem: deep, avg_down: true"), 256, DT_BF16},
    {"seresnet50", PHOTOS("name: resnet, depth: 50, width: 64, se: true"), 256, DT_BF16},
    {"resnext50", PHOTOS("name: resnet, depth: 50, width: 64, groups: 32, width_per_group: 4"), 256, DT_BF16},
    {"vit_b_16", PHOTOS(OTHER "vit"), 128, DT_BF16, true},
    {"convnext_t", PHOTOS(OTHER "convnext, size: ti"), 256, DT_BF16},
    {"convnext_t_drop_path", PHOTOS(OTHER "convnext, size: ti, drop_path: 0.1"), 256, DT_BF16, true},
    {"mobilenet_v3_l", PHOTOS(OTHER "mobilenet_v3, size: l"), 256, DT_BF16, true},
    {"efficientnet_b0", PHOTOS(OTHER "efficientnet, size: b0"), 256, DT_BF16},
    {"efficientnet_b0_drop_path", PHOTOS(OTHER "efficientnet, size: b0, drop_path: 0.2"), 256, DT_BF16},
    {"cnn", PHOTOS(OTHER "cnn"), 256, DT_BF16},
    {"layers",
     PHOTOS(OTHER "layers, layers: [{conv: {out: 32, kernel: 7, stride: 4, pad: 3}}, batch_norm, silu, "
                  "global_pool]"),
     256, DT_BF16},
    {"onnx",
     "photos",
     {"model={" OTHER "onnx, onnx: tests/golden/onnx/resnet_21.onnx}", "data.fields.image.size=[32, 32]"},
     4096,
     DT_BF16},
    {"mlp",
     "photos",
     {"model={" OTHER "mlp, hidden: 4096}",
      "data.fields={x: {kind: vector, size: [64]}, class: {kind: class, classes: 10}}", "data.augment={}",
      "train.targets={class: {loss: cross_entropy}}"},
     256,
     DT_BF16},
    {"lens_multiscale", "lens_multiscale", {NULL}, 256, DT_BF16},
    {"audio_cnn", "acoustic", {"model={" OTHER "audio_cnn}"}, 256, DT_BF16},
    {"ast_tiny", "acoustic", {"model={" OTHER "ast_tiny}"}, 256, DT_BF16},
    {"cnn1d",
     "acoustic",
     {"model={depth: , width: 64, name: cnn1d}",
      "data.fields.sound={features: waveform, normalize: {mean: [0], std: [0.1]}}", "data.augment={}"},
     256,
     DT_BF16},
    {"fusion", "fusion", {"model.fusion=concat"}, 128, DT_BF16},
    {"fusion_gated", "fusion", {"model.fusion=gated"}, 128, DT_BF16},
    {"fusion_cross_attention", "fusion", {"model.fusion=cross_attention"}, 128, DT_BF16},
};
enum { N_NETWORKS = sizeof networks / sizeof *networks };
static const char *const model_names[] = {
#define WORD(id, ...) #id,
#include "config/models.def"
#undef WORD
};

// ---- what kernels touch ----------------------------------------------------------------------------
static struct {
    void (*count)(dt_backend *b, dt_cost_counter *c);
    int (*launch)(dt_cuda_api *a, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *st);
    void (*add)(dt_cost_counter *c, const dt_kernel_cost *launch);
    dt_cost_counter *counter;
    double counted; // of the launch
    int n_wrong;
} touch;

static void add(dt_cost_counter *c, const dt_kernel_cost *one) {
    touch.counted = one->bytes;
    touch.add(c, one);
}

// Counts a launch, and runs it on pages that nobody has touched.
static int launch(dt_cuda_api *a, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *st) {
    enum { PAGE = 4096, ROWS_BYTES = 1 << 20 };
    const dt_operands *o = &touch.counter->operands;
    double bytes = 0,
           other = ROWS_BYTES; // of tensors of whole pages; of small ones, and what ends sums does not read
    assert_int_equal(touch.launch(a, k, g, args, st), 0);
    assert_int_equal(madvise((void *)o->base, dt_align_up(o->n_bytes, PAGE), MADV_DONTNEED), 0);
    for (int64_t i = 0; i < g.blocks; i++)
        fake_kernels[k].run(args, &(dt_host_block){.block = i, .grid = g.blocks, .block_dim = g.threads});
    for (int i = 0; i < o->n; i++) {
        static unsigned char in_core[1 << 16];
        const uintptr_t begin = dt_align_up(o->list[i].at, PAGE);
        const size_t n = (o->list[i].at + o->list[i].n_bytes - begin) / PAGE;
        if (o->list[i].n_bytes < 2 * PAGE) {
            other += 2 * PAGE;
            continue;
        }
        assert_true(n <= sizeof in_core);
        assert_int_equal(mincore((void *)begin, n * PAGE, in_core), 0);
        for (size_t j = 0; j < n; j++) bytes += (in_core[j] & 1) * PAGE;
    }
    if (fabs(touch.counted - bytes) <= other) return 0;
    print_error("%s: %.0f bytes counted, %.0f touched\n", fake_kernels[k].name, touch.counted, bytes);
    touch.n_wrong++;
    return 0;
}

static void look(dt_backend *b, dt_cost_counter *c) {
    const bool first = !touch.counter;
    touch.count(b, c);
    touch.counter = c;
    if (!first || !c) return;
    touch.add = c->add, c->add = add;
    touch.launch = dt_cuda_self(b)->api->launch, dt_cuda_self(b)->api->launch = launch;
}

// ---- a network -------------------------------------------------------------------------------------
static dt_kernel_cost count(int which, int batch, bool looks, bool seen[]) {
    static const dt_device_rates h200 = {.bytes_s = 4.3e12, .f32_flop_s = 7e14, .f16_flop_s = 7e14};
    char path[64];
    dt_config *c = NULL;
    dt_field_info fields[DT_MAX_FIELDS];
    dt_kernel_cost *rows, all = {.n = 0};
    int n = 0, n_overrides = 0;
    while (n_overrides < 4 && networks[which].overrides[n_overrides]) n_overrides++;
    snprintf(path, sizeof path, "configs/%s.yaml", networks[which].config);
    must(dt_config_load(&c, path, networks[which].overrides, (size_t)n_overrides));
    must(dt_data_describe_fields(c, NULL, fields, &n));
    seen[c->model.name] = true;
    dt_graph *g = NULL;
    dt_backend *b = NULL;
    dt_params *params = NULL;
    dt_plan *p = NULL;
    must(fake_cuda_backend(&b, &(dt_backend_opts){.threads = 1, .deterministic = true}));
    must(dt_model_graph(&g,
                        &(dt_model_args){.config = c,
                                         .fields = fields,
                                         .n_fields = n,
                                         .batch = batch,
                                         .training = true,
                                         .adds_branches = b->kernel(b, DT_OP_add_branch, false) != NULL},
                        networks[which].type));
    if (looks) touch.count = b->device->count, dt_cuda_self(b)->device.count = look;
    must(dt_params_lay_out(&params, g, b, 2, 1, false));
    must(dt_plan_create(&p, g, params, &(dt_plan_opts){.threads = 1, .n_replicas = 1}));
    must(dt_plan_costs(p, &h200, false, &rows, &n));
    for (int i = 0; i < n; i++) {
        all.n += rows[i].n;
        all.bytes += rows[i].bytes;
        all.floor_s += rows[i].floor_s;
    }
    free(rows);
    dt_plan_destroy(p);
    dt_params_destroy(params);
    b->destroy(b);
    dt_graph_destroy(g);
    dt_config_destroy(c);
    return all;
}

TEST(test_what_a_step_moves) {
    static const char path[] = "tests/cuda/moved_bytes.txt";
    char name[64], *text = NULL;
    const char *source = getenv("SOURCE"), *write = getenv("WRITE");
    bool seen[sizeof model_names / sizeof *model_names] = {false};
    size_t n_bytes = 0;
    int n_worse = 0;
    if (source) assert_int_equal(chdir(source), 0);
    setenv("FAKE_CUDA_BYTES", "141000000000", 1);
    if (!write) must(dt_io_read_file(&text, &n_bytes, path, 0, DT_E_DATA));
    FILE *f = write ? fopen(path, "w") : NULL;
    if (f) fprintf(f, "# test_moved_cuda.c: network-batch-type, GB, launches, least ms on an H200\n");
    for (int i = 0; i < N_NETWORKS; i++) {
        const dt_kernel_cost is = count(i, networks[i].batch, false, seen);
        double gb = 0, ms = 0;
        int launches = 0;
        snprintf(name, sizeof name, "%s-%d-%s ", networks[i].name, networks[i].batch, dt_dtype_name(networks[i].type));
        print_message("%s%.3f %d %.3f\n", name, is.bytes / 1e9, is.n, is.floor_s * 1e3);
        if (f) {
            fprintf(f, "%s%.3f %d %.3f\n", name, is.bytes / 1e9, is.n, is.floor_s * 1e3);
            continue;
        }
        const char *line = strstr(text, name);
        if (!line || sscanf(line, "%*s %lf %d %lf", &gb, &launches, &ms) != 3) gb = ms = launches = 0;
        if (is.bytes / 1e9 > gb + 0.001 || is.n > launches || is.floor_s * 1e3 > ms + 0.001) {
            print_message("more than %.3f GB, %d launches or %.3f ms before\n", gb, launches, ms);
            n_worse++;
        }
    }
    if (f) fclose(f);
    free(text);
    for (size_t i = 0; i < sizeof seen; i++)
        if (!seen[i]) fail_msg("model.name: %s has no network in this test", model_names[i]);
    assert_int_equal(n_worse, 0);
}

TEST(test_what_is_counted_is_touched) {
    if (!fake_cuda_races(0)) skip(); // a sanitizer makes kernels slow, and may want the address
    bool seen[sizeof model_names / sizeof *model_names];
    const size_t n_bytes = (size_t)1 << 30;
    void *at = mmap((void *)DT_NO_MEMORY, n_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    assert_true(at != MAP_FAILED);
    madvise(at, n_bytes, MADV_NOHUGEPAGE);
    for (int i = 0; i < N_NETWORKS; i++)
        if (networks[i].looked_at) count(i, 2, true, seen);
    munmap(at, n_bytes);
    assert_int_equal(touch.n_wrong, 0);
}

TEST_MAIN(NULL, NULL)
