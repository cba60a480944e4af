// slow_read.c: a library to preload that makes reads of some files wait, as a slow disk or server does.
//   SLOW_READ_MATCH  part of the file's name (data.mdb, .tar)
//   SLOW_READ_US     how long each pread of it takes longer
//   SLOW_READ_AFTER  the first so many are not slowed (0)
//   SLOW_READ_COUNT  only so many are slowed (all)
//   SLOW_READ_RANK   only in this rank (all), by OMPI_COMM_WORLD_RANK
//   SLOW_READ_MARK   a file that is made when a read begins to wait; removing it ends the wait (none)
// For benches:
//   cc -O1 -shared -fPIC -o slow_read.so tests/slow_read.c -ldl
//   SLOW_READ_MATCH=.tar SLOW_READ_US=3000 LD_PRELOAD=./slow_read.so build/dtrain data bench CONFIG
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static const char *match, *mark;
static long us, after, count;
static atomic_long seen;
static ssize_t (*real_pread)(int, void *, size_t, off_t);

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

__attribute__((constructor)) static void start(void) {
    const char *only = getenv("SLOW_READ_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    real_pread = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    match = getenv("SLOW_READ_MATCH");
    mark = getenv("SLOW_READ_MARK");
    us = number("SLOW_READ_US", 0);
    after = number("SLOW_READ_AFTER", 0);
    count = number("SLOW_READ_COUNT", LONG_MAX);
    if (only && *only && (!rank || strcmp(only, rank) != 0)) match = NULL;
}

static bool is_slow(int fd) {
    char link[32], path[4096];
    if (!match || us <= 0) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return false;
    path[n] = '\0';
    if (!strstr(path, match)) return false;
    long i = atomic_fetch_add(&seen, 1) - after;
    return i >= 0 && i < count;
}

static void delay(int fd) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    if (!is_slow(fd)) return;
    if (!mark || !*mark) {
        while (nanosleep(&t, &t) != 0) continue;
        return;
    }
    close(open(mark, O_CREAT | O_WRONLY, 0600));
    for (long waited_us = 0; waited_us < us && access(mark, F_OK) == 0; waited_us += 5000) usleep(5000);
}

ssize_t pread(int fd, void *buf, size_t n, off_t at) {
    delay(fd);
    return real_pread(fd, buf, n, at);
}

ssize_t pread64(int fd, void *buf, size_t n, off_t at) {
    return pread(fd, buf, n, at);
}
