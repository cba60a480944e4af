// expression_tree.h: a parsed expression, for expression.c, which makes it, and expression_eval.c, which walks it.
#ifndef DT_DATA_EXPRESSION_TREE_H
#define DT_DATA_EXPRESSION_TREE_H

#include "expression.h"

#include "base/core.h"

#include <regex.h>

typedef enum dt_node_kind {
    DT_NODE_LITERAL,
    DT_NODE_NAME,
    DT_NODE_ARITHMETIC,
    DT_NODE_CALL,
    DT_NODE_CASE, // condition, value, condition, value, …, and the value of `else`
    DT_NODE_OR,   // conditions from here on
    DT_NODE_AND,
    DT_NODE_NOT,
    DT_NODE_COMPARE,
    DT_NODE_IN,
    DT_NODE_LIKE,
    DT_NODE_BETWEEN,
    DT_NODE_NULL
} dt_node_kind;

enum { DT_LESS = 1, DT_EQUAL = 2, DT_GREATER = 4 };

typedef struct dt_node {
    dt_node_kind kind;
    bool negated;
    bool has_name;                // a column's name is in it
    struct dt_node *child, *next; // the first operand; the one behind this
    dt_cell literal;
    bool is_truth;            // DT_NODE_LITERAL: true or false, also for pandas' True and R's TRUE
    int name;                 // DT_NODE_NAME: its index
    char sign;                // DT_NODE_ARITHMETIC: + - * / % and | for ||
    int function;             // DT_NODE_CALL: its index
    regex_t *regex;           // of the function regex
    int orders;               // DT_NODE_COMPARE: the orders that make it true
    dt_cell *numbers, *texts; // DT_NODE_IN: literals, sorted
    int n_numbers, n_texts;
    bool has_true, has_false; // DT_NODE_IN: among the literals, for any case of theirs
} dt_node;

typedef struct dt_expr_token {
    enum { T_END, T_NAME, T_NUMBER, T_TEXT, T_WORD, T_SIGN } kind;
    bool quoted;
    size_t at, n;     // in the text
    const char *text; // name or text, unquoted; keyword in lower case; sign
    long double number;
} dt_expr_token;

struct dt_expr {
    dt_arena arena;
    const char *text;
    dt_node *root;
    struct {
        const char *text;
        size_t at;
    } * names;
    int n_names;
    regex_t **regexes;
    size_t n_regexes;
    // parsing
    dt_expr_token t;
    size_t at;
    int depth;
    const char *expected; // what the next value is, for the message
    bool failed;
    dt_status status;
};

static inline bool dt_node_is_condition(const dt_node *n) {
    return n->kind >= DT_NODE_OR;
}

// Parses all n bytes of `s`; false if they are not a finite number.
bool dt_expr_read_number(const char *s, size_t n, long double *out);
// For the sorted lists of `in`.
int dt_cell_compare_numbers(const void *a, const void *b);
int dt_cell_compare_texts(const void *a, const void *b);

// A function by its number, from 0: its name (NULL: there is no more), and how many values it takes.
const char *dt_expr_function(int i, int *least, int *most);

#endif
