// bench_raw.c: uncompressed records from the page cache, against plain reads of the same bytes.
//
//   bench_raw [THREADS [FOLDER]]
//
// Makes a set of pictures (PPM, 224 x 224 x 3: 147 KiB) with hashes and one of vectors (f32, 64 KiB),
// without. Then, in turn, for rounds of half a second each: THREADS threads that pread the same ranges in the
// same order into a ring of the same size, the same with an XXH3 of what was read, and the loader with THREADS
// workers, data.verify off and on.
// Prints a JSON line a set: GB/s of each and its share of plain reading, medians of the rounds;
// by the clock, and by the CPU time of the threads that read (which a busy machine
// changes less); and what of the process's resident memory is pages of files.
#define _GNU_SOURCE // RUSAGE_THREAD
#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "data/data.h"
#include "data/loader/data_parts.h"
#include "data/pack/pack.h"

#include "bench_short.h"
#include "bench_vectors.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SIDE = 224, N_PICTURES = 3000, FLOATS = 16384, N_VECTORS = 6000, MICRO = 16, ROUNDS = 9 };
static const double SECONDS = 0.5;

// ---- the sets --------------------------------------------------------------------------------------
static void fill_noise(uint8_t *p, size_t n, uint32_t seed) {
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
}

static dt_status make_pictures(const char *folder) {
    uint8_t *ppm = dt_xcalloc(64 + SIDE * SIDE * 3, 1);
    char *raw = dt_xprintf("%s/raw", folder), *tar = dt_xprintf("%s/pictures.tar", folder);
    dt_status st = dt_io_mkdir_all(raw);
    size_t n_head = (size_t)sprintf((char *)ppm, "P6\n%d %d\n255\n", SIDE, SIDE);
    for (int i = 0; i < bench_count(N_PICTURES, 100) && st == DT_OK; i++) {
        char *path = dt_xprintf("%s/%05d.ppm", raw, i);
        fill_noise(ppm + n_head, SIDE * SIDE * 3, (uint32_t)i);
        int fd;
        st = dt_io_create(&fd, path, false);
        if (st == DT_OK) st = dt_io_write(fd, path, ppm, n_head + SIDE * SIDE * 3);
        if (st == DT_OK) st = dt_io_close(fd, path);
        free(path);
    }
    dt_pack_opts o = {.source = raw, .out = tar};
    if (st == DT_OK) st = dt_data_pack(&o);
    if (st == DT_OK) st = dt_io_remove_tree(raw);
    free(raw), free(tar), free(ppm);
    return st;
}

static dt_status make_vectors(const char *folder) {
    char *tar = dt_xprintf("%s/vectors.tar", folder);
    const dt_status st = bench_make_vectors(tar, bench_count(N_VECTORS, 200), FLOATS);
    free(tar);
    return st;
}

static dt_status open_set(dt_dataset **out, dt_config **c, const char *folder, bool pictures,
                          int threads, bool verify) {
    char *text = dt_xprintf("run: {name: bench}\ndata:\n  path: %s/%s.tar\n  fields: {%s}\n  "
                            "workers: %d\n  verify: %s\n"
                            "model: {name: fusion}\ntrain: {global_batch: %d, micro_batch: %d}\n",
                            folder, pictures ? "pictures" : "vectors",
                            pictures ? "ppm: {kind: image, size: [224, 224]}"
                                     : "vec: {kind: vector, size: 16384}",
                            threads, verify ? "true" : "false", MICRO, MICRO);
    dt_status st = dt_config_parse(c, "bench", text, strlen(text), NULL, 0);
    free(text);
    return st == DT_OK ? dt_data_open(out, *c, NULL, threads, NULL) : st;
}

// ---- plain reading ---------------------------------------------------------------------------------
typedef struct plain_reader {
    const dt_data *d;
    int fd;
    uint8_t *ring;
    size_t record_bytes, n_ring; // places in the ring
    int64_t next, n_bytes;
    double until;
    bool hash;
} plain_reader;

static uint64_t hashes; // so that they are made

static void *read_plain(void *arg) {
    plain_reader *p = arg;
    const dt_catalog *c = p->d->reader->catalog;
    while (dt_clock_s() < p->until) {
        int64_t i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED);
        uint64_t n = p->d->sampler.n;
        uint32_t s =
            p->d->splits
                .sample[0][dt_sampler_index(&p->d->sampler, (uint64_t)i / n, (uint64_t)i % n)];
        const dt_member *m = &c->members[c->records[p->d->view.record[s]].first_member];
        uint8_t *to = p->ring + (size_t)i % p->n_ring * p->record_bytes;
        if (pread(p->fd, to, m->size, (off_t)m->offset) != (ssize_t)m->size) abort();
        if (p->hash) __atomic_fetch_xor(&hashes, dt_hash64(to, m->size), __ATOMIC_RELAXED);
        __atomic_fetch_add(&p->n_bytes, (int64_t)m->size, __ATOMIC_RELAXED);
    }
    return NULL;
}

// Bytes a second, by the clock and by CPU time.
typedef struct speed {
    double wall, cpu;
} speed;

static double cpu_of(int who) {
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

// Of the threads that read: not of this one, which takes the batches.
static double cpu_s(void) {
    return cpu_of(RUSAGE_SELF) - cpu_of(RUSAGE_THREAD);
}

static speed plain_rate(const dt_data *d, int threads, int n_slots, bool hash) {
    plain_reader p = {.d = d, .hash = hash, .n_ring = (size_t)n_slots * MICRO};
    pthread_t t[256];
    p.record_bytes = (d->reader->catalog->members[0].size + 4095) / 4096 * 4096;
    p.fd = open(d->reader->catalog->shards[0].path, O_RDONLY);
    p.ring = dt_xcalloc(p.n_ring, p.record_bytes);
    memset(p.ring, 1, p.n_ring * p.record_bytes);
    double begin = dt_clock_s(), cpu = cpu_s();
    p.until = begin + bench_most(SECONDS, 0.02);
    for (int i = 0; i < threads; i++) pthread_create(&t[i], NULL, read_plain, &p);
    for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
    double n = (double)p.n_bytes;
    speed v = {n / (dt_clock_s() - begin), n / (cpu_s() - cpu)};
    free(p.ring);
    close(p.fd);
    return v;
}

// ---- the loader ------------------------------------------------------------------------------------
typedef struct running {
    dt_config *c;
    dt_dataset *d;
    dt_batch_source *s;
    int64_t step;
    int n_slots;
} running;

static dt_status start(running *r, const char *folder, bool pictures, int threads, bool verify) {
    static const int MICROS = 0;
    dt_source_request q = {.global_batch = MICRO,
                           .micro_batch = MICRO,
                           .micros = &MICROS,
                           .n_micro = 1,
                           .end_step = -1};
    DT_TRY(open_set(&r->d, &r->c, folder, pictures, threads, verify));
    DT_TRY(r->d->open(r->d, &q, &r->s));
    dt_source_stats t;
    r->s->stats(r->s, &t);
    r->n_slots = t.ring_slots;
    return DT_OK;
}

static dt_status rate(running *r, speed *out) {
    dt_source_stats t;
    DT_TRY(r->s->seek(r->s, r->step)); // what was made while others ran does not count
    r->s->stats(r->s, &t);
    uint64_t before = t.stage[DT_STAGE_READ].bytes;
    double begin = dt_clock_s(), cpu = cpu_s();
    while (dt_clock_s() < begin + bench_most(SECONDS, 0.02)) {
        const dt_batch *b;
        DT_TRY(r->s->get(r->s, r->step++, 0, &b, NULL));
        r->s->release(r->s, b);
    }
    r->s->stats(r->s, &t);
    double n = (double)(t.stage[DT_STAGE_READ].bytes - before);
    *out = (speed){n / (dt_clock_s() - begin), n / (cpu_s() - cpu)};
    while (t.batches.depth < t.ring_slots) { // and its threads sleep while others run
        usleep(1000);
        r->s->stats(r->s, &t);
    }
    return DT_OK;
}

static void stop(running *r) {
    r->s->close(r->s);
    r->d->close(r->d);
    dt_config_destroy(r->c);
}

// MiB of this process's memory that are pages of files.
static long file_mib(void) {
    char line[128];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) (void)sscanf(line, "RssFile: %ld", &kib);
    if (f) fclose(f);
    return kib >> 10;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double v[ROUNDS]) {
    qsort(v, ROUNDS, sizeof *v, by_value);
    return v[ROUNDS / 2];
}

enum { PLAIN, PLAIN_HASH, LOADER, LOADER_VERIFY, N_WAYS };
static const char *const WAYS[] = {"plain", "plain_hash", "loader", "loader_verify"};

static dt_status bench(const char *folder, bool pictures, int threads) {
    double wall[N_WAYS][ROUNDS], share[N_WAYS][ROUNDS], cpu_share[N_WAYS][ROUNDS];
    running r[2] = {0};
    for (int k = 0; k < 2; k++) DT_TRY(start(&r[k], folder, pictures, threads, k == 1));
    const dt_data *d = r[0].d->self;
    plain_rate(d, threads, r[0].n_slots, false); // into the page cache
    for (int i = 0; i < ROUNDS; i++) {
        speed v[N_WAYS];
        for (int k = 0; k < 2; k++) {
            v[PLAIN + k] = plain_rate(d, threads, r[0].n_slots, k == 1);
            DT_TRY(rate(&r[k], &v[LOADER + k]));
        }
        for (int k = 0; k < N_WAYS; k++) {
            wall[k][i] = v[k].wall;
            share[k][i] = v[k].wall / v[PLAIN].wall;
            cpu_share[k][i] = v[k].cpu / v[PLAIN].cpu;
        }
    }
    printf("{\"set\": \"%s\", \"threads\": %d", pictures ? "pictures, 147 KiB" : "vectors, 64 KiB",
           threads);
    for (int k = 0; k < N_WAYS; k++)
        printf(", \"%s\": {\"gb_s\": %.2f, \"share\": %.3f, \"cpu_share\": %.3f}", WAYS[k],
               median(wall[k]) * 1e-9, median(share[k]), median(cpu_share[k]));
    printf(", \"rss_file_mib\": %ld}\n", file_mib());
    fflush(stdout);
    stop(&r[0]);
    stop(&r[1]);
    return DT_OK;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    char made[] = "/tmp/bench-raw-XXXXXX";
    const char *folder = argc > 2 ? argv[2] : mkdtemp(made);
    dt_status st = folder && threads > 0 && threads <= 256 ? DT_OK : DT_E_USAGE;
    char *tar = dt_xprintf("%s/vectors.tar", folder ? folder : "");
    if (st == DT_OK && !dt_io_exists(tar)) {
        st = make_pictures(folder);
        if (st == DT_OK) st = make_vectors(folder);
    }
    for (int k = 1; k >= 0 && st == DT_OK; k--) st = bench(folder, k == 1, threads);
    if (st != DT_OK) fprintf(stderr, "bench_raw: %s\n", dt_error_message());
    if (argc <= 2 && folder) dt_io_remove_tree(folder);
    free(tar);
    return (int)st;
}
