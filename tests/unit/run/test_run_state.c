// state.json: what is written is read back; damage is named.
#include "base/core.h"
#include "base/io.h"
#include "config/words.h"
#include "folder.h"
#include "run/run_state.h"
#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fill(dt_run_state *s) {
    static const char yaml[] = "run: {name: \"ä\"}\ndata: {path: x, fields: {y: {kind: class, classes: 2}}}\n"
                               "model: {name: layers, layers: [{conv: 8}, global_pool]}\n"
                               "train: {global_batch: 192, micro_batch: 16}\n";
    dt_run_state_init(s);
    s->step = 123;
    s->total_steps = 1000;
    s->steps_per_epoch = 70;
    s->seed = 0xfedcba9876543210ull;
    s->world_size = 3;
    must(dt_config_parse(&s->config, "config", yaml, strlen(yaml), NULL, 0));
    s->environment = dt_xstrdup("cpu, oneDNN");
    s->engines = dt_xstrdup("3\tconv_fwd bf16 n1\n");
    s->version = dt_xstrdup("0.1.0");
    s->data_fingerprint = UINT64_MAX;
    s->metrics_offset = 1ll << 40;
    s->resolved = (dt_resolved){.threads = 8, .replicas = 4, .replica_threads = 2, .workers = 3};
    s->resolved.micro_batch = 16;
    s->resolved.precision = DT_PRECISION_bf16;
    s->resolved.device = DT_DEVICE_cpu;
    s->resolved.best = 1 + DT_METRIC_macro_f1;
    dt_run_state_add_eval(s, 70, 0.1);
    dt_run_state_add_eval(s, 123, NAN);
    s->loss_scale = 32768;
    s->clean_steps = 17;
    s->n_skipped = 2;
    s->best_step = 70;
    s->best_value = 0.1;
}

// Which device of its kind a rank has, and how many threads, are not what bits depend on; all else is.
TEST(test_environment) {
    dt_run_state s;
    dt_run_state_init(&s);
    assert_false(dt_run_state_same_environment(&s, "cuda: H200"));
    s.environment = dt_run_state_environment("cuda: H200, driver 580.65.06, cuDNN 9.19, device 3");
    assert_string_equal(s.environment, "cuda: H200, driver 580.65.06, cuDNN 9.19");
    static const struct {
        const char *described;
        bool same;
    } others[] = {
        {"cuda: H200, driver 580.65.06, cuDNN 9.19, device 3", true},
        {"cuda: H200, driver 580.65.06, cuDNN 9.19, device 0", true},
        {"cuda: H200, driver 580.65.06, cuDNN 9.19, 8 threads", true},
        {"cuda: H200, driver 580.82.07, cuDNN 9.19, device 3", false},
        {"cuda: H200, driver 580.65.06, cuDNN 9.20, device 3", false},
        {"cuda: H200, driver 580.65.06", false},
        {"cuda 3: H200, driver 580.65.06, cuDNN 9.19", false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(dt_run_state_same_environment(&s, others[i].described), others[i].same);
    dt_run_state_fini(&s);
}

TEST(test_round_trip) {
    dt_run_state a, b;
    dt_json j;
    dt_json_init(&j);
    fill(&a);
    dt_run_state_build(&a, &j);
    must(dt_run_state_parse(&b, "state.json", j.data));
    assert_int_equal(b.step, 123);
    assert_int_equal(b.total_steps, 1000);
    assert_int_equal(b.steps_per_epoch, 70);
    assert_true(b.seed == a.seed && b.data_fingerprint == a.data_fingerprint);
    assert_int_equal(b.world_size, 3);
    assert_int_equal(b.metrics_offset, 1ll << 40);
    assert_string_equal(b.config->run.name, "ä");
    assert_string_equal(b.environment, a.environment);
    assert_string_equal(b.engines, a.engines);
    assert_memory_equal(&b.resolved, &a.resolved, sizeof a.resolved);
    assert_true(b.loss_scale == 32768 && b.clean_steps == 17 && b.n_skipped == 2);
    assert_int_equal(b.n_history, 2);
    assert_true(b.history[0].step == 70 && b.history[0].value == 0.1);
    assert_true(b.history[1].step == 123 && isnan(b.history[1].value));
    assert_true(b.best_step == 70 && b.best_value == 0.1);
    dt_json again;
    dt_json_init(&again);
    dt_run_state_build(&b, &again);
    assert_string_equal(again.data, j.data);
    dt_json_fini(&j);
    dt_json_fini(&again);
    dt_run_state_fini(&a);
    dt_run_state_fini(&b);
}

static void expect_refused(const char *text, const char *word) {
    dt_run_state s;
    must_fail(DT_E_CKPT, "state.json", dt_run_state_parse(&s, "state.json", text));
    assert_non_null(strstr(dt_error_message(), word));
}

TEST(test_damage) {
    expect_refused("", "JSON");
    expect_refused("{\"format\":1,", "JSON");
    expect_refused("[]", "format");
    expect_refused("{\"format\":0}", "format");
    expect_refused("{\"format\":1,\"step\":\"7\"}", "step");
    dt_run_state a;
    dt_json j;
    dt_json_init(&j);
    fill(&a);
    dt_run_state_build(&a, &j);
    char *replicas = strstr(j.data, "\"replicas\"");
    replicas[1] = 'L';
    expect_refused(j.data, "replicas");
    dt_json_fini(&j);
    dt_run_state_fini(&a);
}

// What a newer dtrain wrote: its format, or a key that this one lacks. The remedy is that dtrain, so its version is named.
TEST(test_newer) {
    dt_run_state a, b;
    dt_json j;
    dt_json_init(&j);
    fill(&a);
    must_fail(DT_E_USAGE, "state.json: written by a newer dtrain, 9.1.0 (format 2; this build",
              dt_run_state_parse(&b, "state.json", "{\"format\":2,\"version\":\"9.1.0\"}"));
    must_fail(DT_E_USAGE, "state.json: written by a newer dtrain (format 7; this build",
              dt_run_state_parse(&b, "state.json", "{\"format\":7}"));
    must_fail(DT_E_USAGE, "state.json: written by a newer dtrain, 9.1.0 (format 2; this build",
              dt_run_state_parse(&b, "state.json", "{\"format\":1,\"networks\":2,\"version\":\"9.1.0\"}"));
    for (int newer = 0; newer < 2; newer++) {
        dt_run_state_build(&a, &j);
        if (newer) memcpy(strstr(j.data, "0.1.0"), "9.1.0", 5);
        memcpy(strstr(j.data, "  seed: "), "  sped: ", 8);
        must_fail(newer ? DT_E_USAGE : DT_E_CKPT, newer ? "written by dtrain 9.1.0, and this is" : "member 'config'",
                  dt_run_state_parse(&b, "state.json", j.data));
        assert_non_null(strstr(dt_error_message(), "unknown key 'run.sped'"));
    }
    dt_json_fini(&j);
    dt_run_state_fini(&a);
}

// A network of layers that were not PyTorch's by default is never taken for today's.
TEST_WITH(test_older_layers, folder_make, folder_remove) {
    char *text;
    dt_run_state a, b;
    dt_json j;
    dt_json_init(&j);
    fill(&a);
    for (int older = 0; older < 2; older++) {
        dt_run_state_build(&a, &j);
        if (older) memcpy(strstr(j.data, "\"networks\""), "\"netwOrks\"", 10);
        must(dt_io_write_file(in_folder("state.json"), j.data, strlen(j.data)));
        const dt_status st = dt_run_state_read(&b, folder_path, a.step, &text);
        if (st != (older ? DT_E_CKPT : DT_OK)) fail_msg("%d: %s", st, dt_error_message());
        if (older) assert_non_null(strstr(dt_error_message(), "meant another network"));
        dt_run_state_fini(&b);
        free(text);
    }
    dt_json_fini(&j);
    dt_run_state_fini(&a);
}

TEST_MAIN(NULL, NULL)
