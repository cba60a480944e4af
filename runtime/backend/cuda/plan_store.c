// plan_store.c: see plan_store.h.
#include "backend/cuda/plan_store.h"

#include "base/arena.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 16 << 20 };

// ---- entries ---------------------------------------------------------------------------------------
plan_entry *dt_plan_find(dt_cuda_plans *p, const char *text) {
    for (plan_entry *e = p->entries; e; e = e->next)
        if (strcmp(e->text, text) == 0) return e;
    return NULL;
}

plan_entry *dt_plan_entry(dt_cuda_plans *p, const char *text) {
    plan_entry *e = dt_plan_find(p, text);
    if (e) return e;
    e = dt_xcalloc(1, sizeof *e);
    snprintf(e->text, sizeof e->text, "%s", text);
    e->file_choice = DT_PLAN_NOT_FILED;
    e->next = p->entries;
    return p->entries = e;
}

void dt_plan_entries_free(dt_cuda_plans *p) {
    while (p->entries) {
        plan_entry *e = p->entries;
        p->entries = e->next;
        free(e);
    }
}

void dt_plan_store_note(dt_cuda_plans *p, plan_entry *e) {
    if (e->given || !e->chosen || e->file_choice == e->choice) return;
    e->file_choice = e->choice;
    p->dirty = true;
}

// ---- choices as text -------------------------------------------------------------------------------
static int plan_store_by_text(const void *a, const void *b) {
    return strcmp((*(plan_entry *const *)a)->text, (*(plan_entry *const *)b)->text);
}

static plan_entry **sorted_entries(const dt_cuda_plans *p, size_t *n) {
    *n = 0;
    for (const plan_entry *e = p->entries; e; e = e->next) ++*n;
    plan_entry **list = dt_xcalloc(*n + 1, sizeof *list);
    *n = 0;
    for (plan_entry *e = p->entries; e; e = e->next) list[(*n)++] = e;
    qsort(list, *n, sizeof *list, plan_store_by_text);
    return list;
}

static bool belongs(const plan_entry *e, bool for_file) {
    if (for_file) return e->file_choice != DT_PLAN_NOT_FILED;
    if (e->settled && e->none && e->choice == DT_PLAN_NOT_WORTH) return true;
    return e->plan.plan || (e->chosen && (e->settled || !e->filed));
}

// For the file, without favourites that were never timed. Otherwise without what only the file knows.
static char *plan_store_lines_of(const dt_cuda_plans *p, bool for_file) {
    size_t n = 0, at = 0;
    plan_entry **list = sorted_entries(p, &n);
    char *text = dt_xcalloc(n + 1, DT_DESC_TEXT + 16);
    for (size_t i = 0; i < n; i++)
        if (belongs(list[i], for_file))
            at += (size_t)sprintf(text + at, "%d\t%s\n", for_file ? list[i]->file_choice : list[i]->choice,
                                  list[i]->text);
    free(list);
    return text;
}

char *dt_cuda_plans_text(const dt_cuda_plans *p) {
    return plan_store_lines_of(p, false);
}

// Only wishes can be turned down: all other descriptions need an engine.
static bool may_be_refused(const char *desc) {
    return strstr(desc, " sums") || strstr(desc, " normed");
}

static int plan_store_take(dt_cuda_plans *p, const char *text, bool filed) {
    int taken = 0;
    dt_choice_line line;
    for (const char *next = text; next && *next;) {
        if (!dt_choice_line_read(next, &line, &next)) continue;
        if (line.choice == DT_PLAN_NOT_WORTH && !may_be_refused(line.desc)) continue;
        plan_entry *e = dt_plan_entry(p, line.desc);
        if (filed) e->file_choice = line.choice;
        if (e->settled) continue;
        e->choice = line.choice;
        e->chosen = true;
        e->none = line.choice == DT_PLAN_NOT_WORTH;
        e->filed = filed;
        e->given = !filed;
        taken++;
    }
    return taken;
}

int dt_cuda_plans_take(dt_cuda_plans *p, const char *text) {
    return plan_store_take(p, text, false);
}

// ---- the file --------------------------------------------------------------------------------------
void dt_cuda_plans_save(dt_cuda_plans *p) {
    if (p->file.path && p->dirty) {
        char *lines = plan_store_lines_of(p, true);
        dt_choice_file_write(&p->file, lines);
        free(lines);
    }
    if (p->dirty)
        dt_info("cuda: %d plans: %d timed in %.1f s, %d as chosen before", p->n_plans, p->n_timed, p->seconds,
                p->n_plans - p->n_timed);
    p->dirty = false; // so that a failure is reported once
}

void dt_plan_store_open(dt_cuda_plans *p, const char *folder, const char *machine) {
    static const char what[] = "engines " DT_PLAN_CHOICES;
    char *one_line = dt_xstrdup(machine);
    for (char *c = one_line; *c; c++)
        if (*c == '\n') *c = ' ';
    p->file = (dt_choice_file){
        .what = what, .machine = one_line, .then = "engines are chosen anew", .most_bytes = MAX_FILE_BYTES};
    if (p->no_timing || !folder) return;
    p->file.path = dt_choice_file_path(folder, what, one_line);
    char *lines = dt_choice_file_read(&p->file);
    if (lines) plan_store_take(p, lines, true);
    free(lines);
}

void dt_plan_store_close(dt_cuda_plans *p) {
    dt_cuda_plans_save(p);
    free((char *)p->file.machine);
    free(p->file.path);
}
