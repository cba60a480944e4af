// slow_reads.c: a disk or network that answers late, for benches: a library to preload. Every read of the
// files whose path contains SLOW_PATH takes SLOW_US microseconds longer.
//   cc -shared -fPIC -O2 -o slow_reads.so tests/bench/slow_reads.c -ldl
//   SLOW_PATH=.tar SLOW_US=3000 LD_PRELOAD=./slow_reads.so build/dtrain data bench CONFIG
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

ssize_t pread(int fd, void *data, size_t n, off_t at);
ssize_t pread64(int fd, void *data, size_t n, off64_t at);
ssize_t preadv(int fd, const struct iovec *parts, int n, off_t at);

static void delay(int fd) {
    static long us = -1;
    static const char *part;
    char link[64], path[4096];
    if (us < 0) {
        part = getenv("SLOW_PATH");
        us = getenv("SLOW_US") ? atol(getenv("SLOW_US")) : 0;
    }
    if (us == 0) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = '\0';
    if (part && !strstr(path, part)) return;
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

ssize_t pread(int fd, void *data, size_t n, off_t at) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) real = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    delay(fd);
    return real(fd, data, n, at);
}

ssize_t pread64(int fd, void *data, size_t n, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) real = (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    delay(fd);
    return real(fd, data, n, at);
}

ssize_t preadv(int fd, const struct iovec *parts, int n, off_t at) {
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    if (!real) real = (ssize_t(*)(int, const struct iovec *, int, off_t))dlsym(RTLD_NEXT, "preadv");
    delay(fd);
    return real(fd, parts, n, at);
}
