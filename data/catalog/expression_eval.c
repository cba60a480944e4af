// expression_eval.c: the values and conditions of a parsed expression on one record.
//
// Conditions have three truth values, as SQL does: yes, no, and unknown where a value is missing. A value that cannot be
// had (a text that is no number in arithmetic, a part that split does not find, a division by zero) is missing too.
#include "expression_tree.h"

#include "base/json.h"
#include "base/text.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// 64 bits of mantissa hold each int64_t and each double, so that they compare exactly.
_Static_assert(LDBL_MANT_DIG >= 64, "long double is too narrow for 64-bit integers");

static const dt_cell NO_VALUE = {.kind = DT_CELL_NULL};

// What an expression is evaluated on.
typedef struct record {
    const dt_cell *values;
    dt_arena *scratch; // of texts that are made
    dt_status *status; // of the first error; evaluation goes on with a missing value
} record;

typedef enum truth { NO, YES, UNKNOWN } truth;

static truth condition_of(const dt_node *n, const record *r);
static dt_cell expression_eval_value_of(const dt_node *n, const record *r);

// ---- cells ---------------------------------------------------------------------------------------------
bool dt_expr_read_number(const char *s, size_t n, long double *out) {
    char *end;
    double real = strtod(s, &end);
    if (n == 0 || end != s + n || !isfinite(real)) return false;
    size_t sign = *s == '-' || *s == '+';
    *out = sign + strspn(s + sign, "0123456789") == n ? strtold(s, NULL) : (long double)real;
    return true;
}

dt_cell dt_cell_text(const char *text) {
    if (!text) return NO_VALUE;
    dt_cell v = {DT_CELL_TEXT, text, NAN};
    size_t n = strspn(text, "+-.0123456789eE"); // no hexadecimal, no "nan"
    if (text[n] || !dt_expr_read_number(text, n, &v.number))
        v.number = strcasecmp(text, "true") == 0 ? 1 : strcasecmp(text, "false") == 0 ? 0 : NAN;
    return v;
}

dt_cell dt_cell_decimal(const char *text) {
    dt_cell v = dt_cell_text(text);
    if (v.kind == DT_CELL_TEXT) v.kind = DT_CELL_NUMBER;
    return v;
}

dt_cell dt_cell_real(double value) {
    if (isnan(value)) return NO_VALUE;
    return (dt_cell){DT_CELL_NUMBER, NULL, value};
}

// Whether an int64_t holds the number.
static bool expression_eval_is_whole(long double x) {
    return x >= -0x1p63L && x < 0x1p63L && x == (long double)(int64_t)x;
}

bool dt_cell_is_whole(const dt_cell *v) {
    return v->kind == DT_CELL_NUMBER && expression_eval_is_whole(v->number);
}

const char *dt_cell_string(const dt_cell *v, char buffer[DT_REAL_CHARS]) {
    if (v->text) return v->text;
    return expression_eval_is_whole(v->number) ? dt_int_text(buffer, (int64_t)v->number)
                                               : dt_real_text(buffer, (double)v->number);
}

int dt_cell_compare_numbers(const void *pa, const void *pb) {
    const dt_cell *a = pa, *b = pb;
    return (a->number > b->number) - (a->number < b->number);
}

int dt_cell_compare_texts(const void *pa, const void *pb) {
    return strcmp(((const dt_cell *)pa)->text, ((const dt_cell *)pb)->text);
}

static size_t char_bytes(const char *s) {
    size_t n = dt_text_utf8_length(s);
    return n ? n : 1;
}

static int64_t length_of(const char *s) {
    int64_t n = 0;
    for (; *s; s += char_bytes(s)) n++;
    return n;
}

// The bytes of the first n characters of a text, or of all.
static size_t expression_eval_bytes_of(const char *s, int64_t n) {
    size_t at = 0;
    for (; n > 0 && s[at]; n--) at += char_bytes(s + at);
    return at;
}

// ---- functions -----------------------------------------------------------------------------------------
static const char *text_of(const dt_cell *v, const record *r) {
    char buffer[DT_REAL_CHARS];
    return v->text ? v->text : dt_arena_strdup(r->scratch, dt_cell_string(v, buffer));
}

static dt_cell expression_eval_part(const record *r, const char *s, size_t n) {
    return dt_cell_text(dt_arena_printf(r->scratch, "%.*s", (int)n, s));
}

// A function's values, none of them missing.
typedef struct call {
    const dt_node *n;
    const dt_cell *v;
    int n_values;
    const record *r;
} call;

// From character `from` on, counted from 1, or from the end if negative; so many, or all.
static dt_cell call_substr(const call *c) {
    const char *s = text_of(&c->v[0], c->r);
    const int64_t length = length_of(s);
    if (!(fabsl(c->v[1].number) < 1e15L) || (c->n_values > 2 && !(fabsl(c->v[2].number) < 1e15L))) return NO_VALUE;
    int64_t from = (int64_t)c->v[1].number, count = c->n_values > 2 ? (int64_t)c->v[2].number : length;
    if (from < 0) from += length + 1;
    if (from < 1) {
        count += c->n_values > 2 ? from - 1 : 0;
        from = 1;
    }
    s += expression_eval_bytes_of(s, from - 1);
    return expression_eval_part(c->r, s, expression_eval_bytes_of(s, count));
}

// split: part i between separators, counted from 1, or from the end if negative.
static dt_cell call_split(const call *c) {
    const char *s = text_of(&c->v[0], c->r), *separator = text_of(&c->v[1], c->r);
    const size_t width = strlen(separator);
    int64_t n_pieces = 1;
    if (width == 0 || !(fabsl(c->v[2].number) < 1e15L)) return NO_VALUE;
    for (const char *p = s; (p = strstr(p, separator)); p += width) n_pieces++;
    int64_t at = (int64_t)c->v[2].number;
    if (at < 0) at += n_pieces + 1;
    if (at < 1 || at > n_pieces) return NO_VALUE;
    while (--at > 0) s = strstr(s, separator) + width;
    const char *end = strstr(s, separator);
    return expression_eval_part(c->r, s, end ? (size_t)(end - s) : strlen(s));
}

static dt_cell change_case(const call *c, int (*change)(int)) {
    char *s = dt_arena_strdup(c->r->scratch, text_of(c->v, c->r));
    for (char *p = s; *p; p++)
        if ((unsigned char)*p < 0x80) *p = (char)change((unsigned char)*p);
    return dt_cell_text(s);
}

static dt_cell call_lower(const call *c) {
    return change_case(c, tolower);
}

static dt_cell call_upper(const call *c) {
    return change_case(c, toupper);
}

// What the first group matches, or the whole pattern if it has none.
static dt_cell call_regex(const call *c) {
    regmatch_t m[2];
    const char *s = text_of(&c->v[0], c->r);
    if (regexec(c->n->regex, s, 2, m, 0) != 0) return NO_VALUE;
    const regmatch_t *of = c->n->regex->re_nsub ? &m[1] : &m[0];
    if (of->rm_so < 0) return NO_VALUE;
    return expression_eval_part(c->r, s + of->rm_so, (size_t)(of->rm_eo - of->rm_so));
}

static dt_cell number_cell(long double x) {
    return isfinite((double)x) ? (dt_cell){DT_CELL_NUMBER, NULL, x} : NO_VALUE;
}

static dt_cell call_number(const call *c) {
    return number_cell(c->v->number);
}

static dt_cell call_length(const call *c) {
    return number_cell(length_of(text_of(c->v, c->r)));
}

static dt_cell one_of_two(const call *c, const char *name, bool greater) {
    const dt_cell *v = c->v;
    if (v[0].kind == DT_CELL_TEXT && v[1].kind == DT_CELL_TEXT)
        return (strcmp(v[0].text, v[1].text) > 0) == greater ? v[0] : v[1];
    if (!isnan(v[0].number) && !isnan(v[1].number))
        return number_cell((v[0].number > v[1].number) == greater ? v[0].number : v[1].number);
    const bool second = isnan(v[1].number); // which of both is a text that is no number
    if (*c->r->status == DT_OK)
        *c->r->status =
            dt_fail(DT_E_USAGE,
                    "expression: %s of the text '%s' and the number %s; a text that is no number is missing "
                    "in %s(number(x), y)",
                    name, text_of(&v[second], c->r), text_of(&v[!second], c->r), name);
    return NO_VALUE;
}

static dt_cell call_max(const call *c) {
    return one_of_two(c, "max", true);
}

static dt_cell call_min(const call *c) {
    return one_of_two(c, "min", false);
}

enum { MOST_VALUES = 3 };
// `of_number`: of one number; whole numbers of 64 bits come out exactly.
static const struct {
    const char *name;
    int least, most;
    dt_cell (*call)(const call *c);
    long double (*of_number)(long double x);
} FUNCTIONS[] = {{"abs", 1, 1, NULL, fabsl},    {"ceil", 1, 1, NULL, ceill},   {"exp", 1, 1, NULL, expl},
                 {"floor", 1, 1, NULL, floorl}, {"length", 1, 1, call_length}, {"log", 1, 1, NULL, logl},
                 {"log10", 1, 1, NULL, log10l}, {"lower", 1, 1, call_lower},   {"max", 2, 2, call_max},
                 {"min", 2, 2, call_min},       {"number", 1, 1, call_number}, {"regex", 2, 2, call_regex},
                 {"round", 1, 1, NULL, roundl}, {"split", 3, 3, call_split},   {"sqrt", 1, 1, NULL, sqrtl},
                 {"substr", 2, 3, call_substr}, {"upper", 1, 1, call_upper}};

const char *dt_expr_function(int i, int *least, int *most) {
    if (i >= (int)(sizeof FUNCTIONS / sizeof *FUNCTIONS)) return NULL;
    *least = FUNCTIONS[i].least;
    *most = FUNCTIONS[i].most;
    return FUNCTIONS[i].name;
}

// Of a missing value nothing is known.
static dt_cell value_of_call(const dt_node *n, const record *r) {
    dt_cell v[MOST_VALUES];
    call c = {.n = n, .v = v, .r = r};
    for (const dt_node *k = n->child; k; k = k->next) {
        v[c.n_values] = expression_eval_value_of(k, r);
        if (v[c.n_values++].kind == DT_CELL_NULL) return NO_VALUE;
    }
    if (FUNCTIONS[n->function].call) return FUNCTIONS[n->function].call(&c);
    const long double x = FUNCTIONS[n->function].of_number(v->number);
    return number_cell(expression_eval_is_whole(x) ? x : (double)x);
}

// Whole numbers stay whole as long as 64 bits hold them; all else is of doubles. Division is of doubles.
static dt_cell expression_eval_compute(const dt_node *n, const record *r) {
    const dt_cell a = expression_eval_value_of(n->child, r), b = expression_eval_value_of(n->child->next, r);
    if (a.kind == DT_CELL_NULL || b.kind == DT_CELL_NULL) return NO_VALUE;
    if (n->sign == '|') return dt_cell_text(dt_arena_printf(r->scratch, "%s%s", text_of(&a, r), text_of(&b, r)));
    const long double x = a.number, y = b.number;
    if (isnan(x) || isnan(y)) return NO_VALUE;
    const long double z = n->sign == '+'   ? x + y
                          : n->sign == '-' ? x - y
                          : n->sign == '*' ? x * y
                          : n->sign == '/' ? x / y
                                           : fmodl(x, y);
    if (expression_eval_is_whole(x) && expression_eval_is_whole(y) && expression_eval_is_whole(z) && fabsl(z) < 0x1p62L)
        return number_cell(z);
    return number_cell((double)z);
}

static dt_cell expression_eval_value_of(const dt_node *n, const record *r) {
    switch (n->kind) {
    case DT_NODE_LITERAL:
        return n->literal;
    case DT_NODE_NAME:
        return r->values[n->name];
    case DT_NODE_ARITHMETIC:
        return expression_eval_compute(n, r);
    case DT_NODE_CALL:
        return value_of_call(n, r);
    case DT_NODE_CASE:
        for (const dt_node *c = n->child; c; c = c->next->next) {
            if (!c->next) return expression_eval_value_of(c, r);
            if (condition_of(c, r) == YES) return expression_eval_value_of(c->next, r);
        }
        return NO_VALUE;
    case DT_NODE_OR:
    case DT_NODE_AND:
    case DT_NODE_NOT:
    case DT_NODE_COMPARE:
    case DT_NODE_IN:
    case DT_NODE_LIKE:
    case DT_NODE_BETWEEN:
    case DT_NODE_NULL:
        break;
    }
    const truth t = condition_of(n, r);
    return t == UNKNOWN ? NO_VALUE : dt_cell_text(t == YES ? "true" : "false");
}

// ---- conditions ----------------------------------------------------------------------------------------
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

static truth truth_of(bool is_true) {
    return is_true ? YES : NO;
}

// DT_LESS, DT_EQUAL or DT_GREATER; 0: unknown.
static int order_of(const dt_node *na, const dt_cell *a, const dt_node *nb, const record *r) {
    const dt_cell of_b = expression_eval_value_of(nb, r), *b = &of_b;
    char x[DT_REAL_CHARS], y[DT_REAL_CHARS];
    if (a->kind == DT_CELL_NULL || b->kind == DT_CELL_NULL) return 0;
    bool as_text = a->kind == DT_CELL_TEXT && b->kind == DT_CELL_TEXT;
    if (!as_text && (isnan(a->number) || isnan(b->number))) { // a number and a text that is none
        if ((isnan(a->number) ? na : nb)->kind != DT_NODE_LITERAL) return 0;
        as_text = true; // a literal, which was meant as text
    }
    if (as_text) {
        int order = (na->is_truth || nb->is_truth ? strcasecmp : strcmp)(dt_cell_string(a, x), dt_cell_string(b, y));
        return order < 0 ? DT_LESS : order > 0 ? DT_GREATER : DT_EQUAL;
    }
    return a->number < b->number ? DT_LESS : a->number > b->number ? DT_GREATER : DT_EQUAL;
}

// `in`: the truth value that comparing with = one by one would give.
static truth is_in(const dt_node *n, const dt_cell *v) {
    if (v->kind == DT_CELL_NULL) return UNKNOWN;
    bool is_number = !isnan(v->number), found = false;
    if (is_number && bsearch(v, n->numbers, (size_t)n->n_numbers, sizeof *v, dt_cell_compare_numbers)) return YES;
    if (v->kind == DT_CELL_TEXT) {
        found = bsearch(v, n->texts, (size_t)n->n_texts, sizeof *v, dt_cell_compare_texts) ||
                (n->has_true && strcasecmp(v->text, "true") == 0) ||
                (n->has_false && strcasecmp(v->text, "false") == 0);
        return found || is_number || n->n_numbers == 0 ? truth_of(found) : UNKNOWN;
    }
    for (int i = 0; i < n->n_texts; i++) found = found || n->texts[i].number == v->number;
    return truth_of(found);
}

static truth test(const dt_node *n, const record *r) {
    char text[DT_REAL_CHARS];
    const dt_cell v = expression_eval_value_of(n->child, r);
    if (n->kind == DT_NODE_NULL) return truth_of(v.kind == DT_CELL_NULL);
    if (n->kind == DT_NODE_IN) return is_in(n, &v);
    if (n->kind == DT_NODE_LIKE)
        return v.kind == DT_CELL_NULL ? UNKNOWN : truth_of(is_like(dt_cell_string(&v, text), n->literal.text));
    const dt_node *second = n->child->next;
    int order = order_of(n->child, &v, second, r);
    if (n->kind == DT_NODE_COMPARE) return order ? truth_of(order & n->orders) : UNKNOWN;
    int upper = order_of(n->child, &v, second->next, r);
    if (order == DT_LESS || upper == DT_GREATER) return NO;
    return order && upper ? YES : UNKNOWN;
}

static truth condition_of(const dt_node *n, const record *r) {
    truth t;
    if (n->kind == DT_NODE_AND || n->kind == DT_NODE_OR) {
        truth decides = n->kind == DT_NODE_OR ? YES : NO;
        t = n->kind == DT_NODE_OR ? NO : YES;
        for (const dt_node *c = n->child; c; c = c->next) {
            truth one = condition_of(c, r);
            if (one == decides) return decides;
            if (one == UNKNOWN) t = UNKNOWN;
        }
        return t;
    }
    t = n->kind == DT_NODE_NOT ? condition_of(n->child, r) : test(n, r);
    if (t == UNKNOWN || !(n->negated || n->kind == DT_NODE_NOT)) return t;
    return t == YES ? NO : YES;
}

dt_status dt_expr_is_true(const dt_expr *e, const dt_cell *values, bool *yes) {
    dt_status st = DT_OK;
    dt_arena scratch;
    dt_arena_init(&scratch);
    *yes = condition_of(e->root, &(record){values, &scratch, &st}) == YES;
    dt_arena_fini(&scratch);
    return st;
}

dt_status dt_expr_value(const dt_expr *e, const dt_cell *values, dt_arena *scratch, dt_cell *out) {
    dt_status st = DT_OK;
    *out = expression_eval_value_of(e->root, &(record){values, scratch, &st});
    return st;
}
