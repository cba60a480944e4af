// test_gpu.c: what a person sees of a GPU, from a fake NVML (fake_nvml.c): in each sink, with errors, and with a driver that
// hangs.
#define _GNU_SOURCE
#include "metrics_case.h"

#include "base/nvml.h"
#include "base/rank_report.h"
#include "fake_nvml.h"
#include "observe/report.h"

#include <dlfcn.h>
#include <math.h>

static struct fake_nvml *nvml;

// Found by its name from then on.
static void load_fake(void) {
    char path[512];
    snprintf(path, sizeof path, "%s/fake/libnvidia-ml.so.1", getenv("BUILD"));
    void *library = dlopen(path, RTLD_NOW);
    assert_non_null(library);
    nvml = dlsym(library, "fake_nvml");
    assert_non_null(nvml);
    *nvml = (struct fake_nvml)FAKE_NVML;
}

static bool wait_for_numbers(double now[DT_N_GPU]) {
    for (int i = 0; i < 500 && !dt_gpu_latest(now); i++) usleep(10000);
    return dt_gpu_latest(now);
}

TEST(test_numbers) {
    double now[DT_N_GPU];
    load_fake();
    assert_false(dt_gpu_latest(now)); // nobody watches
    assert_int_equal(dt_nvml_free_bytes("0000:1b:00.0"), nvml->total - nvml->used);
    assert_int_equal(dt_nvml_free_bytes("1b"), 0); // no such device
    dt_gpu_watch_begin("0000:1b:00.0");
    assert_true(wait_for_numbers(now));
    assert_true(now[DT_GPU_util] == 0.97 && now[DT_GPU_power_w] == 412.5 && now[DT_GPU_temp_c] == 61 &&
                now[DT_GPU_mem_bytes] == 24696061952.0 && now[DT_GPU_sm_mhz] == 1980);
    nvml->util_error = 3; // not supported, as of a MIG instance
    for (int i = 0; i < 500 && !isnan(now[DT_GPU_util]); i++) usleep(10000), dt_gpu_latest(now);
    assert_true(isnan(now[DT_GPU_util]) && now[DT_GPU_temp_c] == 61);
    dt_gpu_watch_end();
    assert_false(dt_gpu_latest(now));
    assert_int_equal(nvml->n_open, 0); // all was closed
}

TEST(test_errors) {
    double now[DT_N_GPU];
    load_fake();
    nvml->mode = 'e';
    assert_int_equal(dt_nvml_free_bytes("0000:1b:00.0"), 0);
    dt_gpu_watch_begin("0000:1b:00.0");
    assert_true(wait_for_numbers(now));
    for (int k = 0; k < DT_N_GPU; k++) assert_true(isnan(now[k]));
    dt_gpu_watch_end();
    dt_gpu_watch_begin("1b"); // no such device: the thread ends by itself
    dt_gpu_watch_end();
    assert_int_equal(nvml->n_open, 0);
}

// The lines of a run on one GPU, whose utilization is low.
TEST_WITH(test_sinks, folder_make, folder_remove) {
    double now[DT_N_GPU];
    load_fake();
    nvml->util = 34;
    dt_gpu_watch_begin("0000:1b:00.0");
    assert_true(wait_for_numbers(now));
    stderr_to_file();
    dt_metrics *m = open_metrics((dt_metrics_opts){
        .sinks = JSONL | TERMINAL | PROMETHEUS, .truncate_to = -1, .every_steps = 1, .textfile = folder_path});
    run_steps(m, 1, 2);
    clock_ms += 1000;
    run_steps(m, 3, 3);
    dt_metrics_summary(m, NULL);
    dt_metrics_close(m, &(dt_run_end){3, DT_OK, ""});
    stderr_back();
    char *lines = read_text("metrics.jsonl"), *shown = read_text("stderr"), *text = read_text("dtrain-test.prom");
    assert_non_null(strstr(lines, ",\"gpu\":{\"util\":0.34,\"power_w\":412.5,\"temp_c\":61,\"mem_bytes\":24696061952,"
                                  "\"sm_mhz\":1980},\"time\":"));
    assert_non_null(strstr(shown, "comm 6%  gpu 34% (host) 412 W 61 C 23.0 GiB\n"));
    assert_non_null(strstr(shown, "limited by the host: the GPU was busy 34% of the time, though data"));
    assert_non_null(strstr(text, "\nDCGM_FI_DEV_GPU_UTIL{run=\"test\",rank=\"0\"} 34\n"));
    assert_non_null(strstr(text, "\nDCGM_FI_DEV_FB_USED{run=\"test\",rank=\"0\"} 23552\n"));
    free(lines);
    free(shown);
    free(text);
    dt_gpu_watch_end();
}

// Two ranks, of which the second has sent what its GPU reports.
TEST_WITH(test_ranks, folder_make, folder_remove) {
    dt_rank_look(NULL, 0, 1);
    dt_rank_hear(1, &(dt_rank_report){.step = 1, .has_gpu = true, .gpu = {0.5, 300, 88, 1e9, 1200}});
    dt_metrics *m = open_metrics((dt_metrics_opts){
        .sinks = JSONL | PROMETHEUS, .truncate_to = -1, .every_steps = 1, .textfile = folder_path, .world_size = 2});
    run_steps(m, 1, 1);
    dt_metrics_close(m, &(dt_run_end){1, DT_OK, ""});
    char *lines = read_text("metrics.jsonl"), *text = read_text("dtrain-test.prom");
    assert_non_null(strstr(lines, "\"gpu_util\":[null,0.5],\"gpu_power_w\":[null,300],\"gpu_temp_c\":[null,88],"));
    assert_non_null(strstr(text, "\nDCGM_FI_DEV_GPU_TEMP{run=\"test\",rank=\"1\"} 88\n"));
    free(lines);
    free(text);
}

// A driver that hangs: old numbers are none, steps go on, and the end waits for a second at most.
TEST_WITH(test_hang, folder_make, folder_remove) {
    double now[DT_N_GPU];
    load_fake();
    dt_gpu_watch_begin("0000:1b:00.0");
    assert_true(wait_for_numbers(now));
    nvml->mode = 'h';
    usleep(1200000); // the thread is in a call that hangs
    clock_ms += 6000;
    assert_false(dt_gpu_latest(now));
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = JSONL, .truncate_to = -1});
    run_steps(m, 1, 3);
    dt_metrics_close(m, &(dt_run_end){3, DT_OK, ""});
    char *lines = read_text("metrics.jsonl");
    assert_non_null(strstr(lines, "\"step\":3"));
    assert_null(strstr(lines, "\"gpu\""));
    free(lines);
    dt_gpu_watch_end();
    assert_int_equal(nvml->n_open, 1); // its thread is left behind
}

TEST(test_causes) {
    const struct {
        double data, comm, util;
        const char *want;
    } rows[] = {{0.6, 0, 0.3, "limited by data: the GPU was busy 30% of the time, the step waited 60%"},
                {0, 0.4, 0.5, "limited by communication: the GPU was busy 50% of the time, 40% of the step"},
                {0.01, 0.01, 0.5, "limited by the host: the GPU was busy 50%"},
                {0.01, 0.01, 0.95, "limited by compute: data and"},
                {0.6, 0, NAN, "limited by data: the step waited 60%"},
                {0.01, 0.01, NAN, "limited by compute: data and"}};
    char text[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dt_report_verdict(text, sizeof text, rows[i].data, rows[i].comm, rows[i].util, NULL);
        assert_memory_equal(text, rows[i].want, strlen(rows[i].want));
    }
}

TEST_MAIN(NULL, NULL)
