// raw_rows.c: a table of numbers whose rows are the records (dtrain pack --rows): each becomes a vector, an NPY array
// of float32 (float64 where that would lose digits: times, identifiers, metres), and the columns that the user names its
// metadata.
//
// Such tables often come without names (UCR, UCI HAR: X_train.txt and y_train.txt), separated by commas, tabs or
// blanks. A first line of nothing but numbers is a row, and columns are then called 0, 1, …

#include "raw.h"
#include "table.h"

#include "base/io.h"
#include "base/text.h"
#include "data/file/columnar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// bytes of a table, 4 GiB
static const size_t MAX_BYTES = (size_t)4 << 30;

static bool raw_rows_parse_number(const char *s, double *out) {
    char *end;
    if (!s || s[strspn(s, "0123456789+-.eE \t")]) return false; // no words, no hexadecimal
    *out = strtod(s, &end);
    end += strspn(end, " \t");
    // isfinite of the float: 1e300 is no number for a network
    return end > s && *end == '\0' && isfinite((float)*out);
}

// ---- tables without names ------------------------------------------------------------------------------
// Runs of blanks between words become one comma.
static void separate_by_commas(char *text, size_t *n_bytes) {
    size_t n = 0;
    for (size_t i = 0; i < *n_bytes;) {
        if (text[i] != ' ') {
            text[n++] = text[i++];
            continue;
        }
        while (i < *n_bytes && text[i] == ' ') i++;
        // neither at the begin nor at the end of a line
        bool inside = n > 0 && text[n - 1] != '\n' && i < *n_bytes && !strchr("\r\n", text[i]);
        if (inside) text[n++] = ',';
    }
    *n_bytes = n;
}

// The names of a table without: "label" of a single column, else 0, 1, …; "" if the first line has them. Heap.
static char *make_names(const char *text, size_t n_line) {
    char *line = dt_xprintf("%.*s", (int)n_line, text), *rest = line, *names = dt_xstrdup("");
    double v;
    int n = 0;
    for (char *word; (word = strsep(&rest, ",;\t"));) {
        // a word that is no number: the line has names
        if (!raw_rows_parse_number(word, &v)) {
            free(line);
            free(names);
            return dt_xstrdup("");
        }
        dt_xappend(&names, "%s%d", n ? "," : "", n);
        n++;
    }
    free(line);
    // a single column of numbers without a name: labels (y_train.txt)
    char *out = n == 1 ? dt_xstrdup("label\n") : dt_xprintf("%s\n", names);
    free(names);
    return out;
}

dt_status dt_raw_read_numbers(dt_table *t, const char *path) {
    char *text = NULL;
    size_t n = 0;
    bool is_there;
    if (dt_text_ends(path, ".json|.jsonl") || dt_columnar_is_name(path)) return dt_table_read(t, path);
    DT_TRY(dt_io_find(&is_there, path, DT_E_DATA));
    if (!is_there) return dt_fail(DT_E_USAGE, "%s: no such table", path);
    DT_TRY(dt_io_read_file(&text, &n, path, MAX_BYTES, DT_E_DATA));
    // a byte order mark; + 1: the 0 moves too
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) memmove(text, text + 3, (n -= 3) + 1);
    size_t n_line = strcspn(text, "\r\n");
    // decided by the first line, in this order
    char separator = memchr(text, ',', n_line)    ? ','
                     : memchr(text, ';', n_line)  ? ';'
                     : memchr(text, '\t', n_line) ? '\t'
                                                  : ' ';
    if (separator == ' ') separate_by_commas(text, &n), separator = ',';
    text[n] = '\0'; // shorter after blanks were joined
    char *names = make_names(text, strcspn(text, "\r\n"));
    // names are made with commas
    for (char *p = names; *p; p++)
        if (*p == ',') *p = separator;
    size_t n_names = strlen(names);
    char *all = dt_xrealloc(names, n_names + n + 1); // names, then the text: parsed as one
    memcpy(all + n_names, text, n);
    dt_status st = dt_table_parse_csv(t, path, all, n_names + n, separator);
    // the line of names is none of the file
    for (size_t i = 0; st == DT_OK && n_names > 0 && i < t->cells.n_rows; i++) t->line[i]--;
    free(all);
    free(text);
    return st;
}

static size_t size_of_number(const dt_raw *r) {
    return r->wide ? sizeof(double) : sizeof(float);
}

// ---- rows ----------------------------------------------------------------------------------------------
// a mistyped name would leave its column in the vector
static dt_status raw_rows_check_names(const dt_table *t, const char *metadata) {
    char *list = dt_xstrdup(metadata), *save = NULL;
    dt_status st = DT_OK;
    for (char *name = strtok_r(list, ",", &save); name && st == DT_OK; name = strtok_r(NULL, ",", &save))
        if (strcmp(name, "-") != 0 && dt_table_find(t, name) < 0)
            st = dt_fail(DT_E_USAGE, "--rows %s: %s has no column '%s'; its first is '%s'%s", metadata, t->path, name,
                         dt_columns_name(&t->cells, 0),
                         strcmp(dt_columns_name(&t->cells, 0), "0") == 0 ? " (it has no names: they are numbers)" : "");
    free(list);
    return st;
}

// Whether --rows names the column, or it is one of numbers, or has neither name nor value, as a comma at the end of lines
// makes one.
typedef enum role { META, NUMBER, EMPTY } role;
static role role_of(const dt_table *t, int column, const char *metadata) {
    char unnamed[32];
    if (dt_raw_is_listed(metadata, dt_columns_name(&t->cells, column))) return META;
    // the name that dt_table gives a column without one
    snprintf(unnamed, sizeof unnamed, "column%d", column + 1);
    if (strcmp(dt_columns_name(&t->cells, column), unnamed) != 0) return NUMBER;
    for (size_t i = 0; i < t->cells.n_rows; i++) // a value below: numbers without a name
        if (dt_table_cell(t, i, column)) return NUMBER;
    return EMPTY;
}

// The numbers of all rows, and what is left of the table: its metadata. Rows that lack a number are left out.
static dt_status raw_rows_take_numbers(dt_raw *r, dt_table *t, const char *metadata, bool skip_bad) {
    const int n_all = (int)t->cells.n_columns;
    const size_t n_rows = t->cells.n_rows;
    size_t n = 0;
    int odd = n_all, n_meta = 0; // odd: the first column with a bad value; n_all: none
    role *roles = dt_xcalloc((size_t)n_all + 1, sizeof *roles);
    bool *keep = dt_xcalloc(n_rows + 1, sizeof *keep); // by row of the table
    r->bad_rows = t->odd;                              // rows with too many or too few cells, found while parsing
    for (int k = 0; k < n_all; k++) {
        roles[k] = role_of(t, k, metadata);
        r->row_length += roles[k] == NUMBER;
    }
    // (rows, row_length), row-major; left-out rows are overwritten by the next
    r->numbers = dt_xcalloc(n_rows * r->row_length + 1, sizeof *r->numbers);
    for (size_t i = 0; i < n_rows; i++) {
        double *to = &r->numbers[n * r->row_length];
        int bad = n_all;
        for (int k = 0; k < n_all; k++)
            // to++ for every number, also behind a bad one
            if (roles[k] == NUMBER && !raw_rows_parse_number(dt_table_cell(t, i, k), to++) && bad == n_all) bad = k;
        // in place, as n <= i
        t->line[n] = t->line[i];
        keep[i] = bad == n_all;
        n += keep[i];
        if (keep[i]) continue;
        const char *cell = dt_table_cell(t, i, bad); // NULL: empty
        dt_examples_add(&r->bad_rows, "line %u column '%s' '%s'", t->line[i], dt_columns_name(&t->cells, bad),
                        cell ? cell : "");
        odd = odd == n_all ? bad : odd;
    }
    // every column is metadata
    dt_status st = r->row_length ? DT_OK : dt_fail(DT_E_USAGE, "--rows %s: leaves no numbers", metadata);
    const bool none = strcmp(metadata, "-") == 0;
    if (st == DT_OK && odd < n_all && !skip_bad)
        st = dt_fail(DT_E_DATA,
                     "%s: %zu rows have a value that is not a number: %s; name columns that are not of the vector: "
                     "--rows %s%s%s; --on-error skip leaves out such rows",
                     t->path, r->bad_rows.n, r->bad_rows.text, none ? "" : metadata, none ? "" : ",",
                     dt_columns_name(&t->cells, odd));
    // columns of numbers are dropped from the table: their texts are no metadata
    for (int k = 0; k < n_all; k++)
        if (roles[k] == META)
            t->cells.columns[n_meta++] = t->cells.columns[k];
        else
            free(t->cells.columns[k].cell);
    t->cells.n_columns = (uint32_t)n_meta;
    // rows of metadata that belong to kept vectors
    dt_columns_keep(&t->cells, keep);
    free(keep);
    free(roles);
    return st;
}

// Whether rounding to floats moves a number of column k by more than a millionth of what the column spans, or changes a
// whole one.
static bool loses_digits(const dt_raw *r, size_t n_rows, size_t k) {
    double least = INFINITY, most = -INFINITY, error = 0;
    bool whole = true;
    // column k of a row-major array
    for (size_t i = 0; i < n_rows; i++) {
        const double v = r->numbers[i * r->row_length + k];
        least = fmin(least, v);
        most = fmax(most, v);
        error = fmax(error, fabs(v - (double)(float)v)); // error of the rounding
        whole = whole && v == rint(v);                   // identifiers, counts
    }
    return most > least && error > (whole ? 0 : 1e-6 * (most - least)); // a constant loses nothing that matters
}

dt_status dt_raw_find_rows(dt_raw_found *f, const char *path, const char *metadata, dt_table *t) {
    dt_raw *r = f->raw;
    struct stat s = {0};
    r->kind = DT_RAW_ROWS;
    r->root = r->source;
    DT_TRY(dt_raw_read_numbers(t, path));
    DT_TRY(raw_rows_check_names(t, metadata));
    if (!f->skip_bad) DT_TRY(dt_table_check(t));
    DT_TRY(raw_rows_take_numbers(r, t, metadata, f->skip_bad));
    // one width for all columns: one array
    for (size_t k = 0; k < r->row_length && !r->wide; k++) r->wide = loses_digits(r, t->cells.n_rows, k);
    stat(path, &s);
    f->list = t;
    f->list_column = -1; // no column of paths
    for (size_t i = 0; i < t->cells.n_rows; i++) {
        // name: the line for messages; offset: the row
        dt_raw_add(f, dt_arena_printf(&r->arena, "line %u", t->line[i]), i,
                   DT_NPY_HEAD + r->row_length * size_of_number(r), dt_raw_mtime_ns(&s));
        r->items[i].key = dt_arena_printf(&r->arena, "%07zu", i); // by line: keys in the table's order
        r->items[i].ext = "npy";
    }
    return DT_OK;
}

void dt_raw_read_row(const dt_raw *r, const dt_raw_item *item, uint64_t at, void *dst, size_t n_bytes) {
    const double *numbers = &r->numbers[item->offset * r->row_length];
    const size_t size = size_of_number(r);
    char head[DT_NPY_HEAD];
    dt_text_npy_head(head, size == sizeof(float) ? "<f4" : "<f8", (long long)r->row_length, -1);
    // byte by byte: a reader may take any part
    for (size_t i = at; i < at + n_bytes; i++) {
        const size_t k = i < DT_NPY_HEAD ? 0 : i - DT_NPY_HEAD;
        const float rounded = (float)numbers[k / size]; // both widths from the doubles
        const uint8_t *from = size == sizeof rounded ? (const uint8_t *)&rounded : (const uint8_t *)&numbers[k / size];
        ((uint8_t *)dst)[i - at] = i < DT_NPY_HEAD ? (uint8_t)head[i] : from[k % size]; // little-endian, as '<f' says
    }
}
