// sink_prometheus.c: an endpoint from which Prometheus scrapes the newest numbers, in its text format (version 0.0.4).
//
// A step stores numbers into atomics; a thread formats them when somebody asks, so a step takes no lock. One poll waits for
// all clients, so a slow one holds nobody up; where there are too many the oldest is dropped. It answers GET /metrics, to
// anybody who reaches the address (metrics.listen), and nothing else. Where that is taken the run goes on without it.
// Steps and samples are gauges: after a restart they fall back to the checkpoint. The seconds are this process's.
#define _GNU_SOURCE // accept4, pipe2
#include "metrics_internal.h"

#include "base/arena.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST_BYTES = 4096, MAX_CLIENTS = 32 };

typedef enum number {
    STEP,
    STEPS,
    EPOCH,
    SAMPLES,
    LOSS,
    LR,
    GRAD_NORM,
    LOSS_SCALE,
    RATE,
    LEFT,
    SKIPPED,
    RSS,
    DATA,
    COMPUTE,
    COMM,
    OTHER,
    N_NUMBERS
} number;

// A family's name, its type, and a label besides the run; rows of one family are together.
static const struct {
    const char *name, *type, *label, *help;
} families[N_NUMBERS] = {
    [STEP] = {"dtrain_step", "gauge", "", "Steps done"},
    [STEPS] = {"dtrain_steps", "gauge", "", "Steps of the whole run"},
    [EPOCH] = {"dtrain_epoch", "gauge", "", "Epochs done"},
    [SAMPLES] = {"dtrain_samples", "gauge", "", "Samples trained on, all ranks"},
    [LOSS] = {"dtrain_loss", "gauge", "", "Loss of the last step"},
    [LR] = {"dtrain_learning_rate", "gauge", "", "Learning rate of the last step"},
    [GRAD_NORM] = {"dtrain_grad_norm", "gauge", "", "Gradient norm of the last step"},
    [LOSS_SCALE] = {"dtrain_loss_scale", "gauge", "", "Loss scale of fp16; 0: not scaled"},
    [RATE] = {"dtrain_samples_per_second", "gauge", "", "Mean over about 50 steps"},
    [LEFT] = {"dtrain_remaining_seconds", "gauge", "", "Until the last step, at this rate"},
    [SKIPPED] = {"dtrain_skipped_steps_total", "counter", "", "Steps that overflowed"},
    [RSS] = {"process_resident_memory_bytes", "gauge", "", "Resident memory of rank 0"},
    [DATA] = {"dtrain_phase_seconds_total", "counter", ",phase=\"data\"",
              "Where the time of the steps went"},
    [COMPUTE] = {"dtrain_phase_seconds_total", "counter", ",phase=\"compute\"", NULL},
    [COMM] = {"dtrain_phase_seconds_total", "counter", ",phase=\"comm\"", NULL},
    [OTHER] = {"dtrain_phase_seconds_total", "counter", ",phase=\"other\"", NULL},
};

typedef struct result {
    char *labels; // split="val",metric="accuracy"
    double value;
} result;

typedef struct client {
    int fd;
    char request[REQUEST_BYTES + 1];
    char *reply;  // heap; NULL: the request is not whole yet
    size_t at, n; // bytes so far, of the request or the reply; of the reply
} client;

typedef struct prometheus {
    char *run; // run="name"
    _Atomic double numbers[N_NUMBERS];
    pthread_mutex_t lock; // of the results: the last of each metric and split
    result *results;
    size_t n_results;
    pthread_t thread;
    int listener, stop[2];       // listener < 0: there is no thread
    client clients[MAX_CLIENTS]; // the oldest first
    int n_clients;
} prometheus;

// ---- text ------------------------------------------------------------------------------------------

// name="text", escaped.
static char *make_label(const char *name, const char *text) {
    char *out = dt_xcalloc(strlen(name) + 2 * strlen(text) + 4, 1);
    char *at = stpcpy(stpcpy(out, name), "=\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\' || *text == '\n') *at++ = '\\';
        *at++ = *text == '\n' ? 'n' : *text;
    }
    *at = '"';
    return out;
}

static void put_value(FILE *f, const char *name, const char *run, const char *labels, double v) {
    fprintf(f, "%s{%s%s} ", name, run, labels);
    if (isfinite(v))
        fprintf(f, "%.17g\n", v);
    else
        fprintf(f, "%s\n", isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
}

static void put_help(FILE *f, const char *name, const char *type, const char *help) {
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_all(prometheus *s, FILE *f) {
    for (int i = 0; i < N_NUMBERS; i++) {
        if (families[i].help) put_help(f, families[i].name, families[i].type, families[i].help);
        put_value(f, families[i].name, s->run, families[i].label, s->numbers[i]);
    }
    pthread_mutex_lock(&s->lock);
    if (s->n_results) put_help(f, "dtrain_eval", "gauge", "Metrics of the last evaluations");
    for (size_t i = 0; i < s->n_results; i++)
        put_value(f, "dtrain_eval", s->run, s->results[i].labels, s->results[i].value);
    pthread_mutex_unlock(&s->lock);
}

// ---- the server ------------------------------------------------------------------------------------

static void drop(prometheus *s, int i) {
    close(s->clients[i].fd);
    free(s->clients[i].reply);
    memmove(s->clients + i, s->clients + i + 1, (size_t)(--s->n_clients - i) * sizeof *s->clients);
}

static void accept_one(prometheus *s) {
    const int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const bool full = fd < 0 ? errno == EMFILE || errno == ENFILE : s->n_clients == MAX_CLIENTS;
    if (full && s->n_clients > 0)
        drop(s, 0);
    else if (full)
        usleep(100 * 1000); // until a descriptor is free
    if (fd >= 0) s->clients[s->n_clients++] = (client){.fd = fd};
}

static void make_reply(prometheus *s, client *c) {
    char *text = NULL;
    size_t n = 0;
    const bool found = strncmp(c->request, "GET /metrics", 12) == 0 && strchr(" ?", c->request[12]);
    FILE *f = open_memstream(&text, &n);
    if (found)
        put_all(s, f);
    else
        fputs("dtrain's metrics are at /metrics\n", f);
    fclose(f);
    c->reply =
        dt_xprintf("HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                   "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                   found ? "200 OK" : "404 Not Found", n, text);
    c->n = strlen(c->reply);
    c->at = 0;
    free(text);
}

// What the socket takes or gives now; false: the client is done with. A request ends at its empty line.
static bool serve(prometheus *s, client *c) {
    ssize_t m;
    if (!c->reply) {
        m = recv(c->fd, c->request + c->at, REQUEST_BYTES - c->at, 0);
        if (m > 0) c->at += (size_t)m;
        if (m > 0 && strstr(c->request, "\r\n\r\n"))
            make_reply(s, c);
        else
            return m > 0 ? c->at < REQUEST_BYTES : m < 0 && errno == EAGAIN;
    }
    m = send(c->fd, c->reply + c->at, c->n - c->at, MSG_NOSIGNAL);
    if (m > 0) c->at += (size_t)m;
    return m > 0 ? c->at < c->n : m < 0 && errno == EAGAIN;
}

static void *serve_all(void *state) {
    prometheus *s = state;
    struct pollfd wait[2 + MAX_CLIENTS] = {{.fd = s->listener, .events = POLLIN},
                                           {.fd = s->stop[0], .events = POLLIN}};
    dt_thread_name("metrics");
    for (;;) {
        const int n = s->n_clients;
        for (int i = 0; i < n; i++)
            wait[2 + i] = (struct pollfd){.fd = s->clients[i].fd,
                                          .events = s->clients[i].reply ? POLLOUT : POLLIN};
        if (poll(wait, (nfds_t)(2 + n), -1) < 0) continue; // a signal
        if (wait[1].revents) break;
        for (int i = n - 1; i >= 0; i--) // from behind: dropping one moves those after it
            if (wait[2 + i].revents && !serve(s, &s->clients[i])) drop(s, i);
        if (wait[0].revents) accept_one(s);
    }
    while (s->n_clients) drop(s, s->n_clients - 1);
    return NULL;
}

// < 0: errno says why.
static int listen_on(const dt_listen *l) {
    const int yes = 1, no = 0, is6 = l->any.sa_family == AF_INET6;
    dt_listen any4 = {
        .v4 = {.sin_family = AF_INET, .sin_port = htons((in_port_t)dt_listen_port(l))}};
    int fd = socket(l->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 && is6 && IN6_IS_ADDR_UNSPECIFIED(&l->v6.sin6_addr)) return listen_on(&any4);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (is6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (fd >= 0 && bind(fd, &l->any, is6 ? sizeof l->v6 : sizeof l->v4) == 0 && listen(fd, 64) == 0)
        return fd;
    const int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return -1;
}

// ---- the sink --------------------------------------------------------------------------------------

static dt_status open_prometheus(void **state, const dt_metrics_opts *o) {
    prometheus *s = dt_xcalloc(1, sizeof *s);
    s->run = make_label("run", o->run_name);
    s->numbers[STEPS] = (double)o->total_steps;
    pthread_mutex_init(&s->lock, NULL);
    *state = s;
    s->listener = listen_on(&o->listen);
    int why = s->listener < 0 || pipe2(s->stop, O_CLOEXEC) != 0 ? errno : 0;
    if (!why) why = pthread_create(&s->thread, NULL, serve_all, s);
    if (why && s->listener >= 0) close(s->listener);
    if (why) {
        s->listener = -1;
        dt_warn("metrics.listen %s: %s: Prometheus sees nothing of this run, training goes on",
                o->listen_text, strerror(why));
    }
    return DT_OK;
}

static void step(void *state, const dt_step_record *r, const dt_step_stats *stats) {
    prometheus *s = state;
    s->numbers[STEP] = (double)r->step;
    s->numbers[EPOCH] = r->epoch;
    s->numbers[SAMPLES] = (double)r->samples;
    s->numbers[LOSS] = r->loss;
    s->numbers[LR] = r->lr;
    s->numbers[GRAD_NORM] = r->grad_norm;
    s->numbers[LOSS_SCALE] = r->loss_scale;
    s->numbers[RATE] = stats->smooth_samples_per_s;
    s->numbers[LEFT] = stats->eta_s;
    s->numbers[RSS] = (double)stats->rss_bytes;
    // only this thread writes: no sum is lost
    s->numbers[SKIPPED] = s->numbers[SKIPPED] + r->skipped;
    s->numbers[DATA] = s->numbers[DATA] + r->data_s;
    s->numbers[COMPUTE] = s->numbers[COMPUTE] + r->compute_s;
    s->numbers[COMM] = s->numbers[COMM] + r->comm_s;
    s->numbers[OTHER] = s->numbers[OTHER] + r->other_s;
}

static void set_result(prometheus *s, char *labels, double value) {
    size_t i = 0;
    while (i < s->n_results && strcmp(s->results[i].labels, labels) != 0) i++;
    if (i == s->n_results) {
        s->results = dt_xrealloc(s->results, ++s->n_results * sizeof *s->results);
        s->results[i].labels = labels;
    } else {
        free(labels);
    }
    s->results[i].value = value;
}

static void eval(void *state, const dt_eval_record *r) {
    prometheus *s = state;
    char *split = make_label("split", r->split);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < r->n_values; i++) {
        char *metric = make_label("metric", r->values[i].name);
        set_result(s, dt_xprintf(",%s,%s", split, metric), r->values[i].value);
        free(metric);
    }
    pthread_mutex_unlock(&s->lock);
    free(split);
}

static void close_prometheus(void *state) {
    prometheus *s = state;
    if (s->listener >= 0) {
        close(s->stop[1]); // the other end becomes readable
        pthread_join(s->thread, NULL);
        close(s->stop[0]);
        close(s->listener);
    }
    for (size_t i = 0; i < s->n_results; i++) free(s->results[i].labels);
    free(s->results);
    free(s->run);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

const dt_metrics_sink dt_sink_prometheus = {
    .open = open_prometheus,
    .step = step,
    .eval = eval,
    .close = close_prometheus,
};
