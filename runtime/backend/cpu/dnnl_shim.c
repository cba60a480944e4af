// dnnl_shim.c: oneDNN 2.6 and 3.x behind dnnl_shim.h. All version differences are in the first half
// (descriptors, attributes, make_*_pd); the rest is common.
//
// One engine serves the process and is never destroyed. A memory object belongs to one replica of one op, and
// a run changes nothing but its data handle.
#include "backend/cpu/dnnl_shim.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "graph/activation_words.h"

#include <oneapi/dnnl/dnnl.h>

#include <assert.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if DNNL_VERSION_MAJOR >= 3
#define DT_DNNL_V3 1 // descriptors are handles from oneDNN 3 on, values before
typedef const_dnnl_memory_desc_t md_handle;
#else
#define DT_DNNL_V3 0
typedef const dnnl_memory_desc_t *md_handle;
#endif

enum { MAX_ARGS = 4 };

struct dt_dnnl_op {
    dnnl_primitive_desc_t pd; // query handle: layouts, implementation
    dnnl_primitive_t primitive;
    int threads, n_replicas, n_args;
    int arg_id[MAX_ARGS]; // DNNL_ARG_… by the header's order of arguments
    float *scales;        // oneDNN 3: an argument behind those of the caller; NULL: there is none
    int64_t n_scales;
    size_t scratch_bytes;   // bytes, given by the caller at each run
    dnnl_stream_t *stream;  // [replica]
    dnnl_exec_arg_t *args;  // [replica][n_slots]; behind the arguments the scales, then the scratchpad
    const void **last_data; // [replica][n_slots]: what the memory object points to now
};

static int n_slots(const dt_dnnl_op *op) {
    return op->n_args + (op->scales != NULL) + 1; // + 1: the scratchpad, also where it is empty
}

static dnnl_engine_t the_engine; // written once, under engine_once
static pthread_once_t engine_once = PTHREAD_ONCE_INIT;

static void create_engine(void) {
    if (dnnl_engine_create(&the_engine, dnnl_cpu, 0) != dnnl_success) the_engine = NULL; // checked by parts_init
}

static void use_threads(int n) {
    if (omp_get_max_threads() != n) omp_set_num_threads(n);
}

static dt_status dnnl_shim_check(dnnl_status_t s, const char *what) {
    if (s == dnnl_success) return DT_OK;
    static const char *const names[] = {"success",       "out of memory", "invalid arguments", "not supported",
                                        "iterator ends", "runtime error", "not required"};
    // dnnl_status_t, in its order
    const char *name = (unsigned)s < sizeof names / sizeof *names ? names[s] : "unknown status";
    return dt_fail(DT_E_INTERNAL, "oneDNN %s: %s: %s", dt_dnnl_version(), what, name);
}

// ---- tensors by value ---------------------------------------------------------------------------
static dt_dnnl_tensor dnnl_shim_tensor_of(dt_dnnl_format format, dt_dtype type, int n, const int64_t *d) {
    dt_dnnl_tensor t = {.format = format, .type = type, .n = n};
    for (int i = 0; i < n; i++) t.d[i] = d[i];
    return t;
}

dt_dnnl_tensor dt_dnnl_any(dt_dtype type, int n, const int64_t *d) {
    return dnnl_shim_tensor_of(DT_DNNL_ANY, type, n, d);
}

dt_dnnl_tensor dt_dnnl_dense(dt_dtype type, int n, const int64_t *d) {
    dt_dnnl_tensor t = dnnl_shim_tensor_of(DT_DNNL_LAYOUT, type, n, d);
    t.layout = dt_dense();
    return t;
}

dt_dnnl_tensor dt_dnnl_matrix(dt_dtype type, int64_t rows, int64_t cols) {
    return dt_dnnl_dense(type, 2, (int64_t[]){rows, cols});
}

dt_dnnl_tensor dt_dnnl_transposed(dt_dtype type, int64_t rows, int64_t cols) {
    return (dt_dnnl_tensor){.format = DT_DNNL_STRIDED, .type = type, .n = 2, .d = {rows, cols}, .stride = {1, rows}};
}

dt_dnnl_tensor dt_dnnl_laid_out(dt_dtype type, const dt_shape *s, dt_layout l) {
    dt_dnnl_tensor t = dnnl_shim_tensor_of(DT_DNNL_LAYOUT, type, s->n, s->d);
    t.layout = l;
    return t;
}

dt_dnnl_tensor dt_dnnl_like(dt_dnnl_md md) {
    return (dt_dnnl_tensor){.format = DT_DNNL_LIKE, .like = md};
}

static dnnl_data_type_t dnnl_shim_data_type(dt_dtype t) {
    switch (t) {
    case DT_F32:
        return dnnl_f32;
    case DT_BF16:
        return dnnl_bf16;
    case DT_F16:
        return dnnl_f16;
    case DT_I32:
        return dnnl_s32;
    case DT_I8:
        return dnnl_s8;
    case DT_U8:
    case DT_DTYPE_COUNT:
        break;
    }
    return dnnl_u8; // also a type that cannot come here
}

static dnnl_format_tag_t layout_tag(dt_layout l, int n) {
    // by number of dimensions
    static const dnnl_format_tag_t dense[] = {dnnl_a, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    if (l.kind == DT_DENSE) return dense[n];
    assert(n == 4); // images only
    if (l.kind == DT_NHWC) return dnnl_nhwc;
    return l.block == 16 ? dnnl_nChw16c : l.block == 8 ? dnnl_nChw8c : dnnl_nChw4c;
}

// ---- descriptors: the two versions --------------------------------------------------------------
// a descriptor, or none, with one interface for both versions
typedef struct md_box {
    dnnl_memory_desc_t md;
    bool present;
} md_box;

#if DT_DNNL_V3
static md_handle box_get(const md_box *b) {
    return b->present ? b->md : NULL;
}
static void box_fini(md_box *b) {
    if (b->present) dnnl_memory_desc_destroy(b->md);
}
static dnnl_status_t box_clone(md_box *b, md_handle from) {
    return dnnl_memory_desc_clone(&b->md, from);
}
#define MD_BY_STRIDES dnnl_memory_desc_create_with_strides
#define MD_BY_TAG     dnnl_memory_desc_create_with_tag
#else
static md_handle box_get(const md_box *b) {
    return b->present ? &b->md : NULL;
}
static void box_fini(md_box *b) {
    b->present = false;
}
static dnnl_status_t box_clone(md_box *b, md_handle from) {
    b->md = *from;
    return dnnl_success;
}
#define MD_BY_STRIDES dnnl_memory_desc_init_by_strides
#define MD_BY_TAG     dnnl_memory_desc_init_by_tag
#endif

static dt_status box_init(md_box *b, const dt_dnnl_tensor *t) {
    *b = (md_box){.present = false};
    dnnl_status_t s = dnnl_success;
    dnnl_dims_t d, st; // oneDNN's arrays have 12 entries
    for (int i = 0; i < t->n; i++) {
        d[i] = t->d[i];
        st[i] = t->stride[i];
    }
    switch (t->format) {
    case DT_DNNL_ABSENT:
        return DT_OK; // an argument that the primitive lacks
    case DT_DNNL_ANY:
        s = MD_BY_TAG(&b->md, t->n, d, dnnl_shim_data_type(t->type), dnnl_format_tag_any); // the primitive chooses
        break;
    case DT_DNNL_LAYOUT:
        s = MD_BY_TAG(&b->md, t->n, d, dnnl_shim_data_type(t->type), layout_tag(t->layout, t->n));
        break;
    case DT_DNNL_STRIDED:
        s = MD_BY_STRIDES(&b->md, t->n, d, dnnl_shim_data_type(t->type), st);
        break;
    case DT_DNNL_PAIRS:
        // blocks of 32 x 64 whose rows come in pairs: what bf16 dot products read
        s = MD_BY_TAG(&b->md, t->n, d, dnnl_shim_data_type(t->type), dnnl_BA16a64b2a);
        break;
    case DT_DNNL_LIKE:
        s = box_clone(b, (md_handle)t->like); // clones: the original belongs to a primitive
        break;
    }
    b->present = s == dnnl_success;
    return dnnl_shim_check(s, "memory descriptor");
}

typedef struct attr_opts {
    float alpha; // factor of the product
    dt_dnnl_after after;
    int scales_mask; // v3: of the weights' dimension that is the output channel's
} attr_opts;

static dnnl_status_t append_eltwise(dnnl_post_ops_t po, dnnl_alg_kind_t alg, float alpha) {
#if DT_DNNL_V3
    return dnnl_post_ops_append_eltwise(po, alg, alpha, 0.0f);
#else
    return dnnl_post_ops_append_eltwise(po, 1.0f, alg, alpha, 0.0f); // 1.0: scale, which version 3 dropped
#endif
}

static dnnl_status_t append_sum(dnnl_post_ops_t po, const dt_dnnl_after *a) {
    const dnnl_data_type_t t =
        dt_dtype_is_float(a->add_type) ? dnnl_data_type_undef : dnnl_shim_data_type(a->add_type); // as dst
#if DT_DNNL_V3
    return dnnl_post_ops_append_sum(po, a->add, 0, t); // 0: zero point
#else
    return dnnl_post_ops_append_sum_v2(po, a->add, t);
#endif
}

static dnnl_status_t append_act(dnnl_post_ops_t po, dt_activation act) {
    switch ((enum dt_activation_word)act) {
    case DT_ACTIVATION_none:
        return dnnl_success;
    case DT_ACTIVATION_relu:
        return append_eltwise(po, dnnl_eltwise_relu, 0);
    case DT_ACTIVATION_gelu:
        return append_eltwise(po, dnnl_eltwise_gelu_erf, 0);
    case DT_ACTIVATION_gelu_tanh:
        return append_eltwise(po, dnnl_eltwise_gelu_tanh, 0);
    // listed, so that a new activation is decided here
    case DT_ACTIVATION_sigmoid: // passes fuse none of these
    case DT_ACTIVATION_hardsigmoid:
    case DT_ACTIVATION_silu:
    case DT_ACTIVATION_hardswish:
    case DT_ACTIVATION_relu6:
    case DT_ACTIVATION_tanh:
    case DT_ACTIVATION_softplus:
    case DT_ACTIVATION_erf:
    case DT_ACTIVATION_heaviside:
    case DT_ACTIVATION_leaky_relu:
    case DT_ACTIVATION_elu:
    case DT_N_ACTIVATIONS:
        break;
    }
    return dnnl_unimplemented; // never reached: passes fuse the first three only
}

static dnnl_status_t set_scales(dnnl_primitive_attr_t attr, const attr_opts *o) {
#if DT_DNNL_V3
    // values come as an argument at execution
    return dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_WEIGHTS, o->scales_mask);
#else
    // mask 2: along dst's channels
    return dnnl_primitive_attr_set_output_scales(attr, o->after.n_scales, 2, o->after.scales);
#endif
}

bool dt_dnnl_scales_bias(void) {
    return !DT_DNNL_V3; // version 2 scales the result with its bias, version 3 the weights alone
}

static dnnl_status_t set_alpha(dnnl_primitive_attr_t attr, dnnl_post_ops_t po, float alpha) {
#if DT_DNNL_V3
    return append_eltwise(po, dnnl_eltwise_linear, alpha); // no scale of the output in version 3
#else
    return dnnl_primitive_attr_set_output_scales(attr, 1, 0, &alpha);
#endif
}

static dt_status make_attr(dnnl_primitive_attr_t *out, const attr_opts *o) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t po = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(&attr);
    // dtrain owns scratch: counted, and shared between ops
    if (s == dnnl_success) s = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success) s = dnnl_post_ops_create(&po);
    // order of post-ops: alpha, scales, residual, activation, factor
    if (s == dnnl_success && o->alpha != 1.0f) s = set_alpha(attr, po, o->alpha);
    if (s == dnnl_success && o->after.scales) s = set_scales(attr, o);
    if (s == dnnl_success && o->after.add != 0) s = append_sum(po, &o->after);
    if (s == dnnl_success) s = append_act(po, o->after.act);
    if (s == dnnl_success && o->after.times != 0 && o->after.times != 1)
        s = append_eltwise(po, dnnl_eltwise_linear, o->after.times);
    if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(attr, po); // copied into attr
    if (po) dnnl_post_ops_destroy(po);
    if (s != dnnl_success && attr) {
        dnnl_primitive_attr_destroy(attr);
        attr = NULL;
    }
    *out = attr;
    return dnnl_shim_check(s, "attributes");
}

typedef struct op_mds {
    md_handle src, weights, bias, dst; // by role, not by direction: diff_src is in src
} op_mds;

static const char *impl_of(const_dnnl_primitive_desc_t pd) {
    const char *name = "?";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);
    return name;
}

static dnnl_status_t make_conv_pd(dnnl_primitive_desc_t *pd, dt_dnnl_direction dir, const dt_dnnl_conv *c,
                                  const op_mds *m, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint) {
    dnnl_dims_t st = {c->stride[0], c->stride[1]};
    dnnl_dims_t dil = {c->dilation[0] - 1, c->dilation[1] - 1}; // oneDNN counts dilation from 0
    dnnl_dims_t p0 = {c->pad_begin[0], c->pad_begin[1]}, p1 = {c->pad_end[0], c->pad_end[1]};
    const dnnl_alg_kind_t alg = dnnl_convolution_direct; // Winograd is own_conv.h's
// version 3: one call; version 2: an operation descriptor first
#if DT_DNNL_V3
    if (dir == DT_DNNL_BACKWARD_DATA) {
        return dnnl_convolution_backward_data_primitive_desc_create(pd, the_engine, alg, m->src, m->weights, m->dst, st,
                                                                    dil, p0, p1, hint, attr);
    }
    if (dir == DT_DNNL_BACKWARD_WEIGHTS) {
        dnnl_status_t s = dnnl_convolution_backward_weights_primitive_desc_create(
            pd, the_engine, alg, m->src, m->weights, m->bias, m->dst, st, dil, p0, p1, hint, attr);
        // wrong sums where a depthwise convolution has strides and padding (oneDNN's issue 4124)
        while (s == dnnl_success && strcmp(impl_of(*pd), "jit_dw:sve_256") == 0) s = dnnl_primitive_desc_next_impl(*pd);
        return s;
    }
    return dnnl_convolution_forward_primitive_desc_create(pd, the_engine, dnnl_forward_training, alg, m->src,
                                                          m->weights, m->bias, m->dst, st, dil, p0, p1, attr);
#else
    dnnl_convolution_desc_t d;
    dnnl_status_t s;
    if (dir == DT_DNNL_BACKWARD_DATA) {
        s = dnnl_dilated_convolution_backward_data_desc_init(&d, alg, m->src, m->weights, m->dst, st, dil, p0, p1);
    } else if (dir == DT_DNNL_BACKWARD_WEIGHTS) {
        s = dnnl_dilated_convolution_backward_weights_desc_init(&d, alg, m->src, m->weights, m->bias, m->dst, st, dil,
                                                                p0, p1);
    } else {
        s = dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, alg, m->src, m->weights, m->bias,
                                                       m->dst, st, dil, p0, p1);
    }
    // hint: the forward primitive, for backward
    return s != dnnl_success ? s : dnnl_primitive_desc_create(pd, &d, attr, the_engine, hint);
#endif
}

static dnnl_status_t make_matmul_pd(dnnl_primitive_desc_t *pd, const op_mds *m, dnnl_primitive_attr_t attr) {
#if DT_DNNL_V3
    return dnnl_matmul_primitive_desc_create(pd, the_engine, m->src, m->weights, m->bias, m->dst, attr);
#else
    dnnl_matmul_desc_t d;
    dnnl_status_t s = dnnl_matmul_desc_init(&d, m->src, m->weights, m->bias, m->dst);
    return s != dnnl_success ? s : dnnl_primitive_desc_create(pd, &d, attr, the_engine, NULL);
#endif
}

size_t dt_dnnl_md_bytes(dt_dnnl_md md) {
    return dnnl_memory_desc_get_size((md_handle)md);
}

bool dt_dnnl_md_is(dt_dnnl_md md, const dt_dnnl_tensor *t) {
    md_box b;
    if (box_init(&b, t) != DT_OK) return false; // unequal to what cannot be described
    bool equal = b.present && dnnl_memory_desc_equal((md_handle)md, box_get(&b));
    box_fini(&b);
    return equal;
}

#if DT_DNNL_V3 && DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR < 4
// Versions before 3.4 have no blob. So this hashes what determines where an element of a blocked layout lies.
// An opaque layout equals only itself.
static uint64_t hash_queries(md_handle md) {
    static const dnnl_query_t lists[] = {dnnl_query_dims, dnnl_query_padded_dims, dnnl_query_strides,
                                         dnnl_query_inner_blks, dnnl_query_inner_idxs};
    struct {
        int n_dims, n_blocks;
        dnnl_data_type_t type;
        dnnl_dims_t list[5];
    } all;
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    dnnl_memory_desc_query(md, dnnl_query_format_kind, &kind);
    if (kind != dnnl_blocked) return dt_hash64(&md, sizeof md); // the address: equal only to itself
    memset(&all, 0, sizeof all);                                // padding bytes are hashed as well
    dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &all.n_dims);
    dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &all.n_blocks);
    dnnl_memory_desc_query(md, dnnl_query_data_type, &all.type);
    for (int i = 0; i < 5; i++) {
        const dnnl_dims_t *list = NULL;
        const int n = i < 3 ? all.n_dims : all.n_blocks; // dims have n_dims entries, blocks n_blocks
        if (dnnl_memory_desc_query(md, lists[i], &list) == dnnl_success && list)
            memcpy(all.list[i], *list, (size_t)n * sizeof(dnnl_dim_t));
    }
    return dt_hash64(&all, sizeof all);
}
#endif

uint64_t dt_dnnl_md_hash(dt_dnnl_md md) {
#if DT_DNNL_V3 && DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR < 4
    return hash_queries((md_handle)md);
#elif DT_DNNL_V3
    uint8_t blob[4096];
    size_t n = 0;
    if (dnnl_memory_desc_get_blob(NULL, &n, (md_handle)md) != dnnl_success || n > sizeof blob) return 0;
    dnnl_memory_desc_get_blob(blob, &n, (md_handle)md);
    return dt_hash64(blob, n);
#else
    return dt_hash64(md, sizeof(dnnl_memory_desc_t)); // a value without pointers
#endif
}

// ---- ops: common to both ------------------------------------------------------------------------
static dt_status init_scales(const dt_dnnl_op *op, dnnl_exec_arg_t *arg) {
    md_box b;
    const dt_dnnl_tensor t = dt_dnnl_dense(DT_F32, 1, &op->n_scales);
    DT_TRY(box_init(&b, &t));
#if DT_DNNL_V3
    arg->arg = DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS; // version 3: scales are an argument
#endif
    dt_status st =
        dnnl_shim_check(dnnl_memory_create(&arg->memory, box_get(&b), the_engine, op->scales), "memory of scales");
    box_fini(&b);
    return st;
}

static dt_status init_replica(dt_dnnl_op *op, int replica) {
    dnnl_exec_arg_t *args = op->args + replica * n_slots(op);
    DT_TRY(dnnl_shim_check(dnnl_stream_create(&op->stream[replica], the_engine, dnnl_stream_default_flags), "stream"));
    for (int i = 0; i < op->n_args; i++) {
        args[i].arg = op->arg_id[i];
        DT_TRY(dnnl_shim_check(
            dnnl_memory_create(&args[i].memory, (md_handle)dt_dnnl_op_md(op, i), the_engine, DNNL_MEMORY_NONE),
            "memory")); // NONE: the pointer comes with the run
    }
    if (op->scales) DT_TRY(init_scales(op, &args[op->n_args]));
    if (!op->scratch_bytes) return DT_OK;
    args += n_slots(op) - 1; // the last slot
    args->arg = DNNL_ARG_SCRATCHPAD;
    md_handle md = (md_handle)dnnl_primitive_desc_query_md(op->pd, dnnl_query_scratchpad_md, 0);
    return dnnl_shim_check(dnnl_memory_create(&args->memory, md, the_engine, DNNL_MEMORY_NONE), "memory");
}

// Owns `pd`, also on failure.
static dt_status finish_op(dt_dnnl_op **out, const dt_dnnl_env *e, dnnl_primitive_desc_t pd, const int *arg_id,
                           int n_args, const attr_opts *o) {
    dt_dnnl_op *op = dt_xcalloc(1, sizeof *op);
    op->pd = pd;
    op->threads = e->threads;
    op->n_replicas = e->n_replicas < 1 ? 1 : e->n_replicas;
    op->n_args = n_args;
    memcpy(op->arg_id, arg_id, sizeof *arg_id * (size_t)n_args); // argument ids
    if (o->after.scales && !dt_dnnl_scales_bias()) {             // attributes hold oneDNN 2's
        op->n_scales = o->after.n_scales;
        op->scales = dt_xcalloc((size_t)op->n_scales, sizeof *op->scales); // the caller's array may go
        memcpy(op->scales, o->after.scales, sizeof *op->scales * (size_t)op->n_scales);
    }
    size_t n = (size_t)(op->n_replicas * n_slots(op));
    op->stream = dt_xcalloc((size_t)op->n_replicas, sizeof *op->stream);
    op->args = dt_xcalloc(n, sizeof *op->args);
    op->last_data = dt_xcalloc(n, sizeof *op->last_data);
    // generates code: the expensive part
    dt_status st = dnnl_shim_check(dnnl_primitive_create(&op->primitive, pd), "primitive");
    md_handle scratch = (md_handle)dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    op->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0; // NULL: none needed
    for (int replica = 0; st == DT_OK && replica < op->n_replicas; replica++) st = init_replica(op, replica);
    if (st != DT_OK) {
        dt_dnnl_op_destroy(op);
        return st;
    }
    *out = op;
    return DT_OK;
}

void dt_dnnl_op_destroy(dt_dnnl_op *op) {
    if (!op) return;
    for (int i = 0; i < op->n_replicas * n_slots(op); i++) {
        if (op->args[i].memory) dnnl_memory_destroy(op->args[i].memory);
    }
    for (int i = 0; i < op->n_replicas; i++) {
        if (op->stream[i]) dnnl_stream_destroy(op->stream[i]); // may be half made
    }
    if (op->primitive) dnnl_primitive_destroy(op->primitive);
    if (op->pd) dnnl_primitive_desc_destroy(op->pd);
    free(op->stream);
    free(op->args);
    free(op->last_data);
    free(op->scales);
    free(op);
}

void dt_dnnl_op_run(const dt_dnnl_op *op, int replica, const void *const *ptr, void *scratch) {
    dt_dnnl_op_run_threads(op, replica, op->threads, ptr, scratch);
}

void dt_dnnl_op_run_threads(const dt_dnnl_op *op, int replica, int threads, const void *const *ptr, void *scratch) {
    const int slots = n_slots(op), n = slots - (op->scratch_bytes == 0); // without scratch the last slot is not passed
    dnnl_exec_arg_t *args = op->args + replica * slots;
    const void **last = op->last_data + replica * slots; // per worker group, so no lock
    // the team must not be larger than at creation: scratch is sized for it
    use_threads(threads < op->threads ? threads : op->threads);
    for (int i = 0; i < n; i++) {
        // NULL: scales have their pointer already
        const void *p = i < op->n_args ? ptr[i] : i == slots - 1 ? scratch : NULL;
        if (p == last[i]) continue; // setting a handle costs a call; most steps repeat the pointers
        dnnl_memory_set_data_handle(args[i].memory, (void *)p); // const: oneDNN writes only outputs
        last[i] = p;
    }
    dnnl_status_t s = dnnl_primitive_execute(op->primitive, op->stream[replica], n, args);
    if (s == dnnl_success) s = dnnl_stream_wait(op->stream[replica]); // returns at once with OpenMP
    if (s != dnnl_success) {                                          // out of memory inside oneDNN: there is no result
        dnnl_shim_check(s, dt_dnnl_op_impl(op));
        dt_error("%s", dt_error_message());
        abort();
    }
}

size_t dt_dnnl_op_scratch_bytes(const dt_dnnl_op *op) {
    return op ? dt_align_up(op->scratch_bytes, 64) : 0; // 64: cache lines
}

dt_dnnl_md dt_dnnl_op_md(const dt_dnnl_op *op, int arg) {
    // weights and dst in the layout that was chosen
    return (dt_dnnl_md)dnnl_primitive_desc_query_md(op->pd, dnnl_query_exec_arg_md, op->arg_id[arg]);
}

const char *dt_dnnl_op_impl(const dt_dnnl_op *op) {
    return impl_of(op->pd);
}

bool dt_dnnl_op_is_slow(const dt_dnnl_op *op) {
    const char *impl = dt_dnnl_op_impl(op);
    return !strncmp(impl, "ref", 3) || !strncmp(impl, "simple", 6); // "ref:any", "simple:any": correct and very slow
}

// Four descriptors and an attribute, with one clean-up for all create functions.
typedef struct op_parts {
    md_box box[4];
    op_mds m;
    dnnl_primitive_attr_t attr;
} op_parts;

static void parts_fini(op_parts *p) {
    for (int i = 0; i < 4; i++) box_fini(&p->box[i]);
    if (p->attr) dnnl_primitive_attr_destroy(p->attr);
}

static dt_status parts_init(op_parts *p, const dt_dnnl_env *e, const dt_dnnl_tensor *src, const dt_dnnl_tensor *weights,
                            const dt_dnnl_tensor *bias, const dt_dnnl_tensor *dst, const attr_opts *o) {
    *p = (op_parts){.attr = NULL};
    pthread_once(&engine_once, create_engine);
    if (!the_engine) return dt_fail(DT_E_INTERNAL, "oneDNN %s: no CPU engine", dt_dnnl_version()); // once per process
    use_threads(e->threads); // before creation: kernels are made for this number of threads
    dt_status st;
    const dt_dnnl_tensor *t[4] = {src, weights, bias, dst};
    for (int i = 0; i < 4; i++) DT_TRY_GOTO(st, box_init(&p->box[i], t[i]), fail);
    // NULL for absent ones
    p->m = (op_mds){box_get(&p->box[0]), box_get(&p->box[1]), box_get(&p->box[2]), box_get(&p->box[3])};
    DT_TRY_GOTO(st, make_attr(&p->attr, o), fail);
    return DT_OK;
fail:
    parts_fini(p); // descriptors made so far
    *p = (op_parts){.attr = NULL};
    return st;
}

// Arguments of an op with weights, in the header's order.
static int weighted_args(dt_dnnl_direction dir, bool bias, int *id) {
    int n = 0;
    id[n++] = dir == DT_DNNL_BACKWARD_DATA ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC;
    id[n++] = dir == DT_DNNL_BACKWARD_WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
    if (bias && dir != DT_DNNL_BACKWARD_DATA) { // the data gradient has no bias argument
        id[n++] = dir == DT_DNNL_BACKWARD_WEIGHTS ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS;
    }
    id[n++] = dir == DT_DNNL_FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST;
    return n;
}

dt_status dt_dnnl_op_create_conv(dt_dnnl_op **out, const dt_dnnl_env *e, dt_dnnl_direction dir, const dt_dnnl_conv *c) {
    op_parts p;
    attr_opts o = {.alpha = 1.0f, .scales_mask = c->weights.n > 4 ? 3 : 1}; // bits 0 and 1: groups and outputs
    if (dir == DT_DNNL_FORWARD) o.after = c->after;
    DT_TRY(parts_init(&p, e, &c->src, &c->weights, &c->bias, &c->dst, &o));
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    md_box hw = {.present = false};
    dt_status st = DT_OK;
    // oneDNN wants the forward primitive as a hint for backward
    if (dir != DT_DNNL_FORWARD) {
        // the forward pass's weights: not those of the gradient's type
        dt_dnnl_tensor w = dt_dnnl_any(c->src.type, c->weights.n, c->weights.d);
        DT_TRY_GOTO(st, box_init(&hw, &w), out);
        op_mds fwd = {p.m.src, box_get(&hw), NULL, p.m.dst};
        DT_TRY_GOTO(st, dnnl_shim_check(make_conv_pd(&hint, DT_DNNL_FORWARD, c, &fwd, p.attr, NULL), "convolution"),
                    out);
    }
    DT_TRY_GOTO(st, dnnl_shim_check(make_conv_pd(&pd, dir, c, &p.m, p.attr, hint), "convolution"), out);
    int id[MAX_ARGS], n = weighted_args(dir, p.box[2].present, id);
    st = finish_op(out, e, pd, id, n, &o); // owns pd
out:
    if (hint) dnnl_primitive_desc_destroy(hint);
    box_fini(&hw);
    parts_fini(&p);
    return st;
}

// dst = alpha * a * b + bias
dt_status dt_dnnl_op_create_matmul(dt_dnnl_op **out, const dt_dnnl_env *e, const dt_dnnl_matmul *c) {
    op_parts p;
    attr_opts o = {.alpha = c->alpha, .after = c->after, .scales_mask = 2}; // columns of b
    DT_TRY(parts_init(&p, e, &c->a, &c->b, &c->bias, &c->dst, &o));
    dnnl_primitive_desc_t pd = NULL;
    dt_status st = dnnl_shim_check(make_matmul_pd(&pd, &p.m, p.attr), "matmul");
    int id[MAX_ARGS], n = weighted_args(DT_DNNL_FORWARD, p.box[2].present, id);
    if (st == DT_OK) st = finish_op(out, e, pd, id, n, &o);
    parts_fini(&p);
    return st;
}

dt_status dt_dnnl_op_create_reorder(dt_dnnl_op **out, const dt_dnnl_env *e, const dt_dnnl_tensor *src,
                                    const dt_dnnl_tensor *dst, bool accumulate) {
    op_parts p;
    attr_opts o = {.alpha = 1.0f, .after = {.add = accumulate}}; // add: dst += src
    dt_dnnl_tensor absent = {.format = DT_DNNL_ABSENT};
    DT_TRY(parts_init(&p, e, src, &absent, &absent, dst, &o));
    dnnl_primitive_desc_t pd = NULL;
    dt_status st = dnnl_shim_check(
        dnnl_reorder_primitive_desc_create(&pd, p.m.src, the_engine, p.m.dst, the_engine, p.attr), "reorder");
    static const int id[2] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    if (st == DT_OK) st = finish_op(out, e, pd, id, 2, &o);
    parts_fini(&p);
    return st;
}

// ---- the machine --------------------------------------------------------------------------------
const char *dt_dnnl_version(void) {
    static _Thread_local char text[32]; // callers may print it later in the same thread
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

static bool isa_has(dnnl_cpu_isa_t isa) { // of x86; the numbers mean other instructions elsewhere
#if !defined(__x86_64__)
    return false;
#endif
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa; // a bit mask: all of its bits
}

int dt_dnnl_isa_level(void) {
    return isa_has(dnnl_cpu_isa_avx512_core) ? DT_CPU_AVX512
           : isa_has(dnnl_cpu_isa_avx2)      ? DT_CPU_AVX2
                                             : DT_CPU_GENERIC;
}

bool dt_dnnl_isa_vnni(void) {
    return isa_has(dnnl_cpu_isa_avx512_core_vnni) || isa_has(dnnl_cpu_isa_avx2_vnni);
}

bool dt_dnnl_isa_bf16(void) {
    return isa_has(dnnl_cpu_isa_avx512_core_bf16);
}

const char *dt_dnnl_isa_name(void) {
    if (isa_has(dnnl_cpu_isa_avx512_core_amx)) return "avx512_core_amx"; // best first
    if (isa_has(dnnl_cpu_isa_avx512_core_bf16)) return "avx512_core_bf16";
    if (isa_has(dnnl_cpu_isa_avx512_core_vnni)) return "avx512_core_vnni";
    if (isa_has(dnnl_cpu_isa_avx512_core)) return "avx512_core";
    if (dt_cpu_isa_get() == DT_CPU_NEON) return "neon";
    if (dt_cpu_isa_get() == DT_CPU_SVE256) return "sve256";
    return isa_has(dnnl_cpu_isa_avx2) ? "avx2" : "generic";
}
