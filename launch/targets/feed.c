// feed.c: see target.h.

#define _GNU_SOURCE // memfd_create

#include "process.h"
#include "target.h"

#include "base/arena.h"
#include "base/io.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// "sbatch: error: a\nsbatch: error: b\n" -> "a; b"
static char *one_line(const char *output, const char *program) {
    char *before = dt_xprintf("%s: error: ", program), *line = dt_xprintf("%s", "");
    const size_t n_before = strlen(before);
    while (*output) {
        if (strncmp(output, before, n_before) == 0) output += n_before;
        const size_t n = strcspn(output, "\n");
        dt_xappend(&line, "%s%.*s", *line && n ? "; " : "", (int)n, output);
        output += n + (output[n] != 0);
    }
    free(before);
    return line;
}

static dt_status feed_judge(const char *program, const dt_cli_process *p) {
    if (p->code == 0) return DT_OK;
    char *line = one_line(p->err.text, program);
    dt_status st = dt_fail(DT_E_USAGE, "%s: %s", program, *line ? line : "failed without a message");
    free(line);
    return st;
}

static dt_status no_start(const char *program, int e) {
    if (e == ENOENT)
        return dt_fail(DT_E_USAGE,
                       "%s is not on this machine: nothing was submitted; --print shows what "
                       "would be",
                       program);
    return dt_fail(DT_E_STORAGE, "%s cannot be started: %s", program, strerror(e));
}

dt_status dt_cli_feed(const char *const *argv, const char *input, char **output) {
    dt_cli_process p;
    *output = NULL;
    const int in = memfd_create("input", MFD_CLOEXEC);
    if (in < 0) return dt_fail(DT_E_STORAGE, "no memory for the input of %s: %s", argv[0], strerror(errno));
    dt_status st = dt_io_write(in, argv[0], input, strlen(input));
    if (st != DT_OK) {
        close(in);
        return st;
    }
    lseek(in, 0, SEEK_SET);
    const int e = dt_cli_process_run(&p, argv, in, false, INFINITY);
    close(in);
    if (e == 0) {
        *output = p.out.text;
        p.out.text = dt_xcalloc(1, 1);
    }
    st = e == 0 ? feed_judge(argv[0], &p) : no_start(argv[0], e);
    dt_cli_process_fini(&p);
    return st;
}
