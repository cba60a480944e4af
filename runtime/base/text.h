// text.h: the nearest word to a misspelt one; text of others (keys, file names, metadata) made safe
// for a terminal.
#ifndef DT_BASE_TEXT_H
#define DT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

// Whether `text` ends in one of `tails` (".tar|.tar.gz"), in letters of either case.
bool dt_text_ends(const char *text, const char *tails);
// Adds a word to "a, b" in `list`, as far as it fits.
void dt_text_list(char *list, size_t cap, const char *word);
// How often something was found, and the first few of it for one message: "line 3 'a.png', line 9 'b.png', …".
typedef struct dt_examples {
    size_t n;
    char text[300];
} dt_examples;
void dt_examples_add(dt_examples *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// For qsort and bsearch: of arrays of strings, by bytes.
int dt_text_compare(const void *a, const void *b);

// A number of bytes for a message: 812 B, 3.4 kB, 12.3 MB, 1.2 GB.
enum { DT_SIZE_CHARS = 24 };
const char *dt_size_text(char out[DT_SIZE_CHARS], double n_bytes);

// Edit distance from `text` to `word` (n bytes): insertions, deletions, substitutions and swaps of neighbours.
// 1 if text is a prefix of word; DT_TEXT_FAR if text can hardly be meant. Texts of up to three letters must
// share the first letter (gpu is not cpu).
enum { DT_TEXT_FAR = 48 };
int dt_text_closeness(const char *word, size_t n, const char *text);

// Length of the valid UTF-8 sequence at s (RFC 3629: no overlongs, no surrogates), 0 if invalid.
size_t dt_text_utf8_length(const char *s);
// Its first byte that is not UTF-8, or its end.
const char *dt_text_utf8_end(const char *s);

// Text as one line without terminal sequences: control characters (C1 too) and bytes that are no UTF-8 become \n, \t,
// \x1b and so on. clean: to `out`, cut at a letter to fit; its length. All log lines and errors go through it, so
// whoever writes one need not care. print: for results; also doubles backslashes, so that the text can be read back.
size_t dt_text_clean(char *out, size_t cap, const char *text);
void dt_text_print(FILE *out, const char *text);
// fprintf to people: what stands for a %s is cleaned, the line breaks and tabs of `fmt` stay.
void dt_text_printf(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// dt_text_print as a cell of CSV: in quotes where it has a separator, a quote or the end of a line.
void dt_text_print_cell(FILE *out, const char *text);
// Such a cell with its letters as they are, for a file that dtrain reads again. Heap.
char *dt_text_cell(const char *text);

// The header of an NPY file (version 1.0) of elements of `type` ("<f4"): (rows, columns), or (rows,) where columns is -1.
enum { DT_NPY_HEAD = 128 };
void dt_text_npy_head(char out[DT_NPY_HEAD], const char *type, long long rows, long long columns);

// Seconds for people: "0:45", "1:02:03", "3d04h".
void dt_text_duration(char *out, size_t cap, double s);

// Whether standard error reaches a terminal, its own or that of the mpirun that started the process.
bool dt_text_on_terminal(void);
// Width in columns of that terminal, or 80. A live line must fit, or it cannot be erased.
int dt_text_columns(void);

// ---- lines --------------------------------------------------------------------------------------------------------

// The whole lines of a file that may grow while it is read.

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
