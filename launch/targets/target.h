// target.h: what the targets of dtrain launch share.
#ifndef DT_LAUNCH_TARGETS_TARGET_H
#define DT_LAUNCH_TARGETS_TARGET_H

#include "base/core.h"
#include "base/os.h"
#include "config/config.h"
#include "data/data.h"
#include "launch/launch.h"

#include <signal.h>
#include <sys/types.h>

// ---- target -------------------------------------------------------------------------------------------------------

// What the targets of `dtrain launch` share: the config, its checks before anything starts, and templates.
//
// A template is a plain file of the repository (launch/slurm, launch/cloud, k8s), to be copied and edited by hand, too.
// @NAME@ stands for a value, which is put there as it is: whoever gives it has quoted it for the place, on one line
// (dt_cli_quote for bash, dt_cli_yaml for YAML). A line with a value that is not given (NULL) is left out. A line
// break in a value begins another line like the first: each gets what is in front of the placeholder. @@ is not
// special; a placeholder without a value in the list is an error that names file and line.

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
// The name of a run as that of a SkyPilot task or a PBS job: letters, digits and single '-', a letter first. Heap.
char *dt_cli_task_name(const char *name);
// argv as a line for the shell that sshd starts on a host, which need not be bash. Heap.
char *dt_cli_quote_remote(const char *const *argv);
// All of `words` (NULL ends) as a shell's line. Heap.
char *dt_cli_quote_words(const char *const *words);
// The words of `w`: config and overrides. Heap.
char *dt_cli_quote_config(const dt_cli_words *w);

// ---- process ------------------------------------------------------------------------------------------------------

// Other programs, run for their answer. Their words go to them as they are: no shell is in between.
//
// What a program writes is kept in memory, so it never waits for us. One with a limit is ended by it, and so is all
// that it started (it has a process group of its own); one without stays in ours, where it may ask at the terminal.

enum { LAUNCH_REACH_S = 20 }; // for an answer of a host; one that takes longer is lost

typedef struct dt_cli_stream {
    int fd; // of a pipe; -1: at its end
    char *text;
    size_t n;
} dt_cli_stream;

typedef struct dt_cli_process {
    pid_t pid;              // 0: none, or ended
    int code;               // once it has ended: its exit code, 128 + number for a signal
    double end_s;           // when it is ended; INFINITY: never
    dt_cli_stream out, err; // `text` is a string once it has ended, never NULL
} dt_cli_process;

// Starts argv (ended by NULL, looked for in PATH) with the bytes of the descriptor `in` (-1: none) on its stdin.
// merged: what it writes to stderr is in `out` too, and `err` stays empty. limit_s: INFINITY for none. 0, or an
// errno.
int dt_cli_process_start(dt_cli_process *p, const char *const *argv, int in, bool merged, double limit_s);
// Reads what the n programs write, so long or until all have ended (true). Those that never started have ended.
bool dt_cli_processes_wait(dt_cli_process *const *p, int n, double seconds);
// Runs to its end. 0, or an errno.
int dt_cli_process_run(dt_cli_process *p, const char *const *argv, int in, bool merged, double limit_s);
// Ends it if it still runs, and frees what it has.
void dt_cli_process_fini(dt_cli_process *p);

// ---- job ----------------------------------------------------------------------------------------------------------

// Dtrain as child processes of this one, each on one rank or under mpirun.
//
// A job is out of the terminal's foreground, so Ctrl-C reaches this program alone. It passes SIGINT, SIGTERM, SIGHUP
// and SIGUSR1 on as SIGUSR1, which mpirun hands to the ranks: they save and exit 75. A second SIGINT, two seconds or
// more after the first, ends the jobs without saving. If this program dies, its jobs get SIGUSR1 as well.

enum { LAUNCH_MAX_JOBS = 64 };

typedef struct dt_cli_jobs {
    int n_slots;                 // how many run at a time; each gets its share of the cores
    int n_ranks, n_gpus;         // of a job; of all (0: jobs use none, or choose)
    pid_t pids[LAUNCH_MAX_JOBS]; // by slot; 0: free
    int run[LAUNCH_MAX_JOBS];    // the caller's
    bool asked;                  // a signal asked for the end: start nothing more
    double asked_s;
    sigset_t awaited, before;
} dt_cli_jobs;

// Until dt_cli_jobs_fini the signals are taken by dt_cli_jobs_wait.
void dt_cli_jobs_init(dt_cli_jobs *j, int n_slots);
void dt_cli_jobs_fini(dt_cli_jobs *j);
// `dtrain words…` (ended by NULL) on n_ranks ranks of this machine: with mpirun in front where there are several. The
// array is the caller's to free, its words are borrowed.
const char **dt_cli_rank_words(int n_ranks, const char *const *words);
// Whose mpirun that is: of the only MPI that this build has a module for, else of the one behind the name.
dt_mpi dt_cli_mpi(void);
// The path of this program; borrowed.
const char *dt_cli_program(void);
// Starts a command (argv ends with NULL) in a free slot, with the descriptors out and err as stdout and stderr.
// *slot: its slot.
dt_status dt_cli_jobs_start(dt_cli_jobs *j, const char *const *argv, int out, int err, int *slot);
// Waits until a job ends. *slot: which one, -1 if none runs; *code: its exit code, 128 + number for a signal.
void dt_cli_jobs_wait(dt_cli_jobs *j, int *slot, int *code);
// dt_cli_jobs_wait, at most so long: false if none ended.
bool dt_cli_jobs_wait_for(dt_cli_jobs *j, double seconds, int *slot, int *code);
// Asks all jobs to save and end, as a signal would, but not this program.
void dt_cli_jobs_save(const dt_cli_jobs *j);
// Ends all jobs without saving: mpirun and what it started.
void dt_cli_jobs_end(const dt_cli_jobs *j, int signal);
// Waits so long; false: a signal asked for the end. No job runs.
bool dt_cli_jobs_pause(dt_cli_jobs *j, double seconds);
// What Open MPI reads of the environment, for programs that are started from now on. Its second from TERM to KILL stays
// as it is: TERM reaches us and not mpirun, and a longer one delays the end of every job that does not end with 0.
void dt_cli_set_mpi_environment(void);

// ---- supervise ----------------------------------------------------------------------------------------------------

// A job on its ranks, watched until it ends, and started again from its newest checkpoint where a rank, a
// host or a process was lost.
//
// What the job writes into a pipe goes through one of ours: Open MPI's mpirun crashes where `| head -1` closes it.
// Signals are passed on to the ranks, so the exit code is the ranks': 75 after a signal.
//
// mpirun may wait in silence for a quarter of an hour where a link to a host loses long packets, and may lock up. So the
// ranks are looked for where rank 0 is to run: none after a minute is a warning, none after five minutes ends the start.
// After a signal mpirun is ended when there is none any more.
//
// Started again, at most `restarts` times, is what dt_cli_exit_of does not call done or final. Not what a signal or
// run.stop_at asked for. Two such ends in a row at the same step with the same code are a bug, not bad luck.

typedef struct dt_cli_supervised {
    const dt_config *config;
    int restarts;
    // The command (heap array, freed here) of the first start, or of another one: then it may wait, with
    // dt_cli_jobs_pause, for what was lost.
    dt_status (*command)(void *ctx, dt_cli_jobs *jobs, bool again, const char ***argv);
    // Runs argv to its end where rank 0 ran, on whose disk the run may lie. 0, or an errno. NULL: this machine.
    int (*reach)(void *ctx, dt_cli_process *p, const char *const *argv);
    // Before the start is given up, and ahead of its warning: what may be wrong with the hosts (heap), or NULL. May be NULL.
    char *(*explain)(void *ctx);
    // Looked at every few seconds while the job runs: whether it is to save and start again, with more hosts. NULL:
    // never.
    bool (*watch)(void *ctx);
    void *ctx;
} dt_cli_supervised;

// What an exit code of a job says about another start: one table, which the templates of targets get as text. What a
// target makes of it (Slurm only with a checkpoint since the start, a cloud's own limits) is the target's.
typedef enum dt_cli_exit {
    LAUNCH_DONE,   // 0
    LAUNCH_FINAL,  // it would end alike: config, data, checkpoints, disks, numbers
    LAUNCH_SAVED,  // a signal or run.stop_at ended it, after saving
    LAUNCH_LOST,   // a rank was lost, or hung
    LAUNCH_KILLED, // a rank was killed: by SIGKILL, or srun's code where Slurm saw the kernel do it
    LAUNCH_EARLY,  // the signal that asks for the end came before it could be taken
    LAUNCH_OTHER   // may be another one next time: a crash, an internal error, mpirun's own codes
} dt_cli_exit;
dt_cli_exit dt_cli_exit_of(int code);
// The codes of `first` to `last`, which are not LAUNCH_OTHER, in order: "75, 240" for ", ". Heap.
char *dt_cli_exit_codes(dt_cli_exit first, dt_cli_exit last, const char *between);

// The status is the job's exit code, without a message where the job has said why.
dt_status dt_cli_supervise(const dt_cli_supervised *s);
// Removes what killed jobs of this user left on this machine: segments in /dev/shm and folders of sessions of Open MPI
// whose processes are gone. Each host's first rank does it too, ahead of MPI.
void dt_cli_remove_leftovers(void);

#endif
