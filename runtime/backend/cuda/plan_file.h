// plan_file.h: the form of the two files that cuda_plans.h keeps between runs, so that both are checked in one
// place.
//
//   dtrain <what> <version> <XXH3 of everything behind this line, 16 digits>
//   <the machine's text>
//   <lines>
//
// They are caches: one that is torn, of another version or of another machine is ignored with one line, and
// written anew. They are replaced as a whole, so that two runs at once leave one of the two. Text only: no NUL.
#ifndef DT_BACKEND_CUDA_PLAN_FILE_H
#define DT_BACKEND_CUDA_PLAN_FILE_H

#include "base/status.h"

#include <stddef.h>

typedef struct dt_plan_file {
    const char *what;    // "engines 1": also the first word of the file's name
    const char *machine; // one line
    char *path;          // dt_plan_file_path
    const char *then;    // of a warning: "engines are chosen anew"
    size_t most_bytes;   // a longer one is ignored
} dt_plan_file;

// FOLDER/<what's word>-<hash of the machine's text>.txt; heap.
char *dt_plan_file_path(const char *folder, const char *what, const char *machine);
// The lines, heap; NULL without a file, or with one warning.
char *dt_plan_file_read(const dt_plan_file *f);
// Makes the folder too; a failure is a warning.
void dt_plan_file_write(const dt_plan_file *f, const char *lines);

#endif
