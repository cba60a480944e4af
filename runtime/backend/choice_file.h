// choice_file.h: choices that were timed (which engine, which kernel) as text, and as files for the next run on the
// same kind of machine. Both backends use it.
//
// A choice is a line
//   <number> <tab> <description> [<tab> <more>]
// and a file is
//   dtrain <what> <version> <XXH3 of everything behind this line, 16 digits>
//   <the machine's text>
//   <lines>
// Files are caches. One that is torn, of another version or of another machine is ignored with one warning and
// written anew. Files are replaced as a whole, so that of two concurrent runs one may win. Text only: no NUL.
#ifndef DT_BACKEND_CHOICE_FILE_H
#define DT_BACKEND_CHOICE_FILE_H

#include <stdbool.h>
#include <stddef.h>

enum { DT_CHOICE_TEXT = 320 }; // bytes of a description, with its NUL

typedef struct dt_choice_file {
    const char *what;    // "engines 1"; its first word begins the file name
    const char *machine; // one line
    char *path;          // dt_choice_file_path
    const char *then;    // end of a warning: "engines are chosen anew"
    size_t most_bytes;   // longer files are ignored
} dt_choice_file;

// FOLDER/<first word of what>-<hash of the machine's text>.txt; heap.
char *dt_choice_file_path(const char *folder, const char *what, const char *machine);
// Returns the lines (heap); NULL without a file, or with one warning.
char *dt_choice_file_read(const dt_choice_file *f);
// Creates the folder if necessary. A failure is a warning.
void dt_choice_file_write(const dt_choice_file *f, const char *lines);

// One line of either file.
typedef struct dt_choice_line {
    int choice;
    char desc[DT_CHOICE_TEXT];
    const char *rest; // behind a second tab; NULL if there is none
    size_t n_rest;
} dt_choice_line;
// Reads the line at `text` into *out; false if it is malformed (numbers are -1 to 999). *next is the next line, NULL
// at the end.
bool dt_choice_line_read(const char *text, dt_choice_line *out, const char **next);

#endif
