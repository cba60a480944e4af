// ini.c: goes through the file's lines until the value is found.
#include "ini.h"

#include "base/core.h"
#include "base/io.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20 };
static const char BLANKS[] = " \t";

// Whether `line`, which begins with [ and is overwritten, is the header of this section.
static bool is_section(char *line, const char *section) {
    char *to = line;
    const char *end = strchr(line, ']');
    for (const char *p = line + 1; end && p < end; p++) {
        const bool is_blank = *p == ' ' || *p == '\t';
        // AWS's tools take quotes off, and blanks as one
        if (*p == '"' || *p == '\'' || (is_blank && (to == line || to[-1] == ' '))) continue;
        *to++ = is_blank ? ' ' : *p;
    }
    if (to > line && to[-1] == ' ') to--;
    *to = '\0';
    return end && strcmp(line, section) == 0;
}

// The value, cut out of `line`, if its name is `name`; else NULL.
static char *ini_value_of(char *line, const char *name) {
    const size_t n_name = strlen(name);
    char *value = line + n_name + strspn(line + n_name, BLANKS);
    if (*value != '=' && *value != ':') return NULL; // a longer name that begins alike
    value += 1 + strspn(value + 1, BLANKS);
    char *end = value + strlen(value);
    while (end > value && strchr(BLANKS, end[-1])) *--end = '\0';
    return value;
}

char *dt_ini_get(const char *path, const char *section, const char *name) {
    char *text, *found = NULL, *rest;
    size_t n_bytes, indent = SIZE_MAX; // of the last name
    bool inside = false;
    if (dt_io_read_file(&text, &n_bytes, path, MAX_BYTES, DT_E_USAGE) != DT_OK) {
        dt_error_clear();
        return NULL;
    }
    for (char *line = strtok_r(text, "\r\n", &rest); line && !found; line = strtok_r(NULL, "\r\n", &rest)) {
        const size_t n = strspn(line, BLANKS);
        char *at = line + n;
        // deeper than the name before: its continuation or a nested value
        if (!*at || *at == '#' || *at == ';' || n > indent) continue;
        indent = *at == '[' ? SIZE_MAX : n;
        if (*at == '[')
            inside = is_section(at, section);
        else if (inside && strncasecmp(at, name, strlen(name)) == 0)
            found = ini_value_of(at, name);
    }
    found = found && *found ? dt_xstrdup(found) : NULL;
    explicit_bzero(text, n_bytes); // the file holds secrets
    free(text);
    return found;
}
