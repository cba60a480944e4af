// cmd_keys.c: dtrain keys [PREFIX]

#include "launch.h"

#include "base/core.h"
#include "data/augment/augment.h"
#include "models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARKDOWN };
static const dt_cli_option options[] = {[MARKDOWN] = {"--markdown", NULL, "print the table of docs/reference/keys.md"},
                                        {NULL}};

static void keys_print_cell(const char *text) {
    for (; *text; text++) printf(*text == '|' ? "\\|" : "%c", *text); // in a cell | ends the cell
}

// A line that has reached column `indent`, where its text begins; frees it.
static void keys_print_text(int indent, char *text) {
    dt_cli_print_wrapped(stdout, text, indent, indent);
    putchar('\n');
    free(text);
}

static void print_key(const dt_config_key *k, bool markdown) {
    const char *fallback = k->default_text ? k->default_text : "-"; // required keys have none
    char *owners = dt_config_owners(k);
    if (!markdown) {
        printf("%s\n    ", k->path);
        keys_print_text(4, dt_xprintf("%s, default %s%s%s%s", dt_config_type_name(k->kind), fallback,
                                      *k->range ? ", " : "", k->range,
                                      k->flags & DT_KEY_NUMERIC ? ", affects results" : ""));
        printf("    ");
        keys_print_text(4, dt_xprintf("%s%s%s", owners, *owners ? ": " : "", k->help));
        for (const dt_config_word *w = dt_config_words(k); w && w->id; w++) {
            printf("      %-14s ", w->id);
            keys_print_text(21, dt_xprintf("%s%s%s", w->help, w->keys ? "; its keys: " : "", w->keys ? w->keys : ""));
        }
    } else {
        printf("| `%s` | %s | `%s` | ", k->path, dt_config_type_name(k->kind), fallback);
        keys_print_cell(k->range);
        printf(" | %s | %s%s%s", k->flags & DT_KEY_NUMERIC ? "yes" : "", *owners ? "*" : "", owners,
               *owners ? "*: " : "");
        keys_print_cell(k->help);
        printf(" |\n");
    }
    free(owners);
}

// An encoder has the keys of its network, which are listed below model.
static bool is_repeated(const char *path, const char *prefix) {
    static const char at[] = "model.encoders.*.";
    bool known = false;
    size_t n = 0;
    const dt_config_key *keys = dt_config_keys(&n);
    // a prefix of encoders: all are listed
    if (strncmp(path, at, strlen(at)) != 0 || strncmp(prefix, at, strlen("model.encoders")) == 0) return false;
    char *other = dt_xprintf("model.%s", path + strlen(at));
    // model.encoders.*.name and .init are listed: which network an encoder has, and its weights
    const bool own = strcmp(other, "model.name") == 0 || strcmp(other, "model.init") == 0;
    for (size_t i = 0; i < n && !own; i++) known |= strcmp(keys[i].path, other) == 0;
    free(other);
    return known;
}

// What data.augment.FIELD may list.
static void print_augmentations(bool markdown) {
    char text[1024];
    if (markdown) printf("\n| operation | parameters, defaults | does |\n|---|---|---|\n");
    // describes until the text is empty: the table ends
    for (int i = 0; dt_augment_describe(i, markdown, text, sizeof text); i++) printf("%s\n", text);
}

// What model.layers may list.
static void print_layers(bool markdown) {
    const char *type, *keys, *help;
    if (markdown) printf("\n| layer | keys, defaults | does |\n|---|---|---|\n");
    for (size_t i = 0; dt_model_describe_layer(i, &type, &keys, &help); i++)
        if (markdown) {
            printf("| `%s` | %s%s%s | %s |\n", type, *keys ? "`" : "", keys, *keys ? "`" : "", help);
        } else {
            // help goes on a line of its own below keys
            printf("  %-14s %s%s", type, keys, *keys ? "\n                 " : "");
            keys_print_text(17, dt_xstrdup(help));
        }
}

static dt_status keys_run(const dt_cli_words *w) {
    DT_TRY(dt_cli_expect_words(w, "keys", 0, 1, "at most one prefix"));
    const char *prefix = w->n_words ? w->words[0] : "";
    bool markdown = w->options[MARKDOWN] != NULL;
    size_t n = 0, shown = 0;
    const dt_config_key *keys = dt_config_keys(&n);
    if (markdown) printf("| key | type | default | range | affects results | |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++) {
        if (strncmp(keys[i].path, prefix, strlen(prefix)) != 0) continue;
        if (is_repeated(keys[i].path, prefix)) continue;
        print_key(&keys[i], markdown);
        shown++;
    }
    if (strcmp(prefix, "data.augment") == 0) print_augmentations(markdown);
    if (strcmp(prefix, "model.layers") == 0) print_layers(markdown);
    // a prefix without keys is a mistake: exit code 2
    return shown ? DT_OK : dt_fail(DT_E_USAGE, "no key begins with '%s'; dtrain keys lists all", prefix);
}

const dt_cli_command dt_cli_keys = {
    .options = options,
    .text =
        "Prints every key of a config with type, default, range and help. A run is not resumed with another value of a "
        "key that affects results.\n\n"
        "  dtrain keys train.schedule\n"
        "  dtrain keys model.encoders    the keys of an encoder, which are those of its network\n"
        "  dtrain keys data.augment      with the augmentations\n"
        "  dtrain keys model.layers      with the layers\n",
    .run = keys_run};
