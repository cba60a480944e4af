// plan_store.c: see plan_store.h.
#include "backend/cuda/plan_store.h"

#include "base/arena.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENGINES_BYTES = 16 << 20, MAX_PLANS_BYTES = 64 << 20, MAX_PLAN_BYTES = 4 << 20 };

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

static kept_plan **place_of(plan_entry *e, int choice) {
    kept_plan **at = &e->kept;
    while (*at && (*at)->choice != choice) at = &(*at)->next;
    return at;
}

const char *dt_plan_kept(const plan_entry *e, int choice) {
    const kept_plan *k = *place_of((plan_entry *)e, choice);
    return k ? k->text : NULL;
}

void dt_plan_forget(plan_entry *e, int choice) {
    kept_plan **at = place_of(e, choice), *k = *at;
    if (!k) return;
    *at = k->next;
    free(k->text);
    free(k);
}

static void add_kept(plan_entry *e, int choice, char *text) {
    kept_plan *k = dt_xcalloc(1, sizeof *k);
    dt_plan_forget(e, choice);
    *k = (kept_plan){e->kept, choice, text};
    e->kept = k;
}

void dt_plan_entries_free(dt_cuda_plans *p) {
    while (p->entries) {
        plan_entry *e = p->entries;
        p->entries = e->next;
        while (e->kept) dt_plan_forget(e, e->kept->choice);
        free(e);
    }
}

void dt_plan_store_note(dt_cuda_plans *p, plan_entry *e) {
    if (e->given || !e->chosen || e->file_choice == e->choice) return;
    e->file_choice = e->choice;
    p->engines_dirty = true;
}

// ---- choices as text -------------------------------------------------------------------------------
static int by_text(const void *a, const void *b) {
    return strcmp((*(plan_entry *const *)a)->text, (*(plan_entry *const *)b)->text);
}

static plan_entry **sorted_entries(const dt_cuda_plans *p, size_t *n) {
    *n = 0;
    for (const plan_entry *e = p->entries; e; e = e->next) ++*n;
    plan_entry **list = dt_xcalloc(*n + 1, sizeof *list);
    *n = 0;
    for (plan_entry *e = p->entries; e; e = e->next) list[(*n)++] = e;
    qsort(list, *n, sizeof *list, by_text);
    return list;
}

static bool belongs(const plan_entry *e, bool for_file) {
    if (for_file) return e->file_choice != DT_PLAN_NOT_FILED;
    if (e->settled && e->none && e->choice == DT_PLAN_NOT_WORTH) return true;
    return e->plan.plan || (e->chosen && (e->settled || !e->filed));
}

// For the file, without favourites that were never timed. Otherwise without what only the file knows.
static char *lines_of(const dt_cuda_plans *p, bool for_file) {
    size_t n = 0, at = 0;
    plan_entry **list = sorted_entries(p, &n);
    char *text = dt_xcalloc(n + 1, DT_DESC_TEXT + 16);
    for (size_t i = 0; i < n; i++)
        if (belongs(list[i], for_file))
            at += (size_t)sprintf(text + at, "%d\t%s\n",
                                  for_file ? list[i]->file_choice : list[i]->choice, list[i]->text);
    free(list);
    return text;
}

char *dt_cuda_plans_text(const dt_cuda_plans *p) {
    return lines_of(p, false);
}

// Only wishes can be turned down: all other descriptions need an engine.
static bool may_be_refused(const char *desc) {
    return strstr(desc, " sums") || strstr(desc, " normed") || strstr(desc, " masked");
}

static int take(dt_cuda_plans *p, const char *text, bool filed) {
    int taken = 0;
    dt_choice_line line;
    for (const char *next = text; next && *next;) {
        if (!dt_choice_line_read(next, &line, &next)) continue;
        if (line.choice == DT_PLAN_NOT_WORTH && !may_be_refused(line.desc)) continue;
        plan_entry *e = dt_plan_entry(p, line.desc);
        if (filed && e->file_choice == DT_PLAN_NOT_FILED) e->file_choice = line.choice;
        if (e->settled || (filed && e->given)) continue;
        e->choice = line.choice;
        e->chosen = true;
        e->none = line.choice == DT_PLAN_NOT_WORTH;
        e->filed = filed;
        e->given = !filed;
        e->obeyed = !filed || p->most_workspace < DT_PLAN_WORKSPACE;
        taken++;
    }
    return taken;
}

int dt_cuda_plans_take(dt_cuda_plans *p, const char *text) {
    return take(p, text, false);
}

// ---- files -----------------------------------------------------------------------------------------
void dt_plan_store_read_plans(dt_cuda_plans *p) {
    dt_choice_line line;
    if (p->plans_read) return;
    p->plans_read = true;
    char *text = p->plans.path ? dt_choice_file_read(&p->plans) : NULL;
    for (const char *next = text; next && *next;) {
        if (!dt_choice_line_read(next, &line, &next) || !line.n_rest || line.choice < 0) continue;
        add_kept(dt_plan_entry(p, line.desc), line.choice,
                 dt_xprintf("%.*s", (int)line.n_rest, line.rest));
    }
    free(text);
}

static void keep(dt_cuda_plans *p, plan_entry *e) {
    char *text = NULL;
    if (!e->plan.plan || e->gemm || dt_plan_kept(e, e->choice)) return;
    if (p->api->dnn_text(p->api, e->plan.plan, &text) || !text) return;
    if (strchr(text, '\n') || strlen(text) > MAX_PLAN_BYTES)
        free(text);
    else
        add_kept(e, e->choice, text);
}

// Plans of this run first, then as many others as there is room for.
static char *lines_of_plans(dt_cuda_plans *p) {
    size_t at = 0, cap = 1, n = 0;
    for (plan_entry *e = p->entries; e; e = e->next) {
        keep(p, e);
        for (const kept_plan *k = e->kept; k; k = k->next)
            cap += strlen(k->text) + DT_DESC_TEXT + 16;
    }
    plan_entry **list = sorted_entries(p, &n);
    char *text = dt_xcalloc(cap, 1);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++)
            for (const kept_plan *k = list[i]->kept; k; k = k->next) {
                const bool other = !list[i]->plan.plan || k->choice != list[i]->choice;
                if (other != pass || at + strlen(k->text) + DT_DESC_TEXT + 512 > MAX_PLANS_BYTES)
                    continue;
                at += (size_t)sprintf(text + at, "%d\t%s\t%s\n", k->choice, list[i]->text, k->text);
            }
    free(list);
    return text;
}

void dt_cuda_plans_save(dt_cuda_plans *p) {
    if (p->engines.path && p->engines_dirty) {
        char *lines = lines_of(p, true);
        dt_choice_file_write(&p->engines, lines);
        free(lines);
    }
    if (p->plans.path && p->plans_dirty) {
        char *lines = lines_of_plans(p);
        dt_choice_file_write(&p->plans, lines);
        free(lines);
    }
    if (p->engines_dirty)
        dt_info(
            "cuda: %d plans: %d timed in %.1f s, %d as chosen before, %d of them kept from then",
            p->n_plans, p->n_timed, p->seconds, p->n_plans - p->n_timed, p->n_restored);
    p->engines_dirty = p->plans_dirty = false; // so that a failure is reported once
}

// ---- life ------------------------------------------------------------------------------------------
static dt_choice_file file_of(const dt_cuda_plans *p, const char *what, bool bounded,
                              size_t most_bytes, const char *then) {
    char *machine = bounded
                        ? dt_xprintf("%s, workspace to %zu bytes", p->machine, p->most_workspace)
                        : dt_xstrdup(p->machine);
    return (dt_choice_file){.what = what,
                            .machine = machine,
                            .path =
                                p->folder ? dt_choice_file_path(p->folder, what, machine) : NULL,
                            .then = then,
                            .most_bytes = most_bytes};
}

static void file_fini(dt_choice_file *f) {
    free((char *)f->machine);
    free(f->path);
    *f = (dt_choice_file){0};
}

void dt_plan_store_open(dt_cuda_plans *p) {
    dt_plan_store_close(p);
    p->plans =
        file_of(p, "plans " DT_PLAN_CHOICES, false, MAX_PLANS_BYTES, "cuDNN's plans are made anew");
    if (p->no_timing) return;
    p->engines = file_of(p, "engines " DT_PLAN_CHOICES, p->most_workspace < DT_PLAN_WORKSPACE,
                         MAX_ENGINES_BYTES, "engines are chosen anew");
    char *lines = p->engines.path ? dt_choice_file_read(&p->engines) : NULL;
    if (lines) take(p, lines, true);
    free(lines);
}

void dt_plan_store_close(dt_cuda_plans *p) {
    dt_cuda_plans_save(p);
    file_fini(&p->engines);
    file_fini(&p->plans);
}
