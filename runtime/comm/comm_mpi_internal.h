// comm_mpi_internal.h: what the files of dtrain_mpi.so share.
#ifndef DT_COMM_COMM_MPI_INTERNAL_H
#define DT_COMM_COMM_MPI_INTERNAL_H

#include "comm/comm.h"

#include <mpi.h>
#include <pthread.h>

enum {
    MPI_HOST_BYTES = 64, // of a host's name
    MPI_TAG_BEAT = 1
};

// comm_mpi.c
extern pthread_mutex_t mpi_lock; // around each call of MPI: the watch makes some too
dt_status mpi_check(int rc, const char *what);

// comm_mpi_sum.c: what is added and how. A sum is begun, added to and ended in an accumulator: that of bf16 is f32,
// all others are of the elements themselves.
typedef enum mpi_element {
    MPI_ELEMENT_F32,
    MPI_ELEMENT_F64,
    MPI_ELEMENT_MAX_I64,
    MPI_ELEMENT_BF16
} mpi_element;
size_t mpi_element_bytes(mpi_element kind); // as it travels
void mpi_sum_begin(mpi_element kind, void *sum, const void *x, int64_t n);
void mpi_sum_add(mpi_element kind, void *sum, const void *x, int64_t n);
void mpi_sum_end(mpi_element kind, void *out, const void *sum, int64_t n);
void mpi_sum_narrow(uint16_t *to, const float *from, int64_t n); // to nearest, ties to even
void mpi_sum_widen(float *to, const uint16_t *from, int64_t n);

// comm_mpi_beats.c. hosts: the name of each rank's host; must stay.
typedef struct mpi_beats mpi_beats;
dt_status mpi_beats_begin(mpi_beats **out, const dt_comm *c, char (*hosts)[MPI_HOST_BYTES]);
dt_status mpi_beats_exchange(mpi_beats *b, uint64_t *ticks); // dt_watch_peers.beat
void mpi_beats_end(mpi_beats *b);                            // frees

#endif
