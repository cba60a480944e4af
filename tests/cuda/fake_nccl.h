// fake_nccl.h: an NCCL that only pretends, between processes of one host, for the pretending machine. Its
// collectives are queued on the machine's streams like kernels, may be captured, and do not end before all
// ranks are there; messages are files in a folder in $FAKE_NCCL_DIR, whose name is the communicator's id. What
// NCCL demands and does not always check is checked: all ranks ask for the same collectives of the same
// sizes in the same order and in the same way (not captured, or at the same place of the same capture), memory
// is the device's, what is registered is NCCL's own memory, and is given back after it is no longer registered,
// and a communicator goes once, after all graphs with its collectives: NCCL would wait for them.
// Calls are in the machine's log.
//
// With FAKE_NCCL_WRONG in the environment sums are wrong by one, as on a broken link. FAKE_NCCL_REFUSES names a
// rank (or "all") whose library fails where it is captured.
#ifndef DT_TESTS_CUDA_FAKE_NCCL_H
#define DT_TESTS_CUDA_FAKE_NCCL_H

#include "backend/cuda/cuda_api.h"
#include "backend/cuda/nccl_api.h"

// old: a library without memory of its own and without registration.
const dt_nccl_api *fake_nccl_create(dt_cuda_api *cuda, bool old);
void fake_nccl_destroy(const dt_nccl_api *a);

#endif
