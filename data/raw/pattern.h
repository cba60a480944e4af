// pattern.h: file names with named captures: "{subject}__{gender}_{hand}_{n}.BMP".
#ifndef DT_DATA_PATTERN_H
#define DT_DATA_PATTERN_H

#include "base/status.h"

enum { DT_MAX_CAPTURES = 16, DT_MAX_CAPTURE_BYTES = 128 };

typedef struct dt_capture {
    char name[64];
    char value[DT_MAX_CAPTURE_BYTES];
} dt_capture;

// DT_E_USAGE if the text is not a pattern.
dt_status dt_pattern_check(const char *pattern);
// Matches one pattern (no '|') against as many of the last components of `path` as the pattern has. Literals
// ignore case; a capture takes one or more bytes other than '/', as few as possible. Returns the number of
// captures, or -1 if there is no match.
int dt_pattern_match(const char *pattern, const char *path, dt_capture out[DT_MAX_CAPTURES]);

#endif
