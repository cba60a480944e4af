// signals.h: SIGTERM, SIGINT, SIGUSR1 and SIGHUP ask for a stop. The handler sets a flag and nothing
// else; the trainer reads it once a step, all ranks agree through the step's reduction, save, and leave
// with 75. A second SIGINT ends the process at once (130): the last checkpoint is what remains. One within
// DT_SIGNALS_APART_S of the first counts as the first, because timeout and sudo pass on what the terminal sends to
// all. A SIGHUP that was ignored at the start (nohup) stays ignored. SIGPIPE is ignored: `dtrain … | head` goes on.
//
// run.grace: whoever computes asks dt_signals_grace_is_over now and then, drops what it does, and the run saves. Before
// the first step nothing has to be saved, and much of what is done there cannot be asked (reading an index, connecting,
// timing engines): between dt_signals_starting and dt_signals_started the process ends itself with 75 at the end of
// the grace. Evaluation, prediction and the like save nothing and end so at any time: what they write gets its name
// when it is whole (dt_io_begin), and what is not whole is removed.
//
// The first dt_signals_install blocks them in the calling thread and starts the one thread that
// takes them, until the process ends: call it before the first thread that computes is made.
#ifndef DT_TRAIN_SIGNALS_H
#define DT_TRAIN_SIGNALS_H

#include <stdbool.h>

#define DT_SIGNALS_APART_S 0.3

void dt_signals_install(void); // again: does nothing
bool dt_signals_pending(void);
void dt_signals_set_grace(double seconds);
bool dt_signals_grace_is_over(void); // a signal came longer ago than that
// The run has saved what it saves. From here a SIGINT ends what is still sent, as any signal does, and another one ends the
// process. stopped: the run ends because of the signals that have come.
void dt_signals_saved(bool stopped);
bool dt_signals_again(void);       // whether a signal has come that the run did not end because of
void dt_signals_starting(void);    // before dt_signals_install
void dt_signals_started(void);     // does not return where the process is just ending itself
bool dt_signals_take_trace(void);  // whether a SIGUSR2 has come since this was last asked: a timeline is wanted
const char *dt_signals_name(void); // the first, "SIGTERM"…; "" when none came to this rank

#endif
