// plan_file.c: see plan_file.h.
#include "backend/cuda/plan_file.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

char *dt_plan_file_path(const char *folder, const char *what, const char *machine) {
    char hex[17];
    dt_hash_hex(dt_hash64(machine, strlen(machine)), hex);
    return dt_xprintf("%s/%.*s-%s.txt", folder, (int)strcspn(what, " "), what, hex);
}

// Where the lines begin in a file's bytes; NULL with a reason.
static const char *check(const dt_plan_file *f, const char *data, size_t n, const char **why) {
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
    if (n - body <= machine || strncmp(data + body, f->machine, machine) != 0 ||
        data[body + machine] != '\n')
        return NULL;
    return data + body + machine + 1;
}

char *dt_plan_file_read(const dt_plan_file *f) {
    char *data = NULL;
    size_t n = 0;
    const char *why = NULL;
    if (!dt_io_exists(f->path)) return NULL;
    if (dt_io_read_file(&data, &n, f->path, f->most_bytes, DT_E_STORAGE) != DT_OK) {
        dt_warn("%s: ignored, %s; %s", f->path, dt_error_message(), f->then);
        dt_error_clear();
        return NULL;
    }
    const char *lines = check(f, data, n, &why);
    if (!lines) {
        dt_warn("%s: ignored, %s; %s", f->path, why, f->then);
        free(data);
        return NULL;
    }
    memmove(data, lines, n - (size_t)(lines - data) + 1); // with the NUL that io.h puts behind
    return data;
}

void dt_plan_file_write(const dt_plan_file *f, const char *lines) {
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
