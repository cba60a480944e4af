// windows.c: the run to read next, and whether reading runs pays.
//
// Runs of the present window and of the one after it are read, in order, by several readers; a window is
// whole when its last run is. Who falls behind (the places are in a window already whose runs are not read)
// goes on in the middle of it. Nothing waits for the first window, so that the first batch comes at once.
//
// A reader keeps the run that it reads while the lock is open, and meanwhile windows may begin anew, even with
// the same one: runs were given up, and pay again before all that were under way have been read. Those
// are then neither counted nor missed: each carries the generation it was taken in. A window's number
// alone would let them pass for runs that nobody has read yet.
//
// Runs of two windows are missed at most, of an even and an odd one: places never wait for a window that they
// are past, so the one after the next takes its count over.
#include "windows.h"

#include <assert.h>

enum { OFF_SHARE = 16, MIN_PLACES = 256, USELESS_SHARE = 4 };

// dt_ahead_get_stats looks without the lock.
static void set_active(windows *w, bool active) {
    __atomic_store_n(&w->active, active, __ATOMIC_RELAXED);
}

void windows_begin(windows *w, int64_t window) {
    w->window = w->first = w->whole = window;
    w->generation++;
    w->next_run = 0;
    w->n_reads = w->n_slow = w->n_places = w->n_slow_places = 0;
    set_active(w, w->n_runs > 0 && !w->useless);
    w->pending[0].window = w->pending[1].window = -1;
}

bool windows_take(windows *w, int64_t now, window_run *run) {
    if (!w->active || w->window > now + 1) return false;
    if (w->window < now) windows_begin(w, now);
    *run = (window_run){w->window, w->next_run++, w->generation};
    if (run->run == 0) {
        w->pending[run->window & 1].window = run->window;
        w->pending[run->window & 1].left = w->n_runs;
    }
    if (w->next_run == w->n_runs) {
        w->next_run = 0;
        w->window++;
    }
    return true;
}

bool windows_done(windows *w, const window_run *run, uint32_t n_reads, uint32_t n_slow) {
    int64_t window = run->window;
    if (!w->active || run->generation != w->generation) return false; // begun anew meanwhile
    if (w->pending[window & 1].window != window) return false;        // places are past it
    assert(w->pending[window & 1].left > 0);
    w->n_reads += n_reads;
    w->n_slow += n_slow;
    if (--w->pending[window & 1].left > 0) return false;
    if (window > w->whole) w->whole = window;
    if (w->n_slow * OFF_SHARE < w->n_reads) set_active(w, false); // the bytes are there already
    w->n_reads = w->n_slow = 0;
    return true;
}

void windows_note_place(windows *w, int64_t window, uint32_t n, uint32_t n_slow) {
    if (!w->active || window <= w->first || window > w->whole) return;
    w->n_places += n;
    w->n_slow_places += n_slow;
    if (w->n_places < MIN_PLACES) return;
    if (w->n_slow_places * USELESS_SHARE > w->n_places) {
        w->useless = true;
        set_active(w, false);
    }
    w->n_places = w->n_slow_places = 0;
}
