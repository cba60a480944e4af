// text.h: words for people: the nearest to a misspelt one, and text of unknown origin (keys, file names,
// metadata) made safe for a terminal.
#ifndef DT_BASE_TEXT_H
#define DT_BASE_TEXT_H

#include <stddef.h>
#include <stdio.h>

// How far `text` is from `word` (n bytes): insertions, deletions, substitutions and swaps of neighbours;
// 1 for the beginning of it; DT_TEXT_FAR when it is too far to be meant. Up to three letters begin alike (gpu is not
// cpu).
enum { DT_TEXT_FAR = 48 };
int dt_text_closeness(const char *word, size_t n, const char *text);

// Length of the valid UTF-8 sequence at s (RFC 3629: no overlongs, no surrogates), 0 if invalid.
size_t dt_text_utf8_length(const char *s);

// Writes text with control characters as \n, \t, \x1b and so on, and a backslash doubled, so that it is
// one line and no terminal sequence. Bytes from 0x80 stay; C1 control characters do not.
void dt_text_print(FILE *out, const char *text);

// Columns of the terminal that standard error is; 80 where it is none or does not say. A live line that is
// longer cannot be taken back.
int dt_text_columns(void);

#endif
