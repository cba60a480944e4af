// plan_store.h: the choices of cuda_plans.c as text and in a file. Internal to cuda_plans.c and plan_store.c.
//
// The file, engines-<machine>.txt, has the form of choice_file.h, with lines
//   <choice> <tab> <description>
// It holds choices that were timed, never given ones: those may come from another machine.
#ifndef DT_BACKEND_CUDA_PLAN_STORE_H
#define DT_BACKEND_CUDA_PLAN_STORE_H

#include "backend/choice_file.h"
#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/cuda_plans.h"

enum { DT_PLAN_NOT_WORTH = -1, DT_PLAN_NOT_FILED = -2 };

typedef struct plan_entry {
    struct plan_entry *next;
    char text[DT_DESC_TEXT];
    bool gemm, chosen; // chosen: `choice` is to be obeyed
    bool filed;        // comes from the file, which also has other networks' choices
    bool given;        // given by a checkpoint or rank 0
    int file_choice;   // what the file says
    bool settled;      // was asked for and answered
    int choice;
    bool none; // no engine
    dt_cuda_plan plan;
} plan_entry;

struct dt_cuda_plans {
    dt_cuda_api *api;
    dt_choice_file file; // path NULL: no file
    bool no_timing, uncaptured, dirty, warned_attention;
    size_t most_workspace;
    plan_entry *entries;
    int n_plans, n_timed;
    double seconds;
};

plan_entry *dt_plan_find(dt_cuda_plans *p, const char *text); // NULL: there is none
plan_entry *dt_plan_entry(dt_cuda_plans *p, const char *text);
void dt_plan_entries_free(dt_cuda_plans *p); // after their plans were destroyed

// Names the file and reads the choices.
void dt_plan_store_open(dt_cuda_plans *p, const char *folder, const char *machine);
void dt_plan_store_close(dt_cuda_plans *p); // saves it
// Notes that e's choice is final, so that the file will have it.
void dt_plan_store_note(dt_cuda_plans *p, plan_entry *e);

#endif
