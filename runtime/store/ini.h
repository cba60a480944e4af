// ini.h: one value of a file of [sections] with lines NAME = VALUE, as AWS's tools and MLflow keep their credentials in.
// The rules are those of Python's configparser, by which both read: "=" or ":" stands behind a name, which may be in
// letters of either case; a line that begins with # or ; is a comment, but what stands behind a value is part of it; a
// line that is indented further than the last name goes on with that one's value (and is not read here).
#ifndef DT_BASE_INI_H
#define DT_BASE_INI_H

// The value of `name` in [section], heap; NULL: there is no such file, section or name, the value is empty, or the file
// cannot be read. Blanks between the words of a section's name count as one, and quotes around them as none.
char *dt_ini_get(const char *path, const char *section, const char *name);

#endif
