// test_ckpt.c: what is saved loads; latest, best and numbered find theirs; old ones go in the right
// order; the lock holds; checkpoints of other models change nothing. Faults: tests/fault.
#define _GNU_SOURCE // RTLD_NEXT
#include "base/failpoint.h"
#include "base/io.h"
#include "base/log.h"
#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_internal.h"
#include "folder.h"
#include "testing.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *dir;

static int make_run(void **state) {
    folder_make(state);
    dir = in_folder("checkpoints");
    dt_log_set_level(DT_LOG_ERROR);
    return 0;
}

static float weight[6], bias[2], moment[6];

static void fill(int64_t step) {
    for (int i = 0; i < 6; i++) {
        weight[i] = (float)(step * 10 + i);
        moment[i] = -(float)(step * 10 + i);
    }
    bias[0] = bias[1] = (float)step;
}

static void make_tensors(dt_ckpt_tensor t[3]) {
    t[0] = (dt_ckpt_tensor){"layer.weight", "model", dt_shape2(2, 3), weight};
    t[1] = (dt_ckpt_tensor){"layer.bias", "model", dt_shape1(2), bias};
    t[2] = (dt_ckpt_tensor){"moment1.layer.weight", "optimizer", dt_shape2(2, 3), moment};
}

static dt_ckpt *open_run(int keep, bool async) {
    dt_ckpt *c;
    dt_ckpt_opts o = {.dir = dir, .keep = keep, .async = async};
    must(dt_ckpt_open(&c, &o, false));
    return c;
}

static void save(dt_ckpt *c, int64_t step, bool best) {
    dt_ckpt_tensor t[3];
    char json[64];
    double seconds = -1;
    make_tensors(t);
    fill(step);
    snprintf(json, sizeof json, "{\"cursor\":%d}", (int)step);
    must(dt_ckpt_save_begin(c, step, t, 3, json, best));
    fill(-1); // the snapshot must not see what training does next
    must(dt_ckpt_save_wait(c, &seconds));
    assert_true(seconds > 0);
}

static void expect_loads(dt_ckpt *c, const char *which, int64_t step) {
    dt_ckpt_tensor t[3];
    float w[6], b[2], m[6];
    char *path, *json, want[64];
    int64_t found;
    must(dt_ckpt_find(c, which, &found, &path));
    assert_int_equal(found, step);
    make_tensors(t);
    t[0].data = w;
    t[1].data = b;
    t[2].data = m;
    must(dt_ckpt_load(path, t, 3, &json));
    fill(step);
    assert_memory_equal(w, weight, sizeof w);
    assert_memory_equal(b, bias, sizeof b);
    assert_memory_equal(m, moment, sizeof m);
    snprintf(want, sizeof want, "{\"cursor\":%d}", (int)step);
    assert_string_equal(json, want);
    free(json);
    free(path);
}

// The steps there are, as "10 20 30".
static void expect_steps(const char *want) {
    char have[256] = "";
    int64_t *steps;
    int n;
    must(dt_ckpt_steps(dir, &steps, &n));
    for (int i = 0; i < n; i++)
        snprintf(have + strlen(have), sizeof have - strlen(have), "%s%d", i ? " " : "", (int)steps[i]);
    free(steps);
    assert_string_equal(have, want);
}

static void save_and_load(bool async) {
    dt_ckpt *c = open_run(3, async);
    int64_t step = 5;
    char word[] = "not written", *path = word;
    must(dt_ckpt_find(c, "latest", &step, &path));
    assert_int_equal(step, -1);
    assert_null(path);
    must(dt_ckpt_save_wait(c, NULL));
    if (async) {
        save(c, 10, false);
        save(c, 20, true);
    } else { // as a sync save reads the caller's memory, it must be done when begin returns
        dt_ckpt_tensor t[3];
        make_tensors(t);
        fill(10);
        must(dt_ckpt_save_begin(c, 10, t, 3, "{\"cursor\":10}", false));
        fill(-1);
        save(c, 20, true);
    }
    expect_loads(c, "latest", 20);
    expect_loads(c, "10", 10);
    expect_loads(c, "best", 20);
    dt_ckpt_close(c);
}

TEST_WITH(test_save_and_load_async, make_run, folder_remove) {
    save_and_load(true);
}

TEST_WITH(test_save_and_load_sync, make_run, folder_remove) {
    save_and_load(false);
}

TEST_WITH(test_find_refuses, make_run, folder_remove) {
    dt_ckpt *c = open_run(3, true);
    int64_t step;
    char *path;
    save(c, 10, false);
    must_fail(DT_E_CKPT, "latest and steps 10", dt_ckpt_find(c, "11", &step, &path));
    assert_int_equal(dt_ckpt_find(c, "best", &step, &path), DT_E_CKPT);
    assert_int_equal(dt_ckpt_find(c, "newest", &step, &path), DT_E_USAGE);
    // the default: the best, or the latest where none is
    save(c, 20, false);
    expect_loads(c, NULL, 20);
    save(c, 30, true);
    save(c, 40, false);
    expect_loads(c, NULL, 30);
    dt_ckpt_close(c);
}

TEST_WITH(test_prune_keeps_newest_and_best, make_run, folder_remove) {
    dt_ckpt *c = open_run(2, true);
    save(c, 10, false);
    save(c, 20, true);
    save(c, 30, false);
    expect_steps("20 30");
    save(c, 40, false);
    save(c, 50, false);
    expect_steps("20 40 50");
    expect_loads(c, "best", 20);
    save(c, 60, true);
    expect_steps("50 60");
    expect_loads(c, "best", 60);
    dt_ckpt_close(c);
}

static int n_manifests_read;
dt_status dt_ckpt_manifest_read(dt_ckpt_manifest *m,
                                const char *path) { // in the place of the library's
    static dt_status (*real)(dt_ckpt_manifest *, const char *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "dt_ckpt_manifest_read");
    n_manifests_read++;
    return real(m, path);
}

// A save reads its own manifest and none that this process has found intact.
TEST_WITH(test_save_reads_no_old_manifests, make_run, folder_remove) {
    dt_ckpt *c = open_run(1000, false);
    for (int step = 1; step <= 20; step++) save(c, step, false);
    dt_ckpt_close(c);
    c = open_run(12, false);
    for (int step = 21; step <= 40; step++) {
        n_manifests_read = 0;
        save(c, step, false);
        assert_int_equal(n_manifests_read, step == 21 ? 12 : 1); // the first looks at 11 others
    }
    expect_steps("29 30 31 32 33 34 35 36 37 38 39 40");
    dt_ckpt_close(c);
}

// A process without descriptors cannot look: that is no damage, and the best stays the best.
TEST_WITH(test_no_descriptors_are_no_damage, make_run, folder_remove) {
    struct rlimit was, none;
    int64_t step;
    dt_ckpt *c = open_run(1, false);
    save(c, 10, true);
    save(c, 20, false);
    getrlimit(RLIMIT_NOFILE, &was);
    none = (struct rlimit){0, was.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    const dt_status best = dt_ckpt_best(c, &step);
    setrlimit(RLIMIT_NOFILE, &was);
    assert_int_equal(best, DT_E_STORAGE);
    save(c, 30, false);
    expect_loads(c, "best", 10);
    dt_ckpt_close(c);
}

// The flag in the manifest and best.json: either is enough, the newer wins.
TEST_WITH(test_best_survives_without_its_file, make_run, folder_remove) {
    dt_ckpt *c = open_run(1, true);
    const char *path = in_folder("checkpoints/best.json");
    save(c, 10, true);
    assert_int_equal(unlink(path), 0);
    save(c, 20, false);
    expect_steps("10 20");
    expect_loads(c, "best", 10);
    save(c, 20, true); // there already, and now the best
    expect_loads(c, "best", 20);
    save(c, 30, false);
    expect_steps("20 30");
    dt_ckpt_close(c);
}

// A kill between a checkpoint and best.json: the next start names in best.json what the manifests say.
TEST_WITH(test_best_file_follows_the_manifests, make_run, folder_remove) {
    char text[32] = "";
    dt_ckpt *c = open_run(1, true);
    const char *path = in_folder("checkpoints/best.json");
    save(c, 10, true);
    save(c, 20, true);
    dt_ckpt_close(c);
    FILE *f = fopen(path, "w");
    fputs("{\"step\":10}\n", f);
    fclose(f);
    c = open_run(1, true);
    f = fopen(path, "r");
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, "{\"step\":20}\n");
    dt_ckpt_close(c);
}

TEST_WITH(test_a_damaged_one_is_no_reserve, make_run, folder_remove) {
    dt_ckpt *c = open_run(2, true);
    save(c, 10, false);
    save(c, 20, false);
    const char *path = in_folder("checkpoints/step-00000020/optimizer.safetensors");
    assert_int_equal(truncate(path, 10), 0);
    save(c, 30, false);
    expect_steps("10 20 30"); // 10 is the one to fall back to
    save(c, 40, false);
    expect_steps("30 40");
    dt_ckpt_close(c);
}

// A newer one that does not load, from a run that fell back: it must not push out the good ones.
TEST_WITH(test_older_steps_after_a_fall_back, make_run, folder_remove) {
    dt_ckpt *c = open_run(1, true);
    save(c, 100, false);
    const char *path = in_folder("checkpoints/step-00000100/model.safetensors");
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\xff", 1, 200), 1);
    close(fd);
    save(c, 60, false);
    expect_steps("60 100");
    expect_loads(c, "latest", 60);
    save(c, 70, false);
    expect_steps("70 100");
    save(c, 100, false); // arrived there again: written anew
    expect_steps("100");
    expect_loads(c, "latest", 100);
    dt_ckpt_close(c);
}

TEST_WITH(test_same_step_again_keeps_it, make_run, folder_remove) {
    dt_ckpt *c = open_run(3, true);
    dt_ckpt_tensor t[3];
    save(c, 10, false);
    make_tensors(t);
    fill(99);
    must(dt_ckpt_save_begin(c, 10, t, 3, "{}", false));
    must(dt_ckpt_save_wait(c, NULL));
    expect_loads(c, "latest", 10); // the first one's content
    dt_ckpt_close(c);
}

TEST_WITH(test_leftovers_go_at_open, make_run, folder_remove) {
    dt_ckpt_close(open_run(1, true));
    must(dt_io_mkdir(in_folder("checkpoints/.tmp-step-00000007")));
    const char *path = in_folder("checkpoints/.tmp-step-00000007/model.safetensors");
    must(dt_io_write_file(path, "x", 1));
    // of files that are written as a whole; and what only looks like them
    static const char *const names[] = {"config.yaml.tmp.123", "result.json.tmp.4", "notes.tmp.1a"};
    for (int i = 0; i < 3; i++) must(dt_io_write_file(in_folder("%s", names[i]), "x", 1));
    dt_io_file lives; // `predict -o` into the run's folder
    const char *predictions = in_folder("p.csv");
    must(dt_io_begin(&lives, predictions));
    dt_ckpt *c;
    dt_ckpt_opts o = {.dir = dir, .keep = 1};
    must(dt_ckpt_open(&c, &o, true)); // a reader touches nothing
    assert_true(dt_io_exists(path));
    dt_ckpt_close(c);
    dt_ckpt_close(open_run(1, true));
    assert_false(dt_io_exists(path));
    must(dt_io_end(&lives, DT_OK));
    assert_true(dt_io_exists(predictions));
    for (int i = 0; i < 3; i++) assert_int_equal(dt_io_exists(in_folder("%s", names[i])), i == 2);
}

TEST_WITH(test_lock, make_run, folder_remove) {
    char pid[32];
    dt_ckpt *c = open_run(1, true), *second;
    dt_ckpt_opts o = {.dir = dir, .keep = 1};
    assert_int_equal(dt_ckpt_open(&second, &o, false), DT_E_STORAGE);
    assert_null(second);
    snprintf(pid, sizeof pid, "(%d@", (int)getpid());
    assert_non_null(strstr(dt_error_message(), pid));
    must(dt_ckpt_open(&second, &o, true));
    assert_true(dt_ckpt_is_held(folder_path));
    dt_ckpt_close(second);
    dt_ckpt_close(c);
    assert_false(dt_ckpt_is_held(folder_path));
    // who held it can be told from who does, also of one process
    char *texts[2];
    size_t n;
    must(dt_io_read_file(&texts[0], &n, in_folder("lock"), 4096, DT_E_DATA));
    dt_ckpt_close(open_run(1, true));
    must(dt_io_read_file(&texts[1], &n, in_folder("lock"), 4096, DT_E_DATA));
    assert_string_not_equal(texts[0], texts[1]);
    for (int i = 0; i < 2; i++) free(texts[i]);
}

// The folder was removed and made anew: what is in it now belongs to another.
TEST_WITH(test_lock_of_another, make_run, folder_remove) {
    const char *path = in_folder("lock");
    for (int replaced = 0; replaced < 2; replaced++) {
        dt_ckpt *c = open_run(1, true);
        dt_ckpt_tensor t[3];
        make_tensors(t);
        must(dt_ckpt_check_lock(c));
        assert_int_equal(unlink(path), 0);
        if (replaced) must(dt_io_write_file(path, "1@other", 7));
        assert_int_equal(dt_ckpt_check_lock(c), DT_E_STORAGE);
        must(dt_ckpt_save_begin(c, 10, t, 3, "{}", false));
        must_fail(DT_E_STORAGE, "not the file that this run locked", dt_ckpt_save_wait(c, NULL));
        expect_steps("");
        dt_ckpt_close(c);
    }
}

// Tensors without data are filled in the snapshot, with the writer's thread and without.
TEST_WITH(test_room, make_run, folder_remove) {
    for (int async = 0; async < 2; async++) {
        dt_ckpt *c = open_run(5, async);
        dt_ckpt_tensor t[3];
        const dt_ckpt_tensor *room;
        for (int64_t step = 20 * async + 10; step <= 20 * async + 20; step += 10) {
            char json[64];
            make_tensors(t);
            fill(step);
            t[2].data = NULL;
            must(dt_ckpt_save_room(c, t, 3, &room));
            memcpy(room[2].data, moment, sizeof moment);
            memset(moment, 0, sizeof moment);
            snprintf(json, sizeof json, "{\"cursor\":%d}", (int)step);
            must(dt_ckpt_save_begin(c, step, t, 3, json, false));
            must(dt_ckpt_save_wait(c, NULL));
            expect_loads(c, "latest", step);
        }
        dt_ckpt_close(c);
    }
}

// Where space was missing, what goes anyway goes before the next save; but never the last intact one.
TEST_WITH(test_prune_before_a_save, make_run, folder_remove) {
    for (int full = 0; full < 2; full++) {
        dt_ckpt *c = open_run(3, true);
        dt_ckpt_tensor t[3];
        make_tensors(t);
        for (int64_t step = 10; step <= 30; step += 10) save(c, step, step == 10);
        dt_ckpt_close(c);
        c = open_run(1, true); // a lower checkpoint.keep
        must(dt_failpoint_set(full ? "ckpt:4:enospc" : "ckpt:4:eio"));
        must(dt_ckpt_save_begin(c, 40, t, 3, "{}", false));
        assert_int_equal(dt_ckpt_save_wait(c, NULL), DT_E_STORAGE);
        expect_steps("10 20 30");
        must(dt_failpoint_set("ckpt:15:eio")); // while it is written
        assert_int_equal(dt_ckpt_save_again(c), DT_E_STORAGE);
        expect_steps(full ? "10 30" : "10 20 30");
        must(dt_failpoint_set(NULL));
        must(dt_ckpt_save_again(c));
        expect_steps("10 40");
        dt_ckpt_close(c);
        must(dt_io_remove_tree(dir));
    }
}

TEST_WITH(test_other_model_changes_nothing, make_run, folder_remove) {
    dt_ckpt *c = open_run(1, true);
    dt_ckpt_tensor t[3];
    int64_t step;
    char *path;
    save(c, 10, false);
    must(dt_ckpt_find(c, "latest", &step, &path));
    make_tensors(t);
    fill(77);
    t[2].shape = dt_shape2(3, 2);
    must_fail(DT_E_CKPT, "'moment1.layer.weight' is (2,3)", dt_ckpt_load(path, t, 3, NULL));
    make_tensors(t);
    t[1].name = "layer.beta";
    must_fail(DT_E_CKPT, "no tensor 'layer.beta'", dt_ckpt_load(path, t, 3, NULL));
    make_tensors(t);
    t[2].file = "ema";
    must_fail(DT_E_CKPT, "no ema.safetensors", dt_ckpt_load(path, t, 3, NULL));
    assert_true(weight[0] == 770 && bias[0] == 77);
    make_tensors(t);
    must(dt_ckpt_load(path, t, 1, NULL)); // a part is fine
    assert_true(weight[0] == 100 && bias[0] == 77);
    free(path);
    dt_ckpt_close(c);
}

TEST_WITH(test_other_tensors_next_time, make_run, folder_remove) {
    dt_ckpt *c = open_run(3, true);
    dt_ckpt_tensor t[3];
    char *path;
    int64_t step;
    save(c, 10, false);
    make_tensors(t);
    const dt_ckpt_tensor bias_later = t[1];
    t[1] = t[2];
    t[2] = bias_later;
    fill(20);
    must(dt_ckpt_save_begin(c, 20, t, 2, NULL, false));
    must(dt_ckpt_save_wait(c, NULL));
    must(dt_ckpt_find(c, "20", &step, &path));
    must(dt_ckpt_load(path, t, 2, NULL));
    assert_int_equal(dt_ckpt_load(path, t, 3, NULL), DT_E_CKPT);
    free(path);
    save(c, 30, false);
    expect_loads(c, "latest", 30);
    dt_ckpt_close(c);
}

TEST_WITH(test_equal_training_gives_equal_bytes, make_run, folder_remove) {
    char *a, *b;
    size_t n_a, n_b;
    dt_ckpt *c = open_run(3, true);
    save(c, 10, false);
    dt_ckpt_close(c);
    const char *path = in_folder("checkpoints/step-00000010/model.safetensors");
    must(dt_io_read_file(&a, &n_a, path, 0, DT_E_CKPT));
    must(dt_io_remove_tree(dir));
    c = open_run(1, false);
    save(c, 5, true);
    save(c, 10, true);
    dt_ckpt_close(c);
    must(dt_io_read_file(&b, &n_b, path, 0, DT_E_CKPT));
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
}

static char *capture(dt_status (*fn)(FILE *out, void *arg), void *arg) {
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    must(fn(out, arg));
    fclose(out);
    return text;
}

static bool differ;
static dt_status diff_10_20(FILE *out, void *arg) {
    const char *a = in_folder("checkpoints/step-00000010");
    const char *b = in_folder("checkpoints/step-000000%s", (const char *)arg);
    return dt_ckpt_diff(a, b, out, &differ);
}

static dt_status show_10(FILE *out, void *arg) {
    return dt_ckpt_show(in_folder("checkpoints/step-00000010"), arg != NULL, out);
}

TEST_WITH(test_list_show_diff, make_run, folder_remove) {
    dt_ckpt *c = open_run(3, true);
    dt_ckpt_info *infos;
    int n;
    save(c, 10, true);
    save(c, 20, false);
    char *text = capture(diff_10_20, "20");
    assert_true(differ);
    assert_non_null(strstr(text, "model.safetensors layer.weight: largest difference 100\n"));
    assert_non_null(strstr(text, "model.safetensors layer.bias: largest difference 10\n"));
    free(text);
    text = capture(diff_10_20, "10");
    assert_false(differ);
    assert_string_equal(text, "");
    free(text);
    text = capture(show_10, "json");
    assert_non_null(strstr(text, "\"step\":10,\"best\":true"));
    assert_non_null(strstr(text, "\"state\":{\"cursor\":10}"));
    free(text);
    text = capture(show_10, NULL);
    assert_non_null(strstr(text, "optimizer.safetensors"));
    free(text);

    const char *path = in_folder("checkpoints/step-00000020/state.json");
    must(dt_io_write_file(path, "{\"cursor\":21}", 13));
    must(dt_ckpt_list(dir, false, &infos, &n));
    assert_int_equal(n, 2);
    assert_true(infos[0].step == 10 && infos[0].best && infos[0].valid && infos[0].n_bytes > 0);
    assert_true(infos[1].valid); // sizes alone do not tell
    free(infos);
    must(dt_ckpt_list(dir, true, &infos, &n));
    assert_false(infos[1].valid);
    assert_non_null(strstr(infos[1].why, "state.json: damaged"));
    free(infos);
    dt_ckpt_close(c);
}

// A process that saves 150 steps and keeps one, and readers beside it: what they look at goes away while they do,
// which is never damage.
TEST_WITH(test_reading_beside_saves, make_run, folder_remove) {
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dt_ckpt *c = open_run(1, false);
        for (int64_t step = 1; step <= 150; step++) save(c, step, step % 7 == 0);
        dt_ckpt_close(c);
        _exit(0);
    }
    dt_ckpt *c;
    dt_ckpt_opts o = {.dir = dir, .keep = 1};
    must(dt_ckpt_open(&c, &o, true));
    bool best = false;
    for (int n_reads = 0; waitpid(pid, &status, WNOHANG) == 0; n_reads++) {
        dt_ckpt_info *infos;
        int64_t step;
        char *path;
        int n;
        must(dt_ckpt_list(dir, true, &infos, &n));
        for (int i = 0; i < n; i++)
            if (!infos[i].valid) fail_msg("BAD: %s", infos[i].why);
        free(infos);
        must(dt_ckpt_find(c, "latest", &step, &path));
        best = best || step > 7;
        free(path);
        if (!best) continue;
        must(dt_ckpt_find(c, "best", &step, &path));
        free(path);
    }
    dt_ckpt_close(c);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(best);
}

// A tensor that is not finite: the save is not acknowledged and says which, and what is there stays the newest.
TEST_WITH(test_not_finite_is_not_acknowledged, make_run, folder_remove) {
    for (int async = 0; async < 2; async++) {
        dt_ckpt *c = open_run(3, async);
        dt_ckpt_tensor t[3];
        save(c, 10, false);
        make_tensors(t);
        fill(20);
        moment[4] = NAN;
        must(dt_ckpt_save_begin(c, 20, t, 3, NULL, true));
        must_fail(DT_E_STORAGE, "'moment1.layer.weight' holds NaN", dt_ckpt_save_wait(c, NULL));
        expect_loads(c, "latest", 10);
        save(c, 20, false);
        expect_loads(c, "latest", 20);
        dt_ckpt_close(c);
        must(dt_io_remove_tree(dir));
    }
}

// A manifest whose hash is right but which names files elsewhere.
TEST_WITH(test_manifest_names_are_plain, make_run, folder_remove) {
    static const char *const names[] = {"../model", "/etc/passwd", "a/b", "..", ".", "", ".hidden"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dt_ckpt_manifest m = {.step = 1}, again;
        dt_json j;
        dt_ckpt_manifest_add(&m, names[i]);
        dt_json_init(&j);
        dt_ckpt_manifest_print(&m, &j);
        must_fail(DT_E_CKPT, "plain name", dt_ckpt_manifest_parse(&again, j.data, j.n_bytes, "manifest"));
        dt_json_fini(&j);
        dt_ckpt_manifest_fini(&m);
    }
}

TEST_WITH(test_step_names, make_run, folder_remove) {
    int64_t step;
    assert_true(dt_ckpt_step_of_name("step-00000123", &step) && step == 123);
    assert_true(dt_ckpt_step_of_name("step-123456789", &step) && step == 123456789);
    assert_false(dt_ckpt_step_of_name("step-0123456789", &step));
    assert_false(dt_ckpt_step_of_name("step-123", &step));
    assert_false(dt_ckpt_step_of_name("step-0000012x", &step));
    assert_false(dt_ckpt_step_of_name(".tmp-step-00000123", &step));
    assert_false(dt_ckpt_step_of_name("step-99999999999999999999", &step));
}

TEST_MAIN(NULL, NULL)
