// io.h: file writes that are checked, and that a test can make fail (failpoint.h); file reads.
//
// All of dtrain's own writes go through here. SQLite and liblmdb write their files themselves.
//
// Errors: DT_E_STORAGE with path, operation and strerror. After a failed fsync the file's state is
// unknown: callers rewrite the file and never fsync the same descriptor again.
#ifndef DT_BASE_IO_H
#define DT_BASE_IO_H

#include "core.h"

#include <sys/types.h>

// -- writing ---------------------------------------------------------------------------------
// Files are opened without following a link in the last part of their path.
dt_status dt_io_create(int *fd, const char *path,
                       bool exclusive); // O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC
dt_status dt_io_open_append(int *fd, const char *path);
dt_status dt_io_open_update(int *fd, const char *path); // O_RDWR|O_CREAT, keeps the contents
// A second descriptor for direct I/O, which halves the cost of writing large files. Offsets, lengths and
// memory must be multiples of 4 KiB. -1 where the file system is not known to support it. Not counted by
// failpoints.
int dt_io_open_direct(const char *path);
dt_status dt_io_write(int fd, const char *path, const void *data, size_t n_bytes); // all or error
dt_status dt_io_pwrite(int fd, const char *path, const void *data, size_t n_bytes, off_t at);
// Starts writing cached pages back, so that a later fsync waits less. n_bytes 0: to the file's end.
void dt_io_begin_sync(int fd, off_t at, size_t n_bytes);
dt_status dt_io_fsync(int fd, const char *path);
dt_status dt_io_sync_file(const char *path); // what any descriptor wrote; a file that is not there is fine
dt_status dt_io_close(int fd, const char *path);
dt_status dt_io_fsync_dir(const char *path);
// Renames; fails with DT_E_STORAGE if `to` exists. renameat2(RENAME_NOREPLACE), or, where the file
// system refuses the flag, an existence check and rename (callers hold the run lock).
dt_status dt_io_rename_noreplace(const char *from, const char *to);
// Both change names at once; false: they did not, as where the file system cannot do that.
bool dt_io_exchange(const char *a, const char *b);
dt_status dt_io_unlink(const char *path);
dt_status dt_io_mkdir(const char *path);       // existing directory is fine
dt_status dt_io_mkdir_all(const char *path);   // with parents
dt_status dt_io_remove_tree(const char *path); // missing is fine; never follows symlinks
// Removes a directory if it is empty. A missing or non-empty one is no error.
dt_status dt_io_remove_empty(const char *path);
// Removes a file, or a directory if it is empty (else it stays), of the open directory `at`; `path`: its name in
// messages. Missing is fine; never follows symlinks.
dt_status dt_io_remove_at(int at, const char *name, const char *path);
dt_status dt_io_truncate(const char *path, off_t n_bytes);
// Reserves disk space for bytes [at, at + n_bytes); the file grows if needed. Later writes there, also
// through a map, cannot run out of space. An error where the file system cannot promise that.
dt_status dt_io_reserve(int fd, const char *path, off_t at, off_t n_bytes);
// A file being written, by one call or several. Until dt_io_end it lies beside `path` under a name that no other
// process takes, PATH.tmp.NUMBER, and locked (flock): whoever reads `path` sees the old file or all of the new one, and
// of two that write it at once the file is one's or the other's. An error removes it, and so does
// dt_io_remove_unfinished.
typedef struct dt_io_file {
    char *path, *temporary; // heap; NULL: not begun
    int fd;                 // to write to
    int place;              // io.c's
} dt_io_file;
// Created, exclusively. Only a regular file, or a link to one, may have the name `path`: it is replaced at the end.
dt_status dt_io_begin(dt_io_file *f, const char *path);
// st DT_OK: fsync, rename, fsync of the directory. Else the file is removed. Returns st, or the first error of these;
// st's message stays. A file that was not begun, or could not be: returns st.
dt_status dt_io_end(dt_io_file *f, dt_status st);
// Writes a file of bytes that are in memory.
dt_status dt_io_write_file(const char *path, const void *data, size_t n_bytes);
// dt_io_write_file, but a file that has this content already is not written again: on a full disk it stays.
dt_status dt_io_update_file(const char *path, const void *data, size_t n_bytes);
// For a signal that ends the process: removes what was begun and not ended. May be called from a signal's handler. A
// thread that is in dt_io_end then waits there for the end of the process.
void dt_io_remove_unfinished(void);
// Removes what kills left in a directory: such temporaries that nobody holds, and files and whole folders whose name
// begins with `prefix` (or NULL).
dt_status dt_io_remove_leftovers(const char *dir, const char *prefix);
// The length of a name, without the .tmp.NUMBER of a temporary.
size_t dt_io_stem(const char *name);
// Whether the last of the above that failed on this thread lacked space.
bool dt_io_out_of_space(void);
// The directory that holds `path`, heap; "." for a plain name.
char *dt_io_parent(const char *path);
// The cache folder with `below` ("/indexes", or "") behind it, heap: `given`, which may be NULL, else
// $XDG_CACHE_HOME/dtrain, else ~/.cache/dtrain; NULL without a home folder.
char *dt_io_cache_folder(const char *given, const char *below);

// -- reading ---------------------------------------------------------------------------------
// The error of a failed read operation ("open", "list", "look at"), with advice. The status is `code`, or
// DT_E_STORAGE where the machine is at fault and not the file: too few descriptors, no memory, a server that
// is away. path NULL: the caller adds it with dt_fail_context.
dt_status dt_io_read_error(const char *path, const char *operation, int err, dt_status code);
// Reads a whole file to the heap, NUL-terminated after n_bytes; the caller frees. max_bytes 0: no limit.
dt_status dt_io_read_file(char **data, size_t *n_bytes, const char *path, size_t max_bytes, dt_status code_on_error);
// dt_io_read_file for a file that dtrain wrote: a link, a pipe or a device in its place is an error.
dt_status dt_io_read_own(char **data, size_t *n_bytes, const char *path, size_t max_bytes, dt_status code_on_error);
dt_status dt_io_pread(int fd, const char *path, void *data, size_t n_bytes, off_t at,
                      dt_status code_on_error); // all n_bytes, or an error
// Whether the path exists. A folder on the way that this user may not enter is an error, not a "no".
dt_status dt_io_find(bool *is_there, const char *path, dt_status code);
bool dt_io_exists(const char *path); // false also when that cannot be determined
bool dt_io_is_dir(const char *path);
bool dt_io_is_link(const char *path);

// What is behind the last '/'; borrowed.
const char *dt_path_base(const char *path);
// Locks a byte of an open file (F_RDLCK, F_WRLCK; F_UNLCK releases it) against other descriptors, also over NFS. The
// kernel drops the lock with the descriptor (OFD locks). False: not locked; without `wait`, also where another has it.
bool dt_io_lock_byte(int fd, off_t byte, short type, bool wait);
// Whether somebody else has locked any byte of a file: 1, 0; -1: no such file, or unknown.
int dt_io_is_locked(const char *path);

// Names in a directory (without . and ..), sorted bytewise; heap array of heap strings.
dt_status dt_io_list_dir(char ***names, size_t *n, const char *path, dt_status code_on_error);
void dt_io_free_list(char **names, size_t n);

#endif
