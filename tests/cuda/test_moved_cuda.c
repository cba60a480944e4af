// test_moved_cuda.c: how many bytes a micro-batch of the large networks moves, forward and backward, in how many
// launches, and the time that an H200 needs for it at least, without a device: kernels are asked to run on addresses
// that are no memory, and the driver's and libraries' calls are counted instead of made. A change that moves more fails
// here. moved_bytes.txt has the numbers; WRITE=1 writes it anew.
//
// A launch of a custom kernel moves the tensors that its arguments point to, each once; scratch and what it reads twice
// are not counted. A plan of a library moves its operands. The least time of a launch is that of its bytes at 4.3 TB/s
// or that of its products at 700 TFLOP/s, whichever is longer. The end of a step (the optimizer) is not in it.
#include "exec/plan_internal.h"
#include "fake_kernels.h"
#include "fake_machine.h"
#include "testing.h"

#include "base/io.h"
#include "data/data.h"
#include "models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *config, *model;
    int batch;
    dt_dtype type;
} networks[] = {
    {"resnet50-256-bf16", "photos", "model={name: resnet, depth: 50, width: 64}", 256, DT_BF16},
    {"resnet50-256-f16", "photos", "model={name: resnet, depth: 50, width: 64}", 256, DT_F16},
    {"resnet18-512-bf16", "photos", "model={name: resnet, depth: 18, width: 64}", 512, DT_BF16},
    {"vit_b_16-128-bf16", "photos", "model={name: vit, depth: , width: }", 128, DT_BF16},
    {"convnext_t-256-bf16", "photos", "model={name: convnext, size: ti, depth: , width: }", 256,
     DT_BF16},
    {"efficientnet_b0-256-bf16", "photos", "model={name: efficientnet, size: b0, depth: , width: }",
     256, DT_BF16},
    {"fusion-128-bf16", "fusion", "model={name: fusion, fusion: concat}", 128, DT_BF16},
};
enum { N_NETWORKS = sizeof networks / sizeof *networks, MOST_TENSORS = 256 };

// ---- what is moved -----------------------------------------------------------------------------------
static struct {
    uintptr_t at[MOST_TENSORS], next;
    size_t n_bytes[MOST_TENSORS];
    int n;
    double bytes, seconds;
    int launches;
} moved;

static void *place(size_t n_bytes) {
    assert_true(moved.n < MOST_TENSORS);
    moved.at[moved.n] = moved.next;
    moved.n_bytes[moved.n++] = n_bytes;
    moved.next += (n_bytes + 4095) / 4096 * 4096 + 4096;
    return (void *)moved.at[moved.n - 1];
}

static int add_launch(double bytes, double products) {
    const double by_memory = bytes / 4.3e12, by_math = 2 * products / 7e14;
    moved.bytes += bytes;
    moved.seconds += by_memory > by_math ? by_memory : by_math;
    moved.launches++;
    return 0;
}

static int launch(dt_cuda_api *a, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *st) {
    bool counted[MOST_TENSORS] = {false};
    double bytes = 0;
    // one that ends sums reads a row of the tensor
    const size_t most = strstr(fake_kernels[k].name, "_finish") ? 1 << 20 : SIZE_MAX;
    for (size_t i = 0; i + 8 <= fake_kernels[k].args_bytes; i += 8) {
        uintptr_t p;
        memcpy(&p, (const char *)args + i, 8);
        for (int t = 0; t < moved.n; t++) {
            if (counted[t] || moved.n_bytes[t] > most || p < moved.at[t] ||
                p >= moved.at[t] + moved.n_bytes[t])
                continue;
            counted[t] = true;
            bytes += (double)moved.n_bytes[t];
        }
    }
    return add_launch(bytes, 0);
}

static int dnn_run(dt_cuda_api *a, void *plan_, void *const *ptr, void *workspace, void *st) {
    const dt_dnn_desc *d = &((plan *)plan_)->f.dnn;
    const double size = (double)dt_dtype_size(d->type);
    if (d->kind == DT_DNN_SDPA_FWD || d->kind == DT_DNN_SDPA_BWD) {
        const bool back = d->kind == DT_DNN_SDPA_BWD;
        const double rows = (double)(d->n * d->heads * d->d);
        return add_launch((back ? 4 : 2) * rows * (double)(d->tq + d->tk) * size,
                          (back ? 5 : 2) * rows * (double)(d->tq * d->tk));
    }
    const double taps = (double)(d->win.kernel[0] * d->win.kernel[1] * (d->c / d->groups));
    const double y = (double)(d->n * d->out_h * d->out_w * d->k);
    return add_launch(((double)(d->n * d->h * d->w * d->c) + (double)d->k * taps + y) * size,
                      y * taps);
}

static int gemm_run(dt_cuda_api *a, void *plan_, const void *A, const void *B, void *D, bool add,
                    void *bias, void *aux, void *workspace, void *st) {
    const dt_gemm_desc *d = &((plan *)plan_)->f.gemm;
    const double size = (double)dt_dtype_size(d->type), out = (double)dt_dtype_size(d->out_type);
    const double n = d->batch > 1 ? (double)d->batch : 1;
    const double m_k = (double)(d->m * d->k), k_n = (double)(d->k * d->n),
                 m_n = (double)(d->m * d->n);
    return add_launch(n * ((m_k + k_n) * size + m_n * out * (1 + add + (aux != NULL))),
                      n * m_n * (double)d->k);
}

static int zero(dt_cuda_api *a, void *dst, size_t n, void *st) {
    return add_launch((double)n, 0);
}

static int copy(dt_cuda_api *a, void *dst, const void *src, size_t n, int direction, void *st) {
    return add_launch(2 * (double)n, 0);
}

// ---- a network ---------------------------------------------------------------------------------------
static void run_instruction(dt_backend *b, const dt_graph *g, const dt_instruction *s) {
    const void *in[MOST_TENSORS] = {NULL};
    void *out[MOST_TENSORS] = {NULL}, *packed[DT_MAX_PACKS] = {NULL};
    const dt_step_block *step = NULL;
    moved.n = 0;
    moved.next = (uintptr_t)1 << 44;
    if (!s->kernel) {
        const dt_shape *shape = &g->values[s->value].shape;
        void *from = place(dt_layout_bytes(s->from, s->type, shape));
        void *to = place(dt_layout_bytes(s->to, s->type, shape));
        b->reorder(b, 1, shape, from, s->type, s->from, to, s->type, s->to, b->device->stream);
        return;
    }
    const dt_kernel_instance *i = &s->instance;
    for (int k = 0; k < i->node->n_in; k++) {
        const dt_value_info *v = dt_instance_in(i, k);
        if (v) in[k] = place(dt_layout_bytes(i->in_layout[k], v->dtype, &v->shape));
    }
    for (int k = 0; k < i->node->n_out; k++) {
        const dt_value_info *v = dt_instance_out(i, k);
        if (v) out[k] = place(dt_layout_bytes(i->out_layout[k], v->dtype, &v->shape));
    }
    for (int k = 0; k < i->n_packs; k++) packed[k] = place(i->packs[k].n_bytes);
    step = place(64);
    const int n = moved.n;
    void *scratch = place(i->scratch_bytes + 64);
    moved.n = n; // not counted
    s->kernel->run(i, &(dt_run){.in = in,
                                .out = out,
                                .packed = packed,
                                .scratch = scratch,
                                .step = step,
                                .accumulate = s->adds,
                                .stream = b->device->stream});
}

static void count(int which) {
    char path[512];
    const char *source = getenv("SOURCE");
    const char *overrides[2] = {networks[which].model,
                                "data.fields.image={kind: image, source: jpg, channels: 3, "
                                "size: [224, 224], normalize: imagenet}"};
    const bool photo = strcmp(networks[which].config, "photos") == 0;
    dt_config *c = NULL;
    dt_field_info fields[DT_MAX_FIELDS];
    int n = 0;
    snprintf(path, sizeof path, "%s/configs/%s.yaml", source ? source : ".",
             networks[which].config);
    must(dt_config_load(&c, path, overrides, photo ? 2 : 1));
    must(dt_data_describe_fields(c, NULL, fields, &n));
    dt_graph *g = NULL;
    dt_backend *b = NULL;
    dt_params *params = NULL;
    dt_plan *p = NULL;
    must(dt_model_graph(&g,
                        &(dt_model_args){.config = c,
                                         .fields = fields,
                                         .n_fields = n,
                                         .batch = networks[which].batch,
                                         .training = true},
                        networks[which].type));
    must(fake_cuda_backend(&b, &(dt_backend_opts){.threads = 1, .deterministic = true}));
    must(dt_params_lay_out(&params, g, b, 2, 1));
    must(dt_plan_create(&p, g, params, &(dt_plan_opts){.threads = 1, .n_replicas = 1}));
    dt_cuda_api *api = dt_cuda_self(b)->api;
    const dt_cuda_api real = *api;
    api->launch = launch, api->dnn_run = dnn_run, api->gemm_run = gemm_run;
    api->zero = zero, api->copy = copy;
    moved.bytes = moved.seconds = 0;
    moved.launches = 0;
    for (int i = 0; i < p->n_instructions; i++) run_instruction(b, g, &p->instructions[i]);
    *api = real;
    dt_plan_destroy(p);
    dt_params_destroy(params);
    b->destroy(b);
    dt_graph_destroy(g);
    dt_config_destroy(c);
}

TEST(test_what_a_step_moves) {
    char path[512], *text = NULL;
    const char *source = getenv("SOURCE"), *write = getenv("WRITE");
    size_t n_bytes = 0;
    int n_worse = 0;
    snprintf(path, sizeof path, "%s/tests/cuda/moved_bytes.txt", source ? source : ".");
    setenv("FAKE_CUDA_BYTES", "141000000000", 1);
    if (!write) must(dt_io_read_file(&text, &n_bytes, path, 0, DT_E_DATA));
    FILE *f = write ? fopen(path, "w") : NULL;
    if (f)
        fprintf(f, "# test_moved_cuda.c: network-batch-type, GB, launches, least ms on an H200\n");
    for (int i = 0; i < N_NETWORKS; i++) {
        double gb = 0, ms = 0;
        int launches = 0;
        count(i);
        print_message("%s %.3f %d %.3f\n", networks[i].name, moved.bytes / 1e9, moved.launches,
                      moved.seconds * 1e3);
        if (f) {
            fprintf(f, "%s %.3f %d %.3f\n", networks[i].name, moved.bytes / 1e9, moved.launches,
                    moved.seconds * 1e3);
            continue;
        }
        const char *line = strstr(text, networks[i].name);
        assert_true(line && sscanf(line, "%*s %lf %d %lf", &gb, &launches, &ms) == 3);
        if (moved.bytes / 1e9 > gb + 0.001 || moved.launches > launches ||
            moved.seconds * 1e3 > ms + 0.001) {
            print_message("more than %.3f GB, %d launches or %.3f ms before\n", gb, launches, ms);
            n_worse++;
        }
    }
    if (f) fclose(f);
    free(text);
    assert_int_equal(n_worse, 0);
}

TEST_MAIN(NULL, NULL)
