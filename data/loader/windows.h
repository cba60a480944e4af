// windows.h: which stretches of the files are read whole, where a shuffle gives windows. For ahead.c only,
// whose lock guards it.
//
// Under data.shuffle: block the places of a window hold the samples of 128 runs of stored neighbours, in a
// shuffled order. Read one by one they are as many reads at random places as samples. So readers read the
// runs instead, each at once, a window before it is wanted: the page cache then has what a place needs.
// That is worth a copy only where reads block, and is given up where the page cache does not keep what was
// read (mounts without one, little memory): ahead.c tells what it saw.
#ifndef DT_DATA_WINDOWS_H
#define DT_DATA_WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

// A run that was taken: a reader keeps it until it has been read.
typedef struct window_run {
    int64_t window;
    int run;             // of the window's
    uint32_t generation; // of `windows` when it was taken
} window_run;

typedef struct windows {
    bool active, useless;
    int n_runs;          // of a window
    int64_t window;      // whose runs are being taken …
    int next_run;        // … and which is next
    uint32_t generation; // changes where it begins anew: runs taken before are nobody's then
    int64_t first;       // where this began: its places do not wait for its runs
    int64_t
        whole; // places up to this window may be read: their runs are there, or are not waited for
    struct {
        int64_t window;
        int left;                     // runs that are not read yet
    } pending[2];                     // even and odd windows
    uint32_t n_reads, n_slow;         // of runs, since the last decision
    uint32_t n_places, n_slow_places; // reads of places whose runs had been read
} windows;

void windows_begin(windows *w, int64_t window);
// The next run to read, while places of window `now` are taken.
bool windows_take(windows *w, int64_t now, window_run *run);
// It was read, by so many reads. Returns whether places may be taken that might not before.
bool windows_done(windows *w, const window_run *run, uint32_t n_reads, uint32_t n_slow);
static inline bool windows_allow(const windows *w, int64_t window) {
    return !w->active || window <= w->whole;
}
// Reads of a place of that window, so many of them slow.
void windows_note_place(windows *w, int64_t window, uint32_t n, uint32_t n_slow);

#endif
