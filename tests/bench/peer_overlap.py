"""gloo's all-reduce of ResNet-18's gradients while nodes of NODE_MS sleep, in the buckets of PyTorch's DDP (25 MiB, the
first 1 MiB), for bench_hosts.sh beside `test_comm_mpi bench`. Rank 0 prints medians: peer_overlap.py NODE_MS"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

SIZES = [2359296, 2359296, 131072, 2359296, 1179648, 589824, 589824, 32768, 589824, 294912, 147456, 147456, 8192, 147456,
         73728, 36864, 36864, 36864, 36864, 9408]  # as in tests/mpi/test_comm_mpi.c
node_s = int(sys.argv[1]) / 1000
torch.set_num_threads(1)
dist.init_process_group("gloo")
buckets, full = [[]], 1 << 20  # the nodes of each
for node, n in enumerate(SIZES):
    buckets[-1].append(node)
    if 4 * sum(SIZES[i] for i in buckets[-1]) >= full:
        buckets.append([])
        full = 25 << 20
last = {b[-1]: torch.zeros(sum(SIZES[i] for i in b)) for b in buckets if b}  # by the node that completes it
total, exposed = [], []
for _ in range(5):
    dist.barrier()
    begin = time.monotonic()
    works = []
    for node in range(len(SIZES)):
        time.sleep(node_s)
        if node in last:
            works.append(dist.all_reduce(last[node], async_op=True))
    computed = time.monotonic()
    for w in works:
        w.wait()
    total.append(time.monotonic() - begin)
    exposed.append(time.monotonic() - computed)
if dist.get_rank() == 0:
    print(f"{statistics.median(total):.3f} {statistics.median(exposed):.3f}")
dist.destroy_process_group()
