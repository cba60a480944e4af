// work.h: the folder of unfinished work, OUT.partial, beside the dataset that is being made.
//
//   OUT.partial/lock        held while a pack works here
//              /made-from   of which source, by which command: only the same may go on
//              /set/…       the dataset's files under their final names
//              /rows-N      rows of shard N, which is whole (shard_rows.h)
//              /publish     names of the dataset's files, once all are whole and on the disk
//              /old/…       files of the dataset that is being replaced, until the new ones are in place
//
// Pack works only in a folder that it made: one with an entry of another name or kind (a folder, a link), or with more
// than a lock and no made-from, is refused. Only such entries are ever removed, and no link is followed.
#ifndef DT_DATA_WORK_H
#define DT_DATA_WORK_H

#include "pack_plan.h"

typedef struct dt_work {
    const dt_plan *plan;
    char *set;           // folder
    int lock_fd, dir_fd; // dir_fd: OUT.partial
} dt_work;

// Rank 0: makes the folder and takes its lock. DT_E_USAGE: another pack works there, or it is not pack's.
dt_status dt_work_open(dt_work *w, const dt_plan *plan);
// Other ranks: sets the paths only.
void dt_work_attach(dt_work *w, const dt_plan *plan);
void dt_work_close(dt_work *w);
// partial/NAME. Heap.
char *dt_work_path(const dt_work *w, const char *name);

// What was given to dt_work_claim, by whoever works here; NULL: cannot be read. Heap.
char *dt_work_made_from(const dt_work *w);
// Keeps what pack left there if it was made for `text`, and removes it otherwise.
dt_status dt_work_claim(const dt_work *w, const char *text);
// Puts the dataset's files in their places and the old ones away. Goes on where a kill has stopped it: every step
// can be repeated. In between, files are missing but never mixed.
dt_status dt_work_publish(const dt_work *w);
// Whether a publish was begun; it must be completed before anything else.
bool dt_work_is_publishing(const dt_work *w);
// Removes the folder, and the lock with it. Files that others put there meanwhile stay.
dt_status dt_work_remove(dt_work *w);

#endif
