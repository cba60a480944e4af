// wire.c: what verbs share: words and options, loading the config, and running a job on its ranks. The trainer reaches
// models/ and data/ through the callbacks that are set here.

#include "launch.h"

#include "launch/targets/target.h"

#include "base/core.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "base/watch.h"
#include "batch/targets.h"
#include "data/data.h"
#include "models/models.h"
#include "run/signals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

dt_status dt_cli_expect_words(const dt_cli_words *w, const char *verb, int least, int most, const char *expected) {
    if (w->n_words >= least && w->n_words <= most) return DT_OK;
    return dt_fail(DT_E_USAGE, "dtrain %s expects %s; see dtrain %s --help", verb, expected, verb);
}

dt_status dt_cli_option_int(const dt_cli_words *w, int option, int fallback, int *out) {
    *out = fallback; // without the option
    const char *text = w->options[option];
    if (!text) return DT_OK;
    char *end = NULL;
    errno = 0;
    long v = strtol(text, &end, 10);                            // base 10: "010" is ten
    if (*text == 0 || *end || errno || v < 1 || v > 1000000000) // 1e9 fits an int, products of two of them an int64_t
        return dt_fail(DT_E_USAGE, "%s: '%s' is not a whole number from 1", w->table[option].name, text);
    *out = (int)v;
    return DT_OK;
}

dt_status dt_cli_option_word(const dt_cli_words *w, int option, int fallback, int *out) {
    const dt_cli_option *o = &w->table[option];
    const char *word = w->options[option];
    *out = word ? dt_word_index(o->value, word) : fallback; // o->value is "a|b|c": the index is the enum's
    if (*out >= 0) return DT_OK;
    return dt_fail(DT_E_USAGE, "%s: '%s' is not one of %s", o->name, word, o->value);
}

char *dt_cli_override(const char *key, const char *text) {
    // JSON quotes what YAML would read otherwise: null, 1e3, a colon
    dt_json j; // a string of JSON is one of YAML
    dt_json_init(&j);
    dt_json_string(&j, NULL, text);
    char *word = dt_xprintf("%s=%s", key, j.data);
    dt_json_fini(&j);
    return word;
}

dt_status dt_cli_option_split(const dt_cli_words *w, int option, dt_split *out) {
    int i;
    DT_TRY(dt_cli_option_word(w, option, DT_SPLIT_TEST, &i));
    *out = (dt_split)i;
    return DT_OK;
}

void dt_cli_set_run(dt_config *c, const char *dir) {
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--; // "runs/a/" is runs/a; "/" stays
    char *run = dt_xprintf("%.*s", (int)n, dir);
    char *slash = strrchr(run, '/');
    dt_config_set_text(c, DT_KEY(run.name), slash ? slash + 1 : run); // also for a name without directory
    // the slash becomes the end of run.dir
    if (slash) *slash = '\0';
    dt_config_set_text(c, DT_KEY(run.dir), slash ? (*run ? run : "/") : "."); // a run at the root
    free(run);
}

// A run's directory instead of a config file: loads the resolved config of the run, and takes the run's name and
// place from the directory, which may have been moved.
static dt_status load_run_config(dt_config **out, const char *dir) {
    char *path = dt_xprintf("%s/config.yaml", dir), *log = dt_xprintf("%s/log", dir);
    dt_status st;
    if (dt_io_exists(path)) // the resolved config, which the run wrote
        st = dt_config_load(out, path, NULL, 0);
    else if (dt_io_exists(log))
        st = dt_fail(DT_E_USAGE, "%s: the run did not start: %s says why", dir, log);
    else
        st = dt_fail(DT_E_USAGE,
                     "%s: no run, which is a directory with a config.yaml; a data set goes into data.path of a config",
                     dir);
    // over run.name and run.dir in the file: the directory may have been moved or copied
    if (st == DT_OK) dt_cli_set_run(*out, dir);
    free(log);
    free(path);
    return st;
}

// not known before the memory is measured
int dt_cli_micro_batch(const dt_config *c) {
    return c->train.micro_batch.is_auto ? 1 : (int)dt_answer(c->train.micro_batch);
}

// Frees the config after an error.
static dt_status override(dt_config **c, const char *const *words, int n) { // over what the file says
    const dt_status st = dt_config_override(*c, words, (size_t)n);
    if (st == DT_OK) return DT_OK;
    dt_config_destroy(*c);
    *c = NULL; // no config that is half overridden
    return st;
}

dt_status dt_cli_load_config(dt_config **out, const char *verb, const dt_cli_words *w) {
    if (w->n_words < 1)
        return dt_fail(DT_E_USAGE, "dtrain %s expects a config file, or a run's directory; see dtrain %s --help", verb,
                       verb);
    // a second path would be ignored otherwise
    for (int i = 1; i < w->n_words; i++)
        if (!strchr(w->words[i], '='))
            return dt_fail(DT_E_USAGE, "'%s': after the config come overrides, key=value", w->words[i]);
    // overrides are part of the first load: keys that depend on each other are checked once
    if (!dt_io_is_dir(w->words[0])) return dt_config_load(out, w->words[0], w->words + 1, (size_t)w->n_words - 1);
    DT_TRY(load_run_config(out, w->words[0]));
    return override(out, w->words + 1, w->n_words - 1);
}

dt_status dt_cli_load_for_set(dt_config **out, const char *run, const char *set, dt_cli_which_records which,
                              const char *const *words, int n) {
    const bool is_run = dt_io_is_dir(run); // a config file may stand in place of a run
    DT_TRY(is_run ? load_run_config(out, run) : dt_config_load(out, run, words, (size_t)n));
    dt_config *c = *out; // heap, the caller's
    if (set) dt_config_set_text(c, DT_KEY(data.path), set);
    // what is looked at is not augmented, nor sampled from several sets
    dt_config_unset(c, DT_KEY(data.augment));
    dt_config_unset_section(c, "data.mix");
    if (which != LAUNCH_ALL_RECORDS) // a prediction goes past damaged records
        dt_config_set_word(c, DT_KEY(data.on_error), DT_ON_ERROR_skip);
    // another set: keys that choose and weigh training samples may name columns that it lacks
    if (which != LAUNCH_PART_OF_RUN) {
        const dt_key of_training[] = {DT_KEY(data.balance), DT_KEY(data.weight), DT_KEY(data.m_per_class),
                                      DT_KEY(eval.by), DT_KEY(eval.bootstrap_unit)};
        for (int i = 0; i < 5; i++) dt_config_unset(c, of_training[i]);
        dt_config_unset_section(c, "data.split");
        dt_config_set_text(c, DT_KEY(data.split.test), "1"); // all samples are in the test part
    }
    if (which == LAUNCH_ALL_RECORDS) dt_config_unset(c, DT_KEY(data.where)); // its columns may be missing
    return override(out, words, n); // after the changes above: the user may bring any back
}

// ---- callbacks -------------------------------------------------------------------------------------

static dt_status wire_open_data(void *ctx, const dt_config *c, const dt_batch_memory *memory, int workers,
                                const char *skip_log, const char *classes, dt_dataset **out) {
    const dt_cli_source *d = ctx;                      // of dt_cli_trainer_args
    dt_field_use uses[DT_MAX_FIELDS] = {DT_USE_VALUE}; // by field; the first is enough: the others are 0 too
    if (d->use) {                                      // another set than that of the training
        dt_field_info fields[DT_MAX_FIELDS];
        dt_targets targets;
        int n;
        // fields and targets by the config alone: nothing is opened yet
        DT_TRY(dt_data_describe_fields(c, classes, fields, &n));
        DT_TRY(dt_targets_read(&targets, c, fields, n, false));
        // inputs must be there, targets as `use` says
        for (int i = 0; i < targets.n; i++) uses[targets.items[i].index] = *d->use;
    }
    DT_TRY(dt_data_open_as(out, c, memory, workers, skip_log, classes, d->use ? uses : NULL));
    dt_data_set_processes(*out, d->comm->local_size); // loader threads are divided among the ranks of a host
    return DT_OK;
}

// the only place where models/ and data/ meet the trainer
dt_trainer_args dt_cli_trainer_args(dt_config *c, dt_cli_source *data) {
    return (dt_trainer_args){.config = c,
                             .comm = data->comm,
                             .version = DTRAIN_VERSION,
                             .results = stdout,
                             .build_graph = dt_model_graph,
                             .open_data = wire_open_data,
                             .ctx = data};
}

// ---- the comm's life -------------------------------------------------------------------------------

void dt_cli_print_error(dt_status st) {
    if (st == DT_OK || !*dt_error_message()) return; // "": printed already
    if (st == DT_E_PREEMPTED)                        // saved on a signal: exit code 75
        dt_warn("%s", dt_error_message());           // no failure: the job continues later
    else
        dt_error("%s", dt_error_message());
    dt_error_clear(); // once only
}

dt_status dt_cli_with_comm(dt_config *c, const dt_field_use *use,
                           dt_status (*body)(const dt_trainer_args *a, void *ctx), void *ctx) {
    dt_comm *comm = NULL;
    const bool is_auto = c->comm.timeout.is_auto; // auto: limits of their own for start and for a lost peer
    const double timeout_s = is_auto ? 0 : dt_answer(c->comm.timeout);
    dt_watch_start(&(dt_watch_limits){.io_s = c->run.io_timeout, // watches from here on: MPI_Init may hang
                                      .start_s = is_auto ? DT_START_TIMEOUT_S : timeout_s,
                                      .lost_s = is_auto ? DT_LOST_TIMEOUT_S : timeout_s});
    dt_signals_starting();
    dt_signals_install(); // where the verb has not done so already; without a grace a signal ends the process with 75
    if (dt_launcher_is_first_of_host()) dt_cli_remove_leftovers(); // to make room for all of them
    DT_TRY(dt_comm_create(&comm));
    dt_log_set_rank(comm->rank, comm->world_size); // from here on log lines name the rank
    dt_cli_source data = {comm, use};              // on the stack: outlives body
    dt_trainer_args args = dt_cli_trainer_args(c, &data);
    dt_status st = body(&args, ctx);
    const bool alike = st == DT_OK || comm->shared_failure; // every rank ends with the same status
    if (!alike && comm->world_size > 1) {
        // The other ranks do not know of the failure: one line, and the end of the job. If all ranks fail alike, all
        // come here; those other than rank 0 wait half a second, in which the launcher ends them.
        if (comm->rank == 0 || usleep(500 * 1000) == 0) dt_cli_print_error(st);
        comm->abort(comm, st); // does not return under MPI: other ranks wait in collectives
    }
    // rank 0 prints it before the last barrier: the launcher ends the job when the first rank exits
    if (st != DT_OK && comm->rank == 0) dt_cli_print_error(st);
    if (alike) {
        dt_status last = comm->finalize(comm); // a barrier: no rank leaves while others still send
        if (st == DT_OK)
            st = last; // its own failure, when there was none before
        else
            dt_error_clear(); // of finalize: the first failure counts
    }
    dt_comm_destroy(comm);
    dt_log_close();
    return st;
}
