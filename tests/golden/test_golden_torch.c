// test_golden_torch.c: files that PyTorch and timm wrote (make_torch_files.py): every element type and kind of view,
// what is refused, and timm's Vision Transformer with its positions resized, which gives timm's logits.
#define _GNU_SOURCE
#include "golden_network.h"

#include "base/io.h"
#include "checkpoint/import/weights_file.h"

#include <unistd.h>

enum { BATCH = 3, HEIGHT = 64, WIDTH = 32, CLASSES = 5, MAX_TENSORS = 64, MAX_VALUES = 64 };

static const char *file_path(char *buf, size_t cap, const char *name) {
    const char *source = getenv("SOURCE");
    snprintf(buf, cap, "%s/tests/golden/torch_files/%s", source ? source : ".", name);
    return buf;
}

static int find(const dt_weights *w, const char *name) {
    for (int i = 0; i < dt_weights_count(w); i++)
        if (strcmp(dt_weights_name(w, i), name) == 0) return i;
    fail_msg("no tensor %s", name);
    return -1;
}

static void check_kinds(const char *file) {
    char path[4096], name[256];
    dt_weights *w = NULL;
    must(dt_weights_open(&w, file_path(path, sizeof path, file), 0));
    dt_safetensors *want = golden_open("torch_files/expected.safetensors");
    int n_kinds = 0;
    for (int i = 0; i < dt_safetensors_count(want); i++) {
        const char *key = dt_safetensors_name(want, i);
        if (strncmp(key, "kinds/", 6) != 0) continue;
        float values[MAX_VALUES];
        size_t n_bytes;
        const void *data = dt_safetensors_data(want, i, &n_bytes);
        dt_shape here, there;
        snprintf(name, sizeof name, "state_dict.%s", key + 6);
        int k = find(w, name);
        dt_weights_shape(w, k, &there);
        dt_safetensors_shape(want, i, &here);
        assert_true(dt_shape_equal(&here, &there));
        assert_true(n_bytes <= sizeof values);
        must(dt_weights_read(w, k, values));
        if (n_bytes && memcmp(values, data, n_bytes) != 0) fail_msg("%s differs", key);
        n_kinds++;
    }
    assert_int_equal(n_kinds, 19);
    assert_int_equal(dt_weights_count(w), n_kinds + 2);
    find(w, "optimizer.state.0.exp_avg");
    dt_weights_close(w);
    dt_safetensors_close(want);
}

TEST(every_type_and_view_is_read) {
    check_kinds("kinds.pth");
    check_kinds("protocol4.pth");
}

static void refused(const char *name, const char *what) {
    char path[4096];
    dt_weights *w = NULL;
    assert_int_equal(dt_weights_open(&w, file_path(path, sizeof path, name), 0), DT_E_CKPT);
    assert_null(w);
    if (!strstr(dt_error_message(), what)) fail_msg("%s: %s", name, dt_error_message());
}

TEST(programs_are_refused_by_name) {
    refused("module.pth", "global torch.nn.modules.linear.Linear is refused");
    refused("namespace.pth", "global argparse.Namespace is refused");
    refused("namespace4.pth", "global argparse.Namespace is refused");
    refused("script.pt", "torch.jit.load(");
    refused("legacy.pth", "python3 -c \"import torch; torch.save(torch.load('");
}

// A byte of a storage changes, or the file ends early.
TEST(damage_is_seen) {
    char path[4096], *data, damaged[] = "/tmp/dtrain-torch-XXXXXX";
    size_t n;
    must(dt_io_read_file(&data, &n, file_path(path, sizeof path, "kinds.pth"), 0, DT_E_CKPT));
    close(mkstemp(damaged));
    dt_weights *w = NULL;
    must(dt_io_write_file(damaged, data, n / 2));
    assert_int_equal(dt_weights_open(&w, damaged, 0), DT_E_CKPT);
    dt_safetensors *want = golden_open("torch_files/expected.safetensors");
    const float *parameter = golden_find(want, "kinds", "parameter", NULL);
    char *at = memmem(data, n, parameter, 3 * sizeof *parameter);
    assert_non_null(at);
    at[2] ^= 1;
    must(dt_io_write_file(damaged, data, n));
    must(dt_weights_open(&w, damaged, 0));
    float values[3];
    must_fail(DT_E_CKPT, "CRC", dt_weights_read(w, find(w, "state_dict.parameter"), values));
    dt_weights_close(w);
    dt_safetensors_close(want);
    free(data);
    unlink(damaged);
}

TEST(positions_are_resized_as_torch_does) {
    static const int sizes[][2] = {{8, 8}, {3, 3}, {2, 9}, {1, 1}};
    dt_safetensors *want = golden_open("torch_files/expected.safetensors");
    const float *from = golden_find(want, "resized", "from", NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        float to[8 * 9 * 3];
        char name[32];
        int64_t n = 0;
        snprintf(name, sizeof name, "%dx%d", sizes[i][0], sizes[i][1]);
        const float *golden = golden_find(want, "resized", name, &n);
        dt_ckpt_resize_positions(to, sizes[i][0], sizes[i][1], from, 5, 5, 3);
        golden_compare(name, to, golden, n, 1e-5);
    }
    dt_safetensors_close(want);
}

TEST(timms_vit_gives_timms_logits) {
    const char *yaml = "{run: {name: golden}, data: {path: /nowhere, fields: {class: {kind: class, classes: 5},\n"
                       "image: {kind: image, channels: 3, size: [64, 32]}}},\n"
                       "model: {name: vit, patch: 8, dim: 16, heads: 2, blocks: 2},\n"
                       "train: {global_batch: 3, micro_batch: 3, precision: fp32}}\n";
    dt_field_info fields[2] = {golden_image_field("image", HEIGHT, WIDTH, 3),
                               {.name = "class", .dtype = DT_I32, .n_classes = CLASSES}};
    char path[4096];
    golden_network n;
    dt_ckpt_tensor tensors[MAX_TENSORS];
    int n_taken = 0;
    golden_network_create(&n, yaml, fields, 2, BATCH, false, DT_F32, 1);
    int n_tensors = golden_tensors(n.params, tensors);
    dt_ckpt_import_opts o = {.graph = n.graph, .grid = {HEIGHT / 8, WIDTH / 8}};
    must(dt_ckpt_import(file_path(path, sizeof path, "vit_timm.pth"), &o, tensors, n_tensors, &n_taken));
    assert_int_equal(n_taken, n_tensors);
    dt_params_repack(n.params);
    uint8_t *image = golden_u8(BATCH * HEIGHT * WIDTH * 3, 1);
    assert_true(dt_exec_bind(n.exec, "image", image));
    dt_safetensors *want = golden_open("torch_files/expected.safetensors");
    golden_network_check(&n, want, "vit", "class", 1e-5);
    dt_safetensors_close(want);
    free(image);
    golden_network_destroy(&n);
}

TEST_MAIN(NULL, NULL)
