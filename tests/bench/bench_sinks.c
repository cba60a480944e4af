// bench_sinks.c: what metrics cost a step of 1 ms: with all sinks, each alone, and none. `caller` is the time of the
// training's own thread in dt_metrics_step, `process` all CPU time besides, of the sinks' threads. A reader scrapes the
// endpoint every second. Prints microseconds a step and the share of a step: build/bench_sinks [steps]
#define _GNU_SOURCE
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "bench_short.h"
#include "config/words.h"
#include "observe/metrics.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 19464 };
static const dt_listen address = {
    .v4 = {.sin_family = AF_INET, .sin_port = (PORT & 255) << 8 | PORT >> 8, .sin_addr = {0x0100007f}}};
static atomic_bool over;

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cpu_s(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// What looking at the clock twice adds to a measurement: the median of many.
static double clock_cost_s(void) {
    enum { N = 1001 };
    static double cost[N];
    for (int i = 0; i < N; i++) {
        const double t = cpu_s(CLOCK_THREAD_CPUTIME_ID);
        cost[i] = cpu_s(CLOCK_THREAD_CPUTIME_ID) - t;
    }
    qsort(cost, N, sizeof *cost, by_value);
    return cost[N / 2];
}

static void *scrape(void *unused) {
    char text[65536];
    while (!over) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, &address.any, sizeof address.v4) == 0 &&
            send(fd, "GET /metrics HTTP/1.1\r\n\r\n", 25, MSG_NOSIGNAL) == 25)
            while (recv(fd, text, sizeof text, 0) > 0) continue;
        close(fd);
        sleep(1);
    }
    return NULL;
}

static void measure(const char *name, unsigned sinks, int n) {
    char run[] = "/tmp/dtrain-bench-XXXXXX";
    dt_metrics *m;
    const double looks_s = n * clock_cost_s();
    double caller_s = -looks_s;
    if (!mkdtemp(run)) exit(1);
    const dt_metrics_opts o = {.run_dir = run,
                               .run_name = "bench",
                               .sinks = sinks,
                               .every_steps = 10,
                               .listen = address,
                               .listen_text = "",
                               .version = "",
                               .world_size = 1,
                               .total_steps = n,
                               .steps_per_epoch = n,
                               .n_epochs = 1,
                               .truncate_to = -1};
    if (dt_metrics_open(&m, &o) != DT_OK) exit(1);
    const double begin = cpu_s(CLOCK_PROCESS_CPUTIME_ID);
    double slept_s = 0;
    for (int i = 1; i <= n; i++) {
        const dt_step_line r = {i,    0.1, 32 * i, 0.123456789 / i, 1e-3, 1.0 / i, 1e-3, 1e-5, 9e-4, 5e-5,
                                4e-5, 0,   32,     false,           0};
        const struct timespec rest = {.tv_nsec = 1000000};
        double t = cpu_s(CLOCK_THREAD_CPUTIME_ID);
        dt_metrics_step(m, &r);
        caller_s += cpu_s(CLOCK_THREAD_CPUTIME_ID) - t;
        t = cpu_s(CLOCK_THREAD_CPUTIME_ID);
        nanosleep(&rest, NULL);
        slept_s += cpu_s(CLOCK_THREAD_CPUTIME_ID) - t;
    }
    dt_metrics_flush(m);
    const double all_s = cpu_s(CLOCK_PROCESS_CPUTIME_ID) - begin - slept_s - looks_s;
    dt_metrics_close(m, NULL);
    (void)dt_io_remove_tree(run);
    printf("%-12s caller %6.2f us %5.2f %%   all threads %6.2f us %5.2f %%\n", name, 1e6 * caller_s / n,
           100 * caller_s / n / 1e-3, 1e6 * all_s / n, 100 * all_s / n / 1e-3);
}

int main(int argc, char **argv) {
#define WORD(id, ...) #id,
    static const char *const names[] = {
#include "config/sinks.def"
    };
#undef WORD
    const int n = argc > 1 ? atoi(argv[1]) : bench_count(5000, 20);
    pthread_t reader;
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO); // lines of the terminal
    measure("none", 0, n);
    for (int i = 0; i < DT_N_SINKS; i++) {
        over = false;
        if (i == DT_SINK_prometheus) pthread_create(&reader, NULL, scrape, NULL);
        measure(names[i], 1u << i, n);
        over = true;
        if (i == DT_SINK_prometheus) pthread_join(reader, NULL);
    }
    over = false;
    pthread_create(&reader, NULL, scrape, NULL);
    measure("all", (1u << DT_N_SINKS) - 1, n);
    over = true;
    pthread_join(reader, NULL);
    return 0;
}
