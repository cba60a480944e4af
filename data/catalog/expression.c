// expression.c: parses expressions and evaluates them on the values of one record.
//
// The parser is recursive descent with one token of lookahead; nodes live in an arena. Evaluation walks the
// tree with three truth values, as SQL does: yes, no, and unknown where a value is missing. The list of an
// `in` is sorted when it is parsed, so that a long one costs a search and not a scan of the list.
#include "expression.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// 64 bits of mantissa hold each int64_t and each double, so that they compare exactly.
_Static_assert(LDBL_MANT_DIG >= 64, "long double is too narrow for 64-bit integers");

typedef enum token_kind { T_END, T_NAME, T_NUMBER, T_TEXT, T_WORD, T_SIGN } token_kind;

typedef struct token {
    token_kind kind;
    size_t at, n;     // in the text
    const char *text; // name or text, unquoted; keyword in lower case; sign
    long double number;
} token;

typedef struct operand {
    int name; // index of the name, or -1: a literal
    dt_cell literal;
} operand;

typedef enum node_kind { N_OR, N_AND, N_NOT, N_COMPARE, N_IN, N_LIKE, N_BETWEEN, N_NULL } node_kind;

enum { LESS = 1, EQUAL = 2, GREATER = 4 };

typedef struct node {
    node_kind kind;
    bool negated;
    int orders;                // N_COMPARE: LESS | EQUAL | GREATER that make it true
    struct node *child, *next; // N_OR, N_AND, N_NOT: the first of a list of children
    operand *v;                // tests: the first is what is tested
    int n;
    dt_cell *numbers, *texts; // N_IN: literals, sorted
    int n_numbers, n_texts;
} node;

typedef struct name {
    const char *text;
    size_t at;
} name;

struct dt_expr {
    dt_arena arena;
    const char *text;
    node *root;
    name *names;
    int n_names;
    // parsing
    token t;
    size_t at;
    int depth;
    bool failed;
    dt_status status;
};

// ---- errors --------------------------------------------------------------------------------------
// The characters and not the bytes before `at`, from 1.
static size_t column_of(const char *text, size_t at) {
    size_t n = 1;
    for (size_t i = 0; i < at; i++) n += (text[i] & 0xc0) != 0x80;
    return n;
}

static dt_status fail_at(dt_expr *e, size_t at, size_t n, const char *what) {
    char near[40] = "its end";
    e->failed = true;
    if (n > 0) {
        size_t k = n < 30 ? n : 30;
        while (k > 0 && (e->text[at + k] & 0xc0) == 0x80) k--; // whole characters
        snprintf(near, sizeof near, "'%.*s%s'", (int)k, e->text + at, k < n ? "…" : "");
        for (char *p = near; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    }
    e->status = dt_fail(DT_E_USAGE, "expression, character %zu (%s): %s", column_of(e->text, at),
                        near, what);
    return e->status;
}

static void *fail_here(dt_expr *e, const char *what) {
    if (!e->failed) fail_at(e, e->t.at, e->t.n, what);
    return NULL;
}

dt_status dt_expr_fail_name(const dt_expr *e, int i, const char *fmt, ...) {
    char what[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return dt_fail(DT_E_USAGE, "expression, character %zu: %s", column_of(e->text, e->names[i].at),
                   what);
}

// ---- tokens ----------------------------------------------------------------------------------------
static bool is_name_start(char c) {
    return isalpha((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_name_part(char c) {
    return is_name_start(c) || isdigit((unsigned char)c) || c == '.';
}

static bool is_keyword(const char *s, size_t n) {
    static const char *const WORDS[] = {"and", "or",   "not",  "in",    "like",
                                        "is",  "null", "true", "false", "between"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (strlen(WORDS[i]) == n && strncasecmp(WORDS[i], s, n) == 0) return true;
    return false;
}

// A quote is doubled to stand for itself.
static void read_quoted(dt_expr *e, token *t, char quote) {
    const char *s = e->text + t->at;
    size_t end = 1, n = 0;
    while (s[end] && (s[end] != quote || s[end + 1] == quote)) end += s[end] == quote ? 2 : 1;
    char *out = dt_arena_alloc(&e->arena, end);
    for (size_t i = 1; i < end; i++) {
        out[n++] = s[i];
        i += s[i] == quote;
    }
    t->text = out;
    t->kind = quote == '"' ? T_NAME : T_TEXT;
    t->n = end + (s[end] != '\0');
    if (!s[end]) fail_at(e, t->at, t->n, "the closing quote is missing");
}

// Parses all n bytes of `s`; false if they are not a finite number.
static bool parse_number(const char *s, size_t n, long double *out) {
    char *end;
    double real = strtod(s, &end);
    if (n == 0 || end != s + n || !isfinite(real)) return false;
    *out = real;
    size_t sign = *s == '-' || *s == '+';
    if (sign + strspn(s + sign, "0123456789") != n) return true;
    errno = 0;
    long long whole = strtoll(s, NULL, 10);
    if (errno == 0) *out = whole;
    return true;
}

static void read_number(dt_expr *e, token *t) {
    const char *s = e->text + t->at, *p = s + (*s == '-' || *s == '+');
    p += strspn(p, "0123456789");
    if (*p == '.') p += 1 + strspn(p + 1, "0123456789");
    if (*p == 'e' || *p == 'E') {
        const char *x = p + 1 + (p[1] == '-' || p[1] == '+');
        if (isdigit((unsigned char)*x)) p = x + strspn(x, "0123456789");
    }
    t->kind = T_NUMBER;
    t->n = (size_t)(p - s);
    if (!parse_number(s, t->n, &t->number) || is_name_part(*p))
        fail_at(e, t->at, t->n + is_name_part(*p),
                "not a number; names that begin with a digit want \"quotes\"");
}

static void read_sign(dt_expr *e, token *t) {
    static const char *const SIGNS[] = {"==", "!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ","};
    const char *s = e->text + t->at;
    t->kind = T_SIGN;
    t->n = 1;
    for (size_t i = 0; i < sizeof SIGNS / sizeof *SIGNS; i++)
        if (strncmp(s, SIGNS[i], strlen(SIGNS[i])) == 0) {
            t->text = SIGNS[i];
            t->n = strlen(SIGNS[i]);
            return;
        }
    fail_at(e, t->at, 1, "not part of an expression; see docs/reference/catalog.md");
}

static void advance(dt_expr *e) {
    const char *s = e->text;
    while (isspace((unsigned char)s[e->at])) e->at++;
    token *t = &e->t;
    *t = (token){.kind = T_END, .at = e->at, .text = ""};
    if (e->failed || !s[e->at]) return;
    char c = s[e->at], next = s[e->at + 1];
    if (c == '\'' || c == '"') {
        read_quoted(e, t, c);
    } else if (isdigit((unsigned char)c) || ((c == '-' || c == '+' || c == '.') &&
                                             (isdigit((unsigned char)next) || next == '.'))) {
        read_number(e, t);
    } else if (is_name_start(c)) {
        while (is_name_part(s[t->at + t->n])) t->n++;
        char *word = dt_arena_printf(&e->arena, "%.*s", (int)t->n, s + t->at);
        t->kind = is_keyword(word, t->n) ? T_WORD : T_NAME;
        for (char *p = word; *p && t->kind == T_WORD; p++) *p = (char)tolower((unsigned char)*p);
        t->text = word;
    } else {
        read_sign(e, t);
    }
    e->at += t->n;
}

static bool is_sign(const dt_expr *e, const char *s) {
    return e->t.kind == T_SIGN && strcmp(e->t.text, s) == 0;
}

static bool is_word(const dt_expr *e, const char *s) {
    return e->t.kind == T_WORD && strcmp(e->t.text, s) == 0;
}

static bool accept_word(dt_expr *e, const char *s) {
    if (!is_word(e, s)) return false;
    advance(e);
    return !e->failed;
}

// ---- values ----------------------------------------------------------------------------------------
dt_cell dt_cell_text(const char *text) {
    if (!text) return (dt_cell){.kind = DT_CELL_NULL};
    dt_cell v = {DT_CELL_TEXT, text, NAN};
    size_t n = strspn(text, "+-.0123456789eE"); // no hexadecimal, no "nan"
    if (text[n] || !parse_number(text, n, &v.number)) v.number = NAN;
    return v;
}

dt_cell dt_cell_decimal(const char *text) {
    dt_cell v = dt_cell_text(text);
    if (v.kind == DT_CELL_TEXT) v.kind = DT_CELL_NUMBER;
    return v;
}

dt_cell dt_cell_real(double value) {
    if (isnan(value)) return (dt_cell){.kind = DT_CELL_NULL};
    return (dt_cell){DT_CELL_NUMBER, NULL, value};
}

const char *dt_cell_string(const dt_cell *v, char buffer[DT_REAL_CHARS]) {
    if (v->text) return v->text;
    bool whole = v->number >= -0x1p63L && v->number < 0x1p63L &&
                 v->number == (long double)(int64_t)v->number;
    return whole ? dt_int_text(buffer, (int64_t)v->number)
                 : dt_real_text(buffer, (double)v->number);
}

static int name_index(dt_expr *e) {
    for (int i = 0; i < e->n_names; i++)
        if (strcmp(e->names[i].text, e->t.text) == 0) return i;
    e->names = dt_xgrow(e->names, (size_t)e->n_names, sizeof *e->names);
    e->names[e->n_names] = (name){e->t.text, e->t.at};
    return e->n_names++;
}

static bool read_value(dt_expr *e, operand *v, bool may_be_name, const char *expected) {
    *v = (operand){.name = -1};
    if (e->failed) return false;
    if (e->t.kind == T_NAME && may_be_name)
        v->name = name_index(e);
    else if (e->t.kind == T_NUMBER)
        v->literal = (dt_cell){DT_CELL_NUMBER, NULL, e->t.number};
    else if (e->t.kind == T_TEXT || is_word(e, "true") || is_word(e, "false"))
        v->literal = dt_cell_text(e->t.text);
    else if (is_word(e, "null"))
        fail_here(e, "nothing equals null; write `is null` or `is not null`");
    else if (e->t.kind == T_NAME)
        fail_here(e, "expected a number or a text in 'single quotes'");
    else
        fail_here(e, expected);
    advance(e);
    return !e->failed;
}

// ---- tests -------------------------------------------------------------------------------------------
static int accept_operator(dt_expr *e) {
    static const struct {
        const char *sign;
        int orders;
    } OPS[] = {{"=", EQUAL}, {"==", EQUAL},        {"!=", LESS | GREATER}, {"<>", LESS | GREATER},
               {"<", LESS},  {"<=", LESS | EQUAL}, {">", GREATER},         {">=", GREATER | EQUAL}};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        if (is_sign(e, OPS[i].sign)) {
            advance(e);
            return OPS[i].orders;
        }
    return 0;
}

static node *new_node(dt_expr *e, node_kind kind, const operand *first, int cap) {
    node *n = dt_arena_alloc(&e->arena, sizeof *n);
    n->kind = kind;
    if (!first) return n;
    n->v = dt_arena_alloc(&e->arena, (size_t)cap * sizeof *n->v);
    n->v[n->n++] = *first;
    return n;
}

static int compare_numbers(const void *pa, const void *pb) {
    const dt_cell *a = pa, *b = pb;
    return (a->number > b->number) - (a->number < b->number);
}

static int compare_texts(const void *pa, const void *pb) {
    return strcmp(((const dt_cell *)pa)->text, ((const dt_cell *)pb)->text);
}

static void sort_list(dt_expr *e, node *n) {
    n->numbers = dt_arena_alloc(&e->arena, (size_t)n->n * sizeof *n->numbers);
    n->texts = dt_arena_alloc(&e->arena, (size_t)n->n * sizeof *n->texts);
    for (int i = 1; i < n->n; i++) {
        dt_cell v = n->v[i].literal;
        if (v.kind == DT_CELL_TEXT)
            n->texts[n->n_texts++] = v;
        else
            n->numbers[n->n_numbers++] = v;
    }
    qsort(n->numbers, (size_t)n->n_numbers, sizeof *n->numbers, compare_numbers);
    qsort(n->texts, (size_t)n->n_texts, sizeof *n->texts, compare_texts);
}

static node *parse_in(dt_expr *e, const operand *first) {
    int cap = 4;
    node *n = new_node(e, N_IN, first, cap);
    if (!is_sign(e, "(")) return fail_here(e, "expected `(` and a list of values");
    do {
        advance(e);
        if (n->n == cap) {
            operand *grown = dt_arena_alloc(&e->arena, (size_t)cap * 2 * sizeof *grown);
            memcpy(grown, n->v, (size_t)cap * sizeof *grown);
            n->v = grown;
            cap *= 2;
        }
        if (!read_value(e, &n->v[n->n++], false, "expected a value")) return NULL;
    } while (is_sign(e, ","));
    if (!is_sign(e, ")")) return fail_here(e, "expected `,` or `)`");
    advance(e);
    sort_list(e, n);
    return n;
}

static node *parse_like(dt_expr *e, const operand *first) {
    node *n = new_node(e, N_LIKE, first, 2);
    if (e->t.kind != T_TEXT) return fail_here(e, "expected a pattern in 'single quotes'");
    n->n = 2;
    return read_value(e, &n->v[1], false, "") ? n : NULL;
}

static node *parse_between(dt_expr *e, const operand *first) {
    node *n = new_node(e, N_BETWEEN, first, 3);
    n->n = 3;
    if (!read_value(e, &n->v[1], false, "expected a value")) return NULL;
    if (!accept_word(e, "and"))
        return fail_here(e, "expected `and` and the upper value of between");
    return read_value(e, &n->v[2], false, "expected a value") ? n : NULL;
}

static node *parse_test_of(dt_expr *e, const operand *first) {
    int orders = accept_operator(e);
    if (orders) {
        node *n = new_node(e, N_COMPARE, first, 2);
        n->orders = orders;
        n->n = 2;
        if (!read_value(e, &n->v[1], true, "expected a value")) return NULL;
        return n;
    }
    if (accept_word(e, "is")) {
        node *n = new_node(e, N_NULL, first, 1);
        n->negated = accept_word(e, "not");
        return accept_word(e, "null") ? n : fail_here(e, "expected `null`");
    }
    bool negated = accept_word(e, "not");
    node *n = accept_word(e, "in")     ? parse_in(e, first)
              : accept_word(e, "like") ? parse_like(e, first)
              : accept_word(e, "between")
                  ? parse_between(e, first)
                  : fail_here(e, "expected a comparison: = != < <= > >= in, "
                                 "like, between, is null");
    if (n) n->negated = negated;
    return n;
}

static node *parse_test(dt_expr *e) {
    operand first;
    size_t at = e->t.at;
    if (!read_value(e, &first, true, "expected a column's name")) return NULL;
    node *n = parse_test_of(e, &first);
    if (e->failed || !n) return NULL;
    bool names = false;
    for (int i = 0; i < n->n; i++) names = names || n->v[i].name >= 0;
    if (!names) {
        fail_at(e, at, e->t.at - at,
                "compares no column of the set (text is in 'single quotes', names are not)");
        return NULL;
    }
    return n;
}

// ---- and, or, not --------------------------------------------------------------------------------------
static node *parse_or(dt_expr *e), *parse_and(dt_expr *e);

static node *parse_not(dt_expr *e) {
    node *n = NULL;
    if (e->failed) return NULL;
    if (++e->depth > DT_EXPR_MAX_DEPTH) return fail_here(e, "nested too deeply");
    if (accept_word(e, "not")) {
        n = new_node(e, N_NOT, NULL, 0);
        n->child = parse_not(e);
    } else if (is_sign(e, "(")) {
        advance(e);
        n = parse_or(e);
        if (!is_sign(e, ")")) return fail_here(e, "expected `)`, `and` or `or`");
        advance(e);
    } else {
        n = parse_test(e);
    }
    e->depth--;
    return e->failed ? NULL : n;
}

static node *parse_chain(dt_expr *e, node_kind kind) {
    node *(*parse)(dt_expr *) = kind == N_OR ? parse_and : parse_not;
    node *first = parse(e), *last = first, *chain = NULL;
    while (!e->failed && accept_word(e, kind == N_OR ? "or" : "and")) {
        if (!chain) chain = new_node(e, kind, NULL, 0);
        chain->child = first;
        node *n = parse(e);
        if (n) last = last->next = n;
    }
    return chain ? chain : first;
}

static node *parse_and(dt_expr *e) {
    return parse_chain(e, N_AND);
}

static node *parse_or(dt_expr *e) {
    return parse_chain(e, N_OR);
}

dt_status dt_expr_parse(dt_expr **out, const char *text) {
    *out = NULL;
    if (strlen(text) > DT_EXPR_MAX_BYTES)
        return dt_fail(DT_E_USAGE, "expression: longer than %d bytes", DT_EXPR_MAX_BYTES);
    dt_expr *e = dt_xcalloc(1, sizeof *e);
    dt_arena_init(&e->arena);
    e->text = dt_arena_strdup(&e->arena, text);
    advance(e);
    e->root = parse_or(e);
    if (!e->failed && e->t.kind != T_END) fail_here(e, "expected `and`, `or` or the end");
    dt_status st = e->failed ? e->status : DT_OK;
    if (st == DT_OK)
        *out = e;
    else
        dt_expr_destroy(e);
    return st;
}

void dt_expr_destroy(dt_expr *e) {
    if (!e) return;
    free(e->names);
    dt_arena_fini(&e->arena);
    free(e);
}

int dt_expr_n_names(const dt_expr *e) {
    return e->n_names;
}

const char *dt_expr_name(const dt_expr *e, int i) {
    return e->names[i].text;
}

// ---- evaluation --------------------------------------------------------------------------------------
typedef enum truth { NO, YES, UNKNOWN } truth;

static truth truth_of(bool is_true) {
    return is_true ? YES : NO;
}

static const dt_cell *value_of(const operand *o, const dt_cell *values) {
    return o->name < 0 ? &o->literal : &values[o->name];
}

// LESS, EQUAL or GREATER; 0: unknown.
static int order_of(const operand *oa, const operand *ob, const dt_cell *values) {
    const dt_cell *a = value_of(oa, values), *b = value_of(ob, values);
    char x[DT_REAL_CHARS], y[DT_REAL_CHARS];
    if (a->kind == DT_CELL_NULL || b->kind == DT_CELL_NULL) return 0;
    bool as_text = a->kind == DT_CELL_TEXT && b->kind == DT_CELL_TEXT;
    if (!as_text && (isnan(a->number) || isnan(b->number))) { // a number and a text that is none
        if ((isnan(a->number) ? oa : ob)->name >= 0) return 0;
        as_text = true; // a literal, which was meant as text
    }
    if (as_text) {
        int order = strcmp(dt_cell_string(a, x), dt_cell_string(b, y));
        return order < 0 ? LESS : order > 0 ? GREATER : EQUAL;
    }
    return a->number < b->number ? LESS : a->number > b->number ? GREATER : EQUAL;
}

// `in`, as comparing with = one by one would have it.
static truth is_in(const node *n, const dt_cell *v) {
    if (v->kind == DT_CELL_NULL) return UNKNOWN;
    bool is_number = !isnan(v->number), found = false;
    if (is_number && bsearch(v, n->numbers, (size_t)n->n_numbers, sizeof *v, compare_numbers))
        return YES;
    if (v->kind == DT_CELL_TEXT) {
        found = bsearch(v, n->texts, (size_t)n->n_texts, sizeof *v, compare_texts);
        return found || is_number || n->n_numbers == 0 ? truth_of(found) : UNKNOWN;
    }
    for (int i = 0; i < n->n_texts; i++) found = found || n->texts[i].number == v->number;
    return truth_of(found);
}

static size_t char_bytes(const char *s) {
    size_t n = dt_text_utf8_length(s);
    return n ? n : 1;
}

// Greedy: a mismatch behind a % lets that % take one character more, and an earlier % need not be tried again.
static bool is_like(const char *s, const char *pattern) {
    const char *behind = NULL,
               *retry = NULL; // the pattern behind the last %, and the text it is tried on
    for (;;) {
        if (*pattern == '%') {
            behind = ++pattern;
            retry = s;
            continue;
        }
        if (!*s && !*pattern) return true;
        if (*s && *pattern == '_') {
            s += char_bytes(s);
            pattern++;
            continue;
        }
        const char *p = pattern + (*pattern == '\\');
        if (*s && *p && tolower((unsigned char)*s) == tolower((unsigned char)*p)) {
            s++;
            pattern = p + 1;
            continue;
        }
        if (!behind || !*retry) return false;
        s = retry += char_bytes(retry);
        pattern = behind;
    }
}

static truth test(const node *n, const dt_cell *values) {
    char text[DT_REAL_CHARS];
    const dt_cell *v = value_of(&n->v[0], values);
    if (n->kind == N_NULL) return truth_of(v->kind == DT_CELL_NULL);
    if (n->kind == N_IN) return is_in(n, v);
    if (n->kind == N_LIKE)
        return v->kind == DT_CELL_NULL
                   ? UNKNOWN
                   : truth_of(is_like(dt_cell_string(v, text), n->v[1].literal.text));
    int order = order_of(&n->v[0], &n->v[1], values);
    if (n->kind == N_COMPARE) return order ? truth_of(order & n->orders) : UNKNOWN;
    int upper = order_of(&n->v[0], &n->v[2], values);
    if (order == LESS || upper == GREATER) return NO;
    return order && upper ? YES : UNKNOWN;
}

static truth evaluate(const node *n, const dt_cell *values) {
    truth t;
    if (n->kind == N_AND || n->kind == N_OR) {
        truth decides = n->kind == N_OR ? YES : NO;
        t = n->kind == N_OR ? NO : YES;
        for (const node *c = n->child; c; c = c->next) {
            truth one = evaluate(c, values);
            if (one == decides) return decides;
            if (one == UNKNOWN) t = UNKNOWN;
        }
        return t;
    }
    t = n->kind == N_NOT ? evaluate(n->child, values) : test(n, values);
    if (t == UNKNOWN || !(n->negated || n->kind == N_NOT)) return t;
    return t == YES ? NO : YES;
}

bool dt_expr_is_true(const dt_expr *e, const dt_cell *values) {
    return evaluate(e->root, values) == YES;
}
