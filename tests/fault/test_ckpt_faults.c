// test_ckpt_faults.c: the order of a save's flushes, and finished checkpoints that are damaged in every file. What comes of
// calls that fail, of kills and of power cuts is looked at in tests/sim.
//
// Power: a kill does not lose the page cache, so the flushing is checked by watching it. This program
// defines fsync and renameat2 itself: at the rename every file and the directory must have been
// flushed with the size they have, and the parent must be flushed before the save is acknowledged.
// Files: truncated, changed in one byte, or missing, a checkpoint is passed over with a reason that
// names the file, and the older one loads.
#define _GNU_SOURCE
// cmocka wants the four above
#include "base/failpoint.h"
#include "base/io.h"
#include "base/log.h"
#include "checkpoint/ckpt.h"
#include "testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char run[64], dir[80], beside[80];

static int make_run(void **state) {
    // the sequence of calls matters, not the disk: memory makes a thousand saves quick
    const char *where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(run, sizeof run, "%s/dtrain-faults-XXXXXX", where);
    if (!mkdtemp(run)) return -1;
    snprintf(dir, sizeof dir, "%s/checkpoints", run);
    snprintf(beside, sizeof beside, "%s/metrics.jsonl", run);
    dt_log_set_level(DT_LOG_ERROR);
    return 0;
}

static int remove_run(void **state) {
    dt_failpoint_set(NULL);
    return dt_io_remove_tree(run) == DT_OK ? 0 : -1;
}

// -- watching fsync and rename -------------------------------------------------------------------
typedef struct flushed {
    char path[256];
    int64_t n_bytes; // its size when it was flushed; entries for directories
} flushed;

int fsync(int fd);
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int unlinkat(int dir_fd, const char *name, int flags);

static bool watching;
static flushed seen[64];
static int n_seen, n_renames, n_unflushed, n_parent_flushes; // parent: after the last rename
static int n_removed,
    n_removed_early; // files of checkpoints; while the old name may still come back

static int64_t size_of(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return -1;
    if (!S_ISDIR(info.st_mode)) return info.st_size;
    char **names;
    size_t n = 0;
    if (dt_io_list_dir(&names, &n, path, DT_E_STORAGE) == DT_OK) dt_io_free_list(names, n);
    return (int64_t)n;
}

static bool was_flushed(const char *path) {
    bool good = false;
    for (int i = 0; i < n_seen; i++)
        if (strcmp(seen[i].path, path) == 0) good = seen[i].n_bytes == size_of(path);
    return good;
}

int fsync(int fd) {
    if (watching && n_seen < 64) {
        char link[64];
        flushed *f = &seen[n_seen];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, f->path, sizeof f->path - 1);
        f->path[n < 0 ? 0 : n] = '\0';
        f->n_bytes = size_of(f->path);
        n_seen++;
        if (strcmp(f->path, dir) == 0) n_parent_flushes++;
    }
    return (int)syscall(SYS_fsync, fd);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    if (watching && strstr(to, "/step-")) {
        char **names, path[512];
        size_t n;
        n_renames++;
        n_parent_flushes = 0;
        if (!was_flushed(from) || !was_flushed(beside)) n_unflushed++;
        if (dt_io_list_dir(&names, &n, from, DT_E_STORAGE) == DT_OK) {
            for (size_t i = 0; i < n; i++) {
                snprintf(path, sizeof path, "%s/%s", from, names[i]);
                if (!was_flushed(path)) n_unflushed++;
            }
            dt_io_free_list(names, n);
        }
    }
    if (watching && strstr(to, ".old")) n_parent_flushes = 0;
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int unlinkat(int dir_fd, const char *name, int flags) {
    char link[64], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir_fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    if (watching && strstr(path, ".old")) {
        n_removed++;
        n_removed_early += n_parent_flushes == 0;
    }
    return (int)syscall(SYS_unlinkat, dir_fd, name, flags);
}

static void put_file(const char *path, const char *data, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), n);
    close(fd);
}

// -- saving ----------------------------------------------------------------------------------------
enum { N_WEIGHTS = 1000 };
static float weight[N_WEIGHTS], moment[N_WEIGHTS];

static void fill(int64_t step) {
    for (int i = 0; i < N_WEIGHTS; i++) {
        weight[i] = (float)(step * 1000 + i);
        moment[i] = -weight[i];
    }
}

static void make_tensors(dt_ckpt_tensor t[2]) {
    t[0] = (dt_ckpt_tensor){"layer.weight", "model", dt_shape1(N_WEIGHTS), weight};
    t[1] = (dt_ckpt_tensor){"moment1.layer.weight", "optimizer", dt_shape1(N_WEIGHTS), moment};
}

static dt_status save(dt_ckpt *c, int64_t step) {
    dt_ckpt_tensor t[2];
    char json[64];
    make_tensors(t);
    fill(step);
    snprintf(json, sizeof json, "{\"cursor\":%d}", (int)step);
    DT_TRY(dt_ckpt_save_begin(c, step, t, 2, json, step == 10));
    fill(-1);
    return dt_ckpt_save_wait(c, NULL);
}

static dt_status open_run(dt_ckpt **c, bool async) {
    dt_ckpt_opts o = {.dir = dir, .keep = 1, .async = async, .beside = beside};
    return dt_ckpt_open(c, &o, false);
}

static void expect_content(const char *path, int64_t step) {
    static float w[N_WEIGHTS], m[N_WEIGHTS];
    dt_ckpt_tensor t[2];
    char *json, want[64];
    make_tensors(t);
    t[0].data = w;
    t[1].data = m;
    must(dt_ckpt_load(path, t, 2, &json));
    fill(step);
    assert_memory_equal(w, weight, sizeof w);
    assert_memory_equal(m, moment, sizeof m);
    snprintf(want, sizeof want, "{\"cursor\":%d}", (int)step);
    assert_string_equal(json, want);
    free(json);
}

// Later, from the snapshot, or at once where there is none.
TEST_WITH(test_failed_save_again, make_run, remove_run) {
    dt_ckpt *c;
    int64_t step;
    char *path;
    dt_log_set_level((dt_log_level)-1);
    for (int async = 0; async < 2; async++) {
        must(open_run(&c, async));
        must(dt_failpoint_set("ckpt:4:eio"));
        assert_int_equal(save(c, 10 + async), async ? DT_E_STORAGE : DT_OK);
        if (async) must(dt_ckpt_save_again(c));
        must(dt_ckpt_find(c, "latest", &step, &path));
        assert_int_equal(step, 10 + async);
        expect_content(path, step);
        free(path);
        dt_ckpt_close(c);
    }
}

// Nothing is renamed before it is flushed, nothing acknowledged before the rename is; and an old checkpoint loses no file
// before its other name is on disk, so a power cut leaves no half of it under the name of a checkpoint.
TEST_WITH(test_order_of_flushes, make_run, remove_run) {
    dt_ckpt *c;
    n_removed = n_removed_early = 0;
    for (int async = 0; async < 2; async++) {
        must(open_run(&c, async));
        for (int64_t step = 10; step <= 30; step += 10) {
            put_file(beside, "{}\n{}\n{}\n{}", (size_t)(step / 10 * 3));
            watching = true;
            n_seen = n_renames = n_unflushed = n_parent_flushes = 0;
            must(save(c, step + 100 * async));
            watching = false;
            assert_int_equal(n_renames, 1);
            assert_int_equal(n_unflushed, 0);
            assert_true(n_parent_flushes > 0);
        }
        dt_ckpt_close(c);
    }
    assert_true(n_removed > 0);
    assert_int_equal(n_removed_early, 0);
}

// After a failed fsync of the parent the same process writes that step anew.
TEST_WITH(test_parent_flush_fails, make_run, remove_run) {
    char failpoint[64];
    dt_ckpt *c;
    bool tried = false;
    for (int n = 1; n < 60 && !tried; n++) {
        must(open_run(&c, true));
        snprintf(failpoint, sizeof failpoint, "ckpt:%d:eio", n);
        must(dt_failpoint_set(failpoint));
        dt_status st = save(c, 20);
        must(dt_failpoint_set(NULL));
        char path[128];
        snprintf(path, sizeof path, "%s/step-00000020", dir);
        if (st != DT_OK && dt_io_exists(path)) {
            tried = true;
            put_file(beside, "{}\n", 3);
            watching = true;
            n_seen = n_renames = n_unflushed = n_parent_flushes = 0;
            must(save(c, 20));
            watching = false;
            assert_int_equal(n_renames, 1);
            assert_int_equal(n_unflushed, 0);
        }
        dt_ckpt_close(c);
        must(dt_io_remove_tree(dir));
    }
    assert_true(tried);
}

// -- damage ----------------------------------------------------------------------------------------
static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"};

static void expect_fall_back(dt_ckpt *c, const char *file, const char *what) {
    dt_ckpt_info *infos;
    int64_t step;
    char *path;
    int n;
    if (dt_ckpt_find(c, "latest", &step, &path) != DT_OK) fail_msg("%s %s: %s", file, what, dt_error_message());
    if (step != 10) fail_msg("%s %s: not noticed", file, what);
    free(path);
    must(dt_ckpt_list(dir, true, &infos, &n));
    assert_int_equal(n, 2);
    assert_true(infos[0].valid);
    assert_false(infos[1].valid);
    if (!strstr(infos[1].why, file)) fail_msg("%s %s: reason is '%s'", file, what, infos[1].why);
    free(infos);
}

static void damage(dt_ckpt *c, const char *file) {
    char path[160], what[64], *data;
    size_t n;
    snprintf(path, sizeof path, "%s/step-00000020/%s", dir, file);
    must(dt_io_read_file(&data, &n, path, 0, DT_E_CKPT));
    const size_t cuts[] = {0, 1, n / 2, n - 1};
    for (int i = 0; i < 4; i++) {
        snprintf(what, sizeof what, "cut to %zu", cuts[i]);
        put_file(path, data, cuts[i]);
        expect_fall_back(c, file, what);
    }
    for (size_t at = 0; at < n; at += n / 60 + 1) {
        snprintf(what, sizeof what, "byte %zu flipped", at);
        data[at] ^= 0x10;
        put_file(path, data, n);
        data[at] ^= 0x10;
        expect_fall_back(c, file, what);
    }
    data = realloc(data, n + 1);
    data[n] = 'x';
    put_file(path, data, n + 1);
    expect_fall_back(c, file, "longer");
    assert_int_equal(unlink(path), 0);
    expect_fall_back(c, file, "missing");
    put_file(path, data, n);
    free(data);
}

TEST_WITH(test_damaged_files, make_run, remove_run) {
    dt_ckpt *c;
    int64_t step;
    char *path;
    dt_ckpt_opts o = {.dir = dir, .keep = 2, .async = true};
    must(dt_ckpt_open(&c, &o, false));
    must(save(c, 10));
    must(save(c, 20));
    dt_log_set_level((dt_log_level)-1); // a hundred reasons, all checked
    for (int i = 0; i < 4; i++) damage(c, files[i]);
    must(dt_ckpt_find(c, "latest", &step, &path)); // put back whole
    assert_int_equal(step, 20);
    free(path);
    dt_ckpt_close(c);
}

TEST_WITH(test_none_loads, make_run, remove_run) {
    char path[160];
    dt_ckpt *c;
    int64_t step;
    char *found;
    must(open_run(&c, true));
    must(save(c, 10));
    snprintf(path, sizeof path, "%s/step-00000010/model.safetensors", dir);
    assert_int_equal(truncate(path, 100), 0);
    must_fail(DT_E_CKPT, "truncated", dt_ckpt_find(c, "latest", &step, &found));
    assert_non_null(strstr(dt_error_message(), "run.name"));
    dt_ckpt_close(c);
}

TEST_MAIN(NULL, NULL)
