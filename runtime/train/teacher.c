// teacher.c: see teacher.h.
#include "train/teacher.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "ckpt/ckpt.h"
#include "train/agree.h"
#include "train/class_names.h"
#include "train/state.h"

#include <stdlib.h>
#include <string.h>

static const char prefix[] = "teacher:"; // of names in the graph

// RUN, RUN@latest or RUN@STEP
static dt_status find_checkpoint(const char *named, int64_t *step, char **folder) {
    const char *at = dt_io_is_dir(named) ? NULL : strrchr(named, '@');
    char *run = at ? dt_xprintf("%.*s", (int)(at - named), named) : dt_xstrdup(named);
    const dt_status st = dt_ckpt_find_in_run(run, at ? at + 1 : NULL, step, folder);
    free(run);
    return st;
}

dt_status dt_teacher_open(dt_teacher *t, const dt_config *config, dt_comm *comm, bool *told) {
    dt_train_state state;
    char *text = NULL;
    int64_t step;
    dt_status st = DT_OK;
    if (!config->train.teacher) return DT_OK;
    dt_state_init(&state);
    if (comm->rank == 0) {
        st = find_checkpoint(config->train.teacher, &step, &t->folder);
        if (st == DT_OK) st = dt_state_read(&state, t->folder, step, &text);
        if (st != DT_OK)
            st = dt_fail_context(st, "%s: train.teacher",
                                 dt_config_where(config, DT_KEY(train.teacher)));
    }
    st = dt_agree_result(comm, st, &text, told);
    if (st == DT_OK && comm->rank > 0) st = dt_state_parse(&state, "state.json", text);
    if (st == DT_OK) {
        t->classes = dt_xstrdup(state.classes);
        t->step = state.step > 0 ? state.step - 1 : 0;
        t->total_steps = state.total_steps;
        t->steps_per_epoch = state.steps_per_epoch;
        st = dt_config_parse(&t->config, "the teacher's config", state.config, strlen(state.config),
                             NULL, 0);
    }
    dt_state_fini(&state);
    free(text);
    return st;
}

void dt_teacher_close(dt_teacher *t) {
    dt_config_destroy(t->config);
    free(t->classes);
    free(t->folder);
}

// ---- weights ---------------------------------------------------------------------------------------
static int list_tensors(const dt_params *p, float *master, float *buffer, dt_ckpt_tensor *out) {
    int n = 0;
    for (int i = 0; i < p->n_teacher_entries; i++) {
        const dt_param_entry *e = &p->entries[p->n_entries + i];
        out[n++] =
            (dt_ckpt_tensor){e->name + strlen(prefix), "model", e->shape, master + e->offset};
    }
    for (int i = 0; i < p->n_teacher_buffers; i++) {
        const dt_param_entry *e = &p->buffers[p->n_buffers + i];
        out[n++] =
            (dt_ckpt_tensor){e->name + strlen(prefix), "model", e->shape, buffer + e->offset};
    }
    return n;
}

dt_status dt_teacher_read(const dt_teacher *t, const dt_params *p, const dt_targets *targets,
                          const char *classes, float *master, float *buffer) {
    dt_ckpt_tensor *tensors =
        dt_xcalloc((size_t)(p->n_teacher_entries + p->n_teacher_buffers) + 1, sizeof *tensors);
    char *state = NULL;
    const int n = list_tensors(p, master, buffer, tensors);
    dt_status st = DT_OK;
    for (int i = 0; i < targets->n && st == DT_OK && classes; i++)
        st = dt_class_names_check(t->classes, classes, targets->items[i].field->name);
    if (st == DT_OK && dt_ckpt_load(t->folder, tensors, n, &state) != DT_OK)
        st = dt_fail_context(DT_E_CKPT, "train.teacher");
    free(state);
    free(tensors);
    return st;
}

uint64_t dt_teacher_hash(const dt_params *p, const float *master, const float *buffer) {
    uint64_t parts[2] = {0, 0};
    if (p->n_teacher_entries) {
        const int64_t at = p->entries[p->n_entries].offset;
        parts[0] = dt_hash64(master + at, sizeof *master * (size_t)(p->n_master - at));
    }
    if (p->n_teacher_buffers) {
        const int64_t at = p->buffers[p->n_buffers].offset;
        parts[1] = dt_hash64(buffer + at, sizeof *buffer * (size_t)(p->n_buffer - at));
    }
    return dt_hash64(parts, sizeof parts);
}
