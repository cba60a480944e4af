// cpu_choices.h: what was chosen by timing on the CPU: the algorithm of a convolution, and which precision is faster.
//
// A question is a description in text (shapes, direction); its candidates are numbered, and the number of the fastest is
// the choice. Where there is none yet, the caller times the candidates, as long as this start may
// (dt_cpu_choices_left_s), and adds their rates. Where it may not, the first candidate serves, and the next start times.
//
// The file is kernels-<machine>.txt (backend/choices.h), where the machine is CPU model, ISA, library version and number of
// threads. Behind each description it has the candidates' rates, for `dtrain check --kernels`.
#ifndef DT_BACKEND_CPU_CHOICES_H
#define DT_BACKEND_CPU_CHOICES_H

#include "backend/choices.h"

typedef struct dt_cpu_choices dt_cpu_choices;

typedef struct dt_cpu_choices_opts {
    const char *machine; // one line
    const char *folder;  // of the file; NULL: none
    double budget_s;     // of timing; 0: nothing is timed
} dt_cpu_choices_opts;

dt_cpu_choices *dt_cpu_choices_create(const dt_cpu_choices_opts *opts);
// From now on choices of another machine or number of threads. Given choices stay, and so does the spent budget.
void dt_cpu_choices_move(dt_cpu_choices *c, const dt_cpu_choices_opts *opts);
// Saves the file if something changed. NULL is allowed.
void dt_cpu_choices_destroy(dt_cpu_choices *c);

// The choice, or DT_CHOICE_NONE.
int dt_cpu_choices_find(dt_cpu_choices *c, const char *text);
// The rates of a question's candidates; false: they are not known.
bool dt_cpu_choices_rates(const dt_cpu_choices *c, const char *text, double rate[DT_CHOICE_RATES]);
// Whether anything is timed at all.
bool dt_cpu_choices_timed(const dt_cpu_choices *c);
// How long this start may go on timing; 0 or less: not at all.
double dt_cpu_choices_left_s(const dt_cpu_choices *c);
// The candidates' rates (GFLOP/s; higher is better), measured in `seconds`. Returns the choice: the first candidate
// unless another one is clearly faster. rate NULL: they were not timed, and the first one serves.
int dt_cpu_choices_add(dt_cpu_choices *c, const char *text, const double *rate, int n, double seconds);

// Saves the file; then as dt_choices_text.
char *dt_cpu_choices_text(dt_cpu_choices *c);
// As dt_choices_take.
void dt_cpu_choices_take(dt_cpu_choices *c, const char *text);
// A table for people: questions that were asked, rates, choices. Heap.
char *dt_cpu_choices_table(const dt_cpu_choices *c);

#endif
