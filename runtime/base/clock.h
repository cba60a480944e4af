// clock.h: monotonic time for durations, wall time for file names and events.
#ifndef DT_BASE_CLOCK_H
#define DT_BASE_CLOCK_H

#include <stdint.h>

double dt_clock_s(void);      // CLOCK_MONOTONIC, seconds
double dt_clock_wall_s(void); // CLOCK_REALTIME, seconds since the epoch

// How long somebody has been waited for, by looks at a clock; {0} before the first. A gap between two looks counts a
// quarter of a second at most: who was stopped meanwhile (a job that is suspended, a machine that is paused) or got no
// core has not waited, and those waited for were stopped with it. For deadlines of loops that look often.
typedef struct dt_waited {
    double last_s, sum_s;
} dt_waited;
double dt_clock_waited_s(dt_waited *w, double now_s); // now_s: dt_clock_s()
uint64_t dt_rss_bytes(void);                          // resident set of this process now
uint64_t dt_rss_peak_bytes(void);

#endif
