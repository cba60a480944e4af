// fuzz_expression.c: any text as an expression. It must say what is wrong, or be true or not of a record, and
// of each record the same whether negated once or thrice; as a value it has one of each record.
// Parser: data/catalog/expression.c
#include "data/catalog/expression.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CELLS = 9 };

static dt_cell cell_of(int i) {
    static const char *const TEXTS[] = {"x", "2", "\xc3\xa9_%\\", "\xff"};
    static const double REALS[] = {1, -0.5, 1e300};
    if (i < 4) return dt_cell_text(TEXTS[i]);
    if (i < 7) return dt_cell_real(REALS[i - 4]);
    return i == 7 ? dt_cell_decimal("0.50") : dt_cell_text(NULL);
}

static void run(const dt_expr *e, const char *text) {
    int n = dt_expr_n_names(e);
    for (int i = 0; i < n; i++)
        if (dt_expr_fail_name(e, i, "%s", dt_expr_name(e, i)) != DT_E_USAGE) abort();
    dt_cell *cells = calloc((size_t)n, sizeof *cells);
    size_t cap = strlen(text) + 32;
    char *negated = malloc(cap);
    dt_expr *once = NULL, *thrice = NULL;
    snprintf(negated, cap, "not (%s)", text);
    dt_status st = dt_expr_parse(&once, negated);
    snprintf(negated, cap, "not (not not (%s))", text);
    if (st == DT_OK) st = dt_expr_parse(&thrice, negated);
    for (int k = 0; k < N_CELLS; k++) {
        for (int i = 0; i < n; i++) cells[i] = cell_of((k + 5 * i) % N_CELLS);
        bool yes, no, again;
        const dt_status fit = dt_expr_is_true(e, cells, &yes); // min or max of a text and a number
        if (st != DT_OK) continue;                             // too long or too deep with that
        if (dt_expr_is_true(once, cells, &no) != fit || dt_expr_is_true(thrice, cells, &again) != fit) abort();
        if (fit == DT_OK && ((yes && no) || no != again)) abort();
    }
    dt_expr_destroy(once);
    dt_expr_destroy(thrice);
    free(negated);
    free(cells);
}

static void run_value(const dt_expr *e) {
    int n = dt_expr_n_names(e);
    dt_cell *cells = calloc((size_t)n, sizeof *cells), value;
    for (int k = 0; k < N_CELLS; k++) {
        dt_arena scratch;
        dt_arena_init(&scratch);
        for (int i = 0; i < n; i++) cells[i] = cell_of((k + 5 * i) % N_CELLS);
        dt_expr_value(e, cells, &scratch, &value);
        dt_arena_fini(&scratch);
    }
    free(cells);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    char *text = malloc(n_bytes + 1);
    dt_expr *e = NULL;
    memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    if (dt_expr_parse(&e, text) == DT_OK)
        run(e, text);
    else if (e || !*dt_error_message())
        abort();
    dt_expr_destroy(e);
    if (dt_expr_parse_value(&e, text) == DT_OK) run_value(e);
    dt_expr_destroy(e);
    free(text);
    return 0;
}
