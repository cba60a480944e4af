// test_fake_cuda.c: the fake device enforces its own rules (otherwise tests on it would prove little), and what custom
// kernels compute with: element types, reorders.
#include "backend/cuda/kernels/kernel_math.h"
#include "fake_cuda.h"
#include "ops/custom_types.h"
#include "testing.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static dt_backend *open_backend(void) {
    dt_backend *b;
    must(fake_cuda_backend(&b, &(dt_backend_opts){.threads = 1}));
    return b;
}

// The signal that ends a child which runs fn; 0 when it ends by itself.
static int dies(void (*fn)(void)) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        fn();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status); // ASan exits with 1
}

static void touch_device_memory(void) {
    dt_backend *b = open_backend();
    char *p;
    b->alloc(b, (void **)&p, 64, "test");
    *(volatile char *)p = 1;
}
static void copy_from_the_stack(void) {
    dt_backend *b = open_backend();
    char *p, local[64] = {0};
    b->alloc(b, (void **)&p, 64, "test");
    b->device->copy_in(b, p, local, 64, b->device->stream);
}
static void pass_host_memory(void) {
    dt_backend *b = open_backend();
    float *p, host[64] = {0};
    b->alloc(b, (void **)&p, 256, "test");
    b->device->add(b, p, host, 64, b->device->stream);
}
static void write_behind(void) {
    dt_backend *b = open_backend();
    float *p, *q;
    b->alloc(b, (void **)&p, 400, "test");
    b->alloc(b, (void **)&q, 4000, "test");
    float ones[1000];
    for (int i = 0; i < 1000; i++) ones[i] = 1;
    b->copy_to_device(b, q, ones, sizeof ones);
    b->device->add(b, p, q, 101, b->device->stream);
    b->free(b, p, 400);
}
static void leave_memory(void) {
    dt_backend *b = open_backend();
    char *p;
    b->alloc(b, (void **)&p, 64, "test");
    b->destroy(b);
}

static void capture_what_never_ran(void) {
    dt_backend *b = open_backend();
    dt_cuda_api *api = dt_cuda_self(b)->api;
    const dt_gemm_desc d = {.m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldd = 1, .batch = 1};
    void *plan, *x;
    size_t bytes;
    b->alloc(b, &x, 64, "test");
    if (api->gemm_plan(api, &d, 0, &plan, &bytes)) _exit(0);
    b->device->capture_begin(b, b->device->stream);
    api->gemm_run(api, plan, x, x, x, false, NULL, NULL, NULL, b->device->stream);
}

TEST(test_strict) {
    assert_true(dies(touch_device_memory) != 0);
    assert_true(dies(copy_from_the_stack) != 0);
    assert_true(dies(pass_host_memory) != 0);
    assert_true(dies(write_behind) != 0);
    assert_true(dies(leave_memory) != 0);
    assert_true(dies(capture_what_never_ran) != 0);
}

// a += b on one stream, c += a on another, with and without the wait between them.
static float two_streams(bool wait, bool captured) {
    dt_backend *b = open_backend();
    const dt_device *d = b->device;
    float *x[3], host[64], result;
    void *first, *second, *graph = NULL;
    for (int i = 0; i < 3; i++) {
        must(b->alloc(b, (void **)&x[i], sizeof host, "test"));
        for (int k = 0; k < 64; k++) host[k] = (float)(1 << i);
        b->copy_to_device(b, x[i], host, sizeof host);
    }
    must(d->stream_create(b, &first, false));
    must(d->stream_create(b, &second, false));
    if (captured) {
        must(d->capture_begin(b, second));
        d->stream_wait(b, first, second);
    }
    d->add(b, x[0], x[1], 64, first);
    if (wait) d->stream_wait(b, second, first);
    d->add(b, x[2], x[0], 64, second);
    if (captured) {
        const dt_status status = d->capture_end(b, second, &graph);
        assert_int_equal(status, wait ? DT_OK : DT_E_INTERNAL);
        if (!wait) assert_non_null(strstr(dt_error_message(), "unjoined"));
    }
    for (int i = 0; graph && i < 2; i++) d->graph_launch(b, graph, second);
    must(d->synchronize(b, second));
    b->copy_to_host(b, host, x[2], sizeof host);
    result = host[63];
    d->graph_destroy(b, graph);
    d->stream_destroy(b, first);
    d->stream_destroy(b, second);
    for (int i = 0; i < 3; i++) b->free(b, x[i], sizeof host);
    b->destroy(b);
    return result;
}

TEST(test_streams) {
    assert_true(two_streams(true, false) == 4 + 3);
    assert_true(two_streams(false, false) == 4 + 1); // stale: the wait is missing
    assert_true(two_streams(true, true) == 4 + 3 + 5);
    two_streams(false, true);
}

TEST(test_capture_errors) {
    dt_backend *b = open_backend();
    const dt_device *d = b->device;
    void *s, *graph, *p;
    must(d->stream_create(b, &s, false));
    must(d->capture_begin(b, s));
    assert_int_equal(b->alloc(b, &p, 64, "a buffer"), DT_E_INTERNAL);
    assert_int_equal(d->capture_end(b, s, &graph), DT_E_INTERNAL);
    assert_null(graph);
    assert_non_null(strstr(dt_error_message(), "device.capture: false"));
    must_fail(DT_E_INTERNAL, "a buffer", d->capture_begin(b, s)); // of a call within: sticky, as the run ends
    d->stream_destroy(b, s);
    b->destroy(b);
    b = open_backend();
    d = b->device;
    must(d->stream_create(b, &s, false));
    dt_cuda_api *api = dt_cuda_self(b)->api;
    fake_cuda_fail(api, "stream_synchronize", 0, 999);
    must_fail(DT_E_INTERNAL, "waiting for the device", d->synchronize(b, s));
    assert_int_equal(d->synchronize(b, s), DT_E_INTERNAL); // sticky
    d->stream_destroy(b, s);
    b->destroy(b);
}

TEST(test_types) {
    for (uint32_t h = 0; h < 65536; h++) {
        const double x = test_f16_to_f64((uint16_t)h);
        const float f = dt_f16_to_f32((uint16_t)h);
        if (isnan(x)) {
            assert_true(isnan(f));
            continue;
        }
        assert_true((double)f == x);
        assert_int_equal(dt_f32_to_f16(f), h);
    }
    uint32_t u = 1;
    for (int i = 0; i < 300000; i++) {
        u = u * 1664525u + 1013904223u;
        const float f = dt_of_bits(u);
        if (isnan(f)) continue;
        assert_int_equal(dt_f32_to_f16(f), test_f64_to_f16((double)f));
    }
    assert_true(isnan(dt_bf16_to_f32(dt_f32_to_bf16(NAN))) && isnan(dt_f16_to_f32(dt_f32_to_f16(NAN))));
}

static int64_t place(dt_layout l, const dt_shape *s, int64_t i) {
    const int64_t px = s->d[2] * s->d[3], n = i / (s->d[1] * px), c = i / px % s->d[1];
    return l.kind == DT_DENSE ? i : (n * px + i % px) * s->d[1] + c;
}

static void check_reorder(dt_backend *b, dt_shape s, dt_layout from, dt_dtype ft, dt_layout to, dt_dtype tt) {
    const int64_t n = dt_shape_elements(&s);
    const size_t in_bytes = dt_layout_bytes(from, ft, &s), out_bytes = dt_layout_bytes(to, tt, &s);
    char *in = calloc(1, in_bytes), *out = calloc(1, out_bytes), *src, *dst;
    for (int64_t i = 0; i < n; i++) dt_put(in, ft, place(from, &s, i), (float)(i % 255 - 127));
    must(b->alloc(b, (void **)&src, in_bytes, "test"));
    must(b->alloc(b, (void **)&dst, out_bytes, "test"));
    b->copy_to_device(b, src, in, in_bytes);
    b->reorder(b, 1, &s, src, ft, from, dst, tt, to, b->device->stream);
    b->copy_to_host(b, out, dst, out_bytes);
    for (int64_t i = 0; i < n; i++) assert_true(dt_get(out, tt, place(to, &s, i)) == (float)(i % 255 - 127));
    b->free(b, src, in_bytes);
    b->free(b, dst, out_bytes);
    free(in), free(out);
}

TEST(test_reorder) {
    dt_backend *b = open_backend();
    const dt_layout layouts[] = {dt_dense(), {.kind = DT_NHWC}};
    const dt_shape shapes[] = {dt_shape4(2, 20, 5, 7), dt_shape4(1, 32, 40, 41), dt_shape4(3, 1, 4, 4),
                               dt_shape4(2, 3, 9, 13), dt_shape4(2, 48, 1, 1)};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < 36; i++)
            check_reorder(b, shapes[s], layouts[i % 2], (dt_dtype)(i / 4 % 3), layouts[i / 2 % 2], (dt_dtype)(i / 12));
    b->destroy(b);
}

TEST_MAIN(fake_cuda_race, NULL)
