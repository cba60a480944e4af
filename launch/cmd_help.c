// cmd_help.c: what the tables of verbs and keys say, for people (--help, a man page) and for shells (completion).

#include "launch.h"

#include "config/config.h"

#include <stdio.h>
#include <string.h>

// printf counts bytes: adds those that letters of several bytes have beyond their one column.
static int width_of(int columns, const char *text) {
    for (const char *p = text; *p; p++) columns += (*p & 0xc0) == 0x80;
    return columns;
}

static void print_verbs(FILE *out, const char *before, const dt_cli_verb *table) {
    for (const dt_cli_verb *v = table; v->name; v++)
        fprintf(out, "  dtrain %s%-*s %-*s %s\n", before, 6, v->name, width_of(32, v->words), v->words, v->summary);
}

void dt_cli_print_usage(FILE *out) {
    fprintf(out, "dtrain %s: trains vision, audio and multi-modal networks from one YAML file\n\n", DTRAIN_VERSION);
    fprintf(out, "  dtrain launch local -n 2 configs/fusion.yaml train.epochs=8\n\n");
    print_verbs(out, "", dt_cli_verbs);
    fprintf(out, "\nEvery verb has --help. Exit codes: 0 done, 2 usage or config, 3 data, "
                 "4 checkpoint, 5 storage,\n6 NaN, 70 internal, 75 stopped after saving (run "
                 "again), 240 lost peer (run again).\n");
}

void dt_cli_print_help(const dt_cli_verb *v, const char *name) {
    printf("dtrain %s%s%s\n%s\n\n", name, *v->words ? " " : "", v->words, v->summary);
    if (v->command->verbs) {
        char before[64];
        snprintf(before, sizeof before, "%s ", name);
        print_verbs(stdout, before, v->command->verbs);
        printf("\n");
    }
    printf("%s", v->command->text);
    const dt_cli_option *o = v->command->options;
    if (o) printf("\nOptions:\n");
    for (; o && o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("  %-*s %s\n", width_of(28, left), left, o->help);
    }
}

// ---- completion ------------------------------------------------------------------------------------

static bool takes_keys(const dt_cli_verb *v) {
    return strstr(v->words, "key=value") || strstr(v->words, "key=a,b,c");
}

// Options, inner verbs and "key=" for each key, separated by blanks.
static void print_candidates(const dt_cli_verb *v) {
    const dt_cli_option *o = v->command->options;
    printf("--help");
    for (; o && o->name; o++) printf(" %s", o->name);
    for (const dt_cli_verb *inner = v->command->verbs; inner && inner->name; inner++) printf(" %s", inner->name);
    size_t n = 0;
    const dt_config_key *keys = dt_config_keys(&n);
    for (size_t i = 0; takes_keys(v) && i < n; i++)
        if (!strchr(keys[i].path, '*')) printf(" %s=", keys[i].path);
}

static void print_names(void) {
    for (const dt_cli_verb *v = dt_cli_verbs; v->name; v++) printf("%s%s", v == dt_cli_verbs ? "" : " ", v->name);
}

// case "$1" in train) list="…";; … esac, which bash and zsh read alike.
static void print_cases(const char *verb, const char *inner) {
    printf("    case \"%s %s\" in\n", verb, inner);
    for (const dt_cli_verb *v = dt_cli_verbs; v->name; v++) {
        for (const dt_cli_verb *i = v->command->verbs; i && i->name; i++) {
            printf("    \"%s %s\") list=\"", v->name, i->name);
            print_candidates(i);
            printf("\" ;;\n");
        }
        printf("    \"%s \"*) list=\"", v->name);
        print_candidates(v);
        printf("\" ;;\n");
    }
    printf("    esac\n");
}

static void complete_bash(void) {
    printf("# bash completion of dtrain\n_dtrain() {\n    local list=\"");
    print_names();
    printf("\"\n    [ \"$COMP_CWORD\" = 1 ] ||\n");
    print_cases("${COMP_WORDS[1]}", "${COMP_WORDS[2]}");
    printf("    COMPREPLY=($(compgen -W \"$list\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
           "    [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null || true\n"
           "}\ncomplete -o default -F _dtrain dtrain\n");
}

static void complete_zsh(void) {
    printf("#compdef dtrain\nlocal list=\"");
    print_names();
    printf("\"\nif (( CURRENT > 2 )); then\n");
    print_cases("$words[2]", "$words[3]");
    printf("fi\ncompadd -- ${${=list}:#*=}\ncompadd -S '' -- ${(M)${=list}:#*=}\n_files\n");
}

static void fish_line(const char *condition, const char *verb, const char *flag, const char *word, const char *help) {
    printf("complete -c dtrain -n '%s%s' %s %s -d '", condition, verb, flag, word);
    for (; *help; help++) printf(*help == '\'' || *help == '\\' ? "\\%c" : "%c", *help);
    printf("'\n");
}

// "--top" or "-o".
static void fish_option(const char *seen, const char *verb, const dt_cli_option *o) {
    const bool is_long = o->name[1] == '-';
    fish_line(seen, verb,
              is_long    ? o->value ? "-r -l" : "-l"
              : o->value ? "-r -s"
                         : "-s",
              o->name + (is_long ? 2 : 1), o->help);
}

static void fish_options(const char *seen, const dt_cli_verb *v) {
    const dt_cli_option *o = v->command->options;
    for (; o && o->name; o++) fish_option(seen, v->name, o);
    for (const dt_cli_verb *i = v->command->verbs; i && i->name; i++)
        fish_line(seen, v->name, "-a", i->name, i->summary);
    size_t n = 0;
    const dt_config_key *keys = dt_config_keys(&n);
    for (size_t i = 0; takes_keys(v) && i < n; i++) {
        char word[128];
        snprintf(word, sizeof word, "%s=", keys[i].path);
        if (!strchr(word, '*')) fish_line(seen, v->name, "-a", word, keys[i].help);
    }
}

static void complete_fish(void) {
    for (const dt_cli_verb *v = dt_cli_verbs; v->name; v++) {
        fish_line("__fish_use_subcommand", "", "-a", v->name, v->summary);
        fish_options("__fish_seen_subcommand_from ", v);
        for (const dt_cli_verb *i = v->command->verbs; i && i->name; i++)
            fish_options("__fish_seen_subcommand_from ", i);
    }
}

// ---- the man page ----------------------------------------------------------------------------------

// Lines that begin with a dot or a quote would be requests, and backslashes escapes.
static void print_roff(const char *text) {
    for (bool begin = true; *text; text++) {
        if (begin && (*text == '.' || *text == '\'')) printf("\\&");
        begin = *text == '\n';
        printf(*text == '\\' ? "\\e" : *text == '-' ? "\\-" : "%c", *text);
    }
}

static void man_verb(const char *before, const dt_cli_verb *v) {
    printf(".SS \"dtrain %s%s ", before, v->name);
    print_roff(v->words);
    printf("\"\n");
    if (v->command->verbs) {
        print_roff(v->summary);
        printf("\n");
        char inner[64];
        snprintf(inner, sizeof inner, "%s%s ", before, v->name);
        for (const dt_cli_verb *i = v->command->verbs; i->name; i++) man_verb(inner, i);
        return;
    }
    printf(".nf\n");
    print_roff(v->command->text);
    printf(".fi\n");
    for (const dt_cli_option *o = v->command->options; o && o->name; o++) {
        printf(".TP\n.B ");
        print_roff(o->name);
        printf(" %s\n", o->value ? o->value : "");
        print_roff(o->help);
        printf("\n");
    }
}

static void print_man(void) {
    printf(".TH DTRAIN 1 \"\" \"dtrain %s\"\n.SH NAME\ndtrain \\- trains vision, audio and "
           "multi\\-modal networks from one YAML file\n.SH VERBS\n",
           DTRAIN_VERSION);
    for (const dt_cli_verb *v = dt_cli_verbs; v->name; v++) man_verb("", v);
    printf(".SH EXIT STATUS\n0 done, 2 usage or config, 3 data, 4 checkpoint, 5 storage, 6 NaN, 70 "
           "internal, 75 stopped after saving (run again), 240 lost peer (run again).\n");
}

// ---- the verb --------------------------------------------------------------------------------------

enum { COMPLETION, MAN };
static const dt_cli_option options[] = {
    [COMPLETION] = {"--completion", "bash|zsh|fish", "a completion script for that shell"},
    [MAN] = {"--man", NULL, "the man page"},
    {NULL}};

static dt_status help_run(const dt_cli_words *w) {
    static void (*const complete[])(void) = {complete_bash, complete_zsh, complete_fish};
    int shell;
    DT_TRY(dt_cli_option_word(w, COMPLETION, 0, &shell));
    if (w->options[COMPLETION]) {
        complete[shell]();
        return DT_OK;
    }
    const dt_cli_verb *table = dt_cli_verbs, *v = NULL;
    char name[64] = "";
    if (w->options[MAN])
        print_man();
    else if (w->n_words == 0)
        dt_cli_print_usage(stdout);
    for (int i = 0; i < w->n_words; i++) {
        v = table ? dt_cli_find_verb(table, w->words[i]) : NULL;
        if (!v)
            return dt_fail(DT_E_USAGE, "there is no verb '%s%s%s'; see dtrain --help", name, *name ? " " : "",
                           w->words[i]);
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%s", *name ? " " : "", v->name);
        table = v->command->verbs;
    }
    if (v) dt_cli_print_help(v, name);
    return DT_OK;
}

const dt_cli_command dt_cli_help = {.options = options,
                                    .text =
                                        "What a verb does, with its options and examples, as VERB --help prints it.\n\n"
                                        "  dtrain help data ls\n"
                                        "  eval \"$(dtrain help --completion bash)\"\n",
                                    .run = help_run};
