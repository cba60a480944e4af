// text.c: nearest words, text for terminals.

#include "text.h"

#include "core.h"
#include "os.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

bool dt_text_ends(const char *text, const char *tails) {
    const size_t n = strlen(text);
    for (const char *p = tails; *p; p += *p == '|') { // alternatives: ".jpg|.png"
        const size_t k = strcspn(p, "|");
        if (n >= k && strncasecmp(text + n - k, p, k) == 0) return true; // file names: case does not matter
        p += k;
    }
    return false;
}

void dt_text_list(char *list, size_t cap, const char *word) {
    const size_t n = strlen(list);
    snprintf(list + n, cap - n, "%s%s", n ? ", " : "", word); // the list is cut at cap, never overrun
}

int dt_text_compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Optimal string alignment.
static int edit_distance(const char *a, size_t n, const char *b, size_t m) {
    int d[DT_TEXT_FAR + 1][DT_TEXT_FAR + 1]; // rows: prefixes of a, columns: of b
    if (n > DT_TEXT_FAR || m > DT_TEXT_FAR) return DT_TEXT_FAR;
    for (size_t i = 0; i <= n; i++) d[i][0] = (int)i;
    for (size_t j = 0; j <= m; j++) d[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]); // substitution, or equal
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;  // deletion
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;  // insertion
            // transposition of neighbours
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

int dt_text_closeness(const char *word, size_t n, const char *text) {
    size_t m = strlen(text);
    if (m >= 3 && m < n && memcmp(word, text, m) == 0) return 1; // a prefix
    // short words: the first letter must be right
    if (m <= 3 && m > 0 && n > 0 && word[0] != text[0]) return DT_TEXT_FAR;
    int d = edit_distance(word, n, text, m);
    int allowed = m <= 3 ? 1 : (int)m / 3 + 1; // a third of the word may differ
    return d <= allowed ? d : DT_TEXT_FAR;
}

size_t dt_text_utf8_length(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return 1;                                                   // ASCII, NUL included
    size_t n = s[0] >= 0xC2 && s[0] <= 0xDF ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : 0; // C0 and C1 would be overlong
    if (s[0] >= 0xF0 && s[0] <= 0xF4) n = 4;                                     // F5 and above: beyond U+10FFFF
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;                                                  // also stops at NUL
    if (n == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F))) return 0; // overlong, or surrogates
    // overlong, or beyond U+10FFFF
    if (n == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F))) return 0;
    return n;
}

const char *dt_text_utf8_end(const char *s) {
    for (size_t n; *s && (n = dt_text_utf8_length(s)) > 0;) s += n; // *s: 0, or the first byte of no UTF-8
    return s;
}

// Writes the letter at p to `out` as it may be shown; returns how many bytes of p it was.
static size_t show_letter(char out[5], const char *p) {
    // escapes as in C
    static const char LETTERS[] = "\a\b\t\n\v\f\r", NAMES[] = "abtnvfr";
    const unsigned char c = (unsigned char)*p, next = c ? (unsigned char)p[1] : 0; // no read behind the NUL
    const size_t n = dt_text_utf8_length(p);
    const bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0; // U+0080..U+009F
    const char *at = strchr(LETTERS, c);
    if (at)
        snprintf(out, 5, "\\%c", NAMES[at - LETTERS]);
    else if (c < 0x20 || c == 0x7f || n == 0 || c1)
        snprintf(out, 5, "\\x%02x", c1 ? next : c);
    else
        *stpncpy(out, p, n) = '\0'; // stpncpy: the terminator's place
    return n == 0 ? 1 : n;          // an invalid byte is one letter
}

void dt_text_print(FILE *out, const char *text) {
    char shown[5];
    while (*text) {
        if (*text == '\\') fputc('\\', out); // doubled, so that an escape is unambiguous
        text += show_letter(shown, text);
        fputs(shown, out);
    }
}

void dt_text_printf(FILE *out, const char *fmt, ...) {
    enum { LINE = 1, TAB };
    char shown[5], *text, *form = dt_xstrdup(fmt);
    // the format's own newlines and tabs pass; those in arguments do not
    for (char *p = form; *p; p++) *p = *p == '\n' ? LINE : *p == '\t' ? TAB : *p;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&text, form, args) < 0) abort(); // no memory: as dt_xcalloc
    va_end(args);
    for (const char *p = text; *p;) {
        if (*p == LINE || *p == TAB) {
            fputc(*p++ == LINE ? '\n' : '\t', out); // control characters 1 and 2 stand for them
            continue;
        }
        p += show_letter(shown, p);
        fputs(shown, out);
    }
    free(text);
    free(form);
}

char *dt_text_cell(const char *text) {
    if (!strpbrk(text, ",;\t\"\r\n")) return dt_xstrdup(text); // RFC 4180, and ; and tab for other readers
    char *cell = dt_xstrdup("\"");
    while (*text) { // from quote to quote
        const int n = (int)strcspn(text, "\"");
        dt_xappend(&cell, "%.*s%s", n, text, text[n] ? "\"\"" : ""); // a quote is doubled
        text += n + (text[n] != 0);
    }
    dt_xappend(&cell, "\"");
    return cell;
}

void dt_text_print_cell(FILE *out, const char *text) {
    char *cell = dt_text_cell(text);
    dt_text_print(out, cell);
    free(cell);
}

// The descriptor of the terminal that shows this process's stderr, or -1.
static int stderr_terminal(void) {
    static _Atomic int launcher = -2; // -2: not looked for yet
    if (isatty(STDERR_FILENO)) return STDERR_FILENO;
    if (launcher != -2) return launcher;
    char path[64];
    int fd = -1;
    if (dt_launcher_rank() >= 0) {
        // mpirun reads its ranks' stderr through a pipe and writes to its own; mpirun is the parent of rank 0, usually
        snprintf(path, sizeof path, "/proc/%d/fd/2", (int)getppid()); // readable: the same user
        fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    }
    if (fd >= 0 && !isatty(fd)) {
        close(fd);
        fd = -1;
    }
    launcher = fd; // two threads may both open: the last wins, one descriptor stays
    return fd;
}

bool dt_text_on_terminal(void) {
    return stderr_terminal() >= 0;
}

size_t dt_text_clean(char *out, size_t cap, const char *text) {
    char shown[5];
    size_t n = 0;
    while (*text) {
        text += show_letter(shown, text);
        const size_t k = strlen(shown);
        if (n + k >= cap) break; // whole letters only
        memcpy(out + n, shown, k);
        n += k;
    }
    out[n] = '\0';
    return n;
}

int dt_text_columns(void) {
    struct winsize w;
    return ioctl(stderr_terminal(), TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80; // 80: no terminal that knows
}

const char *dt_size_text(char out[DT_SIZE_CHARS], double n_bytes) {
    static const char *const UNITS[] = {"B", "kB", "MB", "GB", "TB"};
    int k = 0;
    for (; k < 4 && n_bytes >= 1000; k++) n_bytes /= 1000;
    snprintf(out, DT_SIZE_CHARS, "%.*f %s", k ? 1 : 0, n_bytes, UNITS[k]);
    return out;
}

void dt_examples_add(dt_examples *e, const char *fmt, ...) {
    enum { MOST = 3 }; // examples in a message
    const size_t at = strlen(e->text);
    va_list args;
    if (e->n++ < MOST) { // counts beyond MOST too
        const int n = snprintf(e->text + at, sizeof e->text - at, "%s", at ? ", " : "");
        if (at + (size_t)n >= sizeof e->text) return; // full
        va_start(args, fmt);
        vsnprintf(e->text + at + n, sizeof e->text - at - (size_t)n, fmt, args);
        va_end(args);
    } else if (e->n == MOST + 1 && at + sizeof ", …" <= sizeof e->text) { // once, if it fits
        strcpy(e->text + at, ", …");
    }
}

// magic, version, length of the rest (118), a dictionary of Python, blanks, a line break: NumPy's numpy.lib.format
void dt_text_npy_head(char out[DT_NPY_HEAD], const char *type, long long rows, long long columns) {
    char shape[64];
    snprintf(shape, sizeof shape, columns < 0 ? "%lld," : "%lld, %lld", rows, columns);
    memcpy(out, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int n =
        snprintf(out + 10, DT_NPY_HEAD - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    memset(out + 10 + n, ' ', (size_t)(DT_NPY_HEAD - 11 - n));
    out[DT_NPY_HEAD - 1] = '\n';
}

void dt_text_duration(char *out, size_t cap, double s) {
    int64_t t = s < 0 ? 0 : s > 1e8 ? 100000000 : (int64_t)(s + 0.5); // clamped: no overflow of the fields, NaN aside
    if (t >= 86400)
        snprintf(out, cap, "%" PRId64 "d%02" PRId64 "h", t / 86400, t / 3600 % 24);
    else if (t >= 3600)
        snprintf(out, cap, "%" PRId64 ":%02" PRId64 ":%02" PRId64, t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(out, cap, "%" PRId64 ":%02" PRId64, t / 60, t % 60);
}

// ---- lines --------------------------------------------------------------------------------------------------------

enum { READ_BYTES = 1 << 20, MOST_BYTES = 256 << 20 }; // bytes of a read; of the longest line

bool dt_lines_open(dt_lines *l, const char *path, off_t from) {
    struct stat s;
    *l = (dt_lines){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW), .at = from};
    if (l->fd >= 0 && (fstat(l->fd, &s) != 0 || !S_ISREG(s.st_mode))) dt_lines_close(l); // a FIFO or device could block
    return l->fd >= 0;
}

char *dt_lines_next(dt_lines *l, size_t *n) {
    // at: offset in the file of the line's beginning
    for (size_t looked = 0;;) { // looked: bytes of the line that have no newline
        const size_t held = l->end - l->begin;
        // only new bytes are searched
        char *line = l->buffer + l->begin, *newline = held > looked ? memchr(line + looked, '\n', held - looked) : NULL;
        if (newline) {
            *newline = '\0';
            *n = (size_t)(newline - line);
            l->begin += *n + 1; // the next line begins behind the newline
            l->at += (off_t)*n + 1;
            return line;
        }
        if (l->fd < 0 || held > MOST_BYTES) return NULL; // a line without end in a damaged file
        if (held > 0) memmove(l->buffer, line, held);    // the beginning of a line moves to the front
        l->begin = 0;
        l->end = looked = held;
        if (l->cap - held < READ_BYTES) {
            l->cap = 2 * l->cap + READ_BYTES; // doubles
            l->buffer = dt_xrealloc(l->buffer, l->cap);
        }
        const ssize_t got = pread(l->fd, l->buffer + held, READ_BYTES, l->at + (off_t)held);
        if (got <= 0) return NULL; // end of what is written: a later call goes on from here
        l->end += (size_t)got;
    }
}

void dt_lines_close(dt_lines *l) {
    if (l->fd >= 0) close(l->fd);
    free(l->buffer);
    *l = (dt_lines){.fd = -1};
}
