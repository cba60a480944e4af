// process.c: see process.h.

#define _GNU_SOURCE // pipe2

#include "process.h"

#include "base/arena.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_S 0.1 // a program may end and leave its pipe to another one, as ssh does to its master

// ---- start -----------------------------------------------------------------------------------------

static int open_pipe(dt_cli_stream *s, int *write_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    fcntl(ends[0], F_SETFL, O_NONBLOCK); // of our end alone
    s->fd = ends[0];
    *write_end = ends[1];
    return 0;
}

// Signals that are blocked or ignored here are not so there.
static int spawn(pid_t *pid, const char *const *argv, int in, int out, int err, bool own_group) {
    extern char **environ;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGXFSZ);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    if (in >= 0)
        posix_spawn_file_actions_adddup2(&files, in, 0);
    else
        posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, err, 2);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (own_group ? POSIX_SPAWN_SETPGROUP : 0));
    const int e = posix_spawnp(pid, argv[0], &files, &attributes, (char *const *)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return e;
}

int dt_cli_process_start(dt_cli_process *p, const char *const *argv, int in, bool merged, double limit_s) {
    int out = -1, err = -1;
    *p = (dt_cli_process){.out = {.fd = -1}, .err = {.fd = -1}, .end_s = dt_clock_s() + limit_s};
    p->out.text = dt_xcalloc(1, 1);
    p->err.text = dt_xcalloc(1, 1);
    int e = open_pipe(&p->out, &out);
    if (e == 0 && !merged) e = open_pipe(&p->err, &err);
    if (e == 0) e = spawn(&p->pid, argv, in, out, merged ? out : err, isfinite(limit_s));
    if (e != 0) p->pid = 0;
    if (out >= 0) close(out);
    if (err >= 0) close(err);
    return e;
}

// ---- wait ------------------------------------------------------------------------------------------

static void process_drain(dt_cli_stream *s) {
    char bytes[16384];
    while (s->fd >= 0) {
        const ssize_t n = read(s->fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            close(s->fd);
            s->fd = -1;
            return;
        }
        s->text = dt_xrealloc(s->text, s->n + (size_t)n + 1);
        memcpy(s->text + s->n, bytes, (size_t)n);
        s->n += (size_t)n;
        s->text[s->n] = 0;
    }
}

static void close_stream(dt_cli_stream *s) {
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

static void look(dt_cli_process *p) {
    int status = 0;
    if (dt_clock_s() >= p->end_s) kill(-p->pid, SIGKILL);
    const bool ended = waitpid(p->pid, &status, WNOHANG) == p->pid; // first: then all is written
    process_drain(&p->out);
    process_drain(&p->err);
    if (!ended) return;
    p->pid = 0;
    p->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    close_stream(&p->out);
    close_stream(&p->err);
}

bool dt_cli_processes_wait(dt_cli_process *const *p, int n, double seconds) {
    const double end_s = dt_clock_s() + seconds;
    struct pollfd *fds = dt_xcalloc(2 * (size_t)n + 1, sizeof *fds);
    int n_running;
    for (;;) {
        nfds_t n_fds = 0;
        n_running = 0;
        for (int i = 0; i < n; i++) {
            if (p[i]->pid) look(p[i]);
            if (!p[i]->pid) continue;
            n_running++;
            if (p[i]->out.fd >= 0) fds[n_fds++] = (struct pollfd){p[i]->out.fd, POLLIN, 0};
            if (p[i]->err.fd >= 0) fds[n_fds++] = (struct pollfd){p[i]->err.fd, POLLIN, 0};
        }
        const double left_s = end_s - dt_clock_s();
        if (n_running == 0 || left_s <= 0) break;
        // at the end of its streams a program is about to end
        const double rest_s = n_fds == 0 ? 0.001 : LOOK_S;
        poll(fds, n_fds, (int)ceil(1e3 * fmin(left_s, rest_s)));
    }
    free(fds);
    return n_running == 0;
}

int dt_cli_process_run(dt_cli_process *p, const char *const *argv, int in, bool merged, double limit_s) {
    const int e = dt_cli_process_start(p, argv, in, merged, limit_s);
    if (e == 0) dt_cli_processes_wait(&p, 1, INFINITY);
    return e;
}

void dt_cli_process_fini(dt_cli_process *p) {
    if (p->pid) {
        kill(isfinite(p->end_s) ? -p->pid : p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    if (p->out.text) { // else it never was
        close_stream(&p->out);
        close_stream(&p->err);
    }
    free(p->out.text);
    free(p->err.text);
    *p = (dt_cli_process){0};
}
