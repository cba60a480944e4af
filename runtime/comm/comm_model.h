// comm_model.h: a comm whose ranks and hosts are not there: its all-reduces take time on a clock that the caller moves,
// and move no data. One rank stands for all, which do the same at the same time. For predicting a step
// (train/scaling.h); comm/bucket.h drives it like any other comm.
//
// Over MPI (comm_mpi_reduce.c) a segment takes its phases in a slot, and makes progress only when the rank calls:
// between nodes, or from the progress thread. What a rank copies, adds and hands to TCP takes its core's time; a host's
// links carry the bytes of all its ranks, one segment behind the other. On GPUs NCCL's rings and trees are taken, whichever is faster, with the
// latencies by which NCCL chooses between them (v2.28, src/graph/tuning.cc); sums run one behind the other, and no core
// has to call.
//
// Not modelled: ranks that are late, other traffic on the links.
#ifndef DT_COMM_COMM_MODEL_H
#define DT_COMM_COMM_MODEL_H

#include "comm/comm.h"

typedef struct dt_fabric {
    char name[64], what[160], source[160], date[16];
    bool gpus;          // NCCL between GPUs; false: MPI between hosts' cores
    int ranks_per_host; // 0: all ranks are on one host
    double cores;       // of a host, which its ranks share; 0: as this machine
    // Bytes a second: out of a host, and as much in at the same time, by all its links; between the GPUs of a host, of one
    // GPU; that a core copies in memory (0: measured here); that a core sends or receives by TCP (0: 2e9)
    double host_bytes_s, gpu_bytes_s, copy_bytes_s, tcp_bytes_s;
    double latency_s; // of a message between hosts
} dt_fabric;

// *now_s: the clock, which calls move forward. slow: how many times longer a core's work takes, as ranks share cores.
dt_status dt_comm_create_model(dt_comm **out, const dt_fabric *f, int world_size, double slow, double *now_s);

#endif
