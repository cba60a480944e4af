// sink_prometheus.c: an endpoint from which Prometheus scrapes the newest numbers, in its text format (version 0.0.4).
//
// A step stores its numbers under a lock that is held for no longer than it takes to copy them; a thread formats them
// when somebody asks. One poll waits for all clients, so a slow one holds nobody up; where there are too many the oldest
// is dropped. It answers GET and HEAD of /metrics, and for probes /healthz (the process answers) and /readyz (steps are
// running), to anybody who reaches the address (metrics.listen). Where another process has the port, the next free one
// is taken; where there is none, the run goes on without the endpoint.
// The server is code of dtrain, because setting up libmicrohttpd takes more lines, and 60 slow clients keep no scrape out.
// metrics.textfile: the same text as a file for node_exporter, every 15 s and at the end, with why the run ended.
// metrics.file_sd: a file by which Prometheus finds the endpoint; it is there as long as the endpoint is.
#define _GNU_SOURCE // accept4, pipe2
#include "metrics_internal.h"

#include "base/core.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// bytes of a request; clients at once; milliseconds between writes; seconds; ports that are tried
enum { REQUEST_BYTES = 4096, MAX_CLIENTS = 32, TEXTFILE_MS = 15000, STALE_S = 600, PORTS = 16 };

// indices into numbers.one, a gauge or counter each
typedef enum number {
#define NUMBER(id, ...) N_##id,
#define FAMILY(...)
#include "observe/prometheus.def"
#undef NUMBER
#undef FAMILY
    N_NUMBERS
} number;

static const char *const phase_names[] = {"step", "data", "compute", "comm", "other"}; // in the order of take_step
enum { N_PHASES = 5, N_BOUNDS = 16 };
// seconds: from a small GPU step to a slow CPU step
static const double bounds[N_BOUNDS] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                        0.25,   0.5,   1,      2.5,   5,    10,    30,   60};

typedef struct histogram {    // not cumulative: put_phases adds up
    uint64_t n[N_BOUNDS + 1]; // between bounds; the last: above all
    double sum;
} histogram;

typedef struct numbers {
    double one[N_NUMBERS]; // by number
    histogram phases[N_PHASES];
    bool has_gpu;
    double gpu[DT_N_GPU]; // of rank 0
    dt_goodput ledger;    // of all attempts
    dt_activity activity; // what the run does now
    bool ended;
    dt_status status;
} numbers;

typedef struct result {
    char *labels; // ,split="val",metric="accuracy"
    double value;
} result;

typedef struct client {
    int fd;                          // non-blocking
    char request[REQUEST_BYTES + 1]; // + 1: ends with 0 for strstr
    char *reply;                     // heap; NULL: the request is not whole yet
    size_t at, n;                    // at: bytes of the request read, then of the reply written; n: bytes of the reply
    bool last;                       // the reply says how the run ended
} client;

// Prometheus has a label `job` of its own; DCGM's exporter calls the scheduler's job so
enum { N_OWNER = 3 };
static const char *const owner_labels[N_OWNER] = {"user", "hpc_job", "host"};

typedef struct prometheus {
    char *run, *version;  // run="name"
    char *owner[N_OWNER]; // user, job and host, as they are
    pthread_mutex_t lock; // protects the numbers
    numbers now;
    pthread_mutex_t results_lock; // protects the results: the newest value of each metric and split
    result *results;
    size_t n_results;
    double *ranks; // (DT_N_RANK, n_ranks); protected like the results
    int n_ranks;
    bool ranks_have_gpu;
    char *textfile, *targets;      // targets: the file of metrics.file_sd, while it is there
    pthread_mutex_t textfile_lock; // one writes it at a time
    double linger_s;               // seconds after the end
    bool (*is_stopped)(void);
    atomic_bool scraped;              // after the end
    bool textfile_failed, has_thread; // textfile_failed: one warning until a write succeeds
    pthread_t thread;
    int listener, stop[2];       // listener < 0: nobody is answered
    client clients[MAX_CLIENTS]; // the oldest first
    int n_clients;
} prometheus;

// ---- text ------------------------------------------------------------------------------------------

// name="text", escaped. Prometheus refuses all of a scrape for one byte that is no UTF-8.
static char *make_label(const char *name, const char *text) {
    char *out = dt_xcalloc(strlen(name) + 3 * strlen(text) + 4, 1); // 3 bytes at most for one: U+FFFD, an escape
    char *at = stpcpy(stpcpy(out, name), "=\"");
    for (size_t n; *text; text += n ? n : 1) {
        n = dt_text_utf8_length(text);                                    // 0: no letter begins here
        if (n == 0) at = stpcpy(at, "\xEF\xBF\xBD");                      // U+FFFD, the replacement character
        if (*text == '"' || *text == '\\' || *text == '\n') *at++ = '\\'; // as the text format escapes them
        at = *text == '\n' ? stpcpy(at, "n") : mempcpy(at, text, n);
    }
    *at = '"';
    return out;
}

static void put_value(FILE *f, const char *name, const char *run, const char *labels, double v) {
    fprintf(f, "%s{%s%s} ", name, run, labels);
    if (isfinite(v))
        fprintf(f, "%.17g\n", v); // a double reads back the same
    else
        fprintf(f, "%s\n", isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
}

static void put_help(FILE *f, const char *name, const char *type, const char *help) {
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_numbers(prometheus *s, FILE *f, const char *name, number i, const numbers *n) {
    put_value(f, name, s->run, "", n->one[i]);
}

static void put_ranks(prometheus *s, FILE *f, const char *name, int which, double scale) { // which: DT_RANK_…
    char labels[32];
    // results_lock: put_all has released `lock`
    pthread_mutex_lock(&s->results_lock);
    for (int r = 0; r < s->n_ranks; r++) {
        snprintf(labels, sizeof labels, ",rank=\"%d\"", r);
        put_value(f, name, s->run, labels, scale * s->ranks[which * s->n_ranks + r]);
    }
    pthread_mutex_unlock(&s->results_lock);
}
#define put_rank_data(s, f, name, n)    put_ranks(s, f, name, DT_RANK_data_s, 1)
#define put_rank_compute(s, f, name, n) put_ranks(s, f, name, DT_RANK_compute_s, 1)
#define put_rank_rss(s, f, name, n)     put_ranks(s, f, name, DT_RANK_rss_bytes, 1)

// Of a lone rank as its newest step has it.
static void put_gpu(prometheus *s, FILE *f, const char *name, const numbers *n, int which, double scale) {
    if (s->ranks_have_gpu)
        put_ranks(s, f, name, DT_RANK_GPU + which, scale);
    else if (n->has_gpu)
        put_value(f, name, s->run, ",rank=\"0\"", scale * n->gpu[which]);
}
// in the units of DCGM's exporter
#define put_gpu_util(s, f, name, n)  put_gpu(s, f, name, n, DT_GPU_util, 100)
#define put_gpu_power(s, f, name, n) put_gpu(s, f, name, n, DT_GPU_power_w, 1)
#define put_gpu_temp(s, f, name, n)  put_gpu(s, f, name, n, DT_GPU_temp_c, 1)
#define put_gpu_used(s, f, name, n)  put_gpu(s, f, name, n, DT_GPU_mem_bytes, 1.0 / 1048576)
#define put_gpu_clock(s, f, name, n) put_gpu(s, f, name, n, DT_GPU_sm_mhz, 1)

static void put_phases(prometheus *s, FILE *f, const char *name, const numbers *n) {
    char part[64], labels[96];
    // a histogram of Prometheus: buckets are cumulative, the last is +Inf and equals the count
    for (int p = 0; p < N_PHASES; p++) {
        const histogram *h = &n->phases[p];
        uint64_t below = 0;
        for (int i = 0; i <= N_BOUNDS; i++) {
            below += h->n[i];
            if (i < N_BOUNDS)
                snprintf(labels, sizeof labels, ",phase=\"%s\",le=\"%g\"", phase_names[p], bounds[i]);
            else
                snprintf(labels, sizeof labels, ",phase=\"%s\",le=\"+Inf\"", phase_names[p]);
            snprintf(part, sizeof part, "%s_bucket", name);
            put_value(f, part, s->run, labels, (double)below);
        }
        snprintf(labels, sizeof labels, ",phase=\"%s\"", phase_names[p]);
        snprintf(part, sizeof part, "%s_sum", name);
        put_value(f, part, s->run, labels, h->sum);
        snprintf(part, sizeof part, "%s_count", name);
        put_value(f, part, s->run, labels, (double)below);
    }
}

static void put_ledger(prometheus *s, FILE *f, const char *name, const numbers *n) {
    char labels[64];
    for (int i = 0; i < DT_N_GOODPUT; i++) {
        snprintf(labels, sizeof labels, ",part=\"%s\"", dt_goodput_parts[i].name);
        put_value(f, name, s->run, labels, n->ledger.seconds[i]);
    }
}

static void put_activity(prometheus *s, FILE *f, const char *name, const numbers *n) {
    static const char *const words[] = {DT_ACTIVITY_WORDS(DT_WORD_QUOTED)};
    char labels[64];
    // one series for each activity: 1 for the present one, else 0
    for (int i = 0; i < DT_N_ACTIVITIES; i++) {
        snprintf(labels, sizeof labels, ",activity=\"%s\"", words[i]);
        put_value(f, name, s->run, labels, i == (int)n->activity);
    }
}

static void put_eval(prometheus *s, FILE *f, const char *name, const numbers *n) {
    pthread_mutex_lock(&s->results_lock);
    for (size_t i = 0; i < s->n_results; i++) put_value(f, name, s->run, s->results[i].labels, s->results[i].value);
    pthread_mutex_unlock(&s->results_lock);
}

// constant 1: the version is in the label
static void put_build(prometheus *s, FILE *f, const char *name, const numbers *n) {
    put_value(f, name, s->run, s->version, 1);
}

// constant 1: whose run it is, for who scrapes without metrics.file_sd
static void put_info(prometheus *s, FILE *f, const char *name, const numbers *n) {
    char *labels = NULL;
    for (int i = 0; i < N_OWNER; i++) {
        char *label = make_label(owner_labels[i], s->owner[i]);
        dt_xappend(&labels, ",%s", label);
        free(label);
    }
    put_value(f, name, s->run, labels, 1);
    free(labels);
}

static const char *reason(dt_status st) {
    switch (st) {
    case DT_OK:
        return "done";
    case DT_E_USAGE:
        return "usage";
    case DT_E_DATA:
        return "data";
    case DT_E_CKPT:
        return "checkpoint";
    case DT_E_STORAGE:
        return "storage";
    case DT_E_NUMERIC:
        return "numeric";
    case DT_E_INTERNAL:
        break;
    case DT_E_PREEMPTED:
        return "preempted";
    case DT_E_PEER:
        return "peer";
    }
    return "internal";
}

// no series before the end: absent() tells a running job
static void put_exit(prometheus *s, FILE *f, const char *name, const numbers *n) {
    char labels[64];
    snprintf(labels, sizeof labels, ",reason=\"%s\"", reason(n->status));
    if (n->ended) put_value(f, name, s->run, labels, n->status);
}

static void put_all(prometheus *s, FILE *f) {
    // a copy: formatting takes longer than a step may wait
    pthread_mutex_lock(&s->lock);
    numbers n = s->now;
    pthread_mutex_unlock(&s->lock);
    const double quiet_s = dt_watch_quiet_s();                    // seconds without progress
    n.one[N_quiet] = isfinite(quiet_s) && !n.ended ? quiet_s : 0; // an ended run is not hanging
// the text format wants HELP and TYPE in front of a metric's samples
#define NUMBER(id, name, type, help)                                                                                   \
    put_help(f, name, type, help);                                                                                     \
    put_numbers(s, f, name, N_##id, &n);
#define FAMILY(id, name, type, labels, help)                                                                           \
    put_help(f, name, type, help);                                                                                     \
    put_##id(s, f, name, &n);
#include "observe/prometheus.def"
#undef NUMBER
#undef FAMILY
}

static void write_textfile(prometheus *s) {
    char *text = NULL;
    size_t n = 0;
    pthread_mutex_lock(&s->textfile_lock); // the server's thread and, at the end, the training's
    FILE *f = open_memstream(&text, &n);
    put_all(s, f);
    fclose(f);
    // to a temporary name, then renamed: node_exporter never reads half
    if (dt_io_write_file(s->textfile, text, n) == DT_OK) {
        s->textfile_failed = false;
    } else {
        if (!s->textfile_failed) dt_warn("metrics.textfile: %s", dt_error_message()); // once
        s->textfile_failed = true;
    }
    pthread_mutex_unlock(&s->textfile_lock);
    free(text);
}

// A run that was killed leaves a file without its exit status, which would be read for ever. `target`, or NULL: text of
// the endpoint that this process has just opened, so another file with it is stale at any age.
static void remove_stale(const char *key, const char *folder, const char *suffix, const char *target) {
    char **names, *text = NULL;
    size_t n, n_bytes;
    struct stat info;
    // a missing folder is told when the file is written
    if (dt_io_list_dir(&names, &n, folder, DT_E_STORAGE) != DT_OK) n = 0, names = NULL;
    for (size_t i = 0; i < n; i++) {
        char *path = dt_xprintf("%s/%s", folder, names[i]);
        // only names of ours
        if (strncmp(names[i], "dtrain-", 7) == 0 && dt_text_ends(names[i], suffix) && stat(path, &info) == 0 &&
            dt_io_read_own(&text, &n_bytes, path, 1 << 20, DT_E_STORAGE) == DT_OK &&
            (dt_clock_wall_s() - (double)info.st_mtim.tv_sec > STALE_S || (target && strstr(text, target))) &&
            // a finished run's file stays: it has the exit status
            !strstr(text, "\ndtrain_exit_status{") && unlink(path) == 0)
            dt_info("%s: %s is of a run that was killed: removed", key, path);
        free(text);
        text = NULL;
        free(path);
    }
    dt_io_free_list(names, n);
    dt_error_clear(); // no failure of the run
}

// Where Prometheus reaches the endpoint: the address that was given, or the host's name where it is every address.
static char *make_address(const prometheus *s, const dt_listen *l) {
    const int port = (int)s->now.one[N_port];
    const bool is6 = l->any.sa_family == AF_INET6;
    char text[INET6_ADDRSTRLEN] = "";
    if (is6 ? IN6_IS_ADDR_UNSPECIFIED(&l->v6.sin6_addr) : l->v4.sin_addr.s_addr == htonl(INADDR_ANY))
        return dt_xprintf("%s:%d", s->owner[2], port);
    inet_ntop(l->any.sa_family, is6 ? (const void *)&l->v6.sin6_addr : &l->v4.sin_addr, text, sizeof text);
    return dt_xprintf(is6 ? "[%s]:%d" : "%s:%d", text, port);
}

static void write_targets(prometheus *s, const dt_metrics_opts *o) {
    char *address = make_address(s, &o->listen), *target = dt_xprintf("[\"%s\"]", address);
    dt_json j;
    remove_stale("metrics.file_sd", o->file_sd, ".json", target);
    dt_json_init(&j);
    dt_json_begin_array(&j, NULL);
    dt_json_begin_object(&j, NULL);
    dt_json_begin_array(&j, "targets");
    dt_json_string(&j, NULL, address);
    dt_json_end_array(&j);
    dt_json_begin_object(&j, "labels"); // not `run`, which metrics have: Prometheus would rename theirs
    for (int i = 0; i < N_OWNER; i++) dt_json_string(&j, owner_labels[i], s->owner[i]);
    dt_json_end_object(&j);
    dt_json_end_object(&j);
    dt_json_end_array(&j);
    // users may share the folder, and name their runs alike
    s->targets = dt_xprintf("%s/dtrain-%s-%s.json", o->file_sd, s->owner[0], o->run_name);
    if (dt_io_write_file(s->targets, j.data, j.n_bytes) != DT_OK) {
        dt_warn("metrics.file_sd: %s", dt_error_message());
        free(s->targets);
        s->targets = NULL;
    }
    dt_json_fini(&j);
    free(target);
    free(address);
}

// ---- the server ------------------------------------------------------------------------------------

static void sink_prometheus_drop(prometheus *s, int i) {
    close(s->clients[i].fd);
    free(s->clients[i].reply);
    // clients keep their order: the oldest first
    memmove(s->clients + i, s->clients + i + 1, (size_t)(--s->n_clients - i) * sizeof *s->clients);
}

static void accept_one(prometheus *s) {
    const int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    // no descriptor: as full as MAX_CLIENTS
    const bool full = fd < 0 ? errno == EMFILE || errno == ENFILE : s->n_clients == MAX_CLIENTS;
    if (full && s->n_clients > 0)
        sink_prometheus_drop(s, 0); // an idle client must not keep a scrape out
    else if (full)
        usleep(100 * 1000);                                       // until a descriptor is free
    if (fd >= 0) s->clients[s->n_clients++] = (client){.fd = fd}; // full: the drop above has made room
}

static bool sink_prometheus_is_path(const char *target, const char *path) {
    const size_t n = strlen(path); // '?': parameters are ignored
    return strncmp(target, path, n) == 0 && strchr(" ?", target[n]);
}

static void make_reply(prometheus *s, client *c) {
    char *text = NULL;
    const char *status = "200 OK";
    const bool head = strncmp(c->request, "HEAD ", 5) == 0; // all but the body
    // another method: c->at, the request's end, matches no path
    const char *target = c->request + (head ? 5 : strncmp(c->request, "GET ", 4) == 0 ? 4 : c->at);
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    pthread_mutex_lock(&s->lock);
    const bool ended = s->now.ended, ready = !ended && s->now.phases[0].sum > 0; // a step was taken
    pthread_mutex_unlock(&s->lock);
    if (sink_prometheus_is_path(target, "/metrics")) {
        put_all(s, f);
        c->last = ended && !head; // HEAD shows no numbers
    } else if (sink_prometheus_is_path(target, "/healthz")) {
        fputs("ok\n", f);
    } else if (sink_prometheus_is_path(target, "/readyz")) {
        fputs(ready ? "steps are running\n" : "no step yet\n", f);
        if (!ready) status = "503 Service Unavailable";
    } else {
        fputs("dtrain's metrics are at /metrics; probes: /healthz, /readyz\n", f);
        status = "404 Not Found";
    }
    fclose(f);
    c->reply = dt_xprintf("HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                          "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                          status, n, head ? "" : text); // Content-Length of HEAD is that of GET
    c->n = strlen(c->reply);
    c->at = 0;
    free(text);
}

// Reads or writes what the socket allows now; false: the client is finished. A request ends at its empty line.
static bool serve(prometheus *s, client *c) {
    ssize_t m;
    if (!c->reply) {
        // request stays ended by 0: REQUEST_BYTES + 1 zeros
        m = recv(c->fd, c->request + c->at, REQUEST_BYTES - c->at, 0);
        if (m > 0) c->at += (size_t)m;
        if (m > 0 && strstr(c->request, "\r\n\r\n")) // the body of a request is not read
            make_reply(s, c);
        else
            // a request that is too long; closed by the client (0); no data yet
            return m > 0 ? c->at < REQUEST_BYTES : m < 0 && errno == EAGAIN;
    }
    m = send(c->fd, c->reply + c->at, c->n - c->at, MSG_NOSIGNAL); // MSG_NOSIGNAL: a client that went away gives EPIPE
    if (m > 0) c->at += (size_t)m;
    if (c->at == c->n && c->last) s->scraped = true; // the whole reply was sent
    return m > 0 ? c->at < c->n : m < 0 && errno == EAGAIN;
}

static void *serve_all(void *state) {
    prometheus *s = state;
    // rebuilt for each poll: clients come and go
    struct pollfd wait[2 + MAX_CLIENTS] = {{.fd = s->listener, .events = POLLIN}, {.fd = s->stop[0], .events = POLLIN}};
    double written_s = 0; // 0: the first file at once
    dt_thread_name("prometheus");
    for (;;) {
        const int n = s->n_clients;
        // a client is either read or written
        for (int i = 0; i < n; i++)
            wait[2 + i] = (struct pollfd){.fd = s->clients[i].fd, .events = s->clients[i].reply ? POLLOUT : POLLIN};
        // without a file no timeout
        const int n_ready = poll(wait, (nfds_t)(2 + n), s->textfile || s->targets ? TEXTFILE_MS : -1);
        if (n_ready < 0) continue;  // a signal
        if (wait[1].revents) break; // close_prometheus closed the pipe
        // half a second less: poll may return a bit early
        if (dt_clock_s() - written_s >= TEXTFILE_MS / 1000 - 0.5) {
            if (s->textfile) write_textfile(s);
            if (s->targets) utimensat(AT_FDCWD, s->targets, NULL, 0); // not stale
            written_s = dt_clock_s();
        }
        for (int i = n - 1; i >= 0; i--) // from behind: dropping one moves those after it
            if (wait[2 + i].revents && !serve(s, &s->clients[i])) sink_prometheus_drop(s, i);
        if (wait[0].revents) accept_one(s); // after serving, as it may drop the oldest
    }
    while (s->n_clients) sink_prometheus_drop(s, s->n_clients - 1);
    return NULL;
}

// < 0: errno says why.
static int listen_on(const dt_listen *l) {
    const int yes = 1, no = 0, is6 = l->any.sa_family == AF_INET6; // v6 with V6ONLY off takes IPv4 too
    // for machines without IPv6
    dt_listen any4 = {.v4 = {.sin_family = AF_INET, .sin_port = htons((in_port_t)dt_listen_port(l))}};
    int fd = socket(l->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 && is6 && IN6_IS_ADDR_UNSPECIFIED(&l->v6.sin6_addr)) return listen_on(&any4); // [::] means any address
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); // a restarted run gets its port at once
    if (is6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    // 64: the backlog
    if (fd >= 0 && bind(fd, &l->any, is6 ? sizeof l->v6 : sizeof l->v4) == 0 && listen(fd, 64) == 0) return fd;
    const int why = errno; // close may change it
    if (fd >= 0) close(fd);
    errno = why;
    return -1;
}

// On the first free port from that of `wanted` on. < 0: errno says why.
static int listen_near(const dt_listen *wanted, int *port) {
    dt_listen l = *wanted;
    const int first = dt_listen_port(wanted);
    int fd = -1;
    for (*port = first; *port < first + PORTS && *port < 65536; ++*port) {
        l.v4.sin_port = htons((in_port_t)*port); // at the same place in v6
        fd = listen_on(&l);
        if (fd >= 0 || errno != EADDRINUSE) break; // EACCES and others would fail at the next port too
    }
    return fd;
}

// ---- the sink --------------------------------------------------------------------------------------

static void find_owner(prometheus *s) {
    static const char *const jobs[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"};
    const struct passwd *user = getpwuid(geteuid()); // NULL: a container may run as a number that has no name
    const char *job = NULL;
    char host[256] = "";
    for (int i = 0; i < 4 && !job; i++) job = getenv(jobs[i]);
    gethostname(host, sizeof host - 1);
    s->owner[0] = user ? dt_xstrdup(user->pw_name) : dt_xprintf("%u", (unsigned)geteuid());
    s->owner[1] = dt_xstrdup(job ? job : "");
    s->owner[2] = dt_xstrdup(host);
}

static dt_status open_prometheus(void **state, const dt_metrics_opts *o) {
    prometheus *s = dt_xcalloc(1, sizeof *s);
    double *one = s->now.one;
    s->run = make_label("run", o->run_name);
    char *version = make_label("version", o->version ? o->version : "");
    s->version = dt_xprintf(",%s", version);
    free(version); // as a label behind run
    one[N_steps] = (double)o->total_steps;
    one[N_world] = o->world_size;
    one[N_step] = one[N_saved_step] = (double)o->first_step; // until the first save the run's start counts as saved
    // wall clock when the process began
    one[N_started] = one[N_stepped] = one[N_saved] = dt_clock_wall_s() - dt_clock_process_s();
    s->linger_s = o->linger_s;
    s->is_stopped = o->is_stopped;
    find_owner(s);
    if (o->textfile) remove_stale("metrics.textfile", o->textfile, ".prom", NULL); // before the run's own file
    if (o->textfile) s->textfile = dt_xprintf("%s/dtrain-%s.prom", o->textfile, o->run_name);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->results_lock, NULL);
    pthread_mutex_init(&s->textfile_lock, NULL);
    *state = s;
    int port;
    s->listener = listen_near(&o->listen, &port);
    int why = s->listener < 0 ? errno : 0;
    one[N_port] = why ? 0 : port;                   // 0: nobody answers
    if (!why && port != dt_listen_port(&o->listen)) // another job of this host has it
        dt_warn("metrics.listen %s is taken: Prometheus finds this run at port %d", o->listen_text, port);
    s->stop[0] = s->stop[1] = -1;
    if (pipe2(s->stop, O_CLOEXEC) != 0) why = errno;
    if (o->file_sd && !why) write_targets(s, o);
    // all that the thread reads is there before it starts; it also writes the textfile
    if (s->stop[0] >= 0 && (!why || s->textfile)) {
        const int no_thread = pthread_create(&s->thread, NULL, serve_all, s);
        s->has_thread = !no_thread;
        if (no_thread) why = no_thread;
    }
    if (!s->has_thread && s->listener >= 0) { // nobody would accept
        close(s->listener);
        s->listener = -1;
    }
    if (why) // DT_OK: metrics never fail a run
        dt_warn("metrics.listen %s: %s: Prometheus gets no metrics of this run; training continues", o->listen_text,
                strerror(why));
    return DT_OK;
}

static void sink_prometheus_add_phase(histogram *h, double seconds) {
    int i = 0;
    while (i < N_BOUNDS && seconds > bounds[i]) i++; // le: bounds are inclusive
    h->n[i]++;
    h->sum += seconds; // a counter, in seconds
}

static void sink_prometheus_take_step(numbers *n, const dt_metrics_line *record) {
    const dt_step_line *r = &record->of.step.r;
    const dt_step_stats *stats = &record->of.step.s;
    const double seconds[N_PHASES] = {r->step_s, r->data_s, r->compute_s, r->comm_s, r->other_s};
    n->one[N_step] = (double)r->step;
    n->one[N_epoch] = r->epoch;
    n->one[N_samples] = (double)r->samples;
    n->one[N_loss] = r->loss;
    n->one[N_lr] = r->lr;
    n->one[N_grad_norm] = r->grad_norm;
    n->one[N_loss_scale] = r->loss_scale;
    n->one[N_rate] = stats->smooth_samples_per_s; // smooth: a scrape sees one step of many
    n->one[N_left] = stats->eta_s;
    n->one[N_rss] = (double)stats->rss_bytes;
    n->has_gpu = stats->has_gpu;
    memcpy(n->gpu, stats->gpu, sizeof n->gpu);
    n->one[N_skipped] += r->skipped;    // a counter of this attempt
    n->one[N_stepped] = record->wall_s; // wall clock: alerts compare with time()
    for (int i = 0; i < N_PHASES; i++) sink_prometheus_add_phase(&n->phases[i], seconds[i]);
}

// The results of a split take the place of those before.
static void sink_prometheus_take_eval(prometheus *s, const dt_eval_line *r) {
    char *split = make_label(",split", r->split);
    size_t n = 0;
    pthread_mutex_lock(&s->results_lock);
    // metrics of a split may be others than before: all are replaced
    for (size_t i = 0; i < s->n_results; i++)
        if (strncmp(s->results[i].labels, split, strlen(split)) != 0)
            s->results[n++] = s->results[i];
        else
            free(s->results[i].labels);
    s->results = dt_xrealloc(s->results, (n + (size_t)r->n_values + 1) * sizeof *s->results); // + 1: none of 0 bytes
    for (int i = 0; i < r->n_values; i++) {
        char *metric = make_label("metric", r->values[i].name);
        s->results[n++] = (result){dt_xprintf("%s,%s", split, metric), r->values[i].value};
        free(metric);
    }
    s->n_results = n;
    pthread_mutex_unlock(&s->results_lock);
    free(split);
}

static void take_ranks(prometheus *s, const dt_ranks_line *r) {
    pthread_mutex_lock(&s->results_lock);
    if (!s->ranks)
        s->ranks = dt_xcalloc((size_t)r->n, DT_N_RANK * sizeof *s->ranks); // the number of ranks stays the same
    s->n_ranks = r->n;
    s->ranks_have_gpu = r->has_gpu;
    memcpy(s->ranks, r->values, DT_N_RANK * (size_t)r->n * sizeof *s->ranks);
    pthread_mutex_unlock(&s->results_lock);
}

static void take_checkpoint(numbers *n, const dt_metrics_line *r) {
    n->one[N_save_s] = r->of.checkpoint.seconds;      // also of a failed one
    n->one[N_save_failed] += !r->of.checkpoint.saved; // counted, the rest keeps the last good save
    if (!r->of.checkpoint.saved) return;
    n->one[N_saved] = r->wall_s;
    n->one[N_saved_step] = (double)r->step;
}

static void sink_prometheus_take(void *state, const dt_metrics_line *r) {
    prometheus *s = state;
    numbers *n = &s->now;
    // called by the training's thread and by that of saves
    pthread_mutex_lock(&s->lock);
    switch (r->kind) {
    case DT_LINE_step:
        sink_prometheus_take_step(n, r);
        break;
    // taken below, outside `lock`: they allocate under results_lock
    case DT_LINE_eval:
    case DT_LINE_verdict:
    case DT_LINE_slow_rank:
        break;
    case DT_LINE_ranks:
        n->one[N_imbalance] = r->of.ranks.imbalance;
        n->one[N_slowest] = r->of.ranks.slowest;
        break;
    case DT_LINE_activity:
        n->activity = r->of.activity;
        break;
    case DT_LINE_checkpoint:
        take_checkpoint(n, r);
        break;
    case DT_LINE_start:
    case DT_LINE_goodput:
        n->ledger = r->of.goodput;
        n->one[N_goodput] = dt_goodput_ratio(&n->ledger);
        n->one[N_restarts] = (double)(n->ledger.attempts - 1); // attempts count from 1
        n->one[N_lost_steps] = (double)n->ledger.lost_steps;
        break;
    case DT_LINE_end:
        n->status = r->of.end.status;
        n->ended = true; // put_all then has the exit status
        break;
    }
    pthread_mutex_unlock(&s->lock);
    // after `lock` was released: never both locks at once
    if (r->kind == DT_LINE_eval) sink_prometheus_take_eval(s, &r->of.eval);
    if (r->kind == DT_LINE_ranks) take_ranks(s, &r->of.ranks);
    if (r->kind == DT_LINE_end && s->textfile) write_textfile(s); // at once: the process may end next
}

static void close_prometheus(void *state) {
    prometheus *s = state;
    const struct timespec rest = {.tv_nsec = 20 * 1000 * 1000};
    if (s->listener >= 0 && s->now.ended)
        // seconds of waiting, in steps of 20 ms
        for (double waited_s = 0; waited_s < s->linger_s && !s->scraped && !(s->is_stopped && s->is_stopped());
             waited_s += 0.02) {
            dt_watch_tick(); // the other ranks wait at the end of the run
            nanosleep(&rest, NULL);
        }
    close(s->stop[1]);                                // the other end becomes readable
    if (s->has_thread) pthread_join(s->thread, NULL); // nobody uses the sink from here on
    if (s->targets) unlink(s->targets);
    close(s->stop[0]);
    if (s->listener >= 0) close(s->listener);
    for (size_t i = 0; i < s->n_results; i++) free(s->results[i].labels);
    free(s->results);
    free(s->ranks);
    free(s->run);
    free(s->version);
    free(s->textfile);
    free(s->targets);
    for (int i = 0; i < N_OWNER; i++) free(s->owner[i]);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->results_lock);
    pthread_mutex_destroy(&s->textfile_lock);
    free(s);
}

const dt_metrics_sink dt_sink_prometheus = {
    .open = open_prometheus,
    .take = sink_prometheus_take,
    .close = close_prometheus,
};
