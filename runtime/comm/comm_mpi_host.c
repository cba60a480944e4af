// comm_mpi_host.c: memory that the ranks of a host share, so that they reduce a segment without a message.
//
// A rank has some areas, each as long as a segment; the n-th segment that goes this way is in area n % n_areas of every
// rank. In front of the areas stands how far the rank has got in each. MPI_HOST_FULL: its contribution is in the area;
// MPI_HOST_SUMMED: the sum of its slice is (in an all-gather alone, the first stage); MPI_HOST_LEFT: it no longer reads
// this area of any rank. When all ranks have left an area it is written again.
//
// The memory is a memfd of the host's first rank, which the others open through /proc: no name that a killed job leaves
// behind, and no limit of /dev/shm, which is 64 MiB in many containers.
#define _GNU_SOURCE
#include "base/arena.h"
#include "comm/comm_mpi_internal.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, PAGE = 4096 };

struct dt_mpi_host {
    int n, self, n_areas;
    size_t area_bytes, rank_bytes;
    char *memory;
};

// What the first rank of a host tells the others.
typedef struct offer {
    int pid, fd;
    uint64_t secret; // stands at the end of the memory, too: in another PID namespace the path leads to something else
} offer;

static _Atomic uint64_t *reached(const dt_mpi_host *h, int i, uint64_t turn) {
    return (_Atomic uint64_t *)(h->memory + (size_t)i * h->rank_bytes + turn % (uint64_t)h->n_areas * LINE);
}

char *dt_mpi_host_area(const dt_mpi_host *h, int i, uint64_t turn) {
    return h->memory + (size_t)i * h->rank_bytes + PAGE + turn % (uint64_t)h->n_areas * h->area_bytes;
}

static uint64_t comm_mpi_host_value_of(uint64_t turn, dt_mpi_host_stage stage) {
    return 4 * turn + (uint64_t)stage;
}

void dt_mpi_host_reach(const dt_mpi_host *h, uint64_t turn, dt_mpi_host_stage stage) {
    atomic_store_explicit(reached(h, h->self, turn), comm_mpi_host_value_of(turn, stage), memory_order_release);
}

bool dt_mpi_host_all(const dt_mpi_host *h, uint64_t turn, dt_mpi_host_stage stage, int *n_there) {
    for (; *n_there < h->n; ++*n_there)
        if (atomic_load_explicit(reached(h, *n_there, turn), memory_order_acquire) <
            comm_mpi_host_value_of(turn, stage))
            return false;
    return true;
}

bool dt_mpi_host_may_enter(const dt_mpi_host *h, uint64_t turn, int *n_there) {
    const uint64_t n = (uint64_t)h->n_areas;
    return turn < n || dt_mpi_host_all(h, turn - n, MPI_HOST_LEFT, n_there);
}

// -- life ------------------------------------------------------------------------------------------

static uint64_t *secret_of(const dt_mpi_host *h) {
    return (uint64_t *)(h->memory + (size_t)h->n * h->rank_bytes);
}

static bool comm_mpi_host_map(dt_mpi_host *h, int fd) {
    h->memory = mmap(NULL, (size_t)h->n * h->rank_bytes + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (h->memory == MAP_FAILED) h->memory = NULL;
    return h->memory != NULL;
}

static offer make_memory(dt_mpi_host *h) {
    struct timespec now;
    offer o = {.pid = (int)getpid(), .fd = memfd_create("dtrain", MFD_CLOEXEC)};
    clock_gettime(CLOCK_MONOTONIC, &now);
    o.secret = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    if (o.fd >= 0 && ftruncate(o.fd, (off_t)((size_t)h->n * h->rank_bytes + PAGE)) == 0 && comm_mpi_host_map(h, o.fd))
        *secret_of(h) = o.secret;
    return o;
}

static void open_memory(dt_mpi_host *h, const offer *o) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", o->pid, o->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return;
    const off_t size = lseek(fd, 0, SEEK_END);
    if (size == (off_t)((size_t)h->n * h->rank_bytes + PAGE) && comm_mpi_host_map(h, fd) &&
        *secret_of(h) != o->secret) {
        munmap(h->memory, (size_t)size);
        h->memory = NULL;
    }
    close(fd);
}

dt_status dt_mpi_host_open(dt_mpi_host **out, bool *apart, dt_comm *c, const dt_mpi_group *ranks, int n_areas,
                           size_t area_bytes) {
    dt_mpi_host *h = dt_xcalloc(1, sizeof *h);
    offer own = {.fd = -1}, *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    *h = (dt_mpi_host){.n = ranks->n, .self = ranks->self, .n_areas = n_areas, .area_bytes = area_bytes};
    h->rank_bytes = PAGE + (size_t)n_areas * area_bytes;
    if (h->self == 0 && h->n > 1) own = make_memory(h);
    dt_status st = c->all_gather_bytes(c, &own, sizeof own, all);
    if (st == DT_OK && h->self > 0) open_memory(h, &all[ranks->ranks[0]]);
    int64_t missing = h->n > 1 && !h->memory;
    if (st == DT_OK) st = c->all_reduce_max_i64(c, &missing, 1);
    if (own.fd >= 0) close(own.fd);
    free(all);
    *out = h;
    *apart = missing;
    if (st != DT_OK || missing || h->n == 1) {
        dt_mpi_host_close(h);
        *out = NULL;
    }
    return st;
}

void dt_mpi_host_close(dt_mpi_host *h) {
    if (h && h->memory) munmap(h->memory, (size_t)h->n * h->rank_bytes + PAGE);
    free(h);
}
