// test_prometheus.c: what the endpoint answers, to clients of all kinds.
#define _GNU_SOURCE
#include "metrics_case.h"

#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>

static int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const void *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (void *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static dt_listen loopback(int port) {
    return (dt_listen){
        .v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}}};
}

static int connect_to(int port) { // < 0: nobody listens
    const dt_listen a = loopback(port);
    const struct timeval limit = {.tv_sec = 20}; // a server that never answers
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, &a.any, sizeof a.v4) == 0) return fd;
    close(fd);
    return -1;
}

// Sends (the rest of) a request: what is answered. heap
static char *finish(int fd, const char *request) {
    size_t at = 0;
    char *text = calloc(1, 65536);
    for (const char *p = request; *p; p++) assert_int_equal(send(fd, p, 1, MSG_NOSIGNAL), 1); // in pieces
    for (ssize_t m; (m = recv(fd, text + at, 65535 - at, 0)) > 0;) at += (size_t)m;
    close(fd);
    return text;
}

// What the endpoint answers; NULL: nobody listens. heap
static char *ask(int port, const char *request) {
    const int fd = connect_to(port);
    return fd < 0 ? NULL : finish(fd, request);
}

static const char get[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_WITH(test_prometheus, folder_make, folder_remove) {
    const dt_metric_value v[] = {{"accuracy", 0.75}, {"recall.a \"b\"\\\n<\xff\xc3\xa9>", NAN}};
    const int port = free_port();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = PROMETHEUS, .listen = loopback(port)});
    run_steps(m, 1, 3);
    dt_metrics_eval(m, "val", 2, v, 1, NULL);
    dt_metrics_eval(m, "val", 3, v, 2, NULL);
    char *text = ask(port, get);
    assert_non_null(text);
    assert_ptr_equal(strstr(text, "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), text);
    char *body = strstr(text, "\r\n\r\n") + 4;
    assert_int_equal(atoi(strstr(text, "Content-Length: ") + 16), strlen(body));
    assert_non_null(strstr(body, "# TYPE dtrain_step gauge\ndtrain_step{run=\"test\"} 3\n"));
    assert_non_null(strstr(body, "# TYPE dtrain_run_seconds gauge\n")); // its parts may fall
    assert_non_null(strstr(body, "\ndtrain_steps{run=\"test\"} 100\n"));
    assert_non_null(strstr(body, "\ndtrain_samples_per_second{run=\"test\"} 64\n"));
    char *data = strstr(body, "_sum{run=\"test\",phase=\"data\"} ");
    assert_true(data && fabs(atof(strchr(data, ' ')) - 0.03) < 1e-12);
    assert_non_null(strstr(body, "dtrain_eval{run=\"test\",split=\"val\",metric=\"accuracy\"} 0.75\n"));
    assert_non_null(strstr(body, "metric=\"recall.a \\\"b\\\"\\\\\\n<\xEF\xBF\xBD\xc3\xa9>\"} NaN\n"));
    assert_null(strstr(strstr(body, "\"accuracy\"") + 1, "\"accuracy\"")); // the last one only
    free(text);
    text = ask(port, "HEAD /metrics HTTP/1.1\r\n\r\n"); // the same without the body
    assert_ptr_equal(strstr(text, "HTTP/1.1 200 OK\r\n"), text);
    assert_true(atoi(strstr(text, "Content-Length: ") + 16) > 1000);
    assert_string_equal(strstr(text, "\r\n\r\n"), "\r\n\r\n");
    free(text);
    text = ask(port, "POST /metrics HTTP/1.1\r\n\r\n");
    assert_ptr_equal(strstr(text, "HTTP/1.1 404 "), text);
    free(text);
    text = ask(port, "GET /healthz HTTP/1.1\r\n\r\n");
    assert_non_null(strstr(text, "HTTP/1.1 200 OK"));
    free(text);
    text = ask(port, "GET /readyz HTTP/1.1\r\n\r\n");
    assert_non_null(strstr(text, "HTTP/1.1 200 OK"));
    free(text);
    text = ask(port, "GET /secret HTTP/1.1\r\n\r\n");
    assert_ptr_equal(strstr(text, "HTTP/1.1 404 "), text);
    free(text);

    // where a port is taken the next free one answers
    stderr_to_file();
    dt_metrics *other = open_metrics((dt_metrics_opts){.sinks = PROMETHEUS, .listen = loopback(port)});
    stderr_back();
    run_steps(other, 1, 1);
    char *said = read_text("stderr");
    const char *at = strstr(said, "is taken: Prometheus finds this run at port ");
    if (port < 65535) assert_non_null(at);
    if (at) {
        const int next = atoi(strrchr(at, ' ') + 1);
        char want[64];
        assert_true(next > port);
        snprintf(want, sizeof want, "\ndtrain_listen_port{run=\"test\"} %d\n", next);
        text = ask(next, get);
        assert_non_null(strstr(text, want));
        free(text);
    }
    free(said);
    dt_metrics_close(other, NULL);
    dt_metrics_close(m, NULL);
    assert_null(ask(port, get));
}

// What the run does, its checkpoints and its end; the last scrape is waited for, and the file holds what it said.
TEST_WITH(test_prometheus_end, folder_make, folder_remove) {
    const int port = free_port();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = PROMETHEUS,
                                                   .listen = loopback(port),
                                                   .version = "1 \"x\"",
                                                   .world_size = 3,
                                                   .first_step = 4,
                                                   .textfile = folder_path,
                                                   .linger_s = 0.1});
    char *text = ask(port, "GET /readyz HTTP/1.1\r\n\r\n");
    assert_non_null(strstr(text, "HTTP/1.1 503 "));
    free(text);
    text = ask(port, get);
    assert_non_null(strstr(text, "dtrain_activity{run=\"test\",activity=\"starting\"} 1\n"));
    assert_non_null(strstr(text, "dtrain_build_info{run=\"test\",version=\"1 \\\"x\\\"\"} 1\n"));
    assert_non_null(strstr(text, "\ndtrain_world_size{run=\"test\"} 3\n"));
    assert_non_null(strstr(text, "\ndtrain_step{run=\"test\"} 4\n"));
    assert_null(strstr(text, "dtrain_exit_status{"));
    free(text);
    run_steps(m, 5, 6);
    dt_metrics_activity(m, DT_ACTIVITY_saving);
    dt_metrics_checkpoint(m, 6, 1.5, true);
    dt_metrics_checkpoint(m, 7, 2.5, false);
    text = ask(port, get);
    assert_non_null(strstr(text, "dtrain_activity{run=\"test\",activity=\"saving\"} 1\n"));
    assert_non_null(strstr(text, "dtrain_activity{run=\"test\",activity=\"training\"} 0\n"));
    assert_non_null(strstr(text, "dtrain_checkpoint_step{run=\"test\"} 6\n"));
    assert_non_null(strstr(text, "dtrain_checkpoint_duration_seconds{run=\"test\"} 2.5\n"));
    assert_non_null(strstr(text, "dtrain_checkpoint_failures_total{run=\"test\"} 1\n"));
    const char *buckets[] = {"0.25\"} 0\n", "0.5\"} 2\n", "+Inf\"} 2\n"};
    for (int i = 0; i < 3; i++) { // two steps of half a second
        char want[96];
        snprintf(want, sizeof want, "dtrain_phase_seconds_bucket{run=\"test\",phase=\"step\",le=\"%s", buckets[i]);
        assert_non_null(strstr(text, want));
    }
    free(text);
    dt_metrics_close(m, &(dt_run_end){6, DT_E_NUMERIC, "not finite"});
    text = read_text("dtrain-test.prom");
    assert_non_null(strstr(text, "\ndtrain_exit_status{run=\"test\",reason=\"numeric\"} 6\n"));
    assert_non_null(strstr(text, "activity=\"ending\"} 1\n"));
    free(text);
}

// Files of runs that were killed go; a living run's, a finished one's and what is not dtrain's stay.
TEST_WITH(test_stale_textfiles, folder_make, folder_remove) {
    static const struct {
        const char *name, *text;
        bool old, stays;
    } files[] = {
        {"dtrain-killed.prom", "dtrain_step{run=\"killed\"} 4\n", true, false},
        {"dtrain-lives.prom", "dtrain_step{run=\"lives\"} 4\n", false, true},
        {"dtrain-done.prom", "x 1\ndtrain_exit_status{run=\"done\"} 0\n", true, true},
        {"other.prom", "other 1\n", true, true},
        {"dtrain-me-killed.json", "[]", true, false},
        {"dtrain-me-lives.json", "[]", false, true},
        {"other.json", "[]", true, true},
    };
    const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = in_folder("%s", files[i].name);
        must(dt_io_write_file(path, files[i].text, strlen(files[i].text)));
        if (files[i].old) assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    }
    dt_metrics_close(
        open_metrics((dt_metrics_opts){
            .sinks = PROMETHEUS, .listen = loopback(free_port()), .textfile = folder_path, .file_sd = folder_path}),
        NULL);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        assert_int_equal(dt_io_exists(in_folder("%s", files[i].name)), files[i].stays);
}

// The file of service discovery is there as long as the endpoint is, with the port that answers and whose run it is.
// Another file with the same target is of a killed run.
TEST_WITH(test_file_sd, folder_make, folder_remove) {
    const int port = free_port();
    struct passwd *me = getpwuid(geteuid());
    char host[256] = "", number[16];
    gethostname(host, sizeof host - 1);
    snprintf(number, sizeof number, "%u", (unsigned)geteuid());
    const char *user = me ? me->pw_name : number, *file = in_folder("dtrain-%s-test.json", user);
    dt_listen any = loopback(port);
    any.v4.sin_addr.s_addr = INADDR_ANY;
    const dt_listen all = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)}};
    const dt_listen listens[] = {loopback(port), any, all};
    setenv("SLURM_JOB_ID", "4\"7", 1);
    for (int i = 0; i < 3; i++) {
        for (int at = port; at < port + 2; at++) { // of a killed run, and of one that lives at the next port
            char *other = dt_xprintf("[{\"targets\":[\"%s:%d\"],\"labels\":{}}]", i == 0 ? "127.0.0.1" : host, at);
            must(dt_io_write_file(in_folder("dtrain-x-%d.json", at - port), other, strlen(other)));
            free(other);
        }
        dt_metrics *m =
            open_metrics((dt_metrics_opts){.sinks = PROMETHEUS, .listen = listens[i], .file_sd = folder_path});
        assert_false(dt_io_exists(in_folder("dtrain-x-0.json")));
        assert_true(dt_io_exists(in_folder("dtrain-x-1.json")));
        char *text = ask(port, get), *want = dt_xprintf("\ndtrain_run_info{run=\"test\",user=\"%s\",hpc_job=\"4\\\"7\","
                                                        "host=\"%s\"} 1\n",
                                                        user, host);
        assert_non_null(strstr(text, want));
        free(want);
        free(text);
        text = read_text(strrchr(file, '/') + 1);
        want = dt_xprintf(
            "[{\"targets\":[\"%s:%d\"],\"labels\":{\"user\":\"%s\",\"hpc_job\":\"4\\\"7\",\"host\":\"%s\"}}]",
            i == 0 ? "127.0.0.1" : host, port, user, host);
        assert_string_equal(text, want);
        free(want);
        free(text);
        dt_metrics_close(m, NULL);
        assert_false(dt_io_exists(file));
    }
    unsetenv("SLURM_JOB_ID");
}

// Clients that connect and send nothing more, a request that never ends or never read keep nobody out.
TEST_WITH(test_prometheus_slow_clients, folder_make, folder_remove) {
    enum { N = 60 };
    int fds[N];
    const int port = free_port();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = PROMETHEUS, .listen = loopback(port)});
    for (int i = 0; i < N; i++) {
        const char *begin = i % 3 == 0 ? "" : i % 3 == 1 ? "GET /met" : get;
        fds[i] = connect_to(port);
        assert_true(fds[i] >= 0);
        assert_int_equal(send(fds[i], begin, strlen(begin), 0), strlen(begin));
    }
    char *text = ask(port, get);
    assert_true(text && strncmp(text, "HTTP/1.1 200 OK", 15) == 0);
    free(text);
    text = finish(fds[N - 2], get + 8); // "GET /met" came long ago; it was not forgotten meanwhile
    assert_true(strncmp(text, "HTTP/1.1 200 OK", 15) == 0);
    free(text);
    fds[N - 2] = fds[N - 1];
    for (int i = 0; i < N - 1; i++) close(fds[i]);
    dt_metrics_close(m, NULL);
}

TEST_MAIN(NULL, NULL)
