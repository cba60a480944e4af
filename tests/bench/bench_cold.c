// bench_cold.c: what an epoch asks of the disk, by shuffle, when nothing is in the page cache.
//
//   bench_cold FOLDER [READERS]
//
// Makes a set of vectors in FOLDER (f32, 24 KiB each, 12,000 of them) unless
// it is there. Then, for none, block and global: drops the set from the page cache (POSIX_FADV_DONTNEED), takes an
// epoch of batches, and prints a JSON line: samples/s, seconds to the first batch, bytes and read calls of this process
// (/proc/self/io), and what the disks were asked for meanwhile (/proc/diskstats, of the whole machine:
// nothing else should be running), reads and their mean size.
#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"
#include "data/data.h"
#include "data/loader/data_parts.h"

#include "bench_short.h"
#include "bench_vectors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLOATS = 6144, N_VECTORS = 12000, MICRO = 32 };

static dt_status forget(const char *path) {
    int fd = open(path, O_RDONLY);
    bool ok = fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
    if (fd >= 0) close(fd);
    return ok ? DT_OK : dt_fail(DT_E_STORAGE, "%s: cannot be dropped from the page cache", path);
}

typedef struct counts {
    unsigned long long calls, bytes, disk_reads, disk_sectors;
    double at_s;
} counts;

static counts count(void) {
    counts c = {.at_s = dt_clock_s()};
    char line[512], name[64];
    unsigned long long v, reads, sectors;
    FILE *f = fopen("/proc/self/io", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "syscr: %llu", &v) == 1) c.calls = v;
        if (sscanf(line, "read_bytes: %llu", &v) == 1) c.bytes = v;
    }
    if (f) fclose(f);
    f = fopen("/proc/diskstats", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%*d %*d %63s %llu %*u %llu", name, &reads, &sectors) == 3 &&
            (strncmp(name, "vd", 2) == 0 || strncmp(name, "sd", 2) == 0 ||
             strncmp(name, "nvme", 4) == 0))
            c.disk_reads += reads, c.disk_sectors += sectors;
    if (f) fclose(f);
    return c;
}

static dt_status epoch(dt_batch_source *s, double *first_s) {
    double begin = dt_clock_s();
    *first_s = 0;
    for (int64_t step = 0; step < s->steps_per_epoch; step++) {
        const dt_batch *b;
        DT_TRY(s->get(s, step, 0, &b, NULL));
        if (step == 0) *first_s = dt_clock_s() - begin;
        s->release(s, b);
    }
    return DT_OK;
}

static dt_status bench(const char *path, const char *shuffle, const char *readers) {
    static const int MICROS = 0;
    char *text = dt_xprintf(
        "run: {name: bench}\ndata:\n  path: %s\n  fields: {vec: {kind: vector, size: %d}}\n"
        "  shuffle: %s\n  readers: %s\nmodel: {name: fusion}\n"
        "train: {global_batch: %d, micro_batch: %d}\n",
        path, FLOATS, shuffle, readers, MICRO, MICRO);
    dt_config *c;
    dt_dataset *d;
    dt_batch_source *s;
    dt_source_request r = {.global_batch = MICRO,
                           .micro_batch = MICRO,
                           .micros = &MICROS,
                           .n_micro = 1,
                           .end_step = -1};
    DT_TRY(dt_config_parse(&c, "bench", text, strlen(text), NULL, 0));
    free(text);
    DT_TRY(dt_data_open(&d, c, NULL, 2, NULL));
    DT_TRY(forget(path));
    r.end_step = d->n_samples(d, DT_SPLIT_TRAIN) / MICRO;
    counts a = count();
    DT_TRY(d->open(d, &r, &s));
    double first_s;
    DT_TRY(epoch(s, &first_s));
    counts b = count();
    double n = (double)(b.disk_reads - a.disk_reads);
    printf(
        "{\"shuffle\": \"%s\", \"samples_per_s\": %.0f, \"first_batch_s\": %.3f, \"read_calls\": "
        "%llu, \"read_mb\": %.1f, \"disk_reads\": %.0f, \"disk_mb\": %.1f, \"disk_read_kb\": "
        "%.1f}\n",
        shuffle, (double)(s->steps_per_epoch * MICRO) / (b.at_s - a.at_s), first_s,
        b.calls - a.calls, (double)(b.bytes - a.bytes) / 1e6, n,
        (double)(b.disk_sectors - a.disk_sectors) * 512e-6,
        n > 0 ? (double)(b.disk_sectors - a.disk_sectors) * 0.512 / n : 0);
    fflush(stdout);
    s->close(s);
    d->close(d);
    dt_config_destroy(c);
    return DT_OK;
}

int main(int argc, char **argv) {
    static const char *const SHUFFLES[] = {"none", "block", "global"};
    if (argc < 2) {
        fprintf(stderr, "usage: bench_cold FOLDER [READERS]\n");
        return 2;
    }
    char *path = dt_xprintf("%s/cold.tar", argv[1]);
    dt_status st = dt_io_mkdir_all(argv[1]);
    if (st == DT_OK && !dt_io_exists(path))
        st = bench_make_vectors(path, bench_count(N_VECTORS, 200), FLOATS);
    for (int k = 0; k < 3 && st == DT_OK; k++)
        st = bench(path, SHUFFLES[k], argc > 2 ? argv[2] : "auto");
    if (st != DT_OK) fprintf(stderr, "bench_cold: %s\n", dt_error_message());
    free(path);
    return (int)st;
}
