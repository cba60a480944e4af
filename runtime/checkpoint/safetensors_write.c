// safetensors_write.c: writes safetensors files of f32 tensors.
//
// Tensors are sorted by name, and the header is padded with spaces so that the data start at a multiple of
// 64 bytes. So a file's bytes depend on its tensors alone. A checkpoint builds order and header (the layout)
// at its first save and keeps them.
#include "base/arena.h"
#include "ckpt_internal.h"

#include <stdlib.h>
#include <string.h>

enum { DATA_ALIGN = 64 };

static int safetensors_write_by_name(const void *a, const void *b) {
    return strcmp((*(const dt_ckpt_tensor *const *)a)->name, (*(const dt_ckpt_tensor *const *)b)->name);
}

static size_t tensor_bytes(const dt_ckpt_tensor *t) {
    return (size_t)dt_shape_elements(&t->shape) * sizeof(float);
}

static void print_header(dt_json *j, const dt_safetensors_layout *l, const char *const *metadata) {
    int64_t at = 0;
    dt_json_begin_object(j, NULL);
    if (metadata && metadata[0]) {
        dt_json_begin_object(j, "__metadata__");
        for (int i = 0; metadata[i]; i += 2) dt_json_string(j, metadata[i], metadata[i + 1]);
        dt_json_end_object(j);
    }
    for (int i = 0; i < l->n; i++) {
        const dt_ckpt_tensor *t = l->sorted[i];
        dt_json_begin_object(j, t->name);
        dt_json_string(j, "dtype", "F32");
        dt_json_begin_array(j, "shape");
        for (int k = 0; k < t->shape.n; k++) dt_json_int(j, NULL, t->shape.d[k]);
        dt_json_end_array(j);
        dt_json_begin_array(j, "data_offsets");
        dt_json_int(j, NULL, at);
        dt_json_int(j, NULL, at += (int64_t)tensor_bytes(t));
        dt_json_end_array(j);
        dt_json_end_object(j);
    }
    dt_json_end_object(j);
}

dt_status dt_safetensors_layout_build(dt_safetensors_layout *l, const dt_ckpt_tensor *tensors, int n_tensors,
                                      const char *file, const char *const *metadata) {
    *l = (dt_safetensors_layout){0};
    l->sorted = dt_xcalloc((size_t)n_tensors + 1, sizeof *l->sorted);
    for (int i = 0; i < n_tensors; i++)
        if (!file || strcmp(tensors[i].file, file) == 0) l->sorted[l->n++] = &tensors[i];
    if (l->n) qsort(l->sorted, (size_t)l->n, sizeof *l->sorted, safetensors_write_by_name);
    for (int i = 1; i < l->n; i++)
        if (strcmp(l->sorted[i - 1]->name, l->sorted[i]->name) == 0)
            return dt_fail(DT_E_INTERNAL, "two tensors named '%s' in one checkpoint file", l->sorted[i]->name);

    dt_json j;
    dt_json_init(&j);
    print_header(&j, l, metadata);
    size_t n = dt_align_up(8 + j.n_bytes, DATA_ALIGN) - 8;
    l->head_bytes = 8 + n;
    l->head = dt_xcalloc(1, l->head_bytes);
    for (int i = 0; i < 8; i++) l->head[i] = (char)(n >> 8 * i);
    memset(l->head + 8, ' ', n);
    memcpy(l->head + 8, j.data, j.n_bytes);
    dt_json_fini(&j);
    return DT_OK;
}

void dt_safetensors_layout_fini(dt_safetensors_layout *l) {
    free(l->head);
    free(l->sorted);
    *l = (dt_safetensors_layout){0};
}

static dt_status put_tensors(dt_ckpt_writer *w, const dt_safetensors_layout *l, dt_ckpt_file *file) {
    DT_TRY(dt_ckpt_writer_put(w, l->head, l->head_bytes));
    for (int i = 0; i < l->n; i++) {
        const dt_ckpt_tensor *t = l->sorted[i];
        size_t n_bytes = tensor_bytes(t);
        if (file)
            file->ranges[file->n_ranges++] =
                (dt_ckpt_range){dt_xstrdup(t->name), w->n_bytes, n_bytes, dt_hash64(t->data, n_bytes)};
        DT_TRY(dt_ckpt_writer_put(w, t->data, n_bytes));
    }
    return DT_OK;
}

dt_status dt_safetensors_layout_write(const dt_safetensors_layout *l, const char *path, dt_ckpt_file *file) {
    dt_ckpt_writer w;
    uint64_t hash = 0;
    DT_TRY(dt_ckpt_writer_open(&w, path));
    if (file) file->ranges = dt_xcalloc((size_t)l->n + 1, sizeof *file->ranges);
    dt_status st = dt_ckpt_writer_finish(&w, put_tensors(&w, l, file), &hash);
    if (file) {
        file->n_bytes = w.n_bytes;
        file->hash = hash;
    }
    return st;
}

dt_status dt_safetensors_write(const char *path, const dt_ckpt_tensor *tensors, int n_tensors,
                               const char *const *metadata) {
    dt_safetensors_layout l;
    dt_status st = dt_safetensors_layout_build(&l, tensors, n_tensors, NULL, metadata);
    if (st == DT_OK) st = dt_safetensors_layout_write(&l, path, NULL);
    dt_safetensors_layout_fini(&l);
    return st;
}
