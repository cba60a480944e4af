// log.h: messages for people. Each call writes one line to stderr and, once opened, to the run's log file.
//
// Lines are "dtrain: text" on a terminal; with more than one rank "dtrain[rank]: text". Levels above
// the threshold are dropped. Thread-safe: each line is one write(2). Never called inside a step or a
// decode loop. A full disk never hurts training: lines that cannot be written are lost.
#ifndef DT_BASE_LOG_H
#define DT_BASE_LOG_H

#include "core.h"

typedef enum dt_log_level { DT_LOG_ERROR, DT_LOG_WARN, DT_LOG_INFO, DT_LOG_DEBUG } dt_log_level;

void dt_log(dt_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// For watch.c: does not wait for a line that hangs on its way to the file, nor, unless the disk answers, for the file.
void dt_log_urgent(dt_log_level level, bool disk_answers, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
dt_log_level dt_log_set_level(dt_log_level level); // returns the one before
// The rank that prefixes the lines. Ranks other than 0 drop INFO lines.
void dt_log_set_rank(int rank, int world_size);
int dt_log_rank(void);
// Lines also go to the end of `path` (created). DT_E_STORAGE if it cannot be opened.
dt_status dt_log_open(const char *path);
void dt_log_close(void);
// Called before and after each log line, so that the terminal's live line stays below it.
void dt_log_set_hooks(void (*before)(void), void (*after)(void));

#define dt_info(...) dt_log(DT_LOG_INFO, __VA_ARGS__)
#define dt_warn(...) dt_log(DT_LOG_WARN, __VA_ARGS__)
// For a warning that all ranks would give: only rank 0 prints it.
#define dt_warn_alike(...) (dt_log_rank() == 0 ? dt_warn(__VA_ARGS__) : (void)0)
#define dt_error(...)      dt_log(DT_LOG_ERROR, __VA_ARGS__)

// ---- progress -----------------------------------------------------------------------------------------------------

// The line that moves while a data set is packed or evaluated: how far it is, how fast, and how long it
// will take.

// What this process has done: of several ranks, rank 0 shows its own share, which is about as far as the others'.
typedef struct dt_progress {
    bool on;
    const char *what, *items;          // "pack", "files"
    uint64_t n_items, n_bytes;         // of the source: done
    uint64_t total_items, total_bytes; // to do; 0 bytes: only items count
    // set by begin
    bool terminal;
    double begin_s, shown_s;
} dt_progress;

void dt_progress_begin(dt_progress *p);
void dt_progress_tick(dt_progress *p); // now and then
void dt_progress_end(dt_progress *p);  // the last line

#endif
