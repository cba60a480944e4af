// backend.c: what all backends share: layout arithmetic, the kernels' error helper, and the choice of a
// backend. The CPU backend is linked in. CUDA is the module dtrain_cuda.so, loaded if a GPU is wanted, or for
// `auto` if there is a driver. Checks follow the order in which a user would fix what is missing: driver,
// module, the module's libraries, driver version, device.
#include "backend/backend.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "batch/batch_source.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static dt_status alloc_batch(void *backend, void **p, size_t n_bytes, const char *what) {
    dt_backend *b = backend;
    return b->alloc_host(b, p, n_bytes, what);
}
static void free_batch(void *backend, void *p, size_t n_bytes) {
    dt_backend *b = backend;
    b->free_host(b, p, n_bytes);
}

dt_batch_memory dt_backend_batch_memory(dt_backend *b) {
    // pinned if there is a device: asynchronous copies
    return (dt_batch_memory){alloc_batch, free_batch, b, b->device != NULL};
}

int64_t dt_layout_elements(dt_layout l, const dt_shape *s) {
    if (l.kind != DT_BLOCKED || s->n < 2) return dt_shape_elements(s); // vectors are never BLOCKED
    int64_t n = 1;
    for (int i = 0; i < s->n; i++) {
        n *= i == 1 ? (s->d[1] + l.block - 1) / l.block * l.block : s->d[i]; // channels rounded up to whole blocks
    }
    return n;
}

size_t dt_layout_bytes(dt_layout l, dt_dtype t, const dt_shape *s) {
    if (l.tail) return l.tail->bytes(t, s); // a batch norm's tail stores more than elements
    return (size_t)dt_layout_elements(l, s) * dt_dtype_size(t);
}

const char *dt_layout_name(dt_layout l) {
    if (l.tail) return l.tail->name;
    switch ((dt_layout_kind)l.kind) {
    case DT_DENSE:
        return "dense";
    case DT_NHWC:
        return "nhwc";
    case DT_BLOCKED:
        break;
    }
    return l.block == 16 ? "nChw16c" : l.block == 8 ? "nChw8c" : "nChw4c";
}

dt_status dt_instance_fail(const dt_kernel_instance *s, const char *fmt, ...) {
    char text[512], shapes[384] = "", one[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t used = 0;
    for (int i = 0; i < s->node->n_in && used + sizeof one < sizeof shapes; i++) {
        const dt_value_info *v = dt_instance_in(s, i);
        used +=
            (size_t)snprintf(shapes + used, sizeof shapes - used, "%s%s%s", i ? ", " : "",
                             // dtype and shape of each input, "-" where absent
                             v ? dt_dtype_name(v->dtype) : "-", v ? dt_shape_print(&v->shape, one, sizeof one) : "");
    }
    return dt_fail(DT_E_INTERNAL, "%s: node '%s' (%s%s) of %s: %s", s->backend->name, s->node->name,
                   dt_op_name(s->node->op), s->node->backward ? " backward" : "", shapes, text);
}

void *dt_operands_add(dt_operands *o, size_t n_bytes) {
    assert(o->n < (int)(sizeof o->list / sizeof *o->list));
    const uintptr_t at = o->base + o->n_bytes;
    o->list[o->n].at = at;
    o->list[o->n++].n_bytes = n_bytes;
    o->n_bytes += dt_align_up(n_bytes, 256) + 1280; // apart, and not a page
    return (void *)at;
}

// called twice: with base 0 for the size, then with memory
void dt_operands_of(dt_operands *o, const dt_kernel_instance *s, dt_arena *a, dt_run *r) {
    const dt_node *n = s->node;
    const void **in = dt_arena_alloc(a, sizeof *in * ((size_t)n->n_in + 1));
    void **out = dt_arena_alloc(a, sizeof *out * ((size_t)n->n_out + 1));
    void **packed = dt_arena_alloc(a, sizeof *packed * DT_MAX_PACKS);
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const int k = i - n->n_in;
        const dt_value_info *v = k < 0 ? dt_instance_in(s, i) : dt_instance_out(s, k);
        const dt_layout l = k < 0 ? s->in_layout[i] : s->out_layout[k];
        void *at = v ? dt_operands_add(o, dt_layout_bytes(l, v->dtype, &v->shape)) : NULL; // NULL: an absent operand
        if (k < 0)
            in[i] = at;
        else
            out[k] = at;
    }
    for (int i = 0; i < s->n_packs; i++) packed[i] = dt_operands_add(o, s->packs[i].n_bytes);
    *r = (dt_run){.in = in, .out = out, .packed = packed};
    r->step = dt_operands_add(o, sizeof *r->step);
    r->scratch = dt_operands_add(o, s->scratch_bytes);
    o->n--; // scratch is no operand of the count
}

// ---- CUDA ------------------------------------------------------------------------------------------
bool dt_backend_has_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY); // stays open: the module needs it
    return driver != NULL;
}

static dt_status load_cuda(const dt_cuda_module **out) {
    char path[PATH_MAX + 64];
    // tested first: the message names both lacks
    const char *no_driver = dt_backend_has_driver() ? "" : "no NVIDIA driver (libcuda.so.1 does not load)";
    DT_TRY(dt_module_find("dtrain_cuda.so", path, sizeof path));
    if (!path[0])
        return dt_fail(DT_E_USAGE,
                       "device.kind: cuda: %s%sno CUDA module in this build (dtrain_cuda.so): build "
                       "with -DDTRAIN_CUDA=ON, or use device.kind=cpu",
                       no_driver, *no_driver ? ", and " : "");
    if (*no_driver)
        return dt_fail(DT_E_USAGE,
                       "device.kind: cuda: %s: install the driver, in a container start it with "
                       "GPUs (--gpus all), or use device.kind=cpu",
                       no_driver);
    for (int i = 0; i < 2; i++) // where they are loaded the module takes these, and no others
        (void)dt_wheel_library((const char *const[]){"cu*/lib/libcublasLt.so.*", "cudnn/lib/libcudnn.so.*"}[i]);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL); // LOCAL: symbols of CUDA libraries must not leak
    if (!module)
        return dt_fail(DT_E_USAGE,
                       "device.kind: cuda: %s does not load: %s; install the library that is "
                       "named (for a wheel: pip install 'dtrain[cuda]'), or put its folder into LD_LIBRARY_PATH",
                       path, dlerror());
    const dt_cuda_module *table = dlsym(module, DT_CUDA_MODULE_SYMBOL);
    if (!table || table->abi != DT_CUDA_MODULE_ABI) // abi: struct layouts of this build
        return dt_fail(DT_E_USAGE, "device.kind: cuda: %s is of another build: build it again", path);
    *out = table;
    return DT_OK;
}

static dt_status create_cuda(dt_backend **out, const dt_backend_opts *opts) {
    const dt_cuda_module *module = NULL;
    DT_TRY(load_cuda(&module));
    return module->create(out, opts);
}

dt_status dt_backend_print_devices(void (*print)(const char *line)) {
    const dt_cuda_module *module = NULL;
    DT_TRY(load_cuda(&module));
    return module->print_devices(print);
}

dt_status dt_backend_create(dt_backend **out, dt_device_kind kind, const dt_backend_opts *opts) {
    *out = NULL;
    if (kind == DT_DEVICE_cpu) return dt_backend_create_cpu(out, opts);
    if (kind == DT_DEVICE_cuda) return create_cuda(out, opts);
    if (!dt_backend_has_driver()) return dt_backend_create_cpu(out, opts); // auto without a driver: no message
    if (create_cuda(out, opts) == DT_OK) return DT_OK;                     // auto: a GPU that works
    dt_warn("device.kind: auto: the CPU is used, though there is an NVIDIA driver: %s", dt_error_message());
    return dt_backend_create_cpu(out, opts);
}
