// launch_k8s.c: dtrain launch k8s: an MPIJob, made by kubectl's kustomize of k8s/job above an overlay of k8s/overlays.
//
// Kustomize wants the files in a folder, and other folders by relative paths: so the job gets a folder below TMPDIR.

#include "target.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"
#include "config/listen.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMESPACE, IMAGE, WORKERS, SLOTS, GPUS, CPUS, MEMORY, QUEUE, OVERLAY, PRINT, TEMPLATE };
extern const launch_command launch_on_k8s;
static const launch_option options[] = {
    [NAMESPACE] = {"--namespace", "NAME", "where the job runs; must be given"},
    [IMAGE] = {"--image", "NAME",
               "with dtrain, as launch/docker makes it; the overlay's otherwise"},
    [WORKERS] = {"--workers", "N", "pods in which ranks run (1)"},
    [SLOTS] = {"--slots", "N", "ranks in each (one for each GPU, else 1)"},
    [GPUS] = {"--gpus", "N", "GPUs of each (none)"},
    [CPUS] = {"--cpus", "N", "cores of each (device.threads for each rank, 1 where it is auto)"},
    [MEMORY] = {"--memory", "SIZE",
                "memory of each, as in 16Gi (what dtrain check finds, and half a GiB a rank)"},
    [QUEUE] = {"--queue", "NAME", "local queue of Kueue"},
    [OVERLAY] = {"--overlay", "NAME|DIR", "of k8s/overlays, or your own (cpu; gpu with --gpus)"},
    [PRINT] = {"--print", NULL, "print the manifests and submit nothing"},
    [TEMPLATE] = {"--template", "FILE", "your own copy of k8s/job/kustomization.yaml"},
    {NULL}};

enum {
    V_JOB,
    V_OVERLAY,
    V_SLOTS,
    V_RESTARTS,
    V_WORKERS,
    V_ARGS,
    V_PORT,
    V_CPUS,
    V_MEMORY,
    N_VALUES
};
typedef struct k8s_job {
    dt_config *config;
    char dir[PATH_MAX]; // with kustomization.yaml and config.yaml; "": none yet
    char *values[N_VALUES];
} k8s_job;

// ---- values ----------------------------------------------------------------------------------------

// "Fusion_2" -> "fusion-2": what Kubernetes takes as the name of pods, with "-worker-12" behind it.
static dt_status name_job(k8s_job *j) {
    const char *name = dt_config_str(j->config, "run.name");
    char *job = dt_xprintf("%s", name);
    bool good = *job && strlen(job) <= 50;
    for (char *p = job; *p; p++) {
        *p = strchr("_.=,+", *p) ? '-' : (char)tolower((unsigned char)*p);
        good = good && (islower((unsigned char)*p) || isdigit((unsigned char)*p) || *p == '-');
    }
    const size_t n = strlen(job);
    good = good && islower((unsigned char)job[0]) && job[n - 1] != '-';
    j->values[V_JOB] = job;
    if (good) return DT_OK;
    return dt_config_fail(j->config, "run.name",
                          "'%s' cannot be the name of a job in Kubernetes: a letter first, then "
                          "letters, digits and '-', at most 50",
                          name);
}

static bool is_scraped(const k8s_job *j) {
    return dt_config_lists(j->config, "metrics.sinks", DT_SINK_prometheus);
}

// A pod's own address is asked by Prometheus: the port is the config's, the address is not.
static char *list_args(const k8s_job *j, const launch_words *w) {
    json_t *args = json_array();
    static const char *const first[] = {"dtrain", "train", "/etc/dtrain/config.yaml"};
    for (int i = 0; i < 3; i++) json_array_append_new(args, json_string(first[i]));
    for (int i = 1; i < w->n_words; i++) json_array_append_new(args, json_string(w->words[i]));
    json_array_append_new(args, json_string("run.dir=/runs")); // the volume; the last word counts
    if (is_scraped(j))
        json_array_append_new(args, json_sprintf("metrics.listen=\"[::]:%s\"", j->values[V_PORT]));
    char *text = json_dumps(args, 0);
    json_decref(args);
    return text;
}

// What dtrain check says of one rank, and what program, libraries and batches take besides.
static dt_status estimate_memory(double *mib, const launch_words *w) {
    dt_config *c = NULL;
    char *report = NULL;
    size_t n = 0;
    DT_TRY(launch_load_config(&c, "launch k8s", w));
    dt_config_resolve(c, "device.kind", "cpu");
    FILE *out = open_memstream(&report, &n);
    dt_run_length length;
    dt_status st = launch_check_config(c, &(dt_check_prints){0}, out, &length);
    fclose(out);
    dt_config_destroy(c);
    *mib = 512;
    for (const char *p = report; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : "") {
        char kind[64];
        double v;
        if (sscanf(p, "  %60[a-z0-9 ]%lf MiB", kind, &v) == 2) *mib += v;
    }
    free(report);
    return st;
}

static dt_status read_resources(k8s_job *j, const launch_words *w, int n_slots) {
    double mib = 0;
    if (!w->options[MEMORY]) DT_TRY(estimate_memory(&mib, w));
    j->values[V_MEMORY] = w->options[MEMORY] ? dt_xprintf("%s", w->options[MEMORY])
                                             : dt_xprintf("%.0fMi", ceil(mib * n_slots / 64) * 64);
    const bool is_auto = dt_config_is_auto(j->config, "device.threads");
    const int n_threads = is_auto ? 1 : (int)dt_config_int(j->config, "device.threads");
    int n_cpus;
    DT_TRY(launch_option_int(w, &launch_on_k8s, CPUS, n_threads * n_slots, &n_cpus));
    j->values[V_CPUS] = dt_xprintf("\"%d\"", n_cpus);
    return DT_OK;
}

static dt_status read_options(k8s_job *j, const launch_words *w) {
    int n_workers, n_gpus = 0, n_slots;
    if (!w->options[NAMESPACE])
        return dt_fail(DT_E_USAGE, "--namespace is missing: in which the job is to run (kubectl "
                                   "get namespaces)");
    if (w->n_words > 0 && dt_io_is_dir(w->words[0]))
        return dt_fail(DT_E_USAGE, "%s is a folder: give a config file, such as its config.yaml",
                       w->words[0]);
    DT_TRY(launch_option_int(w, &launch_on_k8s, WORKERS, 1, &n_workers));
    if (w->options[GPUS]) DT_TRY(launch_option_int(w, &launch_on_k8s, GPUS, 1, &n_gpus));
    DT_TRY(launch_option_int(w, &launch_on_k8s, SLOTS, n_gpus ? n_gpus : 1, &n_slots));
    if (n_gpus && n_slots > n_gpus)
        return dt_fail(DT_E_USAGE,
                       "--slots %d: a rank needs a GPU of its own, and a worker has %d "
                       "(--gpus)",
                       n_slots, n_gpus);
    DT_TRY(launch_target_config(&j->config, "launch k8s", w, true));
    DT_TRY(launch_check_ranks(j->config, n_workers * n_slots));
    DT_TRY(name_job(j));
    DT_TRY(read_resources(j, w, n_slots));
    j->values[V_WORKERS] = dt_xprintf("%d", n_workers);
    j->values[V_SLOTS] = dt_xprintf("%d", n_slots);
    // a run that stops itself with 75 would start again
    j->values[V_RESTARTS] = dt_xprintf("%d", dt_config_has(j->config, "run.stop_at") ? 0 : 20);
    dt_listen listen;
    DT_TRY(dt_listen_read(&listen, j->config));
    j->values[V_PORT] = dt_xprintf("%d", dt_listen_port(&listen));
    j->values[V_ARGS] = list_args(j, w);
    return DT_OK;
}

// ---- the folder ------------------------------------------------------------------------------------

// From the job's folder up to / and down again.
static dt_status find_overlay(k8s_job *j, const launch_words *w) {
    const char *given = w->options[OVERLAY] ? w->options[OVERLAY]
                        : w->options[GPUS]  ? "gpu"
                                            : "cpu";
    char *path = NULL, full[PATH_MAX];
    if (strchr(given, '/'))
        path = dt_xprintf("%s", given);
    else {
        char *name = dt_xprintf("k8s/overlays/%s", given);
        dt_status st = launch_find_template(&path, name);
        free(name);
        DT_TRY(st);
    }
    const bool there = realpath(path, full) != NULL;
    dt_status st = there ? DT_OK : dt_fail(DT_E_USAGE, "--overlay %s: %s", path, strerror(errno));
    free(path);
    DT_TRY(st);
    char *up = dt_xprintf("%s", "");
    for (const char *p = j->dir; *p; p++) {
        if (*p != '/') continue;
        char *longer = dt_xprintf("%s../", up);
        free(up);
        up = longer;
    }
    j->values[V_OVERLAY] = dt_xprintf("%s%s", up, full + 1);
    free(up);
    return DT_OK;
}

static dt_status make_folder(k8s_job *j) {
    const char *tmp = getenv("TMPDIR");
    char real[PATH_MAX];
    if (!tmp || !*tmp) tmp = "/tmp";
    if (!realpath(tmp, real) || strlen(real) > sizeof j->dir - 16)
        return dt_fail(DT_E_STORAGE, "%s: %s", tmp, strerror(errno));
    snprintf(j->dir, sizeof j->dir, "%.*s/dtrain-XXXXXX", (int)(sizeof j->dir - 16), real);
    if (mkdtemp(j->dir)) return DT_OK;
    j->dir[0] = 0;
    return dt_fail(DT_E_STORAGE, "%s: %s", real, strerror(errno));
}

static dt_status write_file(const k8s_job *j, const char *name, const char *text) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", j->dir, name);
    FILE *f = fopen(path, "w");
    bool good = f && fputs(text, f) >= 0;
    if (f) good = fclose(f) == 0 && good;
    return good ? DT_OK : dt_fail(DT_E_STORAGE, "%s: %s", path, strerror(errno));
}

static void remove_folder(const k8s_job *j) {
    char path[PATH_MAX + 32];
    if (!*j->dir) return;
    snprintf(path, sizeof path, "%s/kustomization.yaml", j->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.yaml", j->dir);
    unlink(path);
    rmdir(j->dir);
}

static dt_status fill_folder(const k8s_job *j, const launch_words *w) {
    char *text = NULL;
    size_t n = 0;
    DT_TRY(dt_io_read_file(&text, &n, w->words[0], 1 << 20, DT_E_USAGE));
    dt_status st = write_file(j, "config.yaml", text);
    free(text);
    DT_TRY(st);
    const launch_value values[] = {{"NAMESPACE", w->options[NAMESPACE]},
                                   {"OVERLAY", j->values[V_OVERLAY]},
                                   {"JOB", j->values[V_JOB]},
                                   {"QUEUE", w->options[QUEUE]},
                                   {"SLOTS", j->values[V_SLOTS]},
                                   {"RESTARTS", j->values[V_RESTARTS]},
                                   {"WORKERS", j->values[V_WORKERS]},
                                   {"IMAGE", w->options[IMAGE]},
                                   {"ARGS", j->values[V_ARGS]},
                                   {"SCRAPE", is_scraped(j) ? "true" : "false"},
                                   {"PORT", j->values[V_PORT]},
                                   {"CPUS", j->values[V_CPUS]},
                                   {"MEMORY", j->values[V_MEMORY]},
                                   {"GPUS", w->options[GPUS]},
                                   {NULL}};
    DT_TRY(launch_fill_template(&text, "k8s/job/kustomization.yaml", w->options[TEMPLATE], values));
    st = write_file(j, "kustomization.yaml", text);
    free(text);
    return st;
}

// ---- submitting ------------------------------------------------------------------------------------

static dt_status submit(const k8s_job *j, const launch_words *w, const char *manifests) {
    const char *space = w->options[NAMESPACE];
    const char *const ask[] = {"kubectl", "get", "namespace", space, NULL};
    const char *const apply[] = {"kubectl", "apply", "-f", "-", NULL};
    char *output = NULL;
    dt_status st = launch_feed(ask, "", &output);
    free(output);
    DT_TRY(st);
    st = launch_feed(apply, manifests, &output);
    if (st == DT_OK) {
        const char *job = j->values[V_JOB];
        fputs(output, stdout);
        dt_info("watch: kubectl -n %s logs -f -l training.kubeflow.org/job-name=%s,"
                "training.kubeflow.org/job-role=launcher; end: kubectl -n %s delete mpijob %s",
                space, job, space, job);
    }
    free(output);
    return st;
}

static dt_status run(const launch_words *w) {
    k8s_job j = {0};
    char *manifests = NULL;
    dt_status st = read_options(&j, w);
    if (st == DT_OK) st = make_folder(&j);
    if (st == DT_OK) st = find_overlay(&j, w);
    if (st == DT_OK) st = fill_folder(&j, w);
    const char *const kustomize[] = {"kubectl", "kustomize", j.dir, NULL};
    if (st == DT_OK) st = launch_feed(kustomize, "", &manifests);
    remove_folder(&j);
    if (st == DT_OK && w->options[PRINT])
        fputs(manifests, stdout);
    else if (st == DT_OK)
        st = submit(&j, w, manifests);
    free(manifests);
    for (int i = 0; i < N_VALUES; i++) free(j.values[i]);
    dt_config_destroy(j.config);
    return st;
}

const launch_command launch_on_k8s = {
    .options = options,
    .text =
        "Makes the manifests of an MPIJob (kubeflow.org/v2beta1) with kubectl, and applies "
        "them. The\n"
        "config becomes a ConfigMap; its relative paths are below the volume claim dtrain-data,\n"
        "and runs go to the claim dtrain-runs. A launcher that ends otherwise than with 0 starts\n"
        "again and resumes; with run.stop_at it does not. k8s/README.md has the whole way.\n\n"
        "  dtrain launch k8s --namespace ml --image registry.example.com/dtrain:0.1.0 "
        "--workers 4 configs/fusion.yaml\n"
        "  dtrain launch k8s --namespace ml --gpus 8 --workers 2 --print configs/fusion.yaml\n",
    .run = run};
