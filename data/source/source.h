// source.h: a set: the records of one or several data files, behind one catalog. How a file becomes
// rows is a driver's business (LMDB, WebDataset tar, folder); reading a member is then the same for
// all: a range of a file.
#ifndef DT_DATA_SOURCE_H
#define DT_DATA_SOURCE_H

#include "data/catalog/catalog.h"

// One way of storing records. `load` appends the records of `path` to the catalog.
typedef struct dt_source_driver {
    const char *name;
    bool (*accepts)(const char *path);
    dt_status (*load)(dt_catalog *c, const char *path);
} dt_source_driver;

extern const dt_source_driver dt_source_lmdb, dt_source_wds, dt_source_folder;

typedef struct dt_set {
    dt_catalog *catalog;
    int *fds; // by shard: -1 until first read
    const char *kind;
} dt_set;

// Paths may hold braces ({000000..000127}) and "::" between shards. A missing shard is DT_E_DATA.
dt_status dt_set_open(dt_set **out, const char *const *paths, size_t n_paths);
void dt_set_close(dt_set *s);

// The bytes of member `member` (index into catalog->members) of `record`, in `scratch`. `verify` checks
// the stored hash. Any thread, each with its own scratch. DT_E_DATA names file, record and member.
dt_status dt_set_read(dt_set *s, uint32_t record, uint32_t member, bool verify, dt_buffer *scratch,
                      dt_span *out);
// dt_fail_context with file, record, and the member's extension and offset.
dt_status dt_set_context(const dt_set *s, uint32_t record, uint32_t member, dt_status code);

// "a-{00..02}.tar::b.tar" -> 4 heap strings. DT_E_USAGE for a brace that is no range.
dt_status dt_expand_shards(const char *pattern, char ***out, size_t *n);

// WebDataset's rule: the key is everything before the first dot of the basename, the extension what
// follows, lower-cased into ext. false: skip (no extension, dotfile, top-level __x__).
bool dt_split_key(const char *path, size_t *n_key, char *ext, size_t cap_ext);

#endif
