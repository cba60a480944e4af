// main.c: from words to a verb to an exit code. The only exit() of the program: a dt_status is the
// exit code, and its message is printed here, once, unless every rank has it; then by rank 0.

#include "launch.h"

#include "base/io.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERB(id, words, summary) extern const launch_command launch_##id;
#include "cmds.def"
#undef VERB

typedef struct verb {
    const char *name, *words, *summary;
    const launch_command *command;
} verb;

static const verb verbs[] = {
#define VERB(id, words, summary) {#id, words, summary, &launch_##id},
#include "cmds.def"
#undef VERB
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static const verb *find_verb(const char *name) {
    for (int i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    return NULL;
}

static void print_usage(FILE *out) {
    fprintf(out, "dtrain %s: trains vision, audio and multi-modal networks from one YAML file\n\n",
            DTRAIN_VERSION);
    fprintf(out, "  mpirun -np 2 dtrain configs/fusion.yaml train.epochs=8\n\n");
    for (int i = 0; i < N_VERBS; i++)
        fprintf(out, "  dtrain %-5s %-32s %s\n", verbs[i].name, verbs[i].words, verbs[i].summary);
    fprintf(out, "\nEvery verb has --help. Exit codes: 0 done, 2 usage or config, 3 data, "
                 "4 checkpoint, 5 storage,\n6 NaN, 70 internal, 75 stopped after saving (run "
                 "again), 240 lost peer (run again).\n");
}

static void print_help(const verb *v) {
    printf("dtrain %s %s\n%s\n\n%s", v->name, v->words, v->summary, v->command->text);
    const launch_option *o = v->command->options;
    if (o) printf("\nOptions:\n");
    for (; o && o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-28s %s\n", left, o->help);
    }
}

static dt_status parse_option(const verb *v, launch_words *w, int argc, char **argv, int *i) {
    const launch_option *o = v->command->options;
    for (int k = 0; o && o[k].name; k++) {
        size_t n = strlen(o[k].name);
        if (strncmp(argv[*i], o[k].name, n) != 0) continue;
        if (argv[*i][n] == '=' && o[k].value) {
            w->options[k] = argv[*i] + n + 1;
            return DT_OK;
        }
        if (argv[*i][n] != 0) continue;
        if (!o[k].value) {
            w->options[k] = "";
            return DT_OK;
        }
        if (*i + 1 >= argc)
            return dt_fail(DT_E_USAGE, "%s needs a value (%s); see dtrain %s --help", o[k].name,
                           o[k].value, v->name);
        w->options[k] = argv[++*i];
        return DT_OK;
    }
    return dt_fail(DT_E_USAGE, "dtrain %s has no option %s; see dtrain %s --help", v->name,
                   argv[*i], v->name);
}

static dt_status run_verb(const verb *v, int argc, char **argv) {
    launch_words w = {.words = calloc((size_t)argc + 1, sizeof(char *))};
    dt_status st = DT_OK;
    for (int i = 0; i < argc && st == DT_OK; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(v);
            free(w.words);
            return DT_OK;
        }
        if (strncmp(argv[i], "--", 2) == 0)
            st = parse_option(v, &w, argc, argv, &i);
        else
            w.words[w.n_words++] = argv[i];
    }
    if (st == DT_OK) st = v->command->run(&w);
    free(w.words);
    return st;
}

static bool looks_like_config(const char *word) {
    return strcmp(word, "-") == 0 || strchr(word, '/') || strchr(word, '.') || dt_io_exists(word);
}

static dt_status run(int argc, char **argv) {
    if (argc < 2) {
        print_usage(stderr);
        return dt_fail(DT_E_USAGE, "what shall I do? Give a config or a verb");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return DT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dtrain %s\n", DTRAIN_VERSION);
        return DT_OK;
    }
    const verb *v = find_verb(argv[1]);
    if (v) return run_verb(v, argc - 2, argv + 2);
    if (looks_like_config(argv[1])) return run_verb(find_verb("train"), argc - 1, argv + 1);
    return dt_fail(DT_E_USAGE,
                   "'%s' is neither a config file nor a verb; dtrain --help lists the "
                   "verbs",
                   argv[1]);
}

// Started by a launcher, all ranks fail over the same command line in the same way. The others give
// rank 0 the time to say it, and the launcher the time to end them; a rank that fails alone is heard.
static void let_rank_0_speak(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    const char *rank = NULL;
    for (size_t i = 0; !rank && i < sizeof names / sizeof *names; i++) rank = getenv(names[i]);
    if (rank && atoi(rank) > 0) usleep(500 * 1000);
}

int main(int argc, char **argv) {
    dt_status st = dt_failpoint_set(getenv("DTRAIN_FAILPOINT"));
    if (st == DT_OK) st = run(argc, argv);
    if (st != DT_OK && *dt_error_message()) let_rank_0_speak();
    launch_report(st);
    if (fflush(stdout) != 0 && st == DT_OK) st = DT_E_STORAGE;
    exit(st);
}
