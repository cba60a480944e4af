// cmd_help.c: what the tables of verbs and keys say, for people (--help, a man page) and for shells (completion).

#include "launch.h"

#include "config/config.h"

#include <stdio.h>
#include <string.h>

// columns of the terminal: of text, of options' help, of verbs' summaries
enum { WIDTH = 100, HELP_COLUMN = 31, VERB_COLUMN = 46 };

// Columns of n bytes of UTF-8.
static int columns_of(const char *text, size_t n) {
    int columns = 0;
    // UTF-8's continuation bytes are 10xxxxxx
    for (size_t i = 0; i < n; i++) columns += (text[i] & 0xc0) != 0x80;
    return columns;
}

void dt_cli_print_wrapped(FILE *out, const char *text, int at, int indent) {
    // word by word; `at` is the column that is reached
    for (bool example = false; *text;) {
        if (*text == '\n') {
            putc(*text++, out);
            example = *text == ' '; // by the first character of a line
            at = 0;
            continue;
        }
        size_t blanks = strspn(text, " ");         // before the word, kept within a line
        size_t n = strcspn(text + blanks, " \n|"); // a list of words, a|b, may break behind each |
        n += text[blanks + n] == '|';
        // at > indent: a word longer than the line stands alone, as no break would help
        if (!example && at > indent && at + (int)blanks + columns_of(text + blanks, n) > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            text += blanks;
            blanks = 0; // blanks at a break are dropped
            at = indent;
        }
        fprintf(out, "%.*s", (int)(blanks + n), text);
        at += columns_of(text, blanks + n);
        text += blanks + n;
    }
}

// A line of two columns, the second at `column`, below `left` where that is longer.
static void print_row(FILE *out, int column, const char *left, const char *help) {
    const int at = 2 + columns_of(left, strlen(left));
    // longer than `column`: help begins on the next line
    fprintf(out, "  %s%s%*s", left, at < column ? "" : "\n", column - (at < column ? at : 0), "");
    dt_cli_print_wrapped(out, help, column, column);
    putc('\n', out);
}

static void print_verbs(FILE *out, const char *before, const dt_cli_verb *table) {
    char left[128]; // cut where a verb's words were longer; none is
    for (const dt_cli_verb *v = table; v->name; v++) {
        snprintf(left, sizeof left, "dtrain %s%-6s %s", before, v->name, v->words);
        print_row(out, VERB_COLUMN, left, v->summary);
    }
}

// one owner for usage and man page
#define DESCRIPTION "distributed training of vision, audio and multi-modal networks from one YAML file"
#define EXIT_CODES                                                                                                     \
    "0 done, 2 usage or config, 3 data, 4 checkpoint, 5 storage, 6 NaN or Inf, 70 internal error, 75 saved on a "      \
    "signal (run again), 240 lost rank or hang (run again).\n"

void dt_cli_print_usage(FILE *out) {
    // stderr too: usage after a wrong command line
    fprintf(out, "dtrain %s: %s\n\n", DTRAIN_VERSION, DESCRIPTION);
    print_row(out, VERB_COLUMN, "dtrain configs/fusion.yaml train.epochs=8", "one process");
    print_row(out, VERB_COLUMN, "mpirun -np 8 dtrain configs/fusion.yaml", "eight ranks");
    fprintf(out, "\n");
    print_verbs(out, "", dt_cli_verbs);
    fprintf(out, "\nEvery verb has --help.\n\n");
    dt_cli_print_wrapped(out, "Exit codes: " EXIT_CODES, 0, 0);
}

void dt_cli_print_help(const dt_cli_verb *v, const char *name) {
    printf("dtrain %s%s%s\n%s\n\n", name, *v->words ? " " : "", v->words, v->summary);
    if (v->command->verbs) {
        // inner verbs are listed as "dtrain data ls …"
        char before[64];
        snprintf(before, sizeof before, "%s ", name);
        print_verbs(stdout, before, v->command->verbs);
        printf("\n");
    }
    dt_cli_print_wrapped(stdout, v->command->text, 0, 0);
    const dt_cli_option *o = v->command->options;
    if (o) printf("\nOptions:\n");
    for (; o && o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        print_row(stdout, HELP_COLUMN, left, o->help);
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
    // keys with a wildcard are left out: the shell cannot fill in the user's name
    size_t n = 0;
    const dt_config_key *keys = dt_config_keys(&n);
    for (size_t i = 0; takes_keys(v) && i < n; i++)
        if (!strchr(keys[i].path, '*')) printf(" %s=", keys[i].path);
}

static void print_names(void) {
    // first without a blank in front
    for (const dt_cli_verb *v = dt_cli_verbs; v->name; v++) printf("%s%s", v == dt_cli_verbs ? "" : " ", v->name);
}

// case "$1" in train) list="…";; … esac, which bash and zsh read alike.
static void print_cases(const char *verb, const char *inner) {
    // the first word and the second, in the shell's own syntax
    printf("    case \"%s %s\" in\n", verb, inner);
    for (const dt_cli_verb *v = dt_cli_verbs; v->name; v++) {
        // inner verbs first: case takes the first pattern that matches
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

// the verb is completed first, then its candidates; files always (-o default)
static void complete_bash(void) {
    printf("# bash completion of dtrain\n_dtrain() {\n    local list=\"");
    print_names();
    printf("\"\n    [ \"$COMP_CWORD\" = 1 ] ||\n");
    print_cases("${COMP_WORDS[1]}", "${COMP_WORDS[2]}");
    printf("    COMPREPLY=($(compgen -W \"$list\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
           // "key=" is completed without a blank, so that the value follows
           "    [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null || true\n"
           "}\ncomplete -o default -F _dtrain dtrain\n");
}

static void complete_zsh(void) {
    printf("#compdef dtrain\nlocal list=\"");
    print_names();
    printf("\"\nif (( CURRENT > 2 )); then\n");
    print_cases("$words[2]", "$words[3]");
    // zsh: words that end with = are added without a blank behind them
    printf("fi\ncompadd -- ${${=list}:#*=}\ncompadd -S '' -- ${(M)${=list}:#*=}\n_files\n");
}

static void fish_line(const char *condition, const char *verb, const char *flag, const char *word, const char *help) {
    printf("complete -c dtrain -n '%s%s' %s %s -d '", condition, verb, flag, word);
    // in single quotes fish knows \' and \\ alone
    for (; *help; help++) printf(*help == '\'' || *help == '\\' ? "\\%c" : "%c", *help);
    printf("'\n");
}

// "--top" or "-o".
static void fish_option(const char *seen, const char *verb, const dt_cli_option *o) {
    const bool is_long = o->name[1] == '-';
    fish_line(seen, verb,
              // -r: needs a value; -l: long, -s: short
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
        if (!strchr(word, '*')) fish_line(seen, v->name, "-a", word, keys[i].help); // no wildcards
    }
}

static void complete_fish(void) {
    for (const dt_cli_verb *v = dt_cli_verbs; v->name; v++) {
        fish_line("__fish_use_subcommand", "", "-a", v->name, v->summary); // "-a": an argument, here the verb itself
        fish_options("__fish_seen_subcommand_from ", v);
        // an inner verb's options are offered after its name, whichever verb is in front
        for (const dt_cli_verb *i = v->command->verbs; i && i->name; i++)
            fish_options("__fish_seen_subcommand_from ", i);
    }
}

// ---- the man page ----------------------------------------------------------------------------------

// Lines that begin with a dot or a quote would be requests, and backslashes escapes. Each line begins anew, and long
// ones are filled.
static void print_roff(const char *text) {
    for (bool begin = true; *text; text++) {
        if (begin && (*text == '.' || *text == '\'')) printf("\\&"); // \& has no width: the line begins with text
        begin = *text == '\n';
        // "\-" is a minus that can be copied, "-" would be a hyphen
        printf(*text == '\\' ? "\\e" : *text == '-' ? "\\-" : begin ? "\n.br\n" : "%c", *text);
    }
}

static void man_verb(const char *before, const dt_cli_verb *v) {
    printf(".SS \"dtrain %s%s ", before, v->name);
    print_roff(v->words);
    printf("\"\n");
    // a verb of verbs has no options of its own
    if (v->command->verbs) {
        print_roff(v->summary);
        printf("\n");
        char inner[64];
        snprintf(inner, sizeof inner, "%s%s ", before, v->name);
        for (const dt_cli_verb *i = v->command->verbs; i->name; i++) man_verb(inner, i);
        return;
    }
    print_roff(v->command->text);
    for (const dt_cli_option *o = v->command->options; o && o->name; o++) {
        printf(".TP\n.B ");
        print_roff(o->name);
        printf(" %s\n", o->value ? o->value : "");
        print_roff(o->help);
        printf("\n");
    }
}

static void print_man(void) {
    // .na, .nh: no justification, no hyphenation of options
    printf(".TH DTRAIN 1 \"\" \"dtrain %s\"\n.SH NAME\ndtrain \\- %s\n.SH VERBS\n.na\n.nh\n", DTRAIN_VERSION,
           DESCRIPTION);
    for (const dt_cli_verb *v = dt_cli_verbs; v->name; v++) man_verb("", v);
    printf(".SH EXIT STATUS\n" EXIT_CODES);
}

// ---- the verb --------------------------------------------------------------------------------------

enum { COMPLETION, MAN };
static const dt_cli_option options[] = {
    [COMPLETION] = {"--completion", "bash|zsh|fish", "print a completion script for this shell"},
    [MAN] = {"--man", NULL, "print the man page"},
    {NULL}};

static dt_status help_run(const dt_cli_words *w) {
    // in the order of the option's words
    static void (*const complete[])(void) = {complete_bash, complete_zsh, complete_fish};
    int shell;
    DT_TRY(dt_cli_option_word(w, COMPLETION, 0, &shell));
    // a script alone on stdout: it is evaluated
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
    // "help data ls": each word is sought in the table of the one before
    for (int i = 0; i < w->n_words; i++) {
        v = table ? dt_cli_find_verb(table, w->words[i]) : NULL; // NULL after a verb without inner verbs
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
                                        "Prints what a verb does, with options and examples, as VERB --help does.\n\n"
                                        "  dtrain help data ls\n"
                                        "  eval \"$(dtrain help --completion bash)\"\n",
                                    .run = help_run};
