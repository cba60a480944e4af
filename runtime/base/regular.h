// regular.h: POSIX extended regular expressions of users. regcomp writes a repeated part out as often as it may come, so
// {255} within {255} within {255} takes gigabytes or overflows the stack, and back-references (\1) take for ever: both are
// refused before it runs.
#ifndef DT_BASE_REGULAR_H
#define DT_BASE_REGULAR_H

#include <regex.h>
#include <stdbool.h>

enum { DT_REGULAR_WHY = 128 };
// regcomp with REG_EXTENDED | flags. false: `why` is the fault of the text, and there is nothing to free.
bool dt_regular_compile(regex_t *out, const char *text, int flags, char why[DT_REGULAR_WHY]);

#endif
