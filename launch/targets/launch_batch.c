// launch_batch.c: dtrain launch slurm and dtrain launch pbs: fill launch/slurm/train.sbatch or launch/pbs/train.pbs and
// give it to sbatch or qsub.
//
// PBS is its template and its table of options. A sweep, for Slurm alone, is a job array, a run for each of its tasks, and
// a job behind it that prints the table.

#include "launch/sweep/sweep_table.h"
#include "target.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "store/blob.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

// The options of PBS are the first of Slurm's.
enum { NODES, TASKS, CPUS, GPUS, MEM, TIME, PARTITION, ACCOUNT, SBATCH, SETUP, PRINT, TEMPLATE, N_PBS };
enum { QOS = N_PBS, CONTAINER, IMAGE, MOUNTS, STAGE, SWEEP, JOBS };
static const dt_cli_option slurm_options[] = {
    [NODES] = {"--nodes", "N", "nodes of a run (default 1)"},
    [TASKS] = {"--ntasks-per-node", "N", "ranks per node (default: one per GPU, else 1)"},
    [CPUS] = {"--cpus-per-task", "N", "cores per rank (default 1)"},
    [GPUS] = {"--gpus-per-node", "N", "GPUs per node (default 0)"},
    [MEM] = {"--mem", "SIZE", "memory per node, such as 32G"},
    [TIME] = {"--time", "TIME", "time limit of the job, such as 4:00:00"},
    [PARTITION] = {"--partition", "NAME", "partition (default: the cluster's)"},
    [ACCOUNT] = {"--account", "NAME", "account to charge"},
    [SBATCH] = {"--sbatch", "OPTIONS", "other options of sbatch, such as '--constraint=a100 --exclusive'"},
    [SETUP] = {"--setup", "FILE", "bash lines to run before the job, such as module load openmpi"},
    [PRINT] = {"--print", NULL, "print the batch script and submit nothing"},
    [TEMPLATE] = {"--template", "FILE", "your own copy of launch/slurm/train.sbatch"},
    [QOS] = {"--qos", "NAME", "quality of service"},
    [CONTAINER] = {"--container", "IMAGE", "run in this image with Apptainer"},
    [IMAGE] = {"--container-image", "IMAGE", "run in this image with pyxis (srun's option)"},
    [MOUNTS] = {"--container-mounts", "A:B,…", "more mounts for pyxis; this folder and --stage are mounted anyway"},
    [STAGE] = {"--stage", "DIR", "copy the data to this folder of each node and verify the copy"},
    [SWEEP] = {"--sweep", NULL, "job array over key=a,b,c and 0..4, as dtrain sweep"},
    [JOBS] = {"--jobs", "N", "with --sweep: runs at a time (default: all)"},
    {NULL}};

static const dt_cli_option pbs_options[] = {
    [NODES] = {"--nodes", "N", "chunks of select, each on a host of its own (default 1)"},
    [TASKS] = {"--mpiprocs", "N", "ranks per node (default: one per GPU, else 1)"},
    [CPUS] = {"--ncpus", "N", "cores per node (default 1)"},
    [GPUS] = {"--ngpus", "N", "GPUs per node (default 0)"},
    [MEM] = {"--mem", "SIZE", "memory per node, such as 32gb"},
    [TIME] = {"--walltime", "TIME", "time limit of the job, such as 4:00:00"},
    [PARTITION] = {"--queue", "NAME", "queue (default: the server's)"},
    [ACCOUNT] = {"--account", "NAME", "account to charge"},
    [SBATCH] = {"--pbs", "OPTIONS", "other options of qsub, such as '-W umask=027'"},
    [SETUP] = {"--setup", "FILE", "bash lines to run before the job, such as module load openmpi"},
    [PRINT] = {"--print", NULL, "print the batch script and submit nothing"},
    [TEMPLATE] = {"--template", "FILE", "your own copy of launch/pbs/train.pbs"},
    {NULL}};

typedef struct batch_job {
    const char *verb;
    dt_config *config; // of the run, or of the first of a sweep
    sweep sweep;
    int n_ranks_node;
    char *pbs_name;       // of a job of PBS; NULL: of Slurm
    dt_cli_values values; // of the template
} batch_job;

// ---- the runs --------------------------------------------------------------------------------------

// "3) run=… words=(…) ;;", a line of the script's case. words: CONFIG key=value …
static void add_run(char **text, int task, const char *dir, const char *const *words) {
    char *quoted = dt_cli_quote_words(words), *quoted_dir = dt_cli_quote(dir);
    dt_xappend(text, "%s%d) run=%s words=(%s) ;;", *text ? "\n" : "", task, quoted_dir, quoted);
    free(quoted);
    free(quoted_dir);
}

static dt_status read_sweep(batch_job *j, const dt_cli_words *w) {
    sweep *s = &j->sweep;
    const char *jobs = w->options[JOBS];
    char *runs = NULL;
    dt_status st = DT_OK;
    DT_TRY(dt_sweep_read(s, w));
    for (int r = 0; r < s->n_runs; r++) {
        char **words = dt_sweep_run_words(s, r), *dir = dt_xprintf("%s/%s", s->dir, s->runs[r].name);
        dt_cli_words one = {.words = (const char **)words + 1};
        while (one.words[one.n_words]) one.n_words++;
        if (r == 0) st = dt_cli_target_config(&j->config, j->verb, &one); // dt_sweep_read has checked all
        add_run(&runs, r, dir, one.words);
        free(dir);
        dt_sweep_free_words(words);
    }
    dt_cli_put(&j->values, "RUNS", runs);
    dt_cli_put(&j->values, "ARRAY", dt_xprintf("0-%d%s%s", s->n_runs - 1, jobs ? "%" : "", jobs ? jobs : ""));
    return st;
}

static dt_status launch_batch_read_run(batch_job *j, const dt_cli_words *w) {
    DT_TRY(dt_cli_target_config(&j->config, j->verb, w));
    char *dir = dt_xprintf("%s/%s", j->config->run.dir, j->config->run.name);
    const char **words = dt_cli_train_words(w);
    char *runs = NULL;
    add_run(&runs, 0, dir, words + 1);
    dt_cli_put(&j->values, "RUNS", runs);
    dt_cli_put(&j->values, "ARRAY", NULL);
    free(words);
    free(dir);
    return DT_OK;
}

// ---- staging ---------------------------------------------------------------------------------------

// The pattern for bash, which expands braces and * as dtrain does: all else is taken literally.
static char *quote_pattern(const char *pattern) {
    char *out = dt_xcalloc(7 * strlen(pattern) + 1, 1), *at = out; // $'\012' has seven bytes
    for (; *pattern; pattern++) {
        if (iscntrl((unsigned char)*pattern)) {
            at += sprintf(at, "$'\\%03o'", (unsigned)(unsigned char)*pattern);
            continue;
        }
        if (!isalnum((unsigned char)*pattern) && !strchr("{},.*?[]_-/=+:@%", *pattern)) *at++ = '\\';
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
        const bool variable = n > 0 && (!brace || folder[2 + n] == '}'); // else the $ is one of the name
        if (n_part > 0 && (!*folder || variable)) {                      // what is in front of a variable is one word
            char *quoted = dt_cli_quote(part);
            fputs(quoted, f);
            free(quoted);
            n_part = 0;
        }
        if (!*folder) break;
        if (variable)
            fprintf(f, "\"${%.*s}\"", (int)n, folder + 1 + brace); // in quotes: bash does not split its value
        else
            part[n_part++] = *folder, part[n_part] = 0;
        folder += variable ? 1 + n + 2 * brace : 1;
    }
    fclose(f);
    free(part);
    return out;
}

static dt_status read_stage(batch_job *j, const dt_cli_words *w) {
    const char *set = dt_cli_only_set(j->config);
    const bool by_url = set && dt_blob_is_url(set);
    if (by_url && w->options[STAGE])
        dt_info("%s: nothing is staged of a URL: each node keeps what it reads (data.cache_dir, on "
                "a disk of the node)",
                set);
    if (!w->options[STAGE] || by_url) {
        dt_cli_put_copy(&j->values, "STAGE", "");
        dt_cli_put_copy(&j->values, "FILES", "");
        dt_cli_put_copy(&j->values, "SET", "");
        return DT_OK;
    }
    if (!set)
        return dt_config_fail(j->config, "data.path",
                              "--stage copies one set, without a name: stage others in a copy of "
                              "launch/slurm/train.sbatch");
    char *path = dt_xstrdup(set);
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = 0;
    dt_status st = DT_OK;
    if (strcspn(path, "{*?[") < (size_t)(dt_path_base(path) - path)) // a wildcard ahead of the last /
        st = dt_config_fail(j->config, "data.path",
                            "--stage copies files of one folder: those of several may have one "
                            "name");
    dt_cli_put(&j->values, "STAGE", quote_folder(w->options[STAGE]));
    dt_cli_put(&j->values, "FILES", quote_pattern(path));
    dt_cli_put(&j->values, "SET", dt_cli_quote(dt_path_base(path)));
    free(path);
    return st;
}

// ---- the script ------------------------------------------------------------------------------------

static dt_status launch_batch_read_options(batch_job *j, const dt_cli_words *w) {
    int n_nodes, n_gpus = 0, n_cpus, n_jobs;
    DT_TRY(dt_cli_option_int(w, NODES, 1, &n_nodes));
    DT_TRY(dt_cli_option_int(w, CPUS, 1, &n_cpus));
    DT_TRY(dt_cli_option_int(w, JOBS, 1, &n_jobs));
    if (w->options[GPUS]) DT_TRY(dt_cli_option_int(w, GPUS, 1, &n_gpus));
    DT_TRY(dt_cli_option_ranks(w, TASKS, "a node", n_gpus, &j->n_ranks_node));
    if (w->options[JOBS] && !w->options[SWEEP]) return dt_fail(DT_E_USAGE, "--jobs is for --sweep");
    dt_cli_put(&j->values, "NODES", dt_xprintf("%d", n_nodes));
    dt_cli_put(&j->values, "TASKS", dt_xprintf("%d", j->n_ranks_node));
    DT_TRY((w->options[SWEEP] ? read_sweep : launch_batch_read_run)(j, w));
    return dt_cli_target_ranks(j->config, n_nodes * j->n_ranks_node);
}

static dt_status find_program(batch_job *j, const dt_cli_words *w) {
    const char *image = w->options[IMAGE], *sif = w->options[CONTAINER];
    if (image && sif)
        return dt_fail(DT_E_USAGE, "--container is for Apptainer, --container-image for pyxis: give "
                                   "one of them");
    if (w->options[MOUNTS] && !image) return dt_fail(DT_E_USAGE, "--container-mounts is for --container-image");
    char *quoted = dt_cli_quote(sif ? sif : dt_cli_program());
    dt_cli_put(&j->values, "DTRAIN",
               sif ? dt_xprintf("apptainer exec%s %s dtrain", w->options[GPUS] ? " --nv" : "", quoted)
                   : dt_xstrdup(image ? "dtrain" : quoted));
    free(quoted);
    dt_cli_put(&j->values, "IMAGE", image ? dt_cli_quote(image) : dt_xstrdup(""));
    char *mounts = w->options[MOUNTS] ? dt_cli_quote(w->options[MOUNTS]) : NULL, *setup = NULL;
    dt_cli_put(&j->values, "MOUNTS", mounts ? dt_xprintf(",%s", mounts) : dt_xstrdup(""));
    free(mounts);
    size_t n;
    if (w->options[SETUP]) DT_TRY(dt_io_read_file(&setup, &n, w->options[SETUP], 1 << 20, DT_E_USAGE));
    dt_cli_put(&j->values, "SETUP", setup);
    return DT_OK;
}

// Puts `text` as a line "#SBATCH --option=TEXT" has it: sbatch takes quotes and backslashes out, and # begins a
// comment. PBS has no quotes. `what` names it in the error.
static dt_status put_directive(batch_job *j, const char *name, const char *what, const char *text) {
    bool plain = text && *text;
    char *out = text ? dt_xcalloc(2 * strlen(text) + 3, 1) : NULL, *at = out; // each byte escaped, two quotes, the end
    dt_cli_put(&j->values, name, out);
    if (!text) return DT_OK;
    for (const char *p = text; *p; p++) {
        if (iscntrl((unsigned char)*p))
            return dt_fail(DT_E_USAGE,
                           "%s: a line break, tab or other control character cannot be in an option "
                           "of sbatch",
                           what);
        plain = plain && (isalnum((unsigned char)*p) || strchr("_-./=:,+@%", *p));
    }
    if (!plain && j->pbs_name) return dt_fail(DT_E_USAGE, "%s: '%s' cannot be in a line of #PBS", what, text);
    if (!plain) *at++ = '"';
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') *at++ = '\\';
        *at++ = *text;
    }
    if (!plain) *at = '"';
    return DT_OK;
}

static const char *job_name(const batch_job *j) {
    return j->sweep.dir ? strrchr(j->sweep.dir, '/') + 1 : j->config->run.name;
}

static dt_status fill_values(batch_job *j, const dt_cli_words *w) {
    static const char *const given[] = {
        [CPUS] = "CPUS", [GPUS] = "GPUS",           [MEM] = "MEM",        [TIME] = "TIME",
        [QOS] = "QOS",   [PARTITION] = "PARTITION", [ACCOUNT] = "ACCOUNT"};
    DT_TRY(put_directive(j, "JOB", "run.name", j->pbs_name ? j->pbs_name : job_name(j)));
    for (int i = CPUS; i <= QOS; i++)
        if (given[i]) DT_TRY(put_directive(j, given[i], w->table[i].name, w->options[i]));
    // in select a resource is :name=TEXT, or not there
    for (int i = CPUS; i <= MEM && j->pbs_name; i++)
        dt_cli_put(&j->values, (const char *const[]){"NCPUS", "NGPUS", "CHUNK_MEM"}[i - CPUS],
                   w->options[i] ? dt_xprintf(":%s=%s", w->table[i].name + 2, w->options[i]) : dt_xstrdup(""));
    dt_cli_put_copy(&j->values, "SBATCH", w->options[SBATCH]);
    dt_cli_put_copy(&j->values, "OUTPUT", w->options[SWEEP] ? "%x-%A_%a.out" : "%x-%j.out");
    // a run that stops itself with 75 would be queued again for ever
    const bool stops = j->config->run.stop_at.has;
    dt_cli_put_copy(&j->values, "REQUEUE", stops ? "no-requeue" : "requeue");
    dt_cli_put(&j->values, "SAVED", dt_cli_exit_codes(LAUNCH_SAVED, LAUNCH_SAVED, " | "));
    dt_cli_put(&j->values, "LOST", dt_cli_exit_codes(LAUNCH_LOST, LAUNCH_KILLED, " | "));
    dt_cli_put(&j->values, "EARLY", dt_cli_exit_codes(LAUNCH_EARLY, LAUNCH_EARLY, " | "));
    return DT_OK;
}

// ---- submitting ------------------------------------------------------------------------------------

// The job that prints the table when the array has ended; *id: of the array.
static dt_status submit_table(batch_job *j, const dt_cli_words *w, const char *id) {
    char *after = dt_xprintf("--dependency=afterany:%s", id), *name = dt_xprintf("%s-table", job_name(j));
    const char *const argv[] = {"sbatch", "--parsable", after, NULL};
    const bool in_image = w->options[IMAGE] != NULL;
    char *script = NULL, *output = NULL;
    // one of the two lines stays
    dt_cli_put(&j->values, "WORDS", in_image ? NULL : dt_cli_quote_config(w));
    dt_cli_put(&j->values, "IMAGE_WORDS", in_image ? dt_cli_quote_config(w) : NULL);
    dt_status st = put_directive(j, "TABLE", "run.name", name);
    if (st == DT_OK) st = dt_cli_fill_template(&script, "launch/slurm/table.sbatch", NULL, &j->values);
    if (st == DT_OK) st = dt_cli_feed(argv, script, &output);
    if (st == DT_OK) {
        output[strcspn(output, ";\n")] = 0;
        dt_info("job %s prints the table into %s-%s.out", output, name, output);
    } else {
        st = dt_fail_context(st, "the array is job %s, but its table is not queued", id);
    }
    free(output);
    free(script);
    free(name);
    free(after);
    return st;
}

// Submitted from inside a job, sbatch would hand its variables on to the other one: memory by another measure, the task
// of an array, the rank of a step. Where Slurm is, and how its PMIx works, stays.
static void leave_job(void) {
    static const char *const stay[] = {"SLURM_CONF=", "SLURM_PMIX"};
    extern char **environ;
    dt_launcher_leave(); // sbatch, too, would take a rank's variables along
    for (char **e = environ; getenv("SLURM_JOB_ID") && *e;) {
        bool stays = strncmp(*e, "SLURM_", 6) != 0 || strncmp(*e, "SLURM_JOB_ID=", 13) == 0;
        for (int i = 0; i < 2; i++) stays |= strncmp(*e, stay[i], strlen(stay[i])) == 0;
        char *name = dt_xprintf("%.*s", (int)strcspn(*e, "="), *e);
        if (stays)
            e++;
        else
            unsetenv(name); // the next one takes its place
        free(name);
    }
    unsetenv("SLURM_JOB_ID");
}

// The file stays: the job submits it again.
static dt_status submit_pbs(const batch_job *j, const char *script) {
    char *file = dt_xprintf("%s.pbs", j->pbs_name), *id = NULL;
    const char *const argv[] = {"qsub", file, NULL};
    dt_status st = dt_io_write_file(file, script, strlen(script));
    if (st == DT_OK) st = dt_cli_feed(argv, "", &id);
    if (st == DT_OK) {
        id[strcspn(id, "\n")] = 0; // "12.server"
        dt_info("job %s: messages in %s.o%.*s; watch: qstat %s; save and submit again: qsig -s USR1 %s; end: qdel %s",
                id, j->pbs_name, (int)strcspn(id, "."), id, id, id, id);
        printf("%s\n", id);
    }
    free(id);
    free(file);
    return st;
}

static dt_status submit_slurm(batch_job *j, const dt_cli_words *w, const char *script) {
    static const char *const argv[] = {"sbatch", "--parsable", NULL}; // --parsable: the id alone
    char *id = NULL;
    leave_job();
    dt_status st = dt_cli_feed(argv, script, &id);
    if (st == DT_OK) {
        id[strcspn(id, ";\n")] = 0; // "12;cluster"
        if (w->options[SWEEP])
            dt_info("job %s: %d runs, messages in %s-%s_*.out", id, j->sweep.n_runs, job_name(j), id);
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

static dt_status launch_batch_run(const dt_cli_words *w, bool pbs) {
    batch_job j = {.verb = pbs ? "launch pbs" : "launch slurm"};
    const char *template = pbs ? "launch/pbs/train.pbs" : "launch/slurm/train.sbatch";
    char *script = NULL;
    dt_status st = launch_batch_read_options(&j, w);
    if (st == DT_OK && pbs) j.pbs_name = dt_cli_task_name(j.config->run.name);
    if (st == DT_OK) st = read_stage(&j, w);
    if (st == DT_OK) st = find_program(&j, w);
    if (st == DT_OK) st = fill_values(&j, w);
    if (st == DT_OK) st = dt_cli_fill_template(&script, template, w->options[TEMPLATE], &j.values);
    if (st == DT_OK && w->options[PRINT])
        fputs(script, stdout);
    else if (st == DT_OK)
        st = pbs ? submit_pbs(&j, script) : submit_slurm(&j, w, script);
    free(script);
    free(j.pbs_name);
    dt_cli_values_fini(&j.values);
    if (w->options[SWEEP]) dt_sweep_fini(&j.sweep);
    dt_config_destroy(j.config);
    return st;
}

static dt_status launch_slurm_run(const dt_cli_words *w) {
    return launch_batch_run(w, false);
}

static dt_status launch_pbs_run(const dt_cli_words *w) {
    return launch_batch_run(w, true);
}

const dt_cli_command dt_cli_on_slurm = {
    .options = slurm_options,
    .text = "Submits a batch job and prints its id. Two minutes before the time limit the ranks save a checkpoint and "
            "the job is requeued. A job that lost a node is requeued, too; a job with run.stop_at is not. Options "
            "named as in sbatch are passed to sbatch; --sbatch passes any other.\n\n"
            "  dtrain launch slurm --nodes 4 --gpus-per-node 8 --time 4:00:00 configs/fusion.yaml\n"
            "  dtrain launch slurm --nodes 2 --ntasks-per-node 2 --cpus-per-task 16 configs/fusion.yaml\n"
            "  dtrain launch slurm --sweep --jobs 5 configs/fusion.yaml \\\n"
            "      data.split.folds=5 data.split.fold=0..4\n",
    .run = launch_slurm_run};

const dt_cli_command dt_cli_on_pbs = {
    .options = pbs_options,
    .text =
        "Writes a batch script to NAME.pbs, submits it with qsub and prints the job's id. Two minutes before the time "
        "limit the ranks save a checkpoint, and the job submits NAME.pbs again. After a lost rank it does the same if "
        "it has saved a checkpoint since its start. A job with run.stop_at is not submitted again. --ncpus, "
        "--mpiprocs, --ngpus and --mem are resources of each chunk of -l select; --pbs passes any other option.\n\n"
        "  dtrain launch pbs --nodes 4 --ncpus 32 --ngpus 8 --walltime 4:00:00 configs/fusion.yaml\n",
    .run = launch_pbs_run};
