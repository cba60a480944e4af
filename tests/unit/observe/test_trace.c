// test_trace.c: spans of several threads, none while there is no trace, too many; what is said of a trace.
#include "base/io.h"
#include "base/trace.h"
#include "folder.h"
#include "observe/trace_report.h"
#include "testing.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *record_one(void *name) {
    dt_trace_end("loader", name, dt_trace_begin());
    return NULL;
}

TEST(off_records_nothing) {
    dt_trace t;
    assert_true(dt_trace_begin() == 0);
    record_one("before");
    dt_trace_add("loader", "before", 1, 2);
    dt_trace_start();
    dt_trace_stop(&t);
    record_one("behind");
    assert_int_equal(t.n, 0);
    assert_null(t.spans);
    dt_trace_fini(&t);
}

TEST(spans_of_threads) {
    pthread_t thread;
    dt_trace t;
    dt_trace_start();
    dt_trace_add("commit", "commit", 1, 2.5);
    pthread_create(&thread, NULL, record_one, "a name that is longer than any span has room for, by far");
    pthread_join(thread, NULL);
    dt_trace_stop(&t);
    assert_int_equal(t.n, 2);
    assert_int_equal(t.n_threads, 2);
    assert_true(t.spans[0].begin_s == 1 && t.spans[0].end_s == 2.5);
    assert_int_not_equal(t.spans[0].thread, t.spans[1].thread);
    assert_memory_equal(t.spans[1].name, "a name that is longer", 21);
    assert_true(t.spans[1].end_s >= t.spans[1].begin_s);
    dt_trace_fini(&t);
    dt_trace_start(); // this thread again, in another trace
    const int64_t open = dt_trace_open("checkpoint", "write"), done = dt_trace_open("a", "b");
    dt_trace_close(done);
    dt_trace_stop(&t); // cuts what is open
    assert_int_equal(t.n, 2);
    for (int i = 0; i < 2; i++) assert_true(t.spans[i].end_s >= t.spans[i].begin_s && t.spans[i].end_s <= dt_clock_s());
    dt_trace_fini(&t);
    dt_trace_start();
    dt_trace_add("commit", "commit", 1, 2);
    dt_trace_close(open); // of a trace that has ended: nothing
    dt_trace_stop(&t);
    assert_true(t.n == 1 && t.spans[0].end_s == 2);
    dt_trace_fini(&t);
    dt_trace_start();
    for (int i = 0; i < (1 << 18) + 3; i++) dt_trace_add("commit", "commit", 1, 2);
    dt_trace_stop(&t);
    assert_int_equal(t.n, 1 << 18);
    assert_int_equal(t.n_dropped, 3);
    assert_int_equal(t.n_threads, 1);
    dt_trace_fini(&t);
}

#define SPAN(kind, name, rank, thread, ts, dur)                                                                        \
    "{\"name\":\"" name "\",\"ph\":\"X\",\"pid\":" #rank ",\"tid\":" #thread ",\"cat\":\"" kind "\",\"ts\":" #ts       \
    ",\"dur\":" #dur "}"

TEST(a_report) {
    static const char text[] =
        "{\"traceEvents\":[{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{}}"
        "," SPAN("forward", "conv1", 0, 0, 0, 1000) "," SPAN("backward", "conv1.bwd", 0, 0, 1000, 2000) "," SPAN(
            "bucket", "1 of 1", 0, 0, 2000,
            2000) "," SPAN("comm", "exposed", 0, 0, 3000,
                           500) "," SPAN("commit", "commit", 0, 0, 3500,
                                         500) "," SPAN("forward", "conv1", 1, 2, 0,
                                                       1500) "," SPAN("commit", "commit", 1, 2, 1500,
                                                                      500) "," SPAN("loader", "\\u001b[31m", 1, 3, 0,
                                                                                    9000) "]}\n";
    char *out = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&out, &n);
    must_fail(DT_E_DATA, "metrics.trace.steps", dt_trace_report(in_folder("nothing"), f));
    must(dt_io_write_file(in_folder("trace.json"), text, sizeof text - 1));
    must(dt_trace_report(in_folder("."), f));
    fclose(f);
    assert_non_null(
        strstr(out, "forward     conv1                                         2.500        2     1.2500\n"));
    assert_non_null(strstr(out, "loader      \\x1b[31m"));
    assert_non_null(strstr(out, "critical path, rank 0 of 2: 4.000 ms, forward 25.0%, backward 50.0%, "
                                "comm 12.5%, commit 12.5%, other 0.0%\n"));
    assert_non_null(strstr(out, "communication of rank 0: 2.000 ms, 75.0% of it overlapped with backward\n"));
    free(out);
}

int main(void) {
    return run_all_tests(folder_make, folder_remove);
}
