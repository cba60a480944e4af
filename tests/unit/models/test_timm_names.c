// test_timm_names.c: every registered network of timm that one of ours is, by the names and shapes of its tensors
// (tests/golden/timm_names.txt, which make_timm_names.py writes and explains).
#include "models/models.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MAX_TENSORS = 4096, LINE = 512 };

static dt_graph *make(const char *model, int side) {
    char text[1024];
    dt_config *c = NULL;
    snprintf(text, sizeof text,
             "{run: {name: t}, data: {path: x, fields: {image: {kind: image, size: [%d, %d]}, label: "
             "{kind: class, classes: 1000}}}, model: %s, train: {global_batch: 1, micro_batch: 1}}",
             side, side, model);
    must(dt_config_parse(&c, "test", text, strlen(text), NULL, 0));
    const dt_field_info fields[2] = {
        {.name = "image", .sample_shape = dt_shape3(side, side, 3), .dtype = DT_U8, .is_image = true, .std = {1, 1, 1}},
        {.name = "label", .dtype = DT_I32, .n_classes = 1000}};
    const dt_model_args a = {c, fields, 2, 1, false};
    dt_graph *g = NULL;
    must(dt_model_graph(&g, &a, DT_F32));
    dt_config_destroy(c);
    return g;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// The sorted lines that the golden file has the CRC-32 of.
static int list(const dt_graph *g, char **lines) {
    int n = 0;
    for (int i = 0; i < g->n_values; i++) {
        const dt_value_info *v = &g->values[i];
        if (v->kind != DT_V_PARAM && v->kind != DT_V_BUFFER) continue;
        char line[LINE];
        dt_shape s = v->shape;
        dt_graph_timms_name(g, v->name, line, sizeof line / 2, &s);
        for (int k = 0; k < s.n; k++)
            snprintf(line + strlen(line), sizeof line - strlen(line), "%c%d", k ? 'x' : ' ', (int)s.d[k]);
        assert_true(n < MAX_TENSORS);
        lines[n++] = dt_xprintf("%s\n", line);
    }
    qsort(lines, (size_t)n, sizeof *lines, by_text);
    return n;
}

static void check(const char *name, int want, uint32_t want_crc, int side, const char *model) {
    static char *lines[MAX_TENSORS];
    dt_graph *g = make(model, side);
    assert_true(dt_graph_is_timms(g));
    const int n = list(g, lines);
    uLong crc = 0;
    for (int i = 0; i < n; i++) crc = crc32(crc, (const Bytef *)lines[i], (uInt)strlen(lines[i]));
    if (n != want || (uint32_t)crc != want_crc) {
        for (int i = 0; i < n; i++) fputs(lines[i], stderr);
        fail_msg("%s: %d tensors, above, and timm has %d (make_timm_names.py %s prints them)", name, n, want, name);
    }
    for (int i = 0; i < n; i++) free(lines[i]);
    dt_graph_destroy(g);
}

TEST(names_and_shapes_are_timms) {
    const char *source = getenv("SOURCE");
    char path[4096], line[LINE], name[128], model[256];
    int n_networks = 0, n, side;
    unsigned crc;
    snprintf(path, sizeof path, "%s/tests/golden/timm_names.txt", source ? source : ".");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (*line == '#') continue;
        assert_int_equal(sscanf(line, "%127s %d %x %d %255[^\n]", name, &n, &crc, &side, model), 5);
        check(name, n, crc, side, model);
        n_networks++;
    }
    fclose(f);
    assert_true(n_networks > 50);
}

TEST_MAIN(NULL, NULL)
