// test_cpu_choices.c: what the CPU chooses by timing: the file that keeps it, what is given and obeyed, and that a
// convolution computes by the algorithm that was chosen.
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_choices.h"
#include "backend/time_nodes.h"
#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "exec/exec.h"
#include "folder.h"
#include "graph/build.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dt_cpu_choices *open_choices(const char *machine, const char *folder) {
    const dt_cpu_choices_opts o = {.machine = machine, .folder = folder, .budget_s = 1};
    return dt_cpu_choices_create(&o);
}

static int find(const char *machine, const char *folder, const char *text) {
    dt_cpu_choices *c = open_choices(machine, folder);
    const int choice = dt_cpu_choices_find(c, text);
    dt_cpu_choices_destroy(c);
    return choice;
}

static void add(const char *machine, const char *folder, const char *text, double a, double b) {
    dt_cpu_choices *c = open_choices(machine, folder);
    dt_cpu_choices_add(c, text, (const double[]){a, b}, 2, 0.1);
    dt_cpu_choices_destroy(c);
}

// A rank whose replicas get more threads: the file is another, what was given stays.
TEST(test_other_threads) {
    const char *folder = in_folder("moved");
    const dt_cpu_choices_opts two = {.machine = "Xeon, 2 threads", .folder = folder, .budget_s = 1};
    add("Xeon, 2 threads", folder, "conv a", 200, 100);
    add("Xeon, 2 threads", folder, "conv c", 100, 200);
    dt_cpu_choices *c = open_choices("Xeon", folder);
    dt_cpu_choices_take(c, "1\tconv a\n");
    dt_cpu_choices_add(c, "conv b", (const double[]){100, 200}, 2, 0.25);
    dt_cpu_choices_move(c, &two);
    assert_int_equal(dt_cpu_choices_find(c, "conv a"), 1);
    assert_int_equal(dt_cpu_choices_find(c, "conv b"), DT_CHOICE_NONE);
    assert_int_equal(dt_cpu_choices_find(c, "conv c"), 1);
    assert_true(dt_cpu_choices_left_s(c) < 0.8);
    dt_cpu_choices_destroy(c);
    assert_int_equal(find("Xeon", folder, "conv b"), 1);
    assert_int_equal(find("Xeon, 2 threads", folder, "conv a"), 0);
}

TEST(test_the_faster_one_is_kept) {
    const char *folder = in_folder("kept");
    char *good = NULL, *path;
    size_t n = 0;
    add("Xeon", folder, "conv a", 100, 200);
    add("Xeon", folder, "conv b", 200, 100);
    add("Xeon", folder, "conv c", 100, 101); // hardly faster
    assert_int_equal(find("Xeon", folder, "conv a"), 1);
    assert_int_equal(find("Xeon", folder, "conv b"), 0);
    assert_int_equal(find("Xeon", folder, "conv c"), 0);
    assert_int_equal(find("Xeon", folder, "conv d"), DT_CHOICE_NONE);
    assert_int_equal(find("EPYC", folder, "conv a"), DT_CHOICE_NONE);

    // a file of another machine in this one's place, and damage of any kind: chosen anew
    path = dt_choices_path(folder, "kernels 3", "Xeon");
    char *other = dt_choices_path(folder, "kernels 3", "EPYC");
    must(dt_io_read_file(&good, &n, path, 0, DT_E_STORAGE));
    must(dt_io_write_file(other, good, n));
    assert_int_equal(find("EPYC", folder, "conv a"), DT_CHOICE_NONE);
    for (size_t i = 0; i < n; i += 1 + n / 25) {
        good[i] ^= 1;
        must(dt_io_write_file(path, good, n));
        good[i] ^= 1;
        assert_int_equal(find("Xeon", folder, "conv a"), DT_CHOICE_NONE);
        must(dt_io_write_file(path, good, i));
        assert_int_equal(find("Xeon", folder, "conv a"), DT_CHOICE_NONE);
    }
    add("Xeon", folder, "conv a", 100, 200);
    assert_int_equal(find("Xeon", folder, "conv a"), 1);
    free(other);
    free(path);
    free(good);
}

TEST(test_what_is_given_is_obeyed) {
    const char *folder = in_folder("given");
    add("Xeon", folder, "conv a", 100, 200);
    dt_cpu_choices *c = open_choices("Xeon", folder);
    dt_cpu_choices_take(c, "0\tconv a\n1\tconv b\nnonsense\n7\tconv c\n1\tconv unused\n");
    assert_int_equal(dt_cpu_choices_find(c, "conv a"), 0);
    assert_int_equal(dt_cpu_choices_find(c, "conv b"), 1);
    assert_int_equal(dt_cpu_choices_find(c, "conv c"), DT_CHOICE_NONE);
    char *text = dt_cpu_choices_text(c); // a checkpoint has what was used, and hands on what was given
    assert_string_equal(text, "0\tconv a\n1\tconv b\n1\tconv unused\n");
    free(text);
    dt_cpu_choices_destroy(c);
    assert_int_equal(find("Xeon", folder, "conv a"), 1); // the file keeps what was timed
    assert_int_equal(find("Xeon", folder, "conv b"), DT_CHOICE_NONE);
}

TEST(test_what_there_was_no_time_for_is_not_kept) {
    const char *folder = in_folder("budget");
    dt_cpu_choices *c = open_choices("Xeon", folder);
    assert_true(dt_cpu_choices_left_s(c) > 0.9);
    assert_int_equal(dt_cpu_choices_add(c, "conv a", (const double[]){100, 200}, 2, 1.5), 1);
    assert_true(dt_cpu_choices_left_s(c) < 0);
    assert_int_equal(dt_cpu_choices_add(c, "conv b", NULL, 0, 0), 0);
    char *text = dt_cpu_choices_text(c); // but used, also by a resumed run
    assert_string_equal(text, "1\tconv a\n0\tconv b\n");
    free(text);
    dt_cpu_choices_destroy(c);
    assert_int_equal(find("Xeon", folder, "conv b"), DT_CHOICE_NONE);
}

TEST(test_runs_at_the_same_time_keep_what_both_timed) {
    const char *folder = in_folder("both");
    dt_cpu_choices *c = open_choices("Xeon", folder);
    dt_cpu_choices_add(c, "conv a", (const double[]){100, 200}, 2, 0.1);
    add("Xeon", folder, "conv b", 100, 200);
    dt_cpu_choices_destroy(c);
    assert_int_equal(find("Xeon", folder, "conv a"), 1);
    assert_int_equal(find("Xeon", folder, "conv b"), 1);
}

// ---- a convolution ---------------------------------------------------------------------------------
enum { C = 32, SIDE = 16, N = C * SIDE * SIDE };

// Runs a 3x3 convolution on a backend that was given `choices`, and returns what it asked for (heap).
static char *convolve(const char *choices, bool winograd, float *y) {
    dt_backend *b = NULL;
    dt_params *p = NULL;
    dt_plan *plan = NULL;
    dt_exec *e = NULL;
    const dt_backend_opts opts = {.threads = 1, .timed = true, .winograd = winograd};
    must(dt_backend_create_cpu(&b, &opts));
    if (choices) b->take_choices(b, choices);
    dt_graph *g = dt_graph_create("test", false);
    const dt_value x = dt_input(g, "x", DT_F32, dt_shape4(1, C, SIDE, SIDE));
    dt_graph_add_output(g, "y",
                        dt_conv2d(g, "conv", x, &(dt_conv2d_opts){.out = C, .kernel = 3, .stride = 1, .pad = 1}));
    must(dt_params_create(&p, g, b, 0, 0));
    must(dt_plan_create(&plan, g, p, &(dt_plan_opts){.threads = 1}));
    dt_params_init(p, 1);
    dt_params_repack(p);
    must(dt_exec_create(&e, plan, 0));
    float *data = dt_xcalloc(N, sizeof *data);
    for (int i = 0; i < N; i++) data[i] = (float)(i * 37 % 101) * 0.01f - 0.3f;
    dt_exec_bind(e, "x", data);
    dt_exec_run(e, &(dt_exec_args){.step = {.loss_scale = 1}});
    assert_int_equal(dt_exec_output(e, "y", y, N), N);
    char *text = b->choices(b);
    free(data);
    dt_exec_destroy(e);
    dt_plan_destroy(plan);
    dt_params_destroy(p);
    dt_graph_destroy(g);
    b->destroy(b);
    return text;
}

TEST(test_convolution_obeys) {
    static float direct[N], given0[N], given1[N], timed[N];
    char *none = convolve(NULL, false, direct), *text = convolve(NULL, true, timed);
    assert_string_equal(none, ""); // device.winograd: off
    free(none);
    if (dt_cpu_isa_get() == DT_CPU_GENERIC) {
        assert_string_equal(text, "");
        assert_memory_equal(direct, timed, sizeof direct);
        free(text);
        skip();
    }
    assert_non_null(strstr(text, "\tconv2d evaluation 1x32x16x16 to 32, 3x3 "));
    const char chosen = text[0];
    text[0] = '0';
    char *again = convolve(text, true, given0);
    assert_string_equal(again, text);
    assert_memory_equal(direct, given0, sizeof direct);
    free(again);
    text[0] = '1';
    again = convolve(text, true, given1);
    assert_string_equal(again, text);
    assert_memory_not_equal(direct, given1, sizeof direct); // rounds elsewhere
    for (int i = 0; i < N; i++) assert_true(given1[i] - direct[i] < 1e-4f && direct[i] - given1[i] < 1e-4f);
    assert_memory_equal(timed, chosen == '1' ? given1 : given0, sizeof timed);
    free(again);
    free(text);
}

static int set_up(void **state) {
    dt_log_set_level(DT_LOG_ERROR);
    return folder_make(state);
}

TEST_MAIN(set_up, folder_remove)
