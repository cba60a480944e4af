// bench_pack_limits.c: what packing cannot be faster than: reading every file of a folder, writing that many
// bytes, and doing both in one program, by plain loops with no purpose.
//
//   bench_pack_limits make DIR N BYTES     N WAVs (8 kHz, 16 bit) of BYTES of samples in 20 folders
//   bench_pack_limits read DIR THREADS     walk the folder, then open, read and close each file
//   bench_pack_limits write FILE BYTES THREADS HOW   blocks of 1 MiB; HOW: cache, cache+sync, direct+sync
//   bench_pack_limits copy DIR FILE THREADS HOW      walk, open, read, close, and the bytes of each file with
//                                          room for what a tar adds (2,560 bytes) into such blocks
//
// Each prints {"files", "bytes", "s"}. The walk is timed: it lists folders and asks for no file's size. Nothing
// is sorted, and a copy's files lie in the order in which threads come by them: no set, no hash, no index, no
// two runs alike. It is what the machine can do when nothing is wanted but the bytes on the disk.
#define _GNU_SOURCE
#include "base/core.h"
#include "base/io.h"
#include "base/os.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUN = 64, BLOCK = 1 << 20, OVERHEAD = 2560, MAX_THREADS = 64, FOLDERS = 20 };

static char **names;
static size_t n_names, cap_names;
static atomic_size_t next_item;
static atomic_uint_fast64_t n_bytes_read;
static atomic_uint_fast64_t n_bytes_written;
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
        if (!f || fwrite(sample, 1, (size_t)bytes + 44, f) != (size_t)bytes + 44 || fclose(f) != 0) die(path);
        free(path);
        free(folder);
    }
    free(sample);
    return 0;
}

static void list(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) die(path);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        char *name = dt_xprintf("%s/%s", path, e->d_name);
        if (e->d_type == DT_DIR) {
            list(name);
            free(name);
            continue;
        }
        if (n_names == cap_names) names = dt_xrealloc(names, (cap_names = 2 * cap_names + 64) * sizeof *names);
        names[n_names++] = name;
    }
    closedir(dir);
}

static void *read_some(void *arg) {
    size_t cap = 1 << 20;
    char *buf = aligned_alloc(4096, cap); // the kernel's copy to another place takes four times as long
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

// Bytes of a file to p, which has room for `cap`.
static size_t read_whole(const char *name, uint8_t *p, size_t cap) {
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, p, cap) : -1;
    if (got < 0 || (size_t)got == cap) die(name);
    close(fd);
    return (size_t)got;
}

static void flush(const uint8_t *block, size_t n) {
    size_t whole = (n + 4095) / 4096 * 4096; // as a direct write wants it
    off_t at = (off_t)atomic_fetch_add(&n_bytes_written, whole);
    if (pwrite(out_fd, block, whole, at) != (ssize_t)whole) die("pwrite");
}

static void *copy_some(void *arg) {
    uint8_t *block = aligned_alloc(2 << 20, 2 << 20);
    size_t n = 0;
    memset(block, 7, 2 << 20);
    for (size_t at; (at = atomic_fetch_add(&next_item, RUN)) < n_names;)
        for (size_t i = at; i < at + RUN && i < n_names; i++) {
            size_t got = read_whole(names[i], block + n + 512, (2 << 20) - n - 512 - OVERHEAD);
            atomic_fetch_add(&n_bytes_read, got);
            n += (got + 511) / 512 * 512 + OVERHEAD;
            if (n < BLOCK) continue;
            flush(block, n);
            n = 0;
        }
    if (n > 0) flush(block, n);
    free(block);
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

static void run(void *(*fn)(void *), int n) {
    pthread_t t[MAX_THREADS];
    for (int i = 0; i < n; i++)
        if (pthread_create(&t[i], NULL, fn, NULL) != 0) die("thread");
    for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
}

static bool open_out(const char *path, const char *how, uint64_t n_bytes) {
    bool direct = strncmp(how, "direct", 6) == 0;
    out_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (direct ? O_DIRECT : 0), 0644);
    if (out_fd < 0) die(path);
    if (direct && fallocate(out_fd, 0, 0, (off_t)n_bytes) != 0) die("fallocate");
    return strstr(how, "sync") != NULL;
}

static int end(double begin, uint64_t n_bytes, bool sync) {
    if (sync && fsync(out_fd) != 0) die("fsync");
    printf("{\"files\": %zu, \"bytes\": %llu, \"s\": %.4f}\n", n_names, (unsigned long long)n_bytes,
           dt_clock_s() - begin);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "make") == 0) return make(argv[2], atoi(argv[3]), atoi(argv[4]));
    double begin = dt_clock_s();
    if (argc == 4 && strcmp(argv[1], "read") == 0) {
        list(argv[2]);
        run(read_some, atoi(argv[3]));
        return end(begin, n_bytes_read, false);
    }
    if (argc == 6 && strcmp(argv[1], "copy") == 0) {
        list(argv[2]);
        // about as much as pack allocates; a file's size is not known before it is read
        bool sync = open_out(argv[3], argv[5], n_names * (uint64_t)(16384 + OVERHEAD));
        run(copy_some, atoi(argv[4]));
        if (ftruncate(out_fd, (off_t)n_bytes_written) != 0) die("truncate");
        return end(begin, n_bytes_written, sync);
    }
    if (argc == 6 && strcmp(argv[1], "write") == 0) {
        n_blocks = ((size_t)atoll(argv[3]) + BLOCK - 1) / BLOCK;
        bool sync = open_out(argv[2], argv[5], n_blocks * BLOCK);
        run(write_some, atoi(argv[4]));
        return end(begin, n_blocks * BLOCK, sync);
    }
    fprintf(stderr, "usage: see the top of bench_pack_limits.c\n");
    return 2;
}
