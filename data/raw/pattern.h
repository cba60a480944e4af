// pattern.h: file names with named captures: "{subject}__{gender}_{hand}_{n}.BMP".
#ifndef DT_DATA_PATTERN_H
#define DT_DATA_PATTERN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { DT_MAX_CAPTURES = 16, DT_MAX_CAPTURE_BYTES = 128 };

typedef struct dt_capture {
    char name[64];
    char value[DT_MAX_CAPTURE_BYTES];
} dt_capture;

// DT_E_USAGE when the text is no pattern.
dt_status dt_pattern_check(const char *pattern);
// Matches one pattern (no '|') against the last components of `path`, as many as the pattern has.
// Literals match without regard to case; a capture takes one or more bytes other than '/', as few as
// the rest allows. Returns the number of captures, or -1.
int dt_pattern_match(const char *pattern, const char *path, dt_capture out[DT_MAX_CAPTURES]);

#endif
