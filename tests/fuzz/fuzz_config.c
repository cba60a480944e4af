// fuzz_config.c: any bytes as a config. Must answer, never crash; and what it accepts must dump to
// text that reads back to the same dump without a numeric difference.
//
// The required keys come as overrides, so that small inputs get past them; a byte 0x01 separates the
// file's text from one more override. Behind a byte 0x02 another config follows, which is compared with the first.
// Parser: runtime/config/config_tree.c runtime/config/config_check.c
// Parser: runtime/config/config_values.c!dt_config_(programming_error|set_.*|unset.*)|config_values_put|add_numbers
#define _GNU_SOURCE
#include "base/log.h"
#include "config/config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "fuzz_config: %s: %s\n", what, dt_error_message());
    abort();
}

static void check_round_trip(const dt_config *a) {
    dt_config *b = NULL;
    char *first = dt_config_dump(a);
    check(dt_config_parse(&b, "dump", first, strlen(first), NULL, 0) == DT_OK, "dump unreadable");
    char *second = dt_config_dump(b);
    check(strcmp(first, second) == 0, "dump differs");
    const char *x, *y;
    check(!dt_config_first_difference(a, b, DT_KEY_NUMERIC, &x, &y), "difference");
    free(first);
    free(second);
    dt_config_destroy(b);
}

// What the program reads of every config.
static void check_value(void *ctx, const char *path, const char *value, const char *default_text, bool is_default) {
    check(*path && value && (default_text || !is_default), "a value that is none");
}

static void read_owned(const dt_config *c, dt_key key) {
    const dt_config_key *k;
    double v;
    for (int i = 0; (k = dt_config_owned(c, key, i)); i++)
        if (k->kind == DT_T_AMOUNT)
            check(dt_amount_steps(dt_config_amount(c, k->path), 1000, 10) >= 0, "steps below 0");
        else if (k->kind == DT_T_INT || k->kind == DT_T_REAL || k->kind == DT_T_BOOL || k->kind == DT_T_TIME)
            dt_config_number(c, k->path, &v);
}

static void read_values(dt_config *c) {
    size_t n;
    int64_t begin, end;
    const dt_config_key *rows = dt_config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        if (strchr(rows[i].path, '*')) continue;
        check(dt_config_where(c, rows[i].offset) != NULL, "no place");
        dt_config_text(c, rows[i].offset);
        dt_config_is_auto(c, rows[i].offset);
    }
    read_owned(c, DT_KEY(train.optimizer.name));
    read_owned(c, DT_KEY(train.schedule.name));
    check(dt_config_trace_steps(c, &begin, &end) && begin <= end, "trace steps");
    dt_config_each(c, check_value, NULL);
}

static void compare(dt_config *a, dt_config *b) {
    const char *x, *y, *path = dt_config_first_difference(a, b, DT_KEY_NUMERIC | DT_KEY_EXCHANGED, &x, &y);
    bool numeric;
    if (path) check(x && y && !(dt_config_same_at(a, b, path, &numeric) && dt_config_is_repeat(path)), "no difference");
    for (int i = 0; i < a->data.n_fields; i++) dt_config_field_difference(a, b, a->data.fields[i].id, &x, &y);
    dt_config_moved(a, b, "data.path");
    dt_config_take_moments(a, b, true);
    check_round_trip(a);
}

// A file's text with the overrides; NULL: refused.
static dt_config *parse(const char *name, const char *text, size_t n_text, const char *const *overrides, size_t n) {
    dt_config *c = NULL;
    const dt_status st = dt_config_parse(&c, name, text, n_text, overrides, n);
    check(st == DT_OK || st == DT_E_USAGE, "neither accepted nor refused");
    check((st == DT_OK) == (c != NULL), "out without OK");
    if (!c) check(*dt_error_message() && !strchr(dt_error_message(), '\n'), "not one line");
    return c;
}

static void read_file(const dt_config *c, const char *path) {
    const dt_cnode *root;
    dt_arena a;
    dt_arena_init(&a);
    check(dt_config_read_tree(&root, &a, path) == DT_OK, "a config that is no tree");
    dt_arena_fini(&a);
    if (dt_config_is_users_file(c, path, true)) check(dt_config_is_users_file(c, path, false), "a user's, yet not his");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    const char *overrides[6] = {"run.name=r", "data.path=d", "model.name=vit", "train.global_batch=8",
                                "train.micro_batch=2"};
    const size_t n_given = n_bytes && data[0] == '#' ? 0 : 5;
    const uint8_t *second = n_bytes ? memchr(data, 2, n_bytes) : NULL;
    const size_t n_first = second ? (size_t)(second - data) : n_bytes;
    const uint8_t *mark = n_first ? memchr(data, 1, n_first) : NULL;
    const size_t n_text = mark ? (size_t)(mark - data) : n_first;
    char *extra = mark ? strndup((const char *)mark + 1, n_first - n_text - 1) : NULL, path[64];
    overrides[n_given] = extra;
    dt_log_set_level(DT_LOG_ERROR);
    int fd = memfd_create("config", 0);
    if (fd < 0 || write(fd, data, n_text) != (ssize_t)n_text) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    dt_config *c = parse(path, (const char *)data, n_text, overrides, n_given + (mark != NULL)), *other = NULL;
    if (c) {
        check_round_trip(c);
        read_values(c);
        read_file(c, path);
    }
    if (c && second) other = parse("second.yaml", (const char *)second + 1, n_bytes - n_first - 1, overrides, n_given);
    if (other) compare(c, other);
    dt_config_destroy(other);
    dt_config_destroy(c);
    close(fd);
    free(extra);
    return 0;
}
