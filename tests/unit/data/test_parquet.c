// Parquet: one table as several programs write it, images as Hugging Face keeps them, files that are refused.
#include "base/text.h"
#include "data/file/columnar.h"
#include "data/file/parquet_write.h"
#include "data/raw/raw.h"
#include "data/raw/table.h"
#include "folder.h"

#include <zstd.h>

static const char *golden(const char *name) {
    return dt_arena_printf(&folder_arena, "%s/tests/golden/parquet/%s", getenv("SOURCE"), name);
}

TEST(every_writer_gives_the_same_cells) {
    static const char *const FILES[] = {"pyarrow.parquet", "pyarrow_v2.parquet", "pyarrow_gzip.parquet",
                                        "pandas.parquet",  "polars.parquet",     "duckdb.parquet"};
    dt_table want, got;
    must(dt_table_read(&want, golden("table.csv")));
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        must(dt_table_read(&got, golden(FILES[i])));
        assert_int_equal(got.cells.n_columns, want.cells.n_columns);
        assert_int_equal(got.cells.n_rows, want.cells.n_rows);
        for (int c = 0; c < (int)want.cells.n_columns; c++) {
            const char *name = dt_columns_name(&want.cells, c);
            for (uint32_t r = 0; r < want.cells.n_rows; r++) {
                const char *a = dt_table_cell(&want, r, c), *b = dt_table_cell(&got, r, dt_table_find(&got, name));
                if (!a != !b || (a && strcmp(a, b) != 0))
                    fail_msg("%s: %s, row %u: '%s', not '%s'", FILES[i], name, r, b ? b : "none", a ? a : "none");
            }
        }
        dt_table_fini(&got);
    }
    dt_table_fini(&want);
}

TEST(images_are_members_and_labels_have_names) {
    const char *name = golden("images.parquet"), *twice[] = {name, name};
    dt_raw_opts o = {.files = (char *const *)(uintptr_t)twice, .n_files = 1};
    uint8_t head[5] = {0};
    dt_raw r;
    must(dt_raw_list(&r, twice[0], NULL, &o));
    assert_int_equal(r.n, 4);
    assert_string_equal(r.items[3].key, "0000003");
    assert_string_equal(r.items[3].ext, "image.png");
    assert_string_equal(r.items[3].name, "row 4");
    must(dt_raw_read(&r, &r.items[3], 0, head, 4));
    assert_memory_equal(head, "\x89PNG", 4);
    const int label = dt_columns_find(&r.table, "label", ~0u), path = dt_columns_find(&r.table, "image.path", ~0u);
    assert_string_equal(dt_columns_text(&r.table, label, r.items[1].row), "dog");
    assert_null(dt_columns_text(&r.table, label, r.items[2].row)); // -1: no label
    assert_string_equal(dt_columns_text(&r.table, path, r.items[2].row), "photos/2.png");
    assert_int_equal(dt_columns_find(&r.table, "boxes", ~0u), -1);
    dt_raw_fini(&r);
    o.n_files = 2;
    must_fail(DT_E_DATA, "would both be record images/0000000", dt_raw_list(&r, "*.parquet", NULL, &o));
    o.pattern = "{x}.png";
    must_fail(DT_E_USAGE, "--pattern and --group are for names of files", dt_raw_list(&r, "*.parquet", NULL, &o));
}

TEST(odd_types_are_read_or_left_out_by_name) {
    static const char *const CELLS[][2] = {{"pair.a", "1"},
                                           {"pair.b", NULL},
                                           {"half", "1.5"},
                                           {"u64", "18446744073709551615"},
                                           {"time", "01:02:03.000004"},
                                           {"zone", "1970-01-01T00:00:00Z"}};
    static const char *const UNREAD[][2] = {{"list", "a list"},
                                            {"map", "a map"},
                                            {"deep", "nested more than one level deep"},
                                            {"big", "decimals of more than 38 digits"}};
    dt_table t;
    dt_columnar *c;
    must(dt_table_read(&t, golden("odd.parquet")));
    assert_int_equal(t.cells.n_columns, 6); // without bytes, and a column without values
    for (size_t i = 0; i < sizeof CELLS / sizeof *CELLS; i++) {
        const char *text = dt_table_cell(&t, 0, dt_table_find(&t, CELLS[i][0]));
        assert_string_equal(text ? text : "", CELLS[i][1] ? CELLS[i][1] : "");
    }
    dt_table_fini(&t);
    must(dt_columnar_open(&c, golden("odd.parquet")));
    for (size_t i = 0; i < sizeof UNREAD / sizeof *UNREAD; i++) {
        uint32_t k = 0;
        while (k < c->n_columns && strcmp(c->columns[k].name, UNREAD[i][0]) != 0) k++;
        assert_int_equal(c->columns[k].type, DT_COLUMNAR_UNREAD);
        assert_string_equal(c->columns[k].what, UNREAD[i][1]);
    }
    dt_columnar_close(c);
    must(dt_columnar_open(&c, golden("int96.parquet")));
    assert_string_equal(c->columns[0].what, "INT96 timestamps");
    dt_columnar_close(c);
    must(dt_columnar_open(&c, golden("interval.parquet")));
    assert_int_equal(c->columns[0].type, DT_COLUMNAR_UNREAD);
    assert_string_equal(c->columns[0].what, "intervals");
    dt_columnar_close(c);
}

TEST(what_is_written_is_read_again) {
    enum { N = 70000 }; // more than a row group
    FILE *out = fopen(in_folder("own.parquet"), "wb");
    dt_parquet_writer *w = dt_parquet_writer_create(out);
    dt_table t;
    char text[32];
    dt_parquet_writer_add_column(w, "i", DT_PARQUET_INT);
    dt_parquet_writer_add_column(w, "f", DT_PARQUET_REAL);
    dt_parquet_writer_add_column(w, "s", DT_PARQUET_TEXT);
    for (int64_t i = 0; i < N; i++) {
        snprintf(text, sizeof text, "n\xff%d\n", (int)i);
        dt_parquet_writer_put(w, 0, i % 3 ? &(int64_t){i - 5} : NULL);
        dt_parquet_writer_put(w, 1, &(double){(double)i / 4});
        dt_parquet_writer_put(w, 2, i % 5 ? text : NULL);
        must(dt_parquet_writer_end_row(w));
    }
    must(dt_parquet_writer_close(w));
    fclose(out);
    must(dt_table_read(&t, in_folder("own.parquet")));
    assert_int_equal(t.cells.n_rows, N);
    assert_null(dt_table_cell(&t, N - 1, 0)); // 69,999 is a multiple of 3
    assert_string_equal(dt_table_cell(&t, N - 2, 0), "69993");
    assert_string_equal(dt_table_cell(&t, 7, 1), "1.75");
    assert_string_equal(dt_table_cell(&t, 8, 1), "2.0");
    assert_null(dt_table_cell(&t, 0, 2));
    assert_string_equal(dt_table_cell(&t, N - 1, 2), "n\xef\xbf\xbd"
                                                     "69999\n");
    dt_table_fini(&t);
    out = fopen("/dev/full", "wb");
    setbuf(out, NULL);
    must_fail(DT_E_STORAGE, "No space left", dt_parquet_writer_close(dt_parquet_writer_create(out)));
    fclose(out);
}

TEST(pages_that_are_read_again_take_bounded_memory) {
    enum { BYTES = 30 << 20, N = 12 };
    char *zeros = dt_xcalloc(BYTES, 1), packed[8192], byte = 1;
    const size_t n = ZSTD_compress(packed, sizeof packed, zeros, BYTES, 1);
    dt_columnar *c;
    must(dt_io_write_file(in_folder("zeros"), packed, n));
    must(dt_columnar_open(&c, golden("images.parquet")));
    dt_blob_close(&c->blob);
    must(dt_blob_open(&c->blob, in_folder("zeros")));
    for (int i = 0; i < N; i++) dt_columnar_keep(c, &(dt_columnar_page){0, (uint32_t)n, BYTES, DT_CODEC_ZSTD});
    for (int i = 0; i < 2 * N; i++) {
        size_t n_bytes = 0;
        must(dt_columnar_read(c, (uint32_t)(i * 5 % N), BYTES - 1, &byte, 1));
        assert_int_equal(byte, 0);
        for (int k = 0; k < DT_COLUMNAR_SLOTS; k++) n_bytes += c->slot[k].bytes.n_bytes;
        assert_true(n_bytes <= 128 << 20);
    }
    dt_columnar_close(c);
    free(zeros);
}

TEST(refused_files_are_named) {
    static const char *const WORDS[][2] = {
        {"refused_brotli.parquet", "column x is packed with brotli, which is not read"},
        {"refused_delta.parquet", "column x has encoding DELTA_BINARY_PACKED (5), which is not read"},
        {"cut.parquet", "no whole Parquet file"},
        {"short.parquet", "too short"},
        {"flowers.arrow", "Arrow IPC, which is not read: `to_parquet` of datasets or pandas makes .parquet of it"}};
    dt_table t;
    char *data;
    size_t n;
    must(dt_io_read_file(&data, &n, golden("pyarrow.parquet"), 0, DT_E_DATA));
    must(dt_io_write_file(in_folder("cut.parquet"), data, n - 1));
    must(dt_io_write_file(in_folder("short.parquet"), data, 8));
    must(dt_io_write_file(in_folder("flowers.arrow"), data, 8));
    free(data);
    // a page that would be a bomb takes no memory
    dt_columnar *c;
    dt_buffer out = {0};
    must(dt_columnar_open(&c, golden("pyarrow.parquet")));
    must_fail(DT_E_DATA, "a page of 9 bytes at byte 4 claims to hold 2147483647",
              dt_columnar_load(c, &(dt_columnar_page){4, 9, INT32_MAX, DT_CODEC_ZSTD}, &out));
    assert_null(out.data);
    must(dt_columnar_add_rows(c, 1 << 20));
    must_fail(DT_E_DATA, "or 2048 values for each of its bytes", dt_columnar_add_rows(c, 1 << 24));
    dt_columnar_close(c);
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        must_fail(DT_E_DATA, WORDS[i][1],
                  dt_table_read(&t, i < 2 ? golden(WORDS[i][0]) : in_folder("%s", WORDS[i][0])));
}

TEST_MAIN(folder_make, folder_remove)
