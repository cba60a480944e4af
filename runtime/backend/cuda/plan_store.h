// plan_store.h: the table of plans that cuda_plans.c fills, as text and in files: what cuda_plans.c and plan_store.c
// share, and nobody else.
//
// Two files (plan_file.h): engines-<machine>.txt has the choices,
//   <choice> <tab> <description>
// and plans-<machine>.txt what finished plans of cuDNN are made of, compiled code included,
//   <choice> <tab> <description> <tab> <the plan's text>
// The second only saves time: which engine it is, is said by the choices. It may have plans of several engines for one
// description: those of this run come first, then those that were there before, until it is full. It is read when the
// first plan is wanted: a rank that waited for rank 0's choices finds rank 0's plans. A product's plan costs nothing to
// make and is not kept.
//
// Under a bound on workspace other engines are chosen than without, so each bound has a file of choices of its own, as if
// it were another machine. It has what was timed under its bound or found to be within it, and never what was given: that
// may come from a run with another bound. The plans' file is one: a rank that obeys rank 0's choices knows of no bound.
#ifndef DT_BACKEND_CUDA_PLAN_STORE_H
#define DT_BACKEND_CUDA_PLAN_STORE_H

#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/cuda_plans.h"

enum { DT_PLAN_NOT_WORTH = -1, DT_PLAN_NOT_FILED = -2 };

typedef struct dt_plan_file {
    const char *what;    // "engines 1": also the first word of the file's name
    const char *machine; // one line
    char *path;          // dt_plan_file_path
    const char *then;    // of a warning: "engines are chosen anew"
    size_t most_bytes;   // a longer one is ignored
} dt_plan_file;

// FOLDER/<what's word>-<hash of the machine's text>.txt; heap.
char *dt_plan_file_path(const char *folder, const char *what, const char *machine);
// The lines, heap; NULL without a file, or with one warning.
char *dt_plan_file_read(const dt_plan_file *f);
// Makes the folder too; a failure is a warning.
void dt_plan_file_write(const dt_plan_file *f, const char *lines);

// What a finished plan is made of.
typedef struct kept_plan {
    struct kept_plan *next;
    int choice;
    char *text;
} kept_plan;

typedef struct plan_entry {
    struct plan_entry *next;
    char text[DT_DESC_TEXT];
    bool gemm, chosen; // chosen: `choice` is to be obeyed
    bool filed;        // and comes from the file: other networks' are there too
    bool given;        // by a checkpoint or rank 0
    bool obeyed;       // whatever it wants: given, or chosen under this bound before
    bool follows;      // a product that adds: its choice is another's
    bool beyond;       // an engine was left out for the bound
    int file_choice;   // what the file of this bound says of it
    bool settled;      // asked for, and answered
    int choice;
    bool none; // no engine
    dt_cuda_plan plan;
    kept_plan *kept; // one an engine
} plan_entry;

struct dt_cuda_plans {
    dt_cuda_api *api;
    char *folder, *machine;      // folder NULL: no files
    dt_plan_file engines, plans; // engines: of the bound; path NULL: no file
    bool no_timing, engines_dirty, plans_dirty, plans_read, spent;
    double budget_s;
    size_t most_workspace;
    plan_entry *entries;
    int n_plans, n_timed, n_restored;
    double seconds;
};

plan_entry *dt_plan_find(dt_cuda_plans *p, const char *text); // NULL: there is none
plan_entry *dt_plan_entry(dt_cuda_plans *p, const char *text);
const char *dt_plan_kept(const plan_entry *e, int choice); // NULL: there is none
void dt_plan_forget(plan_entry *e, int choice);
void dt_plan_entries_free(dt_cuda_plans *p); // whose plans are gone

// Names the files of p->most_workspace and reads the choices; before, what is named is written if there is news.
void dt_plan_store_open(dt_cuda_plans *p);
void dt_plan_store_close(dt_cuda_plans *p);
// Into the entries; the first time only.
void dt_plan_store_read_plans(dt_cuda_plans *p);
// e's choice is settled: so the file will have it.
void dt_plan_store_note(dt_cuda_plans *p, plan_entry *e);

#endif
