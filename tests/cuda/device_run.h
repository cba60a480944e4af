// device_run.h: runs one kernel of the CUDA backend on the fake device, for the op tests' harnesses. They keep
// their tensors in host memory, with a canary behind each. Tensors and canaries are copied to the device, the kernel
// runs, and everything is copied back. It runs twice from the same start, queued and as a captured graph whose threads
// go in the opposite order. The bits must be equal.
#ifndef DT_TESTS_CUDA_DEVICE_RUN_H
#define DT_TESTS_CUDA_DEVICE_RUN_H

#include "base/core.h"
#include "fake_cuda.h"

#include <stdlib.h>
#include <string.h>

// The fake device, or with DTRAIN_TEST_DEVICE=real (tests/gpu/run.py) the real GPU. One for all rows of a program,
// because opening the libraries takes longer than most rows. Runs are compared bit by bit, which only deterministic
// engines pass. Nothing is timed, as no row is worth it.
static dt_backend *device_opened;
static inline dt_status device_backend(dt_backend **out) {
    const dt_backend_opts opts = {.threads = 1, .deterministic = true};
    const char *device = getenv("DTRAIN_TEST_DEVICE");
    if (!device_opened) {
        fake_cuda_races(2);
        DT_TRY(device && strcmp(device, "real") == 0 ? dt_backend_create(&device_opened, DT_DEVICE_cuda, &opts)
                                                     : fake_cuda_backend(&device_opened, &opts));
    }
    *out = device_opened;
    return DT_OK;
}

// At the end of the program: the fake device checks for leaks.
static inline void device_close(void) {
    if (device_opened) device_opened->destroy(device_opened);
    device_opened = NULL;
}

// The order in which threads run. A real device has its own.
static inline void device_order(const dt_backend *b, int order) {
    dt_cuda_api *api = dt_cuda_self(b)->api;
    if (api->self) fake_cuda_order(api, order);
}

enum { DEVICE_CANARY = 64, DEVICE_TENSORS = 64 };

typedef struct device_tensor {
    char *host, *device;
    size_t n_bytes;
    bool out;
} device_tensor;

typedef struct device_run {
    dt_backend *backend;
    device_tensor t[DEVICE_TENSORS];
    int n;
} device_run;

static inline void *device_add(device_run *d, const void *host, size_t n_bytes, bool out) {
    if (!host) return NULL;
    device_tensor *t = &d->t[d->n++];
    *t = (device_tensor){.host = (char *)host, .n_bytes = n_bytes, .out = out};
    if (d->n > DEVICE_TENSORS ||
        d->backend->alloc(d->backend, (void **)&t->device, n_bytes, "a test's tensor") != DT_OK)
        abort();
    return t->device;
}

static inline void device_upload(device_run *d) {
    for (int i = 0; i < d->n; i++)
        d->backend->copy_to_device(d->backend, d->t[i].device, d->t[i].host, d->t[i].n_bytes);
}

static inline size_t device_bytes(const dt_value_info *v, dt_layout l) {
    return dt_layout_bytes(l, v->dtype, &v->shape) + DEVICE_CANARY;
}

static inline dt_status device_play(device_run *d, const dt_kernel *k, const dt_kernel_instance *s, const dt_run *r) {
    const dt_device *dev = d->backend->device;
    void *graph;
    device_upload(d);
    DT_TRY(dev->capture_begin(d->backend, r->stream));
    k->run(s, r);
    DT_TRY(dev->capture_end(d->backend, r->stream, &graph));
    dev->graph_launch(d->backend, graph, r->stream);
    const dt_status status = dev->synchronize(d->backend, r->stream);
    dev->graph_destroy(d->backend, graph);
    return status;
}

// Runs the kernel with output 0 in the memory of the input that instance->inplace_in names. The result in t[i] must equal
// first[i]; `skip` is the scratch.
static inline const char *device_in_place(device_run *d, const dt_kernel *k, const dt_kernel_instance *s,
                                          const dt_run *r, const void *host_in, char *const *first, const void *skip) {
    const int at = s->inplace_in;
    const size_t n = device_bytes(dt_instance_in(s, at), s->in_layout[at]);
    if (!r->out[0] || n != device_bytes(dt_instance_out(s, 0), s->out_layout[0])) return NULL;
    const void *in[32];
    memcpy(in, r->in, sizeof in);
    in[at] = r->out[0];
    dt_run again = *r;
    again.in = in;
    device_upload(d);
    d->backend->copy_to_device(d->backend, r->out[0], host_in, n);
    k->run(s, &again);
    if (d->backend->device->synchronize(d->backend, r->stream) != DT_OK) return dt_error_message();
    const char *wrong = NULL;
    for (int i = 0; i < d->n; i++) {
        if (!d->t[i].out || d->t[i].host == skip) continue;
        char *got = malloc(d->t[i].n_bytes);
        d->backend->copy_to_host(d->backend, got, d->t[i].device, d->t[i].n_bytes);
        if (memcmp(got, first[i], d->t[i].n_bytes)) wrong = "the kernel gives other bits in place";
        free(got);
    }
    return wrong;
}

// `h` points to host memory: tensors in instance->in_layout and out_layout with DEVICE_CANARY bytes behind each, and
// scratch of n_scratch bytes in all. h->packed is already device memory. Returns NULL, or what went wrong.
static inline const char *device_run_kernel(dt_backend *b, const dt_kernel *k, const dt_kernel_instance *s,
                                            const dt_run *h, size_t n_scratch) {
    device_run *d = dt_xcalloc(1, sizeof *d);
    d->backend = b;
    const void *in[32] = {NULL};
    void *out[32] = {NULL};
    for (int i = 0; i < s->node->n_in; i++)
        if (h->in[i]) in[i] = device_add(d, h->in[i], device_bytes(dt_instance_in(s, i), s->in_layout[i]), false);
    for (int i = 0; i < s->node->n_out; i++)
        if (h->out[i]) out[i] = device_add(d, h->out[i], device_bytes(dt_instance_out(s, i), s->out_layout[i]), true);
    dt_run r = *h;
    r.in = in;
    r.out = out;
    r.scratch = device_add(d, h->scratch, n_scratch, true);
    r.step = device_add(d, h->step, sizeof *h->step, false);
    const char *wrong = NULL;
    if (b->device->stream_create(b, &r.stream, false) != DT_OK) abort();
    char *first[DEVICE_TENSORS] = {NULL};
    device_order(b, 0);
    device_upload(d);
    k->run(s, &r);
    if (b->device->synchronize(b, r.stream) != DT_OK) wrong = dt_error_message();
    for (int i = 0; i < d->n; i++) {
        first[i] = malloc(d->t[i].n_bytes);
        b->copy_to_host(b, first[i], d->t[i].device, d->t[i].n_bytes);
        if (!d->t[i].out && memcmp(first[i], d->t[i].host, d->t[i].n_bytes)) wrong = "the kernel wrote to an input";
    }
    device_order(b, 1);
    if (!wrong && device_play(d, k, s, &r) != DT_OK) wrong = dt_error_message();
    for (int i = 0; i < d->n; i++) {
        device_tensor *t = &d->t[i];
        char *again = malloc(t->n_bytes);
        b->copy_to_host(b, again, t->device, t->n_bytes);
        if (!wrong && t->out && t->host != h->scratch && memcmp(first[i], again, t->n_bytes))
            wrong = "the captured kernel gives other bits";
        memcpy(first[i], again, t->n_bytes);
        free(again);
    }
    if (!wrong && s->inplace_in >= 0) wrong = device_in_place(d, k, s, &r, h->in[s->inplace_in], first, h->scratch);
    for (int i = 0; i < d->n; i++) {
        device_tensor *t = &d->t[i];
        if (t->out) memcpy(t->host, first[i], t->n_bytes);
        b->free(b, t->device, t->n_bytes);
        free(first[i]);
    }
    b->device->stream_destroy(b, r.stream);
    free(d);
    return wrong;
}

#endif
