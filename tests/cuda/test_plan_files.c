// test_plan_files.c: what is kept of plans between starts, on the imitation: the files of choices and of finished
// plans, what can be wrong with them, and choices under a bound on workspace.
#include "plan_rig.h"
#include "testing.h"

#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/plan_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Whether conv is timed by a fresh start on `machine`.
static bool timed(const char *machine, const char *folder) {
    rig r = begin(machine, folder);
    assert_int_equal(choice_of_conv(r.p), 1);
    const bool ran = fake_cuda_count(r.api, "dnn_run") > 0;
    end(&r);
    return ran;
}

TEST_WITH(test_choices_are_kept_in_a_file, make_folder, remove_folder) {
    const char *base = *state;
    char *folder = dt_xprintf("%s/not/yet/there", base), *good = NULL;
    size_t n = 0;
    assert_true(timed("H200, cuDNN 9", folder));
    assert_false(timed("H200, cuDNN 9", folder));
    char *path = file_in(folder, "engines-");
    assert_int_equal(dt_io_read_file(&good, &n, path, 0, DT_E_STORAGE), DT_OK);
    assert_true(strncmp(good, "dtrain engines " DT_PLAN_CHOICES " ", 17) == 0);
    // every flipped byte and every length is noticed, and mended by the next run
    for (size_t i = 0; i < n; i += 1 + n / 25) {
        good[i] ^= 1;
        assert_int_equal(dt_io_write_file(path, good, n), DT_OK);
        good[i] ^= 1;
        assert_true(timed("H200, cuDNN 9", folder));
        assert_false(timed("H200, cuDNN 9", folder));
        assert_int_equal(dt_io_write_file(path, good, i), DT_OK);
        assert_true(timed("H200, cuDNN 9", folder));
    }
    // another machine has a file of its own, and does not take one that was renamed
    assert_int_equal(dt_io_write_file(path, good, n), DT_OK);
    char *other_folder = dt_xprintf("%s/other", base);
    assert_true(timed("B200, cuDNN 9", other_folder));
    char *other = file_in(other_folder, "engines-");
    assert_int_equal(dt_io_write_file(other, good, n), DT_OK);
    assert_true(timed("B200, cuDNN 9", other_folder));
    assert_false(timed("B200, cuDNN 9", other_folder));
    assert_false(timed("H200, cuDNN 9", folder));
    free(other);
    free(other_folder);
    free(path);
    free(good);
    free(folder);
}

// What a start on `machine` does for conv, whose choice is `text` (NULL: the file's): 'r' restores the plan, 'm'
// makes that of the choice, 't' times them all.
static char start(const char *machine, const char *folder, const char *text) {
    rig r = begin(machine, folder);
    if (text) assert_int_equal(dt_cuda_plans_take(r.p, text), 1);
    assert_int_equal(choice_of_conv(r.p), text ? atoi(text) : 1);
    const bool asked = fake_cuda_count(r.api, "dnn_choices") > 0;
    const char did = fake_cuda_count(r.api, "dnn_run") ? 't' : asked ? 'm' : 'r';
    assert_int_equal(fake_cuda_count(r.api, "dnn_plan"), did == 't' ? 3 : did == 'm');
    end(&r);
    return did;
}

TEST_WITH(test_finished_plans_are_kept_in_a_file, make_folder, remove_folder) {
    const char *folder = *state;
    char desc[DT_DESC_TEXT];
    char *good = NULL;
    size_t n = 0;
    assert_int_equal(start("H200", folder, NULL), 't');
    assert_int_equal(start("H200", folder, NULL), 'r');
    char *path = file_in(folder, "plans-");
    assert_int_equal(dt_io_read_file(&good, &n, path, 0, DT_E_STORAGE), DT_OK);
    assert_true(strncmp(good, "dtrain plans " DT_PLAN_CHOICES " ", 15) == 0);
    // damage costs the making of plans, not the choice
    for (size_t i = 0; i < n; i += 1 + n / 25) {
        good[i] ^= 1;
        assert_int_equal(dt_io_write_file(path, good, n), DT_OK);
        good[i] ^= 1;
        assert_int_equal(start("H200", folder, NULL), 'm');
        assert_int_equal(start("H200", folder, NULL), 'r');
        assert_int_equal(dt_io_write_file(path, good, i), DT_OK);
        assert_int_equal(start("H200", folder, NULL), 'm');
    }
    // another choice is made, and kept then
    char *text = dt_xprintf("2\t%s\n", dt_dnn_desc_print(&conv, desc));
    assert_int_equal(start("H200", folder, text), 'm');
    assert_int_equal(start("H200", folder, text), 'r');
    free(text);
    free(path);
    free(good);
}

// A checkpoint has what this run used, not what the machine's file has for other networks.
TEST_WITH(test_other_networks_choices_stay_in_the_file, make_folder, remove_folder) {
    const char *folder = *state;
    assert_int_equal(start("H200", folder, NULL), 't');
    rig r = begin("H200", folder);
    const dt_cuda_plan *plan = NULL;
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK);
    char *text = dt_cuda_plans_text(r.p);
    assert_true(strncmp(text, "1\tgemm", 6) == 0 && !strstr(text, "conv_fwd"));
    free(text);
    end(&r);
    assert_int_equal(start("H200", folder, NULL), 'r'); // and the file has both
}

// A sound file whose plans the library does not take (another graph): one is made, and replaces it.
TEST_WITH(test_a_plan_that_is_refused_is_made_anew, make_folder, remove_folder) {
    const char *folder = *state;
    char desc[DT_DESC_TEXT];
    assert_int_equal(start("H200", folder, NULL), 't');
    const dt_choice_file f = {.what = "plans " DT_PLAN_CHOICES,
                              .machine = "H200",
                              .path = dt_choice_file_path(folder, "plans " DT_PLAN_CHOICES, "H200"),
                              .then = ""};
    dt_dnn_desc_print(&conv, desc);
    static const char *const texts[] = {"fake 1 something else", "", "\t\t"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *lines = dt_xprintf("no line\n1\t%s\n1\t%s\t%s\n5\tother\tx\n", desc, desc, texts[i]);
        dt_choice_file_write(&f, lines);
        free(lines);
        assert_int_equal(start("H200", folder, NULL), 'm');
        assert_int_equal(start("H200", folder, NULL), 'r');
        char *now = dt_choice_file_read(&f);
        assert_non_null(strstr(now, "\n5\tother\tx\n")); // what this run did not need stays
        free(now);
    }
    free(f.path);
}

// Rank 0 chooses and keeps; another rank, opened before that, has its choices and finds its plans.
TEST_WITH(test_other_ranks_find_the_plans, make_folder, remove_folder) {
    const char *folder = *state;
    dt_cuda_api *a = fake_cuda_create(NULL), *b = fake_cuda_create(NULL);
    dt_cuda_plans *first = open_plans(a, "m", folder), *second = open_plans(b, "m", folder);
    choice_of_conv(first);
    dt_cuda_plans_save(first);
    char *text = dt_cuda_plans_text(first);
    assert_int_equal(dt_cuda_plans_take(second, text), 1);
    assert_int_equal(choice_of_conv(second), 1);
    assert_int_equal(fake_cuda_count(b, "dnn_restore"), 1);
    assert_int_equal(fake_cuda_count(b, "dnn_plan"), 0);
    free(text);
    dt_cuda_plans_destroy(first);
    dt_cuda_plans_destroy(second);
    assert_int_equal(fake_cuda_destroy(a), 0);
    assert_int_equal(fake_cuda_destroy(b), 0);
}

TEST(test_a_folder_that_cannot_be_written_is_no_error) {
    assert_true(timed("m", "/dev/null/engines"));
}

// A bound on workspace: engines that want more are chosen again, a wish is no more granted by them, and what must be
// done is done by the one that wants the least. What was given stays; the file keeps the choices of before.
TEST_WITH(test_workspace_has_a_bound, make_folder, remove_folder) {
    const char *folder = *state;
    assert_int_equal(setenv("FAKE_CUDA_FASTEST", "0", 1), 0);
    assert_int_equal(setenv("FAKE_CUDA_WORKSPACE", "5000", 1), 0);
    rig r = begin("m", folder);
    const dt_cuda_plan *plan = NULL;
    bool taken = false;
    dt_dnn_desc d = conv;
    d.kind = DT_DNN_CONV_DGRAD;
    d.type = DT_F16;
    d.bias = false;
    d.masked = true;
    assert_int_equal(choice_of_conv(r.p), 0);
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK);
    assert_int_equal(dt_cuda_plan_fused(r.p, &d, NULL, &taken), DT_OK);
    assert_true(plan->choice == 0 && taken);
    const void *made = plan->plan;
    assert_int_equal(dt_cuda_plans_bound(r.p, 5000), 0);
    assert_ptr_equal(plan->plan, made); // a kernel instance may still hold it
    char *given = dt_cuda_plans_text(r.p);
    assert_int_equal(dt_cuda_plans_bound(r.p, 1500), 4);
    assert_int_equal(choice_of_conv(r.p), 1);
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK);
    assert_int_equal(plan->choice, 1);
    assert_int_equal(dt_cuda_plan_fused(r.p, &d, NULL, &taken), DT_OK);
    assert_int_equal(dt_cuda_plan_dnn(r.p, &d, &plan), DT_OK);
    assert_true(taken && plan->choice == 1);
    // of three engines with too much a wish takes none, and says so to others
    dt_cuda_plans_bound(r.p, 10);
    assert_int_equal(setenv("FAKE_CUDA_FASTEST", "2", 1), 0);
    assert_int_equal(choice_of_conv(r.p), 1); // 1 KiB is the least
    assert_int_equal(dt_cuda_plan_fused(r.p, &d, NULL, &taken), DT_OK);
    assert_false(taken);
    char *text = dt_cuda_plans_text(r.p);
    assert_non_null(strstr(text, "-1\tconv_dgrad f16"));
    assert_non_null(strstr(text, "1\tconv_fwd bf16"));
    end(&r);
    // another start finds what was chosen without a bound; one that is given it obeys, whatever its bound
    r = begin("m", folder);
    assert_int_equal(choice_of_conv(r.p), 0);
    start_again(&r, NULL);
    dt_cuda_plans_bound(r.p, 10);
    assert_true(dt_cuda_plans_take(r.p, given) >= 4);
    assert_int_equal(choice_of_conv(r.p), 0);
    assert_int_equal(dt_cuda_plan_fused(r.p, &d, NULL, &taken), DT_OK);
    assert_true(taken);
    start_again(&r, NULL);
    assert_true(dt_cuda_plans_take(r.p, text) >= 2);
    assert_int_equal(choice_of_conv(r.p), 1);
    assert_int_equal(dt_cuda_plan_fused(r.p, &d, NULL, &taken), DT_OK);
    assert_false(taken);
    end(&r);
    // a start whose file has large ones, restored plans too
    r = begin("m", folder);
    dt_cuda_plans_bound(r.p, 1500);
    assert_int_equal(choice_of_conv(r.p), 1);
    end(&r);
    unsetenv("FAKE_CUDA_FASTEST"), unsetenv("FAKE_CUDA_WORKSPACE");
    free(given);
    free(text);
}

// What a start under a bound chose the next one finds in the file of that bound: nothing is run or made again; without
// the bound, and under another, it does not count.
TEST_WITH(test_choices_under_a_bound_are_kept, make_folder, remove_folder) {
    const char *folder = *state;
    dt_dnn_desc d = conv;
    d.kind = DT_DNN_CONV_DGRAD;
    d.type = DT_F16;
    d.bias = false;
    d.masked = true;
    assert_int_equal(setenv("FAKE_CUDA_FASTEST", "0", 1), 0);
    assert_int_equal(setenv("FAKE_CUDA_WORKSPACE", "5000", 1), 0);
    rig r = begin("m", folder);
    const size_t bounds[] = {10, 10, 1500};
    for (int i = 0; i < 3; i++) {
        bool taken = false;
        assert_int_equal(choice_of_conv(r.p), 0);
        assert_int_equal(dt_cuda_plan_fused(r.p, &d, NULL, &taken), DT_OK);
        assert_true(taken && (i == 0) == (fake_cuda_count(r.api, "dnn_run") > 0));
        fake_cuda_log_clear(r.api);
        assert_true(dt_cuda_plans_bound(r.p, bounds[i]) >= 2);
        assert_int_equal(choice_of_conv(r.p), 1);
        assert_int_equal(dt_cuda_plan_fused(r.p, &d, NULL, &taken), DT_OK);
        assert_int_equal(taken, i == 2);
        const int made = fake_cuda_count(r.api, "dnn_plan") + fake_cuda_count(r.api, "dnn_run");
        assert_true((made == 0) == (i == 1));
        assert_int_equal(fake_cuda_count(r.api, "dnn_restore"),
                         i > 0); // the third's wants too much
        start_again(&r, folder);
        fake_cuda_log_clear(r.api);
    }
    end(&r);
    unsetenv("FAKE_CUDA_FASTEST"), unsetenv("FAKE_CUDA_WORKSPACE");
}

// A checkpoint's choices may be those of a bound: they are obeyed, and the file keeps what it had, news beside it.
TEST_WITH(test_what_was_given_is_not_filed, make_folder, remove_folder) {
    const char *folder = *state;
    char desc[DT_DESC_TEXT], *given = dt_xprintf("2\t%s\n", dt_dnn_desc_print(&conv, desc));
    rig r = begin("m", folder);
    const dt_cuda_plan *plan = NULL;
    assert_int_equal(choice_of_conv(r.p), 1);
    start_again(&r, folder);
    assert_int_equal(dt_cuda_plans_take(r.p, given), 1);
    assert_int_equal(choice_of_conv(r.p), 2);
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK); // news
    start_again(&r, folder);
    fake_cuda_log_clear(r.api);
    assert_int_equal(choice_of_conv(r.p), 1);
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK);
    assert_int_equal(fake_cuda_count(r.api, "dnn_run") + fake_cuda_count(r.api, "gemm_run"), 0);
    end(&r);
    free(given);
}

// A choice that was given may want more than a bound: the bound's file does not have it, though the one without a
// bound has.
TEST_WITH(test_what_was_given_is_in_no_file_of_a_bound, make_folder, remove_folder) {
    const char *folder = *state;
    char desc[DT_DESC_TEXT], *given = dt_xprintf("2\t%s\n", dt_dnn_desc_print(&conv, desc));
    const dt_cuda_plan *plan = NULL;
    assert_int_equal(setenv("FAKE_CUDA_FASTEST", "0", 1), 0);
    assert_int_equal(setenv("FAKE_CUDA_WORKSPACE", "5000", 1), 0);
    rig r = begin("m", folder);
    assert_int_equal(choice_of_conv(r.p), 0);
    start_again(&r, folder);
    assert_int_equal(dt_cuda_plans_take(r.p, given), 1);
    assert_int_equal(choice_of_conv(r.p), 2);
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK);
    assert_int_equal(dt_cuda_plans_bound(r.p, 1500), 1);
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK); // news for the bound's file
    assert_int_equal(plan->choice, 1);
    start_again(&r, folder);
    dt_cuda_plans_bound(r.p, 1500);
    assert_int_equal(choice_of_conv(r.p), 1);
    end(&r);
    unsetenv("FAKE_CUDA_FASTEST"), unsetenv("FAKE_CUDA_WORKSPACE");
    free(given);
}

// Ranks that obey rank 0's choices know of no bound, and find its plans all the same; the next start finds those of
// before the bound too.
TEST_WITH(test_other_ranks_find_the_plans_of_a_bound, make_folder, remove_folder) {
    const char *folder = *state;
    assert_int_equal(setenv("FAKE_CUDA_FASTEST", "0", 1), 0);
    assert_int_equal(setenv("FAKE_CUDA_WORKSPACE", "5000", 1), 0);
    for (int start = 0; start < 2; start++) {
        rig first = begin("m", folder), second = begin("m", folder);
        assert_int_equal(choice_of_conv(first.p), 0);
        assert_int_equal(dt_cuda_plans_bound(first.p, 1500), 1);
        assert_int_equal(choice_of_conv(first.p), 1);
        if (start) {
            assert_int_equal(fake_cuda_count(first.api, "dnn_restore"), 2);
            assert_int_equal(fake_cuda_count(first.api, "dnn_plan"), 0);
        }
        dt_cuda_plans_save(first.p);
        char *text = dt_cuda_plans_text(first.p);
        assert_int_equal(dt_cuda_plans_take(second.p, text), 1);
        assert_int_equal(choice_of_conv(second.p), 1);
        assert_int_equal(fake_cuda_count(second.api, "dnn_restore"), 1);
        assert_int_equal(fake_cuda_count(second.api, "dnn_plan"), 0);
        free(text);
        end(&first);
        end(&second);
    }
    unsetenv("FAKE_CUDA_FASTEST"), unsetenv("FAKE_CUDA_WORKSPACE");
}

TEST_MAIN(NULL, NULL)
