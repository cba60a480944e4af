// small_network.h: a network at a small size over known images and up to four targets, on the CPU: one pass, with its
// loss and gradients. The config's lines of `train` and the targets' number are the test's.
#ifndef DT_TESTS_SMALL_NETWORK_H
#define DT_TESTS_SMALL_NETWORK_H

#include "base/core.h"
#include "base/rng.h"
#include "exec/exec.h"
#include "models/models.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4, SIDE = 32, CLASSES = 4, SHARES = 3 };

// Line 7 is the first of `train_lines`.
static inline dt_config *parse_small(const char *model, const char *train_lines) {
    char *text = dt_xprintf("run: {name: t}\n"
                            "data: {path: x, fields: {image: {kind: image, size: [32, 32]},"
                            " label: {kind: class, classes: 4}, glasses: {kind: real},"
                            " mood: {kind: vector, size: 3}}}\n"
                            "model: {%s}\n"
                            "train:\n  global_batch: 4\n  micro_batch: 4\n%s\n",
                            model, train_lines);
    dt_config *c = NULL;
    must(dt_config_parse(&c, "t.yaml", text, strlen(text), NULL, 0));
    free(text);
    return c;
}

static dt_field_info small_fields[4] = {
    {.name = "image", .dtype = DT_U8, .sample_shape = {3, {SIDE, SIDE, 3}}, .is_image = true},
    {.name = "label", .dtype = DT_I32, .n_classes = CLASSES},
    {.name = "glasses", .dtype = DT_F32},
    {.name = "mood", .dtype = DT_F32, .sample_shape = {1, {SHARES}}}};

typedef struct network {
    dt_config *config;
    dt_param_groups groups;
    dt_graph *graph;
    dt_backend *backend;
    dt_params *params;
    dt_plan *plan;
    dt_exec *exec;
} network;

static inline void bind_small(network *n) {
    static uint8_t image[N * SIDE * SIDE * 3];
    static int32_t label[N];
    static float weight[N], glasses[N], mood[N * SHARES];
    dt_rng r = {.seed = 7};
    for (uint32_t i = 0; i < sizeof image; i++) image[i] = (uint8_t)(255 * dt_rng_uniform(&r, i));
    for (int i = 0; i < N; i++) {
        label[i] = i % CLASSES, weight[i] = 1, glasses[i] = (float)(i % 2);
        for (int k = 0; k < SHARES; k++) mood[i * SHARES + k] = k == i % SHARES ? 0.5f : 0.25f;
    }
    dt_exec_bind(n->exec, "image", image);
    dt_exec_bind(n->exec, "label", label);
    dt_exec_bind(n->exec, "glasses", glasses);
    dt_exec_bind(n->exec, "mood", mood);
    dt_exec_bind(n->exec, "weight", weight);
}

// The sum of the loss over the samples; gradients are in params->grads[0].
static inline double pass_small(network *n) {
    const dt_exec_args args = {.step = {.seed = 1, .loss_scale = 1}, .grad = n->params->grads[0]};
    dt_params_repack(n->params);
    dt_exec_run(n->exec, &args);
    const int loss = dt_params_find_stat(n->params, "loss");
    return (double)n->params->grads[0][n->params->stats[loss].offset];
}

// Fields: the image and the first n_targets others.
static inline void run_targets(network *n, const char *model, const char *train_lines, int n_targets, dt_dtype type) {
    for (int i = 0; i < 3; i++) small_fields[0].mean[i] = 0.5f, small_fields[0].std[i] = 0.25f;
    *n = (network){.config = parse_small(model, train_lines)};
    must(dt_param_groups_read(&n->groups, n->config));
    const dt_model_args a = {n->config, small_fields, 1 + n_targets, N, true, &n->groups, 0, NULL};
    must(dt_model_graph(&n->graph, &a, type));
    const dt_backend_opts o = {.threads = 1, .deterministic = true};
    must(dt_backend_create_cpu(&n->backend, &o));
    must(dt_params_create(&n->params, n->graph, n->backend, 1, 1));
    dt_params_init(n->params, 5);
    dt_rng r = {.seed = 7};
    for (int64_t i = 0; i < n->params->n_buffer; i++) n->params->buffer[i] += 0.3f * dt_rng_uniform(&r, (uint32_t)i);
    const dt_plan_opts po = {.threads = 1, .n_replicas = 1};
    must(dt_plan_create(&n->plan, n->graph, n->params, &po));
    must(dt_exec_create(&n->exec, n->plan, 0));
    bind_small(n);
    pass_small(n);
}

static inline void drop_network(network *n) {
    dt_exec_destroy(n->exec);
    dt_params_destroy(n->params);
    dt_plan_destroy(n->plan);
    n->backend->destroy(n->backend);
    dt_graph_destroy(n->graph);
    dt_param_groups_fini(&n->groups);
    dt_config_destroy(n->config);
}

static inline void assert_message(const char *part) {
    if (!strstr(dt_error_message(), part)) fail_msg("'%s' lacks '%s'", dt_error_message(), part);
}

#endif
