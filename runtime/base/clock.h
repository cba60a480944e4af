// clock.h: monotonic time for durations, wall time for file names and events.
#ifndef DT_BASE_CLOCK_H
#define DT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

double dt_clock_s(void); // CLOCK_MONOTONIC, seconds
// For timing work of `threads` threads that begins and ends in this one: this thread's CPU time if it works alone, so
// that what else the machine does counts little; else dt_clock_s.
double dt_clock_work_s(int threads);
double dt_clock_process_s(void); // since this process was started, by the kernel's count; 0 where it does not tell
// CLOCK_REALTIME, seconds since the epoch. It may be set, so it is for time stamps only, never for waiting.
double dt_clock_wall_s(void);

// Time spent waiting, for the deadlines of polling loops; start with {0} and call once per poll. A gap between
// two calls counts at most a quarter of a second: a process that was suspended, paused or got no core in that
// time did not wait, and those it waits for were probably stopped too.
typedef struct dt_waited {
    double last_s, sum_s;
} dt_waited;
double dt_clock_waited_s(dt_waited *w, double now_s); // now_s: dt_clock_s()
uint64_t dt_rss_bytes(void);                          // current resident set of this process
uint64_t dt_rss_peak_bytes(void);

#endif
