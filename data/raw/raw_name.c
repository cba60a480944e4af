// raw_name.c: derives keys and metadata from file names, in one of three ways.
//
// By pattern: "{subject}__{gender}_…" gives metadata columns. Members are called by extension, as readers of WebDataset
// expect, unless a record has several fields: {member} captures the field's name, and so does the first folder where
// each alternative of the pattern is of one folder: fingerprint/7/7__M_Left_index_finger.BMP becomes record
// "fingerprint/7/7__M_Left_index_finger" with member "fingerprint.bmp". Without a pattern, those of known datasets are
// tried.
// By folder: the folder right above a file is its class: column `label` (its name), and a member `cls` (its number).
// Beside a joined table too, unless that has a column `label`. Otherwise, if a list says what files are, or no file lies
// in a folder, a name gives the key only.
//
// A dot inside a stem would end the key early, so it becomes '-'.

#include "raw.h"

#include "base/io.h"
#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const KNOWN_PATTERNS =
    // SOCOFing's real and altered fingerprints, then iris images as "12_M_left_3.bmp"
    "{subject}__{gender}_{hand}_{finger}_finger.BMP|"
    "{subject}__{gender}_{hand}_{finger}_finger_{n}.BMP|{subject}_{gender}_{eye}_{n}.bmp";

static const char *dot_of(const char *name) {
    const char *base = dt_path_base(name), *dot = strrchr(base, '.');
    return dot == base ? NULL : dot; // ".hidden" has no extension
}

// The name without its extension and without leading "/", "./" or "../"; dots in its last component become '-'.
static const char *raw_name_key_of(dt_arena *a, const char *name) {
    // at most "..": more dots are a name
    for (size_t dots; dots = strspn(name, "."), dots <= 2 && name[dots] == '/';) name += dots + 1;
    const char *dot = dot_of(name);
    size_t n = dot ? (size_t)(dot - name) : strlen(name);
    // n + 1: dt_arena_alloc gives zeros
    char *out = dt_arena_alloc(a, n + 1);
    memcpy(out, name, n);
    for (char *p = out + (dt_path_base(out) - out); *p; p++) // folders keep their dots
        if (*p == '.') *p = '-';
    return out;
}

// The extension in lower case, from the first bytes if the name has none. Neighbours share it.
static const char *ext_of(dt_raw *r, const dt_raw_item *item, const char *field, size_t n_field) {
    // item->ext: from first bytes or a group; "bin": unknown, not packed as an image
    const char *dot = dot_of(item->name), *ext = item->ext ? item->ext : dot ? dot + 1 : "bin";
    char *text = dt_xprintf("%.*s%s%s", (int)n_field, field, n_field ? "." : "", ext);
    for (char *p = text; *p; p++) *p = (char)tolower((unsigned char)*p); // case folds: JPG and jpg are one member
    // thousands of files have a few extensions: no copy for each
    const char *before = item > r->items ? item[-1].ext : NULL;
    const char *shared = before && strcmp(before, text) == 0 ? before : dt_arena_strdup(&r->arena, text);
    free(text);
    return shared;
}

// ---- by pattern ---------------------------------------------------------------------------------------
// Alternatives of a pattern, split once.
enum { MAX_ALTERNATIVES = 16 }; // in one pattern
typedef struct alternatives {
    char *text, *each[MAX_ALTERNATIVES]; // each: pointers into text
    int n;
} alternatives;

// The captures, or -1. *which: the alternative.
static int match_any(const alternatives *a, const char *name, dt_capture *cap, int *which) {
    // alternatives in the order in which they are written
    for (int i = 0; i < a->n; i++) {
        int n = dt_pattern_match(a->each[i], name, cap);
        *which = i;
        if (n >= 0) return n;
    }
    return -1;
}

static bool all_match(const dt_raw *r, const alternatives *a) {
    dt_capture cap[DT_MAX_CAPTURES];
    int which;
    for (size_t i = 0; i < r->n; i++)
        if (match_any(a, r->items[i].name, cap, &which) < 0) return false;
    return r->n > 0; // an empty list has no pattern
}

static size_t first_folder(const char *name) {
    const char *slash = strchr(name, '/');
    return slash ? (size_t)(slash - name) : 0; // 0: the file lies in no folder
}

// Whether first folders tell fields apart: there are several, and each alternative matches in one of them only.
static bool folders_are_fields(const dt_raw_found *f, const alternatives *a) {
    const char *of[MAX_ALTERNATIVES] = {NULL}, *one = NULL;
    dt_capture cap[DT_MAX_CAPTURES];
    bool several = false;
    for (size_t i = 0; i < f->raw->n; i++) {
        const char *name = f->raw->items[i].name + f->n_strip; // behind the folders that all names share
        size_t n = first_folder(name);
        int which;
        if (n == 0 || match_any(a, name, cap, &which) < 0) return false;
        // the first name that this alternative matched stands for its folder
        if (!of[which]) of[which] = name;
        if (strncmp(of[which], name, n + 1) != 0) return false; // n + 1: with the slash
        if (!one) one = name;
        several = several || strncmp(one, name, n + 1) != 0;
    }
    return several;
}

static bool several_folders(const dt_raw_found *f) {
    const char *first = f->raw->items[0].name + f->n_strip;
    size_t n = first_folder(first);
    for (size_t i = 1; i < f->raw->n; i++) {
        const char *name = f->raw->items[i].name + f->n_strip;
        if (first_folder(name) != n || strncmp(first, name, n) != 0) return true;
    }
    return false;
}

// Leaves out files whose names do not fit, or names the first of them.
static dt_status keep_fitting(dt_raw_found *f, const alternatives *a, const char *pattern, bool skip_bad) {
    dt_capture cap[DT_MAX_CAPTURES];
    dt_raw *r = f->raw;
    size_t n = 0;
    int which;
    for (size_t i = 0; i < r->n; i++) {
        // kept in place, in their order
        if (match_any(a, r->items[i].name + f->n_strip, cap, &which) >= 0)
            r->items[n++] = r->items[i];
        else
            dt_examples_add(&r->unfit, "%s", r->items[i].name);
    }
    if (r->unfit.n == 0) return DT_OK;
    if (!skip_bad || n == 0) // nothing left is an error also with skip_bad
        return dt_fail(DT_E_USAGE, "%zu of %zu names do not fit the pattern '%s': %s%s", r->unfit.n, r->n, pattern,
                       r->unfit.text, n ? "; --on-error skip leaves such files out" : "");
    r->n = n;
    return DT_OK;
}

static dt_status name_by_pattern(dt_raw_found *f, const alternatives *a, const char *group) {
    dt_capture cap[DT_MAX_CAPTURES];
    dt_raw *r = f->raw;
    // with --group, a folder of its own for each field
    const bool by_folder = folders_are_fields(f, a) || (group && several_folders(f));
    for (size_t i = 0; i < r->n; i++) {
        dt_raw_item *item = &r->items[i];
        const char *name = item->name + f->n_strip, *field = name; // no field in front of the extension
        size_t n_field = by_folder ? first_folder(name) : 0;
        int which, n = match_any(a, name, cap, &which);
        if (group && !by_folder) {
            // left_thumb.bmp and right_thumb.bmp of one record: the captures that they are not grouped by tell them apart
            field = "";
            for (int k = 0; k < n; k++)
                if (!dt_raw_is_listed(group, cap[k].name))
                    field = dt_arena_printf(&r->arena, "%s%s%s", field, *field ? "_" : "", cap[k].value);
            n_field = strlen(field);
        }
        for (int k = 0; k < n; k++) {
            dt_column *c;
            // {member} has priority over folders
            if (strcmp(cap[k].name, "member") == 0) {
                field = cap[k].value;
                n_field = strlen(field);
                continue;
            }
            DT_TRY(dt_columns_need(&r->table, r->source, cap[k].name, DT_TEXT_COLUMN, &c));
            DT_TRY(dt_columns_intern(&r->table, r->source, cap[k].value, &c->cell[item->row]));
        }
        // before the key: ext_of shares the text with its neighbour
        item->ext = ext_of(r, item, field, n_field);
        // groups are joined later (dt_raw_group), by other keys
        item->key = raw_name_key_of(&r->arena, name);
    }
    return DT_OK;
}

// ---- by folder ----------------------------------------------------------------------------------------
// The folder right above the file: how many bytes from *begin on; 0: none.
static size_t raw_name_class_of(const char *name, const char **begin) {
    const char *slash = strrchr(name, '/');
    for (*begin = slash ? slash : name; *begin > name && (*begin)[-1] != '/';) --*begin;
    return slash ? (size_t)(slash - *begin) : 0;
}

// Every file must lie in a folder. Names the first by name: folders are listed in no order.
static dt_status check_classes(const dt_raw_found *f) {
    const char *least = NULL, *begin; // of files that lie in no folder
    for (size_t i = 0; i < f->raw->n; i++) {
        const char *name = f->raw->items[i].name;
        // *begin == '/': an absolute path of a list
        if (raw_name_class_of(name + f->n_strip, &begin) == 0 && *begin != '/' && (!least || strcmp(name, least) < 0))
            least = name;
    }
    if (!least) return DT_OK;
    return dt_fail(DT_E_USAGE,
                   "%s: is not in a class folder, and other files are; put files in a folder for each class, or give "
                   "the meaning of names: --pattern '{label}_{n}.jpg', --join labels.csv",
                   least);
}

// Classes are numbered in the order of labels; label[i] is that of item i, or NULL.
static void number_classes(dt_raw *r, const char *const *label) {
    // labels sorted, then each once, in the same array
    const char **sorted = dt_xcalloc(r->n + 1, sizeof *sorted);
    size_t n = 0, n_classes = 0;
    for (size_t i = 0; i < r->n; i++)
        if (label[i]) sorted[n++] = label[i];
    qsort(sorted, n, sizeof *sorted, dt_text_compare);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(sorted[i], sorted[n_classes - 1]) != 0) sorted[n_classes++] = sorted[i];
    for (size_t i = 0; i < r->n; i++) {
        if (!label[i]) continue;
        const char **at = bsearch(&label[i], sorted, n_classes, sizeof *sorted, dt_text_compare); // always found
        // C's order of bytes: the same on every machine
        r->items[i].label = (int)(at - sorted);
    }
    r->n_classes = (int)n_classes;
    free(sorted);
}

// The folder is column `label`.
static dt_status name_by_folder(dt_raw_found *f) {
    dt_raw *r = f->raw;
    dt_column *column;
    DT_TRY(check_classes(f));
    DT_TRY(dt_columns_need(&r->table, r->source, "label", DT_TEXT_COLUMN, &column));
    dt_status st = DT_OK;
    for (size_t i = 0; i < r->n && st == DT_OK; i++) {
        const char *begin;
        size_t n = raw_name_class_of(r->items[i].name + f->n_strip, &begin);
        char *label = dt_xprintf("%.*s", (int)n, begin);
        st = dt_columns_intern(&r->table, r->source, label, &column->cell[r->items[i].row]);
        free(label);
    }
    const char **labels = dt_xcalloc(r->n + 1, sizeof *labels);
    const int k = dt_columns_find(&r->table, "label", DT_TEXT_COLUMN); // interned texts: equal labels are one pointer
    for (size_t i = 0; i < r->n && st == DT_OK; i++) labels[i] = dt_columns_text(&r->table, k, r->items[i].row);
    if (st == DT_OK) number_classes(r, labels);
    free(labels);
    return st;
}

// How many bytes of folders all names share, including the last '/'.
static size_t common_folders(const dt_raw *r) {
    size_t n = 0; // bytes
    for (size_t i = 0; i < r->n; i++) {
        const char *a = r->items[0].name, *b = r->items[i].name;
        size_t same = 0, slash = 0;
        while (a[same] && a[same] == b[same]) {
            same++;
            if (a[same - 1] == '/') slash = same;
        }
        if (i == 0 || slash < n) n = slash; // a folder is shared as a whole
    }
    return n;
}

static bool any_in_folder(const dt_raw_found *f) {
    for (size_t i = 0; i < f->raw->n; i++)
        if (strchr(f->raw->items[i].name + f->n_strip, '/')) return true;
    return false;
}

dt_status dt_raw_name_items(dt_raw_found *f, const dt_raw_opts *o, bool by_class) {
    dt_raw *r = f->raw;
    const char *pattern = o->pattern;
    alternatives a = {.text = dt_xstrdup(pattern ? pattern : KNOWN_PATTERNS)};
    char *save = NULL;
    // split once for all files; more than 16 are ignored
    for (char *p = strtok_r(a.text, "|", &save); p && a.n < MAX_ALTERNATIVES; p = strtok_r(NULL, "|", &save))
        a.each[a.n++] = p;
    bool by_pattern = pattern || all_match(r, &a); // known patterns count only where every name fits
    r->by_known_pattern = by_pattern && !pattern;
    dt_status st = DT_OK;
    // names in a tar often begin with one folder of all; folders of classes are looked at below it
    if (r->kind == DT_RAW_TAR || (by_class && !by_pattern)) f->n_strip = common_folders(r);
    if (pattern) st = keep_fitting(f, &a, pattern, o->skip_bad);
    if (by_pattern && st == DT_OK) st = name_by_pattern(f, &a, o->group);
    free(a.text);
    if (by_pattern) return st;
    // if all files have one class, they share its folder, which must stay in names: back to its first letter
    if (by_class && f->n_strip > 0 && !any_in_folder(f)) {
        f->n_strip--; // behind the slash
        while (f->n_strip > 0 && r->items[0].name[f->n_strip - 1] != '/') f->n_strip--;
    }
    for (size_t i = 0; i < r->n; i++) {
        r->items[i].key = raw_name_key_of(&r->arena, r->items[i].name + f->n_strip);
        r->items[i].ext = ext_of(r, &r->items[i], "", 0);
    }
    // no folders: files of one class, or without
    return by_class && any_in_folder(f) ? name_by_folder(f) : DT_OK;
}

// ---- beside a joined table -------------------------------------------------------------------------------
// The records of a set keep their member `cls`, unless the table changes a label.
static void follow_label(dt_raw *r) {
    const dt_catalog *c = r->catalog;
    // text columns of both
    const int old = dt_catalog_find_column(c, "label"), own = dt_columns_find(&r->table, "label", DT_TEXT_COLUMN);
    bool has_cls = false, changed = false;
    // without members `cls` there is nothing to follow
    for (uint32_t e = 0; e < c->n_exts; e++) has_cls = has_cls || strcmp(dt_catalog_str(c, c->exts[e]), "cls") == 0;
    if (!has_cls || old < 0 || own < 0) return;
    const char **labels = dt_xcalloc(r->n + 1, sizeof *labels);
    for (size_t i = 0; i < r->n; i++) {
        const char *now = dt_columns_text(&r->table, own, r->items[i].row);
        const char *was = dt_catalog_value(c, old, r->items[i].record); // in the set, NULL: none
        // a table without a value leaves the record's own
        labels[i] = now ? now : was;
        changed = changed || (labels[i] && was && strcmp(labels[i], was) != 0);
    }
    if (changed) number_classes(r, labels); // new numbers for all classes: the table may have added one
    free(labels);
}

dt_status dt_raw_class_joined(dt_raw_found *f, bool by_class) {
    dt_raw *r = f->raw;
    const bool label = dt_columns_find(&r->table, "label", ~0u) >= 0;
    const char *begin; // not read: only whether there is a folder
    if (r->kind == DT_RAW_SET) follow_label(r);
    if (!by_class || r->by_known_pattern) return DT_OK;
    f->n_strip = common_folders(r);
    for (size_t i = 0; i < r->n; i++)
        if (raw_name_class_of(r->items[i].name + f->n_strip, &begin) == 0) return DT_OK;
    // reported: folders and a column `label` would both give classes
    r->join.label_only = label;
    return label ? DT_OK : name_by_folder(f);
}

// ---- pattern ------------------------------------------------------------------------------------------------------

// Matches by backtracking, shortest capture first. The worst case is exponential in the number of
// captures, but that is capped, and names and patterns are short.

dt_status dt_pattern_check(const char *p) {
    const char *whole = p;
    const char *name[DT_MAX_CAPTURES]; // with their braces, as in the pattern
    int n = 0;
    for (; *p; p++) {
        if (*p == '}') return dt_fail(DT_E_USAGE, "pattern '%s': a } without {", whole); // a brace that closes nothing
        if (*p == '|') n = 0; // each alternative has its own captures
        if (*p != '{') continue;
        const char *end = strpbrk(p + 1, "{}|/");
        // end - p: a name of at most 62 bytes, for dt_capture.name
        if (!end || *end != '}' || end == p + 1 || end - p > 63)
            return dt_fail(DT_E_USAGE, "pattern '%s': expected {name}", whole);
        // shortest capture first: without a text between them the first would always have one byte
        if (end[1] == '{') return dt_fail(DT_E_USAGE, "pattern '%s': two captures need text between them", whole);
        if (n == DT_MAX_CAPTURES)
            return dt_fail(DT_E_USAGE, "pattern '%s': more than %d captures", whole, DT_MAX_CAPTURES);
        size_t bytes = (size_t)(end + 1 - p); // with the brackets
        for (int i = 0; i < n; i++)
            if (strncmp(name[i], p, bytes) == 0)
                return dt_fail(DT_E_USAGE, "pattern '%s': two captures are called %.*s", whole, (int)bytes, p);
        name[n++] = p;
        p = end;
    }
    return DT_OK;
}

static int match(const char *p, const char *s, dt_capture *out, int n) {
    // literals up to the next capture
    while (*p && *p != '{') {
        if (tolower((unsigned char)*p) != tolower((unsigned char)*s)) return -1;
        p++, s++;
    }
    if (!*p) return *s ? -1 : n;        // -1: the name goes on
    const char *close = strchr(p, '}'); // dt_pattern_check has seen to it
    size_t n_name = (size_t)(close - p - 1);
    // from one byte on: a capture is never empty
    for (size_t length = 1; length < DT_MAX_CAPTURE_BYTES; length++) {
        // a capture ends within its component
        if (s[length - 1] == '\0' || s[length - 1] == '/') return -1;
        int got = match(close + 1, s + length, out, n + 1);
        if (got < 0) continue;
        // filled on the way back, when the whole pattern matched
        memcpy(out[n].name, p + 1, n_name);
        out[n].name[n_name] = '\0';
        memcpy(out[n].value, s, length);
        out[n].value[length] = '\0';
        return got;
    }
    return -1;
}

int dt_pattern_match(const char *pattern, const char *path, dt_capture out[DT_MAX_CAPTURES]) {
    // as many components of the path as the pattern has
    int slashes = 0;
    for (const char *p = pattern; *p; p++) slashes += *p == '/';
    const char *s = path + strlen(path);
    while (s > path && (s[-1] != '/' || slashes-- > 0)) s--;
    return match(pattern, s, out, 0);
}
