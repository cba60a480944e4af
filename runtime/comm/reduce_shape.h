// reduce_shape.h: how an all-reduce over MPI is cut: segments, slots, messages. comm_mpi_reduce.c works by it, and so does
// comm_model.c, which tells how long an all-reduce takes on hosts that are not there.
#ifndef DT_COMM_REDUCE_SHAPE_H
#define DT_COMM_REDUCE_SHAPE_H

#include "backend/step_block.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    // Up to this, world_size * size is exchanged in one phase.
    DT_REDUCE_SMALL_BYTES = 64 * 1024,
    // Elements of 4 bytes reduced at a time. On one host that shares memory a segment is shorter, so that all areas of all
    // its ranks take about 64 MiB. On many hosts it is longer, so that a rank's part has 4096 elements, unless the areas of
    // a host's ranks would then take more than 256 MiB. It is whole chunks of the parameters.
    DT_REDUCE_SEGMENT = 1 << 18,
    DT_REDUCE_LEAST_SEGMENT = DT_CHUNK,
    DT_REDUCE_LEAST_PART = 1 << 12,
    DT_REDUCE_HOST_SEGMENTS = 1 << 20,  // on one host: a segment times its ranks
    DT_REDUCE_HOSTS_SEGMENTS = 1 << 24, // on several: times the ranks of the largest
    // Less than what Open MPI sends at once over TCP (btl_tcp_eager_limit).
    DT_REDUCE_MESSAGE_BYTES = 60 * 1024,
    DT_REDUCE_SLOTS = 16 // segments under way
};

// Elements of a segment. n_columns, most_ranks: ranks of the smallest host, and of the largest.
static inline int64_t dt_reduce_segment(int n_hosts, int n_columns, int most_ranks) {
    const bool one_host = n_hosts == 1;
    const int64_t all = one_host ? DT_REDUCE_HOST_SEGMENTS : DT_REDUCE_HOSTS_SEGMENTS;
    const int64_t most = all / most_ranks;
    const int64_t parts = (int64_t)DT_REDUCE_LEAST_PART * n_columns * n_hosts;
    const int64_t wanted = one_host || parts < DT_REDUCE_SEGMENT ? DT_REDUCE_SEGMENT : parts;
    const int64_t n = (wanted < most ? wanted : most) / DT_REDUCE_LEAST_SEGMENT;
    return (n < 1 ? 1 : n) * DT_REDUCE_LEAST_SEGMENT;
}

// Whether a whole all-reduce is exchanged in one phase.
static inline bool dt_reduce_is_small(int64_t n_bytes, int world_size) {
    return n_bytes * world_size <= DT_REDUCE_SMALL_BYTES;
}

#endif
