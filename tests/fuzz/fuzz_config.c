// fuzz_config.c: any bytes as a config. Must answer, never crash; and what it accepts must dump to
// text that reads back to the same dump without a numeric difference.
//
// The required keys come as overrides, so that small inputs get past them; a byte 0x01 separates the
// file's text from one more override.
// Parser: runtime/config/config_tree.c runtime/config/config_check.c runtime/config/config_values.c
#include "config/config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    const char *overrides[6] = {"run.name=r", "data.path=d", "model.name=vit", "train.global_batch=8",
                                "train.micro_batch=2"};
    size_t n_overrides = n_bytes && data[0] == '#' ? 0 : 5, n_text = n_bytes;
    char *extra = NULL;
    const uint8_t *mark = n_bytes ? memchr(data, 1, n_bytes) : NULL;
    if (mark) {
        n_text = (size_t)(mark - data);
        extra = strndup((const char *)mark + 1, n_bytes - n_text - 1);
        overrides[n_overrides++] = extra;
    }
    dt_config *c = NULL;
    dt_status st = dt_config_parse(&c, "f.yaml", (const char *)data, n_text, overrides, n_overrides);
    check(st == DT_OK || st == DT_E_USAGE, "neither accepted nor refused");
    check((st == DT_OK) == (c != NULL), "out without OK");
    if (c)
        check_round_trip(c);
    else
        check(*dt_error_message() && !strchr(dt_error_message(), '\n'), "not one line");
    dt_config_destroy(c);
    free(extra);
    return 0;
}
