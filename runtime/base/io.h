// io.h: every write that dtrain makes to a file goes through here, so that every one can be made to
// fail (failpoint.h), and every one is checked.
//
// Errors: DT_E_STORAGE with path, operation and strerror. After a failed fsync the file's state is
// unknown; callers rewrite the file and never fsync the same descriptor again.
#ifndef DT_BASE_IO_H
#define DT_BASE_IO_H

#include "status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// -- writing ---------------------------------------------------------------------------------
dt_status dt_io_create(int *fd, const char *path,
                       bool exclusive); // O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC
dt_status dt_io_open_append(int *fd, const char *path);
dt_status dt_io_open_update(int *fd, const char *path); // O_RDWR|O_CREAT: what is there stays
// A second descriptor that writes past the page cache, whole 4 KiB pages from and to aligned places:
// large files cost half as much. -1 where the file system is not known to do it; not counted.
int dt_io_open_direct(const char *path);
dt_status dt_io_write(int fd, const char *path, const void *data, size_t n_bytes); // all or error
dt_status dt_io_pwrite(int fd, const char *path, const void *data, size_t n_bytes, off_t at);
// Has the system begin to write what a cached write left, so that a later sync finds less to wait for.
void dt_io_begin_sync(int fd, off_t at, size_t n_bytes);
dt_status dt_io_fsync(int fd, const char *path);
dt_status dt_io_close(int fd, const char *path);
dt_status dt_io_fsync_dir(const char *path);
// Renames; fails with DT_E_STORAGE if `to` exists. renameat2(RENAME_NOREPLACE), or, where the file
// system refuses the flag, an existence check and rename (callers hold the run lock).
dt_status dt_io_rename_noreplace(const char *from, const char *to);
dt_status dt_io_rename(const char *from, const char *to); // replaces
dt_status dt_io_unlink(const char *path);
dt_status dt_io_mkdir(const char *path);       // existing directory is fine
dt_status dt_io_mkdir_all(const char *path);   // with parents
dt_status dt_io_remove_tree(const char *path); // missing is fine; never follows symlinks
// A directory; one that is missing, or has something in it, is left as it is.
dt_status dt_io_remove_empty(const char *path);
dt_status dt_io_truncate(const char *path, off_t n_bytes);
// Bytes [at, at + n_bytes) of the file, which grows if need be: writing there, also through a map,
// cannot fail for want of space afterwards. An error where the file system cannot promise that.
dt_status dt_io_reserve(int fd, const char *path, off_t at, off_t n_bytes);
// Whole file through a temporary beside it: write, fsync, rename, fsync of the directory.
dt_status dt_io_write_file(const char *path, const void *data, size_t n_bytes);
// The directory that holds `path`, heap; "." for a plain name.
char *dt_io_parent(const char *path);

// -- reading ---------------------------------------------------------------------------------
// What a call that reads ("open", "list", "look at") failed with, and what to do: `code`, but a lack of
// descriptors or memory, or a server that is away, says nothing of the file and is DT_E_STORAGE. path NULL: the
// caller puts it in front.
dt_status dt_io_read_error(const char *path, const char *operation, int err, dt_status code);
// Whole file, heap, NUL-terminated after n_bytes; caller frees. `max_bytes` 0 = no limit.
dt_status dt_io_read_file(char **data, size_t *n_bytes, const char *path, size_t max_bytes,
                          dt_status code_on_error);
dt_status dt_io_pread(int fd, const char *path, void *data, size_t n_bytes, off_t at,
                      dt_status code_on_error); // exactly n_bytes or an error that says how many
// The same to two places by one call: n_head bytes at `at`, then the n_bytes behind them.
dt_status dt_io_pread_parts(int fd, const char *path, void *head, size_t n_head, void *data,
                            size_t n_bytes, off_t at, dt_status code_on_error);
// Whether something is there, where a folder on the way that this user may not enter is an error and no "no".
dt_status dt_io_find(bool *is_there, const char *path, dt_status code);
bool dt_io_exists(const char *path); // false also where that cannot be told
bool dt_io_is_dir(const char *path);

// Names in a directory (without . and ..), sorted bytewise; heap array of heap strings.
dt_status dt_io_list_dir(char ***names, size_t *n, const char *path, dt_status code_on_error);
void dt_io_free_list(char **names, size_t n);

#endif
