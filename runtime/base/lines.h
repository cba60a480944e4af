// lines.h: the whole lines of a file that may grow while it is read.
#ifndef DT_BASE_LINES_H
#define DT_BASE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct dt_lines {
    int fd;   // < 0: no file
    off_t at; // behind the line that came last
    char *buffer;
    size_t cap, begin, end; // of the buffer, and in it what was read behind `at`
} dt_lines;

// Opens a regular file, through no symbolic link at its end, to read its lines from byte `from` on. False: there is none. Close it in any case.
bool dt_lines_open(dt_lines *l, const char *path, off_t from);
// The next line: n bytes without its newline, then a NUL; valid until the next call. NULL: none, or one without its
// newline as yet, or one of more than 256 MB.
char *dt_lines_next(dt_lines *l, size_t *n);
void dt_lines_close(dt_lines *l);

#endif
