// test_ckpt_import.c: weights from safetensors files of other programs: types, what is missing, what is extra.
#include "checkpoint/ckpt.h"
#include "graph/ir.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// F32 a (2), F16 b.weight (6), BF16 b.bias (2), I64 b.num_batches_tracked, F32 other (1), F8_E4M3 eight (1)
static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                             "\"b.weight\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[8,20]},"
                             "\"b.bias\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[20,24]},"
                             "\"b.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]},"
                             "\"other\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[32,36]},"
                             "\"eight\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[36,37]}}";

static char path[] = "/tmp/dtrain-import-XXXXXX";

static int write_file(void **state) {
    const float a[2] = {1.5f, -3.0f}, other = 1;
    const uint16_t weight[6] = {0x3c00, 0xc100, 0x0001, 0x83ff, 0x7bff, 0xfc00};
    const uint16_t bias[2] = {0x3f80, 0xc040};
    const uint64_t n = sizeof header - 1, counter = 7;
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!f) return -1;
    fwrite(&n, 8, 1, f);
    fwrite(header, n, 1, f);
    fwrite(a, sizeof a, 1, f);
    fwrite(weight, sizeof weight, 1, f);
    fwrite(bias, sizeof bias, 1, f);
    fwrite(&counter, 8, 1, f);
    fwrite(&other, 4, 1, f);
    fputc(0, f);
    return fclose(f);
}

static int remove_file(void **state) {
    return unlink(path);
}

static dt_status import(dt_ckpt_tensor *t, int n, const char *keep, int *n_taken) {
    return dt_ckpt_import(path, &(dt_ckpt_import_opts){.keep = &keep, .n_keep = keep != NULL}, t, n, n_taken);
}

TEST(floats_of_all_kinds) {
    float a[2] = {0}, weight[6] = {0}, bias[2] = {0};
    dt_ckpt_tensor t[3] = {{"a", "model", dt_shape1(2), a},
                           {"b.weight", "model", dt_shape1(6), weight},
                           {"b.bias", "model", dt_shape1(2), bias}};
    int n = 0;
    must(import(t, 3, NULL, &n));
    assert_int_equal(n, 3);
    const float want[6] = {1.0f, -2.5f, 0x1p-24f, -1023 * 0x1p-24f, 65504.0f, -INFINITY};
    for (int i = 0; i < 6; i++) assert_true(weight[i] == want[i]);
    assert_true(a[0] == 1.5f && a[1] == -3.0f && bias[0] == 1.0f && bias[1] == -3.0f);
}

TEST(what_does_not_fit_is_named) {
    float a[4] = {5, 5, 5, 5}, c[2] = {6, 6};
    dt_ckpt_tensor wide[2] = {{"a", "model", dt_shape1(4), a}, {"eight", "model", dt_shape1(1), c}};
    int n = 0;
    must_fail(DT_E_CKPT, "'a' is (2), this model expects (4)", import(wide, 1, NULL, &n));
    must_fail(DT_E_CKPT, "'eight' is F8_E4M3, which is not read", import(wide + 1, 1, NULL, &n));
    dt_ckpt_tensor missing[2] = {{"a", "model", dt_shape1(2), a}, {"head.weight", "model", dt_shape1(2), c}};
    must_fail(DT_E_CKPT, "head.weight", import(missing, 2, NULL, &n));
    assert_true(a[0] == 5 && n == 0);                            // nothing was copied
    assert_int_equal(import(missing, 2, "hea", &n), DT_E_USAGE); // a module's whole name
    must(import(missing, 2, "head", &n));
    assert_true(n == 1 && a[0] == 1.5f && c[0] == 6);
}

// A safetensors file of one F32 each, by names.
static void write_names(char *to, const char *const *names, int n) {
    char text[4096] = "{";
    float zero = 0;
    for (int i = 0; i < n; i++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                 i ? "," : "", names[i], 4 * i, 4 * i + 4);
    }
    strcat(text, "}");
    uint64_t n_bytes = strlen(text);
    FILE *f = fdopen(mkstemp(to), "wb");
    assert_non_null(f);
    fwrite(&n_bytes, 8, 1, f);
    fwrite(text, n_bytes, 1, f);
    for (int i = 0; i < n; i++) {
        zero = (float)i + 1;
        fwrite(&zero, 4, 1, f);
    }
    fclose(f);
}

// The values of the model's tensors, each of one element, after an import of a file with these names; 0: not taken.
static dt_status import_names(const char *const *file, int n_file, const char *const *model, int n_model,
                              dt_ckpt_import_opts o, float *values) {
    char to[] = "/tmp/dtrain-names-XXXXXX";
    dt_ckpt_tensor t[8];
    int n_taken = 0;
    write_names(to, file, n_file);
    for (int i = 0; i < n_model; i++) {
        values[i] = 0;
        t[i] = (dt_ckpt_tensor){model[i], "model", dt_shape1(1), &values[i]};
    }
    dt_status st = dt_ckpt_import(to, &o, t, n_model, &n_taken);
    unlink(to);
    return st;
}

TEST(prefixes_are_found) {
    static const char *const model[] = {"a.weight", "b.weight", "head.weight"};
    static const char *const nested[] = {"state_dict.module.a.weight", "state_dict.module.b.weight",
                                         "optimizer.a.weight", "state_dict.module.head.weight"};
    static const char *const twice[] = {"teacher.a.weight", "teacher.b.weight", "student.a.weight", "student.b.weight"};
    static const char *const heads[] = {"head"};
    float v[3];
    must(import_names(nested, 4, model, 3, (dt_ckpt_import_opts){0}, v));
    assert_true(v[0] == 1 && v[1] == 2 && v[2] == 4);
    dt_ckpt_import_opts o = {.heads = heads, .n_heads = 1, .renew_heads = true};
    must_fail(DT_E_CKPT, "'student.' and 'teacher.': model.init_prefix", import_names(twice, 4, model, 3, o, v));
    o.prefix = "student";
    must(import_names(twice, 4, model, 3, o, v));
    assert_true(v[0] == 3 && v[1] == 4 && v[2] == 0); // without a head: it keeps its values
    o.renew_heads = false;
    must_fail(DT_E_CKPT, "head.weight", import_names(twice, 4, model, 3, o, v));
}

TEST(timms_names_are_known) {
    static const char *const model[] = {"class_token", "encoder.layers.encoder_layer_11.self_attention.in_proj_weight",
                                        "encoder.layers.encoder_layer_11.mlp.3.bias", "heads.head.weight"};
    static const char *const timm[] = {"cls_token", "blocks.11.attn.qkv.weight", "blocks.11.mlp.fc2.bias",
                                       "head.weight"};
    static const char *const downloaded[] = {"class_token",
                                             "encoder.layers.encoder_layer_11.self_attention.in_proj_weight",
                                             "encoder.layers.encoder_layer_11.mlp.linear_2.bias", "heads.head.weight"};
    float v[4];
    dt_graph *g = dt_graph_create("names", false);
    dt_graph_alias(g, "class_token", "cls_token", NULL);
    dt_graph_alias(g, "encoder.layers.encoder_layer_11.self_attention.in_proj_weight", "blocks.11.attn.qkv.weight",
                   NULL);
    dt_graph_alias(g, "encoder.layers.encoder_layer_11.mlp.3", "blocks.11.mlp.fc2", NULL);
    dt_graph_alias(g, "heads.head", "head", NULL);
    must(import_names(timm, 4, model, 4, (dt_ckpt_import_opts){.graph = g}, v));
    assert_true(v[0] == 1 && v[1] == 2 && v[2] == 3 && v[3] == 4);
    dt_graph_destroy(g);
    must(import_names(downloaded, 4, model, 4, (dt_ckpt_import_opts){0}, v));
    assert_true(v[2] == 3);
}

TEST(timms_names_of_another_network_are_told) {
    static const char *const model[] = {"features.0.0.weight", "fc.weight"};
    static const char *const timm[] = {"conv_stem.weight", "fc.weight"};
    float v[2];
    must_fail(DT_E_CKPT, "look like timm's names", import_names(timm, 2, model, 2, (dt_ckpt_import_opts){0}, v));
}

// A deeper network has all tensors of a shallower one.
TEST(a_deeper_network_is_no_match) {
    static const char *const model[] = {"conv1.weight", "layer1.0.conv1.weight"};
    static const char *const deeper[] = {"conv1.weight", "layer1.0.conv1.weight", "layer1.1.conv1.weight"};
    float v[2];
    must_fail(DT_E_CKPT, "model.depth 4, the config says 3",
              import_names(deeper, 3, model, 2, (dt_ckpt_import_opts){0}, v));
}

TEST_MAIN(write_file, remove_file)
