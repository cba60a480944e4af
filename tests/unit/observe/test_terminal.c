// test_terminal.c: what a person sees: plain lines, the summary, and the live line on a pseudo-terminal.
#define _GNU_SOURCE
#include "metrics_case.h"

#include <math.h>
#include <sys/ioctl.h>

// Until a plain line may follow another.
static void wait_for_a_line(void) {
    clock_ms += 110;
}

TEST_WITH(test_ten_lines_a_second, folder_make, folder_remove) {
    stderr_to_file();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TERMINAL, .every_steps = 1, .truncate_to = -1});
    run_steps(m, 1, 3);
    wait_for_a_line();
    run_steps(m, 4, 4);
    dt_metrics_close(m, NULL);
    stderr_back();
    char *text = read_text("stderr");
    assert_non_null(strstr(text, "step 1/100"));
    assert_null(strstr(text, "step 2/100"));
    assert_null(strstr(text, "step 3/100"));
    assert_non_null(strstr(text, "step 4/100"));
    free(text);
}

TEST_WITH(test_skipped_on_the_terminal, folder_make, folder_remove) {
    stderr_to_file();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TERMINAL, .every_steps = 1, .truncate_to = -1});
    dt_step_line r = record(1);
    dt_metrics_step(m, &r);
    wait_for_a_line();
    r = record(2);
    r.loss = INFINITY;
    r.skipped = true;
    dt_metrics_step(m, &r);
    dt_metrics_summary(m, NULL);
    dt_metrics_close(m, NULL);
    stderr_back();
    char *text = read_text("stderr");
    assert_non_null(strstr(text, "step 2/100  epoch 0.08  loss 1.0000"));
    assert_non_null(strstr(text, "1 steps were skipped (overflow)"));
    free(text);
}

// Until a step counts there is no loss, and an epoch whose last step is skipped ends all the same.
TEST_WITH(test_skipped_first_and_last, folder_make, folder_remove) {
    stderr_to_file();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TERMINAL, .truncate_to = -1});
    for (int step = 1; step <= 25; step++) {
        dt_step_line r = record(step);
        r.skipped = step <= 10 || step == 25;
        if (r.skipped) r.loss = NAN;
        dt_metrics_step(m, &r);
        if (step == 10) wait_for_a_line();
    }
    dt_metrics_close(m, NULL);
    stderr_back();
    char *text = read_text("stderr");
    assert_non_null(strstr(text, "step 10/100  epoch 0.40  loss -  lr"));
    assert_non_null(strstr(text, "step 20/100  epoch 0.80  loss 0.0500  lr"));
    assert_non_null(strstr(text, "step 25/100  epoch 1.00  loss 0.0417  lr"));
    assert_null(strstr(text, "nan"));
    free(text);
}

TEST_WITH(test_plain_lines, folder_make, folder_remove) {
    dt_metric_value v[] = {{"loss", 0.5},        {"pose.accuracy", 0.9125}, {"pose.recall.left", 0.25},
                           {"recall.cat", 0.75}, {"pose.top_3", 1},         {"size.mae", 2}};
    stderr_to_file();
    dt_metrics *m = open_metrics((dt_metrics_opts){.sinks = TERMINAL, .truncate_to = -1, .chosen_by = "size.mae"});
    run_steps(m, 1, 15);
    wait_for_a_line();
    run_steps(m, 16, 25);
    dt_metrics_eval(m, "val", 25, v, 6, NULL);
    dt_metrics_activity(m, DT_ACTIVITY_saving);
    dt_metrics_summary(m, NULL);
    dt_metrics_close(m, NULL);
    stderr_back();
    char *text = read_text("stderr");
    assert_non_null(strstr(text, "step 10/100  epoch 0.40  loss 0.1000  lr 1.00e-03  64.0 samples/s"
                                 "  ETA 0:45  data 2% compute 90% comm 6%\n"));
    assert_non_null(strstr(text, "step 20/100"));
    assert_non_null(strstr(text, "step 25/100"));
    assert_null(strstr(text, "step 15/100"));
    assert_non_null(strstr(text, "val at step 25:  size.mae 2.0000  loss 0.5000  pose.accuracy "
                                 "0.9125  pose.top_3 1.0000\n"));
    assert_null(strstr(text, "saving"));
    assert_null(strchr(text, '\r'));
    assert_non_null(strstr(text, "25 steps to step 25, 800 samples"));
    assert_non_null(strstr(text, "limited by compute"));
    free(text);
}

static char *verdict(double data_s, double comm_s) {
    stderr_to_file();
    dt_metrics *m = open_metrics((dt_metrics_opts){.truncate_to = -1});
    for (int i = 1; i <= 10; i++) {
        dt_step_line r = record(i);
        r.data_s = data_s;
        r.comm_s = comm_s;
        if (i == 1) r.data_s = r.step_s = 60; // the first step says nothing
        dt_metrics_step(m, &r);
    }
    dt_metrics_summary(m, NULL);
    dt_metrics_close(m, NULL);
    stderr_back();
    char *text = read_text("stderr");
    unlink(in_folder("stderr"));
    return text;
}

TEST_WITH(test_verdict, folder_make, folder_remove) {
    char *text = verdict(0.06, 0.01);
    assert_non_null(strstr(text, "limited by data"));
    free(text);
    text = verdict(0.04, 0.1);
    assert_non_null(strstr(text, "limited by communication"));
    free(text);
    text = verdict(0.04, 0.05);
    assert_non_null(strstr(text, "limited by compute"));
    assert_non_null(strstr(text, "5.0 samples/s in steps, 64.0 without the first,"));
    free(text);
}

// Everything written to the pseudo-terminal `master` so far.
static void read_screen(int master, char *out, size_t cap) {
    size_t n = 0;
    fcntl(master, F_SETFL, O_NONBLOCK);
    for (;;) {
        ssize_t r = read(master, out + n, cap - 1 - n);
        if (r <= 0) break;
        n += (size_t)r;
    }
    out[n] = '\0';
}

// The metrics of a run on a pseudo-terminal of so many columns.
static dt_metrics *open_on_terminal(int *master, unsigned short columns) {
    struct winsize window = {.ws_row = 24, .ws_col = columns};
    *master = posix_openpt(O_RDWR | O_NOCTTY);
    if (*master < 0 || grantpt(*master) != 0 || unlockpt(*master) != 0) skip();
    int slave = open(ptsname(*master), O_RDWR | O_NOCTTY);
    if (slave < 0) skip();
    ioctl(slave, TIOCSWINSZ, &window);
    setenv("TERM", "xterm", 1);
    stderr_to(slave);
    return open_metrics((dt_metrics_opts){.sinks = TERMINAL, .truncate_to = -1});
}

// The bar is the first to give way; behind the summary, where results go to stdout, no line is drawn.
TEST_WITH(test_narrow_windows, folder_make, folder_remove) {
    static char screen[65536];
    static const struct {
        unsigned short columns;
        const char *has, *lacks;
    } CASES[] = {
        {140, "epoch 1/4 [========================] 100%", NULL},
        {112, "epoch 1/4 [==========", "========================]"},
        {112, "data 2% compute 90% comm 6%\033", NULL},
        {106, "data 2% compute 90% comm 6%\033", "["},
        {60, "lr 1.00e-03\033", "["},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int master;
        dt_metrics *m = open_on_terminal(&master, CASES[i].columns);
        run_steps(m, 1, 25);
        dt_metrics_summary(m, NULL);
        dt_metrics_close(m, NULL);
        stderr_back();
        read_screen(master, screen, sizeof screen);
        close(master);
        char *end = strstr(screen, "25 steps to step 25"), *last = NULL;
        assert_non_null(end);
        assert_null(strstr(end, "epoch 1/4"));
        for (char *at = screen; (at = strstr(at, "\repoch 1/4")) && at < end; at++) last = at;
        assert_non_null(last);
        last[strcspn(last, "\033") + 1] = '\0';
        if (!strstr(last, CASES[i].has) || (CASES[i].lacks && strstr(last, CASES[i].lacks)))
            fail_msg("%d columns: %s", CASES[i].columns, last);
        unlink(in_folder("metrics.jsonl"));
    }
}

TEST_WITH(test_live_line, folder_make, folder_remove) {
    static char screen[65536];
    int master;
    dt_metrics *m = open_on_terminal(&master, 120);
    dt_step_line skipped = record(1);
    skipped.skipped = true;
    dt_metrics_step(m, &skipped);
    run_steps(m, 2, 24); // in an instant: drawn once
    dt_info("a line of the log");
    dt_metrics_activity(m, DT_ACTIVITY_evaluating);
    run_steps(m, 25, 25);
    dt_metrics_close(m, NULL);
    stderr_back();
    read_screen(master, screen, sizeof screen);
    close(master);
    int n_draws = 0;
    for (char *p = screen; (p = strstr(p, "\repoch ")); p++) n_draws++;
    assert_int_equal(n_draws, 6); // not 25
    assert_non_null(strstr(screen, "\repoch 1/4 [=>"));
    assert_non_null(strstr(screen, "step 1/100  loss -  lr 1.00e-03  0.0/s  ETA 0:50"));
    // the log line erases the live line and has it drawn again below
    char *line = strstr(screen, "\r\033[Kdtrain: a line of the log\r\n\repoch 1/4");
    assert_non_null(line);
    assert_non_null(strstr(line, "  evaluating  loss"));
    assert_non_null(strstr(line, "step 25/100  epoch 1.00"));
    for (char *p = screen; (p = strstr(p, "\repoch ")); p++)
        assert_true(strcspn(p + 1, "\033") < 120); // fits the window
}

TEST_MAIN(NULL, NULL)
