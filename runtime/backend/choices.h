// choices.h: choices that were timed (which engine, which algorithm), by the description of what is computed; as text,
// and in a file for the next run on the same kind of machine. Both backends use it.
//
// A choice is a line
//   <number> <tab> <description> [<tab> <rates of the candidates>]
// and a file is
//   dtrain <what> <version> <XXH3 of everything behind this line, 16 digits>
//   <the machine's text>
//   <lines>
// A choice is obeyed where rank 0, a checkpoint or the file of an earlier run gave it. The file holds those alone that
// were timed: given ones may come from another machine. Files are caches. One that is torn, of another version or of
// another machine is ignored with one warning and written anew. A file is replaced as a whole, with what other runs
// have added since it was read; of two that write at once one may win. Text only: no NUL.
//
// Used by one thread, while plans are made, never during steps.
#ifndef DT_BACKEND_CHOICES_H
#define DT_BACKEND_CHOICES_H

#include <stdbool.h>
#include <stddef.h>

enum {
    DT_CHOICE_TEXT = 320, // bytes of a description, with its NUL
    DT_CHOICE_RATES = 3,
    DT_CHOICE_NONE = -2 // lines have numbers from -1 to 999
};

typedef struct dt_choice {
    struct dt_choice *next;
    char text[DT_CHOICE_TEXT];
    int choice;                   // of this run, or DT_CHOICE_NONE
    int filed;                    // what the file has, or DT_CHOICE_NONE
    double rate[DT_CHOICE_RATES]; // of the candidates; 0: unknown
    bool given;                   // by rank 0 or a checkpoint
    bool used;                    // asked for and answered; nothing that is read changes the choice any more
} dt_choice;

typedef struct dt_choices_opts {
    const char *what; // "engines 1"; its first word begins the file name
    const char *then; // end of a warning: "engines are chosen anew"
    const char *machine;
    const char *folder; // of the file; NULL: none
    size_t entry_bytes; // of a backend's entries, which begin with a dt_choice; the rest is 0 at first
    // Whether a line that was read may be a choice.
    bool (*accepts)(const dt_choice *line);
} dt_choices_opts;

typedef struct dt_choices {
    dt_choices_opts o;
    char *path, *machine; // path NULL: no file
    dt_choice *first;
    bool dirty; // the file lacks a choice
    bool torn;  // the file was ignored
} dt_choices;

// FOLDER/<first word of what>-<hash of the machine's text>.txt; heap.
char *dt_choices_path(const char *folder, const char *what, const char *machine);
// Takes the choices of the file. Entries that are there already stay.
void dt_choices_open(dt_choices *c, const dt_choices_opts *o);
// Writes the file if it lacks a choice, and returns whether it did. A failure is one warning.
bool dt_choices_save(dt_choices *c);
// Saves; entries go, except, unless `all`, given ones.
void dt_choices_close(dt_choices *c, bool all);

dt_choice *dt_choices_find(const dt_choices *c, const char *text); // NULL: there is none
dt_choice *dt_choices_entry(dt_choices *c, const char *text);      // made where there is none
void dt_choices_file(dt_choices *c, dt_choice *e);                 // the file is to have a choice, unless it was given
dt_choice **dt_choices_sorted(const dt_choices *c, size_t *n);     // by text; heap
// The choices that this run used or was given, as sorted lines; heap.
char *dt_choices_text(const dt_choices *c);
// Takes lines of a checkpoint or of rank 0, which win over the file. Others than choices are skipped. Returns how many.
int dt_choices_take(dt_choices *c, const char *text);

#endif
