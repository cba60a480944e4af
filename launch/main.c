// main.c: finds the verb that the command line names, runs it, and exits with its dt_status: the program's only
// exit(). The message is printed here, once; if every rank has it, rank 0 prints it.

#include "launch.h"

#include "base/core.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "base/os.h"
#include "base/text.h"
#include "base/url.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// NULL: no verb is close to it.
static const char *nearest_verb(const dt_cli_verb *table, const char *word) {
    const char *near = NULL;
    int least = DT_TEXT_FAR; // closeness of words that are no match
    for (const dt_cli_verb *v = table; v->name; v++) {
        int d = dt_text_closeness(v->name, strlen(v->name), word);
        if (d < least) least = d, near = v->name; // the first of equals
    }
    return near;
}

static dt_status set_option(dt_cli_words *w, int k, const dt_cli_option *o, char *value) {
    static const char ellipsis[] = " …"; // of several values, as in "PATH …"
    const size_t n = o->value ? strlen(o->value) : 0, n_end = sizeof ellipsis - 1;
    const bool many = n >= n_end && strcmp(o->value + n - n_end, ellipsis) == 0;
    if (w->options[k] && !many)
        return dt_fail(DT_E_USAGE, "%s is given twice%s%s%s%s", o->name, *value ? ": " : "", w->options[k],
                       *value ? " and " : "", value);
    // one line for each value
    char *joined = w->options[k] ? dt_xprintf("%s\n%s", w->options[k], value) : NULL;
    free(w->joined[k]); // what was joined before, of which the new text is a copy
    w->joined[k] = joined;
    w->options[k] = joined ? joined : value; // borrowed from argv, or joined
    return DT_OK;
}

static dt_status parse_option(const dt_cli_verb *v, const char *name, dt_cli_words *w, int argc, char **argv, int *i) {
    const dt_cli_option *o = v->command->options;
    for (int k = 0; o && o[k].name; k++) {
        size_t n = strlen(o[k].name);
        // also a prefix of a longer option: decided by the character behind
        if (strncmp(argv[*i], o[k].name, n) != 0) continue;
        if (argv[*i][n] == '=' && o[k].value) return set_option(w, k, &o[k], argv[*i] + n + 1); // --name=value
        if (argv[*i][n] != 0) continue;
        if (!o[k].value) return set_option(w, k, &o[k], ""); // "" tells a given flag from NULL
        if (*i + 1 >= argc)
            return dt_fail(DT_E_USAGE, "%s needs a value (%s); see dtrain %s --help", o[k].name, o[k].value, name);
        return set_option(w, k, &o[k], argv[++*i]); // *i: the value is taken
    }
    // key=value mistaken for an option, where the verb reads a config
    const char *keys =
        strstr(v->words, "key=value") ? "; keys of the config are given as key=value (dtrain keys lists them)" : "";
    return dt_fail(DT_E_USAGE, "dtrain %s has no option %s%s; see dtrain %s --help", name, argv[*i], keys, name);
}

static bool is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static dt_status run_verb(const dt_cli_verb *v, const char *name, int argc, char **argv);

// A verb within a verb, such as "ls SET" after "data".
static dt_status run_inner(const dt_cli_verb *outer, int argc, char **argv) {
    const dt_cli_verb *v = argc > 0 ? dt_cli_find_verb(outer->command->verbs, argv[0]) : NULL;
    char name[64], all[256] = ""; // all: names of the inner verbs
    if (argc > 0 && is_help(argv[0])) {
        dt_cli_print_help(outer, outer->name);
        return DT_OK;
    }
    if (v) { // inner verbs of an inner verb work alike
        snprintf(name, sizeof name, "%s %s", outer->name, v->name);
        return run_verb(v, name, argc - 1, argv + 1);
    }
    for (v = outer->command->verbs; v->name; v++) dt_text_list(all, sizeof all, v->name); // v: NULL until here
    const char *near = argc > 0 ? nearest_verb(outer->command->verbs, argv[0]) : NULL;
    if (near) return dt_fail(DT_E_USAGE, "dtrain %s has no '%s'; did you mean '%s'?", outer->name, argv[0], near);
    return dt_fail(DT_E_USAGE, "dtrain %s: expected %s; see dtrain %s --help", outer->name, all, outer->name);
}

static void drop_words(dt_cli_words *w) {
    for (int k = 0; k < LAUNCH_MAX_OPTIONS; k++) free(w->joined[k]);
    free(w->words);
}

static dt_status run_verb(const dt_cli_verb *v, const char *name, int argc, char **argv) {
    if (v->command->verbs) return run_inner(v, argc, argv);
    // argc + 1: calloc of 0 bytes may return NULL
    dt_cli_words w = {.words = calloc((size_t)argc + 1, sizeof(char *)), .table = v->command->options};
    dt_status st = DT_OK;
    for (int i = 0; i < argc && st == DT_OK; i++) {
        if (is_help(argv[i])) {
            dt_cli_print_help(v, name);
            drop_words(&w);
            return DT_OK;
        }
        if (argv[i][0] == '-' && argv[i][1]) // "-" alone is a word: stdin
            st = parse_option(v, name, &w, argc, argv, &i);
        else
            w.words[w.n_words++] = argv[i]; // pointers into argv
    }
    if (st == DT_OK) st = v->command->run(&w);
    // run borrows words and options until here
    drop_words(&w);
    return st;
}

// a word with a slash or a dot may be a config that is missing: the message then names the file
static bool looks_like_config(const char *word) {
    return strcmp(word, "-") == 0 || strchr(word, '/') || strchr(word, '.') || dt_io_exists(word);
}

static dt_status main_run(int argc, char **argv) {
    // URLs with credentials are refused wherever they stand, as command lines show in ps and in logs
    for (int i = 1; i < argc; i++) DT_TRY(dt_url_check(argv[i]));
    if (argc < 2) {
        dt_cli_print_usage(stderr);
        return dt_fail(DT_E_USAGE, "expected a config or a verb");
    }
    if (is_help(argv[1])) {
        dt_cli_print_usage(stdout);
        return DT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dtrain %s\n", DTRAIN_VERSION);
        return DT_OK;
    }
    // a verb is preferred to a file of its name: ./train reads the file
    const dt_cli_verb *v = dt_cli_find_verb(dt_cli_verbs, argv[1]);
    if (v) return run_verb(v, v->name, argc - 2, argv + 2);
    if (looks_like_config(argv[1]))
        return run_verb(dt_cli_find_verb(dt_cli_verbs, "train"), "train", argc - 1, argv + 1); // "train" is implied
    const char *near = nearest_verb(dt_cli_verbs, argv[1]);
    if (near) return dt_fail(DT_E_USAGE, "'%s' is neither a config file nor a verb; did you mean '%s'?", argv[1], near);
    return dt_fail(DT_E_USAGE, "'%s' is neither a config file nor a verb; dtrain --help lists the verbs", argv[1]);
}

static dt_status flush_output(void) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return DT_OK; // ferror: an earlier write failed, its errno is lost
    // a new write finds out the reason, such as ENOSPC
    if (errno == 0 && write(STDOUT_FILENO, "\n", 1) == 1) errno = EIO; // why an earlier one failed
    return dt_fail(DT_E_STORAGE, "standard output: not everything could be written: %s", strerror(errno));
}

// If a standard stream is closed, the next file that is opened gets its number, and messages would be written into a
// dataset or a checkpoint. So /dev/null takes the number; it is opened the other way round, so that use still fails.
static void keep_standard_streams(void) {
    // in the order 0, 1, 2: open takes the lowest free number
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
}

static void *json_memory(size_t n_bytes) {
    return dt_xrealloc(NULL, n_bytes); // ends the program where memory is out
}

// Out of memory, jansson would call its input damaged: its allocator ends the program instead. And under a limit on
// address space (ulimit -v) the 64 MiB that malloc reserves for each thread would be most of it: one arena serves all.
static void prepare_memory(void) {
    struct rlimit r;
    json_set_alloc_funcs(json_memory, free);
    if (getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
}

// A signal that ends the program, as by default, leaves no half-written file. Where threads compute and where something
// is to be saved, signals are taken otherwise (run/signals.h).
static void end_by_signal(int sig) {
    dt_io_remove_unfinished(); // only calls that a handler may make
    signal(sig, SIG_DFL);      // raise then ends the process with the signal, as a shell expects
    raise(sig);
}

static void prepare_signals(void) {
    static const int ENDS[] = {SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++)                      // what is ignored (nohup) stays so
        if (signal(ENDS[i], end_by_signal) == SIG_IGN) signal(ENDS[i], SIG_IGN); // SIG_IGN was there before: put back
    signal(SIGXFSZ, SIG_IGN); // writing beyond `ulimit -f` then fails, which is reported
}

int main(int argc, char **argv) {
    // before any thread and any JSON
    prepare_memory();
    // before any file is opened
    keep_standard_streams();
    prepare_signals();
    dt_status st = dt_failpoint_set(getenv("DTRAIN_FAILPOINT")); // tests inject failures; unset: DT_OK
    if (st == DT_OK) st = main_run(argc, argv);
    // Under a launcher a wrong command line fails on all ranks alike. Ranks other than 0 wait half a second, so that
    // rank 0 prints the message and the launcher ends them. A rank that fails alone still gets to print its own.
    if (st != DT_OK && *dt_error_message() && dt_launcher_rank() > 0) usleep(500 * 1000);
    dt_cli_print_error(st);          // once: dt_cli_print_error clears the message
    dt_status lost = flush_output(); // after the message: both end up in order
    dt_cli_print_error(lost);
    // a list of bad data is what was asked for, so losing it counts; other failures matter more than a lost line
    if (st == DT_OK || st == DT_E_DATA) st = lost != DT_OK ? lost : st;
    exit(st);
}

// ---- verbs --------------------------------------------------------------------------------------------------------

// The tables of verbs, as the .def files list them.

#define VERB(id, words, summary) extern const dt_cli_command dt_cli_##id;
#include "cmds.def"
#undef VERB
#define VERB(id, words, summary) extern const dt_cli_command dt_cli_data_##id;
#include "launch/data/data_cmds.def"
#undef VERB
#define VERB(id, words, summary) extern const dt_cli_command dt_cli_on_##id;
#include "launch/targets/launch_targets.def"
#undef VERB
extern const dt_cli_command dt_cli_comm_bench;

const dt_cli_verb dt_cli_verbs[] = {
#define VERB(id, words, summary) {#id, words, summary, &dt_cli_##id},
#include "cmds.def"
#undef VERB
    {NULL}};

static const dt_cli_verb data_verbs[] = {
#define VERB(id, words, summary) {#id, words, summary, &dt_cli_data_##id},
#include "launch/data/data_cmds.def"
#undef VERB
    {NULL}};

static const dt_cli_verb targets[] = {
#define VERB(id, words, summary) {#id, words, summary, &dt_cli_on_##id},
#include "launch/targets/launch_targets.def"
#undef VERB
    {NULL}};

static const dt_cli_verb comm_verbs[] = {
    {"bench", "[--size MIB]", "measure all-reduce and find the slowest link", &dt_cli_comm_bench}, {NULL}};

const dt_cli_verb *dt_cli_find_verb(const dt_cli_verb *table, const char *name) {
    for (const dt_cli_verb *v = table; v->name; v++)
        if (strcmp(v->name, name) == 0) return v;
    return NULL;
}

const dt_cli_command dt_cli_data = {
    .verbs = data_verbs,
    .text = "SET is a value of data.path: an LMDB directory, shards or a folder. Several SETs form one set. Every verb "
            "has --help.\n"};

const dt_cli_command dt_cli_launch = {
    .verbs = targets,
    .text =
        "Checks the config as dtrain check does, then starts or submits the job. --print prints the command or the job "
        "and starts nothing. Every target has --help.\n"};

const dt_cli_command dt_cli_comm = {.verbs = comm_verbs, .text = "Every verb has --help.\n"};
