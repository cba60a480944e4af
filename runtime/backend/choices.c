// choices.c: see choices.h.
#include "backend/choices.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 16 << 20, MAX_LINE = DT_CHOICE_TEXT + 80 };

// ---- entries ---------------------------------------------------------------------------------------
dt_choice *dt_choices_find(const dt_choices *c, const char *text) {
    dt_choice *e = c->first;
    while (e && strcmp(e->text, text) != 0) e = e->next;
    return e;
}

dt_choice *dt_choices_entry(dt_choices *c, const char *text) {
    dt_choice *e = dt_choices_find(c, text);
    if (e) return e;
    e = dt_xcalloc(1, c->o.entry_bytes);
    snprintf(e->text, sizeof e->text, "%s", text);
    e->choice = e->filed = DT_CHOICE_NONE;
    e->next = c->first;
    return c->first = e;
}

void dt_choices_file(dt_choices *c, dt_choice *e) {
    if (e->given || e->filed == e->choice) return;
    e->filed = e->choice;
    c->dirty = true;
}

static int choices_by_text(const void *a, const void *b) {
    return strcmp((*(dt_choice *const *)a)->text, (*(dt_choice *const *)b)->text);
}

dt_choice **dt_choices_sorted(const dt_choices *c, size_t *n) {
    dt_choice **list = NULL;
    *n = 0;
    for (dt_choice *e = c->first; e; e = e->next) {
        list = dt_xgrow(list, *n, sizeof *list);
        list[(*n)++] = e;
    }
    if (list) qsort(list, *n, sizeof *list, choices_by_text);
    return list;
}

// ---- lines -----------------------------------------------------------------------------------------
// Reads the line at *text, and moves *text behind it. false: malformed.
static bool choices_read_line(const char **text, dt_choice *out) {
    char line[MAX_LINE], *tab = line;
    const size_t n = strcspn(*text, "\n");
    const char *begin = *text;
    *text += n + (begin[n] == '\n');
    if (n >= sizeof line) return false;
    memcpy(line, begin, n);
    line[n] = '\0';
    const long choice = strtol(line, &tab, 10);
    if (tab == line || *tab != '\t' || choice < -1 || choice >= 1000) return false;
    char *desc = tab + 1, *rates = strchr(desc, '\t');
    if (rates) *rates++ = '\0';
    if (strlen(desc) >= sizeof out->text) return false;
    *out = (dt_choice){.choice = (int)choice};
    strcpy(out->text, desc);
    if (rates) sscanf(rates, "%lf %lf %lf", &out->rate[0], &out->rate[1], &out->rate[2]);
    return true;
}

static int choices_take(dt_choices *c, const char *text, bool given) {
    dt_choice line;
    int n = 0;
    while (text && *text) {
        if (!choices_read_line(&text, &line) || !c->o.accepts(&line)) continue;
        dt_choice *e = dt_choices_entry(c, line.text);
        if (e->used || (!given && e->filed != DT_CHOICE_NONE)) continue; // of this run
        if (!given) {
            e->filed = line.choice;
            memcpy(e->rate, line.rate, sizeof e->rate);
        }
        if (given || !e->given) e->choice = line.choice;
        e->given = e->given || given;
        n++;
    }
    return n;
}

int dt_choices_take(dt_choices *c, const char *text) {
    return choices_take(c, text, true);
}

static char *choices_lines_of(const dt_choices *c, bool for_file) {
    size_t n, at = 0;
    dt_choice **list = dt_choices_sorted(c, &n);
    char *text = dt_xcalloc(n + 1, MAX_LINE);
    for (size_t i = 0; i < n; i++) {
        const dt_choice *e = list[i];
        const int choice = for_file ? e->filed : e->used || e->given ? e->choice : DT_CHOICE_NONE;
        if (choice == DT_CHOICE_NONE) continue;
        at += (size_t)sprintf(text + at, "%d\t%s", choice, e->text);
        if (for_file && e->rate[0] > 0)
            at += (size_t)sprintf(text + at, "\t%.6g %.6g %.6g", e->rate[0], e->rate[1], e->rate[2]);
        text[at++] = '\n';
    }
    free(list);
    return text;
}

char *dt_choices_text(const dt_choices *c) {
    return choices_lines_of(c, false);
}

// ---- the file --------------------------------------------------------------------------------------
char *dt_choices_path(const char *folder, const char *what, const char *machine) {
    char hex[17];
    dt_hash_hex(dt_hash64(machine, strlen(machine)), hex);
    return dt_xprintf("%s/%.*s-%s.txt", folder, (int)strcspn(what, " "), what, hex);
}

// Returns where the lines begin in a file's bytes; NULL with a reason.
static const char *choices_check(const dt_choices *c, const char *data, size_t n, const char **why) {
    char *head = dt_xprintf("dtrain %s ", c->o.what), hex[17];
    const size_t head_bytes = strlen(head), body = head_bytes + 16 + 1;
    const bool known = n >= head_bytes && strncmp(data, head, head_bytes) == 0;
    free(head);
    *why = "it is not complete";
    if (n < body || memchr(data, 0, n)) return NULL;
    *why = "it is of another version";
    if (!known) return NULL;
    *why = "its checksum is wrong";
    dt_hash_hex(dt_hash64(data + body, n - body), hex);
    if (data[body - 1] != '\n' || strncmp(data + head_bytes, hex, 16) != 0) return NULL;
    *why = "it is of another machine";
    const size_t machine = strlen(c->machine);
    if (n - body <= machine || strncmp(data + body, c->machine, machine) != 0 || data[body + machine] != '\n')
        return NULL;
    return data + body + machine + 1;
}

// Takes the file's lines, unless it is ignored, with one warning.
static void choices_read_file(dt_choices *c) {
    char *data = NULL;
    size_t n = 0;
    const char *why = NULL, *lines = NULL;
    if (!dt_io_exists(c->path)) return;
    const dt_status st = dt_io_read_file(&data, &n, c->path, MAX_FILE_BYTES, DT_E_STORAGE);
    if (st == DT_OK) lines = choices_check(c, data, n, &why);
    c->torn = !lines;
    if (c->torn) dt_warn("%s: ignored, %s; %s", c->path, why ? why : dt_error_message(), c->o.then);
    if (st != DT_OK) dt_error_clear();
    choices_take(c, lines, false);
    free(data);
}

void dt_choices_open(dt_choices *c, const dt_choices_opts *o) {
    c->o = *o;
    c->machine = dt_xstrdup(o->machine);
    for (char *p = c->machine; *p; p++)
        if (*p == '\n') *p = ' '; // it is a line of the file
    c->path = o->folder ? dt_choices_path(o->folder, o->what, c->machine) : NULL;
    c->torn = false;
    if (c->path) choices_read_file(c);
}

bool dt_choices_save(dt_choices *c) {
    const bool dirty = c->dirty;
    c->dirty = false; // so that a failure is reported once
    if (!dirty || !c->path) return dirty;
    if (!c->torn) choices_read_file(c); // which another run may have added to meanwhile
    char *lines = choices_lines_of(c, true), hex[17];
    char *body = dt_xprintf("%s\n%s", c->machine, lines);
    dt_hash_hex(dt_hash64(body, strlen(body)), hex);
    char *all = dt_xprintf("dtrain %s %s\n%s", c->o.what, hex, body);
    char *folder = dt_xprintf("%.*s", (int)(strrchr(c->path, '/') - c->path), c->path);
    dt_status st = dt_io_mkdir_all(folder);
    if (st == DT_OK) st = dt_io_write_file(c->path, all, strlen(all));
    if (st != DT_OK) {
        dt_warn("%s is not kept for the next run: %s", c->path, dt_error_message());
        dt_error_clear();
    }
    free(folder);
    free(all);
    free(body);
    free(lines);
    return dirty;
}

void dt_choices_close(dt_choices *c, bool all) {
    dt_choices_save(c);
    for (dt_choice **at = &c->first; *at;) {
        dt_choice *e = *at;
        if (e->given && !all) {
            e->filed = DT_CHOICE_NONE;
            e->used = false;
            memset(e->rate, 0, sizeof e->rate);
            at = &e->next;
        } else {
            *at = e->next;
            free(e);
        }
    }
    free(c->path);
    free(c->machine);
}
