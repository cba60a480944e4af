// memory_report.h: what a rank's memory goes to, by kind, and which setting changes it. dtrain check prints
// it; training compares it with what the device, host or container has before anything large is taken, so that a
// network that does not fit is one line in front of step 0 and not a failure somewhere later.
#ifndef DT_TRAIN_MEMORY_REPORT_H
#define DT_TRAIN_MEMORY_REPORT_H

#include "run/nets.h"

// The keys that lower what the CPU's memory has to hold.
#define DT_MEMORY_ADVICE                                                                                               \
    "Lower train.micro_batch (activations; results change), device.replicas, eval.batch or "                           \
    "data.cache_size, set checkpoint.async=false, or raise the limit (Slurm: --mem)"

// Prints a line for each kind of memory; networks are made.
void dt_memory_print(const dt_nets *nets, const dt_open_run *r, FILE *out);
// The memory of all kinds together.
size_t dt_memory_bytes(const dt_nets *nets, const dt_open_run *r);
// The same of a rank with so many replicas, of so many ranks, among which train.shard divides moments and averages.
size_t dt_memory_bytes_of(const dt_nets *nets, const dt_open_run *r, int n_replicas, int n_ranks);
// What this rank may use: the device's free memory, or its share of the host's, or of the container's limit.
size_t dt_memory_free_bytes(const dt_open_run *r);
// What is kept back of a device for its libraries: 256 MiB, less on a small one. A host: 0. The report lists it.
size_t dt_memory_reserve_bytes(dt_backend *b);
// Whether dt_memory_check will pass.
bool dt_memory_fits(const dt_nets *nets, const dt_open_run *r);
// Of a graph that has no plan, by the values that live at once (passes/recompute.c counts them, a few per cent above what a
// plan takes): whether its activations may fit, and their bytes where these are more than twice the host's free memory, else 0. A
// device plans by sizes alone, so 0.
bool dt_memory_may_fit(const dt_open_run *r, dt_graph *g);
size_t dt_memory_excess_bytes(const dt_open_run *r, dt_graph *g);
// DT_E_USAGE where there is such an excess. Called before plans, for which libraries generate code: oneDNN 2.6 takes minutes
// and more for AMX convolutions of tens of gigabytes.
dt_status dt_memory_check_activations(const dt_open_run *r, dt_graph *g);
// DT_E_USAGE, with every kind in one line, where the networks do not fit. Called before memory is taken.
dt_status dt_memory_check(const dt_nets *nets, const dt_open_run *r);
// After the first steps of a device: how far what they took of free_bytes is from what was planned; a warning where that is
// more than the reserve. Libraries load their kernels and NCCL connects only then.
void dt_memory_compare(const dt_nets *nets, const dt_open_run *r, size_t free_bytes);
// What is taken beside the memory that the report lists; saves: with a copy of what a checkpoint keeps.
uint64_t dt_memory_outside_bytes(const dt_nets *nets, const dt_open_run *r, bool saves);
// Whether the host has room for what libraries allocate: while plans are made, and at the first micro-batch.
dt_status dt_memory_room_for_kernels(void);
dt_status dt_memory_check_room(const dt_nets *nets, const dt_open_run *r);

#endif
