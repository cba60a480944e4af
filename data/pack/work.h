// work.h: the folder of unfinished work, OUT.partial, beside the set that is being made.
//
//   OUT.partial/lock        held as long as a pack works here
//              /made-from   what is being made, of what: only the same goes on
//              /set/…       the set's files under their final names
//              /rows-N      rows of shard N, which is whole (shard_rows.h)
//              /publish     names of the set's files, once all are whole and on the disk
//              /old/…       files of a set that is being replaced, until the new ones have their places
#ifndef DT_DATA_WORK_H
#define DT_DATA_WORK_H

#include "pack_plan.h"

typedef struct dt_work {
    const dt_plan *plan;
    char *set; // folder
    int lock_fd;
} dt_work;

// Rank 0: makes the folder and takes its lock. DT_E_USAGE: another pack works there.
dt_status dt_work_open(dt_work *w, const dt_plan *plan);
// Others: only the paths.
void dt_work_attach(dt_work *w, const dt_plan *plan);
void dt_work_close(dt_work *w);
// Heap: partial/NAME.
char *dt_work_path(const dt_work *w, const char *name);

// What is there was made for `text` and stays, or for something else and goes.
dt_status dt_work_claim(const dt_work *w, const char *text);
// Puts the set's files in their places, in place of those that are there. Goes on where a kill has
// stopped it: every step can be repeated. In between files are missing, never mixed.
dt_status dt_work_publish(const dt_work *w);
// Whether a publish was begun; it must be ended before anything else.
bool dt_work_is_publishing(const dt_work *w);
// Removes the folder. The lock goes with it.
dt_status dt_work_remove(dt_work *w);

#endif
