// Checkpoints that were changed by someone who also made all hashes right: what is out of range, missing, a link or
// not finite is refused with its name, or passed over for an older checkpoint; nothing aborts, hangs or loads.
#include "backend/backend.h"
#include "memory_data.h"
#include "testing.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "checkpoint/ckpt_internal.h"
#include "run/run_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char yaml[] = "run: {name: forged, seed: 3}\n" MEMORY_YAML
                           "train: {global_batch: 8, micro_batch: 2, epochs: 3, precision: fp32}\n"
                           "eval: {every: 1 epoch}\n"
                           "checkpoint: {every: 2 steps, keep: 9}\n"
                           "metrics: {sinks: [jsonl]}\n";

// Stands before the library's own function of that name (tests/CMakeLists.txt).
dt_status dt_backend_create(dt_backend **out, dt_device_kind kind, const dt_backend_opts *opts) {
    return dt_backend_create_cpu(out, opts);
}

static char dir[64], newest[160];

static const char *more; // an override of every run

static dt_status run(const char *extra) {
    char where[128];
    snprintf(where, sizeof where, "run.dir=%s", dir);
    const char *overrides[3] = {where};
    int n = 1;
    if (more) overrides[n++] = more;
    if (extra) overrides[n++] = extra;
    return train_in_memory(yaml, overrides, n);
}

// A run of 4 steps with checkpoints of 2, 3 (an evaluation) and 4.
static int make_run(void **state) {
    snprintf(dir, sizeof dir, "/tmp/dtrain-forged-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(newest, sizeof newest, "%s/forged/checkpoints/step-00000004", dir);
    return run("run.stop_at=4") == DT_E_PREEMPTED ? 0 : -1;
}

static int remove_run(void **state) {
    return dt_io_remove_tree(dir) == DT_OK ? 0 : -1;
}

// ---- forging ---------------------------------------------------------------------------------------

static void write_manifest(const dt_ckpt_manifest *m) {
    char path[256];
    dt_json j;
    snprintf(path, sizeof path, "%s/manifest.json", newest);
    dt_json_init(&j);
    dt_ckpt_manifest_print(m, &j);
    assert_int_equal(dt_io_write_file(path, j.data, j.n_bytes), DT_OK);
    dt_json_fini(&j);
}

static void read_part(char **data, const char *name, size_t *n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", newest, name);
    assert_int_equal(dt_io_read_file(data, n, path, 0, DT_E_CKPT), DT_OK);
}

// Replaces a file of the newest checkpoint and makes all hashes right.
static void write_part(const char *name, const char *data, size_t n) {
    char path[256];
    dt_ckpt_manifest m;
    snprintf(path, sizeof path, "%s/%s", newest, name);
    assert_int_equal(dt_io_write_file(path, data, n), DT_OK);
    assert_int_equal(dt_ckpt_manifest_read(&m, newest), DT_OK);
    dt_ckpt_file *f = (dt_ckpt_file *)dt_ckpt_manifest_find(&m, name);
    f->n_bytes = n;
    f->hash = dt_hash64(data, n);
    for (int i = 0; i < f->n_ranges; i++)
        f->ranges[i].hash = dt_hash64(data + f->ranges[i].offset, f->ranges[i].n_bytes);
    write_manifest(&m);
    dt_ckpt_manifest_fini(&m);
}

// ---- tests -----------------------------------------------------------------------------------------

// Gives the state as it was.
static char *forge_member(const char *member, const char *value) {
    char key[64], text[1 << 16];
    size_t n;
    char *was;
    read_part(&was, "state.json", &n);
    snprintf(key, sizeof key, "\"%s\":", member);
    const char *at = strstr(was, key);
    assert_non_null(at);
    at += strlen(key);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - was), was, value, at + strcspn(at, ",}"));
    write_part("state.json", text, strlen(text));
    return was;
}

// The state with another value is refused by its name.
static void expect_refused(const char *member, const char *value) {
    char key[64], *was = forge_member(member, value);
    snprintf(key, sizeof key, "member '%s'", member);
    if (dt_run_state_check(newest, 4) != DT_E_CKPT || !strstr(dt_error_message(), key))
        fail_msg("%s %s: %s", member, value, dt_error_message());
    write_part("state.json", was, strlen(was));
    free(was);
}

// A run goes on from the checkpoint before it, and says so.
static void expect_member(const char *member, const char *value) {
    char key[64], *log, path[128], *was = forge_member(member, value);
    size_t n;
    snprintf(path, sizeof path, "%s/forged/log", dir);
    unlink(path);
    dt_log_set_level(DT_LOG_WARN);
    if (run("run.stop_at=4") != DT_E_PREEMPTED) fail_msg("%s %s: %s", member, value, dt_error_message());
    dt_log_set_level((dt_log_level)-1);
    assert_int_equal(dt_io_read_file(&log, &n, path, 0, DT_E_CKPT), DT_OK);
    snprintf(key, sizeof key, "member '%s'", member);
    if (!strstr(log, "step 4 is skipped") || !strstr(log, key)) fail_msg("%s %s: %s", member, value, log);
    char *again;
    read_part(&again, "state.json", &n); // saved anew, whole
    assert_int_equal(strcspn(strstr(again, member), ",}"), strcspn(strstr(was, member), ",}"));
    free(again);
    free(log);
    free(was);
}

TEST_WITH(test_state_out_of_range, make_run, remove_run) {
    static const char *const counts[] = {"threads", "replicas", "replica_threads", "workers"};
    static const char *const values[] = {"0", "-1", "1000000000"};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++) expect_refused(counts[i], values[k]);
    expect_refused("step", "-5");
    expect_refused("step", "3"); // the directory's is 4
    expect_refused("best_step", "99");
    expect_refused("steps_per_epoch", "0");
    expect_refused("total_steps", "-1");
    expect_refused("metrics_offset", "-2");
    expect_refused("history", "[{\"step\":5"); // up to the first comma
    expect_refused("config", "\"nothing: 1\",\"rest\":\"");
    expect_refused("world_size", "0");
    expect_member("step", "-5");
    assert_int_equal(run(NULL), DT_OK); // put back whole
}

// Each number alone could be, but not beside the others and the config.
TEST_WITH(test_counts_that_do_not_fit, make_run, remove_run) {
    expect_member("replica_threads", "1024");
    expect_member("replicas", "256");
    assert_int_equal(dt_io_remove_tree(dir), DT_OK);
    assert_int_equal(mkdir(dir, 0700), 0);
    more = "device.threads=1";
    assert_int_equal(run("run.stop_at=4"), DT_E_PREEMPTED);
    expect_member("threads", "1024");
    assert_int_equal(run(NULL), DT_OK);
    more = NULL;
}

// What run.resume=force changes is what the run then does and stores.
TEST_WITH(test_forced_threads, make_run, remove_run) {
    dt_run_state s;
    char *text;
    more = "device.threads=3";
    assert_int_equal(run("run.stop_at=4"), DT_E_USAGE);
    more = "run.resume=force";
    assert_int_equal(run("device.threads=3"), DT_OK);
    more = NULL;
    *strrchr(newest, '/') = 0;
    int64_t *steps;
    int n;
    assert_int_equal(dt_ckpt_steps(newest, &steps, &n), DT_OK);
    char *path = dt_ckpt_step_path(newest, steps[n - 1]);
    assert_int_equal(dt_run_state_read(&s, path, steps[n - 1], &text), DT_OK);
    assert_int_equal(s.resolved.threads, 3);
    dt_run_state_fini(&s);
    free(path);
    free(steps);
    free(text);
}

// An incomplete or absurd list of files is no checkpoint: the one before it serves. Only the optimizer's may be missing,
// as a quantised run is never resumed.
TEST_WITH(test_manifest_of_other_files, make_run, remove_run) {
    dt_ckpt_manifest m, few, many = {.step = 4};
    assert_int_equal(dt_ckpt_manifest_read(&m, newest), DT_OK);
    for (int without = 0; without < m.n_files; without++) {
        few = m;
        few.files = dt_xcalloc(3, sizeof *few.files);
        few.n_files = 0;
        for (int i = 0; i < m.n_files; i++)
            if (i != without) few.files[few.n_files++] = m.files[i];
        write_manifest(&few);
        free(few.files);
        const bool may = strncmp(m.files[without].name, "optimizer", 9) == 0;
        assert_int_equal(dt_ckpt_verify(newest, DT_CKPT_HASHES, NULL), may ? DT_OK : DT_E_CKPT);
        if (!may) assert_non_null(strstr(dt_error_message(), m.files[without].name));
    }
    for (int i = 0; i < 10000; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%d", i);
        dt_ckpt_manifest_add(&many, name);
    }
    write_manifest(&many);
    assert_int_equal(dt_ckpt_verify(newest, DT_CKPT_HASHES, NULL), DT_E_CKPT);
    assert_non_null(strstr(dt_error_message(), "more than 16"));
    assert_int_equal(run(NULL), DT_OK);
    dt_ckpt_manifest_fini(&m);
    dt_ckpt_manifest_fini(&many);
}

// A weight in the middle, whatever it is not: the tensor is named, the older checkpoint serves.
TEST_WITH(test_not_finite, make_run, remove_run) {
    static const float values[] = {NAN, INFINITY, -INFINITY};
    dt_ckpt_manifest m;
    size_t n;
    char *data;
    read_part(&data, "model.safetensors", &n);
    assert_int_equal(dt_ckpt_manifest_read(&m, newest), DT_OK);
    const dt_ckpt_file *f = dt_ckpt_manifest_find(&m, "model.safetensors");
    const dt_ckpt_range *r = &f->ranges[f->n_ranges / 2];
    for (int i = 0; i < 3; i++) {
        memcpy(data + r->offset + r->n_bytes - sizeof(float), &values[i], sizeof(float));
        write_part("model.safetensors", data, n);
        assert_int_equal(dt_ckpt_verify(newest, DT_CKPT_HASHES, NULL), DT_E_CKPT);
        assert_non_null(strstr(dt_error_message(), "NaN or infinity"));
        assert_non_null(strstr(dt_error_message(), r->name));
    }
    assert_int_equal(run(NULL), DT_OK);
    free(data);
    dt_ckpt_manifest_fini(&m);
}

// The file's own header says where its floats begin; ranges that share bytes are no manifest's.
TEST_WITH(test_forged_ranges, make_run, remove_run) {
    const float bad = NAN;
    dt_ckpt_manifest m;
    size_t n;
    char *data;
    read_part(&data, "model.safetensors", &n);
    memcpy(data + n - sizeof bad, &bad, sizeof bad);
    write_part("model.safetensors", data, n);
    assert_int_equal(dt_ckpt_manifest_read(&m, newest), DT_OK);
    dt_ckpt_file *f = (dt_ckpt_file *)dt_ckpt_manifest_find(&m, "model.safetensors");
    const int n_ranges = f->n_ranges;
    f->n_ranges = 0;
    write_manifest(&m);
    assert_int_equal(dt_ckpt_verify(newest, DT_CKPT_HASHES, NULL), DT_E_CKPT);
    assert_non_null(strstr(dt_error_message(), "NaN or infinity"));
    f->n_ranges = n_ranges;
    f->ranges[1].offset = f->ranges[0].offset;
    write_manifest(&m);
    assert_int_equal(dt_ckpt_verify(newest, DT_CKPT_HASHES, NULL), DT_E_CKPT);
    assert_non_null(strstr(dt_error_message(), "malformed"));
    free(data);
    dt_ckpt_manifest_fini(&m);
}

TEST_WITH(test_links, make_run, remove_run) {
    static const char *const files[] = {"manifest.json", "model.safetensors", "state.json"};
    for (int i = 0; i < 3; i++) {
        char file[256], other[300];
        snprintf(file, sizeof file, "%s/%s", newest, files[i]);
        snprintf(other, sizeof other, "%s/%s", dir, files[i]);
        assert_int_equal(rename(file, other), 0);
        assert_int_equal(symlink(other, file), 0);
        assert_int_equal(dt_ckpt_verify(newest, DT_CKPT_HASHES, NULL), DT_E_CKPT);
        assert_non_null(strstr(dt_error_message(), files[i]));
        assert_int_equal(rename(other, file), 0);
    }
    assert_int_equal(dt_ckpt_verify(newest, DT_CKPT_HASHES, NULL), DT_OK);
}

// What a run writes goes through no link, and waits for no reader of a pipe.
TEST_WITH(test_links_in_run, make_run, remove_run) {
    static const char *const files[] = {"lock", "metrics.jsonl", "log"};
    for (int i = 0; i < 6; i++) {
        char file[256], other[128];
        snprintf(file, sizeof file, "%s/forged/%s", dir, files[i / 2]);
        snprintf(other, sizeof other, "%s/victim", dir);
        assert_int_equal(dt_io_write_file(other, "kept", 4), DT_OK);
        unlink(file);
        assert_int_equal(i % 2 ? mkfifo(file, 0600) : symlink(other, file), 0);
        assert_int_equal(run(NULL), DT_E_STORAGE);
        assert_non_null(strstr(dt_error_message(), files[i / 2]));
        size_t n;
        char *text;
        assert_int_equal(dt_io_read_file(&text, &n, other, 0, DT_E_CKPT), DT_OK);
        assert_string_equal(text, "kept");
        free(text);
        assert_int_equal(unlink(file), 0);
    }
    assert_int_equal(run(NULL), DT_OK);
}

// `dtrain eval` has found the newest checkpoint and prepares itself; meanwhile a training saves and removes it.
static dt_status open_data_late(void *ctx, const dt_config *c, const dt_batch_memory *memory, int workers,
                                const char *skip_log, const char *classes, dt_dataset **out) {
    char other[200];
    snprintf(other, sizeof other, "%s.gone", newest);
    assert_int_equal(rename(newest, other), 0);
    return open_data(ctx, c, memory, workers, skip_log, classes, out);
}

TEST_WITH(test_gone_before_it_is_loaded, make_run, remove_run) {
    char where[128], text[256] = "";
    snprintf(where, sizeof where, "run.dir=%s", dir);
    const char *overrides[] = {where};
    FILE *results = tmpfile();
    const dt_trainer_args job = {.results = results, .open_data = open_data_late};
    const dt_eval_request latest = {.which = "latest", .split = DT_SPLIT_VAL};
    assert_int_equal(job_in_memory(job, &latest, yaml, overrides, 1), DT_OK);
    rewind(results);
    assert_non_null(fgets(text, sizeof text, results));
    assert_non_null(strstr(text, "\"step\":3")); // of the one that was there in the end
    fclose(results);
}

int main(void) {
    dt_log_set_level((dt_log_level)-1);
    return run_all_tests(NULL, NULL);
}
