// cpu_choices.c: see cpu_choices.h.
#include "backend/cpu/cpu_choices.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 4 << 20 };
// By how much another candidate must be faster than the first, which rounds less.
static const double CLEARLY = 1.03;

typedef struct entry {
    struct entry *next;
    char text[DT_CHOICE_TEXT];
    int choice;                     // of this run; -1: none
    int filed;                      // what the file says; -1: nothing
    double rate[DT_CPU_CANDIDATES]; // 0: unknown
    bool given, used;
} entry;

struct dt_cpu_choices {
    entry *entries;
    dt_choice_file file; // path NULL: none
    char *machine;
    double budget_s, seconds;
    bool dirty, spent, torn; // torn: the file was ignored
    int n_timed;
};

static entry *entry_of(dt_cpu_choices *c, const char *text) {
    for (entry *e = c->entries; e; e = e->next)
        if (strcmp(e->text, text) == 0) return e;
    entry *e = dt_xcalloc(1, sizeof *e);
    snprintf(e->text, sizeof e->text, "%s", text);
    e->choice = e->filed = -1;
    e->next = c->entries;
    return c->entries = e;
}

static bool valid(const dt_choice_line *line) {
    return line->choice >= 0 && line->choice < DT_CPU_CANDIDATES;
}

static void take_filed(dt_cpu_choices *c, const char *text) {
    dt_choice_line line;
    for (const char *next = text; next && *next;) {
        if (!dt_choice_line_read(next, &line, &next) || !valid(&line) || !line.n_rest) continue;
        entry *e = entry_of(c, line.desc);
        if (e->filed >= 0 || e->used) continue; // of this run
        if (sscanf(line.rest, "%lf %lf %lf", &e->rate[0], &e->rate[1], &e->rate[2]) < 3) continue;
        e->filed = line.choice;
        if (!e->given) e->choice = e->filed;
    }
}

static void cpu_choices_open_file(dt_cpu_choices *c, const dt_cpu_choices_opts *opts) {
    static const char what[] = "kernels 3";
    c->machine = dt_xstrdup(opts->machine);
    c->file = (dt_choice_file){
        .what = what, .machine = c->machine, .then = "kernels are chosen anew", .most_bytes = MAX_FILE_BYTES};
    if (!opts->folder || opts->budget_s <= 0) return;
    c->file.path = dt_choice_file_path(opts->folder, what, c->machine);
    char *lines = dt_choice_file_read(&c->file);
    c->torn = !lines && dt_io_exists(c->file.path);
    take_filed(c, lines);
    free(lines);
}

dt_cpu_choices *dt_cpu_choices_create(const dt_cpu_choices_opts *opts) {
    dt_cpu_choices *c = dt_xcalloc(1, sizeof *c);
    c->budget_s = opts->budget_s;
    cpu_choices_open_file(c, opts);
    return c;
}

static int cpu_choices_by_text(const void *a, const void *b) {
    return strcmp((*(entry *const *)a)->text, (*(entry *const *)b)->text);
}

static entry **sorted(const dt_cpu_choices *c, int *n) {
    *n = 0;
    for (const entry *e = c->entries; e; e = e->next) ++*n;
    entry **list = dt_xcalloc((size_t)*n + 1, sizeof *list);
    *n = 0;
    for (entry *e = c->entries; e; e = e->next) list[(*n)++] = e;
    qsort(list, (size_t)*n, sizeof *list, cpu_choices_by_text);
    return list;
}

static char *cpu_choices_lines_of(const dt_cpu_choices *c, bool for_file) {
    int n = 0;
    size_t at = 0;
    entry **list = sorted(c, &n);
    char *text = dt_xcalloc((size_t)n + 1, DT_CHOICE_TEXT + 80);
    for (int i = 0; i < n; i++) {
        const entry *e = list[i];
        if (for_file && e->filed >= 0)
            at += (size_t)sprintf(text + at, "%d\t%s\t%.6g %.6g %.6g\n", e->filed, e->text, e->rate[0], e->rate[1],
                                  e->rate[2]);
        if (!for_file && e->used) at += (size_t)sprintf(text + at, "%d\t%s\n", e->choice, e->text);
    }
    free(list);
    return text;
}

static void cpu_choices_save(dt_cpu_choices *c) {
    if (c->dirty && c->file.path) {
        // which another run may have added meanwhile
        char *others = c->torn ? NULL : dt_choice_file_read(&c->file);
        take_filed(c, others);
        free(others);
        char *lines = cpu_choices_lines_of(c, true);
        dt_choice_file_write(&c->file, lines);
        free(lines);
    }
    if (c->dirty)
        dt_info("cpu: %d kernel%s timed in %.1f s, once for these shapes and this machine", c->n_timed,
                c->n_timed == 1 ? "" : "s", c->seconds);
    c->dirty = false; // so that a failure is reported once
}

// Saves, and forgets what no one gave.
static void cpu_choices_close_file(dt_cpu_choices *c, bool all) {
    cpu_choices_save(c);
    for (entry **at = &c->entries; *at;) {
        entry *e = *at;
        if (e->given && !all) {
            e->filed = -1;
            e->used = false;
            memset(e->rate, 0, sizeof e->rate);
            at = &e->next;
        } else {
            *at = e->next;
            free(e);
        }
    }
    free(c->file.path);
    free(c->machine);
}

void dt_cpu_choices_move(dt_cpu_choices *c, const dt_cpu_choices_opts *opts) {
    cpu_choices_close_file(c, false);
    cpu_choices_open_file(c, opts);
}

void dt_cpu_choices_destroy(dt_cpu_choices *c) {
    if (!c) return;
    cpu_choices_close_file(c, true);
    free(c);
}

int dt_cpu_choices_find(dt_cpu_choices *c, const char *text) {
    entry *e = entry_of(c, text);
    e->used |= e->choice >= 0;
    return e->choice;
}

bool dt_cpu_choices_rates(const dt_cpu_choices *c, const char *text, double rate[DT_CPU_CANDIDATES]) {
    for (const entry *e = c->entries; e; e = e->next)
        if (strcmp(e->text, text) == 0 && e->rate[0] > 0) {
            memcpy(rate, e->rate, sizeof e->rate);
            return true;
        }
    return false;
}

bool dt_cpu_choices_timed(const dt_cpu_choices *c) {
    return c->budget_s > 0;
}

double dt_cpu_choices_left_s(const dt_cpu_choices *c) {
    return c->budget_s - c->seconds;
}

int dt_cpu_choices_add(dt_cpu_choices *c, const char *text, const double *rate, int n, double seconds) {
    entry *e = entry_of(c, text);
    e->used = true;
    e->choice = 0;
    c->seconds += seconds;
    if (!rate) {
        if (!c->spent && c->budget_s > 0)
            dt_info("cpu: %.1f s of timing kernels are enough for one start: the next one times "
                    "the rest",
                    c->seconds);
        c->spent = true;
        return 0;
    }
    for (int i = 0; i < n; i++) e->rate[i] = rate[i];
    for (int i = 1; i < n; i++)
        if (rate[i] > rate[e->choice] * (e->choice ? 1.0 : CLEARLY)) e->choice = i;
    e->filed = e->choice;
    c->dirty = true;
    c->n_timed++;
    return e->choice;
}

char *dt_cpu_choices_text(dt_cpu_choices *c) {
    cpu_choices_save(c);
    return cpu_choices_lines_of(c, false);
}

void dt_cpu_choices_take(dt_cpu_choices *c, const char *text) {
    dt_choice_line line;
    for (const char *next = text; next && *next;) {
        if (!dt_choice_line_read(next, &line, &next) || !valid(&line)) continue;
        entry *e = entry_of(c, line.desc);
        e->choice = line.choice;
        e->given = true;
    }
}

char *dt_cpu_choices_table(const dt_cpu_choices *c) {
    int n = 0;
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    if (!out) abort();
    entry **list = sorted(c, &n);
    for (int i = 0; i < n; i++) {
        const entry *e = list[i];
        if (!e->used) continue;
        static const char *const names[][DT_CPU_CANDIDATES] = {
            {"direct", "winograd", "winograd in bf16"}, {"fp32", "bf16"}, {"nhwc", "blocked"}};
        const int kind = strncmp(e->text, "precision ", 10) == 0 ? 1 : strstr(e->text, " layout ") ? 2 : 0;
        fprintf(out, "%s:", e->text);
        for (int k = 0; k < DT_CPU_CANDIDATES; k++)
            if (e->rate[k] > 0) fprintf(out, " %s %.0f,", names[kind][k], e->rate[k]);
        fprintf(out, "%s %s%s\n", e->rate[0] > 0 ? " GFLOP/s:" : "", names[kind][e->choice],
                e->given       ? " (given)"
                : e->filed < 0 ? " (not timed)"
                               : "");
    }
    free(list);
    fclose(out);
    return text;
}
