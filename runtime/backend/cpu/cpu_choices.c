// cpu_choices.c: see cpu_choices.h.
#include "backend/cpu/cpu_choices.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// By how much another candidate must be faster than the first, which rounds less.
static const double CLEARLY = 1.03;

struct dt_cpu_choices {
    dt_choices list;
    double budget_s, seconds;
    bool spent;
    int n_timed;
};

static bool cpu_choices_accepts(const dt_choice *line) {
    return line->choice >= 0 && line->choice < DT_CHOICE_RATES;
}

static void cpu_choices_open_file(dt_cpu_choices *c, const dt_cpu_choices_opts *opts) {
    dt_choices_open(&c->list, &(dt_choices_opts){.what = "kernels 3",
                                                 .then = "kernels are chosen anew",
                                                 .machine = opts->machine,
                                                 .folder = opts->budget_s > 0 ? opts->folder : NULL,
                                                 .entry_bytes = sizeof(dt_choice),
                                                 .accepts = cpu_choices_accepts});
}

dt_cpu_choices *dt_cpu_choices_create(const dt_cpu_choices_opts *opts) {
    dt_cpu_choices *c = dt_xcalloc(1, sizeof *c);
    c->budget_s = opts->budget_s;
    cpu_choices_open_file(c, opts);
    return c;
}

static void cpu_choices_save(dt_cpu_choices *c) {
    if (dt_choices_save(&c->list))
        dt_info("cpu: %d kernel%s timed in %.1f s, once for these shapes and this machine", c->n_timed,
                c->n_timed == 1 ? "" : "s", c->seconds);
}

void dt_cpu_choices_move(dt_cpu_choices *c, const dt_cpu_choices_opts *opts) {
    cpu_choices_save(c);
    dt_choices_close(&c->list, false);
    cpu_choices_open_file(c, opts);
}

void dt_cpu_choices_destroy(dt_cpu_choices *c) {
    if (!c) return;
    cpu_choices_save(c);
    dt_choices_close(&c->list, true);
    free(c);
}

int dt_cpu_choices_find(dt_cpu_choices *c, const char *text) {
    dt_choice *e = dt_choices_find(&c->list, text);
    if (!e || e->choice == DT_CHOICE_NONE) return DT_CHOICE_NONE;
    e->used = true;
    return e->choice;
}

bool dt_cpu_choices_rates(const dt_cpu_choices *c, const char *text, double rate[DT_CHOICE_RATES]) {
    const dt_choice *e = dt_choices_find(&c->list, text);
    const bool known = e && e->rate[0] > 0;
    if (known) memcpy(rate, e->rate, sizeof e->rate);
    return known;
}

bool dt_cpu_choices_timed(const dt_cpu_choices *c) {
    return c->budget_s > 0;
}

double dt_cpu_choices_left_s(const dt_cpu_choices *c) {
    return c->budget_s - c->seconds;
}

int dt_cpu_choices_add(dt_cpu_choices *c, const char *text, const double *rate, int n, double seconds) {
    dt_choice *e = dt_choices_entry(&c->list, text);
    e->used = true;
    e->choice = 0;
    c->seconds += seconds;
    if (!rate) {
        if (!c->spent && c->budget_s > 0)
            dt_info("cpu: kernel timing stopped after %.1f s; the next start times the remaining kernels", c->seconds);
        c->spent = true;
        return 0;
    }
    for (int i = 0; i < n; i++) e->rate[i] = rate[i];
    for (int i = 1; i < n; i++)
        if (rate[i] > rate[e->choice] * (e->choice ? 1.0 : CLEARLY)) e->choice = i;
    dt_choices_file(&c->list, e);
    c->n_timed++;
    return e->choice;
}

char *dt_cpu_choices_text(dt_cpu_choices *c) {
    cpu_choices_save(c);
    return dt_choices_text(&c->list);
}

void dt_cpu_choices_take(dt_cpu_choices *c, const char *text) {
    dt_choices_take(&c->list, text);
}

char *dt_cpu_choices_table(const dt_cpu_choices *c) {
    char *text = NULL;
    size_t n, n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    if (!out) abort();
    dt_choice **list = dt_choices_sorted(&c->list, &n);
    for (size_t i = 0; i < n; i++) {
        const dt_choice *e = list[i];
        if (!e->used) continue;
        static const char *const names[][DT_CHOICE_RATES] = {
            {"direct", "winograd", "winograd in bf16"}, {"fp32", "bf16"}, {"nhwc", "blocked"}};
        const int kind = strncmp(e->text, "precision ", 10) == 0 ? 1 : strstr(e->text, " layout ") ? 2 : 0;
        fprintf(out, "%s:", e->text);
        for (int k = 0; k < DT_CHOICE_RATES; k++)
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
