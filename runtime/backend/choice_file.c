// choice_file.c: see choice_file.h.
#include "backend/choice_file.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *dt_choice_file_path(const char *folder, const char *what, const char *machine) {
    char hex[17];
    dt_hash_hex(dt_hash64(machine, strlen(machine)), hex);
    return dt_xprintf("%s/%.*s-%s.txt", folder, (int)strcspn(what, " "), what, hex);
}

// Returns where the lines begin in a file's bytes; NULL with a reason.
static const char *choice_file_check(const dt_choice_file *f, const char *data, size_t n, const char **why) {
    char *head = dt_xprintf("dtrain %s ", f->what), hex[17];
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
    const size_t machine = strlen(f->machine);
    if (n - body <= machine || strncmp(data + body, f->machine, machine) != 0 || data[body + machine] != '\n')
        return NULL;
    return data + body + machine + 1;
}

char *dt_choice_file_read(const dt_choice_file *f) {
    char *data = NULL;
    size_t n = 0;
    const char *why = NULL;
    if (!dt_io_exists(f->path)) return NULL;
    if (dt_io_read_file(&data, &n, f->path, f->most_bytes, DT_E_STORAGE) != DT_OK) {
        dt_warn("%s: ignored, %s; %s", f->path, dt_error_message(), f->then);
        dt_error_clear();
        return NULL;
    }
    const char *lines = choice_file_check(f, data, n, &why);
    if (!lines) {
        dt_warn("%s: ignored, %s; %s", f->path, why, f->then);
        free(data);
        return NULL;
    }
    memmove(data, lines, n - (size_t)(lines - data) + 1); // with the NUL that io.h appends
    return data;
}

void dt_choice_file_write(const dt_choice_file *f, const char *lines) {
    char *body = dt_xprintf("%s\n%s", f->machine, lines), hex[17];
    dt_hash_hex(dt_hash64(body, strlen(body)), hex);
    char *all = dt_xprintf("dtrain %s %s\n%s", f->what, hex, body);
    char *folder = dt_xprintf("%.*s", (int)(strrchr(f->path, '/') - f->path), f->path);
    dt_status st = dt_io_mkdir_all(folder);
    if (st == DT_OK) st = dt_io_write_file(f->path, all, strlen(all));
    if (st != DT_OK) {
        dt_warn("%s is not kept for the next run: %s", f->path, dt_error_message());
        dt_error_clear();
    }
    free(folder);
    free(all);
    free(body);
}

bool dt_choice_line_read(const char *text, dt_choice_line *out, const char **next) {
    const size_t n = strcspn(text, "\n");
    char *tab = NULL;
    const long choice = strtol(text, &tab, 10);
    *next = text[n] ? text + n + 1 : NULL;
    if (tab == text || tab >= text + n || *tab != '\t' || choice < -1 || choice >= 1000) return false;
    const char *desc = tab + 1, *end = text + n;
    const char *second = memchr(desc, '\t', (size_t)(end - desc));
    const size_t n_desc = (size_t)((second ? second : end) - desc);
    if (n_desc >= DT_CHOICE_TEXT) return false;
    out->choice = (int)choice;
    memcpy(out->desc, desc, n_desc);
    out->desc[n_desc] = 0;
    out->rest = second ? second + 1 : NULL;
    out->n_rest = second ? (size_t)(end - out->rest) : 0;
    return true;
}
