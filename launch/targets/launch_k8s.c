// launch_k8s.c: dtrain launch k8s: an MPIJob, made by kubectl's kustomize of k8s/job above an overlay of k8s/overlays.
//
// Kustomize wants the files in a folder: the job gets one below TMPDIR.

#define _GNU_SOURCE // strcasestr

#include "target.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "config/param_groups.h"
#include "config/words.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMESPACE, IMAGE, WORKERS, SLOTS, GPUS, CPUS, MEMORY, ENV, SECRET, QUEUE, OVERLAY, WITH, PRINT, TEMPLATE };
static const dt_cli_option options[] = {
    [NAMESPACE] = {"--namespace", "NAME", "namespace of the job (required)"},
    [IMAGE] = {"--image", "NAME", "container image with dtrain, as launch/docker makes it (default: the overlay's)"},
    [WORKERS] = {"--workers", "N", "worker pods (default 1)"},
    [SLOTS] = {"--slots", "N", "ranks per pod (default: one per GPU, else 1)"},
    [GPUS] = {"--gpus", "N", "GPUs per pod (default 0)"},
    [CPUS] = {"--cpus", "N",
              "cores per pod (default: device.threads per rank, 1 where it is auto; the overlay's with --gpus or "
              "--overlay)"},
    [MEMORY] = {"--memory", "SIZE",
                "memory per pod, such as 16Gi (default: the estimate of dtrain check and 0.5 GiB per rank; the "
                "overlay's with --gpus or --overlay)"},
    [ENV] = {"--env", "NAME=VALUE …", "environment variable of all ranks; may be repeated"},
    [SECRET] = {"--secret", "NAME …",
                "Secret of the namespace whose keys become environment variables of all ranks; may be repeated"},
    [QUEUE] = {"--queue", "NAME", "local queue of Kueue"},
    [OVERLAY] = {"--overlay", "NAME|DIR", "overlay of k8s/overlays, or your own (default: cpu; gpu with --gpus)"},
    [WITH] = {"--with", "NAME|DIR …", "component of k8s/components, or your own; may be repeated"},
    [PRINT] = {"--print", NULL, "print the manifests and submit nothing"},
    [TEMPLATE] = {"--template", "FILE", "your own copy of k8s/job/kustomization.yaml"},
    {NULL}};

typedef struct k8s_job {
    dt_config *config;
    dt_cli_values values;
} k8s_job;

// ---- values ----------------------------------------------------------------------------------------

// "Fusion_2" -> "fusion-2": what Kubernetes takes as the name of pods, with "-worker-12" behind it.
static dt_status name_job(k8s_job *j) {
    const char *name = j->config->run.name;
    char *job = dt_xprintf("%s", name);
    bool good = *job && strlen(job) <= 50; // a label has at most 63 bytes
    for (char *p = job; *p; p++) {
        *p = strchr("_.=,+", *p) ? '-' : (char)tolower((unsigned char)*p);
        good = good && (islower((unsigned char)*p) || isdigit((unsigned char)*p) || *p == '-');
    }
    const size_t n = strlen(job);
    good = good && islower((unsigned char)job[0]) && job[n - 1] != '-';
    dt_cli_put(&j->values, "JOB", job);
    if (good) return DT_OK;
    return dt_config_fail(j->config, "run.name",
                          "'%s' cannot be the name of a job in Kubernetes: a letter first, then "
                          "letters, digits and '-', at most 50",
                          name);
}

static bool is_scraped(const k8s_job *j) {
    return dt_words_have(&j->config->metrics.sinks, DT_SINK_prometheus);
}

static dt_status launch_k8s_append(json_t *list, const char *text) {
    if (json_array_append_new(list, json_string(text)) == 0) return DT_OK;
    return dt_fail(DT_E_USAGE, "'%s' is not UTF-8, which YAML requires", text);
}

// Kubernetes puts a variable in place of $(NAME), and $ in place of $$.
static dt_status add_arg(json_t *args, const char *word) {
    char *escaped = dt_xcalloc(2 * strlen(word) + 1, 1), *at = escaped; // where all is $
    for (const char *p = word; *p; p++) {
        if (*p == '$') *at++ = '$';
        *at++ = *p;
    }
    const dt_status st = launch_k8s_append(args, escaped);
    free(escaped);
    return st;
}

// By the words of its name, between '_': NCCL_IB_PKEY is none. The long ones also end a word, as in PGPASSWORD. AUTH is no
// such word: MLFLOW_TRACKING_AUTH names a plug-in.
static bool may_be_secret(const char *name, size_t n) {
    static const char *const words[] = {"SECRET_", "SECRETS_", "TOKEN_",      "PASSWORD_",    "PASSWD_", "PASSPHRASE_",
                                        "APIKEY_", "SSHPASS_", "CREDENTIAL_", "CREDENTIALS_", "CREDS_",  "_PASS_",
                                        "_PWD_",   "_PAT_",    "_KEY_",       "_KEYS_"};
    char *text = dt_xprintf("_%.*s_", (int)n, name);
    bool secret = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) secret |= strcasestr(text, words[i]) != NULL;
    secret &= !dt_text_ends(text, "_FILE_"); // where a secret is, is none
    free(text);
    return secret;
}

// A line of --env, for mpirun: sshd gives ranks nothing of a container's environment.
static dt_status add_env(json_t *args, const char *line, size_t n) {
    const size_t n_name = strcspn(line, "=\n");
    bool good = n_name > 0 && n_name < n && !isdigit((unsigned char)*line);
    for (size_t i = 0; i < n_name; i++) good = good && (isalnum((unsigned char)line[i]) || line[i] == '_');
    if (!good) return dt_fail(DT_E_USAGE, "--env %.*s: expected NAME=VALUE, in one line", (int)n, line);
    if (may_be_secret(line, n_name))
        return dt_fail(DT_E_USAGE,
                       "--env %.*s=…: a secret would stand in the manifest: put it into a Secret "
                       "(kubectl create secret generic NAME --from-literal=…) and give --secret NAME",
                       (int)n_name, line);
    char *word = dt_xprintf("%.*s", (int)n, line);
    dt_status st = add_arg(args, "-x");
    if (st == DT_OK) st = add_arg(args, word);
    free(word);
    return st;
}

// A pod's own address is asked by Prometheus: the port is the config's, the address is not.
static dt_status list_args(k8s_job *j, const dt_cli_words *w) {
    char *listen = dt_xprintf("metrics.listen=\"[::]:%s\"", dt_cli_value(&j->values, "PORT"));
    const char *const first[] = {"dtrain", "train", "/etc/dtrain/config.yaml"};
    const char *const last[] = {"run.dir=/runs", listen}; // the volume; the last word counts
    char *name = dt_xprintf("run.name=\"%s\"", j->config->run.name);
    // a run is named after its config's file, which has another name in the pod
    const bool of_file = strcmp(dt_config_where(j->config, DT_KEY(run.name)), w->words[0]) == 0;
    json_t *args = json_array();
    dt_status st = DT_OK;
    for (const char *line = w->options[ENV]; line && st == DT_OK;) {
        const size_t n = strcspn(line, "\n");
        st = add_env(args, line, n);
        line = line[n] ? line + n + 1 : NULL;
    }
    for (int i = 0; i < 3 && st == DT_OK; i++) st = add_arg(args, first[i]);
    if (of_file && st == DT_OK) st = add_arg(args, name);
    for (int i = 1; i < w->n_words && st == DT_OK; i++) st = add_arg(args, w->words[i]);
    for (int i = 0; i < 1 + is_scraped(j) && st == DT_OK; i++) st = add_arg(args, last[i]);
    dt_cli_put(&j->values, "ARGS", json_dumps(args, 0)); // a list of JSON is one of YAML
    json_decref(args);
    free(listen);
    free(name);
    return st;
}

// envFrom of the launcher's container: dtrain-launch gives ranks what has this prefix.
static dt_status list_secrets(k8s_job *j, const char *lines) {
    json_t *all = json_array();
    dt_status st = DT_OK;
    while (lines && *lines && st == DT_OK) {
        const size_t n = strcspn(lines, "\n");
        json_t *one = json_pack("{s:s, s:{s:s%}}", "prefix", "DTRAIN_SECRET_", "secretRef", "name", lines, n);
        if (!one || json_array_append_new(all, one) != 0)
            st = dt_fail(DT_E_USAGE, "--secret %.*s: not UTF-8, which YAML requires", (int)n, lines);
        lines += n + (lines[n] == '\n');
    }
    dt_cli_put(&j->values, "SECRETS", json_array_size(all) ? json_dumps(all, 0) : NULL);
    json_decref(all);
    return st;
}

// An overlay that was chosen says how large its workers are.
static dt_status read_resources(k8s_job *j, const dt_cli_words *w, int n_slots) {
    const bool own = w->options[GPUS] || w->options[OVERLAY];
    const bool is_auto = j->config->device.threads.is_auto;
    int n_cpus = n_slots * (is_auto ? 1 : (int)dt_answer(j->config->device.threads));
    dt_run_length length;
    DT_TRY(dt_cli_option_int(w, CPUS, n_cpus, &n_cpus));
    dt_cli_put(&j->values, "CPUS", !own || w->options[CPUS] ? dt_xprintf("\"%d\"", n_cpus) : NULL);
    DT_TRY(dt_cli_target_check(j->config, true, own ? 0 : n_cpus > n_slots ? n_cpus / n_slots : 1, &length));
    if (own || w->options[MEMORY]) return dt_cli_put_yaml(&j->values, "MEMORY", "--memory", w->options[MEMORY]);
    // of a rank: what dtrain check finds, and what program, libraries and batches take besides
    const double mib = 512 + (double)length.rank_bytes / 1048576.0;
    dt_cli_put(&j->values, "MEMORY", dt_xprintf("%.0fMi", ceil(mib * n_slots / 64) * 64)); // whole 64 MiB
    return DT_OK;
}

static dt_status launch_k8s_read_options(k8s_job *j, const dt_cli_words *w) {
    int n_workers, n_gpus = 0, n_slots;
    if (!w->options[NAMESPACE])
        return dt_fail(DT_E_USAGE, "--namespace is missing: in which the job is to run (kubectl "
                                   "get namespaces)");
    if (w->n_words > 0 && dt_io_is_dir(w->words[0]))
        return dt_fail(DT_E_USAGE, "%s is a folder: give a config file, such as its config.yaml", w->words[0]);
    DT_TRY(dt_cli_option_int(w, WORKERS, 1, &n_workers));
    if (w->options[GPUS]) DT_TRY(dt_cli_option_int(w, GPUS, 1, &n_gpus));
    DT_TRY(dt_cli_option_ranks(w, SLOTS, "a worker", n_gpus, &n_slots));
    DT_TRY(dt_cli_target_config(&j->config, "launch k8s", w));
    DT_TRY(dt_cli_target_ranks(j->config, n_workers * n_slots));
    DT_TRY(name_job(j));
    DT_TRY(read_resources(j, w, n_slots));
    dt_cli_values *v = &j->values;
    dt_cli_put(v, "WORKERS", dt_xprintf("%d", n_workers));
    dt_cli_put(v, "SLOTS", dt_xprintf("%d", n_slots));
    // a run that stops itself with 75 would start again
    const bool once = j->config->run.stop_at.has;
    dt_cli_put_copy(v, "RESTARTS", once ? "0" : "20");
    dt_cli_put_copy(v, "LAUNCHERS", once ? "0" : "3");
    dt_cli_put(v, "FINAL", dt_cli_exit_codes(LAUNCH_FINAL, LAUNCH_FINAL, " "));
    DT_TRY(dt_cli_put_yaml(v, "NAMESPACE", options[NAMESPACE].name, w->options[NAMESPACE]));
    DT_TRY(dt_cli_put_yaml(v, "IMAGE", options[IMAGE].name, w->options[IMAGE]));
    DT_TRY(dt_cli_put_yaml(v, "QUEUE", options[QUEUE].name, w->options[QUEUE]));
    dt_cli_put(v, "GPUS", n_gpus ? dt_xprintf("%d", n_gpus) : NULL);
    dt_cli_put_copy(v, "SCRAPE", is_scraped(j) ? "true" : "false");
    dt_listen listen;
    DT_TRY(dt_listen_read(&listen, j->config));
    dt_cli_put(v, "PORT", dt_xprintf("%d", dt_listen_port(&listen)));
    dt_cli_put_copy(v, "OVERLAY", "../overlay");
    DT_TRY(list_secrets(j, w->options[SECRET]));
    return list_args(j, w);
}

// ---- the folder ------------------------------------------------------------------------------------

// job/: the filled template and config.yaml; all/: components above it; overlay, with0 …: links to the folders that they
// name, because kustomizations name each other by relative paths only.
static dt_status launch_k8s_write_file(const char *dir, const char *name, const char *text) {
    char *path = dt_xprintf("%s/%s", dir, name), *slash = strrchr(path, '/');
    *slash = 0;
    const bool made = mkdir(path, 0700) == 0 || errno == EEXIST; // by the file before
    *slash = '/';
    const dt_status st =
        made ? dt_io_write_file(path, text, strlen(text)) : dt_fail(DT_E_STORAGE, "%s: %s", path, strerror(errno));
    free(path);
    return st;
}

// given: a name in k8s/`kind`, or a path.
static dt_status link_folder(const char *dir, const char *name, const char *option, const char *kind,
                             const char *given) {
    char *path = strchr(given, '/') ? dt_xstrdup(given) : NULL, *in = dt_xprintf("k8s/%s/%s", kind, given);
    char full[PATH_MAX], *link = dt_xprintf("%s/%s", dir, name);
    dt_status st = path ? DT_OK : dt_cli_find_template(&path, in);
    if (st == DT_OK && (!realpath(path, full) || symlink(full, link) != 0))
        st = dt_fail(DT_E_USAGE, "%s %s: %s", option, path, strerror(errno));
    free(link);
    free(in);
    free(path);
    return st;
}

// Components come last: they see what the job's options made of the overlay.
static dt_status write_components(const char *dir, const char *lines) {
    char *text = dt_xstrdup("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
                            "resources: [../job]\ncomponents:\n");
    dt_status st = DT_OK;
    for (int i = 0; lines && *lines && st == DT_OK; i++) {
        const size_t n = strcspn(lines, "\n");
        char *given = dt_xprintf("%.*s", (int)n, lines), *name = dt_xprintf("with%d", i);
        st = link_folder(dir, name, "--with", "components", given);
        dt_xappend(&text, "- ../%s\n", name);
        free(name);
        free(given);
        lines += n + (lines[n] == '\n');
    }
    if (st == DT_OK) st = launch_k8s_write_file(dir, "all/kustomization.yaml", text);
    free(text);
    return st;
}

static dt_status fill_folder(const k8s_job *j, const dt_cli_words *w, const char *dir) {
    const char *overlay = w->options[OVERLAY] ? w->options[OVERLAY] : w->options[GPUS] ? "gpu" : "cpu";
    char *text = NULL;
    size_t n = 0;
    DT_TRY(link_folder(dir, "overlay", "--overlay", "overlays", overlay));
    DT_TRY(dt_io_read_file(&text, &n, w->words[0], 1 << 20, DT_E_USAGE)); // a ConfigMap has at most 1 MiB
    dt_status st = launch_k8s_write_file(dir, "job/config.yaml", text);
    free(text);
    DT_TRY(st);
    DT_TRY(dt_cli_fill_template(&text, "k8s/job/kustomization.yaml", w->options[TEMPLATE], &j->values));
    st = launch_k8s_write_file(dir, "job/kustomization.yaml", text);
    free(text);
    return st == DT_OK ? write_components(dir, w->options[WITH]) : st;
}

static dt_status make_manifests(const k8s_job *j, const dt_cli_words *w, char **manifests) {
    const char *tmp = getenv("TMPDIR");
    char *dir = dt_xprintf("%s/dtrain-XXXXXX", tmp && *tmp ? tmp : "/tmp"), *all = dt_xprintf("%s/all", dir);
    dt_status st = mkdtemp(dir) ? DT_OK : dt_fail(DT_E_STORAGE, "%s: %s", dir, strerror(errno));
    memcpy(all, dir, strlen(dir)); // the name that mkdtemp chose
    const char *const kustomize[] = {"kubectl", "kustomize", all, NULL};
    if (st == DT_OK) {
        st = fill_folder(j, w, dir);
        if (st == DT_OK) st = dt_cli_feed(kustomize, "", manifests);
        (void)dt_io_remove_tree(dir); // links are removed, not what they lead to
    }
    free(all);
    free(dir);
    return st;
}

// ---- submitting ------------------------------------------------------------------------------------

static dt_status launch_k8s_submit(const k8s_job *j, const dt_cli_words *w, const char *manifests) {
    const char *space = w->options[NAMESPACE];
    const char *const ask[] = {"kubectl", "get", "namespace", space, NULL};
    const char *const apply[] = {"kubectl", "apply", "-f", "-", NULL};
    const char *job = dt_cli_value(&j->values, "JOB");
    const char *const find[] = {"kubectl", "-n", space, "get", "mpijob", job, "--ignore-not-found", "-o", "name", NULL};
    char *output = NULL;
    dt_status st = dt_cli_feed(ask, "", &output);
    free(output);
    output = NULL;
    if (st == DT_OK) st = dt_cli_feed(find, "", &output);
    if (st == DT_OK && *output)
        st = dt_fail(
            DT_E_USAGE,
            "the job %s is in the namespace %s already, and would be changed while it runs: give another run.name, or "
            "delete that job (kubectl -n %s delete mpijob %s); then the run continues from its newest checkpoint",
            job, space, space, job);
    free(output);
    DT_TRY(st);
    st = dt_cli_feed(apply, manifests, &output);
    if (output) fputs(output, stdout);
    if (st != DT_OK && output && *output) st = dt_fail_context(st, "only what is listed was applied");
    if (st == DT_OK)
        dt_info("watch: kubectl -n %s logs -f -l training.kubeflow.org/job-name=%s,"
                "training.kubeflow.org/job-role=launcher; end: kubectl -n %s delete mpijob %s",
                space, job, space, job);
    free(output);
    return st;
}

static dt_status launch_k8s_run(const dt_cli_words *w) {
    k8s_job j = {0};
    char *manifests = NULL;
    dt_status st = launch_k8s_read_options(&j, w);
    if (st == DT_OK) st = make_manifests(&j, w, &manifests);
    if (st == DT_OK && !w->options[IMAGE] && strstr(manifests, "registry.example.com/"))
        dt_warn("--image is missing, and the overlay's registry.example.com/dtrain is an example: give the image "
                "that you pushed");
    if (st == DT_OK && w->options[PRINT])
        fputs(manifests, stdout);
    else if (st == DT_OK)
        st = launch_k8s_submit(&j, w, manifests);
    free(manifests);
    dt_cli_values_fini(&j.values);
    dt_config_destroy(j.config);
    return st;
}

const dt_cli_command dt_cli_on_k8s = {
    .options = options,
    .text = "Makes the manifests of an MPIJob (kubeflow.org/v2beta1) with kubectl and applies them. The config becomes "
            "a ConfigMap. Relative paths of the config are in the volume claim dtrain-data; runs go to the claim "
            "dtrain-runs. After a lost rank or an evicted pod the ranks start again and resume; not after run.stop_at. "
            "k8s/README.md describes every step.\n\n"
            "  dtrain launch k8s --namespace ml --image registry.example.com/dtrain:1.0.0 --workers 4 \\\n"
            "      configs/fusion.yaml\n"
            "  dtrain launch k8s --namespace ml --gpus 8 --workers 2 --with rdma --env NCCL_DEBUG=INFO \\\n"
            "      --print configs/fusion.yaml\n",
    .run = launch_k8s_run};
