// cpu_backend.c: the CPU's backend table. Kernels come from cpu_kernels.def: oneDNN for convolutions and
// matmuls, custom vector code for the rest.
//
// Big buffers come from mmap, so that untouched pages cost nothing, and ask for huge pages.
#include "backend/cpu/cpu_backend.h"

#include "backend/cpu/cpu_choices.h"
#include "backend/cpu/dnnl_shim.h"
#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MMAP_BYTES = 1 << 20 };

// Timing at one start: of kernels, and beside them of precisions.
static const double BUDGET_S = 1.4;

typedef struct cpu_self {
    char text[128];
    dt_cpu_choices *choices;
    char *cache_folder; // or NULL
    bool winograd, timed;
} cpu_self;

// ---- the machine --------------------------------------------------------------------------------
bool dt_cpu_has_bf16(void) {
    return dt_dnnl_isa_bf16();
}

bool dt_cpu_has_amx(void) {
    return strstr(dt_dnnl_isa_name(), "amx") != NULL;
}

int dt_cpu_block(void) {
    return dt_cpu_isa_get() == DT_CPU_AVX512 ? 16 : 8;
}

dt_layout dt_cpu_conv_layout(int64_t channels) {
    return channels <= 4 ? dt_dense() : dt_blocked(dt_cpu_block());
}

static bool cpu_backend_supports_dtype(const dt_backend *b, dt_dtype t) {
    return t == DT_BF16 ? dt_cpu_has_bf16() : t != DT_F16;
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
    if (n_bytes >= MMAP_BYTES) {
        void *m = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m != MAP_FAILED) {
            madvise(m, n_bytes, MADV_HUGEPAGE); // a hint
            *p = m;
            return DT_OK;
        }
    } else if (!posix_memalign(p, 64, n_bytes ? n_bytes : 64)) {
        memset(*p, 0, n_bytes);
        return DT_OK;
    }
    *p = NULL;
    return dt_fail(DT_E_INTERNAL, "out of memory: %.1f MB for %s; lower train.micro_batch or use fewer ranks a machine",
                   (double)n_bytes / 1e6, what);
}

static void cpu_backend_release(dt_backend *b, void *p, size_t n_bytes) {
    if (!p) return;
    if (n_bytes >= MMAP_BYTES)
        munmap(p, n_bytes);
    else
        free(p);
}

static void cpu_backend_copy(dt_backend *b, void *dst, const void *src, size_t n_bytes) {
    memcpy(dst, src, n_bytes);
}

// ---- kernels ------------------------------------------------------------------------------------
static const dt_kernel *const forward_kernels[DT_OP_COUNT] = {
#define CPU_KERNEL(op, forward, backward) [DT_OP_##op] = &forward,
#define CPU_KERNEL_FORWARD(op, forward)   [DT_OP_##op] = &forward,
#include "backend/cpu/cpu_kernels.def"
#undef CPU_KERNEL
#undef CPU_KERNEL_FORWARD
};

static const dt_kernel *const backward_kernels[DT_OP_COUNT] = {
#define CPU_KERNEL(op, forward, backward) [DT_OP_##op] = &backward,
#define CPU_KERNEL_FORWARD(op, forward)
#include "backend/cpu/cpu_kernels.def"
#undef CPU_KERNEL
#undef CPU_KERNEL_FORWARD
};

static const dt_kernel *cpu_backend_kernel(const dt_backend *b, dt_op op, bool backward) {
    return backward ? backward_kernels[op] : forward_kernels[op];
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
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') {
        const char *value = strchr(line, ':');
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
    const dt_cpu_choices_opts o = {
        .machine = name, .folder = self->cache_folder, .budget_s = self->timed ? BUDGET_S : 0};
    if (self->choices)
        dt_cpu_choices_move(self->choices, &o);
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

dt_status dt_backend_create_cpu(dt_backend **out, const dt_backend_opts *opts) {
    dt_backend *b = dt_xcalloc(1, sizeof *b);
    cpu_self *self = dt_xcalloc(1, sizeof *self);
    *b = (dt_backend){.name = "cpu",
                      .self = self,
                      .conv_adds = true,
                      .supports_dtype = cpu_backend_supports_dtype,
                      .computes_dtype = computes_dtype,
                      .describe = cpu_backend_describe,
                      .alloc = cpu_backend_alloc,
                      .free = cpu_backend_release,
                      .alloc_host = cpu_backend_alloc,
                      .free_host = cpu_backend_release,
                      .copy_to_device = cpu_backend_copy,
                      .copy_to_host = cpu_backend_copy,
                      .choices = cpu_backend_choices,
                      .take_choices = cpu_backend_take_choices,
                      .choice_table = choice_table,
                      .set_threads = set_threads,
                      .choose_precision = dt_cpu_choose_precision,
                      .kernel = cpu_backend_kernel,
                      .reorder = dt_cpu_reorder,
                      .flat_add = dt_cpu_flat_add,
                      .flat_optimize = dt_cpu_flat_optimize,
                      .flat_factor = dt_cpu_flat_factor,
                      .flat_clip = dt_cpu_flat_clip,
                      .flat_norms = dt_cpu_flat_norms,
                      .flat_sum_squares = dt_cpu_flat_sum_squares,
                      .destroy = cpu_backend_destroy};
    self->winograd = opts->winograd;
    self->timed = opts->timed;
    self->cache_folder = opts->cache_folder ? dt_xstrdup(opts->cache_folder) : NULL;
    set_threads(b, opts->threads < 1 ? 1 : opts->threads);
    *out = b;
    return DT_OK;
}
