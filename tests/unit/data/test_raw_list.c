// Listing a folder by threads: what is a file and what is none, one order whoever finds what first.
#define _GNU_SOURCE
#include "data/raw/raw.h"
#include "data/source/source.h"
#include "data_fixture.h"
#include "testing.h"

#include <sys/stat.h>
#include <unistd.h>

enum { N_SMALL = 40, N_LARGE = 1500 };

static void put(const char *root, const char *name, size_t n_bytes) {
    char *path = dt_xprintf("%s/%s", root, name);
    fixture_write(path, "0123456789", n_bytes);
    free(path);
}

static void put_link(const char *root, const char *name, const char *to) {
    char *path = dt_xprintf("%s/%s", root, name);
    assert_int_equal(symlink(to, path), 0);
    free(path);
}

// Folders in folders, small ones and one large; names that agree in more than their first 16 bytes.
static size_t make_tree(const char *root) {
    size_t n = 0;
    char name[128];
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 6; b++)
            for (int i = 0; i < N_SMALL; i++, n++) {
                snprintf(name, sizeof name, "s%d/a-long-name-of-a-folder/%s%d/f%s%d.npy", a, b % 2 ? "t-" : "t", b,
                         i % 3 ? "-" : "", i);
                put(root, name, 1 + (size_t)i % 9);
            }
    for (int i = 0; i < N_LARGE; i++, n++) {
        snprintf(name, sizeof name, "large/deep/f%d.npy", i * 7919 % N_LARGE);
        put(root, name, 3);
    }
    return n;
}

static void must_list(dt_raw *r, const char *root) {
    must(dt_raw_list(r, root, NULL, NULL));
}

TEST(every_file_once_in_order) {
    const char *root = fixture_path("tree");
    size_t n = make_tree(root);
    uint64_t hash = 0;
    for (int k = 0; k < 5; k++) {
        dt_raw r;
        must_list(&r, root);
        assert_int_equal(r.n, n);
        for (size_t i = 1; i < r.n; i++) {
            char *a = dt_xprintf("%s.", r.items[i - 1].key), *b = dt_xprintf("%s.", r.items[i].key);
            assert_true(strcmp(a, b) < 0);
            free(a), free(b);
        }
        for (size_t i = 0; i < r.n; i++) {
            struct stat s;
            char *path = dt_raw_path(&r, &r.items[i]);
            assert_int_equal(stat(path, &s), 0);
            assert_int_equal(r.items[i].size, s.st_size);
            free(path);
        }
        if (k > 0) assert_true(r.hash == hash);
        hash = r.hash;
        dt_raw_fini(&r);
    }
}

TEST(what_is_no_file_is_left_out) {
    const char *root = fixture_path("kinds");
    dt_raw r;
    put(root, "a/one.npy", 5);
    put(root, "a/.hidden.npy", 5);
    put(root, "a/.git/two.npy", 5);
    put(root, "a/zz.npy", 0);
    put(root, "a/none.npy", 0);
    put(root, "a/notes.xyz", 5);
    put(folder_path, "outside.npy", 7);
    put_link(root, "a/link.npy", fixture_path("outside.npy"));
    put(root, "a/@eaDir/one.npy/SYNOFILE_THUMB_M.npy", 5);
    put(root, "lost+found/five.npy", 5);
    put(root, "a/photo.HEIC", 5);
    put_link(root, "a/gone.npy", "nowhere");
    must_list(&r, root);
    assert_int_equal(r.n, 2);
    assert_string_equal(r.items[0].name, "a/link.npy");
    assert_int_equal(r.items[0].size, 7);
    assert_string_equal(r.items[1].name, "a/one.npy");
    char *text = dt_raw_describe_left_out(&r);
    assert_string_equal(text, "4 hidden (a/.git), 1 no samples (a/notes.xyz), 1 of kinds that are "
                              "not read (a/photo.HEIC; heic: heif-convert makes .jpg of it), "
                              "2 empty (a/none.npy), 1 links that lead to no file (a/gone.npy)");
    free(text);
    dt_raw_fini(&r);
}

// Numbers below a line of names: series of their own, tables beside other data.
TEST(tables_of_numbers_are_series) {
    const char *root = fixture_path("named");
    static const char *const FILES[][2] = {{"named/b/two.tsv", "x\ty\n1.5\t-2\n"},
                                           {"named/a/one.csv", "x,y\n1,2\n3,nan\n"},
                                           {"named/a/words.csv", "file,label\n1,cat\n"},
                                           {"named/a/notes.txt", "2 files\n1\n"}};
    dt_raw r;
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
        fixture_write(fixture_path(FILES[i][0]), FILES[i][1], strlen(FILES[i][1]));
    must_list(&r, fixture_path(FILES[1][0])); // alone: no list
    assert_int_equal(r.n, 1);
    dt_raw_fini(&r);
    must_list(&r, root);
    assert_int_equal(r.n, 2);
    assert_string_equal(r.items[0].name, "a/one.csv");
    assert_string_equal(r.items[1].name, "b/two.tsv");
    assert_int_equal(r.n_classes, 2);
    dt_raw_fini(&r);
    put(root, "c/three.npy", 5);
    must_list(&r, root);
    assert_int_equal(r.n, 1);
    char *text = dt_raw_describe_left_out(&r);
    assert_string_equal(text, "4 no samples (a/notes.txt)");
    free(text);
    dt_raw_fini(&r);
}

// A class folder may be a link, and lead through others; one into its own folder would never end.
TEST(links_to_folders_are_followed) {
    const char *root = fixture_path("linked");
    dt_raw r;
    put(folder_path, "elsewhere/x.npy", 6);
    put(root, "cat/a.npy", 5);
    put_link(root, "dog", "../elsewhere");
    put_link(root, "fox", "dog");
    must_list(&r, root);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.n_classes, 3);
    assert_string_equal(r.items[1].name, "dog/x.npy");
    assert_int_equal(r.items[1].size, 6);
    assert_string_equal(r.items[2].name, "fox/x.npy");
    dt_raw_fini(&r);
    put_link(folder_path, "elsewhere/back", "../linked/dog");
    must_fail(DT_E_DATA, "back: a link to ", dt_raw_list(&r, root, NULL, NULL));
    assert_non_null(strstr(dt_error_message(), "/linked/dog/, the folder that it lies in"));
}

// Whichever file was found first: in one class folder, and one beside a folder in it, which is no class folder then.
TEST(one_class_folder) {
    const char *root = fixture_path("class");
    dt_raw r;
    put(root, "all/cats/one.npy", 5);
    put(root, "all/cats/two.npy", 5);
    must_list(&r, root);
    assert_int_equal(r.n_classes, 1);
    dt_raw_fini(&r);
    put(root, "all/cats/more/three.npy", 5);
    for (int k = 0; k < 2; k++) { // readdir gives the last or the first one first
        must_fail(DT_E_USAGE, "all/cats/one.npy: is not in a class folder", dt_raw_list(&r, root, NULL, NULL));
        put(root, "all/cats/a/four.npy", 5);
        put(root, "all/cats/z/five.npy", 5);
    }
    // as a list has it, the order is given
    static const char *const LISTS[] = {"all/cats/one.npy\nall/cats/more/three.npy\n",
                                        "all/cats/more/three.npy\nall/cats/one.npy\n"};
    for (int k = 0; k < 2; k++) {
        const char *list = fixture_path("class/list.txt");
        fixture_write(list, LISTS[k], strlen(LISTS[k]));
        must_fail(DT_E_USAGE, "all/cats/one.npy: is not in a class folder", dt_raw_list(&r, list, NULL, NULL));
    }
}

// A set of them would be read without these records.
TEST(names_that_tools_keep_are_refused) {
    static const char *const ALL[] = {"__x__/one.npy", "__meta__.npy"};
    static const char *const GOOD[] = {"__x/one.npy", "a/__meta__.npy", "b/c.__x__.npy"};
    dt_raw r;
    for (size_t i = 0; i < 2; i++) {
        const char *root = fixture_path(i ? "kept1" : "kept0");
        put(root, ALL[i], 5);
        put(root, i ? "two.npy" : "y/two.npy", 5);
        must_fail(DT_E_DATA, i ? "record __meta__: " : "record __x__/one: ", dt_raw_list(&r, root, NULL, NULL));
    }
    for (size_t i = 0; i < 3; i++) put(fixture_path("free"), GOOD[i], 5);
    must_list(&r, fixture_path("free"));
    assert_int_equal(r.n, 3);
    dt_raw_fini(&r);
}

TEST(folders_have_a_depth) {
    const char *root = fixture_path("deep");
    dt_buffer name = {0};
    dt_raw r;
    for (int i = 0; i < 64; i++) dt_buffer_append(&name, "d/", 2);
    dt_buffer_append(&name, "x.npy", 6);
    put(root, (char *)name.data, 4);
    must_list(&r, root);
    assert_int_equal(r.n, 1);
    dt_raw_fini(&r);
    char *deeper = dt_xprintf("d/%s", (char *)name.data);
    put(root, deeper, 4);
    must_fail(DT_E_DATA, "nested too deeply", dt_raw_list(&r, root, NULL, NULL));
    free(deeper);
    dt_buffer_fini(&name);
}

// A file that is neither list nor tar is told by what it is, to who packs it and to who opens it as a set.
// A file that can be a record is a list of itself.
TEST(one_file) {
    static const struct {
        const char *name, *head, *error;
    } FILES[] = {{"one.jpg", "\xff\xd8\xff\xe0", NULL},
                 {"one.wav", "RIFF....WAVEfmt ", NULL},
                 {"one.npy", "\x93NUMPY", NULL},
                 {"one.gif", "GIF89a", "one file of kind gif"},
                 {"one.nii.gz", "\x1f\x8b", "one file of kind nii, which is not read: nibabel"},
                 {"one.DCM", "x", "one file of kind dcm, which is not read: dcmtk"}};
    dt_raw r;
    dt_reader *s;
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        const char *path = fixture_path(FILES[i].name);
        fixture_write(path, FILES[i].head, strlen(FILES[i].head));
        if (!FILES[i].error) {
            must(dt_raw_list(&r, path, NULL, NULL));
            assert_int_equal(r.n, 1);
            assert_string_equal(r.items[0].name, FILES[i].name);
            dt_raw_fini(&r);
            continue;
        }
        must_fail(DT_E_DATA, FILES[i].error, dt_raw_list(&r, path, NULL, NULL));
        must_fail(DT_E_DATA, FILES[i].error, dt_reader_open(&s, &path, 1));
    }
}

// A folder of nothing else is refused with what converts such files; a list is, too.
TEST(kinds_that_are_not_read) {
    uint8_t head[132] = {0};
    dt_raw r;
    memcpy(head + 128, "DICM", 4);
    fixture_write(fixture_path("scans/a/IM0001"), (char *)head, sizeof head);
    must_fail(DT_E_DATA, "holds no data files; left out: 1 of kinds that are not read (a/IM0001; dcm: dcmtk",
              dt_raw_list(&r, fixture_path("scans"), NULL, NULL));
    fixture_write(fixture_path("scans/b.nii.gz"), "\x1f\x8b", 2);
    fixture_write(fixture_path("scans/list.txt"), "b.nii.gz\n", 9);
    must_fail(DT_E_DATA, "list.txt:1: b.nii.gz is of kind nii, which is not read: nibabel",
              dt_raw_list(&r, fixture_path("scans/list.txt"), NULL, NULL));
}

// A lack of descriptors is no fault of the folder or of a file in it.
TEST(no_descriptor_is_no_bad_folder) {
    const char *root = fixture_path("few");
    char byte[8];
    dt_raw r;
    put(root, "a/one.npy", 5);
    for (int n_more = 0; n_more < 2; n_more++) { // not the folder, nor what is in it
        fixture_few_files(n_more);
        dt_status st = dt_raw_list(&r, root, NULL, NULL);
        fixture_many_files();
        must_fail(DT_E_STORAGE, "/few", st);
        assert_non_null(strstr(dt_error_message(), "raise the limit on open files"));
    }
    must_list(&r, root);
    fixture_few_files(0);
    dt_status st = dt_raw_read(&r, &r.items[0], 0, byte, 5);
    fixture_many_files();
    must_fail(DT_E_STORAGE, "/few/a/one.npy: cannot open: ", st);
    dt_raw_fini(&r);
}

static void expect_closed(const char *root, const char *path) {
    dt_raw r;
    fixture_begin_user();
    dt_status st = dt_raw_list(&r, root, NULL, NULL);
    fixture_end_user();
    assert_int_equal(st, DT_E_DATA);
    if (!strstr(dt_error_message(), path) || !strstr(dt_error_message(), "leave to read"))
        fail_msg("%s", dt_error_message());
    assert_int_equal(chmod(path, 0755), 0);
}

// What may not be read may be data: it is not left out without a word.
TEST(what_may_not_be_read_is_told) {
    const char *root = fixture_path("closed");
    dt_raw r;
    if (!fixture_has_user()) skip();
    put(root, "open/one.npy", 5);
    put(root, "shut/two.npy", 5);
    put(root, "open/three", 5);          // only its first bytes say what it is
    put(root, "lost+found/four.npy", 5); // none of the user's, and never readable
    assert_int_equal(chmod(fixture_path("closed/lost+found"), 0), 0);
    assert_int_equal(chmod(root, 0), 0);
    expect_closed(root, root);
    assert_int_equal(chmod(fixture_path("closed/shut"), 0), 0);
    expect_closed(root, fixture_path("closed/shut"));
    assert_int_equal(chmod(fixture_path("closed/open/three"), 0), 0);
    expect_closed(root, fixture_path("closed/open/three"));
    must_list(&r, root);
    assert_int_equal(r.n, 2);
    dt_raw_fini(&r);
}

TEST_MAIN(folder_make, fixture_tear_down)
