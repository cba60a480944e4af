// expression.c: parses expressions. expression_eval.c evaluates them on the values of one record.
//
// The parser is recursive descent with one token of lookahead; nodes live in an arena. Values and conditions are one
// grammar, since a parenthesis may begin either, and where a condition is wanted a value alone is an error. The list
// of an `in` is sorted when it is parsed, so that a long one costs a search and not a scan of the list.
#include "expression_tree.h"

#include "base/core.h"
#include "base/regular.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- errors --------------------------------------------------------------------------------------
// The characters and not the bytes before `at`, from 1.
static size_t expression_column_of(const char *text, size_t at) {
    size_t n = 1;
    for (size_t i = 0; i < at; i++) n += (text[i] & 0xc0) != 0x80;
    return n;
}

static dt_status expression_fail_at(dt_expr *e, size_t at, size_t n, const char *what) {
    char near[40] = "its end";
    e->failed = true;
    if (n > 0) {
        size_t k = n < 30 ? n : 30;
        while (k > 0 && (e->text[at + k] & 0xc0) == 0x80) k--; // whole characters
        snprintf(near, sizeof near, "'%.*s%s'", (int)k, e->text + at, k < n ? "…" : "");
        for (char *p = near; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    }
    e->status =
        dt_fail(DT_E_USAGE, "expression, character %zu (%s): %s", expression_column_of(e->text, at), near, what);
    return e->status;
}

static void *expression_fail_here(dt_expr *e, const char *what) {
    if (!e->failed) expression_fail_at(e, e->t.at, e->t.n, what);
    return NULL;
}

dt_status dt_expr_fail_name(const dt_expr *e, int i, const char *fmt, ...) {
    char what[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const bool hint = e->names[i].at > 0 && !strstr(what, "did you mean"); // label = cat
    return dt_fail(DT_E_USAGE, "expression, character %zu: %s%s", expression_column_of(e->text, e->names[i].at), what,
                   hint ? "; text is in 'single quotes'" : "");
}

// ---- tokens ----------------------------------------------------------------------------------------
static bool is_name_start(char c) {
    return isalpha((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_name_part(char c) {
    return is_name_start(c) || isdigit((unsigned char)c) || c == '.';
}

static bool is_keyword(const char *s, size_t n) {
    static const char *const WORDS[] = {"and", "or", "not", "in", "like", "is", "null", "true", "false", "between"};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (strlen(WORDS[i]) == n && strncasecmp(WORDS[i], s, n) == 0) return true;
    return false;
}

// A quote is doubled to stand for itself.
static void expression_read_quoted(dt_expr *e, dt_expr_token *t, char quote) {
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
    t->quoted = true;
    t->n = end + (s[end] != '\0');
    if (!s[end]) expression_fail_at(e, t->at, t->n, "the closing quote is missing");
}

static void expression_read_number(dt_expr *e, dt_expr_token *t) {
    const char *s = e->text + t->at, *p = s + (*s == '-' || *s == '+');
    p += strspn(p, "0123456789");
    if (*p == '.') p += 1 + strspn(p + 1, "0123456789");
    if (*p == 'e' || *p == 'E') {
        const char *x = p + 1 + (p[1] == '-' || p[1] == '+');
        if (isdigit((unsigned char)*x)) p = x + strspn(x, "0123456789");
    }
    t->kind = T_NUMBER;
    t->n = (size_t)(p - s);
    if (!dt_expr_read_number(s, t->n, &t->number) || is_name_part(*p))
        expression_fail_at(e, t->at, t->n + is_name_part(*p),
                           "not a number; names that begin with a digit want \"quotes\"");
}

static void read_sign(dt_expr *e, dt_expr_token *t) {
    static const char *const SIGNS[] = {"==", "!=", "<>", "<=", ">=", "||", "=", "<", ">",
                                        "(",  ")",  ",",  "+",  "-",  "*",  "/", "%"};
    const char *s = e->text + t->at;
    t->kind = T_SIGN;
    t->n = 1;
    for (size_t i = 0; i < sizeof SIGNS / sizeof *SIGNS; i++)
        if (strncmp(s, SIGNS[i], strlen(SIGNS[i])) == 0) {
            t->text = SIGNS[i];
            t->n = strlen(SIGNS[i]);
            return;
        }
    expression_fail_at(e, t->at, 1, "not part of an expression; see docs/reference/catalog.md");
}

// Behind a value + and - are arithmetic.
static bool ends_value(const dt_expr_token *t) {
    return t->kind == T_NAME || t->kind == T_NUMBER || t->kind == T_TEXT || (t->kind == T_SIGN && *t->text == ')');
}

static void advance(dt_expr *e) {
    const char *s = e->text;
    while (isspace((unsigned char)s[e->at])) e->at++;
    dt_expr_token *t = &e->t;
    const bool signs = !ends_value(t);
    *t = (dt_expr_token){.kind = T_END, .at = e->at, .text = ""};
    if (e->failed || !s[e->at]) return;
    char c = s[e->at], next = s[e->at + 1];
    if (c == '\'' || c == '"') {
        expression_read_quoted(e, t, c);
    } else if (isdigit((unsigned char)c) ||
               ((c == '.' || (signs && (c == '-' || c == '+'))) && (isdigit((unsigned char)next) || next == '.'))) {
        expression_read_number(e, t);
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

static bool accept_sign(dt_expr *e, const char *s) {
    if (!is_sign(e, s)) return false;
    advance(e);
    return !e->failed;
}

// case, when, then, else and end are words only where nothing else can stand: columns may have their names.
static bool is_soft_word(const dt_expr *e, const char *s) {
    return e->t.kind == T_NAME && !e->t.quoted && strcasecmp(e->t.text, s) == 0;
}

static bool accept_soft_word(dt_expr *e, const char *s) {
    if (!is_soft_word(e, s)) return false;
    advance(e);
    return !e->failed;
}

// The token behind e->t, which stays the current one.
static dt_expr_token peek(dt_expr *e) {
    const dt_expr_token now = e->t;
    const size_t at = e->at;
    if (!e->failed) advance(e);
    const dt_expr_token next = e->t;
    e->t = now;
    e->at = at;
    return next;
}

// ---- values ----------------------------------------------------------------------------------------
static dt_node *parse_or(dt_expr *e), *parse_and(dt_expr *e), *parse_sum(dt_expr *e);

static dt_node *new_node(dt_expr *e, dt_node_kind kind) {
    dt_node *n = dt_arena_alloc(&e->arena, sizeof *n);
    n->kind = kind;
    return n;
}

// Appends an operand behind `last`, which may be NULL; returns it. NULL: parsing has failed.
static dt_node *add_operand(dt_node *n, dt_node *last, dt_node *operand) {
    if (!operand) return NULL;
    *(last ? &last->next : &n->child) = operand;
    n->has_name = n->has_name || operand->has_name;
    return operand;
}

static dt_node *name_node(dt_expr *e) {
    dt_node *n = new_node(e, DT_NODE_NAME);
    n->has_name = true;
    while (n->name < e->n_names && strcmp(e->names[n->name].text, e->t.text) != 0) n->name++;
    if (n->name < e->n_names) return n;
    e->names = dt_xgrow(e->names, (size_t)e->n_names, sizeof *e->names);
    e->names[e->n_names].text = e->t.text;
    e->names[e->n_names++].at = e->t.at;
    return n;
}

static bool read_literal(dt_expr *e, dt_cell *v) {
    if (e->failed) return false;
    if (e->t.kind == T_NUMBER)
        *v = (dt_cell){DT_CELL_NUMBER, NULL, e->t.number};
    else if (e->t.kind == T_TEXT || is_word(e, "true") || is_word(e, "false"))
        *v = dt_cell_text(e->t.text);
    else if (e->t.kind == T_NAME)
        expression_fail_here(e, "expected a number or a text in 'single quotes'");
    else if (is_word(e, "null"))
        expression_fail_here(e, "nothing equals null; write `is null` or `is not null`");
    else
        expression_fail_here(e, e->expected);
    advance(e);
    return !e->failed;
}

// Replaces \d, which people write and POSIX expressions do not have.
static dt_status compile_regex(dt_expr *e, dt_node *n, const char *pattern) {
    char why[DT_REGULAR_WHY], *text = dt_xstrdup("");
    bool listed = false; // between [ and ]
    for (const char *p = pattern; *p; p++) {
        if (p[0] == '\\' && p[1] == 'd')
            dt_xappend(&text, listed ? "0-9" : "[0-9]"), p++;
        else if (p[0] == '\\' && p[1] && !listed)
            dt_xappend(&text, "\\%c", *++p);
        else
            dt_xappend(&text, "%c", *p);
        listed = listed ? *p != ']' : *p == '[';
    }
    n->regex = dt_xcalloc(1, sizeof *n->regex);
    const bool good = dt_regular_compile(n->regex, text, 0, why);
    free(text);
    if (!good) {
        free(n->regex);
        expression_fail_here(e, dt_arena_printf(&e->arena, "not a POSIX extended regular expression: %s", why));
        return DT_E_USAGE;
    }
    e->regexes = dt_xgrow(e->regexes, e->n_regexes, sizeof *e->regexes);
    e->regexes[e->n_regexes++] = n->regex;
    return DT_OK;
}

static dt_node *no_function(dt_expr *e) {
    const char *list = "", *name;
    for (int i = 0, least, most; (name = dt_expr_function(i, &least, &most)); i++)
        list = dt_arena_printf(&e->arena, "%s%s%s", list, i ? ", " : "", name);
    return expression_fail_here(e, dt_arena_printf(&e->arena, "no function; there are %s", list));
}

static dt_node *parse_call(dt_expr *e) {
    dt_node *n = new_node(e, DT_NODE_CALL), *last = NULL;
    const char *name;
    int least, most, n_given = 0;
    while ((name = dt_expr_function(n->function, &least, &most)) && strcasecmp(name, e->t.text) != 0) n->function++;
    if (!name) return no_function(e);
    advance(e);
    do {
        advance(e);
        e->expected = "expected a value";
        if (strcmp(name, "regex") == 0 && n_given == 1) {
            if (e->t.kind != T_TEXT) return expression_fail_here(e, "expected a pattern in 'single quotes'");
            if (compile_regex(e, n, e->t.text) != DT_OK) return NULL;
        }
        last = add_operand(n, last, parse_or(e));
        if (!last) return NULL;
        n_given++;
    } while (is_sign(e, ",") && n_given < most);
    if (n_given < least || !is_sign(e, ")")) {
        const int bound = n_given < least ? least : most;
        return expression_fail_here(e, dt_arena_printf(&e->arena, "%s%s takes %d value%s%s",
                                                       n_given < least ? "" : "expected `)`: ", name, bound,
                                                       bound == 1 ? "" : "s", n_given < least ? "" : " at most"));
    }
    advance(e);
    return n;
}

static dt_node *need_condition(dt_expr *e, dt_node *n) {
    if (!n || e->failed) return NULL;
    if (dt_node_is_condition(n)) return n;
    return expression_fail_here(e, "expected a comparison: = != < <= > >= in, like, between, is null");
}

// case when CONDITION then VALUE … else VALUE end
static dt_node *parse_case(dt_expr *e) {
    dt_node *n = new_node(e, DT_NODE_CASE), *last = NULL;
    advance(e);
    while (accept_soft_word(e, "when")) {
        last = add_operand(n, last, need_condition(e, parse_or(e)));
        if (!last) return NULL;
        if (!accept_soft_word(e, "then")) return expression_fail_here(e, "expected `then` and a value");
        e->expected = "expected a value";
        last = add_operand(n, last, parse_sum(e));
        if (!last) return NULL;
    }
    if (accept_soft_word(e, "else")) {
        e->expected = "expected a value";
        last = add_operand(n, last, parse_sum(e));
    }
    if (e->failed || !last) return NULL;
    if (!is_soft_word(e, "end")) return expression_fail_here(e, "expected `when`, `else` or `end`");
    advance(e);
    return n;
}

static dt_node *parse_primary(dt_expr *e) {
    if (e->failed) return NULL;
    if (accept_sign(e, "(")) {
        dt_node *n = parse_or(e);
        if (!n) return NULL;
        if (!is_sign(e, ")"))
            return expression_fail_here(e, dt_node_is_condition(n) ? "expected `)`, `and` or `or`" : "expected `)`");
        advance(e);
        return e->failed ? NULL : n;
    }
    if (e->t.kind == T_NAME && !e->t.quoted) {
        const dt_expr_token next = peek(e);
        if (e->failed) return NULL;
        if (next.kind == T_SIGN && *next.text == '(') return parse_call(e);
        if (is_soft_word(e, "case") && next.kind == T_NAME && strcasecmp(next.text, "when") == 0) return parse_case(e);
    }
    dt_node *n;
    if (e->t.kind == T_NAME) {
        n = name_node(e);
        advance(e);
    } else {
        n = new_node(e, DT_NODE_LITERAL);
        n->is_truth = is_word(e, "true") || is_word(e, "false");
        read_literal(e, &n->literal);
    }
    return e->failed ? NULL : n;
}

static dt_node *arithmetic(dt_expr *e, char sign, dt_node *a, dt_node *b) {
    dt_node *n = new_node(e, DT_NODE_ARITHMETIC);
    n->sign = sign;
    return add_operand(n, add_operand(n, NULL, a), b) ? n : NULL;
}

static dt_node *parse_signed(dt_expr *e) {
    bool minus = false;
    while (is_sign(e, "-") || is_sign(e, "+")) {
        minus ^= *e->t.text == '-';
        advance(e);
    }
    dt_node *n = parse_primary(e);
    if (!n || !minus) return n;
    dt_node *zero = new_node(e, DT_NODE_LITERAL);
    zero->literal = dt_cell_real(0);
    return arithmetic(e, '-', zero, n);
}

// A chain of operators of one rank, from left to right.
static dt_node *parse_operators(dt_expr *e, const char *const *signs, dt_node *(*parse)(dt_expr *)) {
    enum { MOST_TERMS = 64 };
    dt_node *n = parse(e);
    for (int terms = 1; n;) {
        int i = 0;
        while (signs[i] && !is_sign(e, signs[i])) i++;
        if (!signs[i]) break;
        if (++terms > MOST_TERMS) return expression_fail_here(e, "too many terms");
        advance(e);
        e->expected = "expected a value";
        n = arithmetic(e, *signs[i], n, parse(e));
    }
    return n;
}

static dt_node *parse_product(dt_expr *e) {
    static const char *const SIGNS[] = {"*", "/", "%", NULL};
    return parse_operators(e, SIGNS, parse_signed);
}

static dt_node *parse_sum(dt_expr *e) {
    static const char *const SIGNS[] = {"+", "-", "||", NULL};
    return parse_operators(e, SIGNS, parse_product);
}

// ---- tests -------------------------------------------------------------------------------------------
static int accept_operator(dt_expr *e) {
    static const struct {
        const char *sign;
        int orders;
    } OPS[] = {{"=", DT_EQUAL},
               {"==", DT_EQUAL},
               {"!=", DT_LESS | DT_GREATER},
               {"<>", DT_LESS | DT_GREATER},
               {"<", DT_LESS},
               {"<=", DT_LESS | DT_EQUAL},
               {">", DT_GREATER},
               {">=", DT_GREATER | DT_EQUAL}};
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        if (accept_sign(e, OPS[i].sign)) return OPS[i].orders;
    return 0;
}

static void sort_list(dt_expr *e, dt_node *n, const dt_cell *list, size_t n_list) {
    n->numbers = dt_arena_alloc(&e->arena, n_list * sizeof *n->numbers);
    n->texts = dt_arena_alloc(&e->arena, n_list * sizeof *n->texts);
    for (size_t i = 0; i < n_list; i++)
        if (list[i].kind == DT_CELL_TEXT)
            n->texts[n->n_texts++] = list[i];
        else
            n->numbers[n->n_numbers++] = list[i];
    qsort(n->numbers, (size_t)n->n_numbers, sizeof *n->numbers, dt_cell_compare_numbers);
    qsort(n->texts, (size_t)n->n_texts, sizeof *n->texts, dt_cell_compare_texts);
}

static dt_node *parse_in(dt_expr *e, dt_node *n) {
    dt_cell *list = NULL;
    size_t n_list = 0;
    n->kind = DT_NODE_IN;
    if (!is_sign(e, "(")) return expression_fail_here(e, "expected `(` and a list of values");
    do {
        advance(e);
        n->has_true |= is_word(e, "true");
        n->has_false |= is_word(e, "false");
        list = dt_xgrow(list, n_list, sizeof *list);
        if (!read_literal(e, &list[n_list++])) break;
    } while (is_sign(e, ","));
    if (!e->failed && !is_sign(e, ")")) expression_fail_here(e, "expected `,` or `)`");
    if (!e->failed) sort_list(e, n, list, n_list);
    free(list);
    advance(e);
    return e->failed ? NULL : n;
}

static dt_node *parse_like(dt_expr *e, dt_node *n) {
    n->kind = DT_NODE_LIKE;
    if (e->t.kind != T_TEXT) return expression_fail_here(e, "expected a pattern in 'single quotes'");
    return read_literal(e, &n->literal) ? n : NULL;
}

static dt_node *parse_between(dt_expr *e, dt_node *n) {
    n->kind = DT_NODE_BETWEEN;
    dt_node *low = add_operand(n, n->child, parse_sum(e));
    if (!low) return NULL;
    if (!accept_word(e, "and")) return expression_fail_here(e, "expected `and` and the upper value of between");
    return add_operand(n, low, parse_sum(e)) ? n : NULL;
}

// The test that follows a value; NULL: no test follows.
static dt_node *parse_test_of(dt_expr *e, dt_node *first, bool *is_test) {
    dt_node *n = new_node(e, DT_NODE_COMPARE);
    add_operand(n, NULL, first);
    e->expected = "expected a value";
    *is_test = true;
    n->orders = accept_operator(e);
    if (n->orders) return add_operand(n, first, parse_sum(e)) ? n : NULL;
    if (accept_word(e, "is")) {
        n->kind = DT_NODE_NULL;
        n->negated = accept_word(e, "not");
        return accept_word(e, "null") ? n : expression_fail_here(e, "expected `null`");
    }
    n->negated = accept_word(e, "not");
    if (accept_word(e, "in")) return parse_in(e, n);
    if (accept_word(e, "like")) return parse_like(e, n);
    if (accept_word(e, "between")) return parse_between(e, n);
    *is_test = n->negated;
    return n->negated ? need_condition(e, first) : NULL;
}

static dt_node *parse_test(dt_expr *e) {
    const size_t at = e->t.at;
    bool is_test = false;
    e->expected = "expected a column's name";
    dt_node *first = parse_sum(e);
    if (!first) return NULL;
    dt_node *n = parse_test_of(e, first, &is_test);
    if (e->failed) return NULL;
    if (!is_test) return first;
    if (n->has_name) return n;
    expression_fail_at(e, at, e->t.at - at,
                       "compares no column of the set (text is in 'single quotes', names are not)");
    return NULL;
}

// ---- and, or, not --------------------------------------------------------------------------------------
static dt_node *parse_not(dt_expr *e) {
    dt_node *n = NULL;
    if (e->failed) return NULL;
    if (++e->depth > DT_EXPR_MAX_DEPTH) return expression_fail_here(e, "nested too deeply");
    if (accept_word(e, "not")) {
        n = new_node(e, DT_NODE_NOT);
        add_operand(n, NULL, need_condition(e, parse_not(e)));
    } else {
        n = parse_test(e);
    }
    e->depth--;
    return e->failed ? NULL : n;
}

static dt_node *parse_chain(dt_expr *e, dt_node_kind kind) {
    dt_node *(*parse)(dt_expr *) = kind == DT_NODE_OR ? parse_and : parse_not;
    const char *word = kind == DT_NODE_OR ? "or" : "and";
    dt_node *first = parse(e), *last = first, *chain = NULL;
    while (!e->failed && is_word(e, word)) {
        if (!need_condition(e, last)) return NULL;
        advance(e);
        if (!chain) {
            chain = new_node(e, kind);
            add_operand(chain, NULL, first);
        }
        last = add_operand(chain, last, need_condition(e, parse(e)));
    }
    return e->failed ? NULL : chain ? chain : first;
}

static dt_node *parse_and(dt_expr *e) {
    return parse_chain(e, DT_NODE_AND);
}

static dt_node *parse_or(dt_expr *e) {
    return parse_chain(e, DT_NODE_OR);
}

static dt_status parse(dt_expr **out, const char *text, bool condition) {
    *out = NULL;
    if (strlen(text) > DT_EXPR_MAX_BYTES)
        return dt_fail(DT_E_USAGE, "expression: longer than %d bytes", DT_EXPR_MAX_BYTES);
    dt_expr *e = dt_xcalloc(1, sizeof *e);
    dt_arena_init(&e->arena);
    e->text = dt_arena_strdup(&e->arena, text);
    advance(e);
    e->root = parse_or(e);
    if (condition) e->root = need_condition(e, e->root);
    if (!e->failed && e->t.kind != T_END)
        expression_fail_here(e, dt_node_is_condition(e->root) ? "expected `and`, `or` or the end"
                                                              : "expected an operator or the end");
    dt_status st = e->failed ? e->status : DT_OK;
    if (st == DT_OK)
        *out = e;
    else
        dt_expr_destroy(e);
    return st;
}

dt_status dt_expr_parse(dt_expr **out, const char *text) {
    return parse(out, text, true);
}

dt_status dt_expr_parse_value(dt_expr **out, const char *text) {
    return parse(out, text, false);
}

void dt_expr_destroy(dt_expr *e) {
    if (!e) return;
    for (size_t i = 0; i < e->n_regexes; i++) {
        regfree(e->regexes[i]);
        free(e->regexes[i]);
    }
    free(e->regexes);
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
