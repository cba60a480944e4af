// Requests against a server in this process that ends each answer early: what brings the object nearer goes on for as long as
// it takes, what hardly does ends at the limit, and a server that wants a long rest is not waited for.
#include "base/os.h"
#include "store/blob.h"
#include "store/http.h"
#include "testing.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OBJECT_BYTES = 1 << 20 };

static struct {
    int fd, port;
    _Atomic size_t most;        // bytes of a body, before the connection ends; 0: 503
    _Atomic useconds_t wait_us; // in front of each answer
    _Atomic int n_silent;       // connections that end without one
    const char *_Atomic says;   // instead of an answer that is right; NULL: none
    _Atomic int n_says;         // so many times
} server;
static char truth[OBJECT_BYTES];

static void answer(int fd) {
    char text[4096] = "";
    unsigned long first = 0, last = 0;
    for (size_t n = 0; !strstr(text, "\r\n\r\n");) {
        const ssize_t k = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (k <= 0) return;
        n += (size_t)k;
        text[n] = '\0';
    }
    const char *range = strstr(text, "bytes=");
    if (range) sscanf(range, "bytes=%lu-%lu", &first, &last);
    usleep(server.wait_us);
    if (server.n_silent > 0 && server.n_silent-- > 0) return;
    const char *says = server.says;
    if (says && server.n_says > 0) {
        server.n_says--;
        dprintf(fd, "%s\r\nETag: \"1\"\r\n\r\n", says);
        send(fd, truth, last - first + 1, MSG_NOSIGNAL);
        return;
    }
    if (server.most == 0) {
        dprintf(fd, "HTTP/1.1 503 Busy\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    const size_t n = last - first + 1, sent = n < server.most ? n : server.most;
    dprintf(fd,
            "HTTP/1.1 206 Part\r\nETag: \"1\"\r\nContent-Length: %zu\r\nContent-Range: bytes "
            "%lu-%lu/%d\r\n\r\n",
            n, first, last, OBJECT_BYTES);
    for (size_t at = 0; at < sent;) {
        const ssize_t k = send(fd, truth + first + at, sent - at, MSG_NOSIGNAL);
        if (k <= 0) return;
        at += (size_t)k;
    }
}

static void *serve(void *arg) {
    for (int fd; (fd = accept(server.fd, NULL, NULL)) >= 0; close(fd)) answer(fd);
    return arg;
}

static dt_status get(char *to, double limit_s) {
    char url[64];
    dt_http_reply r;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/object", server.port);
    const dt_status st =
        dt_http_do(&r, &(dt_http_request){.url = url, .range = to, .n_range = OBJECT_BYTES, .limit_s = limit_s});
    dt_http_reply_fini(&r);
    return st;
}

TEST(an_answer_that_comes_in_pieces_has_no_limit) {
    char *got = calloc(1, OBJECT_BYTES);
    server.most = 1 << 16;
    server.wait_us = 50000; // 16 of them are longer than the limit
    must(get(got, 0.3));
    assert_memory_equal(got, truth, OBJECT_BYTES);
    free(got);
}

TEST(a_server_that_does_not_answer_is_asked_again) {
    char *got = calloc(1, OBJECT_BYTES);
    server.most = OBJECT_BYTES;
    server.wait_us = 400000; // longer than the limit
    server.n_silent = 1;
    must(get(got, 0.3));
    free(got);
}

TEST(an_answer_that_hardly_comes_ends_at_the_limit) {
    char *got = calloc(1, OBJECT_BYTES);
    server.most = 1 << 10;
    server.wait_us = 5000;
    must_fail(DT_E_STORAGE, "attempts in", get(got, 0.3));
    must_fail(DT_E_STORAGE, "(1 attempt in", get(got, 0.3)); // which has been waited for
    free(got);
}

// Twice: then it is what the server has to say.
TEST(an_answer_that_is_none_is_asked_for_again) {
    static const char *const BAD[] = {
        "<html>log in",
        "HTTP/1.1 200 OK\r\nContent-Length: 1048576",
        "HTTP/1.1 206 Part",
        "HTTP/1.1 206 Part\r\nContent-Range: bytes 5-1048575/1048576",
        "HTTP/1.1 206 Part\r\nContent-Range: bytes 0-1048575/*",
        "HTTP/1.1 206 Part\r\nContent-Range: bytes",
    };
    char *got = calloc(1, OBJECT_BYTES);
    server.most = OBJECT_BYTES;
    server.wait_us = 0;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        memset(got, 0, OBJECT_BYTES);
        server.says = BAD[i];
        server.n_says = 2;
        must(get(got, 10));
        assert_memory_equal(got, truth, OBJECT_BYTES);
        server.n_says = 3;
        must_fail(DT_E_DATA, "(3 attempts in", get(got, 10));
    }
    server.says = NULL;
    free(got);
}

TEST(a_long_rest_is_not_waited_for) {
    char none[1];
    server.most = 0;
    must_fail(DT_E_STORAGE, "the server returned 503 and wants 3600 s of rest (1 attempt", get(none, 5));
}

// Nothing is allocated, added up or read for a size before it is known to be one that can be there.
TEST(a_size_that_cannot_be_is_refused) {
    static const struct {
        const char *says, *why;
    } CASES[] = {
        {"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-8191/18446744073709551615", "the server states"},
        {"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-8191/18446744073709551608", "the server states"},
        {"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-8191/-1", "the server states"},
        {"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-8191/9223372036854775807", "the server states"},
        {"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-8191/70368744177665", "the server states"},
        {"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-8191/70368744177664", "more than the limit"},
        {"HTTP/1.1 206 Part\r\nContent-Range: bytes 0-8191/1048577", "more than the limit"},
        {"HTTP/1.1 200 OK\r\nContent-Range: bytes 0-8191/-8", "the server states"},
        {"HTTP/1.1 206 Part\r\nContent-Length: 8192", "but not which one"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 8192", "whole files only"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char url[64], *text = NULL;
        size_t n = 0;
        snprintf(url, sizeof url, "http://127.0.0.1:%d/object", server.port);
        server.wait_us = 0;
        server.says = CASES[i].says;
        server.n_says = 100;
        must_fail(DT_E_DATA, CASES[i].why, dt_blob_read_all(&text, &n, url, i < 5 ? SIZE_MAX : OBJECT_BYTES, false));
        assert_null(text);
    }
    server.says = NULL;
}

int main(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    pthread_t thread;
    char module[4096];
    if (dt_module_find("dtrain_http.so", module, sizeof module) != DT_OK || !*module) return 77;
    for (size_t i = 0; i < sizeof truth; i++) truth[i] = (char)(i * 2654435761u >> 13);
    server.fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server.fd, (struct sockaddr *)&a, n) != 0 || listen(server.fd, 8) != 0 ||
        getsockname(server.fd, (struct sockaddr *)&a, &n) != 0)
        return 1;
    server.port = ntohs(a.sin_port);
    pthread_create(&thread, NULL, serve, NULL);
    return run_all_tests(NULL, NULL);
}
