// cmd_ckpt.c: dtrain ckpt ls|show|verify|pull|diff

#include "launch.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/ckpt.h"
#include "store/s3.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON }; // index into options
static const dt_cli_option options[] = {[JSON] = {"--json", NULL, "show: print JSON"}, {NULL}};

// the manifest is written last: a directory without one is an unfinished checkpoint
static bool is_checkpoint(const char *path) {
    char *manifest = dt_xprintf("%s/manifest.json", path);
    bool yes = dt_io_exists(manifest);
    free(manifest);
    return yes;
}

// RUN or RUN/checkpoints -> the directory of checkpoints; so of a mirror.
static char *checkpoints_of(const char *run) {
    char *dir = dt_xprintf("%s/checkpoints", run);
    // a URL has no directory to look for: its name decides
    if (dt_s3_is_url(run) ? !dt_text_ends(run, "/checkpoints") : dt_io_is_dir(dir)) return dir;
    free(dir);
    return dt_xstrdup(run);
}

// RUN, RUN/checkpoints, or one checkpoint: then *step is its step, else -1.
static char *directory_of(const char *where, int64_t *step) {
    *step = -1;
    // no request to the bucket: names alone tell a checkpoint from a run
    if (dt_s3_is_url(where)) {
        char *above = dt_io_parent(where);
        if (dt_text_ends(above, "/checkpoints") && dt_ckpt_step_of_name(strrchr(where, '/') + 1, step)) return above;
        free(above);
        return checkpoints_of(where);
    }
    if (!is_checkpoint(where)) return checkpoints_of(where);
    // realpath: "." and links have no step in their own names
    char *dir = realpath(where, NULL), *slash = dir ? strrchr(dir, '/') : NULL;
    if (slash && slash != dir && dt_ckpt_step_of_name(slash + 1, step)) { // "/step-N" would have no directory above
        *slash = '\0';
        return dir;
    }
    free(dir);
    return checkpoints_of(where);
}

// ls and verify differ in `verify` alone: hashes and NaNs are checked then
static dt_status ckpt_list(const char *run, bool verify) {
    int64_t only;
    char *dir = directory_of(run, &only); // only: the step of the checkpoint that was named, else -1
    dt_ckpt_info *infos = NULL;
    int n = 0, bad = 0;
    dt_status st = dt_ckpt_list(dir, verify, &infos, &n);
    // one checkpoint was named: the list becomes the one
    for (int i = 0; st == DT_OK && only >= 0 && i < n; i++)
        if (infos[i].step == only) {
            infos[0] = infos[i];
            n = 1;
        }
    for (int i = 0; st == DT_OK && i < n; i++) {
        dt_text_print(stdout, infos[i].path); // paths come from users: no terminal sequences
        printf("\tstep %" PRId64 "\t%.1f MiB%s%s", infos[i].step, (double)infos[i].n_bytes / 1048576.0,
               infos[i].best ? "\tbest" : "", infos[i].valid ? (verify ? "\tgood" : "") : "\tBAD: ");
        if (!infos[i].valid) dt_text_print(stdout, infos[i].why);
        printf("\n");
        bad += !infos[i].valid;
    }
    // exit code 4, as for damaged ones
    if (st == DT_OK && n == 0) st = dt_fail(DT_E_CKPT, "%s: no checkpoints there", dir);
    if (st == DT_OK && verify && bad) st = dt_fail(DT_E_CKPT, "%s: %d of %d checkpoints are bad", dir, bad, n);
    free(infos);
    free(dir);
    return st;
}

// A checkpoint directory stands for itself, RUN for its newest checkpoint that loads.
static dt_status newest(const char *where, char **path) {
    char *dir = checkpoints_of(where);
    dt_status st = DT_OK;
    *path = NULL;
    if (!is_checkpoint(where)) {
        dt_ckpt_opts o = {.dir = dir, .keep = 1};
        dt_ckpt *c = NULL; // stays NULL where the open fails
        int64_t step = -1;
        st = dt_ckpt_open(&c, &o, true); // read_only: no lock, so a training run may go on
        // verifies hashes and falls back to older checkpoints
        if (st == DT_OK) st = dt_ckpt_find(c, "latest", &step, path);
        // dt_ckpt_find returns DT_OK there
        if (st == DT_OK && step < 0) st = dt_fail(DT_E_CKPT, "%s: no checkpoints there", dir);
        if (c) dt_ckpt_close(c);
    } else {
        *path = dt_xstrdup(where);
    }
    free(dir);
    return st;
}

// The same of a mirror, where nothing is read for it but manifests.
static dt_status newest_there(const char *where, char **path) {
    int64_t only;
    dt_ckpt_info *infos = NULL;
    char *dir = directory_of(where, &only);
    int n = 0;
    *path = NULL;
    // oldest first
    const dt_status st = dt_ckpt_list(dir, false, &infos, &n);
    // from the newest on; a valid one, or just the one that was named
    for (int i = n - 1; i >= 0 && !*path; i--)
        if (only < 0 ? infos[i].valid : infos[i].step == only) *path = dt_xstrdup(infos[i].path);
    free(infos);
    free(dir);
    if (st != DT_OK || *path) return st;
    return dt_fail(DT_E_CKPT, "%s: no checkpoints there", where);
}

// URL/checkpoints/step-N, or URL: its newest and its best -> the run's folder `run`.
static dt_status ckpt_pull(const char *url, const char *run) {
    int64_t only, step = -1; // only: the step of a checkpoint's URL, or -1
    // above ends with "/checkpoints": directory_of makes it so
    char *above = directory_of(url, &only), *dir = dt_xprintf("%s/checkpoints", run), *path = NULL;
    above[strlen(above) - strlen("/checkpoints")] = '\0';         // the run's URL
    dt_ckpt_from from = {.url = above, .only = only, .here = -1}; // here: -1, the best too
    dt_ckpt *c = NULL;
    // takes the run's lock: fails while a training has it
    dt_status st = dt_ckpt_open(&c, &(dt_ckpt_opts){.dir = dir, .keep = 1}, false);
    // a whole run: the newest intact checkpoint here bounds what is fetched; one step is fetched anyway
    if (st == DT_OK && only < 0) st = dt_ckpt_find(c, "latest", &from.here, &path);
    if (st == DT_OK) st = dt_ckpt_fetch(c, &from, &step);
    if (st == DT_OK && step >= 0) dt_info("%s: step %lld of %s", run, (long long)step, above);
    // neither there nor here
    if (st == DT_OK && step < 0 && from.here < 0) st = dt_fail(DT_E_CKPT, "%s: no checkpoints there", above);
    // nothing to do is a success: pull may be repeated
    else if (st == DT_OK && step < 0)
        dt_info("%s: step %lld is here, and nothing newer in %s", run, (long long)from.here, above);
    if (c) dt_ckpt_close(c);
    free(path);
    free(dir);
    free(above);
    return st;
}

static dt_status ckpt_show(const char *where, bool json) {
    char *path = NULL;
    dt_status st = dt_s3_is_url(where) ? newest_there(where, &path) : newest(where, &path);
    if (st == DT_OK) st = dt_ckpt_show(path, json, stdout);
    free(path);
    return st;
}

static dt_status diff(const char *a, const char *b) {
    char *path_a = NULL, *path_b = NULL;
    bool differ = false;
    // a comparison reads all tensors of both
    if (dt_s3_is_url(a) || dt_s3_is_url(b))
        return dt_fail(DT_E_USAGE, "dtrain ckpt diff reads files: pull %s first", dt_s3_is_url(a) ? a : b);
    dt_status st = newest(a, &path_a);
    if (st == DT_OK) st = newest(b, &path_b);
    if (st == DT_OK) st = dt_ckpt_diff(path_a, path_b, stdout, &differ);
    if (st == DT_OK && !differ) printf("equal\n"); // stdout: the result
    // exit code 4, as diff(1) exits with 1
    if (st == DT_OK && differ) st = dt_fail(DT_E_CKPT, "%s and %s differ", path_a, path_b);
    free(path_a);
    free(path_b);
    return st;
}

static dt_status ckpt_run(const dt_cli_words *w) {
    static const char usage[] = "ls|show|verify RUN, pull URL RUN, or diff A B";
    // at first the bounds of all verbs, so that words[0] may be read
    DT_TRY(dt_cli_expect_words(w, "ckpt", 2, 3, usage));
    const char *what = w->words[0];
    const bool two = strcmp(what, "diff") == 0 || strcmp(what, "pull") == 0; // two words behind the verb
    DT_TRY(dt_cli_expect_words(w, "ckpt", 2 + two, 2 + two, usage));
    char *where = dt_xstrdup(w->words[1]);
    size_t n = strlen(where);
    // "s3://b/run/" is "s3://b/run"
    while (dt_s3_is_url(where) && n > 0 && where[n - 1] == '/') where[--n] = '\0';
    dt_status st;
    if (strcmp(what, "ls") == 0)
        st = ckpt_list(where, false);
    else if (strcmp(what, "verify") == 0)
        st = ckpt_list(where, true);
    else if (strcmp(what, "show") == 0)
        st = ckpt_show(where, w->options[JSON] != NULL);
    else if (strcmp(what, "diff") == 0)
        st = diff(where, w->words[2]);
    else if (strcmp(what, "pull") != 0)
        st = dt_fail(DT_E_USAGE, "dtrain ckpt %s: expected ls, show, verify, pull or diff", what);
    else if (!dt_s3_is_url(where))
        st = dt_fail(DT_E_USAGE, "%s: expected a run in a bucket: s3://BUCKET/KEY or gs://…", w->words[1]);
    else
        st = ckpt_pull(where, w->words[2]);
    free(where);
    return st;
}

const dt_cli_command dt_cli_ckpt = {
    .options = options,
    .text = "Lists, verifies, copies and compares checkpoints of a run. A run's directory stands for its newest "
            "checkpoint. A run in a bucket (checkpoint.mirror) is named by its URL.\n\n"
            "  dtrain ckpt ls runs/fusion           step and size of each checkpoint; marks the best\n"
            "  dtrain ckpt verify runs/fusion       check hashes of files, NaN in tensors; exit 4 if bad\n"
            "  dtrain ckpt show runs/fusion         files with sizes and hashes, and the training state\n"
            "  dtrain ckpt pull s3://b/r/fusion runs/fusion     download the newest and the best checkpoint\n"
            "  dtrain ckpt diff runs/a runs/b       tensors that differ; exit 4 if there are any\n",
    .run = ckpt_run};
