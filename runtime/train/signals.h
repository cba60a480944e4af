// signals.h: SIGTERM, SIGINT, SIGUSR1 and SIGHUP ask for a stop. The handler sets a flag and nothing
// else; the trainer reads it once a step, all ranks agree through the step's reduction, save, and leave
// with 75. A second SIGINT ends the process at once (130): the last checkpoint is what remains. One within
// DT_SIGNALS_APART_S of the first counts as the first, because timeout and sudo pass on what the terminal sends to
// all. A SIGHUP that was ignored at the start (nohup) stays ignored. SIGPIPE is ignored: `dtrain … | head` goes on.
//
// The first dt_signals_install blocks them in the calling thread and starts the one thread that
// takes them, until the process ends: call it before the first thread that computes is made.
#ifndef DT_TRAIN_SIGNALS_H
#define DT_TRAIN_SIGNALS_H

#include <stdbool.h>

#define DT_SIGNALS_APART_S 0.3

void dt_signals_install(void); // again: does nothing
bool dt_signals_pending(void);
double dt_signals_age_s(void);     // since the first signal came; 0: none did
const char *dt_signals_name(void); // the first, "SIGTERM"…; "" when none came to this rank

#endif
