// fake_nccl.h: a fake NCCL between processes of one host. Its collectives are queued on the fake streams
// like kernels, may be captured, and do not end before all ranks arrive. Messages are files in a folder in
// $FAKE_NCCL_DIR, named by the communicator's id. It checks what NCCL requires but does not always check: all ranks
// ask for the same collectives of the same sizes in the same order and in the same way (uncaptured, or at the same
// place of the same capture); memory is the device's; registered memory is NCCL's own, and is freed only after
// deregistration; a communicator is destroyed once, after all graphs with its collectives, since NCCL would wait for
// them. Calls appear in the fake device's log, and fail with NCCL's errors where fake_cuda_fail says so.
//
// It is as strict as NCCL may be: a call stays BUSY for several polls, and only then are its operations queued, by another
// thread; meanwhile no other call is allowed. A group's operations are queued together or not at all. A send ends when its
// receive has. The first operation of a kind and size, or with a peer, takes memory, and may not be captured.
//
// FAKE_NCCL_WRONG in the environment makes sums wrong by one, as on a broken link. FAKE_NCCL_REFUSES names a rank (or
// "all") whose library fails under capture. With FAKE_NCCL_SWITCH sums are made in switches where NCCL_ALGO allows NVLS:
// their order is another one for each communicator. FAKE_NCCL_LINK: bytes that a connection takes (4096).
#ifndef DT_TESTS_CUDA_FAKE_NCCL_H
#define DT_TESTS_CUDA_FAKE_NCCL_H

#include "backend/cuda/cuda_api.h"
#include "backend/cuda/nccl_api.h"

// old: a library without its own memory and without registration.
dt_nccl_api *fake_nccl_create(dt_cuda_api *cuda, bool old);
void fake_nccl_destroy(const dt_nccl_api *a);

#endif
