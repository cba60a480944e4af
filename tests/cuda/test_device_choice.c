// test_device_choice.c: which device a rank uses, what it binds itself to, and what messages say of devices.
#define _GNU_SOURCE // sched_setaffinity
#include "base/io.h"
#include "base/log.h"
#include "fake_cuda.h"
#include "folder.h"

#include "backend/cuda/device.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

static int chosen(int n, int rank, int size, const char *visible) {
    int index = -1;
    must(dt_cuda_choose_device(&index, n, rank, size, visible));
    return index;
}

TEST(test_chosen) {
    assert_int_equal(chosen(1, 0, 1, NULL), 0);
    assert_int_equal(chosen(8, 0, 0, NULL), 0);
    for (int rank = 0; rank < 8; rank++) assert_int_equal(chosen(8, rank, 8, NULL), rank);
    assert_int_equal(chosen(4, 1, 2, "4,5,6,7"), 1);
    assert_int_equal(chosen(1, 3, 4, "3"), 0); // Slurm or Kubernetes bound it
    assert_int_equal(chosen(1, 3, 4, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"), 0);
}

TEST(test_refused) {
    int index;
    must_fail(DT_E_USAGE, "CUDA_VISIBLE_DEVICES", dt_cuda_choose_device(&index, 0, 0, 1, ""));
    must_fail(DT_E_USAGE, "8 ranks on this host, but 4 GPUs", dt_cuda_choose_device(&index, 4, 0, 8, NULL));
    assert_non_null(strstr(dt_error_message(), "mpirun -np 4"));
    assert_int_equal(dt_cuda_choose_device(&index, 1, 1, 2, NULL), DT_E_USAGE);
    assert_int_equal(dt_cuda_choose_device(&index, 2, 1, 4, "0,1"), DT_E_USAGE);
}

#define PCI "0009:01:00.0"
static char near_text[256];

// Writes a file of the fake /sys; '@' of the name is the device's folder.
static void write_sys(const char *name, const char *line) {
    char *path = name[0] == '@' ? dt_xprintf("%s/bus/pci/devices/" PCI "/%s", folder_path, name + 1)
                                : dt_xprintf("%s/devices/system/node/%s", folder_path, name);
    *strrchr(path, '/') = '\0';
    must(dt_io_mkdir_all(path));
    path[strlen(path)] = '/';
    must(dt_io_write_file(path, line, strlen(line)));
    free(path);
}

static bool binds(void) {
    return dt_cuda_bind_near(folder_path, PCI, near_text, sizeof near_text);
}

static long preferred_node(void) { // -1: none
    int policy;
    unsigned long mask[16] = {0};
    if (syscall(SYS_get_mempolicy, &policy, mask, 1024, NULL, 0) || policy != MPOL_PREFERRED) return -1;
    return mask[0] ? __builtin_ctzl(mask[0]) : -1;
}

static cpu_set_t affinity(void) {
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

TEST_WITH(test_near, folder_make, folder_remove) {
    char line[32], want[32];
    cpu_set_t before = affinity(), after;
    int last = 0;
    assert_false(binds()); // no such device
    assert_string_equal(near_text, "");
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &before)) last = i;
    snprintf(line, sizeof line, "%d,1022-1023\n", last);
    snprintf(want, sizeof want, "cores %d,1022-1023", last);
    write_sys("@local_cpulist", line);
    write_sys("@numa_node", "-1\n");
    const bool narrows = CPU_COUNT(&before) > 1; // otherwise there is nothing to take away
    assert_int_equal(binds(), narrows);
    assert_string_equal(near_text, narrows ? want : "");
    after = affinity();
    assert_true(CPU_ISSET(last, &after) && CPU_COUNT(&after) == 1);
    // two nodes, of which the launcher has bound this process to the far one
    write_sys("@local_cpulist", "1022-1023\n");
    must(dt_log_open(in_folder("log")));
    assert_false(binds());
    dt_log_close();
    char *log;
    size_t n;
    must(dt_io_read_file(&log, &n, in_folder("log"), 1 << 20, DT_E_STORAGE));
    assert_non_null(strstr(log, "no core of this rank is near its GPU (1022-1023)"));
    assert_non_null(strstr(log, "--bind-to none"));
    free(log);
    sched_setaffinity(0, sizeof before, &before);
}

// One socket: all cores are near the GPU, and nothing is bound.
TEST_WITH(test_one_socket_of_72_cores, folder_make, folder_remove) {
    const cpu_set_t before = affinity();
    write_sys("node0/cpulist", "0-1023\n");
    write_sys("@local_cpulist", "0-1023\n");
    write_sys("@numa_node", "-1\n");
    assert_false(binds());
    assert_string_equal(near_text, "");
    assert_int_equal(preferred_node(), -1);
    const cpu_set_t after = affinity();
    assert_true(CPU_EQUAL(&before, &after));
}

// GH200: node 0 has the cores, node 1 is the GPU's memory; nodes 2 to 8 are for its MIG instances, and empty.
TEST_WITH(test_memory_of_a_gpu_is_no_node_to_bind_to, folder_make, folder_remove) {
    write_sys("node0/cpulist", "0-1023\n");
    for (int i = 1; i < 9; i++) {
        char name[32];
        snprintf(name, sizeof name, "node%d/cpulist", i);
        write_sys(name, "\n");
    }
    write_sys("@local_cpulist", "0-1023\n");
    for (int node = 1; node < 10; node++) { // 9: no such node
        char line[8];
        snprintf(line, sizeof line, "%d\n", node);
        write_sys("@numa_node", line);
        assert_false(binds());
        assert_int_equal(preferred_node(), -1);
    }
    // the only node that every machine has
    write_sys("node0/cpulist", "\n");
    write_sys("@numa_node", "0\n");
    assert_false(binds());
    assert_int_equal(preferred_node(), -1);
    write_sys("node0/cpulist", "0-1023\n");
    if (!binds()) skip(); // a container may forbid it
    assert_string_equal(near_text, "memory of NUMA node 0");
    assert_int_equal(preferred_node(), 0);
    assert_false(binds()); // a policy that is set stays
    assert_int_equal(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0), 0);
}

// ---- the list of devices ---------------------------------------------------------------------------
static char listed[8192];
static void keep_line(const char *line) {
    const size_t n = strlen(listed);
    snprintf(listed + n, sizeof listed - n, "%s\n", line);
}

static void list(dt_cuda_api *api) {
    listed[0] = 0;
    dt_cuda_list_devices(api, keep_line);
    assert_int_equal(fake_cuda_count(api, "device_use"), 0); // a list takes no device
    assert_int_equal(fake_cuda_destroy(api), 0);
}

TEST(test_listed) {
    list(fake_cuda_create(&(fake_cuda_opts){.n_devices = 6}));
    int n_lines = 0;
    for (const char *c = listed; (c = strchr(c, '\n')); c++) n_lines++;
    assert_int_equal(n_lines, 6 + 15 + 1); // devices, pairs, the driver
    static const char *const lines[] = {
        "cuda 0: fake GPU, sm_90, 3 SMs, 1.1 of 1.1 GB free, PCI 0000:10:00.0, NUMA node "
        "0\n",
        "\ncuda 0 and 1: NVLink, neighbours on NUMA node 0\n",
        "\ncuda 1 and 2: PCIe, on NUMA nodes 0 and 1\n",
        "\ncuda 0 and 5: PCIe, through the host's memory, on NUMA nodes 0 and 2\n",
        "\ncuda: driver 580.65.06, for CUDA 13.0; module: no CUDA",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(listed, lines[i])) fail_msg("no '%s' in\n%s", lines[i], listed);
    list(fake_cuda_create(NULL)); // one device has no neighbour
    assert_null(strstr(listed, " and "));
    assert_null(strstr(listed, "NUMA"));
    dt_cuda_api *api = fake_cuda_create(&(fake_cuda_opts){.n_devices = 2});
    fake_cuda_fail(api, "device_info", 0, FAKE_INVALID);
    list(api);
    assert_non_null(strstr(listed, "cuda 0: invalid argument\ncuda 1: fake GPU"));
    assert_non_null(strstr(listed, "cuda 0 and 1: NVLink\n"));
}

TEST(test_a_device_that_is_taken) {
    dt_backend *b = NULL;
    static const int errors[] = {DT_CUDA_DEVICE_BUSY, DT_CUDA_DEVICE_IN_USE, 999};
    for (int i = 0; i < 3; i++) {
        dt_cuda_api *api = fake_cuda_create(NULL);
        fake_cuda_fail(api, "device_use", 0, errors[i]);
        assert_int_equal(dt_cuda_backend_create(&b, api, NULL, 3, &(dt_backend_opts){.threads = 1}),
                         i < 2 ? DT_E_USAGE : DT_E_INTERNAL);
        assert_null(b);
        assert_non_null(strstr(dt_error_message(), "device 3 does not start: "));
        assert_int_equal(strstr(dt_error_message(), "exclusive-process") != NULL, i < 2);
        assert_null(strstr(dt_error_message(), "CUDA_LAUNCH_BLOCKING"));
        assert_int_equal(fake_cuda_destroy(api), 0);
    }
}

TEST(test_driver_version) {
    char v[32];
    assert_true(dt_cuda_driver_version("/usr/lib/libcuda.so.570.86.15", v, sizeof v));
    assert_string_equal(v, "570.86.15");
    static const char *const unknown[] = {"/usr/lib/libcuda.so.1", "/stubs/libcuda.so", "",
                                          "/usr/lib/libcuda.so.570.86.old"};
    for (int i = 0; i < 4; i++) {
        assert_false(dt_cuda_driver_version(unknown[i], v, sizeof v));
        assert_string_equal(v, "");
    }
}

// ---- loading custom kernels -----------------------------------------------------------------------------
static int errors[DT_K_COUNT], n_loaded;

static int load(dt_cuda_kernel k) {
    n_loaded++;
    return errors[k];
}
static const char *text_of(int error) {
    return error == DT_CUDA_NO_CODE ? "no kernel image" : error == 1 ? "invalid" : "other";
}

// The message if every `every`-th kernel from `first` on fails.
static const char *load_with(int first, int every, int error, int second_error) {
    static const dt_kernel_loader loader = {load, text_of, "80-real, 90"};
    const dt_cuda_device_info device = {.name = "NVIDIA X", .major = 12, .minor = 1, .driver_version = "570.1"};
    memset(errors, 0, sizeof errors);
    for (int k = first; k < DT_K_COUNT; k += every) errors[k] = k == first ? error : second_error;
    n_loaded = 0;
    dt_error_clear();
    const dt_status st = dt_cuda_load_kernels(&loader, &device);
    assert_int_equal(n_loaded, DT_K_COUNT); // also after one that fails
    assert_int_equal(st, error ? DT_E_USAGE : DT_OK);
    return dt_error_message();
}

static void assert_says(const char *message, const char *text) {
    if (!strstr(message, text)) fail_msg("no \"%s\" in: %s", text, message);
}

TEST(test_kernels_that_do_not_load) {
    assert_string_equal(load_with(0, 1, 0, 0), "");
    const char *m = load_with(0, 1, DT_CUDA_NO_CODE, DT_CUDA_NO_CODE);
    assert_string_equal(m, "device.kind: cuda: NVIDIA X is sm_121, for which this module "
                           "(dtrain_cuda.so, of 80-real, 90) has no code: build with "
                           "-DDTRAIN_CUDA_ARCHITECTURES=121");
    m = load_with(DT_K_flat_add, DT_K_COUNT, 200, 0); // one
    assert_says(m, "1 of the ");
    assert_says(m, " kernels of dtrain_cuda.so (of 80-real, 90) do not load on NVIDIA X, sm_121, "
                   "first flat_add: other; unpack the bundle or build again");
    m = load_with(DT_K_flat_add, DT_K_flat_squares - DT_K_flat_add, 1, DT_CUDA_NO_CODE);
    assert_says(m, ", first flat_add: invalid; unpack"); // the first one's error
    assert_says(load_with(3, 1, DT_CUDA_PTX_TOO_NEW, DT_CUDA_PTX_TOO_NEW),
                "the driver (570.1) does not compile the module's PTX: update it, or build with "
                "-DDTRAIN_CUDA_ARCHITECTURES=121-real");
    assert_says(load_with(3, 9, DT_CUDA_OUT_OF_MEMORY, 1), "another program has the device's");
}

TEST_MAIN(NULL, NULL)
