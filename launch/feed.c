// feed.c: see target.h.

#include "target.h"

#include "base/arena.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void become(const char *const *argv, FILE *in, FILE *out, FILE *err) {
    dup2(fileno(in), 0);
    dup2(fileno(out), 1);
    dup2(fileno(err), 2);
    execvp(argv[0], (char *const *)argv);
    _exit(errno == ENOENT ? 127 : 126);
}

static char *read_all(FILE *f) {
    const long n = (fseek(f, 0, SEEK_END), ftell(f));
    char *text = dt_xcalloc((size_t)(n > 0 ? n : 0) + 1, 1);
    rewind(f);
    if (n > 0) text[fread(text, 1, (size_t)n, f)] = 0;
    return text;
}

// "sbatch: error: a\nsbatch: error: b\n" -> "a; b"
static char *one_line(const char *output, const char *program) {
    char *before = dt_xprintf("%s: error: ", program), *line = dt_xprintf("%s", "");
    const size_t n_before = strlen(before);
    while (*output) {
        if (strncmp(output, before, n_before) == 0) output += n_before;
        const size_t n = strcspn(output, "\n");
        char *longer = dt_xprintf("%s%s%.*s", line, *line && n ? "; " : "", (int)n, output);
        free(line);
        line = longer;
        output += n + (output[n] != 0);
    }
    free(before);
    return line;
}

static dt_status judge(const char *program, int status, const char *messages) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return DT_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return dt_fail(DT_E_USAGE,
                       "%s is not on this machine: nothing was submitted; --print shows what "
                       "would be",
                       program);
    char *line = one_line(messages, program);
    dt_status st = dt_fail(DT_E_USAGE, "%s: %s: nothing was submitted", program,
                           *line ? line : "failed without a message");
    free(line);
    return st;
}

dt_status launch_feed(const char *const *argv, const char *input, char **output) {
    *output = NULL;
    FILE *in = tmpfile(), *out = tmpfile(), *err = tmpfile();
    dt_status st = DT_OK;
    pid_t pid = -1;
    int status = 0;
    if (!in || !out || !err || fputs(input, in) < 0 || fflush(in) != 0)
        st = dt_fail(DT_E_STORAGE, "a temporary file cannot be written: %s", strerror(errno));
    if (st == DT_OK) {
        rewind(in);
        pid = fork();
        if (pid == 0) become(argv, in, out, err);
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            st = dt_fail(DT_E_STORAGE, "%s cannot be started: %s", argv[0], strerror(errno));
    }
    if (st == DT_OK) {
        *output = read_all(out);
        char *messages = read_all(err);
        st = judge(argv[0], status, messages);
        free(messages);
    }
    if (in) fclose(in);
    if (out) fclose(out);
    if (err) fclose(err);
    return st;
}
