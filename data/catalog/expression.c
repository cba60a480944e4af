// expression.c: parser and SQL of the expression language.
//
// Recursive descent over the text, a token ahead, nodes in an arena. Depth, tests and literals are
// capped, so neither our stack nor SQLite's limits (100 on its parser's stack, trees of depth 1000, 32766
// parameters) are met. Literals get their parameter's number when they are read, names their index when
// they are first seen; SQL comes out of one walk over the tree, every test in parentheses.
#include "expression.h"
#include "catalog_db.h"

#include "base/arena.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// As SQLite has it: whole numbers of 64 bits stay whole, for beyond 2^53 a double tells them apart no more.
typedef struct number {
    bool is_whole;
    int64_t whole;
    double real;
} number;

typedef enum token_kind { T_END, T_NAME, T_NUMBER, T_TEXT, T_WORD, T_SIGN } token_kind;

typedef struct token {
    token_kind kind;
    size_t at, n;     // in the text
    const char *text; // name or text, unquoted; keyword in lower case; sign
    number number;
} token;

typedef enum value_kind { V_NAME, V_NUMBER, V_TEXT } value_kind;

typedef struct value {
    value_kind kind;
    int index; // of the name, or the parameter's number
    const char *text;
    number number;
} value;

typedef enum node_kind { N_OR, N_AND, N_NOT, N_COMPARE, N_IN, N_LIKE, N_BETWEEN, N_NULL } node_kind;

typedef struct node {
    node_kind kind;
    bool negated;
    const char *op;            // N_COMPARE, in SQL
    struct node *left, *right; // N_OR, N_AND, N_NOT (left)
    value *v;                  // tests: the first is what is tested
    int n;
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
    int n_names, n_tests, n_literals;
    const value **literals; // by parameter - 1
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

// All of `s`, of n bytes; false where it is none, or no finite one.
static bool parse_number(const char *s, size_t n, number *out) {
    char *end;
    *out = (number){.real = strtod(s, &end)};
    if (n == 0 || end != s + n || !isfinite(out->real)) return false;
    size_t sign = *s == '-' || *s == '+';
    if (sign + strspn(s + sign, "0123456789") != n) return true;
    errno = 0;
    out->whole = strtoll(s, NULL, 10);
    out->is_whole = errno == 0;
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
static int name_index(dt_expr *e) {
    for (int i = 0; i < e->n_names; i++)
        if (strcmp(e->names[i].text, e->t.text) == 0) return i;
    if ((e->n_names & (e->n_names - 1)) == 0)
        e->names =
            dt_xrealloc(e->names, (size_t)(e->n_names ? 2 * e->n_names : 1) * sizeof *e->names);
    e->names[e->n_names] = (name){e->t.text, e->t.at};
    return e->n_names++;
}

static void add_literal(dt_expr *e, value *v) {
    if (e->n_literals == DT_EXPR_MAX_LITERALS) {
        fail_here(e, "more values than an expression may have");
        return;
    }
    value *kept = dt_arena_alloc(&e->arena, sizeof *kept);
    if ((e->n_literals & (e->n_literals - 1)) == 0)
        e->literals = dt_xrealloc(e->literals, (size_t)(e->n_literals ? 2 * e->n_literals : 1) *
                                                   sizeof *e->literals);
    v->index = e->n_literals + 1;
    *kept = *v;
    e->literals[e->n_literals++] = kept;
}

static bool read_value(dt_expr *e, value *v, bool may_be_name, const char *expected) {
    *v = (value){.text = e->t.text, .number = e->t.number};
    if (e->failed) return false;
    if (e->t.kind == T_NAME && may_be_name) {
        v->kind = V_NAME;
        v->index = name_index(e);
    } else if (e->t.kind == T_NUMBER || e->t.kind == T_TEXT || is_word(e, "true") ||
               is_word(e, "false")) {
        v->kind = e->t.kind == T_NUMBER ? V_NUMBER : V_TEXT;
        add_literal(e, v);
    } else if (is_word(e, "null")) {
        fail_here(e, "nothing equals null; write `is null` or `is not null`");
    } else if (e->t.kind == T_NAME) {
        fail_here(e, "expected a number or a text in 'single quotes'");
    } else {
        fail_here(e, expected);
    }
    advance(e);
    return !e->failed;
}

// ---- tests -------------------------------------------------------------------------------------------
static const char *accept_operator(dt_expr *e) {
    static const char *const OPS[][2] = {{"=", "="}, {"==", "="},  {"!=", "<>"}, {"<>", "<>"},
                                         {"<", "<"}, {"<=", "<="}, {">", ">"},   {">=", ">="}};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        if (is_sign(e, OPS[i][0])) {
            advance(e);
            return OPS[i][1];
        }
    return NULL;
}

static node *new_node(dt_expr *e, node_kind kind, const value *first, int cap) {
    node *n = dt_arena_alloc(&e->arena, sizeof *n);
    n->kind = kind;
    if (!first) return n;
    n->v = dt_arena_alloc(&e->arena, (size_t)cap * sizeof *n->v);
    n->v[n->n++] = *first;
    return n;
}

static node *parse_in(dt_expr *e, const value *first) {
    node *n = new_node(e, N_IN, first, 4);
    int cap = 4;
    if (!is_sign(e, "(")) return fail_here(e, "expected ( and a list of values");
    do {
        advance(e);
        if (n->n == cap) {
            value *grown = dt_arena_alloc(&e->arena, (size_t)cap * 2 * sizeof *grown);
            memcpy(grown, n->v, (size_t)cap * sizeof *grown);
            n->v = grown;
            cap *= 2;
        }
        if (!read_value(e, &n->v[n->n++], false, "expected a value")) return NULL;
    } while (is_sign(e, ","));
    if (!is_sign(e, ")")) return fail_here(e, "expected , or )");
    advance(e);
    return n;
}

static node *parse_like(dt_expr *e, const value *first) {
    node *n = new_node(e, N_LIKE, first, 2);
    if (e->t.kind != T_TEXT) return fail_here(e, "expected a pattern in 'single quotes'");
    if (strlen(e->t.text) > DT_EXPR_MAX_PATTERN) return fail_here(e, "too long a pattern");
    n->n = 2;
    return read_value(e, &n->v[1], false, "") ? n : NULL;
}

static node *parse_between(dt_expr *e, const value *first) {
    node *n = new_node(e, N_BETWEEN, first, 3);
    n->n = 3;
    if (!read_value(e, &n->v[1], false, "expected a value")) return NULL;
    if (!accept_word(e, "and"))
        return fail_here(e, "expected `and` and the upper value of between");
    return read_value(e, &n->v[2], false, "expected a value") ? n : NULL;
}

static node *parse_test_of(dt_expr *e, const value *first) {
    const char *op = accept_operator(e);
    if (op) {
        node *n = new_node(e, N_COMPARE, first, 2);
        n->op = op;
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
    value first;
    size_t at = e->t.at;
    if (++e->n_tests > DT_EXPR_MAX_TESTS)
        return fail_here(e, "more comparisons than an expression may have; use in (…)");
    if (!read_value(e, &first, true, "expected a column's name")) return NULL;
    node *n = parse_test_of(e, &first);
    if (e->failed || !n) return NULL;
    bool names = false;
    for (int i = 0; i < n->n; i++) names = names || n->v[i].kind == V_NAME;
    if (!names) {
        fail_at(e, at, e->t.at - at,
                "compares no column of the set (text is in 'single quotes', names are not)");
        return NULL;
    }
    return n;
}

// ---- and, or, not --------------------------------------------------------------------------------------
static node *parse_or(dt_expr *e);

static node *parse_not(dt_expr *e) {
    node *n = NULL;
    if (e->failed) return NULL;
    if (++e->depth > DT_EXPR_MAX_DEPTH) return fail_here(e, "nested too deeply");
    if (accept_word(e, "not")) {
        n = new_node(e, N_NOT, NULL, 0);
        n->left = parse_not(e);
    } else if (is_sign(e, "(")) {
        advance(e);
        n = parse_or(e);
        if (!is_sign(e, ")")) return fail_here(e, "expected ), and or or");
        advance(e);
    } else {
        n = parse_test(e);
    }
    e->depth--;
    return e->failed ? NULL : n;
}

static node *parse_chain(dt_expr *e, node_kind kind) {
    node *left = kind == N_OR ? parse_chain(e, N_AND) : parse_not(e);
    while (!e->failed && accept_word(e, kind == N_OR ? "or" : "and")) {
        node *n = new_node(e, kind, NULL, 0);
        n->left = left;
        n->right = kind == N_OR ? parse_chain(e, N_AND) : parse_not(e);
        left = n;
    }
    return left;
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
    free(e->literals);
    dt_arena_fini(&e->arena);
    free(e);
}

int dt_expr_n_names(const dt_expr *e) {
    return e->n_names;
}

const char *dt_expr_name(const dt_expr *e, int i) {
    return e->names[i].text;
}

// ---- SQL ---------------------------------------------------------------------------------------------
typedef struct sql_writer {
    const dt_expr_column *columns;
    sqlite3_str *out;
} sql_writer;

static bool is_number_text(const char *s, number *out) {
    size_t n = strspn(s, "+-.0123456789eE"); // no hexadecimal, no "nan"
    return !s[n] && parse_number(s, n, out);
}

// How two values meet: as they are, as numbers, or as text.
typedef enum meeting { AS_IS, AS_NUMBERS, AS_TEXT } meeting;

static bool is_text_column(const sql_writer *w, const value *v) {
    return v->kind == V_NAME && w->columns[v->index].is_text;
}

static bool is_number(const sql_writer *w, const value *v) {
    return v->kind == V_NUMBER || (v->kind == V_NAME && !w->columns[v->index].is_text);
}

static meeting meet(const sql_writer *w, const value *a, const value *b) {
    if (is_text_column(w, a) && is_number(w, b)) return AS_NUMBERS;
    if (is_text_column(w, b) && is_number(w, a)) return AS_NUMBERS;
    // a column of numbers and a text that is none have only text in common
    number v;
    if (b->kind == V_TEXT && is_number(w, a) && !is_number_text(b->text, &v)) return AS_TEXT;
    if (a->kind == V_TEXT && is_number(w, b) && !is_number_text(a->text, &v)) return AS_TEXT;
    return AS_IS;
}

static void put_value(sql_writer *w, const value *v, meeting m) {
    if (v->kind != V_NAME) {
        sqlite3_str_appendf(w->out, "?%d", v->index);
        return;
    }
    const dt_expr_column *c = &w->columns[v->index];
    if (m == AS_NUMBERS && c->is_text)
        sqlite3_str_appendf(w->out, "dt_number(%s)", c->sql);
    else if (m == AS_TEXT)
        sqlite3_str_appendf(w->out, "CAST(%s AS TEXT)", c->sql);
    else
        sqlite3_str_appendall(w->out, c->sql);
}

static void put_compare(sql_writer *w, const value *a, const char *op, const value *b) {
    meeting m = meet(w, a, b);
    put_value(w, a, m);
    sqlite3_str_appendf(w->out, " %s ", op);
    put_value(w, b, m);
}

// The members of the list that meet the value in way m.
static bool put_in_part(sql_writer *w, const node *n, meeting m, bool first) {
    bool any = false;
    for (int i = 1; i < n->n; i++) {
        if (meet(w, &n->v[0], &n->v[i]) != m) continue;
        if (!any) {
            if (!first) sqlite3_str_appendall(w->out, " OR ");
            put_value(w, &n->v[0], m);
            sqlite3_str_appendall(w->out, " IN (");
        }
        sqlite3_str_appendf(w->out, "%s?%d", any ? "," : "", n->v[i].index);
        any = true;
    }
    if (any) sqlite3_str_appendall(w->out, ")");
    return any;
}

static void put_test(sql_writer *w, const node *n) {
    if (n->kind == N_COMPARE) {
        put_compare(w, &n->v[0], n->op, &n->v[1]);
    } else if (n->kind == N_BETWEEN) {
        put_compare(w, &n->v[0], ">=", &n->v[1]);
        sqlite3_str_appendall(w->out, " AND ");
        put_compare(w, &n->v[0], "<=", &n->v[2]);
    } else if (n->kind == N_IN) {
        bool any = put_in_part(w, n, AS_IS, true);
        any = put_in_part(w, n, AS_NUMBERS, !any) || any;
        put_in_part(w, n, AS_TEXT, !any);
    } else if (n->kind == N_LIKE) {
        put_value(w, &n->v[0], AS_IS);
        sqlite3_str_appendf(w->out, " LIKE ?%d ESCAPE '\\'", n->v[1].index);
    } else {
        put_value(w, &n->v[0], AS_IS);
        sqlite3_str_appendall(w->out, " IS NULL");
    }
}

static void put_node(sql_writer *w, const node *n);

// "a AND b AND c" without parentheses between, as SQLite's parser allows no 100 of them in each other.
static void put_chain(sql_writer *w, const node *n) {
    if (n->left->kind == n->kind)
        put_chain(w, n->left);
    else
        put_node(w, n->left);
    sqlite3_str_appendall(w->out, n->kind == N_AND ? " AND " : " OR ");
    put_node(w, n->right);
}

static void put_node(sql_writer *w, const node *n) {
    sqlite3_str_appendall(w->out, n->negated || n->kind == N_NOT ? "NOT (" : "(");
    if (n->kind == N_NOT)
        put_node(w, n->left);
    else if (n->kind == N_AND || n->kind == N_OR)
        put_chain(w, n);
    else
        put_test(w, n);
    sqlite3_str_appendall(w->out, ")");
}

char *dt_expr_sql(const dt_expr *e, const dt_expr_column *columns) {
    sql_writer w = {columns, sqlite3_str_new(NULL)};
    put_node(&w, e->root);
    char *text = sqlite3_str_finish(w.out), *out = dt_xstrdup(text ? text : "0");
    sqlite3_free(text);
    return out;
}

// dt_number(x): x as a number, or NULL when it is none.
static void number_of(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    int type = sqlite3_value_type(argv[0]);
    if (type == SQLITE_INTEGER || type == SQLITE_FLOAT) {
        sqlite3_result_value(ctx, argv[0]);
        return;
    }
    const char *s = type == SQLITE_TEXT ? (const char *)sqlite3_value_text(argv[0]) : NULL;
    number v;
    if (!s || !is_number_text(s, &v))
        sqlite3_result_null(ctx);
    else if (v.is_whole)
        sqlite3_result_int64(ctx, v.whole);
    else
        sqlite3_result_double(ctx, v.real);
}

dt_status dt_expr_prepare_db(sqlite3 *db) {
    int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    int rc = sqlite3_create_function(db, "dt_number", 1, flags, NULL, number_of, NULL, NULL);
    return rc == SQLITE_OK ? DT_OK : dt_fail(DT_E_INTERNAL, "sqlite: %s", sqlite3_errmsg(db));
}

void dt_expr_bind(const dt_expr *e, sqlite3_stmt *s) {
    for (int i = 0; i < e->n_literals; i++) {
        const value *v = e->literals[i];
        if (v->kind != V_NUMBER)
            dt_catalog_db_bind(s, i + 1, v->text);
        else if (v->number.is_whole)
            sqlite3_bind_int64(s, i + 1, v->number.whole);
        else
            sqlite3_bind_double(s, i + 1, v->number.real);
    }
}
