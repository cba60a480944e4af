// process.h: other programs, run for their answer. Their words go to them as they are: no shell is in between.
//
// What a program writes is kept in memory, so it never waits for us. One with a limit is ended by it, and so is all
// that it started (it has a process group of its own); one without stays in ours, where it may ask at the terminal.
#ifndef DT_LAUNCH_PROCESS_H
#define DT_LAUNCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { LAUNCH_REACH_S = 20 }; // for an answer of a host; one that takes longer is lost

typedef struct dt_cli_stream {
    int fd; // of a pipe; -1: at its end
    char *text;
    size_t n;
} dt_cli_stream;

typedef struct dt_cli_process {
    pid_t pid;              // 0: none, or ended
    int code;               // once it has ended: its exit code, 128 + number for a signal
    double end_s;           // when it is ended; INFINITY: never
    dt_cli_stream out, err; // `text` is a string once it has ended, never NULL
} dt_cli_process;

// Starts argv (ended by NULL, looked for in PATH) with the bytes of the descriptor `in` (-1: none) on its stdin.
// merged: what it writes to stderr is in `out` too, and `err` stays empty. limit_s: INFINITY for none. 0, or an
// errno.
int dt_cli_process_start(dt_cli_process *p, const char *const *argv, int in, bool merged, double limit_s);
// Reads what the n programs write, so long or until all have ended (true). Those that never started have ended.
bool dt_cli_processes_wait(dt_cli_process *const *p, int n, double seconds);
// Runs to its end. 0, or an errno.
int dt_cli_process_run(dt_cli_process *p, const char *const *argv, int in, bool merged, double limit_s);
// Ends it if it still runs, and frees what it has.
void dt_cli_process_fini(dt_cli_process *p);

#endif
