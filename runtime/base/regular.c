// regular.c: see regular.h.
#include "regular.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 2000, MOST_DEPTH = 32 }; // parts of the expanded expression; groups within groups

// Behind the list that begins at `p`, "[]a-z]" or "[^]a-z]".
static const char *skip_list(const char *p) {
    p += 1 + (p[1] == '^'); // [ and a leading ^
    p += *p == ']';         // ] directly behind is a member
    return p + strcspn(p, "]");
}

// How often regcomp writes out what "{2,5}" or "{2,}" (xxx*) at `p` repeats; p moves to its end.
static double take_most(const char **p) {
    double most = 1; // x{0} counts as one
    for (*p += 1; **p && **p != '}';) {
        char *end;
        const double n = strtod(*p, &end); // numbers only: "2,5"
        if (n > most) most = n;
        *p = end > *p ? end : *p + 1;
    }
    return most + (p[0][-1] == ','); // "{2,}": one more, for the x* behind
}

// What regcomp or regexec would take gigabytes or ages for; NULL: nothing.
static const char *regular_find_fault(const char *p) {
    double parts[MOST_DEPTH] = {0}, last = 0,
           grown = 0; // of each open group; of what a repeat is of; by repeats
    int depth = 0;
    for (; *p; p++) {
        if (*p == '(') {
            if (++depth == MOST_DEPTH) return "more than 31 groups within one another";
            parts[depth] = 0; // the group's own parts
        } else if (*p == ')' && depth > 0) {
            last = parts[depth--]; // a repeat behind the group repeats all of it
            parts[depth] += last;
        } else if (*p == '{' || *p == '+') { // regcomp writes x+ out as xx*
            const double more = *p == '+' ? 1 : take_most(&p) - 1;
            grown += last * more;
            parts[depth] += last * more; // of the enclosing group too
            last += last * more;         // a second repeat behind repeats the repeated
        } else if (!strchr("*?|^$", *p)) {
            // regexec backtracks over them without bound
            if (*p == '\\' && isdigit((unsigned char)p[1])) return "back-references are not read";
            if (*p == '\\' && p[1])
                p++; // an escaped character is one part
            else if (*p == '[')
                p = skip_list(p);
            parts[depth] += last = 1;
        }
        if (grown > MOST_PARTS) return "its repeats come to more than 2000 parts"; // of all groups
        if (!*p) break;
    }
    return NULL;
}

bool dt_regular_compile(regex_t *out, const char *text, int flags, char why[DT_REGULAR_WHY]) {
    const char *fault = regular_find_fault(text);
    if (fault) {
        snprintf(why, DT_REGULAR_WHY, "%s", fault);
        return false;
    }
    const int error = regcomp(out, text, REG_EXTENDED | flags); // POSIX extended; "flags" adds REG_ICASE or REG_NOSUB
    if (error) regerror(error, out, why, DT_REGULAR_WHY);
    return !error;
}
