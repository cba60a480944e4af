// target.h: what the targets of `dtrain launch` share: the config, its checks before anything starts, and templates.
//
// A template is a plain file of the repository (launch/slurm, launch/cloud, k8s), to be copied and edited by hand, too.
// @NAME@ stands for a value, which is put there as it is: whoever gives it has quoted it for the place, on one line
// (dt_cli_quote for bash, dt_cli_yaml for YAML). A line with a value that is not given (NULL) is left out. A line
// break in a value begins another line like the first: each gets what is in front of the placeholder. @@ is not
// special; a placeholder without a value in the list is an error that names file and line.
#ifndef DT_LAUNCH_TARGET_H
#define DT_LAUNCH_TARGET_H

#include "launch/launch.h"

#include "config/config.h"
#include "data/data.h"

enum { LAUNCH_MAX_VALUES = 32 };
typedef struct dt_cli_values {
    struct {
        const char *name;
        char *text; // heap; NULL: lines with it are left out
    } v[LAUNCH_MAX_VALUES];
    int n;
} dt_cli_values;
// `text` (heap, or NULL) is freed with the values.
void dt_cli_put(dt_cli_values *values, const char *name, char *text);
// A copy of `text`, or of NULL.
void dt_cli_put_copy(dt_cli_values *values, const char *name, const char *text);
// dt_cli_yaml of `text`, or NULL.
dt_status dt_cli_put_yaml(dt_cli_values *values, const char *name, const char *what, const char *text);
// The text of a value that was put.
const char *dt_cli_value(const dt_cli_values *values, const char *name);
void dt_cli_values_fini(dt_cli_values *values);

// Loads the config of `w`, for a verb that starts ranks itself. *out is as given, its autos unanswered.
dt_status dt_cli_target_config(dt_config **out, const char *target, const dt_cli_words *w);
// The number that `option` gives of ranks: by default, and at most, one for each of n_gpus; 1 without GPUs. `whose` GPUs
// they are, for the error: "a node".
dt_status dt_cli_option_ranks(const dt_cli_words *w, int option, const char *whose, int n_gpus, int *n_ranks);
// DT_E_USAGE where a step has fewer micro-batches than n_ranks.
dt_status dt_cli_target_ranks(const dt_config *c, int n_ranks);
// What dtrain check finds: data, network, memory. elsewhere: the job runs on other machines, so a GPU that this one
// lacks is no error: memory and plan are then those of a CPU. n_threads: of a rank there, which has no GPU; 0: not known.
dt_status dt_cli_target_check(const dt_config *c, bool elsewhere, int n_threads, dt_run_length *length);
// The path of data.path's only set, borrowed; NULL: there are several, or it has a `name`.
const char *dt_cli_only_set(const dt_config *c);
// The files of data.path that are there, sets that are folders of LMDB as their data.mdb; the caller frees them.
void dt_cli_list_data(const dt_config *c, dt_names *out);
// GPUs of this machine that the config would use; 0: it trains on CPUs, or there is none.
int dt_cli_count_gpus(const dt_config *c);
// The words behind `dtrain`: train CONFIG key=value …, ended by NULL. Heap; the words are borrowed.
const char **dt_cli_train_words(const dt_cli_words *w);
// For --print: the command as a line of a shell; by_mpi: with the environment that mpirun needs.
void dt_cli_print_command(const char *const *argv, bool by_mpi);

// Fills the template `name` ("launch/slurm/train.sbatch"), or the user's own file where `own` is given. Heap.
dt_status dt_cli_fill_template(char **out, const char *name, const char *own, const dt_cli_values *values);
// Where the template is: beside the program, where a build has links, or below its share/dtrain. Heap.
dt_status dt_cli_find_template(char **out, const char *name);

// Runs a command (argv ends with NULL) with `input` on its stdin. *output: its stdout; heap, also on errors. A
// command that is missing or fails is DT_E_USAGE, with its messages as one line.
dt_status dt_cli_feed(const char *const *argv, const char *input, char **output);

// `text` as one word for bash, on one line: in quotes where it needs them. Heap.
char *dt_cli_quote(const char *text);
// `text` as a string in a value of YAML, on one line: in quotes where it needs them. Heap. `what` names it in the
// error.
dt_status dt_cli_yaml(char **out, const char *what, const char *text);
// argv as a line for the shell that sshd starts on a host, which need not be bash. Heap.
char *dt_cli_quote_remote(const char *const *argv);
// All of `words` (NULL ends) as a shell's line. Heap.
char *dt_cli_quote_words(const char *const *words);
// The words of `w`: config and overrides. Heap.
char *dt_cli_quote_config(const dt_cli_words *w);

#endif
