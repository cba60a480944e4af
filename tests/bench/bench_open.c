// bench_open.c: from the start of a process to its first batch, for a set of many shards.
//
//   bench_open [SHARDS [RECORDS [RUNS]]]        default: 100 shards of 1000 records, 7 runs
//
// and the same from the middle of an epoch on, where the batch must be the very next one.
//
// Writes the shards (JPEG of 128 x 128 and a cls member, each with a PAX header in front as Python's
// tarfile writes them) to a temporary folder, then starts itself again for each run and prints the median
// and the largest wall time from fork to the first batch of 32 in hand, and the least CPU time: shards without indexes, with
// them, compressed (first time and again), and as many raw files. All in the page cache.
#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "config/config.h"
#include "data/data.h"
#include "data/file/bytes.h"
#include "data/file/tar.h"

#include "bench_short.h"

#include <jpeglib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

static char dir[] = "/tmp/dtrain-open-XXXXXX";
static uint8_t *jpeg;
static unsigned long n_jpeg;

static void die(const char *what) {
    fprintf(stderr, "bench_open: %s: %s\n", what, dt_error_message());
    exit(1);
}

// ---- the child -------------------------------------------------------------------------------------
static void check_order(const dt_dataset *d, const dt_batch_source *s, const dt_batch *b) {
    for (int j = 0; j < b->n; j++) {
        uint64_t i = (uint64_t)(b->step % s->steps_per_epoch) * 32 + (uint64_t)j;
        uint64_t epoch = (uint64_t)(b->step / s->steps_per_epoch);
        if (b->sample[j] != dt_data_sample_at(d, epoch, i)) die("not the next sample");
    }
}

// `resume`: a run that has done seven epochs and a half.
static int first_batch(const char *path, const char *cache, const char *write_index, bool resume) {
    char *text = dt_xprintf("run: {name: t}\n"
                            "data:\n"
                            "  path: \"%s\"\n"
                            "  cache_dir: %s\n"
                            "  write_index: %s\n"
                            "  fields: {image: {kind: image, size: 128}, label: {kind: class}}\n"
                            "model: {name: resnet}\n"
                            "train: {global_batch: 32, micro_batch: 32}\n",
                            path, cache, write_index);
    dt_config *c;
    dt_dataset *d;
    dt_batch_source *s;
    const dt_batch *b;
    int micro = 0;
    dt_log_set_level(DT_LOG_ERROR);
    if (dt_config_parse(&c, "bench", text, strlen(text), NULL, 0) != DT_OK) die("config");
    if (dt_data_open(&d, c, NULL, 2, NULL) != DT_OK) die("open");
    dt_source_request r = {.split = DT_SPLIT_TRAIN,
                           .micros = &micro,
                           .n_micro = 1,
                           .global_batch = 32,
                           .micro_batch = 32,
                           .end_step = -1,
                           .augment = true};
    if (resume) r.start_step = d->n_samples(d, DT_SPLIT_TRAIN) / 32 * 15 / 2;
    if (d->open(d, &r, &s) != DT_OK) die("loader");
    if (s->get(s, r.start_step, 0, &b, NULL) != DT_OK) die("batch");
    check_order(d, s, b);
    if (write(STDOUT_FILENO, "x", 1) != 1) return 1;
    _exit(0);
}

static double run_child(char *const argv[], double *cpu_s) {
    int fd[2];
    char byte;
    if (pipe(fd) != 0) die("pipe");
    double begin = dt_clock_s();
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], STDOUT_FILENO);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    close(fd[1]);
    if (read(fd[0], &byte, 1) != 1) die("a child failed");
    double s = dt_clock_s() - begin;
    close(fd[0]);
    struct rusage u;
    wait4(pid, NULL, 0, &u);
    *cpu_s = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
             (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
    return s;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// `before`: a shell command that makes the state that is measured, or NULL.
static void measure_from(bool resume, const char *what, const char *path, bool write_index,
                         const char *before, int runs) {
    double s[64], cpu = 0, least = 1e9;
    char *cache = dt_xprintf("%s/cache", dir);
    char *argv[] = {"bench_open", resume ? "--resume" : "--child", (char *)(uintptr_t)path,
                    cache,        write_index ? "true" : "false",  NULL};
    if (!before) run_child(argv, &cpu); // warm
    for (int i = 0; i < runs; i++) {
        if (before && system(before) != 0) die(before);
        s[i] = run_child(argv, &cpu);
        if (cpu < least) least = cpu;
    }
    qsort(s, (size_t)runs, sizeof *s, compare);
    printf("%-44s median %6.0f ms  largest %6.0f ms\n", what, 1e3 * s[runs / 2], 1e3 * s[runs - 1]);
    fflush(stdout);
    free(cache);
}

static void measure(const char *what, const char *path, bool write_index, const char *before,
                    int runs) {
    measure_from(false, what, path, write_index, before, runs);
}

// ---- shards ----------------------------------------------------------------------------------------
static void make_jpeg(void) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    uint8_t row[128 * 3];
    JSAMPROW rows[1] = {row};
    uint32_t x = 1;
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &jpeg, &n_jpeg);
    c.image_width = c.image_height = 128;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < 128) {
        for (size_t i = 0; i < sizeof row; i++)
            x = x * 1664525u + 1013904223u, row[i] = (uint8_t)(i + c.next_scanline + (x >> 28));
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
}

static void put_member(dt_buffer *b, const char *name, const void *data, size_t n) {
    uint8_t header[DT_TAR_MAX_HEADER], pax[DT_TAR_MAX_HEADER];
    static const uint8_t zeros[512];
    static const char mtime[] = "28 mtime=1700000000.1234567\n";
    size_t n_header, n_pax;
    if (dt_tar_write_header(header, &n_header, name, n) != DT_OK ||
        dt_tar_write_header(pax, &n_pax, "PaxHeader", sizeof mtime - 1) != DT_OK)
        die("tar");
    pax[156] = 'x';
    unsigned sum = 0;
    memset(pax + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += pax[i];
    snprintf((char *)pax + 148, 8, "%06o", sum);
    dt_buffer_append(b, pax, 512);
    dt_buffer_append(b, mtime, sizeof mtime - 1);
    dt_buffer_append(b, zeros, 512 - (sizeof mtime - 1));
    dt_buffer_append(b, header, n_header);
    dt_buffer_append(b, data, n);
    dt_buffer_append(b, zeros, (size_t)(dt_tar_padded(n) - n));
}

static void write_file(const char *path, const dt_buffer *b) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b->data, 1, b->n_bytes, f) != b->n_bytes || fclose(f) != 0) die(path);
}

static void write_gzip(const char *path, const dt_buffer *b) {
    gzFile f = gzopen(path, "wb1");
    if (!f || gzwrite(f, b->data, (unsigned)b->n_bytes) != (int)b->n_bytes || gzclose(f) != Z_OK)
        die(path);
}

static void make_shards(int n_shards, int n_records) {
    static const uint8_t end[1024];
    dt_buffer b = {0};
    for (int s = 0; s < n_shards; s++) {
        b.n_bytes = 0;
        for (int r = 0; r < n_records; r++) {
            char name[64], cls[8];
            snprintf(name, sizeof name, "d/%04d-%06d.jpg", s, r);
            put_member(&b, name, jpeg, n_jpeg);
            snprintf(name, sizeof name, "d/%04d-%06d.cls", s, r);
            snprintf(cls, sizeof cls, "%d", r % 10);
            put_member(&b, name, cls, 1);
        }
        dt_buffer_append(&b, end, sizeof end);
        char *path = dt_xprintf("%s/s-%04d.tar", dir, s);
        write_file(path, &b);
        if (s < 10) {
            char *packed = dt_xprintf("%s.gz", path);
            write_gzip(packed, &b);
            free(packed);
        }
        free(path);
    }
    dt_buffer_fini(&b);
}

static void make_folder(int n_files) {
    dt_buffer b = {.data = jpeg, .n_bytes = n_jpeg};
    for (int c = 0; c < 10; c++) {
        char *folder = dt_xprintf("%s/raw/c%d", dir, c);
        if (dt_io_mkdir_all(folder) != DT_OK) die(folder);
        for (int i = 0; i < n_files / 10; i++) {
            char *path = dt_xprintf("%s/%06d.jpg", folder, i);
            write_file(path, &b);
            free(path);
        }
        free(folder);
    }
}

int main(int argc, char **argv) {
    bool resume = argc == 5 && strcmp(argv[1], "--resume") == 0;
    if (resume || (argc == 5 && strcmp(argv[1], "--child") == 0))
        return first_batch(argv[2], argv[3], argv[4], resume);
    const int n_shards = bench_count(argc > 1 ? atoi(argv[1]) : 100, 10);
    const int n_records = bench_count(argc > 2 ? atoi(argv[2]) : 1000, 40);
    const int runs = bench_count(argc > 3 ? atoi(argv[3]) : 7, 1), n_files = n_shards * n_records;
    if (n_shards < 10 || n_records < 4 || runs < 1 || runs > 64) return 2;
    if (!mkdtemp(dir)) die("mkdtemp");
    make_jpeg();
    make_shards(n_shards, n_records);
    make_folder(n_files);
    char *shards = dt_xprintf("%s/s-*.tar", dir), *packed = dt_xprintf("%s/s-*.tar.gz", dir);
    char *raw = dt_xprintf("%s/raw", dir);
    char *no_index = dt_xprintf("rm -f %s/*.index", dir),
         *no_cache = dt_xprintf("rm -rf %s/cache", dir);
    printf("%d shards of %d records, %.0f MB; to the first batch of 32:\n", n_shards, n_records,
           (double)n_files * (double)n_jpeg / 1e6);
    measure("no index, and it is written", shards, true, no_index, runs);
    measure("no index, not written", shards, false, no_index, runs);
    measure("index", shards, true, NULL, runs);
    measure_from(true, "index, from the middle of epoch 8", shards, true, NULL, runs);
    measure_from(true, "no index, from the middle of epoch 8", shards, false, no_index, runs);
    measure("10 shards of gzip, first time", packed, true, no_cache, runs < 3 ? runs : 3);
    measure("10 shards of gzip, again", packed, true, NULL, runs);
    printf("%d raw files:\n", n_files);
    measure("folder", raw, true, NULL, runs);
    if (dt_io_remove_tree(dir) != DT_OK) die(dir);
    return 0;
}
