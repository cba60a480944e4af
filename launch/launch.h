// launch.h: how a verb plugs into the program, and what verbs share.
//
// cmds.def lists the verbs; each has launch/cmd_<id>.c that defines `const dt_cli_command
// dt_cli_<id>`: its options (from which both the parser and --help come), an example, and run().
// A verb may have verbs of its own: data_cmds.def lists those of dtrain data, launch_targets.def those of dtrain
// launch. run() returns a status with a message; only main.c prints it and exits.
#ifndef DT_LAUNCH_LAUNCH_H
#define DT_LAUNCH_LAUNCH_H

#include "base/core.h"
#include "eval/evaluate.h"
#include "train/trainer.h"

enum { LAUNCH_MAX_OPTIONS = 40 };

typedef struct dt_cli_option {
    const char *name; // "--json"
    // what follows it ("latest|best|STEP"), NULL for a flag. Where it ends with " …" it may be given several
    // times: the value has a line for each
    const char *value;
    const char *help;
} dt_cli_option;

// The option of verbs that take a checkpoint of a run.
#define LAUNCH_WHICH                                                                                                   \
    { "--which", "best|latest|STEP", "the checkpoint (default: best, or latest where there is no best)" }

// A parsed command line.
typedef struct dt_cli_words {
    const char **words; // all but the verb and the options
    int n_words;
    const dt_cli_option *table;              // the verb's options
    const char *options[LAUNCH_MAX_OPTIONS]; // by index in the table; NULL: not given, flags: ""
    char *joined[LAUNCH_MAX_OPTIONS];        // heap: the same of options that were given again
} dt_cli_words;

struct dt_cli_verb;
typedef struct dt_cli_command {
    const dt_cli_option *options; // ended by a NULL name; NULL: none
    const char *text;             // what it does, with an example
    dt_status (*run)(const dt_cli_words *w);
    const struct dt_cli_verb *verbs; // instead of run: its first word is one of these (NULL name ends)
} dt_cli_command;

// A line of a table of verbs.
typedef struct dt_cli_verb {
    const char *name, *words, *summary;
    const dt_cli_command *command;
} dt_cli_verb;

extern const dt_cli_verb dt_cli_verbs[];                                         // of cmds.def, ended by a NULL name
const dt_cli_verb *dt_cli_find_verb(const dt_cli_verb *table, const char *name); // or NULL
// Text that begins at column `at`. Lines longer than 100 columns go on below at column `indent`. Lines that begin with a
// blank are examples, to be copied: they stay as they are.
void dt_cli_print_wrapped(FILE *out, const char *text, int at, int indent);
void dt_cli_print_usage(FILE *out);
// `name` includes the verbs before it.
void dt_cli_print_help(const dt_cli_verb *v, const char *name);

// "key=value" that gives a key just this text, whatever is in it; heap.
char *dt_cli_override(const char *key, const char *text);
// Sets run.dir and run.name to a run's directory.
void dt_cli_set_run(dt_config *c, const char *dir);
// "CONFIG.yaml [key=value …]" in w->words -> a loaded config. A directory means DIR/config.yaml.
dt_status dt_cli_load_config(dt_config **out, const char *verb, const dt_cli_words *w);
// What dtrain check does: data, graph, plan and memory, reported to `out`. c: its autos are replaced by the answers.
dt_status dt_cli_check_config(dt_config *c, const dt_check_prints *prints, FILE *out, dt_run_length *length);
// The config of a run to look at data after training, without data.augment and data.mix: another set, or NULL for the
// run's own. The n words, overrides of the user, have the last say.
typedef enum dt_cli_which_records {
    LAUNCH_PART_OF_RUN,  // as the run chooses and divides them
    LAUNCH_WHERE_OF_RUN, // all samples are in the test part; the run's data.where chooses
    LAUNCH_ALL_RECORDS,  // all: keys that choose from the run's own data mean nothing there
} dt_cli_which_records;
dt_status dt_cli_load_for_set(dt_config **out, const char *run, const char *set, dt_cli_which_records which,
                              const char *const *words, int n);
// "train", "val" or "test", which is the default.
dt_status dt_cli_option_split(const dt_cli_words *w, int option, dt_split *out);
// train.micro_batch, 1 where it is auto: for tools that show batches without a network, and for the most ranks that may
// share a step.
int dt_cli_micro_batch(const dt_config *c);
// How the data of a run are opened. use: of all that is predicted, for data that need not be those of the training
// (dt_cli_load_for_set); NULL: as for training.
typedef struct dt_cli_source {
    dt_comm *comm;
    const dt_field_use *use;
} dt_cli_source;
// Callbacks that let the trainer reach models/ and data/. `data` is borrowed.
dt_trainer_args dt_cli_trainer_args(dt_config *c, dt_cli_source *data);
// Creates the comm, runs `body`, tells the other ranks of errors, and finalizes the comm.
dt_status dt_cli_with_comm(dt_config *c, const dt_field_use *use,
                           dt_status (*body)(const dt_trainer_args *a, void *ctx), void *ctx);
// Prints the message of `st`, unless it was printed before, and clears it.
void dt_cli_print_error(dt_status st);
// Fails unless there are least..most words; `expected` says which.
dt_status dt_cli_expect_words(const dt_cli_words *w, const char *verb, int least, int most, const char *expected);
// A positive integer option, or `fallback` when it is not given.
dt_status dt_cli_option_int(const dt_cli_words *w, int option, int fallback, int *out);
// Which word of the option's value ("pad|drop") was given, from 0, or `fallback`.
dt_status dt_cli_option_word(const dt_cli_words *w, int option, int fallback, int *out);

#endif
