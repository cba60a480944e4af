// clock.h: monotonic time for durations, wall time for file names and events.
#ifndef DT_BASE_CLOCK_H
#define DT_BASE_CLOCK_H

#include <stdint.h>

double dt_clock_s(void);      // CLOCK_MONOTONIC, seconds
double dt_clock_wall_s(void); // CLOCK_REALTIME, seconds since the epoch
uint64_t dt_rss_bytes(void);  // resident set of this process now
uint64_t dt_rss_peak_bytes(void);

#endif
