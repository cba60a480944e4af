// test_plan_files.c: what is kept of plans between starts, on the fake device: the file of choices, what can be wrong
// with it, and the bound on workspace.
#include "plan_rig.h"

#include "backend/cuda/cuda_desc.h"

// Whether conv is timed by a fresh start on `machine`.
static bool timed(const char *machine, const char *folder) {
    rig r = begin(machine, folder);
    assert_int_equal(choice_of_conv(r.p), 1);
    const bool ran = fake_cuda_count(r.api, "dnn_run") > 0;
    end(&r);
    return ran;
}

TEST_WITH(test_choices_are_kept_in_a_file, folder_make, folder_remove) {
    const char *folder = in_folder("not/yet/there"), *other_folder = in_folder("other");
    char *good = NULL;
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
    assert_true(timed("B200, cuDNN 9", other_folder));
    char *other = file_in(other_folder, "engines-");
    assert_int_equal(dt_io_write_file(other, good, n), DT_OK);
    assert_true(timed("B200, cuDNN 9", other_folder));
    assert_false(timed("B200, cuDNN 9", other_folder));
    assert_false(timed("H200, cuDNN 9", folder));
    free(other);
    free(path);
    free(good);
}

// A checkpoint has what this run used, not what the machine's file has for other networks.
TEST_WITH(test_other_networks_choices_stay_in_the_file, folder_make, folder_remove) {
    assert_true(timed("H200", folder_path));
    rig r = begin("H200", folder_path);
    const dt_cuda_plan *plan = NULL;
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK);
    char *text = dt_cuda_plans_text(r.p);
    assert_true(strncmp(text, "1\tgemm", 6) == 0 && !strstr(text, "conv_fwd"));
    free(text);
    end(&r);
    assert_false(timed("H200", folder_path)); // and the file has both
}

TEST(test_a_folder_that_cannot_be_written_is_no_error) {
    assert_true(timed("m", "/dev/null/engines"));
}

static dt_cuda_plans *open_bounded(dt_cuda_api *api, size_t most_workspace) {
    const dt_cuda_plans_opts o = {.machine = "m", .most_workspace = most_workspace};
    dt_cuda_plans *p = NULL;
    must(dt_cuda_plans_create(&p, api, &o));
    return p;
}

// The fastest of three engines wants 5,000 bytes of workspace, the others 1 and 2 KiB. What must be done is done by
// the one that wants the least, if all want too much; a wish is not granted by it.
TEST(test_workspace_has_a_bound) {
    static const size_t bounds[] = {0, 5000, 1500, 10};
    assert_int_equal(setenv("FAKE_CUDA_FASTEST", "0", 1), 0);
    assert_int_equal(setenv("FAKE_CUDA_WORKSPACE", "5000", 1), 0);
    const dt_dnn_desc d = conv_of_norms(true);
    for (int i = 0; i < 4; i++) {
        dt_cuda_api *api = fake_cuda_create(NULL);
        dt_cuda_plans *p = open_bounded(api, bounds[i]);
        assert_int_equal(choice_of_conv(p), i < 2 ? 0 : 1);
        assert_int_equal(fuses(p, &d, NULL), i < 3);
        dt_cuda_plans_destroy(p);
        assert_int_equal(fake_cuda_destroy(api), 0);
    }
    unsetenv("FAKE_CUDA_FASTEST"), unsetenv("FAKE_CUDA_WORKSPACE");
}

// A checkpoint's choices may be another machine's: they are obeyed, and the file keeps what it had, news beside it.
TEST_WITH(test_what_was_given_is_not_filed, folder_make, folder_remove) {
    char desc[DT_DESC_TEXT], *given = dt_xprintf("2\t%s\n", dt_dnn_desc_print(&conv, desc));
    rig r = begin("m", folder_path);
    const dt_cuda_plan *plan = NULL;
    assert_int_equal(choice_of_conv(r.p), 1);
    start_again(&r, folder_path);
    assert_int_equal(dt_cuda_plans_take(r.p, given), 1);
    assert_int_equal(choice_of_conv(r.p), 2);
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK); // news
    start_again(&r, folder_path);
    fake_cuda_log_clear(r.api);
    assert_int_equal(choice_of_conv(r.p), 1);
    assert_int_equal(dt_cuda_plan_gemm(r.p, &matmul, &plan), DT_OK);
    assert_int_equal(fake_cuda_count(r.api, "dnn_run") + fake_cuda_count(r.api, "gemm_run"), 0);
    end(&r);
    free(given);
}

TEST_MAIN(NULL, NULL)
