// launch_slurm.c: dtrain launch slurm: fills launch/slurm/train.sbatch and gives it to sbatch.
//
// A sweep is a job array, a run for each of its tasks, and a job behind it that prints the table.

#include "job.h"
#include "sweep_table.h"
#include "target.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES,
    TASKS,
    CPUS,
    GPUS,
    MEM,
    TIME,
    PARTITION,
    ACCOUNT,
    QOS,
    SBATCH,
    SETUP,
    CONTAINER,
    IMAGE,
    MOUNTS,
    STAGE,
    SWEEP,
    JOBS,
    PRINT,
    TEMPLATE
};
extern const launch_command launch_on_slurm;
static const launch_option options[] = {
    [NODES] = {"--nodes", "N", "nodes of a run (1)"},
    [TASKS] = {"--ntasks-per-node", "N", "ranks on each node (one for each GPU, else 1)"},
    [CPUS] = {"--cpus-per-task", "N", "cores of each rank (1)"},
    [GPUS] = {"--gpus-per-node", "N", "GPUs on each node (none)"},
    [MEM] = {"--mem", "SIZE", "memory on each node, as in 32G"},
    [TIME] = {"--time", "TIME", "limit of the job, as in 4:00:00; it is requeued before"},
    [PARTITION] = {"--partition", "NAME", "instead of the cluster's default"},
    [ACCOUNT] = {"--account", "NAME", "who is charged"},
    [QOS] = {"--qos", "NAME", "quality of service"},
    [SBATCH] = {"--sbatch", "OPTIONS", "more of sbatch, as in '--constraint=a100 --exclusive'"},
    [SETUP] = {"--setup", "FILE", "lines of bash ahead of the job, such as module load openmpi"},
    [CONTAINER] = {"--container", "IMAGE", "run in this image with Apptainer"},
    [IMAGE] = {"--container-image", "IMAGE", "run in this image with pyxis, as srun's option"},
    [MOUNTS] = {"--container-mounts", "A:B,…", "folders for pyxis, beside this one and --stage"},
    [STAGE] = {"--stage", "DIR", "copy the data to this folder of each node, and check them"},
    [SWEEP] = {"--sweep", NULL, "a job array for key=a,b,c and 0..4, as dtrain sweep"},
    [JOBS] = {"--jobs", "N", "with --sweep: runs at a time (all)"},
    [PRINT] = {"--print", NULL, "print the batch script and submit nothing"},
    [TEMPLATE] = {"--template", "FILE", "your own copy of launch/slurm/train.sbatch"},
    {NULL}};

// What goes into the template; all heap, freed together.
enum {
    V_JOB,
    V_PARTITION,
    V_ACCOUNT,
    V_QOS,
    V_CPUS,
    V_GPUS,
    V_MEM,
    V_TIME,
    V_NODES,
    V_TASKS,
    V_ARRAY,
    V_OUTPUT,
    V_REQUEUE,
    V_DTRAIN,
    V_RUNS,
    V_STAGE,
    V_FILES,
    V_SET,
    V_SETUP,
    V_IMAGE,
    V_MOUNTS,
    N_VALUES
};
typedef struct slurm_job {
    dt_config *config; // of the run, or of the first of a sweep
    sweep sweep;
    int n_ranks_node;
    char *values[N_VALUES];
} slurm_job;

// ---- the runs --------------------------------------------------------------------------------------

// "3) run=… words=(…) ;;", a line of the script's case. words: CONFIG key=value …
static char *run_line(int task, const char *dir, const char *const *words) {
    char *quoted = launch_quote_words(words), *quoted_dir = launch_quote(dir);
    char *line = dt_xprintf("%d) run=%s words=(%s) ;;", task, quoted_dir, quoted);
    free(quoted);
    free(quoted_dir);
    return line;
}

static void add_line(char **text, char *line) {
    char *longer = *text ? dt_xprintf("%s\n%s", *text, line) : dt_xprintf("%s", line);
    free(*text);
    free(line);
    *text = longer;
}

static dt_status read_sweep(slurm_job *j, const launch_words *w) {
    sweep *s = &j->sweep;
    DT_TRY(sweep_read(s, w));
    char **first = sweep_run_words(s, 0);
    launch_words one = {.words = (const char **)first + 1};
    while (one.words[one.n_words]) one.n_words++;
    dt_status st = launch_target_config(&j->config, "launch slurm", &one, true);
    sweep_free_words(first);
    DT_TRY(st);
    for (int r = 0; r < s->n_runs; r++) {
        char **words = sweep_run_words(s, r), *dir = dt_xprintf("%s/%s", s->dir, s->runs[r].name);
        add_line(&j->values[V_RUNS], run_line(r, dir, (const char *const *)words + 1));
        free(dir);
        sweep_free_words(words);
    }
    j->values[V_ARRAY] = dt_xprintf("0-%d%s%s", s->n_runs - 1, w->options[JOBS] ? "%" : "",
                                    w->options[JOBS] ? w->options[JOBS] : "");
    return DT_OK;
}

static dt_status read_run(slurm_job *j, const launch_words *w) {
    DT_TRY(launch_target_config(&j->config, "launch slurm", w, true));
    char *dir = dt_xprintf("%s/%s", j->config->run.dir, j->config->run.name);
    const char **words = dt_xcalloc((size_t)w->n_words + 1, sizeof *words);
    for (int i = 0; i < w->n_words; i++) words[i] = w->words[i];
    j->values[V_RUNS] = run_line(0, dir, words);
    free(words);
    free(dir);
    return DT_OK;
}

// ---- staging ---------------------------------------------------------------------------------------

// The pattern for bash, which expands braces and * as dtrain does: all else is taken literally.
static char *quote_pattern(const char *pattern) {
    char *out = dt_xcalloc(7 * strlen(pattern) + 1, 1), *at = out;
    for (; *pattern; pattern++) {
        if (iscntrl((unsigned char)*pattern)) {
            at += sprintf(at, "$'\\%03o'", (unsigned)(unsigned char)*pattern);
            continue;
        }
        if (!isalnum((unsigned char)*pattern) && !strchr("{},.*?[]_-/=+:@%", *pattern))
            *at++ = '\\';
        *at++ = *pattern;
    }
    return out;
}

// $TMPDIR and ${TMPDIR} are the node's to expand; all else is taken literally.
static char *quote_folder(const char *folder) {
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    char *out = NULL, *part = dt_xcalloc(strlen(folder) + 1, 1);
    size_t n_out = 0;
    FILE *f = open_memstream(&out, &n_out);
    for (size_t n_part = 0;;) {
        const bool brace = folder[0] == '$' && folder[1] == '{';
        const size_t n = *folder == '$' ? strspn(folder + 1 + brace, name) : 0;
        const bool variable = n > 0 && (!brace || folder[2 + n] == '}');
        if (n_part > 0 && (!*folder || variable)) {
            char *quoted = launch_quote(part);
            fputs(quoted, f);
            free(quoted);
            n_part = 0;
        }
        if (!*folder) break;
        if (variable)
            fprintf(f, "\"${%.*s}\"", (int)n, folder + 1 + brace);
        else
            part[n_part++] = *folder, part[n_part] = 0;
        folder += variable ? 1 + n + 2 * brace : 1;
    }
    fclose(f);
    free(part);
    return out;
}

static dt_status read_stage(slurm_job *j, const launch_words *w) {
    if (!w->options[STAGE]) return DT_OK;
    const dt_cnode *set = j->config->data.path;
    if (set && dt_cnode_kind(set) == DT_C_LIST && dt_cnode_size(set) == 1)
        set = dt_cnode_item(set, 0);
    if (set && dt_cnode_kind(set) == DT_C_MAP) set = dt_cnode_get(set, "path");
    if (!set || dt_cnode_kind(set) != DT_C_SCALAR)
        return dt_config_fail(j->config, "data.path",
                              "--stage copies one set, and these are several: stage them in a copy "
                              "of launch/slurm/train.sbatch");
    char *path = dt_xprintf("%s", dt_cnode_str(set));
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = 0;
    const char *slash = strrchr(path, '/');
    j->values[V_STAGE] = quote_folder(w->options[STAGE]);
    j->values[V_FILES] = quote_pattern(path);
    j->values[V_SET] = launch_quote(slash ? slash + 1 : path);
    free(path);
    return DT_OK;
}

// ---- the script ------------------------------------------------------------------------------------

static dt_status read_options(slurm_job *j, const launch_words *w) {
    int n_nodes, n_gpus = 0, n_cpus, n_jobs;
    DT_TRY(launch_option_int(w, &launch_on_slurm, NODES, 1, &n_nodes));
    DT_TRY(launch_option_int(w, &launch_on_slurm, CPUS, 1, &n_cpus));
    DT_TRY(launch_option_int(w, &launch_on_slurm, JOBS, 1, &n_jobs));
    if (w->options[GPUS]) DT_TRY(launch_option_int(w, &launch_on_slurm, GPUS, 1, &n_gpus));
    DT_TRY(launch_option_int(w, &launch_on_slurm, TASKS, n_gpus ? n_gpus : 1, &j->n_ranks_node));
    if (n_gpus && j->n_ranks_node > n_gpus)
        return dt_fail(DT_E_USAGE,
                       "--ntasks-per-node %d: a rank needs a GPU of its own, and a "
                       "node has %d (--gpus-per-node)",
                       j->n_ranks_node, n_gpus);
    if (w->options[JOBS] && !w->options[SWEEP]) return dt_fail(DT_E_USAGE, "--jobs is for --sweep");
    j->values[V_NODES] = dt_xprintf("%d", n_nodes);
    j->values[V_TASKS] = dt_xprintf("%d", j->n_ranks_node);
    DT_TRY(w->options[SWEEP] ? read_sweep(j, w) : read_run(j, w));
    return launch_check_ranks(j->config, n_nodes * j->n_ranks_node);
}

static dt_status find_program(slurm_job *j, const launch_words *w) {
    const char *image = w->options[IMAGE], *sif = w->options[CONTAINER];
    if (image && sif)
        return dt_fail(DT_E_USAGE,
                       "--container is for Apptainer, --container-image for pyxis: give "
                       "one of them");
    if (w->options[MOUNTS] && !image)
        return dt_fail(DT_E_USAGE, "--container-mounts is for --container-image");
    char *quoted = launch_quote(sif ? sif : launch_program());
    j->values[V_DTRAIN] =
        sif ? dt_xprintf("apptainer exec%s %s dtrain", w->options[GPUS] ? " --nv" : "", quoted)
            : dt_xstrdup(image ? "dtrain" : quoted);
    free(quoted);
    j->values[V_IMAGE] = image ? launch_quote(image) : dt_xstrdup("");
    char *mounts = w->options[MOUNTS] ? launch_quote(w->options[MOUNTS]) : NULL;
    j->values[V_MOUNTS] = mounts ? dt_xprintf(",%s", mounts) : dt_xstrdup("");
    free(mounts);
    if (!w->options[SETUP]) return DT_OK;
    size_t n;
    return dt_io_read_file(&j->values[V_SETUP], &n, w->options[SETUP], 1 << 20, DT_E_USAGE);
}

// `text` as a line "#SBATCH --option=TEXT" has it: sbatch takes quotes and backslashes out, and # begins a comment. `what`
// names it in the error.
static dt_status directive(char **out, const char *what, const char *text) {
    bool plain = text && *text;
    if (!text) return DT_OK;
    for (const char *p = text; *p; p++) {
        if (iscntrl((unsigned char)*p))
            return dt_fail(
                DT_E_USAGE,
                "%s: a line break, tab or other control character cannot be in an option "
                "of sbatch",
                what);
        plain = plain && (isalnum((unsigned char)*p) || strchr("_-./=:,+@%", *p));
    }
    char *at = *out = dt_xcalloc(2 * strlen(text) + 3, 1);
    if (!plain) *at++ = '"';
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') *at++ = '\\';
        *at++ = *text;
    }
    if (!plain) *at = '"';
    return DT_OK;
}

static const char *job_name(const slurm_job *j) {
    return j->sweep.dir ? strrchr(j->sweep.dir, '/') + 1 : j->config->run.name;
}

static dt_status fill_values(slurm_job *j, const launch_words *w) {
    static const int given[][2] = {
        {V_PARTITION, PARTITION}, {V_ACCOUNT, ACCOUNT}, {V_QOS, QOS},  {V_CPUS, CPUS},
        {V_GPUS, GPUS},           {V_MEM, MEM},         {V_TIME, TIME}};
    DT_TRY(directive(&j->values[V_JOB], "run.name", job_name(j)));
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        DT_TRY(
            directive(&j->values[given[i][0]], options[given[i][1]].name, w->options[given[i][1]]));
    j->values[V_OUTPUT] = dt_xprintf("%s", w->options[SWEEP] ? "%x-%A_%a.out" : "%x-%j.out");
    // a run that stops itself with 75 would be queued again for ever
    const bool stops = j->config->run.stop_at.has;
    j->values[V_REQUEUE] = dt_xprintf("%s", stops ? "no-requeue" : "requeue");
    return DT_OK;
}

static dt_status fill_script(char **out, slurm_job *j, const launch_words *w) {
    const launch_value values[] = {{"JOB", j->values[V_JOB]},
                                   {"PARTITION", j->values[V_PARTITION]},
                                   {"ACCOUNT", j->values[V_ACCOUNT]},
                                   {"QOS", j->values[V_QOS]},
                                   {"NODES", j->values[V_NODES]},
                                   {"TASKS", j->values[V_TASKS]},
                                   {"CPUS", j->values[V_CPUS]},
                                   {"GPUS", j->values[V_GPUS]},
                                   {"MEM", j->values[V_MEM]},
                                   {"TIME", j->values[V_TIME]},
                                   {"ARRAY", j->values[V_ARRAY]},
                                   {"SBATCH", w->options[SBATCH]},
                                   {"OUTPUT", j->values[V_OUTPUT]},
                                   {"REQUEUE", j->values[V_REQUEUE]},
                                   {"DTRAIN", j->values[V_DTRAIN]},
                                   {"RUNS", j->values[V_RUNS]},
                                   {"STAGE", j->values[V_STAGE] ? j->values[V_STAGE] : ""},
                                   {"FILES", j->values[V_FILES] ? j->values[V_FILES] : ""},
                                   {"SET", j->values[V_SET] ? j->values[V_SET] : ""},
                                   {"SETUP", j->values[V_SETUP]},
                                   {"IMAGE", j->values[V_IMAGE]},
                                   {"MOUNTS", j->values[V_MOUNTS]},
                                   {NULL}};
    return launch_fill_template(out, "launch/slurm/train.sbatch", w->options[TEMPLATE], values);
}

// ---- submitting ------------------------------------------------------------------------------------

// The job that prints the table when the array has ended; *id: of the array.
static dt_status submit_table(const slurm_job *j, const launch_words *w, const char *id) {
    char *words = launch_quote_config(w);
    const char *setup = j->values[V_SETUP] ? j->values[V_SETUP] : "", *image = j->values[V_IMAGE];
    char *in_image = dt_xprintf("srun --ntasks=1 --container-image=%s --container-workdir=\"$PWD\" "
                                "--container-mounts=\"$PWD:$PWD\"%s ",
                                image, j->values[V_MOUNTS]);
    char *script = dt_xprintf("#!/bin/bash\n%s\n%s%s sweep %s --table\n", setup,
                              *image ? in_image : "", j->values[V_DTRAIN], words);
    free(in_image);
    char *after = dt_xprintf("--dependency=afterany:%s", id);
    char *name = dt_xprintf("--job-name=%s-table", job_name(j));
    const char *argv[10] = {"sbatch", "--parsable", after, name, "--output=%x-%j.out"};
    int n = 5;
    char *given[3] = {NULL};
    for (int i = 0; i < 3; i++) {
        const int option = (int[]){PARTITION, ACCOUNT, QOS}[i];
        if (!w->options[option]) continue;
        given[i] = dt_xprintf("%s=%s", options[option].name, w->options[option]);
        argv[n++] = given[i];
    }
    char *output = NULL;
    dt_status st = launch_feed(argv, script, &output);
    if (st == DT_OK) {
        output[strcspn(output, ";\n")] = 0;
        dt_info("job %s prints the table into %s-table-%s.out", output, job_name(j), output);
    } else {
        st = dt_fail_context(st, "the array is job %s, but its table is not queued", id);
    }
    for (int i = 0; i < 3; i++) free(given[i]);
    free(output);
    free(name);
    free(after);
    free(script);
    free(words);
    return st;
}

static dt_status submit(const slurm_job *j, const launch_words *w, const char *script) {
    static const char *const argv[] = {"sbatch", "--parsable", NULL};
    char *id = NULL;
    dt_status st = launch_feed(argv, script, &id);
    if (st == DT_OK) {
        id[strcspn(id, ";\n")] = 0; // "12;cluster"
        if (w->options[SWEEP])
            dt_info("job %s: %d runs, messages in %s-%s_*.out", id, j->sweep.n_runs, job_name(j),
                    id);
        else
            dt_info("job %s: messages in %s-%s.out", id, job_name(j), id);
        dt_info("watch: squeue -j %s; save and queue again: scancel --signal=USR1 %s; end: "
                "scancel %s",
                id, id, id);
        printf("%s\n", id);
        if (w->options[SWEEP]) st = submit_table(j, w, id);
    }
    free(id);
    return st;
}

static dt_status run(const launch_words *w) {
    slurm_job j = {0};
    char *script = NULL;
    dt_status st = read_options(&j, w);
    if (st == DT_OK) st = read_stage(&j, w);
    if (st == DT_OK) st = find_program(&j, w);
    if (st == DT_OK) st = fill_values(&j, w);
    if (st == DT_OK) st = fill_script(&script, &j, w);
    if (st == DT_OK && w->options[PRINT])
        fputs(script, stdout);
    else if (st == DT_OK)
        st = submit(&j, w, script);
    free(script);
    for (int i = 0; i < N_VALUES; i++) free(j.values[i]);
    if (w->options[SWEEP]) sweep_fini(&j.sweep);
    dt_config_destroy(j.config);
    return st;
}

const launch_command launch_on_slurm = {
    .options = options,
    .text =
        "Submits a batch job of nodes x ranks, and prints its id. Two minutes before the time\n"
        "limit the ranks save, and the job is queued again; so it is after a lost node. A job "
        "with\n"
        "run.stop_at is not. Words after the config override keys. sbatch gets the options that\n"
        "have its names; --sbatch takes any other.\n\n"
        "  dtrain launch slurm --nodes 4 --gpus-per-node 8 --time 4:00:00 configs/fusion.yaml\n"
        "  dtrain launch slurm --nodes 2 --ntasks-per-node 2 --cpus-per-task 16 "
        "configs/fusion.yaml\n"
        "  dtrain launch slurm --sweep --jobs 5 configs/fusion.yaml data.split.folds=5 "
        "data.split.fold=0..4\n",
    .run = run};
