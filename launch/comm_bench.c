// comm_bench.c: dtrain comm bench: the all-reduce by size, beside MPI's own in the same run, and each pair of hosts.
//
// algbw is bytes of the buffer / time; busbw multiplies it by 2 (n - 1) / n, what each rank must send: it can be
// compared with a link's rate whatever the number of ranks. A pair of hosts is measured by its lowest ranks, which
// send a message to and fro. All pairs take H - 1 rounds (H: hosts, even), in each of which every host is in one
// pair: the round robin of tournaments, where i meets j in round (i + j) mod (H - 1) and the last host meets the one
// that would meet itself.
#define _GNU_SOURCE // gethostname
#include "launch.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/sort.h"
#include "base/text.h"
#include "base/watch.h"
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// bytes of a host's name; repetitions of an all-reduce; of a message, after one that warms up; 4 MiB of f32; pairs that
// are printed
enum { HOST_BYTES = 64, LEAST = 3, MOST = 50, PAIR_TURNS = 4, PAIR_ELEMENTS = 1 << 20, SHOWN = 16 };
enum { SIZE, SAVE }; // indices into options
static const dt_cli_option options[] = {
    {"--size", "MIB", "the largest all-reduce in MiB (default 64)"},
    {"--save", "FILE", "write the measured network for dtrain check --ranks --fabric FILE"},
    {NULL}};

typedef struct bench {
    dt_comm *c;
    float *data;               // as many as the larger of both measurements takes
    int64_t n_most;            // elements
    char (*hosts)[HOST_BYTES]; // by rank
    int *leaders, n_hosts;     // the lowest rank of each host
    const char *save;
    double host_bytes_s; // each way, in the largest all-reduce
    double *pairs;       // this rank's: by host, seconds one way of PAIR_ELEMENTS and of one element
} bench;

// ---- all-reduce -------------------------------------------------------------------------------------
typedef dt_status reduce_fn(dt_comm *c, float *data, int64_t n);

// Median seconds of the slowest rank.
// a reduction takes as long as its slowest rank: medians of ranks are maximized
static dt_status time_reduce(const bench *b, reduce_fn *reduce, int64_t n, double *out) {
    dt_comm *c = b->c;
    double times[MOST];
    int64_t turns = 1;
    for (int i = -1; i < turns; i++) { // -1: warms up, and says how often
        DT_TRY(c->barrier(c));         // all ranks begin together
        const double begin = dt_clock_s();
        DT_TRY(reduce(c, b->data, n));
        const double took = dt_clock_s() - begin;
        if (i >= 0) {
            times[i] = took;
            continue;
        }
        turns = (int64_t)(0.3 / (took + 1e-9)); // about 0.3 s for each size; 1e-9: no division by 0
        turns = turns < LEAST ? LEAST : turns > MOST ? MOST : turns;
        DT_TRY(c->broadcast_bytes(c, &turns, sizeof turns, 0)); // rank 0's: every rank must make as many calls
    }
    qsort(times, (size_t)turns, sizeof *times, dt_sort_reals); // all ranks have as many; times[-1] is not written
    // median, as integer nanoseconds: the comm has a maximum of int64_t alone
    int64_t ns = (int64_t)(1e9 * times[turns / 2]);
    DT_TRY(c->all_reduce_max_i64(c, &ns, 1));
    *out = 1e-9 * (double)ns;
    return DT_OK;
}

static void print_rate(const bench *b, int64_t n, double seconds) {
    const double w = b->c->world_size, gb_s = 4e-9 * (double)n / seconds; // GB/s of 4-byte elements: algbw
    // nccl-tests' busbw of an all-reduce: algbw * 2 (n - 1) / n
    printf("  %10.3f %8.3f %8.3f", 1e3 * seconds, gb_s, gb_s * 2 * (w - 1) / w);
}

static dt_status bench_sizes(bench *b) {
    dt_comm *c = b->c;
    const bool root = c->rank == 0;
    if (root) {
        printf("all-reduce (sum, f32) of %d ranks on %d host%s\n", c->world_size, b->n_hosts,
               b->n_hosts == 1 ? "" : "s");
        printf("%10s  %10s %8s %8s  %10s %8s %8s\n", "", "dtrain", "algbw", "busbw", "MPI_Allred.", "algbw", "busbw");
        printf("%10s  %10s %8s %8s  %10s %8s %8s\n", "KiB", "ms", "GB/s", "GB/s", "ms", "GB/s", "GB/s");
    }
    for (int64_t n = 1024; n <= b->n_most; n *= 4) { // elements: 4 KiB, 16 KiB, … up to --size
        double ours, theirs;
        DT_TRY(time_reduce(b, c->all_reduce_f32, n, &ours));
        // MPI_Allreduce in the same process, the same buffer
        DT_TRY(time_reduce(b, c->library_all_reduce_f32, n, &theirs));
        // ring or tree: each host sends and receives 2 (H - 1) / H of the buffer, 4 bytes an element; the last size
        // counts
        b->host_bytes_s = 8.0 * (double)n * (b->n_hosts - 1) / b->n_hosts / ours;
        if (!root) continue; // every rank measures, one prints
        printf("%10lld", (long long)n * 4 / 1024);
        print_rate(b, n, ours);
        print_rate(b, n, theirs);
        printf("\n");
        fflush(stdout); // a long measurement shows its rows at once
    }
    return DT_OK;
}

// ---- pairs of hosts ---------------------------------------------------------------------------------
// The host that `host` meets in a round, or -1.
static int partner(int host, int round, int n_hosts) {
    const int n = n_hosts + n_hosts % 2, last = n - 1; // even: an odd number gets a host that sits out
    int other = last;
    if (host == last) {
        for (other = 0; 2 * other % last != round;) other++; // 2 i = round (mod last): whom the last host meets
    } else {
        const int j = ((round - host) % last + last) % last;
        if (j != host) other = j; // itself: meets the last host instead
    }
    return other < n_hosts ? other : -1; // -1: sits out
}

static dt_status to_and_fro(const bench *b, int peer, bool first, int64_t n, double *out) {
    dt_comm *c = b->c;
    double times[PAIR_TURNS];               // seconds of a way and back
    for (int i = -1; i < PAIR_TURNS; i++) { // -1: warms up the connection
        const double begin = dt_clock_s();
        // blocking: the peer does both in the other order
        if (first) DT_TRY(c->send_f32(c, b->data, n, peer));
        DT_TRY(c->recv_f32(c, b->data, n, peer));
        if (!first) DT_TRY(c->send_f32(c, b->data, n, peer));
        if (i >= 0) times[i] = dt_clock_s() - begin;
    }
    qsort(times, PAIR_TURNS, sizeof *times, dt_sort_reals);
    *out = 0.5 * times[PAIR_TURNS / 2]; // one way, median
    return DT_OK;
}

static dt_status bench_pairs(const bench *b, int host) {
    const bool leads = b->leaders[host] == b->c->rank;
    const int n_rounds = b->n_hosts + b->n_hosts % 2 - 1; // rounds, each with all hosts paired
    for (int round = 0; round < n_rounds; round++) {
        const int other = partner(host, round, b->n_hosts);
        DT_TRY(b->c->barrier(b->c));       // of all ranks: rounds do not overlap
        if (!leads || other < 0) continue; // ranks that do not lead only keep the barriers
        const int peer = b->leaders[other];
        DT_TRY(to_and_fro(b, peer, host < other, PAIR_ELEMENTS, &b->pairs[2 * other]));
        DT_TRY(to_and_fro(b, peer, host < other, 1, &b->pairs[2 * other + 1])); // one element: the delay
    }
    return DT_OK;
}

// seconds: one way of PAIR_ELEMENTS; hosts' indices
typedef struct host_pair {
    double seconds, delay_s;
    int a, b;
} host_pair;

static int slower_first(const void *x, const void *y) { // negated: descending
    return -dt_sort_reals(&((const host_pair *)x)->seconds, &((const host_pair *)y)->seconds);
}

// Both ways at once, as an all-reduce uses a link, it may carry less than to and fro.
static dt_status comm_bench_save(const bench *b, const host_pair *link) {
    time_t now = time(NULL);
    struct tm day;
    char date[16];
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    char *text =
        // a map of one fabric, as launch/cloud/fabrics.yaml
        dt_xprintf("measured:\n  {what: %d ranks on %d hosts, source: dtrain comm bench, date: %s,\n"
                   "   ranks_per_host: %d, host_gbit_s: %.4g, latency_us: %.4g}\n",
                   // bytes/s to Gbit/s, seconds to microseconds
                   b->c->world_size, b->n_hosts, date, b->c->local_size, 8e-9 * b->host_bytes_s, 1e6 * link->delay_s);
    const dt_status st = dt_io_write_file(b->save, text, strlen(text));
    free(text);
    return st;
}

static dt_status print_pairs(const bench *b, const double *all) {
    const double bytes = 4.0 * PAIR_ELEMENTS;
    const int n_links = b->n_hosts * (b->n_hosts - 1) / 2; // each pair once
    host_pair *links = dt_xcalloc((size_t)n_links, sizeof *links);
    for (int i = 0, k = 0; i < b->n_hosts; i++)
        for (int j = i + 1; j < b->n_hosts; j++) {
            // row of rank leaders[i], column j: the lower host measured too
            const double *p = all + 2 * ((size_t)b->leaders[i] * (size_t)b->n_hosts + (size_t)j);
            links[k++] = (host_pair){p[0], p[1], i, j};
        }
    qsort(links, (size_t)n_links, sizeof *links, slower_first);
    printf("\n%-40s %10s %10s\n", n_links > SHOWN ? "the slowest pairs of hosts" : "pair of hosts", "MB/s", "ms delay");
    for (int k = 0; k < n_links && k < SHOWN; k++) {
        const char *from = b->hosts[b->leaders[links[k].a]], *to = b->hosts[b->leaders[links[k].b]];
        const int n = printf("%s - %s", from, to);
        // longer names push the row
        printf("%*s %10.1f %10.3f\n", n < 40 ? 40 - n : 0, "", 1e-6 * bytes / links[k].seconds, 1e3 * links[k].delay_s);
    }
    // names come from other hosts: cleaned
    dt_text_printf(stdout, "slowest link: %s - %s, %.2f times the median pair's rate\n",
                   b->hosts[b->leaders[links[0].a]], b->hosts[b->leaders[links[0].b]],
                   links[n_links / 2].seconds / links[0].seconds);
    // the median link: one bad cable is no property of the network
    const dt_status st = b->save ? comm_bench_save(b, &links[n_links / 2]) : DT_OK;
    free(links);
    return st;
}

// ---- the verb ---------------------------------------------------------------------------------------
static dt_status comm_bench_measure(bench *b) {
    dt_comm *c = b->c;
    const size_t w = (size_t)c->world_size;
    // cut names stay ended by 0
    char host[HOST_BYTES] = "";
    int mine = 0;
    gethostname(host, sizeof host - 1);
    DT_TRY(c->all_gather_bytes(c, host, sizeof host, b->hosts));
    // hosts in the order of their lowest ranks, alike on all ranks
    for (int r = 0; r < c->world_size; r++) {
        int h = 0;
        while (h < b->n_hosts && strcmp(b->hosts[b->leaders[h]], b->hosts[r]) != 0) h++;
        if (h == b->n_hosts) b->leaders[b->n_hosts++] = r;
        if (r == c->rank) mine = h;
    }
    DT_TRY(bench_sizes(b));
    // after the sizes, which a single host has too
    if (b->n_hosts == 1 && b->save) return dt_fail(DT_E_USAGE, "--save is for several hosts: here is one");
    if (b->n_hosts == 1) return DT_OK;
    const size_t row = 2 * (size_t)b->n_hosts * sizeof *b->pairs; // bytes of a rank's row: (seconds, delay) by host
    b->pairs = dt_xcalloc(1, row);
    DT_TRY(bench_pairs(b, mine));
    double *all = dt_xcalloc(w, row); // world_size rows; zeros of ranks that do not lead
    dt_status st = c->all_gather_bytes(c, b->pairs, row, all);
    if (st == DT_OK && c->rank == 0) st = print_pairs(b, all);
    free(all);
    return st;
}

static dt_status run_bench(dt_comm *c, int64_t n_most, const char *save) {
    bench b = {.c = c, .n_most = n_most, .save = save};
    const size_t n = (size_t)(n_most > PAIR_ELEMENTS ? n_most : PAIR_ELEMENTS); // pairs need their elements too
    if (c->world_size == 1)
        return dt_fail(DT_E_USAGE, "dtrain comm bench measures between ranks: start it with "
                                   "mpirun -np 2 or more");
    b.data = dt_xcalloc(n, sizeof *b.data);
    b.hosts = dt_xcalloc((size_t)c->world_size, sizeof *b.hosts);
    b.leaders = dt_xcalloc((size_t)c->world_size, sizeof *b.leaders);
    dt_status st = comm_bench_measure(&b);
    free(b.data);
    free(b.hosts);
    free(b.leaders);
    free(b.pairs);
    return st;
}

static dt_status comm_bench_run(const dt_cli_words *w) {
    dt_comm *c = NULL;
    int mib = 64;
    DT_TRY(dt_cli_expect_words(w, "comm bench", 0, 0, "no words"));
    DT_TRY(dt_cli_option_int(w, SIZE, 64, &mib));
    if (mib > 1024) return dt_fail(DT_E_USAGE, "--size: at most 1024 MiB");
    dt_watch_start(&(dt_watch_limits){DT_START_TIMEOUT_S, DT_START_TIMEOUT_S, DT_LOST_TIMEOUT_S});
    DT_TRY(dt_comm_create(&c));
    dt_log_set_rank(c->rank, c->world_size);
    // MiB * 2^20 / 4: elements
    dt_status st = run_bench(c, (int64_t)mib << 18, w->options[SAVE]);
    if (st != DT_OK && c->world_size > 1) { // others wait in a collective: the launcher ends them
        dt_cli_print_error(st);
        c->abort(c, st);
    }
    dt_status last = c->finalize(c); // a barrier
    dt_comm_destroy(c);
    return st == DT_OK ? last : st;
}

const dt_cli_command dt_cli_comm_bench = {
    .options = options,
    .text = "Measures the all-reduce of gradients by size, MPI's own all-reduce beside it, and each pair of hosts, and "
            "names the slowest link. As in nccl-tests, busbw can be compared with the bandwidth of a link. Run it on "
            "an idle machine: other processes share the cores.\n\n"
            "  mpirun -np 8 dtrain comm bench\n"
            "  mpirun -np 2 -host a,b dtrain comm bench --size 256\n"
            "  mpirun -np 2 -host a,b dtrain comm bench --save ours.yaml      for dtrain check --fabric\n",
    .run = comm_bench_run};
