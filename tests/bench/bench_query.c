// bench_query: what a catalog of a million records costs: to write, to open for training, to ask.
//
//   ninja -C build dtrain bench_query && build/bench_query [RECORDS [SHARDS [FOLDER]]]
//
// Makes a set of so many records (a key of 30 bytes, 4 text and 6 number columns, two members each) in 8
// shards (or so many) whose data is not there (nobody reads it), with indexes and catalog, in FOLDER (a temporary).
// Then times, best of 5: `dtrain data query` as a process, opening the set, and evaluating an expression on
// the open set. Wall and CPU seconds: the second do not care who else is on the machine.
#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/rng.h"
#include "data/catalog/catalog_db.h"
#include "data/catalog/index_file.h"
#include "data/catalog/select.h"
#include "data/source/source.h"

#include "bench_short.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPEATS = 5 };
static uint32_t n_shards = 8;
static const char *folder;

#define CHECK(expr)                                                                                \
    do {                                                                                           \
        if ((expr) != DT_OK) {                                                                     \
            fprintf(stderr, "bench_query: %s\n", dt_error_message());                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// Wall and CPU seconds.
typedef struct cost {
    double wall_s, cpu_s;
} cost;

static double seconds_of(const struct rusage *u) {
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) * 1e-6;
}

static cost now(void) {
    struct rusage self, children;
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    return (cost){dt_clock_s(), seconds_of(&self) + seconds_of(&children)};
}

static cost since(cost begin) {
    cost end = now();
    return (cost){end.wall_s - begin.wall_s, end.cpu_s - begin.cpu_s};
}

static void print(const char *what, cost c, const char *more) {
    printf("%-18s %7.3f s wall %7.3f s CPU  %s\n", what, c.wall_s, c.cpu_s, more);
}

static const cost FOREVER = {1e9, 1e9};

static cost best_of(cost a, cost b) {
    return (cost){a.wall_s < b.wall_s ? a.wall_s : b.wall_s, a.cpu_s < b.cpu_s ? a.cpu_s : b.cpu_s};
}

static char *path_of(const char *name) {
    return dt_xprintf("%s/%s", folder, name);
}

static char *set_pattern(void) {
    return dt_xprintf("%s/m-{000000..%06u}.tar", folder, n_shards - 1);
}

static void add_record(dt_catalog *c, uint32_t shard, uint32_t i, uint32_t in_shard) {
    static const char *const MODALITY[] = {"iris", "fingerprint", "face"};
    char key[64], text[32];
    uint32_t x[4];
    uint64_t hash = i * UINT64_C(0x9e3779b97f4a7c15);
    dt_philox4x32(7, (uint32_t[4]){i, 0, 0, 0}, x);
    snprintf(key, sizeof key, "train/class%03u/image_%010u", x[0] % 1000, i);
    CHECK(dt_catalog_add_record(c, shard, key));
    CHECK(dt_catalog_add_member(c, "jpg", 1024 * (uint64_t)in_shard, 900, &hash));
    CHECK(dt_catalog_add_member(c, "json", 1024 * (uint64_t)in_shard + 900, 100, &hash));
    snprintf(text, sizeof text, "class%03u", x[0] % 1000);
    CHECK(dt_catalog_set(c, "label", text));
    CHECK(dt_catalog_set(c, "modality", MODALITY[x[1] % 3]));
    snprintf(text, sizeof text, "%u", x[2] % 50000);
    CHECK(dt_catalog_set(c, "subject", text));
    CHECK(dt_catalog_set(c, "licence", x[3] % 2 ? "CC BY 4.0" : "CC0"));
    static const char *const REALS[] = {"quality", "sharpness", "contrast", "entropy"};
    for (int k = 0; k < 4; k++)
        CHECK(dt_catalog_set_real(c, REALS[k], (double)(x[k] >> 8) / (1 << 24)));
    CHECK(dt_catalog_set_real(c, "width", 100 + x[0] % 900));
    CHECK(dt_catalog_set_real(c, "height", 100 + x[1] % 900));
}

static void add_shard(dt_catalog *c, uint32_t s, uint32_t first, uint32_t end) {
    char name[32];
    int fd;
    snprintf(name, sizeof name, "m-%06u.tar", s);
    char *path = path_of(name);
    uint64_t n_bytes = 1024 * (uint64_t)(end - first) + 20480;
    CHECK(dt_io_create(&fd, path, false));
    CHECK(dt_io_close(fd, path));
    CHECK(dt_io_truncate(path, (off_t)n_bytes)); // a hole
    dt_catalog_add_shard(c, path, n_bytes);
    c->shards[s].source_hash = 1;
    for (uint32_t i = first; i < end; i++) add_record(c, s, i, i - first);
    free(path);
}

static uint64_t save_index(dt_catalog *c, uint32_t s) {
    struct stat st;
    dt_blob b;
    uint64_t stamp;
    CHECK(dt_blob_open(&b, c->shards[s].path));
    CHECK(dt_blob_stamp(&b, &stamp));
    dt_blob_close(&b);
    char *index = dt_xprintf("%s.index", c->shards[s].path);
    CHECK(dt_index_save(c, s, stamp, index));
    uint64_t n_bytes = stat(index, &st) == 0 ? (uint64_t)st.st_size : 0;
    free(index);
    return n_bytes;
}

static void make_set(uint32_t n) {
    dt_catalog *c = dt_catalog_create();
    char text[64];
    cost t = now();
    for (uint32_t s = 0; s < n_shards; s++)
        add_shard(c, s, (uint32_t)((uint64_t)n * s / n_shards),
                  (uint32_t)((uint64_t)n * (s + 1) / n_shards));
    print("rows in memory", since(t), "");
    t = now();
    dt_catalog_finish(c);
    print("finish", since(t), "");
    t = now();
    uint64_t n_bytes = 0;
    for (uint32_t s = 0; s < n_shards; s++) n_bytes += save_index(c, s);
    snprintf(text, sizeof text, "%.0f MB", (double)n_bytes / 1e6);
    print("indexes", since(t), text);
    char *set = set_pattern(), *db = dt_catalog_db_path(set);
    struct stat st;
    t = now();
    CHECK(dt_catalog_db_write(db, c, NULL, NULL));
    t = since(t);
    if (stat(db, &st) != 0) exit(1);
    snprintf(text, sizeof text, "%.0f MB", (double)st.st_size / 1e6);
    print("catalog", t, text);
    free(db);
    free(set);
    dt_catalog_destroy(c);
}

// A process with its output thrown away.
static cost run_query(const char *expression, const char *option) {
    const char *dtrain = getenv("DTRAIN");
    char *set = set_pattern();
    cost t = now();
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stdout)) _exit(1);
        execl(dtrain ? dtrain : "build/dtrain", "dtrain", "data", "query", set, expression, option,
              (char *)NULL);
        _exit(127);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0) exit(1);
    free(set);
    return since(t);
}

static void time_process(const char *expression, const char *option) {
    cost best = FOREVER;
    char what[32];
    for (int i = 0; i < REPEATS; i++) best = best_of(best, run_query(expression, option));
    snprintf(what, sizeof what, "query %s", option);
    print(what, best, expression);
}

static cost time_select(dt_reader *s, const char *expression, uint32_t *n) {
    cost t = now();
    bool *keep = dt_xcalloc(s->catalog->n_records, 1);
    CHECK(dt_catalog_select(s->catalog, expression, keep, n));
    free(keep);
    return since(t);
}

static void time_open(const char *const *expressions, int n_expressions) {
    char *pattern = set_pattern(), text[128];
    const char *paths[] = {pattern};
    cost open = FOREVER;
    uint32_t n;
    dt_reader *s = NULL;
    for (int i = 0; i < REPEATS; i++) {
        dt_reader_close(s);
        cost t = now();
        CHECK(dt_reader_open(&s, paths, 1));
        open = best_of(open, since(t));
    }
    snprintf(text, sizeof text, "%.0f MB resident", (double)dt_rss_bytes() / 1e6);
    print("open the set", open, text);
    for (int k = 0; k < n_expressions; k++) {
        cost select = FOREVER;
        for (int i = 0; i < REPEATS; i++)
            select = best_of(select, time_select(s, expressions[k], &n));
        snprintf(text, sizeof text, "%s: %u records", expressions[k], n);
        print("data.where", select, text);
    }
    dt_reader_close(s);
    free(pattern);
}

int main(int argc, char **argv) {
    char temporary[] = "/tmp/bench-query-XXXXXX";
    uint32_t n = (uint32_t)bench_count(argc > 1 ? atoi(argv[1]) : 1000000, 2000);
    n_shards = argc > 2 ? (uint32_t)atoi(argv[2]) : 8;
    folder = argc > 3 ? argv[3] : mkdtemp(temporary);
    if (!folder || n_shards == 0 || n < n_shards) return 1;
    CHECK(dt_io_mkdir_all(folder));
    setvbuf(stdout, NULL, _IOLBF, 0); // processes are forked
    printf("%u records\n", n);
    make_set(n);
    static const char *const EXPRESSIONS[] = {
        "modality = 'iris' and quality > 0.4",
        "subject between 100 and 200 and label like 'class00%'", "key like '%class007%'"};
    for (int i = 0; i < 3; i++) time_process(EXPRESSIONS[i], "--count");
    time_process("quality > 0.999", "--json");
    time_process("quality > 0.5", "--json");
    time_open(EXPRESSIONS, 3);
    if (argc <= 3) CHECK(dt_io_remove_tree(folder));
    return 0;
}
