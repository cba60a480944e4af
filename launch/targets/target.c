// target.c: see target.h.

#include "target.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "run/batch_inputs.h"

#include <assert.h>
#include <ctype.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- the config ------------------------------------------------------------------------------------

static bool has_cuda_module(void) {
    char path[PATH_MAX + 64];
    return dt_module_find("dtrain_cuda.so", path, sizeof path) == DT_OK && *path;
}

dt_status dt_cli_target_config(dt_config **out, const char *target, const dt_cli_words *w) {
    if (!dt_launcher_may_start_ranks())
        return dt_fail(DT_E_USAGE, "dtrain %s starts the ranks itself: without mpirun", target);
    if (w->n_words > 0 && strcmp(w->words[0], "-") == 0)
        return dt_fail(DT_E_USAGE, "dtrain %s reads its config more than once: give a file", target);
    return dt_cli_load_config(out, target, w);
}

dt_status dt_cli_option_ranks(const dt_cli_words *w, int option, const char *whose, int n_gpus, int *n_ranks) {
    DT_TRY(dt_cli_option_int(w, option, n_gpus > 0 ? n_gpus : 1, n_ranks));
    if (n_gpus == 0 || *n_ranks <= n_gpus) return DT_OK;
    return dt_fail(DT_E_USAGE, "%s %d: %s has %d GPU%s, and a rank needs one of its own", w->table[option].name,
                   *n_ranks, whose, n_gpus, n_gpus == 1 ? "" : "s");
}

dt_status dt_cli_target_ranks(const dt_config *c, int n_ranks) {
    return dt_replica_plan_check_ranks(n_ranks, c->train.global_batch / dt_cli_micro_batch(c));
}

// The report tells of this machine, so only errors and warnings of the check are shown.
dt_status dt_cli_target_check(const dt_config *config, bool elsewhere, int n_threads, dt_run_length *length) {
    dt_config *c = dt_config_copy(config);                                    // whose autos the check answers
    const bool has_gpu = has_cuda_module() && dt_io_exists("/dev/nvidiactl"); // there with the driver
    if (elsewhere && (n_threads || (c->device.kind == DT_DEVICE_cuda && !has_gpu)))
        dt_config_set_word(c, DT_KEY(device.kind), DT_DEVICE_cpu);
    if (n_threads && c->device.threads.is_auto) dt_config_set_int(c, DT_KEY(device.threads), n_threads);
    char *report = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&report, &n);
    const dt_log_level before = dt_log_set_level(DT_LOG_WARN);
    const dt_status st = dt_cli_check_config(c, &(dt_check_prints){0}, out, length);
    dt_log_set_level(before);
    fclose(out);
    free(report);
    dt_config_destroy(c);
    return st;
}

static void list_files(const char *pattern, dt_names *out) {
    dt_names files = {0};
    if (dt_expand_files(pattern, &files) != DT_OK) dt_error_clear(); // the check before has named what is missing
    for (size_t i = 0; i < files.n; i++) {
        char *lmdb = dt_xprintf("%s/data.mdb", files.name[i]);
        dt_names_add(out, dt_io_exists(lmdb) ? lmdb : files.name[i]);
        free(lmdb);
    }
    dt_names_fini(&files);
}

void dt_cli_list_data(const dt_config *c, dt_names *out) {
    dt_reader_item item;
    for (size_t i = 0; dt_data_item(c, i, &item); i++) list_files(item.path, out);
}

const char *dt_cli_only_set(const dt_config *c) {
    dt_reader_item only, more;
    const bool is_only = dt_data_item(c, 0, &only) && !dt_data_item(c, 1, &more);
    return is_only && !only.name ? only.path : NULL;
}

// Those that CUDA_VISIBLE_DEVICES names, else the driver's.
int dt_cli_count_gpus(const dt_config *c) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char path[32];
    int n = 0;
    const int kind = c->device.kind;
    if (kind == DT_DEVICE_cpu || (kind == DT_DEVICE_auto && !has_cuda_module())) return 0; // auto is cpu without it
    if (visible && *visible) {
        for (n = 1; *visible; visible++) n += *visible == ','; // names or numbers between commas
        return n;
    }
    while (n < 1024 && snprintf(path, sizeof path, "/dev/nvidia%d", n) > 0 && dt_io_exists(path)) n++;
    return n;
}

// ---- words of a shell ------------------------------------------------------------------------------

static bool target_is_plain(const char *text) {
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] && strchr("_-./=:,+@%", text[n]))) n++;
    return n > 0 && !text[n];
}

// 'a b' -> 'a b', it's -> 'it'\''s'; a line break stays one.
static char *quote_single(const char *text) {
    char *out = dt_xcalloc(4 * strlen(text) + 3, 1), *at = out; // ' becomes four bytes; two quotes and the end
    *at++ = '\'';
    for (; *text; text++) {
        if (*text == '\'') at = stpcpy(at, "'\\'");
        *at++ = *text;
    }
    *at = '\'';
    return out;
}

// Whether YAML and terminals take all of it as characters of a line: UTF-8 without control characters, those behind ASCII
// and the two line ends of Unicode included.
static bool is_readable(const char *text) {
    json_t *utf8 = json_string(text); // NULL of other bytes
    bool good =
        utf8 != NULL && !strstr(text, "\xe2\x80\xa8") && !strstr(text, "\xe2\x80\xa9") && !strstr(text, "\xef\xbb\xbf");
    json_decref(utf8);
    for (const unsigned char *p = (const unsigned char *)text; *p && good; p++)
        good = !iscntrl(*p) && !(p[0] == 0xc2 && p[1] < 0xa0);
    return good;
}

// What is not readable: $'a\012b', as bash, ksh and zsh read it.
static char *quote_controls(const char *text) {
    char *out = dt_xcalloc(4 * strlen(text) + 4, 1), *at = stpcpy(out, "$'"); // \012 has four bytes
    for (; *text; text++) {
        if (iscntrl((unsigned char)*text) || (unsigned char)*text >= 0x80)
            at += sprintf(at, "\\%03o", (unsigned)(unsigned char)*text);
        else if (*text == '\'' || *text == '\\')
            *at++ = '\\', *at++ = *text;
        else
            *at++ = *text;
    }
    *at = '\'';
    return out;
}

char *dt_cli_quote(const char *text) {
    if (target_is_plain(text)) return dt_xstrdup(text);
    return is_readable(text) ? quote_single(text) : quote_controls(text);
}

// true, No, 12, 0x1F, 2024-01-01 and .inf are no strings for YAML, and much else is a sign in one.
static bool is_plain_yaml(const char *text) {
    static const char *const words[] = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"};
    size_t n = isalpha((unsigned char)*text) || *text == '/'; // a digit may begin a number or a date
    while (n && (isalnum((unsigned char)text[n]) || (text[n] && strchr("_-./+:@", text[n])))) n++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0) return false;
    return n > 0 && !text[n] && text[n - 1] != ':'; // a key, with the colon
}

dt_status dt_cli_yaml(char **out, const char *what, const char *text) {
    *out = NULL;
    if (!text) return DT_OK;
    json_t *string = json_string(text); // a string of JSON is one of YAML
    *out = is_plain_yaml(text) ? dt_xstrdup(text)
           : string            ? json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII)
                               : NULL;
    json_decref(string);
    return *out ? DT_OK : dt_fail(DT_E_USAGE, "%s is not UTF-8, which YAML requires", what);
}

char *dt_cli_task_name(const char *name) {
    char *task = dt_xcalloc(strlen(name) + sizeof "run-", 1), *at = task;
    if (!isalpha((unsigned char)*name)) at = stpcpy(at, "run-"); // ASCII: the program keeps the C locale
    for (; *name; name++)
        if (isalnum((unsigned char)*name))
            *at++ = *name;
        else if (at[-1] != '-') // at[-1] is there: a letter came first
            *at++ = '-';
    while (at[-1] == '-') *--at = 0;
    return task;
}

static char *quote_n(const char *const *words, size_t n, char *(*quote)(const char *text)) {
    char *line = NULL;
    size_t n_line = 0;
    FILE *out = open_memstream(&line, &n_line);
    for (size_t i = 0; i < n; i++) {
        char *word = quote(words[i]);
        fprintf(out, "%s%s", i ? " " : "", word);
        free(word);
    }
    fclose(out);
    return line;
}

char *dt_cli_quote_words(const char *const *words) {
    size_t n = 0;
    while (words[n]) n++;
    return quote_n(words, n, dt_cli_quote);
}

char *dt_cli_quote_remote(const char *const *argv) {
    size_t n = 0;
    while (argv[n]) n++;
    return quote_n(argv, n, quote_single);
}

char *dt_cli_quote_config(const dt_cli_words *w) {
    return quote_n(w->words, (size_t)w->n_words, dt_cli_quote);
}

const char **dt_cli_train_words(const dt_cli_words *w) {
    const char **words = dt_xcalloc((size_t)w->n_words + 2, sizeof *words);
    words[0] = "train";
    for (int i = 0; i < w->n_words; i++) words[1 + i] = w->words[i];
    return words;
}

// dt_cli_set_mpi_environment, as words.
void dt_cli_print_command(const char *const *argv, bool by_mpi) {
    extern char **environ;
    dt_cli_set_mpi_environment();
    for (char **e = environ; by_mpi && *e; e++)
        if (strncmp(*e, "OMPI_", 5) == 0 || strncmp(*e, "PRTE_", 5) == 0 || strncmp(*e, "I_MPI_PIN=", 10) == 0) {
            const char *value = strchr(*e, '=') + 1;
            char *word = dt_cli_quote(value);
            printf("%.*s%s ", (int)(value - *e), *e, word);
            free(word);
        }
    char *line = dt_cli_quote_words(argv);
    printf("%s\n", line);
    free(line);
}

// ---- templates -------------------------------------------------------------------------------------

dt_status dt_cli_find_template(char **out, const char *name) {
    static const char *const places[] = {"", "/../share/dtrain"};
    char dir[PATH_MAX];
    DT_TRY(dt_module_exe_dir(dir, sizeof dir));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        *out = dt_xprintf("%s%s/%s", dir, places[i], name);
        if (dt_io_exists(*out)) return DT_OK;
        free(*out);
    }
    *out = NULL;
    return dt_fail(DT_E_USAGE,
                   "the template %s is neither below %s nor in share/dtrain beside it: install "
                   "dtrain with cmake --install, or give a copy with --template",
                   name, dir);
}

// "@NAME@" at `at`: the bytes between the signs; 0: it is none.
static size_t name_length(const char *at) {
    size_t n = 0;
    while (isupper((unsigned char)at[1 + n]) || isdigit((unsigned char)at[1 + n]) || at[1 + n] == '_') n++;
    return n > 0 && at[1 + n] == '@' ? n : 0;
}

void dt_cli_put(dt_cli_values *values, const char *name, char *text) {
    assert(values->n < LAUNCH_MAX_VALUES);
    values->v[values->n].name = name;
    values->v[values->n++].text = text;
}

void dt_cli_put_copy(dt_cli_values *values, const char *name, const char *text) {
    dt_cli_put(values, name, text ? dt_xstrdup(text) : NULL);
}

dt_status dt_cli_put_yaml(dt_cli_values *values, const char *name, const char *what, const char *text) {
    char *quoted;
    DT_TRY(dt_cli_yaml(&quoted, what, text));
    dt_cli_put(values, name, quoted);
    return DT_OK;
}

// Its place, or -1.
static int target_find_value(const dt_cli_values *values, const char *name, size_t n) {
    for (int i = 0; i < values->n; i++)
        if (strlen(values->v[i].name) == n && strncmp(values->v[i].name, name, n) == 0) return i;
    return -1;
}

const char *dt_cli_value(const dt_cli_values *values, const char *name) {
    const int i = target_find_value(values, name, strlen(name));
    assert(i >= 0);
    return values->v[i].text;
}

void dt_cli_values_fini(dt_cli_values *values) {
    for (int i = 0; i < values->n; i++) free(values->v[i].text);
}

static void target_put_value(FILE *out, const char *text, const char *line, size_t n_before) {
    for (; *text; text++) {
        if (text[0] == '\n' && text[1] == 0) break; // the template's line has its own end
        fputc(*text, out);
        if (*text == '\n') fwrite(line, 1, n_before, out);
    }
}

// One line of n bytes, without its end. *drop: it has a value that is not given.
static dt_status fill_line(FILE *out, const char *line, size_t n, const dt_cli_values *values, bool *drop,
                           const char *file, int number) {
    *drop = false;
    for (size_t i = 0; i < n; i++) {
        const size_t m = line[i] == '@' ? name_length(line + i) : 0;
        if (m == 0) {
            fputc(line[i], out);
            continue;
        }
        const int v = target_find_value(values, line + i + 1, m);
        if (v < 0) return dt_fail(DT_E_USAGE, "%s:%d: nothing fills @%.*s@", file, number, (int)m, line + i + 1);
        if (!values->v[v].text)
            *drop = true; // the rest is read on: its names are checked
        else
            target_put_value(out, values->v[v].text, line, i);
        i += m + 1; // to the second @; the loop goes on behind it
    }
    return DT_OK;
}

static dt_status target_fill(char **out, const char *text, const dt_cli_values *values, const char *file) {
    size_t n_out = 0;
    dt_status st = DT_OK;
    FILE *f = open_memstream(out, &n_out);
    for (int number = 1; *text && st == DT_OK; number++) {
        const size_t n = strcspn(text, "\n");
        bool drop = false;
        const long begin = ftell(f); // to drop the line
        st = fill_line(f, text, n, values, &drop, file, number);
        if (drop)
            fseek(f, begin, SEEK_SET); // the next line is written over this one
        else if (text[n])
            fputc('\n', f);
        text += n + (text[n] != 0);
    }
    const long end = ftell(f);
    fclose(f);
    (*out)[end] = 0; // a dropped line may have left bytes behind
    if (st != DT_OK) {
        free(*out);
        *out = NULL;
    }
    return st;
}

dt_status dt_cli_fill_template(char **out, const char *name, const char *own, const dt_cli_values *values) {
    char *path = NULL, *text = NULL;
    size_t n_bytes;
    *out = NULL;
    dt_status st = DT_OK;
    if (own)
        path = dt_xprintf("%s", own);
    else
        st = dt_cli_find_template(&path, name);
    if (st == DT_OK) st = dt_io_read_file(&text, &n_bytes, path, 1 << 20, DT_E_USAGE);
    if (st == DT_OK) st = target_fill(out, text, values, path);
    free(text);
    free(path);
    return st;
}
