// lines.c: see lines.h.
#include "base/lines.h"

#include "base/arena.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, MOST_BYTES = 256 << 20 };

bool dt_lines_open(dt_lines *l, const char *path, off_t from) {
    struct stat s;
    *l = (dt_lines){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW), .at = from};
    if (l->fd >= 0 && (fstat(l->fd, &s) != 0 || !S_ISREG(s.st_mode))) dt_lines_close(l);
    return l->fd >= 0;
}

char *dt_lines_next(dt_lines *l, size_t *n) {
    for (size_t looked = 0;;) { // looked: bytes of the line that have no newline
        const size_t held = l->end - l->begin;
        char *line = l->buffer + l->begin, *newline = held > looked ? memchr(line + looked, '\n', held - looked) : NULL;
        if (newline) {
            *newline = '\0';
            *n = (size_t)(newline - line);
            l->begin += *n + 1;
            l->at += (off_t)*n + 1;
            return line;
        }
        if (l->fd < 0 || held > MOST_BYTES) return NULL;
        if (held > 0) memmove(l->buffer, line, held);
        l->begin = 0;
        l->end = looked = held;
        if (l->cap - held < READ_BYTES) {
            l->cap = 2 * l->cap + READ_BYTES;
            l->buffer = dt_xrealloc(l->buffer, l->cap);
        }
        const ssize_t got = pread(l->fd, l->buffer + held, READ_BYTES, l->at + (off_t)held);
        if (got <= 0) return NULL;
        l->end += (size_t)got;
    }
}

void dt_lines_close(dt_lines *l) {
    if (l->fd >= 0) close(l->fd);
    free(l->buffer);
    *l = (dt_lines){.fd = -1};
}
