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

// comm_mpi_beats.c. hosts: the name of each rank's host; must stay.
typedef struct mpi_beats mpi_beats;
dt_status mpi_beats_begin(mpi_beats **out, const dt_comm *c, char (*hosts)[MPI_HOST_BYTES]);
dt_status mpi_beats_exchange(mpi_beats *b, uint64_t *ticks); // dt_watch_peers.beat
void mpi_beats_end(mpi_beats *b);                            // frees

#endif
