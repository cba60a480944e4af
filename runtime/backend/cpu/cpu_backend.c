// cpu_backend.c: the CPU's backend table. Kernels come from graph/ops.def: oneDNN for convolutions and
// matmuls, custom vector code for the rest.
//
// Big buffers come from mmap, so that untouched pages cost nothing, and request huge pages.

#include "backend/cpu/cpu_backend.h"

#include "backend/cpu/cpu_choices.h"
#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/dnnl_shim.h"
#include "backend/cpu/simd.h"
#include "base/core.h"
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MMAP_BYTES = 1 << 20 }; // 1 MiB: above it mmap and huge pages pay

// Timing at one start: of kernels, and beside them of precisions.
static const double BUDGET_S = 1.4; // seconds

typedef struct cpu_self {
    char text[128]; // describe()
    dt_cpu_choices *choices;
    char *cache_folder;   // or NULL
    bool winograd, timed; // timed: kernels may be timed at this start
} cpu_self;

// ---- the machine --------------------------------------------------------------------------------
bool dt_cpu_has_bf16(void) {
    return dt_dnnl_isa_bf16();
}

bool dt_cpu_has_amx(void) {
    return strstr(dt_dnnl_isa_name(), "amx") != NULL; // "avx512_core_amx"
}

int dt_cpu_block(void) {
    return dt_simd_get()->width; // f32 numbers of a vector
}

dt_layout dt_cpu_conv_layout(int64_t channels) {
    // first layers: padding 3 channels to a block would waste most of it
    return channels <= 4 ? dt_dense() : dt_blocked(dt_cpu_block());
}

static bool cpu_backend_supports_dtype(const dt_backend *b, dt_dtype t) {
    return t == DT_BF16 ? dt_cpu_has_bf16() : t != DT_F16; // storage; f16 exists on GPUs only
}

// oneDNN computes in bf16 from AVX-512 on; without AVX512_BF16 it is slow.
static bool computes_dtype(const dt_backend *b, dt_dtype t) {
    return t == DT_BF16 ? dt_cpu_isa_get() == DT_CPU_AVX512 : t != DT_F16;
}

static const char *cpu_backend_describe(const dt_backend *b) {
    return ((const cpu_self *)b->self)->text;
}

// ---- memory -------------------------------------------------------------------------------------
static dt_status cpu_backend_alloc(dt_backend *b, void **p, size_t n_bytes, const char *what) {
    *p = NULL;
    // zeroed by the kernel, page by page
    if (n_bytes >= MMAP_BYTES) {
        void *m = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m != MAP_FAILED) {
            madvise(m, n_bytes, MADV_HUGEPAGE); // a hint
            *p = m;
            return DT_OK;
        }
    } else if (!posix_memalign(p, 64, n_bytes ? n_bytes : 64)) { // 64: a vector register
        memset(*p, 0, n_bytes);                                  // as mmap's
        return DT_OK;
    }
    *p = NULL;
    // names the two keys that shrink memory per machine
    return dt_fail(DT_E_INTERNAL,
                   "out of memory: %.1f MB for %s; lower train.micro_batch or use fewer ranks per machine",
                   (double)n_bytes / 1e6, what);
}

static void cpu_backend_release(dt_backend *b, void *p, size_t n_bytes) {
    if (!p) return;
    if (n_bytes >= MMAP_BYTES) // the size decides how memory was allocated
        munmap(p, n_bytes);
    else
        free(p);
}

static void cpu_backend_copy(dt_backend *b, void *dst, const void *src, size_t n_bytes) {
    memcpy(dst, src, n_bytes);
}

// ---- kernels ------------------------------------------------------------------------------------
static const dt_kernel_pair kernels[DT_OP_COUNT] = {
#define OP(id, min_in, max_in, n_out, amp, cpu, cuda) {DT_KERNEL_PAIR_##cpu(dt_cpu_##id)},
#include "graph/ops.def"
#undef OP
};

const dt_kernel *dt_cpu_kernel(const dt_backend *b, dt_op op, bool backward) {
    return backward ? kernels[op].backward : kernels[op].forward;
}

// ---- choices ------------------------------------------------------------------------------------
struct dt_cpu_choices *dt_cpu_choices_of(const dt_backend *b) {
    return ((const cpu_self *)b->self)->choices;
}

bool dt_cpu_allows_winograd(const dt_backend *b) {
    return ((const cpu_self *)b->self)->winograd;
}

static char *cpu_backend_choices(dt_backend *b) {
    return dt_cpu_choices_text(dt_cpu_choices_of(b));
}

static void cpu_backend_take_choices(dt_backend *b, const char *text) {
    dt_cpu_choices_take(dt_cpu_choices_of(b), text);
}

static char *choice_table(dt_backend *b) {
    return dt_cpu_choices_table(dt_cpu_choices_of(b));
}

// CPU model (family, model and stepping too: virtual machines have one name for many), ISA, library, threads.
static char *name_machine(int threads) {
    char line[256], *text = dt_xstrdup("");
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') { // the first processor only: all have one model
        const char *value = strchr(line, ':');
        // "model" also matches "model name"
        if (!value || (strncmp(line, "model", 5) && strncmp(line, "cpu family", 10) && strncmp(line, "stepping", 8)))
            continue;
        char *more = dt_xprintf("%s%.*s,", text, (int)strcspn(value + 1, "\n"), value + 1);
        free(text);
        text = more;
    }
    if (f) fclose(f);
    char *all = dt_xprintf("%s %s, oneDNN %s, %d threads", text[0] ? text + 1 : "unknown,", dt_dnnl_isa_name(),
                           dt_dnnl_version(), threads);
    free(text);
    return all;
}

static void set_threads(dt_backend *b, int n) {
    cpu_self *self = b->self;
    char *name = name_machine(n);
    const dt_cpu_choices_opts o = {// 0: known choices are used, nothing is timed
                                   .machine = name,
                                   .folder = self->cache_folder,
                                   .budget_s = self->timed ? BUDGET_S : 0};
    if (self->choices)
        dt_cpu_choices_move(self->choices, &o); // other threads, other timings: another file
    else
        self->choices = dt_cpu_choices_create(&o);
    free(name);
    b->threads = n;
    snprintf(self->text, sizeof self->text, "cpu %s, oneDNN %s, %d thread%s", dt_dnnl_isa_name(), dt_dnnl_version(), n,
             n == 1 ? "" : "s");
}

static void cpu_backend_destroy(dt_backend *b) {
    cpu_self *self = b->self;
    dt_cpu_choices_destroy(self->choices);
    free(self->cache_folder);
    free(self);
    free(b);
}

static const dt_pass passes[] = {dt_pass_fuse_residual, NULL};

dt_status dt_backend_create_cpu(dt_backend **out, const dt_backend_opts *opts) {
    dt_backend *b = dt_xcalloc(1, sizeof *b);
    cpu_self *self = dt_xcalloc(1, sizeof *self);
    *b = (dt_backend){.name = "cpu",
                      .self = self,
                      .passes = passes,
                      .supports_dtype = cpu_backend_supports_dtype,
                      .computes_dtype = computes_dtype,
                      .describe = cpu_backend_describe,
                      .alloc = cpu_backend_alloc,
                      .free = cpu_backend_release,
                      .alloc_host = cpu_backend_alloc, // host and device memory are one
                      .free_host = cpu_backend_release,
                      .copy_to_device = cpu_backend_copy,
                      .copy_to_host = cpu_backend_copy,
                      .choices = cpu_backend_choices,
                      .take_choices = cpu_backend_take_choices,
                      .choice_table = choice_table,
                      .set_threads = set_threads,
                      .choose_precision = dt_cpu_choose_precision,
                      .kernel = dt_cpu_kernel,
                      .reorder = dt_cpu_reorder,
                      .flat_add = dt_cpu_flat_add,
                      .flat_optimize = dt_cpu_flat_optimize,
                      .flat_factor = dt_cpu_flat_factor,
                      .flat_clip_agc = dt_cpu_flat_clip_agc,
                      .flat_norms = dt_cpu_flat_norms,
                      .flat_sum_squares = dt_cpu_flat_sum_squares,
                      .destroy = cpu_backend_destroy};
    // options are copied: the caller's may go
    self->winograd = opts->winograd;
    self->timed = opts->timed;
    self->cache_folder = opts->cache_folder ? dt_xstrdup(opts->cache_folder) : NULL;
    set_threads(b, opts->threads < 1 ? 1 : opts->threads);
    *out = b;
    return DT_OK;
}

// ---- simd ---------------------------------------------------------------------------------------------------------

// One table an ISA, made of the tables that simd_*.c export (see simd.h).

#define TABLE(isa, width, depthwise_conv, winograd_conv)                                                               \
    {                                                                                                                  \
        width, &dt_simd_rows_##isa, &dt_simd_elementwise_##isa, {&dt_simd_bn_f32_##isa, &dt_simd_bn_bf16_##isa},       \
            &dt_simd_pool_##isa, depthwise_conv, &dt_simd_flat_##isa, dt_simd_optimizer_##isa, winograd_conv,          \
            &dt_simd_int8_##isa                                                                                        \
    }

static const dt_simd tables[] = {
    [DT_CPU_GENERIC] = TABLE(generic, 8, NULL, NULL), // no depthwise and no Winograd kernels: oneDNN's serve
#if defined(__x86_64__)
    [DT_CPU_AVX2] = TABLE(avx2, 8, &dt_simd_depthwise_avx2, &dt_simd_winograd_avx2),
    [DT_CPU_AVX512] = TABLE(avx512, 16, &dt_simd_depthwise_avx512, &dt_simd_winograd_avx512),
#elif defined(__aarch64__)
    [DT_CPU_NEON] = TABLE(neon, 4, &dt_simd_depthwise_neon, &dt_simd_winograd_neon),
    [DT_CPU_SVE256] = TABLE(sve256, 8, &dt_simd_depthwise_sve256, &dt_simd_winograd_sve256),
#endif
};

const dt_simd *dt_simd_get(void) {
    return &tables[dt_cpu_isa_get()];
}

// ---- custom kernel ------------------------------------------------------------------------------------------------

enum { RANGE_ALIGN = 64, RANGE_MIN = 16384 }; // elements; below RANGE_MIN a fork costs more than it saves

// defaults: dense layouts, no scratch, nothing in place
void *dt_custom_prepare(dt_kernel_instance *s, size_t n_state_bytes) {
    for (int i = 0; i < s->node->n_in; i++) s->in_layout[i] = dt_dense();
    for (int i = 0; i < s->node->n_out; i++) s->out_layout[i] = dt_dense();
    s->scratch_bytes = 0;
    s->inplace_in = -1;
    s->n_packs = 0;
    s->state = n_state_bytes ? dt_xcalloc(1, n_state_bytes) : NULL;
    return s->state;
}

void dt_custom_destroy(dt_kernel_instance *s) {
    free(s->state);
    s->state = NULL;
}

dt_status dt_custom_type(dt_kernel_instance *s, int *type, const dt_value_info *const *infos, int n) {
    *type = -1; // -1: no operand yet
    for (int i = 0; i < n; i++) {
        if (!infos[i]) continue; // an optional operand that is absent
        int t = dt_row_type(infos[i]->dtype);
        if (t < 0)
            return dt_custom_fail(s, "element type %s is not supported on the CPU (f32 and bf16 are)",
                                  dt_dtype_name(infos[i]->dtype));
        if (*type >= 0 && t != *type)
            return dt_custom_fail(s, "mixes f32 and bf16 (%s is %s): insert a cast", infos[i]->name,
                                  dt_dtype_name(infos[i]->dtype));
        *type = t;
    }
    return DT_OK;
}

dt_layout dt_custom_blocked(void) {
    return dt_blocked(dt_simd_get()->width);
}

void dt_custom_ranges(int threads, int64_t n, dt_range_fn fn, const void *ctx) {
    int64_t parts = n / RANGE_MIN < threads ? n / RANGE_MIN : threads; // 0 or 1: runs in the calling thread
    if (parts <= 1) {
        fn(ctx, 0, n);
        return;
    }
    // parts end at multiples of RANGE_ALIGN, so no two threads write one cache line
    int64_t step = (int64_t)dt_align_up((size_t)((n + parts - 1) / parts), RANGE_ALIGN);
// a static schedule: which thread takes a part never changes bits
#pragma omp parallel for num_threads((int)parts) schedule(static, 1)
    for (int64_t p = 0; p < parts; p++) {
        // rounding up may leave the last parts empty
        int64_t begin = p * step < n ? p * step : n, end = begin + step < n ? begin + step : n;
        if (begin < end) fn(ctx, begin, end);
    }
}

static void map_range(const void *ctx, int64_t begin, int64_t end) {
    const dt_map *m = ctx;
    void *y = dt_row_at_mut(m->type, m->y, begin);
    const void *x = dt_row_at(m->type, m->x, begin);
    if (m->binary) // d: second operand
        m->binary(y, x, dt_row_at(m->type, m->d, begin), m->number, end - begin);
    else
        m->unary(y, x, m->number, end - begin);
}

void dt_custom_map(int threads, int64_t n, const dt_map *m) {
    dt_custom_ranges(threads, n, map_range, m);
}

typedef struct copy_call {
    char *to;
    const char *from;
    int64_t size; // bytes per element
} copy_call;

static void copy_range(const void *ctx, int64_t begin, int64_t end) {
    const copy_call *c = ctx;
    memcpy(c->to + begin * c->size, c->from + begin * c->size, (size_t)((end - begin) * c->size));
}

void dt_custom_copy_residual(const dt_kernel_instance *s, const dt_run *r) {
    const dt_value_info *y = dt_instance_out(s, 0);
    const copy_call c = {r->out[0], r->in[3], (int64_t)dt_dtype_size(y->dtype)};
    if (r->in[3] == r->out[0]) return; // in place: the plan gave both the same memory
    dt_custom_ranges(s->threads, dt_layout_elements(s->out_layout[0], &y->shape), copy_range, &c);
}

void dt_custom_items(int threads, int64_t n, dt_range_fn fn, const void *ctx) {
// one item per call; no team for one item
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && n > 1)
    for (int64_t i = 0; i < n; i++) fn(ctx, i, i + 1);
}
