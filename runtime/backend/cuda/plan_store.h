// plan_store.h: the plans of cuda_plans.h as text and in files. Internal to cuda_plans.c and plan_store.c.
//
// There are two files. engines-<machine>.txt holds the choices,
//   <choice> <tab> <description>
// and plans-<machine>.txt holds cuDNN's finished plans, including compiled code,
//   <choice> <tab> <description> <tab> <the plan's text>
// The second file only saves time: the choices decide which engine is used. It may hold plans of several engines for
// one description. Those of this run come first, then older ones, until the file is full. It is read when the first
// plan is wanted, so that a rank that waited for rank 0's choices finds rank 0's plans. A matmul's plan costs nothing
// to make and is not kept.
//
// With a bound on workspace the choices differ, so each bound has its own file of choices, as if it were another
// machine. That file holds choices that were timed under its bound or turned out to be within it, never given ones,
// which may come from a run with another bound. There is one file of plans: a rank that obeys rank 0's choices knows
// no bound.
//
// Both have the form of choice_file.h.
#ifndef DT_BACKEND_CUDA_PLAN_STORE_H
#define DT_BACKEND_CUDA_PLAN_STORE_H

#include "backend/choice_file.h"
#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/cuda_plans.h"

enum { DT_PLAN_NOT_WORTH = -1, DT_PLAN_NOT_FILED = -2 };

// A finished plan as text.
typedef struct kept_plan {
    struct kept_plan *next;
    int choice;
    char *text;
} kept_plan;

typedef struct plan_entry {
    struct plan_entry *next;
    char text[DT_DESC_TEXT];
    bool gemm, chosen; // chosen: `choice` is to be obeyed
    bool filed;        // comes from the file, which also has other networks' choices
    bool given;        // given by a checkpoint or rank 0
    bool obeyed;       // whatever its workspace: given, or chosen under this bound before
    bool beyond;       // the bound excluded an engine
    int file_choice;   // what this bound's file says
    bool settled;      // was asked for and answered
    int choice;
    bool none; // no engine
    dt_cuda_plan plan;
    kept_plan *kept; // one for each engine
} plan_entry;

struct dt_cuda_plans {
    dt_cuda_api *api;
    char *folder, *machine;        // folder NULL: no files
    dt_choice_file engines, plans; // engines: for the bound; path NULL: no file
    bool no_timing, engines_dirty, plans_dirty, plans_read, spent, warned_attention;
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
void dt_plan_entries_free(dt_cuda_plans *p); // after their plans were destroyed

// Names the files for p->most_workspace and reads the choices. Saves the previous files first.
void dt_plan_store_open(dt_cuda_plans *p);
void dt_plan_store_close(dt_cuda_plans *p);
// Reads the plans into the entries, on the first call only.
void dt_plan_store_read_plans(dt_cuda_plans *p);
// Notes that e's choice is final, so that the file will have it.
void dt_plan_store_note(dt_cuda_plans *p, plan_entry *e);

#endif
