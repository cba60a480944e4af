// goodput.h: a ledger of where every second of a run went, over all of its attempts.
//
// An attempt adds what it measures. At its start it takes over the ledger of the attempts before it from metrics.jsonl:
// from the last line that has one, and from the steps behind that line. Steps behind the checkpoint from which the run
// goes on are done again: their seconds are lost. The time since anything was written is waiting.
#ifndef DT_METRICS_GOODPUT_H
#define DT_METRICS_GOODPUT_H

#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum dt_goodput_part {
#define GOODPUT(id, ...) DT_GOODPUT_##id,
#include "observe/goodput.def"
#undef GOODPUT
    DT_N_GOODPUT
} dt_goodput_part;
typedef struct dt_goodput_info {
    const char *name, *what, *advice;
} dt_goodput_info;
extern const dt_goodput_info dt_goodput_parts[DT_N_GOODPUT];

typedef struct dt_goodput {
    double seconds[DT_N_GOODPUT];
    int64_t attempts, lost_steps; // attempts: with this one
    double cores_got;             // of `cores`, in this attempt, on a machine that has none free
    int cores;                    // 0: it got what it could use
} dt_goodput;

// Takes over what metrics.jsonl at `path` says of earlier attempts; keep_bytes of it stay (see dt_metrics_opts), 0: none.
// started_s: the start of this process, in wall-clock seconds. A file that is not there, or cannot be read, has none.
void dt_goodput_resume(dt_goodput *g, const char *path, int64_t keep_bytes, double started_s);
double dt_goodput_ratio(const dt_goodput *g); // of all seconds, those of steps that count; 0 before there are any
dt_goodput_part dt_goodput_worst(const dt_goodput *g); // besides `steps`: what would raise the ratio most
// The members of a line: attempt, goodput, lost_steps, raise, seconds {…}.
void dt_goodput_write(const dt_goodput *g, dt_json *j);

#endif
