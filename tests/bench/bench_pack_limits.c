// bench_pack_limits.c: what packing cannot be faster than: reading every file of a folder, and writing that
// many bytes, by plain loops with no purpose.
//
//   bench_pack_limits make DIR N BYTES     N WAVs (8 kHz, 16 bit) of BYTES of samples in 20 folders
//   bench_pack_limits read DIR THREADS     open, read, close each file; prints {"files", "bytes", "s"}
//   bench_pack_limits write FILE BYTES THREADS HOW   blocks of 4 MiB; HOW: cache, cache+sync, direct+sync
//
// Listing the folder is not timed; names are read in the order of the folder's listing, sorted.
#define _GNU_SOURCE
#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUN = 64, BLOCK = 4 << 20, MAX_THREADS = 64, FOLDERS = 20 };

static char **names;
static size_t n_names, cap_names;
static atomic_size_t next_item;
static atomic_uint_fast64_t n_bytes_read;
static int out_fd;
static size_t n_blocks;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int make(const char *dir, int n, int bytes) {
    uint8_t *sample = malloc((size_t)bytes + 44);
    uint32_t seed = 1;
    uint8_t header[44] = "RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0"
                         "\x10\0data";
    uint32_t riff = 36 + (uint32_t)bytes, data = (uint32_t)bytes;
    memcpy(header + 4, &riff, 4);
    memcpy(header + 40, &data, 4);
    memcpy(sample, header, 44);
    for (int i = 0; i < n; i++) {
        char *folder = dt_xprintf("%s/%02d", dir, i % FOLDERS);
        char *path = dt_xprintf("%s/rec_%06d.wav", folder, i);
        for (int k = 44; k + 4 <= bytes + 44; k += 4) {
            seed = seed * 1664525 + 1013904223;
            memcpy(sample + k, &seed, 4);
        }
        if (i < FOLDERS && dt_io_mkdir_all(folder) != DT_OK) die(folder);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(sample, 1, (size_t)bytes + 44, f) != (size_t)bytes + 44 || fclose(f) != 0)
            die(path);
        free(path);
        free(folder);
    }
    free(sample);
    return 0;
}

static void list(const char *dir) {
    char **here;
    size_t n;
    if (dt_io_list_dir(&here, &n, dir, DT_E_DATA) != DT_OK) die(dir);
    for (size_t i = 0; i < n; i++) {
        char *path = dt_xprintf("%s/%s", dir, here[i]);
        if (dt_io_is_dir(path)) {
            list(path);
            free(path);
            continue;
        }
        if (n_names == cap_names)
            names = dt_xrealloc(names, (cap_names = 2 * cap_names + 64) * sizeof *names);
        names[n_names++] = path;
    }
    dt_io_free_list(here, n);
}

static void *read_some(void *arg) {
    size_t cap = 1 << 20;
    char *buf = malloc(cap);
    for (size_t at; (at = atomic_fetch_add(&next_item, RUN)) < n_names;)
        for (size_t i = at; i < at + RUN && i < n_names; i++) {
            int fd = open(names[i], O_RDONLY | O_CLOEXEC);
            ssize_t got;
            if (fd < 0) die(names[i]);
            while ((got = read(fd, buf, cap)) == (ssize_t)cap) atomic_fetch_add(&n_bytes_read, cap);
            if (got < 0) die(names[i]);
            atomic_fetch_add(&n_bytes_read, (uint64_t)got);
            close(fd);
        }
    free(buf);
    return NULL;
}

static void *write_some(void *arg) {
    char *block = aligned_alloc(4096, BLOCK);
    memset(block, 7, BLOCK);
    for (size_t at; (at = atomic_fetch_add(&next_item, 1)) < n_blocks;)
        if (pwrite(out_fd, block, BLOCK, (off_t)(at * BLOCK)) != BLOCK) die("pwrite");
    free(block);
    return NULL;
}

static double run(void *(*fn)(void *), int n) {
    pthread_t t[MAX_THREADS];
    double begin = dt_clock_s();
    for (int i = 0; i < n; i++)
        if (pthread_create(&t[i], NULL, fn, NULL) != 0) die("thread");
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
    return dt_clock_s() - begin;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "make") == 0)
        return make(argv[2], atoi(argv[3]), atoi(argv[4]));
    if (argc == 4 && strcmp(argv[1], "read") == 0) {
        list(argv[2]);
        double s = run(read_some, atoi(argv[3]));
        printf("{\"files\": %zu, \"bytes\": %llu, \"s\": %.4f}\n", n_names,
               (unsigned long long)n_bytes_read, s);
        return 0;
    }
    if (argc == 6 && strcmp(argv[1], "write") == 0) {
        bool direct = strncmp(argv[5], "direct", 6) == 0;
        n_blocks = ((size_t)atoll(argv[3]) + BLOCK - 1) / BLOCK;
        out_fd =
            open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (direct ? O_DIRECT : 0), 0644);
        if (out_fd < 0) die(argv[2]);
        double begin = dt_clock_s();
        if (direct && fallocate(out_fd, 0, 0, (off_t)(n_blocks * BLOCK)) != 0) die("fallocate");
        run(write_some, atoi(argv[4]));
        if (strstr(argv[5], "sync") && fsync(out_fd) != 0) die("fsync");
        printf("{\"bytes\": %zu, \"s\": %.4f}\n", n_blocks * BLOCK, dt_clock_s() - begin);
        return 0;
    }
    fprintf(stderr, "usage: see the top of bench_pack_limits.c\n");
    return 2;
}
