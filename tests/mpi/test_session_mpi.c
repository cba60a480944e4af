// test_session_mpi.c: run by test_session.sh under mpirun: what ranks decide together before the first step, each
// on a fake GPU of its own. Prints one line a rank; exits with the status.
//
//   test_session_mpi auto LIST       device.kind: auto where the ranks in LIST ("0,2") have a GPU
//   test_session_mpi plans FOLDER    rank 0 chooses engines, the others take them
//   test_session_mpi fail FOLDER     rank 0 has no memory for its plans
#include "fake_cuda.h"

#include "backend/cuda/cuda_plans.h"
#include "base/log.h"
#include "models/models.h"
#include "run/agree.h"
#include "run/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dt_comm *comm;
static const char *with_gpu = "";

// Stands before the library's own function of that name (tests/CMakeLists.txt).
dt_status dt_backend_create(dt_backend **out, dt_device_kind kind, const dt_backend_opts *opts) {
    char rank[8];
    snprintf(rank, sizeof rank, "%d", comm->rank);
    if (kind != DT_DEVICE_cpu && strstr(with_gpu, rank)) return fake_cuda_backend(out, opts);
    return kind != DT_DEVICE_cpu ? dt_fail(DT_E_USAGE, "device.kind: cuda: no driver here")
                                 : dt_backend_create_cpu(out, opts);
}

static dt_status agree_on_device(void) {
    dt_backend *b = NULL;
    const dt_status st = dt_agree_backend(&b, comm, DT_DEVICE_auto, &(dt_backend_opts){.threads = 1});
    printf("rank %d: %s%s\n", comm->rank, st == DT_OK ? b->name : dt_error_message(),
           comm->shared_failure ? " (shared)" : "");
    if (b) b->destroy(b);
    return st;
}

// ---- a run without data ------------------------------------------------------------------------
static const char yaml[] = "run: {name: ranks}\n"
                           "data: {path: none, fields: {x: {kind: image, channels: 3, size: [16, 16]},\n"
                           "  who: {kind: class, classes: 5}}}\n"
                           "model: {name: resnet, depth: 18, width: 8}\n"
                           "train: {global_batch: 6, micro_batch: 2}\n";

static dt_field_info fields[2] = {{.name = "x", .sample_shape = {3, {16, 16, 3}}, .dtype = DT_U8, .is_image = true},
                                  {.name = "who", .dtype = DT_I32, .n_classes = 5}};

static dt_status build(dt_config *config, const char *folder, bool fail) {
    dt_open_run r;
    dt_nets nets = {0};
    dt_state *state = NULL;
    const dt_trainer_args a = {.config = config, .comm = comm, .build_graph = dt_model_graph};
    const dt_run_request q = {.use = DT_RUN_CHECKED, .fields = fields, .n_fields = 2};
    DT_TRY(dt_run_init(&r, &a, &q));
    for (int k = 0; k < 64; k++) fields[0].mean[k] = fields[0].std[k] = 0.5f;
    r.resolved.threads = r.resolved.replicas = r.resolved.replica_threads = r.resolved.workers = 1;
    r.resolved.precision = DT_PRECISION_fp32;
    dt_status st = fake_cuda_backend(&r.backend, &(dt_backend_opts){.threads = 1,
                                                                    .timed = !fail, // whose memory may fail
                                                                    .cache_folder = folder});
    if (st == DT_OK)
        st = dt_replica_plan_create(&r.replicas, false, comm->rank, comm->world_size, 1, dt_run_n_micro(&r));
    dt_cuda_api *api = st == DT_OK ? dt_cuda_self(r.backend)->api : NULL;
    if (st == DT_OK && fail && comm->rank == 0) fake_cuda_fail(api, "alloc", 0, FAKE_OUT_OF_MEMORY);
    if (st == DT_OK) st = dt_nets_make(&nets, &r, false);
    if (st == DT_OK) st = dt_state_create(&state, &r, &nets);
    if (st == DT_OK) {
        char *text = r.backend->choices(r.backend);
        int n = 0;
        for (const char *c = text; *c; c++) n += *c == '\n';
        printf("rank %d: %d choices, %s\n", comm->rank, n, fake_cuda_count(api, "event_ms") ? "timed" : "taken");
        free(text);
    } else {
        printf("rank %d: %s%s\n", comm->rank, dt_error_message(), comm->shared_failure ? " (shared)" : "");
    }
    dt_state_destroy(state);
    dt_nets_drop(&nets);
    dt_run_close(&r, st);
    return st;
}

int main(int argc, char **argv) {
    dt_config *config = NULL;
    dt_status st = dt_comm_create(&comm);
    if (st == DT_OK) st = dt_config_parse(&config, "test", yaml, sizeof yaml - 1, NULL, 0);
    if (st != DT_OK || argc < 3) {
        fprintf(stderr, "%s\n", dt_error_message());
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    dt_log_set_rank(comm->rank, comm->world_size);
    with_gpu = argv[2];
    if (strcmp(argv[1], "auto") == 0)
        st = agree_on_device();
    else
        st = build(config, argv[2], strcmp(argv[1], "fail") == 0);
    dt_config_destroy(config);
    if (comm->finalize(comm) != DT_OK) return 1;
    dt_comm_destroy(comm);
    return (int)st;
}
