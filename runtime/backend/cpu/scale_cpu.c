// scale_cpu.c: y = alpha x. Any layout, in place. Its gradient is a scale node.
#include "backend/cpu/custom_kernel.h"

typedef struct scale_state {
    int64_t n;
    dt_map map;
} scale_state;

static dt_status scale_cpu_prepare(dt_kernel_instance *s) {
    dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_instance_in(s, 0);
    scale_state *st = dt_custom_prepare(s, sizeof(*st));
    dt_map *m = &st->map;
    DT_TRY(dt_custom_type(s, &m->type, (const dt_value_info *[]){x, dt_instance_out(s, 0)}, 2));
    st->n = dt_layout_elements(layout, &x->shape);
    m->number = s->node->attrs.scale.alpha;
    m->unary = dt_simd_get()->elementwise->scale[m->type];
    s->in_layout[0] = s->out_layout[0] = layout;
    s->inplace_in = 0;
    return DT_OK;
}

static void scale_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const scale_state *st = s->state;
    dt_map m = st->map;
    m.y = r->out[0], m.x = r->in[0];
    dt_custom_map(s->threads, st->n, &m);
}

const dt_kernel dt_cpu_scale = {scale_cpu_prepare, scale_cpu_run, dt_custom_destroy};
