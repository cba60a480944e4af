// test_cuda_plans.c: choosing engines on the fake device, whose second engine is the fastest by its own clock: sharing,
// timing, choices as text, the parts of a batch norm that convolutions do.
#include "plan_rig.h"

#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/cuda_plans.h"
#include "backend/cuda/kernels/kernel_math.h"

#include <math.h>

enum { RUNS = 4 }; // queued of an engine that takes 200 us: one, one that is timed, two in a graph

TEST(test_the_fastest_stays_and_is_shared) {
    rig r = begin("m", NULL);
    const dt_cuda_plan *a = NULL, *b = NULL, *c = NULL;
    assert_int_equal(dt_cuda_plan_dnn(r.p, &conv, &a), DT_OK);
    assert_int_equal(a->choice, 1);
    assert_int_equal(fake_cuda_count(r.api, "dnn_plan"), 3);
    assert_int_equal(fake_cuda_count(r.api, "dnn_destroy"), 2);
    assert_int_equal(fake_cuda_count(r.api, "free"), 1);
    const dt_dnn_desc same = conv;
    assert_int_equal(dt_cuda_plan_dnn(r.p, &same, &b), DT_OK);
    assert_ptr_equal(a, b);
    dt_dnn_desc other = conv;
    other.win.pad_end[1] = 1;
    other.out_w = 4;
    assert_int_equal(dt_cuda_plan_dnn(r.p, &other, &b), DT_OK);
    assert_ptr_not_equal(a, b);
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &c), DT_OK);
    assert_int_equal(c->choice, 1);
    assert_int_equal(dt_cuda_plan_dnn(r.p, &attention, &c), DT_OK);
    assert_int_equal(c->choice, 1);
    end(&r);
}

TEST_WITH(test_nothing_is_timed_where_that_is_wanted, folder_make, folder_remove) {
    dt_cuda_api *api = fake_cuda_create(NULL);
    dt_cuda_plans *p = NULL;
    const dt_cuda_plans_opts o = {.machine = "m", .folder = folder_path, .no_timing = true};
    must(dt_cuda_plans_create(&p, api, &o));
    assert_int_equal(choice_of_conv(p), 0);
    assert_int_equal(fake_cuda_count(api, "dnn_run"), 0);
    char *text = dt_cuda_plans_text(p); // other ranks take a favourite too
    assert_true(strncmp(text, "0\tconv_fwd", 10) == 0);
    free(text);
    dt_cuda_plans_destroy(p);
    assert_null(file_in(folder_path, "engines-")); // nothing is kept
    assert_int_equal(fake_cuda_destroy(api), 0);
}

TEST(test_given_choices_are_obeyed) {
    rig r = begin("m", NULL);
    const dt_cuda_plan *plan = NULL;
    choice_of_conv(r.p);
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK);
    char *text = dt_cuda_plans_text(r.p);
    assert_non_null(strstr(text, "1\tconv_fwd bf16 n1 c4 5x5 k3 3x3 window 3x3"));
    assert_non_null(strstr(text, "1\tgemm f32->f32 3x4x5"));
    text[0] = '2'; // as if another rank had found it faster
    start_again(&r, NULL);
    assert_int_equal(dt_cuda_plans_take(r.p, text), 2);
    fake_cuda_log_clear(r.api);
    assert_int_equal(choice_of_conv(r.p), 2);
    assert_int_equal(fake_cuda_count(r.api, "dnn_plan"), 1);
    assert_int_equal(fake_cuda_count(r.api, "dnn_run"), 0);
    char *again = dt_cuda_plans_text(r.p); // what was given is handed on, used or not
    assert_string_equal(text, again);
    free(again);

    // an engine that no longer exists is chosen anew; malformed lines are skipped
    text[0] = '7';
    start_again(&r, NULL);
    char *mess = dt_xprintf("x\n-1\tconv\n3 no tab\n\t\n%s99999\tbig\n5", text);
    assert_int_equal(dt_cuda_plans_take(r.p, mess), 2);
    assert_int_equal(choice_of_conv(r.p), 1);
    free(mess);
    free(text);
    end(&r);
}

TEST(test_no_memory_for_timing_is_no_error) {
    rig r = begin("m", NULL);
    fake_cuda_fail(r.api, "alloc", 0, FAKE_OUT_OF_MEMORY);
    assert_int_equal(choice_of_conv(r.p), 0);
    start_again(&r, NULL);
    fake_cuda_fail(r.api, "dnn_run", RUNS, FAKE_INVALID); // the second engine's first run
    assert_int_not_equal(choice_of_conv(r.p), 1);
    end(&r);
}

TEST(test_what_cudnn_does_not_do) {
    rig r = begin("m", NULL);
    const dt_cuda_plan *plan = (void *)1;
    dt_dnn_desc d = attention;
    d.type = DT_F32;
    assert_int_equal(dt_cuda_plan_dnn(r.p, &d, &plan), DT_OK);
    assert_null(plan);
    assert_int_equal(fake_cuda_count(r.api, "dnn_choices"), 0);
    assert_non_null(strstr(dt_cuda_dnn_refuses(&d), "bf16 or fp16"));
    static const int64_t sizes[] = {7, 8, 128, 136};
    d.type = DT_BF16;
    for (int i = 0; i < 4; i++) {
        d.d = sizes[i];
        assert_int_equal(dt_cuda_dnn_refuses(&d) != NULL, i % 3 == 0);
    }
    setenv("FAKE_CUDA_NO_DNN", "conv", 1);
    assert_int_equal(dt_cuda_plan_dnn(r.p, &conv, &plan), DT_OK);
    assert_null(plan);
    unsetenv("FAKE_CUDA_NO_DNN");
    assert_int_equal(dt_cuda_plan_dnn(r.p, &conv, &plan), DT_OK); // it is remembered
    assert_null(plan);
    end(&r);
}

// Every type reads the memory as values from 2^-7 to 2 of both signs, which differ along a row and from row to row.
TEST(test_engines_run_on_random_values) {
    static const dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};
    dt_cuda_api *api = fake_cuda_create(NULL);
    dt_dnn_desc d = conv;
    d.h = d.w = 256; // of x 512 KiB, more than is made by the host
    const dt_plan_kind k = {.dnn = &d};
    dt_plan_bench b;
    assert_int_equal(dt_plan_bench_open(&b, api, &k, 1000, false), 0);
    assert_int_equal(api->stream_synchronize(api, b.stream), 0);
    char *x = dt_xcalloc(b.n_bytes[0], 1);
    assert_int_equal(api->copy(api, x, b.ptr[0], b.n_bytes[0], 0, NULL), 0);
    for (int t = 0; t < 3; t++) {
        const int64_t n = (int64_t)(b.n_bytes[0] / dt_dtype_size(types[t])), apart[] = {1, 512, 4096};
        int64_t negative = 0, alike[3] = {0};
        for (int64_t i = 0; i < n; i++) {
            const float v = dt_get(x, types[t], i);
            assert_true(fabsf(v) >= 0.0078125f && fabsf(v) < 2.0f);
            negative += v < 0;
            for (int a = 0; a < 3; a++) alike[a] += v == dt_get(x, types[t], (i + apart[a]) % n);
        }
        assert_true(negative > n / 2 - n / 50 && negative < n / 2 + n / 50);
        for (int a = 0; a < 3; a++) assert_true(alike[a] < n / 50);
    }
    free(x);
    dt_plan_bench_close(&b);
    assert_int_equal(fake_cuda_destroy(api), 0);
}

// Runs of half a millisecond, one to twenty, are timed in a graph that is replayed twice.
TEST(test_short_runs_are_a_graph) {
    static const struct { int width, n_runs; } cases[] = {{3, 20}, {620, 13}, {4000, 2}, {10000, 1}};
    dt_cuda_api *api = fake_cuda_create(NULL);
    for (int i = 0; i < 8; i++) {
        dt_dnn_desc d = conv;
        d.out_h = 1000;
        d.out_w = cases[i / 2].width;
        const dt_plan_kind k = {.dnn = &d};
        const bool plain = i & 1;
        const int n_runs = cases[i / 2].n_runs;
        float ms = 0;
        dt_plan_bench b;
        fake_cuda_log_clear(api);
        assert_int_equal(dt_plan_bench_open(&b, api, &k, 0, plain), 0);
        assert_int_equal(dt_plan_bench_fill(&b, 2, &ms), 0);
        assert_float_equal(ms, 1e-3 + (double)b.n_bytes[2] * 1e-8,
                           1e-5); // by the fake device's clock
        assert_int_equal(fake_cuda_count(api, "zero"), 2 + (plain ? 2 : 1) * n_runs);
        assert_int_equal(fake_cuda_count(api, "capture_begin"), plain ? 0 : 1);
        assert_int_equal(fake_cuda_count(api, "graph_launch"), plain ? 0 : 2);
        dt_plan_bench_close(&b);
    }
    assert_int_equal(fake_cuda_destroy(api), 0);
}

// A call that fails once while an engine is timed costs at most that engine, and all is given back.
TEST(test_timing_outlives_each_call) {
    static const char *const calls[] = {"alloc",        "copy",     "stream_create",     "event_create",
                                        "event_record", "dnn_run",  "capture_begin",     "capture_end",
                                        "graph_launch", "event_ms", "stream_synchronize"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int after = 0; after < 60; after = 2 * after + 1) {
            rig r = begin("m", NULL);
            fake_cuda_fail(r.api, calls[i], after, FAKE_INVALID);
            const int choice = choice_of_conv(r.p);
            assert_true(choice >= 0 && choice < 3);
            if (strcmp(calls[i], "dnn_run") == 0) assert_int_equal(choice != 1, after / RUNS == 1);
            end(&r);
        }
}

// Only a refusal means that there is no engine. Any other error must not make training silently slow.
TEST(test_a_library_that_is_broken_ends_the_start) {
    static const char *const calls[] = {"dnn_choices", "gemm_choices"};
    rig r = begin("m", NULL);
    const dt_cuda_plan *plan = NULL;
    for (int i = 0; i < 2; i++) {
        fake_cuda_fail(r.api, calls[i], 0, 4000);
        assert_int_equal(i ? dt_cuda_plan_gemm(r.p, &matmul, &plan) : dt_cuda_plan_dnn(r.p, &conv, &plan),
                         DT_E_INTERNAL);
        assert_null(plan);
        assert_non_null(
            strstr(dt_error_message(), i ? "cuBLASLt fails for gemm f32" : "cuDNN fails for conv_fwd bf16"));
        assert_non_null(strstr(dt_error_message(), "an error that the test asked for"));
        start_again(&r, NULL);
        fake_cuda_fail(r.api, calls[i], 0, FAKE_NOT_SUPPORTED);
        assert_int_equal(i ? dt_cuda_plan_gemm(r.p, &matmul, &plan) : dt_cuda_plan_dnn(r.p, &conv, &plan), DT_OK);
        assert_null(plan);
        start_again(&r, NULL);
    }
    // a chosen engine that cannot be made although it exists
    char desc[DT_DESC_TEXT];
    char *text = dt_xprintf("2\t%s\n", dt_dnn_desc_print(&conv, desc));
    assert_int_equal(dt_cuda_plans_take(r.p, text), 1);
    fake_cuda_fail(r.api, "dnn_plan", 0, 4000);
    assert_int_equal(dt_cuda_plan_dnn(r.p, &conv, &plan), DT_E_INTERNAL);
    start_again(&r, NULL);
    assert_int_equal(dt_cuda_plans_take(r.p, text), 1);
    fake_cuda_fail(r.api, "dnn_plan", 0, FAKE_NOT_SUPPORTED);
    assert_int_equal(choice_of_conv(r.p), 1);
    free(text);
    // one engine of a list is passed over
    start_again(&r, NULL);
    fake_cuda_fail(r.api, "dnn_plan", 1, 4000);
    assert_int_not_equal(choice_of_conv(r.p), 1);
    end(&r);
}

// An engine that breaks the device while it is timed is named, not skipped in silence.
TEST(test_an_engine_that_breaks_the_device) {
    rig r = begin("m", NULL);
    const dt_cuda_plan *plan = NULL;
    fake_cuda_fail(r.api, "dnn_run", RUNS, FAKE_ILLEGAL_ADDRESS); // the second engine's first run
    assert_int_equal(dt_cuda_plan_dnn(r.p, &conv, &plan), DT_E_INTERNAL);
    assert_non_null(strstr(dt_error_message(), "timing engine 1 of conv_fwd bf16"));
    assert_non_null(strstr(dt_error_message(), "illegal memory access"));
    dt_cuda_plans_destroy(r.p);
    fake_cuda_destroy(r.api); // nothing can be given back to a broken device
}

// Engines that compile are tried only if there are fewer than three others.
TEST(test_few_engines_are_compiled) {
    rig r = begin("m", NULL);
    setenv("FAKE_CUDA_COMPILED", "5", 1);
    choice_of_conv(r.p);
    assert_int_equal(fake_cuda_count(r.api, "dnn_plan"), 3);
    start_again(&r, NULL);
    fake_cuda_log_clear(r.api);
    fake_cuda_fail(r.api, "dnn_plan", 1, FAKE_NOT_SUPPORTED);
    choice_of_conv(r.p);
    assert_int_equal(fake_cuda_count(r.api, "dnn_plan"), 4);
    unsetenv("FAKE_CUDA_COMPILED");
    end(&r);
}

// Sums are used if the clock says that they cost less than a pass of their own. A no is kept like any other choice,
// and only descriptions with sums may have one.
TEST(test_sums_are_taken_where_they_pay) {
    rig r = begin("m", NULL);
    const dt_cuda_plan *plan = NULL;
    dt_dnn_desc d = conv_of_norms(false);
    assert_int_equal(dt_cuda_plan_dnn(r.p, &d, &plan), DT_OK);
    assert_non_null(plan);
    assert_int_equal(plan->choice, 1);
    d.k = FAKE_SUMS_CHEAP + 1;
    for (int again = 0; again < 2; again++) {
        assert_int_equal(dt_cuda_plan_dnn(r.p, &d, &plan), DT_OK);
        assert_null(plan);
    }
    char *text = dt_cuda_plans_text(r.p);
    assert_non_null(strstr(text, "-1\tconv_fwd f16 n1 c4 5x5 k257"));
    start_again(&r, NULL);
    assert_int_equal(dt_cuda_plans_take(r.p, text), 4);
    assert_int_equal(dt_cuda_plans_take(r.p, "-1\tconv_fwd f16 without"), 0);
    fake_cuda_log_clear(r.api);
    assert_int_equal(dt_cuda_plan_dnn(r.p, &d, &plan), DT_OK);
    assert_null(plan);
    d.k = conv.k;
    assert_int_equal(dt_cuda_plan_dnn(r.p, &d, &plan), DT_OK);
    assert_non_null(plan);
    assert_int_equal(fake_cuda_count(r.api, "dnn_run"), 0);
    free(text);
    end(&r);
}

// A convolution that applies the batch norm in front is decided by the clock, together with its weight gradient. Both
// answers are kept, and a start without timing writes a no into its checkpoint.
TEST(test_norms_are_left_where_that_pays) {
    dt_cuda_api *api = fake_cuda_create(NULL);
    dt_cuda_plans *p = open_plans(api, "m", NULL);
    dt_dnn_desc f = conv_of_norms(true), w = f;
    w.kind = DT_DNN_CONV_WGRAD;
    w.sums = false;
    assert_true(fuses(p, &f, &w));
    f.c = w.c = FAKE_SUMS_CHEAP + 1;
    for (int again = 0; again < 2; again++) {
        assert_false(fuses(p, &f, &w));
    }
    char *text = dt_cuda_plans_text(p);
    assert_non_null(strstr(text, "1\tconv_fwd f16 n1 c4 5x5"));
    assert_non_null(strstr(text, "-1\tconv_fwd f16 n1 c257 5x5"));
    dt_cuda_plans_destroy(p);
    // obeyed, both
    p = open_plans(api, "m", NULL);
    assert_true(dt_cuda_plans_take(p, text) >= 4);
    fake_cuda_log_clear(api);
    assert_false(fuses(p, &f, &w));
    f.c = w.c = conv.c;
    assert_true(fuses(p, &f, &w));
    const dt_cuda_plan *plan = NULL;
    assert_int_equal(dt_cuda_plan_dnn(p, &w, &plan), DT_OK);
    assert_non_null(plan);
    assert_int_equal(fake_cuda_count(api, "dnn_run"), 0);
    dt_cuda_plans_destroy(p);
    free(text);
    // nothing timed
    dt_cuda_plans_opts o = {.machine = "m", .no_timing = true};
    assert_int_equal(dt_cuda_plans_create(&p, api, &o), DT_OK);
    assert_false(fuses(p, &f, &w));
    assert_int_equal(fake_cuda_count(api, "dnn_run"), 0);
    text = dt_cuda_plans_text(p);
    assert_non_null(strstr(text, "-1\tconv_fwd f16 n1 c4 5x5"));
    dt_cuda_plans_destroy(p);
    // a resumed run does not ask again
    p = open_plans(api, "m", NULL);
    dt_cuda_plans_take(p, text);
    assert_false(fuses(p, &f, &w));
    assert_int_equal(fake_cuda_count(api, "dnn_run"), 0);
    free(text);
    dt_cuda_plans_destroy(p);
    // no engine
    assert_int_equal(setenv("FAKE_CUDA_NO_NORMED", "1", 1), 0);
    p = open_plans(api, "m", NULL);
    assert_false(fuses(p, &f, &w));
    assert_int_equal(unsetenv("FAKE_CUDA_NO_NORMED"), 0);
    dt_cuda_plans_destroy(p);
    assert_int_equal(fake_cuda_destroy(api), 0);
}

// An engine that costs a pass pays if it saves memory passes, which a batch norm of few pixels does not make.
TEST(test_few_pixels_save_no_pass) {
    rig r = begin("m", NULL);
    const dt_cuda_plan *plan = NULL;
    dt_dnn_desc d = {.kind = DT_DNN_CONV_FWD,
                     .type = DT_F16,
                     .n = 5,
                     .c = 1,
                     .h = 32,
                     .k = FAKE_SUMS_CHEAP + 1,
                     .out_h = 32,
                     .groups = 1,
                     .sums = true,
                     .win = {.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}}};
    for (int width = 32; width <= 33; width++) {
        d.w = d.out_w = width;
        must(dt_cuda_plan_dnn(r.p, &d, &plan));
        assert_int_equal(plan != NULL, d.n * d.h * d.w > DT_BN_SMALL_PIXELS);
    }
    end(&r);
}

// One half of a pair may need too much workspace: neither is used, on rank 0 and on ranks that obey it.
TEST(test_half_a_pair_beyond_the_bound) {
    rig r = begin("m", NULL);
    dt_dnn_desc first = conv_of_norms(true), second = first;
    second.kind = DT_DNN_CONV_WGRAD;
    second.sums = false;
    assert_true(fuses(r.p, &first, &second));
    char desc[DT_DESC_TEXT], *line = dt_xprintf("-1\t%s\n", dt_dnn_desc_print(&second, desc));
    dt_dnn_desc_print(&first, desc);
    char *text = dt_cuda_plans_text(r.p), *of_first = strstr(text, desc);
    assert_non_null(of_first);
    char *lines = dt_xprintf("%.*s\t%s\n%s", 1, of_first - 2, desc, line);
    start_again(&r, NULL);
    assert_int_equal(dt_cuda_plans_take(r.p, lines), 2);
    fake_cuda_log_clear(r.api);
    assert_false(fuses(r.p, &first, &second));
    assert_int_equal(fake_cuda_count(r.api, "dnn_run"), 0);
    free(text), free(line), free(lines);
    end(&r);
}

TEST_MAIN(NULL, NULL)
