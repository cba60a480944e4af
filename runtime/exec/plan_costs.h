// plan_costs.h: what a micro-batch of a plan moves and computes, and how long each kernel takes alone. For
// `dtrain check --kernels` and tests.
#ifndef DT_EXEC_PLAN_COSTS_H
#define DT_EXEC_PLAN_COSTS_H

#include "exec/plan.h"

// Where operands lie that have no memory.
#define DT_NO_MEMORY ((uintptr_t)1 << 45)

// *out: *n rows on the heap, the highest floor first, then the longest time. On a device a row is a kind of kernel
// ("bn_apply"), and its floors are by `rates` (NULL: the device's own). On the CPU it is the work of nodes with equal
// work, without a floor. Each kernel runs on memory of its own, which is zeroed and as large as the largest instruction
// needs; on the CPU as one replica. `timed` false: nothing runs, and nothing is allocated. Packing, sums over ranks and
// the commit are not in it.
dt_status dt_plan_costs(const dt_plan *p, const dt_device_rates *rates, bool timed, dt_kernel_cost **out, int *n);

#endif
