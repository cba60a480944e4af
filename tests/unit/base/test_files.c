// test_files.c: files that are written whole or not at all, every failpoint action on every kind of call, lines that
// are read while a file grows.
#include "base/text.h"
#include "folder.h"
#include "testing.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

// -- io ------------------------------------------------------------------------------------------
static void check_file(const char *path, const char *want) {
    char *data;
    size_t n;
    must(dt_io_read_file(&data, &n, path, 0, DT_E_DATA));
    assert_int_equal(n, strlen(want));
    assert_string_equal(data, want);
    free(data);
}

TEST_WITH(test_io_files, folder_make, folder_remove) {
    const char *path = in_folder("a/b/c");
    must(dt_io_mkdir_all(path));
    must(dt_io_mkdir_all(path)); // again is fine
    assert_true(dt_io_is_dir(path));
    const char *file = in_folder("a/b/c/file");
    must(dt_io_write_file(file, "hello", 5));
    must(dt_io_write_file(file, "other", 5));
    check_file(file, "other");
    int fd;
    assert_int_equal(dt_io_create(&fd, file, true), DT_E_STORAGE); // exclusive
    assert_non_null(strstr(dt_error_message(), file));
    must(dt_io_open_append(&fd, file));
    must(dt_io_write(fd, file, " end", 4));
    must(dt_io_fsync(fd, file));
    must(dt_io_close(fd, file));
    check_file(file, "other end");
    must(dt_io_truncate(file, 3));
    check_file(file, "oth");

    char **names, *data;
    size_t n;
    must(dt_io_list_dir(&names, &n, path, DT_E_DATA));
    assert_int_equal(n, 1); // no temporary is left
    assert_string_equal(names[0], "file");
    dt_io_free_list(names, n);
    assert_int_equal(dt_io_read_file(&data, &n, file, 2, DT_E_CKPT), DT_E_CKPT);
    assert_int_equal(dt_io_read_file(&data, &n, in_folder("none"), 0, DT_E_DATA), DT_E_DATA);
    assert_int_equal(dt_io_mkdir(file), DT_E_STORAGE); // a file is in the way
}

TEST_WITH(test_io_pread, folder_make, folder_remove) {
    const char *file = in_folder("p");
    int fd;
    char got[8] = "";
    must(dt_io_create(&fd, file, true));
    must(dt_io_pwrite(fd, file, "0123", 4, 2));
    must(dt_io_close(fd, file));
    FILE *f = fopen(file, "r");
    must(dt_io_pread(fileno(f), file, got, 4, 2, DT_E_DATA));
    assert_string_equal(got, "0123");
    must_fail(DT_E_DATA, "only 2 there", dt_io_pread(fileno(f), file, got, 4, 4, DT_E_DATA));
    fclose(f);
}

TEST_WITH(test_io_rename, folder_make, folder_remove) {
    const char *a = in_folder("ra"), *b = in_folder("rb");
    must(dt_io_write_file(a, "A", 1));
    must(dt_io_write_file(b, "B", 1));
    assert_int_equal(dt_io_rename_noreplace(a, b), DT_E_STORAGE);
    check_file(b, "B");
    must(dt_io_unlink(b));
    must(dt_io_rename_noreplace(a, b));
    check_file(b, "A");
    assert_false(dt_io_exists(a));
}

TEST_WITH(test_io_remove_tree, folder_make, folder_remove) {
    must(dt_io_mkdir_all(in_folder("t/u/v")));
    must(dt_io_write_file(in_folder("t/u/f"), "x", 1));
    must(dt_io_write_file(in_folder("kept"), "x", 1));
    assert_int_equal(symlink(folder_path, in_folder("t/link")), 0); // points at our parent
    must(dt_io_remove_tree(in_folder("t")));
    assert_false(dt_io_exists(in_folder("t")));
    check_file(in_folder("kept"), "x");
    must(dt_io_remove_tree(in_folder("t"))); // missing is fine
}

// Each failpoint of a write_file leaves the old content and no temporary, whichever call fails.
TEST_WITH(test_failpoint_each_call, folder_make, folder_remove) {
    const char *file = in_folder("f");
    must(dt_io_write_file(file, "old", 3));
    must(dt_failpoint_set("io:0:count"));
    must(dt_io_write_file(file, "old", 3));
    uint64_t calls = dt_failpoint_count();
    assert_int_equal(calls, 6); // create, write, fsync, rename, close, fsync of the directory
    const char *actions[] = {"eio", "enospc", "short"};
    for (size_t a = 0; a < 3; a++)
        for (uint64_t n = 1; n <= calls; n++) {
            char spec[64];
            snprintf(spec, sizeof spec, "io:%d:%s", (int)n, actions[a]);
            must(dt_failpoint_set(spec));
            const bool renamed = n > 4;
            must_fail(DT_E_STORAGE, a == 0 ? strerror(EIO) : strerror(ENOSPC),
                      dt_io_write_file(file, renamed ? "old" : "new!", renamed ? 3 : 4));
            check_file(file, "old");
            must(dt_failpoint_set(""));
            char **names;
            size_t n_names;
            must(dt_io_list_dir(&names, &n_names, folder_path, DT_E_DATA));
            for (size_t i = 0; i < n_names; i++) assert_null(strstr(names[i], ".tmp"));
            dt_io_free_list(names, n_names);
        }
}

static int n_names(void) {
    char **names;
    size_t n;
    must(dt_io_list_dir(&names, &n, folder_path, DT_E_DATA));
    dt_io_free_list(names, n);
    return (int)n;
}

// Of two that write a file at once, here with the same number, each has all of its own.
TEST_WITH(test_io_file_twice, folder_make, folder_remove) {
    const char *file = in_folder("twice");
    dt_io_file a, b;
    must(dt_io_begin(&a, file));
    must(dt_io_begin(&b, file));
    must(dt_io_write(a.fd, file, "all of", 6));
    must(dt_io_write(b.fd, file, "b", 1));
    must(dt_io_write(a.fd, file, " a", 2));
    assert_false(dt_io_exists(file));
    must(dt_io_end(&b, DT_OK));
    check_file(file, "b");
    must(dt_io_end(&a, DT_OK));
    check_file(file, "all of a");
    must(dt_io_begin(&a, file));
    assert_int_equal(dt_io_end(&a, DT_E_DATA), DT_E_DATA); // given up
    check_file(file, "all of a");
    assert_int_equal(n_names(), 1);
    const char *inner = in_folder("a folder"), *pipe = in_folder("a pipe");
    must(dt_io_mkdir(inner));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(dt_io_begin(&a, inner), DT_E_STORAGE);
    assert_int_equal(dt_io_end(&a, DT_E_STORAGE), DT_E_STORAGE);
    assert_int_equal(dt_io_write_file(pipe, "x", 1), DT_E_STORAGE); // nor renamed over
    assert_int_equal(n_names(), 3);
}

// A signal takes what is unfinished; a kill leaves it, until somebody looks who may remove it.
TEST_WITH(test_io_file_ended_by_a_signal, folder_make, folder_remove) {
    const char *file = in_folder("cut");
    dt_io_file f;
    int status;
    for (int killed = 0; killed < 2; killed++) {
        pid_t pid = fork();
        if (pid == 0) {
            dt_io_begin(&f, file);
            if (!killed) dt_io_remove_unfinished();
            raise(SIGKILL);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(n_names(), killed);
    }
    must(dt_io_begin(&f, file));
    must(dt_io_mkdir(in_folder("thesis.tmp.2024"))); // somebody's
    must(dt_io_remove_leftovers(folder_path, NULL));
    assert_int_equal(n_names(), 2); // ours, and theirs
    must(dt_io_end(&f, DT_OK));
    check_file(file, "");
}

TEST_WITH(test_failpoint_short_write, folder_make, folder_remove) {
    const char *file = in_folder("short");
    int fd;
    must(dt_io_create(&fd, file, false));
    must(dt_failpoint_set("io:1:short"));
    assert_int_equal(dt_io_write(fd, file, "12345678", 8), DT_E_STORAGE);
    must(dt_io_close(fd, file));
    check_file(file, "1234");
}

TEST_WITH(test_failpoint_scopes, folder_make, folder_remove) {
    const char *file = in_folder("scope");
    int fd;
    must(dt_failpoint_set("ckpt:2:eio,blink:3:eio"));
    must(dt_io_create(&fd, file, false));
    must(dt_io_write(fd, file, "a", 1));
    dt_io_scope_push("ckpt");
    dt_io_scope_push("inner");
    must(dt_io_write(fd, file, "b", 1));
    assert_int_equal(dt_io_write(fd, file, "c", 1), DT_E_STORAGE);
    must(dt_io_write(fd, file, "d", 1)); // only the n-th
    dt_io_scope_pop();
    dt_io_scope_pop();
    assert_int_equal(dt_failpoint_count(), 3);
    must(dt_io_close(fd, file));
    assert_int_equal(dt_failpoint_count(), 3);
    assert_false(dt_failpoint("blink"));
    assert_false(dt_failpoint("blink"));
    assert_true(dt_failpoint("blink"));
    assert_false(dt_failpoint("blink"));
    assert_false(dt_failpoint("other"));
    const char *wrong[] = {"io", "io:1", "io:x:eio", ":1:eio", "io:1:explode", "io:1:eio,zzz"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_int_equal(dt_failpoint_set(wrong[i]), DT_E_USAGE);
    dt_failpoint_set(NULL);
}

TEST_WITH(test_failpoint_kill, folder_make, folder_remove) {
    const char *file = in_folder("killed");
    pid_t pid = fork();
    if (pid == 0) {
        int fd;
        dt_failpoint_set("io:2:kill");
        dt_io_create(&fd, file, false);
        dt_io_write(fd, file, "x", 1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    check_file(file, "");
}

// It stops before the call, and makes it when it is let go on.
TEST_WITH(test_failpoint_stop, folder_make, folder_remove) {
    const char *file = in_folder("stopped");
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        int fd;
        dt_failpoint_set("io:2:stop");
        dt_io_create(&fd, file, false);
        dt_io_write(fd, file, "x", 1);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    check_file(file, "");
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    check_file(file, "x");
}

// -- lines -----------------------------------------------------------------------------------------
TEST_WITH(test_lines, folder_make, folder_remove) {
    enum { LONG = 5 << 20 }; // of which several parts are read
    dt_lines l;
    size_t n;
    const char *path = in_folder("grows");
    char *text = malloc(LONG + 16), *line;
    assert_false(dt_lines_open(&l, path, 0));
    assert_null(dt_lines_next(&l, &n));
    dt_lines_close(&l);
    assert_false(dt_lines_open(&l, folder_path, 0)); // no regular file
    memset(text, 'x', LONG);
    strcpy(text + LONG, "\n\ntail");
    must(dt_io_write_file(path, text, LONG + 6));
    assert_int_equal(symlink(path, in_folder("link")), 0);
    assert_false(dt_lines_open(&l, in_folder("link"), 0));
    assert_true(dt_lines_open(&l, path, 1));
    line = dt_lines_next(&l, &n);
    assert_int_equal(n, LONG - 1);
    assert_int_equal(strlen(line), n);
    assert_int_equal(l.at, LONG + 1);
    assert_string_equal(dt_lines_next(&l, &n), "");
    assert_null(dt_lines_next(&l, &n)); // its end is still to come
    FILE *f = fopen(path, "ae");
    fputs("!\n", f);
    fclose(f);
    assert_string_equal(dt_lines_next(&l, &n), "tail!");
    assert_int_equal(l.at, LONG + 8);
    assert_null(dt_lines_next(&l, &n));
    dt_lines_close(&l);
    free(text);
}

TEST_MAIN(NULL, NULL)
